//! Refusal of calls that this server cannot end.

use crate::accounting::rows;
use crate::dialogs::{answered, counts, from_phone, of_alice, of_bob, request};
use crate::site::{ALICE, BOB, Site, invite, line, response};

const TRACKED: &str = "auth.calls = false\nserver.shards = 2\naccounting.cdr = true\n";

/// Highest CSeq, 2^31 - 1 (RFC 3261 section 8.1.1.5).
const MOST: u32 = i32::MAX as u32;

fn with_bob(settings: &str) -> Site {
    let mut site = Site::new(settings);
    site.register(&format!("<sip:bob@{BOB}>;q=1.0"));
    site
}

#[test]
fn an_invite_whose_call_the_server_could_not_end_is_refused() {
    let long = "x".repeat(2_100);
    let contact = format!("Contact: <sip:alice@{ALICE}>\r\n");
    let route = format!("Record-Route: <sip:192.0.2.77;lr;x={}>\r\n", "y".repeat(800));
    for (what, from, to, status) in [
        ("CSeq", "CSeq: 1 INVITE", &*format!("CSeq: {MOST} INVITE"), "400"),
        ("no tag", ";tag=a\r\n", "\r\n", "400"),
        ("tag", ";tag=a\r\n", &*format!(";tag={}\r\n", &long[..257]), "513"),
        ("To tag", "bob@example.org>\r\nCall", &*format!("bob@example.org>;tag={}\r\nCall", &long[..257]), "513"),
        ("Call-ID", "Call-ID: 1\r\n", &*format!("Call-ID: {long}\r\n"), "513"),
        ("From", "From: <sip:alice@", &*format!("From: <sip:{long}@"), "513"),
        ("no Contact", &*contact, "", "400"),
        ("Contact", &*contact, &*contact.replace("alice", &long), "513"),
        ("no SIP URI", &*contact, "Contact: <tel:+4930>\r\n", "400"),
        ("route set", &*contact, &*format!("{contact}{}", route.repeat(3)), "513"),
        ("route without a SIP URI", &*contact, &*format!("{contact}Record-Route: <tel:+4930>\r\n"), "400"),
    ] {
        let text = invite(1, 1, "");
        let text = text.replacen(from, to, 1);
        let answer = with_bob(TRACKED).receive(ALICE, &text);
        assert!(
            answer.contains(&format!("SIP/2.0 {status} ")) && !answer.contains("INVITE sip:bob@"),
            "{what}: {answer}"
        );
        // Without a table of calls it is relayed.
        if !matches!(what, "no tag" | "no SIP URI" | "route without a SIP URI") {
            let relayed = with_bob("auth.calls = false\nlog.calls_per_minute = 0\n").receive(ALICE, &text);
            assert!(relayed.contains("INVITE sip:bob@"), "{what}: {relayed}");
        }
    }
    // Within the bounds.
    let text = invite(1, 1, "").replacen(";tag=a\r\n", &format!(";tag={}\r\n", &long[..256]), 1);
    let text = text.replacen("CSeq: 1 ", &format!("CSeq: {} ", MOST - 1_024), 1);
    let text = text.replacen(&contact, &contact.replace("alice", &long[..1_400]), 1);
    assert!(with_bob(TRACKED).receive(ALICE, &text).contains("INVITE sip:bob@"));
}

#[test]
fn an_answer_whose_dialog_the_server_could_not_end_is_refused() {
    let long = "x".repeat(2_100);
    let contact = format!("Contact: <sip:bob@{BOB}>\r\n");
    for (what, from, to) in [
        ("tag", ";tag=bob", &*format!(";tag={}", &long[..257])),
        ("no tag", ";tag=bob", ""),
        ("Contact", &*contact, &*contact.replace("bob@", &format!("{long}@"))),
        ("no Contact", &*contact, ""),
        ("route set", "Record-Route: ", &*format!("Record-Route: <sip:192.0.2.88;lr;x={long}>\r\nRecord-Route: ")),
        ("no SIP URI", "Record-Route: ", "Record-Route: <tel:+4930>\r\nRecord-Route: "),
    ] {
        let mut site = with_bob(TRACKED);
        let sent = site.receive(ALICE, &invite(1, 1, ""));
        let ok = from_phone(request(&sent, "INVITE"), "200 OK", "bob").replacen(from, to, 1);
        let answer = site.receive(BOB, &ok);
        assert!(answer.starts_with("SIP/2.0 502 "), "{what}: {answer}");
        let (cdrs, _) = rows(&mut site);
        assert_eq!((counts(&site), cdrs.len(), &*cdrs[0].outcome), ((0, 0, 0), 1, "failed"), "{what}");
        // The call has failed: no copy of the answer makes it a call without a record.
        for _ in 0..20 {
            site.wait(500);
            let answer = site.receive(BOB, &ok);
            assert!(!answer.contains("SIP/2.0 200 "), "{what}: {answer}");
        }
        let good = site.receive(BOB, &from_phone(request(&sent, "INVITE"), "200 OK", "bob"));
        assert!(!good.contains("SIP/2.0 200 "), "{what}: {good}");
    }
}

/// Checks that the next target is tried, as after any failure.
#[test]
fn a_refused_answer_leads_to_the_next_phone() {
    let mut site = with_bob(TRACKED);
    site.register(&format!("<sip:bob2@{BOB}>;q=0.5"));
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    let ok = from_phone(request(&sent, "INVITE"), "200 OK", &"t".repeat(300));
    let next = site.receive(BOB, &ok);
    // Meanwhile the refused phone sends a 2xx that could pass. The call rings elsewhere.
    let good = site.receive(BOB, &from_phone(request(&sent, "INVITE"), "200 OK", "bob"));
    assert!(!good.contains("SIP/2.0 200 "), "{good}");
    let ok = site.receive(BOB, &from_phone(request(&next, "INVITE"), "200 OK", "bob2"));
    assert!(ok.starts_with("SIP/2.0 200 "), "{ok}");
    assert_eq!((counts(&site), rows(&mut site).0.len()), ((1, 0, 1), 0));
}

#[test]
fn no_request_takes_the_last_numbers_of_a_dialog() {
    for by_bob in [false, true] {
        let mut site = with_bob(TRACKED);
        let (forwarded, ok) = answered(&mut site, 1);
        let text = |method: &str, cseq: u32| match by_bob {
            true => (of_bob(method, &forwarded, "bob", cseq, ""), BOB, ALICE),
            false => (of_alice(method, &ok, cseq, ""), ALICE, BOB),
        };
        for (n, method) in ["INFO", "UPDATE", "BYE", "MESSAGE"].into_iter().enumerate() {
            let (text, from, _) = text(method, MOST - n as u32);
            let answer = site.receive(from, &text);
            assert!(answer.starts_with("SIP/2.0 400 "), "{method} {by_bob}: {answer}");
            // Nor with the tags of the dialog along another path.
            let start = text.find("Route: ").expect("a Route");
            let end = start + text[start..].find("\r\n").expect("a line") + 2;
            let aside = format!("{}{}", &text[..start], &text[end..]).replace("z9hG4bK", "z9hG4bKaside");
            let answer = site.receive(from, &aside);
            assert!(!answer.contains(&format!("{method} sip:")), "{method} {by_bob}: {answer}");
        }
        assert_eq!((counts(&site), rows(&mut site).0.len()), ((1, 0, 1), 0));
        // The last CSeq that may pass leaves room.
        let (info, from, to) = text("INFO", MOST - 1_024);
        let passed = site.receive(from, &info);
        site.receive(to, &response(request(&passed, "INFO"), "200 OK"));
        let id = site.engines[0].list_calls(site.now, 0, 9, None).calls[0].id;
        let sent = site.work(|engine, now, out| assert!(engine.end_call(now, id, out)));
        assert!(sent.contains(&format!("CSeq: {} BYE", MOST - 1_023)), "{sent}");
    }
}

/// Covers a party that moves to an address that no BYE of the server reaches.
#[test]
fn a_renewal_keeps_its_party_within_reach() {
    let long = format!("Contact: <sip:{}@{ALICE}>\r\n", "x".repeat(1_800));
    for method in ["INVITE", "UPDATE"] {
        for contact in [&*long, "Contact: <tel:+4930>\r\n"] {
            let mut site = with_bob(TRACKED);
            let (_, ok) = answered(&mut site, 1);
            let answer = site.receive(ALICE, &of_alice(method, &ok, 2, contact));
            assert!(answer.contains("SIP/2.0 400 ") && !answer.contains(&format!("{method} sip:")), "{answer}");
            assert_eq!(counts(&site), (1, 0, 1));
        }
        let mut site = with_bob(TRACKED);
        let (_, ok) = answered(&mut site, 1);
        let passed = site.receive(ALICE, &of_alice(method, &ok, 2, ""));
        assert!(passed.contains(&format!("{method} sip:")), "without a Contact no party moves: {passed}");
    }
}

#[test]
fn the_caller_of_a_refused_answer_gets_the_status_alone() {
    let mut site = with_bob(TRACKED);
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    let ok = from_phone(request(&sent, "INVITE"), "200 OK", "bob").replacen(
        "Record-Route: ",
        "Record-Route: <tel:+4930>\r\nX-Other: 1\r\nRecord-Route: ",
        1,
    );
    let answer = site.receive(BOB, &ok);
    assert!(!answer.contains("Contact: ") && !answer.contains("X-Other: "), "{answer}");
    assert_eq!(line(&answer, "CSeq"), "1 INVITE");
}

/// Covers a callee that drops the route set, such as the scenario `uas` of SIPp: its dialog bypasses this server, as
/// without `proxy.record_route`.
#[test]
fn a_call_whose_callee_drops_the_route_set_is_recorded_at_its_answer() {
    let mut site = with_bob(TRACKED);
    let sent = site.receive(ALICE, &invite(1, 1, ""));
    let ok = from_phone(request(&sent, "INVITE"), "200 OK", "bob").replacen("Record-Route: ", "X-Route: ", 1);
    for _ in 0..3 {
        let answer = site.receive(BOB, &ok);
        assert!(answer.starts_with("SIP/2.0 200 "), "{answer}");
        site.wait(500);
    }
    let (cdrs, _) = rows(&mut site);
    assert_eq!((counts(&site), cdrs.len()), ((0, 0, 0), 1));
    assert_eq!((&*cdrs[0].outcome, cdrs[0].end), ("answered", None));
    // Another phone that kept it answers too late: no session without a record.
    let late = site.receive(BOB, &from_phone(request(&sent, "INVITE"), "200 OK", "bob2"));
    assert!(!late.contains("SIP/2.0 200 "), "{late}");
}

/// Covers a caller with a route set of its own, which may have made the set so long that the callee drops it.
#[test]
fn a_dropped_route_set_of_another_proxy_is_refused() {
    let mut site = with_bob(TRACKED);
    let text = invite(1, 1, "Record-Route: <sip:192.0.2.77;lr>\r\n");
    let sent = site.receive(ALICE, &text);
    let ok = from_phone(request(&sent, "INVITE"), "200 OK", "bob").replace("Record-Route: ", "X-Route: ");
    let answer = site.receive(BOB, &ok);
    assert!(answer.starts_with("SIP/2.0 502 "), "{answer}");
    // Nor does a copy pass, without a call and without a Record-Route that names this server.
    for _ in 0..3 {
        site.wait(500);
        let answer = site.receive(BOB, &ok);
        assert!(!answer.contains("SIP/2.0 200 "), "{answer}");
    }
}
