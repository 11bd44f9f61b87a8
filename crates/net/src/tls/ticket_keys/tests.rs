use super::*;
use crate::tls::test_peer::{configs, shake, sides, suites};
use rustls::{ClientConfig, HandshakeKind, SupportedCipherSuite};
use std::sync::Arc;

const SECRET: &[u8; 32] = &[7; 32];

/// Keys of a listener with these parts.
fn keys(secret: &[u8; 32], parts: &[(IdentityPart, &[u8])]) -> TicketKeys {
    let mut identity = IdentityDigest::new();
    for (part, bytes) in parts {
        identity.add(*part, bytes);
    }
    TicketKeys::new(secret, identity)
}

const PARTS: &[(IdentityPart, &[u8])] =
    &[(IdentityPart::Certificate, b"certificate"), (IdentityPart::Authority, b"authority")];

#[test]
fn a_ticket_is_valid_on_its_day_and_the_next() {
    let (keys, again) = (keys(SECRET, PARTS), keys(SECRET, PARTS));
    for state in [b"".as_slice(), b"state", &[1; 60_000]] {
        let ticket = keys.seal(20_000, state).unwrap();
        assert_eq!(ticket.len(), state.len() + 28);
        for (day, is_valid) in [(0, false), (19_999, false), (20_000, true), (20_001, true), (20_002, false)] {
            assert_eq!(again.open_recent(day, &ticket).as_deref(), is_valid.then_some(state), "day {day}");
        }
    }
    let ticket = keys.seal(0, b"state").unwrap();
    assert_eq!(again.open_recent(0, &ticket).unwrap(), b"state");
    assert_ne!(keys.seal(0, b"state"), Some(ticket), "nonces differ");
    assert_eq!(again.decrypt(&keys.encrypt(b"state").unwrap()).unwrap(), b"state");
}

#[test]
fn a_ticket_of_other_keys_or_with_another_byte_is_refused() {
    use IdentityPart::{Authority, Certificate, RevocationList};
    let ticket = keys(SECRET, PARTS).seal(1, b"state").unwrap();
    assert!(keys(SECRET, PARTS).open_recent(1, &ticket).is_some());
    assert!(keys(&[8; 32], PARTS).open_recent(1, &ticket).is_none());
    for parts in [
        [].as_slice(),
        &PARTS[..1],
        &[(Certificate, b"certificate"), (Certificate, b"authority")],
        &[(Certificate, b"certificate"), (Authority, b"AUTHORITY")],
        &[(Certificate, b"another"), (Authority, b"authority")],
        &[(Certificate, b"certificateauthority")],
        &[(Certificate, b"certificate"), (Authority, b"authority"), (RevocationList, b"")],
    ] {
        assert!(keys(SECRET, parts).open_recent(1, &ticket).is_none());
    }
    for length in 0..ticket.len() {
        assert!(keys(SECRET, PARTS).open_recent(1, &ticket[..length]).is_none());
        let mut forged = ticket.clone();
        forged[length] ^= 1;
        assert!(keys(SECRET, PARTS).open_recent(1, &forged).is_none(), "byte {length}");
    }
}

/// Keys on a day.
#[derive(Debug)]
struct OnDay(u64, TicketKeys);

impl ProducesTickets for OnDay {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.1.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.1.seal(self.0, plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.1.open_recent(self.0, cipher)
    }
}

/// Connects a client to a server that has just started, and returns the kind of the handshake.
fn connect(suite: SupportedCipherSuite, client: &Arc<ClientConfig>, keys: OnDay) -> Option<HandshakeKind> {
    let (mut server, _) = configs(suite, false);
    server.ticketer = Arc::new(keys);
    let (mut ours, mut peer) = sides(&Arc::new(server), client, false);
    shake(&mut ours, &mut peer, (usize::MAX, usize::MAX), |_| ()).kind
}

#[test]
fn a_session_is_resumed_after_a_restart_and_not_after_a_change() {
    let full = Some(HandshakeKind::Full);
    let changed = &[(IdentityPart::Certificate, b"certificate".as_slice()), (IdentityPart::Authority, b"AUTHORITY")];
    for suite in [suites()[0], suites()[3]] {
        for (day, secret, parts, expected) in [
            (5, SECRET, PARTS, Some(HandshakeKind::Resumed)),
            (6, SECRET, PARTS, Some(HandshakeKind::Resumed)),
            (7, SECRET, PARTS, full),
            (4, SECRET, PARTS, full),
            (5, SECRET, changed.as_slice(), full),
            (5, &[8; 32], PARTS, full),
        ] {
            let client = Arc::new(configs(suite, false).1);
            assert_eq!(connect(suite, &client, OnDay(5, keys(SECRET, PARTS))), full);
            assert_eq!(connect(suite, &client, OnDay(day, keys(secret, parts))), expected, "{suite:?} day {day}");
        }
    }
}

#[test]
fn keys_are_not_shown() {
    assert_eq!(format!("{:?}", keys(SECRET, PARTS)), "TicketKeys { .. }");
}
