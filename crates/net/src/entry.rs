//! Entry of a connection in the table of its shard: the state of an idle connection, in 104 bytes. The rest is in its [`Cold`] part.

#![expect(dead_code, reason = "until connections are entries")]

use crate::Bounds;
use crate::cold::{Cold, Opening, Spare};
use crate::connection::{FALLBACK_DELAY, Initiator, Phase};
use crate::flags::Flags;
use crate::local_fd::LocalFd;
use crate::peer_address::PeerAddress;
use crate::streams::LastSent;
use crate::tick::Tick;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::time::Duration;
use strowger_core::{Flow, ListenerId, PeerName, Transport};

/// Interval of checks whether responses have reached a peer that has ended its side.
const ACKNOWLEDGEMENT_CHECK: Duration = Duration::from_millis(100);

/// Shortest time between two reports of keep-alives of a peer to the service.
const REPORT_INTERVAL: Duration = Duration::from_secs(20);

/// Session of TLS.
pub(crate) type TlsSession = rustls::Connection;

/// Connection of a shard.
pub(crate) struct Entry {
    pub(crate) peer: PeerAddress,
    pub(crate) tls: Option<Box<TlsSession>>,
    pub(crate) cold: Option<Box<Cold>>,
    /// Last messages sent over the connection.
    pub(crate) sent: LastSent,
    pub(crate) owner: Owner,
    pub(crate) times: Times,
    pub(crate) links: WheelLinks,
    /// `None` until it begins to connect.
    pub(crate) fd: Option<LocalFd>,
    /// Number of the connection among those of its slot. The slab sets it.
    pub(crate) generation: u32,
    /// Bytes charged to its source.
    pub(crate) charged: u32,
    /// Received requests without a final response, judged by the first bytes of messages.
    pub(crate) unanswered: u16,
    pub(crate) flags: Flags,
    pub(crate) role: Role,
}

const _: () = assert!(size_of::<Entry>() == 104);

/// Times of a connection.
pub(crate) struct Times {
    /// Last read.
    pub(crate) last_read: Tick,
    /// Place in the [`Wheel`](crate::wheel::Wheel), which sets it; [`Tick::NEVER`]: none.
    pub(crate) timeout_at: Tick,
    /// Next report of a keep-alive of the peer to the service.
    pub(crate) report_at: Tick,
    /// End of the limit of silence.
    pub(crate) limited_until: Tick,
}

/// Neighbours of a connection in its bucket of the [`Wheel`](crate::wheel::Wheel).
#[derive(Clone, Copy)]
pub(crate) struct WheelLinks {
    pub(crate) next: u32,
    pub(crate) previous: u32,
}

impl WheelLinks {
    /// No slot.
    pub(crate) const NONE: u32 = u32::MAX;
}

/// Part of a connection in its shard.
pub(crate) struct Role {
    pub(crate) listener: ListenerId,
    /// Longest silence of the peer that the service permits, in ticks; 0: no limit.
    silence: u16,
    pub(crate) transport: Transport,
    pub(crate) phase: Phase,
    pub(crate) initiator: Initiator,
}

/// Flow of a dedicated connection, or name that the peer must prove, or neither.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Owner {
    /// Slot of the flow, which is never 0: its highest bit marks a dedicated socket.
    slot: u32,
    /// Generation of the flow, or without a flow the name of the peer, or 0.
    number: u32,
}

impl Owner {
    /// Neither a flow nor a name.
    pub(crate) const NONE: Self = Self { slot: 0, number: 0 };

    /// Creates the owner of a connection whose peer must prove this name.
    pub(crate) fn named(name: Option<PeerName>) -> Self {
        Self { slot: 0, number: name.map_or(0, |name| name.0.get()) }
    }

    /// Creates the owner of a dedicated connection, which the service knows by this flow.
    pub(crate) fn dedicated(flow: Flow) -> Self {
        Self { slot: flow.slot, number: flow.generation }
    }

    /// Returns the name that the peer must prove.
    pub(crate) fn name(self) -> Option<PeerName> {
        if self.slot == 0 { NonZeroU32::new(self.number).map(PeerName) } else { None }
    }

    /// Returns the flow of a dedicated connection. `own`: any flow of the shard.
    pub(crate) fn flow(self, own: Flow) -> Option<Flow> {
        (self.slot != 0).then_some(Flow { slot: self.slot, generation: self.number, ..own })
    }
}

impl Entry {
    /// Creates the entry of an accepted connection.
    pub(crate) fn accepted(
        fd: LocalFd,
        peer: SocketAddr,
        listener: ListenerId,
        transport: Transport,
        initiator: Initiator,
        now: Tick,
        spare: &mut Spare,
    ) -> Self {
        let phase = if initiator == Initiator::Balancer { Phase::Header } else { Phase::first(transport) };
        let mut entry = Self::new(peer, Role { listener, silence: 0, transport, phase, initiator }, now);
        entry.fd = Some(fd);
        // A client is asked for a certificate only if the server verifies certificates.
        entry.flags.insert(Flags::VERIFIED);
        if phase != Phase::Open {
            entry.cold(spare).since = now;
        }
        entry
    }

    /// Creates the entry of a connection that this side makes.
    pub(crate) fn dialling(
        peer: SocketAddr,
        listener: ListenerId,
        transport: Transport,
        owner: Owner,
        opening: Opening,
        now: Tick,
        spare: &mut Spare,
    ) -> Self {
        let role = Role { listener, silence: 0, transport, phase: Phase::Dialling, initiator: Initiator::Own };
        let mut entry = Self { owner, ..Self::new(peer, role, now) };
        let cold = entry.cold(spare);
        cold.since = now;
        cold.opening = Some(Box::new(opening));
        entry
    }

    fn new(peer: SocketAddr, role: Role, now: Tick) -> Self {
        Self {
            peer: peer.into(),
            tls: None,
            cold: None,
            sent: 0,
            owner: Owner::NONE,
            times: Times {
                last_read: now,
                timeout_at: Tick::NEVER,
                report_at: Tick::default(),
                limited_until: Tick::default(),
            },
            links: WheelLinks { next: WheelLinks::NONE, previous: WheelLinks::NONE },
            fd: None,
            generation: 0,
            charged: 0,
            unanswered: 0,
            flags: Flags::default(),
            role,
        }
    }

    /// Returns the cold part, a new one if there is none.
    pub(crate) fn cold(&mut self, spare: &mut Spare) -> &mut Cold {
        self.cold.get_or_insert_with(|| spare.take())
    }

    /// Gives the cold part back if nothing is in it. A turn that takes parts of it out, such as the incomplete message, does this at its end.
    pub(crate) fn tidy(&mut self, spare: &mut Spare) {
        let has_begin = self.role.phase != Phase::Open
            || [Flags::CLOSING, Flags::HALF_CLOSED, Flags::PIECES].iter().any(|flag| self.flags.has(*flag));
        if !has_begin && let Some(cold) = self.cold.take_if(|cold| cold.is_empty()) {
            spare.give_back(cold);
        }
    }

    fn opening(&self) -> Option<&Opening> {
        self.cold.as_ref()?.opening.as_deref()
    }

    /// Tells whether messages with a fallback wait.
    pub(crate) fn has_fallbacks(&self) -> bool {
        self.opening().is_some_and(|opening| !opening.fallbacks.is_empty())
    }

    /// Returns the name that the peer must prove. That of a dedicated connection is known until it is open.
    pub(crate) fn name(&self) -> Option<PeerName> {
        self.owner.name().or_else(|| self.opening()?.name)
    }

    /// Returns the source to which the bytes of the connection are charged; `None` for a balancer.
    pub(crate) fn charged_source(&self) -> Option<IpAddr> {
        (self.role.initiator != Initiator::Balancer).then(|| self.peer.ip())
    }

    /// Tells whether the peer or a balancer connected to this side.
    pub(crate) fn is_accepted(&self) -> bool {
        !matches!(self.role.initiator, Initiator::Own)
    }

    /// Tells whether a balancer connected to this side.
    pub(crate) fn is_balanced(&self) -> bool {
        matches!(self.role.initiator, Initiator::Balancer | Initiator::BehindBalancer)
    }

    /// Tells whether a message is incomplete.
    pub(crate) fn is_partial(&self) -> bool {
        self.flags.has(Flags::PIECES) || self.cold.as_ref().is_some_and(|cold| !cold.partial.is_empty())
    }

    /// Notes an incomplete message. Its time limit counts from its first byte.
    pub(crate) fn note_partial(&mut self, now: Tick, spare: &mut Spare) {
        let cold = self.cold(spare);
        if cold.partial_since == Tick::NEVER {
            cold.partial_since = now;
        }
    }

    /// Notes a complete message: if another message has begun, it began later than the noted time.
    pub(crate) fn note_whole(&mut self) {
        if !self.is_partial()
            && let Some(cold) = &mut self.cold
        {
            cold.partial_since = Tick::NEVER;
        }
    }

    /// Limits the silence of the peer, in milliseconds, until this time. A limit or time of 0 removes the limit; there is none above 109 minutes.
    pub(crate) fn limit_silence(&mut self, longest: u64, until: u64) {
        let ticks = u16::try_from(longest.div_ceil(Tick::MILLIS)).unwrap_or(0);
        self.role.silence = if until == 0 { 0 } else { ticks };
        self.times.limited_until = Tick::not_before(until);
    }

    /// Notes a keep-alive of the peer. Returns whether the service must learn of it: of the first one, then at most of
    /// one in [`REPORT_INTERVAL`].
    pub(crate) fn note_keep_alive(&mut self, now: Tick) -> bool {
        let is_due = now >= self.times.report_at;
        if is_due {
            self.times.report_at = now.after(REPORT_INTERVAL);
        }
        is_due
    }

    /// Returns the time at which the connection must end in its present state. Whoever spares it then must change that state, or the wheel returns it
    /// with each tick.
    pub(crate) fn due(&self, bounds: &Bounds) -> Tick {
        let since = self.cold.as_ref().map_or(self.times.last_read, |cold| cold.since);
        let end = match self.role.phase {
            // The peer whose end of the connection is awaited has gone.
            _ if self.flags.has(Flags::CLOSING) => since.after(bounds.close_timeout),
            _ if self.flags.has(Flags::HALF_CLOSED) => since.after(bounds.answer_timeout),
            Phase::Dialling => {
                let deadline = self.opening().map_or(since, |opening| opening.deadline);
                let fallback = since.after(Duration::from_millis(FALLBACK_DELAY));
                if self.has_fallbacks() { fallback.min(deadline) } else { deadline }
            }
            Phase::Header | Phase::Tls | Phase::Ws => since.after(bounds.handshake_timeout),
            Phase::Open if self.is_partial() => self.partial_since().after(bounds.partial_timeout),
            Phase::Open => self.silence_ends(bounds),
        };
        let check = self.cold.as_ref().filter(|cold| !cold.unacknowledged.is_empty());
        check.map_or(end, |cold| end.min(cold.checked_at.after(ACKNOWLEDGEMENT_CHECK)))
    }

    /// Returns the begin of the incomplete message.
    fn partial_since(&self) -> Tick {
        let noted = self.cold.as_ref().map(|cold| cold.partial_since);
        noted.filter(|since| *since != Tick::NEVER).unwrap_or(self.times.last_read)
    }

    /// Returns the time at which the silence of the peer ends the connection.
    fn silence_ends(&self, bounds: &Bounds) -> Tick {
        let idle = self.times.last_read.after(bounds.idle_timeout);
        let limit = self.times.last_read.plus(self.role.silence.into());
        let is_limited = self.role.silence > 0 && limit <= self.times.limited_until;
        if is_limited { limit.min(idle) } else { idle }
    }

    /// Tells whether the system of the peer has not acknowledged all written bytes.
    ///
    /// # Errors
    /// The connection is broken: it never will.
    pub(crate) fn has_unacknowledged(&self) -> io::Result<bool> {
        let Some(fd) = &self.fd else { return Ok(false) };
        if let Some(error) = fd.take_error()? {
            return Err(error);
        }
        Ok(fd.unacknowledged()? > 0 || self.cold.as_ref().is_some_and(|cold| !cold.waiting.is_empty()))
    }
    /// Creates an entry of a connection without a socket.
    #[cfg(test)]
    pub(crate) fn sample(initiator: Initiator) -> Self {
        let (listener, transport) = (ListenerId(0), Transport::Tcp);
        let role = Role { listener, silence: 0, transport, phase: Phase::Open, initiator };
        Self::new("192.0.2.7:5060".parse().unwrap(), role, Tick::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::Fallback;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use strowger_core::Target;

    const LISTENER: ListenerId = ListenerId(3);

    fn at(tick: u64) -> Tick {
        Tick::numbered(tick)
    }

    fn pair() -> (LocalFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (LocalFd::from_stream(listener.accept().unwrap().0), peer)
    }

    fn phase(phase: Phase, now: Tick, spare: &mut Spare) -> Entry {
        let mut entry = Entry::sample(Initiator::Peer);
        entry.role.phase = phase;
        entry.times.last_read = now;
        if phase != Phase::Open {
            entry.cold(spare).since = now;
        }
        entry
    }

    fn dialling(deadline: Tick, fallbacks: usize, now: Tick, spare: &mut Spare) -> Entry {
        let fallback = |n| Fallback { origin: 0, token: n as u64, message: Box::default() };
        let opening = Opening { deadline, fallbacks: (0..fallbacks).map(fallback).collect(), ..Opening::default() };
        Entry::dialling("192.0.2.7:5060".parse().unwrap(), LISTENER, Transport::Tcp, Owner::NONE, opening, now, spare)
    }

    /// Bounds with a time of its own for each state: idle 100, partial 30, handshake 10, answer 32, close 1 s.
    fn bounds() -> Bounds {
        Bounds { idle_timeout: Duration::from_secs(100), ..Bounds::default() }
    }

    /// Ends the side of the peer, with a response to it that was checked last at a time.
    fn half_closed(entry: &mut Entry, cold: &mut Cold, since: Tick, checked_at: Tick) {
        entry.flags.insert(Flags::HALF_CLOSED);
        (cold.since, cold.checked_at) = (since, checked_at);
        cold.unacknowledged = vec![(Target::LOOPBACK, Box::default())];
    }

    #[test]
    fn a_connection_ends_after_the_time_of_its_state() {
        // All begin at tick 500; later events are at ticks 520 and 530.
        let (now, mut spare) = (at(500), Spare::default());
        let check = |state: &str, due: u64, mut entry: Entry, change: fn(&mut Entry, &mut Cold)| {
            let mut cold = entry.cold.take().unwrap_or_default();
            change(&mut entry, &mut cold);
            entry.cold = Some(cold);
            assert_eq!(entry.due(&bounds()), at(due), "{state}");
        };
        let open = || phase(Phase::Open, now, &mut Spare::default());
        check("idle", 1_500, open(), |_, _| ());
        check("the peer has sent bytes", 1_530, open(), |entry, _| entry.times.last_read = at(530));
        check("incomplete message", 820, open(), |entry, cold| {
            (cold.partial, cold.partial_since) = (vec![b'I'], at(520));
            entry.times.last_read = at(530);
        });
        check("fragments of a WebSocket message, the first one empty", 820, open(), |entry, cold| {
            entry.flags.insert(Flags::PIECES);
            cold.partial_since = at(520);
        });
        check("incomplete TLS record", 1_500, open(), |_, cold| cold.record = vec![23]);
        check("waiting output", 1_500, open(), |_, cold| cold.waiting = vec![b'I']);
        check("half-closed", 850, open(), |entry, cold| {
            entry.flags.insert(Flags::HALF_CLOSED);
            cold.since = at(530);
        });
        check("half-closed with a response", 531, open(), |entry, cold| half_closed(entry, cold, at(520), at(530)));
        check("end before the next check", 840, open(), |entry, cold| half_closed(entry, cold, at(520), at(840)));
        check("closed by both sides", 540, open(), |entry, cold| {
            entry.flags.insert(Flags::HALF_CLOSED | Flags::CLOSING);
            cold.since = at(530);
        });
        check("closed within a message", 540, open(), |entry, cold| {
            entry.flags.insert(Flags::CLOSING);
            (cold.partial, cold.partial_since, cold.since) = (vec![b'I'], at(520), at(530));
        });
        for of in [Phase::Header, Phase::Tls, Phase::Ws] {
            let entry = phase(of, now, &mut spare);
            check(&format!("{of:?}"), 600, entry, |entry, cold| {
                entry.times.last_read = at(530);
                cold.partial = vec![b'P'];
            });
        }
        check("connecting", 550, dialling(at(550), 0, now, &mut spare), |_, _| ());
        check("connecting, with fallbacks", 503, dialling(at(550), 2, now, &mut spare), |_, _| ());
        check("connecting ends before fallbacks", 502, dialling(at(502), 2, now, &mut spare), |_, _| ());
        check("closed before it is made", 540, dialling(at(550), 0, now, &mut spare), |entry, cold| {
            entry.flags.insert(Flags::CLOSING);
            cold.since = at(530);
        });
    }

    #[test]
    fn nothing_is_due_when_the_process_begins() {
        let (zero, mut spare) = (Tick::default(), Spare::default());
        let of = [Phase::Header, Phase::Tls, Phase::Ws, Phase::Open];
        let mut entries: Vec<Entry> = of.into_iter().map(|of| phase(of, zero, &mut spare)).collect();
        entries.push(dialling(at(50), 1, zero, &mut spare));
        let mut partial = phase(Phase::Open, zero, &mut spare);
        partial.cold(&mut spare).partial.push(b'I');
        partial.note_partial(zero, &mut spare);
        entries.push(partial);
        let mut half = phase(Phase::Open, zero, &mut spare);
        let mut cold = spare.take();
        half_closed(&mut half, &mut cold, zero, zero);
        half.cold = Some(cold);
        entries.push(half);
        for (longest, until) in [(0, 0), (0, 1), (0, u64::MAX), (160_000, 0)] {
            let mut entry = phase(Phase::Open, zero, &mut spare);
            entry.limit_silence(longest, until);
            assert_eq!(entry.due(&bounds()), at(1_000), "{longest} {until}");
            entries.push(entry);
        }
        for (i, entry) in entries.iter().enumerate() {
            assert!(entry.due(&bounds()) > zero, "{i}");
        }
    }

    #[test]
    fn silence_is_limited_while_the_limit_lasts() {
        let hour = Bounds { idle_timeout: Duration::from_secs(3_600), ..Bounds::default() };
        let mut entry = phase(Phase::Open, at(10), &mut Spare::default());
        assert_eq!(entry.due(&hour), at(36_010));
        entry.limit_silence(160_000, 600_000);
        assert_eq!(entry.due(&hour), at(1_610));
        assert_eq!(entry.due(&bounds()), at(1_010), "the shorter time counts");
        entry.times.last_read = at(4_400);
        assert_eq!(entry.due(&hour), at(6_000));
        entry.times.last_read = at(4_401);
        assert_eq!(entry.due(&hour), at(40_401), "the registration ends before");
        entry.limit_silence(160_000, 0);
        entry.times.last_read = at(20);
        assert_eq!(entry.due(&hour), at(36_020));
        entry.limit_silence(6_553_500, u64::MAX);
        assert_eq!(entry.due(&Bounds { idle_timeout: Duration::MAX, ..hour.clone() }), at(65_555));
        entry.limit_silence(6_553_501, u64::MAX);
        assert_eq!(entry.due(&hour), at(36_020), "no limit ends a connection earlier than the service permits");
    }

    #[test]
    fn few_keep_alives_are_reported() {
        let mut entry = Entry::sample(Initiator::Peer);
        let reported: Vec<u64> = (0..600).step_by(10).filter(|now| entry.note_keep_alive(at(*now))).collect();
        assert_eq!(reported, [0, 200, 400]);
    }

    #[test]
    fn the_time_of_a_message_counts_from_its_first_byte() {
        let (mut spare, mut entry) = (Spare::default(), Entry::sample(Initiator::Peer));
        for now in [0, 7] {
            entry.cold(&mut spare).partial.push(b'I');
            entry.note_partial(at(now), &mut spare);
            entry.note_whole();
            assert_eq!(entry.due(&bounds()), at(300));
        }
        // The message is complete, and another one begins.
        entry.cold(&mut spare).partial.clear();
        entry.note_whole();
        entry.cold(&mut spare).partial.push(b'B');
        entry.note_partial(at(40), &mut spare);
        assert_eq!(entry.due(&bounds()), at(340));
    }

    #[test]
    fn an_idle_connection_has_no_cold_part() {
        let mut spare = Spare::default();
        let mut entry = Entry::sample(Initiator::Peer);
        entry.cold(&mut spare).waiting.push(1);
        entry.tidy(&mut spare);
        assert!(entry.cold.is_some(), "output waits");
        let buffer = &mut entry.cold(&mut spare).waiting;
        buffer.clear();
        assert!(buffer.capacity() > 0);
        entry.tidy(&mut spare);
        assert!(entry.cold.is_none());
        assert_eq!(entry.cold(&mut spare).waiting.capacity(), 0, "of the next connection");
    }

    #[test]
    fn the_begin_of_a_state_is_kept_while_the_state_lasts() {
        let mut spare = Spare::default();
        for of in [Phase::Dialling, Phase::Header, Phase::Tls, Phase::Ws] {
            let mut entry = phase(of, at(7), &mut spare);
            entry.tidy(&mut spare);
            assert_eq!(entry.cold.as_ref().map(|cold| cold.since), Some(at(7)), "{of:?}");
            entry.role.phase = Phase::Open;
            entry.tidy(&mut spare);
            assert!(entry.cold.is_none(), "{of:?}");
        }
        for flag in [Flags::CLOSING, Flags::HALF_CLOSED, Flags::PIECES] {
            let mut entry = Entry::sample(Initiator::Peer);
            entry.cold(&mut spare).since = at(7);
            entry.flags.insert(flag);
            entry.tidy(&mut spare);
            assert_eq!(entry.cold.as_ref().map(|cold| cold.since), Some(at(7)));
            entry.flags.remove(flag);
            entry.tidy(&mut spare);
            assert!(entry.cold.is_none());
        }
    }

    #[test]
    fn an_accepted_connection_begins_with_the_protocols_of_its_listener() {
        let mut spare = Spare::default();
        for (transport, initiator, phase) in [
            (Transport::Tcp, Initiator::Peer, Phase::Open),
            (Transport::Tls, Initiator::Peer, Phase::Tls),
            (Transport::Ws, Initiator::Peer, Phase::Ws),
            (Transport::Wss, Initiator::Peer, Phase::Tls),
            (Transport::Tcp, Initiator::Balancer, Phase::Header),
            (Transport::Wss, Initiator::Balancer, Phase::Header),
        ] {
            let (fd, _peer) = pair();
            let remote: SocketAddr = "[2001:db8::7]:5060".parse().unwrap();
            let entry = Entry::accepted(fd, remote, LISTENER, transport, initiator, at(9), &mut spare);
            assert_eq!((entry.role.phase, SocketAddr::from(entry.peer)), (phase, remote));
            let source = (initiator == Initiator::Peer).then_some(remote.ip());
            assert!(entry.is_accepted() && entry.flags.has(Flags::VERIFIED) && entry.charged_source() == source);
            let due = if phase == Phase::Open { 1_009 } else { 109 };
            assert_eq!((entry.due(&bounds()), entry.cold.is_some()), (at(due), phase != Phase::Open));
        }
    }

    #[test]
    fn the_owner_is_a_flow_or_a_name() {
        let own = Flow { node: 1, process: 2, shard: 3, slot: 4, generation: 5 };
        let flow = Flow { slot: 1 << 31, generation: 0, ..own };
        let name = PeerName(NonZeroU32::new(7).unwrap());
        let read = |owner: Owner| (owner.flow(own), owner.name());
        assert_eq!(read(Owner::NONE), (None, None));
        assert_eq!(read(Owner::named(None)), (None, None));
        assert_eq!(read(Owner::named(Some(name))), (None, Some(name)));
        assert_eq!(read(Owner::dedicated(flow)), (Some(flow), None));
        assert_eq!(
            read(Owner::dedicated(Flow { generation: 7, ..flow })),
            (Some(Flow { generation: 7, ..flow }), None)
        );
        // Until it is open, a dedicated connection has a name too.
        let opening = Opening { name: Some(name), ..Opening::default() };
        let peer = "192.0.2.7:5061".parse().unwrap();
        let entry = Entry::dialling(
            peer,
            LISTENER,
            Transport::Tcp,
            Owner::dedicated(flow),
            opening,
            at(0),
            &mut Spare::default(),
        );
        assert_eq!((entry.owner.flow(own), entry.name()), (Some(flow), Some(name)));
        assert!(!entry.is_accepted() && !entry.is_balanced() && !entry.flags.has(Flags::VERIFIED));
    }

    #[test]
    fn waiting_output_is_not_acknowledged() {
        let (fd, mut peer) = pair();
        let mut spare = Spare::default();
        let mut entry = Entry::accepted(
            fd,
            peer.local_addr().unwrap(),
            LISTENER,
            Transport::Tcp,
            Initiator::Peer,
            at(0),
            &mut spare,
        );
        assert!(!entry.has_unacknowledged().unwrap());
        entry.cold(&mut spare).waiting.push(b'I');
        assert!(entry.has_unacknowledged().unwrap());
        entry.cold(&mut spare).waiting.clear();
        // A peer that ends with unread bytes resets the connection.
        assert_eq!(entry.fd.as_ref().unwrap().write(b"12").unwrap(), 2);
        peer.read_exact(&mut [0]).unwrap();
        drop(peer);
        let reset = |entry: &Entry| entry.has_unacknowledged().is_err();
        assert!((0..100_000).any(|_| reset(&entry)), "the connection is reset");
        assert!(!Entry::sample(Initiator::Own).has_unacknowledged().unwrap(), "it has no socket yet");
    }
}
