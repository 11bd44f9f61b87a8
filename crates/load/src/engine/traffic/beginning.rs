//! Beginning of calls: by the schedule, by idle users, or by a message.

use super::{BEGUN, Traffic, WAKES, known};
use crate::engine::bound::Bound;
use crate::engine::call::CallKind;
use crate::engine::call_runner::Progress;
use crate::engine::pace::Pace;
use crate::engine::received_message;
use crate::engine::run::Run;
use strowger_core::{Arrival, Outbox};
use strowger_measure::CallBook;
use strowger_net::dedicated;
use strowger_scenario::Role;

/// Part of the Call-ID format.
pub(super) enum IdPart {
    Bytes(Box<[u8]>),
    Number,
}

impl Traffic {
    pub(super) fn makes_calls(&self) -> bool {
        self.main.scenario.role == Role::Client
    }

    pub(super) fn may_begin(&self) -> bool {
        !self.quitting
            && !self.paused
            && !self.waiting
            && self.bound.allows(self.scheduled)
            && self.shard.run.load.calls.is_none_or(|most| self.begun < most)
    }

    /// Begins the schedule at `at`, µs: now, or just before.
    #[cold]
    pub(super) fn begin_schedule(&mut self, at: u64) {
        let run = &self.shard.run;
        self.pace = Pace::profile(run.load.profile.clone(), at, run.load.arrivals, run.seed);
        self.bound = Bound::of(&run.load, at);
        self.shard.recorder.reopen(at, run.load.warm_up);
        self.wanted = self.pace.clone();
        self.idle_users.iter_mut().for_each(|(_, since)| *since = at);
        (self.waiting, self.opens_at) = (false, u64::MAX);
    }

    /// Sets the number of users. A new user is idle. A user who is still in a call from an earlier, larger number
    /// finishes that call first.
    pub(super) fn set_users(&mut self, users: u32) {
        self.idle_users.retain(|&(user, _)| user <= users);
        for user in self.users + 1..=users {
            let busy = |slot: usize| self.calls[slot].live && self.calls[slot].user == user;
            if !(0..self.calls.len()).any(busy) {
                self.idle_users.push_back((user, self.shard.now));
            }
        }
        self.users = users;
    }

    /// Runs `<init>` as a call of its own, which has a number and is not recorded.
    #[cold]
    pub(super) fn initialise(&mut self, out: &mut Outbox) {
        self.uninitialised = false;
        self.number += 1;
        let run = &*self.shard.run;
        let address = run.target.unwrap_or_else(|| ([0, 0, 0, 0], 0).into());
        let target = run.to(address);
        let book = CallBook::outside(self.shard.now);
        let slot = self.place(received_message::hash(b"init"), CallKind::Passing, target, book);
        let call = &mut self.calls[slot as usize];
        call.name(b"init", self.number, 0);
        call.prepare(&self.main);
        call.counted = true;
        self.shard.open -= 1;
        self.drive(slot, out, |runner| runner.initialise());
    }

    /// Begins a call of the schedule, for which a place is free.
    pub(super) fn begin(&mut self, intended: u64, user: u32, out: &mut Outbox) {
        let run = &*self.shard.run;
        let Some(address) = run.sending_address.or(run.target) else { return };
        let target = run.to(address);
        let keep_slashes = run.behaviour.keep_slashes;
        self.number += 1;
        self.begun += 1;
        self.scheduled += 1;
        let mut name = std::mem::take(&mut self.shard.scratch);
        name.clear();
        for part in &self.id {
            match part {
                IdPart::Bytes(bytes) => name.extend_from_slice(bytes),
                IdPart::Number => crate::engine::text::number(&mut name, self.number as i64),
            }
        }
        if self.owns.as_ref().is_some_and(|owns| !owns(&name)) {
            self.shard.scratch = name;
            return;
        }
        if self.owns.is_some() {
            self.shard.recorder.calls_intended(1);
        }
        let free = self.shard.places.take(self.limit.saturating_sub(self.shard.open));
        let book = self.shard.recorder.call_started(self.shard.now, intended, free);
        let slot = self.place(received_message::hash(known(&name, keep_slashes)), CallKind::Main, target, book);
        let number = self.number;
        let call = &mut self.calls[slot as usize];
        call.name(&name, number, user);
        call.prepare(&self.main);
        self.shard.scratch = name;
        self.shard.stats.outgoing += 1;
        self.drive(slot, out, |runner| {
            runner.prepare();
            if runner.take_circuit() && runner.take_socket() { runner.drive() } else { Progress::Over }
        });
    }

    /// Begins a call by a message.
    pub(super) fn accept(
        &mut self,
        hash: u64,
        kind: CallKind,
        name: &[u8],
        arrival: &Arrival,
        bytes: &[u8],
        out: &mut Outbox,
    ) {
        let mut target = arrival.reply();
        // Responses are sent to the source of the request (RFC 3261 section 18.2.2), whereas SIPp sends them to the
        // destination of all messages.
        let run = &self.shard.run;
        if let Some(address) = run.sending_address.filter(|_| !run.retransmission.rfc3261) {
            target.address = address;
        }
        self.number += 1;
        let book = self.shard.recorder.call_accepted(self.shard.came);
        let slot = self.place(hash, kind, target, book);
        let number = self.number;
        let call = &mut self.calls[slot as usize];
        call.name(name, number, 0);
        if kind == CallKind::Main {
            self.begun += 1;
            self.shard.stats.incoming += 1;
        }
        let script = self.script(kind);
        self.calls[slot as usize].prepare(&script);
        let own = arrival.flow.filter(|&flow| dedicated::is_dedicated(flow));
        if let (Some(flow), None) = (arrival.flow, own) {
            self.accepted_calls.add(flow, slot);
        }
        self.drive(slot, out, |runner| {
            runner.prepare();
            if let Some(flow) = own {
                runner.keep_socket(flow);
            }
            if runner.take_circuit() { runner.receive(bytes) } else { Progress::Over }
        });
    }

    /// Begins the calls that are due.
    pub(super) fn begin_due(&mut self, out: &mut Outbox) {
        if !self.makes_calls() {
            return;
        }
        let now = self.shard.now;
        if self.shard.run.load.users.is_some() {
            for _ in 0..BEGUN {
                if !self.may_begin() || self.shard.open >= self.limit {
                    return;
                }
                let Some((user, since)) = self.idle_users.pop_front() else { return self.shard.places.forget() };
                self.shard.recorder.calls_intended(1);
                self.begin(since, user, out);
            }
            return;
        }
        // Calls begin at multiples of the step only; wake-ups in between begin none.
        let until = match self.shard.run.load.step.clamp(1, 1_000) {
            1 => now,
            step => (self.shard.ms - self.shard.ms % step) * 1_000,
        };
        if self.waiting {
            return;
        }
        if self.paused {
            // Calls that fall due during a pause are dropped.
            while self.pace.due(now).is_some() {}
            return;
        }
        self.bound.look(now, self.scheduled, self.limit.saturating_sub(self.shard.open));
        let before = self.scheduled;
        for _ in 0..BEGUN {
            if !self.may_begin() || self.shard.open >= self.limit {
                break;
            }
            let Some(at) = self.pace.due(until) else { break };
            self.begin(at, 0, out);
        }
        if self.scheduled > before {
            self.count_wake();
        }
        if self.pace.next().is_none_or(|next| next > now) {
            self.shard.places.forget();
        }
    }

    /// Returns the time of the next wake-up for a call. Each call has its own wake-up if the mean interval is at least
    /// [`Load::gather`](crate::engine::run::Load); at higher rates several calls begin together.
    pub(super) fn next_begin(&self) -> Option<u64> {
        let next = self.pace.next()?;
        match self.shard.run.load.step.clamp(1, 1_000) {
            1 => Some(next.max(self.next_wake)),
            step => Some(next.div_ceil(1_000).next_multiple_of(step) * 1_000),
        }
    }

    /// Moves the next wake-up after calls have begun.
    fn count_wake(&mut self) {
        let (now, gather) = (self.shard.now, self.shard.run.load.gather);
        let earliest = now.saturating_sub(gather * WAKES);
        self.next_wake = (self.next_wake.max(earliest) + gather).min(now + gather);
    }

    /// Counts calls that have fallen due, begun or not, once a round.
    pub(super) fn count_due(&mut self) {
        let load = &self.shard.run.load;
        if !self.makes_calls() || self.waiting || load.users.is_some() || self.owns.is_some() {
            return;
        }
        let most = load.calls.unwrap_or(u64::MAX).saturating_sub(self.intended);
        let (mut due, mut warm) = (0, 0);
        while let Some(at) = self.wanted.due(self.shard.now) {
            due += 1;
            warm += u64::from(self.shard.recorder.in_warm_up(at));
        }
        // Calls that fall due while none may begin are not intended.
        if !self.paused && !self.quitting && due > 0 {
            let due = due.min(most);
            self.intended += due;
            if warm > 0 {
                self.shard.recorder.calls_warming(warm.min(due));
            }
            self.shard.recorder.calls_intended(due.saturating_sub(warm));
        }
        let room = self.limit.saturating_sub(self.shard.open);
        // Calls that will never begin count as waiting to the end of the run.
        let wanted = self.bound.of_due(self.intended);
        let waiting = wanted.saturating_sub(self.scheduled).saturating_sub(room);
        self.shard.recorder.calls_waiting(waiting + (self.intended - wanted));
    }
}

pub(super) fn id_parts(run: &Run) -> Box<[IdPart]> {
    let mut parts = Vec::new();
    let mut text: Vec<u8> = Vec::new();
    let mut rest = run.call_id.as_bytes();
    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte != b'%' || rest.is_empty() {
            text.push(byte);
            continue;
        }
        let letter = rest[0];
        rest = &rest[1..];
        match letter {
            b'u' => {
                parts.push(IdPart::Bytes(std::mem::take(&mut text).into()));
                parts.push(IdPart::Number);
            }
            b'p' => text.extend_from_slice(run.pid.to_string().as_bytes()),
            b's' => text.extend_from_slice(run.local_ip.as_bytes()),
            // An unknown letter is dropped; the percent sign stays.
            _ => text.push(b'%'),
        }
    }
    parts.push(IdPart::Bytes(text.into()));
    parts.into()
}
