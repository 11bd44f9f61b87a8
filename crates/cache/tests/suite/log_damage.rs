//! Files cut by a kill or damaged by a disk: complete records are read, damage is reported, nothing panics.

use std::path::{Path, PathBuf};

use strowger_cache::local::LocalCache;
use strowger_cache::log::{LoadReport, Moment};
use strowger_cache::request::Life;
use strowger_cache::settings::{LocalSettings, LogSettings};

use crate::references::Random;

const AT: Moment = Moment { now: 1_000_000, wall: 1_000_000 };

fn open(folder: &Path) -> (LocalCache, LoadReport) {
    let settings = LocalSettings { bytes: 1 << 20, value: 1000, ..LocalSettings::default() };
    LocalCache::open(settings, LogSettings::new(folder), AT).unwrap()
}

/// Returns a log of one segment with ten entries of different lengths.
fn log() -> (tempfile::TempDir, PathBuf, Vec<u8>) {
    let folder = tempfile::tempdir().unwrap();
    let (cache, _) = open(folder.path());
    for n in 0..10 {
        cache.store(&[n], &value(n), Life::FOREVER, AT.now).unwrap();
        // One by one: the partitions of a group have an order of their own.
        let receipt = cache.store(&[n], &value(n), Life::FOREVER, AT.now).unwrap();
        cache.wait(receipt, std::time::Duration::from_secs(60)).unwrap();
    }
    cache.close();
    let path = folder.path().join("000000000001.segment");
    let bytes = std::fs::read(&path).unwrap();
    (folder, path, bytes)
}

fn value(n: u8) -> Vec<u8> {
    vec![n ^ 0x5a; usize::from(n) * 3 + 1]
}

/// Returns the present keys, and checks their values.
fn keys(cache: &LocalCache) -> Vec<u8> {
    let is_there = |n: &u8| {
        let mut found = Vec::new();
        let is_found = cache.fetch(&[*n], AT.now, &mut found).unwrap();
        assert!(!is_found || found == value(*n), "{n}: {found:?}");
        is_found
    };
    (0..10).filter(is_there).collect()
}

#[test]
fn a_tail_cut_at_any_byte_loses_what_was_cut_alone() {
    let (folder, path, bytes) = log();
    let mut least = 0;
    for length in 0..=bytes.len() {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let (cache, report) = open(folder.path());
        let found = keys(&cache);
        assert_eq!(found, (0..found.len() as u8).collect::<Vec<_>>(), "{length}");
        assert!(found.len() >= least, "{length}");
        least = found.len();
        assert!(report.damage.len() <= 1);
        cache.close();
        // The partial record was cut off: it is reported once.
        let (cache, report) = open(folder.path());
        assert_eq!(report.damage, [], "{length}");
        assert_eq!(keys(&cache), found);
        // The log continues after it.
        cache.store(b"more", b"value", Life::FOREVER, AT.now).unwrap();
        cache.close();
        let (cache, _) = open(folder.path());
        assert!(cache.fetch(b"more", AT.now, &mut Vec::new()).unwrap());
        drop(cache);
        for file in std::fs::read_dir(folder.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
    assert_eq!(least, 10);
}

#[test]
fn a_bit_flipped_anywhere_is_reported_and_costs_its_record_alone() {
    let (folder, path, bytes) = log();
    for at in 0..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&path, &damaged).unwrap();
        let (cache, report) = open(folder.path());
        // The header of a file has two copies.
        let said: &[PathBuf] = if at < 40 { &[] } else { std::slice::from_ref(&path) };
        assert!(report.damage.iter().map(|(path, _)| path).eq(said), "byte {at}");
        // Each entry is stored twice, in consecutive records.
        assert_eq!(keys(&cache).len(), 10, "byte {at}");
        drop(cache);
        for file in std::fs::read_dir(folder.path()).unwrap() {
            std::fs::remove_file(file.unwrap().path()).unwrap();
        }
    }
}

#[test]
fn a_damaged_segment_does_not_hide_the_next() {
    let (folder, path, mut bytes) = log();
    let (cache, _) = open(folder.path());
    cache.store(b"next", b"value", Life::FOREVER, AT.now).unwrap();
    cache.close();
    let half = bytes.len() / 2;
    bytes[half..].fill(0xff);
    std::fs::write(&path, &bytes).unwrap();
    let (cache, report) = open(folder.path());
    assert_eq!((report.segments, report.damage.len()), (2, 1));
    assert!(cache.fetch(b"next", AT.now, &mut Vec::new()).unwrap());
    assert!(!keys(&cache).is_empty());
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "it is cut only where a kill can have torn it");
}

#[test]
fn any_bytes_are_read_without_a_panic() {
    let (folder, path, bytes) = log();
    let mut random = Random::new(9);
    for round in 0..300 {
        let mut noise: Vec<u8> = bytes[..40].to_vec();
        if round % 2 == 0 {
            noise.extend((0..random.below(3000)).map(|_| random.next() as u8));
        } else {
            noise.clone_from(&bytes);
            for _ in 0..random.below(20) {
                let at = random.below(noise.len() as u64) as usize;
                noise[at] = random.next() as u8;
            }
        }
        std::fs::write(&path, &noise).unwrap();
        let (cache, _) = open(folder.path());
        keys(&cache);
    }
}

#[test]
fn files_of_others_are_left_alone() {
    let (folder, _, _) = log();
    for (name, bytes) in
        [("notes.txt", &b"mine"[..]), ("x.segment", b"mine"), ("000000000002.segment", b"something else")]
    {
        std::fs::write(folder.path().join(name), bytes).unwrap();
    }
    let (cache, report) = open(folder.path());
    assert_eq!((report.segments, report.damage.len()), (2, 1));
    assert_eq!(keys(&cache).len(), 10);
    cache.compact();
    while cache.log_gauges().unwrap().compactions == 0 {
        std::thread::yield_now();
    }
    cache.close();
    assert_eq!(std::fs::read(folder.path().join("notes.txt")).unwrap(), b"mine");
    assert_eq!(std::fs::read(folder.path().join("x.segment")).unwrap(), b"mine");
}
