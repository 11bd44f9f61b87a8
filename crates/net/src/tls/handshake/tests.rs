use super::*;
use crate::tls::fragments::Fragments;
use crate::tls::record_format::{ALERT, APPLICATION_DATA as DATA, HANDSHAKE};
use crate::tls::records::Version;
use crate::tls::test_peer::{Peer, configs, configs_with_retry, shake, sides, suites};
use rustls::{Connection as Buffered, Error, ServerConnection, SupportedCipherSuite};
use std::mem;

/// Pieces: each flight as a whole.
const WHOLE: (usize, usize) = (usize::MAX, usize::MAX);

fn shared(suite: SupportedCipherSuite) -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let (server, client) = configs(suite, false);
    (Arc::new(server), Arc::new(client))
}

/// Converts, and returns the records, the bytes of the peer behind the handshake, and the receiver of tickets.
fn converted(ours: Handshake, behind: &[u8]) -> (Records, Vec<u8>, Option<TicketReceiver>) {
    let mut records = Records::default();
    let Ok((mut rest, tickets)) = ours.into_records(&mut records) else { panic!("it cannot be converted") };
    rest.extend_from_slice(behind);
    (records, rest, tickets)
}

/// Checks that the peer and the records understand each other.
fn talk(records: &mut Records, peer: &mut Peer) {
    for text in [b"one".as_slice(), b"another"] {
        assert_eq!(peer.read(&records.test_seal(DATA, text)).unwrap(), text);
        peer.write(text);
        let received = records.test_open(&peer.flush());
        assert_eq!(received.into_iter().rfind(|(kind, _)| *kind == DATA), Some((DATA, text.to_vec())));
    }
}

/// Checks that rustls still speaks for our side.
fn talk_whole(ours: &mut Handshake, peer: &mut Peer) {
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    for text in [b"one".as_slice(), b"another"] {
        ours.encrypt(text, &mut wire).unwrap();
        assert_eq!(peer.read(&mem::take(&mut wire)).unwrap(), text);
        peer.write(text);
        ours.process(&peer.flush(), &mut wire, &mut plain).unwrap();
        assert_eq!(mem::take(&mut plain), text);
    }
}

fn is_tls13(suite: SupportedCipherSuite) -> bool {
    suite.tls13().is_some()
}

#[test]
fn each_suite_is_converted_in_both_roles_whatever_the_pieces() {
    for suite in suites() {
        let (server, client) = shared(suite);
        for is_client in [false, true] {
            for pieces in [(1, 1), (7, 7), (1, 100), WHOLE] {
                let (mut ours, mut peer) = sides(&server, &client, is_client);
                let shaken = shake(&mut ours, &mut peer, pieces, |_| ());
                assert!(shaken.kind.is_some() && ours.peer_certificate().is_some() == is_client);
                let (mut records, rest, tickets) = converted(ours, &shaken.behind);
                assert!(rest.is_empty() && tickets.is_some() == (is_client && is_tls13(suite)), "{suite:?}");
                assert_eq!((records.is_client, records.version == Version::Tls13), (is_client, is_tls13(suite)));
                talk(&mut records, &mut peer);
                if is_tls13(suite) {
                    peer.0.refresh_traffic_keys().unwrap();
                    assert_eq!(records.test_open(&peer.flush()), [(HANDSHAKE, vec![24, 0, 0, 1, 1])]);
                    records.test_update_received();
                    assert!(peer.read(&records.test_seal(HANDSHAKE, &[24, 0, 0, 1, 0])).unwrap().is_empty());
                    records.test_update_sent();
                    talk(&mut records, &mut peer);
                }
            }
        }
    }
}

#[test]
fn a_flight_may_be_cut_at_each_byte() {
    for suite in [suites()[0], suites()[3]] {
        let (server, client) = shared(suite);
        for is_client in [false, true] {
            let mut longest = 1;
            for cut in 1.. {
                if cut > longest {
                    break;
                }
                let (mut ours, mut peer) = sides(&server, &client, is_client);
                longest = shake(&mut ours, &mut peer, (cut, usize::MAX), |_| ()).longest_flight;
                let (mut records, ..) = converted(ours, &[]);
                talk(&mut records, &mut peer);
            }
            assert!(longest > 100);
        }
    }
}

/// Reads bytes of the peer, and returns its data.
fn open(records: &mut Records, bytes: &mut [u8], wire: &mut Vec<u8>, ticket: impl FnMut(&[u8])) -> Vec<u8> {
    let opened = records.open(bytes, &mut Fragments::default(), wire, ticket);
    assert!(opened.rest.is_empty());
    bytes[..opened.plain].to_vec()
}

#[test]
fn records_in_the_segment_of_the_last_message_are_left() {
    for suite in suites() {
        let (server, client) = shared(suite);
        // In a resumed handshake of TLS 1.2 the last message is that of the client, as it always is in TLS 1.3.
        for is_resumed in [false, true] {
            let (mut ours, mut peer) = sides(&server, &client, false);
            let mut has_written = false;
            let shaken = shake(&mut ours, &mut peer, WHOLE, |peer| {
                if !peer.0.is_handshaking() && !mem::replace(&mut has_written, true) {
                    peer.write(b"one");
                    if is_tls13(suite) {
                        peer.0.refresh_traffic_keys().unwrap();
                    }
                    peer.write(b"two");
                }
            });
            assert_eq!(shaken.kind == Some(HandshakeKind::Resumed), is_resumed);
            let (mut records, mut rest, _) = converted(ours, &shaken.behind);
            assert_eq!(has_written && !rest.is_empty(), is_resumed || is_tls13(suite), "{suite:?}");
            let mut wire = Vec::new();
            let expected: &[u8] = if has_written { b"onetwo" } else { b"" };
            assert_eq!(open(&mut records, &mut rest, &mut wire, |_| ()), expected);
            assert_eq!(!wire.is_empty(), is_tls13(suite), "the answer to the KeyUpdate");
            records.seal(b"answer", &mut wire).ok().unwrap();
            assert_eq!(peer.read(&wire).unwrap(), b"answer");
            peer.write(b"last");
            peer.0.send_close_notify();
            assert_eq!(open(&mut records, &mut peer.flush(), &mut wire, |_| ()), b"last");
            assert!(matches!(records.end(), Some(Ok(()))));
        }
    }
}

/// Message that changes the keys of its sender (RFC 8446 section 4.6.3); the last byte asks for the same of the receiver.
const KEY_UPDATE: [u8; 5] = [24, 0, 0, 1, 0];

/// Returns a server behind the first flight of the client, and the client, whose handshake is complete, with its last flight.
fn server_before_the_end(suite: SupportedCipherSuite) -> (Handshake, Records, Vec<u8>) {
    let (server, client) = shared(suite);
    let mut ours = Handshake::server(server).unwrap();
    let mut client = Handshake::client(client, "localhost".try_into().unwrap()).unwrap();
    let (mut wire, mut flight, mut plain) = (Vec::new(), Vec::new(), Vec::new());
    client.process(&[], &mut wire, &mut plain).unwrap();
    ours.process(&wire, &mut flight, &mut plain).unwrap();
    wire.clear();
    assert!(client.process(&flight, &mut wire, &mut plain).unwrap());
    (ours, converted(client, &[]).0, wire)
}

#[test]
fn each_part_of_a_segment_behind_the_handshake_is_left() {
    for suite in &suites()[..3] {
        let (mut ours, mut peer, last) = server_before_the_end(*suite);
        let first = [peer.test_seal(HANDSHAKE, &KEY_UPDATE[..2]), peer.test_seal(HANDSHAKE, &KEY_UPDATE[2..])].concat();
        peer.test_update_sent();
        let second = [peer.test_seal(DATA, b"data"), peer.test_seal(ALERT, &[1, 0])].concat();
        let (mut wire, mut plain) = (Vec::new(), Vec::new());
        let segment = [last.as_slice(), &first, &second[..second.len() - 1]].concat();
        assert!(ours.process(&segment, &mut wire, &mut plain).unwrap() && plain.is_empty() && !ours.has_closed());
        let (mut records, rest, _) = converted(ours, &second[second.len() - 1..]);
        assert_eq!(rest, [first.as_slice(), &second].concat());
        let update = [KEY_UPDATE[..2].to_vec(), KEY_UPDATE[2..].to_vec()].map(|part| (HANDSHAKE, part));
        assert_eq!(records.test_open(&first), update);
        records.test_update_received();
        assert_eq!(records.test_open(&second), [(DATA, b"data".to_vec()), (ALERT, vec![1, 0])]);
    }
}

#[test]
fn a_message_in_pieces_that_rustls_holds_stays_with_it() {
    for suite in &suites()[..3] {
        let (mut ours, mut peer, last) = server_before_the_end(*suite);
        let (mut wire, mut plain) = (Vec::new(), Vec::new());
        let segment = [last, peer.test_seal(HANDSHAKE, &KEY_UPDATE[..4])].concat();
        assert!(ours.process(&segment, &mut wire, &mut plain).unwrap());
        assert!(ours.process(&[], &mut wire, &mut plain).unwrap());
        let mut ours = ours.into_records(&mut Records::default()).err().expect("it stays");
        peer.test_open(&mem::take(&mut wire));
        ours.encrypt(b"between", &mut wire).unwrap();
        assert_eq!(peer.test_open(&mem::take(&mut wire)), [(DATA, b"between".to_vec())]);
        let end = peer.test_seal(HANDSHAKE, &KEY_UPDATE[4..]);
        peer.test_update_sent();
        let segment = [end, peer.test_seal(DATA, b"data")].concat();
        for byte in segment {
            ours.process(&[byte], &mut wire, &mut plain).unwrap();
        }
        assert_eq!(plain, b"data");
    }
}

#[test]
fn a_handshake_with_a_retry_is_converted() {
    for suite in &suites()[..3] {
        for is_client in [false, true] {
            let (server, client) = configs_with_retry(*suite);
            let (mut ours, mut peer) = sides(&Arc::new(server), &Arc::new(client), is_client);
            let shaken = shake(&mut ours, &mut peer, (1, 100), |_| ());
            assert_eq!(shaken.kind, Some(HandshakeKind::FullWithHelloRetryRequest));
            let (mut records, ..) = converted(ours, &[]);
            talk(&mut records, &mut peer);
        }
    }
}

#[test]
fn data_of_a_server_behind_its_last_message_are_left() {
    for suite in suites() {
        let (mut server, client) = configs(suite, false);
        server.send_half_rtt_data = true;
        let (mut ours, mut peer) = sides(&Arc::new(server), &Arc::new(client), true);
        peer.write(b"early");
        let shaken = shake(&mut ours, &mut peer, WHOLE, |_| ());
        let (mut records, rest, _) = converted(ours, &shaken.behind);
        assert_eq!(records.test_open(&rest), [(DATA, b"early".to_vec())], "{suite:?}");
        talk(&mut records, &mut peer);
    }
}

#[test]
fn tickets_behind_the_handshake_serve_for_the_next_one() {
    for suite in &suites()[..3] {
        let (server, client) = shared(*suite);
        let (mut ours, mut peer) = sides(&server, &client, true);
        let shaken = shake(&mut ours, &mut peer, WHOLE, |_| ());
        assert_eq!(shaken.kind, Some(HandshakeKind::Full));
        let (mut records, _, tickets) = converted(ours, &[]);
        let (mut tickets, mut count) = (tickets.unwrap(), 0);
        open(&mut records, &mut peer.flush(), &mut Vec::new(), |ticket| {
            tickets.handle_new_session_ticket(ticket).unwrap();
            count += 1;
        });
        assert_eq!(count, 2);
        for _ in 0..count {
            let (mut ours, mut peer) = sides(&server, &client, true);
            let shaken = shake(&mut ours, &mut peer, (1, 1), |_| ());
            assert_eq!(shaken.kind, Some(HandshakeKind::Resumed));
            let (mut records, ..) = converted(ours, &[]);
            talk(&mut records, &mut peer);
        }
    }
}

#[test]
fn a_server_resumes_and_is_converted() {
    for suite in suites() {
        let (server, client) = shared(suite);
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
            let (mut ours, mut peer) = sides(&server, &client, false);
            let shaken = shake(&mut ours, &mut peer, (1, 40), |_| ());
            assert_eq!((shaken.kind, peer.0.handshake_kind()), (Some(expected), Some(expected)), "{suite:?}");
            let (mut records, ..) = converted(ours, &[]);
            talk(&mut records, &mut peer);
        }
    }
}

#[test]
fn a_client_of_tls_1_2_resumes_and_is_converted() {
    let (server, client) = shared(suites()[3]);
    for expected in [HandshakeKind::Full, HandshakeKind::Resumed] {
        let (mut ours, mut peer) = sides(&server, &client, true);
        assert_eq!(shake(&mut ours, &mut peer, (1, 40), |_| ()).kind, Some(expected));
        let (mut records, ..) = converted(ours, &[]);
        talk(&mut records, &mut peer);
    }
}

#[test]
fn a_connection_that_rustls_reads_further_stays_with_it() {
    for suite in suites() {
        let (server, client) = shared(suite);
        for is_client in [false, true] {
            let (mut ours, mut peer) = sides(&server, &client, is_client);
            shake(&mut ours, &mut peer, WHOLE, |_| ());
            let (mut wire, mut plain) = (Vec::new(), Vec::new());
            assert!(ours.process(&peer.flush(), &mut wire, &mut plain).unwrap());
            if is_tls13(suite) {
                // rustls answers with the next data, so the answer would be lost in a conversion.
                peer.0.refresh_traffic_keys().unwrap();
                peer.write(b"data");
                ours.process(&peer.flush(), &mut wire, &mut plain).unwrap();
                assert_eq!(mem::take(&mut plain), b"data");
            }
            let mut records = Records::default();
            let mut ours = ours.into_records(&mut records).err().expect("it stays");
            assert!(wire.is_empty() && records.tx.key == [0; 32]);
            talk_whole(&mut ours, &mut peer);
            peer.write(b"last");
            peer.0.send_close_notify();
            assert!(ours.process(&peer.flush(), &mut wire, &mut plain).unwrap() && ours.has_closed());
            assert_eq!(mem::take(&mut plain), b"last");
            assert!(ours.process(b"behind", &mut wire, &mut plain).unwrap() && plain.is_empty());
            ours.encrypt(b"answer", &mut wire).unwrap();
            ours.close_notify(&mut wire);
            assert_eq!(peer.read(&wire).unwrap(), b"answer");
            assert!(peer.0.process_new_packets().unwrap().peer_has_closed());
        }
    }
}

#[test]
fn a_connection_whose_records_were_left_can_stay_with_rustls() {
    let suite = suites()[0];
    let (mut server, client) = configs(suite, false);
    server.enable_secret_extraction = false;
    let (server, client) = (Arc::new(server), Arc::new(client));
    let (mut ours, mut peer) = sides(&server, &client, false);
    let shaken = shake(&mut ours, &mut peer, WHOLE, |peer| {
        if !peer.0.is_handshaking() {
            peer.write(b"data");
        }
    });
    assert!(shaken.behind.is_empty());
    let mut ours = ours.into_records(&mut Records::default()).err().expect("keys may not be taken");
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    assert!(ours.process(&[], &mut wire, &mut plain).unwrap());
    assert_eq!(plain, b"data");
    talk_whole(&mut ours, &mut peer);
}

#[test]
fn a_connection_without_its_secrets_stays_with_rustls() {
    for suite in suites() {
        let (mut server, client) = configs(suite, false);
        server.key_log = Arc::new(rustls::NoKeyLog);
        let (mut ours, mut peer) = sides(&Arc::new(server), &Arc::new(client), false);
        shake(&mut ours, &mut peer, WHOLE, |_| ());
        match ours.into_records(&mut Records::default()) {
            Ok(_) => assert!(!is_tls13(suite)),
            Err(mut ours) => {
                assert!(is_tls13(suite));
                talk_whole(&mut ours, &mut peer);
            }
        }
    }
}

#[test]
fn the_certificate_of_a_client_is_known() {
    for suite in [suites()[0], suites()[3]] {
        let (server, client) = configs(suite, true);
        let (mut ours, mut peer) = sides(&Arc::new(server), &Arc::new(client), false);
        assert!(ours.peer_certificate().is_none());
        shake(&mut ours, &mut peer, (50, 50), |_| ());
        assert!(ours.peer_certificate().is_some());
        let (mut records, ..) = converted(ours, &[]);
        talk(&mut records, &mut peer);
    }
}

/// Error, length of the output, and output if that is an alert alone: other output has random bytes.
fn verdict(error: &Error, wire: &[u8]) -> (String, usize, Vec<u8>) {
    let alert = if wire.first() == Some(&ALERT) { wire.to_vec() } else { Vec::new() };
    (format!("{error:?}"), wire.len(), alert)
}

#[test]
fn a_forged_byte_of_the_first_message_has_the_verdict_of_rustls() {
    for suite in [suites()[0], suites()[3]] {
        let (server, client) = shared(suite);
        let (_, mut peer) = sides(&server, &client, false);
        let hello = peer.flush();
        let mut refusals = 0;
        for place in 0..hello.len() {
            for change in [1, 0x80, 0xff] {
                let mut forged = hello.clone();
                forged[place] ^= change;
                let mut buffered = Peer(Buffered::Server(ServerConnection::new(server.clone()).unwrap()));
                let expected = buffered.read(&forged).err().map(|error| verdict(&error, &buffered.flush()));
                let mut ours = Handshake::server(server.clone()).unwrap();
                let (mut wire, mut plain) = (Vec::new(), Vec::new());
                let result = ours.process(&forged, &mut wire, &mut plain);
                assert_eq!(result.err().map(|error| verdict(&error, &wire)), expected, "byte {place}");
                refusals += usize::from(expected.is_some());
            }
        }
        assert!(refusals > 50);
    }
}

#[test]
fn a_forged_byte_of_the_last_message_fails_with_an_alert() {
    for suite in suites() {
        let (server, client) = shared(suite);
        for place in 0.. {
            let (mut ours, mut peer) = sides(&server, &client, false);
            let (mut wire, mut plain) = (Vec::new(), Vec::new());
            ours.process(&peer.flush(), &mut wire, &mut plain).unwrap();
            peer.read(&mem::take(&mut wire)).unwrap();
            let mut last = peer.flush();
            // The last record is the encrypted one.
            let start = last.len() - if is_tls13(suite) { 16 } else { 12 };
            if start + place >= last.len() {
                break;
            }
            last[start + place] ^= 0x10;
            assert_eq!(ours.process(&last, &mut wire, &mut plain), Err(Error::DecryptError));
            assert!(matches!(peer.read(&wire), Err(Error::AlertReceived(_))), "{suite:?}");
            assert_eq!(ours.process(&last, &mut wire, &mut plain), Err(Error::DecryptError), "it stays so");
            assert!(ours.encrypt(b"data", &mut wire).is_err());
            assert!(ours.into_records(&mut Records::default()).is_err());
        }
    }
}

#[test]
fn bytes_that_wait_for_a_message_are_bounded() {
    let (server, _) = shared(suites()[0]);
    let mut ours = Handshake::server(server).unwrap();
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    // A message of 65,535 bytes, one byte a record.
    let message = [[1, 0, 255, 255].as_slice(), &[0; 65_535]].concat();
    let mut count = 0;
    let error = message.chunks(64).find_map(|bytes| {
        count += bytes.len();
        let records: Vec<u8> = bytes.iter().flat_map(|byte| [22, 3, 3, 0, 1, *byte]).collect();
        ours.process(&records, &mut wire, &mut plain).err()
    });
    assert_eq!(error, Some(InvalidMessage::HandshakePayloadTooLarge.into()));
    assert!(count <= LONGEST_WAITING / 6 + 64, "{count}");
    assert_eq!(ours.0.input.capacity(), 0);
}

#[test]
fn a_close_notify_before_the_end_of_the_handshake_is_not_sent() {
    let (server, client) = shared(suites()[0]);
    let (mut ours, mut peer) = sides(&server, &client, false);
    let mut wire = Vec::new();
    ours.close_notify(&mut wire);
    assert!(wire.is_empty() && ours.encrypt(b"data", &mut wire).is_err());
    shake(&mut ours, &mut peer, WHOLE, |_| ());
    ours.close_notify(&mut wire);
    assert_eq!(peer.read(&wire).map(|data| data.len()), Ok(0));
    assert!(peer.0.process_new_packets().unwrap().peer_has_closed());
}

#[test]
fn output_of_any_length_is_encrypted() {
    let (server, client) = shared(suites()[0]);
    let (mut ours, mut peer) = sides(&server, &client, false);
    shake(&mut ours, &mut peer, WHOLE, |_| ());
    for length in [0, 1, 16_384, 16_385, 50_000] {
        let (data, mut wire) = (vec![7; length], b"before".to_vec());
        ours.encrypt(&data, &mut wire).unwrap();
        assert_eq!(wire[..6], *b"before");
        let mut received = Vec::new();
        for piece in wire[6..].chunks(4_000) {
            received.extend(peer.read(piece).unwrap());
        }
        assert_eq!(received, data);
    }
}

#[test]
fn an_alert_of_the_peer_ends_the_handshake() {
    let (server, client) = shared(suites()[0]);
    let (mut ours, mut peer) = sides(&server, &client, true);
    let (mut wire, mut plain) = (Vec::new(), Vec::new());
    ours.process(&[], &mut wire, &mut plain).unwrap();
    assert_eq!(peer.read(&wire).map(|data| data.len()), Ok(0));
    let alert = [ALERT, 3, 3, 0, 2, 2, 40];
    let error = ours.process(&alert, &mut wire, &mut plain).unwrap_err();
    assert_eq!(error, Error::AlertReceived(rustls::AlertDescription::HandshakeFailure));
}
