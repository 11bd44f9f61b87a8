//! Messages of parties that would get around the bridge, its proxy or its accounting, and callers whose address may be forged.

use super::*;
use std::time::Duration;
use strowger_core::transaction::MOST_TIMES;

/// Returns a response without the Via of the proxy: it names the transaction of the user agent, whose Via the callee sees.
fn past_proxy(response: &str, request: &Got) -> String {
    response.replacen(&format!("Via: {}\r\n", request.all("Via")[0]), "", 1)
}

/// Without the proxy the call would have no record, and its BYE could go to any address.
#[test]
fn a_callee_cannot_answer_past_the_proxy() {
    let site = bridge("", "");
    let bob = registered(&site);
    let (alice, bob, _, far) = invited(&site, &bob);
    assert_eq!(far.all("Via").len(), 2, "{}", far.0);
    let ok = bob.response(&far, 200, &format!("Contact: <sip:phone@{}>\n", bob.address));
    bob.send(&past_proxy(&with_body(&ok, &sdp(5_000, 1, "")), &far));
    bob.send(&past_proxy(&bob.response(&far, 603, ""), &far));
    bob.hears_nothing();
    respond(bob, &far, 180, "");
    assert_eq!(alice.answer().status(), 180);
    bob.respond(&far, 486, "");
    gets(bob, "ACK");
    assert_eq!(alice.answer().status(), 486);
    let record = record(&site);
    assert_eq!((&*record.outcome, record.status), ("missed", 486));
}

#[test]
fn a_callee_sends_no_request_in_the_name_of_the_user_agent() {
    let site = bridge("", "");
    let bob = registered(&site);
    let (alice, bob, call, far) = invited(&site, &bob);
    respond(bob, &far, 180, "");
    assert_eq!(alice.answer().status(), 180);
    for method in ["CANCEL", "INVITE", "OPTIONS"] {
        let names = ["From", "To", "Call-ID"].map(|name| format!("{name}: {}\r\n", far.one(name))).concat();
        let cseq = far.one("CSeq").replace("INVITE", method);
        bob.send(&format!(
            "{method} {} SIP/2.0\r\nVia: {}\r\nMax-Forwards: 70\r\n{names}CSeq: {cseq}\r\nContent-Length: 0\r\n\r\n",
            far.uri(),
            far.all("Via")[1]
        ));
        bob.hears_nothing();
    }
    // The CANCEL of the caller is no copy of that one.
    alice.send(&alice.text(&call).replace("INVITE", "CANCEL"));
    assert_eq!([(); 2].map(|()| alice.answer().status()), [200, 487]);
    let cancel = gets(bob, "CANCEL");
    bob.respond(&cancel, 200, "");
    bob.respond(&far, 487, "");
    gets(bob, "ACK");
    assert_eq!(&*record(&site).outcome, "cancelled");
}

/// The callee could take it for a new call, with its own Contact and description.
#[test]
fn an_invite_of_an_unknown_dialog_does_not_reach_the_callee() {
    let site = bridge("", "");
    let bob = registered(&site);
    let caller = site.foreign_phone();
    let call = Call { to: "<sip:bob@example.org>;tag=there".into(), ..caller.call("INVITE", "sip:bob@example.org") };
    say(&caller, &call, &sdp(4_000, 1, ""));
    assert_eq!(caller.answer().status(), 481);
    bob.hears_nothing();
    // Other requests outside of a call are forwarded.
    caller.send(&caller.text(&caller.call("MESSAGE", "sip:bob@example.org")));
    bob.respond(&gets(&bob, "MESSAGE"), 200, "");
    assert_eq!(caller.answer().status(), 200);
}

/// RFC 3261 section 26.1.4: the tags are the proof of a party, which may come from another address than before.
#[test]
fn a_request_within_a_call_needs_its_tags_from_any_address() {
    let site = bridge("", "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    let elsewhere = site.foreign_phone();
    let tag = call.ok.one("To").split(";tag=").nth(1).expect("a tag");
    let guessed = elsewhere.text(&call.of_alice("BYE", 1)).replace(tag, "0123456789abcdef");
    elsewhere.send(&guessed);
    assert!(elsewhere.answer().status() >= 400);
    call.bob.hears_nothing();
    assert_eq!(site.calls().len(), 1);
    elsewhere.send(&elsewhere.text(&call.of_alice("BYE", 2)));
    let bye = gets(call.bob, "BYE");
    call.bob.respond(&bye, 200, "");
    assert_eq!(elsewhere.answer().status(), 200);
}

/// Returns the bytes of the responses and the number of BYEs that a caller gets who answers nothing.
fn heard_in_vain(site: &Site, caller: &Phone) -> (usize, usize) {
    site.wait(Duration::from_secs(70));
    let (mut bytes, mut byes) = (0, 0);
    while let Some(got) = caller.within(Duration::from_millis(300)) {
        match got.status() {
            0 => byes += usize::from(got.method() == "BYE"),
            _ => bytes += got.0.len(),
        }
    }
    (bytes, byes)
}

#[test]
fn a_caller_that_may_be_forged_gets_few_copies() {
    for acknowledges in [false, true] {
        let site = bridge("", "");
        let bob = registered(&site);
        let caller = site.foreign_phone();
        let call = caller.call("INVITE", "sip:bob@example.org");
        let invite = with_body(&caller.text(&call), &sdp(4_000, 1, ""));
        caller.send(&invite);
        let far = gets(&bob, "INVITE");
        respond(&bob, &far, 200, &sdp(5_000, 1, ""));
        gets(&bob, "ACK");
        if acknowledges {
            let ok = caller.answer();
            caller.send(&caller.text(&call.within(&ok, "ACK", 1)));
            site.end_call(site.calls()[0].id);
        }
        let (bytes, byes) = heard_in_vain(&site, &caller);
        if acknowledges {
            assert!(byes > 5, "its source is proved: {byes}");
        } else {
            assert!((1..=MOST_TIMES * invite.len()).contains(&bytes), "{bytes} for {}", invite.len());
            assert_eq!(byes, 1);
        }
    }
}
