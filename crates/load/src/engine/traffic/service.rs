//! The shard's service interface of the calls.

use super::{FLOOD, Order, PARTING, Traffic, known};
use crate::engine::bound::Bound;
use crate::engine::call::{Call, Kind};
use crate::engine::incoming;
use crate::engine::run::Load;
use crate::engine::sockets::Users;
use crate::engine::stage::Go;
use crate::engine::watch::Passage;
use crate::engine::wheel::{Alarm, Fate};
use std::net::SocketAddr;
use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
use strowger_measure::{Failure, Outcome, SendFailure};
use strowger_message::Name;
use strowger_net::dedicated::{self, DedicatedSockets};
use strowger_net::{Ending, Service, ServiceWithSockets, Unsent, clock};

impl Drop for Traffic {
    /// Closes the last interval at its actual end.
    fn drop(&mut self) {
        self.world.count_media();
        self.world.books.last(clock::micros());
    }
}

impl Traffic {
    /// Returns the slots of calls that may use a connection.
    fn slots(&self, users: &Users) -> std::ops::Range<usize> {
        match *users {
            Users::Nobody => 0..0,
            Users::One(slot) => slot as usize..slot as usize + 1,
            Users::Several => 0..self.calls.len(),
        }
    }

    /// Returns the time of the next work without a message, µs.
    fn wanted(&mut self) -> u64 {
        let mut ms = self.tick;
        if self.reconnect_at != 0 {
            // All other work waits for the reconnection.
            return ms.min(self.reconnect_at) * 1_000;
        }
        if let Some(linger) = self.world.ways.as_ref().and_then(|ways| ways.deadline()) {
            ms = ms.min(linger);
        }
        if self.parting {
            ms = ms.min(self.world.ms + PARTING);
        }
        if self.leave_from.is_some() {
            ms = ms.min(self.world.ms + 1);
        }
        // A schedule that has not begun has no end.
        let mut at = (ms * 1_000).min(if self.waiting { self.opens_at } else { self.bound.at() });
        let calls = &mut self.calls;
        let fate = |alarm: Alarm| {
            let call = &mut calls[alarm.slot as usize];
            if !call.live || call.generation != alarm.generation || call.alarm != alarm.due {
                return Fate::Forgotten;
            }
            let due = call.due();
            if due <= alarm.due {
                return Fate::Expected;
            }
            call.alarm = due;
            if due == u64::MAX { Fate::Forgotten } else { Fate::Later(due) }
        };
        if let Some(alarm) = self.wheel.expected(fate) {
            at = at.min(alarm * 1_000);
        }
        if self.makes_calls() && self.may_begin() && self.world.open < self.limit {
            if self.world.run.load.users.is_some() {
                if !self.idle_users.is_empty() {
                    at = 0;
                }
            } else if let Some(next) = self.next_begin() {
                at = at.min(next);
            }
        }
        at
    }

    /// Handles a message.
    fn take(&mut self, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if self.uninitialised {
            self.initialise(out);
        }
        if self.world.frozen {
            return;
        }
        self.heard += 1;
        let parsed = self.world.index.parse(bytes, &self.world.limits);
        self.world.parsed = None;
        if parsed.is_err() && memchr::memmem::find(bytes, b"SIP/2.0").is_none() {
            let text = String::from_utf8_lossy(bytes).into_owned();
            return self.world.warn(format_args!("non SIP message discarded: \"{text}\" ({})", bytes.len()));
        }
        let Some(line) = self.world.index.first(Name::CallId) else {
            return self.world.warn(format_args!("SIP message without Call-ID discarded"));
        };
        let whole = &bytes[line.value as usize..line.value_end as usize];
        let name = known(whole, self.world.run.behaviour.keep_slashes);
        if let Some(watch) = &mut self.world.watch {
            watch.exchange(Passage::Received, arrival.transport, arrival.remote, name, bytes);
        }
        let hash = incoming::hash(name);
        let calls = &self.calls;
        let keep = self.world.run.behaviour.keep_slashes;
        if let Some(&slot) = self.table.find(hash, |&s| {
            let call = &calls[s as usize];
            call.hash == hash && known(call.id(), keep) == name
        }) {
            return self.drive(slot, out, |stage| stage.receive(bytes));
        }
        if self.refusing && self.refuse(hash, arrival, bytes, out) {
            return;
        }
        if self.makes_calls() || self.begins_by_word() || self.dead.knows(hash) {
            return self.stray(hash, name, arrival, bytes, out);
        }
        if !self.may_begin() {
            self.world.books.out_of_call(bytes.len());
            self.world.ledger.out_of_call += 1;
            if let Some(watch) = &mut self.world.watch {
                watch.message(Passage::Discarded, arrival.transport, name, bytes);
            }
            return;
        }
        if !self.disown(hash, arrival, bytes, out) {
            self.accept(hash, Kind::Main, name, arrival, bytes, out);
        }
    }
}

impl Service for Traffic {
    type Answer = Order;
    type Record = ();

    fn receive(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if let came @ 1.. = std::mem::take(&mut self.stamped) {
            self.world.came = came.min(self.world.now);
        }
        self.take(arrival, bytes, out);
        self.world.came = self.world.now;
    }

    fn poll(&mut self, _: Now, _: &mut Outbox) {}

    fn end(&mut self, _: Now, out: &mut Outbox) {
        // Reading may have taken a while.
        self.world.at(clock::micros());
        if self.uninitialised {
            self.initialise(out);
        }
        if self.waiting && self.opens_at <= self.world.now {
            self.begin_schedule(self.opens_at);
        }
        if self.reconnect_at == 0 {
            self.alarms(out);
            self.begin_due(out);
        } else if self.reconnect_at <= self.world.ms {
            self.reconnect(out);
        }
        self.count_due();
        if let Some(ways) = &mut self.world.ways {
            ways.close_due(self.world.ms);
        }
        self.take_leave(out);
        self.finish_if_over(out);
        self.dead.tidy(self.world.ms);
        self.ended.tidy(self.world.ms);
        if self.world.ms >= self.tick {
            self.tick = self.world.ms + 1_000;
            self.world.ledger.open = self.world.open;
            self.world.count_media();
        }
        self.world.ledger.peak = self.world.ledger.peak.max(self.world.open);
        if let Some(watch) = &mut self.world.watch {
            watch.flush();
        }
        self.world.departing = std::mem::take(&mut self.world.posted);
        let stalls = self.presence.end(clock::micros(), clock::processor_micros);
        if !self.waiting {
            stalls.into_iter().flatten().for_each(|stall| self.world.books.stalled(stall));
        }
    }

    /// None: all work is done in [`Service::end`].
    fn deadline(&mut self) -> Option<u64> {
        None
    }

    fn answered(&mut self, _: Now, order: Order, out: &mut Outbox) {
        match order {
            Order::Rate(rate) => {
                self.pace.set_rate(rate, self.world.now);
                self.wanted.set_rate(rate, self.world.now);
            }
            Order::Profile(profile) => {
                self.pace.set_profile(&profile, self.world.now);
                self.wanted.set_profile(&profile, self.world.now);
                self.bound = Bound::of(&Load { profile, ..self.world.run.load.clone() }, self.world.now);
            }
            Order::Limit(limit) => {
                let more = limit.saturating_sub(self.limit.max(self.world.open));
                if more > 0 {
                    self.world.places.free(self.world.now, more);
                }
                self.limit = limit;
            }
            Order::Users(users) => self.set_users(users),
            // Calls with connections of their own need no shared one.
            Order::Connect if self.world.ways.is_some() => (),
            Order::Connect => self.connect(out),
            Order::Begin(None) => self.begin_schedule(clock::micros()),
            // The round at that time begins it.
            Order::Begin(Some(at)) => self.opens_at = at,
            Order::Pause(paused) => {
                self.paused = paused;
                self.idle_users.iter_mut().for_each(|(_, since)| *since = self.world.now);
            }
            Order::Heard(heard) => self.hear(heard, out),
            Order::Quit => self.quitting = true,
            Order::Close => self.close(out),
            // A frozen run receives no answers.
            Order::Leave if self.world.frozen => self.end_calls(true, out),
            Order::Leave => {
                self.quitting = true;
                self.leave_from = Some(0);
                self.leave_since = self.world.now;
            }
            Order::End { goodbye } => self.end_calls(goodbye, out),
            Order::Follow(following) => self.follow(*following, out),
            Order::Report(to) => {
                self.world.ledger.open = self.world.open;
                let _ = to.try_send(self.world.ledger.clone());
            }
        }
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.unsent(now, token, Unsent::Here, out);
    }

    fn unsent(&mut self, _: Now, token: u64, cause: Unsent, out: &mut Outbox) {
        let (slot, generation) = (token as u32, (token >> 32) as u32);
        let Some(call) = self.calls.get(slot as usize) else { return };
        // A refused connection is the other side's doing; a failed handshake may be ours. The counters of all sockets,
        // not the shards, count messages that this machine did not send.
        let shook = matches!(cause, Unsent::TlsHandshake | Unsent::WebSocketHandshake);
        if call.target.transport.is_reliable() && !shook {
            self.world.books.send_failed(SendFailure::Remote);
        }
        if !call.live || call.generation != generation || call.counted {
            return;
        }
        let failure = match cause {
            Unsent::TlsHandshake => Failure::TlsHandshake,
            Unsent::WebSocketHandshake => Failure::WebSocketHandshake,
            _ if call.target.transport.is_reliable() => Failure::TcpConnect,
            _ => Failure::CannotSendMessage,
        };
        self.drive(slot, out, |stage| {
            stage.finish(Outcome::Failed(failure));
            Go::Over
        });
    }

    /// Ends a client transaction as if a 503 had come (RFC 3261 section 18.4).
    fn unreachable(&mut self, _: Now, to: SocketAddr, quoted: &[u8], out: &mut Outbox) {
        let Some(name) = incoming::quoted_call_id(quoted) else { return };
        let keep = self.world.run.behaviour.keep_slashes;
        let name = known(name, keep);
        let calls = &self.calls;
        let found = self.table.find(incoming::hash(name), |&s| known(calls[s as usize].id(), keep) == name).copied();
        let waits = |call: &Call| call.target.address == to && !call.counted && call.waits_for_answer_to(quoted);
        let Some(slot) = found.filter(|&slot| waits(&self.calls[slot as usize])) else { return };
        self.world.books.send_failed(SendFailure::Remote);
        self.drive(slot, out, |stage| {
            stage.finish(Outcome::Failed(Failure::Refused));
            Go::Over
        });
    }

    fn closed(&mut self, now: Now, flow: Flow, out: &mut Outbox) {
        self.ended(now, flow, Ending::Finished, out);
    }

    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }

    fn import(&mut self, _: Now, _: (), _: &mut Outbox) {}
}

impl ServiceWithSockets for Traffic {
    fn begin(&mut self, now: Now) {
        let micros = clock::micros();
        self.world.burst += u64::from(self.heard < FLOOD);
        self.heard = 0;
        self.world.sent_by(micros);
        self.world.at(micros);
        self.world.wall = now.wall;
        if !self.waiting {
            self.world.books.tick(micros);
        }
        self.presence.begin(micros, clock::processor_micros);
        if self.world.open >= self.limit && !self.world.run.load.keep_limited {
            while self.pace.due(micros).is_some() {}
        }
    }

    #[inline]
    fn arrived(&mut self, came: u64, now: u64) {
        // Connections are read between two rounds.
        if now > self.world.now {
            self.world.at(now);
            if !self.waiting {
                self.world.books.tick(now);
            }
        }
        self.world.books.receive_lag(now.saturating_sub(came));
        self.presence.read(came, now, clock::processor_micros);
        self.stamped = came;
    }

    fn wake(&mut self, _: Option<u64>) -> Option<u64> {
        self.world.sent_by(clock::micros());
        let at = self.wanted();
        self.presence.sleep_until(at);
        Some(at)
    }

    fn connected(&mut self, flow: Flow, at: u64) {
        if let Some((took, _)) = self.world.ways.as_mut().and_then(|ways| ways.advance(flow, at)) {
            self.world.books.connected(took);
        }
    }

    fn opened(&mut self, flow: Flow, at: u64) {
        let Some((took, users)) = self.world.ways.as_mut().and_then(|ways| ways.advance(flow, at)) else { return };
        if self.world.run.transport != Transport::Tcp {
            self.world.books.shook_hands(took);
        }
        for slot in self.slots(&users) {
            let call = &mut self.calls[slot];
            if call.live && call.target.flow == Some(flow) {
                call.book.connected(at);
            }
        }
    }

    fn ended(&mut self, _: Now, flow: Flow, ending: Ending, out: &mut Outbox) {
        let users = match &mut self.world.ways {
            Some(ways) if dedicated::is_dedicated(flow) => ways.lose(flow),
            _ => self.riders.end(flow),
        };
        let has = |call: &Call| call.live && call.target.flow == Some(flow);
        if !dedicated::is_dedicated(flow) && self.reconnects() {
            return self.lose_connection(ending, out);
        }
        let slots = match users {
            Users::Nobody => return,
            Users::One(slot) if has(&self.calls[slot as usize]) => slot..slot + 1,
            Users::One(_) | Users::Several => 0..self.calls.len() as u32,
        };
        for slot in slots {
            let call = &self.calls[slot as usize];
            if has(call) && !call.counted {
                self.drive(slot, out, |stage| stage.lose_connection(ending));
            }
        }
    }

    fn sockets(&mut self) -> Option<&mut DedicatedSockets> {
        self.world.ways.as_mut().map(|ways| &mut ways.sockets)
    }
}
