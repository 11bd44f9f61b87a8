//! Each database and cache server stopped, frozen, slow and restarted, under traffic of two kinds: calls of a trunk,
//! which do not need it, and users with passwords. Calls of the trunk take no longer than before; each user gets the
//! specified answer in time.

mod beside;

use self::beside::Beside;
use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use strowger_backend::sqlite::SqliteSettings;
use strowger_backend::sqlite::subscribers::SqliteAdmin;
use strowger_lab::backend::{self, Backend, MariaDb, PostgreSql};
use strowger_tests::account::{add, authorized};
use strowger_tests::call::exchange;
use strowger_tests::program::{MARIADB, MARIADBD, MEMCACHED, POSTGRESQL, REDIS, STRACE, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::slow_relay::SlowRelay;
use strowger_tests::text::{Request, method, respond, status};
use strowger_tests::trace::Trace;
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;
use strowger_tests::{alone, port, shared, undisturbed};
use tempfile::TempDir;

/// Users of a database, each of whom registers once; passwords equal names.
const USERS: usize = 20_000;
/// Users that register at once.
const AT_ONCE: usize = 4;
/// Length of a phase with or without the fault, in the long variant.
const PHASE: Duration = Duration::from_secs(3);
/// Length in the short variant, where all run at once. A wait of a shard would exceed the effects of that.
const SHORT_PHASE: Duration = Duration::from_secs(2);
const SHORT_LATE: Duration = Duration::from_millis(500);
/// `store.lookup_timeout` of the short variant: a phase has several.
const SHORT_LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);
/// Pause between two calls of the trunk.
const PAUSE: Duration = Duration::from_millis(4);
/// Delay of each answer of a slow server.
const SLOW: Duration = Duration::from_millis(500);
/// Default values of `store.lookup_timeout` and of a cache's `timeout`.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(2);
const CACHE_TIMEOUT: Duration = Duration::from_millis(200);
/// Tolerance of these deadlines.
const LATE: Duration = Duration::from_millis(100);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Stopped,
    Frozen,
    Slow,
    StartedAgain,
}

/// SIP server, the database or cache server beside it, and the callee of its trunk.
struct Scene {
    name: &'static str,
    beside: Beside,
    relay: SlowRelay,
    server: Server,
    callee: Wire,
    lookup_timeout: Duration,
    /// Files of the database.
    _folder: TempDir,
}

impl Scene {
    fn start(name: &'static str, lookup_timeout: Duration) -> Self {
        Self::start_as(name, lookup_timeout, |setup| setup)
    }

    /// Starts all programs, with this change of the setup. A cache server finds the users in the server's own database.
    fn start_as(name: &'static str, lookup_timeout: Duration, change: impl FnOnce(Setup) -> Setup) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let beside = Beside::start(name, &folder);
        let relay = SlowRelay::to(beside.server().address());
        let at = port::free_address();
        let mut server = change(beside.prepare(&relay, at, lookup_timeout)).prepare();
        if beside.is_cache() {
            let path = server.folder().join("test.sqlite");
            let mut users = SqliteAdmin::open(&SqliteSettings::new(path)).expect("it opens");
            add(&mut users, (0..USERS).map(|n| format!("user{n}")));
        }
        server.start();
        let callee = Wire::connect_from(Udp, at, server.address(Udp), None).expect("the port is free");
        Self { name, beside, relay, server, callee, lookup_timeout, _folder: folder }
    }
}

/// Begin and duration of an operation.
#[derive(Clone, Copy, Debug)]
struct Sample {
    began: Instant,
    took: Duration,
    status: Option<u16>,
}

/// Makes a call of the trunk, whose callee is busy.
fn trunk_call(trunk: &mut Wire, callee: &mut Wire) -> Sample {
    let invite = Request::new("INVITE", "sip:100@example.org", "udp", trunk.local())
        .with(format!("Contact: <sip:{}>", trunk.local()));
    let began = Instant::now();
    trunk.send(&invite.bytes()).expect("loopback takes it");
    let got = loop {
        let got = callee.receive(Duration::from_secs(5)).expect("the call arrives");
        if method(&got).as_deref() == Some("INVITE") {
            break got;
        }
    };
    callee.send(&respond(&got, 486, "busy", &[])).expect("loopback takes it");
    let answer = trunk.final_response(Duration::from_secs(5)).expect("the call is answered");
    let took = began.elapsed();
    trunk.send(&invite.ack(&answer).bytes()).expect("loopback takes it");
    Sample { began, took, status: status(&answer) }
}

/// Registers the next user with a password; returns the time after the challenge.
fn user_registers(wire: &mut Wire, next: &AtomicUsize) -> Sample {
    let user = format!("user{}", next.fetch_add(1, Relaxed) % USERS);
    let contact = format!("sip:{user}@{};transport=tcp", wire.local());
    let request = Request::register(&user, "example.org", &contact, "tcp", wire.local());
    let challenge = exchange(wire, &request);
    let began = Instant::now();
    let answer = exchange(wire, &authorized(&request, &challenge, &user, &user));
    Sample { began, took: began.elapsed(), status: status(&answer) }
}

/// Runs both kinds of traffic until `work` ends.
fn under_traffic<T>(server: &Server, callee: &mut Wire, next: &AtomicUsize, work: impl FnOnce() -> T) -> (T, Traffic) {
    let over = AtomicBool::new(false);
    let trunk = SocketAddr::new(Ipv4Addr::new(127, 0, 0, 8).into(), 0);
    let mut trunk = Wire::connect_from(Udp, trunk, server.address(Udp), None).expect("loopback");
    thread::scope(|scope| {
        let calls = scope.spawn(|| {
            let mut samples = Vec::new();
            while !over.load(Relaxed) {
                samples.push(trunk_call(&mut trunk, callee));
                // The pause until the next call.
                thread::sleep(PAUSE);
            }
            samples
        });
        let users: Vec<_> = (0..AT_ONCE)
            .map(|_| {
                scope.spawn(|| {
                    let (mut wire, mut samples) = (server.connect(Tcp), Vec::new());
                    while !over.load(Relaxed) {
                        samples.push(user_registers(&mut wire, next));
                        // Users arrive at their own rate, not as fast as they are answered.
                        thread::sleep(PAUSE * 5);
                    }
                    samples
                })
            })
            .collect();
        let result = work();
        over.store(true, Relaxed);
        let calls = calls.join().expect("each call is answered");
        let users = users.into_iter().flat_map(|user| user.join().expect("each user is answered")).collect();
        (result, Traffic { calls, users })
    })
}

struct Traffic {
    calls: Vec<Sample>,
    users: Vec<Sample>,
}

/// Begin and end of a phase.
type Span = (Instant, Instant);

impl Sample {
    /// Tells whether the system call began and ended in this phase.
    fn is_within(&self, (from, to): &Span) -> bool {
        *from <= self.began && self.began + self.took <= *to
    }
}

fn within(samples: &[Sample], spans: &[Span]) -> Vec<Duration> {
    let is_in = |sample: &&Sample| spans.iter().any(|span| sample.is_within(span));
    let mut took: Vec<_> = samples.iter().filter(is_in).map(|sample| sample.took).collect();
    took.sort_unstable();
    took
}

fn percentile(sorted: &[Duration], percent: usize) -> Duration {
    sorted[(sorted.len() - 1) * percent / 100]
}

/// Tests one engine with one fault: without and with the fault in turn. `is_alone`: no other measurement runs
/// meanwhile.
fn fault(scene: Scene, fault: Fault, is_alone: bool) {
    // The folder is dropped last.
    let Scene { _folder, name, mut beside, relay, server, mut callee, lookup_timeout } = scene;
    let phase = if is_alone { PHASE } else { SHORT_PHASE };
    let next = AtomicUsize::new(0);
    let is_cache = beside.is_cache();
    let (([before, after], ill, asked), traffic) = under_traffic(&server, &mut callee, &next, || {
        // Time for initial loading.
        thread::sleep(phase / 3);
        let well = || {
            let (asked, began) = (relay.sent(), Instant::now());
            // A phase without the fault.
            thread::sleep(phase);
            (relay.sent() - asked, (began, Instant::now()))
        };
        let (usual, before) = well();
        let began = Instant::now();
        match fault {
            Fault::Stopped | Fault::StartedAgain => beside.stop(),
            Fault::Frozen => beside.server().freeze(),
            Fault::Slow => relay.slow_down(SLOW),
        }
        // The work of a starting or ending server loads the machine; only a restart includes such work.
        let from = if fault == Fault::StartedAgain { began } else { Instant::now() };
        if fault == Fault::StartedAgain {
            beside.start_again();
        }
        // A phase with the fault.
        thread::sleep(phase.saturating_sub(from.elapsed()));
        let ill = (from, Instant::now());
        match fault {
            Fault::Stopped => beside.start_again(),
            Fault::Frozen => beside.server().thaw(),
            Fault::Slow => relay.slow_down(Duration::ZERO),
            Fault::StartedAgain => (),
        }
        let (recovering, _) = well();
        let (_, after) = well();
        ([before, after], ill, (usual, recovering))
    });
    let well = [before, after];
    assert!(traffic.calls.iter().all(|call| call.status == Some(486)), "a call of the trunk has another answer");
    let (before, meanwhile) = (within(&traffic.calls, &well), within(&traffic.calls, &[ill]));
    let [p50, p99] = [50, 99].map(|percent| (percentile(&before, percent), percentile(&meanwhile, percent)));
    let users = within(&traffic.users, &[ill]);
    let statuses = strowger_tests::server::count(traffic.users.iter().map(|user| user.status));
    eprintln!(
        "{name} {fault:?}: trunk p50 {:?} -> {:?}, p99 {:?} -> {:?} ({} calls); users up to {:?}, {statuses:?}; asked {asked:?}",
        p50.0,
        p50.1,
        p99.0,
        p99.1,
        traffic.calls.len(),
        users.last()
    );
    let most = match (is_alone, fault) {
        (true, Fault::StartedAgain) => Duration::from_millis(20),
        (true, _) => p99.0 + Duration::from_millis(2),
        (false, _) => p99.0 + Duration::from_millis(100),
    };
    assert!(p99.1 < most, "{name} {fault:?}: the slowest calls of the trunk wait");
    if is_alone && fault != Fault::StartedAgain {
        assert!(p50.1 < p50.0.mul_f64(1.1), "{name} {fault:?}: calls of the trunk wait");
    }
    // An unreachable cache delays an answer by its deadline at most, and the database knows the user; without the
    // database no user is known.
    let (deadline, stated) = if is_cache { (CACHE_TIMEOUT, 200) } else { (lookup_timeout, 500) };
    let slowest = traffic.users.iter().map(|user| user.took).max().expect("users came");
    let late = if is_alone { LATE } else { SHORT_LATE };
    assert!(slowest < deadline + late, "{name} {fault:?}: a user waited for {slowest:?}");
    let is_stated = |user: &&Sample| matches!(user.status, Some(200)) || user.status == Some(stated);
    assert_eq!(traffic.users.iter().filter(is_stated).count(), traffic.users.len(), "{name} {fault:?}: {statuses:?}");
    let is_well = |user: &&Sample| well.iter().any(|span| user.is_within(span));
    assert!(
        traffic.users.iter().filter(is_well).all(|user| user.status == Some(200)),
        "{name} {fault:?}: a user is refused while the server beside is well"
    );
    let (usual, recovering) = asked;
    assert!(usual > 0, "{name}: nothing goes by the relay");
    assert!(!is_alone || recovering <= usual * 2, "{name} {fault:?}: {recovering} questions after it, {usual} before");
}

fn each_fault(name: &'static str) {
    let faults = [Fault::Stopped, Fault::Frozen, Fault::Slow, Fault::StartedAgain];
    for one in faults {
        undisturbed(move || fault(Scene::start(name, LOOKUP_TIMEOUT), one, true));
    }
}

/// In the short variant each server is frozen once.
#[test]
fn a_frozen_server_beside_holds_up_no_trunk() {
    let engines = [
        ("mariadb", &[MARIADBD, MARIADB][..]),
        ("postgresql", &[POSTGRESQL]),
        ("redis", &[REDIS]),
        ("memcached", &[MEMCACHED]),
    ];
    let engines: Vec<&str> = engines.iter().filter(|(_, programs)| have(programs)).map(|(name, _)| *name).collect();
    let scenes: Vec<Scene> = {
        // Nothing is measured while the programs start.
        let _shared = shared();
        thread::scope(|scope| {
            let starts: Vec<_> =
                engines.into_iter().map(|name| scope.spawn(move || Scene::start(name, SHORT_LOOKUP_TIMEOUT))).collect();
            starts.into_iter().map(|start| start.join().expect("all programs start")).collect()
        })
    };
    let _alone = alone();
    thread::scope(|scope| {
        for scene in scenes {
            scope.spawn(move || fault(scene, Fault::Frozen, false));
        }
    });
}

#[test]
#[ignore = "a minute: make test-long"]
fn mariadb_in_trouble_is_no_trouble_of_trunks() {
    if have(&[MARIADBD, MARIADB]) {
        each_fault("mariadb");
    }
}

#[test]
#[ignore = "a minute: make test-long"]
fn postgresql_in_trouble_is_no_trouble_of_trunks() {
    if have(&[POSTGRESQL]) {
        each_fault("postgresql");
    }
}

#[test]
#[ignore = "a minute: make test-long"]
fn redis_in_trouble_is_no_trouble_of_trunks() {
    if have(&[REDIS]) {
        each_fault("redis");
    }
}

#[test]
#[ignore = "a minute: make test-long"]
fn memcached_in_trouble_is_no_trouble_of_trunks() {
    if have(&[MEMCACHED]) {
        each_fault("memcached");
    }
}

/// System calls of a shard: none of them blocks, except the wait for events, and locks that are soon released.
const OF_SHARDS: [&str; 39] = [
    "epoll_wait",
    "epoll_pwait",
    "epoll_pwait2",
    "epoll_ctl",
    "recvmmsg",
    "sendmmsg",
    "recvmsg",
    "sendmsg",
    "recvfrom",
    "sendto",
    "writev",
    "readv",
    "write",
    "read",
    "futex",
    "timerfd_settime",
    "timerfd_gettime",
    "accept4",
    "socket",
    "connect",
    "bind",
    "shutdown",
    "close",
    "getsockopt",
    "setsockopt",
    "getsockname",
    "getpeername",
    "ioctl",
    "mmap",
    "munmap",
    "madvise",
    "mprotect",
    "sched_yield",
    "getrandom",
    "fcntl",
    "exit",
    "rt_sigprocmask",
    "rt_sigreturn",
    "sigaltstack",
];

/// Each of them takes less than this; a blocking call would take longer.
const LONGEST_CALL: f64 = 0.1;

/// Completed system call.
#[derive(Debug)]
struct Call<'a> {
    name: &'a str,
    /// First argument and the rest, as far as strace writes it.
    text: &'a str,
    seconds: f64,
}

impl Call<'_> {
    /// Tells whether it concerns a file on a disk, for which the kernel blocks even without being asked to.
    fn is_of_file(&self) -> bool {
        let descriptor = self.text.trim_start_matches(|c: char| c.is_ascii_digit());
        descriptor.starts_with("</") && !descriptor.starts_with("</dev/") && !descriptor.starts_with("</proc/")
    }

    /// Tells whether the system call's purpose is to wait.
    fn is_wait(&self) -> bool {
        self.name.starts_with("epoll_wait") || self.name.starts_with("epoll_pwait")
    }
}

/// Returns the system calls of threads with this name from their first wait on, without those of their end.
fn calls_of_threads<'a>(trace: &'a str, name: &str) -> Vec<Call<'a>> {
    let mut threads: Vec<(&str, bool)> = Vec::new();
    let mut calls = Vec::new();
    for line in trace.lines() {
        let Some((thread, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        if rest.starts_with("prctl(PR_SET_NAME") && rest.contains(name) {
            threads.push((thread, false));
        }
        let Some(known) = threads.iter_mut().find(|(known, _)| *known == thread) else { continue };
        // `NAME(...) = 1 <0.000010>`, or `<... NAME resumed>...) = 1 <0.000010>` after an interruption by another
        // thread.
        let parts = match rest.strip_prefix("<... ") {
            Some(rest) => rest.split_once(" resumed>"),
            None => rest.split_once('('),
        };
        let Some((call, text)) = parts else { continue };
        known.1 |= call.starts_with("epoll_wait") || call.starts_with("epoll_pwait");
        let seconds = text.rsplit_once('<').and_then(|(_, end)| end.strip_suffix('>')?.parse().ok());
        if known.1 && call.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            calls.push(Call { name: call, text, seconds: seconds.unwrap_or(0.0) });
        }
    }
    calls
}

/// Starts a scene whose server is traced: with the paths of descriptors, and the duration of each call.
fn traced(name: &'static str) -> (Scene, Trace) {
    let trace = Trace::default();
    let words = trace.words_with(&["-y", "-T"], "all", 32);
    (Scene::start_as(name, LOOKUP_TIMEOUT, |setup| setup.under(&words)), trace)
}

fn shards_wait_for_nothing((scene, trace): (Scene, Trace)) {
    let Scene { name, beside, mut server, mut callee, .. } = scene;
    let next = AtomicUsize::new(0);
    let step = Duration::from_secs(1);
    let ((), traffic) = under_traffic(&server, &mut callee, &next, || {
        for begin in [None, Some(Backend::freeze as fn(&Backend)), Some(Backend::thaw)] {
            begin.iter().for_each(|begin| begin(beside.server()));
            // Without the fault, frozen, and without it again.
            thread::sleep(step);
        }
    });
    assert!(traffic.calls.len() > 50 && traffic.users.len() > 50);
    let id = server.process().id();
    server.stop();
    let whole = trace.whole(id);
    let calls = calls_of_threads(&whole, "shard-");
    let used = strowger_tests::server::count(calls.iter().map(|call| call.name));
    assert!(used.get("recvmmsg").is_some_and(|count| *count > 50), "{used:?}");
    let others: Vec<_> = used.keys().filter(|call| !OF_SHARDS.contains(call)).collect();
    assert!(others.is_empty(), "{name}: a shard calls {others:?} of {used:?}");
    assert!(calls.iter().any(|call| call.is_wait() && call.seconds > 0.0), "the trace has no times");
    let waits: Vec<_> =
        calls.iter().filter(|call| call.is_of_file() || (!call.is_wait() && call.seconds > LONGEST_CALL)).collect();
    assert!(waits.is_empty(), "{name}: a shard waits in {waits:?}");
}

/// Short variant.
#[test]
fn no_shard_waits_for_a_frozen_database() {
    if have(&[STRACE, MARIADBD, MARIADB]) {
        let traced = {
            let _shared = shared();
            traced("mariadb")
        };
        let _alone = alone();
        shards_wait_for_nothing(traced);
    }
}

#[test]
#[ignore = "a minute: make test-long"]
fn no_shard_makes_a_system_call_that_waits() {
    if !have(&[STRACE, MARIADBD, MARIADB, POSTGRESQL, REDIS, MEMCACHED]) {
        return;
    }
    let _alone = alone();
    ["mariadb", "postgresql", "redis", "memcached"].into_iter().for_each(|name| shards_wait_for_nothing(traced(name)));
}
