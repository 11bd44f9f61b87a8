//! Replies to operators about a stuck shard.

use crate::health::until;
use crate::site::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::time::Duration;
use strowger_core::Outbox;
use strowger_node::Program;
use strowger_node::control::{Client, ControlOrder, Reply};

/// While this is held, shards block at the end of their round.
static GATE: Mutex<()> = Mutex::new(());

fn pass(_: &Outbox) {
    drop(GATE.lock());
}

/// Returns the status line of the response to this request.
fn by_http(address: SocketAddr, method: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "{method} {path} HTTP/1.1\r\nHost: {address}\r\n\r\n").expect("it takes requests");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers, and closes");
    answer.lines().next().unwrap_or_default().to_owned()
}

#[test]
fn calls_of_a_shard_that_stands_still_are_not_taken_for_none() {
    let program = Program { sends: pass, ..Program::default() };
    let lines = "dialogs.track = true\ncontrol.listen = \"{ip}:0\"\nmetrics.unhealthy_after = \"400ms\"";
    let site = Site::start_in(program, lines, &["alice", "bob"]);
    let (alice, bob) = (site.phone("alice"), site.phone("bob"));
    bob.register();
    let (call, _, ok) = alice.calls(&bob);
    alice.send(&alice.text(&call.within(&ok, "ACK", call.cseq)));
    assert_eq!(bob.next().method(), "ACK");
    let mut client = Client::connect(&site.control_socket(), Duration::from_secs(10)).expect("it listens");
    let list = ControlOrder::Calls { party: None, from: None, most: 10 };
    let id = match client.ask(&list) {
        Ok(Reply::Calls(list)) if list.calls.len() == 1 => list.calls[0].id.clone(),
        other => panic!("{other:?}"),
    };
    let gate = GATE.lock().expect("no thread panics with it");
    until(|| site.server().health().stuck() == Some(0));
    for order in [list, ControlOrder::EndCall { id: id.clone() }] {
        match client.ask(&order) {
            Ok(Reply::Unavailable(reason)) => assert!(reason.starts_with("shard 0 has not answered"), "{reason}"),
            other => panic!("{other:?}"),
        }
    }
    let address = site.server().control_address().expect("it takes orders");
    let status = by_http(address, "DELETE", &format!("/v1/calls/{id}"));
    assert_eq!(status, "HTTP/1.1 503 Service Unavailable");
    drop(gate);
    until(|| site.server().health().stuck().is_none());
    // An order that was reported as not carried out is not carried out later.
    bob.hears_nothing();
    match client.ask(&ControlOrder::Call { id }) {
        Ok(Reply::Call(call)) => assert_eq!(call.state, "answered"),
        other => panic!("{other:?}"),
    }
}
