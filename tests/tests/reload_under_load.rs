//! A hundred reloads under a thousand calls a second.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use strowger_tests::alone;
use strowger_tests::control::{done, json, metric};
use strowger_tests::port;
use strowger_tests::program::{SIPP, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::sipp::{Calls, Scenario};
use strowger_tests::text::{Request, field, status};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

const RELOADS: usize = 100;
const SOON: Duration = Duration::from_secs(10);

/// What distinguishes the two.
const ALPHA: &str = "server.software = \"alpha\"\nproxy.record_route = true";
const BETA: &str = "server.software = \"beta\"\nproxy.record_route = false";

/// A call to a peer that never answers: which policy told of it at first, and which at the end.
fn silent_call(server: &Server) -> (Option<String>, Option<String>) {
    let silent = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let uri = format!("sip:silent@{}", silent.local_addr().expect("it is bound"));
    let mut wire: Wire = server.connect(Udp);
    wire.send(&Request::new("INVITE", &uri, "udp", wire.local()).bytes()).expect("it is sent");
    let mut first = None;
    loop {
        let answer = wire.receive(SOON).expect("the server answers");
        match status(&answer) {
            Some(100) => first = field(&answer, "Server"),
            Some(200..) => return (first, field(&answer, "Server")),
            _ => (),
        }
    }
}

#[test]
fn a_hundred_reloads_under_a_thousand_calls_a_second_lose_none() {
    if !have(&[SIPP]) {
        return;
    }
    let _alone = alone();
    // Transactions end early, so that what is under way is soon as much as it will be.
    let timers = "timers.t1 = \"50ms\"\ntimers.t4 = \"500ms\"\ntimers.timer_d = \"3s\"\ntimers.timer_b = \"3s\"";
    let mut server = Setup::on(&[Udp]).relay().with(timers).with(ALPHA).start();
    let scenarios = (Scenario::Ours("one_policy"), Scenario::Ours("uas_after_a_moment"));
    let calls = Calls { scenarios, transports: ("u1", "u1"), way: "udp", calls: None, rate: 1_000 };
    let calls = calls.start(server.address(Udp), None, port::free());
    calls.reach(6_000);
    let memory = |server: &Server| metric(server, "strowger_resident_memory_bytes");
    let before = memory(&server);
    let over = AtomicBool::new(false);
    let longest = std::thread::scope(|scope| {
        let silent = scope.spawn(|| {
            let mut seen = Vec::new();
            while !over.load(Relaxed) {
                seen.push(silent_call(&server));
            }
            seen
        });
        for n in 0..RELOADS {
            let (from, to) = if n % 2 == 0 { (ALPHA, BETA) } else { (BETA, ALPHA) };
            let began = Instant::now();
            server.rewrite(from, to);
            done(&server, &["reload"]);
            // The reloads spread over seconds in which calls begin and end.
            std::thread::sleep(Duration::from_millis(100).saturating_sub(began.elapsed()));
        }
        over.store(true, Relaxed);
        let seen = silent.join().expect("each is answered");
        assert!(seen.len() > 2 && seen.iter().all(|(first, last)| first.is_some() && first == last), "{seen:?}");
        json(&server, &["status"])["shards"][0]["longest_turn_seconds"].as_f64().expect("a number")
    });
    let grown = memory(&server) - before;
    calls.end();
    assert_eq!(metric(&server, "strowger_reloads_total"), RELOADS as f64);
    println!("longest turn {:.1} ms, memory {:+.0} KB", longest * 1e3, grown / 1e3);
    assert!(grown < 2e6, "{grown}");
    server.stop();
}
