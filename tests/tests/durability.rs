//! Guarantee of a 200 to REGISTER: the binding survives `kill -9`, or a power cut if configured; without storage there
//! is no 200.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use strowger_tests::call::exchange;
use strowger_tests::limits::SmallDisk;
use strowger_tests::program::{STRACE, have};
use strowger_tests::server::{Server, Setup, loopback};
use strowger_tests::text::{self, Request};
use strowger_tests::trace::Trace;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::{alone, shared};

/// Returns a folder on a disk: the folder for temporary files may be memory.
fn disk() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

fn registrar() -> Setup {
    Setup::on(&[Udp]).open_registrar().in_folder(disk()).with("nat.ping_interval = \"never\"")
}

fn user(n: usize) -> String {
    format!("user{n}")
}

/// Returns the REGISTER of user `n`; the Call-ID identifies the user.
fn register(n: usize, here: SocketAddr) -> Vec<u8> {
    let name = user(n);
    let mut request = Request::register(&name, "example.org", &format!("sip:{name}@{here}"), "udp", here);
    request.call_id = format!("{n}-of-many");
    request.bytes()
}

fn whose(answer: &[u8]) -> Option<usize> {
    text::field(answer, "Call-ID")?.strip_suffix("-of-many")?.parse().ok()
}

/// Results of registrations at a rate: the status of each answered one, and the delay of its answer.
struct StormResult {
    statuses: HashMap<usize, u16>,
    delays: Vec<Duration>,
}

/// Registers users from `first` on at a rate, for a time or until `stop`; then waits `more` for answers. Nothing is
/// retransmitted, so each answer belongs to one request.
fn storm(
    server: SocketAddr,
    first: usize,
    rate: usize,
    time: Duration,
    more: Duration,
    stop: &AtomicBool,
) -> StormResult {
    let socket = UdpSocket::bind(loopback(0)).expect("loopback has a port");
    let here = socket.local_addr().expect("it is bound");
    let _ = socket2::SockRef::from(&socket).set_recv_buffer_size(8 << 20);
    let receiver = socket.try_clone().expect("a descriptor is left");
    let sending = AtomicBool::new(true);
    let (sent_at, received) = std::thread::scope(|scope| {
        let sending = &sending;
        let receive = scope.spawn(move || {
            receiver.set_read_timeout(Some(Duration::from_millis(20))).expect("a socket can be set");
            let (mut received, mut buffer) = (Vec::new(), vec![0; 65_536]);
            let mut last = Instant::now();
            while sending.load(Ordering::Relaxed) || last.elapsed() < more {
                // This error comes from a datagram that was sent after the kill of the server, when its port was
                // closed.
                if let Ok(length) = receiver.recv(&mut buffer) {
                    last = Instant::now();
                    received.push((last, buffer[..length].to_vec()));
                }
            }
            received
        });
        let start = Instant::now();
        let mut sent_at = Vec::new();
        while start.elapsed() < time && !stop.load(Ordering::Relaxed) {
            let due = (start.elapsed().as_secs_f64() * rate as f64) as usize;
            while sent_at.len() < due {
                let message = register(first + sent_at.len(), here);
                sent_at.push(Instant::now());
                let _ = socket.send_to(&message, server);
            }
            // The interval of the registrations.
            std::thread::sleep(Duration::from_millis(1));
        }
        sending.store(false, Ordering::Relaxed);
        (sent_at, receive.join().expect("receiving does not panic"))
    });
    let mut outcome = StormResult { statuses: HashMap::new(), delays: Vec::new() };
    for (at, message) in received {
        let (Some(n), Some(status)) = (whose(&message), text::status(&message)) else { continue };
        if status < 200 {
            continue;
        }
        outcome.statuses.entry(n).or_insert(status);
        outcome.delays.push(at.duration_since(sent_at[n - first]));
    }
    outcome
}

/// Returns the users that the server knows: queries the bindings of each (RFC 3261 section 10.2.3), 64 at a time.
fn known(server: SocketAddr, users: &[usize]) -> HashSet<usize> {
    let socket = UdpSocket::bind(loopback(0)).expect("loopback has a port");
    socket.set_read_timeout(Some(Duration::from_millis(500))).expect("a socket can be set");
    let here = socket.local_addr().expect("it is bound");
    let (mut known, mut buffer) = (HashSet::new(), vec![0; 65_536]);
    for group in users.chunks(64) {
        let mut open: BTreeMap<usize, Vec<u8>> = group
            .iter()
            .map(|n| {
                let mut request = Request::register(&user(*n), "example.org", "", "udp", here);
                request.headers.clear();
                request.call_id = format!("{n}-of-many");
                (*n, request.bytes())
            })
            .collect();
        for _ in 0..20 {
            for message in open.values() {
                let _ = socket.send_to(message, server);
            }
            while !open.is_empty() {
                let Ok(length) = socket.recv(&mut buffer) else { break };
                let answer = &buffer[..length];
                let Some(n) = whose(answer) else { continue };
                assert_eq!(text::status(answer), Some(200), "{}", String::from_utf8_lossy(answer));
                if text::field(answer, "Contact").is_some_and(|contact| contact.contains(&format!("sip:{}@", user(n))))
                {
                    known.insert(n);
                }
                open.remove(&n);
            }
            if open.is_empty() {
                break;
            }
        }
        assert!(open.is_empty(), "{} of 64 questions are not answered", open.len());
    }
    known
}

fn acknowledged(outcome: &StormResult) -> Vec<usize> {
    let mut users: Vec<usize> =
        outcome.statuses.iter().filter(|(_, status)| **status == 200).map(|(n, _)| *n).collect();
    users.sort_unstable();
    users
}

fn assert_none_lost(server: &Server, acknowledged: &[usize]) {
    let known = known(server.address(Udp), acknowledged);
    let lost: Vec<&usize> = acknowledged.iter().filter(|n| !known.contains(*n)).collect();
    let shown = &lost[..lost.len().min(10)];
    assert!(lost.is_empty(), "{} of {} acknowledged bindings are lost: {shown:?}", lost.len(), acknowledged.len());
}

fn percentile(delays: &mut [Duration], percent: usize) -> Duration {
    delays.sort_unstable();
    delays.get(delays.len() * percent / 100).or_else(|| delays.last()).copied().unwrap_or_default()
}

#[test]
fn no_acknowledged_binding_is_lost_by_kill_9_during_5000_registrations_a_second() {
    let _alone = alone();
    let mut server = registrar().start();
    let address = server.address(Udp);
    let stop = AtomicBool::new(false);
    let mut all = Vec::new();
    // Several kills: each at another moment of a commit.
    for round in 0..3 {
        stop.store(false, Ordering::Relaxed);
        let outcome = std::thread::scope(|scope| {
            let stop = &stop;
            let load = scope.spawn(move || {
                storm(address, round * 1_000_000, 5_000, Duration::from_secs(10), Duration::from_millis(200), stop)
            });
            // Each round kills at another moment of the load.
            std::thread::sleep(Duration::from_millis(1_500 + 37 * round as u64));
            server.kill();
            // The load continues a little after the kill.
            std::thread::sleep(Duration::from_millis(50));
            stop.store(true, Ordering::Relaxed);
            load.join().expect("the load does not panic")
        });
        let kept = acknowledged(&outcome);
        println!("killed after {} registrations were acknowledged", kept.len());
        assert!(kept.len() > 1_500, "only {} registrations were acknowledged in 1.5 s", kept.len());
        all.extend(kept);
        server.start();
    }
    // A binding that one kill has lost is not there after the other kills either.
    assert_none_lost(&server, &all);
    // A user who registered before all kills can still be called.
    let mut telephone = server.connect(Udp);
    let mut caller = server.connect(Udp);
    let contact = format!("sip:phone@{}", telephone.local());
    let request = Request::register("phone", "example.org", &contact, "udp", telephone.local());
    exchange(&mut telephone, &request);
    server.kill();
    server.start();
    let message = Request::new("MESSAGE", "sip:phone@example.org", "udp", caller.local());
    caller.send(&message.bytes()).expect("loopback takes datagrams");
    telephone
        .request("MESSAGE", Duration::from_secs(5))
        .expect("a telephone registered before the death is called after it");
}

/// Returns the p99 of a write of one page with its sync to disk, alone.
fn bare_sync(folder: &Path) -> Duration {
    let file = folder.join("bare");
    let out = File::create(&file).expect("the folder can be written");
    let page = [7; 4096];
    let mut times: Vec<Duration> = (0..300)
        .map(|n| {
            let start = Instant::now();
            out.write_all_at(&page, n * 4096).and_then(|()| out.sync_data()).expect("the disk takes a page");
            start.elapsed()
        })
        .collect();
    let _ = std::fs::remove_file(file);
    percentile(&mut times, 99)
}

/// The result is the median of three measurements, because a stall of the machine may spoil one. If two of them are
/// good, the third is left out.
#[test]
fn surviving_a_power_cut_takes_at_most_20_ms_or_what_the_disk_takes() {
    const RATE: usize = 5_000;
    const SECONDS: usize = 2;
    let _alone = alone();
    let server = registrar().with("registrar.durability = \"power-loss\"").start();
    let time = Duration::from_secs(SECONDS as u64);
    let never = AtomicBool::new(false);
    let mut bare = bare_sync(server.folder());
    let mut highest: Vec<Duration> = Vec::new();
    // The limit grows with each measurement of the disk, so a good storm stays good.
    let limit = |bare: Duration| Duration::from_millis(20).max(Duration::from_millis(2) + 3 * bare);
    for storms in 0..3 {
        let first = storms * RATE * SECONDS;
        let mut outcome = storm(server.address(Udp), first, RATE, time, Duration::from_millis(500), &never);
        bare = bare.max(bare_sync(server.folder()));
        let wrong = outcome.statuses.values().filter(|status| **status != 200).count();
        assert_eq!(wrong, 0, "registrations were refused");
        // By UDP without retransmissions one in a hundred may be lost.
        let (answered, asked) = (outcome.delays.len(), RATE * SECONDS);
        assert!(answered > asked * 99 / 100, "only {answered} of {asked} registrations were answered");
        let (p50, p99) = (percentile(&mut outcome.delays, 50), percentile(&mut outcome.delays, 99));
        println!(
            "power-loss at {RATE} registrations/s: 200 after {p50:?} (p50), {p99:?} (p99); a bare sync {bare:?} (p99)"
        );
        highest.push(p99);
        if highest.iter().filter(|p99| **p99 < limit(bare)).count() == 2 {
            return;
        }
    }
    let limit = limit(bare);
    panic!("the 200 came after {highest:?} (p99); at most {limit:?}; a bare sync took {bare:?} (p99)");
}

/// Relevant line of the trace.
#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Step {
    /// A REGISTER was read.
    Read,
    /// A sync returned.
    Synced,
    /// A 200 to a REGISTER is being sent.
    Answered,
}

fn steps(trace: &str) -> Vec<Step> {
    trace
        .lines()
        .filter_map(|line| {
            let receives = line.contains("recvmmsg") || line.contains("recvfrom") || line.contains("recvmsg");
            let sends = line.contains("sendmmsg") || line.contains("sendto") || line.contains("sendmsg");
            let syncs = line.contains("fdatasync") || line.contains("fsync");
            // A send counts when it begins, a sync and a read when they return.
            if sends && line.contains("SIP/2.0 200") && !line.contains("resumed") {
                Some(Step::Answered)
            } else if syncs && line.contains("= 0") {
                Some(Step::Synced)
            } else if receives && line.contains("REGISTER sip:") {
                Some(Step::Read)
            } else {
                None
            }
        })
        .collect()
}

#[test]
fn a_trace_shows_that_the_sync_returned_before_the_200() {
    if !have(&[STRACE]) {
        return;
    }
    let _turn = shared();
    let trace = Trace::default();
    let words = trace.words("fsync,fdatasync,sendmmsg,sendto,sendmsg,recvmmsg,recvfrom,recvmsg", 64);
    let mut server = registrar().with("registrar.durability = \"power-loss\"").under(&words).start();
    let mut wire = server.connect(Udp);
    let count = 20;
    for n in 0..count {
        // The requests are sent one at a time, so the order in the trace is the causal order.
        wire.send(&register(n, wire.local())).expect("loopback takes datagrams");
        let answer = wire.final_response(Duration::from_secs(10)).expect("it is answered");
        assert_eq!(text::status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
        // A sync after one answer must not count for the next one.
        std::thread::sleep(Duration::from_millis(20));
    }
    let id = server.process().id();
    server.stop();
    let text = trace.whole(id);
    let mut synced = false;
    let (mut read, mut answered) = (0, 0);
    for step in steps(&text) {
        match step {
            Step::Read => (read, synced) = (read + 1, false),
            Step::Synced => synced = true,
            Step::Answered => {
                answered += 1;
                assert!(synced, "200 number {answered} left before its sync returned:\n{text}");
            }
        }
    }
    assert_eq!((read, answered), (count, count), "{text}");
}

#[test]
fn a_trace_is_read_as_it_is_meant() {
    let trace = "7 recvmmsg(5, [{msg_hdr={msg_iov=[{iov_base=\"REGISTER sip:example.org\"}]}}], 64, 0, NULL) = 1\n\
                 8 fdatasync(9 <unfinished ...>\n\
                 8 <... fdatasync resumed>) = 0\n\
                 7 sendmmsg(5, [{msg_hdr={msg_iov=[{iov_base=\"SIP/2.0 200 OK\"}]}}], 1, 0) = 1\n";
    assert_eq!(steps(trace), [Step::Read, Step::Synced, Step::Answered]);
}

/// Registers until the answer is 500, then asserts that each 200 was right and that the log has the cause.
fn fill(mut server: Server, word: &str) {
    let address = server.address(Udp);
    let mut statuses: HashMap<usize, u16> = HashMap::new();
    for round in 0..40 {
        let outcome = storm(
            address,
            round * 5_000,
            5_000,
            Duration::from_millis(500),
            Duration::from_millis(400),
            &AtomicBool::new(false),
        );
        statuses.extend(outcome.statuses);
        if statuses.values().filter(|status| **status == 500).count() > 100 {
            break;
        }
    }
    let counts = strowger_tests::server::count(statuses.values().copied());
    assert!(counts.get(&500).is_some_and(|count| *count > 100), "the room did not run out: {counts:?}");
    assert!(counts.get(&200).is_some_and(|count| *count > 10), "nothing was registered: {counts:?}");
    assert!(counts.keys().all(|status| [200, 500].contains(status)), "{counts:?}");
    server.process().wait_for(word, 1, Duration::from_secs(5));
    server.assert_answers(Udp);
    server.kill();
    server.start();
    let mut right: Vec<usize> = statuses.iter().filter(|(_, status)| **status == 200).map(|(n, _)| *n).collect();
    right.sort_unstable();
    assert_none_lost(&server, &right);
}

#[test]
fn a_full_disk_answers_500_and_never_a_wrong_200() {
    let Some(disk) = SmallDisk::mount("2m") else { return };
    let _turn = shared();
    let database = disk.folder().join("full.sqlite");
    fill(registrar().with(&format!("store.database = {database:?}")).start(), "bindings cannot be written");
}

#[test]
fn a_database_that_another_process_holds_answers_500_until_it_lets_go() {
    let _turn = shared();
    let mut server = registrar().with("store.busy_timeout = \"100ms\"").start();
    let mut wire = server.connect(Udp);
    let mut ask = |n: usize| {
        wire.send(&register(n, wire.local())).expect("loopback takes datagrams");
        let answer = wire.final_response(Duration::from_secs(10)).expect("it is answered");
        text::status(&answer)
    };
    assert_eq!(ask(1), Some(200));

    let other = rusqlite::Connection::open(server.folder().join("test.sqlite")).expect("the database is there");
    other.execute_batch("BEGIN IMMEDIATE").expect("the lock is free for a moment");
    assert_eq!(ask(2), Some(500));
    assert_eq!(ask(3), Some(500));
    other.execute_batch("ROLLBACK").expect("it was begun");
    assert_eq!(ask(4), Some(200));
    server.process().wait_for("bindings cannot be written", 1, Duration::from_secs(5));
    assert!(server.log().contains("lock"), "the log does not say why:\n{}", server.log());
    assert_eq!(known(server.address(Udp), &[1, 2, 3, 4]), HashSet::from([1, 4]));
}
