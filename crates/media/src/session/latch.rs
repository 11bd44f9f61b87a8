//! Latch: the source from which packets of a peer are accepted, and the target of packets to it (RFC 7362).

use std::net::{IpAddr, SocketAddr};

use super::packet_rate::PacketRate;

/// Silence of the accepted source, in microseconds, after which another port of its address is accepted. A NAT that forgets a port gives the peer
/// another one, and the peer must be heard again within 3 s; the longer the silence, the harder is it for another host behind the same address to
/// take the place of a peer that pauses.
pub(super) const PORT_SILENCE: u64 = 1_000_000;

/// Time after a description in which the source before it does not become the main one, in microseconds. A peer that moves to another port sends from
/// the old one until its offer is answered.
const MOVE: u64 = 1_000_000;

/// Source of the media of a peer, with which a later process continues ([`StreamPeer::heard`](super::StreamPeer::heard)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatchedSource {
    /// Address in the description at that time.
    pub described: SocketAddr,
    /// Source address of the last accepted packet of RTP.
    pub from: SocketAddr,
    /// Set if a packet has come from the described address, too: the peer sends from the port at which it receives (RFC 4961).
    pub is_symmetric: bool,
}

/// Latch of one port towards a peer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Latch {
    /// Address in the description.
    described: Option<SocketAddr>,
    /// Source address of the signalling, if the peer is behind NAT.
    signalling: Option<IpAddr>,
    /// Accepted source: that of the last accepted packet.
    source: Option<SocketAddr>,
    /// Main source of a peer behind NAT: the accepted source that has lasted for the longest time since the description. Its packets count at once,
    /// so that a host behind the same NAT, which took its place in a pause, loses it again.
    main: Option<SocketAddr>,
    /// Longest time for which the main source was the accepted one, in microseconds.
    lasted: u64,
    /// Time from which on the accepted source is the same, in microseconds.
    taken_at: u64,
    /// Accepted source before the description.
    former: Option<SocketAddr>,
    /// Time of the description in microseconds.
    since: u64,
    /// Set after a packet from the described address: the peer sends from the port at which it receives (RFC 4961).
    is_symmetric: bool,
    /// Set after an accepted packet, or media to the peer, since the description.
    is_in_use: bool,
    /// Time of the last accepted packet, or before the first one that of the description, in microseconds.
    at: u64,
    /// Rate of packets to the target before one has come from there. A new description does not renew it.
    unproven: PacketRate,
}

impl Latch {
    /// Creates the latch of a description that came at `now`.
    pub(super) fn new(now: u64, described: Option<SocketAddr>, signalling: Option<IpAddr>) -> Self {
        Self {
            described: described.filter(is_unicast),
            signalling,
            source: None,
            main: None,
            lasted: 0,
            taken_at: now,
            former: None,
            since: now,
            is_symmetric: false,
            is_in_use: false,
            at: now,
            unproven: PacketRate::default(),
        }
    }

    /// Returns the latch with the source that an earlier process has accepted. It counts only for the same description, and only if that source may
    /// send: nothing else is taken over from outside this process.
    pub(super) fn with_source(mut self, heard: Option<LatchedSource>) -> Self {
        let Some(LatchedSource { described, from, is_symmetric }) = heard else { return self };
        let host = self.signalling.unwrap_or_else(|| described.ip());
        if self.described == Some(described) && from.ip() == host {
            (self.source, self.main) = (Some(from), Some(from));
            (self.is_symmetric, self.is_in_use) = (is_symmetric, true);
        }
        self
    }

    /// Takes a description, and forgets the accepted source if the description names another address. Returns whether it does. Without an address,
    /// which is a hold, the earlier one stays.
    pub(super) fn set(&mut self, now: u64, described: Option<SocketAddr>, signalling: Option<IpAddr>) -> bool {
        let described = described.filter(is_unicast).or(self.described);
        if described == self.described && signalling == self.signalling {
            return false;
        }
        *self = Self { former: self.source, unproven: self.unproven, ..Self::new(now, described, signalling) };
        true
    }

    /// Returns whether a packet from this source is accepted, which then is the source.
    pub(super) fn accept(&mut self, now: u64, from: SocketAddr) -> bool {
        let Some(described) = self.described else { return false };
        let is_described = is_same(described, from);
        let is_silent = now.saturating_sub(self.at) >= PORT_SILENCE;
        let is_accepted = is_at(self.source, from)
            || match self.signalling {
                Some(ip) => from.ip() == ip && (self.main.is_none() || is_at(self.main, from) || is_silent),
                None => is_described || from.ip() == described.ip() && is_silent,
            };
        if is_accepted {
            self.take(now, from);
            self.is_in_use = true;
            self.at = self.at.max(now);
            self.is_symmetric |= is_described;
        }
        is_accepted
    }

    /// Makes this the accepted source, and the main one if it has lasted for longer.
    fn take(&mut self, now: u64, from: SocketAddr) {
        if !is_at(self.source, from) {
            self.taken_at = now;
        }
        self.source = Some(from);
        let lasted = now.saturating_sub(self.taken_at);
        let is_under_way = is_at(self.former, from) && now < self.since.saturating_add(MOVE);
        if !is_under_way && (self.main.is_none() || is_at(self.main, from) || lasted > self.lasted) {
            (self.main, self.lasted) = (Some(from), self.lasted.max(lasted));
        }
    }

    /// Returns the accepted source: that of the last accepted packet since the description.
    pub(super) const fn source(&self) -> Option<SocketAddr> {
        self.source
    }

    /// Returns the accepted source for a later process.
    pub(super) fn latched(&self) -> Option<LatchedSource> {
        let (described, from) = self.described.zip(self.source)?;
        Some(LatchedSource { described, from, is_symmetric: self.is_symmetric })
    }

    /// Tells whether a packet may go at `now`, in microseconds, to a target from which no packet has come. Counts the packet.
    pub(super) fn admits_first(&mut self, now: u64) -> bool {
        self.unproven.admits(now)
    }

    /// Notes that media go to the target.
    pub(super) const fn note_media(&mut self) {
        self.is_in_use = true;
    }

    /// Tells whether packets have come from the peer, or media have gone to it, since the description.
    pub(super) const fn is_in_use(&self) -> bool {
        self.is_in_use
    }

    /// Returns the target of packets to the peer. A peer behind NAT has none before its first packet, unless it describes the address of the NAT:
    /// its private address may belong to another host in the network of this server.
    pub(super) fn target(&self) -> Option<SocketAddr> {
        match self.signalling {
            Some(ip) => self.source.or_else(|| self.described.filter(|described| described.ip() == ip)),
            None if self.is_symmetric => self.source,
            None => self.described,
        }
    }
}

/// Tells whether there is such a source, and a packet comes from there.
fn is_at(source: Option<SocketAddr>, from: SocketAddr) -> bool {
    source.is_some_and(|source| is_same(source, from))
}

/// Compares addresses and ports, but not the scope of an IPv6 address, which a description lacks.
fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.ip() == other.ip() && one.port() == other.port()
}

fn is_unicast(address: &SocketAddr) -> bool {
    address.port() != 0 && !address.ip().is_unspecified() && !address.ip().is_multicast()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> SocketAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn a_public_peer_sends_from_its_description() {
        let mut latch = Latch::new(0, Some(at("192.0.2.1:4000")), None);
        assert_eq!(latch.target(), Some(at("192.0.2.1:4000")));
        assert!(!latch.accept(0, at("192.0.2.1:4002")) && !latch.accept(0, at("192.0.2.2:4000")));
        assert!(latch.accept(20_000, at("192.0.2.1:4000")));
        // Another port of the same address, before and after the silence; another address never.
        assert!(!latch.accept(PORT_SILENCE + 19_999, at("192.0.2.1:4002")));
        assert!(!latch.accept(9 * PORT_SILENCE, at("192.0.2.2:4000")));
        assert!(latch.accept(PORT_SILENCE + 20_000, at("192.0.2.1:4002")));
        assert_eq!(latch.target(), Some(at("192.0.2.1:4002")));
        // The described port counts at once.
        assert!(latch.accept(PORT_SILENCE + 20_001, at("192.0.2.1:4000")));
        assert!(!latch.accept(PORT_SILENCE + 20_002, at("192.0.2.1:4002")));
    }

    #[test]
    fn an_asymmetric_peer_receives_at_its_description() {
        let mut latch = Latch::new(0, Some(at("[2001:db8::1]:4000")), None);
        assert!(latch.accept(PORT_SILENCE, at("[2001:db8::1]:5000")));
        assert!(latch.accept(PORT_SILENCE + 1, at("[2001:db8::1]:5000")));
        assert_eq!(latch.target(), Some(at("[2001:db8::1]:4000")));
    }

    #[test]
    fn a_peer_behind_nat_is_where_its_first_packet_came_from() {
        let nat = Some(at("198.51.100.7:1").ip());
        let mut latch = Latch::new(0, Some(at("10.0.0.5:4000")), nat);
        assert_eq!(latch.target(), None);
        assert!(!latch.accept(0, at("10.0.0.5:4000")) && !latch.accept(0, at("203.0.113.9:4000")));
        assert!(latch.accept(0, at("198.51.100.7:61000")));
        assert_eq!(latch.target(), Some(at("198.51.100.7:61000")));
        assert!(!latch.accept(20_000, at("198.51.100.7:61001")) && !latch.accept(20_000, at("10.0.0.5:4000")));
        // A refused packet does not prolong the silence, an accepted one does.
        assert!(latch.accept(500_000, at("198.51.100.7:61000")));
        assert!(!latch.accept(PORT_SILENCE, at("198.51.100.7:61001")));
        assert!(latch.accept(500_000 + PORT_SILENCE, at("198.51.100.7:61001")));
        assert_eq!(latch.target(), Some(at("198.51.100.7:61001")));
        // The NAT's own address in the description.
        assert_eq!(Latch::new(0, Some(at("198.51.100.7:9")), nat).target(), Some(at("198.51.100.7:9")));
    }

    #[test]
    fn a_peer_behind_nat_has_its_place_again_with_its_next_packet() {
        let nat = Some(at("198.51.100.7:1").ip());
        let (peer, neighbour) = (at("198.51.100.7:61000"), at("198.51.100.7:62000"));
        let mut latch = Latch::new(0, Some(at("10.0.0.5:4000")), nat);
        assert!((0..=150).all(|packet| latch.accept(packet * 20_000, peer)));
        // The peer listens to music. A host behind the same NAT takes its place.
        assert!((200..300).all(|packet| latch.accept(packet * 20_000, neighbour)));
        assert_eq!(latch.target(), Some(neighbour));
        assert!(latch.accept(6_000_000, peer) && !latch.accept(6_000_001, neighbour));
        assert_eq!(latch.target(), Some(peer));
        assert!(latch.accept(6_020_000, peer) && !latch.accept(7_019_999, neighbour));
    }

    #[test]
    fn a_host_with_the_first_packet_keeps_no_peer_behind_its_nat_out() {
        let nat = Some(at("198.51.100.7:1").ip());
        let (peer, neighbour) = (at("198.51.100.7:61000"), at("198.51.100.7:62000"));
        let mut latch = Latch::new(0, Some(at("10.0.0.5:4000")), nat);
        assert!(latch.accept(0, neighbour) && !latch.accept(20_000, peer));
        assert!((50..100).all(|packet| latch.accept(packet * 20_000, peer)));
        assert!(!latch.accept(2_000_000, neighbour));
    }

    #[test]
    fn a_peer_behind_nat_that_moves_is_heard_from_its_new_port() {
        let nat = Some(at("198.51.100.7:1").ip());
        let (old, new) = (at("198.51.100.7:61000"), at("198.51.100.7:61002"));
        let moved = |time: u64| {
            let mut latch = Latch::new(0, Some(at("10.0.0.5:4000")), nat);
            assert!(latch.accept(0, old) && latch.set(time, Some(at("10.0.0.5:4002")), nat));
            latch
        };
        let mut latch = moved(1_000);
        // Packets that were under way are heard, but do not keep the new port out.
        assert!(latch.accept(2_000, old) && latch.accept(20_000, old));
        assert!(latch.accept(40_000, new) && !latch.accept(41_000, old) && latch.accept(60_000, new));
        assert_eq!(latch.target(), Some(new));
        // A peer that stays at its port has its place again.
        let mut latch = moved(1_000);
        assert!(latch.accept(20_000, old) && latch.accept(1_000 + MOVE, old));
        assert!(!latch.accept(2_000 + MOVE, new) && latch.accept(3_000 + MOVE, old));
    }

    #[test]
    fn only_a_new_description_opens_the_latch() {
        let nat = Some(at("198.51.100.7:1").ip());
        let mut latch = Latch::new(0, Some(at("10.0.0.5:4000")), nat);
        assert!(latch.accept(0, at("198.51.100.7:61000")));
        assert!(!latch.set(1, Some(at("10.0.0.5:4000")), nat) && !latch.set(1, None, nat));
        assert!(!latch.set(1, Some(at("0.0.0.0:4000")), nat) && !latch.accept(2, at("198.51.100.7:61002")));
        assert!(latch.set(3, Some(at("10.0.0.5:4002")), nat));
        assert!(latch.accept(4, at("198.51.100.7:61002")));
        // The peer moves to another network.
        let other = at("203.0.113.1:1");
        assert!(latch.set(5, Some(at("10.0.0.5:4002")), Some(other.ip())));
        assert!(!latch.accept(6, at("198.51.100.7:61002")) && latch.accept(6, other));
    }

    #[test]
    fn a_peer_of_an_earlier_process_is_where_it_was() {
        let (nat, described) = (Some(at("198.51.100.7:1").ip()), at("10.0.0.5:4000"));
        let mut before = Latch::new(0, Some(described), nat);
        assert_eq!(before.latched(), None);
        assert!(before.accept(0, at("198.51.100.7:61000")));
        let heard = before.latched();
        let mut latch = Latch::new(9_000_000, Some(described), nat).with_source(heard);
        assert_eq!((latch.target(), latch.latched(), latch.is_in_use()), (Some(at("198.51.100.7:61000")), heard, true));
        // Others may not send, and another port of the NAT only after a silence in this process.
        assert!(!latch.accept(9_000_000, at("198.51.100.7:61001")) && !latch.accept(9_000_000, described));
        assert!(latch.accept(9_000_000 + PORT_SILENCE, at("198.51.100.7:61001")));
        // A symmetric peer that has changed its port.
        let mut before = Latch::new(0, Some(at("192.0.2.1:4000")), None);
        assert!(before.accept(0, at("192.0.2.1:4000")) && before.accept(PORT_SILENCE, at("192.0.2.1:4002")));
        let latch = Latch::new(0, Some(at("192.0.2.1:4000")), None).with_source(before.latched());
        assert_eq!(latch.target(), Some(at("192.0.2.1:4002")));
    }

    #[test]
    fn a_source_that_may_not_send_is_not_taken_over() {
        let heard = |described: &str, from: &str| {
            Some(LatchedSource { described: at(described), from: at(from), is_symmetric: false })
        };
        let nat = Some(at("198.51.100.7:1").ip());
        for (signalling, heard) in [
            // Of another description, of another network.
            (nat, heard("10.0.0.5:4002", "198.51.100.7:61000")),
            (nat, heard("10.0.0.5:4000", "203.0.113.9:61000")),
            (None, heard("10.0.0.5:4000", "203.0.113.9:61000")),
            (None, heard("10.0.0.5:4002", "10.0.0.5:4002")),
        ] {
            let latch = Latch::new(0, Some(at("10.0.0.5:4000")), signalling).with_source(heard);
            assert_eq!((latch.source(), latch.is_in_use()), (None, false), "{heard:?}");
        }
    }

    #[test]
    fn no_description_no_packet() {
        let nat = at("198.51.100.7:1");
        for described in [None, Some(at("0.0.0.0:4000")), Some(at("192.0.2.1:0")), Some(at("224.0.0.1:4000"))] {
            for signalling in [None, Some(nat.ip())] {
                let mut latch = Latch::new(0, described, signalling);
                assert!(!latch.accept(9 * PORT_SILENCE, nat));
                assert!(!latch.accept(9 * PORT_SILENCE, at("192.0.2.1:4000")));
                assert_eq!(latch.target(), None);
            }
        }
    }
}
