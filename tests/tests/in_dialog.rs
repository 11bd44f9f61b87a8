//! Continuing calls: requests of either party within a call reach the other, wherever it is by then, whichever party
//! began the call, and through any proxies in between. With the default configuration unless a test has another.

use std::time::Duration;

use strowger_tests::account::{challenged, register, register_at};
use strowger_tests::call::exchange;
use strowger_tests::dialog::{End, arrives, contact, invite, set_up, set_up_with};
use strowger_tests::server::Setup;
use strowger_tests::site::{self, Site};
use strowger_tests::text::{Request, address, field, fields, request_uri, respond, status};
use strowger_tests::wire::{Transport, Wire, accept, listen};

const SOON: Duration = Duration::from_secs(5);

/// Contact that only its device understands.
const HIDDEN: &str = "10.99.99.99:5060";

fn setup(transports: &[Transport], lines: &str) -> Setup {
    Setup::on(transports).with("domains = [\"example.org\"]").with(lines)
}

fn add_users(add: impl Fn(&str, &str)) {
    ["alice", "bob", "carol"].iter().for_each(|user| add(&format!("{user}@example.org"), user));
}

fn start(transports: &[Transport], lines: &str) -> Site {
    let site = setup(transports, lines).site();
    add_users(|address, user| site.add_user(address, user));
    site
}

/// Alice, with her password, calls bob, both registered at these Contacts; returns both ends of the answered call.
fn users_call(alice: &mut Wire, bob: &mut Wire, at: (&str, &str)) -> (End, End) {
    register_at(alice, "alice", "alice", at.0);
    register_at(bob, "bob", "bob", at.1);
    let mut call = Request::new("INVITE", "sip:bob@example.org", alice.transport().name(), alice.local())
        .with(format!("Contact: <{}>", at.0));
    call.from = "<sip:alice@example.org>;tag=alice".into();
    let call = challenged(alice, &call, "alice", "alice");
    set_up_with(alice, bob, &call, true, &[format!("Contact: <{}>", at.1)])
}

fn contact_uri(user: &str, wire: &Wire, hidden: bool) -> String {
    let place = if hidden { HIDDEN.to_owned() } else { wire.local().to_string() };
    format!("sip:{user}@{place};transport={}", wire.transport().name())
}

/// All requests of phones in a call go both ways, and each party sees its own Contact unchanged.
fn talk(one: (&mut Wire, &mut End, &str), other: (&mut Wire, &mut End, &str)) {
    let (alice, alice_end, alice_at) = one;
    let (bob, bob_end, bob_at) = other;
    for method in ["INVITE", "UPDATE", "INFO", "REFER", "NOTIFY", "MESSAGE", "OPTIONS", "INVITE"] {
        let (ours, theirs) = ([format!("Contact: <{alice_at}>")], [format!("Contact: <{bob_at}>")]);
        let request = alice_end.request(method).with(ours[0].clone());
        let (got, answer) = arrives(alice, bob, &request, &theirs);
        assert_eq!(request_uri(&got), bob_at, "{method}");
        renew(alice_end, bob_end, method, &answer, &got);
        acknowledge(alice, bob, alice_end, &request);
        let request = bob_end.request(method).with(theirs[0].clone());
        let (got, answer) = arrives(bob, alice, &request, &ours);
        assert_eq!(request_uri(&got), alice_at, "{method}");
        renew(bob_end, alice_end, method, &answer, &got);
        acknowledge(bob, alice, bob_end, &request);
    }
}

/// RFC 3261 section 12.2: some requests, and the answers to them, refresh the target.
fn renew(sender: &mut End, receiver: &mut End, method: &str, answer: &[u8], request: &[u8]) {
    if !matches!(method, "INVITE" | "UPDATE" | "REFER" | "NOTIFY") {
        return;
    }
    let target = |message: &[u8]| address(&field(message, "Contact").expect("a Contact"));
    (sender.uri, receiver.uri) = (target(answer), target(request));
}

fn acknowledge(from: &mut Wire, to: &mut Wire, end: &mut End, request: &Request) {
    if request.method == "INVITE" {
        let mut ack = end.request("ACK");
        ack.cseq = request.cseq;
        from.send(&ack.bytes()).expect("the server takes messages");
        to.request("ACK", SOON).expect("the ACK arrives");
    }
}

#[test]
fn calls_of_users_go_on_from_both_sides() {
    let ways = [Transport::Udp, Transport::Tcp, Transport::Ws];
    let server = setup(&ways, "").start();
    add_users(|address, user| server.add_user(address, user));
    for one in ways {
        for other in ways {
            for hidden in [false, true] {
                let (mut alice, mut bob) = (server.connect(one), server.connect(other));
                let (a, b) = (contact_uri("a", &alice, hidden), contact_uri("b", &bob, hidden));
                let (mut a_end, mut b_end) = users_call(&mut alice, &mut bob, (&a, &b));
                talk((&mut alice, &mut a_end, &a), (&mut bob, &mut b_end, &b));
                arrives(&mut bob, &mut alice, &b_end.request("BYE"), &[]);
                for (wire, user, at) in [(&mut alice, "alice", &a), (&mut bob, "bob", &b)] {
                    let mut gone = Request::register(user, "example.org", at, wire.transport().name(), wire.local());
                    gone.headers[1] = "Expires: 0".into();
                    let gone = challenged(wire, &gone, user, user);
                    assert_eq!(status(&exchange(wire, &gone)), Some(200));
                }
            }
        }
    }
}

/// Any external caller may call a user, such as a trunk; either side may hold, fax, and hang up, without a password.
#[test]
fn a_strangers_call_goes_on_from_both_sides() {
    let server = start(&[Transport::Udp, Transport::Tcp], "");
    for way in [Transport::Udp, Transport::Tcp] {
        let (mut trunk, mut bob) = (server.connect(way), server.connect(Transport::Udp));
        register(&mut bob, "bob", "bob");
        // The phone answers with another Contact than it registered.
        let (a, b) = (contact_uri("+1900", &trunk, false), format!("sip:line2@{}", bob.local()));
        let call =
            Request::new("INVITE", "sip:bob@example.org", way.name(), trunk.local()).with(format!("Contact: <{a}>"));
        let own = [format!("Contact: <{b}>")];
        let (mut one, mut other) = set_up_with(&mut trunk, &mut bob, &call, true, &own);
        talk((&mut trunk, &mut one, &a), (&mut bob, &mut other, &b));
        arrives(&mut trunk, &mut bob, &one.request("BYE"), &[]);
        let mut gone = Request::register("bob", "example.org", "", "udp", bob.local());
        gone.headers = vec!["Contact: *".into(), "Expires: 0".into()];
        let gone = challenged(&mut bob, &gone, "bob", "bob");
        assert_eq!(status(&exchange(&mut bob, &gone)), Some(200));
    }
}

#[test]
fn a_party_that_moves_is_reached_where_it_is_then() {
    let server = start(&[Transport::Udp, Transport::Tcp], "");
    let (mut stranger, mut bob) = (server.connect(Transport::Udp), server.connect(Transport::Udp));
    register(&mut bob, "bob", "bob");
    let call = invite("sip:bob@example.org", &stranger);
    let (mut one, mut other) = set_up(&mut stranger, &mut bob, &call, true);
    // The caller moves, to another transport too; then the callee moves in its answer.
    for way in [Transport::Udp, Transport::Tcp, Transport::Udp] {
        let mut moved = server.connect(way);
        one.via = (way.name().to_uppercase(), moved.local());
        let mut bob_2 = server.connect(Transport::Udp);
        let update = one.request("UPDATE").with(contact("moved", &moved));
        let (got, answer) = arrives(&mut moved, &mut bob, &update, &[contact("bob2", &bob_2)]);
        other.uri = address(&field(&got, "Contact").expect("a Contact"));
        one.uri = address(&field(&answer, "Contact").expect("a Contact"));
        other.via.1 = bob_2.local();
        arrives(&mut moved, &mut bob_2, &one.request("INFO"), &[]);
        let (got, _) = arrives(&mut bob_2, &mut moved, &other.request("INFO"), &[]);
        assert_eq!(request_uri(&got), format!("sip:moved@{};transport={}", moved.local(), way.name()));
        bob = bob_2;
    }
}

/// A trunk that listens at the address of its Contact, and closes the connection of its call.
#[test]
fn a_party_whose_connection_is_gone_is_reached_where_it_listens() {
    let server = start(&[Transport::Udp, Transport::Tcp], "");
    let (mut trunk, mut bob) = (server.connect(Transport::Tcp), server.connect(Transport::Udp));
    register(&mut bob, "bob", "bob");
    let (listener, there) = server.listen();
    let at = format!("sip:trunk@{there};transport=tcp");
    let call = Request::new("INVITE", "sip:bob@example.org", "tcp", trunk.local()).with(format!("Contact: <{at}>"));
    let (_, mut other) = set_up(&mut trunk, &mut bob, &call, true);
    drop(trunk);
    bob.send(&other.request("BYE").bytes()).expect("the server takes messages");
    is_hung_up(&mut bob, &mut site::accept(&listener, SOON), &at);
}

/// The BYE for this party arrives over a new connection, and its answer at the other party.
fn is_hung_up(bob: &mut Wire, again: &mut Wire, at: &str) {
    let bye = again.request("BYE", SOON).expect("the BYE arrives");
    assert_eq!(request_uri(&bye), at);
    again.send(&respond(&bye, 200, "x", &[])).expect("the server takes messages");
    assert_eq!(bob.final_response(SOON).as_deref().and_then(status), Some(200));
}

/// The server itself has closed the connection, after the time of the setting.
#[test]
fn a_party_whose_connection_was_idle_is_reached_where_it_listens() {
    let server = setup(&[Transport::Udp, Transport::Tcp], "limits.idle_connection_timeout = \"1s\"").start();
    add_users(|address, user| server.add_user(address, user));
    let (mut trunk, mut bob) = (server.connect(Transport::Tcp), server.connect(Transport::Udp));
    register(&mut bob, "bob", "bob");
    let (listener, there) = listen();
    let at = format!("sip:trunk@{there};transport=tcp");
    let call = Request::new("INVITE", "sip:bob@example.org", "tcp", trunk.local()).with(format!("Contact: <{at}>"));
    let (_, mut other) = set_up(&mut trunk, &mut bob, &call, true);
    assert!(trunk.closes(Duration::from_secs(5)), "the server closes it");
    bob.send(&other.request("BYE").bytes()).expect("the server takes messages");
    is_hung_up(&mut bob, &mut accept(&listener, SOON), &at);
}

/// A phone or browser that reconnects and registers again, after a gap in its network or a restart of the server.
#[test]
fn a_party_that_connects_anew_goes_on() {
    let server = start(&[Transport::Udp, Transport::Tcp, Transport::Ws], "");
    for way in [Transport::Tcp, Transport::Ws] {
        for restart in [false, true] {
            let (mut alice, mut bob) = (server.connect(way), server.connect(Transport::Udp));
            let at = format!("sip:a1b2@x9.invalid;transport={}", way.name());
            let b = contact_uri("b", &bob, false);
            let (mut one, mut other) = users_call(&mut alice, &mut bob, (&at, &b));
            drop(alice);
            if restart {
                server.restart();
            }
            let mut alice = server.connect(way);
            register_at(&mut alice, "alice", "alice", &at);
            one.via.1 = alice.local();
            let (got, _) = arrives(&mut bob, &mut alice, &other.request("INVITE"), &[format!("Contact: <{at}>")]);
            assert_eq!(request_uri(&got), at);
            let mut ack = other.request("ACK");
            ack.cseq = other.cseq - 1;
            bob.send(&ack.bytes()).expect("the server takes messages");
            alice.request("ACK", SOON).expect("the ACK arrives over the new connection");
            arrives(&mut alice, &mut bob, &one.request("INFO"), &[]);
            let (got, _) = arrives(&mut bob, &mut alice, &other.request("BYE"), &[]);
            assert_eq!(request_uri(&got), at);
            for (wire, user) in [(&mut alice, "alice"), (&mut bob, "bob")] {
                let mut gone = Request::register(user, "example.org", "", wire.transport().name(), wire.local());
                gone.headers = vec!["Contact: *".into(), "Expires: 0".into()];
                let gone = challenged(wire, &gone, user, user);
                assert_eq!(status(&exchange(wire, &gone)), Some(200));
            }
        }
    }
}

/// A gateway that listens on another port than it sends from, and sends no `rport`.
#[test]
fn a_device_that_sends_from_another_port_is_reached_where_it_listens() {
    let server = start(&[Transport::Udp], "registrar.authenticate = false");
    let to = server.address(Transport::Udp);
    let (mut sends, mut listens) = (server.connect(Transport::Udp), server.connect(Transport::Udp));
    let mut caller = server.connect(Transport::Udp);
    let plain = |request: &Request| String::from_utf8(request.bytes()).expect("text").replace(";rport\r\n", "\r\n");
    let there = listens.local();
    let register = Request::register("bob", "example.org", &format!("sip:bob@{there}"), "udp", there);
    sends.send(plain(&register).as_bytes()).expect("loopback takes it");
    assert_eq!(listens.final_response(SOON).as_deref().and_then(status), Some(200), "by its Via");
    // The phone is called, and answers from its sending port.
    let call = invite("sip:bob@example.org", &caller);
    caller.send(&call.bytes()).expect("loopback takes it");
    let got = listens.request("INVITE", SOON).expect("the INVITE arrives where it listens");
    sends.send(&respond(&got, 200, "bob", &[format!("Contact: <sip:bob@{there}>")])).expect("loopback takes it");
    let answer = caller.final_response(SOON).expect("it is answered");
    let mut end = End::caller(&call, &answer);
    assert_eq!(end.uri, format!("sip:bob@{there}"), "nothing is to be repaired");
    caller.send(&end.request("BYE").bytes()).expect("loopback takes it");
    let bye = listens.request("BYE", SOON).expect("the BYE arrives where it listens");
    sends.send(&respond(&bye, 200, "bob", &[])).expect("loopback takes it");
    assert_eq!(caller.final_response(SOON).as_deref().and_then(status), Some(200));
    // The phone calls.
    let mut bob = server.connect(Transport::Udp);
    register_open(&mut bob, "carol");
    let call = Request::new("INVITE", "sip:carol@example.org", "udp", there).with(format!("Contact: <sip:gw@{there}>"));
    sends.send(plain(&call).as_bytes()).expect("loopback takes it");
    let got = bob.request("INVITE", SOON).unwrap_or_else(|| panic!("the INVITE arrives by {to}"));
    bob.send(&respond(&got, 200, "carol", &[contact("carol", &bob)])).expect("loopback takes it");
    assert_eq!(listens.final_response(SOON).as_deref().and_then(status), Some(200));
    let mut end = End::called(&got, "carol", &bob);
    assert_eq!(end.uri, format!("sip:gw@{there}"));
    bob.send(&end.request("BYE").bytes()).expect("loopback takes it");
    assert!(listens.request("BYE", SOON).is_some(), "the BYE arrives where it listens");
}

fn register_open(wire: &mut Wire, user: &str) {
    let at = format!("sip:{user}@{}", wire.local());
    let request = Request::register(user, "example.org", &at, wire.transport().name(), wire.local());
    assert_eq!(status(&exchange(wire, &request)), Some(200));
}

/// RFC 5589 section 7: the target of the transfer is its Contact, as the transferor knows it.
#[test]
fn an_attended_transfer_reaches_its_target() {
    let server = start(&[Transport::Udp, Transport::Tcp], "");
    for way in [Transport::Tcp, Transport::Udp] {
        let (mut alice, mut bob) = (server.connect(way), server.connect(Transport::Udp));
        let mut carol = server.connect(Transport::Udp);
        let (a, b) = (contact_uri("a", &alice, true), contact_uri("b", &bob, false));
        let (_, other) = users_call(&mut alice, &mut bob, (&a, &b));
        // Bob sends a Refer-To with the Contact of alice to carol. Her phone calls it, with her password.
        let refer_to = other.uri;
        assert!(refer_to.starts_with("sip:a@10.99.99.99"), "{refer_to}");
        let mut call = invite(&refer_to, &carol).with("Replaces: x;to-tag=a;from-tag=b");
        call.from = "<sip:carol@example.org>;tag=carol".into();
        let call = challenged(&mut carol, &call, "carol", "carol");
        carol.send(&call.bytes()).expect("the server takes messages");
        let got = alice.request("INVITE", SOON).expect("the INVITE arrives");
        assert_eq!(request_uri(&got), a, "as alice wrote it");
        alice.send(&respond(&got, 200, "alice2", &[format!("Contact: <{a}>")])).expect("the server takes messages");
        let answer = carol.final_response(SOON).expect("it is answered");
        let (mut one, mut other) = (End::caller(&call, &answer), End::called(&got, "alice2", &alice));
        arrives(&mut carol, &mut alice, &one.request("INFO"), &[]);
        arrives(&mut alice, &mut carol, &other.request("BYE"), &[]);
        // A caller without the right to relay cannot use it.
        let mut stranger = server.connect(Transport::Udp);
        let call = invite(&refer_to, &stranger);
        assert_eq!(status(&exchange(&mut stranger, &call)), Some(407));
        assert!(alice.request("INVITE", Duration::from_millis(50)).is_none());
    }
}

/// A phone that registers through a proxy without Path is at the address of its Contact, not at the proxy's.
#[test]
fn who_registers_through_a_proxy_is_where_its_contact_says() {
    let server = start(&[Transport::Udp, Transport::Tcp], "registrar.authenticate = false");
    for way in [Transport::Udp, Transport::Tcp] {
        let (mut edge, mut phone) = (server.connect(way), server.connect(Transport::Udp));
        let mut caller = server.connect(Transport::Udp);
        let at = format!("sip:bob@{}", phone.local());
        let register = Request::register("bob", "example.org", &at, way.name(), edge.local());
        let text = String::from_utf8(register.bytes()).expect("text");
        let inner = format!("Via: SIP/2.0/UDP {};branch=z9hG4bKinner\r\nMax-Forwards", phone.local());
        edge.send(text.replacen("Max-Forwards", &inner, 1).as_bytes()).expect("the server takes messages");
        assert_eq!(edge.final_response(SOON).as_deref().and_then(status), Some(200));
        let call = invite("sip:bob@example.org", &caller);
        set_up(&mut caller, &mut phone, &call, true);
        assert!(edge.request("INVITE", Duration::from_millis(20)).is_none());
    }
}

/// Pings that keep the connection of another proxy open reach the phone behind it by its Path.
#[test]
fn pings_follow_the_path() {
    // The setting is the time to wait for.
    let server = start(&[Transport::Tcp], "registrar.authenticate = false\nnat.ping_interval = \"1s\"");
    let mut edge = server.connect(Transport::Tcp);
    let path = format!("<sip:{};transport=tcp;lr;x=1>", edge.local());
    let register = Request::register("bob", "example.org", "sip:bob@10.9.9.9:5060", "tcp", edge.local())
        .with(format!("Path: {path}"))
        .with("Supported: path");
    let text = String::from_utf8(register.bytes()).expect("text");
    let inner = "Via: SIP/2.0/UDP 10.9.9.9;branch=z9hG4bKinner\r\nMax-Forwards";
    edge.send(text.replacen("Max-Forwards", inner, 1).as_bytes()).expect("the server takes messages");
    assert_eq!(edge.final_response(SOON).as_deref().and_then(status), Some(200));
    let ping = edge.request("OPTIONS", SOON).expect("a ping");
    assert_eq!(request_uri(&ping), "sip:bob@10.9.9.9:5060");
    assert_eq!(fields(&ping, "Route"), [path]);
}

/// Contact parameters of other programs pass unchanged: one of Kamailio's has the former name of ours, and other
/// numbers.
#[test]
fn a_parameter_of_another_proxy_passes() {
    let server = start(&[Transport::Udp, Transport::Tcp], "");
    let (mut caller, mut bob) = (server.connect(Transport::Udp), server.connect(Transport::Udp));
    register(&mut bob, "bob", "bob");
    let at = format!("sip:bob@{0};alias={1}~{2}~1", bob.local(), bob.local().ip(), bob.local().port());
    let call = invite("sip:bob@example.org", &caller);
    let (mut one, _) = set_up_with(&mut caller, &mut bob, &call, true, &[format!("Contact: <{at}>")]);
    assert_eq!(one.uri, at);
    let (got, _) = arrives(&mut caller, &mut bob, &one.request("BYE"), &[]);
    assert_eq!(request_uri(&got), at);
}

/// Both phones of a user ring, each in an early dialog of its own (RFC 3262); one answers.
#[test]
fn early_dialogs_of_a_fork_go_on_apart() {
    let server = start(&[Transport::Udp], "");
    let (mut caller, mut one, mut two) =
        (server.connect(Transport::Udp), server.connect(Transport::Udp), server.connect(Transport::Udp));
    register(&mut one, "bob", "bob");
    register(&mut two, "bob", "bob");
    let call = invite("sip:bob@example.org", &caller);
    caller.send(&call.bytes()).expect("loopback takes it");
    let mut ends = Vec::new();
    for (phone, tag) in [(&mut one, "one"), (&mut two, "two")] {
        let got = phone.request("INVITE", SOON).expect("it rings");
        let lines = [contact(tag, phone), "Require: 100rel".into(), "RSeq: 1".into()];
        phone.send(&respond(&got, 183, tag, &lines)).expect("loopback takes it");
        let early = caller.answer(SOON).expect("an early dialog");
        assert_eq!(status(&early), Some(183));
        ends.push((got, End::caller(&call, &early)));
    }
    let own = contact("caller", &caller);
    for ((_, end), phone) in ends.iter_mut().zip([&mut one, &mut two]) {
        let (got, _) = arrives(&mut caller, phone, &end.request("PRACK").with("RAck: 1 1 INVITE"), &[]);
        assert!(request_uri(&got).contains(&phone.local().to_string()));
        arrives(&mut caller, phone, &end.request("UPDATE").with(own.clone()), &[]);
    }
    let (got, _) = &ends[1];
    two.send(&respond(got, 200, "two", &[contact("two", &two)])).expect("loopback takes it");
    let answer = caller.final_response(SOON).expect("it is answered");
    let mut end = End { cseq: 50, ..End::caller(&call, &answer) };
    let mut ack = end.request("ACK");
    ack.cseq = call.cseq;
    caller.send(&ack.bytes()).expect("loopback takes it");
    two.request("ACK", SOON).expect("the ACK arrives");
    arrives(&mut caller, &mut two, &end.request("BYE"), &[]);
}

/// The 180 has no Contact; the 200 has one.
#[test]
fn a_call_that_rang_without_a_contact_goes_on() {
    let server = start(&[Transport::Udp], "");
    let (mut caller, mut bob) = (server.connect(Transport::Udp), server.connect(Transport::Udp));
    register(&mut bob, "bob", "bob");
    let call = invite("sip:bob@example.org", &caller);
    caller.send(&call.bytes()).expect("loopback takes it");
    let got = bob.request("INVITE", SOON).expect("it rings");
    bob.send(&respond(&got, 180, "bob", &[])).expect("loopback takes it");
    assert_eq!(caller.answer(SOON).as_deref().and_then(status), Some(180));
    bob.send(&respond(&got, 200, "bob", &[contact("bob", &bob)])).expect("loopback takes it");
    let answer = caller.final_response(SOON).expect("it is answered");
    let (mut one, mut other) = (End::caller(&call, &answer), End::called(&got, "bob", &bob));
    arrives(&mut caller, &mut bob, &one.request("INFO"), &[]);
    arrives(&mut bob, &mut caller, &other.request("BYE"), &[]);
}

/// A call through two servers with different secrets, with a phone behind NAT at each end, one of them on a stream.
#[test]
fn two_servers_in_a_row_carry_a_call() {
    let open = "registrar.authenticate = false\nauth.calls = false\n";
    let near = Setup::on(&[Transport::Udp, Transport::Tcp])
        .with("domains = [\"example.org\"]\nproxy.relay_for = \"everyone\"")
        .with(open)
        .site();
    let far =
        Setup::on(&[Transport::Udp, Transport::Tcp]).with("domains = [\"127.0.0.1\"]").with(open).site_beside(&near);
    for way in [Transport::Udp, Transport::Tcp] {
        let (mut alice, mut bob) = (near.connect(way), far.connect(way));
        let (a, b) = (contact_uri("a", &alice, true), contact_uri("b", &bob, true));
        let register = Request::register("bob", "127.0.0.1", &b, way.name(), bob.local());
        assert_eq!(status(&exchange(&mut bob, &register)), Some(200));
        let uri = format!("sip:bob@{}", far.address(Transport::Udp));
        let call = Request::new("INVITE", &uri, way.name(), alice.local()).with(format!("Contact: <{a}>"));
        let own = [format!("Contact: <{b}>")];
        let (mut one, mut other) = set_up_with(&mut alice, &mut bob, &call, true, &own);
        assert!(one.routes.len() >= 2 && other.routes.len() >= 2);
        talk((&mut alice, &mut one, &a), (&mut bob, &mut other, &b));
        arrives(&mut bob, &mut alice, &other.request("BYE"), &[]);
        let mut gone = Request::register("bob", "127.0.0.1", "", way.name(), bob.local());
        gone.headers = vec!["Contact: *".into(), "Expires: 0".into()];
        assert_eq!(status(&exchange(&mut bob, &gone)), Some(200));
    }
}

/// An edge proxy with Path and Record-Route in front of the phone, a carrier's proxy with Record-Route in front of the
/// caller.
#[test]
fn other_proxies_on_both_sides_stay_on_the_way() {
    let server = start(&[Transport::Udp], "registrar.authenticate = false");
    let (mut edge, mut carrier) = (server.connect(Transport::Udp), server.connect(Transport::Udp));
    let path = format!("<sip:{};lr>", edge.local());
    let register = Request::register("bob", "example.org", "sip:bob@10.9.9.9", "udp", edge.local())
        .with(format!("Path: {path}"))
        .with("Supported: path");
    let text = String::from_utf8(register.bytes()).expect("text");
    let inner = "Via: SIP/2.0/UDP 10.9.9.9;branch=z9hG4bKinner\r\nMax-Forwards";
    edge.send(text.replacen("Max-Forwards", inner, 1).as_bytes()).expect("loopback takes it");
    assert_eq!(edge.final_response(SOON).as_deref().and_then(status), Some(200));
    // The carrier's proxy forwards a call of one of its users.
    let beyond = format!("<sip:{};lr;ftag=1>", carrier.local());
    let call = Request::new("INVITE", "sip:bob@example.org", "udp", carrier.local())
        .with("Via: SIP/2.0/UDP 198.51.100.9;branch=z9hG4bKbeyond")
        .with(format!("Record-Route: {beyond}"))
        .with("Contact: <sip:+1900@198.51.100.9>");
    carrier.send(&call.bytes()).expect("loopback takes it");
    let got = edge.request("INVITE", SOON).expect("the INVITE arrives at the edge");
    let mut answer =
        String::from_utf8(respond(&got, 200, "bob", &["Contact: <sip:bob@10.9.9.9>".into()])).expect("text");
    answer = answer.replacen("Record-Route:", &format!("Record-Route: {path}\r\nRecord-Route:"), 1);
    edge.send(answer.as_bytes()).expect("loopback takes it");
    let ok = carrier.final_response(SOON).expect("it is answered");
    // Each of the two proxies forwards requests without its own Route.
    let mut one = End::caller(&call, &ok);
    assert_eq!(one.routes.remove(0), beyond);
    let mut other = End::called(&got, "bob", &edge);
    for method in ["INVITE", "INFO", "BYE"] {
        let beyond_via = "Via: SIP/2.0/UDP 198.51.100.9;branch=z9hG4bKbeyond";
        let request = one.request(method).with(beyond_via).with("Contact: <sip:+1901@198.51.100.9>");
        let (got, answer) = arrives(&mut carrier, &mut edge, &request, &["Contact: <sip:bob2@10.9.9.9>".into()]);
        assert_eq!(fields(&got, "Route"), [path.as_str()]);
        renew(&mut one, &mut other, method, &answer, &got);
        let beyond_via = "Via: SIP/2.0/UDP 10.9.9.9;branch=z9hG4bKinner";
        let request = other.request(method).with(beyond_via).with("Contact: <sip:bob2@10.9.9.9>");
        let (got, answer) = arrives(&mut edge, &mut carrier, &request, &["Contact: <sip:+1901@198.51.100.9>".into()]);
        assert_eq!(fields(&got, "Route"), [beyond.as_str()]);
        assert!(request_uri(&got).starts_with("sip:+190"), "{}", request_uri(&got));
        renew(&mut other, &mut one, method, &answer, &got);
    }
    // Each of the two proxies trusts this server: through the server a request reaches only the party of its call.
    for (wire, end) in [(&mut carrier, &mut one), (&mut edge, &mut other)] {
        let request = end.request_to("INVITE", "sip:+19005551234@gateway.example");
        let answer = exchange(wire, &request);
        assert_eq!(status(&answer), Some(407), "{}", String::from_utf8_lossy(&answer));
    }
}
