//! Output of connections: bytes are written immediately as far as the sockets take them, and the remaining bytes when
//! the sockets have room.

use super::{PARTS, Piece, Streams};
use crate::connection::Phase;
use crate::ws;
use std::io::{ErrorKind, IoSlice, Write};
use strowger_core::{Now, Transport};

impl Streams {
    /// Writes the messages of the round, all of one connection together.
    #[inline]
    pub(crate) fn write_round(&mut self, bytes: &[u8], now: Now) {
        if !self.round.is_empty() {
            self.write_pieces(bytes, now);
        }
    }

    #[inline(never)]
    fn write_pieces(&mut self, bytes: &[u8], now: Now) {
        let mut round = std::mem::take(&mut self.round);
        // Unlike a stable sort this one allocates no memory.
        round.sort_unstable_by_key(|piece| (piece.slot, piece.order));
        for pieces in round.chunk_by(|a, b| a.slot == b.slot) {
            let slot = pieces[0].slot;
            let Some(connection) = self.connection(slot) else { continue };
            let mut is_quiet = false;
            for piece in pieces {
                is_quiet |= connection.requests.note_sent(&bytes[piece.range.clone()], now.mono);
            }
            self.write(pieces, bytes);
            self.close_if_done(slot);
            if is_quiet {
                self.schedule(slot);
            }
        }
        round.clear();
        self.round = round;
    }

    fn write(&mut self, pieces: &[Piece], bytes: &[u8]) {
        let slot = pieces[0].slot;
        let bound = self.bounds.write_queue;
        let Some(connection) = self.connection(slot) else { return };
        if connection.phase == Phase::Open && connection.layer.is_none() {
            return self.write_plain(pieces, bytes);
        }
        let masked = !connection.is_accepted();
        let open = connection.phase == Phase::Open;
        let websocket = matches!(connection.transport, Transport::Ws | Transport::Wss);
        let mut clear = std::mem::take(&mut self.encryption.clear);
        clear.clear();
        for piece in pieces {
            let message = &bytes[piece.range.clone()];
            if websocket {
                self.frames += 1;
                ws::write(kind(message), message, masked.then(|| ws::key(self.frames)), &mut clear);
            } else {
                clear.extend_from_slice(message);
            }
        }
        if open {
            self.counters.stream_messages_out.add(pieces.len() as u64);
            self.transmit(slot, &clear);
        } else if let Some(connection) = self.connection(slot) {
            let layer = connection.layer();
            layer.pending_messages += pieces.len() as u32;
            layer.pending.extend_from_slice(&clear);
            let too_much = layer.pending.len() > bound;
            self.counters.stream_bytes_waiting.add(clear.len() as u64);
            if too_much {
                self.close(slot, &"too much waits for it to be made");
            } else {
                self.charge_source(slot);
            }
        }
        self.encryption.clear = clear;
    }

    /// Writes without a copy, unless the socket is full.
    fn write_plain(&mut self, pieces: &[Piece], bytes: &[u8]) {
        let slot = pieces[0].slot;
        self.counters.stream_messages_out.add(pieces.len() as u64);
        for pieces in pieces.chunks(PARTS) {
            let Some(connection) = self.connection(slot) else { return };
            let mut sent = 0;
            if let (true, Some(stream)) = (connection.waiting.is_empty(), &connection.stream) {
                let mut parts = [IoSlice::new(&[]); PARTS];
                for (part, piece) in parts.iter_mut().zip(pieces) {
                    *part = IoSlice::new(&bytes[piece.range.clone()]);
                }
                match stream.write_vectored(&parts[..pieces.len()]) {
                    Ok(n) => sent = n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => (),
                    Err(error) => return self.fail(slot, &error),
                }
            }
            self.counters.stream_bytes_out.add(sent as u64);
            for piece in pieces {
                let message = &bytes[piece.range.clone()];
                let skip = sent.min(message.len());
                sent -= skip;
                if skip < message.len() {
                    self.keep(slot, &message[skip..]);
                }
            }
        }
    }

    /// Sends plain bytes, encrypted if the connection has TLS.
    pub(crate) fn transmit(&mut self, slot: u32, clear: &[u8]) {
        let Some(connection) = self.connection(slot) else { return };
        match connection.layer.as_mut().and_then(|l| l.tls.as_mut()) {
            None => self.send(slot, clear),
            Some(tls) => match tls.writer().write_all(clear) {
                Ok(()) => self.flush_tls(slot),
                Err(error) => self.fail(slot, &error),
            },
        }
    }

    /// Sends a WebSocket control frame.
    pub(crate) fn transmit_frame(&mut self, slot: u32, code: u8, payload: &[u8]) {
        let Some(masked) = self.connection(slot).map(|c| !c.is_accepted()) else { return };
        let mut frame = Vec::with_capacity(payload.len() + 8);
        self.frames += 1;
        ws::write(code, payload, masked.then(|| ws::key(self.frames)), &mut frame);
        self.transmit(slot, &frame);
    }

    /// Sends the pending output of the TLS session.
    pub(crate) fn flush_tls(&mut self, slot: u32) {
        let mut wire = std::mem::take(&mut self.encryption.wire);
        wire.clear();
        if let Some(tls) = self.connection(slot).and_then(|c| c.layer.as_mut()).and_then(|l| l.tls.as_mut()) {
            while tls.wants_write() && tls.write_tls(&mut wire).is_ok() {}
        }
        if !wire.is_empty() {
            self.send(slot, &wire);
        }
        self.encryption.wire = wire;
    }

    /// Sends bytes unchanged.
    fn send(&mut self, slot: u32, bytes: &[u8]) {
        let Some(connection) = self.connection(slot) else { return };
        let mut sent = 0;
        if let (true, Some(stream)) = (connection.waiting.is_empty(), &connection.stream) {
            while sent < bytes.len() {
                match stream.write(&bytes[sent..]) {
                    Ok(n) => sent += n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(error) => return self.fail(slot, &error),
                }
            }
        }
        self.counters.stream_bytes_out.add(sent as u64);
        if sent < bytes.len() {
            self.keep(slot, &bytes[sent..]);
        }
    }

    /// Keeps bytes until the socket has room for them.
    fn keep(&mut self, slot: u32, bytes: &[u8]) {
        let bound = self.bounds.write_queue;
        let Some(connection) = self.connection(slot) else { return };
        let first = connection.waiting.is_empty();
        connection.waiting.extend_from_slice(bytes);
        let waiting = connection.waiting.len();
        self.counters.stream_bytes_waiting.add(bytes.len() as u64);
        if first {
            // No event follows a write that was cut short, before one that the socket refuses.
            self.watch.resumable.push(slot);
        }
        if waiting > bound {
            self.counters.slow_closed.add(1);
            self.close(slot, &"the peer does not read");
        } else {
            self.charge_source(slot);
        }
    }

    /// Writes waiting bytes of the connections whose sockets may have room. An event follows when a socket that has refused bytes has room.
    #[inline]
    pub(crate) fn resume(&mut self) {
        while let Some(slot) = self.watch.resumable.pop() {
            self.resume_one(slot);
        }
    }

    #[cold]
    fn resume_one(&mut self, slot: u32) {
        let counters = self.counters.clone();
        let Some(connection) = self.connection(slot).filter(|c| !c.waiting.is_empty()) else { return };
        while let (false, Some(stream)) = (connection.waiting.is_empty(), &connection.stream) {
            match stream.write(&connection.waiting) {
                Ok(n) => {
                    counters.stream_bytes_out.add(n as u64);
                    counters.stream_bytes_waiting.less(n as u64);
                    connection.waiting.drain(..n);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(error) => return self.fail(slot, &error),
            }
        }
        connection.waiting = Vec::new();
        let leaving = connection.closing;
        self.charge_source(slot);
        if leaving {
            self.shut_down(slot);
        }
        self.close_if_done(slot);
    }
}

/// Returns the frame type: text, unless the message is not UTF-8 (RFC 7118 section 4.2).
fn kind(message: &[u8]) -> u8 {
    if std::str::from_utf8(message).is_ok() { ws::TEXT } else { ws::BINARY }
}
