//! Leg of a stream: the packets of one peer, and those to it.

use std::net::{IpAddr, SocketAddr};

use super::arrivals::Arrivals;
use super::latch::{Latch, LatchedSource};
use super::{DropReason, PayloadFormat, SessionOutput, StreamPeer, StreamReport};
use crate::Moment;
use crate::received_stream::ReceivedStream;
use crate::relabel::Relabel;
use crate::rtcp::{self, CompoundWriter, RtcpPacket, is_rtcp, report_interval};
use crate::rtp::{Header, Packet};
use crate::sent_stream::SentStream;
use crate::sequence::PacketOrder;

/// Ticks in a second before the first packet of a peer that has agreed on no format.
const DEFAULT_CLOCK_RATE: u32 = 8_000;

/// Leg of a stream. It has an SSRC, sequence numbers and timestamps of its own.
#[derive(Clone, Debug)]
pub(super) struct Leg {
    peer: StreamPeer,
    rtp: Latch,
    /// Used while RTCP has a port of its own.
    rtcp: Latch,
    received: ReceivedStream,
    relabel: Relabel,
    sent_stream: SentStream,
    /// Datagrams that were taken unread.
    unread: u64,
    /// Packets towards the peer.
    sent: u64,
    arrivals: Arrivals,
    is_heard: bool,
    /// Time of the last accepted packet, or of the order since which one is expected, in microseconds.
    last: u64,
    /// Time in microseconds since when the peer should send, or should have sent before the hold; `None`: it never had to.
    expected_since: Option<u64>,
    /// Time of the next RTCP report in microseconds.
    report_at: u64,
    has_reported: bool,
}

/// Accepted packet that may go on.
pub(super) struct Accepted<'a> {
    pub(super) packet: Packet<'a>,
    pub(super) format: PayloadFormat,
    /// Set if the sequence numbers began again: the packet is the second one of them.
    pub(super) is_restart: bool,
}

impl Leg {
    /// Creates the leg at `now`, in microseconds. `random`: uniform over all values, unpredictable to other parties.
    pub(super) fn new(now: u64, peer: StreamPeer, random: &mut impl FnMut() -> u32) -> Self {
        let sound = peer.formats.iter().find(|format| !format.is_event);
        let clock_rate = sound.map_or(DEFAULT_CLOCK_RATE, |format| format.clock_rate);
        let mut leg = Self {
            rtp: Latch::new(now, peer.rtp, peer.behind_nat).with_source(peer.heard),
            rtcp: Latch::new(now, peer.rtcp, peer.behind_nat),
            received: ReceivedStream::new(clock_rate),
            relabel: Relabel::new(random(), random() as u16, random(), clock_rate),
            sent_stream: SentStream::new(clock_rate),
            unread: 0,
            sent: 0,
            arrivals: Arrivals::default(),
            is_heard: false,
            last: now,
            expected_since: None,
            report_at: now.saturating_add(report_interval(random(), true)),
            has_reported: false,
            peer,
        };
        leg.leave_events_untimed();
        leg.expected_since = leg.is_expected().then_some(now);
        leg
    }

    /// Takes a new description of the peer. A leg with other ports is another leg: it says goodbye, and starts again. Returns whether packets may come
    /// from another source now.
    pub(super) fn set(
        &mut self,
        now: Moment,
        peer: StreamPeer,
        name: &[u8],
        random: &mut impl FnMut() -> u32,
        out: &mut SessionOutput,
    ) -> bool {
        if peer.ports != self.peer.ports {
            self.say_goodbye(now, name, out);
            // The NAT of the peer may have another port towards these ones.
            *self = Self::new(now.mono, StreamPeer { heard: None, ..peer }, random);
            return true;
        }
        let (was_expected, was_sender, was_listening) = (self.is_expected(), self.peer.sends, self.is_listening());
        let is_other = self.rtp.set(now.mono, peer.rtp, peer.behind_nat);
        self.rtcp.set(now.mono, peer.rtcp, peer.behind_nat);
        let heard = peer.heard.or(self.peer.heard);
        self.peer = StreamPeer { heard, ..peer };
        self.leave_events_untimed();
        if is_other || was_sender != self.peer.sends {
            self.received.pause();
        }
        if !was_expected && self.is_expected() || !was_listening && self.is_listening() {
            self.last = now.mono;
        }
        if !was_expected && self.is_expected() {
            self.expected_since = Some(now.mono);
        }
        is_other
    }

    fn leave_events_untimed(&mut self) {
        self.received.time_all();
        for format in self.peer.formats.iter().filter(|format| format.is_event) {
            self.received.leave_untimed(format.payload_type);
        }
    }

    /// Makes the next packet towards the peer begin a source.
    pub(super) const fn cut(&mut self) {
        self.relabel.cut();
    }

    pub(super) const fn is_heard(&self) -> bool {
        self.is_heard
    }

    /// Returns the source of the peer if the shard does not know it, after a packet from this address. `was_heard`: value of [`Leg::is_heard`]
    /// before the packet. The source of a peer changes once in a second at most, but for its described address.
    pub(super) fn news(&mut self, from: SocketAddr, was_heard: bool) -> Option<LatchedSource> {
        let source = self.rtp.latched().filter(|source| self.is_heard && source.from == from)?;
        let is_known = self.peer.heard.replace(source) == Some(source);
        (!was_heard || !is_known).then_some(source)
    }

    /// Tells whether silence of the peer is a fault. A peer that holds the call sends, if at all, music.
    pub(super) fn is_expected(&self) -> bool {
        self.peer.sends && self.peer.receives && self.peer.rtp.is_some()
    }

    /// Returns the time of the last accepted packet in microseconds, or of the order since which one is expected.
    pub(super) const fn last(&self) -> u64 {
        self.last
    }

    /// Tells whether RTP and RTCP share a port (RFC 5761).
    pub(super) fn is_multiplexed(&self) -> bool {
        self.peer.rtcp.is_some() && self.peer.rtcp == self.peer.rtp
    }

    /// Counts a dropped packet of the peer's ports.
    pub(super) const fn drop_packet(&mut self, reason: DropReason, out: &mut SessionOutput) {
        self.arrivals.dropped += 1;
        out.count_dropped(reason);
    }

    /// Counts a dropped packet of a source that may not send.
    const fn refuse(&mut self, from: SocketAddr, out: &mut SessionOutput) {
        self.arrivals.refuse(from);
        out.count_dropped(DropReason::Source);
    }

    /// Returns the SSRC of the packets to this peer.
    pub(super) const fn source(&self) -> u32 {
        self.relabel.source()
    }

    /// Returns the SSRC and the sequence number that a packet to this peer had when it came from the other one. `None` if `source` is not the SSRC of
    /// the packets to this peer, or none has left since the last change of their source.
    pub(super) fn original(&self, source: u32, sequence: u16) -> Option<(u32, u16)> {
        self.relabel.original(sequence).filter(|_| source == self.source())
    }

    /// Tells whether a packet has the SSRC of the packets to this peer.
    pub(super) fn is_own(&self, accepted: &Accepted<'_>) -> bool {
        accepted.packet.header.source == self.relabel.source()
    }

    /// Takes a datagram at the port of RTP that arrived at `now`, in microseconds. Returns the packet if it may go on.
    pub(super) fn receive<'a>(
        &mut self,
        now: u64,
        from: SocketAddr,
        datagram: &'a [u8],
        out: &mut SessionOutput,
    ) -> Option<Accepted<'a>> {
        self.arrivals.seen = Some(from);
        let Some(packet) = Packet::read(datagram) else {
            self.drop_packet(DropReason::Unreadable, out);
            return None;
        };
        if !self.rtp.accept(now, from) {
            self.refuse(from, out);
            return None;
        }
        self.end_silence(now, from);
        let is_of = |format: &&PayloadFormat| format.payload_type == packet.header.payload_type;
        let Some(format) = self.peer.formats.iter().find(is_of).copied() else {
            self.drop_packet(DropReason::Format, out);
            return None;
        };
        (self.is_heard, self.arrivals.heard_at) = (true, Some(now));
        if !format.is_event {
            self.received.set_clock_rate(format.clock_rate);
            self.received.note_encoding(format.encoding);
        }
        let order = self.received.packet(now, &packet.header);
        // A packet of a jump is a stray until the next one follows it.
        let goes_on = self.peer.sends && order != PacketOrder::Jump;
        if !goes_on {
            out.count_dropped(if self.peer.sends { DropReason::Jump } else { DropReason::Hold });
        }
        goes_on.then_some(Accepted { packet, format, is_restart: order == PacketOrder::Restart })
    }

    /// Takes a datagram that arrived at `now`, in microseconds, and reads none of its bytes. `is_rtcp`: set for RTCP, by the port or by the type.
    /// Returns whether it may go on.
    pub(super) fn receive_unread(
        &mut self,
        now: u64,
        (is_rtcp_port, is_rtcp): (bool, bool),
        from: SocketAddr,
        out: &mut SessionOutput,
    ) -> bool {
        if !is_rtcp_port {
            self.arrivals.seen = Some(from);
        }
        let is_multiplexed = self.is_multiplexed();
        let latch = if is_rtcp_port { &mut self.rtcp } else { &mut self.rtp };
        if is_rtcp_port && is_multiplexed || !latch.accept(now, from) {
            self.refuse(from, out);
            return false;
        }
        self.end_silence(now, from);
        if !is_rtcp {
            (self.is_heard, self.arrivals.heard_at) = (true, Some(now));
        }
        self.unread += 1;
        // A peer that only receives may send RTCP, too.
        let goes_on = self.peer.sends || is_rtcp;
        if !goes_on {
            out.count_dropped(DropReason::Hold);
        }
        goes_on
    }

    /// Notes an accepted packet. A description may make media go to a host that has not asked for them: reports of another host keep no such call.
    fn end_silence(&mut self, now: u64, from: SocketAddr) {
        if self.rtp.target().is_none_or(|media| media.ip() == from.ip()) {
            self.begin_silence(now);
        }
    }

    /// Begins the silence of the peer again at `now`, in microseconds.
    pub(super) fn begin_silence(&mut self, now: u64) {
        self.last = self.last.max(now);
    }

    /// Sends a datagram of the other leg to the peer as it is, at `now`, in microseconds.
    pub(super) fn forward(&mut self, now: u64, is_rtcp: bool, datagram: &[u8], out: &mut SessionOutput) {
        let target = match is_rtcp {
            true => self.admit_rtcp(now, out),
            false => self.admit(now, out),
        };
        let Some(to) = target else { return };
        let start = out.bytes.len();
        out.bytes.extend_from_slice(datagram);
        self.sent += 1;
        if !is_rtcp {
            self.rtp.note_media();
        }
        out.push(start, self.peer.ports, is_rtcp && !self.is_multiplexed(), to);
    }

    /// Returns the target of RTCP of the other leg at `now`, in microseconds; without one, counts the packet as dropped.
    fn admit_rtcp(&mut self, now: u64, out: &mut SessionOutput) -> Option<SocketAddr> {
        let refusal = match self.rtcp_target() {
            Some(to) if self.has_heard(to.ip()) || self.rtp.admits_first(now) => return Some(to),
            Some(_) => DropReason::Rate,
            None => DropReason::Unproven,
        };
        out.count_dropped(refusal);
        None
    }

    /// Returns the target of RTCP, reports included. A description may name any host, so RTCP goes only to the host of the media, or to one from
    /// which RTCP has come.
    fn rtcp_target(&self) -> Option<SocketAddr> {
        let latch = if self.is_multiplexed() { &self.rtp } else { &self.rtcp };
        let is_described = self.peer.rtp.is_some() && self.peer.rtcp.is_some();
        let to = latch.target().filter(|_| is_described)?;
        let has_media = self.rtp.is_in_use() && self.rtp.target().is_some_and(|media| media.ip() == to.ip());
        if !has_media && !latch.is_in_use() {
            return None;
        }
        Some(to).filter(|to| self.peer.may_send_first || self.has_heard(to.ip()))
    }

    /// Returns the target of a packet to the peer at `now`, in microseconds; without one, counts the packet as dropped.
    fn admit(&mut self, now: u64, out: &mut SessionOutput) -> Option<SocketAddr> {
        // A description may name any host.
        let refusal = match self.rtp.target() {
            _ if !self.is_listening() => DropReason::Hold,
            Some(to) if self.has_heard(to.ip()) => return Some(to),
            Some(to) if self.peer.may_send_first && self.rtp.admits_first(now) => return Some(to),
            Some(_) if self.peer.may_send_first => DropReason::Rate,
            _ => DropReason::Unproven,
        };
        out.count_dropped(refusal);
        None
    }

    /// Tells whether a packet of the peer has come from this host since the last description.
    fn has_heard(&self, host: IpAddr) -> bool {
        [&self.rtp, &self.rtcp].into_iter().any(|latch| latch.source().is_some_and(|source| source.ip() == host))
    }

    /// Tells whether the peer has an address and receives.
    pub(super) const fn is_listening(&self) -> bool {
        self.peer.receives && self.peer.rtp.is_some()
    }

    /// Tells whether sound may go to the peer: its host has sent a packet, or may be sent to first.
    pub(super) fn may_send(&self) -> bool {
        let target = self.rtp.target().filter(|_| self.is_listening());
        target.is_some_and(|to| self.peer.may_send_first || self.has_heard(to.ip()))
    }

    /// Sends a packet of a sound of this server. `write` appends its payload.
    pub(super) fn send_own(
        &mut self,
        now: u64,
        header: &Header,
        out: &mut SessionOutput,
        write: impl FnOnce(&mut Vec<u8>),
    ) {
        let Some(to) = self.admit(now, out) else { return };
        let start = out.bytes.len();
        let header = self.relabel.header(now, header, header.payload_type);
        header.write(&mut out.bytes);
        let payload = out.bytes.len();
        write(&mut out.bytes);
        self.sent_stream.packet(now, &header, out.bytes.len() - payload);
        self.sent += 1;
        self.rtp.note_media();
        out.push(start, self.peer.ports, false, to);
    }

    /// Sends a packet of the other leg, or of the same one, to the peer.
    pub(super) fn send(&mut self, now: u64, accepted: &Accepted<'_>, payload_type: u8, out: &mut SessionOutput) {
        let Accepted { packet, format, is_restart } = accepted;
        let Some(to) = self.admit(now, out) else { return };
        if !format.is_event && format.clock_rate != self.relabel.clock_rate() {
            self.relabel.set_clock_rate(format.clock_rate);
            self.sent_stream.set_clock_rate(format.clock_rate);
        }
        if *is_restart {
            self.relabel.cut();
        }
        let start = out.bytes.len();
        let header = self.relabel.write(now, packet, payload_type, &mut out.bytes);
        self.sent_stream.packet(now, &header, packet.payload.len());
        self.sent += 1;
        self.rtp.note_media();
        out.push(start, self.peer.ports, false, to);
    }

    /// Takes a compound packet that arrived at `now`, in microseconds. Returns whether it was accepted.
    pub(super) fn receive_rtcp(
        &mut self,
        now: u64,
        is_rtcp_port: bool,
        from: SocketAddr,
        datagram: &[u8],
        out: &mut SessionOutput,
    ) -> bool {
        if !is_rtcp_port {
            self.arrivals.seen = Some(from);
        }
        let is_multiplexed = self.is_multiplexed();
        if is_rtcp_port == is_multiplexed || !is_rtcp(datagram) {
            self.drop_packet(DropReason::Unreadable, out);
            return false;
        }
        let latch = if is_rtcp_port { &mut self.rtcp } else { &mut self.rtp };
        if !latch.accept(now, from) {
            self.refuse(from, out);
            return false;
        }
        self.end_silence(now, from);
        for packet in rtcp::read(datagram).flatten() {
            let blocks = match packet {
                RtcpPacket::SenderReport { source, info, blocks } => {
                    self.received.receive_report(now, source, &info);
                    blocks
                }
                RtcpPacket::ReceiverReport { blocks, .. } => blocks,
                _ => continue,
            };
            for block in blocks {
                self.sent_stream.receive_block(now, &block);
            }
        }
        true
    }

    /// Sends feedback at `now`, in microseconds. `write`: appends it to a compound packet, of this SSRC.
    pub(super) fn send_feedback(
        &mut self,
        now: u64,
        name: &[u8],
        out: &mut SessionOutput,
        write: impl FnOnce(&mut CompoundWriter<'_>, u32),
    ) {
        let Some(to) = self.admit_rtcp(now, out) else { return };
        let (start, source) = (out.bytes.len(), self.source());
        let mut writer = CompoundWriter::new(&mut out.bytes);
        writer.receiver_report(source, &[]).description(source, name);
        write(&mut writer, source);
        out.push(start, self.peer.ports, !self.is_multiplexed(), to);
    }

    /// Returns the time of the next report in microseconds.
    pub(super) fn deadline(&self) -> Option<u64> {
        self.peer.rtcp.map(|_| self.report_at)
    }

    /// Sends a report if one is due.
    pub(super) fn poll(&mut self, now: Moment, name: &[u8], random: &mut impl FnMut() -> u32, out: &mut SessionOutput) {
        if self.deadline().is_some_and(|due| due <= now.mono) {
            self.report(now, name, false, out);
            self.report_at = now.mono.saturating_add(report_interval(random(), false));
        }
    }

    /// Sends a BYE. A leg that has sent no RTP and no report sends none (RFC 3550 section 6.3.7).
    pub(super) fn say_goodbye(&mut self, now: Moment, name: &[u8], out: &mut SessionOutput) {
        if self.sent_stream.packets() > 0 || self.has_reported {
            self.report(now, name, true, out);
        }
    }

    /// Sends a compound packet: report, description, and as the last one of the leg BYE.
    fn report(&mut self, now: Moment, name: &[u8], is_last: bool, out: &mut SessionOutput) {
        let Some(to) = self.rtcp_target() else { return };
        let start = out.bytes.len();
        let source = self.relabel.source();
        let block = self.received.report_block(now.mono);
        let mut writer = CompoundWriter::new(&mut out.bytes);
        match self.sent_stream.sender_report(now) {
            Some(info) => writer.sender_report(source, &info, block.as_slice()),
            None => writer.receiver_report(source, block.as_slice()),
        };
        writer.description(source, name);
        if is_last {
            writer.goodbye(&[source], b"");
        }
        self.has_reported = true;
        out.push(start, self.peer.ports, !self.is_multiplexed(), to);
    }

    /// Returns the report about the peer's packets so far.
    pub(super) fn stream_report(&self) -> StreamReport {
        let Arrivals { dropped, refused, refused_from, seen, heard_at } = self.arrivals;
        StreamReport {
            figures: self.received.figures(),
            dropped,
            refused,
            unread: self.unread,
            sent: self.sent,
            expected: self.peer.rtp,
            seen,
            refused_from,
            heard_at,
            round_trip: self.sent_stream.round_trip(),
            is_expected: self.is_expected(),
            // A peer that an earlier process has heard is one that can be heard.
            expected_since: self.expected_since.filter(|_| self.peer.heard.is_none()),
        }
    }
}
