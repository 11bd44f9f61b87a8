//! Session of a call: its streams, between the peers of two dialogs, or between one peer and this server.
//!
//! A session is a machine: datagrams, orders and the time come in, packets and events go out ([`SessionOutput`]). Each leg has its own
//! SSRC, numbers, payload types and RTCP, so the legs may differ in all of them.
//!
//! *Who may send*: the address of the description, or, for a peer behind NAT, the address of its signalling, of which the first packet selects the
//! port. Another port of the same address is accepted after a silence, until the earlier one is back; another address only after a new description.
//! Packets of other sources are counted and dropped, and nothing is sent there.
//! The shard learns each accepted source ([`SessionEvent::Heard`]): the session of a later process begins with it ([`StreamPeer::heard`]).
//!
//! *Who is sent to*: a description may name any host. An echo sends nothing to a host before a packet from there, RTCP included, and never more
//! media than came. A relay sends to the described address at once, since a peer may only listen or wait for the first packet, if its order says
//! that the address is the peer's own or one that the peer may name ([`StreamPeer::may_send_first`]); otherwise it waits as an echo does. A host
//! from which nothing has come gets at most 250 packets a second. Reports go to the host of the media, or to an address from which RTCP came.
//! The sound of a playback obeys the law of a relay: it begins once its peer may be sent to, and stands still while the peer does not receive.
//! A recording begins after its tone, or at once if the peer does not receive. It takes no more packets than the rate of an echo.

mod arrivals;
mod feedback;
mod latch;
mod leg;
mod order;
mod output;
mod packet_rate;
mod playback;
mod recording;
#[cfg(test)]
mod tests;

use std::net::SocketAddr;

pub use latch::LatchedSource;
pub use order::{
    PayloadFormat, PortPair, SessionEnd, SessionEvent, SessionKey, SessionOrder, Side, StreamKind, StreamOrder,
    StreamPeer, StreamReport,
};
pub use output::{DropReason, OutgoingPacket, SessionOutput};
pub use playback::PlayedSound;
pub use recording::RecordedSound;

use crate::Moment;
use crate::rtcp::is_rtcp;
use leg::Leg;
use packet_rate::PacketRate;
use playback::Playback;
use recording::Recording;

/// Session of a call.
///
/// ```
/// use strowger_media::quality::SpeechEncoding;
/// use strowger_media::rtp::{Numbering, Packet};
/// use strowger_media::session::{
///     LegPort, PayloadFormat, PortPair, Session, SessionKey, SessionOutput, Side, StreamKind, StreamOrder, StreamPeer,
/// };
///
/// let peer = "192.0.2.1:4000".parse().expect("an address");
/// let near = StreamPeer {
///     ports: PortPair { thread: 0, address: 0, rtp: 30_000 },
///     rtp: Some(peer),
///     rtcp: None,
///     behind_nat: None,
///     formats: vec![PayloadFormat {
///         payload_type: 0,
///         other: None,
///         clock_rate: 8_000,
///         is_event: false,
///         encoding: SpeechEncoding::G711,
///     }],
///     sends: true,
///     receives: true,
///     may_send_first: false,
///     heard: None,
/// };
/// let echo = StreamOrder { kind: StreamKind::Echo, near, far: None };
/// // A real caller has random numbers.
/// let mut random = || 7;
/// let mut session = Session::new(0, SessionKey(1), None, vec![Some(echo)], &mut random);
///
/// let mut datagram = Vec::new();
/// Numbering::new(0xfeed, 1, 2).next(0, 160).write(&mut datagram);
/// datagram.extend([0xff; 160]);
/// let port = LegPort { stream: 0, side: Side::Near, is_rtcp: false };
/// let mut out = SessionOutput::default();
/// session.packet(20_000, port, peer, &datagram, &mut out);
/// assert_eq!((out.packets[0].to, out.events.len()), (peer, 1));
/// assert_eq!(Packet::read(&out.bytes).map(|packet| packet.payload.len()), Some(160));
///
/// // Another source.
/// out.clear();
/// session.packet(40_000, port, "192.0.2.2:4000".parse().expect("an address"), &datagram, &mut out);
/// assert!(out.packets.is_empty());
/// assert_eq!(session.reports()[0].0.dropped, 1);
/// ```
#[derive(Debug)]
pub struct Session {
    key: SessionKey,
    streams: Vec<Option<Stream>>,
    /// Canonical names towards the peers of the near and of the far side.
    names: [CanonicalName; 2],
    /// Longest silence of a side in microseconds.
    timeout: Option<u64>,
    /// Set once the event of a silence was made.
    is_silent: bool,
    /// Time since which no stream is open, or of the last event about it, in microseconds; `None` if one is open.
    streamless: Option<u64>,
}

/// Port of a leg, at which datagrams arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LegPort {
    /// Place of the stream.
    pub stream: u8,
    /// Side of the peer.
    pub side: Side,
    /// Set for the port of RTCP.
    pub is_rtcp: bool,
}

/// Canonical name of RTCP: 96 random bits in base64 (RFC 7022 section 4.2).
type CanonicalName = [u8; 16];

impl Session {
    /// Creates a session at `now`, in microseconds. `timeout`: longest silence of a side whose peer sends and receives, or hears a sound, in microseconds;
    /// `None`: no limit. `random`: uniform over all values, unpredictable to other parties.
    pub fn new(
        now: u64,
        key: SessionKey,
        timeout: Option<u64>,
        orders: Vec<Option<StreamOrder>>,
        random: &mut impl FnMut() -> u32,
    ) -> Self {
        let names = [canonical_name(random), canonical_name(random)];
        let mut streams = Vec::with_capacity(orders.len());
        for order in orders {
            streams.push(order.map(|order| Stream::new(now, order, random)));
        }
        let streamless = streams.iter().all(Option::is_none).then_some(now);
        Self { key, streams, names, timeout, is_silent: false, streamless }
    }

    /// Returns the key.
    pub const fn key(&self) -> SessionKey {
        self.key
    }

    /// Changes the streams. A leg keeps its statistics and its SSRC while its ports are the same. A leg that ends says goodbye.
    pub fn set(
        &mut self,
        now: Moment,
        orders: Vec<Option<StreamOrder>>,
        random: &mut impl FnMut() -> u32,
        out: &mut SessionOutput,
    ) {
        let mut before = std::mem::take(&mut self.streams).into_iter();
        for order in orders {
            let stream = match (before.next().flatten(), order) {
                (Some(mut stream), Some(order)) => {
                    stream.set(now, order, &self.names, random, out);
                    Some(stream)
                }
                (None, Some(order)) => Some(Stream::new(now.mono, order, random)),
                (Some(mut stream), None) => {
                    stream.say_goodbye(now, &self.names, out);
                    None
                }
                (None, None) => None,
            };
            self.streams.push(stream);
        }
        for mut stream in before.flatten() {
            stream.say_goodbye(now, &self.names, out);
        }
        let is_streamless = self.streams.iter().all(Option::is_none);
        self.streamless = is_streamless.then(|| self.streamless.unwrap_or(now.mono));
    }

    /// Takes a datagram that arrived at `now`, in microseconds. Nothing is allocated once `out` is warm.
    pub fn packet(&mut self, now: u64, at: LegPort, from: SocketAddr, datagram: &[u8], out: &mut SessionOutput) {
        let Some(Some(stream)) = self.streams.get_mut(usize::from(at.stream)) else { return };
        if let Some(source) = stream.packet(now, at, from, datagram, &self.names, out) {
            out.events.push(SessionEvent::Heard { key: self.key, stream: at.stream, side: at.side, source });
        }
    }

    /// Returns the time at which [`Session::poll`] has work, in microseconds. Packets may only delay it.
    pub fn deadline(&self) -> Option<u64> {
        let of_rtp = self.streams.iter().flatten().filter(|stream| stream.kind.is_rtp());
        let reports = of_rtp.flat_map(Stream::legs).filter_map(|(_, leg)| leg.deadline());
        let ends = [Side::Near, Side::Far].into_iter().filter_map(|side| self.silence_ends(side));
        let sounds = self.streams.iter().flatten().filter_map(Stream::sound_due);
        reports.chain(ends).chain(sounds).chain(self.streamless_ends()).min()
    }

    /// Sends due packets of sounds and due reports, and finds silent peers.
    pub fn poll(&mut self, now: Moment, random: &mut impl FnMut() -> u32, out: &mut SessionOutput) {
        for (place, stream) in (0_u8..=u8::MAX).zip(&mut self.streams) {
            if stream.as_mut().is_some_and(|stream| stream.play(now.mono, out)) {
                out.events.push(SessionEvent::Played { key: self.key, stream: place });
            }
        }
        for stream in self.streams.iter_mut().flatten().filter(|stream| stream.kind.is_rtp()) {
            for (leg, name) in stream.legs_mut().zip(&self.names) {
                leg.poll(now, name, random, out);
            }
        }
        for side in [Side::Near, Side::Far] {
            if self.silence_ends(side).is_some_and(|end| end <= now.mono) {
                self.is_silent = true;
                out.events.push(SessionEvent::Silent { key: self.key, end: SessionEnd::Silence(side) });
            }
        }
        if self.streamless_ends().is_some_and(|end| end <= now.mono) {
            // Once in each time limit: a call that rings is not ended by it.
            self.streamless = Some(now.mono);
            out.events.push(SessionEvent::Silent { key: self.key, end: SessionEnd::Silence(Side::Near) });
        }
    }

    /// Begins the silence of all peers again at `now`, in microseconds: for a while their packets were not read.
    pub fn begin_silence(&mut self, now: u64) {
        self.streams.iter_mut().flatten().flat_map(Stream::legs_mut).for_each(|leg| leg.begin_silence(now));
    }

    /// Returns the time at which the session has been without an open stream for too long.
    fn streamless_ends(&self) -> Option<u64> {
        Some(self.streamless?.saturating_add(self.timeout?))
    }

    /// Returns the time at which the silence of a side is too long: that of all its peers that send and receive.
    fn silence_ends(&self, side: Side) -> Option<u64> {
        let timeout = self.timeout.filter(|_| !self.is_silent)?;
        let last = self.streams.iter().flatten().filter_map(|stream| stream.last(side)).max();
        last.map(|last| last.saturating_add(timeout))
    }

    /// Returns the reports of each stream: of the near side, and of the far side if there is one. That of a refused stream is empty.
    pub fn reports(&self) -> Vec<(StreamReport, Option<StreamReport>)> {
        let report = |stream: &Stream| (stream.near.stream_report(), stream.far.as_ref().map(Leg::stream_report));
        self.streams.iter().map(|stream| stream.as_ref().map(report).unwrap_or_default()).collect()
    }

    /// Ends the session: each leg says goodbye, and [`SessionEvent::Closed`] follows.
    pub fn close(mut self, now: Moment, out: &mut SessionOutput) {
        let streams = self.reports();
        for stream in self.streams.iter_mut().flatten() {
            stream.say_goodbye(now, &self.names, out);
        }
        out.events.push(SessionEvent::Closed { key: self.key, streams });
    }
}

/// Stream of a session.
#[derive(Debug)]
struct Stream {
    kind: StreamKind,
    near: Leg,
    far: Option<Leg>,
    /// Rate of an echo or of a recording, or of the feedback that a relay carries over, for the packets of the near and of the far side.
    rates: [PacketRate; 2],
    playback: Playback,
    recording: Recording,
}

impl Stream {
    fn new(now: u64, order: StreamOrder, random: &mut impl FnMut() -> u32) -> Self {
        let StreamOrder { kind, near, far } = order;
        let near = Leg::new(now, near, random);
        let far = far.map(|peer| Leg::new(now, peer, random));
        let (rates, playback, recording) = ([PacketRate::default(); 2], Playback::new(now), Recording::default());
        let mut stream = Self { kind, near, far, rates, playback, recording };
        stream.record_the_deaf(now);
        stream
    }

    fn set(
        &mut self,
        now: Moment,
        order: StreamOrder,
        names: &[CanonicalName; 2],
        random: &mut impl FnMut() -> u32,
        out: &mut SessionOutput,
    ) {
        if !order.kind.is_rtp() {
            self.say_goodbye(now, names, out);
        }
        if !self.kind.plays_sound_of(&order.kind) {
            self.playback.restart(now.mono);
        }
        self.kind = order.kind;
        let is_near_other = self.near.set(now, order.near, &names[0], random, out);
        let is_far_other = match (&mut self.far, order.far) {
            (Some(leg), Some(peer)) => leg.set(now, peer, &names[1], random, out),
            (far, Some(peer)) => {
                *far = Some(Leg::new(now.mono, peer, random));
                true
            }
            (far, None) => {
                if let Some(mut leg) = far.take() {
                    leg.say_goodbye(now, &names[1], out);
                }
                false
            }
        };
        if is_near_other || is_far_other {
            self.legs_mut().for_each(Leg::cut);
        }
        self.record_the_deaf(now.mono);
    }

    /// Begins the recording of a peer that does not receive: it will not hear the tone.
    fn record_the_deaf(&mut self, now: u64) {
        if matches!(self.kind, StreamKind::Recording(_)) && !self.near.is_listening() {
            self.recording.begin(now);
        }
    }

    /// Takes a datagram. Returns the source of its peer if the shard does not know it.
    fn packet(
        &mut self,
        now: u64,
        at: LegPort,
        from: SocketAddr,
        datagram: &[u8],
        names: &[CanonicalName; 2],
        out: &mut SessionOutput,
    ) -> Option<LatchedSource> {
        let (leg, other, name) = match (at.side, &mut self.far) {
            (Side::Near, far) => (&mut self.near, far.as_mut(), &names[1]),
            (Side::Far, Some(far)) => (far, Some(&mut self.near), &names[0]),
            (Side::Far, None) => return None,
        };
        let rate = &mut self.rates[usize::from(at.side == Side::Far)];
        let (is_rtcp, was_heard) = (at.is_rtcp || leg.is_multiplexed() && is_rtcp(datagram), leg.is_heard());
        if self.kind == StreamKind::Unread {
            if leg.receive_unread(now, (at.is_rtcp, is_rtcp), from, out)
                && let Some(other) = other
            {
                other.forward(now, is_rtcp, datagram, out);
            }
            return leg.news(from, was_heard);
        }
        if is_rtcp {
            let is_accepted = leg.receive_rtcp(now, at.is_rtcp, from, datagram, out);
            if let Some(other) = other.filter(|_| is_accepted && self.kind == StreamKind::Relay) {
                feedback::carry_over(now, datagram, leg, (other, name), rate, out);
            }
            return None;
        }
        if let Some(accepted) = leg.receive(now, from, datagram, out) {
            match (&self.kind, accepted.format.other) {
                // The peer is an echo too (RFC 3550 section 8.2): it returns the packets as they are, or without end.
                (StreamKind::Echo, _) if leg.is_own(&accepted) || !rate.admits(now) => {
                    leg.drop_packet(DropReason::Rate, out);
                }
                (StreamKind::Echo, other) => {
                    let payload_type = other.unwrap_or(accepted.format.payload_type);
                    leg.send(now, &accepted, payload_type, out);
                }
                (StreamKind::Relay | StreamKind::Unread, Some(payload_type)) => match other {
                    // Each side has the other one as peer, and the packet would pass without end (RFC 3550 section 8.2).
                    Some(other) if other.is_own(&accepted) => leg.drop_packet(DropReason::Rate, out),
                    Some(other) => other.send(now, &accepted, payload_type, out),
                    None => (),
                },
                (StreamKind::Playback(_), _) => (),
                (StreamKind::Recording(_), _) if !rate.admits(now) => leg.drop_packet(DropReason::Rate, out),
                (StreamKind::Recording(recorded), _) => self.recording.take(now, &accepted.packet, recorded, out),
                // The other side did not agree on the format.
                (StreamKind::Relay | StreamKind::Unread, None) => leg.drop_packet(DropReason::Format, out),
            }
        }
        leg.news(from, was_heard)
    }

    /// Returns the time of the next packet of a sound, or of the end of a recording, in microseconds.
    fn sound_due(&self) -> Option<u64> {
        let packet = self.kind.sound().and_then(|_| self.playback.deadline(&self.near));
        let end = match &self.kind {
            StreamKind::Recording(recorded) => self.recording.deadline(recorded.limit),
            _ => None,
        };
        packet.into_iter().chain(end).min()
    }

    /// Sends the due packets of a sound. Returns whether the sound, or a recording, has just ended.
    fn play(&mut self, now: u64, out: &mut SessionOutput) -> bool {
        let Some(sound) = self.kind.sound() else { return false };
        let is_over = self.playback.poll(now, &mut self.near, sound, out);
        let StreamKind::Recording(recorded) = &self.kind else { return is_over };
        if is_over {
            self.recording.begin(now);
        }
        self.recording.poll(now, recorded.limit)
    }

    fn legs(&self) -> impl Iterator<Item = (Side, &Leg)> {
        let far = self.far.as_ref().map(|leg| (Side::Far, leg));
        std::iter::once((Side::Near, &self.near)).chain(far)
    }

    fn legs_mut(&mut self) -> impl Iterator<Item = &mut Leg> {
        std::iter::once(&mut self.near).chain(self.far.as_mut())
    }

    /// Returns the time of the last packet of a side in microseconds; `None` if none is expected. A fax that receives a page sends nothing for
    /// minutes, so datagrams of either side count if they are unread. A peer who hears a sound sends at least reports: no description makes a sound go
    /// to another host without end.
    fn last(&self, side: Side) -> Option<u64> {
        let hears_sound = self.kind.sound().is_some();
        let is_expected = |leg: &Leg| leg.is_expected() || hears_sound && leg.is_listening();
        let (_, leg) = self.legs().find(|(of, _)| *of == side).filter(|(_, leg)| is_expected(leg))?;
        match self.kind {
            StreamKind::Unread => self.legs().map(|(_, leg)| leg.last()).max(),
            StreamKind::Relay | StreamKind::Echo | StreamKind::Playback(_) | StreamKind::Recording(_) => {
                Some(leg.last())
            }
        }
    }

    fn say_goodbye(&mut self, now: Moment, names: &[CanonicalName; 2], out: &mut SessionOutput) {
        if !self.kind.is_rtp() {
            return;
        }
        for (leg, name) in self.legs_mut().zip(names) {
            leg.say_goodbye(now, name, out);
        }
    }
}

fn canonical_name(random: &mut impl FnMut() -> u32) -> CanonicalName {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut bits = (0..3).fold(0_u128, |bits, _| bits << 32 | u128::from(random()));
    [(); 16].map(|()| {
        let letter = ALPHABET[(bits & 63) as usize];
        bits >>= 6;
        letter
    })
}
