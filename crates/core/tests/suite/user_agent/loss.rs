//! Recovery from lost messages (sections 13.2.2.4, 13.3.1.4 and 17).

use super::rig::*;

use strowger_core::user_agent::{Ending, Event};

/// Section 13.3.1.4: the 2xx is repeated with doubling pauses up to T2 until its ACK; each copy is acknowledged (13.2.2.4).
#[test]
fn a_lost_ack_is_made_good() {
    let mut net = Net::two();
    let mut lost = 0;
    net.lose = Box::new(move |line| {
        let is = line == "0>1 ACK";
        lost += i32::from(is);
        is && lost <= 3
    });
    let (_, callee) = net.calling();
    net.with(1, |agent, round| {
        agent.answer(round, callee, ANSWER);
        // There is nothing left to refuse.
        agent.reject(round, callee, 486);
    });
    net.run(5_000);
    assert_eq!(net.log.iter().filter(|l| *l == "1>0 200 INVITE").count(), 4);
    assert_eq!(net.log.iter().filter(|l| *l == "0>1 ACK").count(), 4);
    let acks: Vec<_> = net.sent.iter().filter(|t| t.starts_with("ACK")).collect();
    assert!(acks.windows(2).all(|w| w[0] == w[1]), "copies of an ACK are copies");
    assert!(matches!(net.last(1).event, Event::Confirmed { .. }));
    assert_eq!(net.phones[0].heard.iter().filter(|h| matches!(h.event, Event::Answered { .. })).count(), 1);
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.is_clean();
}

#[test]
fn a_2xx_without_any_ack_ends_in_a_bye() {
    let mut net = Net::two();
    net.lose = Box::new(|line| line == "0>1 ACK");
    let (caller, callee) = net.calling();
    net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(40_000);
    // After 0.5, 1.5, 3.5, 7.5, 11.5 ... 31.5 s.
    assert_eq!(net.log.iter().filter(|l| *l == "1>0 200 INVITE").count(), 11);
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::NoAck });
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Remote });
    net.is_clean();
}

/// A refusal that comes too late has no effect: its header lines are not those of the BYE.
#[test]
fn a_refusal_after_the_answer_leaves_no_lines() {
    let mut net = Net::two();
    net.lose = Box::new(|line| line == "0>1 ACK");
    let (_, callee) = net.calling();
    net.with(1, |agent, round| {
        agent.answer(round, callee, ANSWER);
        agent.reject_with(round, callee, 486, b"Warning: 399 x \"no\"\r\n");
    });
    net.run(40_000);
    let bye = net.sent.iter().find(|text| text.starts_with("BYE ")).expect("a BYE");
    assert!(!bye.contains("Warning"), "{bye}");
    net.is_clean();
}

/// Section 15: the callee may hang up before the ACK, but the BYE waits for it.
#[test]
fn a_callee_waits_for_the_ack_before_its_bye() {
    let mut net = Net::two();
    let (caller, callee) = net.calling();
    net.with(1, |agent, round| {
        agent.answer(round, callee, ANSWER);
        agent.hang_up(round, callee);
    });
    net.run(100);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 200 INVITE", "0>1 ACK", "1>0 BYE", "0>1 200 BYE"]);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Remote });
    net.is_clean();
}

#[test]
fn lost_messages_are_sent_again_until_the_call_stands() {
    for lost in ["0>1 INVITE", "1>0 200 INVITE", "0>1 ACK", "0>1 BYE", "1>0 200 BYE"] {
        let mut net = Net::two();
        let mut done = false;
        net.lose = Box::new(move |line| line == lost && !std::mem::replace(&mut done, true));
        let caller = net.call(OFFER);
        net.run(2_000);
        let callee = net.invited(1);
        net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
        net.run(5_000);
        net.with(0, |agent, round| agent.hang_up(round, caller));
        net.run(5_000);
        assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Local }, "{lost}");
        assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Remote }, "{lost}");
        net.is_clean();
    }
}
