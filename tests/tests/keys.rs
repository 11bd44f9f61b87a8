//! Every key of the configuration has a test of its effect: the table says which, and what was missing elsewhere stands below.

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

use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{self, Request};
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(5);
/// In which something would have come.
const NEVER: Duration = Duration::from_millis(200);

/// A registrar without passwords, in memory.
fn open(lines: &str) -> Server {
    Setup::on(&[Udp, Tcp]).open_registrar().in_memory().with(lines).start()
}

/// A request of this method to `uri` from the other end of this wire.
fn request(wire: &Wire, method: &str, uri: &str) -> Request {
    let transport = wire.transport().name();
    let contact = format!("Contact: <sip:tester@{};transport={transport}>", wire.local());
    Request::new(method, uri, transport, wire.local()).with(contact)
}

fn send(wire: &mut Wire, request: &Request) {
    wire.send(&request.bytes()).expect("the server takes messages");
}

/// The final response to a request that is sent once.
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
