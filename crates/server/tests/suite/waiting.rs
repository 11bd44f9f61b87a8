//! Requests that wait for an answer, which allocate nothing once warm. The allocations of an engine alone are counted
//! on its thread.

use crate::site::*;
use std::sync::atomic::Ordering::Relaxed;
use strowger_store::error::StoreError;

fn message(number: u32, cseq: u32, more: &str) -> String {
    format!(
        "MESSAGE sip:bob@example.org SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK{number}-{cseq};rport\r\n\
         From: <sip:alice@example.org>;tag=a\r\nTo: <sip:bob@example.org>\r\nCall-ID: {number}\r\nCSeq: {cseq} MESSAGE\r\n\
         Max-Forwards: 70\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

/// Writes alice's message with this password.
fn with_password(password: &[u8], number: u32, challenged: &str, nc: u32) -> String {
    message(number, 2, &credentials(password, "MESSAGE", challenged, nc))
}

fn authorized(number: u32, challenged: &str, nc: u32) -> String {
    with_password(b"secret of alice", number, challenged, nc)
}

/// Starts a site at which bob is registered. Returns also the response to alice's first message.
fn with_bob() -> (Site, String) {
    let mut site = Site::new("timers.t1 = \"10ms\"\n");
    site.register(&format!("<sip:bob@{BOB}>"));
    let challenged = site.receive(ALICE, &message(0, 1, ""));
    (site, challenged)
}

#[test]
fn copies_of_a_request_that_waits_are_one_request() {
    let (mut site, challenged) = with_bob();
    let text = authorized(1, &challenged, 1);
    for _ in 0..3 {
        assert_eq!(site.receive(ALICE, &text), "");
    }
    let forwarded = site.answer();
    assert_eq!(forwarded.matches("MESSAGE sip:bob@").count(), 1, "{forwarded}");
    assert_eq!(site.receive(ALICE, &text), "");
}

#[test]
fn copies_of_a_request_that_is_held_back_are_one_request() {
    let (mut site, challenged) = with_bob();
    assert_eq!(site.receive(ALICE, &authorized(1, &challenged, 1)), "");
    // The next request of this call, without credentials.
    let next = message(1, 3, "");
    for _ in 0..3 {
        assert_eq!(site.receive(ALICE, &next), "");
    }
    assert_eq!(site.engines[0].waiting().held, 1);
    let gone_on = site.answer();
    assert_eq!(gone_on.matches("MESSAGE sip:bob@").count(), 1, "{gone_on}");
    assert_eq!(gone_on.matches("SIP/2.0 407 ").count(), 1, "{gone_on}");
    assert!(site.engines[0].waiting().is_nothing());
}

#[test]
fn a_copy_of_a_failed_request_fails_too() {
    let (mut site, challenged) = with_bob();
    let text = authorized(1, &challenged, 1);
    // One request waits; a copy of it comes before the answer and one after it.
    assert_eq!(site.receive(ALICE, &text), "");
    assert_eq!(site.receive(ALICE, &text), "");
    let unavailable = site.says(Err(StoreError::Unavailable));
    let failed = site.work(|engine, now, out| engine.answered(now, unavailable, out));
    assert_eq!(failed.matches("SIP/2.0 500 ").count(), 1, "{failed}");
    assert_eq!(site.receive(ALICE, &text), failed);
    // The request waits for nothing more, and no timer retransmits the response.
    site.wait(5_000);
    assert!(site.out.is_empty());
}

#[test]
fn guesses_that_wait_together_are_judged_up_to_the_ban() {
    let (mut site, challenged) = with_bob();
    let mut tickets = Vec::new();
    // The same number of calls, and the same number of messages of one call.
    for number in 1..=60 {
        let text = with_password(b"wrong", number.min(30), &challenged, number);
        let text = text.replace("CSeq: 2 ", &format!("CSeq: {} ", number + 1)).replace("-2;", &format!("-{number};"));
        assert_eq!(site.receive(ALICE, &text), "");
        tickets.push(site.database.last.load(Relaxed));
    }
    tickets.dedup();
    assert_eq!(tickets.len(), 30);
    let mut judged = 0;
    for mut ticket in tickets {
        site.database.last.store(ticket, Relaxed);
        loop {
            judged += site.answer().matches("SIP/2.0 407 ").count();
            // The message that is held behind the request asks next.
            let next = site.database.last.load(Relaxed);
            if next == ticket {
                break;
            }
            ticket = next;
        }
    }
    assert_eq!(judged, 10, "ban.failures");
    assert!(site.engines[0].waiting().is_nothing());
    site.wait(60_000);
    assert_eq!(site.engines[0].transactions().counts().servers, 0);
}

#[test]
fn a_request_that_waits_costs_no_allocation() {
    let (mut site, challenged) = with_bob();
    let text = authorized(0, &challenged, 1);
    assert_eq!(site.receive(ALICE, &text), "");
    let message = |number| authorized(number, &challenged, number + 1);
    Site::allocates_nothing(site.allocations(message, |site| site.known()));
}
