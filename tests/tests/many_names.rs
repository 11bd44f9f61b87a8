//! Many names with slow answers, beside calls that need none.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use strowger_tests::alone;
use strowger_tests::name_server::{A, NameServer, Record};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, field, respond, status};
use strowger_tests::wire::Transport::{Tcp, Udp};

const LIMIT: Duration = Duration::from_secs(20);
const NAMES: usize = 10_000;
/// Measured requests to an address, one by one.
const MEASURED: usize = 400;

/// Starts a peer that answers each request with 200 until the end; returns the number of requests with these names in
/// their URIs.
fn peer() -> (SocketAddr, std::thread::JoinHandle<usize>) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback address");
    socket.set_read_timeout(Some(LIMIT)).expect("a socket can be set");
    let address = socket.local_addr().expect("it is bound");
    let work = move || {
        let (mut buffer, mut by_name) = ([0; 4_000], 0);
        loop {
            let Ok((length, from)) = socket.recv_from(&mut buffer) else { return by_name };
            let request = &buffer[..length];
            if request.starts_with(b"OPTIONS ") {
                return by_name;
            }
            by_name += usize::from(request.windows(6).any(|text| text == b".test:"));
            socket.send_to(&respond(request, 200, "p", &[]), from).expect("loopback takes it");
        }
    };
    (address, std::thread::spawn(work))
}

/// Returns the round trip times of some requests to this address, sorted.
fn measured(server: &Server, peer: SocketAddr) -> Vec<Duration> {
    let mut caller = server.connect(Udp);
    let mut one = || {
        let request = Request::new("MESSAGE", &format!("sip:x@{peer}"), "udp", caller.local());
        let begun = Instant::now();
        caller.send(&request.bytes()).expect("loopback takes it");
        loop {
            let answer = caller.final_response(LIMIT).expect("it is answered");
            if field(&answer, "Call-ID").as_deref() == Some(&request.call_id) {
                assert_eq!(status(&answer), Some(200));
                return begun.elapsed();
            }
        }
    };
    let mut took: Vec<Duration> = (0..MEASURED).map(|_| one()).collect();
    took.sort_unstable();
    took
}

/// Ten thousand names, each resolved in 300 ms, do not delay requests without names.
#[test]
fn ten_thousand_slow_names_do_not_slow_a_call_to_an_address() {
    let _alone = alone();
    let all: Vec<String> = (0..NAMES).map(|n| format!("host{n}.test")).collect();
    let records: Vec<(&str, Record)> = all.iter().map(|name| (&**name, Record::A(Ipv4Addr::LOCALHOST))).collect();
    let Some(names) = NameServer::start(&records) else { return };
    names.set_delay(Duration::from_millis(300));
    let (peer, answering) = peer();
    let lines = "dns.timeout = \"5s\"\nserver.shards = 1";
    let server = Setup::on(&[Udp, Tcp]).relay().with(&names.line()).with(lines).start();
    let before = measured(&server, peer);
    let asking = std::thread::spawn({
        let (mut caller, port) = (server.connect(Tcp), peer.port());
        move || {
            let (begun, mut answered) = (Instant::now(), 0);
            let is_right = |answer: Option<Vec<u8>>| answer.as_deref().and_then(status) == Some(200);
            for (n, name) in all.iter().enumerate() {
                let uri = format!("sip:x@{name}:{port};transport=udp");
                caller.send(&Request::new("MESSAGE", &uri, "tcp", caller.local()).bytes()).expect("it takes messages");
                while caller.has_come() {
                    assert!(is_right(caller.final_response(LIMIT)));
                    answered += 1;
                }
                // The rate of 1,400 per second: some hundred wait at any time, below the bound of a source.
                std::thread::sleep(Duration::from_micros(700 * (n as u64 + 1)).saturating_sub(begun.elapsed()));
            }
            while answered < NAMES && is_right(caller.final_response(LIMIT)) {
                answered += 1;
            }
            answered
        }
    });
    // Some hundred wait for their names.
    assert!(strowger_tests::wait::until(LIMIT, || names.asked("host200.test", A) > 0));
    let meanwhile = measured(&server, peer);
    let is_going_on = names.asked(&format!("host{}.test", NAMES - 1), A) == 0;
    let answered = asking.join().expect("it asks to the end");
    server
        .connect(Udp)
        .send(&Request::new("OPTIONS", &format!("sip:x@{peer}"), "udp", peer).bytes())
        .expect("loopback");
    let by_name = answering.join().expect("it answers all");
    let at = |sorted: &[Duration], share: usize| sorted[sorted.len() * share / 100];
    let figures = [50, 90, 99].map(|share| (at(&before, share), at(&meanwhile, share)));
    println!("p50, p90 and p99 alone and beside {NAMES} names: {figures:?}");
    assert!(
        is_going_on,
        "the machine is too fast for this test: the names were asked before the requests had been measured"
    );
    assert_eq!((answered, by_name), (NAMES, NAMES));
    // The 300 ms of a name have no effect on these requests; the processor time of the requests with names has an
    // effect.
    assert!(at(&meanwhile, 99) < at(&before, 99) + Duration::from_millis(20), "{figures:?}");
    assert!(at(&meanwhile, 50) < at(&before, 50) + Duration::from_millis(3), "{figures:?}");
}
