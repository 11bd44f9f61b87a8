//! Calls from the INVITE to the BYE (sections 13, 15 and 9).

use super::rig::*;

use strowger_core::Transport;
use strowger_core::user_agent::{Ending, Event, UserAgentSettings};

/// RFC 3665 section 3.1.
#[test]
fn a_call_is_made_talks_and_ends() {
    let mut net = Net::new([UserAgentSettings::default(), UserAgentSettings::default()]);
    let caller = net.call(OFFER);
    net.run(20);
    assert_eq!(net.last(1).body, OFFER);
    let callee = net.invited(1);
    net.with(1, |agent, round| agent.ring(round, callee, 180, b""));
    net.run(20);
    assert!(matches!(net.last(0).event, Event::Progress { call, status: 180, .. } if call == caller));
    net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(50);
    assert_eq!(net.last(0).body, ANSWER);
    assert!(matches!(net.last(0).event, Event::Answered { call, offer: false, .. } if call == caller));
    assert!(matches!(net.last(1).event, Event::Confirmed { call, .. } if call == callee));
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.run(50);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Local });
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Remote });
    assert_eq!(
        net.log,
        ["0>1 INVITE", "1>0 100 INVITE", "1>0 180 INVITE", "1>0 200 INVITE", "0>1 ACK", "0>1 BYE", "1>0 200 BYE"]
    );
    net.is_clean();
}

#[test]
fn the_callee_hangs_up() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.run(50);
    assert_eq!(net.log, ["1>0 BYE", "0>1 200 BYE"]);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Remote });
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Local });
    net.is_clean();
}

#[test]
fn a_call_is_cancelled() {
    let mut net = Net::two();
    let (caller, callee) = net.ringing();
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.run(100);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 180 INVITE", "0>1 CANCEL", "1>0 200 CANCEL", "1>0 487 INVITE", "0>1 ACK"]);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Local });
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Cancelled });
    net.is_clean();
}

/// Section 9.1: no CANCEL before a provisional response; one that crosses a 2xx ends in a BYE.
#[test]
fn a_cancel_too_late_becomes_a_bye() {
    let mut net = Net::two();
    let caller = net.call(OFFER);
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.run(15);
    let callee = net.invited(1);
    net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(100);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 200 INVITE", "0>1 ACK", "0>1 BYE", "1>0 200 BYE"]);
    assert_eq!(net.last(0).event, Event::Ended { call: caller, by: Ending::Local });
    net.is_clean();
}

#[test]
fn a_call_is_refused_or_redirected() {
    let mut net = Net::two();
    let (caller, callee) = net.calling();
    net.with(1, |agent, round| agent.reject(round, callee, 486));
    net.run(50);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 486 INVITE", "0>1 ACK"]);
    assert_eq!(net.last(0).event, Event::Failed { call: caller, status: 486, local: false });
    assert_eq!(net.last(1).event, Event::Ended { call: callee, by: Ending::Local });
    net.is_clean();

    let mut net = Net::new([quiet()]);
    let target = net.target(7);
    net.with(0, |agent, round| agent.invite(round, &invite(target, OFFER))).unwrap();
    let response = respond(&net.sent[0], 302, "Contact: <sip:bob@elsewhere.example>\r\n");
    net.inject(0, &response);
    assert!(matches!(net.last(0).event, Event::Redirected { status: 302, .. }));
    assert_eq!(net.last(0).body, b"sip:bob@elsewhere.example");
    net.is_clean();
}

#[test]
fn a_call_without_an_answer_fails() {
    let mut net = Net::new([quiet()]);
    let target = net.target(5);
    let call = net.with(0, |agent, round| agent.invite(round, &invite(target, OFFER))).unwrap();
    net.run(33_000);
    assert_eq!(net.log, vec!["0>? INVITE"; 7]);
    assert_eq!(net.last(0).event, Event::Failed { call, status: 408, local: true });
    net.is_clean();
}

/// RFC 3665 section 3.8 has the two forms; here the 2xx has the offer.
#[test]
fn the_callee_offers() {
    let mut net = Net::two();
    let caller = net.call(b"");
    net.run(20);
    assert!(net.last(1).body.is_empty());
    let callee = net.invited(1);
    net.with(1, |agent, round| agent.answer(round, callee, OFFER));
    net.run(20);
    assert!(matches!(net.last(0).event, Event::Answered { offer: true, .. }));
    assert_eq!(net.last(0).body, OFFER);
    net.with(0, |agent, round| agent.acknowledge(round, caller, ANSWER));
    net.run(20);
    assert_eq!(net.last(1).body, ANSWER);
    assert!(matches!(net.last(1).event, Event::Confirmed { .. }));
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.is_clean();
}

/// Section 13.2.2.4: the second 2xx of a fork is acknowledged, and its dialog is ended.
#[test]
fn a_fork_that_lost_is_ended() {
    let mut net = Net::new([quiet()]);
    let target = net.target(6);
    let call = net.with(0, |agent, round| agent.invite(round, &invite(target, OFFER))).unwrap();
    let ringing = respond(&net.sent[0], 180, "Contact: <sip:one@127.0.0.7>\r\n");
    net.inject(0, &ringing);
    net.inject(0, &ringing.replace("tag=peer", "tag=other"));
    let ok = respond(&net.sent[0], 200, "Contact: <sip:one@127.0.0.7>\r\n");
    let other = respond(&net.sent[0], 200, "Contact: <sip:two@127.0.0.8>\r\n").replace("tag=peer", "tag=other");
    net.inject(0, &ok);
    assert!(matches!(net.last(0).event, Event::Answered { call: c, .. } if c == call));
    net.log.clear();
    net.sent.clear();
    net.inject(0, &other);
    assert_eq!(net.log, ["0>? ACK", "0>? BYE"]);
    assert!(net.sent.iter().all(|t| t.contains(" sip:two@127.0.0.8 SIP/2.0") && t.contains(";tag=other")));
    net.inject(0, &other);
    assert_eq!(net.log, ["0>? ACK", "0>? BYE", "0>? ACK"], "a copy gets the ACK alone");
    let bye = net.sent[1].clone();
    net.inject(0, &respond(&bye, 200, ""));
    assert_eq!(net.phones[0].endpoint.agent.calls(), 1, "the first dialog goes on");
    assert!(net.phones[0].heard.iter().all(|h| !matches!(h.event, Event::Ended { .. })), "no event for the other");
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.run(40_000);
    assert_eq!(net.last(0).event, Event::Ended { call, by: Ending::Local });
    net.is_clean();
}

#[test]
fn over_a_stream_nothing_is_repeated_but_the_2xx() {
    let mut net = Net::over(Transport::Tcp, [quiet(), quiet()]);
    let caller = net.call(OFFER);
    net.run(3_000);
    let callee = net.invited(1);
    net.lose = Box::new(|line| line == "0>1 ACK");
    net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(600);
    assert_eq!(net.log, ["0>1 INVITE", "1>0 200 INVITE", "0>1 ACK", "1>0 200 INVITE", "0>1 ACK"]);
    assert!(net.sent[0].contains("Via: SIP/2.0/TCP 127.0.0.1:5060;rport;branch=z9hG4bK"));
    assert!(net.sent[0].contains("Contact: <sip:alice@127.0.0.1:5060;transport=tcp>\r\n"));
    net.lose = Box::new(|_| false);
    net.run(2_000);
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.is_clean();
}

/// Covers one machine at both ends of a call, so that the same Call-ID is used twice.
#[test]
fn a_phone_calls_itself() {
    let mut net = Net::new([quiet()]);
    let target = net.target(0);
    let caller = net.with(0, |agent, round| agent.invite(round, &invite(target, OFFER))).unwrap();
    net.run(20);
    let callee = net.invited(0);
    net.with(0, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(50);
    // The Request-URI names another host; within the dialog the Contact counts.
    assert!(matches!(net.last(0).event, Event::Confirmed { .. }));
    net.with(0, |agent, round| agent.hang_up(round, callee));
    net.run(50);
    let ends: Vec<_> =
        net.phones[0].heard.iter().filter(|h| matches!(h.event, Event::Ended { .. })).map(|h| h.event).collect();
    assert_eq!(
        ends,
        [Event::Ended { call: caller, by: Ending::Remote }, Event::Ended { call: callee, by: Ending::Local }]
    );
    net.is_clean();
}
