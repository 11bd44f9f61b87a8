//! A process killed under load: each acknowledged change is present.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use strowger_cache::local::LocalCache;
use strowger_cache::log::{LoadReport, Moment, Receipt};
use strowger_cache::request::Life;
use strowger_cache::settings::{LocalSettings, LogSettings};

use crate::references::Random;

const AT: Moment = Moment { now: 1_000_000, wall: 1_000_000 };
const FOLDER: &str = "STROWGER_CACHE_KILL_FOLDER";
const SEED: &str = "STROWGER_CACHE_KILL_SEED";
const KEYS: u64 = 2000;

fn open(folder: &Path) -> (LocalCache, LoadReport) {
    // Small segments, so that some kills hit a compaction.
    let log = LogSettings { segment: 200_000, ..LogSettings::new(folder) };
    LocalCache::open(LocalSettings::default(), log, AT).unwrap()
}

/// Runs as the child process of the test below: changes keys, prints each change before it is made and again once it is
/// acknowledged.
#[test]
#[ignore = "the child of another test"]
fn child() {
    let (Ok(folder), Ok(seed)) = (std::env::var(FOLDER), std::env::var(SEED)) else { return };
    let (cache, _) = open(Path::new(&folder));
    let mut random = Random::new(seed.parse().unwrap());
    let mut changes: Vec<(Receipt, u64, u64)> = Vec::new();
    let mut said = 0;
    let mut out = std::io::stdout().lock();
    // The test runner has begun a line.
    writeln!(out).unwrap();
    for n in 1.. {
        let (key, is_removal) = (random.below(KEYS), random.below(5) == 0);
        // Odd numbers are values.
        let number: u64 = n << 1 | u64::from(!is_removal);
        writeln!(out, "asked {key} {number}").unwrap();
        let receipt = if is_removal {
            cache.remove(&key.to_le_bytes(), AT.now).unwrap().1
        } else {
            let value = [&number.to_le_bytes()[..], &vec![1; random.below(100) as usize]].concat();
            cache.store(&key.to_le_bytes(), &value, Life::FOREVER, AT.now).unwrap()
        };
        changes.push((receipt, key, number));
        let kept = cache.kept();
        while said < changes.len() && changes[said].0 <= kept {
            let (_, key, number) = changes[said];
            writeln!(out, "kept {key} {number}").unwrap();
            said += 1;
        }
    }
}

/// Output of a child about a key.
#[derive(Default)]
struct Said {
    asked: Vec<u64>,
    kept: u64,
}

/// Runs a child until it has printed this many lines, and kills it.
fn kill_a_child(folder: &Path, seed: u64, lines: usize) -> HashMap<u64, Said> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "log_kill::child", "--ignored", "--nocapture"])
        .env(FOLDER, folder)
        .env(SEED, seed.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = Vec::new();
    for _ in 0..lines {
        output.read_until(b'\n', &mut text).unwrap();
    }
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();
    output.read_to_end(&mut text).unwrap();
    let mut said: HashMap<u64, Said> = HashMap::new();
    // The last line may be cut.
    for line in text.split_inclusive(|byte| *byte == b'\n').filter(|line| line.ends_with(b"\n")) {
        let line = std::str::from_utf8(line).unwrap();
        if let [what @ ("asked" | "kept"), key, number] = line.split_whitespace().collect::<Vec<_>>()[..] {
            let of_key = said.entry(key.parse().unwrap()).or_default();
            let number = number.parse().unwrap();
            if what == "asked" { of_key.asked.push(number) } else { of_key.kept = number }
        }
    }
    said
}

#[test]
fn each_change_that_was_kept_is_there_after_a_kill() {
    let folder = tempfile::tempdir().unwrap();
    let mut kept = 0;
    for seed in 0..8 {
        let said = kill_a_child(folder.path(), seed, 20_000 + seed as usize * 3777);
        let (cache, report) = open(folder.path());
        // A kill leaves one cut record at most.
        assert!(report.damage.len() <= 1, "{:?}", report.damage);
        for (key, Said { asked, kept: last }) in &said {
            kept += usize::from(*last > 0);
            let mut value = Vec::new();
            let is_found = cache.fetch(&key.to_le_bytes(), AT.now, &mut value).unwrap();
            let found = is_found.then(|| u64::from_le_bytes(value[..8].try_into().unwrap()));
            // The last acknowledged change, or a later one.
            let mut possible = asked.iter().filter(|number| *number >= last);
            let is_possible = match found {
                Some(found) => possible.any(|number| *number == found),
                None => *last == 0 || possible.any(|number| number & 1 == 0),
            };
            assert!(is_possible, "seed {seed}, key {key}: found {found:?}, kept {last}, asked {asked:?}");
        }
        for key in 0..KEYS {
            cache.remove(&key.to_le_bytes(), AT.now).unwrap();
        }
        cache.close();
    }
    assert!(kept > 8 * KEYS as usize / 2, "{kept}");
    assert!(!folder.path().join("000000000001.segment").exists(), "it was compacted as well");
}
