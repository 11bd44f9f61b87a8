//! Content of messages: as the owner of a user agent sees it, and as it adds it.

use super::rig::*;
use strowger_core::user_agent::{Content, Event, UserAgentSettings};

fn carrying(headers: &'static [u8], body: &'static [u8]) -> Content<'static> {
    Content { headers, body, ..Content::default() }
}

#[test]
fn each_event_has_its_message_and_where_it_came_from() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    let starts = |n: usize, net: &Net| -> Vec<String> {
        let first = |heard: &Heard| heard.message.lines().next().unwrap_or_default().to_owned();
        net.phones[n].heard.iter().map(first).collect()
    };
    assert_eq!(starts(0, &net), ["SIP/2.0 200 OK"]);
    assert_eq!(starts(1, &net), ["INVITE sip:bob@127.0.0.2 SIP/2.0", "ACK sip:bob@127.0.0.2:5060 SIP/2.0"]);
    assert!(net.phones[0].heard.iter().all(|heard| heard.from == Some(address(1))));
    let invite = &net.phones[1].heard[0];
    assert!(invite.message.ends_with(std::str::from_utf8(OFFER).unwrap()), "whole, with its body");
    // An event without a message has none.
    net.lose = Box::new(|line| line.ends_with("BYE"));
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.run(40_000);
    let ended = net.last(0);
    assert_eq!((ended.message.as_str(), ended.from), ("", None), "{:?}", ended.event);
    net.lose = Box::new(|_| false);
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.is_clean();
}

#[test]
fn a_forked_invite_rings_in_several_places() {
    let mut net = Net::new([quiet()]);
    let target = net.target(8);
    net.with(0, |agent, round| agent.invite(round, &invite(target, OFFER))).unwrap();
    let sent = net.sent[0].clone();
    for (tag, status) in [("one", 180), ("two", 180), ("one", 183)] {
        let text = respond(&sent, status, "Contact: <sip:x@127.0.0.98>\n").replace(";tag=peer", &format!(";tag={tag}"));
        net.inject(0, &text);
    }
    let legs: Vec<u16> = net.phones[0].heard.iter().map(|heard| heard.leg).collect();
    assert_eq!(legs, [0, 1, 0]);
    let text = respond(&sent, 200, "Contact: <sip:x@127.0.0.98>\n").replace(";tag=peer", ";tag=two");
    net.inject(0, &text);
    assert!(matches!(net.last(0).event, Event::Answered { .. }) && net.last(0).leg == 1);
}

#[test]
fn further_header_lines_stand_in_each_message_of_a_call() {
    let mut net = Net::two();
    let (caller, callee) = net.calling();
    let has = |net: &Net, start: &str, line: &str| net.sent.iter().any(|t| t.starts_with(start) && t.contains(line));
    net.with(1, |agent, round| agent.ring(round, callee, 180, carrying(b"X-Ring: 1\r\n", b"")));
    net.with(1, |agent, round| agent.answer(round, callee, carrying(b"X-Answer: 1\r\n", ANSWER)));
    net.run(50);
    net.with(0, |agent, round| agent.reinvite(round, caller, carrying(b"X-Offer: 1\r\n", OFFER))).unwrap();
    net.run(20);
    net.with(1, |agent, round| agent.reject_with(round, callee, 488, b"Warning: 399 x \"no\"\r\n"));
    net.run(50);
    net.with(0, |agent, round| agent.update(round, caller, carrying(b"X-Update: 1\r\n", OFFER))).unwrap();
    net.run(20);
    net.with(1, |agent, round| agent.answer_update(round, callee, carrying(b"X-Updated: 1\r\n", ANSWER)));
    net.run(50);
    net.with(0, |agent, round| agent.hang_up_with(round, caller, b"Reason: Q.850;cause=16\r\n"));
    for (start, line) in [
        ("SIP/2.0 180", "\r\nX-Ring: 1\r\n"),
        ("SIP/2.0 200", "\r\nX-Answer: 1\r\n"),
        ("INVITE", "\r\nX-Offer: 1\r\n"),
        ("SIP/2.0 488", "\r\nWarning: 399 x \"no\"\r\n"),
        ("UPDATE", "\r\nX-Update: 1\r\n"),
        ("SIP/2.0 200", "\r\nX-Updated: 1\r\n"),
        ("BYE", "\r\nReason: Q.850;cause=16\r\n"),
    ] {
        assert!(has(&net, start, line), "{start} {line}: {:#?}", net.sent);
    }
    assert!(!has(&net, "BYE", "Warning"));
    net.is_clean();
}

#[test]
fn a_call_that_is_cancelled_says_why() {
    let mut net = Net::two();
    let (caller, _) = net.ringing();
    net.with(0, |agent, round| agent.hang_up_with(round, caller, b"Reason: SIP;cause=200\r\n"));
    assert!(net.sent.iter().any(|t| t.starts_with("CANCEL") && t.contains("\r\nReason: SIP;cause=200\r\n")));
    net.run(50);
    net.is_clean();
}

#[test]
fn an_answer_that_waits_for_its_prack_keeps_its_lines() {
    let settings = || UserAgentSettings { reliability: strowger_core::user_agent::Reliability::Supported, ..quiet() };
    let mut net = Net::new([settings(), settings()]);
    let (_, callee) = net.calling();
    net.with(1, |agent, round| {
        agent.ring(round, callee, 183, ANSWER);
        agent.answer(round, callee, carrying(b"X-Answer: 1\r\n", b""));
    });
    net.run(100);
    assert!(net.sent.iter().any(|t| t.starts_with("SIP/2.0 200 OK") && t.contains("\r\nX-Answer: 1\r\n")));
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.is_clean();
}

#[test]
fn methods_that_it_does_not_know_are_their_owners() {
    let mut net = Net::new([quiet(), UserAgentSettings { other_methods: true, ..quiet() }]);
    let (caller, _) = net.up();
    let refer = strowger_message::Method::Refer;
    let lines = b"Refer-To: <sip:carol@example.org>\r\n";
    net.with(0, |agent, round| agent.request_within(round, caller, refer, lines, b"")).unwrap();
    net.run(20);
    let heard = net.last(1).clone();
    let Event::Request { request, call: Some(_), .. } = heard.event else { panic!("{:?}", heard.event) };
    assert!(heard.message.starts_with("REFER ") && heard.message.contains("\r\nRefer-To: <sip:carol@example.org>\r\n"));
    net.with(1, |agent, round| agent.respond(round, request, 202, b"X-Answer: 1\r\n", b""));
    net.run(20);
    assert!(matches!(net.last(0).event, Event::Reply { status: 202, .. }));
    assert!(net.last(0).message.contains("\r\nX-Answer: 1\r\n"));
    // Outside of a call it gets a tag, the same in each response.
    net.inject(
        1,
        "PUBLISH sip:bob@127.0.0.2 SIP/2.0\nVia: SIP/2.0/UDP 127.0.0.99;branch=z9hG4bKp\nMax-Forwards: 70\n\
         From: <sip:x@y>;tag=1\nTo: <sip:bob@z>\nCall-ID: p\nCSeq: 1 PUBLISH\nContent-Length: 0\n\n",
    );
    let Event::Request { request, call: None, .. } = net.last(1).event else { panic!("{:?}", net.last(1).event) };
    let before = net.sent.len();
    for status in [180, 200] {
        net.with(1, |agent, round| agent.respond(round, request, status, b"", b""));
    }
    let tag = |text: &str| text.lines().find_map(|l| l.strip_prefix("To: ")?.split(";tag=").nth(1).map(str::to_owned));
    let tags: Vec<_> = net.sent[before..].iter().map(|text| tag(text)).collect();
    assert!(tags.len() == 2 && tags[0].is_some() && tags[0] == tags[1], "{tags:?}");
    // The key is gone.
    net.with(1, |agent, round| agent.respond(round, request, 500, b"", b""));
    assert_eq!(net.sent.len(), before + 2);
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.is_clean();
}

#[test]
fn a_request_that_its_owner_never_answers_leaves_nothing_behind() {
    let mut net = Net::new([quiet(), UserAgentSettings { other_methods: true, ..quiet() }]);
    let (caller, callee) = net.up();
    net.with(0, |agent, round| agent.request_within(round, caller, strowger_message::Method::Refer, b"", b"")).unwrap();
    net.run(40_000);
    assert!(matches!(net.last(0).event, Event::Ended { .. } | Event::Reply { status: 408, .. }));
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.is_clean();
    assert_eq!(net.phones[1].endpoint.agent.open_requests(), 0);
}
