//! Requests that the owner answers.

use super::rig::*;

use strowger_core::user_agent::{Event, OutOfDialog};
use strowger_message::Method;

/// RFC 3261 section 12.2.2: a request in a dialog that the agent has no rules for is answered by its owner alone, with any status, header
/// lines and body.
#[test]
fn requests_in_a_call_are_answered_by_the_owner() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    net.phones[1].auto_answer = false;
    for method in [Method::Info, Method::Message, Method::Options] {
        let lines = b"Content-Type: text/plain\r\nContent-Encoding: gzip\r\n";
        net.with(0, |agent, round| agent.request_within(round, caller, method, lines, b"5")).unwrap();
        net.run(50);
        assert_eq!(net.log.len(), 1, "{:?}", net.log);
        let Event::Request { request, call, method: asked, .. } = net.last(1).event else { panic!("no request") };
        assert_eq!((call, asked, &net.last(1).body[..]), (Some(callee), method, &b"5"[..]));
        let lines = b"Retry-After: 7\r\nContent-Type: text/plain\r\n";
        net.with(1, |agent, round| agent.respond(round, request, 480, lines, b"later"));
        net.run(50);
        assert!(matches!(net.last(0).event, Event::Reply { status: 480, .. }));
        assert!(net.last(0).body == b"later" && net.last(0).message.contains("\r\nRetry-After: 7\r\n"));
        net.log.clear();
    }
    assert_eq!(net.phones[1].endpoint.agent.open_requests(), 0);
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.is_clean();
}

/// RFC 3261 section 11.2, RFC 3428 section 7: requests outside of a call are the owner's too.
#[test]
fn requests_outside_of_a_call_are_answered_by_the_owner() {
    let mut net = Net::two();
    net.phones[1].auto_answer = false;
    let target = net.target(1);
    for method in [Method::Message, Method::Options] {
        let outside = OutOfDialog::new(method, b"sip:alice@atlanta.example", b"<sip:bob@biloxi.example>", target);
        net.with(0, |agent, round| agent.request(round, &outside)).unwrap();
        net.run(50);
        let Event::Request { request, call: None, .. } = net.last(1).event else { panic!("no request") };
        net.with(1, |agent, round| agent.respond(round, request, 404, b"", b""));
        net.run(50);
        assert!(matches!(net.last(0).event, Event::Reply { status: 404, .. }));
    }
    net.is_clean();
}

/// RFC 3261 section 8.2.3: a telephone reads no encoded body.
#[test]
fn a_telephone_answers_by_itself() {
    let mut net = Net::new([quiet()]);
    let gzip = "Content-Encoding: gzip\n";
    for (n, (method, lines, status, line)) in [
        ("OPTIONS", "", "200 ", "\r\nAllow: INVITE, ACK, CANCEL, BYE, OPTIONS, INFO, MESSAGE, PRACK, UPDATE\r\n"),
        ("MESSAGE", "", "200 ", "\r\n"),
        ("MESSAGE", gzip, "415 ", "\r\nAccept-Encoding: identity\r\n"),
    ]
    .into_iter()
    .enumerate()
    {
        net.sent.clear();
        net.inject(0, &request(method, n as u32 + 1, "", lines, "v=0\n"));
        let sent = &net.sent[0];
        assert!(sent.starts_with(&format!("SIP/2.0 {status}")) && sent.contains(line), "{method} {sent}");
    }
    net.is_clean();
}
