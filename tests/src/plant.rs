//! Conditions planted around a generator: other programs on its core, its scheduling class, and the link to its peer. A
//! [`Witness`] measures whether the machine would have let any program keep its schedule.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::binary;

/// Scheduling of a process or thread by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scheduling {
    /// Default of all programs.
    Ordinary,
    /// Lowest priority (nice 19).
    Nice,
    /// Before every ordinary program (SCHED_FIFO), so that other work on the machine does not matter. Needs
    /// privileges.
    RealTime,
    /// Before [`Self::RealTime`] too: for an observer that does next to nothing.
    Foremost,
}

/// Returns the core of the generator and the core of its peer. They are the same if this process may use only one.
pub fn cores() -> [usize; 2] {
    let allowed = allowed_cores();
    let first = allowed.first().copied().unwrap_or(0);
    [first, allowed.get(1).copied().unwrap_or(first)]
}

/// Returns the cores that this process may use.
pub fn allowed_cores() -> Vec<usize> {
    // SAFETY: the kernel writes to our own set, whose size is passed.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set);
        set
    };
    // SAFETY: reads our own set, within its size.
    (0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect()
}

/// Binds this thread to a core and sets its scheduling class. Returns false if the user may not set the class.
pub fn place_thread(core: usize, scheduling: Scheduling) -> bool {
    // SAFETY: a set and parameters of our own, which the kernel reads; 0 is this thread.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(core, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
        match scheduling {
            Scheduling::Ordinary => true,
            Scheduling::Nice => {
                libc::setpriority(libc::PRIO_PROCESS, libc::syscall(libc::SYS_gettid) as libc::id_t, 19) == 0
            }
            Scheduling::RealTime | Scheduling::Foremost => {
                let priority = if scheduling == Scheduling::Foremost { 20 } else { 10 };
                let parameters = libc::sched_param { sched_priority: priority };
                libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameters) == 0
            }
        }
    }
}

/// Tells whether this user may schedule processes with priority over all others.
pub fn may_be_real_time() -> bool {
    std::thread::spawn(|| place_thread(cores()[0], Scheduling::RealTime)).join().unwrap_or(false)
}

/// Returns a command that runs the program under test on this core with this scheduling. The caller adds its arguments.
pub fn program(core: usize, scheduling: Scheduling) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &core.to_string()]);
    match scheduling {
        Scheduling::Ordinary => {}
        Scheduling::Nice => _ = command.args(["nice", "-n", "19"]),
        Scheduling::RealTime | Scheduling::Foremost => _ = command.args(["chrt", "-f", "10"]),
    }
    command.arg(binary::strowger());
    command
}

/// Threads that work until they are dropped.
pub struct Threads {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        self.threads.drain(..).for_each(|thread| _ = thread.join());
    }
}

/// Starts threads that never sleep, on this core.
pub fn spinners(count: usize, core: usize, scheduling: Scheduling) -> Threads {
    let over = Arc::new(AtomicBool::new(false));
    let threads = (0..count).map(|_| {
        let over = over.clone();
        std::thread::spawn(move || {
            place_thread(core, scheduling);
            while !over.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    });
    Threads { threads: threads.collect(), over }
}

/// Starts threads on this core that work for `work` and sleep for `rest` in turns.
pub fn slices(count: usize, core: usize, scheduling: Scheduling, work: Duration, rest: Duration) -> Threads {
    let over = Arc::new(AtomicBool::new(false));
    let threads = (0..count).map(|_| {
        let over = over.clone();
        std::thread::spawn(move || {
            place_thread(core, scheduling);
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                while begun.elapsed() < work {
                    std::hint::spin_loop();
                }
                // The core is free for this long.
                std::thread::sleep(rest);
            }
        })
    });
    Threads { threads: threads.collect(), over }
}

/// Observer of a core. One thread has only a timer, and is scheduled before all others if this user may ask for that: when it is
/// late, the machine has stood still. Other threads read from the kernel how long the threads of observed programs waited for a core.
pub struct Witness {
    over: Arc<AtomicBool>,
    late: JoinHandle<Vec<Duration>>,
    queued: [JoinHandle<Queued>; 2],
}

/// Measurements of a witness.
#[derive(Clone, Copy, Debug)]
pub struct Testimony {
    /// Lateness of its own timer: 99th percentile.
    pub late_p99: Duration,
    pub late_most: Duration,
    /// Waits of the generators for a core.
    pub queued: Queued,
    pub peers: Queued,
}

/// Waits for a core, of the threads that carry the load in the observed programs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Queued {
    /// Longest wait that was added between two readings, 5 ms apart.
    pub most: Duration,
    /// Share of the time spent in waits that certainly lasted 4 ms or more each, 0 to 1.
    pub long: f64,
}

impl Testimony {
    /// Tells whether the machine delayed no program for longer than a generator may always be late. The two delays may
    /// follow each other.
    pub fn is_quiet(&self) -> bool {
        self.late_p99 < Duration::from_millis(1) && self.late_most + self.queued.most < Duration::from_millis(2)
    }

    /// Returns whether the generator waited for a core so long and so often that more than one in a hundred of its
    /// actions was more than 2 ms late, while its peer was quick: the wait spoilt the figures.
    pub fn is_starved(&self) -> bool {
        self.queued.long > 0.05 && self.peers.long < 0.01
    }
}

/// Process ids of the programs that a witness observes.
pub type Shown = Arc<Mutex<Vec<u32>>>;

impl Witness {
    /// Starts a witness of these generators and their peers.
    pub fn on(core: usize, generators: Shown, peers: Shown) -> Self {
        const STEP: Duration = Duration::from_millis(1);
        let over = Arc::new(AtomicBool::new(false));
        let watched = over.clone();
        let late = std::thread::spawn(move || {
            place_thread(core, Scheduling::Foremost);
            let (mut late, mut due) = (Vec::new(), Instant::now() + STEP);
            while !watched.load(Ordering::Relaxed) {
                // Sleeps until the next moment at which it should wake.
                std::thread::sleep(due.saturating_duration_since(Instant::now()));
                late.push(due.elapsed());
                // A delay of the machine affects all programs, so the next moment counts from now.
                due = (due + STEP).max(Instant::now());
            }
            late
        });
        let queued = [generators, peers].map(|shown| {
            let watched = over.clone();
            std::thread::spawn(move || look(core, &shown, &watched))
        });
        Self { over, late, queued }
    }

    /// Ends the witness and returns its measurements.
    ///
    /// # Panics
    /// A thread of the witness has panicked.
    pub fn says(self) -> Testimony {
        self.over.store(true, Ordering::Relaxed);
        let mut late = self.late.join().expect("the witness lives");
        late.sort_unstable();
        let at = |share: usize| late.get((late.len() * share / 100).min(late.len().saturating_sub(1)));
        let of = |late: Option<&Duration>| late.copied().unwrap_or_default();
        let [queued, peers] = self.queued.map(|thread| thread.join().expect("the witness lives"));
        Testimony { late_p99: of(at(99)), late_most: of(late.last()), queued, peers }
    }
}

/// Reads the waits of these programs from the kernel until `over` is set.
fn look(core: usize, shown: &Shown, over: &AtomicBool) -> Queued {
    const LOOK: Duration = Duration::from_millis(5);
    const LONG: Duration = Duration::from_millis(4);
    place_thread(core, Scheduling::Foremost);
    let mut threads: Vec<(u32, File, Duration)> = Vec::new();
    let (mut most, mut long, mut time) = (Duration::ZERO, Duration::ZERO, Duration::ZERO);
    let mut last = Instant::now();
    while !over.load(Ordering::Relaxed) {
        // The interval between two readings.
        std::thread::sleep(LOOK);
        let passed = last.elapsed();
        last += passed;
        for (_, file, before) in &mut threads {
            let Some(waited) = waited(file) else { continue };
            let more = waited.saturating_sub(*before);
            *before = waited;
            most = most.max(more);
            time += passed;
            // The kernel counts a wait when it ends: a wait longer than the time since the last reading began before that.
            if more >= passed + LONG {
                long += more;
            }
        }
        for process in shown.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if !threads.iter().any(|(of, ..)| of == process) {
                let found = carriers(*process).into_iter();
                threads.extend(found.filter_map(|file| waited(&file).map(|waited| (*process, file, waited))));
            }
        }
    }
    Queued { most, long: long.as_secs_f64() / time.as_secs_f64().max(0.001) }
}

/// Opens the `schedstat` of each thread that carries the load of a process.
fn carriers(process: u32) -> Vec<File> {
    let tasks = std::fs::read_dir(format!("/proc/{process}/task"));
    let of = |task: std::fs::DirEntry| {
        let name = std::fs::read_to_string(task.path().join("comm")).ok()?;
        name.starts_with("shard-").then(|| File::open(task.path().join("schedstat")).ok())?
    };
    tasks.into_iter().flatten().flatten().filter_map(of).collect()
}

/// Returns how long a thread has waited for a core so far: the second number of its `schedstat`.
fn waited(schedstat: &File) -> Option<Duration> {
    let mut bytes = [0; 128];
    let length = schedstat.read_at(&mut bytes, 0).ok()?;
    let text = std::str::from_utf8(&bytes[..length]).ok()?;
    Some(Duration::from_nanos(text.split_ascii_whitespace().nth(1)?.parse().ok()?))
}

/// Fate of a datagram on a link, by the number of the datagram: one copy arrives after each of these delays. If there
/// are no delays, the datagram is lost.
pub type Fate = fn(u64) -> &'static [Duration];

/// Datagram on its way: time of arrival and number, true if it goes to the peer, and its bytes.
type InFlight = (Reverse<(Instant, u64)>, bool, Vec<u8>);

/// Starts a link between a caller and this peer that loses, delays and duplicates datagrams. Returns the address to
/// which the caller must send.
///
/// # Panics
/// No port is free.
pub fn link(peer: SocketAddr, fate: Fate) -> (SocketAddr, Threads) {
    let [near, far] = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0").expect("a port is free"));
    let address = near.local_addr().expect("it is bound");
    for socket in [&near, &far] {
        socket.set_nonblocking(true).expect("it can be");
    }
    let over = Arc::new(AtomicBool::new(false));
    let watched = over.clone();
    let thread = std::thread::spawn(move || {
        // `Reverse` makes the earliest datagram the greatest.
        let mut waiting: BinaryHeap<InFlight> = BinaryHeap::new();
        let (mut caller, mut number, mut bytes) = (None, 0, vec![0; 65_536]);
        while !watched.load(Ordering::Relaxed) {
            let mut idle = true;
            for (socket, outward) in [(&near, true), (&far, false)] {
                while let Ok((length, from)) = socket.recv_from(&mut bytes) {
                    idle = false;
                    if outward {
                        caller = Some(from);
                    }
                    for delay in fate(number) {
                        let at = Instant::now() + *delay;
                        waiting.push((Reverse((at, number)), outward, bytes[..length].to_vec()));
                    }
                    number += 1;
                }
            }
            while waiting.peek().is_some_and(|(due, ..)| due.0.0 <= Instant::now()) {
                let Some((_, outward, bytes)) = waiting.pop() else { break };
                match (outward, caller) {
                    (true, _) => _ = far.send_to(&bytes, peer),
                    (false, Some(caller)) => _ = near.send_to(&bytes, caller),
                    (false, None) => (),
                }
            }
            if idle {
                // The interval between two readings.
                std::thread::sleep(Duration::from_micros(200));
            }
        }
    });
    (address, Threads { over, threads: vec![thread] })
}

/// Datagrams of [`flood`]: more than a socket of the kernel's usual size holds.
pub const FLOOD: u64 = 40_000;

/// Sends a program [`FLOOD`] responses from this socket that belong to none of its calls.
pub fn flood(from: &UdpSocket, to: SocketAddr) {
    let junk = format!("SIP/2.0 200 OK\r\nCall-ID: nobody\r\nX-Long: {}\r\n\r\n", "x".repeat(900));
    for _ in 0..FLOOD {
        let _ = from.send_to(junk.as_bytes(), to);
    }
}

/// Writes a document to this folder with a request that is longer than a datagram can be (65,507 bytes). Returns the
/// path of the document.
///
/// # Panics
/// The folder cannot be written.
pub fn too_long(folder: &Path) -> String {
    let document = folder.join("long.xml");
    let text = include_str!("../scenarios/long.xml").replace("LONG", &"x".repeat(66_000));
    std::fs::write(&document, text).expect("the folder can be written");
    document.display().to_string()
}
