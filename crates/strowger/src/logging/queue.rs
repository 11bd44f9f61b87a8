//! Queue of log lines between the threads that write them and standard error.
//!
//! A thread that logs only waits until its line is in memory. A separate thread writes to standard error, which may be
//! a full disk, or a pipe whose reader has gone or does not read. A line that does not fit into the queue, or cannot be
//! written, is lost and counted; the count is logged when writing works again.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Maximum length of a line in bytes.
pub(super) const LONGEST_LINE: usize = 2_048;

/// Minimum time that a line waits, so that other lines are written with it.
const LINGER: Duration = Duration::from_millis(20);

/// Interval of writes under a steady flow of lines: each write takes the processor from a shard.
const SPACING: Duration = Duration::from_millis(200);

/// Interval of attempts while none succeeds, or while a non-blocking pipe is full.
const PAUSE: Duration = Duration::from_millis(100);

/// Queue of waiting lines.
#[derive(Debug)]
pub(super) struct Queue {
    /// Maximum number of waiting bytes.
    most: usize,
    waiting: Mutex<Waiting>,
    /// Wakes the writer: there is something to do.
    filled: Condvar,
    /// Wakes threads in [`Queue::flush`]: the writer has written, or tried to.
    emptied: Condvar,
    lost: AtomicU64,
    write_errors: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: Vec<u8>,
    /// Lines lost since the last report.
    lost: u64,
    /// True while the writer has taken lines and not yet written them.
    writing: bool,
    /// True while the writer sleeps until it is notified.
    idle: bool,
    /// Number of threads that wait in [`Queue::flush`]. If there are any, a pause between two attempts ends at once.
    flushing: usize,
}

impl Queue {
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            waiting: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            lost: AtomicU64::new(0),
            write_errors: AtomicU64::new(0),
        }
    }

    /// Creates a queue for standard error, and the thread that empties it.
    ///
    /// # Errors
    /// There is no descriptor or thread left.
    pub(super) fn to_standard_error(most: usize, report: fn(u64, Option<&io::Error>)) -> io::Result<Arc<Self>> {
        // A separate descriptor, so that a thread that prints by `std::io::stderr` does not wait for a lock that the writer
        // holds.
        let output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
        let queue = Arc::new(Self::new(most));
        let mut writer = Writer { queue: queue.clone(), output, torn: false, taken: None, error: None, report };
        std::thread::Builder::new().name("log-writer".into()).spawn(move || {
            loop {
                writer.round();
            }
        })?;
        Ok(queue)
    }

    /// Puts a line, with its line end, into the queue, or counts it as lost.
    pub(super) fn put(&self, line: &[u8]) {
        let mut waiting = self.waiting();
        if waiting.lines.len() + line.len() > self.most {
            waiting.lost += 1;
            drop(waiting);
            self.lost.fetch_add(1, Relaxed);
            return;
        }
        let half = self.most / 2;
        let before = waiting.lines.len();
        waiting.lines.extend_from_slice(line);
        let fills = (before..waiting.lines.len()).contains(&half);
        let idle = std::mem::take(&mut waiting.idle);
        drop(waiting);
        if idle || fills {
            self.filled.notify_one();
        }
    }

    /// Counts as lost a line that was not put into the queue.
    pub(super) fn lose(&self) {
        self.waiting().lost += 1;
        self.lost.fetch_add(1, Relaxed);
    }

    /// Waits until all lines are written or failed to be written, but at most for `most`.
    pub(super) fn flush(&self, most: Duration) {
        let end = Instant::now() + most;
        let mut waiting = self.waiting();
        waiting.flushing += 1;
        waiting.idle = false;
        self.filled.notify_one();
        while waiting.writing || !waiting.lines.is_empty() {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            waiting = self.emptied.wait_timeout(waiting, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.flushing -= 1;
    }

    /// Returns the number of lost lines so far, and of failed attempts to write.
    pub(super) fn lost(&self) -> (u64, u64) {
        (self.lost.load(Relaxed), self.write_errors.load(Relaxed))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The writing thread.
struct Writer<O> {
    queue: Arc<Queue>,
    output: O,
    /// True if the last written line is incomplete.
    torn: bool,
    /// Time at which it last took lines.
    taken: Option<Instant>,
    /// Error of the last attempt; lost lines are reported after the next successful one.
    error: Option<io::Error>,
    /// Logs the number of lost lines, with the error if there was one.
    report: fn(u64, Option<&io::Error>),
}

impl<O: Write> Writer<O> {
    /// Waits for lines and writes them.
    fn round(&mut self) {
        let mut lines = self.take();
        let written = self.write(&lines);
        let mut waiting = self.queue.waiting();
        match written {
            Ok(()) => {
                // Reuses the memory, unless a flood made it large.
                lines.clear();
                if waiting.lines.capacity() == 0 && lines.capacity() <= 64 << 10 {
                    waiting.lines = lines;
                }
                waiting.writing = false;
                // A full queue has no room for the report either.
                let has_room = waiting.lines.len() <= self.queue.most / 2;
                let lost = if has_room { std::mem::take(&mut waiting.lost) } else { 0 };
                drop(waiting);
                self.queue.emptied.notify_all();
                if lost > 0 {
                    (self.report)(lost, self.error.take().as_ref());
                }
            }
            Err((left, error)) => {
                let lost = lines[lines.len() - left..].iter().filter(|byte| **byte == b'\n').count() as u64;
                waiting.lost += lost;
                self.queue.lost.fetch_add(lost, Relaxed);
                self.queue.write_errors.fetch_add(1, Relaxed);
                waiting.writing = false;
                self.queue.emptied.notify_all();
                self.error = Some(error);
                if waiting.flushing == 0 {
                    drop(self.queue.filled.wait_timeout(waiting, PAUSE));
                }
            }
        }
    }

    /// Takes all waiting lines, [`LINGER`] after the first line and [`SPACING`] after the last call, or as soon as the
    /// queue is half full. So consecutive lines are taken together, and only the first of them wakes this thread.
    fn take(&mut self) -> Vec<u8> {
        let mut waiting = self.queue.waiting();
        while waiting.lines.is_empty() {
            waiting.idle = true;
            waiting = self.queue.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.idle = false;
        if waiting.flushing == 0 && waiting.lines.len() <= self.queue.most / 2 {
            let spacing = self.taken.map_or(Duration::ZERO, |at| SPACING.saturating_sub(at.elapsed()));
            let pause = LINGER.max(spacing);
            waiting = self.queue.filled.wait_timeout(waiting, pause).unwrap_or_else(PoisonError::into_inner).0;
        }
        waiting.writing = true;
        let lines = std::mem::take(&mut waiting.lines);
        drop(waiting);
        self.taken = Some(Instant::now());
        lines
    }

    /// Writes all lines; on failure, returns the number of bytes left and the error.
    fn write(&mut self, lines: &[u8]) -> Result<(), (usize, io::Error)> {
        // The new lines must not continue half a line.
        if self.torn {
            self.write_all(b"\n").map_err(|(_, error)| (lines.len(), error))?;
            self.torn = false;
        }
        self.write_all(lines).inspect_err(|(left, _)| {
            let written = &lines[..lines.len() - left];
            self.torn = written.last().is_some_and(|byte| *byte != b'\n');
        })
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), (usize, io::Error)> {
        let mut left = bytes;
        while !left.is_empty() {
            match self.output.write(left) {
                Ok(0) => return Err((left.len(), ErrorKind::WriteZero.into())),
                Ok(written) => left = &left[written..],
                Err(error) if error.kind() == ErrorKind::Interrupted => (),
                // A process that shares the pipe has made it non-blocking.
                Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::sleep(PAUSE),
                Err(error) => return Err((left.len(), error)),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Accepts a number of bytes, then reports a full disk.
    struct Disk {
        room: usize,
        written: Arc<Mutex<Vec<u8>>>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(self.room);
            if n == 0 {
                return Err(ErrorKind::StorageFull.into());
            }
            self.room -= n;
            self.written.lock().expect("no test panics with it").extend_from_slice(&bytes[..n]);
            Ok(n)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn writer(most: usize, room: usize) -> (Writer<Disk>, Arc<Mutex<Vec<u8>>>) {
        let written = Arc::<Mutex<Vec<u8>>>::default();
        let output = Disk { room, written: written.clone() };
        fn report(_: u64, _: Option<&io::Error>) {}
        (Writer { queue: Arc::new(Queue::new(most)), output, torn: false, taken: None, error: None, report }, written)
    }

    #[test]
    fn a_full_queue_loses_lines_and_counts_them() {
        let (mut writer, written) = writer(10, 1_000);
        for line in ["one\n", "two\n", "three\n", "4\n"] {
            writer.queue.put(line.as_bytes());
        }
        writer.round();
        assert_eq!(*written.lock().unwrap(), b"one\ntwo\n4\n");
        assert_eq!(writer.queue.lost(), (1, 0));
        assert_eq!(writer.queue.waiting().lost, 0, "it was reported");
    }

    #[test]
    fn lines_that_keep_coming_are_written_together_and_those_of_a_flood_in_time() {
        let (mut writer, written) = writer(100, 1_000);
        writer.queue.put(b"one\n");
        let begun = Instant::now();
        writer.round();
        writer.queue.put(b"two\n");
        writer.round();
        assert!(begun.elapsed() >= SPACING);
        // The machine may be busy: one of them counts.
        let queue = writer.queue.clone();
        let of_a_flood = |_| {
            (0..60).for_each(|_| queue.put(b"\n"));
            let begun = Instant::now();
            writer.round();
            begun.elapsed()
        };
        let quickest = (0..5).map(of_a_flood).min().expect("five rounds");
        assert!(quickest < LINGER, "half full is full enough: {quickest:?}");
        assert!(written.lock().unwrap().starts_with(b"one\ntwo\n\n\n"));
        assert_eq!(queue.lost(), (0, 0));
    }

    #[test]
    fn half_a_line_is_not_continued_by_another() {
        let (mut writer, written) = writer(1_000, 6);
        for line in ["one\n", "two\n", "three\n"] {
            writer.queue.put(line.as_bytes());
        }
        writer.queue.waiting().flushing = 1; // No pause.
        writer.round();
        assert_eq!(*written.lock().unwrap(), b"one\ntw");
        assert_eq!(writer.queue.lost(), (2, 1));
        writer.queue.put(b"four\n");
        writer.round();
        assert_eq!(writer.queue.lost(), (3, 2));
        writer.output.room = 100;
        writer.queue.put(b"five\n");
        writer.round();
        assert_eq!(*written.lock().unwrap(), b"one\ntw\nfive\n");
        assert_eq!(writer.queue.waiting().lost, 0, "it was reported");
    }

    #[test]
    fn a_flush_waits_for_the_writer_and_not_for_ever() {
        let (mut writer, written) = writer(1_000, 1_000);
        let queue = writer.queue.clone();
        queue.put(b"line\n");
        let begun = Instant::now();
        queue.flush(Duration::from_millis(20));
        assert!(begun.elapsed() >= Duration::from_millis(20), "nobody writes");
        let other = std::thread::spawn(move || writer.round());
        queue.flush(Duration::from_secs(20));
        assert_eq!(*written.lock().unwrap(), b"line\n");
        other.join().expect("it wrote");
    }
}
