//! Ends of connections: by the peer, by an error, by this side; and their reports.

use super::{Streams, gauge};
use crate::connection::{Connection, Initiator, Phase};
use crate::{ConnectionKind, Ending, Unsent, clock};
use std::cmp::Reverse;
use std::net::SocketAddr;
use strowger_core::shown::brief;
use strowger_core::{Flow, Now, Target, Transport};

/// Reason of a regular end.
const HAS_ALL: &str = "the peer has its answers and wants nothing more";

impl Streams {
    /// Ends a connection by this side's decision, for this reason.
    pub(crate) fn close(&mut self, slot: u32, reason: &dyn std::fmt::Display) {
        self.end(slot, Ending::Ours, reason);
    }

    /// Ends the connections that have timed out, and the rests of others. `kind`: kind of a connection, by its flow and peer.
    #[inline(never)]
    pub(crate) fn expire(&mut self, now: Now, kind: &dyn Fn(Flow, SocketAddr) -> ConnectionKind) {
        self.end_rests(now);
        while let Some(&Reverse((at, slot, generation))) = self.timeouts.peek() {
            if at > now.mono {
                return;
            }
            self.timeouts.pop();
            let bounds = self.bounds.clone();
            let Some(connection) = self.same(slot, generation).filter(|c| c.timeout_at == at) else { continue };
            connection.timeout_at = u64::MAX;
            if connection.due(&bounds) > now.mono {
                self.schedule(slot);
                continue;
            }
            if self.check_acknowledged(slot, now) || self.fail_fallbacks(slot) {
                continue;
            }
            let Some(connection) = self.connection(slot) else { continue };
            let (phase, partial, leaving) = (connection.phase, connection.awaits_rest(), connection.closing);
            let finished = connection.half_closed;
            match phase {
                Phase::Dialling => self.give_up_dial(slot),
                Phase::Header => {
                    self.counters.proxy_late.add(1);
                    self.close(slot, &"no PROXY header in time");
                }
                Phase::Tls | Phase::Ws => self.close(slot, &"the handshake took too long"),
                Phase::Open if leaving => self.close(slot, &"the peer did not end it"),
                Phase::Open if finished => self.close(slot, &"the peer had said that nothing would follow"),
                Phase::Open if partial => {
                    self.counters.partial_closed.add(1);
                    self.close(slot, &"the rest of a message did not come");
                }
                Phase::Open if self.spare_unread(slot, now) || self.keeps(slot, now, kind) => (),
                Phase::Open => {
                    self.counters.idle_closed.add(1);
                    self.close(slot, &"it was silent for too long");
                }
            }
        }
    }

    /// Handles the end of the peer's side. From now on only responses to its earlier requests are sent. After the last of them, or a time-out, the
    /// connection ends.
    pub(crate) fn peer_finished(&mut self, slot: u32) {
        let flow = self.flow(slot);
        let now = clock::now().mono;
        let Some(connection) = self.connection(slot) else { return };
        if connection.half_closed {
            return;
        }
        // After its closing handshake a WebSocket carries no more messages (RFC 6455 section 5.5.1).
        let web = matches!(connection.transport, Transport::Ws | Transport::Wss);
        let is_owed = connection.requests.is_owed() && connection.phase == Phase::Open && !web;
        if !is_owed || connection.dedicated.is_some() || connection.closing {
            return self.end(slot, Ending::Finished, &"the peer closed it");
        }
        connection.half_closed = true;
        connection.since = now;
        connection.partial = Vec::new();
        self.charge_source(slot);
        self.unlink(slot);
        self.ended.push((flow, Ending::Finished));
        self.schedule(slot);
    }

    /// Keeps a response to a peer that has ended its side. If the peer has closed the connection, its system resets it, and the response is sent
    /// again to the peer's listening address (RFC 3261 section 18.2.2). A peer behind a balancer has no such address.
    pub(super) fn remember_response(&mut self, slot: u32, target: &Target, message: &[u8], now: Now) {
        let Some(connection) = self.connection(slot).filter(|c| c.half_closed && !c.is_balanced()) else { return };
        connection.unacknowledged.push((target.without_flow(), message.into()));
        connection.checked_at = now.mono;
        if self.charge_source(slot) {
            self.schedule(slot);
        }
    }

    /// Ends, after a send, a connection whose peer has ended its side and received everything.
    pub(super) fn close_if_done(&mut self, slot: u32) {
        let now = clock::now().mono;
        let Some(connection) = self.connection(slot).filter(|c| c.half_closed && !c.closing) else { return };
        connection.since = now;
        if connection.requests.is_owed() || !connection.waiting.is_empty() {
            return;
        }
        if connection.unacknowledged.is_empty() {
            return self.end(slot, Ending::Finished, &HAS_ALL);
        }
        connection.closing = true;
        self.shut_down(slot);
    }

    /// Checks whether all data have reached a peer that had ended its side. Returns false if no check is pending, or
    /// the time for checks is over.
    fn check_acknowledged(&mut self, slot: u32, now: Now) -> bool {
        let bounds = self.bounds.clone();
        let Some(connection) = self.connection(slot).filter(|c| !c.unacknowledged.is_empty()) else { return false };
        connection.checked_at = now.mono;
        match connection.has_unacknowledged() {
            Err(error) => self.fail(slot, &error),
            Ok(true) if connection.due(&bounds) <= now.mono => return false,
            Ok(true) => self.schedule(slot),
            Ok(false) if connection.closing => self.end(slot, Ending::Finished, &HAS_ALL),
            Ok(false) => {
                connection.unacknowledged = Vec::new();
                self.charge_source(slot);
                self.schedule(slot);
            }
        }
        true
    }

    /// Limits the silence of the peer of a connection until this time; 0: no longer.
    pub(crate) fn limit_silence(&mut self, flow: Flow, longest: u64, until: u64) {
        if let Some(connection) = self.same(flow.slot, flow.generation) {
            connection.peer.limit(longest, until);
            self.schedule(flow.slot);
        }
    }

    /// Prolongs a connection whose silence is too long if its peer has sent bytes that are not yet read: this process may
    /// have stood still. Returns whether there are such bytes.
    pub(super) fn spare_unread(&mut self, slot: u32, now: Now) -> bool {
        let connection = self.connection(slot).filter(|connection| connection.over_budget || connection.has_unread());
        let Some(connection) = connection else { return false };
        connection.peer.last_read = now.mono;
        self.schedule(slot);
        true
    }

    /// Prolongs a silent connection of a kind that lives for longer. Returns whether it does.
    fn keeps(&mut self, slot: u32, now: Now, kind: &dyn Fn(Flow, SocketAddr) -> ConnectionKind) -> bool {
        let (flow, idle) = (self.flow(slot), self.bounds.idle_timeout.as_millis() as u64);
        let Some(connection) = self.connection(slot).filter(|connection| !connection.peer.is_overdue(now.mono)) else {
            return false;
        };
        let until = match kind(flow, connection.remote) {
            ConnectionKind::Registered { until } => until,
            ConnectionKind::Other if connection.alias.is_none() => 0,
            // A peer with an alias is a server that reuses the connection (RFC 5923).
            ConnectionKind::Trunk | ConnectionKind::Other => connection.peer.last_read.saturating_add(idle),
        };
        if until <= now.mono {
            return false;
        }
        connection.peer.kept_until = until;
        self.schedule(slot);
        true
    }

    /// Removes a connection from the directory, and reports its unanswered messages.
    fn unlink(&mut self, slot: u32) {
        let flow = self.flow(slot);
        let directory = &self.network.directory;
        let Some(connection) = self.slots[slot as usize].connection.as_deref_mut() else { return };
        if connection.dedicated.is_none() {
            directory.forget(connection.transport, connection.remote, connection.name, flow);
            if let Some(alias) = connection.alias.take() {
                directory.forget(connection.transport, alias.address, None, flow);
            }
        }
        self.cut_off.extend(self.sent.of(std::mem::take(&mut connection.sent)));
    }

    /// Ends a connection that has failed.
    #[cold]
    pub(crate) fn fail(&mut self, slot: u32, error: &dyn std::fmt::Display) {
        self.end(slot, Ending::Broken, error);
    }

    fn end(&mut self, slot: u32, ending: Ending, reason: &dyn std::fmt::Display) {
        let flow = self.flow(slot);
        self.unlink(slot);
        let Some(mut connection) = self.slots[slot as usize].connection.take() else { return };
        self.wait.ended((slot, flow.generation));
        tracing::debug!(
            remote = %connection.remote, transport = connection.transport.text(), reason = %brief(&reason), "connection ends"
        );
        if let (Some(layer), Some(stream)) = (&mut connection.layer, &connection.stream) {
            layer.send_close_notify(stream);
        }
        gauge(&self.counters, connection.transport).less(1);
        self.counters.stream_bytes_waiting.less(connection.waiting.len() as u64);
        if ending == Ending::Broken {
            self.resend.append(&mut connection.unacknowledged);
        }
        let network = &self.network;
        let source = connection.charged_source();
        network.sources.release(source.filter(|_| connection.is_accepted()));
        if connection.charged > 0 {
            network.sources.refund(source, connection.charged as usize);
            self.counters.connection_bytes.less(u64::from(connection.charged));
        }
        if let Some(layer) = &connection.layer {
            self.counters.stream_bytes_waiting.less((layer.pending.len() + layer.fallback_bytes()) as u64);
            self.counters.streams_lost.add(layer.pending_messages.into());
            let cause = match connection.phase {
                Phase::Dialling | Phase::Header => Unsent::Connection,
                Phase::Tls => Unsent::TlsHandshake,
                Phase::Ws => Unsent::WebSocketHandshake,
                Phase::Open => Unsent::Here,
            };
            let fallbacks = layer.fallbacks.iter().map(|fallback| (fallback.origin, fallback.token));
            self.unsent
                .extend(layer.tokens.iter().copied().chain(fallbacks).map(|(origin, token)| (origin, token, cause)));
        }
        self.dedicated_gone += usize::from(connection.dedicated.is_some());
        if connection.phase == Phase::Open {
            if !connection.closing && !connection.half_closed {
                self.ended.push((flow, ending));
            }
        } else {
            let is_check = ending != Ending::Ours && is_check(&connection);
            let shakes_hands = !is_check && matches!(connection.phase, Phase::Tls | Phase::Ws);
            self.counters.handshakes_failed.add(u64::from(shakes_hands));
            let is_cut = connection.phase == Phase::Header && ending != Ending::Ours;
            self.counters.proxy_cut.add(u64::from(is_cut && !is_check));
            if !is_check && self.may_log(connection.remote) {
                let event = match connection.phase {
                    Phase::Header => "connection of a balancer refused",
                    Phase::Tls | Phase::Ws => "handshake failed",
                    Phase::Dialling | Phase::Open => "connection not made",
                };
                let transport = connection.transport.text();
                tracing::info!(remote = %connection.remote, %transport, reason = %brief(&reason), "{event}");
            }
            if let (true, Some(on_failure)) = (shakes_hands, &self.network.settings.on_failure) {
                on_failure.call(connection.remote, &reason.to_string());
            }
        }
        if connection.phase != Phase::Open && connection.dedicated.is_some() && !connection.closing {
            self.not_made.push(flow);
        }
        self.free.push(slot);
    }
}

/// Tells whether a connection that its peer has ended before it was open was a check of a balancer whether the server lives: nothing arrived,
/// or nothing but a header that names no peer.
fn is_check(connection: &Connection) -> bool {
    connection.initiator == Initiator::Balancer
        && match connection.phase {
            Phase::Header => connection.partial.is_empty(),
            _ => connection.peer.last_read == connection.since,
        }
}
