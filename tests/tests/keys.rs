//! Every key of the configuration has a test of its effect: the table names it, and the tests below complete the
//! others.

mod caches;
mod forwarding;
mod names;
mod passwords;
mod registering;
mod sockets;
mod streams;
mod subscribers;
mod table;
mod timers;
mod tls;

use std::time::Duration;

use strowger_tests::call::register;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{self, Request, respond};
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(5);
/// Time in which a message would have come.
const NEVER: Duration = Duration::from_millis(200);

/// Starts a registrar without passwords, in memory.
fn open(lines: &str) -> Server {
    Setup::on(&[Udp, Tcp]).open_registrar().in_memory().with(lines).start()
}

/// Returns a request with this method to `uri` from this wire.
fn request(wire: &Wire, method: &str, uri: &str) -> Request {
    let transport = wire.transport().name();
    let contact = format!("Contact: <sip:tester@{};transport={transport}>", wire.local());
    Request::new(method, uri, transport, wire.local()).with(contact)
}

fn send(wire: &mut Wire, request: &Request) {
    wire.send(&request.bytes()).expect("the server takes messages");
}

/// Sends an INVITE from a caller to bob; returns both wires, and the INVITE as received.
fn calls_bob(server: &Server) -> (Wire, Wire, Vec<u8>) {
    let (mut caller, mut bob) = (server.connect(Udp), server.connect(Udp));
    register(&mut bob, "bob");
    let invite = request(&caller, "INVITE", "sip:bob@example.org");
    send(&mut caller, &invite);
    let got = bob.request("INVITE", SOON).expect("the INVITE arrives");
    (caller, bob, got)
}

/// Does the same, and bob's phone rings.
fn rings_bob(server: &Server) -> (Wire, Wire, Vec<u8>) {
    let (mut caller, mut bob, got) = calls_bob(server);
    bob.send(&respond(&got, 180, "bob", &[])).expect("loopback takes it");
    caller.answer(SOON).expect("it rings");
    (caller, bob, got)
}

/// Returns the final response to a request without retransmissions.
fn ask(wire: &mut Wire, request: &Request) -> Vec<u8> {
    send(wire, request);
    loop {
        let answer = wire.final_response(SOON).expect("an answer");
        if text::field(&answer, "Via").is_some_and(|via| via.contains(&request.branch)) {
            return answer;
        }
    }
}

fn code(answer: &[u8]) -> u16 {
    text::status(answer).expect("a response")
}
