//! Log thread: writes groups, compacts the log, and tries again after a failure.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use strowger_files::FileLock;
use strowger_records::{HEAD, Segment, Writer};

use super::changes::each;
use super::{LogState, Receipt};
use crate::error::CacheError;
use crate::local::Shared;
use crate::settings::LogSettings;

/// Smallest size of a write, if there is enough data.
const WRITE: usize = 1 << 20;
/// Entries that a compaction notes under one lock, and their bytes: they bound the wait of a fetch.
const NOTED: usize = 8;
const NOTED_BYTES: usize = 16 << 10;
/// Locks that a compaction takes before its noted entries are written.
const NOTES: usize = 1024;
/// Bytes of a change in the log in addition to key and value.
const BESIDE: u64 = HEAD as u64 + 10;

/// Function that creates the file of a segment.
pub(crate) type OpenSegment = Box<dyn FnMut(&Path) -> io::Result<Writer> + Send>;

pub(crate) struct Keeper {
    shared: Arc<Shared>,
    log: Arc<LogState>,
    settings: LogSettings,
    open: OpenSegment,
    segments: Vec<Segment>,
    /// Writer of the last segment. `None`: the next group begins one.
    writer: Option<Writer>,
    /// Changes taken from each partition.
    groups: Vec<Vec<u8>>,
    compaction: Option<Compaction>,
    /// Time of the failure, while nothing is written.
    failed_at: Option<Instant>,
    /// Bytes that the entries would have in the log.
    live: u64,
    _lock: FileLock,
}

/// Compaction in progress.
struct Compaction {
    /// First segment that stays.
    first: u64,
    part: usize,
    /// Entry to continue with.
    from: u32,
    /// True after a failure: groups are acknowledged only at the end of this compaction.
    is_recovery: bool,
}

impl Keeper {
    pub(crate) fn new(
        shared: Arc<Shared>,
        log: Arc<LogState>,
        settings: LogSettings,
        segments: Vec<Segment>,
        lock: FileLock,
        open: OpenSegment,
    ) -> Self {
        let groups = (0..shared.parts()).map(|_| Vec::new()).collect();
        let keeper = Self {
            shared,
            log,
            settings,
            open,
            segments,
            writer: None,
            groups,
            compaction: None,
            failed_at: None,
            live: 0,
            _lock: lock,
        };
        keeper.show_segments();
        keeper
    }

    /// Works until the log is stopped, then writes the remaining changes.
    pub(crate) fn run(mut self) {
        let mut is_stopped = false;
        while !is_stopped {
            if self.log.takes_compaction() && self.failed_at.is_none() {
                self.begin_compaction(false);
            }
            let was_busy = self.round();
            is_stopped = if let Some(failed_at) = self.failed_at {
                let left = self.settings.pause.saturating_sub(failed_at.elapsed());
                let is_stopped = self.log.sleep(Some(left));
                if !is_stopped && failed_at.elapsed() >= self.settings.pause {
                    self.try_again();
                }
                is_stopped
            } else if was_busy || self.compaction.is_some() {
                // A compaction also yields the processor between its steps.
                self.log.sleep(Some(self.settings.linger))
            } else {
                self.idle()
            };
        }
        self.finish();
    }

    /// Writes the remaining changes. If the log is incomplete, makes a last attempt, because memory still has the
    /// entries.
    fn finish(&mut self) {
        self.round();
        if self.failed_at.is_some() {
            self.try_again();
        }
        while self.compaction.as_ref().is_some_and(|compaction| compaction.is_recovery) {
            self.round();
        }
    }

    /// Sleeps until there is a change.
    fn idle(&mut self) -> bool {
        self.log.is_idle.store(true, Ordering::SeqCst);
        // This round writes changes that were noted before the flag was visible. It may fail, or begin a compaction.
        if self.round() || self.failed_at.is_some() || self.compaction.is_some() {
            self.log.is_idle.store(false, Ordering::SeqCst);
            return false;
        }
        let is_stopped = self.log.sleep(None);
        self.log.is_idle.store(false, Ordering::SeqCst);
        is_stopped || self.log.sleep(Some(self.settings.linger))
    }

    /// Takes all changes and writes them. Returns whether there were any.
    fn round(&mut self) -> bool {
        let group = self.log.next_group();
        if self.failed_at.is_some() {
            return false;
        }
        let is_last = self.compaction.as_mut().is_some_and(|compaction| self.shared.note(compaction));
        let has_gap = self.take_groups();
        let was_busy = self.groups.iter().any(|group| !group.is_empty());
        match self.write_groups() {
            Err(error) => self.fail(&error),
            Ok(()) if has_gap => {
                self.fail_by(CacheError::Full, &"changes come faster than it is written");
                self.try_again();
            }
            Ok(()) => self.settle(group, is_last),
        }
        was_busy
    }

    /// Takes the changes of the partitions. Returns whether any partition has a gap.
    fn take_groups(&mut self) -> bool {
        let mut has_gap = false;
        self.live = 0;
        for (part, group) in self.groups.iter_mut().enumerate() {
            let mut partition = self.shared.part(part);
            self.live += partition.data() as u64 + partition.len() as u64 * BESIDE;
            if let Some(changes) = &mut partition.changes {
                has_gap |= changes.swap(group);
            }
        }
        has_gap
    }

    fn write_groups(&mut self) -> io::Result<()> {
        let mut groups = std::mem::take(&mut self.groups);
        let result = self.write_all(&groups);
        for group in &mut groups {
            // Frees the memory of a burst.
            if group.capacity() > 64 << 10 && group.capacity() / 4 > group.len() {
                group.shrink_to(64 << 10);
            }
            group.clear();
        }
        self.groups = groups;
        result
    }

    fn write_all(&mut self, groups: &[Vec<u8>]) -> io::Result<()> {
        let mut rest = groups;
        while !rest.is_empty() {
            let mut bytes = 0;
            let end = rest
                .iter()
                .take_while(|group| {
                    bytes < WRITE && {
                        bytes += group.len();
                        true
                    }
                })
                .count();
            let (now, later) = rest.split_at(end);
            rest = later;
            if bytes == 0 {
                continue;
            }
            if self.writer.is_none() {
                self.begin_segment()?;
            }
            let writer = self.writer.as_mut().expect("a segment was begun");
            let mut written = 0;
            writer.write(|records| {
                for (kind, payload) in now.iter().flat_map(|group| each(group)) {
                    records.push(kind, |out| out.extend_from_slice(payload));
                    written += 1;
                }
            })?;
            self.log.figures.written.fetch_add(written, Ordering::Relaxed);
            if let Some(segment) = self.segments.last_mut() {
                segment.bytes = writer.length();
            }
            if writer.length() >= self.settings.segment {
                self.end_segment()?;
            }
        }
        if let Some(writer) = self.writer.as_mut().filter(|_| self.settings.sync) {
            writer.sync()?;
        }
        self.show_segments();
        Ok(())
    }

    /// Acknowledges a written group.
    fn settle(&mut self, group: Receipt, is_last: bool) {
        let is_recovery = self.compaction.as_ref().is_some_and(|compaction| compaction.is_recovery);
        if is_last && let Some(compaction) = self.compaction.take() {
            self.end_compaction(&compaction);
        }
        if !is_recovery {
            self.log.keep(group, false);
        } else if is_last {
            self.log.keep(group, true);
            tracing::info!(folder = %self.settings.folder.display(), "the log of the cache is written again");
        }
        if self.compaction.is_none() && self.is_worth_compacting() {
            self.begin_compaction(false);
        }
    }

    fn is_worth_compacting(&self) -> bool {
        let bytes: u64 = self.segments.iter().map(|segment| segment.bytes).sum();
        let few = 16 + 2 * bytes / self.settings.segment.max(1);
        bytes > 2 * self.live + self.settings.segment || self.segments.len() as u64 > few
    }

    fn begin_compaction(&mut self, is_recovery: bool) {
        if self.compaction.is_some() {
            return;
        }
        if let Err(error) = self.end_segment() {
            return self.fail(&error);
        }
        let first = self.next_number();
        self.compaction = Some(Compaction { first, part: 0, from: 0, is_recovery });
    }

    fn end_compaction(&mut self, compaction: &Compaction) {
        // The oldest segments are removed first, so that the remaining log is always the end of the whole log. If a
        // segment cannot be removed, all later segments stay too.
        while let Some(segment) = self.segments.first().filter(|segment| segment.number < compaction.first)
            && remove(&Segment::path(&self.settings.folder, segment.number))
        {
            self.segments.remove(0);
        }
        self.log.figures.compactions.fetch_add(1, Ordering::Relaxed);
        self.show_segments();
    }

    fn next_number(&self) -> u64 {
        self.segments.last().map_or(1, |segment| segment.number + 1)
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        let number = self.next_number();
        self.writer = Some((self.open)(&Segment::path(&self.settings.folder, number))?);
        self.segments.push(Segment { number, bytes: 0 });
        if self.settings.sync {
            std::fs::File::open(&self.settings.folder)?.sync_all()?;
        }
        Ok(())
    }

    fn end_segment(&mut self) -> io::Result<()> {
        let Some(mut writer) = self.writer.take() else { return Ok(()) };
        if self.settings.sync { writer.sync() } else { Ok(()) }
    }

    fn fail(&mut self, error: &io::Error) {
        self.fail_by(CacheError::of(error), error);
    }

    /// Stops writing until the next attempt.
    fn fail_by(&mut self, error: CacheError, words: &dyn std::fmt::Display) {
        if self.log.waiting().error.is_none() {
            let folder = self.settings.folder.display();
            tracing::error!(%folder, "the log of the cache cannot be written, and the cache goes on in memory: {words}");
        }
        self.failed_at = Some(Instant::now());
        if let (Some(writer), Some(segment)) = (self.writer.take(), self.segments.last()) {
            // Bytes after the last complete record would count as damage.
            Segment::cut(&Segment::path(&self.settings.folder, segment.number), writer.length());
        }
        if let Some(compaction) = self.compaction.take().filter(|compaction| compaction.is_recovery) {
            // None of the compaction is acknowledged, and the remains of repeated attempts would fill the disk.
            let (folder, first) = (&self.settings.folder, compaction.first);
            self.segments.retain(|segment| segment.number < first || !remove(&Segment::path(folder, segment.number)));
        }
        self.show_segments();
        self.take_changes(false);
        self.log.figures.failures.fetch_add(1, Ordering::Relaxed);
        self.log.fail(error);
    }

    /// Begins to write again, with the whole contents of memory.
    fn try_again(&mut self) {
        self.failed_at = None;
        self.take_changes(true);
        self.begin_compaction(true);
    }

    fn take_changes(&self, is_taking: bool) {
        for part in 0..self.groups.len() {
            if let Some(changes) = &mut self.shared.part(part).changes {
                changes.take(is_taking);
            }
        }
    }

    fn show_segments(&self) {
        let figures = &self.log.figures;
        figures.bytes.store(self.segments.iter().map(|segment| segment.bytes).sum(), Ordering::Relaxed);
        figures.segments.store(self.segments.len() as u64, Ordering::Relaxed);
    }
}

/// Removes a segment file. Returns whether the file is gone.
fn remove(path: &Path) -> bool {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(segment = %path.display(), "a segment of the cache cannot be removed: {error}");
            false
        }
        _ => true,
    }
}

impl Drop for Keeper {
    /// Fails all tickets when the thread ends, even by a panic, so that no ticket waits for ever.
    fn drop(&mut self) {
        self.log.fail(CacheError::Unavailable);
    }
}

impl Shared {
    /// Makes the partitions note some more entries. Returns whether these were the last.
    fn note(&self, compaction: &mut Compaction) -> bool {
        for _ in 0..NOTES {
            if compaction.part == self.parts() {
                return true;
            }
            match self.part(compaction.part).note_entries(compaction.from, NOTED, NOTED_BYTES) {
                Some(from) if from == compaction.from => return false,
                Some(from) => compaction.from = from,
                None => (compaction.part, compaction.from) = (compaction.part + 1, 0),
            }
        }
        compaction.part == self.parts()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Write;
    use std::sync::atomic::AtomicUsize;
    use std::time::Duration;

    use strowger_records::Medium;

    use super::*;
    use crate::local::LocalCache;
    use crate::log::Moment;
    use crate::log::segments::MAGIC;
    use crate::request::Life;
    use crate::settings::LocalSettings;

    const AT: Moment = Moment { now: 1_000_000, wall: 1_000_000 };
    const LONG: Duration = Duration::from_secs(60);

    /// File on a disk with little space left, which accepts as much of each write as fits.
    struct Disk {
        file: File,
        room: Arc<AtomicUsize>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let takes = bytes.len().min(self.room.load(Ordering::Relaxed));
            if takes == 0 {
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.room.fetch_sub(takes, Ordering::Relaxed);
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

    fn open(folder: &Path, room: &Arc<AtomicUsize>) -> LocalCache {
        let settings = LogSettings { pause: Duration::from_millis(5), segment: 10_000, ..LogSettings::new(folder) };
        let room = room.clone();
        let open_segment = move |path: &Path| {
            let disk = Disk { file: File::create(path)?, room: room.clone() };
            Ok(Writer::on(disk, MAGIC))
        };
        let cache = LocalCache::open_on(LocalSettings::default(), settings, AT, Box::new(open_segment));
        let (cache, report) = cache.unwrap();
        assert_eq!(report.damage, []);
        cache
    }

    #[test]
    fn a_disk_that_is_full_anywhere_is_reported_and_what_was_kept_stays() {
        for room in (0..12_000).step_by(977) {
            let folder = tempfile::tempdir().unwrap();
            let disk = Arc::new(AtomicUsize::new(room));
            let cache = open(folder.path(), &disk);
            let store = |n: u32| cache.store(&n.to_le_bytes(), &[1; 100], Life::FOREVER, AT.now).unwrap();
            let kept = (0..).take_while(|n| cache.wait(store(*n), LONG).is_ok()).count() as u32;
            assert!((kept as usize) < room / 100 + 1);
            assert_eq!(cache.wait(store(kept + 1), LONG), Err(CacheError::Full));
            assert_eq!(cache.log_gauges().unwrap().failing, 1);
            assert_eq!(cache.len() as u32, kept + 2, "memory goes on");
            // Failed attempts leave no files.
            let files = || std::fs::read_dir(folder.path()).unwrap().count();
            let (failures, most) = (cache.log_gauges().unwrap().failures, files() + 1);
            while cache.log_gauges().unwrap().failures < failures + 5 {
                assert!(files() <= most);
            }
            if room % 2 == 0 {
                // A copy of the folder stands in for a kill while the disk is full.
                let copy = tempfile::tempdir().unwrap();
                for file in std::fs::read_dir(folder.path()).unwrap() {
                    let file = file.unwrap();
                    std::fs::copy(file.path(), copy.path().join(file.file_name())).unwrap();
                }
                let (copied, _) =
                    LocalCache::open(LocalSettings::default(), LogSettings::new(copy.path()), AT).unwrap();
                for n in 0..kept {
                    assert!(copied.fetch(&n.to_le_bytes(), AT.now, &mut Vec::new()).unwrap(), "{n} of {kept}");
                }
            }
            disk.store(1 << 30, Ordering::Relaxed);
            while cache.log_gauges().unwrap().failing == 1 {
                std::thread::yield_now();
            }
            cache.wait(store(kept + 2), LONG).unwrap();
            cache.close();
            assert_eq!(open(folder.path(), &disk).len() as u32, kept + 3);
        }
    }
}
