//! Shares of the table of calls: no account and no source fills it alone.

use crate::dialogs::{counts, from_phone, of_alice, request};
use crate::peer::{receive, status};
use crate::site::{ALICE, BOB, Site, credentials_of, invite, response};
use std::fmt::Write;

/// Places for tracked calls in each of two shards.
const PLACES: u64 = 40;

fn site(settings: &str) -> Site {
    let mut site = Site::new(&format!("dialogs.track = true\ndialogs.calls = {}\n{settings}", 2 * PLACES));
    site.register(&format!("<sip:bob@{BOB}>"));
    site
}

/// Makes an unknown caller at this address call bob or another user, who answers. Returns false if the call was
/// refused.
fn unknown_calls(site: &mut Site, from: &str, number: u32) -> bool {
    let text =
        invite(number, 1, "").replace(ALICE, from).replace("alice@example.org", &format!("s{number}@example.net"));
    let sent = receive(site, from, &text);
    let Some((_, forwarded)) = sent.iter().find(|(_, text)| text.starts_with("INVITE ")) else {
        assert!(sent.iter().any(|(_, text)| status(text) == Some(503) && text.contains("Retry-After")), "{sent:?}");
        return false;
    };
    let ok = from_phone(forwarded, "200 OK", &format!("t{number}"));
    assert!(site.receive(BOB, &ok).starts_with("SIP/2.0 200 "));
    true
}

/// Makes calls from the addresses of `from` until one is refused. Returns their number.
fn fill(site: &mut Site, first: u32, from: impl Fn(u32) -> String) -> u64 {
    (first..).take_while(|number| unknown_calls(site, &from(*number), *number)).count() as u64
}

/// Registers Carol's phone at bob's address.
fn register_carol(site: &mut Site) {
    let mut register = String::new();
    write!(
        register,
        "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP {BOB};branch=z9hG4bKcarol;rport\r\n\
         From: <sip:carol@example.org>;tag=c\r\nTo: <sip:carol@example.org>\r\nCall-ID: carol\r\nCSeq: 1 REGISTER\r\n\
         Contact: <sip:carol@{BOB}>;expires=3600\r\nContent-Length: 0\r\n\r\n"
    )
    .expect("a text takes all");
    assert!(site.receive(BOB, &register).starts_with("SIP/2.0 200 "));
}

fn to_carol(number: u32) -> String {
    invite(number, 1, "").replace("bob@example.org", "carol@example.org")
}

#[test]
fn calls_that_have_ended_take_no_share() {
    let mut site = site("auth.calls = false\n");
    for number in 1..=6 * u32::try_from(PLACES).expect("few") {
        let sent = site.receive(ALICE, &invite(number, 1, ""));
        let ok = site.receive(BOB, &from_phone(request(&sent, "INVITE"), "200 OK", "bob"));
        assert!(ok.starts_with("SIP/2.0 200 "), "{number}: {ok}");
        let bye = site.receive(ALICE, &of_alice("BYE", &ok, number + 1, ""));
        site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
        assert_eq!(counts(&site).0, 0, "{number}");
    }
}

#[test]
fn calls_of_one_source_or_to_one_account_leave_room_for_others() {
    for from in [
        // One address, an IPv6 network, and many addresses that call one account.
        (|_| "203.0.113.9:5060".to_owned()) as fn(u32) -> String,
        |number| format!("[2001:db8::{number:x}]:5060"),
        |number| format!("203.0.113.{}:5060", number % 250),
    ] {
        let mut site = site("auth.calls = false\n");
        register_carol(&mut site);
        let taken = fill(&mut site, 100, from);
        assert_eq!((taken, counts(&site).0), (PLACES / 2, PLACES / 2));
        let sent = site.receive(ALICE, &to_carol(1));
        let ok = site.receive(BOB, &from_phone(request(&sent, "INVITE"), "200 OK", "carol"));
        assert!(ok.starts_with("SIP/2.0 200 "), "{ok}");
        // A call that ends gives its place back.
        let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
        site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
        assert_eq!(counts(&site).0, PLACES / 2);
    }
}

#[test]
fn calls_of_an_account_count_for_it_from_wherever_they_come() {
    let mut site = site("");
    register_carol(&mut site);
    let challenged = site.receive(ALICE, &invite(1, 1, ""));
    let mut calls = 0;
    for number in 2..60 {
        // Each call goes to another number at a foreign address, so that no callee has many.
        let (from, uri) = (format!("198.51.100.{}:5060", 100 + number), format!("sip:n{number}@198.51.100.8"));
        let challenged = match number {
            2 => challenged.clone(),
            _ => site.receive(&from, &invite(number, 1, "").replace(ALICE, &from).replace("sip:bob@example.org", &uri)),
        };
        let credentials = credentials_of("alice", b"secret of alice", ("INVITE", &uri), &challenged, 1);
        let text = invite(number, 2, &credentials).replace("sip:bob@example.org", &uri);
        let text = if number == 2 { text } else { text.replace(ALICE, &from) };
        let from = if number == 2 { ALICE } else { &from };
        assert_eq!(site.receive(from, &text), "");
        let sent = site.answer();
        if sent.contains("SIP/2.0 503 ") {
            break;
        }
        assert!(sent.contains("INVITE sip:n"), "{sent}");
        calls += 1;
    }
    assert_eq!(calls, PLACES / 2);
}

#[test]
fn a_trusted_source_may_have_all_places() {
    let trusted = "[[source]]\nname = \"edge\"\nnetworks = [\"203.0.113.9/32\"]\ntrusted = true\n";
    let mut site = site(&format!("auth.calls = false\n{trusted}"));
    assert_eq!(fill(&mut site, 100, |_| "203.0.113.9:5060".to_owned()), PLACES);
}
