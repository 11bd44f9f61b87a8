//! Reading of connections: decryption, frames, splitting into messages.

use crate::connection::Phase;
use crate::dispatcher::Dispatcher;
use crate::extension::Extension;
use crate::flags::Flags;
use crate::line_ends::without_line_ends;
use crate::pressure::Turn;
use crate::ready_queue::Work;
use crate::service::Service;
use crate::streams::Streams;
use crate::tls::decrypt;
use crate::{timestamp, ws};
use std::io::ErrorKind;
use std::os::fd::AsFd;
use strowger_core::{Arrival, Now, Transport};
use strowger_message::frame::{self, Frame};

/// Maximum number of reads from one connection in a turn.
const READS: usize = 8;

/// End of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TurnEnd {
    /// Nothing is left to read: an event reports further data, or the connection has ended.
    Empty,
    /// There may be more data.
    More,
    /// There may be more data, and the connection rests.
    Rest,
}

impl Streams {
    /// Reads the next connection of the round with this work, for one turn, and gives its messages to the dispatcher. Returns the number of
    /// messages, and pieces between them; `None` if no connection is left.
    pub(crate) fn read_next<S: Service, X: Extension<S>>(
        &mut self,
        work: Work,
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) -> Option<usize> {
        let (slot, generation) = self.watch.queue.pop(work)?;
        let Some(connection) = self.same(slot, generation) else { return Some(0) };
        connection.flags.remove(Flags::QUEUED);
        let (waiting, remote) = (connection.waiting.len(), connection.remote);
        let (service, is_crowded) = (&dispatcher.service, dispatcher.is_crowded());
        let is_busy = service.is_overloaded() || is_crowded;
        self.turn = Turn::new(&self.bounds, waiting, service.has_room(remote), is_busy);
        let budget = self.turn.budget;
        let mut scratch = std::mem::take(&mut self.scratch);
        let end = self.read_into(&mut scratch, slot, generation, now, dispatcher);
        self.scratch = scratch;
        match (end, self.same(slot, generation)) {
            (TurnEnd::More, Some(_)) => self.make_ready(slot, now.mono),
            (TurnEnd::Rest, Some(connection)) => {
                connection.flags.insert(Flags::PAUSED);
                self.rests.begin((slot, generation), now.mono);
            }
            _ => (),
        }
        Some(budget.saturating_sub(self.turn.budget))
    }

    fn read_into<S: Service, X: Extension<S>>(
        &mut self,
        scratch: &mut [u8],
        slot: u32,
        generation: u32,
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) -> TurnEnd {
        let (mut is_empty, mut last_stamp) = (false, None);
        let (scratch, _) = scratch.split_at_mut(self.turn.room(scratch.len()));
        // Where each message has a time of arrival anyway, nothing is measured.
        let has_timestamps = dispatcher.has_timestamps();
        let is_stamped = has_timestamps || self.wait.is_of((slot, generation));
        for _ in 0..READS {
            if self.turn.budget > 0 && self.same(slot, generation).is_some_and(|c| c.over_budget) {
                self.continue_backlog(slot, now, dispatcher);
            }
            let Some(connection) = self.same(slot, generation) else { return TurnEnd::Empty };
            if connection.over_budget {
                break;
            }
            let Some(stream) = connection.stream.as_ref().filter(|_| !is_empty) else {
                return self.end_empty(slot, generation, last_stamp, now, has_timestamps);
            };
            let result = match is_stamped {
                true => timestamp::read(stream.as_fd(), scratch),
                false => stream.read(scratch).map(|n| (n, None)),
            };
            let (n, stamp) = match result {
                Ok((0, _)) => {
                    self.peer_finished(slot);
                    if let Some(connection) = self.same(slot, generation) {
                        connection.flags.insert(Flags::READ_DONE);
                    }
                    return TurnEnd::Empty;
                }
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    return self.end_empty(slot, generation, last_stamp, now, has_timestamps);
                }
                Err(error) => {
                    self.fail(slot, &error);
                    return TurnEnd::Empty;
                }
            };
            last_stamp = stamp.or(last_stamp);
            // As for UDP, a short read means that the socket is empty; but no event follows that of an end behind the data.
            is_empty = n < scratch.len() && !connection.flags.has(Flags::READ_CLOSED);
            // Data after the end of the peer's side are ignored.
            if !connection.half_closed {
                connection.peer.last_read = now.mono;
                self.counters.stream_bytes_in.add(n as u64);
                if let Some(reading) = dispatcher.read_clocks() {
                    dispatcher.set_arrival(reading, stamp);
                }
                self.received(slot, &mut scratch[..n], now, dispatcher);
            }
        }
        let rests = self.turn.rests;
        if !has_timestamps {
            // A connection that rests waits for another reason than the load of this shard.
            self.note_turn(slot, generation, !rests, last_stamp, now);
        }
        if rests {
            self.counters.pauses.add(1);
            return TurnEnd::Rest;
        }
        TurnEnd::More
    }

    /// Ends a turn that has read all data.
    #[inline]
    fn end_empty(&mut self, slot: u32, generation: u32, stamp: Option<i64>, now: Now, has_timestamps: bool) -> TurnEnd {
        if !has_timestamps {
            self.note_turn(slot, generation, false, stamp, now);
        }
        TurnEnd::Empty
    }

    /// Measures the wait of a connection that has more data than a turn takes. `full`: whether this turn left some; `stamp`: last time stamp
    /// of the data that were read.
    #[inline]
    fn note_turn(&mut self, slot: u32, generation: u32, full: bool, stamp: Option<i64>, now: Now) {
        if full || self.wait.is_of((slot, generation)) {
            let mut wait = std::mem::take(&mut self.wait);
            if let Some(stream) = self.same(slot, generation).and_then(|connection| connection.stream.as_ref()) {
                wait.turn_ended((slot, generation), stream.as_fd(), full, stamp, now.mono);
            }
            self.wait = wait;
        }
    }

    /// Continues with data of an earlier turn.
    #[cold]
    fn continue_backlog<S: Service, X: Extension<S>>(
        &mut self,
        slot: u32,
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) {
        let Some(connection) = self.connection(slot) else { return };
        connection.over_budget = false;
        connection.begin_partial_again(now);
        self.split(slot, &mut [], now, dispatcher);
        if self.connection(slot).is_some_and(|c| !c.over_budget && c.layer.as_ref().is_some_and(|l| l.tls.is_some())) {
            // These are TLS data after the messages.
            self.received(slot, &mut [], now, dispatcher);
        }
    }

    pub(crate) fn received<S: Service, X: Extension<S>>(
        &mut self,
        slot: u32,
        bytes: &mut [u8],
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) {
        if self.connection(slot).is_some_and(|connection| connection.phase == Phase::Header) {
            return self.balancer_header(slot, bytes, now, dispatcher);
        }
        let mut plain = std::mem::take(&mut self.plain);
        plain.clear();
        let Some(tls) = self.connection(slot).and_then(|c| c.layer.as_mut()).and_then(|l| l.tls.as_mut()) else {
            self.plain = plain;
            return self.split(slot, bytes, now, dispatcher);
        };
        let result = decrypt(tls, bytes, &mut plain);
        self.advance(slot);
        if !plain.is_empty() {
            self.split(slot, &mut plain, now, dispatcher);
        }
        self.plain = plain;
        if self.connection(slot).is_some_and(|c| c.over_budget) {
            // The end of the connection follows its data.
            return;
        }
        match result {
            Ok(false) => (),
            Ok(true) => self.peer_finished(slot),
            Err(error) => {
                // A TLS 1.3 client completes its handshake before the server reports whether it accepts the client's
                // certificate (RFC 8446 appendix E.1).
                let open = self.connection(slot).filter(|c| c.phase == Phase::Open).map(|c| c.remote);
                if let (Some(remote), Some(on_failure)) = (open, &self.network.settings.on_failure) {
                    on_failure.call(remote, &error);
                }
                self.fail(slot, &error);
            }
        }
    }

    /// Splits decrypted bytes into handshakes, frames and messages.
    fn split<S: Service, X: Extension<S>>(
        &mut self,
        slot: u32,
        bytes: &mut [u8],
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) {
        let Some(connection) = self.connection(slot) else { return };
        let mut kept = std::mem::take(&mut connection.partial);
        let was_partial = !kept.is_empty();
        let (mut at, expected) = if was_partial {
            kept.extend_from_slice(bytes);
            self.consume(slot, &mut kept, now, dispatcher)
        } else {
            self.consume(slot, bytes, now, dispatcher)
        };
        let Some(behind) = self.connection(slot).map(|c| c.over_budget) else { return };
        let had = was_partial && at == 0;
        if was_partial {
            at = at.min(kept.len());
            kept.drain(..at);
        } else if at < bytes.len() {
            let rest = &bytes[at..];
            if behind {
                kept = std::mem::take(&mut self.rest);
            }
            kept.reserve_exact(expected.unwrap_or(0).max(rest.len()));
            kept.extend_from_slice(rest);
        }
        let Some(connection) = self.connection(slot) else { return };
        if kept.is_empty() {
            // No buffer is held while no message is incomplete.
            connection.note_whole();
            if was_partial {
                if (self.rest.capacity()..=2 * self.scratch.len()).contains(&kept.capacity()) {
                    self.rest = kept;
                }
                self.charge_source(slot);
            }
            return;
        }
        connection.partial = kept;
        if !had {
            connection.note_partial();
        }
        if self.charge_source(slot) {
            self.schedule(slot);
        }
    }

    /// Handles all complete parts. Returns the number of consumed bytes, and the size of the incomplete part if the
    /// size is known.
    fn consume<S: Service, X: Extension<S>>(
        &mut self,
        slot: u32,
        bytes: &mut [u8],
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) -> (usize, Option<usize>) {
        let mut at = 0;
        while at < bytes.len() {
            let is_over = self.turn.budget == 0;
            let Some(connection) = self.connection(slot) else { break };
            let websocket = matches!(connection.transport, Transport::Ws | Transport::Wss);
            // A frame is unmasked in place, so its message cannot be given back.
            let is_refused = websocket && connection.phase == Phase::Open && dispatcher.is_crowded();
            if is_over || is_refused {
                connection.over_budget = true;
                if is_refused {
                    self.turn.refuse();
                }
                break;
            }
            let step = match connection.phase {
                Phase::Dialling | Phase::Header | Phase::Tls => break,
                Phase::Ws => self.websocket_handshake(slot, &bytes[at..]),
                Phase::Open if websocket => self.websocket_frame(slot, &mut bytes[at..], now, dispatcher),
                Phase::Open => self.sip_message(slot, &bytes[at..], now, dispatcher),
            };
            match step {
                Ok(n) => {
                    at += n;
                    self.turn.budget -= 1;
                }
                Err(expected) => return (at, expected),
            }
        }
        (at, None)
    }

    /// Handles the opening handshake of WebSocket.
    fn websocket_handshake(&mut self, slot: u32, bytes: &[u8]) -> Result<usize, Option<usize>> {
        let end = match ws::header_end(bytes) {
            Ok(Some(end)) => end,
            Ok(None) => return Err(None),
            Err(reason) => {
                self.close(slot, &reason);
                return Ok(bytes.len());
            }
        };
        let Some(connection) = self.connection(slot) else { return Ok(bytes.len()) };
        let refused = if connection.is_accepted() {
            match ws::answer(&bytes[..end]) {
                Ok(answer) => {
                    self.transmit(slot, &answer);
                    None
                }
                Err((answer, reason)) => {
                    self.transmit(slot, answer);
                    Some(reason)
                }
            }
        } else {
            let key = connection.layer().key.take().unwrap_or_default();
            ws::check(&bytes[..end], &key).err()
        };
        match refused {
            None => self.open(slot),
            Some(reason) => self.close(slot, &reason),
        }
        Ok(end)
    }

    /// Handles one WebSocket frame.
    fn websocket_frame<S: Service, X: Extension<S>>(
        &mut self,
        slot: u32,
        bytes: &mut [u8],
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) -> Result<usize, Option<usize>> {
        let limit = self.bounds.limits.message;
        let Some(connection) = self.connection(slot) else { return Ok(bytes.len()) };
        let found = match ws::frame(bytes, connection.is_accepted(), limit) {
            Ok(Some(found)) if found.length() <= bytes.len() => found,
            Ok(partial) => return Err(partial.map(|f| f.length())),
            Err(reason) => {
                self.refuse(slot, reason);
                return Ok(bytes.len());
            }
        };
        let payload = &mut bytes[found.header..found.length()];
        found.unmask(payload);
        match found.code {
            ws::PING => {
                self.transmit_frame(slot, ws::PONG, payload);
                self.report_keep_alive(slot, now, dispatcher);
            }
            ws::PONG => (),
            // This is the response to the close frame of this side; the server ends the connection below (RFC 6455
            // section 7.1.1).
            ws::CLOSE if connection.closing => (),
            ws::CLOSE => {
                self.transmit_frame(slot, ws::CLOSE, &payload[..payload.len().min(2)]);
                self.peer_finished(slot);
            }
            // A message begins inside another one, or a continuation has no beginning (RFC 6455 section 5.4).
            code if connection.layer().in_pieces != (code == ws::CONTINUATION) => {
                self.refuse(slot, "WebSocket frames out of order");
                return Ok(bytes.len());
            }
            // The usual case: one message in one frame.
            ws::TEXT | ws::BINARY if found.last => self.websocket_message(slot, payload, now, dispatcher),
            _ => {
                connection.note_partial();
                let layer = connection.layer();
                layer.in_pieces = true;
                layer.message.extend_from_slice(payload);
                if layer.message.len() > limit {
                    self.refuse(slot, "WebSocket message is larger than the limit");
                } else if found.last {
                    let message = std::mem::take(&mut layer.message);
                    layer.in_pieces = false;
                    self.websocket_message(slot, &message, now, dispatcher);
                    self.charge_source(slot);
                } else if self.charge_source(slot) {
                    self.schedule(slot);
                }
            }
        }
        Ok(found.length())
    }

    /// Handles a WebSocket message: one SIP message, or a ping (RFC 7118 sections 5.1 and 6).
    fn websocket_message<S: Service, X: Extension<S>>(
        &mut self,
        slot: u32,
        message: &[u8],
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) {
        if let Some(connection) = self.connection(slot) {
            connection.note_whole();
        }
        if message.iter().all(|b| matches!(b, b'\r' | b'\n')) {
            if message == b"\r\n\r\n" {
                self.counters.pings.add(1);
                self.report_keep_alive(slot, now, dispatcher);
                self.transmit_frame(slot, ws::TEXT, b"\r\n");
            }
            return;
        }
        self.arrive(slot, without_line_ends(message), now, dispatcher);
    }

    /// Handles one message of a stream (RFC 3261 section 18.3), or bytes between messages.
    fn sip_message<S: Service, X: Extension<S>>(
        &mut self,
        slot: u32,
        bytes: &[u8],
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) -> Result<usize, Option<usize>> {
        let limits = self.bounds.limits;
        let Some(connection) = self.connection(slot) else { return Ok(bytes.len()) };
        match frame::next(bytes, &mut connection.scanned, &limits) {
            Frame::Message(n) if !dispatcher.takes(now, &bytes[..n]) => {
                connection.over_budget = true;
                self.turn.refuse();
                Err(Some(n))
            }
            Frame::Message(n) => {
                self.arrive(slot, &bytes[..n], now, dispatcher);
                Ok(n)
            }
            // Keep-alive with CRLF (RFC 5626 section 4.4.1).
            Frame::Ping(n) => {
                self.counters.pings.add(1);
                self.report_keep_alive(slot, now, dispatcher);
                self.transmit(slot, b"\r\n");
                Ok(n)
            }
            Frame::Skip(n) => Ok(n),
            Frame::Partial(expected) => Err(expected),
            Frame::Broken(reason) => {
                self.refuse(slot, reason.text());
                Ok(bytes.len())
            }
        }
    }

    /// Reports a keep-alive of the peer to the service, but few of one connection.
    fn report_keep_alive<S: Service, X: Extension<S>>(
        &mut self,
        slot: u32,
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) {
        if self.connection(slot).is_some_and(|connection| connection.peer.note_keep_alive(now.mono)) {
            dispatcher.service.kept_alive(now, self.flow(slot));
        }
    }

    /// Ends a connection whose data are no messages.
    #[cold]
    fn refuse(&mut self, slot: u32, reason: &'static str) {
        if let Some(remote) = self.connection(slot).map(|connection| connection.remote)
            && self.may_log(remote)
        {
            tracing::info!(%remote, reason, "stream cannot be cut into messages");
        }
        self.counters.frames_broken.add(1);
        self.close(slot, &reason);
    }

    fn arrive<S: Service, X: Extension<S>>(
        &mut self,
        slot: u32,
        message: &[u8],
        now: Now,
        dispatcher: &mut Dispatcher<S, X>,
    ) {
        let flow = Some(self.flow(slot));
        let Some(connection) = self.connection(slot) else { return };
        let (transport, listener, remote) = (connection.transport, connection.listener, connection.remote);
        connection.note_whole();
        if connection.requests.note_received(message, now.mono) {
            self.schedule(slot);
        }
        self.counters.stream_messages_in.add(1);
        dispatcher.arrive(now, &Arrival { transport, listener, remote, flow }, message);
    }
}
