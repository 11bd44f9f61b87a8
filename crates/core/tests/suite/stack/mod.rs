//! Roles on one stack: proxy, user agent, suspended requests and pings each get what belongs to them.

mod rig;

use rig::*;
use strowger_core::stack::{Incoming, Reader, Reading, Received, Role};
use strowger_core::transaction::{Event as TransactionEvent, TransactionUser};
use strowger_core::user_agent::{Ending, Event, Invite, OutOfDialog};
use strowger_core::{ListenerId, Target, Transport};
use strowger_message::{Method, Reason};

#[test]
fn a_request_given_with_its_transaction_is_answered_by_the_user_agent() {
    let mut shard = Shard::new();
    assert!(shard.receive(ALICE, &request("INVITE", AGENT, "c", 1, "")).is_empty());
    let call = shard.invited();
    let ((), sent) = shard.with(|agent, round| agent.answer(round, call, SDP));
    assert!(sent[0].1.starts_with("SIP/2.0 200 OK\r\n") && sent[0].0 == address(ALICE), "{sent:?}");
    let tag = to_tag(&sent[0].1);
    assert!(shard.agent.owns(b"c", &tag.as_bytes()[5..], b"a"));
    assert!(!shard.agent.owns(b"c", b"another", b"a") && !shard.agent.owns(b"other", &tag.as_bytes()[5..], b"a"));
    shard.receive(ALICE, &request("ACK", AGENT, "c", 1, &tag));
    assert!(matches!(shard.agent.event(), Some(Event::Confirmed { .. })));
    // Its tags name the dialog; the Request-URI names no role.
    let sent = shard.receive(ALICE, &request("BYE", "sip:192.0.2.9", "c", 2, &tag));
    assert!(sent[0].1.starts_with("SIP/2.0 200 OK\r\n"));
    assert_eq!(shard.agent.event(), Some(Event::Ended { call, by: Ending::Remote }));
    assert!(!shard.agent.owns(b"c", &tag.as_bytes()[5..], b"a"));
    assert_eq!(shard.take_log(), ["agent INVITE", "agent ACK", "agent BYE"]);
    shard.assert_clean();
}

#[test]
fn a_suspended_request_is_given_to_the_user_agent_with_its_transaction() {
    let mut shard = Shard::new();
    let invite = request("INVITE", WAIT, "c", 1, "");
    assert!(shard.receive(ALICE, &invite).is_empty());
    let server = shard.waiting[0].server;
    assert!(matches!(shard.stack.transactions.user(server).role(), Role::Suspended(_)));
    // A copy is absorbed while the request waits, and after it was given away.
    shard.receive(ALICE, &invite);
    assert!(shard.hand_over(ALICE).is_empty());
    shard.receive(ALICE, &invite);
    let call = shard.invited();
    assert!(matches!(shard.stack.transactions.user(server).role(), Role::UserAgent(_)));
    let ((), sent) = shard.with(|agent, round| agent.ring(round, call, 180, b""));
    assert!(sent[0].1.starts_with("SIP/2.0 180 Ringing\r\n"));
    assert_eq!(shard.receive(ALICE, &invite), sent, "the last response again");
    let sent = shard.receive(ALICE, &request("CANCEL", WAIT, "c", 1, ""));
    assert!(sent[0].1.starts_with("SIP/2.0 200 OK\r\n") && sent[1].1.starts_with("SIP/2.0 487 "), "{sent:?}");
    assert_eq!(shard.agent.event(), Some(Event::Ended { call, by: Ending::Cancelled }));
    let ack = request("ACK", WAIT, "c", 1, "")
        .replace("To: <sip:b@example.org>", &format!("To: <sip:b@example.org>{}", to_tag(&sent[1].1)));
    shard.receive(ALICE, &ack);
    let log = ["suspended INVITE", "Absorbed", "Absorbed", "Absorbed", "agent CANCEL", "Absorbed"];
    assert_eq!(shard.take_log(), log);
    shard.assert_clean();
    assert_eq!(shard.take_log(), ["agent ServerEnded"]);
}

/// Checks that the 100 is due even if the request was given to another role in the meantime (RFC 4320 section 4.1).
#[test]
fn the_100_of_a_suspended_request_is_sent_by_the_role_that_has_it() {
    for is_given in [false, true] {
        let mut shard = Shard::new();
        shard.receive(ALICE, &request("REFER", WAIT, "c", 1, ""));
        let server = shard.waiting[0].server;
        if is_given {
            assert!(shard.hand_over(ALICE).is_empty());
            assert!(matches!(shard.agent.event(), Some(Event::Request { call: None, .. })));
        }
        let sent = shard.pass(5_000);
        if is_given {
            assert!(sent.len() == 1 && sent[0].1.starts_with("SIP/2.0 100 Trying\r\n"), "{sent:?}");
            assert_eq!(shard.take_log(), ["suspended REFER", "agent TryingDue"]);
        } else {
            assert!(sent.is_empty());
            assert_eq!(shard.take_log(), ["suspended REFER", "suspended TryingDue"]);
            // What is answered at once has no user any more.
            shard.waiting[0].bytes = request("BYE", WAIT, "c", 1, "").into_bytes();
            assert!(shard.hand_over(ALICE)[0].1.starts_with("SIP/2.0 481 "));
            assert_eq!(shard.stack.transactions.user(server), TransactionUser::NONE);
        }
        shard.assert_clean();
    }
}

#[test]
fn responses_go_to_the_role_that_sent_the_request() {
    let mut shard = Shard::new();
    let target = Target::new(Transport::Udp, ListenerId(0), address(BOB));
    let invite = Invite::new(b"<sip:agent@example.org>", b"<sip:bob@192.0.2.2>", target, SDP);
    let (own, sent_by_agent) = shard.with(|agent, round| agent.invite(round, &invite).expect("addresses"));
    let forwarded = shard.receive(ALICE, &request("INVITE", FAR, "c", 1, ""));
    let (of_agent, of_proxy) = (&sent_by_agent[0].1, &forwarded[0].1);
    assert!(shard.receive(BOB, &response(of_agent, 180, "b1")).is_empty());
    assert!(matches!(shard.agent.event(), Some(Event::Progress { call, status: 180, .. }) if call == own));
    let sent = shard.receive(BOB, &response(of_proxy, 180, "b2"));
    assert!(sent[0].0 == address(ALICE) && sent[0].1.starts_with("SIP/2.0 180 As told\r\n"));
    assert_eq!(shard.agent.event(), None);
    // The 2xx of the agent's call is acknowledged by the agent; that of the forwarded call by its caller.
    shard.receive(BOB, &response(of_agent, 200, "b1"));
    assert!(matches!(shard.agent.event(), Some(Event::Answered { call, .. }) if call == own));
    let ok = response(of_proxy, 200, "b2");
    assert!(shard.receive(BOB, &ok)[0].1.starts_with("SIP/2.0 200 As told\r\n"));
    let sent = shard.receive(ALICE, &request("ACK", FAR, "c", 1, ";tag=b2"));
    assert!(sent[0].0 == address(BOB) && sent[0].1.starts_with("ACK sip:bob@192.0.2.2 SIP/2.0\r\n"));
    // A copy of the 2xx goes where the first one went.
    assert!(shard.receive(BOB, &ok)[0].1.starts_with("SIP/2.0 200 As told\r\n"));
    assert!(shard.receive(BOB, &response(of_agent, 486, "b1")).is_empty());
    let log =
        ["proxy INVITE", "agent 180", "proxy 180", "agent 200", "proxy 200", "proxy ACK", "proxy 200", "Absorbed"];
    assert_eq!(shard.take_log(), log);
    let ((), sent) = shard.with(|agent, round| agent.hang_up(round, own));
    shard.receive(BOB, &response(&sent[0].1, 200, ""));
    shard.assert_clean();
}

/// Checks that a response given to the wrong role, or with an id of the other role, has no effect.
#[test]
fn the_user_agent_refuses_responses_of_other_roles() {
    let mut shard = Shard::new();
    let target = Target::new(Transport::Udp, ListenerId(0), address(BOB));
    let options = OutOfDialog::new(Method::Options, b"<sip:agent@example.org>", b"<sip:bob@192.0.2.2>", target);
    let (_, of_agent) = shard.with(|agent, round| agent.request(round, &options).expect("addresses"));
    let of_proxy = shard.receive(ALICE, &request("OPTIONS", FAR, "c", 1, ""));
    let (arrival, ok) = (arrival(BOB), response(&of_proxy[0].1, 200, "b"));
    let Shard { stack, proxy, agent, out, now, .. } = &mut shard;
    let (received, incoming, mut round) = stack.receive(*now, &arrival, ok.as_bytes(), out);
    let (Received::Response(ok), Incoming::Response { id, tu, .. }) = (&received, incoming) else { panic!() };
    let Role::Proxy(context) = tu.role() else { panic!("{tu:?}") };
    agent.take_response(&mut round, &arrival, ok, id, tu, false);
    agent.take_response(&mut round, &arrival, ok, id, TransactionUser::new(Role::UserAgent(context)), false);
    assert_eq!((agent.event(), agent.requests()), (None, 1));
    proxy.response(&mut round, context, ok, &arrival, id);
    assert!(shard.sent()[0].1.starts_with("SIP/2.0 200 As told\r\n"));
    shard.receive(BOB, &response(&of_agent[0].1, 200, "b"));
    assert!(matches!(shard.agent.event(), Some(Event::Reply { status: 200, .. })));
    shard.assert_clean();
}

#[test]
fn a_cancel_goes_to_the_role_of_its_invite() {
    let mut shard = Shard::new();
    for (uri, call) in [(AGENT, "c1"), (FAR, "c2"), (WAIT, "c3")] {
        let sent = shard.receive(ALICE, &request("INVITE", uri, call, 1, ""));
        if uri == FAR {
            shard.receive(BOB, &response(&sent[0].1, 180, "b"));
        }
    }
    shard.take_log();
    let call = shard.invited();
    let first_lines = |sent: Vec<Sent>| -> Vec<(String, String)> {
        sent.into_iter()
            .map(|(to, text)| (to.to_string(), text.lines().next().unwrap_or_default().to_owned()))
            .collect()
    };
    let line = |to: &str, text: &str| (to.to_owned(), text.to_owned());
    let sent = first_lines(shard.receive(ALICE, &request("CANCEL", AGENT, "c1", 1, "")));
    assert_eq!(sent, [line(ALICE, "SIP/2.0 200 OK"), line(ALICE, "SIP/2.0 487 Request Terminated")]);
    assert_eq!(shard.agent.event(), Some(Event::Ended { call, by: Ending::Cancelled }));
    let sent = first_lines(shard.receive(ALICE, &request("CANCEL", FAR, "c2", 1, "")));
    assert_eq!(sent, [line(ALICE, "SIP/2.0 200 OK"), line(BOB, "CANCEL sip:bob@192.0.2.2 SIP/2.0")]);
    let sent = first_lines(shard.receive(ALICE, &request("CANCEL", WAIT, "c3", 1, "")));
    assert_eq!(sent, [line(ALICE, "SIP/2.0 200 OK")]);
    let sent = first_lines(shard.receive(ALICE, &request("CANCEL", AGENT, "c4", 1, "")));
    assert_eq!(sent, [line(ALICE, "SIP/2.0 481 Call/Transaction Does Not Exist")]);
    assert_eq!(shard.agent.event(), None);
    assert_eq!(shard.take_log(), ["agent CANCEL", "proxy CANCEL", "suspended CANCEL", "agent CANCEL"]);
    shard.assert_clean();
}

#[test]
fn events_go_to_the_role_of_their_transaction() {
    let mut shard = Shard::new();
    let target = Target::new(Transport::Udp, ListenerId(0), address(BOB));
    let options = OutOfDialog::new(Method::Options, b"<sip:agent@example.org>", b"<sip:bob@192.0.2.2>", target);
    shard.with(|agent, round| agent.request(round, &options).expect("addresses"));
    shard.receive(ALICE, &request("OPTIONS", FAR, "c", 1, ""));
    shard.pass(33_000);
    assert!(matches!(shard.agent.event(), Some(Event::Reply { status: 408, .. })));
    assert_eq!(shard.agent.event(), None);
    let log = shard.take_log();
    for role in ["agent", "proxy"] {
        assert_eq!(log.iter().filter(|line| **line == format!("{role} Timeout")).count(), 1, "{log:?}");
        assert_eq!(log.iter().filter(|line| **line == format!("{role} ClientEnded")).count(), 1, "{log:?}");
    }
    // A message that could not be sent.
    let Shard { stack, agent, out, now, .. } = &mut shard;
    agent.request(&mut stack.round(*now, out), &options).expect("addresses");
    let token = out.sends()[0].token;
    stack.failed(*now, token, out);
    let mut events = Vec::new();
    while let Some(event) = stack.event() {
        events.push(event);
    }
    assert!(matches!(
        events[..],
        [TransactionEvent::ClientTransportError { .. }, TransactionEvent::ClientEnded { .. }]
    ));
    events.iter().for_each(|event| shard.tell(event));
    assert!(matches!(shard.agent.event(), Some(Event::Reply { status: 503, .. })));
    shard.assert_clean();
}

/// Checks RFC 3261 section 17.1.2.2, and that no state of a ping is left after its final response.
#[test]
fn a_ping_is_sent_again_until_its_response_or_timer_f() {
    let mut shard = Shard::new();
    let first = shard.ping();
    assert_eq!(shard.pass(4_000), [&first[..], &first, &first].concat(), "after 0.5 s, 1.5 s and 3.5 s");
    let ok = response(&first[0].1, 200, "b");
    assert!(shard.receive(BOB, &ok).is_empty());
    let counts = shard.stack.transactions.counts();
    assert_eq!((counts.clients, counts.keys, counts.kept_messages, counts.timers), (0, 0, 0, 0));
    shard.receive(BOB, &ok);
    assert!(shard.pass(60_000).is_empty());
    assert_eq!(shard.take_log(), ["ping 200", "Unmatched"]);
    assert_eq!((shard.ping(), shard.pass(60_000).len()), (first, 10));
    assert_eq!(shard.take_log(), ["ping Timeout", "ping ClientEnded"]);
    shard.assert_clean();
}

#[test]
fn retransmissions_are_absorbed() {
    let mut shard = Shard::new();
    let invite = request("INVITE", AGENT, "c", 1, "");
    shard.receive(ALICE, &invite);
    let call = shard.invited();
    let ((), refused) = shard.with(|agent, round| agent.reject(round, call, 603));
    assert!(refused[0].1.starts_with("SIP/2.0 603 "));
    assert_eq!(shard.receive(ALICE, &invite), refused);
    let bye = request("BYE", AGENT, "d", 1, "");
    let answered = shard.receive(ALICE, &bye);
    assert!(answered.len() == 1 && shard.receive(ALICE, &bye) == answered);
    let ack = request("ACK", AGENT, "c", 1, "");
    assert!(shard.receive(ALICE, &ack).is_empty() && shard.receive(ALICE, &ack).is_empty());
    assert_eq!(shard.take_log(), ["agent INVITE", "Absorbed", "agent BYE", "Absorbed", "Absorbed", "Absorbed"]);
    assert!(matches!(shard.agent.event(), Some(Event::Ended { .. })) && shard.agent.event().is_none());
    assert!(shard.receive(BOB, &response(&bye, 200, "b")).is_empty());
    assert_eq!(shard.take_log(), ["Unmatched"]);
    shard.assert_clean();
}

#[test]
fn a_message_is_read_in_canonical_form_with_its_source() {
    let (arrival, mut reader, reading) = (arrival("198.51.100.7:1024"), Reader::default(), Reading::new(SECRET));
    let plain = request("OPTIONS", AGENT, "c", 1, "");
    let mut read = |text: &str, reading: &Reading| match reader.read(&arrival, text.as_bytes(), reading) {
        Received::Request(request) => Ok(String::from_utf8_lossy(request.message.bytes()).into_owned()),
        Received::Response(response) => panic!("{response:?}"),
        Received::Unread(unread) => Err((unread.error.reason, unread.request.is_some())),
    };
    let completed = plain.replace("OPTIONS\r\nMax", "OPTIONS;received=198.51.100.7\r\nMax");
    assert_eq!(read(&plain, &reading), Ok(completed.clone()));
    // Other forms of the same request.
    for (from, to) in [
        ("\r\nCall-ID: c", "\r\nCall-ID: c\r\nCall-ID: c"),
        ("\r\nMax-Forwards: 70", "\r\nMax-Forwards : 70"),
        ("\r\nMax-Forwards: 70", "\r\nMax-Forwards:\r\n 70"),
    ] {
        let text = read(&plain.replace(from, to), &reading).expect("one meaning");
        assert_eq!(text.replace("Max-Forwards:  ", "Max-Forwards: "), completed);
    }
    let named = plain.replace("From: <", "From: Bell, Alice <");
    assert!(
        read(&named, &reading)
            .expect("one meaning")
            .contains("\r\nFrom: \"Bell, Alice\" <sip:alice@example.org>;tag=a\r\n")
    );
    let forced = read(&plain, &Reading { force_rport: true, ..reading }).expect("complete");
    assert!(forced.contains(";received=198.51.100.7;rport=1024\r\n"), "{forced}");
    for (text, reason, is_request) in [
        (plain.replace("Call-ID: c\r\n", "Call-ID: c\r\nCall-ID: d\r\n"), Reason::Repeated, true),
        (plain.replace("Call-ID: c\r\n", ""), Reason::NoCallId, true),
        (plain.replace("\r\nMax-Forwards", "\rMax-Forwards"), Reason::LineEnd, true),
    ] {
        assert_eq!(read(&text, &reading), Err((reason, is_request)), "{text}");
    }
    assert!(read("SIP/2.0 hello\r\n\r\n", &reading).is_err_and(|(_, is_request)| !is_request));
    let double = response(&plain, 200, "b").replace("Call-ID: c\r\n", "Call-ID: c\r\nCall-ID: d\r\n");
    assert_eq!(read(&double, &reading), Err((Reason::Repeated, false)));
}
