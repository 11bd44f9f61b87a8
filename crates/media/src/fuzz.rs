//! Invariants for arbitrary bytes, as a function that panics on a violation.

use crate::Moment;
use crate::g711::Law;
use crate::quality::SpeechEncoding;
use crate::received_stream::ReceivedStream;
use crate::relabel::Relabel;
use crate::rtcp::{CompoundWriter, MOST, ReportBlock, RtcpPacket, is_rtcp, read};
use crate::rtp::{Header, Packet};
use crate::sent_stream::SentStream;
use crate::session::{
    LegPort, PayloadFormat, PlayedSound, PortPair, RecordedSound, Session, SessionEvent, SessionKey, SessionOutput,
    Side, StreamKind, StreamOrder, StreamPeer,
};
use crate::sound::Sound;
use crate::telephone_event::{EventNotice, ReceivedEvents, TelephoneEvent};
use crate::wave::{Wave, samples};
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

/// Maximum bytes of an own packet: a report of one stream, with description and BYE, or 60 ms of a sound.
const LONGEST_OWN: usize = 12 + 480;

/// Reads the bytes as an RTP packet, as a compound packet and as a WAV file, writes each again, and checks that reading gives the same. The
/// bytes are also a script, five bytes a packet, that drives a stream from its receiver over a relay to its sender, and a script that drives a
/// session.
///
/// # Panics
/// An invariant does not hold.
pub fn fuzz_media(data: &[u8]) {
    fuzz_packet(data);
    fuzz_compound(data);
    fuzz_stream(data);
    fuzz_session(data);
    if let Ok(wave) = Wave::read(data) {
        let mut file = Vec::new();
        wave.format.write_header(wave.sound.len() as u32, &mut file);
        file.extend(wave.sound);
        assert_eq!(Wave::read(&file), Ok(wave));
        assert!(wave.samples().count() <= wave.sound.len());
    }
    for payload_type in [0, 8, 9] {
        if let Ok(range) = samples(data, payload_type) {
            assert!(data.get(range).is_some());
        }
    }
}

fn fuzz_packet(data: &[u8]) {
    let Some(packet) = Packet::read(data) else { return };
    let mut written = Vec::new();
    packet.write(&mut written);
    assert_eq!(Packet::read(&written), Some(packet));
    assert!(written.len() <= data.len());
    for bytes in packet.payload.as_chunks().0 {
        let event = TelephoneEvent::read(*bytes);
        assert_eq!(TelephoneEvent::read(event.write()), event);
    }
    let mut relabelled = Vec::new();
    let header = Relabel::new(1, 2, 3, 8_000).write(0, &packet, 127, &mut relabelled);
    let read = Packet::read(&relabelled).expect("it was written");
    assert_eq!((read.header, read.payload), (header, packet.payload));
}

fn fuzz_compound(data: &[u8]) {
    let _ = is_rtcp(data);
    let mut count = 0;
    for packet in read(data) {
        count += 1;
        if let Ok(packet) = packet {
            write_again(packet);
        }
    }
    assert!(count <= data.len() / 4 + 1, "{count}");
}

/// Writes a packet and reads it back.
fn write_again(packet: RtcpPacket<'_>) {
    let mut out = Vec::new();
    let mut writer = CompoundWriter::new(&mut out);
    match packet {
        RtcpPacket::SenderReport { source, info, blocks } => {
            let blocks: Vec<ReportBlock> = blocks.collect();
            writer.sender_report(source, &info, &blocks);
            let Some(Ok(RtcpPacket::SenderReport { source: again, info: same, blocks: read })) = read(&out).next()
            else {
                panic!("no sender report: {out:?}")
            };
            assert_eq!((again, same, read.collect::<Vec<_>>()), (source, info, blocks));
        }
        RtcpPacket::ReceiverReport { source, blocks } => {
            let blocks: Vec<ReportBlock> = blocks.collect();
            writer.receiver_report(source, &blocks);
            let Some(Ok(RtcpPacket::ReceiverReport { source: again, blocks: read })) = read(&out).next() else {
                panic!("no receiver report: {out:?}")
            };
            assert_eq!((again, read.collect::<Vec<_>>()), (source, blocks));
        }
        RtcpPacket::Description(chunks) => {
            let chunks: Vec<_> = chunks.collect();
            assert!(chunks.len() <= MOST);
            for chunk in &chunks {
                writer.description(chunk.source, chunk.cname.unwrap_or_default());
            }
            for (packet, chunk) in read(&out).zip(&chunks) {
                let Ok(RtcpPacket::Description(mut read)) = packet else { panic!("no description: {out:?}") };
                let again = read.next().expect("a chunk");
                assert_eq!((again.source, again.cname), (chunk.source, chunk.cname.or(Some(b""))));
            }
            assert_eq!(read(&out).count(), chunks.len());
        }
        RtcpPacket::Goodbye { sources, reason } => {
            let sources: Vec<u32> = sources.collect();
            writer.goodbye(&sources, reason);
            let Some(Ok(RtcpPacket::Goodbye { sources: again, reason: same })) = read(&out).next() else {
                panic!("no BYE: {out:?}")
            };
            assert_eq!((again.collect::<Vec<_>>(), same), (sources, reason));
        }
        RtcpPacket::Other { .. } => return,
    }
    assert_eq!(out.len() % 4, 0);
}

fn fuzz_stream(data: &[u8]) {
    let mut received = ReceivedStream::new(8_000);
    received.leave_untimed(101);
    let (mut relabel, mut sent) = (Relabel::new(1, 2, 3, 8_000), SentStream::new(8_000));
    let (mut events, mut lasting) = (ReceivedEvents::default(), None);
    let (mut now, mut sequence, mut timestamp) = (0_u64, 0_u16, 0_u32);
    for [kind, step, ahead, time, event] in data.as_chunks::<5>().0 {
        now += u64::from(*step) * 400;
        sequence = sequence.wrapping_add((ahead.cast_signed() as i16).cast_unsigned());
        timestamp = timestamp.wrapping_add(u32::from(*time) << (kind & 7));
        if *ahead == 128 {
            sequence = sequence.wrapping_add(u16::from(*time) << 8);
        }
        let payload_type = if kind & 8 == 0 { 0 } else { 101 };
        let header = Header { payload_type, marker: kind & 16 != 0, sequence, timestamp, source: u32::from(kind >> 6) };
        let before = received.figures();
        received.packet(now, &header);
        let after = received.figures();
        assert_eq!(before.packets + before.strays + 1, after.packets + after.strays);
        assert!(after.lost <= after.expected && after.duplicates + after.reordered <= after.packets);
        assert!(after.lost + after.packets - after.duplicates == after.expected, "{after:?}");

        let relayed = relabel.header(now, &header, payload_type);
        sent.packet(now, &relayed, 160);
        if payload_type == 101 {
            let payload = [*event & 15, *event, *time, *step];
            events.packet(&header, &payload, |notice| {
                // Each event ends before the next begins.
                lasting = match (lasting, notice) {
                    (None, EventNotice::Began { event, .. }) => Some(event),
                    (Some(event), EventNotice::Ended { event: ended, .. }) if event == ended => None,
                    (lasting, notice) => panic!("{notice:?} while {lasting:?} lasts"),
                };
            });
            assert_eq!(events.lasting(), lasting);
        }
        if kind & 32 != 0 {
            report(&mut received, &mut sent, now);
        }
    }
}

/// Exchanges reports between the two streams, which have the same peer.
fn report(received: &mut ReceivedStream, sent: &mut SentStream, now: u64) {
    let info = sent.sender_report(Moment { mono: now, wall: now }).expect("packets were sent");
    let source = received.source().expect("a packet came");
    received.receive_report(now, source, &info);
    let block = received.report_block(now + 1_000).expect("a packet came");
    assert_eq!((block.source, block.delay), (source, 65));
    let round_trip = sent.receive_block(now + 3_000, &ReportBlock { source: 1, ..block });
    // 1/65,536 s are 15 us.
    assert!(round_trip.is_some_and(|time| (2_000..2_016).contains(&time)), "{round_trip:?}");
}

/// Drives a session of one stream by a script: packets from addresses that the descriptions and the signalling name, and from others; changes of the
/// stream; time. An item has an action, a time, a source, a length, and as many bytes.
///
/// # Panics
/// An invariant does not hold.
pub fn fuzz_session(data: &[u8]) {
    let [first, second, script @ ..] = data else { return };
    let mut number = 0_u32;
    let mut random = || {
        number = number.wrapping_add(0x9e37_79b9);
        number
    };
    let (mut order, mut now, mut out) = (stream_order(*first, *second), 0_u64, SessionOutput::default());
    let mut session = Session::new(now, SessionKey(1), Some(20_000_000), vec![Some(order.clone())], &mut random);
    let (mut rest, mut heard) = (script, [false; 16]);
    while let [action, time, from, length, after @ ..] = rest {
        let (body, after) = after.split_at(after.len().min(usize::from(*length)));
        rest = after;
        now += u64::from(*time) * 20_000;
        let (host, from) = (*from >> 4, SocketAddr::from(([192, 0, 2, from >> 4], 4_000 + u16::from(from & 15))));
        let side = if action & 8 == 0 { Side::Near } else { Side::Far };
        let moment = Moment { mono: now, wall: now };
        out.clear();
        match action & 7 {
            0..=4 => {
                let at = LegPort { stream: action >> 7, side, is_rtcp: action & 16 != 0 };
                session.packet(now, at, from, body, &mut out);
                heard[usize::from(host)] = true;
                check_answer(&order, side, (from, &heard), &out);
            }
            5 => {
                order = stream_order(*time, *length);
                session.set(moment, vec![Some(order.clone())], &mut random, &mut out);
            }
            _ => {
                session.poll(moment, &mut random, &mut out);
                assert!(session.deadline().is_none_or(|due| due > now));
                // A sound and its reports obey the law about hosts that have sent nothing.
                let may_go = |to: SocketAddr| matches!(to.ip(), IpAddr::V4(ip) if order.near.may_send_first || heard[usize::from(ip.octets()[3] & 15)]);
                let is_sound = matches!(order.kind, StreamKind::Playback(_) | StreamKind::Recording(_));
                assert!(!is_sound || out.packets.iter().all(|packet| may_go(packet.to)));
            }
        }
        // A change may end both legs of a kind, and then legs of other ports. A sound catches up on at most 200 ms, in packets of 10 ms or more.
        let most = if matches!(order.kind, StreamKind::Playback(_) | StreamKind::Recording(_)) { 24 } else { 4 };
        assert!(out.packets.len() <= most, "{:?}", out.packets);
        if let (Some(place), StreamKind::Recording(recorded)) = (out.recorded, &order.kind) {
            assert!(place + out.samples.len() as u64 <= recorded.limit / 125 && out.samples.len() <= body.len());
        }
        for packet in &out.packets {
            // No order names a host above 3.
            assert!(packet.to.ip() < IpAddr::from([192, 0, 2, 4]), "{packet:?}");
            let bytes = &out.bytes[packet.start..packet.end];
            // An own packet, or a received packet beside one.
            assert!(bytes.len() <= body.len() + LONGEST_OWN);
            assert!(order.kind == StreamKind::Unread || is_rtcp(bytes) || Packet::read(bytes).is_some());
        }
    }
    out.clear();
    session.close(Moment { mono: now, wall: now }, &mut out);
    assert!(matches!(out.events[..], [SessionEvent::Closed { .. }]));
}

/// Checks the output for one packet: at most one packet, to the other side. There is none if the packet came from another source or from a peer
/// that may not send, or would go to a host that has sent nothing and may not be sent to first. `heard`: hosts from which packets have come.
fn check_answer(order: &StreamOrder, side: Side, (from, heard): (SocketAddr, &[bool; 16]), out: &SessionOutput) {
    let (peer, other) = match (side, &order.kind, &order.far) {
        (Side::Near, StreamKind::Echo, _) => (&order.near, &order.near),
        (Side::Near, StreamKind::Relay | StreamKind::Unread, Some(far)) => (&order.near, far),
        (Side::Far, StreamKind::Relay | StreamKind::Unread, Some(far)) => (far, &order.near),
        _ => {
            assert!(out.packets.is_empty());
            return;
        }
    };
    // On hold by 0.0.0.0, an earlier order has the address.
    let is_named = peer.rtp.is_none() || Some(from.ip()) == peer.behind_nat.or_else(|| peer.rtp.map(|rtp| rtp.ip()));
    assert!(out.packets.len() <= 1);
    // RTCP that passes unread, and feedback, know no direction.
    let may_pass = order.kind == StreamKind::Unread || peer.sends && other.receives || is_rtcp(&out.bytes);
    assert!(out.packets.is_empty() || is_named && may_pass && out.packets[0].ports == other.ports);
    assert!(out.events.is_empty() || is_named);
    let has_sent = |to: SocketAddr| matches!(to.ip(), IpAddr::V4(ip) if heard[usize::from(ip.octets()[3] & 15)]);
    assert!(out.packets.iter().all(|packet| other.may_send_first || has_sent(packet.to)));
}

/// Makes an order of two bytes: hosts 0 to 3 of 192.0.2.0/24, ports 4000 to 4003.
fn stream_order(first: u8, second: u8) -> StreamOrder {
    let peer = |bits: u8, place: u16| {
        let rtp = SocketAddr::from(([192, 0, 2, bits & 3], 4_000 + u16::from(bits >> 2 & 3)));
        let encoding = SpeechEncoding::G711;
        let format = |payload_type, other, is_event| PayloadFormat {
            payload_type,
            other,
            clock_rate: 8_000,
            is_event,
            encoding,
        };
        StreamPeer {
            ports: PortPair { thread: 0, address: 0, rtp: 30_000 + 2 * (place + u16::from(bits >> 7)) },
            rtp: (bits & 0x33 != 0x33).then_some(rtp),
            rtcp: Some(if bits & 16 == 0 { rtp } else { SocketAddr::new(rtp.ip(), rtp.port() + 1) }),
            behind_nat: (bits & 32 != 0).then_some(IpAddr::from([192, 0, 2, bits >> 2 & 3])),
            formats: vec![format(0, Some(8), false), format(8, Some(0), false), format(101, None, true)],
            sends: bits & 64 == 0,
            receives: bits & 0x60 != 0x40,
            may_send_first: bits & 8 == 0,
            heard: None,
        }
    };
    let played = |repeats: bool| PlayedSound {
        sound: Arc::new(Sound::new((0..i16::from(second)).map(|sample| sample << 6))),
        payload_type: 8,
        law: Law::A,
        packet_time: u32::from(first & 63),
        repeats,
    };
    let kind = match (first & second & 64 == 0, first ^ second) {
        (true, other) if other & 12 == 12 => StreamKind::Unread,
        (true, _) => StreamKind::Relay,
        (false, other) if other & 12 == 12 => StreamKind::Playback(played(second & 1 == 0)),
        (false, other) if other & 12 == 8 => StreamKind::Recording(RecordedSound {
            tone: played(false),
            laws: vec![(0, Law::Mu), (8, Law::A)],
            file: Path::new("recording.wav").into(),
            limit: u64::from(second) * 10_000,
        }),
        (false, _) => StreamKind::Echo,
    };
    let has_far = matches!(kind, StreamKind::Relay | StreamKind::Unread) && second != 0;
    let far = has_far.then(|| peer(second, 4));
    StreamOrder { kind, near: peer(first, 0), far }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_bytes_keep_the_invariants(data in prop::collection::vec(any::<u8>(), 0..300)) {
            fuzz_media(&data);
        }

        /// Reads bytes that look like RTP and RTCP.
        #[test]
        fn any_packets_keep_the_invariants(
            packets in prop::collection::vec((0_u8..64, 198_u8..208, 0_u8..12, prop::collection::vec(any::<u8>(), 0..60)), 1..6),
        ) {
            let mut data = Vec::new();
            for (first, packet_type, length, body) in packets {
                data.extend([0x80 | first, packet_type, 0, length]);
                data.extend(body);
            }
            fuzz_media(&data);
        }

        /// Drives a session with packets that look like RTP and RTCP.
        #[test]
        fn any_session_keeps_the_invariants(
            streams in any::<(u8, u8)>(),
            items in prop::collection::vec(
                (any::<(u8, u8, u8, u8, u16)>(), prop::collection::vec(any::<u8>(), 0..60)),
                0..60,
            ),
        ) {
            let mut data = vec![streams.0, streams.1];
            for ((action, time, from, kind, sequence), payload) in items {
                let [high, low] = sequence.to_be_bytes();
                let second = [0, 8, 101, 200, 201, 3][usize::from(kind % 6)];
                let header = [0x80, second, high, low, 0, 0, 0, 1, 0, 0, 0, kind / 6 % 2];
                // Hosts 0 to 7, ports 4000 to 4003.
                data.extend([action, time & 63, from & 0x73, (header.len() + payload.len()) as u8]);
                data.extend(header);
                data.extend(payload);
            }
            fuzz_media(&data);
        }

        #[test]
        fn any_reports_are_read_as_written(
            (source, ntp, timestamp) in any::<(u32, u64, u32)>(),
            blocks in prop::collection::vec(any::<(u32, u8, i32, u32, u32, u32, u32)>(), 0..40),
            (cname, reason) in (prop::collection::vec(any::<u8>(), 0..300), prop::collection::vec(any::<u8>(), 0..300)),
            sources in prop::collection::vec(any::<u32>(), 0..40),
        ) {
            let blocks: Vec<ReportBlock> = blocks
                .into_iter()
                .map(|(source, fraction_lost, lost, highest, jitter, last_report, delay)| {
                    let lost = lost.clamp(-0x80_0000, 0x7f_ffff);
                    ReportBlock { source, fraction_lost, lost, highest, jitter, last_report, delay }
                })
                .collect();
            let info = crate::rtcp::SenderInfo { ntp, timestamp, packets: source ^ 1, octets: timestamp ^ 1 };
            let mut out = Vec::new();
            CompoundWriter::new(&mut out)
                .sender_report(source, &info, &blocks)
                .receiver_report(source, &blocks)
                .description(source, &cname)
                .goodbye(&sources, &reason);
            let mut packets = read(&out).map(|packet| packet.expect("it was written"));
            let some = |blocks: &[ReportBlock]| blocks[..blocks.len().min(MOST)].to_vec();
            let Some(RtcpPacket::SenderReport { source: of, info: same, blocks: again }) = packets.next() else {
                panic!("no SR")
            };
            prop_assert_eq!((of, same, again.collect::<Vec<_>>()), (source, info, some(&blocks)));
            let Some(RtcpPacket::ReceiverReport { blocks: again, .. }) = packets.next() else { panic!("no RR") };
            prop_assert_eq!(again.collect::<Vec<_>>(), some(&blocks));
            let Some(RtcpPacket::Description(chunks)) = packets.next() else { panic!("no SDES") };
            let names: Vec<_> = chunks.map(|chunk| chunk.cname.map(<[u8]>::to_vec)).collect();
            prop_assert_eq!(names, [Some(cname[..cname.len().min(255)].to_vec())]);
            let Some(RtcpPacket::Goodbye { sources: again, reason: why }) = packets.next() else { panic!("no BYE") };
            prop_assert_eq!(again.collect::<Vec<_>>(), &sources[..sources.len().min(MOST)]);
            prop_assert_eq!(why, &reason[..reason.len().min(255)]);
            prop_assert!(packets.next().is_none());
            fuzz_media(&out);
        }
    }
}
