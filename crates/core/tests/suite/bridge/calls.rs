//! Calls from the INVITE to the BYE.

use super::rig::*;

use std::rc::Rc;
use strowger_core::b2bua::bridge::{BridgeEnd, BridgeEvent, Side};
use strowger_core::user_agent::{Content, Ending, Event, Invite, Reliability, UserAgentSettings};

#[test]
fn a_call_is_bridged_and_either_side_ends_it() {
    for ends in [NEAR, FAR] {
        let mut b2b = Bridged::new();
        let (near, far) = b2b.calling(&sdp(NEAR, 1, "0 8", "sendrecv"));
        let offer = text(&b2b.heard(FAR, |event| matches!(event, Event::Invited { .. })).body);
        assert!(offer.contains("m=audio 60000 RTP/AVP 0 8\r\n") && offer.contains("IN IP4 127.0.0.2\r\n"), "{offer}");
        b2b.net.with(FAR, |agent, round| agent.ring(round, far, 180, b""));
        b2b.run(50);
        assert!(matches!(b2b.net.last(NEAR).event, Event::Progress { status: 180, .. }));
        let answer = sdp(FAR, 1, "8", "sendrecv");
        b2b.net.with(FAR, |agent, round| agent.answer(round, far, &answer));
        b2b.run(100);
        assert!(matches!(b2b.net.last(NEAR).event, Event::Answered { offer: false, .. }));
        let answer = text(&b2b.net.last(NEAR).body);
        assert!(answer.contains("m=audio 50000 RTP/AVP 8\r\n"), "{answer}");
        let told = b2b.told();
        let (pair, streams) = told
            .iter()
            .find_map(|event| match event {
                BridgeEvent::SessionChanged { pair, streams } => Some((*pair, streams)),
                _ => None,
            })
            .expect("a session");
        let stream = streams[0].as_ref().expect("a stream");
        assert_eq!(stream.near.rtp, Some("127.0.0.1:40000".parse().expect("an address")));
        assert_eq!(stream.far.rtp, Some("127.0.0.3:42000".parse().expect("an address")));
        assert!(told.contains(&BridgeEvent::Answered { pair }));
        let (call, other) = if ends == NEAR { (near, FAR) } else { (far, NEAR) };
        let reason = b"Reason: Q.850;cause=16;text=\"127.0.0.1 127.0.0.3\"\r\n";
        b2b.net.with(ends, |agent, round| agent.hang_up_with(round, call, reason));
        b2b.run(100);
        assert!(matches!(b2b.net.last(other).event, Event::Ended { by: Ending::Remote, .. }));
        assert!(b2b.net.last(other).message.contains("\r\nReason: Q.850;cause=16\r\n"));
        let side = if ends == NEAR { Side::Near } else { Side::Far };
        assert_eq!(b2b.told(), [BridgeEvent::Ended { pair, by: BridgeEnd::Side(side) }]);
        b2b.is_clean();
    }
}

/// RFC 3262 on either side, on both or on none; 183 with a description, then 180.
#[test]
fn early_media_pass_with_and_without_100rel() {
    for (near_reliable, far_reliable) in [(false, false), (true, false), (false, true), (true, true)] {
        let reliability = |is| if is { Reliability::Supported } else { Reliability::Required };
        let bridge = UserAgentSettings { reliability: reliability(near_reliable), ..quiet() };
        let far = UserAgentSettings { reliability: reliability(far_reliable), ..quiet() };
        let mut b2b = Bridged::of([quiet(), bridge, far], FAR);
        let (near, far) = b2b.calling(&sdp(NEAR, 1, "0 8", "sendrecv"));
        let answer = sdp(FAR, 1, "0", "sendrecv");
        b2b.net.with(FAR, |agent, round| {
            agent.ring(round, far, 183, &answer);
            agent.ring(round, far, 180, b"");
        });
        b2b.run(200);
        let early = b2b.heard(NEAR, |event| matches!(event, Event::Progress { status: 183, .. })).body.clone();
        assert!(text(&early).contains("m=audio 50000 RTP/AVP 0\r\n"), "{}", text(&early));
        assert!(matches!(b2b.net.last(NEAR).event, Event::Progress { status: 180, .. }));
        assert_eq!(b2b.count("0>1 PRACK") > 0, near_reliable);
        assert_eq!(b2b.count("1>2 PRACK") > 0, far_reliable);
        b2b.net.with(FAR, |agent, round| agent.answer(round, far, &answer));
        b2b.run(200);
        let body = &b2b.heard(NEAR, |event| matches!(event, Event::Answered { .. })).body;
        assert!(*body == if near_reliable { Vec::new() } else { early }, "{}", text(body));
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        b2b.is_clean();
    }
}

/// Section 9: a CANCEL is carried over; a 2xx that crosses it gets ACK and BYE.
#[test]
fn a_cancel_ends_both_legs() {
    for is_crossed in [false, true] {
        let mut b2b = Bridged::new();
        let (near, far) = b2b.calling(&sdp(NEAR, 1, "0", "sendrecv"));
        b2b.net.with(FAR, |agent, round| agent.ring(round, far, 180, b""));
        b2b.run(50);
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        if is_crossed {
            b2b.run(15);
            let answer = sdp(FAR, 1, "0", "sendrecv");
            b2b.net.with(FAR, |agent, round| agent.answer(round, far, &answer));
        }
        b2b.run(1_000);
        assert_eq!(b2b.count("1>0 487 INVITE"), 1, "{:?}", b2b.net.log);
        assert_eq!(b2b.count("1>2 CANCEL"), 1, "{:?}", b2b.net.log);
        assert_eq!(b2b.count("1>2 BYE"), usize::from(is_crossed), "{:?}", b2b.net.log);
        assert!(matches!(b2b.net.last(FAR).event, Event::Ended { .. }));
        b2b.is_clean();
    }
}

#[test]
fn a_refusal_passes_with_the_listed_fields() {
    for (status, expected) in
        [(486, 486), (404, 404), (603, 603), (503, 500), (407, 403), (401, 403), (420, 500), (422, 500)]
    {
        let mut b2b = Bridged::new();
        let (_, far) = b2b.calling(&sdp(NEAR, 1, "0", "sendrecv"));
        let lines = b"Reason: Q.850;cause=17;text=\"at 127.0.0.3\"\r\nRetry-After: 9 (127.0.0.3)\r\n\
            Warning: 370 127.0.0.3 \"Bandwidth\"\r\nError-Info: <sip:no@127.0.0.3>\r\n";
        b2b.net.with(FAR, |agent, round| agent.reject_with(round, far, status, lines));
        b2b.run(100);
        let last = b2b.net.last(NEAR);
        assert!(matches!(last.event, Event::Failed { status, .. } if status == expected), "{:?}", last.event);
        for line in ["Reason: Q.850;cause=17", "Retry-After: 9", "Warning: 370 b2bua \"\""] {
            assert!(last.message.contains(&format!("\r\n{line}\r\n")), "{line}: {}", last.message);
        }
        b2b.is_clean();
    }
}

#[test]
fn a_challenge_is_answered_by_the_account_of_the_far_call() {
    let mut b2b = Bridged::new();
    let account = b2b.net.with(BRIDGE, |agent, _| agent.add_account(b"trunk", b"secret"));
    b2b.account.set(Some(account));
    let (near, far) = b2b.calling(&sdp(NEAR, 1, "0", "sendrecv"));
    let challenge = b"Proxy-Authenticate: Digest realm=\"gateway\", nonce=\"n1\"\r\n";
    b2b.net.with(FAR, |agent, round| agent.reject_with(round, far, 407, challenge));
    b2b.run(100);
    let invited = b2b.heard(FAR, |event| matches!(event, Event::Invited { .. }));
    assert!(invited.message.contains("\r\nProxy-Authorization: Digest username=\"trunk\""), "{}", invited.message);
    let (far, answer) = (b2b.net.invited(FAR), sdp(FAR, 1, "0", "sendrecv"));
    b2b.net.with(FAR, |agent, round| agent.answer(round, far, &answer));
    b2b.run(100);
    assert!(matches!(b2b.net.last(NEAR).event, Event::Answered { .. }));
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

/// Section 8.3: the owner decides on a redirection; without a decision the caller gets 480.
#[test]
fn a_redirection_is_the_owners() {
    for is_tried in [true, false] {
        let mut b2b = Bridged::new();
        let (near, far) = b2b.calling(&sdp(NEAR, 1, "0", "sendrecv"));
        b2b.net.with(FAR, |agent, round| agent.ring(round, far, 180, b""));
        b2b.run(50);
        b2b.net.with(FAR, |agent, round| agent.reject_with(round, far, 302, b"Contact: <sip:eve@127.0.0.3>\r\n"));
        b2b.run(100);
        let told = b2b.told();
        let [BridgeEvent::Redirected { pair, status: 302, target }] = &told[..] else { panic!("{told:?}") };
        assert_eq!(target, b"sip:eve@127.0.0.3");
        if is_tried {
            let next = Invite { uri: Some(b"sip:eve@127.0.0.3"), ..far_call(&b2b.net, FAR) };
            let bridge = Rc::clone(&b2b.bridge);
            b2b.net.with(BRIDGE, |agent, round| bridge.borrow_mut().retry(agent, round, *pair, &next));
            b2b.run(50);
            let (far, answer) = (b2b.net.invited(FAR), sdp(FAR, 1, "0", "sendrecv"));
            b2b.net.with(FAR, |agent, round| agent.answer(round, far, &answer));
            b2b.run(100);
            assert!(matches!(b2b.net.last(NEAR).event, Event::Answered { .. }));
            assert!(text(&b2b.net.last(NEAR).body).contains("m=audio 50000 "));
            b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        } else {
            b2b.run(182_000);
            assert!(matches!(b2b.net.last(NEAR).event, Event::Failed { status: 480, .. }));
        }
        b2b.is_clean();
    }
}

#[test]
fn a_call_without_an_answer_ends() {
    let mut b2b = Bridged::new();
    let (_, far) = b2b.calling(&sdp(NEAR, 1, "0", "sendrecv"));
    b2b.net.with(FAR, |agent, round| agent.ring(round, far, 180, b""));
    b2b.run(182_000);
    assert!(matches!(b2b.net.last(NEAR).event, Event::Failed { status: 408, .. }));
    assert!(matches!(b2b.net.last(FAR).event, Event::Ended { by: Ending::Cancelled, .. }));
    b2b.is_clean();
}

/// A callee with early media that never answers holds ports for a bounded time.
#[test]
fn a_call_that_rings_on_and_on_ends() {
    let mut b2b = Bridged::new();
    let (_, far) = b2b.calling(&sdp(NEAR, 1, "0", "sendrecv"));
    let answer = sdp(FAR, 1, "0", "sendrecv");
    for _ in 0..6 {
        b2b.net.with(FAR, |agent, round| agent.ring(round, far, 183, &answer));
        b2b.run(99_000);
    }
    assert!(matches!(b2b.net.last(NEAR).event, Event::Progress { .. }));
    b2b.run(10_000);
    assert!(matches!(b2b.net.last(NEAR).event, Event::Failed { status: 408, .. }));
    assert!(matches!(b2b.net.last(FAR).event, Event::Ended { by: Ending::Cancelled, .. }));
    b2b.is_clean();
}

#[test]
fn what_cannot_be_bridged_is_refused() {
    let video = text(&sdp(NEAR, 1, "0", "sendrecv")).replace("m=audio", "m=video").into_bytes();
    for (offer, lines, expected) in [
        (b"garbage".to_vec(), &b""[..], 488),
        (video, b"", 488),
        (sdp(NEAR, 1, "0", "sendrecv"), b"Replaces: x@y;to-tag=a;from-tag=b\r\n", 481),
    ] {
        let mut b2b = Bridged::new();
        let target = b2b.net.target(BRIDGE);
        let from = b"<sip:alice@atlanta.example>";
        let invite = Invite { headers: lines, ..Invite::new(from, b"<sip:bob@127.0.0.2>", target, &offer) };
        b2b.net.with(NEAR, |agent, round| agent.invite(round, &invite)).expect("addresses");
        b2b.run(100);
        let last = b2b.net.last(NEAR).event;
        assert!(matches!(last, Event::Failed { status, .. } if status == expected), "{last:?}");
        assert_eq!(b2b.count("1>2 INVITE"), 0);
        b2b.is_clean();
    }
}

/// RFC 3261 section 21.5.3: what the far side has answered cannot be read, which is no fault of the near side. A lack of common codecs stays 488.
#[test]
fn an_unreadable_answer_of_the_far_side_is_a_502() {
    let video = text(&sdp(FAR, 1, "0", "sendrecv")).replace("m=audio", "m=video").into_bytes();
    for (offer, answer, expected) in [
        (sdp(NEAR, 1, "0", "sendrecv"), b"garbage".to_vec(), 502),
        (Vec::new(), b"garbage".to_vec(), 502),
        (Vec::new(), video, 488),
    ] {
        let mut b2b = Bridged::new();
        let (_, far) = b2b.calling(&offer);
        b2b.net.with(FAR, |agent, round| agent.answer(round, far, &answer));
        b2b.run(100);
        let last = b2b.net.last(NEAR).event;
        assert!(matches!(last, Event::Failed { status, .. } if status == expected), "{last:?}");
        assert!(matches!(b2b.net.last(FAR).event, Event::Ended { .. }), "{:?}", b2b.net.log);
        b2b.is_clean();
    }
}

/// A caller that disappears after the 200: both legs end.
#[test]
fn a_missing_ack_ends_both_legs() {
    let mut b2b = Bridged::new();
    b2b.net.lose = Box::new(|line| line == "0>1 ACK");
    let (_, far) = b2b.calling(&sdp(NEAR, 1, "0", "sendrecv"));
    let answer = sdp(FAR, 1, "0", "sendrecv");
    b2b.net.with(FAR, |agent, round| agent.answer(round, far, Content::from(&answer)));
    b2b.run(40_000);
    assert!(b2b.net.last(FAR).message.contains("\r\nReason: SIP;cause=408\r\n"), "{}", b2b.net.last(FAR).message);
    b2b.is_clean();
}
