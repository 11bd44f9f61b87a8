//! Judgement of received streams: packets, loss, jitter, delay and quality of each, by sender and SSRC.

use super::formats::{Format, Formats};
use hashbrown::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_measure::{HeardStream, Quality};
use strowger_media::quality::{Impairment, mean_opinion_score};
use strowger_media::received_stream::ReceivedStream;
use strowger_media::rtcp::is_rtcp;
use strowger_media::rtp::Packet;

type Hasher = foldhash::fast::RandomState;

/// Time without a packet after which a stream has ended: it is forgotten unless an open call expects it, and of several calls that share the
/// address of their peer the first one that ends takes it. Microseconds.
const ENDED: u64 = 2_000_000;

/// Time between two searches for streams to forget, microseconds.
const SEARCH: u64 = 1_000_000;

/// Payload type of G729 (RFC 3551 section 6).
const G729: u8 = 18;

/// Judge of the streams of one socket.
///
/// On a common socket a call expects streams from the address in its peer's description. A stream may come before the description. On the
/// socket of a single call all streams are the call's.
pub(super) struct Ear {
    streams: Mutex<Streams>,
}

/// Streams of a socket.
pub(super) struct Streams {
    senders: HashMap<SocketAddr, Sender, Hasher>,
    /// Payload types of senders that no call expects.
    formats: Formats,
    /// Streams of all senders, and their limit.
    count: usize,
    limit: usize,
    /// True if all streams are of one call.
    is_of_call: bool,
    /// True if the streams are sound, which has a quality.
    is_audio: bool,
    /// Time of the last search, microseconds.
    searched: u64,
}

/// Address that sends media.
#[derive(Default)]
struct Sender {
    /// Open calls that expect media from here.
    calls: u32,
    formats: Formats,
    /// Streams by SSRC.
    streams: HashMap<u32, Stream, Hasher>,
}

struct Stream {
    received: ReceivedStream,
    /// Arrival of the last packet, microseconds.
    last: u64,
    /// Last payload type that is no telephone event.
    payload_type: u8,
    /// True once a call has taken its figures; later packets are of no call.
    is_taken: bool,
}

impl Ear {
    /// Creates the judge of a socket of all calls.
    pub(super) fn common(is_audio: bool, limit: usize) -> Self {
        Self::new(is_audio, false, limit)
    }

    /// Creates the judge of the audio socket of a single call.
    pub(super) fn of_call(limit: usize) -> Self {
        Self::new(true, true, limit)
    }

    fn new(is_audio: bool, is_of_call: bool, limit: usize) -> Self {
        let streams = Streams {
            senders: HashMap::default(),
            formats: Formats::default(),
            count: 0,
            limit,
            is_of_call,
            is_audio,
            searched: 0,
        };
        Self { streams: Mutex::new(streams) }
    }

    /// Locks the streams, for a batch of packets.
    pub(super) fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Expects media from this address in these formats. `is_new`: true the first time for a call.
    pub(super) fn expect(&self, address: SocketAddr, is_new: bool, formats: &Formats) {
        let mut streams = self.streams();
        let sender = streams.senders.entry(address).or_default();
        sender.calls += u32::from(is_new);
        sender.formats.clone_from(formats);
    }

    /// Sets the formats of the socket of a single call.
    pub(super) fn describe(&self, formats: &Formats) {
        self.streams().formats.clone_from(formats);
    }

    /// Appends the figures of the streams from this address, which a call expected until `now` (microseconds). While other calls expect
    /// media from there, only ended streams are taken. Returns whether a stream came from there.
    pub(super) fn take(&self, address: SocketAddr, now: u64, into: &mut Vec<HeardStream>) -> bool {
        let mut streams = self.streams();
        let is_audio = streams.is_audio;
        let Some(sender) = streams.senders.get_mut(&address) else { return false };
        sender.calls = sender.calls.saturating_sub(1);
        let is_last = sender.calls == 0;
        for stream in sender.streams.values_mut() {
            if is_last || stream.has_ended(now) {
                into.extend(stream.take(is_audio));
            }
        }
        let has_come = !sender.streams.is_empty();
        if is_last && !has_come {
            streams.senders.remove(&address);
        }
        has_come
    }

    /// Appends the figures of all streams of the socket.
    pub(super) fn take_all(&self, into: &mut Vec<HeardStream>) {
        let mut streams = self.streams();
        let is_audio = streams.is_audio;
        for stream in streams.senders.values_mut().flat_map(|sender| sender.streams.values_mut()) {
            into.extend(stream.take(is_audio));
        }
    }
}

impl Streams {
    /// Enters a datagram that arrived at `now`, in microseconds. Returns false if it belongs to one stream too many. RTCP, and what is no
    /// RTP, belongs to no stream.
    pub(super) fn datagram(&mut self, now: u64, datagram: &[u8], from: SocketAddr) -> bool {
        if is_rtcp(datagram) {
            return true;
        }
        let Some(Packet { header, .. }) = Packet::read(datagram) else { return true };
        if self.count >= self.limit && !self.knows(from, header.source) {
            return false;
        }
        let sender = self.senders.entry(from).or_default();
        let formats = if sender.calls > 0 { &sender.formats } else { &self.formats };
        let stream = sender.streams.entry(header.source).or_insert_with(|| {
            self.count += 1;
            Stream::new()
        });
        stream.last = now;
        if stream.is_taken {
            return true;
        }
        match formats.of(header.payload_type) {
            Format::Events => stream.received.leave_untimed(header.payload_type),
            Format::Clock(rate) => {
                stream.received.set_clock_rate(rate);
                stream.payload_type = header.payload_type;
            }
        }
        stream.received.packet(now, &header);
        true
    }

    fn knows(&self, from: SocketAddr, source: u32) -> bool {
        self.senders.get(&from).is_some_and(|sender| sender.streams.contains_key(&source))
    }

    /// Forgets ended streams of no open call. Called after each batch.
    pub(super) fn tidy(&mut self, now: u64) {
        if self.is_of_call || now.saturating_sub(self.searched) < SEARCH {
            return;
        }
        self.searched = now;
        let mut count = 0;
        self.senders.retain(|_, sender| {
            let is_expected = sender.calls > 0;
            sender.streams.retain(|_, stream| is_expected && !stream.is_taken || !stream.has_ended(now));
            count += sender.streams.len();
            is_expected || !sender.streams.is_empty()
        });
        self.count = count;
    }
}

impl Stream {
    fn new() -> Self {
        Self { received: ReceivedStream::new(8_000), last: 0, payload_type: 0, is_taken: false }
    }

    const fn has_ended(&self, now: u64) -> bool {
        now.saturating_sub(self.last) > ENDED
    }

    /// Returns the figures, once.
    fn take(&mut self, is_audio: bool) -> Option<HeardStream> {
        if std::mem::replace(&mut self.is_taken, true) {
            return None;
        }
        let figures = self.received.figures();
        let loss = figures.lost as f64 / figures.expected.max(1) as f64;
        let impairment = if self.payload_type == G729 { Impairment::G729 } else { Impairment::G711 };
        // The delay from mouth to ear is not known at one end.
        let rating = impairment.rating(loss, 0.0);
        Some(HeardStream {
            packets: figures.packets,
            expected: figures.expected,
            lost: figures.lost,
            reordered: figures.reordered,
            doubled: figures.duplicates,
            max_delta: figures.largest_gap,
            jitter: figures.mean_jitter,
            max_jitter: figures.largest_jitter,
            deviation: figures.mean_deviation,
            quality: is_audio.then(|| Quality { rating, score: mean_opinion_score(rating) }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_media::rtp::Header;

    const MANY: usize = 1_000;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], port))
    }

    fn packet(source: u32, sequence: u16, payload_type: u8, timestamp: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        Header { payload_type, marker: false, sequence, timestamp, source }.write(&mut bytes);
        bytes.extend([0; 160]);
        bytes
    }

    /// Enters packets of G.711 20 ms apart, the first at `from` milliseconds.
    fn hear(ear: &Ear, peer: SocketAddr, source: u32, from: u64, sequences: &[u16]) {
        let mut streams = ear.streams();
        for (place, sequence) in sequences.iter().enumerate() {
            let bytes = packet(source, *sequence, 0, u32::from(*sequence) * 160);
            assert!(streams.datagram((from + 20 * place as u64) * 1_000, &bytes, peer));
        }
    }

    fn taken(ear: &Ear, peer: SocketAddr, now: u64) -> Vec<HeardStream> {
        let mut heard = Vec::new();
        ear.take(peer, now * 1_000, &mut heard);
        heard
    }

    #[test]
    fn a_call_takes_the_streams_of_its_peer_once() {
        let ear = Ear::common(true, MANY);
        let (peer, stranger) = (address(1), address(2));
        // Media may come before the description.
        hear(&ear, peer, 7, 0, &[1, 2]);
        ear.expect(peer, true, &Formats::default());
        hear(&ear, peer, 7, 40, &[4, 3, 3, 6]);
        hear(&ear, stranger, 7, 40, &[1, 2, 3]);
        let heard = taken(&ear, peer, 200);
        let [HeardStream { packets, expected, lost, reordered, doubled, max_delta, .. }] = heard[..] else {
            panic!("{heard:?}")
        };
        assert_eq!((packets, expected, lost, reordered, doubled, max_delta), (6, 6, 1, 1, 1, 20_000));
        let quality = heard[0].quality.expect("it is sound");
        assert!((2.8..2.9).contains(&quality.score) && (55.0..56.0).contains(&quality.rating), "{quality:?}");
        // What comes after the call is of no call; the next call of this peer hears its own stream.
        hear(&ear, peer, 7, 240, &[7]);
        ear.expect(peer, true, &Formats::default());
        hear(&ear, peer, 8, 260, &[1, 2]);
        let heard = taken(&ear, peer, 400);
        assert_eq!(heard.iter().map(|stream| stream.packets).collect::<Vec<_>>(), [2]);
        assert!(taken(&ear, peer, 400).is_empty());
    }

    #[test]
    fn calls_with_one_peer_share_its_streams_out() {
        let ear = Ear::common(false, MANY);
        let peer = address(1);
        (0..2).for_each(|_| ear.expect(peer, true, &Formats::default()));
        ear.expect(peer, false, &Formats::default());
        hear(&ear, peer, 1, 0, &[1, 2]);
        hear(&ear, peer, 2, 3_000, &[1, 2, 3]);
        let packets = |heard: &[HeardStream]| heard.iter().map(|stream| stream.packets).collect::<Vec<_>>();
        let first = taken(&ear, peer, 3_100);
        assert_eq!((packets(&first), first[0].quality), (vec![2], None));
        assert_eq!(packets(&taken(&ear, peer, 3_200)), [3]);
    }

    #[test]
    fn ended_streams_are_forgotten_unless_a_call_expects_them() {
        let ear = Ear::common(true, MANY);
        ear.expect(address(1), true, &Formats::default());
        (1..4).for_each(|port| hear(&ear, address(port), 1, 0, &[1, 2]));
        let count = |now: u64| {
            let mut streams = ear.streams();
            streams.tidy(now * 1_000);
            (streams.count, streams.senders.len())
        };
        assert_eq!((count(1_500), count(2_400), count(2_600)), ((3, 3), (3, 3), (1, 1)));
        assert_eq!(taken(&ear, address(1), 60_000).len(), 1);
        assert_eq!(count(90_000), (0, 0));
        // All streams at the port of a call wait for its end.
        let own = Ear::of_call(MANY);
        hear(&own, address(1), 1, 0, &[1]);
        own.streams().tidy(90_000_000);
        let mut heard = Vec::new();
        own.take_all(&mut heard);
        own.take_all(&mut heard);
        assert_eq!(heard.len(), 1);
    }

    #[test]
    fn one_stream_too_many_is_not_judged() {
        let ear = Ear::common(true, 1);
        let mut streams = ear.streams();
        let mut enter = |source: u32| streams.datagram(0, &packet(source, 1, 0, 0), address(1));
        assert_eq!((enter(1), enter(2), enter(1)), (true, false, true));
        // RTCP and other datagrams are no streams.
        assert!(streams.datagram(0, &[0x80, 200, 0, 6, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0], address(1)));
        assert!(streams.datagram(0, b"\0\x01\0\0 stun", address(1)));
        assert_eq!((streams.count, streams.senders.len()), (1, 1));
    }

    #[test]
    fn events_and_another_clock_are_no_jitter() {
        let ear = Ear::of_call(MANY);
        ear.describe(&Formats::read(b"a=rtpmap:101 telephone-event/8000\na=rtpmap:96 opus/48000/2\n"));
        {
            let mut streams = ear.streams();
            for place in 0..30_u16 {
                let (payload_type, timestamp) =
                    if (10..20).contains(&place) { (101, 9_600) } else { (96, 960 * u32::from(place)) };
                let bytes = packet(5, place, payload_type, timestamp);
                assert!(streams.datagram(u64::from(place) * 20_000, &bytes, address(1)));
            }
        }
        let mut heard = Vec::new();
        ear.take_all(&mut heard);
        assert_eq!((heard[0].packets, heard[0].lost, heard[0].max_jitter, heard[0].max_delta), (30, 0, 0, 20_000));
    }
}
