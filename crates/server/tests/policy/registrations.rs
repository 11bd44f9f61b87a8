//! REGISTER (RFC 3261 section 10.3), with digest.

use crate::site::*;
use std::time::Duration;
use strowger_core::Transport;

/// Returns the lifetimes of the contacts in a 200, by URI.
fn contacts(got: &Got) -> Vec<(String, u32)> {
    assert_eq!(got.status(), 200, "{}", got.0);
    let contact = |value: &&str| {
        let uri = value.split(['<', '>']).nth(1).expect("a URI").to_owned();
        let expires = value.split("expires=").nth(1).expect("a time").split(';').next().expect("a part");
        (uri, expires.parse().expect("a number"))
    };
    let mut contacts: Vec<(String, u32)> = got.all("Contact").iter().map(contact).collect();
    contacts.sort();
    contacts
}

/// Registers with these lines in place of the phone's own Contact. Returns the answer.
fn register(phone: &Phone, lines: &str) -> Got {
    let call = phone.register_call(lines);
    let challenge = phone.ask(&call);
    assert_eq!(challenge.status(), 401, "{}", challenge.0);
    send(phone, &phone.authorized(&call, &challenge, "bob", "bob"))
}

fn send(phone: &Phone, call: &Call) -> Got {
    let own = format!("Contact: <sip:phone@{}>\r\n", phone.address);
    phone.send(&phone.text(call).replacen(&own, "", 1));
    phone.answer()
}

#[test]
fn contacts_come_and_go() {
    let site = start("", &["bob"]);
    let bob = site.phone("bob");
    assert!(contacts(&register(&bob, "")).is_empty());
    let two = "Contact: <sip:bob@192.0.2.1>;expires=300;q=0.3\nContact: \"B\" <sip:bob@192.0.2.2>, <sip:bob@192.0.2.3>\nExpires: 600\n";
    let three = [("sip:bob@192.0.2.1", 300), ("sip:bob@192.0.2.2", 600), ("sip:bob@192.0.2.3", 600)];
    assert_eq!(contacts(&register(&bob, two)), three.map(|(u, e)| (u.to_owned(), e)));
    assert_eq!(contacts(&register(&bob, "")).len(), 3);
    // One contact is removed, one prolonged.
    let got = register(&bob, "Contact: <sip:bob@192.0.2.1>;expires=0, <sip:bob@192.0.2.2>;expires=7200\n");
    let left = contacts(&got);
    assert_eq!(left.iter().map(|(u, _)| u.as_str()).collect::<Vec<_>>(), ["sip:bob@192.0.2.2", "sip:bob@192.0.2.3"]);
    assert_eq!(left[0].1, 7200);
    assert!(!got.all("Date").is_empty());
    // A lifetime above the maximum becomes the maximum, a missing one the default.
    let left =
        contacts(&register(&bob, "Contact: <sip:bob@192.0.2.4>;expires=99999999\nContact: <sip:bob@192.0.2.5>\n"));
    assert_eq!((left[2].1, left[3].1), (7_200, 3_600));
    assert_eq!(register(&bob, "Contact: *\nExpires: 60\n").status(), 400);
    assert_eq!(register(&bob, "Contact: *\nContact: <sip:bob@192.0.2.9>\nExpires: 0\n").status(), 400);
    assert!(contacts(&register(&bob, "Contact: *\nExpires: 0\n")).is_empty());
    assert_eq!(site.bindings(), 0);
}

/// Covers a phone that knows only the server's address and writes it into Request-URI and To, where the address names a
/// user of the only domain.
#[test]
fn the_registrar_is_known_by_its_address_too() {
    let site = start("", &["bob"]);
    let bob = site.phone("bob");
    let by_address = |lines: &str| Call { uri: format!("sip:{}", site.udp()), ..bob.register_call(lines) };
    assert_eq!(bob.ask_as(&by_address("Expires: 600\n"), "bob").status(), 200);
    let at_address = Call { to: format!("<sip:bob@{}>", site.udp().ip()), ..by_address("") };
    assert_eq!(bob.ask_as(&at_address, "bob").status(), 200);
    let elsewhere = Call { to: "<sip:bob@192.0.2.9>".into(), ..by_address("") };
    assert_eq!(bob.ask(&elsewhere).status(), 404);
    // A relay without a domain registers no user, and does not offer it.
    let relay = start("domains = []", &[]);
    let phone = relay.foreign_phone();
    let got = phone.ask(&Call { uri: format!("sip:{}", relay.udp()), ..phone.call("REGISTER", "sip:x") });
    assert_eq!((got.status(), got.one("Allow")), (405, "OPTIONS"));
}

#[test]
fn too_brief() {
    let site = start("", &["bob"]);
    let bob = site.phone("bob");
    let got = register(&bob, "Contact: <sip:bob@192.0.2.1>;expires=30\n");
    assert_eq!((got.status(), got.one("Min-Expires")), (423, "60"));
    assert!(contacts(&register(&bob, "")).is_empty());
}

#[test]
fn out_of_order() {
    let site = start("", &["bob"]);
    let bob = site.phone("bob");
    let call = |cseq: u32, lines: &str| {
        let mut call = bob.register_call(lines);
        call.call_id = "same".into();
        call.cseq = cseq;
        let challenge = bob.ask(&call);
        send(&bob, &bob.authorized(&call, &challenge, "bob", "bob"))
    };
    assert_eq!(call(10, "Contact: <sip:bob@192.0.2.1>;expires=600\n").status(), 200);
    // An older request that arrives late.
    assert_eq!(call(4, "Contact: <sip:bob@192.0.2.1>;expires=0\n").status(), 500);
    assert_eq!(contacts(&call(20, "")).len(), 1);
    assert_eq!(contacts(&call(30, "Contact: <sip:bob@192.0.2.1>;expires=0\n")).len(), 0);
}

#[test]
fn too_many() {
    let site = start("registrar.max_contacts = 2", &["bob"]);
    let bob = site.phone("bob");
    assert_eq!(register(&bob, "Contact: <sip:b@192.0.2.1>, <sip:b@192.0.2.2>\n").status(), 200);
    assert_eq!(register(&bob, "Contact: <sip:b@192.0.2.3>\n").status(), 403);
    assert_eq!(contacts(&register(&bob, "Contact: <sip:b@192.0.2.1>;expires=0, <sip:b@192.0.2.3>\n")).len(), 2);
}

#[test]
fn path_and_service_route() {
    let site = start("registrar.service_route = [\"sip:edge.example.org;lr\"]", &["bob"]);
    let (bob, edge, caller) = (site.phone("bob"), site.foreign_phone(), site.foreign_phone());
    let path = format!("<sip:{};lr>", edge.address);
    let got = register(&bob, &format!("Path: {path}\nSupported: path\nContact: <sip:bob@192.0.2.1>\n"));
    assert_eq!((got.one("Path"), got.one("Service-Route")), (path.as_str(), "<sip:edge.example.org;lr>"));
    caller.send(&caller.text(&caller.call("INVITE", "sip:bob@example.org")));
    let invite = edge.next();
    assert_eq!((invite.uri(), invite.one("Route")), ("sip:bob@192.0.2.1", path.as_str()));
}

#[test]
fn extensions_and_foreign_users() {
    let site = start("", &["alice", "bob"]);
    let bob = site.phone("bob");
    let got = register(&bob, "Require: gruu-of-tomorrow\nContact: <sip:b@192.0.2.1>\n");
    assert_eq!((got.status(), got.one("Unsupported")), (420, "gruu-of-tomorrow"));
    // Binding of another user, with the sender's own right password.
    let alice = site.phone("alice");
    let call = alice.register_call("Contact: <sip:b@192.0.2.1>\n");
    let challenge = alice.ask(&call);
    assert_eq!(send(&alice, &alice.authorized(&call, &challenge, "bob", "bob")).status(), 403);
    // Unknown user: challenged like a known one, and never admitted.
    let nobody = site.phone("nobody");
    let call = nobody.register_call("");
    let challenge = nobody.ask(&call);
    assert_eq!(challenge.status(), 401);
    assert_eq!(send(&nobody, &nobody.authorized(&call, &challenge, "nobody", "nobody")).status(), 401);
    // Foreign domain in the Request-URI: relaying, like any other request.
    let stranger = site.foreign_phone();
    assert_eq!(stranger.ask(&stranger.call("REGISTER", "sip:192.0.2.1")).status(), 407);
    // User of a foreign domain.
    let call = Call { to: "<sip:mallory@example.net>".into(), ..stranger.register_call("") };
    assert_eq!(stranger.ask(&call).status(), 404);
    assert_eq!(site.bindings(), 0);
}

#[test]
fn a_nonce_is_good_once_for_each_count() {
    let site = start("", &["bob"]);
    let bob = site.phone("bob");
    let call = bob.register_call("Contact: <sip:b@192.0.2.1>\n");
    let challenge = bob.ask(&call);
    let right = bob.authorized(&call, &challenge, "bob", "bob");
    assert_eq!(send(&bob, &right).status(), 200);
    let replayed = Call { cseq: right.cseq + 1, ..right };
    let got = send(&bob, &replayed);
    assert_eq!(got.status(), 401);
    assert!(got.all("WWW-Authenticate").iter().all(|c| c.contains("stale=true")), "{}", got.0);
}

#[test]
fn without_passwords() {
    let site = start("registrar.authenticate = false", &[]);
    let phone = site.phone("anybody");
    assert_eq!(phone.ask(&phone.register_call("")).status(), 200);
    assert_eq!(site.bindings(), 1);
    let stranger = site.foreign_phone();
    let call = Call { to: "<sip:mallory@example.net>".into(), ..stranger.register_call("") };
    assert_eq!(stranger.ask(&call).status(), 404);
    // Without passwords no user is known not to exist.
    assert_eq!(stranger.ask(&stranger.call("INVITE", "sip:else@example.org")).status(), 480);
}

#[test]
fn of_no_user() {
    let site = start("", &["bob"]);
    let stranger = site.foreign_phone();
    let call = Call { to: "<sip:example.org>".into(), ..stranger.register_call("") };
    assert_eq!(stranger.ask(&call).status(), 404);
    let call = Call { to: "<tel:+4930>".into(), ..stranger.register_call("") };
    assert_eq!(stranger.ask(&call).status(), 404);
}

#[test]
fn a_copy_gets_the_same_answer() {
    let site = start("", &["bob"]);
    let bob = site.phone("bob");
    let call = bob.register_call("Expires: 600\n");
    let call = bob.authorized(&call, &bob.ask(&call), "bob", "bob");
    let text = bob.text(&call);
    // Retransmissions after a lost or slow 200 (section 17.2.2).
    for _ in 0..3 {
        bob.send(&text);
    }
    let is_the_same = |got: &Got| (got.status(), got.all("Contact").len()) == (200, 1);
    let first = bob.answer();
    assert!(is_the_same(&first), "{}", first.0);
    // Copies that arrived while the first one waited may have been merged.
    while let Some(got) = bob.within(Duration::from_millis(300)) {
        assert!(is_the_same(&got), "{}", got.0);
    }
    bob.send(&text);
    let copy = bob.answer();
    assert!(is_the_same(&copy), "{}", copy.0);
    // A late copy: the second in which the REGISTER is remembered is over.
    site.wait(Duration::from_millis(1_200));
    bob.send(&text);
    assert_eq!(bob.answer().status(), 200);
}

#[test]
fn a_copy_changes_and_tells_nothing() {
    let site = start("", &["bob"]);
    let bob = site.phone("bob");
    let call = bob.register_call("Contact: <sip:b@192.0.2.1>\n");
    let call = bob.authorized(&call, &bob.ask(&call), "bob", "bob");
    assert_eq!(contacts(&send(&bob, &call)).len(), 1);
    let with =
        |contact: &str| Call { lines: call.lines.replace("Contact: <sip:b@192.0.2.1>\n", contact), ..call.clone() };
    // An eavesdropper sends captured credentials with another Contact, or to learn Bob's bindings.
    for lines in [
        "Contact: <sip:mallory@192.0.2.66>\n",
        "Contact: <sip:b@192.0.2.1>;expires=0\n",
        "Contact: *\nExpires: 0\n",
        "",
    ] {
        let got = send(&bob, &with(lines));
        assert_eq!((got.status(), got.all("Contact").len()), (401, 0), "{lines}: {}", got.0);
    }
    let later = Call { cseq: 9, ..call.clone() };
    assert_eq!(send(&bob, &later).status(), 401);
    assert_eq!(contacts(&register(&bob, ""))[0].0, "sip:b@192.0.2.1");
}

/// Checks Outbound (RFC 5626 section 6): over a stream this server is the first hop of a flow. Over UDP it is not;
/// another proxy may be, which then sets `ob`.
#[test]
fn a_device_may_require_flows_where_they_are_kept() {
    let site = start("registrar.authenticate = false", &[]);
    let bob = site.phone("bob");
    let contact =
        "Contact: <sip:b@192.0.2.1>;reg-id=1;+sip.instance=\"<urn:uuid:00000000-0000-1000-8000-000A95A0E128>\"\n";
    let lines = format!("{contact}Supported: path\nRequire: outbound\n");
    let got = send(&bob, &bob.register_call(&lines));
    assert_eq!((got.status(), got.one("Unsupported")), (420, "outbound"));
    let by_tcp = Phone::new(site.connect(Transport::Tcp), &bob.aor);
    let got = send(&by_tcp, &by_tcp.register_call(&lines));
    assert_eq!((got.status(), got.one("Require")), (200, "outbound"), "{}", got.0);
    for (parameter, requires) in [(";ob", vec!["outbound"]), ("", vec![])] {
        let lines = format!("{contact}Supported: path, outbound\nPath: <sip:192.0.2.7;lr{parameter}>\n");
        let own = format!("Contact: <sip:phone@{}>\r\n", bob.address);
        let text = bob.text(&bob.register_call(&lines)).replacen(&own, "", 1);
        let device = "Via: SIP/2.0/TCP 192.0.2.1;branch=z9hG4bKdevice\r\nMax-Forwards";
        bob.send(&text.replacen("Max-Forwards", device, 1));
        let got = bob.answer();
        assert_eq!((got.status(), got.all("Require")), (200, requires), "{}", got.0);
    }
}
