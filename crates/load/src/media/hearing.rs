//! Judgement of received streams: packets, loss, jitter, delay and quality of each, by sender and SSRC.

use super::formats::Formats;
use super::stream::{Stream, Taken, Until, is_latest, latest};
use hashbrown::HashMap;
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_media::rtcp::is_rtcp;
use strowger_media::rtp::Packet;

type Hasher = foldhash::fast::RandomState;

/// Time between two searches for streams to forget, microseconds.
const SEARCH: u64 = 1_000_000;

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
    /// True if several calls have expected media at once since the last time that no call did.
    is_shared: bool,
    formats: Formats,
    /// Streams by SSRC.
    streams: HashMap<u32, Stream, Hasher>,
}

impl Ear {
    /// Creates the judge of a socket of all calls.
    pub(super) fn common(is_audio: bool, limit: usize) -> Self {
        Self::new(is_audio, false, limit)
    }

    /// Creates the judge of a socket of a single call.
    pub(super) fn of_call(is_audio: bool, limit: usize) -> Self {
        Self::new(is_audio, true, limit)
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
        sender.is_shared |= sender.calls > 1;
        sender.formats.clone_from(formats);
    }

    /// Expects no more media from this address for a call, which now receives elsewhere.
    pub(super) fn release(&self, address: SocketAddr) {
        if let Some(sender) = self.streams().senders.get_mut(&address) {
            sender.leave();
        }
    }

    /// Sets the formats of the socket of a single call.
    pub(super) fn describe(&self, formats: &Formats) {
        self.streams().formats.clone_from(formats);
    }

    /// Holds the streams from this address; `None`: all. `until`: moment up to which the call expected them. Streams that calls share are left
    /// alone.
    pub(super) fn hold(&self, address: Option<SocketAddr>, until: Option<Until>) {
        let mut streams = self.streams();
        let held = streams.of_one_call(address);
        let last = latest(&held);
        for stream in held {
            let until = until.filter(|_| is_latest(stream, last));
            stream.hold(until);
        }
    }

    /// Continues the streams of [`Ear::hold`] at `now`, microseconds.
    pub(super) fn resume(&self, address: Option<SocketAddr>, now: u64) {
        self.streams().of_one_call(address).into_iter().for_each(|stream| stream.resume(now));
    }

    /// Takes the streams from this address, which a call expected from `since` to `now`, microseconds. `until`: moment up to which it expected
    /// packets. While other calls expect media from there, only ended streams are taken.
    pub(super) fn take(&self, address: SocketAddr, since: u64, until: Option<Until>, now: u64, into: &mut Taken) {
        let mut streams = self.streams();
        let is_audio = streams.is_audio;
        let Some(sender) = streams.senders.get_mut(&address) else { return };
        // The end of a shared stream may be that of another call.
        let until = until.filter(|_| !sender.is_shared);
        let is_last = sender.leave();
        let is_empty = sender.streams.is_empty();
        let all: Vec<&mut Stream> = sender.streams.values_mut().collect();
        let last = latest(&all);
        for stream in all {
            into.has_come |= stream.came_after(since);
            if is_last || stream.has_ended(now) {
                let until = until.filter(|_| is_latest(stream, last));
                stream.take(is_audio, until, into);
            }
        }
        if is_last && is_empty {
            streams.senders.remove(&address);
        }
    }

    /// Takes all streams of the socket.
    pub(super) fn take_all(&self, until: Option<Until>, into: &mut Taken) {
        let mut streams = self.streams();
        let is_audio = streams.is_audio;
        let all = streams.of_one_call(None);
        let last = latest(&all);
        for stream in all {
            into.has_come = true;
            let until = until.filter(|_| is_latest(stream, last));
            stream.take(is_audio, until, into);
        }
    }
}

impl Sender {
    /// Ends the expectation of one call. Returns whether it was the last.
    fn leave(&mut self) -> bool {
        self.calls = self.calls.saturating_sub(1);
        self.is_shared &= self.calls > 0;
        self.calls == 0
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
        stream.packet(now, &header, formats);
        true
    }

    fn knows(&self, from: SocketAddr, source: u32) -> bool {
        self.senders.get(&from).is_some_and(|sender| sender.streams.contains_key(&source))
    }

    /// Returns the streams from this address if no other call may have them; `None`: all streams of the socket of a call.
    fn of_one_call(&mut self, address: Option<SocketAddr>) -> Vec<&mut Stream> {
        match address {
            Some(address) => {
                let sender = self.senders.get_mut(&address).filter(|sender| !sender.is_shared);
                sender.into_iter().flat_map(|sender| sender.streams.values_mut()).collect()
            }
            None => self.senders.values_mut().flat_map(|sender| sender.streams.values_mut()).collect(),
        }
    }

    /// Marks the streams that were there at `since` (microseconds) as damaged: this process has lost datagrams of the socket.
    pub(super) fn damage(&mut self, since: u64) {
        for stream in self.senders.values_mut().flat_map(|sender| sender.streams.values_mut()) {
            stream.damage(since);
        }
    }

    /// Forgets ended streams of no open call. Called after each batch. The streams of a single call stay until its end.
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

#[cfg(test)]
mod tests {
    use super::super::description::Description;
    use super::*;
    use strowger_measure::HeardStream;
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
        let mut taken = Taken::default();
        ear.take(peer, 0, None, now * 1_000, &mut taken);
        taken.streams
    }

    fn all_taken(ear: &Ear, until: Option<Until>) -> Taken {
        let mut taken = Taken::default();
        ear.take_all(until, &mut taken);
        taken
    }

    /// Returns the moment of a BYE, in milliseconds.
    fn bye(at: u64) -> Option<Until> {
        Some(Until { at: at * 1_000, allowance: 200_000 })
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
        let own = Ear::of_call(true, MANY);
        hear(&own, address(1), 1, 0, &[1]);
        own.streams().tidy(90_000_000);
        assert_eq!((all_taken(&own, None).streams.len(), all_taken(&own, None).streams.len()), (1, 0));
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
        let ear = Ear::of_call(true, MANY);
        let text = b"a=rtpmap:101 telephone-event/8000\na=rtpmap:96 opus/48000/2\n";
        ear.describe(&Description::read(text, b"audio").formats);
        {
            let mut streams = ear.streams();
            for place in 0..30_u16 {
                let (payload_type, timestamp) =
                    if (10..20).contains(&place) { (101, 9_600) } else { (96, 960 * u32::from(place)) };
                let bytes = packet(5, place, payload_type, timestamp);
                assert!(streams.datagram(u64::from(place) * 20_000, &bytes, address(1)));
            }
        }
        let heard = all_taken(&ear, None).streams;
        assert_eq!((heard[0].packets, heard[0].lost, heard[0].max_jitter, heard[0].max_delta), (30, 0, 0, 20_000));
    }

    #[test]
    fn the_quality_is_that_of_the_codec_of_most_packets() {
        let rating = |types: [u8; 5]| {
            let ear = Ear::of_call(true, MANY);
            let text = b"a=rtpmap:96 opus/48000/2\na=rtpmap:97 CN/8000\na=rtpmap:98 PCMA/8000\n";
            ear.describe(&Description::read(text, b"audio").formats);
            for (place, payload_type) in (0..5_u16).zip(types) {
                let bytes = packet(5, place, payload_type, 160 * u32::from(place));
                assert!(ear.streams().datagram(u64::from(place) * 20_000, &bytes, address(1)));
            }
            all_taken(&ear, None).streams[0].quality.map(|quality| quality.rating.round())
        };
        assert_eq!((rating([0; 5]), rating([18; 5]), rating([98; 5])), (Some(93.0), Some(82.0), Some(93.0)));
        // Comfort noise by its number and by its own name; a codec without constants.
        assert_eq!((rating([18, 13, 13, 97, 97]), rating([13, 97, 97, 13, 13])), (Some(82.0), None));
        assert_eq!((rating([96; 5]), rating([96, 96, 96, 0, 0]), rating([0, 0, 0, 96, 96])), (None, None, Some(93.0)));
    }

    #[test]
    fn a_stream_of_an_earlier_call_is_not_heard() {
        let ear = Ear::common(true, MANY);
        let peer = address(1);
        let call = |since: u64, now: u64| {
            let mut taken = Taken::default();
            ear.take(peer, since * 1_000, None, now * 1_000, &mut taken);
            (taken.has_come, taken.streams.len())
        };
        ear.expect(peer, true, &Formats::default());
        hear(&ear, peer, 7, 10, &[1, 2, 3]);
        assert_eq!(call(0, 100), (true, 1));
        // The peer sends a little longer.
        ear.expect(peer, true, &Formats::default());
        hear(&ear, peer, 7, 110, &[4, 5]);
        assert_eq!(call(100, 500), (false, 0));
        // An open call may have heard the stream that another one takes.
        (0..2).for_each(|_| ear.expect(peer, true, &Formats::default()));
        hear(&ear, peer, 8, 600, &[1, 2, 3]);
        assert_eq!((call(500, 3_000), call(500, 3_100)), ((true, 1), (true, 0)));
    }

    #[test]
    fn the_same_source_in_a_later_call_is_another_stream() {
        let ear = Ear::common(true, MANY);
        let peer = address(1);
        let packets = |now: u64| taken(&ear, peer, now).iter().map(|stream| stream.packets).collect::<Vec<_>>();
        // A capture is played in each call, at once after the call before.
        for begin in [0, 200, 400] {
            ear.expect(peer, true, &Formats::default());
            hear(&ear, peer, 7, begin, &[100, 101, 102, 103, 104, 105, 106, 107]);
            assert_eq!(packets(begin + 170), [8]);
        }
        // Numbers that continue after a silence.
        ear.expect(peer, true, &Formats::default());
        hear(&ear, peer, 7, 900, &[108, 109]);
        assert_eq!(packets(1_000), [2]);
    }

    #[test]
    fn a_stream_that_ends_before_its_call_has_lost_the_rest() {
        let ear = Ear::of_call(true, MANY);
        let numbers: Vec<u16> = (0..51).collect();
        hear(&ear, address(1), 7, 0, &numbers);
        // An announcement before this stream, after whose end no packet was due.
        hear(&ear, address(2), 8, 0, &[1, 2]);
        let heard = all_taken(&ear, bye(2_000));
        let of = |packets: u64| heard.streams.iter().find(|stream| stream.packets == packets).expect("it came");
        // The last packet came after 1,000 ms; 49 more were due before the BYE.
        assert_eq!((of(51).expected, of(51).lost, of(51).max_delta), (100, 49, 1_000_000));
        assert_eq!((of(2).expected, of(2).lost, of(2).max_delta, heard.early), (2, 0, 20_000, 1));
        assert!(of(51).quality.is_some_and(|quality| quality.score < 2.0), "{heard:?}");
        // The time that a BYE takes to arrive is no silence.
        let ear = Ear::of_call(true, MANY);
        hear(&ear, address(1), 7, 0, &numbers);
        let heard = all_taken(&ear, bye(1_190));
        assert_eq!((heard.streams[0].lost, heard.streams[0].max_delta, heard.early), (0, 20_000, 0));
    }

    #[test]
    fn silence_on_hold_is_no_loss_and_after_it_is() {
        let hear_around = |resumed: Option<u64>| {
            let ear = Ear::common(true, MANY);
            ear.expect(address(1), true, &Formats::default());
            hear(&ear, address(1), 7, 0, &[1, 2, 3]);
            ear.hold(Some(address(1)), bye(50));
            if let Some(at) = resumed {
                ear.resume(Some(address(1)), at * 1_000);
            }
            let mut taken = Taken::default();
            ear.take(address(1), 0, bye(10_000), 10_000_000, &mut taken);
            (taken.streams[0].lost, taken.streams[0].max_delta)
        };
        assert_eq!((hear_around(None), hear_around(Some(9_000))), ((0, 20_000), (49, 1_000_000)));
    }

    #[test]
    fn comfort_noise_and_digits_may_be_the_last() {
        for payload_type in [13, 101] {
            let ear = Ear::of_call(true, MANY);
            ear.describe(&Description::read(b"a=rtpmap:101 telephone-event/8000\n", b"audio").formats);
            hear(&ear, address(1), 7, 0, &[1, 2]);
            assert!(ear.streams().datagram(40_000, &packet(7, 3, payload_type, 480), address(1)));
            assert_eq!(all_taken(&ear, bye(5_000)).streams[0].lost, 0, "{payload_type}");
        }
    }

    #[test]
    fn a_stream_with_packets_that_this_process_lost_has_no_figures() {
        let ear = Ear::common(true, MANY);
        (1..3).for_each(|port| ear.expect(address(port), true, &Formats::default()));
        hear(&ear, address(1), 7, 0, &[1, 2, 5]);
        ear.streams().damage(30_000);
        hear(&ear, address(2), 7, 100, &[1, 2]);
        let mut heard = Taken::default();
        (1..3).for_each(|port| ear.take(address(port), 0, None, 200_000, &mut heard));
        assert_eq!((heard.streams.len(), heard.unjudged, heard.has_come), (1, 3, true));
    }
}
