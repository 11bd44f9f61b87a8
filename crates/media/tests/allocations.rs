//! The way of a packet, from its datagram through the statistics to the other leg, allocates nothing once its buffers are warm.

use std::alloc::System;
use std::hint::black_box;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use strowger_allocations::{Counting, of_thread};
use strowger_media::Moment;
use strowger_media::g711::Law;
use strowger_media::quality::SpeechEncoding;
use strowger_media::received_stream::ReceivedStream;
use strowger_media::relabel::Relabel;
use strowger_media::rtcp::{self, CompoundWriter, RtcpPacket};
use strowger_media::rtp::{Numbering, Packet};
use strowger_media::sent_stream::SentStream;
use strowger_media::session::{
    LegPort, PayloadFormat, PlayedSound, PortPair, RecordedSound, Session, SessionKey, SessionOutput, Side, StreamKind,
    StreamOrder, StreamPeer,
};
use strowger_media::sound::Sound;
use strowger_media::telephone_event::{ReceivedEvents, SentEvent};

#[global_allocator]
static ALLOCATOR: Counting<System> = Counting(System);

/// One leg to the other.
struct Relay {
    received: ReceivedStream,
    relabel: Relabel,
    sent: SentStream,
    events: ReceivedEvents,
    out: Vec<u8>,
}

impl Relay {
    fn relay(&mut self, now: u64, datagram: &[u8]) {
        let packet = Packet::read(datagram).expect("it is RTP");
        black_box(self.received.packet(now, &packet.header));
        if packet.header.payload_type == 101 {
            self.events.packet(&packet.header, packet.payload, |notice| {
                let _ = black_box(notice);
            });
        }
        self.out.clear();
        let header = self.relabel.write(now, &packet, packet.header.payload_type, &mut self.out);
        self.sent.packet(now, &header, packet.payload.len());
    }

    /// Writes a report and reads it as the peer's.
    fn report(&mut self, now: u64) {
        let block = self.received.report_block(now).expect("packets came");
        let info = self.sent.sender_report(Moment { mono: now, wall: now }).expect("packets were sent");
        self.out.clear();
        CompoundWriter::new(&mut self.out).sender_report(9, &info, &[block]).description(9, b"leg").goodbye(&[9], b"");
        for packet in rtcp::read(&self.out) {
            match packet.expect("it was written") {
                RtcpPacket::SenderReport { source, info, blocks } => {
                    self.received.receive_report(now, source, &info);
                    for block in blocks {
                        black_box(self.sent.receive_block(now, &block));
                    }
                }
                RtcpPacket::Description(chunks) => assert_eq!(chunks.count(), 1),
                other => drop(black_box(other)),
            }
        }
        black_box(self.received.figures());
    }
}

/// Returns the order of a relay between these two addresses, or of an echo for the first one.
fn order(near: SocketAddr, far: Option<SocketAddr>) -> StreamOrder {
    let peer = |rtp: SocketAddr, port| StreamPeer {
        ports: PortPair { thread: 0, address: 0, rtp: port },
        rtp: Some(rtp),
        rtcp: Some(rtp),
        behind_nat: None,
        formats: vec![PayloadFormat {
            payload_type: 0,
            other: Some(0),
            clock_rate: 8_000,
            is_event: false,
            encoding: SpeechEncoding::G711,
        }],
        sends: true,
        receives: true,
        may_send_first: true,
        heard: None,
    };
    let kind = if far.is_some() { StreamKind::Relay } else { StreamKind::Echo };
    StreamOrder { kind, near: peer(near, 30_000), far: far.map(|far| peer(far, 30_002)) }
}

#[test]
fn nothing_is_allocated_for_a_packet_of_a_session() {
    let [near, far, stranger] = [1, 2, 3].map(|host| SocketAddr::from(([192, 0, 2, host], 4_000)));
    let mut random = || 7;
    for other in [Some(far), None] {
        let (mut out, mut datagram) = (SessionOutput::default(), Vec::with_capacity(1_500));
        let streams = vec![Some(order(near, other))];
        let mut session = Session::new(0, SessionKey(1), Some(30_000_000), streams, &mut random);
        // Not the SSRC of the session: its own packets do not go back.
        let mut numbering = Numbering::new(8, 1, 2);
        let (mut sent, mut before) = (0, 0);
        for place in 0..1_000_u64 {
            if place == 1 {
                // The first packet has warmed the buffers; the first report needs another one.
                out.bytes.reserve(1_500);
                out.packets.reserve(16);
                before = of_thread();
            }
            datagram.clear();
            numbering.next(0, 160).write(&mut datagram);
            datagram.extend([0xff; 160]);
            let now = place * 20_000;
            out.clear();
            for from in [near, stranger] {
                let at = LegPort { stream: 0, side: Side::Near, is_rtcp: false };
                session.packet(now, at, from, &datagram, &mut out);
            }
            sent += out.packets.len();
            if session.deadline().is_some_and(|due| due <= now) {
                session.poll(Moment { mono: now, wall: now }, &mut random, &mut out);
            }
        }
        assert_eq!(of_thread() - before, 0);
        assert_eq!((sent, session.reports()[0].0.dropped), (1_000, 1_000));
    }
}

#[test]
fn nothing_is_allocated_for_a_packet_of_a_sound() {
    let near = SocketAddr::from(([192, 0, 2, 1], 4_000));
    let mut random = || 7;
    let kind = StreamKind::Playback(PlayedSound {
        sound: Arc::new(Sound::new((0..8_000).map(|sample| sample * 4))),
        payload_type: 0,
        law: Law::Mu,
        packet_time: 20,
        repeats: true,
    });
    let streams = vec![Some(StreamOrder { kind, ..order(near, None) })];
    let mut session = Session::new(0, SessionKey(1), Some(30_000_000), streams, &mut random);
    let mut out = SessionOutput::default();
    out.bytes.reserve(1_500);
    out.packets.reserve(16);
    let (mut sent, before) = (0, of_thread());
    for place in 0..1_000_u64 {
        let now = place * 20_000;
        out.clear();
        if session.deadline().is_some_and(|due| due <= now) {
            session.poll(Moment { mono: now, wall: now }, &mut random, &mut out);
        }
        sent += u64::from(!out.packets.is_empty());
    }
    assert_eq!(of_thread() - before, 0);
    assert_eq!((sent, session.reports()[0].0.sent), (1_000, 1_000));
}

#[test]
fn nothing_is_allocated_for_a_packet_of_a_recording() {
    let near = SocketAddr::from(([192, 0, 2, 1], 4_000));
    let mut random = || 7;
    let sound = Arc::new(Sound::new([0]));
    let kind = StreamKind::Recording(RecordedSound {
        tone: PlayedSound { sound, payload_type: 0, law: Law::Mu, packet_time: 20, repeats: false },
        laws: vec![(0, Law::Mu)],
        file: Path::new("a.wav").into(),
        limit: 60_000_000,
    });
    let StreamOrder { near: mut peer, .. } = order(near, None);
    // The recording begins at once.
    peer.receives = false;
    let streams = vec![Some(StreamOrder { kind, near: peer, far: None })];
    let mut session = Session::new(0, SessionKey(1), None, streams, &mut random);
    let (mut out, mut datagram) = (SessionOutput::default(), Vec::with_capacity(1_500));
    out.samples.reserve(160);
    let mut numbering = Numbering::new(8, 1, 2);
    let (mut recorded, mut before) = (0, 0);
    for place in 0..1_000_u64 {
        if place == 1 {
            // The first packet has left an event.
            before = of_thread();
        }
        datagram.clear();
        numbering.next(0, 160).write(&mut datagram);
        datagram.extend([0xff; 160]);
        let at = LegPort { stream: 0, side: Side::Near, is_rtcp: false };
        out.clear();
        session.packet(place * 20_000, at, near, &datagram, &mut out);
        recorded += usize::from(out.recorded == Some(place * 160)) * out.samples.len();
    }
    assert_eq!((of_thread() - before, recorded), (0, 160_000));
}

#[test]
fn nothing_is_allocated_for_a_packet() {
    let mut relay = Relay {
        received: ReceivedStream::new(8_000),
        relabel: Relabel::new(9, 1, 2, 8_000),
        sent: SentStream::new(8_000),
        events: ReceivedEvents::default(),
        out: Vec::with_capacity(1_500),
    };
    let mut numbering = Numbering::new(7, 1, 2);
    let mut datagram = Vec::with_capacity(1_500);
    let before = of_thread();
    for place in 0..1_000_u64 {
        datagram.clear();
        numbering.next(0, 160).write(&mut datagram);
        datagram.extend([0xff; 160]);
        // Some are lost, some come twice.
        for _ in 0..place % 3 {
            relay.relay(place * 20_000, &datagram);
        }
        if place % 100 == 99 {
            let mut event = SentEvent::begin(5, 10, numbering.timestamp());
            event.end(numbering.timestamp().wrapping_add(800));
            while let Some(packet) = event.next(numbering.timestamp()) {
                datagram.clear();
                numbering.next_at(101, packet.marker, packet.timestamp).write(&mut datagram);
                datagram.extend(packet.payload);
                relay.relay(place * 20_000, &datagram);
            }
            relay.report(place * 20_000);
        }
    }
    assert_eq!(of_thread() - before, 0);
    let figures = relay.received.figures();
    // Of each three packets one is lost and one comes twice; three more are the ends of each of ten events.
    assert_eq!((figures.packets, figures.duplicates), (999 + 30, 333));
}
