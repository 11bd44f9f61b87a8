//! Phones whose connections were lost, by a restart of the phone or of the server, or by a new address of the phone.
//! Until the phone registers again, a caller gets an error at once. From then on new calls reach the phone, and so do
//! requests of existing calls. The configuration is the default.

use std::net::SocketAddr;
use std::time::Duration;

use strowger_tests::account::{challenged, register_at};
use strowger_tests::call::exchange;
use strowger_tests::dialog::{End, arrives, set_up_with};
use strowger_tests::server::Setup;
use strowger_tests::site::Served;
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::text::{Request, address, field, request_uri, status};
use strowger_tests::wire::{Transport, Wire};

/// Far less than Timer B (RFC 3261 section 17.1.1.2), the time of a call to a phone that only seems to be present.
const AT_ONCE: Duration = Duration::from_secs(2);

/// Cause of the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    PhoneRestarts,
    ServerRestarts,
    NewAddress,
}

/// Contact of the phone after that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Contact {
    /// The same Contact, as with browsers and phones that listen at a port of their own.
    Same,
    /// Contact of its new connection. The phone announces it in existing calls (RFC 3261 section 12.2.1.2).
    New,
}

const USER: &str = "sip:alice@example.org";

fn connect(server: &impl Served, way: Transport, host: u8) -> Wire {
    server.connect_from(way, SocketAddr::from(([127, 0, 0, host], 0)))
}

fn setup(way: Transport) -> Setup {
    Setup::on(&[Transport::Udp, way]).with("domains = [\"example.org\"]")
}

/// Returns an INVITE of bob, who is a user as well.
fn call(bob: &mut Wire) -> Request {
    let at = format!("sip:bob@{};transport=udp", bob.local());
    let mut call = Request::new("INVITE", USER, "udp", bob.local()).with(format!("Contact: <{at}>"));
    call.from = "<sip:bob@example.org>;tag=bob".into();
    challenged(bob, &call, "bob", "bob")
}

/// Bob calls alice, who answers at this Contact; returns his end of the call, and hers.
fn talk(bob: &mut Wire, alice: &mut Wire, at: &str) -> (End, End) {
    let call = call(bob);
    set_up_with(bob, alice, &call, true, &[format!("Contact: <{at}>")])
}

/// Returns the answer, which comes at once.
fn at_once(bob: &mut Wire, request: &Request) -> Vec<u8> {
    let (begun, clock) = (Stopwatch::start(), bob.clock());
    let answer = exchange(bob, request);
    // On a virtual clock no time passes; on a real clock the machine may be busy.
    assert!(bob.clock() - clock < AT_ONCE || begun.took().is_below(AT_ONCE), "{} waits", request.method);
    answer
}

fn is_refused_at_once(bob: &mut Wire, request: &Request) {
    let answer = at_once(bob, request);
    assert_eq!(status(&answer), Some(480), "{}", String::from_utf8_lossy(&answer));
    if request.method == "INVITE" {
        bob.send(&request.ack(&answer).bytes()).expect("the server takes messages");
    }
}

fn is_reached_again(server: &mut impl Served, way: Transport, cause: Cause, contact: Contact) {
    for user in ["alice", "bob"] {
        server.add_user(&format!("{user}@example.org"), user);
    }
    let mut bob = connect(server, Transport::Udp, 1);
    let here = format!("sip:bob@{};transport=udp", bob.local());
    register_at(&mut bob, "bob", "bob", &here);
    let mut alice = connect(server, way, 1);
    let at = |alice: &Wire| match contact {
        Contact::Same => format!("sip:alice@a1b2c3.invalid;transport={}", way.name()),
        Contact::New => format!("sip:alice@{};transport={}", alice.local(), way.name()),
    };
    let first = at(&alice);
    register_at(&mut alice, "alice", "alice", &first);
    let (mut end, mut hers) = talk(&mut bob, &mut alice, &first);

    match cause {
        Cause::PhoneRestarts | Cause::NewAddress => {
            drop(alice);
            // The server has seen the end of the connection.
            let uri = format!("sip:{}", server.address(Transport::Udp));
            let options = Request::new("OPTIONS", &uri, "udp", bob.local());
            exchange(&mut bob, &options);
        }
        Cause::ServerRestarts => {
            drop(alice);
            server.restart();
        }
    }
    let lost = call(&mut bob);
    is_refused_at_once(&mut bob, &lost);
    let answer = at_once(&mut bob, &end.request("INFO"));
    assert!(status(&answer).is_some_and(|code| code >= 400), "{}", String::from_utf8_lossy(&answer));

    let mut alice = connect(server, way, if cause == Cause::NewAddress { 2 } else { 1 });
    let again = at(&alice);
    register_at(&mut alice, "alice", "alice", &again);
    let (mut next, _) = talk(&mut bob, &mut alice, &again);
    if contact == Contact::New {
        hers.via.1 = alice.local();
        let update = hers.request("UPDATE").with(format!("Contact: <{again}>"));
        let (got, _) = arrives(&mut alice, &mut bob, &update, &[]);
        end.uri = address(&field(&got, "Contact").expect("a Contact"));
    }
    for end in [&mut end, &mut next] {
        for method in ["INFO", "BYE"] {
            let (got, _) = arrives(&mut bob, &mut alice, &end.request(method), &[]);
            assert_eq!(request_uri(&got), again);
        }
    }
    assert!(bob.request("BYE", Duration::ZERO).is_none());
}

fn each_cause(way: Transport) {
    for contact in [Contact::Same, Contact::New] {
        for cause in [Cause::PhoneRestarts, Cause::ServerRestarts, Cause::NewAddress] {
            eprintln!("{way:?}, {cause:?}, {contact:?}");
            is_reached_again(&mut setup(way).site(), way, cause, contact);
        }
    }
}

#[test]
fn a_phone_on_tcp_is_reached_as_soon_as_it_has_registered_again() {
    each_cause(Transport::Tcp);
}

/// With a process as well.
#[test]
fn a_phone_on_tls_is_reached_as_soon_as_it_has_registered_again() {
    each_cause(Transport::Tls);
    for cause in [Cause::PhoneRestarts, Cause::ServerRestarts] {
        is_reached_again(&mut setup(Transport::Tls).start(), Transport::Tls, cause, Contact::New);
    }
}

#[test]
fn a_phone_on_wss_is_reached_as_soon_as_it_has_registered_again() {
    each_cause(Transport::Wss);
}
