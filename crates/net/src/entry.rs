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
    /// Number that distinguishes it from earlier connections of its slot. The slab sets it.
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
mod tests;
