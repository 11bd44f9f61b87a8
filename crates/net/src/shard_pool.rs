//! Number of shards: start of shards, distribution of the buckets, steering of arriving data.

use crate::buckets::share;
use crate::dispatcher::Dispatcher;
use crate::extension::Extension;
use crate::links::Links;
use crate::listen_socket::{ListenSocket, Origin};
use crate::process::{Command, Factory, OpenListener, Process, ShardPool, Startup};
use crate::ring::ring;
use crate::shard::Shard;
use crate::streams::Streams;
use crate::udp::{self, Udp};
use crate::{Handle, Service, clock, steer};
use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{Duration, Instant};
use strowger_core::call::BUCKETS;
use strowger_core::{ListenerId, Transport};

/// State of one UDP socket in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backlog {
    /// Listener of the socket.
    pub listener: ListenerId,
    /// The shard that reads it.
    pub shard: usize,
    /// Bytes that wait to be read, with the overhead of the kernel.
    pub waiting: u32,
    /// Datagrams dropped because the receive buffer was full, since the start.
    pub dropped: u32,
    /// Size of the receive buffer in bytes, with the overhead of the kernel: about twice the requested size.
    pub buffer: u32,
}

/// Starts one more shard. Its sockets are bound here, one shard after another, because the position of a socket in its
/// group is the index of its shard.
pub(crate) fn start<S: Service + 'static>(
    process: &Arc<Process<S>>,
    pool: &mut ShardPool<S>,
    first: Option<Vec<(ListenSocket, Origin)>>,
) -> io::Result<()> {
    let index = pool.started;
    let Some(factory) = pool.factory.clone() else {
        return Err(io::Error::other("the shards have ended"));
    };
    let sockets = match first {
        Some(sockets) => sockets,
        None => (0..process.listeners.len()).map(|i| join(process, pool, i)).collect::<io::Result<_>>()?,
    };
    let open_listener = |(i, (socket, origin)): (usize, &(ListenSocket, Origin))| {
        let (listener, socket) = (ListenerId(i as u16), socket.try_clone()?);
        Ok(OpenListener { listener, shard: index, socket, origin: *origin })
    };
    let open_listeners: Vec<OpenListener> = sockets.iter().enumerate().map(open_listener).collect::<io::Result<_>>()?;
    let (mut links, mut peers) = (Links::new(process.entries.len(), process.settings.ring), Vec::new());
    for peer in 0..index {
        let (there, back_there) = ring(process.settings.ring);
        let (from_peer, here) = ring(process.settings.ring);
        links.join(peer, there, here);
        peers.push((peer, from_peer, back_there));
    }
    let owner = std::array::from_fn(|b| process.owners[b].load(Relaxed));
    let of_shard = process.clone();
    let ((ready, begun), run) = (sync_channel(1), pool.run);
    let thread = std::thread::Builder::new().name(format!("shard-{index}")).spawn(move || {
        if of_shard.settings.scheduling.sched_batch && !crate::scheduling::set_batch() {
            tracing::debug!(shard = index, "SCHED_BATCH unavailable");
        }
        let startup = Startup { process: of_shard, index, owner, sockets, links };
        if let Err(error) = run(startup, factory, &ready) {
            let _ = ready.send(Err(error));
        }
    })?;
    // Until now the other shards do not know the new shard: if it cannot start, they continue unchanged.
    let begun = begun.recv().unwrap_or_else(|_| Err(io::Error::other("the shard panicked before it began")));
    if let Err(error) = begun {
        let _ = thread.join();
        return Err(error);
    }
    pool.open_listeners.extend(open_listeners);
    pool.threads.push(thread);
    pool.started += 1;
    for (peer, from_peer, back_there) in peers {
        process.entries[peer].post(Command::Peer(index, from_peer, back_there));
    }
    // No bucket may move before all shards know each other.
    wait(process, || process.entries[..index].iter().all(|entry| entry.links_taken.load(Acquire) >= index))
}

/// Opens a socket of a further shard for this listener, in the group of the first shard's socket. If that socket was
/// given and no other socket can join its group, duplicates it.
fn join<S: Service>(process: &Process<S>, pool: &ShardPool<S>, listener: usize) -> io::Result<(ListenSocket, Origin)> {
    let (transport, address) = (process.listeners[listener].transport, process.addresses[listener]);
    let error = match ListenSocket::open(transport, address, true, &process.settings) {
        Ok(socket) => return Ok((socket, Origin::Opened)),
        Err(error) => error,
    };
    let given = |o: &&OpenListener| o.listener.0 as usize == listener && o.origin == Origin::Inherited;
    let Some(given) = pool.open_listeners.iter().find(given) else { return Err(error) };
    tracing::info!(transport = transport.text(), %address, %error, "inherited socket shared by all shards");
    Ok((given.socket.try_clone()?, Origin::Duplicate))
}

/// Ends all shards if one ends without request.
struct FailOnDrop<S: Service + 'static> {
    process: Arc<Process<S>>,
    index: usize,
}

impl<S: Service + 'static> Drop for FailOnDrop<S> {
    fn drop(&mut self) {
        let how = if std::thread::panicking() { "panicked" } else { "ended" };
        self.process.fail(format_args!("shard {} {how}", self.index));
    }
}

/// Waits until `reached` returns true, for ten seconds at most: this takes microseconds unless a shard hangs.
pub(crate) fn wait<S: Service>(process: &Process<S>, reached: impl Fn() -> bool) -> io::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !reached() {
        if Instant::now() > deadline || process.stopping.load(Relaxed) {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "a shard does not answer"));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    Ok(())
}

/// Runs a shard on its thread. Sends to `ready` when the shard works; returns an error that occurs before.
pub(crate) fn run<S: Service + 'static, X: Extension<S>>(
    startup: Startup<S>,
    factory: Arc<Factory<S>>,
    ready: &SyncSender<io::Result<()>>,
) -> io::Result<()> {
    let (process, index) = (startup.process.clone(), startup.index);
    process.entries[index].clock.store(own_clock(), Release);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build_local(Default::default())?;
    let ended = runtime.block_on(async {
        let shard = begin::<S, X>(startup, &factory)?;
        let _guard = FailOnDrop { process, index };
        let _ = ready.send(Ok(()));
        poll_fn(|cx| shard.borrow_mut().poll(cx)).await;
        Ok(())
    });
    // A name look-up of a task is not waited for.
    runtime.shutdown_background();
    ended
}

/// Creates the shard inside the runtime of its thread. This is a function of its own, so that its stack does not
/// enlarge the frame of each poll.
#[inline(never)]
fn begin<S: Service + 'static, X: Extension<S>>(
    startup: Startup<S>,
    factory: &Factory<S>,
) -> io::Result<Rc<RefCell<Shard<S, X>>>> {
    let Startup { process, index, owner, sockets, links } = startup;
    // The bounds are read before the service reads them: if they change later, the shard adopts the change in its first
    // round.
    let bounds = process.bounds.load_full();
    let (mut udp, mut acceptors) = (Vec::new(), Vec::new());
    for (i, (socket, origin)) in sockets.into_iter().enumerate() {
        let listener = ListenerId(i as u16);
        match socket {
            ListenSocket::Udp(socket) => {
                let reads = origin != Origin::Duplicate;
                udp.push(Udp::new(socket, listener, reads, &process.settings, &bounds, &process.source_addresses)?);
            }
            ListenSocket::Tcp(socket) => acceptors.push((socket, listener)),
        }
    }
    let service = factory(index, Handle { process: process.clone() });
    let counters = process.entries[index].counters.clone();
    let streams = Streams::new(process.network.clone(), bounds, counters, index, acceptors)?;
    Ok(Shard::new(Dispatcher::new(process, index, owner, service, links), udp, streams))
}

/// Sets the number of shards, see [`Handle::set_shards`].
pub(crate) fn set<S: Service + 'static>(process: &Arc<Process<S>>, shards: usize) -> io::Result<()> {
    let shards = shards.clamp(1, process.entries.len());
    let mut pool = process.pool.lock().unwrap_or_else(|e| e.into_inner());
    while pool.started < shards {
        // A new shard must be started while no bucket moves.
        wait(process, || is_settled(process))?;
        start(process, &mut pool, None)?;
    }
    if process.active.swap(shards, AcqRel) != shards {
        tracing::info!(shards, "calls rebalanced");
    }
    steer(process, &pool, shards);
    for entry in &process.entries[..pool.started] {
        entry.post(Command::Share(shards));
    }
    Ok(())
}

/// Tells whether every bucket has reached its owner.
pub(crate) fn is_settled<S: Service>(process: &Process<S>) -> bool {
    let active = process.active.load(Acquire);
    let due = |shard: usize| (0..=255).filter(|&b| share(b, active) as usize == shard).count() as u64;
    process.entries.iter().enumerate().all(|(i, entry)| entry.counters.buckets.value() == due(i))
}

/// Returns the states of all UDP sockets, see [`Handle::backlogs`].
pub(crate) fn backlogs<S: Service>(process: &Process<S>) -> Vec<Backlog> {
    let pool = process.pool.lock().unwrap_or_else(|e| e.into_inner());
    let backlog = |open_listener: &OpenListener| {
        let ListenSocket::Udp(socket) = &open_listener.socket else { return None };
        if open_listener.origin == Origin::Duplicate {
            return None;
        }
        let (waiting, dropped, buffer) = udp::backlog(socket).ok()?;
        Some(Backlog { listener: open_listener.listener, shard: open_listener.shard, waiting, dropped, buffer })
    };
    pool.open_listeners.iter().filter_map(backlog).collect()
}

/// Makes the kernel give each shard the data of its calls. Otherwise the kernel spreads datagrams over all sockets by
/// their addresses, which is correct, but slower.
fn steer<S: Service>(process: &Process<S>, pool: &ShardPool<S>, shards: usize) {
    if pool.started == 1 {
        return;
    }
    // It is enough to attach the filter to one socket of each group.
    for open_listener in pool.open_listeners.iter().filter(|open_listener| open_listener.shard == 0) {
        let same = |other: &&OpenListener| other.listener == open_listener.listener;
        if pool.open_listeners.iter().filter(same).any(|other| other.origin == Origin::Duplicate) {
            continue;
        }
        let transport = process.listeners[open_listener.listener.0 as usize].transport;
        let program = match transport {
            Transport::Udp if process.settings.udp.kernel_steering => steer::by_call(process.settings.secret, shards),
            Transport::Udp => continue,
            _ => steer::at_random(shards),
        };
        if let Err(error) = open_listener.socket.attach(&program) {
            tracing::warn!(%error, transport = transport.text(), "kernel steering unavailable");
        }
    }
}

/// Returns the initial owner of each bucket.
pub(crate) fn owners(shards: usize) -> [std::sync::atomic::AtomicU8; BUCKETS] {
    std::array::from_fn(|b| std::sync::atomic::AtomicU8::new(share(b as u8, shards)))
}

/// Watches the load of the shards, and shares the calls among more or fewer of them.
pub(crate) async fn watch<S: Service + 'static>(handle: Handle<S>) {
    const PERIOD: Duration = Duration::from_secs(1);
    let most = handle.most();
    let mut before: Vec<Option<Duration>> = vec![None; most];
    let (mut busy_for, mut idle_for) = (0, 0);
    let mut last = Instant::now();
    loop {
        clock::beat(PERIOD).await;
        let wall = last.elapsed();
        // After a late beat the next beat follows soon, and in so short a time any shard looks busy.
        if wall < PERIOD / 2 {
            continue;
        }
        last = Instant::now();
        let mut load = Vec::with_capacity(most);
        for (shard, before) in before.iter_mut().enumerate() {
            let time = handle.busy(shard);
            if let (Some(time), Some(before)) = (time, *before) {
                load.push(time.saturating_sub(before).as_secs_f64() / wall.as_secs_f64());
            }
            *before = time;
        }
        let shards = handle.shards();
        let sum: f64 = load.iter().sum();
        let highest = load.iter().take(shards).fold(0.0, |a: f64, b| a.max(*b));
        busy_for = if highest > 0.7 && shards < most { busy_for + 1 } else { 0 };
        // One shard fewer is used only if the remaining shards would then be less than half loaded.
        idle_for = if shards > 1 && sum < 0.5 * (shards - 1) as f64 { idle_for + 1 } else { 0 };
        let wanted = match (busy_for, idle_for) {
            (2.., _) => shards + 1,
            (_, 10..) => shards - 1,
            _ => continue,
        };
        (busy_for, idle_for) = (0, 0);
        let handle = handle.clone();
        // This blocks for the start of a thread.
        let _ = tokio::task::spawn_blocking(move || {
            if let Err(error) = handle.set_shards(wanted) {
                tracing::warn!(%error, wanted, "number of shards unchanged");
            }
        })
        .await;
    }
}

/// Returns the clock of the calling thread's CPU time, for other threads to read.
fn own_clock() -> libc::clockid_t {
    let mut clock = 0;
    // SAFETY: the thread is the calling one and lives; the clock id is written to our own variable.
    match unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) } {
        0 => clock,
        _ => 0,
    }
}

/// Reads the CPU clock of a thread.
pub(crate) fn cpu_time(clock: libc::clockid_t) -> Option<Duration> {
    if clock == 0 {
        return None;
    }
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: any clock id may be passed, an unknown one is an error; the time is written to our own variable.
    let result = unsafe { libc::clock_gettime(clock, &mut time) };
    (result == 0).then(|| Duration::new(time.tv_sec as u64, time.tv_nsec as u32))
}
