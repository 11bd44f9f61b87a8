//! Folders after a kill, and full disks.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use strowger_files::private;
use strowger_records::{Medium, Writer};

use strowger_store::calls::{CallStore, Settings};

use super::*;

type Found = BTreeMap<u64, (bool, Vec<u8>)>;

fn settings() -> Settings {
    let ms = Duration::from_millis;
    Settings { interval: ms(1), retry: ms(5), grace: ms(0), end: ms(0) }
}

fn of(folder: &Path) -> FolderSettings {
    FolderSettings { segment: 4_000, wait: Duration::ZERO, ..FolderSettings::new(folder) }
}

fn open(folder: &Path) -> (CallStore, Found, LoadReport) {
    open_with(of(folder), settings())
}

/// Opens a store. Returns the store and the data of an earlier process: whether a number was closed, and its bytes.
fn open_with(folder: FolderSettings, settings: Settings) -> (CallStore, Found, LoadReport) {
    let mut found = Found::new();
    let folder = Folder::open(folder).expect("the folder is free");
    let (store, report) = CallStore::open(Box::new(folder), settings, |number, left| {
        let of = match left {
            Left::State(bytes) => (false, bytes.to_vec()),
            Left::LastWords(bytes) => (true, bytes.to_vec()),
        };
        assert!(found.insert(number, of).is_none(), "{number} twice");
    })
    .expect("it can be read");
    (store, found, report)
}

/// Copies the folder as a kill would leave it now.
fn copy(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().expect("a folder");
    for file in std::fs::read_dir(folder).expect("it is there") {
        let file = file.expect("an entry");
        // A file may be removed meanwhile, as it may be before a kill.
        let _ = std::fs::copy(file.path(), copy.path().join(file.file_name()));
    }
    copy
}

#[track_caller]
fn comes(what: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < end, "it does not come");
        // Gives the processor to the thread of the store.
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn state(number: u64, version: u64) -> Box<[u8]> {
    let mut bytes = format!("{number} {version} ").into_bytes();
    bytes.resize(40 + (number % 7) as usize * 30, b'x');
    bytes.into()
}

#[test]
fn the_last_state_of_each_number_is_found() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, found, report) = open(folder.path());
    assert!(found.is_empty() && report.damage.is_empty());
    (0..300).for_each(|n| store.put(n, state(n, 1)));
    (0..300).step_by(3).for_each(|n| store.put(n, state(n, 2)));
    (0..300).step_by(5).for_each(|n| store.remove(n));
    comes(|| store.figures().pending == 0);
    assert_eq!(store.figures().kept, 240);
    let expected: Found = (0..300)
        .filter(|n| n % 5 != 0)
        .map(|n| (n, (false, state(n, if n % 3 == 0 { 2 } else { 1 }).into())))
        .collect();
    let killed = copy(folder.path());
    assert_eq!(open(killed.path()).1, expected);
    // A second process is refused.
    let refused = Folder::open(of(folder.path())).err().expect("it is in use").to_string();
    assert!(refused.contains("another process"), "{refused}");
    // Pending changes are written at the end.
    store.put(1_000, state(1_000, 1));
    drop(store);
    let (_, found, report) = open(folder.path());
    assert_eq!((found.len(), report.states, report.damage), (241, 241, vec![]));
}

#[test]
fn last_words_stay_for_their_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, ..) = open_with(of(folder.path()), Settings { grace: Duration::from_secs(600), ..settings() });
    store.put(1, state(1, 1));
    store.put(2, state(2, 1));
    store.close(1, b"words"[..].into());
    store.close(3, b"other words"[..].into());
    comes(|| store.figures().pending == 0);
    let killed = copy(folder.path());
    let (store, found, report) = open(killed.path());
    let expected =
        [(1, (true, b"words".to_vec())), (2, (false, state(2, 1).into())), (3, (true, b"other words".to_vec()))];
    assert_eq!((found, report.closed), (expected.into(), 2));
    // Then the last words are removed, except those of a number that was stored again.
    store.put(3, state(3, 1));
    comes(|| store.figures().kept == 2 && store.figures().pending == 0);
    drop(store);
    assert_eq!(open(killed.path()).1.into_keys().collect::<Vec<_>>(), [2, 3]);
}

#[test]
fn a_folder_stays_small_and_whole_while_states_change() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, ..) = open(folder.path());
    let numbers = 100;
    let mut versions = vec![0; numbers as usize];
    let mut turns = 0_u64;
    // Some numbers are stored once and stay: their records are copied by each compaction.
    for round in 0..400 {
        for n in (0..numbers).filter(|n| round == 0 || n % 4 == round % 3 + 1) {
            versions[n as usize] = round + 1;
            store.put(n, state(n, round + 1));
        }
        comes(|| store.figures().pending == 0);
        if round % 50 == 49 {
            let killed = copy(folder.path());
            let (_, found, report) = open(killed.path());
            assert_eq!(report.damage, [], "{round}");
            let expected: Found = (0..numbers).map(|n| (n, (false, state(n, versions[n as usize]).into()))).collect();
            // States of the last round may have been written before the copy, or exist twice.
            assert_eq!(found, expected, "{round}");
            turns += 1;
        }
    }
    let live: u64 = (0..numbers).map(|n| state(n, 400).len() as u64 + BESIDE).sum();
    comes(|| store.figures().bytes <= 2 * live + 3 * of(folder.path()).segment);
    assert_eq!((turns, store.figures().kept, store.figures().failures), (8, numbers, 0));
}

/// File on a disk with little space left, which accepts as much of each write as fits.
struct Disk {
    file: File,
    room: Arc<AtomicUsize>,
}

impl Write for Disk {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let takes = bytes.len().min(self.room.load(Relaxed));
        if takes == 0 {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.room.fetch_sub(takes, Relaxed);
        self.file.write(&bytes[..takes])
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Medium for Disk {
    fn cut(&mut self, length: u64) -> io::Result<()> {
        self.file.cut(length)
    }
}

#[test]
fn a_disk_that_is_full_anywhere_costs_memory_and_loses_nothing() {
    // Some have no space for the header of a segment.
    for room in [0, 4].into_iter().chain((8..6_000).step_by(431)) {
        let folder = tempfile::tempdir().expect("a folder");
        let (store, ..) = open(folder.path());
        store.put(1_000, state(1_000, 1));
        drop(store);
        let disk = Arc::new(AtomicUsize::new(room));
        let room_left = disk.clone();
        let create = move |path: &Path| {
            let file = private::file().truncate(true).open(path)?;
            Ok(Writer::on(Disk { file, room: room_left.clone() }, MAGIC))
        };
        let engine = Folder::open_on(of(folder.path()), Box::new(create)).expect("the folder is free");
        let mut left = Vec::new();
        let (store, _) = CallStore::open(Box::new(engine), settings(), |number, _| left.push(number))
            .expect("a full disk is no error of the start");
        assert_eq!(left, [1_000]);
        (0..100).for_each(|n| store.put(n, state(n, 1)));
        comes(|| store.figures().is_down && store.figures().failures > 3);
        // Each number waits once, however often it changes.
        (2..6).for_each(|version| (0..100).for_each(|n| store.put(n, state(n, version))));
        store.remove(7);
        // A group that passes from the queue to the writer counts in both for a moment.
        comes(|| store.figures().pending <= 200);
        let killed = copy(folder.path());
        assert_eq!(open(killed.path()).2.damage.len() / 2, 0, "at most the end of the last group is cut");
        disk.store(1 << 30, Relaxed);
        comes(|| !store.figures().is_down && store.figures().pending == 0);
        drop(store);
        let (_, found, report) = open(folder.path());
        let mut expected: Found = (0..100).filter(|n| *n != 7).map(|n| (n, (false, state(n, 5).into()))).collect();
        expected.insert(1_000, (false, state(1_000, 1).into()));
        assert_eq!((found, report.damage), (expected, vec![]), "room for {room}");
    }
}

#[test]
fn damaged_and_cut_records_are_left_out_and_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let (store, ..) = open_with(FolderSettings { segment: 1 << 20, ..of(folder.path()) }, settings());
    (0..10).for_each(|n| store.put(n, state(n, 1)));
    drop(store);
    let path = Segment::path(folder.path(), 1);
    let whole = std::fs::read(&path).expect("it is there");
    for at in 0..whole.len() {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        std::fs::write(&path, &bytes).expect("it can be written");
        let mut found = 0;
        let (_, _, report) = segments::load(folder.path(), &mut |number, left| {
            assert_eq!(left, Left::State(&state(number, 1)), "damage at {at}");
            found += 1;
        })
        .expect("the folder can be read");
        // The header has two copies: damage to one of them loses no record.
        let is_of_a_record = at >= 40;
        let lost = usize::from(is_of_a_record);
        assert_eq!((found, report.damage.len()), (10 - lost, lost), "damage at {at}: {report:?}");
        assert_eq!(std::fs::read(&path).expect("it is there"), bytes, "nothing is cut at {at}");
        std::fs::write(&path, &whole[..at]).expect("it can be written");
        let (.., report) = segments::load(folder.path(), &mut |_, _| ()).expect("the folder can be read");
        assert!(report.states < 10 && report.damage.len() <= 1, "cut at {at}: {report:?}");
        // A second start reports no cut.
        let (.., again) = segments::load(folder.path(), &mut |_, _| ()).expect("the folder can be read");
        assert_eq!((again.states, again.damage.len()), (report.states, 0), "cut at {at}");
    }
    // Segments of an earlier version are read, and copied into segments of this version.
    let plain = plain_segment(&whole);
    std::fs::write(&path, &plain).expect("it can be written");
    let (store, found, report) = open(folder.path());
    assert_eq!((found.len(), report.damage), (10, vec![]));
    (100..200).for_each(|n| store.put(n, state(n, 1)));
    comes(|| store.figures().pending == 0);
    (100..200).for_each(|n| store.remove(n));
    comes(|| !path.exists());
    drop(store);
    assert_eq!(open(folder.path()).1, found);
    // The next process writes to another segment.
    let (store, ..) = open(folder.path());
    store.put(70, state(70, 1));
    drop(store);
    assert!(open(folder.path()).1.contains_key(&70));
}

/// Returns the same records in the format of an earlier version: without a salt, with heads of nine bytes.
fn plain_segment(salted: &[u8]) -> Vec<u8> {
    let crc = |bytes: &[u8]| {
        !bytes.iter().fold(!0_u32, |crc, byte| {
            (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ ((crc & 1) * 0xedb8_8320))
        })
    };
    let (mut plain, mut rest) = (MAGIC.to_vec(), &salted[40..]);
    while let Some((head, behind)) = rest.split_first_chunk::<13>() {
        let length = u32::from_le_bytes(*head.first_chunk().expect("it has four bytes"));
        let (payload, behind) = behind.split_at(length as usize);
        plain.extend(&head[..5]);
        plain.extend(crc(&[&head[4..5], payload].concat()).to_le_bytes());
        plain.extend(payload);
        rest = behind;
    }
    plain
}

/// The system would continue to write into a segment whose name was removed.
#[test]
fn a_segment_that_was_removed_takes_nothing_until_it_is_back() {
    let folder = tempfile::tempdir().expect("a folder");
    let away = tempfile::tempdir().expect("a folder");
    let calls = folder.path().join("calls");
    let (store, ..) = open(&calls);
    store.put(1, state(1, 1));
    comes(|| store.figures().written == 1);
    std::fs::rename(&calls, away.path().join("calls")).expect("it is there");
    store.put(2, state(2, 1));
    comes(|| store.figures().is_down && store.figures().failures > 2);
    assert_eq!((store.figures().written, store.figures().pending), (1, 1));
    std::fs::rename(away.path().join("calls"), &calls).expect("it is there");
    comes(|| !store.figures().is_down && store.figures().pending == 0);
    assert_eq!(open(copy(&calls).path()).1.len(), 2);
}

#[test]
fn folders_that_cannot_be_used_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("file");
    std::fs::write(&file, "text").expect("it can be written");
    let refused = |path: &Path| Folder::open(of(path)).err().expect("it is refused").to_string();
    assert!(refused(&file).contains("file"));
    assert!(refused(Path::new("/proc/there/is/none")).contains("/proc"));
}

/// Changes of each group.
type Groups = Vec<Vec<(u64, Change)>>;

/// Engine that fails a number of times, and records its groups.
#[derive(Clone, Default)]
struct Flaky {
    failures: Arc<AtomicUsize>,
    groups: Arc<Mutex<Groups>>,
}

impl Flaky {
    fn of(failures: usize) -> Self {
        Self { failures: Arc::new(failures.into()), ..Self::default() }
    }

    fn store(&self, settings: Settings) -> CallStore {
        CallStore::open(Box::new(self.clone()), settings, |_, _| ()).expect("it is empty").0
    }
}

impl CallEngine for Flaky {
    fn name(&self) -> String {
        "a flaky place".into()
    }

    fn load(&mut self, _: &mut (dyn FnMut(u64, Left<'_>) + Send)) -> Result<LoadReport, OpenError> {
        Ok(LoadReport::default())
    }

    fn write(&mut self, changes: &[(u64, &Change)]) -> Result<(), Failure> {
        if self.failures.load(Relaxed) > 0 {
            self.failures.fetch_sub(1, Relaxed);
            return Err("not now".into());
        }
        let group = changes.iter().map(|(number, change)| (*number, (*change).clone())).collect();
        self.groups.lock().expect("no test panics with it").push(group);
        Ok(())
    }

    fn held(&self) -> Held {
        Held::default()
    }
}

#[test]
fn the_end_waits_so_long_for_a_place_that_fails() {
    let long = Settings { interval: Duration::from_secs(600), end: Duration::from_secs(600), ..settings() };
    let flaky = Flaky::of(3);
    let store = flaky.store(long);
    store.put(1, state(1, 1));
    drop(store);
    let groups = flaky.groups.lock().expect("no test panics with it").clone();
    assert_eq!(groups, [vec![(1, Change::State(state(1, 1)))]]);
    // All attempts fail.
    let flaky = Flaky::of(usize::MAX);
    let store = flaky.store(Settings { end: Duration::from_millis(30), ..long });
    store.put(1, state(1, 1));
    drop(store);
    let tries = usize::MAX - flaky.failures.load(Relaxed);
    assert!((1..=7).contains(&tries), "{tries}");
}

#[test]
fn a_place_gets_groups_that_it_can_take() {
    let long = Settings { interval: Duration::from_secs(600), end: Duration::from_secs(600), ..settings() };
    let flaky = Flaky::default();
    let store = flaky.store(long);
    (0..5_000).for_each(|n| store.remove(n));
    (5_000..5_010).for_each(|n| store.put(n, vec![7; CallStore::LONGEST].into()));
    store.put(5_010, vec![7; CallStore::LONGEST + 1].into());
    drop(store);
    let groups = flaky.groups.lock().expect("no test panics with it").clone();
    let mut numbers: Vec<u64> = groups.iter().flatten().map(|(number, _)| *number).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..5_010).collect::<Vec<_>>());
    for group in &groups {
        let bytes: usize = group.iter().map(|(_, change)| change.said().len()).sum();
        assert!(group.len() <= 2_000 && bytes < 2 << 20, "{} changes, {bytes} bytes", group.len());
    }
}
