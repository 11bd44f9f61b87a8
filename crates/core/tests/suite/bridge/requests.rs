//! Other requests within a bridged call.

use super::rig::*;

use strowger_core::user_agent::{CallKey, Event, IncomingKey, UserAgentSettings};
use strowger_message::Method;

/// Returns an established call whose phones answer nothing by themselves.
fn up() -> (Bridged, CallKey, CallKey) {
    let settings = || UserAgentSettings { other_methods: true, ..quiet() };
    let mut b2b = Bridged::of([settings(), settings(), settings()], FAR);
    b2b.net.phones[NEAR].auto_answer = false;
    b2b.net.phones[FAR].auto_answer = false;
    let (near, far) = b2b.up();
    (b2b, near, far)
}

fn asked(b2b: &Bridged, n: usize) -> IncomingKey {
    match b2b.net.last(n).event {
        Event::Request { request, .. } => request,
        other => panic!("{other:?}: {:?}", b2b.net.log),
    }
}

#[test]
fn requests_and_their_answers_are_carried_over() {
    for method in [&b"INFO"[..], b"MESSAGE", b"OPTIONS", b"CONVERSE"] {
        for (side, other) in [(NEAR, FAR), (FAR, NEAR)] {
            let (mut b2b, near, far) = up();
            let call = if side == NEAR { near } else { far };
            let lines = b"Content-Type: text/plain\r\nX-Secret: 1\r\n";
            b2b.net
                .with(side, |agent, round| agent.request_within_named(round, call, method, lines, b"five"))
                .expect("a dialog");
            b2b.run(50);
            let heard = b2b.net.last(other);
            assert!(matches!(heard.event, Event::Request { method: of, .. } if of == Method::of(method)));
            let start = format!("{} sip:", text(method));
            assert!(heard.message.starts_with(&start) && heard.body == b"five", "{}", heard.message);
            assert!(heard.message.contains("\r\nContent-Type: text/plain\r\n") && !heard.message.contains("X-Secret"));
            let request = asked(&b2b, other);
            // The bridge has not answered before the other side.
            assert!(!matches!(b2b.net.last(side).event, Event::Reply { .. }));
            let lines = b"Content-Type: text/plain\r\n";
            b2b.net.with(other, |agent, round| agent.respond(round, request, 299, lines, b"six"));
            b2b.run(50);
            let heard = b2b.net.last(side);
            assert!(matches!(heard.event, Event::Reply { status: 299, .. }) && heard.body == b"six", "{heard:?}");
            b2b.net.with(side, |agent, round| agent.hang_up(round, call));
            b2b.is_clean();
        }
    }
}

#[test]
fn what_cannot_be_carried_is_refused() {
    let sdp_line = b"Content-Type: application/sdp\r\n";
    for (method, lines, body, expected) in [
        (Method::Subscribe, &b"Event: dialog\r\n"[..], &b""[..], 405),
        (Method::Notify, b"Event: dialog\r\nSubscription-State: active\r\n", b"", 481),
        (Method::Info, sdp_line, b"v=0\r\n", 415),
    ] {
        let (mut b2b, near, _) = up();
        b2b.net.with(NEAR, |agent, round| agent.request_within(round, near, method, lines, body)).expect("a dialog");
        b2b.run(100);
        let last = b2b.net.last(NEAR).event;
        assert!(matches!(last, Event::Reply { status, .. } if status == expected), "{method}: {last:?}");
        assert_eq!(b2b.count(&format!("1>2 {method}")), 0);
        b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
        b2b.is_clean();
    }
}

#[test]
fn a_request_is_answered_when_its_call_ends() {
    let (mut b2b, near, far) = up();
    b2b.net.with(NEAR, |agent, round| agent.request_within(round, near, Method::Info, b"", b"")).expect("a dialog");
    b2b.run(50);
    b2b.net.with(FAR, |agent, round| agent.hang_up(round, far));
    b2b.run(100);
    let replied = b2b.heard(NEAR, |event| matches!(event, Event::Reply { .. })).event;
    assert!(matches!(replied, Event::Reply { status: 487, .. }), "{replied:?}");
    b2b.is_clean();
}

/// RFC 3261 section 22: the near side cannot answer a challenge of the far side.
#[test]
fn a_challenge_within_the_call_is_no_challenge_to_the_other_side() {
    let (mut b2b, near, _) = up();
    b2b.net.with(NEAR, |agent, round| agent.request_within(round, near, Method::Message, b"", b"")).expect("a dialog");
    b2b.run(50);
    let request = asked(&b2b, FAR);
    let lines = b"Proxy-Authenticate: Digest realm=\"127.0.0.3\", nonce=\"n\"\r\n";
    b2b.net.with(FAR, |agent, round| agent.respond(round, request, 407, lines, b""));
    b2b.run(50);
    assert!(matches!(b2b.net.last(NEAR).event, Event::Reply { status: 403, .. }));
    b2b.net.with(NEAR, |agent, round| agent.hang_up(round, near));
    b2b.is_clean();
}
