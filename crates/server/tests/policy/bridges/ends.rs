//! Moves of bridged calls, and ends that no phone asked for.

use super::*;
use std::time::Duration;
use strowger_media::session::{SessionEnd, SessionEvent, Side};

fn silence(key: SessionKey, side: Side) -> SessionEvent {
    SessionEvent::Silent { key, end: SessionEnd::Silence(side) }
}

#[test]
fn a_call_moves_with_its_bucket() {
    let site = bridge("server.shards = 2\n", "");
    let bob = registered(&site);
    // Their buckets are of both shards.
    for _ in 0..8 {
        let ringing = invited(&site, &bob);
        site.move_calls();
        let call = answer(ringing);
        let (key, _) = set(&site);
        site.move_calls();
        call.alice.send(&call.alice.text(&call.of_alice("INFO", 1)));
        let info = gets(call.bob, "INFO");
        site.move_calls();
        call.bob.respond(&info, 200, "");
        assert_eq!(call.alice.answer().status(), 200);
        say(&call.alice, &call.of_alice("UPDATE", 2), &sdp(4_000, 2, "a=sendonly\r\n"));
        let reinvite = gets(call.bob, "INVITE");
        site.move_calls();
        respond(call.bob, &reinvite, 200, &sdp(5_000, 2, "a=recvonly\r\n"));
        gets(call.bob, "ACK");
        assert_eq!(call.alice.answer().status(), 200);
        let orders = site.media_orders();
        assert!(matches!(orders[..], [SessionOrder::Set { version: 2, .. }]), "{orders:?}");
        assert_eq!(call.bob.ask(&call.of_bob("BYE")).status(), 200);
        let bye = gets(&call.alice, "BYE");
        assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
        site.move_calls();
        call.alice.respond(&bye, 200, "");
        assert_eq!(&*record(&site).ended_by, "callee");
    }
}

#[test]
fn a_call_without_media_of_a_side_is_ended() {
    for (side, ended_by) in [(Side::Near, "caller"), (Side::Far, "callee")] {
        let site = bridge("media.timeout = \"10s\"\n", "");
        let bob = registered(&site);
        let (alice, bob, call, far) = invited(&site, &bob);
        // Early media: a phone need not send before the answer.
        respond(bob, &far, 183, &sdp(5_000, 1, ""));
        assert_eq!(alice.answer().status(), 183);
        let (key, _) = set(&site);
        site.media_event(silence(key, side));
        site.settle();
        assert_eq!((site.media_orders(), site.calls().len()), (Vec::new(), 1));
        let call = answer((alice, bob, call, far));
        site.media_event(silence(key, side));
        assert_eq!(call.hung_up(), [(); 2].map(|()| "Q.850;cause=41;text=\"no media\"".to_owned()));
        assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
        let record = record(&site);
        assert_eq!((&*record.outcome, &*record.ended_by, record.cause), ("answered", ended_by, 41));
    }
}

/// A callee that refuses the only stream (RFC 3264 section 6): the media thread knows the session, and tells that it has no stream for too long.
#[test]
fn a_call_without_an_open_stream_has_a_session_that_ends_it() {
    let site = bridge("", "");
    let bob = registered(&site);
    let (alice, bob, call, far) = invited(&site, &bob);
    respond(bob, &far, 200, &sdp(0, 1, ""));
    gets(bob, "ACK");
    let ok = alice.answer();
    assert!(ok.status() == 200 && body(&ok).contains("m=audio 0 "), "{}", ok.0);
    alice.send(&alice.text(&call.within(&ok, "ACK", call.cseq)));
    let orders = site.media_orders();
    let [SessionOrder::Set { key, streams, .. }] = &orders[..] else { panic!("{orders:?}") };
    assert!(streams.iter().all(Option::is_none), "{streams:?}");
    site.media_event(silence(*key, Side::Near));
    let call = Bridged { alice, bob, call, far, ok };
    assert_eq!(call.hung_up(), [(); 2].map(|()| "Q.850;cause=41;text=\"no media\"".to_owned()));
    assert_eq!(site.media_orders(), [SessionOrder::Close { key: *key }]);
}

/// RFC 3261 section 13.3.1.4: the callee does not wait for the response to the BYE of the caller.
#[test]
fn a_caller_that_sends_no_ack_ends_the_call_of_the_callee_at_once() {
    let site = bridge("", "");
    let bob = registered(&site);
    let (_alice, bob, _, far) = invited(&site, &bob);
    respond(bob, &far, 200, &sdp(5_000, 1, ""));
    gets(bob, "ACK");
    let (key, _) = set(&site);
    site.wait(Duration::from_secs(31));
    assert_eq!(site.media_orders(), []);
    let bye = gets(bob, "BYE");
    assert_eq!(bye.one("Reason"), "SIP;cause=408");
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }]);
    bob.respond(&bye, 200, "");
    // The BYE of the caller gets no response.
    site.wait(Duration::from_secs(33));
    let record = record(&site);
    assert_eq!((&*record.outcome, &*record.ended_by), ("answered", "caller"));
}

/// RFC 3262 section 3: a caller that supports reliable responses gets them, and its PRACK ends at this server.
#[test]
fn a_caller_with_100rel_hears_reliably_that_it_rings() {
    let site = bridge("", "");
    let bob = registered(&site);
    for is_supported in [true, false] {
        let alice = site.phone("alice");
        let mut call = invite_of(&alice, "bob");
        call.lines.push_str(if is_supported { "Supported: 100rel\n" } else { "" });
        say(&alice, &call, &sdp(4_000, 1, ""));
        let far = gets(&bob, "INVITE");
        respond(&bob, &far, 180, "");
        let ringing = alice.answer();
        assert_eq!((ringing.status(), ringing.all("Require")), (180, vec!["100rel"; usize::from(is_supported)]));
        if is_supported {
            let mut prack = call.within(&ringing, "PRACK", call.cseq + 1);
            prack.lines += &format!("RAck: {} {} INVITE\n", ringing.one("RSeq"), call.cseq);
            assert_eq!(alice.ask(&prack).status(), 200);
        }
        bob.respond(&far, 486, "");
        gets(&bob, "ACK");
        assert_eq!(alice.answer().status(), 486);
    }
}

#[test]
fn an_operator_ends_a_call_that_rings_and_one_that_is_up() {
    let site = bridge("", "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    let (key, _) = set(&site);
    site.end_call(site.calls()[0].id);
    assert_eq!(site.media_orders(), [SessionOrder::Close { key }], "the responses to the BYEs are not awaited");
    assert_eq!(call.hung_up(), [(); 2].map(|()| "Q.850;cause=31".to_owned()));
    let ended = record(&site);
    assert_eq!((&*ended.outcome, &*ended.ended_by), ("answered", "operator"));

    let (alice, bob, _, far) = invited(&site, &bob);
    respond(bob, &far, 180, "");
    assert_eq!(alice.answer().status(), 180);
    site.end_call(site.calls()[0].id);
    assert_eq!(alice.answer().status(), 487);
    bob.respond(&gets(bob, "CANCEL"), 200, "");
    bob.respond(&far, 487, "");
    gets(bob, "ACK");
    site.settle();
    assert_eq!((site.calls().len(), site.counts().calls_bridged, site.media_orders()), (0, 0, Vec::new()));
}

#[test]
fn a_call_that_is_not_acknowledged_ends_on_both_sides() {
    let site = bridge("", "");
    let bob = registered(&site);
    let (alice, bob, _, far) = invited(&site, &bob);
    respond(bob, &far, 200, &sdp(5_000, 1, ""));
    gets(bob, "ACK");
    site.wait(Duration::from_secs(33));
    // Behind the copies of the 200.
    let bye = loop {
        let got = alice.next();
        if got.status() == 0 {
            break got;
        }
    };
    assert_eq!(bye.method(), "BYE", "{}", bye.0);
    alice.respond(&bye, 200, "");
    let bye = gets(bob, "BYE");
    assert_eq!(bye.one("Reason"), "SIP;cause=408");
    bob.respond(&bye, 200, "");
    let record = record(&site);
    assert_eq!((&*record.outcome, &*record.ended_by), ("answered", "caller"));
}

#[test]
fn a_server_that_is_about_to_end_serves_the_calls_that_it_has() {
    let site = bridge("", "");
    let bob = registered(&site);
    let call = answered(&site, &bob);
    site.drain();
    call.alice.send(&call.alice.text(&call.of_alice("INFO", 1)));
    let info = gets(call.bob, "INFO");
    call.bob.respond(&info, 200, "");
    assert_eq!(call.alice.answer().status(), 200);
    let refusal = refused(&site.foreign_phone(), &sdp(4_000, 1, ""));
    assert_eq!((refusal.status(), site.calls().len()), (503, 1));
    call.end();
    assert_eq!(&*record(&site).outcome, "answered");
}

/// RFC 3261 section 12.1.1: a response without Contact names no target. The PRACK goes to the phone that has sent it.
#[test]
fn a_prack_without_a_contact_goes_to_the_phone_that_rings() {
    let site = bridge("", "");
    let bob = registered(&site);
    let (alice, bob, _, far) = invited(&site, &bob);
    bob.send(&with_body(&bob.response(&far, 183, "Require: 100rel\nRSeq: 7\n"), &sdp(5_000, 1, "")));
    let prack = gets(bob, "PRACK");
    let uri = prack.0.split(' ').nth(1).expect("a URI");
    assert!(uri.starts_with("sip:") && uri.contains(&bob.address.to_string()), "{}", prack.0);
    bob.send(&bob.response(&prack, 200, ""));
    assert_eq!(alice.answer().status(), 183);
    bob.send(&bob.response(&far, 486, ""));
    assert_eq!(alice.answer().status(), 486);
}
