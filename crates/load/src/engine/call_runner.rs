//! Runs a call through its scenario, step by step, until it has to wait.

use super::call::{Call, Leaving, Started};
use super::script::{Line, Script};
use super::shard_context::{Halt, ShardContext};
use super::watch::Passage;
use strowger_core::Outbox;
use strowger_measure::Attempt;
use strowger_message::Method;
use strowger_scenario::step::{Pause, Send, Start, Step, StepKind};

/// Running call with everything that its steps use.
pub(super) struct CallRunner<'a> {
    pub(super) shard: &'a mut ShardContext,
    pub(super) call: &'a mut Call,
    pub(super) script: &'a Script,
    pub(super) slot: u32,
    pub(super) out: &'a mut Outbox,
}

/// State of a call after it has run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The call waits for a message or an alarm.
    Waits,
    /// The call has ended; its slot is free.
    Over,
}

/// Result of actions and of giving up a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepResult {
    /// The call proceeds to the next step.
    On,
    Waits,
    Over,
}

/// Maximum number of steps that a call runs at once. A scenario that runs more is a loop, and other calls get their
/// turn.
const STEPS: usize = 1_000;

/// The last wait of calls ends at multiples of this many milliseconds.
const TOGETHER: u64 = 50;

impl CallRunner<'_> {
    pub(super) fn step(&self) -> Option<&Step> {
        self.script.scenario.steps.get(self.call.step as usize)
    }

    /// Takes the data of a new call.
    pub(super) fn prepare(&mut self) {
        if !self.shard.run.injections.is_empty() {
            self.take_lines();
        }
    }

    /// Runs `<init>`.
    pub(super) fn initialise(&mut self) -> Progress {
        let script = self.script;
        for _ in 0..STEPS {
            let Some(step) = script.scenario.init.get(self.call.step as usize) else { break };
            if self.act(step, None) != StepResult::On {
                break;
            }
            self.call.step = self.follow(step);
        }
        Progress::Over
    }

    /// Runs the call from its current step.
    pub(super) fn drive(&mut self) -> Progress {
        let script = self.script;
        for _ in 0..STEPS {
            let index = self.call.step;
            let Some(step) = script.scenario.steps.get(index as usize) else {
                return if self.is_suspended() { Progress::Waits } else { self.succeed() };
            };
            if let Some(condition) = step.condition
                && self.call.value(condition.variable, &self.shard.shared).is_set() == condition.inverse
            {
                // The step is left out, but its `next` is not.
                self.next(step);
                continue;
            }
            let result = match &step.kind {
                StepKind::Send(send) => self.send(step, send),
                StepKind::Receive(_) | StepKind::ReceiveCommand { .. } if self.call.queued => {
                    self.call.queued = false;
                    return self.receive_queued();
                }
                StepKind::Receive(receive) => {
                    let patience = receive.timeout.filter(|&t| t > 0).or(self.shard.run.behaviour.receive_timeout);
                    if let Some(patience) = patience.filter(|_| self.call.receive_until == 0) {
                        self.call.receive_until = self.shard.ms + u64::from(patience);
                    }
                    StepResult::Waits
                }
                StepKind::Pause(pause) => self.pause(step, pause),
                StepKind::TimeWait(pause) => {
                    let length = self.length(pause);
                    self.shard.stats.steps[index as usize].pausing += 1;
                    self.shard.stats.steps[index as usize].passed += 1;
                    self.keep_books(step);
                    let actions = self.act(step, None);
                    self.call.timewait = true;
                    // Many waits end together, so that no thread is woken for each.
                    let step = if length >= 1_000 { TOGETHER } else { 1 };
                    self.call.paused_until = (self.shard.ms + length).next_multiple_of(step);
                    if actions == StepResult::Over { StepResult::Over } else { StepResult::Waits }
                }
                StepKind::Nop => {
                    self.shard.stats.steps[index as usize].passed += 1;
                    self.keep_books(step);
                    self.act(step, None)
                }
                StepKind::SendCommand { to, .. } => self.send_command(step, *to),
                StepKind::ReceiveCommand { .. } => StepResult::Waits,
            };
            match result {
                StepResult::On => self.next(step),
                StepResult::Waits => return Progress::Waits,
                StepResult::Over => return Progress::Over,
            }
        }
        // Continues in the next round.
        self.call.paused_until = self.shard.ms.max(1);
        self.call.step = self.call.step.wrapping_sub(1);
        Progress::Waits
    }

    /// Moves to the following step, or to that of `next`.
    pub(super) fn next(&mut self, step: &Step) {
        self.call.step = self.follow(step);
        self.call.receive_until = 0;
    }

    fn follow(&mut self, step: &Step) -> u32 {
        if let Some(jump) = &step.next
            && jump.test.is_none_or(|slot| self.call.value(slot, &self.shard.shared).is_set())
            && jump.chance.is_none_or(|chance| self.shard.pool.rand.happens(chance))
        {
            return jump.to;
        }
        self.call.step.wrapping_add(1)
    }

    /// Records timers and counters of a step.
    pub(super) fn keep_books(&mut self, step: &Step) {
        // A received message ends a timer at the arrival of the message. A timer that the message starts begins now
        // instead, though it should have begun at the arrival.
        let received = matches!(step.kind, StepKind::Receive(_));
        let at = if received { self.shard.came } else { self.shard.now };
        if let Some(timer) = step.start_timer {
            let intended = if received { at } else { self.call.book.intends(at) };
            if let Some(started) = self.call.extra().timers.get_mut(usize::from(timer)) {
                *started = Started { at, intended };
            }
        }
        if let Some(timer) = step.stop_timer {
            let bit = 1u64 << (timer % 64);
            if self.call.timers_done & bit == 0 {
                let place = usize::from(timer);
                let timers = self.call.extra.as_ref().map_or(&[][..], |e| &e.timers);
                let started = timers.get(place).copied().filter(|started| started.at > 0);
                let book = &self.call.book;
                let started = started.unwrap_or(Started { at: self.call.started, intended: book.intended });
                let took = at.saturating_sub(started.at);
                self.shard.recorder.timer(place, took);
                let twin = place + self.script.scenario.timers.len();
                self.shard.recorder.timer(twin, at.saturating_sub(started.intended));
                if let Some(lengths) = self.shard.stats.timers.get_mut(place) {
                    lengths.add(took);
                }
                if let Some(watch) = &mut self.shard.watch {
                    watch.timer(place, took);
                }
                if !step.repeat_timer {
                    self.call.timers_done |= bit;
                }
            }
        }
        if let Some(counter) = step.counter
            && let Some(count) = self.shard.stats.counters.get_mut(usize::from(counter))
        {
            *count += 1;
        }
    }

    /// Returns the length of a pause, milliseconds.
    fn length(&mut self, pause: &Pause) -> u64 {
        let length = match pause {
            Pause::Default => {
                let pause = self.shard.run.behaviour.pause;
                pause.draw(&mut || self.shard.random.unit())
            }
            Pause::Drawn(distribution) => distribution.draw(&mut || self.shard.random.unit()),
            Pause::Variable(slot) => self.call.value(*slot, &self.shard.shared).number(),
        };
        if length.is_finite() { length.clamp(0.0, f64::from(i32::MAX)) as u64 } else { 0 }
    }

    fn pause(&mut self, step: &Step, pause: &Pause) -> StepResult {
        let length = self.length(pause);
        self.shard.stats.steps[self.call.step as usize].passed += 1;
        self.keep_books(step);
        let actions = self.act(step, None);
        if actions != StepResult::On {
            return actions;
        }
        if length == 0 {
            return StepResult::On;
        }
        if let Some(counts) = self.shard.stats.steps.get_mut(self.call.step as usize) {
            counts.pausing += 1;
        }
        // Alarms have milliseconds: rounded up, or the pause would be too short.
        self.call.paused_until = self.shard.now.div_ceil(1_000) + length;
        StepResult::Waits
    }

    /// Handles a due alarm of the call.
    pub(super) fn wake(&mut self) -> Progress {
        if self.call.leaving != Leaving::No {
            return self.wake_leaving();
        }
        let ms = self.shard.ms;
        if self.call.retransmit_at != 0 && self.call.retransmit_at <= ms {
            match self.retransmit() {
                StepResult::On => (),
                StepResult::Waits => return self.drive(),
                StepResult::Over => return Progress::Over,
            }
        }
        if self.call.paused_until != 0 {
            if self.call.paused_until > ms {
                return Progress::Waits;
            }
            let ended = std::mem::take(&mut self.call.paused_until);
            if self.call.timewait {
                self.leave_pause();
                return self.succeed();
            }
            self.call.book.due(ended * 1_000);
            let script = self.script;
            // A circle of steps that was interrupted has no step to leave.
            if let Some(step) = script.scenario.steps.get(self.call.step as usize)
                && matches!(step.kind, StepKind::Pause(_))
            {
                self.leave_pause();
                self.next(step);
            } else {
                self.call.step = self.call.step.wrapping_add(1);
            }
            return self.drive();
        }
        if self.call.receive_until != 0 && self.call.receive_until <= ms {
            return self.receive_timed_out();
        }
        Progress::Waits
    }

    pub(super) fn leave_pause(&mut self) {
        if let Some(counts) = self.shard.stats.steps.get_mut(self.call.step as usize) {
            counts.pausing = counts.pausing.saturating_sub(1);
        }
    }

    pub(super) fn warn_call(&mut self, text: std::fmt::Arguments<'_>) {
        let id = String::from_utf8_lossy(self.call.id()).into_owned();
        self.shard.warn(format_args!("Call-Id: {id}, {text}"));
    }

    pub(super) fn sent_method(&self) -> Method {
        let space = memchr::memchr(b' ', &self.call.sent).unwrap_or(0);
        Method::of(&self.call.sent[..space])
    }

    /// Sends the last message again.
    pub(super) fn send_again(&mut self) {
        let index = self.call.sent_step;
        let script = self.script;
        // A message lost on purpose is lost each time.
        if let Some(step) = script.scenario.steps.get(index as usize)
            && self.is_lost(step)
        {
            self.shard.stats.steps[index as usize].lost += 1;
            if let Some(watch) = &mut self.shard.watch {
                watch.message(Passage::LostSending(index), self.call.target.transport, self.call.id(), &self.call.sent);
            }
            return;
        }
        let start = self.out.start();
        self.out.bytes.extend_from_slice(&self.call.sent);
        let range = start..self.out.bytes.len();
        let bytes = range.len();
        if self.call.sent.starts_with(b"SIP/") {
            self.shard.recorder.response_resent(bytes);
        } else {
            let method = self.sent_method();
            self.shard.recorder.request_resent(method, bytes);
        }
        self.post(range);
    }

    /// Moves bytes of the outbox to the socket.
    pub(super) fn post(&mut self, range: std::ops::Range<usize>) {
        if let Some(watch) = &mut self.shard.watch {
            let bytes = &self.out.bytes[range.clone()];
            let target = &self.call.target;
            watch.exchange(Passage::Sent, target.transport, target.address, self.call.id(), bytes);
        }
        if self.shard.posted == 0 {
            self.shard.posted = self.shard.now;
        }
        let token = u64::from(self.call.generation) << 32 | u64::from(self.slot);
        self.out.send(self.call.target, range, token);
    }

    /// Writes a text of the scenario into the outbox.
    pub(super) fn write(&mut self, line: &Line, step: i32) -> std::ops::Range<usize> {
        let mut bytes = std::mem::take(&mut self.out.bytes);
        let start = bytes.len();
        self.render(line, step, &mut bytes);
        let range = start..bytes.len();
        self.out.bytes = bytes;
        range
    }

    fn send(&mut self, step: &Step, send: &Send) -> StepResult {
        // No new message before the last one is answered, and before the helper has done its work.
        if self.call.retransmit_at != 0 || self.is_suspended() {
            return StepResult::Waits;
        }
        let script = self.script;
        let line = &script.texts[self.call.step as usize];
        if !line.files.is_empty() && !self.has_files(line) {
            return if self.call.counted { StepResult::Over } else { StepResult::Waits };
        }
        if !self.retake_socket() {
            return StepResult::Over;
        }
        let index = self.call.step;
        self.keep_books(step);
        if let Start::Request(method) = &send.start
            && !matches!(method.known, Method::Ack | Method::Cancel)
        {
            self.call.cseq = self.call.cseq.wrapping_add(1);
        }
        let range = self.write(&script.texts[index as usize], index as i32);
        if let Some(extra) = &mut self.call.extra {
            extra.files.clear();
        }
        if self.shard.broken {
            self.shard.warn(format_args!("Returning EPIPE on invalid socket"));
            self.halt(format_args!("Broken pipe on TCP connection, remote peer probably closed the socket"));
        }
        if self.shard.halt == Some(Halt::Error) {
            self.out.bytes.truncate(range.start);
            return StepResult::Waits;
        }
        let bytes = range.len();
        self.shard.messages.keep(&mut self.call.sent, &self.out.bytes[range.clone()]);
        self.call.has_sent = true;
        if let Some(media) = &mut self.shard.media
            && script.hears
            && let Err(refusal) = media.describe(self.slot, &self.call.sent)
        {
            self.shard.warn(format_args!("{refusal}"));
        }
        if self.is_lost(step) {
            self.shard.stats.steps[index as usize].lost += 1;
            if let Some(watch) = &mut self.shard.watch {
                watch.message(Passage::LostSending(index), self.call.target.transport, self.call.id(), &self.call.sent);
            }
            self.out.bytes.truncate(range.start);
        } else {
            self.post(range);
        }
        if matches!(&send.start, Start::Request(method) if method.known == Method::Ack) {
            self.call.established = true;
            self.call.ack_pending = false;
        }
        if matches!(&send.start, Start::Request(method) if method.known == Method::Bye) {
            self.call.confirmed = 0;
        }
        let (shard, book) = (&mut *self.shard, &mut self.call.book);
        match &send.start {
            Start::Request(method) if method.known == Method::Invite => {
                let mut attempt = book.attempt(Method::Invite);
                // Outside of a dialog the request has no To tag (RFC 3261 section 8.1.1.2), so this is a second
                // session.
                if attempt == Attempt::InDialog && !super::received_message::has_tag(&self.call.sent, shard) {
                    attempt = Attempt::Initial;
                }
                let mark = super::received_message::hash(super::received_message::branch(&self.call.sent));
                shard.recorder.invite_sent(book, shard.now, attempt, mark, bytes);
            }
            Start::Request(method) => shard.recorder.request_sent(book, shard.now, method.known, bytes),
            Start::Response(code) => shard.recorder.response_sent(book, shard.now, self.call.asked, *code, bytes),
        }
        self.call.sent_step = index;
        if self.shard.run.retransmission.rfc3261 {
            let acknowledges = matches!(&send.start, Start::Request(method) if method.known == Method::Ack);
            let answers = matches!(send.start, Start::Response(_));
            let past = &mut self.call.past[0];
            if past.hash != 0 && if past.request { answers } else { acknowledges } {
                past.answer = index;
            }
        }
        if send.start_transaction.is_some() || send.ack_transaction.is_some() {
            self.remember_transaction(send, index);
        }
        if self.call.received_step != u32::MAX {
            // A retransmission of the last received message gets this answer.
            self.call.answered_hash = self.call.received_hash;
            self.call.answered_step = self.call.received_step;
            self.call.answer_step = index;
            self.call.received_hash = 0;
        }
        let settings = &self.shard.run.retransmission;
        if let Some(delay) = send.retransmit.filter(|&d| d > 0)
            && settings.enabled
            && !self.call.target.transport.is_reliable()
        {
            self.call.retransmit_at = self.shard.ms + u64::from(delay);
            self.call.retransmit_delay = delay;
            self.call.retransmissions = 0;
        }
        let mut result = StepResult::On;
        if !step.actions.is_empty() {
            let sent = std::mem::take(&mut self.call.sent);
            result = self.act(step, Some(&sent));
            self.call.sent = sent;
        }
        // Not if an action has ended the run, as with SIPp.
        if result != StepResult::Waits {
            self.shard.stats.steps[index as usize].sent += 1;
        }
        result
    }

    #[cold]
    fn remember_transaction(&mut self, send: &Send, index: u32) {
        let sent = std::mem::take(&mut self.call.sent);
        let branch = super::received_message::branch(&sent);
        if let Some(t) = send.start_transaction
            && let Some(transaction) = self.call.extra().transactions.get_mut(usize::from(t))
        {
            transaction.branch.clear();
            transaction.branch.extend_from_slice(branch);
            transaction.answer = 0;
        }
        if let Some(t) = send.ack_transaction
            && let Some(transaction) = self.call.extra().transactions.get_mut(usize::from(t))
        {
            transaction.ack = Some(index);
        }
        self.call.sent = sent;
    }

    /// Draws whether this message of a step is lost on purpose.
    pub(super) fn is_lost(&mut self, step: &Step) -> bool {
        let share = step.lost.unwrap_or(self.shard.run.behaviour.lost);
        share > 0.0 && self.shard.random.unit() * 100.0 < share
    }
}
