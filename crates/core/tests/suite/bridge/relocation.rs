//! Other places of the streams of a call that is up.

use super::rig::*;

use std::rc::Rc;
use std::sync::Arc;
use strowger_core::b2bua::bridge::{BridgeEvent, PairKey};
use strowger_core::b2bua::negotiation::LocalStream;
use strowger_core::user_agent::{CallKey, Event};

/// Port of the near leg, and of the far one, after the relocation.
const PORTS: [u16; 2] = [52_000, 62_000];

/// Returns a call that is up and whose streams have got other ports, with the keys of both phones.
fn relocated() -> (Bridged, PairKey, [CallKey; 2]) {
    let mut b2b = Bridged::new();
    let (near, far) = b2b.up();
    let pair = b2b.told()[0].pair();
    let places = PORTS.map(|port| -> Arc<[LocalStream]> {
        Arc::new([LocalStream { address: "127.0.0.2".parse().expect("an address"), port }])
    });
    let bridge = Rc::clone(&b2b.bridge);
    b2b.net.with(BRIDGE, |agent, round| bridge.borrow_mut().relocate(agent, round, pair, places));
    b2b.run(50);
    (b2b, pair, [near, far])
}

/// Asserts that a phone has got the offer of this port last.
fn is_offered(b2b: &Bridged, phone: usize, port: u16) {
    let offered = b2b.heard(phone, |event| matches!(event, Event::Offered { update: false, .. }));
    let offer = text(&offered.body);
    assert!(offer.contains(&format!("m=audio {port} RTP/AVP 0\r\n")), "{offer}");
}

/// Lets both phones accept their offers.
fn accept(b2b: &mut Bridged, [near, far]: [CallKey; 2]) {
    for (phone, call, port) in [(NEAR, near, PORTS[0]), (FAR, far, PORTS[1])] {
        is_offered(b2b, phone, port);
        let answer = sdp(phone, 2, "0", "sendrecv");
        b2b.net.with(phone, |agent, round| agent.answer(round, call, &answer));
        b2b.run(100);
    }
}

#[test]
fn both_sides_learn_the_new_places_one_after_the_other() {
    let (mut b2b, pair, calls) = relocated();
    assert_eq!((b2b.count("1>0 INVITE"), b2b.count("1>2 INVITE")), (1, 1), "the far side waits");
    assert!(b2b.bridge.borrow().keep(pair).is_none(), "a side has not agreed");
    accept(&mut b2b, calls);
    assert_eq!((b2b.count("1>0 INVITE"), b2b.count("1>2 INVITE")), (1, 2));
    assert!(b2b.bridge.borrow().keep(pair).is_some());
    assert!(!b2b.told().contains(&BridgeEvent::Stranded { pair }));
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, calls[0]));
    b2b.is_clean();
}

#[test]
fn a_side_that_refuses_them_is_reported() {
    for refuses in [NEAR, FAR] {
        let (mut b2b, pair, [near, far]) = relocated();
        if refuses == FAR {
            let answer = sdp(NEAR, 2, "0", "sendrecv");
            b2b.net.with(NEAR, |agent, round| agent.answer(round, near, &answer));
            b2b.run(100);
        }
        b2b.told();
        let call = if refuses == NEAR { near } else { far };
        b2b.net.with(refuses, |agent, round| agent.reject(round, call, 488));
        b2b.run(100);
        assert_eq!(b2b.told(), [BridgeEvent::Stranded { pair }]);
        let invites = if refuses == NEAR { 1 } else { 2 };
        assert_eq!(b2b.count("1>2 INVITE"), invites, "no other offer follows");
        let bridge = Rc::clone(&b2b.bridge);
        b2b.net.with(BRIDGE, |agent, round| bridge.borrow_mut().end(agent, round, pair, 480, b""));
        b2b.is_clean();
    }
}

/// RFC 3261 section 14.1.
#[test]
fn a_side_with_a_change_of_its_own_is_asked_again() {
    let (mut b2b, _, calls) = relocated();
    b2b.net.with(NEAR, |agent, round| agent.reject(round, calls[0], 491));
    b2b.run(5_000);
    assert_eq!((b2b.count("1>0 INVITE"), b2b.count("1>2 INVITE")), (2, 1));
    accept(&mut b2b, calls);
    b2b.net.with(FAR, |agent, round| agent.hang_up(round, calls[1]));
    b2b.is_clean();
}
