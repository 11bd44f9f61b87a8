//! Writer of recordings: one thread for the files of all media threads, which do no file I/O.
//!
//! A media thread hands decoded packets over by a ring. The writer empties the rings ten times in a second while files are open, and sleeps
//! otherwise. A packet for which a ring has no room is lost for the file, and counted; the call goes on. A file that cannot be written ends its
//! recording, and its shard ends the call.

use super::Entry;
use super::recording_file::RecordingFile;
use crate::ring::{Consumer, Producer, ring};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle, Thread};
use std::time::{Duration, Instant};
use strowger_media::session::SessionKey;
use strowger_media::sound::RATE;

/// Packets that wait for the writer: those of 800 calls in a tenth of a second.
const WAITING: usize = 4_096;

/// Failures that wait for a media thread.
const FAILURES: usize = 64;

/// Time between two looks of the writer at its rings while files are open.
const INTERVAL: Duration = Duration::from_millis(100);

/// Order to the writer.
#[derive(Default)]
enum RecorderOrder {
    /// Nothing: the slot is free.
    #[default]
    None,
    /// Opens the file of a session, unless it is open.
    Open(Arc<Path>),
    /// Writes samples at this place.
    Write(u64),
    /// Completes the file of a session.
    Close,
}

/// Slot of a ring to the writer. The buffer of its samples is reused.
#[derive(Default)]
struct RecorderSlot {
    session: u64,
    order: RecorderOrder,
    samples: Vec<i16>,
}

/// Link of a media thread to the writer.
pub(super) struct RecorderLink {
    orders: Producer<RecorderSlot>,
    failures: Consumer<Option<SessionKey>>,
    /// Openings and ends for which the ring has no room, oldest first: at most two for each session.
    waiting: VecDeque<(SessionKey, RecorderOrder)>,
    writer: Thread,
}

impl RecorderLink {
    /// Opens the file of a session.
    pub(super) fn open(&mut self, session: SessionKey, path: Arc<Path>) {
        self.order(session, RecorderOrder::Open(path));
    }

    /// Completes the file of a session.
    pub(super) fn close(&mut self, session: SessionKey) {
        self.order(session, RecorderOrder::Close);
    }

    fn order(&mut self, session: SessionKey, order: RecorderOrder) {
        self.waiting.push_back((session, order));
        self.pass();
    }

    /// Passes orders that wait to the writer, and wakes it.
    pub(super) fn pass(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        while let Some((session, order)) = self.waiting.pop_front() {
            let mut order = Some(order);
            let is_passed = self.orders.push(|slot| {
                (slot.session, slot.order) = (session.0, order.take().unwrap_or_default());
            });
            if let Some(order) = order.filter(|_| !is_passed) {
                self.waiting.push_front((session, order));
                break;
            }
        }
        self.writer.unpark();
    }

    /// Hands samples over. Returns false if they are lost because the ring is full.
    pub(super) fn write(&mut self, session: SessionKey, place: u64, samples: &[i16]) -> bool {
        self.orders.push(|slot| {
            (slot.session, slot.order) = (session.0, RecorderOrder::Write(place));
            slot.samples.clear();
            slot.samples.extend_from_slice(samples);
        })
    }

    /// Tells whether the media thread has work for this link.
    pub(super) fn has_work(&self) -> bool {
        self.failures.len() > 0 || !self.waiting.is_empty() && self.orders.has_room()
    }

    /// Returns the next session whose file could not be written.
    pub(super) fn failure(&mut self) -> Option<SessionKey> {
        let mut session = None;
        self.failures.pop(|slot| session = slot.take());
        session
    }
}

/// Link of the writer to a media thread.
struct WriterLink {
    orders: Consumer<RecorderSlot>,
    failures: Producer<Option<SessionKey>>,
    /// Failures for which the ring has no room: at most one for each session.
    waiting: VecDeque<SessionKey>,
    entry: Arc<Entry>,
}

/// Part of the writer that other threads see.
#[derive(Default)]
struct Shared {
    /// Links that the writer has not taken yet.
    links: Mutex<Vec<WriterLink>>,
    is_stopping: AtomicBool,
}

/// Running writer of recordings. It completes all files when it is dropped, after the media threads have ended.
pub(super) struct Recorder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Starts the writer.
    ///
    /// # Errors
    /// The process has no thread left.
    pub(super) fn start() -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_writer = shared.clone();
        let run = move || Writer::new(of_writer).run();
        let thread = thread::Builder::new().name("media-files".to_owned()).spawn(run)?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Returns the link of a media thread; `None` after the end of the writer.
    pub(super) fn link(&self, entry: Arc<Entry>) -> Option<RecorderLink> {
        let writer = self.thread.as_ref()?.thread().clone();
        let (orders, taken) = ring(WAITING);
        let (failed, failures) = ring(FAILURES);
        let link = WriterLink { orders: taken, failures: failed, waiting: VecDeque::new(), entry };
        self.shared.links.lock().unwrap_or_else(PoisonError::into_inner).push(link);
        Some(RecorderLink { orders, failures, waiting: VecDeque::new(), writer })
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.shared.is_stopping.store(true, Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }
}

/// Thread that writes.
struct Writer {
    shared: Arc<Shared>,
    links: Vec<WriterLink>,
    files: HashMap<u64, RecordingFile>,
    /// Bytes of one packet.
    bytes: Vec<u8>,
}

impl Writer {
    fn new(shared: Arc<Shared>) -> Self {
        Self { shared, links: Vec::new(), files: HashMap::new(), bytes: Vec::new() }
    }

    fn run(mut self) {
        loop {
            // The last orders came before the stop.
            let is_stopping = self.shared.is_stopping.load(Acquire);
            self.links.append(&mut self.shared.links.lock().unwrap_or_else(PoisonError::into_inner));
            for link in &mut self.links {
                link.carry_out(&mut self.files, &mut self.bytes);
            }
            if is_stopping {
                return self.files.into_values().for_each(complete);
            }
            self.keep_up();
            let waits = self.links.iter().any(|link| !link.waiting.is_empty());
            if self.files.is_empty() && !waits { thread::park() } else { thread::park_timeout(INTERVAL) }
        }
    }

    /// Writes the headers that are due.
    fn keep_up(&mut self) {
        let now = Instant::now();
        let links = &mut self.links;
        self.files.retain(|session, file| match file.keep_up(now) {
            Ok(()) => true,
            Err(error) => {
                report(file.path(), &error);
                // The link of another media thread ignores the failure of a session that it does not have.
                links.iter_mut().for_each(|link| link.fail(SessionKey(*session)));
                false
            }
        });
    }
}

impl WriterLink {
    /// Carries out the orders of a media thread. Passes failures that wait.
    fn carry_out(&mut self, files: &mut HashMap<u64, RecordingFile>, bytes: &mut Vec<u8>) {
        let mut failed = None;
        while self.orders.pop(|slot| failed = carry_out(slot, files, bytes)) {
            if let Some(session) = failed.take() {
                self.fail(session);
            }
        }
        self.pass();
        if self.orders.producer_waits() {
            self.entry.bell.ring();
        }
    }

    fn fail(&mut self, session: SessionKey) {
        self.waiting.push_back(session);
        self.pass();
    }

    /// Passes failures to the media thread, and wakes it.
    fn pass(&mut self) {
        if self.waiting.is_empty() {
            return;
        }
        while let Some(session) = self.waiting.pop_front() {
            if !self.failures.push(|slot| *slot = Some(session)) {
                self.waiting.push_front(session);
                break;
            }
        }
        self.entry.bell.ring();
    }
}

/// Carries out an order. Returns the session if its file cannot be written.
fn carry_out(
    slot: &mut RecorderSlot,
    files: &mut HashMap<u64, RecordingFile>,
    bytes: &mut Vec<u8>,
) -> Option<SessionKey> {
    let session = slot.session;
    let (path, error) = match std::mem::take(&mut slot.order) {
        RecorderOrder::Open(path) if !files.contains_key(&session) => {
            match RecordingFile::open(path.clone(), Instant::now()) {
                Ok(file) => {
                    files.insert(session, file);
                    return None;
                }
                Err(error) => (path, error),
            }
        }
        RecorderOrder::Write(place) => {
            // After a failure there is no file.
            let error = files.get_mut(&session)?.write(place, &slot.samples, bytes).err()?;
            (files.remove(&session)?.into_path(), error)
        }
        RecorderOrder::Close => {
            files.remove(&session).into_iter().for_each(complete);
            return None;
        }
        RecorderOrder::Open(_) | RecorderOrder::None => return None,
    };
    report(&path, &error);
    Some(SessionKey(session))
}

/// Completes the header of a file.
fn complete(mut file: RecordingFile) {
    match file.write_header(Instant::now()) {
        Ok(()) => {
            let seconds = file.length() / u64::from(RATE);
            tracing::info!(file = %file.path().display(), seconds, "recording complete");
        }
        Err(error) => report(file.path(), &error),
    }
}

/// Logs that a file cannot be written.
fn report(path: &Path, error: &io::Error) {
    let file = path.display();
    match strowger_files::is_full(error) {
        true => tracing::warn!(%file, %error, "recording failed: the disk is full"),
        false => tracing::warn!(%file, %error, "recording failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_loses_packets_and_no_opening_or_end() {
        let ((orders, mut taken), (_failed, failures)) = (ring(2), ring(2));
        let mut link = RecorderLink { orders, failures, waiting: VecDeque::new(), writer: thread::current() };
        let session = SessionKey(7);
        link.open(session, Path::new("a.wav").into());
        assert!(link.write(session, 0, &[1, 2]) && !link.write(session, 2, &[3, 4]));
        link.close(session);
        assert!(!link.has_work());
        let mut seen = Vec::new();
        let mut take = |slot: &mut RecorderSlot| seen.push((std::mem::take(&mut slot.order), slot.samples.clone()));
        assert!(taken.pop(&mut take) && taken.producer_waits());
        assert!(link.has_work());
        link.pass();
        assert!(taken.pop(&mut take) && taken.pop(&mut take) && !taken.pop(&mut take));
        assert!(matches!(
            &seen[..],
            [(RecorderOrder::Open(_), _), (RecorderOrder::Write(0), samples), (RecorderOrder::Close, _)] if samples == &[1, 2]
        ));
    }
}
