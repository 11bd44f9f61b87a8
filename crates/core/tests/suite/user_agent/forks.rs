//! Early dialogs of a forked INVITE (RFC 3261 section 13.2.2.1): each is addressed by its number.

use super::rig::*;

use strowger_core::user_agent::{CallKey, Ending, Event, LegKey};
use strowger_message::Method;

/// Returns a phone whose INVITE rings at two places, which have answered its offer reliably, and the call.
fn forked() -> (Net, CallKey) {
    let mut net = Net::new([quiet()]);
    let target = net.target(8);
    let call = net.with(0, |agent, round| agent.invite(round, &invite(target, OFFER))).unwrap();
    for place in ["one", "two"] {
        let lines = format!("Contact: <sip:{place}@127.0.0.98>\nRequire: 100rel\nRSeq: 7\n");
        let text = respond(&net.sent[0], 183, &lines);
        net.inject(0, &with_body(&text.replace(";tag=peer", &format!(";tag={place}")), "v=0\n"));
    }
    net.sent.retain(|text| !text.starts_with("PRACK"));
    (net, call)
}

/// RFC 3311 section 5.1: an UPDATE goes in the early dialog that the owner names, with the numbers of that dialog.
#[test]
fn requests_go_in_the_dialog_that_is_named() {
    let (mut net, call) = forked();
    net.sent.clear();
    let leg = LegKey { call, leg: Some(1) };
    net.with(0, |agent, round| agent.update(round, leg, OFFER)).unwrap();
    net.with(0, |agent, round| agent.request_within(round, leg, Method::Info, b"", b"")).unwrap();
    net.with(0, |agent, round| agent.request_within(round, call, Method::Info, b"", b"")).unwrap();
    let gone = LegKey { call, leg: Some(2) };
    assert!(net.with(0, |agent, round| agent.request_within(round, gone, Method::Info, b"", b"")).is_err());
    for (sent, (start, tag, cseq)) in net.sent.iter().zip([
        ("UPDATE sip:two@127.0.0.98 ", ";tag=two\r\n", "CSeq: 3 UPDATE\r\n"),
        ("INFO sip:two@127.0.0.98 ", ";tag=two\r\n", "CSeq: 4 INFO\r\n"),
        ("INFO sip:one@127.0.0.98 ", ";tag=one\r\n", "CSeq: 3 INFO\r\n"),
    ]) {
        assert!(sent.starts_with(start) && sent.contains(tag) && sent.contains(cseq), "{start} {sent}");
    }
    assert_eq!(net.sent.len(), 3);
    // The answer closes the exchange of its dialog; that of the other one never began.
    let update = net.sent[0].clone();
    net.inject(0, &with_body(&respond(&update, 200, "Contact: <sip:two@127.0.0.98>\n"), "v=0\n"));
    assert!(matches!(net.last(0).event, Event::Changed { .. }) && net.last(0).leg == 1);
    for leg in [0, 1] {
        net.with(0, |agent, round| agent.update(round, LegKey { call, leg: Some(leg) }, OFFER)).unwrap();
    }
    net.lose = Box::new(|_| true);
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.is_clean();
}

/// RFC 3311 section 5.2: offers of two places at once are answered one by one; when one place has won, the other gets 481.
#[test]
fn each_place_gets_the_answer_to_its_own_offer() {
    let (mut net, call) = forked();
    let invite = net.sent[0].clone();
    let line = |name: &str| invite.lines().find_map(|line| line.strip_prefix(name)).expect("it has one");
    let (ours, call_id) = (line("From: "), line("Call-ID: "));
    let update = |place: &str, cseq: u32| {
        with_body(
            &format!(
                "UPDATE sip:alice@127.0.0.1 SIP/2.0\nVia: SIP/2.0/UDP 127.0.0.99;branch=z9hG4bK{place}{cseq}\nMax-Forwards: 70\n\
                 From: <sip:bob@biloxi.example>;tag={place}\nTo: {ours}\nCall-ID: {call_id}\nCSeq: {cseq} UPDATE\n\
                 Contact: <sip:{place}@127.0.0.98>\nContent-Length: 0\n\n"
            ),
            "v=0\n",
        )
    };
    for (leg, place) in ["one", "two"].into_iter().enumerate() {
        net.inject(0, &update(place, 1));
        assert!(matches!(net.last(0).event, Event::Offered { update: true, .. }) && net.last(0).leg == leg as u16);
    }
    net.sent.clear();
    net.with(0, |agent, round| agent.answer_update(round, LegKey { call, leg: Some(1) }, ANSWER));
    net.with(0, |agent, round| {
        agent.reject_update_with(round, LegKey { call, leg: Some(0) }, 488, b"Warning: 399 x \"no\"\r\n");
    });
    let is = |text: &str, parts: &[&str]| parts.iter().all(|part| text.contains(part));
    assert!(is(&net.sent[0], &["SIP/2.0 200 ", ";tag=two\r\n", "\r\n\r\nv=0"]), "{}", net.sent[0]);
    assert!(is(&net.sent[1], &["SIP/2.0 488 ", ";tag=one\r\n", "Warning: 399 x \"no\"\r\n"]), "{}", net.sent[1]);
    // An offer of the first place is open when the second one answers the call.
    net.inject(0, &update("one", 2));
    net.sent.clear();
    let ok = respond(&invite, 200, "Contact: <sip:two@127.0.0.98>\n").replace(";tag=peer", ";tag=two");
    net.inject(0, &ok);
    assert!(
        net.sent.iter().any(|text| is(text, &["SIP/2.0 481 ", ";tag=one\r\n", "CSeq: 2 UPDATE"])),
        "{:?}",
        net.sent
    );
    net.lose = Box::new(|_| true);
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.is_clean();
}

/// The reply to a request names the dialog of the request; so does a time-out. What happens later without a message is of no other dialog.
#[test]
fn a_reply_names_its_dialog() {
    let (mut net, call) = forked();
    net.sent.clear();
    for status in [200, 408] {
        let leg = LegKey { call, leg: Some(1) };
        net.with(0, |agent, round| agent.request_within(round, leg, Method::Info, b"", b"")).unwrap();
        if status == 200 {
            let ok = respond(&net.sent[0], 200, "");
            net.inject(0, &ok);
        } else {
            net.run(40_000);
        }
        let last = net.last(0);
        assert!(matches!(last.event, Event::Reply { status: of, .. } if of == status) && last.leg == 1, "{last:?}");
    }
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.run(40_000);
    assert_eq!((net.last(0).event, net.last(0).leg), (Event::Ended { call, by: Ending::Local }, 0));
    net.is_clean();
}

/// Section 15: a caller may end one early dialog by a BYE. The others ring on; a 2xx that crosses the BYE ends the call.
#[test]
fn one_early_dialog_is_ended() {
    for is_crossed in [false, true] {
        let (mut net, call) = forked();
        let invite = net.sent[0].clone();
        net.sent.clear();
        net.log.clear();
        let leg = LegKey { call, leg: Some(0) };
        net.with(0, |agent, round| agent.hang_up_leg(round, leg, b"Reason: SIP;cause=480\r\n")).unwrap();
        assert!(net.with(0, |agent, round| agent.hang_up_leg(round, leg, b"")).is_err());
        let bye = net.sent[0].clone();
        assert!(bye.starts_with("BYE sip:one@127.0.0.98 ") && bye.contains(";tag=one\r\n"), "{bye}");
        assert!(bye.contains("\r\nCSeq: 3 BYE\r\n") && bye.contains("\r\nReason: SIP;cause=480\r\n"), "{bye}");
        net.inject(0, &respond(&bye, 200, ""));
        assert!(matches!(net.last(0).event, Event::Reply { status: 200, .. }));
        let from = |place: &str, status: u16| {
            respond(&invite, status, "Contact: <sip:x@127.0.0.98>\n").replace(";tag=peer", &format!(";tag={place}"))
        };
        net.inject(0, &from("one", 180));
        assert!(matches!(net.last(0).event, Event::Reply { .. }), "its ringing is not reported");
        net.inject(0, &from(if is_crossed { "one" } else { "two" }, 200));
        if is_crossed {
            assert_eq!(net.log, ["0>? BYE", "0>? ACK", "0>? BYE"]);
            let again = &net.sent[2];
            assert!(again.contains(";tag=one\r\n") && again.contains("\r\nCSeq: 4 BYE\r\n"), "{again}");
        } else {
            assert_eq!(net.log, ["0>? BYE", "0>? ACK"]);
            assert!(matches!(net.last(0).event, Event::Answered { .. }) && net.last(0).leg == 1);
            net.with(0, |agent, round| agent.hang_up(round, call));
        }
        net.run(40_000);
        assert_eq!(net.last(0).event, Event::Ended { call, by: Ending::Local });
        net.is_clean();
    }
}

/// Places that ring, and end their dialogs by a BYE, do not let a call grow without bound.
#[test]
fn an_invite_begins_a_bounded_number_of_dialogs() {
    let mut net = Net::new([quiet()]);
    let target = net.target(8);
    let call = net.with(0, |agent, round| agent.invite(round, &invite(target, OFFER))).unwrap();
    let sent = net.sent[0].clone();
    let line = |name: &str| sent.lines().find_map(|line| line.strip_prefix(name)).expect("it has one");
    let (ours, call_id) = (line("From: "), line("Call-ID: "));
    for n in 0..70 {
        let ringing = respond(&sent, 180, "Contact: <sip:x@127.0.0.98>\n");
        net.inject(0, &ringing.replace(";tag=peer", &format!(";tag=place{n}")));
        net.inject(
            0,
            &format!(
                "BYE sip:alice@127.0.0.1 SIP/2.0\nVia: SIP/2.0/UDP 127.0.0.99;branch=z9hG4bKbye{n}\nMax-Forwards: 70\n\
                 From: <sip:bob@biloxi.example>;tag=place{n}\nTo: {ours}\nCall-ID: {call_id}\nCSeq: 1 BYE\n\
                 Content-Length: 0\n\n"
            ),
        );
    }
    let numbers: Vec<u16> = net.phones[0].heard.iter().map(|heard| heard.leg).collect();
    assert_eq!(numbers, (0..64).collect::<Vec<u16>>());
    assert_eq!(net.sent.iter().filter(|text| text.starts_with("SIP/2.0 200 ")).count(), 64);
    net.lose = Box::new(|_| true);
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.is_clean();
}

/// Section 13.2.2.4: further 2xx get an ACK and a BYE, but only a limited number at a time.
#[test]
fn a_flood_of_answers_causes_few_requests() {
    let (mut net, call) = forked();
    let sent = net.sent[0].clone();
    for n in 0..40 {
        let ok = respond(&sent, 200, "Contact: <sip:x@127.0.0.98>\n");
        net.inject(0, &ok.replace(";tag=peer", &format!(";tag=place{n}")));
    }
    assert_eq!(net.log.iter().filter(|line| *line == "0>? BYE").count(), 16);
    assert_eq!(net.log.iter().filter(|line| *line == "0>? ACK").count(), 17);
    net.lose = Box::new(|_| true);
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.is_clean();
}

/// Section 12.2.1.1: the BYE to a place that answers too late has a CSeq above those in its early dialog, also after the end of the call. A callee
/// would refuse another one, and hold a call that nobody ends.
#[test]
fn the_end_of_a_dialog_that_has_lost_has_a_new_cseq() {
    for is_over in [false, true] {
        let (mut net, call) = forked();
        let invite = net.sent[0].clone();
        let leg = LegKey { call, leg: Some(0) };
        net.with(0, |agent, round| agent.request_within(round, leg, Method::Info, b"", b"")).unwrap();
        let info = &net.sent[1];
        assert!(info.contains(";tag=one\r\n") && info.contains("\r\nCSeq: 3 INFO\r\n"), "{info}");
        let answer_of = |place: &str| {
            respond(&invite, 200, "Contact: <sip:x@127.0.0.98>\n").replace(";tag=peer", &format!(";tag={place}"))
        };
        net.inject(0, &answer_of("two"));
        if is_over {
            net.with(0, |agent, round| agent.hang_up(round, call));
            let bye = net.sent.last().expect("a BYE").clone();
            net.inject(0, &respond(&bye, 200, ""));
            assert_eq!(net.phones[0].endpoint.agent.calls(), 0);
        }
        net.sent.clear();
        net.inject(0, &answer_of("one"));
        let [ack, bye] = &net.sent[..] else { panic!("{:?}", net.sent) };
        assert!(ack.contains(";tag=one\r\n") && ack.contains("\r\nCSeq: 1 ACK\r\n"), "{ack}");
        assert!(bye.starts_with("BYE ") && bye.contains(";tag=one\r\n"), "{bye}");
        let cseq = bye.lines().find_map(|line| line.strip_prefix("CSeq: ")?.strip_suffix(" BYE")?.parse::<u32>().ok());
        assert!(cseq.is_some_and(|cseq| cseq > 3), "{bye}");
        let ok = respond(bye, 200, "");
        net.inject(0, &ok);
        net.with(0, |agent, round| agent.hang_up(round, call));
        net.is_clean();
    }
}

/// Section 12.2.1.2: a 481 in an early dialog that has lost is not the end of the call.
#[test]
fn a_refusal_in_a_dialog_that_has_lost_ends_no_call() {
    let (mut net, call) = forked();
    let leg = LegKey { call, leg: Some(0) };
    net.with(0, |agent, round| agent.request_within(round, leg, Method::Info, b"", b"")).unwrap();
    let (invite, info) = (net.sent[0].clone(), net.sent[1].clone());
    net.inject(0, &respond(&invite, 200, "Contact: <sip:two@127.0.0.98>\n").replace(";tag=peer", ";tag=two"));
    net.inject(0, &respond(&info, 481, ""));
    assert!(matches!(net.last(0).event, Event::Reply { status: 481, .. }) && net.last(0).leg == 0);
    assert!(!net.log.contains(&"0>? BYE".to_owned()), "{:?}", net.log);
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.is_clean();
}

/// A callee does not evade that number by another Call-ID in each 2xx.
#[test]
fn an_answer_with_another_call_id_makes_no_dialog() {
    for is_first in [true, false] {
        let (mut net, call) = forked();
        let sent = net.sent[0].clone();
        let call_id = sent.lines().find_map(|line| line.strip_prefix("Call-ID: ")).expect("it has one").to_owned();
        let ok = respond(&sent, 200, "Contact: <sip:x@127.0.0.98>\n");
        if !is_first {
            net.inject(0, &ok);
        }
        for n in 0..40 {
            let other = ok.replace(";tag=peer", &format!(";tag=place{n}"));
            net.inject(0, &other.replace(&format!("Call-ID: {call_id}"), &format!("Call-ID: other{n}")));
        }
        let count = |line: &str| net.log.iter().filter(|sent| *sent == line).count();
        assert_eq!((count("0>? ACK"), count("0>? BYE")), (usize::from(!is_first), 0), "{:?}", net.log);
        if is_first {
            assert!(matches!(net.last(0).event, Event::Failed { status: 502, .. }));
        }
        net.lose = Box::new(|_| true);
        net.with(0, |agent, round| agent.hang_up(round, call));
        net.is_clean();
    }
}
