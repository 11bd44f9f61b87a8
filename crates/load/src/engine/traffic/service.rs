//! The shard's service interface of the calls.

use super::{FLOOD, PARTING, ShardCommand, Traffic, known};
use crate::engine::bound::Bound;
use crate::engine::call::{Call, CallKind};
use crate::engine::call_runner::Progress;
use crate::engine::received_message;
use crate::engine::run::Load;
use crate::engine::sockets::Users;
use crate::engine::watch::Passage;
use crate::wheel::{Alarm, Fate};
use std::net::SocketAddr;
use strowger_core::{Arrival, Flow, Now, Outbox, Transport};
use strowger_measure::{CallOutcome, Counter, Failure, SendFailure};
use strowger_message::Name;
use strowger_net::dedicated::{self, DedicatedSockets};
use strowger_net::{Ending, Service, ServiceWithSockets, Unsent, clock};

impl Drop for Traffic {
    /// Closes the last interval at its actual end.
    fn drop(&mut self) {
        self.shard.helper.flush();
        self.shard.count_media();
        self.shard.recorder.last(clock::micros());
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

    /// Returns the time at which the shard next has work even if no message arrives, µs.
    fn wanted(&mut self) -> u64 {
        let mut ms = self.tick;
        if self.reconnect_at != 0 {
            // All other work waits for the reconnection.
            return ms.min(self.reconnect_at) * 1_000;
        }
        if let Some(linger) = self.shard.call_sockets.as_ref().and_then(|call_sockets| call_sockets.deadline()) {
            ms = ms.min(linger);
        }
        if self.parting {
            ms = ms.min(self.shard.ms + PARTING);
        }
        if self.leave_from.is_some() {
            ms = ms.min(self.shard.ms + 1);
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
        if self.makes_calls() && self.may_begin() && self.shard.open < self.limit {
            if self.shard.run.load.users.is_some() {
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
        if self.shard.frozen {
            return;
        }
        self.heard += 1;
        let parsed = self.shard.index.parse(bytes, &self.shard.limits);
        self.shard.parsed = None;
        if parsed.is_err() && memchr::memmem::find(bytes, b"SIP/2.0").is_none() {
            let text = String::from_utf8_lossy(bytes).into_owned();
            return self.shard.warn(format_args!("non SIP message discarded: \"{text}\" ({})", bytes.len()));
        }
        let Some(line) = self.shard.index.first(Name::CallId) else {
            return self.shard.warn(format_args!("SIP message without Call-ID discarded"));
        };
        let whole = &bytes[line.value as usize..line.value_end as usize];
        let name = known(whole, self.shard.run.behaviour.keep_slashes);
        if let Some(watch) = &mut self.shard.watch {
            watch.exchange(Passage::Received, arrival.transport, arrival.remote, name, bytes);
        }
        let hash = received_message::hash(name);
        let calls = &self.calls;
        let keep = self.shard.run.behaviour.keep_slashes;
        if let Some(&slot) = self.table.find(hash, |&s| {
            let call = &calls[s as usize];
            call.hash == hash && known(call.id(), keep) == name
        }) {
            return self.drive(slot, out, |runner| runner.receive(bytes));
        }
        if self.refusing && self.refuse(hash, arrival, bytes, out) {
            return;
        }
        if self.makes_calls() || self.begins_by_word() || self.dead.knows(hash) {
            return self.stray(hash, name, arrival, bytes, out);
        }
        if !self.may_begin() {
            self.shard.recorder.out_of_call(bytes.len());
            self.shard.stats.out_of_call += 1;
            if let Some(watch) = &mut self.shard.watch {
                watch.message(Passage::Discarded, arrival.transport, name, bytes);
            }
            return;
        }
        if !self.disown(hash, arrival, bytes, out) {
            self.accept(hash, CallKind::Main, name, arrival, bytes, out);
        }
    }
}

impl Service for Traffic {
    type ShardMessage = ShardCommand;
    type Record = ();

    fn receive(&mut self, _: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        if let came @ 1.. = std::mem::take(&mut self.stamped) {
            self.shard.came = came.min(self.shard.now);
        }
        self.take(arrival, bytes, out);
        self.shard.came = self.shard.now;
    }

    fn poll(&mut self, _: Now, _: &mut Outbox) {}

    fn end(&mut self, _: Now, out: &mut Outbox) {
        // Reading may have taken a while.
        self.shard.at(clock::micros());
        if self.uninitialised {
            self.initialise(out);
        }
        if self.waiting && self.opens_at <= self.shard.now {
            self.begin_schedule(self.opens_at);
        }
        if self.reconnect_at == 0 {
            self.alarms(out);
            self.begin_due(out);
        } else if self.reconnect_at <= self.shard.ms {
            self.reconnect(out);
        }
        self.count_due();
        if let Some(call_sockets) = &mut self.shard.call_sockets {
            call_sockets.close_due(self.shard.ms);
        }
        self.take_leave(out);
        self.finish_if_over(out);
        self.dead.tidy(self.shard.ms);
        self.ended.tidy(self.shard.ms);
        if self.shard.ms >= self.tick {
            self.tick = self.shard.ms + 1_000;
            self.shard.stats.open = self.shard.open;
            self.shard.count_media();
        }
        self.shard.stats.peak = self.shard.stats.peak.max(self.shard.open);
        if let Some(watch) = &mut self.shard.watch {
            watch.flush();
        }
        self.shard.departing = std::mem::take(&mut self.shard.posted);
        let stalls = self.stall_detector.end(clock::micros(), clock::processor_micros);
        if !self.waiting {
            stalls.into_iter().flatten().for_each(|stall| self.shard.recorder.stalled(stall));
        }
    }

    /// Returns `None`: all work is done in [`Service::end`].
    fn deadline(&mut self) -> Option<u64> {
        None
    }

    fn answered(&mut self, _: Now, command: ShardCommand, out: &mut Outbox) {
        match command {
            ShardCommand::Rate(rate) => {
                self.pace.set_rate(rate, self.shard.now);
                self.wanted.set_rate(rate, self.shard.now);
            }
            ShardCommand::Profile(profile) => {
                self.pace.set_profile(&profile, self.shard.now);
                self.wanted.set_profile(&profile, self.shard.now);
                self.bound = Bound::of(&Load { profile, ..self.shard.run.load.clone() }, self.shard.now);
            }
            ShardCommand::Limit(limit) => {
                let more = limit.saturating_sub(self.limit.max(self.shard.open));
                if more > 0 {
                    self.shard.places.free(self.shard.now, more);
                }
                self.limit = limit;
            }
            ShardCommand::Users(users) => self.set_users(users),
            // Calls with connections of their own need no shared one.
            ShardCommand::Connect if self.shard.call_sockets.is_some() => (),
            ShardCommand::Connect => self.connect(out),
            ShardCommand::Begin(None) => self.begin_schedule(clock::micros()),
            ShardCommand::Ahead(ahead) => self.begin_ahead(*ahead),
            // The round at that time begins it.
            ShardCommand::Begin(Some(at)) => self.opens_at = at,
            ShardCommand::Pause(paused) => {
                self.paused = paused;
                self.idle_users.iter_mut().for_each(|(_, since)| *since = self.shard.now);
            }
            ShardCommand::LinkEvent(event) => self.on_link_event(event, out),
            ShardCommand::Helped(answer) => self.helped(answer, out),
            ShardCommand::Quit => self.quitting = true,
            ShardCommand::Close => self.close(out),
            // A frozen run receives no answers.
            ShardCommand::Leave if self.shard.frozen => self.end_calls(true, out),
            ShardCommand::Leave => {
                self.quitting = true;
                self.leave_from = Some((0, self.shard.now));
            }
            ShardCommand::End { goodbye } => self.end_calls(goodbye, out),
            ShardCommand::Follow(following) => self.follow(*following, out),
            ShardCommand::Report(to) => {
                self.shard.stats.open = self.shard.open;
                let _ = to.try_send(self.shard.stats.clone());
            }
        }
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.unsent(now, token, Unsent::Here, out);
    }

    fn unsent(&mut self, _: Now, token: u64, cause: Unsent, out: &mut Outbox) {
        let (slot, generation) = (token as u32, (token >> 32) as u32);
        let Some(call) = self.calls.get(slot as usize) else { return };
        // The peer is the cause of a refused connection; this process may be the cause of a failed handshake. Messages
        // that this machine did not send are counted by the counters of all sockets, which do not belong to shards.
        let shook = matches!(cause, Unsent::TlsHandshake | Unsent::WebSocketHandshake);
        if call.target.transport.is_reliable() && !shook {
            self.shard.recorder.send_failed(SendFailure::Remote);
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
        self.drive(slot, out, |runner| {
            runner.finish(CallOutcome::Failed(failure));
            Progress::Over
        });
    }

    /// Ends a client transaction as if a 503 had come (RFC 3261 section 18.4).
    fn unreachable(&mut self, _: Now, to: SocketAddr, quoted: &[u8], out: &mut Outbox) {
        let Some(name) = received_message::quoted_call_id(quoted) else { return };
        let keep = self.shard.run.behaviour.keep_slashes;
        let name = known(name, keep);
        let calls = &self.calls;
        let found =
            self.table.find(received_message::hash(name), |&s| known(calls[s as usize].id(), keep) == name).copied();
        let waits = |call: &Call| call.target.address == to && !call.counted && call.waits_for_answer_to(quoted);
        let Some(slot) = found.filter(|&slot| waits(&self.calls[slot as usize])) else { return };
        self.shard.recorder.send_failed(SendFailure::Remote);
        self.drive(slot, out, |runner| {
            runner.finish(CallOutcome::Failed(Failure::Refused));
            Progress::Over
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
        self.shard.burst += u64::from(self.heard < FLOOD);
        self.heard = 0;
        self.shard.sent_by(micros);
        self.shard.at(micros);
        self.shard.wall = now.wall;
        if !self.waiting {
            self.shard.recorder.tick(micros);
        }
        self.stall_detector.begin(micros, clock::processor_micros);
        if self.shard.open >= self.limit && !self.shard.run.load.keep_limited {
            while self.pace.due(micros).is_some() {}
        }
    }

    #[inline]
    fn arrived(&mut self, came: u64, now: u64) {
        // Connections are read between two rounds.
        if now > self.shard.now {
            self.shard.at(now);
            if !self.waiting {
                self.shard.recorder.tick(now);
            }
        }
        self.shard.recorder.receive_lag(now.saturating_sub(came));
        self.stall_detector.read(came, now, clock::processor_micros);
        self.stamped = came;
    }

    fn wake(&mut self, _: Option<u64>) -> Option<u64> {
        self.shard.sent_by(clock::micros());
        let at = self.wanted();
        self.stall_detector.sleep_until(at);
        Some(at)
    }

    fn connected(&mut self, flow: Flow, at: u64) {
        if let Some((took, _)) =
            self.shard.call_sockets.as_mut().and_then(|call_sockets| call_sockets.advance(flow, at))
        {
            self.shard.recorder.connected(took);
        }
    }

    fn opened(&mut self, flow: Flow, at: u64) {
        let Some((took, users)) =
            self.shard.call_sockets.as_mut().and_then(|call_sockets| call_sockets.advance(flow, at))
        else {
            return;
        };
        self.shard.recorder.count(Counter::ConnectionsMade, 1);
        if self.shard.run.transport != Transport::Tcp {
            self.shard.recorder.shook_hands(took);
        }
        for slot in self.slots(&users) {
            let call = &mut self.calls[slot];
            if call.live && call.target.flow == Some(flow) {
                call.book.connected(at);
            }
        }
    }

    fn ended(&mut self, _: Now, flow: Flow, ending: Ending, out: &mut Outbox) {
        let users = match &mut self.shard.call_sockets {
            Some(call_sockets) if dedicated::is_dedicated(flow) => {
                if ending != Ending::Unmade && call_sockets.known(flow).is_some() {
                    self.shard.recorder.count(Counter::ConnectionsLost, 1);
                }
                call_sockets.lose(flow)
            }
            _ => self.accepted_calls.end(flow),
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
                self.drive(slot, out, |runner| runner.lose_connection(ending));
            }
        }
    }

    fn sockets(&mut self) -> Option<&mut DedicatedSockets> {
        self.shard.call_sockets.as_mut().map(|call_sockets| &mut call_sockets.sockets)
    }
}
