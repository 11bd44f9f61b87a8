//! Changes of the session within the call.

use super::rig::*;

use strowger_core::b2bua::bridge::BridgeEvent;
use strowger_core::user_agent::{CallKey, Event, Reliability, UserAgentSettings};

/// Offers a change from one side, and answers it at the other. Returns what the other side was offered, and the answer.
pub(super) fn change(
    b2b: &mut Bridged,
    (side, call): (usize, CallKey),
    (other, peer): (usize, CallKey),
    (offer, answer): (&[u8], &[u8]),
    is_update: bool,
) -> (String, String) {
    b2b.net.with(side, |agent, round| match is_update {
        true => agent.update(round, call, offer).expect("no other change"),
        false => agent.reinvite(round, call, offer).expect("no other change"),
    });
    b2b.run(100);
    let offered = b2b.net.last(other);
    let Event::Offered { update, .. } = offered.event else { panic!("{:?}", b2b.net.log) };
    let offered = text(&offered.body);
    b2b.net.with(other, |agent, round| match update {
        true => agent.answer_update(round, peer, answer),
        false => agent.answer(round, peer, answer),
    });
    b2b.run(100);
    let changed = b2b.heard(side, |event| matches!(event, Event::Changed { .. }));
    (offered, text(&changed.body))
}

/// RFC 3264 section 8.4 and RFC 2543: hold by each form, by each side, then resume.
#[test]
fn either_side_holds_and_resumes() {
    for (side, other) in [(NEAR, FAR), (FAR, NEAR)] {
        for (form, there, back, answered) in [
            ("sendonly", "sendonly", "recvonly", "recvonly"),
            ("inactive", "inactive", "inactive", "inactive"),
            ("0.0.0.0", "sendonly", "recvonly", "recvonly"),
            // A phone that forgets the hold: the direction is repaired.
            ("sendonly", "sendonly", "sendrecv", "recvonly"),
        ] {
            let mut b2b = Bridged::new();
            let (near, far) = b2b.up();
            let calls = if side == NEAR { (near, far) } else { (far, near) };
            let held = if form == "0.0.0.0" { held_by_address(side, 2) } else { sdp(side, 2, "0", form) };
            let answer = sdp(other, 2, "0", back);
            let sides = ((side, calls.0), (other, calls.1));
            let (offer, reply) = change(&mut b2b, sides.0, sides.1, (&held, &answer), false);
            assert!(offer.contains(&format!("\r\na={there}\r\n")), "{form}: {offer}");
            assert!(reply.contains(&format!("\r\na={answered}\r\n")), "{form}: {reply}");
            let (resumed, answer) = (sdp(side, 3, "0", "sendrecv"), sdp(other, 3, "0", "sendrecv"));
            let (offer, reply) = change(&mut b2b, sides.0, sides.1, (&resumed, &answer), false);
            for text in [offer, reply] {
                assert!(text.contains("\r\na=sendrecv\r\n"), "{form}: {text}");
            }
            b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
            b2b.is_clean();
        }
    }
}

/// RFC 3311: UPDATE where both sides allow it, else a re-INVITE on the other leg. A new codec is never answered by the old one.
#[test]
fn an_update_is_carried_over() {
    for (side, other) in [(NEAR, FAR), (FAR, NEAR)] {
        for allows in [true, false] {
            let mut settings = [quiet(), quiet(), quiet()];
            if !allows {
                settings[other].capabilities.allow = b"INVITE, ACK, CANCEL, BYE, PRACK".to_vec();
            }
            let mut b2b = Bridged::of(settings, FAR);
            let (near, far) = b2b.up();
            b2b.net.log.clear();
            b2b.net.sent.clear();
            let calls = if side == NEAR { (near, far) } else { (far, near) };
            let (offer, answer) = (sdp(side, 2, "8", "sendrecv"), sdp(other, 2, "8", "sendrecv"));
            let (offered, reply) = change(&mut b2b, (side, calls.0), (other, calls.1), (&offer, &answer), true);
            assert!(offered.contains(" RTP/AVP 8\r\n") && reply.contains(" RTP/AVP 8\r\n"), "{offered}{reply}");
            let (update, reinvite) = (b2b.count(&format!("1>{other} UPDATE")), b2b.count(&format!("1>{other} INVITE")));
            assert_eq!((update, reinvite), (usize::from(allows), usize::from(!allows)), "{:?}", b2b.net.log);
            b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
            b2b.is_clean();
        }
    }
}

/// RFC 3261 section 14.1: a re-INVITE without offer gets the offer of the other side, and the answer goes there in the ACK.
#[test]
fn a_reinvite_without_offer_asks_the_other_side() {
    for (side, other) in [(NEAR, FAR), (FAR, NEAR)] {
        let mut b2b = Bridged::new();
        let (near, far) = b2b.up();
        let (call, peer) = if side == NEAR { (near, far) } else { (far, near) };
        b2b.net.with(side, |agent, round| agent.reinvite(round, call, b"")).expect("no other change");
        b2b.run(50);
        assert!(matches!(b2b.net.last(other).event, Event::Offered { update: false, .. }));
        assert!(b2b.net.last(other).body.is_empty());
        let offer = sdp(other, 2, "8 0", "sendrecv");
        b2b.net.with(other, |agent, round| agent.answer(round, peer, &offer));
        b2b.run(50);
        let heard = b2b.net.last(side);
        assert!(matches!(heard.event, Event::Answered { offer: true, .. }), "{:?}", b2b.net.log);
        assert!(text(&heard.body).contains(" RTP/AVP 8 0\r\n"), "{}", text(&heard.body));
        let answer = sdp(side, 2, "8", "sendrecv");
        b2b.net.with(side, |agent, round| agent.acknowledge(round, call, &answer));
        b2b.run(50);
        let heard = b2b.net.last(other);
        assert!(matches!(heard.event, Event::Confirmed { .. }) && text(&heard.body).contains(" RTP/AVP 8\r\n"));
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        b2b.is_clean();
    }
}

/// Section 14.1: offers of both sides at once are refused on both legs, and each side may try again.
#[test]
fn glare_between_the_legs_is_refused_on_both() {
    let mut b2b = Bridged::new();
    let (near, far) = b2b.up();
    for (n, call) in [(NEAR, near), (FAR, far)] {
        let offer = sdp(n, 2, "0", "sendonly");
        b2b.net.with(n, |agent, round| agent.reinvite(round, call, &offer)).expect("no other change");
    }
    b2b.run(500);
    for n in [NEAR, FAR] {
        b2b.heard(n, |event| matches!(event, Event::Unchanged { status: 491, .. }));
    }
    let (offer, answer) = (sdp(NEAR, 3, "0", "sendonly"), sdp(FAR, 3, "0", "recvonly"));
    let (offered, _) = change(&mut b2b, (NEAR, near), (FAR, far), (&offer, &answer), false);
    assert!(offered.contains("\r\na=sendonly\r\n"));
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

/// RFC 4028 section 7.4: an offer that changes nothing stays on its leg.
#[test]
fn a_refresh_stays_on_its_leg() {
    for (side, other) in [(NEAR, FAR), (FAR, NEAR)] {
        let mut b2b = Bridged::new();
        let (near, far) = b2b.up();
        let call = if side == NEAR { near } else { far };
        let before = b2b.net.sent.len();
        let same = if side == NEAR { sdp(NEAR, 1, "0 8", "sendrecv") } else { sdp(FAR, 1, "0", "sendrecv") };
        b2b.net.with(side, |agent, round| agent.reinvite(round, call, &same)).expect("no other change");
        b2b.run(100);
        let body = text(&b2b.heard(side, |event| matches!(event, Event::Changed { .. })).body);
        assert!(body.contains(" RTP/AVP 0\r\n"), "{body}");
        let others = b2b.net.log[before..].iter().filter(|line| line.starts_with(&format!("1>{other}")));
        assert_eq!(others.count(), 0, "{:?}", b2b.net.log);
        b2b.net.with(side, |agent, round| agent.update(round, call, b"")).expect("no other change");
        b2b.run(100);
        assert!(b2b.net.log[before..].iter().all(|line| !line.starts_with(&format!("1>{other}"))));
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        b2b.is_clean();
    }
}

/// A new port of one side changes the media; the other side is not asked.
#[test]
fn a_new_port_changes_the_session_alone() {
    let mut b2b = Bridged::new();
    let (near, _) = b2b.up();
    b2b.told();
    let moved = text(&sdp(NEAR, 2, "0 8", "sendrecv")).replace("m=audio 40000", "m=audio 40010").into_bytes();
    b2b.net.with(NEAR, |agent, round| agent.reinvite(round, near, &moved)).expect("no other change");
    b2b.run(100);
    let told = b2b.told();
    let [BridgeEvent::SessionChanged { streams, .. }] = &told[..] else { panic!("{told:?}") };
    let port = streams[0].as_ref().and_then(|stream| stream.near.rtp).map(|rtp| rtp.port());
    assert_eq!(port, Some(40_010));
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

/// RFC 3264 section 8: a refused offer changes nothing on either leg.
#[test]
fn a_refused_change_leaves_the_session() {
    for is_update in [true, false] {
        let mut b2b = Bridged::new();
        let (near, far) = b2b.up();
        let offer = sdp(FAR, 2, "8", "sendrecv");
        b2b.net.with(FAR, |agent, round| match is_update {
            true => agent.update(round, far, &offer).expect("no other change"),
            false => agent.reinvite(round, far, &offer).expect("no other change"),
        });
        b2b.run(50);
        b2b.told();
        let warning = b"Warning: 305 127.0.0.1 \"no\"\r\n";
        b2b.net.with(NEAR, |agent, round| match is_update {
            true => agent.reject_update_with(round, near, 488, warning),
            false => agent.reject_with(round, near, 488, warning),
        });
        b2b.run(50);
        let heard = b2b.heard(FAR, |event| matches!(event, Event::Unchanged { status: 488, .. }));
        assert!(heard.message.contains("\r\nWarning: 305 b2bua \"\"\r\n"), "{}", heard.message);
        assert!(b2b.told().is_empty());
        let (offer, answer) = (sdp(NEAR, 2, "0", "sendonly"), sdp(FAR, 3, "0", "recvonly"));
        let (_, reply) = change(&mut b2b, (NEAR, near), (FAR, far), (&offer, &answer), is_update);
        assert!(reply.contains("\r\na=recvonly\r\n"), "{reply}");
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        b2b.is_clean();
    }
}

/// A side that never answers a change ends the call: the wait has a moment of its end.
#[test]
fn a_change_without_answer_ends_the_call() {
    let mut b2b = Bridged::of([quiet(), UserAgentSettings::default(), UserAgentSettings::default()], FAR);
    let (near, _) = b2b.up();
    let offer = sdp(NEAR, 2, "8", "sendrecv");
    b2b.net.with(NEAR, |agent, round| agent.reinvite(round, near, &offer)).expect("no other change");
    b2b.run(100);
    assert!(matches!(b2b.net.last(FAR).event, Event::Offered { .. }));
    b2b.run(185_000);
    for n in [NEAR, FAR] {
        assert!(matches!(b2b.net.last(n).event, Event::Ended { .. }), "{:?}", b2b.net.log);
    }
    b2b.is_clean();
}

/// RFC 3311 section 5.1: before the answer, an UPDATE is carried over where the other side has shown that it allows it.
#[test]
fn an_early_update_is_carried_over() {
    for allows in [true, false] {
        let reliability = Reliability::Supported;
        let settings = || UserAgentSettings { reliability, ..quiet() };
        let mut b2b = Bridged::of([quiet(), settings(), settings()], FAR);
        let (near, far) = b2b.calling(&sdp(NEAR, 1, "0 8", "sendrecv"));
        let answer = sdp(FAR, 1, "0", "sendrecv");
        let headers: &[u8] = if allows { b"Allow: INVITE, UPDATE\r\n" } else { b"" };
        let early = strowger_core::user_agent::Content { headers, body: &answer, ..Default::default() };
        b2b.net.with(FAR, |agent, round| agent.ring(round, far, 183, early));
        b2b.run(100);
        let offer = sdp(NEAR, 2, "8", "sendrecv");
        b2b.net.with(NEAR, |agent, round| agent.update(round, near, &offer)).expect("no other change");
        b2b.run(50);
        if allows {
            let heard = b2b.heard(FAR, |event| matches!(event, Event::Offered { update: true, .. }));
            assert!(text(&heard.body).contains(" RTP/AVP 8\r\n"));
            let answer = sdp(FAR, 2, "8", "sendrecv");
            b2b.net.with(FAR, |agent, round| agent.answer_update(round, far, &answer));
            b2b.run(50);
            let heard = b2b.heard(NEAR, |event| matches!(event, Event::Changed { .. }));
            assert!(text(&heard.body).contains(" RTP/AVP 8\r\n"));
        } else {
            let heard = b2b.heard(NEAR, |event| matches!(event, Event::Unchanged { status: 500, .. }));
            assert!(heard.message.contains("\r\nRetry-After: 5\r\n"));
        }
        b2b.net.with(FAR, |agent, round| agent.answer(round, far, b""));
        b2b.run(100);
        assert!(matches!(b2b.net.last(NEAR).event, Event::Answered { .. }), "{:?}", b2b.net.log);
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        b2b.is_clean();
    }
}
