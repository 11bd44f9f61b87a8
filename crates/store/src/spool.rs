//! Rows that must not be lost, in order, in a file of [records](strowger_records) that only grows: for what is handed on later.
//!
//! A group that cannot be written stays, and is tried again; meanwhile the queue fills up to its bound.

use std::time::{Duration, Instant};

use strowger_records::Writer;

use crate::group::{Commit, GroupFigures, GroupSettings, GroupWriter, Numbered, Row};

/// A record of a spool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpoolRow {
    /// What it is, as its user numbers kinds.
    pub kind: u8,
    /// At most [`LONGEST`](strowger_records::LONGEST) bytes.
    pub payload: Box<[u8]>,
}

impl Row for SpoolRow {
    /// One, and one more for each 4 KiB.
    fn weight(&self) -> usize {
        1 + self.payload.len() / 4096
    }
}

/// Starts a writer of rows to `file`. With `sync` a row counts as kept once it survives a power cut, else once it survives the end
/// of the process. A group that fails is tried again after `pause`; `abandon` gets what the end of the process leaves.
///
/// # Errors
/// The thread could not be started.
pub fn start(
    name: &str,
    file: Writer,
    sync: bool,
    pause: Duration,
    settings: GroupSettings,
    abandon: impl Fn(Vec<SpoolRow>) + Send + 'static,
) -> std::io::Result<GroupWriter<SpoolRow>> {
    let spool = Spool { file, sync, pause, is_written: false, since: None };
    GroupWriter::start(name, settings, spool, abandon)
}

struct Spool {
    file: Writer,
    sync: bool,
    pause: Duration,
    /// The group is in the file, and not yet synced.
    is_written: bool,
    /// When writing began to fail.
    since: Option<Instant>,
}

impl Spool {
    fn keep(&mut self, group: &[Numbered<SpoolRow>]) -> std::io::Result<()> {
        if !self.is_written {
            self.file.write(|records| {
                for Numbered { row, .. } in group {
                    records.push(row.kind, |out| out.extend_from_slice(&row.payload));
                }
            })?;
            self.is_written = true;
        }
        if self.sync {
            self.file.sync()?;
        }
        self.is_written = false;
        Ok(())
    }
}

impl Commit for Spool {
    type Row = SpoolRow;

    fn write(&mut self, group: &mut Vec<Numbered<SpoolRow>>, figures: &GroupFigures) -> Duration {
        let start = Instant::now();
        let kept = self.keep(group);
        figures.commit(start.elapsed(), kept.is_ok());
        match kept {
            Ok(()) => {
                figures.rows(group.len(), 0);
                group.clear();
                if let Some(since) = self.since.take() {
                    tracing::info!(after = ?since.elapsed(), "the spool is written again");
                }
            }
            Err(error) if self.since.is_none() => {
                self.since = Some(start);
                tracing::error!(rows = group.len(), "the spool cannot be written, and is tried again: {error}");
            }
            Err(_) => {}
        }
        self.pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ticket::Refused;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};
    use strowger_records::{Medium, Reader};

    #[derive(Default)]
    struct State {
        bytes: Vec<u8>,
        room: usize,
        synced: usize,
        sync_fails: bool,
    }

    #[derive(Clone, Default)]
    struct Disk(Arc<Mutex<State>>);

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let state = &mut *self.0.lock().unwrap();
            let takes = bytes.len().min(state.room - state.bytes.len());
            state.bytes.extend_from_slice(&bytes[..takes]);
            if takes == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(takes) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Medium for Disk {
        fn cut(&mut self, length: u64) -> io::Result<()> {
            self.0.lock().unwrap().bytes.truncate(length as usize);
            Ok(())
        }

        fn sync(&mut self) -> io::Result<()> {
            let state = &mut *self.0.lock().unwrap();
            state.synced = state.bytes.len();
            if state.sync_fails { Err(io::ErrorKind::Other.into()) } else { Ok(()) }
        }
    }

    fn spool(disk: &Disk, queue: usize) -> (GroupWriter<SpoolRow>, Arc<Mutex<Vec<SpoolRow>>>) {
        let lost = Arc::<Mutex<Vec<SpoolRow>>>::default();
        let settings = GroupSettings { linger: Duration::from_millis(1), group: 8, queue };
        let (file, abandoned) = (Writer::on(disk.clone(), *b"ANYTHNG\x01"), lost.clone());
        let abandon = move |rows| abandoned.lock().unwrap().extend(rows);
        (start("spool", file, true, Duration::from_millis(1), settings, abandon).unwrap(), lost)
    }

    fn row(n: u32) -> SpoolRow {
        SpoolRow { kind: 3, payload: n.to_le_bytes().into() }
    }

    fn read(disk: &Disk) -> Vec<u32> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        std::fs::write(&path, &disk.0.lock().unwrap().bytes).unwrap();
        let (mut reader, _) = Reader::open(&path, *b"ANYTHNG").unwrap();
        let mut rows = Vec::new();
        while let Some((3, payload)) = reader.next() {
            rows.push(u32::from_le_bytes(payload.try_into().unwrap()));
        }
        assert_eq!(reader.damage(), None);
        rows
    }

    #[test]
    fn a_full_disk_loses_no_row_and_no_order() {
        let disk = Disk::default();
        disk.0.lock().unwrap().room = 300;
        let (writer, lost) = spool(&disk, 1000);
        for n in 0..100 {
            writer.submit(row(n)).unwrap();
        }
        while writer.gauges().retried < 3 {
            std::thread::yield_now();
        }
        assert!(writer.gauges().kept < 100);
        disk.0.lock().unwrap().sync_fails = true;
        disk.0.lock().unwrap().room = 1 << 20;
        let before = writer.gauges().retried;
        while writer.gauges().retried < before + 3 {
            std::thread::yield_now();
        }
        disk.0.lock().unwrap().sync_fails = false;
        while writer.gauges().kept < 100 {
            std::thread::yield_now();
        }
        assert_eq!(read(&disk), (0..100).collect::<Vec<_>>());
        let is_synced = |disk: &State| disk.synced == disk.bytes.len();
        assert!(is_synced(&disk.0.lock().unwrap()));
        writer.close();
        assert_eq!(*lost.lock().unwrap(), []);
    }

    #[test]
    fn a_queue_at_its_bound_refuses_and_the_end_names_what_is_lost() {
        let disk = Disk::default();
        let (writer, lost) = spool(&disk, 4);
        let mut taken = Vec::new();
        let refused = loop {
            let n = taken.len() as u32;
            match writer.submit(row(n)) {
                Ok(()) => taken.push(row(n)),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, Refused::Full);
        assert!((4..=12).contains(&taken.len()), "the queue and a group: {}", taken.len());
        assert_eq!(writer.gauges().refused, 1);
        writer.close();
        assert_eq!(*lost.lock().unwrap(), taken);
    }

    #[test]
    fn what_is_large_counts_for_more() {
        assert_eq!(row(1).weight(), 1);
        assert_eq!(SpoolRow { kind: 1, payload: vec![0; 9000].into() }.weight(), 3);
    }
}
