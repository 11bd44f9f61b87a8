//! Forged bytes, and authentic records that no honest peer sends.

use super::*;

#[test]
fn a_forged_byte_has_the_verdict_of_rustls_wherever_it_is() {
    for kind in kinds() {
        let (mut refused, mut total) = (0, 0);
        let sent = |world: &mut World| {
            let (records, mut wire) = (&mut world.peer.records, Vec::new());
            records.seal(b"first", &mut wire).unwrap();
            records.update_keys(&mut wire, true);
            records.seal(b"second", &mut wire).unwrap();
            records.close_notify(&mut wire);
            wire
        };
        let length = sent(&mut World::new(kind)).len();
        for at in 0..length {
            let (mut world, mut dice) = (World::new(kind), Dice(at as u64 + 77));
            let mut wire = sent(&mut world);
            wire[at] ^= 1 + dice.roll(255) as u8;
            world.deliver(&wire, &[1 + dice.roll(30)]);
            world.assert_alert();
            refused += usize::from(matches!(world.twin.records.end(), Some(Err(_))));
            total += 1;
        }
        // A length may make a record longer, which then waits; TLS 1.3 does not use type and version of a header.
        assert!(refused * 10 > total * 8, "{kind:?}: {refused} of {total}");
    }
}

impl World {
    /// Compares the alerts: where rustls sends one, the twin sends the same.
    fn assert_alert(&mut self) {
        self.transmit();
        assert!(self.twin.wire.starts_with(&self.wire), "{:?} {:?}", self.kind, self.error);
        let has_failed = self.error.as_ref().is_some_and(|error| !matches!(error, Error::AlertReceived(_)));
        assert!(!has_failed || !self.twin.records.is_open(), "{:?}: no alert behind {:?}", self.kind, self.error);
    }
}

/// Records of the peer.
type Script = fn(&mut Records, &mut Vec<u8>);

/// Checks the end of what the peer sends behind some data: that of rustls, and this one.
fn check(name: &str, kinds: impl Iterator<Item = Kind>, send: Script, expected: Option<&str>) {
    for kind in kinds {
        let (mut world, mut wire) = (World::new(kind), Vec::new());
        world.peer.records.seal(b"in front", &mut wire).unwrap();
        send(&mut world.peer.records, &mut wire);
        // What follows an end has no effect.
        world.peer.records.seal(b"behind", &mut wire).unwrap();
        world.deliver(&wire, &[]);
        world.assert_alert();
        let end = world.twin.records.end().map(|end| format!("{end:?}"));
        let fits = match (&end, expected) {
            (Some(end), Some(expected)) => end.contains(expected),
            (end, expected) => end.is_none() == expected.is_none(),
        };
        assert!(fits, "{name}, {kind:?}: {end:?}");
        let plain: &[u8] = if end.is_none() { b"in frontbehind" } else { b"in front" };
        assert_eq!(world.twin.plain, plain, "{name}, {kind:?}");
    }
}

fn of(version: Version) -> impl Iterator<Item = Kind> {
    kinds().filter(move |kind| kind.version == version)
}

#[test]
fn alerts_end_a_connection_as_in_rustls() {
    let both: [(&str, Script, Option<&str>); 7] = [
        ("fatal", |peer, wire| peer.send(ALERT, &[2, 40], wire), Some("AlertReceived(HandshakeFailure)")),
        ("close_notify", |peer, wire| peer.send(ALERT, &[1, 0], wire), Some("Ok")),
        ("fatal close_notify", |peer, wire| peer.send(ALERT, &[2, 0], wire), Some("Ok")),
        ("unknown level", |peer, wire| peer.send(ALERT, &[3, 0], wire), Some("AlertReceived(CloseNotify)")),
        ("user_canceled", |peer, wire| (0..4).for_each(|_| peer.send(ALERT, &[1, 90], wire)), None),
        (
            "too many warnings",
            |peer, wire| (0..5).for_each(|_| peer.send(ALERT, &[1, 90], wire)),
            Some("TooManyWarningAlertsReceived"),
        ),
        ("short", |peer, wire| peer.send(ALERT, &[1], wire), Some("MissingData")),
    ];
    for (name, send, expected) in both {
        check(name, kinds(), send, expected);
    }
    check("long", kinds(), |peer, wire| peer.send(ALERT, &[1, 0, 0], wire), Some("TrailingData"));
    check("empty", kinds(), |peer, wire| peer.send(ALERT, &[], wire), Some("MissingData"));
    let warning: Script = |peer, wire| peer.send(ALERT, &[1, 112], wire);
    check("warning", of(Version::Tls12), warning, None);
    check("warning", of(Version::Tls13), warning, Some("AlertReceived(UnrecognisedName)"));
}

#[test]
fn wrong_headers_end_a_connection_as_in_rustls() {
    let cases: [(&str, Script, &str); 9] = [
        ("type", |_, wire| wire.extend([19, 3, 3, 0, 1, 0]), "InvalidContentType"),
        ("type alone", |_, wire| wire.extend([25]), "InvalidContentType"),
        ("version", |_, wire| wire.extend([23, 2, 3, 0, 1, 0]), "UnknownProtocolVersion"),
        ("empty alert", |_, wire| wire.extend([21, 3, 3, 0, 0]), "InvalidEmptyPayload"),
        ("too long", |_, wire| wire.extend([23, 3, 3, 72, 0]), "MessageTooLarge"),
        ("longest", |_, wire| wire.extend([&[23, 3, 3, 71, 255][..], &[0; 18_431]].concat()), "DecryptError"),
        ("shorter than a tag", |_, wire| wire.extend([23, 3, 3, 0, 2, 0, 0]), "DecryptError"),
        ("plain alert", |_, wire| wire.extend([21, 3, 3, 0, 2, 2, 40]), "DecryptError"),
        ("empty", |_, wire| wire.extend([23, 3, 3, 0, 0]), "DecryptError"),
    ];
    for (name, send, expected) in cases {
        check(name, kinds(), send, Some(expected));
    }
}

#[test]
fn contents_of_records_are_judged_as_in_rustls() {
    let flood: Script = |peer, wire| (0..33).for_each(|_| peer.send(APPLICATION_DATA, &[], wire));
    check("empty records", kinds(), flood, Some("TooManyEmptyFragments"));
    let fewer: Script = |peer, wire| (0..32).for_each(|_| peer.send(APPLICATION_DATA, &[], wire));
    check("some empty records", kinds(), fewer, None);
    let oversized: Script = |peer, wire| peer.send(APPLICATION_DATA, &[1; 16_386], wire);
    check("oversized", kinds(), oversized, Some("PeerSentOversizedRecord"));
    let by_one: Script = |peer, wire| peer.send(APPLICATION_DATA, &[1; 16_385], wire);
    check("oversized by one", kinds(), by_one, Some("PeerSentOversizedRecord"));
    check("heartbeat", kinds(), |peer, wire| peer.send(24, &[1], wire), Some("InvalidContentType"));
    check("unknown type", kinds(), |peer, wire| peer.send(99, &[1], wire), Some("InvalidContentType"));
    let plain: [(&str, Script, &str); 3] = [
        ("change_cipher_spec", |_, wire| wire.extend([20, 3, 3, 0, 1, 1]), "InappropriateMessage"),
        ("wrong change_cipher_spec", |_, wire| wire.extend([20, 3, 3, 0, 1, 2]), "InvalidCcs"),
        ("long change_cipher_spec", |_, wire| wire.extend([20, 3, 3, 0, 2, 1, 1]), "TrailingData"),
    ];
    for (name, send, expected) in plain {
        check(name, kinds(), send, Some(expected));
    }
    let tls13 = || of(Version::Tls13);
    let protected: Script = |peer, wire| peer.send(CHANGE_CIPHER_SPEC, &[1], wire);
    check("protected change_cipher_spec", tls13(), protected, Some("IllegalMiddleboxChangeCipherSpec"));
    check("no inner type", tls13(), |peer, wire| peer.send(0, &[0; 9], wire), Some("IllegalTlsInnerPlaintext"));
    check("no content at all", tls13(), |peer, wire| peer.send(0, &[], wire), Some("IllegalTlsInnerPlaintext"));
    check("padded alert", tls13(), |peer, wire| peer.send(0, &[2, 40, ALERT, 0, 0, 0], wire), Some("HandshakeFailure"));
}

#[test]
fn padding_is_removed() {
    for kind in of(Version::Tls13) {
        let (mut world, mut wire) = (World::new(kind), Vec::new());
        for padding in [0, 1, 40, 16_372] {
            let content = [&b"with zeros\0"[..], &[APPLICATION_DATA], &vec![0; padding]].concat();
            world.peer.records.send(0, &content, &mut wire);
        }
        world.deliver(&wire, &[]);
        assert_eq!(world.twin.plain, b"with zeros\0".repeat(4), "{kind:?}");
    }
}

#[test]
fn handshake_messages_are_judged_as_in_rustls() {
    let tls13 = || of(Version::Tls13);
    let cases: [(&str, Script, Option<&str>); 14] = [
        ("KeyUpdate", |peer, wire| peer.update_keys(wire, false), None),
        ("KeyUpdate, with answer", |peer, wire| peer.update_keys(wire, true), None),
        ("32 KeyUpdates", |peer, wire| (0..32).for_each(|_| peer.update_keys(wire, false)), None),
        ("33 KeyUpdates", |peer, wire| (0..33).for_each(|_| peer.update_keys(wire, false)), Some("TooManyKeyUpdate")),
        ("value", |peer, wire| peer.send(HANDSHAKE, &[24, 0, 0, 1, 2], wire), Some("InvalidKeyUpdate")),
        ("no value", |peer, wire| peer.send(HANDSHAKE, &[24, 0, 0, 0], wire), Some("MissingData")),
        ("two values", |peer, wire| peer.send(HANDSHAKE, &[24, 0, 0, 2, 0, 0], wire), Some("TrailingData")),
        (
            "two in a record",
            |peer, wire| peer.send(HANDSHAKE, &[24, 0, 0, 1, 0, 24, 0, 0, 1, 0], wire),
            Some("KeyEpochWithPendingFragment"),
        ),
        (
            "begin of another",
            |peer, wire| peer.send(HANDSHAKE, &[24, 0, 0, 1, 0, 24], wire),
            Some("KeyEpochWithPendingFragment"),
        ),
        (
            "data inside",
            |peer, wire| {
                peer.send(HANDSHAKE, &[24, 0, 0], wire);
                peer.send(APPLICATION_DATA, b"inside", wire);
                peer.send(HANDSHAKE, &[1, 0], wire);
            },
            Some("MessageInterleavedWithHandshakeMessage"),
        ),
        (
            "change_cipher_spec inside",
            |peer, wire| {
                peer.send(HANDSHAKE, &[24, 0, 0], wire);
                wire.extend([20, 3, 3, 0, 1, 1]);
            },
            Some("DecryptError"),
        ),
        ("too long", |peer, wire| peer.send(HANDSHAKE, &[4, 1, 0, 0], wire), Some("HandshakePayloadTooLarge")),
        ("Finished", |peer, wire| peer.send(HANDSHAKE, &[20, 0, 0, 1, 7], wire), Some("got_type: Finished")),
        ("unknown", |peer, wire| peer.send(HANDSHAKE, &[99, 0, 0, 0], wire), Some("InappropriateHandshakeMessage")),
    ];
    for (name, send, expected) in cases {
        check(name, tls13(), send, expected);
    }
    let in_pieces: Script = |peer, wire| {
        [&[24, 0][..], &[], &[0, 1], &[1]].iter().for_each(|piece| peer.send(HANDSHAKE, piece, wire));
        aead::next_generation(peer.suite, &mut peer.secrets[0], &mut peer.tx);
    };
    check("KeyUpdate in pieces", tls13(), in_pieces, None);
    let ticket: Script = |peer, wire| peer.send(HANDSHAKE, &ticket(20), wire);
    check("ticket for a server", tls13().filter(|kind| !kind.is_client), ticket, Some("got_type: NewSessionTicket"));
    // The errors of parts of messages differ: rustls names the part.
    for kind in tls13().filter(|kind| kind.is_client) {
        for cut in [3, 10, 12, 20, 30] {
            let (mut world, mut wire) = (World::new(kind), Vec::new());
            let body = &super::ticket(20)[4..];
            world.peer.records.send(HANDSHAKE, &handshake(NEW_SESSION_TICKET, &body[..cut]), &mut wire);
            world.twin.open(&wire);
            world.read(&wire);
            assert!(world.error.is_some() && world.twin.records.end().is_some_and(|end| end.is_err()), "{cut}");
            world.assert_alert();
        }
    }
}

#[test]
fn a_renegotiation_is_refused_once_by_a_warning() {
    let (server, client) =
        (|| of(Version::Tls12).filter(|k| !k.is_client), || of(Version::Tls12).filter(|k| k.is_client));
    let hello: Script = |peer, wire| peer.send(HANDSHAKE, &HELLO, wire);
    let request: Script = |peer, wire| peer.send(HANDSHAKE, &[0, 0, 0, 0], wire);
    check("ClientHello", server(), hello, None);
    check("HelloRequest", client(), request, None);
    check("HelloRequest for a server", server(), request, Some("InappropriateMessage"));
    let twice: Script = |peer, wire| (0..2).for_each(|_| peer.send(HANDSHAKE, &HELLO, wire));
    check("two ClientHellos", server(), twice, Some("TooManyRenegotiationRequests"));
    let twice: Script = |peer, wire| peer.send(HANDSHAKE, &[0; 8], wire);
    check("two HelloRequests", client(), twice, Some("TooManyRenegotiationRequests"));
    check(
        "Finished",
        of(Version::Tls12),
        |peer, wire| peer.send(HANDSHAKE, &[20, 0, 0, 0], wire),
        Some("InappropriateMessage"),
    );
}

/// ClientHello of TLS 1.2 without extensions: version, random, no session, one suite, no compression.
const HELLO: [u8; 4 + 41] = {
    let mut hello = [7; 45];
    let start = [CLIENT_HELLO, 0, 0, 41, 3, 3];
    let end = [0, 0, 2, 192, 43, 1, 0];
    let mut i = 0;
    while i < start.len() {
        hello[i] = start[i];
        i += 1;
    }
    i = 0;
    while i < end.len() {
        hello[38 + i] = end[i];
        i += 1;
    }
    hello
};
