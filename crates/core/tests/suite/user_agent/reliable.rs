//! Reliable provisional responses (RFC 3262).

use super::rig::*;

use strowger_core::user_agent::{Ending, Event, Reliability, UserAgentSettings};

/// RFC 3262: reliable provisional responses, acknowledged by PRACK; the 2xx waits for the PRACK of the one with the answer.
#[test]
fn a_ringing_with_media_is_reliable() {
    let mut net = Net::new([quiet(), UserAgentSettings { reliability: Reliability::Supported, ..quiet() }]);
    let mut lost = false;
    net.lose = Box::new(move |line| line == "0>1 PRACK" && !std::mem::replace(&mut lost, true));
    let (caller, callee) = net.calling();
    net.with(1, |agent, round| {
        agent.ring(round, callee, 183, ANSWER);
        agent.answer(round, callee, b"");
    });
    net.run(3_000);
    assert!(net.sent.iter().any(|t| t.contains("RAck: ") && t.contains(" 1 INVITE\r\n")));
    let first = |what: &str| net.log.iter().position(|l| l == what).unwrap_or_else(|| panic!("{what}: {:?}", net.log));
    assert!(first("1>0 200 PRACK") < first("1>0 200 INVITE"));
    assert!(
        net.phones[0].heard.iter().any(|h| matches!(h.event, Event::Progress { status: 183, .. }) && h.body == ANSWER)
    );
    assert!(net.phones[0].heard.iter().any(|h| matches!(h.event, Event::Answered { offer: false, .. })));
    assert!(matches!(net.last(1).event, Event::Confirmed { .. }));
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.is_clean();
}

#[test]
fn a_reliable_ringing_without_prack_ends_the_call() {
    let mut net = Net::new([quiet(), UserAgentSettings { reliability: Reliability::Supported, ..quiet() }]);
    net.lose = Box::new(|line| line == "0>1 PRACK");
    let (_, callee) = net.calling();
    net.with(1, |agent, round| agent.ring(round, callee, 180, b""));
    net.run(40_000);
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::NoPrack });
    assert!(matches!(net.last(0).event, Event::Failed { status: 504, .. }));
    net.is_clean();
}
