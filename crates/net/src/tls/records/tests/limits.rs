//! Limits of keys and sequence numbers.

use super::*;
use rustls::crypto::CipherSuiteCommon;
use rustls::{SupportedCipherSuite, Tls13CipherSuite};

impl World {
    /// Lets the next record of the twin have this number, also for its peer.
    fn number(&mut self, seq: u64) {
        (self.twin.records.tx.seq, self.peer.records.rx.seq) = (seq, seq);
    }

    /// Seals data of this length. Returns the number of records and whether the peer has read the data.
    fn seal(&mut self, length: usize) -> (Result<usize, Exhausted>, bool) {
        let (data, mut wire) = (vec![7; length], Vec::new());
        let sealed = self.twin.records.seal(&data, &mut wire);
        let (mut left, mut records) = (wire.as_slice(), 0);
        while let Ok(Some(length)) = record_length(left) {
            left = &left[length..];
            records += 1;
        }
        self.peer.plain.clear();
        self.peer.open(&wire);
        (sealed.map(|()| records), self.peer.plain == data)
    }
}

#[test]
fn a_key_is_replaced_before_its_limit() {
    for kind in kinds().filter(|kind| kind.version == Version::Tls13) {
        let limit = kind.suite.most_records();
        assert_eq!(limit, if kind.suite == Suite::ChaCha20Poly1305 { u64::MAX - 0xffff } else { 1 << 24 });
        let mut world = World::new(kind);
        world.number(limit - 2);
        assert_eq!(world.seal(5), (Ok(1), true));
        let secret = world.twin.records.secrets[0];
        assert_eq!(world.seal(5), (Ok(2), true));
        assert!(world.twin.records.secrets[0] != secret && world.twin.records.tx.seq == 1);
        assert!(world.peer.records.secrets[1] == world.twin.records.secrets[0]);
        // The peer has been asked for new keys, too.
        assert!(world.peer.records.secrets[0] != world.twin.records.secrets[1]);
        let answer = std::mem::take(&mut world.peer.wire);
        world.twin.open(&answer);
        assert!(world.peer.records.secrets[0] == world.twin.records.secrets[1]);
        // In the middle of data.
        world.number(limit - 3);
        assert_eq!(world.seal(16_384 * 4), (Ok(5), true));
        assert_eq!(world.twin.records.tx.seq, 2);
    }
}

#[test]
fn tls_12_ends_at_the_limit_of_its_key() {
    for kind in kinds().filter(|kind| kind.version == Version::Tls12) {
        let limit = kind.suite.most_records();
        let mut world = World::new(kind);
        world.number(limit - 3);
        assert_eq!(world.seal(16_385), (Ok(2), true));
        assert_eq!(world.seal(1), (Ok(1), true));
        // Nothing of the data is sent.
        let mut world = World::new(kind);
        world.number(limit - 1);
        assert_eq!(world.seal(16_385).0, Err(Exhausted));
        assert!(world.peer.plain.is_empty() && world.peer.records.end() == Some(Ok(())));
        assert_eq!(world.seal(1), (Err(Exhausted), false));
    }
}

#[test]
fn rustls_replaces_its_key_at_the_same_number() {
    let mut provider = default_provider();
    let suite = provider.cipher_suites.iter().find_map(SupportedCipherSuite::tls13).expect("the library has one");
    let common = CipherSuiteCommon { confidentiality_limit: 6, ..suite.common };
    let low = Box::leak(Box::new(Tls13CipherSuite { common, ..*suite }));
    provider.cipher_suites = vec![SupportedCipherSuite::Tls13(low)];
    let (mut client, _) = connect_by(provider, Version::Tls13, &Arc::default());
    let mut lengths = Vec::new();
    for _ in 0..7 {
        client.writer().write_all(b"a record").unwrap();
        let mut wire = Vec::new();
        client.write_tls(&mut wire).unwrap();
        let mut left = wire.as_slice();
        while let Ok(Some(length)) = record_length(left) {
            lengths.push(length);
            left = &left[length..];
        }
    }
    // Numbers 0 to 4 are data, number 5 is the KeyUpdate: as many as a limit of 6 leaves in the test above.
    assert_eq!(lengths.iter().position(|length| *length == HEADER + 5 + 1 + 16), Some(5), "{lengths:?}");
}

#[test]
fn a_sequence_number_never_wraps() {
    for kind in kinds() {
        let mut world = World::new(kind);
        world.number(u64::MAX);
        let mut wire = Vec::new();
        world.twin.records.close_notify(&mut wire);
        assert_eq!((wire.len(), world.twin.records.tx.seq), (0, u64::MAX), "{kind:?}");
        assert_eq!(world.twin.records.seal(b"no", &mut wire), Err(Exhausted));
        // What is received ends in time, with a close_notify.
        let mut world = World::new(kind);
        (world.twin.records.rx.seq, world.peer.records.tx.seq) = (MOST_RECORDS - 1, MOST_RECORDS - 1);
        for _ in 0..2 {
            world.peer.records.send(APPLICATION_DATA, b"data", &mut wire);
        }
        world.twin.open(&wire);
        assert_eq!((world.twin.plain.as_slice(), world.twin.records.rx.seq), (&b"data"[..], MOST_RECORDS));
        assert!(matches!(world.twin.records.end(), Some(Err(Error::General(_)))), "{kind:?}");
        world.peer.open(&world.twin.wire);
        assert_eq!(world.peer.records.end(), Some(Ok(())), "{kind:?}");
    }
}
