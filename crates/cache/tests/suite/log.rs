//! Stored values are present in the next process, through the files of the log.

use std::path::Path;
use std::time::Duration;

use strowger_cache::local::LocalCache;
use strowger_cache::log::{LoadReport, Moment};
use strowger_cache::request::{Count, Floor, Life, Promise, Request};
use strowger_cache::settings::{LocalSettings, LogSettings};
use strowger_cache::ticket::Ticket;

const NOW: u64 = 1_000_000;
const WALL: u64 = 1_700_000_000_000;
const LONG: Duration = Duration::from_secs(60);

fn open_at(folder: &Path, now: u64, wall: u64) -> (LocalCache, LoadReport) {
    let log = LogSettings { segment: 50_000, ..LogSettings::new(folder) };
    let (cache, report) = LocalCache::open(LocalSettings::default(), log, Moment { now, wall }).unwrap();
    assert_eq!(report.damage, []);
    (cache, report)
}

fn open(folder: &Path) -> LocalCache {
    open_at(folder, NOW, WALL).0
}

fn value(cache: &LocalCache, key: &[u8], now: u64) -> Option<Vec<u8>> {
    let mut into = Vec::new();
    cache.fetch(key, now, &mut into).unwrap().then_some(into)
}

#[test]
fn the_last_change_of_each_key_counts() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    cache.store(b"changed", b"first", Life::FOREVER, NOW).unwrap();
    cache.store(b"removed", b"value", Life::FOREVER, NOW).unwrap();
    cache.store(b"emptied", b"value", Life::FOREVER, NOW).unwrap();
    cache.add(b"added", b"value", Life::FOREVER, NOW).unwrap();
    cache.add(b"added", b"later", Life::FOREVER, NOW).unwrap();
    cache.count(b"counted", Count { by: 3, floor: Floor::Zero, life: Life::FOREVER }, NOW).unwrap();
    cache.store(b"changed", b"second", Life::FOREVER, NOW).unwrap();
    cache.remove(b"removed", NOW).unwrap();
    cache.store(b"emptied", b"", Life::ms(0), NOW).unwrap();
    cache.close();
    let (cache, report) = open_at(folder.path(), NOW, WALL);
    assert_eq!((report.segments, report.changes, report.entries), (1, 8, 3));
    for (key, want) in [
        ("changed", Some("second")),
        ("removed", None),
        ("emptied", None),
        ("added", Some("value")),
        ("counted", Some("3")),
    ] {
        assert_eq!(value(&cache, key.as_bytes(), NOW), want.map(|want| want.into()), "{key}");
    }
    assert_eq!(cache.gauges().stores, 0, "what was loaded was not stored now");
}

#[test]
fn lives_go_on_by_the_wall_clock() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    cache.store(b"short", b"value", Life::ms(10_000), NOW).unwrap();
    cache.store(b"long", b"value", Life::ms(90_000), NOW).unwrap();
    cache.store(b"for ever", b"value", Life::FOREVER, NOW).unwrap();
    cache.close();
    // Another process, with another origin of its clock, 30 seconds later.
    let (cache, report) = open_at(folder.path(), 7, WALL + 30_000);
    assert_eq!(report.entries, 2);
    assert!(value(&cache, b"long", 7 + 59_999).is_some());
    assert!(value(&cache, b"long", 7 + 60_000).is_none());
    assert!(value(&cache, b"for ever", 1 << 47).is_some());
}

#[test]
fn a_receipt_that_is_kept_is_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let first = cache.store(b"one", b"value", Life::FOREVER, NOW).unwrap();
    cache.wait(first, LONG).unwrap();
    assert!(cache.kept() >= first);
    let bytes: Vec<u8> = std::fs::read_dir(folder.path())
        .unwrap()
        .flat_map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect();
    assert!(bytes.windows(8).any(|part| part == b"onevalue"));
    let second = cache.store(b"two", b"value", Life::FOREVER, NOW).unwrap();
    assert!(second > first);
}

#[test]
fn a_cache_without_a_log_has_nothing_to_wait_for() {
    let cache = LocalCache::new(LocalSettings::default());
    let receipt = cache.store(b"one", b"value", Life::FOREVER, NOW).unwrap();
    assert!(cache.kept() >= receipt);
    cache.wait(receipt, Duration::ZERO).unwrap();
    assert_eq!(cache.log_gauges(), None);
}

#[test]
fn an_evicted_entry_that_was_removed_does_not_come_back() {
    let folder = tempfile::tempdir().unwrap();
    let small = LocalSettings { bytes: 64 << 10, partitions: 1, ..LocalSettings::default() };
    let at = Moment { now: NOW, wall: WALL };
    let (cache, _) = LocalCache::open(small, LogSettings::new(folder.path()), at).unwrap();
    cache.store(b"key", b"value", Life::FOREVER, NOW).unwrap();
    for n in 0..2000_u32 {
        cache.store(&n.to_le_bytes(), b"value", Life::FOREVER, NOW).unwrap();
    }
    assert!(!cache.remove(b"key", NOW).unwrap().0, "it was evicted");
    cache.close();
    let cache = open(folder.path());
    assert_eq!(value(&cache, b"key", NOW), None);
    assert_eq!(cache.len(), 2000, "what was evicted alone comes back where there is room");
}

#[test]
fn the_log_is_compacted_while_it_runs() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let mut last = cache.kept();
    for round in 0..200_u32 {
        for n in 0..300_u32 {
            last = cache.store(&n.to_le_bytes(), &[round as u8; 50], Life::FOREVER, NOW).unwrap();
        }
        cache.remove(&(round / 10).to_le_bytes(), NOW).unwrap();
        cache.wait(last, LONG).unwrap();
    }
    let log = cache.log_gauges().unwrap();
    assert!(log.compactions > 2, "{log:?}");
    // 23 kB of the log are live. A compaction starts when the log has twice this size and a segment; some changes come
    // while it runs.
    assert!(log.bytes < 400_000, "{log:?}");
    let on_disk: u64 =
        std::fs::read_dir(folder.path()).unwrap().map(|file| file.unwrap().metadata().unwrap().len()).sum();
    assert_eq!(log.bytes, on_disk);
    cache.close();
    let cache = open(folder.path());
    for n in 0..300_u32 {
        assert_eq!(value(&cache, &n.to_le_bytes(), NOW), (n != 19).then(|| vec![199; 50]), "{n}");
    }
}

#[test]
fn a_compaction_that_was_cut_off_at_any_segment_loses_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let mut last = cache.kept();
    // More than half of it is live: no compaction begins by itself, and none writes while the segments are read.
    const KEYS: u32 = 3000;
    for n in 0..KEYS + 1000 {
        last = cache.store(&(n % KEYS).to_le_bytes(), &n.to_le_bytes(), Life::FOREVER, NOW).unwrap();
        if n % 3 == 0 {
            last = cache.remove(&(n % KEYS).to_le_bytes(), NOW).unwrap().1;
        }
        // A group is in one segment.
        if n % 100 == 99 {
            cache.wait(last, LONG).unwrap();
        }
    }
    cache.wait(last, LONG).unwrap();
    let want: Vec<_> = (0..KEYS).map(|n| value(&cache, &n.to_le_bytes(), NOW)).collect();
    let old = segments(folder.path());
    assert!(old.len() > 2, "{}", old.len());
    cache.compact();
    while cache.log_gauges().unwrap().compactions == 0 {
        std::thread::yield_now();
    }
    assert_eq!(cache.log_gauges().unwrap().compactions, 1);
    cache.close();
    let new = segments(folder.path());
    // The kill comes after this many of the old segments were removed.
    for removed in 0..=old.len() {
        let copy = tempfile::tempdir().unwrap();
        for (name, bytes) in old[removed..].iter().chain(&new) {
            std::fs::write(copy.path().join(name), bytes).unwrap();
        }
        let cache = open(copy.path());
        let found: Vec<_> = (0..KEYS).map(|n| value(&cache, &n.to_le_bytes(), NOW)).collect();
        assert!(found == want, "{removed} of {}", old.len());
    }
}

fn segments(folder: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap());
    let mut all: Vec<_> = files.map(|file| (file.file_name(), std::fs::read(file.path()).unwrap())).collect();
    all.retain(|(name, _)| name.to_str().unwrap().ends_with(".segment"));
    all.sort();
    all
}

#[test]
fn many_small_segments_are_compacted_too() {
    let folder = tempfile::tempdir().unwrap();
    for n in 0..60_u32 {
        let cache = open(folder.path());
        cache.store(&n.to_le_bytes(), b"value", Life::FOREVER, NOW).unwrap();
        while cache.log_gauges().unwrap().segments > 20 {
            std::thread::yield_now();
        }
        cache.close();
    }
    assert_eq!(open(folder.path()).len(), 60);
}

#[test]
fn one_cache_has_a_folder_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let cache = open(folder.path());
    let second =
        LocalCache::open(LocalSettings::default(), LogSettings::new(folder.path()), Moment { now: 0, wall: 0 });
    assert_eq!(second.err().unwrap().kind(), std::io::ErrorKind::ResourceBusy);
    drop(cache);
    open(folder.path());
}

#[test]
fn a_synced_log_is_read_as_well() {
    let folder = tempfile::tempdir().unwrap();
    let log = LogSettings { sync: true, segment: 1000, ..LogSettings::new(folder.path()) };
    let at = Moment { now: NOW, wall: WALL };
    let (cache, _) = LocalCache::open(LocalSettings::default(), log, at).unwrap();
    for n in 0..30_u32 {
        let receipt = cache.store(&n.to_le_bytes(), &[1; 100], Life::FOREVER, NOW).unwrap();
        cache.wait(receipt, LONG).unwrap();
    }
    cache.close();
    assert_eq!(open(folder.path()).len(), 30);
}

/// After a restart from a log, and from a compacted log.
#[test]
fn a_promised_entry_is_promised_in_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let settings = LocalSettings { bytes: 64 << 10, key: 32, value: 100, partitions: 1 };
    let open = || {
        let at = Moment { now: NOW, wall: WALL };
        LocalCache::open(settings.clone(), LogSettings::new(folder.path()), at).unwrap().0
    };
    let cache = open();
    for n in 0..50_u32 {
        let key = n.to_le_bytes();
        let request = Request::Store { key: &key, value: &[1; 100], life: Life::FOREVER };
        cache.ask(&request, Promise::Kept, Ticket::NONE, NOW, &mut Vec::new());
    }
    for _ in 0..2 {
        cache.compact();
        while cache.log_gauges().unwrap().compactions == 0 {
            std::thread::yield_now();
        }
    }
    cache.close();
    for _ in 0..2 {
        let cache = open();
        for n in 1_000..5_000_u32 {
            cache.store(&n.to_le_bytes(), &[2; 100], Life::FOREVER, NOW).unwrap();
        }
        assert_eq!((0..50_u32).filter(|n| value(&cache, &n.to_le_bytes(), NOW).is_some()).count(), 50);
        cache.close();
    }
}
