//! Forks of the far INVITE: the near side sees one dialog.

use super::rig::*;

use crate::written::Process;
use strowger_core::b2bua::bridge::BridgeEvent;
use strowger_core::record;
use strowger_core::user_agent::{CallKey, Event, Reliability, UserAgentSettings};

/// Header lines of a reliable response.
pub(super) const RELIABLE: &str = "Require: 100rel\nRSeq: 7\n";

/// Returns a bridge whose far INVITE has no phone, after the call of the near side. `reliable`: whether the near side gets reliable
/// provisional responses.
pub(super) fn forked(reliable: bool, offer: &[u8]) -> (Bridged, CallKey) {
    let reliability = if reliable { Reliability::Supported } else { Reliability::Required };
    let mut b2b = Bridged::of([quiet(), UserAgentSettings { reliability, ..quiet() }, quiet()], NO_PHONE);
    let near = b2b.net.call(offer);
    b2b.run(50);
    (b2b, near)
}

/// Sends a response of one of the places where the far INVITE has arrived. `format`: payload type of its description, if it has
/// one; `port`: its port.
pub(super) fn place(b2b: &mut Bridged, place: &str, status: u16, lines: &str, description: Option<(&str, u16)>) {
    let at = b2b.net.log.iter().position(|line| line == "1>? INVITE").expect("a far INVITE");
    let lines = format!("Contact: <sip:{place}@127.0.0.98>\n{lines}");
    let mut text = respond(&b2b.net.sent[at], status, &lines).replace(";tag=peer", &format!(";tag={place}"));
    if let Some((format, port)) = description {
        let body = format!(
            "v=0\no=- {port} 1 IN IP4 127.0.0.98\ns=-\nc=IN IP4 127.0.0.98\nt=0 0\nm=audio {port} RTP/AVP {format}\na=sendrecv\n"
        );
        text = with_body(&text, &body);
    }
    b2b.net.inject(BRIDGE, &text);
    b2b.run(100);
}

/// Returns the port of the far side in the last session of which the owner knows.
fn far_port(b2b: &Bridged) -> Option<u16> {
    b2b.told().iter().rev().find_map(|event| match event {
        BridgeEvent::SessionChanged { streams, .. } => Some(streams.first()?.as_ref()?.far.rtp?.port()),
        _ => None,
    })
}

fn bodies(b2b: &Bridged) -> Vec<bool> {
    let progress = |heard: &Heard| match heard.event {
        Event::Progress { .. } => Some(!heard.body.is_empty()),
        _ => None,
    };
    b2b.net.phones[NEAR].heard.iter().filter_map(progress).collect()
}

/// Returns the sent PRACKs.
pub(super) fn pracks(b2b: &Bridged) -> Vec<String> {
    let sent = b2b.net.log.iter().zip(&b2b.net.sent);
    sent.filter(|(line, _)| *line == "1>? PRACK").map(|(_, text)| text.clone()).collect()
}

fn ends(mut b2b: Bridged, near: CallKey) {
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

/// Places with the same codec: the near side has one answer; the media go where the call was answered.
#[test]
fn places_with_one_codec_need_no_new_description() {
    let (mut b2b, near) = forked(false, &sdp(NEAR, 1, "0 8", "sendrecv"));
    place(&mut b2b, "one", 183, "", Some(("0", 7_000)));
    assert_eq!(far_port(&b2b), Some(7_000));
    place(&mut b2b, "two", 183, "", Some(("0", 7_002)));
    place(&mut b2b, "one", 180, "", None);
    assert_eq!(bodies(&b2b), [true, false, false]);
    place(&mut b2b, "two", 200, "", Some(("0", 7_002)));
    assert_eq!(far_port(&b2b), Some(7_002));
    assert_eq!((b2b.count("1>0 200 INVITE"), b2b.count("1>0 INVITE")), (1, 0), "{:?}", b2b.net.log);
    ends(b2b, near);
}

/// RFC 3311: another codec of a second place is offered by an UPDATE, if the near side can be sent one.
#[test]
fn another_codec_is_offered_by_an_update() {
    let (mut b2b, near) = forked(true, &sdp(NEAR, 1, "0 8", "sendrecv"));
    place(&mut b2b, "one", 183, "", Some(("0", 7_000)));
    place(&mut b2b, "two", 183, "", Some(("8", 7_002)));
    let offered = b2b.heard(NEAR, |event| matches!(event, Event::Offered { update: true, .. }));
    assert!(text(&offered.body).contains(" RTP/AVP 8\r\n"));
    let answer = sdp(NEAR, 2, "8", "sendrecv");
    b2b.net.with(NEAR, |agent, round| agent.answer_update(round, near, &answer));
    b2b.run(50);
    assert_eq!(far_port(&b2b), Some(7_002));
    place(&mut b2b, "two", 200, "", Some(("8", 7_002)));
    assert!(matches!(b2b.net.last(NEAR).event, Event::Answered { .. }), "{:?}", b2b.net.log);
    assert_eq!(b2b.count("1>0 INVITE"), 0);
    ends(b2b, near);
}

/// RFC 3311 section 5.2: an UPDATE of the near side crosses that of the bridge; both are refused, and the bridge offers once more.
#[test]
fn an_update_that_crosses_ours_delays_it() {
    let (mut b2b, near) = forked(true, &sdp(NEAR, 1, "0 8", "sendrecv"));
    place(&mut b2b, "one", 183, "", Some(("0", 7_000)));
    let offer = sdp(NEAR, 2, "0", "sendonly");
    b2b.net.with(NEAR, |agent, round| agent.update(round, near, &offer)).expect("no other change");
    place(&mut b2b, "two", 183, "", Some(("8", 7_002)));
    assert_eq!(b2b.count("0>1 491 UPDATE"), 1, "{:?}", b2b.net.log);
    b2b.heard(NEAR, |event| matches!(event, Event::Unchanged { status: 491, .. }));
    // RFC 3261 section 14.1: within two seconds. A later copy of it is a retransmission.
    for _ in 0..42 {
        if b2b.count("1>0 UPDATE") == 1 {
            b2b.run(50);
        }
    }
    assert_eq!(b2b.count("1>0 UPDATE"), 2, "{:?}", b2b.net.log);
    let offered = b2b.heard(NEAR, |event| matches!(event, Event::Offered { update: true, .. }));
    assert!(text(&offered.body).contains(" RTP/AVP 8\r\n"));
    let answer = sdp(NEAR, 3, "8", "sendrecv");
    b2b.net.with(NEAR, |agent, round| agent.answer_update(round, near, &answer));
    b2b.run(50);
    assert_eq!(far_port(&b2b), Some(7_002));
    ends(b2b, near);
}

/// RFC 3261 section 13.2.1: without 100rel the 200 repeats the first answer; the other one is offered after the ACK.
#[test]
fn another_codec_is_offered_after_the_ack() {
    let (mut b2b, near) = forked(false, &sdp(NEAR, 1, "0 8", "sendrecv"));
    place(&mut b2b, "one", 183, "", Some(("0", 7_000)));
    place(&mut b2b, "two", 183, "", Some(("8", 7_002)));
    assert_eq!(bodies(&b2b), [true, false]);
    place(&mut b2b, "two", 200, "", Some(("8", 7_002)));
    let answered = text(&b2b.heard(NEAR, |event| matches!(event, Event::Answered { .. })).body);
    assert!(answered.contains(" RTP/AVP 0\r\n"), "{answered}");
    let offered = text(&b2b.heard(NEAR, |event| matches!(event, Event::Offered { update: false, .. })).body);
    assert!(offered.contains(" RTP/AVP 8\r\n"), "{offered}");
    let answer = sdp(NEAR, 2, "8", "sendrecv");
    b2b.net.with(NEAR, |agent, round| agent.answer(round, near, &answer));
    b2b.run(50);
    assert_eq!(far_port(&b2b), Some(7_002));
    ends(b2b, near);
}

/// A new port in the 200 of the same place counts.
#[test]
fn the_port_of_the_final_answer_counts() {
    let (mut b2b, near) = forked(false, &sdp(NEAR, 1, "0", "sendrecv"));
    place(&mut b2b, "one", 183, "", Some(("0", 7_000)));
    place(&mut b2b, "one", 200, "", Some(("0", 7_010)));
    assert_eq!(far_port(&b2b), Some(7_010));
    ends(b2b, near);
}

/// RFC 3262 section 5: the offer of each place is answered by the near side, one after the other.
#[test]
fn each_place_has_the_answer_to_its_own_offer() {
    let (mut b2b, near) = forked(true, b"");
    b2b.net.phones[NEAR].auto_answer = false;
    for (name, formats, port) in [("one", "0", 7_000), ("two", "8 0", 7_002)] {
        place(&mut b2b, name, 183, RELIABLE, Some((formats, port)));
    }
    let heard = b2b.heard(NEAR, |event| matches!(event, Event::Progress { .. }));
    assert!(matches!(heard.event, Event::Progress { offer: true, .. }));
    let answer = sdp(NEAR, 1, "0", "sendrecv");
    b2b.net.with(NEAR, |agent, round| agent.prack(round, near, &answer)).expect("a PRACK is due");
    b2b.run(100);
    let sent = pracks(&b2b);
    assert!(sent.iter().all(|text| text.contains(";tag=one\r\n") && text.contains("m=audio 60000 ")), "{sent:?}");
    assert!(!sent.is_empty());
    let offered = text(&b2b.heard(NEAR, |event| matches!(event, Event::Offered { update: true, .. })).body);
    assert!(offered.contains(" RTP/AVP 8 0\r\n"), "{offered}");
    let answer = sdp(NEAR, 2, "8", "sendrecv");
    b2b.net.with(NEAR, |agent, round| agent.answer_update(round, near, &answer));
    b2b.run(20);
    let sent = pracks(&b2b);
    let last = sent.last().expect("a PRACK");
    assert!(last.contains(";tag=two\r\n") && last.contains("m=audio 60000 RTP/AVP 8\r\n"), "{last}");
    place(&mut b2b, "two", 200, "", None);
    assert!(matches!(b2b.net.last(NEAR).event, Event::Answered { offer: false, .. }), "{:?}", b2b.net.log);
    assert_eq!(far_port(&b2b), Some(7_002));
    ends(b2b, near);
}

/// A second offer that changes nothing for the near side gets the answer that the near side gave to the first.
#[test]
fn equal_offers_of_two_places_are_one_for_the_near_side() {
    let (mut b2b, near) = forked(true, b"");
    b2b.net.phones[NEAR].auto_answer = false;
    for (name, port) in [("one", 7_000), ("two", 7_002)] {
        place(&mut b2b, name, 183, RELIABLE, Some(("0", port)));
    }
    let answer = sdp(NEAR, 1, "0", "sendrecv");
    b2b.net.with(NEAR, |agent, round| agent.prack(round, near, &answer)).expect("a PRACK is due");
    b2b.run(100);
    let sent = pracks(&b2b);
    for name in ["one", "two"] {
        let is_to = |text: &&String| text.contains(&format!(";tag={name}\r\n")) && text.contains("m=audio 60000 ");
        assert_eq!(sent.iter().filter(is_to).count(), 1, "{sent:?}");
    }
    assert_eq!(b2b.count("1>0 UPDATE"), 0);
    place(&mut b2b, "one", 200, "", None);
    assert!(matches!(b2b.net.last(NEAR).event, Event::Answered { offer: false, .. }), "{:?}", b2b.net.log);
    assert_eq!(far_port(&b2b), Some(7_000));
    ends(b2b, near);
}

/// A callee may answer from as many places as it likes, each with a description that the bridge would keep.
#[test]
fn descriptions_of_many_places_take_little_memory() {
    let (mut b2b, near) = forked(false, &sdp(NEAR, 1, "0 8", "sendrecv"));
    for number in 0..60 {
        place(&mut b2b, &format!("p{number}"), 183, "", Some(("0", 7_000 + 2 * number)));
    }
    assert_eq!(bodies(&b2b).len(), 60, "each rings");
    place(&mut b2b, "p59", 200, "", Some(("0", 7_118)));
    assert_eq!(far_port(&b2b), Some(7_118));
    ends(b2b, near);

    let (mut b2b, _) = forked(false, &sdp(NEAR, 1, "0 8", "sendrecv"));
    for number in 0..60 {
        place(&mut b2b, &format!("p{number}"), 183, "", Some(("0", 7_000 + 2 * number)));
    }
    let kept = b2b.bridge.borrow_mut().export(b2b.net.now, |_| true);
    let bytes = record::write(kept, &Process(0)).len();
    assert!(bytes < 15_000, "{bytes}");
}
