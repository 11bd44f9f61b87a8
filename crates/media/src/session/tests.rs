//! Session: relay, echo, who may send, hold, RTCP, silence, changes.

mod earlier_process;
mod echo;
mod feedback;
mod first_packets;
mod loops;
mod playback;
mod recording;
mod silence;
mod unread;

use super::*;
use crate::quality::SpeechEncoding;
use crate::rtcp::{CompoundWriter, RtcpPacket, read};
use crate::rtp::{Header, Packet};

const NEAR: &str = "192.0.2.1:4000";
const FAR: &str = "198.51.100.2:6000";
const STRANGER: &str = "203.0.113.3:4000";
const NEAR_PORT: u16 = 30_000;
const FAR_PORT: u16 = 30_010;

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn moment(mono: u64) -> Moment {
    Moment { mono, wall: 1_700_000_000_000_000 + mono }
}

fn peer(port: u16, address: &str, formats: &[(u8, Option<u8>)]) -> StreamPeer {
    let rtp = at(address);
    let format = |&(payload_type, other): &(u8, Option<u8>)| {
        let is_event = matches!(payload_type, 96 | 101);
        let encoding = SpeechEncoding::of_payload_type(payload_type);
        PayloadFormat { payload_type, other, clock_rate: 8_000, is_event, encoding }
    };
    StreamPeer {
        ports: PortPair { thread: 0, address: 0, rtp: port },
        rtp: Some(rtp),
        rtcp: Some(SocketAddr::new(rtp.ip(), rtp.port() + 1)),
        behind_nat: None,
        formats: formats.iter().map(format).collect(),
        sends: true,
        receives: true,
        may_send_first: true,
        heard: None,
    }
}

/// Relay with different numbers on each side: 97 and 112 for one codec, 101 and 96 for telephone events. The far side did not agree on 9.
fn relay() -> StreamOrder {
    StreamOrder {
        kind: StreamKind::Relay,
        near: peer(NEAR_PORT, NEAR, &[(97, Some(112)), (101, Some(96)), (9, None)]),
        far: Some(peer(FAR_PORT, FAR, &[(112, Some(97)), (96, Some(101))])),
    }
}

fn rtp(payload_type: u8, source: u32, sequence: u16) -> Vec<u8> {
    let timestamp = u32::from(sequence) * 160;
    let mut datagram = Vec::new();
    Header { payload_type, marker: false, sequence, timestamp, source }.write(&mut datagram);
    datagram.extend(b"sound");
    datagram
}

/// Session of one stream, with its output.
struct Call {
    session: Session,
    random: Box<dyn FnMut() -> u32>,
    out: SessionOutput,
}

/// Packet of a session.
#[derive(Debug)]
struct Sent {
    port: u16,
    is_rtcp_port: bool,
    to: SocketAddr,
    bytes: Vec<u8>,
}

impl Sent {
    fn header(&self) -> Header {
        Packet::read(&self.bytes).expect("it is RTP").header
    }
}

const TIMEOUT: u64 = 30_000_000;

impl Call {
    fn new(order: StreamOrder) -> Self {
        Self::seeded(1, order)
    }

    fn seeded(seed: u32, order: StreamOrder) -> Self {
        let mut number = seed;
        let mut random: Box<dyn FnMut() -> u32> = Box::new(move || {
            number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            number
        });
        let session = Session::new(0, SessionKey(7), Some(TIMEOUT), vec![Some(order)], &mut random);
        Self { session, random, out: SessionOutput::default() }
    }

    fn take(&mut self) -> Vec<Sent> {
        let sent = self.out.packets.drain(..).map(|packet| Sent {
            port: packet.ports.rtp,
            is_rtcp_port: packet.is_rtcp_port,
            to: packet.to,
            bytes: self.out.bytes[packet.start..packet.end].to_vec(),
        });
        let sent = sent.collect();
        self.out.bytes.clear();
        sent
    }

    /// Takes a datagram at the port of RTP.
    fn hear(&mut self, ms: u64, side: Side, from: &str, datagram: &[u8]) -> Vec<Sent> {
        self.session.packet(ms * 1_000, LegPort { stream: 0, side, is_rtcp: false }, at(from), datagram, &mut self.out);
        self.take()
    }

    fn hear_rtcp(&mut self, ms: u64, side: Side, from: &str, datagram: &[u8]) {
        self.session.packet(ms * 1_000, LegPort { stream: 0, side, is_rtcp: true }, at(from), datagram, &mut self.out);
        assert!(self.out.packets.is_empty());
    }

    fn set(&mut self, ms: u64, order: StreamOrder) -> Vec<Sent> {
        self.session.set(moment(ms * 1_000), vec![Some(order)], &mut self.random, &mut self.out);
        self.take()
    }

    fn poll(&mut self, now: u64) -> Vec<Sent> {
        self.session.poll(moment(now), &mut self.random, &mut self.out);
        self.take()
    }

    fn near(&self) -> StreamReport {
        self.session.reports()[0].0
    }

    fn far(&self) -> StreamReport {
        self.session.reports()[0].1.expect("a far side")
    }

    fn events(&mut self) -> Vec<SessionEvent> {
        std::mem::take(&mut self.out.events)
    }
}

#[test]
fn legs_have_their_own_headers_and_payload_types() {
    let mut call = Call::new(relay());
    let sent = call.hear(0, Side::Near, NEAR, &rtp(97, 7, 500));
    let first = sent[0].header();
    assert_eq!((sent.len(), sent[0].port, sent[0].is_rtcp_port, sent[0].to), (1, FAR_PORT, false, at(FAR)));
    assert_eq!((first.payload_type, first.marker, sent[0].bytes.ends_with(b"sound")), (112, true, true));
    assert!(first.source != 7 && (first.sequence, first.timestamp) != (500, 80_000));
    let next = call.hear(40, Side::Near, NEAR, &rtp(97, 7, 502))[0].header();
    assert_eq!((next.source, next.sequence), (first.source, first.sequence.wrapping_add(2)));
    assert_eq!((next.timestamp, next.marker), (first.timestamp.wrapping_add(320), false));
    assert_eq!(call.hear(60, Side::Near, NEAR, &rtp(101, 7, 503))[0].header().payload_type, 96);

    let back = call.hear(60, Side::Far, FAR, &rtp(112, 8, 1));
    assert_eq!((back[0].port, back[0].to, back[0].header().payload_type), (NEAR_PORT, at(NEAR), 97));
    assert!(back[0].header().source != first.source);
    assert_eq!(call.hear(80, Side::Far, FAR, &rtp(96, 8, 2))[0].header().payload_type, 101);
    assert_eq!((call.near().figures.lost, call.near().sent, call.far().sent, call.near().dropped), (1, 2, 3, 0));
}

#[test]
fn packets_of_other_formats_are_counted_and_not_relayed() {
    let mut call = Call::new(relay());
    // Unknown, not agreed on the far side, no RTP.
    for datagram in [rtp(0, 7, 1), rtp(9, 7, 2), b"\r\n\r\n".to_vec(), Vec::new()] {
        assert!(call.hear(0, Side::Near, NEAR, &datagram).is_empty(), "{datagram:?}");
    }
    let report = call.near();
    assert_eq!((report.dropped, report.figures.packets, call.far().sent), (4, 1, 0));
}

#[test]
fn quality_is_that_of_the_codec_of_most_packets() {
    let near = peer(NEAR_PORT, NEAR, &[(8, Some(112)), (13, None), (97, Some(112)), (101, Some(96))]);
    let mut call = Call::new(StreamOrder { near, ..relay() });
    for (sequence, payload_type) in [(0, 8), (1, 8), (2, 13), (3, 13), (4, 13), (5, 101), (9, 101)] {
        call.hear(20 * u64::from(sequence), Side::Near, NEAR, &rtp(payload_type, 7, sequence));
    }
    let figures = call.near().figures;
    assert_eq!((figures.encoding, figures.lost), (SpeechEncoding::G711, 3));
    assert!(figures.quality().is_some_and(|quality| (41.0..42.0).contains(&quality.rating)), "{figures:?}");
    (10..12).for_each(|sequence| drop(call.hear(200, Side::Near, NEAR, &rtp(97, 7, sequence))));
    assert_eq!((call.near().figures.encoding, call.near().figures.quality()), (SpeechEncoding::Other, None));
    assert_eq!(call.far().figures.quality(), None);
}

/// RFC 3551 section 3: descriptions give the numbers of the dynamic range their meaning.
#[test]
fn quality_is_that_of_the_agreed_encoding_whatever_its_number() {
    let mut near = peer(NEAR_PORT, NEAR, &[(97, Some(112)), (98, None), (9, Some(112))]);
    let encodings = [SpeechEncoding::G711, SpeechEncoding::ComfortNoise, SpeechEncoding::Other];
    near.formats.iter_mut().zip(encodings).for_each(|(format, encoding)| format.encoding = encoding);
    let mut call = Call::new(StreamOrder { near, ..relay() });
    for (sequence, payload_type) in [(0, 97), (1, 98), (2, 98), (3, 98), (4, 97), (5, 9)] {
        call.hear(20 * u64::from(sequence), Side::Near, NEAR, &rtp(payload_type, 7, sequence));
    }
    let figures = call.near().figures;
    assert_eq!((figures.encoding, figures.lost), (SpeechEncoding::G711, 0));
    assert!(figures.quality().is_some_and(|quality| quality.rating > 93.0), "{figures:?}");
    (6..8).for_each(|sequence| drop(call.hear(200, Side::Near, NEAR, &rtp(9, 7, sequence))));
    assert_eq!((call.near().figures.encoding, call.near().figures.quality()), (SpeechEncoding::Other, None));
}

#[test]
fn strangers_are_counted_and_get_nothing() {
    let mut call = Call::new(relay());
    for (ms, from) in [(0, STRANGER), (20, "192.0.2.1:4002"), (40, FAR), (9_000, STRANGER)] {
        assert!(call.hear(ms, Side::Near, from, &rtp(97, 7, 1)).is_empty(), "{from}");
    }
    assert!(call.events().is_empty());
    let report = call.near();
    assert_eq!((report.dropped, report.figures.packets), (4, 0));
    assert_eq!((report.expected, report.seen), (Some(at(NEAR)), Some(at(STRANGER))));
    assert_eq!((report.refused, report.refused_from, report.heard_at), (4, Some(at(STRANGER)), None));
    assert_eq!(call.hear(9_010, Side::Far, FAR, &rtp(112, 8, 1))[0].to, at(NEAR));
    // A packet of the peer hides no other source, and one of an unknown format is not counted as such.
    call.hear(9_020, Side::Near, NEAR, &rtp(97, 7, 2));
    call.hear(9_040, Side::Near, NEAR, &rtp(0, 7, 3));
    let report = call.near();
    assert_eq!((report.dropped, report.refused, report.seen), (5, 4, Some(at(NEAR))));
    assert_eq!((report.refused_from, report.heard_at), (Some(at(STRANGER)), Some(9_020_000)));
}

#[test]
fn a_phone_whose_nat_forgets_the_port_is_heard_again() {
    let mut order = relay();
    order.near.behind_nat = Some(at("203.0.113.80:5060").ip());
    order.near.rtp = Some(at("192.168.1.5:4000"));
    let mut call = Call::new(order.clone());
    // Nothing goes to the private address, and nothing comes from it.
    assert!(call.hear(0, Side::Far, FAR, &rtp(112, 8, 1)).is_empty());
    assert!(call.hear(0, Side::Near, "192.168.1.5:4000", &rtp(97, 7, 1)).is_empty());
    assert_eq!(call.hear(20, Side::Near, "203.0.113.80:61000", &rtp(97, 7, 2)).len(), 1);
    assert_eq!(call.hear(20, Side::Far, FAR, &rtp(112, 8, 2))[0].to, at("203.0.113.80:61000"));
    // A refresh of the session is no new description.
    assert!(call.set(30, order).is_empty());
    let heard = |call: &mut Call, place: u16| {
        !call.hear(40 + 20 * u64::from(place), Side::Near, "203.0.113.80:61001", &rtp(97, 7, place + 3)).is_empty()
    };
    let first = (0..500).find(|place| heard(&mut call, *place)).expect("it is heard");
    assert!((48..150).contains(&first), "{first}");
    assert_eq!(call.hear(11_000, Side::Far, FAR, &rtp(112, 8, 3))[0].to, at("203.0.113.80:61001"));
}

#[test]
fn a_held_stream_is_counted_and_not_relayed() {
    let mut order = relay();
    order.near.sends = false;
    let mut call = Call::new(order.clone());
    assert!(call.hear(0, Side::Near, NEAR, &rtp(97, 7, 1)).is_empty());
    assert_eq!((call.near().figures.packets, call.near().dropped), (1, 0));
    assert_eq!(call.hear(0, Side::Far, FAR, &rtp(112, 8, 1)).len(), 1);
    // The near side holds the call the old way (RFC 2543), and receives nothing.
    order.near.rtp = None;
    order.near.receives = false;
    call.set(10, order);
    assert!(call.hear(20, Side::Far, FAR, &rtp(112, 8, 2)).is_empty());
    assert!(call.hear(20, Side::Near, NEAR, &rtp(97, 7, 2)).is_empty());
    call.set(2_990, relay());
    assert_eq!(call.hear(3_000, Side::Near, NEAR, &rtp(97, 7, 3)).len(), 1);
    // The hold is no gap of the stream.
    assert_eq!((call.near().figures.packets, call.near().figures.largest_gap), (3, 20_000));
}

#[test]
fn a_peer_is_heard_once() {
    let mut call = Call::new(relay());
    for place in 0..3 {
        call.hear(0, Side::Far, FAR, &rtp(112, 8, place));
        call.hear(0, Side::Near, NEAR, &rtp(97, 7, place));
    }
    let source = |from| LatchedSource { described: at(from), from: at(from), is_symmetric: true };
    let heard = |side, from| SessionEvent::Heard { key: SessionKey(7), stream: 0, side, source: source(from) };
    assert_eq!(call.events(), [heard(Side::Far, FAR), heard(Side::Near, NEAR)]);
}

#[test]
fn numbers_that_begin_again_follow_the_earlier_ones() {
    let mut call = Call::new(relay());
    let first = call.hear(0, Side::Near, NEAR, &rtp(97, 7, 10))[0].header();
    // A stray, and a peer that has restarted.
    assert!(call.hear(20, Side::Near, NEAR, &rtp(97, 7, 40_000)).is_empty());
    assert_eq!(call.hear(40, Side::Near, NEAR, &rtp(97, 7, 11))[0].header().sequence, first.sequence.wrapping_add(1));
    assert!(call.hear(60, Side::Near, NEAR, &rtp(97, 7, 20_000)).is_empty());
    let again = call.hear(80, Side::Near, NEAR, &rtp(97, 7, 20_001))[0].header();
    assert_eq!((again.sequence, again.marker), (first.sequence.wrapping_add(2), true));
    assert_eq!(again.timestamp, first.timestamp.wrapping_add(160 + 320));
}

#[test]
fn reports_are_made_and_read_for_each_leg() {
    let mut call = Call::new(relay());
    let sound = call.hear(0, Side::Near, NEAR, &rtp(97, 7, 10))[0].header();
    let due = call.session.deadline().expect("reports");
    assert!((1_000_000..3_100_000).contains(&due) && call.poll(due - 1).is_empty());
    let mut sent = call.poll(due);
    let last = call.session.deadline().expect("reports");
    sent.extend(call.poll(last.min(3_100_000)));
    let to_far = sent.iter().find(|sent| sent.port == FAR_PORT).expect("a report");
    assert!(to_far.is_rtcp_port && to_far.to == at("198.51.100.2:6001"));
    let mut packets = read(&to_far.bytes).map(|packet| packet.expect("it is right"));
    let Some(RtcpPacket::SenderReport { source, info, blocks }) = packets.next() else { panic!("no report") };
    assert_eq!((source, info.packets, info.octets, blocks.count()), (sound.source, 1, 5, 0));
    let Some(RtcpPacket::Description(mut chunks)) = packets.next() else { panic!("no description") };
    assert_eq!(chunks.next().and_then(|chunk| chunk.cname).map(<[u8]>::len), Some(16));
    // The near peer got nothing yet, and gets a report about what came.
    let to_near = sent.iter().find(|sent| sent.port == NEAR_PORT).expect("a report");
    let Some(Ok(RtcpPacket::ReceiverReport { blocks, .. })) = read(&to_near.bytes).next() else { panic!("no report") };
    assert_eq!(blocks.map(|block| (block.source, block.highest)).collect::<Vec<_>>(), [(7, 10)]);

    // The far peer answers within two seconds; another source does not count.
    let block = crate::rtcp::ReportBlock {
        source,
        fraction_lost: 0,
        lost: 0,
        highest: 1,
        jitter: 0,
        last_report: (info.ntp >> 16) as u32,
        delay: 0,
    };
    let mut answer = Vec::new();
    CompoundWriter::new(&mut answer).receiver_report(8, &[block]);
    let time = (info.ntp - crate::ntp_timestamp(1_700_000_000_000_000)) >> 32;
    let later = (time + 2) * 1_000;
    call.hear_rtcp(later, Side::Far, "203.0.113.3:6001", &answer);
    assert_eq!((call.far().round_trip, call.far().dropped), (None, 1));
    call.hear_rtcp(later, Side::Far, "198.51.100.2:6001", &answer);
    assert!(call.far().round_trip.is_some_and(|time| (1..2_000_000).contains(&time)));
}

#[test]
fn reports_may_share_the_port() {
    let mut order = relay();
    order.near.rtcp = order.near.rtp;
    let mut call = Call::new(order);
    let mut report = Vec::new();
    CompoundWriter::new(&mut report).receiver_report(8, &[]);
    // On the port of RTP, and only towards the peer that has agreed on it.
    assert!(call.hear(0, Side::Near, NEAR, &report).is_empty());
    assert_eq!(call.near().dropped, 0);
    call.hear_rtcp(0, Side::Near, NEAR, &report);
    assert!(call.hear(0, Side::Far, FAR, &report).is_empty());
    assert_eq!((call.near().dropped, call.far().dropped), (1, 1));
    assert!(call.events().is_empty());
    let sent = call.poll(3_100_000);
    let to_near = sent.iter().find(|sent| sent.port == NEAR_PORT).expect("a report");
    assert!(!to_near.is_rtcp_port && to_near.to == at(NEAR));
    // A stream without RTCP has no reports.
    let mut order = relay();
    order.near.rtcp = None;
    call.set(3_200, order);
    assert!(call.poll(20_000_000).iter().all(|sent| sent.port == FAR_PORT));
}

#[test]
fn a_session_ends_with_goodbyes_and_reports() {
    let mut call = Call::new(relay());
    call.hear(0, Side::Near, NEAR, &rtp(97, 7, 10));
    call.hear(0, Side::Near, STRANGER, &rtp(97, 7, 10));
    call.events();
    let Call { session, mut out, .. } = call;
    session.close(moment(1_000_000), &mut out);
    // Nothing was sent to the near peer.
    let [packet] = out.packets[..] else { panic!("{:?}", out.packets) };
    assert_eq!((packet.ports.rtp, packet.is_rtcp_port), (FAR_PORT, true));
    let last = read(&out.bytes[packet.start..packet.end]).last().expect("a packet");
    assert!(matches!(last, Ok(RtcpPacket::Goodbye { .. })));
    let [SessionEvent::Closed { key: SessionKey(7), streams }] = &out.events[..] else { panic!("{:?}", out.events) };
    let [(near, Some(far))] = &streams[..] else { panic!("{streams:?}") };
    assert_eq!((near.figures.packets, near.dropped, near.sent), (1, 1, 0));
    assert_eq!((far.figures.packets, far.dropped, far.sent), (0, 0, 1));
}

#[test]
fn silence_of_a_peer_that_sends_is_told_once() {
    let mut order = relay();
    for peer in [&mut order.near, order.far.as_mut().expect("a far side")] {
        peer.rtcp = None;
    }
    let mut call = Call::new(order.clone());
    assert_eq!(call.session.deadline(), Some(TIMEOUT));
    call.hear(10_000, Side::Near, NEAR, &rtp(97, 7, 1));
    call.hear(20_000, Side::Far, FAR, &rtp(112, 8, 1));
    // A packet of another source is no sign of life.
    call.hear(21_000, Side::Near, STRANGER, &rtp(97, 7, 1));
    call.events();
    assert_eq!(call.session.deadline(), Some(10_000_000 + TIMEOUT));
    call.poll(10_000_000 + TIMEOUT - 1);
    assert!(call.events().is_empty());

    // On hold neither peer has to send. After it the time begins again.
    let mut held = order.clone();
    (held.near.receives, held.far.as_mut().expect("a far side").sends) = (false, false);
    call.set(30_000, held);
    call.poll(90_000_000);
    assert!(call.events().is_empty() && call.session.deadline().is_none());
    call.set(100_000, order);
    assert_eq!(call.session.deadline(), Some(100_000_000 + TIMEOUT));
    call.hear(110_000, Side::Near, NEAR, &rtp(97, 7, 2));
    call.poll(100_000_000 + TIMEOUT);
    call.poll(100_000_000 + 3 * TIMEOUT);
    let silent = SessionEvent::Silent { key: SessionKey(7), end: SessionEnd::Silence(Side::Far) };
    assert_eq!(call.events(), [silent]);
    assert_eq!(call.session.deadline(), None);
}

#[test]
fn a_change_keeps_the_figures_of_the_same_ports() {
    let mut call = Call::new(relay());
    let first = call.hear(0, Side::Near, NEAR, &rtp(97, 7, 10))[0].header();
    let back = call.hear(0, Side::Far, FAR, &rtp(112, 8, 10))[0].header();
    // The near peer describes another address: the old one is refused at once.
    let mut order = relay();
    order.near = peer(NEAR_PORT, "192.0.2.9:4000", &[(0, Some(112))]);
    assert!(call.set(20, order.clone()).is_empty());
    assert!(call.hear(20, Side::Near, NEAR, &rtp(97, 7, 11)).is_empty());
    let next = call.hear(20, Side::Near, "192.0.2.9:4000", &rtp(0, 7, 9_000));
    assert!(next.is_empty(), "a jump");
    let next = call.hear(40, Side::Near, "192.0.2.9:4000", &rtp(0, 7, 9_001))[0].header();
    assert_eq!((next.source, next.sequence, next.marker), (first.source, first.sequence.wrapping_add(1), true));
    assert_eq!((call.near().figures.packets, call.near().dropped), (3, 1));

    // A transfer: the far side has another peer at other ports. The near peer hears one stream.
    order.far = Some(peer(30_020, "198.51.100.9:7000", &[(112, Some(0))]));
    let sent = call.set(60, order);
    let goodbye = read(&sent[0].bytes).last().expect("a packet");
    assert!(sent.len() == 1 && sent[0].port == FAR_PORT && matches!(goodbye, Ok(RtcpPacket::Goodbye { .. })));
    let then = call.hear(100, Side::Far, "198.51.100.9:7000", &rtp(112, 8, 700))[0].header();
    assert_eq!((then.source, then.sequence, then.marker), (back.source, back.sequence.wrapping_add(1), true));
    assert_eq!((then.payload_type, call.far().figures.packets, call.far().sent), (0, 1, 0));
    let fresh = call.hear(100, Side::Near, "192.0.2.9:4000", &rtp(0, 7, 9_002));
    assert!(fresh[0].header().source != first.source && fresh[0].to == at("198.51.100.9:7000"));
    assert!(call.hear(120, Side::Far, FAR, &rtp(112, 8, 12)).is_empty());
}

#[test]
fn refused_streams_have_empty_reports() {
    let mut call = Call::new(relay());
    call.hear(0, Side::Near, NEAR, &rtp(97, 7, 10));
    let orders = vec![None, Some(relay())];
    call.session.set(moment(20_000), orders, &mut call.random, &mut call.out);
    assert_eq!(call.take().len(), 1, "a goodbye");
    assert!(call.hear(40, Side::Near, NEAR, &rtp(97, 7, 11)).is_empty());
    let reports = call.session.reports();
    assert_eq!(reports[0], (StreamReport::default(), None));
    assert!(reports.len() == 2 && reports[1].1.is_some());
}
