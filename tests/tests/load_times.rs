//! Times that the generator records for sending, receiving and due events.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use strowger_tests::generator::{Running, answers, certificates, load, peer, reply};
use strowger_tests::{alone, shared, undisturbed};

/// Delay of the peer's answer.
const TAKES: Duration = Duration::from_millis(40);

/// Starts a peer that answers the requests of one connection, each after a while.
fn slow_peer() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("a connection comes");
        let (mut text, mut bytes) = (String::new(), [0; 4_096]);
        while let Ok(n @ 1..) = socket.read(&mut bytes) {
            text.push_str(&String::from_utf8_lossy(&bytes[..n]));
            while let Some(end) = text.find("\r\n\r\n") {
                let request: String = text.drain(..end + 4).collect();
                // The delay that the measures must show.
                std::thread::sleep(TAKES);
                let _ = socket.write_all(reply("200 OK", &request, address).as_bytes());
            }
        }
    });
    address
}

#[test]
fn a_delay_over_a_stream_is_as_long_as_the_peer_took() {
    let target = format!("tcp://{}", slow_peer());
    let ran = load(&[&target, "-w", "options", "-r", "10", "-m", "5", "--no-preflight", "--max-lag", "1min"]);
    ran.all_successful(5);
    let took = TAKES.as_micros() as f64;
    for delay in ["request", "request.intended", "call.length"] {
        assert!(ran.delay(delay, "min") >= took, "{delay}: {}", ran.said);
    }
    assert!(ran.delay("request.intended", "min") >= ran.delay("request", "min"), "{}", ran.said);
}

#[test]
fn timers_of_a_document_and_a_bye_have_an_intended_time_too() {
    const STOPPED: Duration = Duration::from_millis(400);
    let _turn = shared();
    let uas = answers(&[]);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let document = folder.path().join("timed.xml");
    std::fs::write(&document, include_str!("../scenarios/timed.xml")).expect("the folder can be written");
    let words = ["--scenario", &document.display().to_string(), "-r", "200", "-m", "400"].map(String::from);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    // On a busy machine a run may be over before it has reported its first second.
    let stopped = || {
        let mut generator = Running::start(&[&[uas.address.to_string().as_str()], &words[..]].concat());
        let in_time = generator.comes_to(1);
        generator.stop_for(STOPPED);
        let ran = generator.end(Duration::from_secs(60));
        in_time.then_some(ran)
    };
    let ran = (0..5).find_map(|_| stopped()).expect("one of five runs tells of its first second");
    ran.all_successful(400);
    // Events that fell due during the stop were late by that time, and their figures from then on show the server.
    let late = STOPPED.as_micros() as f64 * 0.8;
    for (timer, twin) in [("setup", "setup.intended"), ("end", "end.intended")] {
        let of = |name: &str, figure: &str| {
            ran.json["timers"][name][figure].as_f64().unwrap_or_else(|| panic!("no timer {name}: {}", ran.said))
        };
        assert_eq!((of(timer, "count"), of(twin, "count")), (400.0, 400.0), "{}", ran.said);
        assert!(of(twin, "max") >= late && of(twin, "max") > of(timer, "max"), "{timer}: {}", ran.said);
        assert!(of(twin, "mean") >= of(timer, "mean"), "{timer}: {}", ran.said);
    }
    assert!(ran.delay("sdd.intended", "max") >= late, "{}", ran.said);
    assert!(ran.delay("lag.timer", "max") >= late - 100_000.0, "{}", ran.said);
}

#[test]
fn calls_begin_to_the_microsecond() {
    let _alone = alone();
    let target = peer(|_, _| Some("200 OK")).to_string();
    // The rate spreads the times over the millisecond. A busy machine makes many late, but not in each run.
    let lag = || {
        let ran = load(&[&target, "-w", "options", "-r", "97", "-m", "60", "--no-preflight", "--max-lag", "1min"]);
        ran.all_successful(60);
        ran.delay("lag", "p50")
    };
    let lags: Vec<f64> = (0..6).map(|_| lag()).take_while(|lag| *lag >= 250.0).collect();
    assert!(lags.len() < 6, "half of the calls began so many µs late: {lags:?}");
}

/// Starts a pipe to this address whose connections carry nothing for a while.
fn slow_pipe(to: SocketAddr, pause: Duration) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            std::thread::spawn(move || {
                // The handshake waits.
                std::thread::sleep(pause);
                let server = TcpStream::connect(to).expect("it listens");
                let mut ways = [(&client, &server), (&server, &client)].map(|(from, to)| {
                    (from.try_clone().expect("a descriptor is free"), to.try_clone().expect("a descriptor is free"))
                });
                std::thread::scope(|scope| {
                    ways.iter_mut().for_each(|(from, to)| drop(scope.spawn(move || std::io::copy(from, to))));
                });
            });
        }
    });
    address
}

#[test]
fn a_delay_begins_with_the_message_and_not_with_its_connection() {
    undisturbed(delays_begin_with_the_message);
}

fn delays_begin_with_the_message() {
    const PAUSE: Duration = Duration::from_millis(150);
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let files = certificates(folder.path());
    let own: Vec<&str> = files[2..].iter().map(String::as_str).collect();
    let uas = answers(&[&["--transport", "tls"][..], &own].concat());
    let target = format!("tls://{}", slow_pipe(uas.address, PAUSE));
    let pause = PAUSE.as_micros() as f64;
    for (workload, delay) in [("call", "srd"), ("options", "request"), ("register", "rrd")] {
        let words =
            ["-w", workload, "-r", "10", "-m", "5", "--hold", "0", "--no-preflight", "--connections", "per-call"];
        let ran = load(&[&[target.as_str()][..], &words].concat());
        ran.all_successful(5);
        assert_eq!((ran.delay("connect", "count"), ran.delay("handshake", "count")), (5.0, 5.0), "{}", ran.said);
        assert!(ran.delay("handshake", "min") >= pause && ran.delay("connect", "p50") < pause, "{}", ran.said);
        assert!(ran.delay(delay, "p50") < pause, "the handshake is not in it: {}", ran.said);
        assert!(ran.delay(&format!("{delay}.intended"), "min") >= pause, "who calls waits for it: {}", ran.said);
    }
    let plain = answers(&["--transport", "tcp"]);
    let ran = load(&[
        &format!("tcp://{}", plain.address),
        "-r",
        "50",
        "-m",
        "10",
        "--hold",
        "0",
        "--connections",
        "per-call",
    ]);
    ran.all_successful(10);
    assert!(ran.delay("connect", "count") == 10.0 && ran.json["delays"]["handshake"]["count"] == 0, "{}", ran.said);
}

#[test]
fn a_side_that_rings_is_never_early() {
    let uas = answers(&["--ring", "15ms"]);
    let ran = load(&[&uas.address.to_string(), "-r", "190", "-m", "200", "--hold", "0"]);
    ran.all_successful(200);
    assert!(ran.delay("response", "min") >= 15_000.0, "{}", ran.said);
}
