//! Changes of sessions (section 14, RFC 3311).

use super::rig::*;

use strowger_core::dialog::{OfferAnswer, OfferError};
use strowger_core::user_agent::{Ending, Event, NotNow, UserAgentSettings};

/// RFC 3665 section 3.7.
#[test]
fn the_session_is_changed() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    net.with(1, |agent, round| agent.reinvite(round, callee, OFFER)).unwrap();
    assert_eq!(net.with(1, |agent, round| agent.reinvite(round, callee, OFFER)), Err(NotNow::Pending));
    net.run(20);
    assert!(matches!(net.last(0).event, Event::Offered { call, update: false, .. } if call == caller));
    net.with(0, |agent, round| agent.answer(round, caller, ANSWER));
    net.run(20);
    assert!(matches!(net.last(1).event, Event::Changed { call, .. } if call == callee));
    assert_eq!(net.last(1).body, ANSWER);
    net.run(50);
    assert_eq!(net.log, ["1>0 INVITE", "0>1 200 INVITE", "1>0 ACK"]);
    // And refused.
    net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
    net.run(20);
    net.with(1, |agent, round| agent.reject(round, callee, 488));
    net.run(50);
    assert_eq!(net.last(0).event, Event::Unchanged { call: caller, status: 488, wait: 0 });
    assert_eq!((net.phones[0].endpoint.agent.calls(), net.phones[1].endpoint.agent.calls()), (1, 1));
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.is_clean();
}

/// Section 14.1: simultaneous changes are glare; both are refused with 491, and the sides wait for different times.
#[test]
fn both_change_the_session_at_once() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
    net.with(1, |agent, round| agent.reinvite(round, callee, OFFER)).unwrap();
    net.run(100);
    let wait = |n: usize| match net.last(n).event {
        Event::Unchanged { status: 491, wait, .. } => wait,
        other => panic!("{other:?}"),
    };
    assert!((2_100..=4_000).contains(&wait(0)) && wait(1) <= 2_000);
    net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
    net.run(20);
    net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(50);
    assert!(matches!(net.last(0).event, Event::Changed { .. }));
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.is_clean();
    assert_eq!([OfferError::Glare, OfferError::OverlappingOffer].map(OfferError::status), [491, 500]);
    assert_eq!(OfferAnswer::default(), OfferAnswer::Idle);
}

/// RFC 3311.
#[test]
fn an_update_changes_the_session_too() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    net.with(0, |agent, round| agent.update(round, caller, OFFER)).unwrap();
    net.run(20);
    assert!(matches!(net.last(1).event, Event::Offered { call, update: true, .. } if call == callee));
    net.with(1, |agent, round| agent.answer_update(round, callee, ANSWER));
    net.run(20);
    assert!(matches!(net.last(0).event, Event::Changed { call, .. } if call == caller));
    assert_eq!(net.last(0).body, ANSWER);
    // Without an offer it is answered without the owner.
    net.with(1, |agent, round| agent.update(round, callee, b"")).unwrap();
    net.run(50);
    assert_eq!(net.log, ["0>1 UPDATE", "1>0 200 UPDATE", "1>0 UPDATE", "0>1 200 UPDATE"]);
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.is_clean();
}

/// Sections 9.1 and 15: a hang-up cancels our open re-INVITE, and the BYE follows its end: after 64*T1 if no response comes.
#[test]
fn a_hang_up_cancels_our_re_invite() {
    for is_answered in [true, false] {
        let mut net = Net::new([quiet(), UserAgentSettings::default()]);
        let (caller, callee) = net.up();
        net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
        net.run(50);
        net.lose = Box::new(move |line| !is_answered && line.starts_with("1>0"));
        net.with(0, |agent, round| agent.hang_up(round, caller));
        assert_eq!(net.log, ["0>1 INVITE", "1>0 100 INVITE", "0>1 CANCEL"]);
        if is_answered {
            net.run(100);
            assert_eq!(net.log[3..], ["1>0 200 CANCEL", "1>0 487 INVITE", "0>1 ACK", "0>1 BYE", "1>0 200 BYE"]);
            assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Remote });
        } else {
            net.run(31_000);
            assert!(!net.log.contains(&"0>1 BYE".to_owned()), "{:?}", net.log);
            net.run(2_000);
            assert!(net.log.contains(&"0>1 BYE".to_owned()), "{:?}", net.log);
            net.run(40_000);
        }
        assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Local });
        net.is_clean();
    }
}

/// Section 15.1.1: before the process ends, the BYE does not wait for the end of the re-INVITE.
#[test]
fn a_process_that_ends_sends_the_bye_after_the_cancel_at_once() {
    let mut net = Net::new([quiet(), UserAgentSettings::default()]);
    let (caller, callee) = net.up();
    net.with(0, |agent, round| agent.hang_up_at_once(round));
    net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
    net.run(50);
    net.with(0, |agent, round| agent.hang_up_at_once(round));
    assert_eq!(net.log, ["0>1 INVITE", "1>0 100 INVITE"], "only calls that are being ended");
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.with(0, |agent, round| agent.hang_up_at_once(round));
    assert_eq!(net.log, ["0>1 INVITE", "1>0 100 INVITE", "0>1 CANCEL", "0>1 BYE"]);
    net.run(100);
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Remote });
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Local });
    net.is_clean();
}

/// Section 15.1.2: a peer that sends a BYE still answers our re-INVITE. One that does not holds no transaction for ever.
#[test]
fn a_re_invite_without_an_answer_ends_after_its_call() {
    let mut net = Net::new([quiet(), UserAgentSettings::default()]);
    let (caller, callee) = net.up();
    net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
    net.run(50);
    net.lose = Box::new(|line| line == "1>0 487 INVITE");
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.run(50);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Remote });
    net.is_clean();
}

/// Section 15: the 2xx to a re-INVITE without offer has an offer; after a hang-up its ACK has no answer, and the BYE follows at once.
#[test]
fn a_hang_up_waits_for_no_answer_to_an_offer() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    net.with(0, |agent, round| agent.reinvite(round, caller, b"")).unwrap();
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.run(20);
    net.with(1, |agent, round| agent.answer(round, callee, OFFER));
    net.run(50);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 200 INVITE", "0>1 ACK", "0>1 BYE", "1>0 200 BYE"]);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Local });
    net.is_clean();
}
