//! Replay of intercepted requests by an attacker: with used credentials, and any other part changed. With the default
//! configuration.

use std::net::SocketAddr;
use std::time::Duration;

use strowger_tests::account::authorized;
use strowger_tests::call::exchange;
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, field, fields, respond, status, unique};
use strowger_tests::wire::Transport::{self, Tcp, Udp, Ws};
use strowger_tests::wire::Wire;

const SOON: Duration = Duration::from_secs(5);

fn start() -> Site {
    let server = Setup::on(&[Udp, Tcp, Ws]).with("domains = [\"example.org\"]\nserver.shards = 2").site();
    for user in ["alice", "bob"] {
        server.add_user(&format!("{user}@example.org"), user);
    }
    server
}

/// Returns the status of the answer to this very request.
fn ask(wire: &mut Wire, request: &Request) -> Option<u16> {
    wire.send(&request.bytes()).expect("the server takes messages");
    loop {
        let response = wire.final_response(SOON)?;
        if field(&response, "Via").is_some_and(|via| via.contains(&request.branch)) {
            return status(&response);
        }
    }
}

/// Returns the request with credentials that the server has accepted, whatever the answer was.
fn used(wire: &mut Wire, request: &Request, user: &str) -> Request {
    let challenge = exchange(wire, request);
    if request.method == "INVITE" {
        wire.send(&request.ack(&challenge).bytes()).expect("the server takes messages");
    }
    let request = authorized(request, &challenge, user, user);
    assert!(matches!(ask(wire, &request), Some(200 | 404 | 480)), "the user itself");
    request
}

type Change = (&'static str, fn(&mut Request));

/// Changes of an attacker; each request also gets a branch and Call-ID of its own.
const OF_REGISTER: &[Change] = &[
    ("nothing else", |_| ()),
    ("the Contact", |r| r.headers[0] = "Contact: <sip:mallory@127.0.0.66>".into()),
    ("a Contact more", |r| r.headers.push("Contact: <sip:mallory@127.0.0.66>".into())),
    ("a Contact more in the line", |r| r.headers[0].push_str(", <sip:mallory@127.0.0.66>")),
    ("no Contact", |r| drop(r.headers.remove(0))),
    ("the end of all bindings", |r| (r.headers[0], r.headers[1]) = ("Contact: *".into(), "Expires: 0".into())),
    ("the end of this binding", |r| r.headers[1] = "Expires: 0".into()),
    ("a longer life", |r| r.headers[1] = "Expires: 7200".into()),
    ("a Path", |r| r.headers.extend(["Path: <sip:127.0.0.66;lr>".into(), "Supported: path".into()])),
    ("an instance", |r| r.headers[0].push_str(";+sip.instance=\"<urn:uuid:0>\";reg-id=1")),
    ("the user", |r| r.to = "<sip:alice@example.org>".into()),
    ("the registrar", |r| r.uri = "sip:example.org;x=1".into()),
    ("the CSeq", |r| r.cseq += 100),
    ("an older CSeq", |r| r.cseq = 0),
    ("the method", |r| r.method = "SUBSCRIBE".into()),
    ("a body", |r| r.body = b"mallory".to_vec()),
];

const OF_INVITE: &[Change] = &[
    ("nothing else", |_| ()),
    ("the number", |r| r.uri = "sip:+19005551234@example.org".into()),
    ("the target", |r| r.uri = "sip:x@127.0.0.66".into()),
    ("a parameter of the target", |r| r.uri.push_str(";maddr=127.0.0.66")),
    ("the caller", |r| r.from = "<sip:alice@example.org>;tag=1".into()),
    ("the caller's name", |r| r.from = format!("\"The Bank\" {}", r.from)),
    ("the caller's tag", |r| r.from.push('x')),
    ("the To", |r| r.to = "<sip:alice@example.org>".into()),
    ("a To tag", |r| r.to.push_str(";tag=2")),
    ("the Contact", |r| r.headers[0] = "Contact: <sip:mallory@127.0.0.66>".into()),
    ("a Route", |r| r.headers.push("Route: <sip:127.0.0.66;lr>".into())),
    ("the method", |r| r.method = "MESSAGE".into()),
    ("a method without an answer", |r| r.method = "REFER".into()),
    ("a body", |r| r.body = b"v=0\r\n".to_vec()),
    ("the CSeq", |r| r.cseq += 1),
    ("an identity", |r| r.headers.push("P-Asserted-Identity: <sip:alice@example.org>".into())),
];

/// Returns the sources of the replays.
fn wires(server: &Site) -> Vec<Wire> {
    let from = |transport: Transport, host: u8| {
        let from = SocketAddr::from(([127, 0, 0, host], 0));
        server.connect_from(transport, from)
    };
    vec![from(Udp, 1), from(Udp, 66), from(Tcp, 1), from(Ws, 66)]
}

#[test]
fn what_was_read_registers_and_calls_nobody() {
    let server = start();
    let mut bob = server.connect(Udp);
    let at = format!("sip:bob@{}", bob.local());
    let request = Request::register("bob", "example.org", &at, "udp", bob.local());
    let request = used(&mut bob, &request, "bob");
    let mut call =
        Request::new("INVITE", "sip:nobody@example.org", "udp", bob.local()).with(format!("Contact: <{at}>"));
    call.from = "<sip:bob@example.org>;tag=1".into();
    let call = used(&mut bob, &call, "bob");
    let mut faults = Vec::new();
    let mut wires = wires(&server);
    for (kind, read, changes) in [("REGISTER", &request, OF_REGISTER), ("INVITE", &call, OF_INVITE)] {
        for (name, change) in changes {
            for wire in &mut wires {
                for (keeps_call, keeps_branch) in [(false, false), (true, false), (true, true)] {
                    // A replay over a stream with the branch of an earlier attack counts as a copy of that attack.
                    if keeps_branch && wire.transport() != Udp {
                        continue;
                    }
                    let mut again = read.clone();
                    change(&mut again);
                    again.via = (wire.transport().name().to_uppercase(), wire.local());
                    if !keeps_call {
                        again.call_id = unique("again");
                    }
                    again.branch = if keeps_branch { again.branch } else { unique("z9hG4bK") };
                    let answer = ask(wire, &again);
                    let from = format!("{kind}, {name}, {wire:?}, {keeps_call} {keeps_branch}");
                    // A datagram of the same source may be a copy of the accepted request: it gets the same answer, and
                    // changes nothing.
                    let is_copy = kind == "REGISTER"
                        && keeps_call
                        && wire.transport() == Udp
                        && wire.local().ip() == bob.local().ip();
                    if !matches!(answer, Some(400..=407 | 416 | 481 | 482)) && !is_copy {
                        faults.push(format!("{from}: {answer:?}"));
                    }
                    if again.method == "INVITE" {
                        // No answer to this replay is retransmitted.
                        wire.drain();
                    }
                }
            }
        }
    }
    assert!(faults.is_empty(), "{} got through:\n{}", faults.len(), faults.join("\n"));
    // Bob's binding is unchanged, and no other binding exists.
    let mut look = Request::register("bob", "example.org", &at, "udp", bob.local());
    look.headers.clear();
    let challenge = exchange(&mut bob, &look);
    let bindings = exchange(&mut bob, &authorized(&look, &challenge, "bob", "bob"));
    let bindings = fields(&bindings, "Contact");
    assert!(bindings.len() == 1 && bindings[0].contains(&at), "{bindings:?}");
    let mut stranger = server.connect(Udp);
    let call = Request::new("MESSAGE", "sip:bob@example.org", "udp", stranger.local());
    stranger.send(&call.bytes()).expect("loopback takes it");
    let got = bob.request("MESSAGE", SOON).expect("bob is called");
    bob.send(&respond(&got, 200, "b", &[])).expect("loopback takes it");
    server.assert_answers(Udp);
}
