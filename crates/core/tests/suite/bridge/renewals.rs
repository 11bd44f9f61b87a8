//! Sides that are out of step, and streams that change their kind.

use super::changes::change;
use super::rig::*;

use strowger_core::b2bua::bridge::BridgeEvent;
use strowger_core::b2bua::negotiation::StreamTransport;
use strowger_core::user_agent::{CallKey, Content, Event, UserAgentSettings};

/// Returns an established call whose bridge and far phone answer each INVITE with 100, so that a CANCEL goes out at once.
fn trying() -> (Bridged, CallKey, CallKey) {
    let settings = UserAgentSettings::default;
    let mut b2b = Bridged::of([quiet(), settings(), settings()], FAR);
    let (near, far) = b2b.up();
    (b2b, near, far)
}

/// RFC 3261 section 9.1: the CANCEL of a re-INVITE goes to the other side, for each side and for a re-INVITE without offer.
#[test]
fn a_reinvite_that_is_cancelled_is_cancelled_on_the_other_leg() {
    for (side, other) in [(NEAR, FAR), (FAR, NEAR)] {
        for offer in [sdp(side, 2, "8", "sendrecv"), Vec::new()] {
            let mut b2b = Bridged::of([(); 3].map(|()| UserAgentSettings::default()), FAR);
            let (near, far) = b2b.up();
            let (call, peer) = if side == NEAR { (near, far) } else { (far, near) };
            b2b.net.with(side, |agent, round| agent.reinvite(round, call, &offer)).expect("no other change");
            b2b.run(100);
            assert!(b2b.net.with(side, |agent, round| agent.withdraw(round, call)));
            b2b.run(200);
            assert_eq!(b2b.count(&format!("1>{other} CANCEL")), 1, "{:?}", b2b.net.log);
            assert_eq!(b2b.net.last(other).event, Event::Withdrawn { call: peer });
            assert!(matches!(b2b.net.last(side).event, Event::Unchanged { status: 487, .. }), "{:?}", b2b.net.log);
            let (offer, answer) = (sdp(other, 2, "0", "sendonly"), sdp(side, 3, "0", "recvonly"));
            let (_, reply) = change(&mut b2b, (other, peer), (side, call), (&offer, &answer), false);
            assert!(reply.contains("\r\na=recvonly\r\n"), "{reply}");
            b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
            b2b.is_clean();
        }
    }
}

/// The far side has accepted a change that the near side has cancelled: the bridge offers it the agreed description again.
#[test]
fn a_2xx_that_crosses_the_cancel_is_taken_back() {
    let (mut b2b, near, far) = trying();
    let hold = sdp(NEAR, 2, "0 8", "sendonly");
    b2b.net.with(NEAR, |agent, round| agent.reinvite(round, near, &hold)).expect("no other change");
    b2b.run(100);
    assert!(b2b.net.with(NEAR, |agent, round| agent.withdraw(round, near)));
    b2b.run(15);
    let answer = sdp(FAR, 2, "0", "recvonly");
    b2b.net.with(FAR, |agent, round| agent.answer(round, far, &answer));
    b2b.run(100);
    let offered = b2b.heard(FAR, |event| matches!(event, Event::Offered { .. }));
    assert!(text(&offered.body).contains("\r\na=sendrecv\r\n"), "{}", text(&offered.body));
    let answer = sdp(FAR, 3, "0", "sendrecv");
    b2b.net.with(FAR, |agent, round| agent.answer(round, far, &answer));
    b2b.run(100);
    let told = b2b.told();
    let last = told.iter().rev().find_map(|event| match event {
        BridgeEvent::SessionChanged { streams, .. } => streams[0].as_ref(),
        _ => None,
    });
    let last = last.expect("a session");
    assert!(last.near.sends && last.near.receives && last.far.sends && last.far.receives, "{last:?}");
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

/// A side refuses UPDATE although its Allow lists it: the same offer goes in a re-INVITE, and so does the next one at once.
#[test]
fn a_refused_update_becomes_a_reinvite() {
    let mut b2b = Bridged::new();
    let (near, far) = b2b.up();
    let mut capabilities = quiet().capabilities;
    capabilities.allow = b"INVITE, ACK, CANCEL, BYE".to_vec();
    b2b.net.with(FAR, |agent, _| agent.set_capabilities(far, capabilities));
    for (format, version) in [("8", 2), ("0", 3)] {
        let (offer, answer) = (sdp(NEAR, version, format, "sendrecv"), sdp(FAR, version, format, "sendrecv"));
        b2b.net.with(NEAR, |agent, round| agent.update(round, near, &offer)).expect("no other change");
        b2b.run(100);
        let offered = b2b.net.last(FAR);
        assert!(matches!(offered.event, Event::Offered { update: false, .. }), "{:?}", b2b.net.log);
        assert!(text(&offered.body).contains(&format!(" RTP/AVP {format}\r\n")));
        // The Allow of this answer lists UPDATE once more.
        let content = Content { headers: b"Allow: UPDATE\r\n", body: &answer, ..Content::default() };
        b2b.net.with(FAR, |agent, round| agent.answer(round, far, content));
        b2b.run(100);
        assert!(matches!(b2b.net.last(NEAR).event, Event::Changed { .. }), "{:?}", b2b.net.log);
        assert_eq!(b2b.count("1>2 UPDATE"), 1, "{:?}", b2b.net.log);
    }
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

#[test]
fn a_stream_keeps_its_family() {
    let mut b2b = Bridged::new();
    let (near, _) = b2b.up();
    let offer = text(&sdp(NEAR, 2, "0 8", "sendrecv")).replace("IN IP4 127.0.0.1", "IN IP6 2001:db8::1").into_bytes();
    b2b.net.with(NEAR, |agent, round| agent.reinvite(round, near, &offer)).expect("no other change");
    b2b.run(100);
    let heard = b2b.heard(NEAR, |event| matches!(event, Event::Unchanged { status: 488, .. }));
    assert!(heard.message.contains("\r\nWarning: 301 b2bua "), "{}", heard.message);
    assert_eq!(b2b.count("1>2 INVITE"), 1);
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

/// T.38 annex D: a fax begins as audio; its packets pass unread if the policy lists `image`.
#[test]
fn a_fax_passes_if_the_policy_says_so() {
    for is_listed in [true, false] {
        let mut b2b = Bridged::new();
        b2b.policy.borrow_mut().media_types.extend(is_listed.then(|| "image".into()));
        let (near, far) = b2b.up();
        b2b.told();
        let fax = |phone: usize| {
            let (address, port) = (phone + 1, 40_000 + 1_000 * phone);
            format!(
                "v=0\r\no=- {port} 2 IN IP4 127.0.0.{address}\r\ns=-\r\nc=IN IP4 127.0.0.{address}\r\nt=0 0\r\n\
                 m=image {port} udptl t38\r\na=T38FaxVersion:0\r\na=T38FaxRateManagement:transferredTCF\r\n"
            )
            .into_bytes()
        };
        b2b.net.with(FAR, |agent, round| agent.reinvite(round, far, &fax(FAR))).expect("no other change");
        b2b.run(100);
        if is_listed {
            let offered = text(&b2b.heard(NEAR, |event| matches!(event, Event::Offered { .. })).body);
            assert!(offered.contains("m=image 50000 udptl t38\r\na=T38FaxVersion:0\r\n"), "{offered}");
            b2b.net.with(NEAR, |agent, round| agent.answer(round, near, &fax(NEAR)));
            b2b.run(100);
            let reply = text(&b2b.heard(FAR, |event| matches!(event, Event::Changed { .. })).body);
            assert!(reply.contains("m=image 60000 udptl t38\r\n"), "{reply}");
            let told = b2b.told();
            let [BridgeEvent::SessionChanged { streams, .. }] = &told[..] else { panic!("{told:?}") };
            let stream = streams[0].as_ref().expect("a stream");
            assert_eq!(stream.near.transport, StreamTransport::Datagram);
            assert_eq!(stream.far.rtp, Some("127.0.0.3:42000".parse().expect("an address")));
        } else {
            b2b.heard(FAR, |event| matches!(event, Event::Unchanged { status: 488, .. }));
            assert!(b2b.told().is_empty() && b2b.count("1>0 INVITE") == 0);
        }
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        b2b.is_clean();
    }
}
