//! Memory of the transaction table: kept messages, and charges of their sources.

use super::*;

fn padded(message: &str, bytes: usize) -> String {
    message.replace("Content-Length", &format!("X: {}\r\nContent-Length", "x".repeat(bytes)))
}

/// Checks that of a request above the bound only the parts are kept that are needed to end it.
#[test]
fn a_request_too_large_to_be_kept_is_sent_once_and_can_be_cancelled_and_acknowledged() {
    for transport in [Transport::Udp, Transport::Tcp] {
        let mut world = World::new();
        world.table.set_most_kept(1_024);
        let invite = message(INVITE, "z9hG4bK1", "1 INVITE");
        let large = padded(&invite, 1_000);
        let id = world.send(&large, "z9hG4bK1", transport);
        assert_eq!(world.sent(), std::slice::from_ref(&large));
        assert_eq!(world.pass(5_000), [], "not sent again");
        let counts = world.table.counts();
        assert!((1..1_024).contains(&counts.kept_bytes) && counts.abridged == 1, "{counts:?}");
        let World { now, table, out, events } = &mut world;
        if transport == Transport::Udp {
            world.response(&message("SIP/2.0 180 Ringing", "z9hG4bK1", "1 INVITE"));
            let World { now, table, out, .. } = &mut world;
            assert!(table.cancel(*now, id, None, out));
            let cancel = message("CANCEL sip:b@x SIP/2.0", "z9hG4bK1", "1 CANCEL").replace(";tag=t", "");
            assert_eq!(world.sent(), [cancel]);
            let ended = message("SIP/2.0 487 Request Terminated", "z9hG4bK1", "1 INVITE");
            let ack = message("ACK sip:b@x SIP/2.0", "z9hG4bK1", "1 ACK");
            for _ in 0..2 {
                world.response(&ended);
                assert_eq!(world.sent(), std::slice::from_ref(&ack), "each time");
            }
        } else {
            table.cut_off(*now, id.to_u64(), out, events);
            assert_eq!(world.events[0], Event::ClientTransportError { id, tu: tu(42) });
            let lost = String::from_utf8(world.table.lost_request(id).unwrap().to_vec()).unwrap();
            assert_eq!(lost, invite.replace("Max-Forwards: 70\r\n", ""), "a response is made of this");
            assert_eq!(world.sent(), [""; 0]);
        }
        world.pass(40_000);
        world.assert_empty();
    }
}

/// Checks that large messages that are due at one moment are sent in several rounds.
#[test]
fn retransmissions_of_one_moment_take_bounded_memory_to_leave() {
    let mut world = World::new();
    for n in 0..100 {
        let branch = format!("z9hG4bK{n}");
        world.send(&padded(&message(INVITE, &branch, "1 INVITE"), 50_000), &branch, Transport::Udp);
        world.sent();
    }
    world.now.mono += 500;
    let (mut rounds, mut sent) = (0, 0);
    while world.table.deadline().is_some_and(|at| at <= world.now.mono) {
        let World { now, table, out, events } = &mut world;
        table.poll(*now, out, events);
        assert!(world.out.bytes.len() < 1_200_000, "{} bytes in a round", world.out.bytes.len());
        sent += world.sent().len();
        rounds += 1;
    }
    assert_eq!((rounds, sent), (5, 100));
}

#[test]
fn a_response_too_large_to_be_kept_is_sent_once() {
    let mut world = World::new();
    world.table.set_most_kept(1_024);
    let bye = message(BYE, "z9hG4bK1", "2 BYE");
    let id = world.new_request(&bye, Transport::Udp);
    let large = padded(&message("SIP/2.0 200 OK", "z9hG4bK1", "2 BYE"), 1_000);
    assert!(world.respond(id, &message("SIP/2.0 100 Trying", "z9hG4bK1", "2 BYE")) && world.respond(id, &large));
    assert_eq!(world.sent()[1..], [large]);
    assert_eq!(world.request(&bye, Transport::Udp), Incoming::Absorbed);
    assert_eq!((world.sent(), world.table.counts().kept_bytes), (vec![], 0), "not the 100 either");
    world.pass(40_000);
    world.assert_empty();
}

/// The ACK needs the From of the request, which alone exceeds the bound: nothing is kept, and a failure is not acknowledged.
#[test]
fn nothing_is_kept_of_a_request_whose_end_needs_too_much() {
    let mut world = World::new();
    world.table.set_most_kept(1_024);
    let large = message(INVITE, "z9hG4bK1", "1 INVITE").replace("<sip:a@x>", &format!("<sip:{}@x>", "a".repeat(1_000)));
    let id = world.send(&large, "z9hG4bK1", Transport::Udp);
    assert_eq!((world.sent(), world.table.counts().kept_bytes), (vec![large], 0));
    world.response(&message("SIP/2.0 486 Busy Here", "z9hG4bK1", "1 INVITE"));
    assert_eq!(world.sent(), [""; 0]);
    world.pass(40_000);
    assert_eq!(world.events, [Event::ClientEnded { id, tu: tu(42) }]);
    world.assert_empty();
}

/// Four transactions of a relayed call that just ended: both INVITEs accepted, the 200 of the BYE kept.
#[test]
fn a_call_just_ended_takes_little_and_all_of_it_goes() {
    const CALLS: u64 = 20_000;
    let mut world = World::new();
    let ok = |branch: &str, cseq: &str| message("SIP/2.0 200 OK", branch, cseq);
    for n in 0..CALLS {
        let (a, b) = (format!("z9hG4bKa{n}"), format!("z9hG4bKb{n}"));
        for (start, cseq) in [(INVITE, "1 INVITE"), (BYE, "2 BYE")] {
            let server = world.new_request(&message(start, &a, cseq), Transport::Udp);
            world.send(&message(start, &b, cseq), &b, Transport::Udp);
            assert!(matches!(world.response(&ok(&b, cseq)), Incoming::Response { .. }));
            let padding = "x".repeat(200);
            world.respond(server, &ok(&a, cseq).replace("Content-Length", &format!("X: {padding}\r\nContent-Length")));
        }
        world.out.clear();
    }
    let counts = world.table.counts();
    assert_eq!((counts.servers, counts.clients, counts.kept_messages), (2 * CALLS, 2 * CALLS, CALLS));
    let each = world.table.memory() as u64 / CALLS;
    println!("{each} bytes a call, {} of them a kept 200", counts.kept_bytes / CALLS);
    assert!(each <= 1_400, "{each} bytes a call");
    world.pass(36_000);
    let counts = world.table.counts();
    assert_eq!((counts.servers, counts.clients, world.table.memory()), (0, 0, 0));
}

/// Returns a response with this number of bytes in its body.
fn long(start: &str, branch: &str, cseq: &str, bytes: usize) -> String {
    format!("{}{}", message(start, branch, cseq), "x".repeat(bytes))
}

#[test]
fn long_responses_are_kept_while_their_source_has_room_and_sent_all_the_same() {
    const BEYOND: u64 = 8_000;
    for (start, cseq) in [(INVITE, "1 INVITE"), ("MESSAGE sip:b@x SIP/2.0", "1 MESSAGE")] {
        for status in ["SIP/2.0 183 Progress", "SIP/2.0 486 Busy"] {
            let mut world = World::new();
            world.table.set_shares(20_000, usize::MAX, 64);
            let requests: Vec<String> = (0..4).map(|n| message(start, &format!("z9hG4bK{n}"), cseq)).collect();
            let ids: Vec<ServerId> =
                requests.iter().map(|request| world.new_request(request, Transport::Udp)).collect();
            for (n, id) in ids.iter().enumerate() {
                let response = long(status, &format!("z9hG4bK{n}"), cseq, 8_000);
                assert!(world.respond(*id, &response));
                assert_eq!(world.sent(), [response]);
            }
            let counts = world.table.counts();
            assert_eq!((counts.kept_messages, counts.abridged), (2, 2), "{status} to {cseq}");
            assert!((BEYOND..20_000).contains(&counts.charged_bytes), "{}", counts.charged_bytes);
            // A kept response answers a repeated request.
            let again: Vec<usize> = requests
                .iter()
                .map(|request| {
                    assert_eq!(world.request(request, Transport::Udp), Incoming::Absorbed);
                    world.sent().len()
                })
                .collect();
            assert_eq!(again, [1, 1, 0, 0], "{status} to {cseq}");
            // A final response replaces a provisional one and frees its room.
            for (n, id) in ids.iter().enumerate().filter(|_| status.contains(" 183 ")) {
                world.respond(*id, &message("SIP/2.0 486 Busy", &format!("z9hG4bK{n}"), cseq));
            }
            if status.contains(" 183 ") {
                let counts = world.table.counts();
                assert_eq!((counts.kept_messages, counts.charged_bytes), (4, 0));
            }
            world.sent();
            world.pass(70_000);
            assert_eq!(world.table.counts().charged_bytes, 0);
            world.assert_empty();
        }
    }
}

#[test]
fn all_sources_together_have_a_bound() {
    let mut world = World::new();
    world.table.set_shares(usize::MAX, 1_000, 64);
    let first = world.new_request(&message(INVITE, "z9hG4bK1", "1 INVITE"), Transport::Udp);
    world.table.bill(first, 900);
    assert_eq!(world.request(&message(INVITE, "z9hG4bK2", "1 INVITE"), Transport::Udp), Incoming::Full);
    world.respond(first, &message("SIP/2.0 200 OK", "z9hG4bK1", "1 INVITE"));
    world.new_request(&message(INVITE, "z9hG4bK2", "1 INVITE"), Transport::Udp);
}

/// Covers an ACK after the end of the server transaction for which it was forwarded, so that nothing can be charged to
/// the transaction.
#[test]
fn a_long_ack_is_sent_and_not_kept() {
    for (bytes, again) in [(10, 1), (5_000, 0)] {
        let mut world = World::new();
        let call = format!("call-{}", "x".repeat(bytes));
        let invite = message(INVITE, "z9hG4bK1", "1 INVITE").replace("call-1", &call);
        world.send(&invite, "z9hG4bK1", Transport::Udp);
        world.sent();
        let busy = message("SIP/2.0 486 Busy", "z9hG4bK1", "1 INVITE").replace("call-1", &call);
        world.response(&busy);
        assert!(world.sent()[0].starts_with("ACK "));
        world.response(&busy);
        assert_eq!((world.sent().len(), world.table.counts().kept_messages), (again, again as u64));
    }
}

#[test]
fn charges_move_with_their_transaction() {
    let (mut world, mut other) = (World::new(), World::new());
    let id = world.new_request(&message(INVITE, "z9hG4bK1", "1 INVITE"), Transport::Udp);
    world.table.bill(id, 700);
    for record in world.table.export(world.now, |_| true) {
        other.table.import(other.now, record, TransactionUser::NONE);
    }
    assert_eq!((world.table.counts().charged_bytes, other.table.counts().charged_bytes), (0, 700));
}

#[test]
fn a_doubted_source_is_sent_again_no_more_than_it_earned() {
    let mut world = World::new();
    let invite = message(INVITE, "z9hG4bK1", "1 INVITE");
    let busy = message("SIP/2.0 486 Busy", "z9hG4bK1", "1 INVITE");
    let id = world.new_request(&invite, Transport::Udp);
    world.table.doubt(id, 3 * busy.len() + 10);
    world.table.doubt(id, usize::MAX);
    // Responses of the callee pass, and take nothing from the allowance of the final response.
    for _ in 0..5 {
        assert!(world.respond(id, &message("SIP/2.0 180 Ringing", "z9hG4bK1", "1 INVITE")));
    }
    assert_eq!(world.sent().len(), 5);
    world.respond(id, &busy);
    assert_eq!(world.sent().len(), 1);
    assert_eq!(times(&world.pass(20_000), &busy), [500, 1_500]);
    // A copy of the request earns three times its length.
    assert_eq!(world.request(&invite, Transport::Udp), Incoming::Absorbed);
    assert_eq!(world.sent().len(), 1);
    let more = (3 * invite.len() + 10) / busy.len() - 1;
    assert_eq!(world.pass(10_000).len(), more.min(2));
    world.pass(30_000);
    world.assert_empty();
}

#[test]
fn nothing_long_is_kept_for_a_doubted_source() {
    for (start, cseq) in [(INVITE, "1 INVITE"), ("MESSAGE sip:b@x SIP/2.0", "1 MESSAGE")] {
        let mut world = World::new();
        let request = message(start, "z9hG4bK1", cseq);
        let id = world.new_request(&request, Transport::Udp);
        world.table.doubt(id, 100_000);
        for status in ["SIP/2.0 183 Progress", "SIP/2.0 486 Busy"] {
            assert!(world.respond(id, &long(status, "z9hG4bK1", cseq, 8_000)));
            world.sent();
            assert_eq!(world.request(&request, Transport::Udp), Incoming::Absorbed);
            assert_eq!((world.sent().len(), world.table.counts().kept_messages), (0, 0), "{status}");
        }
        assert_eq!(world.pass(70_000), [], "no timer has anything to send");
        world.assert_empty();
    }
}
