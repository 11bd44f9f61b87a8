//! Counters of sent and received media, and of their delays.

use hdrhistogram::Histogram;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_measure::{Counter, Delays};

/// Number of counters in the recorder.
pub(super) const COUNTS: usize = 9;

/// Counters of a [`super::Plane`]; any thread may read them.
#[derive(Debug)]
pub struct Tally {
    pub(super) packets: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) failures: AtomicU64,
    pub(super) late: AtomicU64,
    pub(super) missed: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) streams: AtomicU64,
    pub(super) received: AtomicU64,
    pub(super) received_bytes: AtomicU64,
    pub(super) heard: HeardCounts,
    pub(super) echoed: [AtomicU64; 2],
    pub(super) echoed_bytes: [AtomicU64; 2],
    pub(super) delays: Mutex<Histogram<u64>>,
}

/// Counters of received streams.
#[derive(Debug, Default)]
pub(super) struct HeardCounts {
    pub(super) unjudged: AtomicU64,
    pub(super) drops: AtomicU64,
    pub(super) early: AtomicU64,
    /// Delays of stamped packets that no shard has reported yet.
    delays: Mutex<Delays>,
}

impl HeardCounts {
    /// Records these delays, microseconds, and empties the list.
    pub(super) fn record_delays(&self, us: &mut Vec<u64>) {
        if !us.is_empty() {
            let mut delays = self.delays();
            us.drain(..).for_each(|us| delays.record(us));
        }
    }

    /// Locks the delays that no shard has reported yet.
    pub(super) fn delays(&self) -> MutexGuard<'_, Delays> {
        self.delays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counters at one moment.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// Packets that the kernel accepted, without echoes, and the bytes of their payloads (RTP header included).
    pub packets: u64,
    pub bytes: u64,
    /// Packets that the kernel refused.
    pub failures: u64,
    /// Packets that left more than [`super::Settings::late`] after their time.
    pub late: u64,
    /// Packets skipped because their stream was too far behind.
    pub missed: u64,
    /// Commands that found the queue full.
    pub refused: u64,
    /// Streams of open calls, including finished ones.
    pub streams: u64,
    /// Datagrams that the media sockets received.
    pub received: u64,
    pub received_bytes: u64,
    /// Of these, packets left out of all figures: their stream is above the limit of streams, or its socket has dropped datagrams.
    pub unjudged: u64,
    /// Datagrams that the kernel dropped because this process did not read its media sockets in time.
    pub drops: u64,
    /// Streams that ended before their call.
    pub early: u64,
    /// Echoes, by the audio and the video socket.
    pub echoed: [u64; 2],
    pub echoed_bytes: [u64; 2],
    /// Microseconds between the due time of a packet and its sending.
    pub delays: Histogram<u64>,
}

impl Tally {
    pub(super) fn new() -> Self {
        let zero = || AtomicU64::new(0);
        Self {
            packets: zero(),
            bytes: zero(),
            failures: zero(),
            late: zero(),
            missed: zero(),
            refused: zero(),
            streams: zero(),
            received: zero(),
            received_bytes: zero(),
            heard: HeardCounts::default(),
            echoed: [zero(), zero()],
            echoed_bytes: [zero(), zero()],
            delays: Mutex::new(delays()),
        }
    }

    /// Returns the counts for the recorder.
    pub(super) fn counts(&self) -> [(Counter, u64); COUNTS] {
        let sum = |two: &[AtomicU64; 2]| two[0].load(Relaxed) + two[1].load(Relaxed);
        [
            (Counter::MediaSent, self.packets.load(Relaxed)),
            (Counter::MediaBytesSent, self.bytes.load(Relaxed)),
            (Counter::MediaFailures, self.failures.load(Relaxed)),
            (Counter::MediaLate, self.late.load(Relaxed)),
            (Counter::MediaMissed, self.missed.load(Relaxed)),
            (Counter::MediaRefused, self.refused.load(Relaxed)),
            (Counter::MediaReceived, self.received.load(Relaxed)),
            (Counter::MediaEchoed, sum(&self.echoed)),
            (Counter::MediaUnjudged, self.heard.unjudged.load(Relaxed)),
        ]
    }

    pub fn snapshot(&self) -> Snapshot {
        Snapshot {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            failures: self.failures.load(Relaxed),
            late: self.late.load(Relaxed),
            missed: self.missed.load(Relaxed),
            refused: self.refused.load(Relaxed),
            streams: self.streams.load(Relaxed),
            received: self.received.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
            unjudged: self.heard.unjudged.load(Relaxed),
            drops: self.heard.drops.load(Relaxed),
            early: self.heard.early.load(Relaxed),
            echoed: self.echoed.each_ref().map(|n| n.load(Relaxed)),
            echoed_bytes: self.echoed_bytes.each_ref().map(|n| n.load(Relaxed)),
            delays: self.delays.lock().unwrap_or_else(|e| e.into_inner()).clone(),
        }
    }
}

/// Creates a histogram of up to a minute, to three digits.
fn delays() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 60_000_000, 3).expect("the bounds are in order")
}
