//! Transactions driven from outside: sent messages and their times, events, remaining state.

mod memory;
mod world;

use self::world::{BYE, INVITE, World, arrival, message, times, tu};
use std::collections::BTreeMap;
use std::ops::Range;
use strowger_core::slots::Id;
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{ClientId, Event, Incoming, Role, ServerId, Side, TransactionUser, Transactions};
use strowger_core::{Arrival, Flow, ListenerId, Now, Outbox, Target, Transport, call};
use strowger_message::{Index, Limits, Message};

#[test]
fn an_invite_is_sent_seven_times_then_given_up() {
    let mut world = World::new();
    let invite = message(INVITE, "z9hG4bK1", "1 INVITE");
    let id = world.send(&invite, "z9hG4bK1", Transport::Udp);
    assert_eq!(world.sent(), std::slice::from_ref(&invite));
    // Timer A doubles without bound (RFC 3261 section 17.1.1.2).
    assert_eq!(times(&world.pass(31_999), &invite), [500, 1_500, 3_500, 7_500, 15_500, 31_500]);
    assert_eq!(world.events, []);
    world.pass(1_000);
    assert_eq!(world.events, [Event::Timeout { id, tu: tu(42) }, Event::ClientEnded { id, tu: tu(42) }]);
    world.assert_empty();
}

#[test]
fn a_bye_is_sent_eleven_times_then_given_up() {
    let mut world = World::new();
    let bye = message(BYE, "z9hG4bK1", "2 BYE");
    world.send(&bye, "z9hG4bK1", Transport::Udp);
    world.sent();
    // Timer E doubles up to T2 (section 17.1.2.2).
    let want = [500, 1_500, 3_500, 7_500, 11_500, 15_500, 19_500, 23_500, 27_500, 31_500];
    assert_eq!(times(&world.pass(33_000), &bye), want);
    assert_eq!(world.events.len(), 2);
    world.assert_empty();
}

#[test]
fn a_failure_is_acknowledged_as_often_as_it_comes() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut world = World::new();
        let id = world.send(&message(INVITE, "z9hG4bK1", "1 INVITE"), "z9hG4bK1", transport);
        world.sent();
        let ringing = world.response(&message("SIP/2.0 180 Ringing", "z9hG4bK1", "1 INVITE"));
        assert_eq!(ringing, Incoming::Response { id, tu: tu(42), after_final: false });
        assert_eq!(world.pass(100_000), [], "timers A and B are off");
        let busy = message("SIP/2.0 486 Busy Here", "z9hG4bK1", "1 INVITE");
        assert_eq!(world.response(&busy), Incoming::Response { id, tu: tu(42), after_final: false });
        let ack = world.sent();
        assert_eq!(ack.len(), 1);
        assert!(ack[0].starts_with("ACK sip:b@x SIP/2.0\r\n") && ack[0].contains("To: <sip:b@x>;tag=t\r\n"));
        assert_eq!(world.response(&busy), Incoming::Absorbed);
        assert_eq!(world.sent(), if transport == Transport::Udp { ack } else { Vec::new() });
        world.pass(if transport == Transport::Udp { 32_100 } else { 0 });
        assert_eq!(world.events, [Event::ClientEnded { id, tu: tu(42) }]);
        assert_eq!(world.response(&busy), Incoming::Unmatched);
        world.assert_empty();
    }
}

#[test]
fn every_2xx_reaches_the_user_for_64_t1() {
    let mut world = World::new();
    let id = world.send(&message(INVITE, "z9hG4bK1", "1 INVITE"), "z9hG4bK1", Transport::Udp);
    world.sent();
    let ok = message("SIP/2.0 200 OK", "z9hG4bK1", "1 INVITE");
    assert_eq!(world.response(&ok), Incoming::Response { id, tu: tu(42), after_final: false });
    assert_eq!(world.table.counts().kept_bytes, 0, "the INVITE is needed no longer");
    assert_eq!(world.pass(31_000), []);
    assert_eq!(world.response(&ok), Incoming::Response { id, tu: tu(42), after_final: true });
    assert_eq!(world.response(&message("SIP/2.0 486 Busy", "z9hG4bK1", "1 INVITE")), Incoming::Absorbed);
    world.pass(1_100);
    assert_eq!(world.response(&ok), Incoming::Unmatched);
    world.assert_empty();
}

#[test]
fn a_failure_is_sent_until_its_ack_comes() {
    let mut world = World::new();
    let invite = message(INVITE, "z9hG4bK1", "1 INVITE");
    let id = world.new_request(&invite, Transport::Udp);
    assert_eq!(world.request(&invite, Transport::Udp), Incoming::Absorbed);
    assert!(world.sent().is_empty(), "nothing to answer with yet");
    let trying = message("SIP/2.0 100 Trying", "z9hG4bK1", "1 INVITE");
    assert!(world.respond(id, &trying));
    assert_eq!(world.request(&invite, Transport::Udp), Incoming::Absorbed);
    assert_eq!(world.sent(), [trying.clone(), trying]);
    let busy = message("SIP/2.0 486 Busy Here", "z9hG4bK1", "1 INVITE");
    assert!(world.respond(id, &busy));
    assert!(!world.respond(id, &message("SIP/2.0 500 No", "z9hG4bK1", "1 INVITE")), "one final response");
    world.sent();
    assert_eq!(times(&world.pass(8_000), &busy), [500, 1_500, 3_500, 7_500], "timer G");
    assert_eq!(world.request(&invite, Transport::Udp), Incoming::Absorbed);
    assert_eq!(world.sent(), std::slice::from_ref(&busy));
    let ack = message("ACK sip:b@x SIP/2.0", "z9hG4bK1", "1 ACK");
    assert_eq!(world.request(&ack, Transport::Udp), Incoming::Absorbed);
    assert_eq!(world.pass(4_900), []);
    assert_eq!(world.request(&invite, Transport::Udp), Incoming::Absorbed, "timer I still runs");
    world.pass(200);
    assert_eq!(world.events, [Event::ServerEnded { id, tu: TransactionUser::NONE }]);
    world.assert_empty();
}

#[test]
fn a_failure_without_ack_is_reported() {
    for transport in [Transport::Udp, Transport::Tls] {
        let mut world = World::new();
        let id = world.new_request(&message(INVITE, "z9hG4bK1", "1 INVITE"), transport);
        world.table.set_user(id, tu(9));
        world.respond(id, &message("SIP/2.0 486 Busy Here", "z9hG4bK1", "1 INVITE"));
        world.sent();
        let resent = world.pass(33_000).len();
        assert_eq!(resent, if transport == Transport::Udp { 10 } else { 0 });
        assert_eq!(world.events, [Event::NoAck { id, tu: tu(9) }, Event::ServerEnded { id, tu: tu(9) }]);
        world.assert_empty();
    }
}

#[test]
fn an_accepted_invite_swallows_its_copies_and_passes_the_rest() {
    let mut world = World::new();
    let invite = message(INVITE, "z9hG4bK1", "1 INVITE");
    let id = world.new_request(&invite, Transport::Udp);
    let ok = message("SIP/2.0 200 OK", "z9hG4bK1", "1 INVITE");
    assert!(world.respond(id, &ok));
    assert_eq!(world.request(&invite, Transport::Udp), Incoming::Absorbed);
    assert!(world.respond(id, &ok));
    assert_eq!(world.sent(), [ok.clone(), ok]);
    let ack = message("ACK sip:b@x SIP/2.0", "z9hG4bK1", "1 ACK");
    assert_eq!(world.request(&ack, Transport::Udp), Incoming::Ack, "an ACK with the INVITE's branch");
    assert_eq!(world.request(&message("ACK sip:b@x SIP/2.0", "z9hG4bK2", "1 ACK"), Transport::Udp), Incoming::Ack);
    world.pass(32_100);
    assert_eq!(world.events, [Event::ServerEnded { id, tu: TransactionUser::NONE }]);
    world.assert_empty();
}

#[test]
fn a_bye_is_answered_again_for_64_t1() {
    let mut world = World::new();
    let bye = message(BYE, "z9hG4bK1", "2 BYE");
    let id = world.new_request(&bye, Transport::Udp);
    let ok = message("SIP/2.0 200 OK", "z9hG4bK1", "2 BYE");
    world.respond(id, &ok);
    world.sent();
    for _ in 0..3 {
        assert_eq!(world.request(&bye, Transport::Udp), Incoming::Absorbed);
        assert_eq!(world.sent(), std::slice::from_ref(&ok));
        assert_eq!(world.pass(10_000), []);
    }
    world.pass(2_100);
    assert!(matches!(world.request(&bye, Transport::Udp), Incoming::Request(_)));
    assert_eq!(world.table.counts().request_retransmissions, 3);
}

#[test]
fn streams_keep_no_response_and_end_at_once() {
    let mut world = World::new();
    let id = world.new_request(&message(BYE, "z9hG4bK1", "2 BYE"), Transport::Tcp);
    world.respond(id, &message("SIP/2.0 200 OK", "z9hG4bK1", "2 BYE"));
    assert_eq!(world.table.counts().kept_bytes, 0);
    let client = world.send(&message(BYE, "z9hG4bK2", "2 BYE"), "z9hG4bK2", Transport::Tcp);
    world.response(&message("SIP/2.0 200 OK", "z9hG4bK2", "2 BYE"));
    world.pass(0);
    assert_eq!(
        world.events,
        [Event::ServerEnded { id, tu: TransactionUser::NONE }, Event::ClientEnded { id: client, tu: tu(42) }]
    );
    world.assert_empty();
}

#[test]
fn a_cancel_waits_for_a_provisional_response() {
    let mut world = World::new();
    let id = world.send(&message(INVITE, "z9hG4bK1", "1 INVITE"), "z9hG4bK1", Transport::Udp);
    world.sent();
    assert!(world.table.cancel(world.now, id, None, &mut world.out));
    assert!(!world.table.cancel(world.now, id, None, &mut world.out), "once is enough");
    assert_eq!(world.sent(), Vec::<String>::new());
    world.response(&message("SIP/2.0 100 Trying", "z9hG4bK1", "1 INVITE"));
    let cancel = world.sent();
    assert_eq!(cancel.len(), 1);
    assert!(cancel[0].starts_with("CANCEL sip:b@x SIP/2.0\r\nVia: SIP/2.0/UDP 127.0.0.1:5070;branch=z9hG4bK1\r\n"));
    assert_eq!(times(&world.pass(600), &cancel[0]), [500]);
    assert_eq!(world.response(&message("SIP/2.0 200 OK", "z9hG4bK1", "1 CANCEL")), Incoming::Absorbed);
    let ended = message("SIP/2.0 487 Request Terminated", "z9hG4bK1", "1 INVITE");
    assert_eq!(world.response(&ended), Incoming::Response { id, tu: tu(42), after_final: false });
    world.sent();
    world.pass(33_000);
    assert_eq!(world.events, [Event::ClientEnded { id, tu: tu(42) }]);
    world.assert_empty();
}

#[test]
fn a_cancelled_invite_without_final_response_ends() {
    let mut world = World::new();
    let id = world.send(&message(INVITE, "z9hG4bK1", "1 INVITE"), "z9hG4bK1", Transport::Udp);
    world.response(&message("SIP/2.0 180 Ringing", "z9hG4bK1", "1 INVITE"));
    assert!(world.table.cancel(world.now, id, None, &mut world.out));
    world.pass(33_000);
    assert_eq!(world.events, [Event::Timeout { id, tu: tu(42) }, Event::ClientEnded { id, tu: tu(42) }]);
    world.assert_empty();
}

#[test]
fn a_cancel_finds_its_invite() {
    let mut world = World::new();
    let invite = world.new_request(&message(INVITE, "z9hG4bK1", "1 INVITE"), Transport::Udp);
    let text = message("CANCEL sip:b@x SIP/2.0", "z9hG4bK1", "1 CANCEL");
    let Incoming::Cancel { cancel, invite: found } = world.request(&text, Transport::Udp) else { panic!() };
    assert_eq!(found, Some(invite));
    world.respond(cancel, &message("SIP/2.0 200 OK", "z9hG4bK1", "1 CANCEL"));
    assert_eq!(world.request(&text, Transport::Udp), Incoming::Absorbed);
    assert_eq!(world.sent().len(), 2);
    let other = message("CANCEL sip:b@x SIP/2.0", "z9hG4bK2", "1 CANCEL");
    assert!(matches!(world.request(&other, Transport::Udp), Incoming::Cancel { invite: None, .. }));
}

#[test]
fn a_message_that_cannot_be_sent_is_reported() {
    let mut world = World::new();
    let id = world.send(&message(BYE, "z9hG4bK1", "2 BYE"), "z9hG4bK1", Transport::Udp);
    let token = world.out.sends()[0].token;
    assert_eq!(token, id.to_u64());
    world.table.failed(world.now, token, &mut world.out, &mut world.events);
    assert_eq!(world.events, [Event::ClientTransportError { id, tu: tu(42) }, Event::ClientEnded { id, tu: tu(42) }]);
    for token in [token, 0, 1, u64::MAX] {
        world.table.failed(world.now, token, &mut world.out, &mut world.events);
    }
    assert_eq!(world.events.len(), 2);
    world.sent();
    world.assert_empty();
}

#[test]
fn an_unreachable_request_is_reported_if_it_is_quoted_and_unanswered() {
    let there = arrival(Transport::Udp).remote;
    for (start, cseq) in [(INVITE, "1 INVITE"), (BYE, "2 BYE")] {
        let mut world = World::new();
        let text = message(start, "z9hG4bK1", cseq);
        let quoted = &text.as_bytes()[..text.find("Max-Forwards").unwrap()];
        let id = world.send(&text, "z9hG4bK1", Transport::Udp);
        let mut hear = |to, quoted: &[u8]| {
            let World { now, table, out, events } = &mut world;
            table.unreachable(*now, to, quoted, out, events)
        };
        // Another address, another branch or method, a truncated quote, a response.
        assert!(!hear("127.0.0.1:5071".parse().unwrap(), quoted) && !hear("127.0.0.2:5070".parse().unwrap(), quoted));
        for other in [
            message(start, "z9hG4bK2", cseq).into_bytes(),
            message("OPTIONS sip:b@x SIP/2.0", "z9hG4bK1", cseq).into_bytes(),
            message("SIP/2.0 200 OK", "z9hG4bK1", cseq).into_bytes(),
            quoted[..quoted.len() - 1].to_vec(),
            Vec::new(),
        ] {
            assert!(!hear(there, &other), "{}", String::from_utf8_lossy(&other));
        }
        assert!(hear(there, quoted) && !hear(there, quoted));
        assert_eq!(
            world.events,
            [Event::ClientTransportError { id, tu: tu(42) }, Event::ClientEnded { id, tu: tu(42) }]
        );
        world.sent();
        world.assert_empty();
    }
}

#[test]
fn an_icmp_error_ends_no_answered_request_and_none_on_a_connection() {
    for (transport, answer) in
        [(Transport::Udp, "SIP/2.0 100 Trying"), (Transport::Udp, "SIP/2.0 404 Not Found"), (Transport::Tcp, "")]
    {
        let mut world = World::new();
        let text = message(INVITE, "z9hG4bK1", "1 INVITE");
        world.send(&text, "z9hG4bK1", transport);
        if !answer.is_empty() {
            world.response(&message(answer, "z9hG4bK1", "1 INVITE"));
        }
        let World { now, table, out, events } = &mut world;
        assert!(!table.unreachable(*now, arrival(transport).remote, text.as_bytes(), out, events));
        assert_eq!((world.events.len(), world.table.counts().clients), (0, 1));
    }
}

#[test]
fn a_request_whose_connection_ends_goes_once_more_by_another_and_then_fails() {
    for (start, cseq) in [(INVITE, "1 INVITE"), (BYE, "2 BYE")] {
        let mut world = World::new();
        let text = message(start, "z9hG4bK1", cseq);
        let id = world.send(&text, "z9hG4bK1", Transport::Tcp);
        assert_eq!(world.sent(), std::slice::from_ref(&text));
        let cut_off = |world: &mut World| {
            let World { now, table, out, events } = world;
            table.cut_off(*now, id.to_u64(), out, events);
        };
        cut_off(&mut world);
        assert_eq!((world.sent(), world.events.len()), (vec![text], 0));
        cut_off(&mut world);
        assert_eq!(
            world.events,
            [Event::ClientTransportError { id, tu: tu(42) }, Event::ClientEnded { id, tu: tu(42) }]
        );
        assert!(world.sent().is_empty());
        cut_off(&mut world);
        assert_eq!(world.events.len(), 2);
        world.assert_empty();
    }
}

/// Covers a phone behind its own connection, which accepts no other connection.
#[test]
fn a_request_over_a_flow_fails_with_it() {
    let mut world = World::new();
    let text = message(INVITE, "z9hG4bK1", "1 INVITE");
    let start = world.out.start();
    world.out.bytes.extend_from_slice(text.as_bytes());
    let flow = Some(Flow { node: 0, process: 1, shard: 0, slot: 3, generation: 1 });
    let target = Target { flow, ..arrival(Transport::Tls).reply() };
    let World { now, table, out, events } = &mut world;
    let range = start..out.bytes.len();
    let id = table.send(*now, range, b"z9hG4bK1", b"INVITE", target, 7, tu(42), out);
    table.cut_off(*now, id.to_u64(), out, events);
    assert_eq!(events[0], Event::ClientTransportError { id, tu: tu(42) });
    assert_eq!(world.sent().len(), 1);
}

#[test]
fn the_end_of_a_connection_ends_no_transaction_that_waits_for_no_answer() {
    let answered = message("SIP/2.0 180 Ringing", "z9hG4bK1", "1 INVITE");
    for (transport, response) in [(Transport::Tcp, &*answered), (Transport::Udp, "")] {
        let mut world = World::new();
        let id = world.send(&message(INVITE, "z9hG4bK1", "1 INVITE"), "z9hG4bK1", transport);
        if !response.is_empty() {
            world.response(response);
        }
        world.sent();
        let World { now, table, out, events } = &mut world;
        table.cut_off(*now, id.to_u64(), out, events);
        assert_eq!((world.events.len(), world.sent().len(), world.table.counts().clients), (0, 0, 1));
    }
    let mut world = World::new();
    let id = world.new_request(&message(BYE, "z9hG4bK1", "2 BYE"), Transport::Tcp);
    world.respond(id, &message("SIP/2.0 200 OK", "z9hG4bK1", "2 BYE"));
    world.sent();
    let World { now, table, out, events } = &mut world;
    table.cut_off(*now, id.to_u64(), out, events);
    assert_eq!((world.events.len(), world.sent().len()), (0, 0), "a response");
}

#[test]
fn the_bound_refuses_new_requests_only() {
    let mut world = World::new();
    world.table.set_limit(1);
    let bye = message(BYE, "z9hG4bK1", "2 BYE");
    world.new_request(&bye, Transport::Udp);
    assert_eq!(world.request(&message(BYE, "z9hG4bK2", "2 BYE"), Transport::Udp), Incoming::Full);
    assert_eq!(world.request(&bye, Transport::Udp), Incoming::Absorbed);
    assert_eq!(world.table.counts().refused, 1);
}

#[test]
fn the_cancel_of_an_invite_needs_no_room() {
    let mut world = World::new();
    world.table.set_limit(1);
    let invite = world.new_request(&message(INVITE, "z9hG4bK1", "1 INVITE"), Transport::Udp);
    let cancel = |branch| message("CANCEL sip:b@x SIP/2.0", branch, "1 CANCEL");
    let Incoming::Cancel { invite: found, .. } = world.request(&cancel("z9hG4bK1"), Transport::Udp) else { panic!() };
    assert_eq!(found, Some(invite));
    assert_eq!(world.request(&cancel("z9hG4bK1"), Transport::Udp), Incoming::Absorbed);
    assert_eq!(world.request(&cancel("z9hG4bK2"), Transport::Udp), Incoming::Full, "it cancels nothing");
}

#[test]
fn the_reserve_is_bounded_and_each_call_has_its_share() {
    let mut world = World::new();
    world.table.set_limit(1);
    world.new_request(&message(BYE, "z9hG4bK0", "2 BYE"), Transport::Udp);
    let admit = |world: &mut World, number: u32, method: &str, call: u32| {
        let start = format!("{method} sip:b@x SIP/2.0");
        let text = message(&start, &format!("z9hG4bKr{number}"), &format!("{number} {method}"));
        assert_eq!(world.request(&text, Transport::Udp), Incoming::Full);
        world.admit_within_dialog(&text, call)
    };
    let mut admitted: Vec<_> = (0..20).filter_map(|n| admit(&mut world, n, "UPDATE", 1)).collect();
    assert_eq!(admitted.len(), 8, "one call does not fill it");
    admitted.extend(admit(&mut world, 30, "BYE", 1));
    assert_eq!(admitted.len(), 9, "its BYE has a place of its own");
    admitted.extend((40..80).filter_map(|n| admit(&mut world, n, "UPDATE", n)));
    assert_eq!(admitted.len(), 16);
    let counts = world.table.counts();
    assert_eq!((counts.reserved, counts.refused), (16, 20 + 1 + 40 - 16));
    // A transaction that ends frees its place.
    world.table.abandon(world.now, admitted[0]);
    world.pass(1_000);
    assert!(admit(&mut world, 90, "UPDATE", 200).is_some());
    assert!(admit(&mut world, 91, "UPDATE", 100).is_none());
    assert_eq!(world.request(&message(BYE, "z9hG4bK0", "2 BYE"), Transport::Udp), Incoming::Absorbed);
}

#[test]
fn old_peers_are_matched_without_magic_cookie() {
    let mut world = World::new();
    let id = world.new_request(&message(INVITE, "1", "1 INVITE"), Transport::Udp);
    assert_eq!(world.request(&message(INVITE, "1", "1 INVITE"), Transport::Udp), Incoming::Absorbed);
    world.respond(id, &message("SIP/2.0 486 Busy Here", "1", "1 INVITE"));
    assert_eq!(world.request(&message("ACK sip:b@x SIP/2.0", "1", "1 ACK"), Transport::Udp), Incoming::Absorbed);
    world.sent();
    world.pass(5_100);
    world.assert_empty();
}

#[test]
fn transactions_move_to_another_table_and_go_on() {
    let (mut old, mut new) = (World::new(), World::new());
    let bye = message(BYE, "z9hG4bK1", "2 BYE");
    let server = old.new_request(&bye, Transport::Udp);
    let ok = message("SIP/2.0 200 OK", "z9hG4bK1", "2 BYE");
    old.table.set_user(server, tu(5));
    old.respond(server, &ok);
    let invite = message(INVITE, "z9hG4bK2", "1 INVITE");
    let client = old.send(&invite, "z9hG4bK2", Transport::Udp);
    old.sent();
    assert_eq!(old.pass(600).len(), 1);
    new.now.mono = 77_000;
    let mut ids = BTreeMap::new();
    let records = old.table.export(old.now, |_| true);
    assert_eq!(records.len(), 2);
    old.assert_empty();
    for record in records {
        let (id, side) = (record.id, record.side);
        let Role::UserAgent(Id { slot: user, .. }) = record.tu.role() else { panic!("it has a user") };
        assert_eq!(id, if side == Side::Server { server.to_u64() } else { client.to_u64() });
        ids.insert(side == Side::Server, new.table.import(new.now, record, tu(user + 1)));
    }
    let (server, client) = (ServerId::from_u64(ids[&true]), ClientId::from_u64(ids[&false]));
    assert_eq!((new.table.user(server), new.table.client_user(client)), (tu(6), tu(43)));
    assert_eq!(new.request(&bye, Transport::Udp), Incoming::Absorbed);
    assert_eq!(new.sent(), [ok]);
    // The third copy is due 1,500 ms after the first: 900 from now.
    assert_eq!(times(&new.pass(1_000), &invite), [900]);
    new.pass(32_000);
    let want = [
        Event::Timeout { id: client, tu: tu(43) },
        Event::ClientEnded { id: client, tu: tu(43) },
        Event::ServerEnded { id: server, tu: tu(6) },
    ];
    assert!(want.iter().all(|event| new.events.contains(event)) && new.events.len() == 3, "{:?}", new.events);
    new.assert_empty();
}

/// Checks that a waiting request is forgotten when its call moves, and is processed again by the new shard.
#[test]
fn a_request_that_was_forgotten_is_new_when_it_comes_again_here_and_where_its_call_moves() {
    let (mut old, mut new) = (World::new(), World::new());
    let bye = message(BYE, "z9hG4bK1", "2 BYE");
    let first = old.new_request(&bye, Transport::Tcp);
    old.table.abandon(old.now, first);
    let second = old.new_request(&bye, Transport::Tcp);
    assert_ne!(first, second);
    old.table.abandon(old.now, second);
    for record in old.table.export(old.now, |_| true) {
        let user = record.tu;
        new.table.import(new.now, record, user);
    }
    old.assert_empty();
    let third = new.new_request(&bye, Transport::Tcp);
    new.pass(0);
    assert_eq!(new.events.len(), 2, "those that were forgotten end: {:?}", new.events);
    assert_eq!(new.request(&bye, Transport::Tcp), Incoming::Absorbed);
    let ok = message("SIP/2.0 200 OK", "z9hG4bK1", "2 BYE");
    new.respond(third, &ok);
    assert_eq!(new.sent(), [ok]);
    new.pass(32_000);
    new.assert_empty();
}
