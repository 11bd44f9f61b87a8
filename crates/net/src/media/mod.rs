//! Media threads: sockets and sessions of the media of calls.
//!
//! [`MediaThreads::start`] starts the threads and returns a [`MediaHandle`] for each shard. The shard borrows ports, opens sessions on them by
//! [`SessionOrder`], and takes [`SessionEvent`]s. A session keeps its thread: that of its ports.
//!
//! *Ports and threads*: the threads share one range of ports. A pair belongs to the thread that has bound it, until it is closed; then any thread may
//! bind it. A shard asks the thread for new sessions for ports ([`MediaHandle::preferred`]), and gives those of other threads back first, so
//! free ports follow the load.

mod figures;
mod growth;
mod handle;
mod lending;
mod pace;
mod port_table;
mod ports;
mod recorder;
mod recording_file;
mod sessions;
#[cfg(test)]
mod tests;
mod thread;
mod timers;

pub use figures::MediaFigures;
pub use handle::MediaHandle;

use crate::bell::Bell;
use crate::clock;
use crate::ring::{Consumer, Producer, ring};
use crate::turns::Turns;
use figures::Counters;
use growth::Growth;
use handle::{StartedThreads, ThreadLink};
use port_table::PortTable;
use ports::Ports;
use recorder::Recorder;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use strowger_core::entropy::Entropy;
use strowger_media::session::{PortPair, SessionEvent, SessionOrder};
use thread::{MediaThread, ShardLink};

/// Settings of the media threads.
#[derive(Clone, Debug)]
pub struct MediaSettings {
    /// Local addresses of media. [`PortPair::address`](strowger_media::session::PortPair) is the place in this list.
    pub addresses: Vec<IpAddr>,
    /// Ports. A pair begins at an even port, so an odd first port and an even last one are left out.
    pub ports: RangeInclusive<u16>,
    /// Differentiated services code point of outgoing packets (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// Threads at the start, at least 1.
    pub threads: u16,
    /// Threads that may run: further ones start under load ([`MediaThreads::balance`]).
    pub most_threads: u16,
    /// Pairs that may be bound at a time, for all addresses together. Each takes two descriptors.
    pub most_pairs: usize,
    /// Longest silence of a peer that sends and receives; `None`: no limit.
    pub timeout: Option<Duration>,
}

impl MediaSettings {
    /// Returns the first port of the first pair, and the number of pairs of each address.
    fn pairs(&self) -> (u16, usize) {
        let first = self.ports.start().max(&1).checked_next_multiple_of(2).unwrap_or(u16::MAX);
        let ports = (usize::from(*self.ports.end()) + 1).saturating_sub(usize::from(first));
        (first, ports / 2)
    }

    /// Returns the number of pairs of ports of all addresses: a relayed stream needs two.
    pub fn capacity(&self) -> usize {
        self.pairs().1 * self.addresses.len()
    }
}

/// Part of a media thread that other threads see.
#[derive(Default)]
struct Entry {
    bell: Bell,
    stopping: AtomicBool,
    /// Set once the thread obeys no order any more.
    has_ended: AtomicBool,
    /// Times in which the thread did not look at its sockets.
    turns: Turns,
    counters: Counters,
}

/// Marks a thread as ended, also one that panics.
struct EndOnDrop(Arc<Entry>);

impl Drop for EndOnDrop {
    fn drop(&mut self) {
        self.0.has_ended.store(true, Release);
    }
}

/// Transfer of a ring; `None` in an empty slot.
type Transfer<T> = Option<T>;

/// Slots of a ring of orders or of events.
const RING: usize = 1_024;

/// Wakes the shard of this number.
type Wake = Arc<dyn Fn(usize) + Send + Sync>;

/// Shortest time between two measurements of the load, in microseconds: in a shorter one any thread looks busy.
const MEASUREMENT: u64 = 500_000;

/// Running media threads. They end when this is dropped; sessions then end without a BYE.
pub struct MediaThreads {
    settings: MediaSettings,
    shards: usize,
    wake: Wake,
    table: Arc<PortTable>,
    started: Arc<StartedThreads>,
    running: Mutex<Running>,
    /// Dropped after the threads have ended.
    recorder: Recorder,
}

/// Threads, and the measurement of their load.
struct Running {
    entropy: Entropy,
    entries: Vec<Arc<Entry>>,
    threads: Vec<JoinHandle<()>>,
    /// Threads that may run; fewer than by the settings after one could not start.
    most: usize,
    growth: Growth,
    /// Time of the last measurement in microseconds.
    measured: u64,
    /// Processor time of each thread at the last measurement in microseconds.
    busy: Vec<u64>,
}

impl Running {
    /// Returns the share of the time in which each thread was busy since the last measurement, 0 to 1; `None` if that was just now.
    fn measure(&mut self, now: u64) -> Option<Vec<f64>> {
        let passed = Some(now.saturating_sub(self.measured)).filter(|passed| *passed >= MEASUREMENT)?;
        let busy: Vec<u64> = self.entries.iter().map(|entry| entry.counters.busy.value()).collect();
        let before = self.busy.iter().copied().chain(std::iter::repeat(0));
        let shares = busy.iter().zip(before).map(|(busy, before)| busy.saturating_sub(before) as f64 / passed as f64);
        let shares = shares.collect();
        (self.measured, self.busy) = (now, busy);
        Some(shares)
    }
}

impl MediaThreads {
    /// Starts the threads, and returns a handle for each of `shards` shards. `wake`: makes the shard of this number call
    /// [`MediaHandle::take_events`]; it must not wait.
    ///
    /// # Errors
    /// An address is not one of this machine, or the process is out of descriptors or threads.
    pub fn start(
        settings: &MediaSettings,
        shards: usize,
        entropy: &Entropy,
        wake: impl Fn(usize) + Send + Sync + 'static,
    ) -> io::Result<(Self, Vec<MediaHandle>)> {
        for address in &settings.addresses {
            ports::open(SocketAddr::new(*address, 0), settings.dscp)?;
        }
        let started = Arc::new(StartedThreads::new(shards));
        let handles = (0..shards).map(|shard| MediaHandle::new(shard, started.clone())).collect();
        let running = Running {
            entropy: entropy.derive(b"media"),
            entries: Vec::new(),
            threads: Vec::new(),
            most: usize::from(settings.most_threads),
            growth: Growth::default(),
            measured: clock::micros(),
            busy: Vec::new(),
        };
        let threads = Self {
            settings: settings.clone(),
            shards,
            wake: Arc::new(wake),
            table: Arc::new(PortTable::new(settings)),
            started,
            running: Mutex::new(running),
            recorder: Recorder::start()?,
        };
        for _ in 0..settings.threads.max(1) {
            threads.start_thread(&mut threads.running())?;
        }
        Ok((threads, handles))
    }

    /// Reserves ports of sessions of an earlier process, before a shard asks for ports: only [`SessionOrder::Claim`] takes them, and
    /// [`SessionOrder::Return`] ends the reservation of others.
    pub fn reserve(&self, ports: impl IntoIterator<Item = PortPair>) {
        ports.into_iter().for_each(|ports| self.table.reserve(ports, true));
    }

    fn running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one more thread.
    fn start_thread(&self, running: &mut Running) -> io::Result<()> {
        let index = running.entries.len();
        let entry = Arc::new(Entry::default());
        let (mut of_shards, mut of_thread) = (Vec::with_capacity(self.shards), Vec::with_capacity(self.shards));
        for _ in 0..self.shards {
            let (orders, taken): (Producer<Transfer<SessionOrder>>, Consumer<_>) = ring(RING);
            let (made, events): (Producer<Transfer<SessionEvent>>, Consumer<_>) = ring(RING);
            of_shards.push(ThreadLink::new(entry.clone(), orders, events));
            of_thread.push(ShardLink::new(taken, made));
        }
        let random = running.entropy.derive(index.to_string().as_bytes());
        let ports = Ports::new(index as u16, &self.settings, self.table.clone());
        let timeout = self.settings.timeout;
        let recorder = self.recorder.link(entry.clone()).ok_or(io::ErrorKind::Other)?;
        let links = (self.wake.clone(), recorder);
        let thread = MediaThread::new(entry.clone(), of_thread, ports, random, timeout, links)?;
        let end = EndOnDrop(entry.clone());
        let run = move || {
            let _end = end;
            thread.run();
        };
        running.threads.push(std::thread::Builder::new().name(format!("media-{index}")).spawn(run)?);
        running.entries.push(entry);
        // The shards learn of a thread that runs.
        self.started.add(of_shards);
        Ok(())
    }

    /// Measures the load since the last call: new sessions go to the least busy thread, and a further thread starts if all have been more than 70 %
    /// busy for three calls. Call it once a second. Returns the number of threads if one has started.
    ///
    /// # Errors
    /// A further thread could not be started. No more are tried.
    pub fn balance(&self) -> io::Result<Option<usize>> {
        self.balance_at(clock::micros())
    }

    fn balance_at(&self, now: u64) -> io::Result<Option<usize>> {
        let mut running = self.running();
        let Some(shares) = running.measure(now) else { return Ok(None) };
        self.started.prefer(growth::least_busy(&shares, self.started.preferred()));
        let threads = running.entries.len();
        if !running.growth.needs_thread(&shares) || threads >= running.most {
            return Ok(None);
        }
        if let Err(error) = self.start_thread(&mut running) {
            running.most = threads;
            return Err(error);
        }
        self.started.prefer(threads);
        Ok(Some(threads + 1))
    }

    /// Tells whether all threads work. A thread that panicked does not.
    pub fn are_running(&self) -> bool {
        self.running().threads.iter().all(|thread| !thread.is_finished())
    }

    /// Returns the first thread that has not looked at its sockets for this long although it had work, or has ended.
    pub fn stuck(&self, patience: Duration) -> Option<usize> {
        let is_stuck = |entry: &Arc<Entry>| entry.has_ended.load(Acquire) || entry.turns.current() > patience;
        self.running().entries.iter().position(is_stuck)
    }

    /// Returns the figures of each thread. Free ports belong to no thread.
    pub fn figures(&self) -> Vec<MediaFigures> {
        let figures = |entry: &Arc<Entry>| MediaFigures {
            longest_turn: entry.turns.longest().as_micros() as u64,
            ..entry.counters.snapshot()
        };
        self.running().entries.iter().map(figures).collect()
    }

    /// Returns the figures of all threads together, with the free ports.
    pub fn total(&self) -> MediaFigures {
        let mut total = MediaFigures::default();
        self.figures().into_iter().for_each(|figures| total += figures);
        total.free = self.table.free() as u64;
        total
    }
}

impl Drop for MediaThreads {
    fn drop(&mut self) {
        let mut running = self.running();
        for entry in &running.entries {
            entry.stopping.store(true, Release);
            entry.bell.ring();
        }
        for thread in running.threads.drain(..) {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }
}
