//! Reliable provisional responses (RFC 3262).

use super::rig::*;

use strowger_core::user_agent::{CallKey, Content, Ending, Event, LegKey, Reliability, UserAgentSettings};

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

/// Returns two phones, of which the second one makes each provisional response reliable, with a call. Returns the keys of both.
fn reliable() -> (Net, CallKey, CallKey) {
    let mut net = Net::new([quiet(), UserAgentSettings { reliability: Reliability::Supported, ..quiet() }]);
    let (caller, callee) = net.calling();
    (net, caller, callee)
}

const CONTACT: &str = "Contact: <sip:x@127.0.0.99>\n";

/// Returns a phone that a peer without a phone calls and that has sent this reliable response, the call, its To tag as [`to_tag`] returns it,
/// and the line of RAck.
fn rung(status: u16, body: &[u8]) -> (Net, CallKey, String, String) {
    let mut net = Net::new([quiet()]);
    net.inject(0, &request("INVITE", 1, "", &format!("{CONTACT}Require: 100rel\n"), "v=0\n"));
    let call = net.invited(0);
    net.with(0, |agent, round| agent.ring(round, call, status, body));
    let early = net.sent[0].clone();
    let rseq = early.lines().find_map(|line| line.strip_prefix("RSeq: ")).expect("it is reliable");
    (net, call, to_tag(&early), format!("RAck: {rseq} 1 INVITE\n"))
}

fn progress(net: &Net) -> Vec<(u16, Vec<u8>)> {
    let of = |heard: &Heard| match heard.event {
        Event::Progress { status, .. } => Some((status, heard.body.clone())),
        _ => None,
    };
    net.phones[0].heard.iter().filter_map(of).collect()
}

/// RFC 3262 section 3: a reliable response waits for the PRACK of the one before; of several that wait, the last is sent.
#[test]
fn a_ringing_after_early_media_waits_for_the_prack() {
    let (mut net, caller, callee) = reliable();
    net.with(1, |agent, round| {
        agent.ring(round, callee, 183, ANSWER);
        agent.ring(round, callee, 182, Content { headers: b"X-Ring: queued\r\n", ..Content::default() });
        agent.ring(round, callee, 180, Content { headers: b"X-Ring: rings\r\n", ..Content::default() });
    });
    assert_eq!(net.log, ["0>1 INVITE", "1>0 183 INVITE"]);
    net.run(100);
    let prack = ["0>1 PRACK", "1>0 200 PRACK"];
    assert_eq!(net.log[2..], [&prack[..], &["1>0 180 INVITE"], &prack[..]].concat());
    assert_eq!(progress(&net), [(183, ANSWER.to_vec()), (180, Vec::new())]);
    assert!(net.phones[0].heard.iter().any(|heard| heard.message.contains("\r\nX-Ring: rings\r\n")));
    let acknowledged = net.phones[1].heard.iter().filter(|h| matches!(h.event, Event::Acknowledged { .. }));
    assert_eq!(acknowledged.count(), 2);
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.is_clean();
}

/// RFC 3262 section 3: no description is lost by what follows it.
#[test]
fn a_description_that_waits_is_sent_by_the_next_response() {
    for answers in [false, true] {
        let (mut net, caller, callee) = reliable();
        net.with(1, |agent, round| {
            agent.ring(round, callee, 180, b"");
            agent.ring(round, callee, 183, ANSWER);
            if answers {
                agent.answer(round, callee, b"");
            } else {
                agent.ring(round, callee, 180, b"");
            }
        });
        net.run(100);
        if answers {
            assert!(matches!(net.last(0).event, Event::Answered { offer: false, .. }));
            assert_eq!(net.last(0).body, ANSWER);
            // The PRACK came after the 2xx, and is answered nevertheless.
            assert!(net.log.contains(&"1>0 200 PRACK".to_owned()), "{:?}", net.log);
        } else {
            assert_eq!(progress(&net), [(180, Vec::new()), (180, ANSWER.to_vec())]);
        }
        net.with(0, |agent, round| agent.hang_up(round, caller));
        net.is_clean();
    }
}

/// RFC 3262 section 3: what waits moves with the call.
#[test]
fn a_response_that_waits_for_its_prack_moves() {
    let (mut net, _, callee) = reliable();
    net.with(1, |agent, round| {
        agent.ring(round, callee, 183, ANSWER);
        agent.ring(round, callee, 180, b"");
    });
    let callee = net.moves(1, 1).call(callee).expect("it moved");
    net.run(100);
    assert_eq!(progress(&net), [(183, ANSWER.to_vec()), (180, Vec::new())]);
    net.with(1, |agent, round| agent.reject(round, callee, 486));
    net.is_clean();
}

/// RFC 3262 section 5: a PRACK may bring a further offer. The owner answers it, and what waits for the PRACK is sent after that.
#[test]
fn an_offer_in_a_prack_is_the_owners() {
    for is_granted in [true, false] {
        let (mut net, call, tag, rack) = rung(183, ANSWER);
        net.with(0, |agent, round| agent.ring(round, call, 180, b""));
        net.inject(0, &request("PRACK", 2, &tag, &rack, "v=0\no=new\n"));
        assert!(matches!(net.last(0).event, Event::Offered { call: of, update: true, .. } if of == call));
        assert_eq!(net.last(0).body, b"v=0\r\no=new\r\n");
        // An answer to the call waits for that to the offer too.
        if is_granted {
            net.with(0, |agent, round| agent.answer(round, call, b""));
        }
        // No retransmission: the response is acknowledged.
        net.run(2_000);
        assert_eq!(net.sent.len(), 1, "{:?}", net.log);
        net.inject(0, &request("PRACK", 3, &tag, &rack, ""));
        assert!(net.sent[1].starts_with("SIP/2.0 481 "));
        net.with(0, |agent, round| match is_granted {
            true => agent.answer_update(round, call, ANSWER),
            false => agent.reject_update_with(round, LegKey::from(call), 488, b"Warning: 399 x \"no\"\r\n"),
        });
        let (prack, invite) = (net.sent[2].clone(), net.sent[3].clone());
        if is_granted {
            assert!(prack.starts_with("SIP/2.0 200 ") && prack.ends_with(std::str::from_utf8(ANSWER).unwrap()));
            assert!(!prack.contains("\r\nContact:") && invite.starts_with("SIP/2.0 200 "), "{invite}");
            net.inject(0, &request("ACK", 1, &tag, "", ""));
            net.with(0, |agent, round| agent.hang_up(round, call));
        } else {
            assert!(prack.starts_with("SIP/2.0 488 ") && prack.contains("\r\nWarning: 399 x \"no\"\r\n"));
            assert!(invite.starts_with("SIP/2.0 180 ") && invite.contains("\r\nRequire: 100rel\r\n"), "{invite}");
            net.with(0, |agent, round| agent.reject(round, call, 603));
        }
        net.is_clean();
    }
}

/// RFC 3262 section 5: the answer to an offer in a reliable response goes in its PRACK, when the owner has it.
#[test]
fn an_offer_in_a_reliable_response_is_answered_in_the_prack() {
    for by_itself in [false, true] {
        let mut net = Net::new([quiet()]);
        net.phones[0].auto_answer = by_itself;
        let target = net.target(8);
        let call = net.with(0, |agent, round| agent.invite(round, &invite(target, b""))).unwrap();
        let lines = "Contact: <sip:one@127.0.0.98>\nRequire: 100rel\nRSeq: 7\n";
        let early = with_body(&respond(&net.sent[0], 183, lines), "v=0\n");
        net.inject(0, &early);
        assert!(matches!(net.last(0).event, Event::Progress { status: 183, offer: true, .. }));
        assert_eq!(net.last(0).body, b"v=0\r\n");
        if !by_itself {
            assert_eq!(net.log, ["0>? INVITE"]);
            let key = LegKey { call, leg: Some(net.last(0).leg) };
            assert!(net.with(0, |agent, round| agent.prack(round, key, ANSWER)).is_ok());
            assert!(net.with(0, |agent, round| agent.prack(round, key, ANSWER)).is_err(), "it was sent");
        }
        assert_eq!(net.log, ["0>? INVITE", "0>? PRACK"]);
        let prack = net.sent[1].clone();
        assert!(prack.contains("\r\nRAck: 7 1 INVITE\r\n"));
        assert_eq!(prack.ends_with(std::str::from_utf8(ANSWER).unwrap()), !by_itself, "{prack}");
        net.inject(0, &respond(&prack, 200, ""));
        let ok = respond(&net.sent[0], 200, "Contact: <sip:one@127.0.0.98>\n");
        net.inject(0, &ok);
        assert!(matches!(net.last(0).event, Event::Answered { offer: false, .. }));
        net.with(0, |agent, round| agent.hang_up(round, call));
        net.is_clean();
    }
}

/// RFC 3262 section 3: a PRACK may come after the 2xx; a second one for the same response matches none.
#[test]
fn a_response_is_acknowledged_once() {
    for is_late in [false, true] {
        let (mut net, call, tag, rack) = rung(180, b"");
        if !is_late {
            net.inject(0, &request("PRACK", 2, &tag, &rack, ""));
        }
        net.with(0, |agent, round| agent.answer(round, call, ANSWER));
        net.inject(0, &request("ACK", 1, &tag, "", ""));
        for cseq in [3, 4] {
            net.inject(0, &request("PRACK", cseq, &tag, &rack, ""));
        }
        if is_late {
            assert_eq!(net.log[1..], ["0>? 200 INVITE", "0>? 200 PRACK", "0>? 481 PRACK"]);
        } else {
            assert_eq!(net.log[1..], ["0>? 200 PRACK", "0>? 200 INVITE", "0>? 481 PRACK", "0>? 481 PRACK"]);
        }
        net.with(0, |agent, round| agent.hang_up(round, call));
        net.is_clean();
    }
}

/// RFC 3311 section 5.2: the 2xx repeats the answer to the INVITE. It is no answer to the offer of an UPDATE that crossed it.
#[test]
fn an_early_offer_that_crosses_the_2xx_has_its_own_answer() {
    let (mut net, call, tag, rack) = rung(183, ANSWER);
    net.inject(0, &request("PRACK", 2, &tag, &rack, ""));
    net.inject(0, &request("UPDATE", 3, &tag, CONTACT, "v=0\no=new\n"));
    assert!(matches!(net.last(0).event, Event::Offered { update: true, .. }));
    net.with(0, |agent, round| {
        agent.answer(round, call, ANSWER);
        agent.answer_update(round, call, ANSWER);
    });
    net.inject(0, &request("ACK", 1, &tag, "", ""));
    assert!(matches!(net.last(0).event, Event::Confirmed { .. }));
    // No offer is open: either side may make one.
    net.inject(0, &request("UPDATE", 4, &tag, CONTACT, "v=0\no=newer\n"));
    assert!(matches!(net.last(0).event, Event::Offered { update: true, .. }), "{:?}", net.log);
    net.with(0, |agent, round| agent.answer_update(round, call, ANSWER));
    net.with(0, |agent, round| agent.update(round, call, OFFER)).unwrap();
    net.with(0, |agent, round| agent.hang_up(round, call));
    net.is_clean();
}

/// RFC 3261 section 12.1.1: the response should have a Contact. Without one the remote target is the Request-URI of the INVITE, until one comes.
#[test]
fn a_prack_without_a_contact_goes_to_the_uri_of_the_invite() {
    for has_contact in [false, true] {
        let mut net = Net::new([quiet()]);
        let target = net.target(1);
        let call = net.with(0, |agent, round| agent.invite(round, &invite(target, OFFER))).unwrap();
        let first = respond(&net.sent[0], 180, "Require: 100rel\nRSeq: 7\n");
        net.inject(0, &first);
        assert!(net.sent[1].starts_with("PRACK sip:bob@127.0.0.2 SIP/2.0\r\n"), "{}", net.sent[1]);
        net.inject(0, &respond(&net.sent[1].clone(), 200, ""));
        let contact = if has_contact { "Contact: <sip:one@127.0.0.98>\n" } else { "" };
        let second = respond(&net.sent[0], 183, &format!("{contact}Require: 100rel\nRSeq: 8\n"));
        net.inject(0, &second);
        let uri = if has_contact { "sip:one@127.0.0.98" } else { "sip:bob@127.0.0.2" };
        assert!(net.sent[2].starts_with(&format!("PRACK {uri} SIP/2.0\r\n")), "{}", net.sent[2]);
        net.inject(0, &respond(&net.sent[2].clone(), 200, ""));
        let ok = with_body(&respond(&net.sent[0], 200, ""), "v=0\n");
        net.inject(0, &ok);
        assert!(net.sent[3].starts_with(&format!("ACK {uri} SIP/2.0\r\n")), "{}", net.sent[3]);
        assert!(net.sent[3].ends_with("\r\nContent-Length: 0\r\n\r\n"), "{}", net.sent[3]);
        net.with(0, |agent, round| agent.hang_up(round, call));
        assert!(net.sent[4].starts_with(&format!("BYE {uri} SIP/2.0\r\n")), "{}", net.sent[4]);
        net.inject(0, &respond(&net.sent[4].clone(), 200, ""));
        net.is_clean();
    }
}
