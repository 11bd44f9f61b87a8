//! Media threads: sockets and sessions of the media of calls.
//!
//! [`MediaThreads::start`] starts the threads and returns a [`MediaHandle`] for each shard. The shard borrows ports, opens sessions on them by
//! [`SessionOrder`], and takes [`SessionEvent`]s. A session keeps its thread: that of its ports.

mod figures;
mod handle;
mod lending;
mod pace;
mod ports;
mod sessions;
#[cfg(test)]
mod tests;
mod thread;
mod timers;

pub use figures::MediaFigures;
pub use handle::MediaHandle;

use crate::bell::Bell;
use crate::ring::{Consumer, Producer, ring};
use crate::turns::Turns;
use figures::Counters;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread::JoinHandle;
use std::time::Duration;
use strowger_core::entropy::Entropy;
use strowger_media::session::{SessionEvent, SessionOrder};
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
    /// Threads, at least 1.
    pub threads: u16,
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

/// Running media threads. They end when this is dropped; sessions then end without a BYE.
pub struct MediaThreads {
    /// Pairs of ports of all addresses.
    capacity: usize,
    entries: Vec<Arc<Entry>>,
    threads: Vec<JoinHandle<()>>,
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
        let wake: Wake = Arc::new(wake);
        let mut handles: Vec<MediaHandle> = (0..shards).map(MediaHandle::new).collect();
        let mut started = Self { capacity: settings.capacity(), entries: Vec::new(), threads: Vec::new() };
        for index in 0..settings.threads.max(1) {
            let entry = Arc::new(Entry::default());
            let mut links = Vec::with_capacity(shards);
            for handle in &mut handles {
                let (orders, taken): (Producer<Transfer<SessionOrder>>, Consumer<_>) = ring(RING);
                let (made, events): (Producer<Transfer<SessionEvent>>, Consumer<_>) = ring(RING);
                handle.join(entry.clone(), orders, events);
                links.push(ShardLink::new(taken, made));
            }
            let random = entropy.derive(format!("media-{index}").as_bytes());
            let thread = MediaThread::new(index, settings, entry.clone(), links, random, wake.clone())?;
            let end = EndOnDrop(entry.clone());
            started.entries.push(entry);
            let builder = std::thread::Builder::new().name(format!("media-{index}"));
            let run = move || {
                let _end = end;
                thread.run();
            };
            started.threads.push(builder.spawn(run)?);
        }
        Ok((started, handles))
    }

    /// Tells whether all threads work. A thread that panicked does not.
    pub fn are_running(&self) -> bool {
        self.threads.iter().all(|thread| !thread.is_finished())
    }

    /// Returns the first thread that has not looked at its sockets for this long although it had work, or has ended.
    pub fn stuck(&self, patience: Duration) -> Option<usize> {
        let is_stuck = |entry: &Arc<Entry>| entry.has_ended.load(Acquire) || entry.turns.current() > patience;
        self.entries.iter().position(is_stuck)
    }

    /// Returns the figures of each thread. Free ports are of no thread.
    pub fn figures(&self) -> Vec<MediaFigures> {
        let figures = |entry: &Arc<Entry>| MediaFigures {
            longest_turn: entry.turns.longest().as_micros() as u64,
            ..entry.counters.snapshot()
        };
        self.entries.iter().map(figures).collect()
    }

    /// Returns the figures of all threads together, with the free ports.
    pub fn total(&self) -> MediaFigures {
        let mut total = MediaFigures::default();
        self.figures().into_iter().for_each(|figures| total += figures);
        total.free = (self.capacity as u64).saturating_sub(total.used + total.lent);
        total
    }
}

impl Drop for MediaThreads {
    fn drop(&mut self) {
        for entry in &self.entries {
            entry.stopping.store(true, Release);
            entry.bell.ring();
        }
        for thread in self.threads.drain(..) {
            // A panic was reported by the thread.
            let _ = thread.join();
        }
    }
}
