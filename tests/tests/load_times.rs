//! What the generator takes for the moment at which something was sent, came, or was due.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use strowger_tests::beside;
use strowger_tests::generator::{load, reply};

/// How long the peer takes to answer.
const TAKES: Duration = Duration::from_millis(40);

/// A peer that answers the requests of one connection, each after a while.
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
                std::thread::sleep(TAKES);
                let _ = socket.write_all(reply("200 OK", &request, address).as_bytes());
            }
        }
    });
    address
}

#[test]
fn a_delay_over_a_stream_is_as_long_as_the_peer_took() {
    let _beside = beside();
    let target = format!("tcp://{}", slow_peer());
    let ran = load(&[&target, "-w", "options", "-r", "10", "-m", "5", "--no-preflight", "--max-lag", "1min"]);
    ran.all_successful(5);
    let took = TAKES.as_micros() as f64;
    for delay in ["request", "request.intended", "call.length"] {
        assert!(ran.delay(delay, "min") >= took, "{delay}: {}", ran.said);
    }
    assert!(ran.delay("request.intended", "min") >= ran.delay("request", "min"), "{}", ran.said);
}
