//! Moves of open calls to another shard.

use super::rig::*;
use crate::written::file::recorded;
use crate::written::{Process, through_bytes};
use strowger_core::Target;
use strowger_core::call::{self, BucketSet};
use strowger_core::record;
use strowger_core::user_agent::{Ending, EndpointRecord, Event, Register, UserAgentSettings};

fn words(net: &Net) -> Vec<&str> {
    net.log.iter().map(String::as_str).collect()
}

#[test]
fn an_invite_that_rings() {
    let mut net = Net::two();
    let (caller, callee) = net.ringing();
    let caller = net.moves(0, 1).call(caller).expect("it moved");
    let callee = net.moves(1, 1).call(callee).expect("it moved");
    net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(50);
    assert!(matches!(net.last(0).event, Event::Answered { call, .. } if call == caller));
    assert!(matches!(net.last(1).event, Event::Confirmed { call, .. } if call == callee));
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.run(50);
    assert!(matches!(net.last(1).event, Event::Ended { by: Ending::Remote, .. }));
    net.is_clean();
}

#[test]
fn a_2xx_that_waits_for_its_ack() {
    let mut net = Net::two();
    let (_, callee) = net.calling();
    net.lose = Box::new(|line| line == "0>1 ACK");
    net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(600);
    net.log.clear();
    let callee = net.moves(1, 1).call(callee).expect("it moved");
    // The response is repeated as without a move: one second after the previous copy.
    net.run(800);
    assert_eq!(words(&net), [""; 0]);
    net.run(200);
    assert_eq!(words(&net), ["1>0 200 INVITE", "0>1 ACK"]);
    net.lose = Box::new(|_| false);
    net.run(4_000);
    assert!(matches!(net.last(1).event, Event::Confirmed { call, .. } if call == callee));
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.is_clean();
}

#[test]
fn a_call_that_is_up_moves_and_moves() {
    let mut net = Net::two();
    let (mut caller, mut callee) = net.up();
    for shard in 1..=4 {
        caller = net.moves(0, shard).call(caller).expect("it moved");
        callee = net.moves(1, shard).call(callee).expect("it moved");
        net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
        net.run(20);
        assert!(matches!(net.last(1).event, Event::Offered { call, .. } if call == callee));
        net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
        net.run(50);
        assert!(matches!(net.last(0).event, Event::Changed { call, .. } if call == caller));
    }
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.run(50);
    assert!(matches!(net.last(0).event, Event::Ended { by: Ending::Remote, .. }));
    net.is_clean();
}

#[test]
fn a_re_invite_and_an_update_that_are_open() {
    let mut net = Net::two();
    let (caller, callee) = net.up();
    net.with(0, |agent, round| agent.reinvite(round, caller, OFFER)).unwrap();
    net.run(20);
    let (caller, callee) = (net.moves(0, 1).call(caller).unwrap(), net.moves(1, 1).call(callee).unwrap());
    net.with(1, |agent, round| agent.answer(round, callee, ANSWER));
    net.run(50);
    assert!(matches!(net.last(0).event, Event::Changed { .. }));
    net.with(1, |agent, round| agent.update(round, callee, OFFER)).unwrap();
    net.run(20);
    let (caller, callee) = (net.moves(0, 2).call(caller).unwrap(), net.moves(1, 2).call(callee).unwrap());
    net.with(0, |agent, round| agent.answer_update(round, caller, ANSWER));
    net.run(50);
    assert!(matches!(net.last(1).event, Event::Changed { .. }));
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.run(50);
    net.is_clean();
}

#[test]
fn a_bye_that_was_lost_is_sent_again_from_the_other_shard() {
    let mut net = Net::two();
    let (caller, _) = net.up();
    net.lose = Box::new(|line| line == "0>1 BYE");
    net.with(0, |agent, round| agent.hang_up(round, caller));
    net.run(100);
    net.moves(0, 1);
    net.lose = Box::new(|_| false);
    net.run(600);
    assert!(matches!(net.last(0).event, Event::Ended { by: Ending::Local, .. }));
    net.is_clean();
}

fn register(target: Target) -> Register<'static> {
    Register {
        aor: b"sip:alice@example.org",
        registrar: b"sip:example.org",
        routes: b"",
        target,
        account: None,
        expires: 600,
        headers: b"",
    }
}

#[test]
fn a_registration_is_refreshed_by_the_other_shard() {
    let mut net = Net::new([quiet()]);
    let target = net.target(8);
    let key = net.with(0, |agent, round| agent.register(round, &register(target))).unwrap();
    let ok = |net: &mut Net| {
        let sent = net.sent.last().cloned().expect("a REGISTER");
        let contact = sent.lines().find(|line| line.starts_with("Contact:")).expect("it has one").to_owned();
        net.inject(0, &respond(&sent, 200, &format!("{contact};expires=600\n")));
    };
    ok(&mut net);
    assert!(matches!(net.last(0).event, Event::Registered { registration, .. } if registration == key));
    let key = net.moves(0, 1).registration(key).expect("it moved");
    let before = net.sent.len();
    net.run(299_000);
    assert_eq!(net.sent.len(), before);
    net.run(2_000);
    assert!(net.sent.len() > before, "half of its time is over");
    ok(&mut net);
    assert!(matches!(net.last(0).event, Event::Registered { registration, .. } if registration == key));
    net.with(0, |agent, round| agent.unregister(round, key));
    let sent = net.sent.last().cloned().expect("a REGISTER");
    net.inject(0, &respond(&sent, 200, ""));
    net.is_clean();
}

#[test]
fn open_requests_move_too() {
    let mut net = Net::new([quiet(), UserAgentSettings { other_methods: true, ..quiet() }]);
    let (caller, callee) = net.up();
    let refer = strowger_message::Method::Refer;
    net.with(0, |agent, round| agent.request_within(round, caller, refer, b"", b"")).unwrap();
    net.run(20);
    let Event::Request { request, .. } = net.last(1).event else { panic!("{:?}", net.last(1).event) };
    let moved = net.moves(1, 1);
    let (callee, request) = (moved.call(callee).unwrap(), moved.incoming(request).unwrap());
    net.with(1, |agent, round| agent.respond(round, request, 202, b"", b""));
    net.run(20);
    assert!(matches!(net.last(0).event, Event::Reply { status: 202, .. }));
    net.with(1, |agent, round| agent.hang_up(round, callee));
    net.run(50);
    net.is_clean();
}

#[test]
fn one_bucket_alone_moves() {
    let mut net = Net::two();
    let calls: Vec<_> = (0..20).map(|_| net.call(OFFER)).collect();
    net.run(20);
    let of = |text: &str| {
        let id = text.lines().find_map(|line| line.strip_prefix("Call-ID: ")).expect("it has one");
        call::bucket(call::hash(7, id.as_bytes()))
    };
    let first = of(&net.sent[0]);
    let same = net.sent.iter().filter(|text| text.starts_with("INVITE") && of(text) == first).count();
    let record = net.phones[0].endpoint.export(net.now, BucketSet::of(|bucket| bucket == first));
    assert_eq!(net.phones[0].endpoint.agent.calls(), calls.len() - same);
    let moved = net.phones[0].endpoint.import(net.now, record);
    assert!(moved.call(calls[0]).is_some());
    assert_eq!(net.phones[0].endpoint.agent.calls(), calls.len());
}

#[test]
fn call_ids_fall_into_buckets_of_the_shard() {
    let mut net = Net::two();
    let some = BucketSet::of(|bucket| bucket % 16 == 3);
    net.phones[0].endpoint.export(net.now, BucketSet::ALL.without(some));
    let record = net.phones[1].endpoint.export(net.now, some);
    for _ in 0..50 {
        net.call(OFFER);
    }
    let of = |text: &String| {
        let id = text.lines().find_map(|line| line.strip_prefix("Call-ID: ")).expect("it has one");
        call::bucket(call::hash(7, id.as_bytes()))
    };
    let invites = |net: &Net| net.sent.iter().filter(|text| text.starts_with("INVITE")).map(of).collect::<Vec<_>>();
    let first = invites(&net);
    assert!(first.len() == 50 && first.iter().all(|&bucket| some.contains(bucket)), "{first:?}");
    // Buckets that moved away get no new Call-IDs, and added ones do.
    net.phones[0].endpoint.export(net.now, some);
    net.phones[0].endpoint.import(net.now, record);
    net.phones[0].endpoint.export(net.now, BucketSet::of(|bucket| bucket % 16 == 3 && bucket < 128));
    for _ in 0..50 {
        net.call(OFFER);
    }
    let then = invites(&net).split_off(50);
    assert!(then.len() == 50 && then.iter().all(|&bucket| some.contains(bucket) && bucket >= 128), "{then:?}");
}

#[test]
fn a_call_id_is_in_the_bucket_that_is_wanted() {
    let mut net = Net::two();
    let mut ids = std::collections::BTreeSet::new();
    for bucket in (0..=u8::MAX).chain(0..=u8::MAX) {
        let id = net.with(0, |agent, _| agent.call_id_in(bucket));
        assert_eq!(call::bucket(call::hash(7, &id)), bucket);
        assert!(ids.insert(id));
    }
}

/// Returns a phone with a call through a proxy, a REFER in it that waits for its owner, a ringing INVITE, and a registration.
fn with_all() -> Net {
    let mut net = Net::new([UserAgentSettings { other_methods: true, ..quiet() }]);
    let target = net.target(8);
    let invite = |net: &mut Net| net.with(0, |agent, round| agent.invite(round, &invite(target, OFFER))).unwrap();
    invite(&mut net);
    let sent = net.sent[0].clone();
    let peer = "Contact: <sip:bob@127.0.0.9:5070>\nRecord-Route: <sip:127.0.0.9;lr>\n";
    net.inject(0, &respond(&sent, 200, peer));
    let dialog: String =
        sent.lines().filter(|line| line.starts_with("Call-ID:")).map(|line| format!("{line}\n")).collect();
    let ours = sent.lines().find_map(|line| line.strip_prefix("From: ")).expect("it has one");
    net.inject(
        0,
        &format!(
            "REFER sip:alice@127.0.0.1 SIP/2.0\nVia: SIP/2.0/UDP 127.0.0.99;branch=z9hG4bKrefer\nMax-Forwards: 70\n\
             From: <sip:bob@biloxi.example>;tag=peer\nTo: {ours}\n{dialog}CSeq: 9 REFER\nContact: <sip:bob@127.0.0.9:5070>\n\
             Refer-To: <sip:carol@example.org>\nContent-Length: 0\n\n"
        ),
    );
    invite(&mut net);
    let sent = net.sent.last().expect("an INVITE").clone();
    net.inject(0, &respond(&sent, 180, peer));
    net.with(0, |agent, round| agent.register(round, &register(target))).unwrap();
    net.run(100);
    let agent = &net.phones[0].endpoint.agent;
    assert_eq!((agent.calls(), agent.registrations(), agent.open_requests()), (2, 1, 1));
    net
}

#[test]
fn a_record_of_this_version_is_taken_up() {
    let mut net = with_all();
    let record = net.export(0);
    let bytes = recorded("tests/suite/user_agent", record);
    let record = || record::read(&bytes, &Process(0)).expect("the form has changed: raise its version");
    assert_eq!(record::write(record(), &Process(0)), bytes);
    net.import(0, 1, record());
    net.sent.clear();
    net.run(1_000);
    assert!(net.sent.len() == 1 && net.sent[0].starts_with("REGISTER "), "it is sent again: {:?}", net.sent);
}

#[test]
fn listeners_go_by_name_to_another_process() {
    let bytes = record::write(with_all().export(0), &Process(0));
    let there: EndpointRecord = record::read(&bytes, &Process(70)).unwrap();
    assert!(!format!("{there:?}").contains("ListenerId(0)"), "{there:?}");
    assert_eq!(record::write(there, &Process(70)), bytes);
}

#[test]
fn a_record_continues_by_another_clock() {
    let mut net = with_all();
    let calls = net.phones[0].endpoint.agent.calls();
    let deadline = net.phones[0].endpoint.deadline().expect("a timer runs") - net.now.mono;
    let record = through_bytes(net.export(0));
    net.now.mono = 5;
    net.import(0, 1, record);
    let endpoint = &mut net.phones[0].endpoint;
    assert_eq!((endpoint.deadline(), endpoint.agent.calls()), (Some(5 + deadline), calls));
    // The owner may still answer the REFER for this time.
    for (ms, open) in [(31_000, 1), (1_000, 0)] {
        net.run(ms);
        assert_eq!(net.phones[0].endpoint.agent.open_requests(), open);
    }
}

#[test]
fn a_call_that_was_written_down_is_ended_by_its_reader() {
    let mut net = with_all();
    let call = net.phones[0].heard.iter().find_map(|heard| match heard.event {
        Event::Answered { call, .. } => Some(call),
        _ => None,
    });
    let moved = net.moves(0, 1);
    let call = moved.call(call.expect("it was answered")).expect("it moved");
    net.sent.clear();
    net.with(0, |agent, round| agent.hang_up(round, call));
    let bye = net.sent.iter().find(|text| text.starts_with("BYE ")).expect("a BYE");
    for part in ["BYE sip:bob@127.0.0.9:5070 ", "Route: <sip:127.0.0.9;lr>", ";tag=peer", "CSeq: 2 BYE"] {
        assert!(bye.contains(part), "{part}: {bye}");
    }
}
