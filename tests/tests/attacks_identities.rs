//! Users who impersonate others: they register for them, or call under their names.

use crate::attacks_passwords::{LIMIT, answer, at, code, invite, register, send, start, with_password};
use strowger_tests::text::{Request, request_uri, respond, status, unique};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

/// Returns the status of a REGISTER for this user with the right password of mallory.
fn register_as_mallory(wire: &mut Wire, to: &str) -> Option<u16> {
    let request = Request { to: to.into(), ..register(wire, "mallory") };
    code(with_password(wire, &request, "mallory", "a secret"))
}

/// This holds even if the user may call under another name.
#[test]
fn a_user_registers_no_other() {
    for more in ["", "auth.user_must_match = false"] {
        let server = start(&[Udp], more);
        let mut wire = at(&server, Udp, 2);
        for to in [
            "<sip:alice@example.org>",
            "<sip:%61lice@example.org>",
            "<sip:alice@EXAMPLE.org>",
            "<sips:alice@example.org>",
            "<sip:alice:mallory@example.org>",
            "\"mallory\" <sip:alice@example.org;user=mallory>",
        ] {
            assert_eq!(register_as_mallory(&mut wire, to), Some(403), "{more} {to}");
        }
        let log = server.log_with("the request names another");
        let line = log.lines().find(|line| line.contains("the request names another")).expect("a line");
        for part in ["user=mallory@example.org", "header=\"To\"", "names=alice@example.org", "auth.register_for_others"]
        {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}

/// A PBX registers the numbers behind it by one password, and calls under its own name alone.
#[test]
fn a_user_registers_for_others_where_the_setting_says_so() {
    let server = start(&[Udp], "auth.register_for_others = true");
    let mut wire = at(&server, Udp, 2);
    assert_eq!(register_as_mallory(&mut wire, "<sip:alice@example.org>"), Some(200));
    assert_eq!(call_as_mallory(&mut wire, "<sip:alice@example.org>", &[], "sip:bob@example.org"), Some(403));
}

/// Calls bob with the right password of mallory; returns the status.
fn call_as_mallory(wire: &mut Wire, from: &str, more: &[&str], uri: &str) -> Option<u16> {
    let mut request = invite(wire, "mallory", uri);
    request.from = format!("{from};tag={}", unique("f"));
    request.headers.extend(more.iter().map(ToString::to_string));
    code(with_password(wire, &request, "mallory", "a secret"))
}

#[test]
fn a_user_calls_as_no_other() {
    let server = start(&[Udp], "");
    let mut wire = at(&server, Udp, 2);
    let local = "sip:bob@example.org";
    for (from, more) in [
        ("<sip:alice@example.org>", &[][..]),
        ("<sip:%61lice@example.org>", &[]),
        ("<sip:alice@example.org:5999>", &[]),
        ("\"Anonymous\" <sip:anonymous@example.org>", &[]),
        ("<im:alice@example.org>", &[]),
        ("<pres:alice@example.org>", &[]),
        ("<sip:alice@example.org>", &["P-Preferred-Identity: <sip:mallory@example.org>"]),
    ] {
        assert_eq!(call_as_mallory(&mut wire, from, more, local), Some(403), "{from} {more:?}");
    }
    // An unassigned number, which the account may not use.
    let more = &["P-Preferred-Identity: <sip:mallory@example.org>"];
    assert_eq!(call_as_mallory(&mut wire, "<sip:+49301@192.0.2.1>", more, "sip:bob@192.0.2.1"), Some(403));
}

#[test]
fn callers_may_withhold_their_identity_and_gateways_show_another() {
    let numbers =
        "auth.identities = \"numbers\"\n[[set]]\nname = \"numbers\"\nentries = { mallory = \"+4930100, +49301*\" }\n";
    let server = start(&[Udp], numbers);
    let mut gateway = server.connect(Udp);
    let uri = format!("sip:+4930@{}", gateway.local());
    let mut wire = at(&server, Udp, 2);
    for (from, more) in [
        ("\"Anonymous\" <sip:anonymous@anonymous.invalid>", &[][..]),
        (
            "\"Anonymous\" <sip:anonymous@anonymous.invalid>",
            &["P-Preferred-Identity: <sip:mallory@example.org>", "Privacy: id"],
        ),
        ("<sip:+49301@192.0.2.1>", &[]),
        ("<sip:+49301@example.org>", &["P-Asserted-Identity: <sip:mallory@example.org>, <tel:+49301>"]),
    ] {
        let mut request = invite(&wire, "mallory", &uri);
        request.from = format!("{from};tag={}", unique("f"));
        request.headers.extend(more.iter().map(ToString::to_string));
        let credentials = answer(&mut wire, &request, "mallory", "a secret");
        send(&mut wire, &credentials.on(&request));
        let got = gateway.request("INVITE", LIMIT).unwrap_or_else(|| panic!("{from} {more:?}: {}", server.log()));
        assert_eq!(request_uri(&got), uri);
        // The answer ends the INVITE, so that nothing is retransmitted.
        gateway.send(&respond(&got, 486, "busy", &[])).expect("the server takes messages");
        assert_eq!(wire.final_response(LIMIT).and_then(|response| status(&response)), Some(486));
        gateway.request("ACK", LIMIT).expect("the server acknowledges");
    }
    // Another number is still refused.
    assert_eq!(call_as_mallory(&mut wire, "<sip:+49302@192.0.2.1>", &[], &uri), Some(403));
    server.log_with("header=\"From\" names=+49302@192.0.2.1");
}
