//! Choice of the connection of a message: the connection of its flow, another one to its target, or a new one.

use super::dial::Dial;
use super::{Piece, Streams};
use crate::Unsent;
use crate::connection::{Alias, Connection, FALLBACK_DELAY, Fallback, Phase};
use crate::sender::Sender;
use crate::verified_certificate::VerifiedCertificate;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use strowger_core::{Flow, Now, Target, Transport};

/// Result of posting a message.
pub(crate) enum Post {
    Done,
    /// The message is for a connection of this shard; the target names it.
    Elsewhere(usize, Target),
}

impl Streams {
    /// Posts a message for a stream: `bytes[range]`. `leads_to` tells whether there is a shard of this number, since a
    /// flow may name any.
    #[inline(never)]
    pub(crate) fn post(
        &mut self,
        target: &Target,
        bytes: &[u8],
        range: Range<usize>,
        sender: Sender,
        now: Now,
        leads_to: impl Fn(usize) -> bool,
    ) -> Post {
        let Sender { shard: origin, token, .. } = sender;
        if let Some(flow) = target.flow {
            let settings = &self.network.settings;
            if flow.node == settings.node && flow.process == settings.process {
                if flow.shard as usize != self.index && origin == self.index && leads_to(flow.shard as usize) {
                    return Post::Elsewhere(flow.shard as usize, *target);
                }
                if flow.shard as usize == self.index && self.leads_to(flow, target, &bytes[range.clone()]) {
                    self.remember_response(flow.slot, target, &bytes[range.clone()], now);
                    self.push(flow.slot, range, origin, token);
                    return Post::Done;
                }
            }
            // A browser cannot be called back, nor a peer behind a balancer.
            if matches!(target.transport, Transport::Ws | Transport::Wss) || flow.is_balanced() {
                self.fail_message(origin, token);
                return Post::Done;
            }
        }
        let (network, target) = (self.network.clone(), &target.without_flow());
        let directory = &network.directory;
        let known = directory.find(target);
        let stale = known.filter(|f| f.shard as usize == self.index && self.same(f.slot, f.generation).is_none());
        let known = known.filter(|_| stale.is_none());
        let flow = match known {
            Some(flow) => flow,
            None => {
                if !network.sources.admit(None, &self.bounds) {
                    self.counters.connections_refused.add(1);
                    self.fail_message(origin, token);
                    return Post::Done;
                }
                let (flow, made) = directory.find_or(target, stale, || self.dial(target, now));
                if !made {
                    network.sources.release(None);
                }
                flow
            }
        };
        if flow.shard as usize != self.index {
            return Post::Elsewhere(flow.shard as usize, Target { flow: Some(flow), ..*target });
        }
        // An empty message only makes the connection, so that the first real one need not wait for it.
        if range.is_empty() {
            return Post::Done;
        }
        if !sender.has_fallback || !self.hold_fallback(flow.slot, &bytes[range.clone()], sender, now) {
            self.push(flow.slot, range, origin, token);
        }
        Post::Done
    }

    /// Holds a message with a fallback until its connection is made, apart from other messages. Returns false if the
    /// connection is open; then the caller sends the message. If the deadline has passed, the message fails at once.
    fn hold_fallback(&mut self, slot: u32, message: &[u8], sender: Sender, now: Now) -> bool {
        let (bound, counters) = (self.bounds.write_queue, self.counters.clone());
        let Some(connection) = self.connection(slot).filter(|c| c.phase == Phase::Dialling) else { return false };
        let is_late = now.mono >= connection.since + FALLBACK_DELAY;
        let layer = connection.layer();
        if is_late || layer.fallback_bytes() + message.len() > bound {
            self.unsent.push((sender.shard, sender.token, Unsent::Connection));
            return true;
        }
        layer.fallbacks.push(Fallback { origin: sender.shard, token: sender.token, message: message.into() });
        counters.stream_bytes_waiting.add(message.len() as u64);
        if self.charge_source(slot) {
            self.schedule(slot);
        }
        true
    }

    /// Fails the messages with a fallback that wait for a connection that is not made in time. The attempt to connect
    /// continues. Returns false if no such message waits.
    pub(super) fn fail_fallbacks(&mut self, slot: u32) -> bool {
        let Some(connection) = self.connection(slot).filter(|c| c.phase == Phase::Dialling && c.has_fallbacks()) else {
            return false;
        };
        let fallbacks = std::mem::take(&mut connection.layer().fallbacks);
        for Fallback { origin, token, message } in fallbacks {
            self.counters.stream_bytes_waiting.less(message.len() as u64);
            self.unsent.push((origin, token, Unsent::Connection));
        }
        self.charge_source(slot);
        self.schedule(slot);
        true
    }

    /// Tells whether this flow is a connection to the target's peer: it must have the transport and the address of the
    /// target, and its peer must have proved the name of the target, if there is one. Otherwise a flow in an untrusted
    /// message could lead to another peer. If the peer has ended its side, only responses may use the connection.
    fn leads_to(&self, flow: Flow, target: &Target, message: &[u8]) -> bool {
        let place = self.slots.get(flow.slot as usize).filter(|place| place.generation == flow.generation);
        let Some(connection) = place.and_then(|place| place.connection.as_deref()) else { return false };
        let names = &self.network.names;
        // The zone of a link-local address is not always known.
        let meant =
            |address: SocketAddr| (address.ip(), address.port()) == (target.address.ip(), target.address.port());
        let alias = connection.alias.as_ref();
        let proved = |alias: &Alias| {
            alias
                .certificate
                .as_ref()
                .is_some_and(|certificate| certificate.is_valid_for(target.name, target.address.ip(), names))
        };
        let finished = connection.half_closed && (connection.closing || !message.starts_with(b"SIP/2.0 "));
        !finished
            && connection.transport == target.transport
            && (meant(connection.remote) || alias.is_some_and(|alias| meant(alias.address)))
            && (target.name.is_none() || connection.name == target.name || alias.is_some_and(|alias| proved(alias)))
    }

    pub(super) fn fail_message(&mut self, origin: usize, token: u64) {
        self.counters.streams_lost.add(1);
        if token != 0 {
            self.unsent.push((origin, token, Unsent::Here));
        }
    }

    pub(super) fn push(&mut self, slot: u32, range: Range<usize>, origin: usize, token: u64) {
        if token != 0 {
            self.note_sent(slot, origin, token);
        }
        let order = self.round.len() as u32;
        self.round.push(Piece { slot, order, range });
    }

    /// Notes the shard and the token to which it is reported if a message is not sent, or if the connection ends before
    /// a response.
    pub(super) fn note_sent(&mut self, slot: u32, origin: usize, token: u64) {
        let place = self.slots.get_mut(slot as usize);
        let Some(connection) = place.and_then(|place| place.connection.as_deref_mut()) else { return };
        match &mut connection.layer {
            Some(layer) if connection.phase != Phase::Open => layer.tokens.push((origin, token)),
            _ => {
                if self.sent.note(&mut connection.sent, origin, token) {
                    self.counters.sent_forgotten.add(1);
                }
            }
        }
    }

    /// Directs messages for this address to the connection; an earlier address of the connection is removed. If the
    /// connection has ended, the address is directed to none. A secure connection needs a verified certificate of its
    /// peer (RFC 5923 section 9.3).
    pub(crate) fn alias(&mut self, flow: Flow, transport: Transport, address: SocketAddr) {
        let network = self.network.clone();
        let connection = self.same(flow.slot, flow.generation).filter(|c| c.transport == transport);
        let Some(connection) = connection else { return network.directory.forget(transport, address, None, flow) };
        let certificate = match transport.is_secure() {
            false => None,
            true if !connection.verified => return,
            true => {
                let Some(certificate) = connection.certificate() else { return };
                Some(Arc::new(VerifiedCertificate::new(certificate)))
            }
        };
        if let Some(certificate) = &certificate {
            network.directory.add_verified_alias(transport, address, flow, certificate.clone());
        }
        let before = connection.alias.replace(Box::new(Alias { address, certificate }));
        if let Some(before) = before.filter(|before| before.address != address) {
            network.directory.forget(transport, before.address, None, flow);
        }
    }

    /// Begins to make a connection to this target.
    fn dial(&mut self, target: &Target, now: Now) -> Flow {
        let bind = self.network.addresses.get(target.listener.0 as usize).map(|a| a.ip());
        let from = bind.filter(|ip| !ip.is_unspecified() && ip.is_ipv4() == target.address.is_ipv4());
        let mut connection = Connection::dialling(target.transport, target.listener, target.address, now);
        connection.name = target.name;
        connection.layer().connect_by = now.mono + self.bounds.connect_timeout.as_millis() as u64;
        let slot = self.add(connection);
        let generation = self.slots[slot as usize].generation;
        let port = self.network.settings.dial_port;
        self.dials.push(Dial { slot, generation, from, port, to: target.address, begun: None });
        self.flow(slot)
    }
}
