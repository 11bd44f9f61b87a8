//! Moves of pairs in each of their stages to another shard.

use super::rig::*;

use std::rc::Rc;
use strowger_core::Now;
use strowger_core::b2bua::bridge::{Bridge, BridgeEnd, BridgeEvent, BridgeSettings, Side};
use strowger_core::user_agent::{Event, Invite, MovedCalls, Reliability, UserAgentSettings};
use strowger_message::Method;

/// A far call that rings, with a reliable answer on both legs whose PRACKs are still on their way.
#[test]
fn a_call_that_rings() {
    let settings = || UserAgentSettings { reliability: Reliability::Supported, ..quiet() };
    let mut b2b = Bridged::of([settings(), settings(), settings()], FAR);
    let (near, far) = b2b.calling(&sdp(NEAR, 1, "0 8", "sendrecv"));
    let answer = sdp(FAR, 1, "0", "sendrecv");
    b2b.moves();
    b2b.net.with(FAR, |agent, round| agent.ring(round, far, 183, &answer));
    b2b.run(15);
    b2b.moves();
    b2b.run(100);
    b2b.net.with(FAR, |agent, round| agent.answer(round, far, b""));
    b2b.run(100);
    let heard = b2b.heard(NEAR, |event| matches!(event, Event::Progress { status: 183, .. }));
    assert!(text(&heard.body).contains("m=audio 50000 RTP/AVP 0\r\n"));
    assert!(matches!(b2b.net.last(NEAR).event, Event::Answered { .. }), "{:?}", b2b.net.log);
    let [pair] = b2b.moves()[..] else { panic!("one pair") };
    let told = b2b.told();
    assert!(told.contains(&BridgeEvent::Answered { pair: pair.1 }), "{told:?}");
    assert!(told.iter().all(|event| event.pair() == pair.1), "{told:?}");
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.run(100);
    assert_eq!(b2b.told(), [BridgeEvent::Ended { pair: pair.1, by: BridgeEnd::Side(Side::Near) }]);
    b2b.is_clean();
}

#[test]
fn a_redirection_that_waits_for_the_owner() {
    let mut b2b = Bridged::new();
    let (near, far) = b2b.calling(&sdp(NEAR, 1, "0", "sendrecv"));
    b2b.net.with(FAR, |agent, round| agent.reject_with(round, far, 302, b"Contact: <sip:eve@127.0.0.3>\r\n"));
    b2b.run(100);
    let [(_, key)] = b2b.moves()[..] else { panic!("one pair") };
    let told = b2b.told();
    assert!(matches!(told[..], [BridgeEvent::Redirected { pair, status: 302, .. }] if pair == key), "{told:?}");
    let next = Invite { uri: Some(b"sip:eve@127.0.0.3"), ..far_call(&b2b.net, FAR) };
    let bridge = Rc::clone(&b2b.bridge);
    b2b.net.with(BRIDGE, |agent, round| bridge.borrow_mut().retry(agent, round, key, &next));
    b2b.run(50);
    let (far, answer) = (b2b.net.invited(FAR), sdp(FAR, 1, "0", "sendrecv"));
    b2b.net.with(FAR, |agent, round| agent.answer(round, far, &answer));
    b2b.run(100);
    assert!(matches!(b2b.net.last(NEAR).event, Event::Answered { .. }), "{:?}", b2b.net.log);
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

/// A re-INVITE with an offer, and one that asks for an offer, are answered after the move.
#[test]
fn an_open_exchange() {
    for has_offer in [true, false] {
        let mut b2b = Bridged::new();
        let (near, far) = b2b.up();
        let offer = if has_offer { sdp(NEAR, 2, "8", "sendrecv") } else { Vec::new() };
        b2b.net.with(NEAR, |agent, round| agent.reinvite(round, near, &offer)).expect("no other change");
        b2b.run(50);
        b2b.moves();
        let description = sdp(FAR, 2, "8", "sendrecv");
        b2b.net.with(FAR, |agent, round| agent.answer(round, far, &description));
        b2b.run(50);
        b2b.moves();
        if has_offer {
            let heard = b2b.heard(NEAR, |event| matches!(event, Event::Changed { .. }));
            assert!(text(&heard.body).contains(" RTP/AVP 8\r\n"));
        } else {
            let heard = b2b.net.last(NEAR);
            assert!(matches!(heard.event, Event::Answered { offer: true, .. }), "{:?}", b2b.net.log);
            let answer = sdp(NEAR, 2, "8", "sendrecv");
            b2b.net.with(NEAR, |agent, round| agent.acknowledge(round, near, &answer));
            b2b.run(50);
            let heard = b2b.net.last(FAR);
            assert!(matches!(heard.event, Event::Confirmed { .. }) && text(&heard.body).contains(" RTP/AVP 8\r\n"));
        }
        b2b.net.with(FAR, |agent, round| agent.hang_up(round, far));
        b2b.is_clean();
    }
}

#[test]
fn a_request_that_was_carried_over() {
    let mut b2b = Bridged::new();
    b2b.net.phones[FAR].auto_answer = false;
    let (near, far) = b2b.up();
    b2b.net.with(NEAR, |agent, round| agent.request_within(round, near, Method::Info, b"", b"")).expect("a dialog");
    b2b.run(50);
    let Event::Request { request, .. } = b2b.net.last(FAR).event else { panic!("{:?}", b2b.net.log) };
    b2b.moves();
    b2b.net.with(FAR, |agent, round| agent.respond(round, request, 299, b"", b""));
    b2b.run(50);
    assert!(matches!(b2b.net.last(NEAR).event, Event::Reply { status: 299, .. }), "{:?}", b2b.net.log);
    b2b.net.with(FAR, |agent, round| agent.hang_up(round, far));
    b2b.is_clean();
}

#[test]
fn a_pair_that_ends() {
    let mut b2b = Bridged::new();
    let (near, _) = b2b.up();
    b2b.told();
    b2b.net.lose = Box::new(|line| line == "1>2 BYE");
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.run(100);
    let [(_, key)] = b2b.moves()[..] else { panic!("one pair") };
    b2b.net.lose = Box::new(|_| false);
    b2b.run(1_000);
    assert_eq!(b2b.told(), [BridgeEvent::Ended { pair: key, by: BridgeEnd::Side(Side::Near) }]);
    b2b.is_clean();
}

/// Moments are remaining milliseconds, since the next process has another clock.
#[test]
fn a_wait_goes_on_by_another_clock() {
    let mut b2b = Bridged::new();
    let (near, far) = b2b.calling(&sdp(NEAR, 1, "0", "sendrecv"));
    b2b.net.with(FAR, |agent, round| agent.ring(round, far, 180, b""));
    b2b.run(10_000);
    let deadline = b2b.bridge.borrow_mut().deadline().expect("the far call has an end");
    let left = deadline - b2b.net.now.mono;
    b2b.moves();
    assert_eq!(b2b.bridge.borrow_mut().deadline(), Some(deadline));
    let record = b2b.bridge.borrow_mut().export(b2b.net.now, |_| true);
    let mut bridge = Bridge::new(BridgeSettings::default());
    let endpoint = b2b.net.export(BRIDGE);
    let moved = b2b.net.import(BRIDGE, 2, endpoint);
    bridge.import(Now { mono: 5, wall: 0 }, record, &moved);
    assert_eq!(bridge.deadline(), Some(5 + left));
    let record = bridge.export(Now { mono: 5, wall: 0 }, |_| true);
    let endpoint = b2b.net.export(BRIDGE);
    let moved = b2b.net.import(BRIDGE, 3, endpoint);
    b2b.bridge.borrow_mut().import(b2b.net.now, record, &moved);
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}

/// A pair without its calls ends at once.
#[test]
fn a_torn_pair_ends() {
    let mut b2b = Bridged::new();
    let (near, far) = b2b.up();
    b2b.told();
    let record = b2b.bridge.borrow_mut().export(b2b.net.now, |_| true);
    let keys = b2b.bridge.borrow_mut().import(b2b.net.now, record, &MovedCalls::default());
    b2b.run(1);
    assert_eq!(b2b.told(), [BridgeEvent::Ended { pair: keys[0].1, by: BridgeEnd::Torn }]);
    // The calls of the agent have no owner now: both phones hang up.
    for (n, call) in [(NEAR, near), (FAR, far)] {
        b2b.net.with(n, |agent, round| agent.hang_up(round, call));
    }
    b2b.is_clean();
}
