//! Dedicated connections of the service: the shard takes them over from the dedicated sockets, and ends each with the
//! closing handshake of its protocols.

use super::Streams;
use super::dial::Dial;
use crate::connection::{Connection, Phase};
use crate::dedicated::Opening;
use crate::{clock, ws};
use std::ops::Range;
use strowger_core::{Flow, Now, Transport};

impl Streams {
    /// Takes over a dedicated connection that the service has opened.
    pub(crate) fn take_over(&mut self, opening: Opening, now: Now) -> u32 {
        let Opening { flow, request, stream } = opening;
        // Dedicated sockets have a bound of their own.
        self.network.sources.count();
        let mut connection = Connection::dialling(request.transport, request.listener, request.to, now);
        connection.name = request.name;
        connection.dedicated = Some(flow);
        connection.layer().connect_by = now.mono + self.bounds.connect_timeout.as_millis() as u64;
        let slot = self.add(connection);
        let generation = self.slots[slot as usize].generation;
        self.dials.push(Dial { slot, generation, from: None, port: 0, to: request.to, begun: Some(stream) });
        slot
    }

    /// Queues a message for the dedicated connection in this slot, if it still exists.
    pub(crate) fn post_dedicated(&mut self, slot: u32, flow: Flow, range: Range<usize>, token: u64) {
        match self.connection(slot) {
            Some(connection) if connection.dedicated == Some(flow) && !connection.closing => {
                self.push(slot, range, self.index, token);
            }
            _ => self.fail_message(self.index, token),
        }
    }

    /// Ends a dedicated connection that the service has closed.
    pub(crate) fn close_dedicated(&mut self, slot: u32, flow: Flow) {
        let now = clock::now().mono;
        let Some(connection) = self.connection(slot).filter(|c| c.dedicated == Some(flow)) else { return };
        connection.closing = true;
        if connection.phase == Phase::Open {
            return self.shut_down(slot);
        }
        // Sent messages are still to arrive.
        connection.since = now;
        if connection.layer().pending.is_empty() {
            return self.close(slot, &"nothing was said over it");
        }
        self.schedule(slot);
    }

    /// Closes each protocol once no data wait; then the peer has time to close its side (RFC 6455 section 7.1.1, RFC
    /// 8446 section 6.1).
    pub(super) fn shut_down(&mut self, slot: u32) {
        let now = clock::now().mono;
        let Some(connection) = self.connection(slot) else { return };
        if !connection.waiting.is_empty() {
            return;
        }
        connection.since = now;
        if matches!(connection.transport, Transport::Ws | Transport::Wss) {
            // The server ends the connection below (section 7.1.1).
            self.transmit_frame(slot, ws::CLOSE, &ws::NORMAL.to_be_bytes());
        } else {
            if let Some(tls) = connection.layer.as_mut().and_then(|l| l.tls.as_mut()) {
                tls.send_close_notify();
            }
            self.flush_tls(slot);
            if let Some(stream) = self.connection(slot).and_then(|c| c.stream.as_ref()) {
                stream.shut_down_writing();
            }
        }
        self.schedule(slot);
    }
}
