//! Far INVITEs that the user agent sends to this server, without a bridge: the test gives the responses of the callee.

use super::*;
use crate::advance::tests::{NOW, arrival, engine_of, first, text};
use crate::engine::{Effect, EngineInput};
use crate::far_leg::FarLeg;
use crate::question::Resolved;
use crate::stage::{Stage, Verdict};
use strowger_calls::CallState;
use strowger_core::user_agent::{CallKey, Invite, UserAgent};
use strowger_core::{ListenerId, Round, Target, Transport, call};

/// Call-ID of the far leg.
const FAR: &[u8] = b"far-1";
const NUMBER: &str = "sip:4930@example.org";
const BOB: &str = "sip:bob@example.org";
/// Caller, and phone of bob.
const PHONE: &str = "198.51.100.7:5060";
const FIRST: &str = "198.51.100.9:5060";
const SECOND: &str = "198.51.100.8:5060";
const SDP: &str = "v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\nm=audio 4000 RTP/AVP 8\r\n";

/// Target and text of a sent message.
type Sent = (String, String);

/// Creates a server that leads numbers to these places.
fn engine(to: &str) -> Engine {
    let rule = format!(
        "[[rule]]\nname = \"gateways\"\nwhen = \"exists number\"\nto = [{to}]\nrelay_for = \"everyone\"\ntry_next = [503]\n"
    );
    engine_of(&format!("domains = [\"example.org\"]\n{rule}"), "registrar.authenticate = false\n")
}

fn two_gateways() -> Engine {
    engine("\"sip:198.51.100.9\", \"sip:198.51.100.8\"")
}

fn sent(out: &Outbox) -> Vec<Sent> {
    assert!(!out.has_looped(), "a round leaves none");
    let text = |range| String::from_utf8_lossy(&out.bytes[range]).into_owned();
    out.sends().iter().map(|send| (send.target.address.to_string(), text(send.range()))).collect()
}

/// Runs `work` with the user agent, and handles what it causes.
fn with_agent(engine: &mut Engine, work: impl FnOnce(&mut UserAgent, &mut Round<'_>)) -> Vec<Sent> {
    let mut out = Outbox::new();
    engine.stack.with_agent(NOW, &mut out, work);
    engine.process_notices(NOW, &mut out);
    sent(&out)
}

/// Makes the far call of a near INVITE for this URI.
fn call(engine: &mut Engine, uri: &str) -> (CallKey, Vec<Sent>) {
    let near = text("INVITE", uri, "sip:alice@example.org", "Max-Forwards: 20\r\n");
    let decision = match first(engine, Stage::Decide, &near) {
        Verdict::Decide(decision) => Some(decision),
        _ => None,
    };
    let (mut index, arrival) = (Index::new(), arrival());
    index.parse(near.as_bytes(), &Limits::default()).expect("a request");
    // Both Call-IDs are in one bucket.
    let call_hash = call::hash(engine.shared.call_secret(), FAR);
    let request = Request::of(Message::new(near.as_bytes(), &index), &arrival, call_hash).expect("a request");
    let (mut progress, mut out) = (Progress { decision, ..Progress::new(NOW) }, Outbox::new());
    let handling = Handling { now: NOW, request: &request, server: None, progress: &mut progress, out: &mut out };
    engine.anchored.far_legs.insert(FAR, FarLeg::of(&handling, 1));
    let mut made = None;
    let sent = with_agent(engine, |agent, round| made = agent.invite(round, &invite(FAR, uri)).ok());
    (made.expect("a call"), sent)
}

fn invite<'a>(call_id: &'a [u8], uri: &'a str) -> Invite<'a> {
    let (from, to): (&[u8], &[u8]) = (b"<sip:alice@example.org>", b"<sip:bob@example.org>");
    Invite { call_id, uri: Some(uri.as_bytes()), ..Invite::new(from, to, Target::LOOPBACK, SDP.as_bytes()) }
}

/// Answers a request that was sent, from its target.
fn respond(engine: &mut Engine, (to, request): &Sent, status: &str, contact: &str) -> Vec<Sent> {
    let is_kept = |line: &&str| ["Via:", "From:", "Call-ID:", "CSeq:"].iter().any(|name| line.starts_with(name));
    let fields: String = request.split("\r\n").filter(is_kept).map(|line| format!("{line}\r\n")).collect();
    let body = if status.starts_with("200") && request.starts_with("INVITE") { SDP } else { "" };
    let text = format!(
        "SIP/2.0 {status}\r\n{fields}To: <sip:bob@example.org>;tag=b\r\n{contact}Content-Type: application/sdp\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let remote = to.parse().expect("an address");
    let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
    let mut out = Outbox::new();
    engine.receive(NOW, &arrival, text.as_bytes(), &mut out);
    sent(&out)
}

/// Returns the only message.
#[track_caller]
fn one(sent: Vec<Sent>) -> Sent {
    let [message] = <[Sent; 1]>::try_from(sent).unwrap_or_else(|sent| panic!("{sent:?}"));
    message
}

fn states(engine: &Engine) -> Vec<CallState> {
    engine.list_calls(NOW, 0, 10, None).calls.iter().map(|call| call.state).collect()
}

#[test]
fn a_far_invite_takes_the_way_of_a_request_and_its_responses_come_back() {
    let mut engine = two_gateways();
    let (_, sent) = call(&mut engine, NUMBER);
    let at_first = one(sent);
    let (to, text) = &at_first;
    assert_eq!(to, FIRST);
    assert!(text.starts_with("INVITE sip:4930@"), "{text}");
    assert!(text.contains("\r\nCall-ID: far-1\r\n") && text.contains("\r\nMax-Forwards: 19\r\n"), "{text}");
    assert!(text.contains("\r\nContact: <sip:alice@192.0.2.1:5060>\r\n"), "{text}");
    assert!(!text.contains("Record-Route") && !text.contains("received="), "{text}");
    // The callee may be at another listener than the first one, whose address is not for it.
    assert!(text.contains("\r\nVia: SIP/2.0/UDP b2bua.invalid;rport;branch="), "{text}");
    assert_eq!(states(&engine), [CallState::Calling]);
    let view = engine.list_calls(NOW, 0, 10, None).calls.remove(0);
    assert_eq!((&view.call_id[..], &view.far_call_id[..]), (&b"1"[..], FAR));
    assert!(engine.anchored.far_legs.context(FAR).is_some());

    // The first gateway refuses, the second one rings and answers.
    let mut sent = respond(&mut engine, &at_first, "503 Unavailable", "");
    let at_second = sent.pop().expect("the second gateway gets it");
    assert_eq!((at_second.0.as_str(), sent.len()), (SECOND, 1), "beside the ACK of the failure");
    assert_eq!(states(&engine), [CallState::Calling]);
    assert_eq!(respond(&mut engine, &at_second, "180 Ringing", "Contact: <sip:gw@198.51.100.8>\r\n"), []);
    assert_eq!(states(&engine), [CallState::Ringing]);
    let (to, ack) = one(respond(&mut engine, &at_second, "200 OK", "Contact: <sip:gw@198.51.100.8>\r\n"));
    assert!(to == SECOND && ack.starts_with("ACK sip:gw@198.51.100.8 SIP/2.0\r\n"), "{to} {ack}");
    assert_eq!((states(&engine), engine.stack.agent.calls()), (vec![CallState::Answered], 1));
    // A copy of the 200 is acknowledged again.
    let (to, _) = one(respond(&mut engine, &at_second, "200 OK", "Contact: <sip:gw@198.51.100.8>\r\n"));
    assert_eq!(to, SECOND);
}

#[test]
fn a_far_invite_is_cancelled_by_the_user_agent() {
    let mut engine = two_gateways();
    let (key, sent) = call(&mut engine, NUMBER);
    let invite = one(sent);
    respond(&mut engine, &invite, "180 Ringing", "");
    let cancel = one(with_agent(&mut engine, |agent, round| agent.hang_up(round, key)));
    assert!(cancel.0 == FIRST && cancel.1.starts_with("CANCEL "), "{cancel:?}");
    assert_eq!(respond(&mut engine, &cancel, "200 OK", ""), []);
    let (to, ack) = one(respond(&mut engine, &invite, "487 Request Terminated", ""));
    assert!(to == FIRST && ack.starts_with("ACK "), "{ack}");
    assert_eq!((states(&engine), engine.stack.agent.calls()), (Vec::new(), 0));
}

#[test]
fn a_far_invite_waits_for_a_name_and_its_cancel_behind_it() {
    let mut engine = engine("\"sip:gw.example.net\"");
    let (key, sent) = call(&mut engine, NUMBER);
    assert_eq!(sent, [], "the caller gets nothing from here");
    let asked = |effect| match effect {
        Effect::Resolve { ticket, name, .. } => Some((ticket, name)),
        _ => None,
    };
    let (ticket, name) = engine.effects.drain(..).find_map(asked).expect("a look-up");
    assert_eq!(with_agent(&mut engine, |agent, round| agent.hang_up(round, key)), []);
    assert_eq!(engine.waiting().held, 1);
    let address = FIRST.parse().expect("an address");
    let to = Resolved { targets: vec![(Transport::Udp, address)], name: None };
    let mut out = Outbox::new();
    engine.answered(NOW, EngineInput::Resolved { ticket, name, to }, &mut out);
    let invite = one(self::sent(&out));
    assert!(invite.0 == FIRST && invite.1.starts_with("INVITE "), "{invite:?}");
    let cancel = one(respond(&mut engine, &invite, "180 Ringing", ""));
    assert!(cancel.1.starts_with("CANCEL "), "{cancel:?}");
}

#[test]
fn a_phone_behind_nat_gets_the_requests_of_the_user_agent_where_the_proxy_reaches_it() {
    let mut engine = two_gateways();
    let register =
        text("REGISTER", "sip:example.org", BOB, "").replace(&format!("sip:alice@{PHONE}"), "sip:bob@10.0.0.5:5060");
    engine.receive(NOW, &arrival(), register.as_bytes(), &mut Outbox::new());
    let (_, sent) = call(&mut engine, BOB);
    let invite = one(sent);
    assert!(invite.0 == PHONE && invite.1.starts_with("INVITE sip:bob@10.0.0.5:5060 "), "{invite:?}");
    let (to, ack) = one(respond(&mut engine, &invite, "200 OK", "Contact: <sip:bob@10.0.0.5:5060>\r\n"));
    assert!(to == PHONE && ack.starts_with("ACK sip:bob@198.51.100.7:5060 "), "{to} {ack}");
}

#[test]
fn a_callee_leads_the_user_agent_to_no_address_that_it_may_not_name() {
    // A named next hop is the source of the answer.
    for (lines, next) in [
        ("Contact: <sip:gw@10.0.0.9:5070>\r\n", Some(("sip:gw@198.51.100.9:5060", FIRST))),
        ("Contact: <sip:gw@gw.example.net>\r\n", Some(("sip:gw@gw.example.net", FIRST))),
        ("Record-Route: <sip:10.0.0.9:5070;lr>\r\nContact: <sip:gw@198.51.100.9>\r\n", None),
    ] {
        let mut engine = engine("\"sip:198.51.100.9\"");
        let (_, sent) = call(&mut engine, NUMBER);
        let sent = respond(&mut engine, &one(sent), "200 OK", lines);
        let Some((uri, next)) = next else {
            assert_eq!((&sent[..], states(&engine), engine.stack.agent.calls()), (&[][..], Vec::new(), 0), "{lines}");
            continue;
        };
        let is_ack = |(to, text): &Sent| to == next && text.starts_with(&format!("ACK {uri} SIP/2.0\r\n"));
        assert!(!sent.is_empty() && sent.iter().all(is_ack), "{lines}: {sent:?}");
    }
}

#[test]
fn an_answer_to_a_change_leads_the_user_agent_to_no_address_that_its_sender_may_not_name() {
    for (contact, uri, next) in [
        ("sip:gw@10.0.0.9:5070", "sip:gw@198.51.100.9:5060", FIRST),
        // Another port of its sender.
        ("sip:gw@198.51.100.9:5062", "sip:gw@198.51.100.9:5062", "198.51.100.9:5062"),
    ] {
        let mut engine = engine("\"sip:198.51.100.9\"");
        let (key, sent) = call(&mut engine, NUMBER);
        one(respond(&mut engine, &one(sent), "200 OK", "Contact: <sip:gw@198.51.100.9>\r\n"));
        let sent =
            with_agent(&mut engine, |agent, round| agent.reinvite(round, key, SDP.as_bytes()).expect("a dialog"));
        let (to, ack) = one(respond(&mut engine, &one(sent), "200 OK", &format!("Contact: <{contact}>\r\n")));
        assert!(to == next && ack.starts_with(&format!("ACK {uri} SIP/2.0\r\n")), "{contact}: {to} {ack}");
        let (to, bye) = one(with_agent(&mut engine, |agent, round| agent.hang_up(round, key)));
        assert!(to == next && bye.starts_with(&format!("BYE {uri} SIP/2.0\r\n")), "{contact}: {to} {bye}");
    }
}

#[test]
fn a_far_invite_that_is_asked_for_a_password_ends_its_call() {
    let mut engine = two_gateways();
    let (_, sent) = call(&mut engine, NUMBER);
    respond(
        &mut engine,
        &one(sent),
        "407 Proxy Authentication Required",
        "Proxy-Authenticate: Digest realm=\"a\", nonce=\"b\"\r\n",
    );
    assert_eq!(
        (states(&engine), engine.stack.agent.calls()),
        (Vec::new(), 0),
        "the caller is not asked, so it does not come again"
    );
}

#[test]
fn an_invite_of_no_far_leg_fails() {
    let mut engine = two_gateways();
    let sent = with_agent(&mut engine, |agent, round| {
        agent.invite(round, &invite(b"other", NUMBER)).expect("addresses");
    });
    assert_eq!((sent, engine.stack.agent.calls(), states(&engine)), (Vec::new(), 0, Vec::new()));
}

#[test]
fn a_far_invite_moves_with_its_bucket() {
    let (mut from, mut to) = (two_gateways(), two_gateways());
    let (_, sent) = call(&mut from, NUMBER);
    let invite = one(sent);
    let bucket = call::bucket(call::hash(from.shared.call_secret(), FAR));
    for record in from.export(NOW, bucket) {
        let mut out = Outbox::new();
        to.import(NOW, record, &mut out);
        assert_eq!(self::sent(&out), []);
    }
    assert_eq!((from.anchored.far_legs.context(FAR), to.anchored.far_legs.context(FAR).is_some()), (None, true));
    let (next, ack) = one(respond(&mut to, &invite, "200 OK", "Contact: <sip:gw@198.51.100.9>\r\n"));
    assert!(next == FIRST && ack.starts_with("ACK "), "{ack}");
    assert_eq!((states(&from), states(&to)), (Vec::new(), vec![CallState::Answered]));
}
