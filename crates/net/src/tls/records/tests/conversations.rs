//! Honest conversations.

use super::*;

/// Sizes of data: small, around the limit of a record, and several records.
const SIZES: [usize; 6] = [1, 600, 16_383, 16_384, 16_385, 40_000];

#[test]
fn a_random_conversation_is_read_and_answered_as_rustls_does() {
    for kind in kinds() {
        let (mut updates, mut tickets, mut ends) = (0, 0, 0);
        for seed in 1..=12 {
            let (mut world, mut dice) = (World::new(kind), Dice(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed)));
            for _ in 0..25 {
                let (wire, has_asked) = batch(&mut world, &mut dice, &mut updates, &mut tickets);
                let sizes: Vec<usize> = (0..5).map(|_| 1 + [1, 7, 700, 20_000][dice.roll(4)]).collect();
                world.deliver(&wire, &sizes);
                assert_eq!((world.twin.records.end(), world.twin.rest.len()), (None, 0), "{kind:?}, seed {seed}");
                if kind.version == Version::Tls13 && dice.roll(5) == 0 {
                    world.rustls.refresh_traffic_keys().unwrap();
                    world.twin.records.update_keys(&mut world.twin.wire, true);
                    // The answer of the peer is part of the next batch.
                }
                // rustls keeps its answer until it has data to send.
                if has_asked || dice.roll(3) == 0 {
                    let data: Vec<u8> = (0..SIZES[dice.roll(6)]).map(|i| i as u8).collect();
                    world.write(&data);
                }
            }
            let mut wire = std::mem::take(&mut world.peer.wire);
            world.peer.records.close_notify(&mut wire);
            world.peer.records.send(APPLICATION_DATA, b"behind the end", &mut wire);
            world.deliver(&wire, &[dice.roll(40) + 1]);
            ends += usize::from(world.twin.records.end() == Some(Ok(())));
            // The other direction stays open.
            world.write(b"the last answer");
        }
        assert_eq!(ends, 12, "{kind:?}");
        assert_eq!((updates > 30, tickets > 10), (kind.version == Version::Tls13, has_tickets(kind)), "{kind:?}");
    }
}

fn has_tickets(kind: Kind) -> bool {
    kind.version == Version::Tls13 && kind.is_client
}

/// Lets the peer send some records. Returns them, and whether one asks for a KeyUpdate: at most one does.
fn batch(world: &mut World, dice: &mut Dice, updates: &mut usize, tickets: &mut usize) -> (Vec<u8>, bool) {
    let (kind, mut wire, mut has_asked) = (world.kind, std::mem::take(&mut world.peer.wire), false);
    let records = &mut world.peer.records;
    for _ in 0..=dice.roll(4) {
        match dice.roll(6) {
            0 => records.send(APPLICATION_DATA, &[], &mut wire),
            1 if kind.version == Version::Tls13 => {
                let asks = !has_asked && dice.roll(2) == 0;
                has_asked |= asks;
                records.update_keys(&mut wire, asks);
                *updates += 1;
            }
            2 if has_tickets(kind) => {
                // In pieces, of which one has the end of a ticket and the begin of another.
                let messages = [ticket(1 + dice.roll(300)), ticket(1 + dice.roll(300))].concat();
                messages.chunks(1 + dice.roll(400)).for_each(|piece| records.send(HANDSHAKE, piece, &mut wire));
                *tickets += 2;
            }
            _ => {
                let data: Vec<u8> = (0..SIZES[dice.roll(6)]).map(|i| (i * 7) as u8).collect();
                records.seal(&data, &mut wire).unwrap();
            }
        }
    }
    // The empty records and the KeyUpdates of rustls have a limit until the next data.
    records.seal(b"end", &mut wire).unwrap();
    (wire, has_asked)
}

#[test]
fn records_are_read_cut_at_each_byte_and_byte_by_byte() {
    for kind in kinds() {
        let whole = script(&mut World::new(kind)).len();
        for at in 0..=whole {
            let mut world = World::new(kind);
            let wire = script(&mut world);
            let (head, tail) = wire.split_at(at);
            world.deliver(head, &[]);
            world.deliver(tail, &[]);
            assert_eq!((world.twin.plain.len(), world.twin.records.end()), (17, Some(Ok(()))), "{kind:?} {at}");
        }
        let mut world = World::new(kind);
        let wire = script(&mut world);
        world.deliver(&wire, &[1]);
        assert_eq!(world.twin.plain, b"behind itmore of ", "{kind:?}");
        assert_eq!(world.twin.tickets.len(), if has_tickets(kind) { 1 } else { 0 });
    }
}

/// Returns data, an empty record, what TLS 1.3 has besides, data with another key, and the end.
fn script(world: &mut World) -> Vec<u8> {
    let (kind, records, mut wire) = (world.kind, &mut world.peer.records, Vec::new());
    records.seal(b"behind it", &mut wire).unwrap();
    records.send(APPLICATION_DATA, &[], &mut wire);
    if has_tickets(kind) {
        ticket(9).chunks(30).for_each(|piece| records.send(HANDSHAKE, piece, &mut wire));
    }
    records.update_keys(&mut wire, true);
    records.seal(b"more of ", &mut wire).unwrap();
    records.close_notify(&mut wire);
    wire
}

#[test]
fn each_ticket_is_given_to_the_client_once() {
    for kind in kinds().filter(|kind| has_tickets(*kind)) {
        let (mut world, mut wire) = (World::new(kind), Vec::new());
        for length in [1, 100, 20_000, 65_400] {
            let message = ticket(length);
            message.chunks(16_384).for_each(|piece| world.peer.records.send(HANDSHAKE, piece, &mut wire));
        }
        world.twin.open(&wire);
        let bodies = [1, 100, 20_000, 65_400].map(|length| ticket(length).split_off(4));
        assert!(world.twin.tickets == bodies && world.twin.records.end().is_none());
        assert!(world.twin.parts.is_empty());
    }
}

#[test]
fn several_requests_in_one_turn_have_one_answer() {
    for kind in kinds().filter(|kind| kind.version == Version::Tls13) {
        let (mut world, mut wire) = (World::new(kind), Vec::new());
        (0..3).for_each(|_| world.peer.records.update_keys(&mut wire, true));
        world.deliver(&wire, &[]);
        world.write(b"with the next key");
        // A request of a later turn has its own answer: the peer may have waited for the first one.
        for _ in 0..2 {
            let mut wire = Vec::new();
            world.peer.records.update_keys(&mut wire, true);
            world.twin.open(&wire);
            assert_eq!(world.twin.wire.len(), 5 + 5 + 1 + 16);
            let answer = std::mem::take(&mut world.twin.wire);
            world.peer.open(&answer);
        }
        world.twin.records.seal(b"read", &mut world.twin.wire).unwrap();
        world.peer.plain.clear();
        world.peer.open(&world.twin.wire);
        assert_eq!(world.peer.plain, b"read");
    }
}
