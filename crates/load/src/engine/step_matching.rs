//! Matches a received message of a call: expected, received before, or neither.

use super::call::{CallKind, Leaving, Past};
use super::call_runner::{CallRunner, Progress, StepResult};
use super::received_message::{ReceivedMessage, branch, cseq, digits, hash, tag};
use super::watch::Passage;
use strowger_measure::Counter;
use strowger_message::index::Start as First;
use strowger_message::{Method, Name};
use strowger_scenario::step::{Expected, Optional, Receive, Start, Step, StepKind};

impl CallRunner<'_> {
    /// Handles a message whose offsets are in the index.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> Progress {
        if self.is_held_up() {
            self.hold(bytes);
            return Progress::Waits;
        }
        let run = &*self.shard.run;
        let (ignore, repeats, whole) =
            (run.behaviour.ignore_in_pause, run.retransmission.enabled, run.retransmission.whole);
        let known = run.retransmission.rfc3261;
        if ignore && matches!(self.step().map(|s| &s.kind), Some(StepKind::Pause(_) | StepKind::TimeWait(_))) {
            return Progress::Waits;
        }
        // A scenario that a message begins may have actions before its first receive step.
        if self.call.step == 0
            && self.call.kind != CallKind::Passing
            && matches!(self.step().map(|s| &s.kind), Some(StepKind::Nop))
        {
            self.keep_last(bytes);
            self.call.queued = true;
            self.call.paused_until = 0;
            return self.drive();
        }
        let mut own = 0;
        if !self.call.target.transport.is_reliable() && repeats {
            own = if whole { hash(bytes) } else { self.loose_hash(bytes) };
            if known && self.is_past(own, bytes.len()) {
                return Progress::Waits;
            }
            // A duplicate in one burst is read late, because SIPp reads the whole burst before it answers.
            let twice = self.call.burst == self.shard.burst && self.call.burst_hash == own;
            if self.call.answered_hash == own && own != 0 && !twice {
                return self.answer_again(bytes);
            }
            if (self.call.received_hash == own || twice) && own != 0 {
                if let Some(counts) = self.shard.stats.steps.get_mut(self.call.received_step as usize) {
                    counts.received_again += 1;
                }
                self.shard.recorder.received_again(bytes.len());
                return Progress::Waits;
            }
        }
        let heard = match self.shard.index.start() {
            First::Status { code: 0, .. } => {
                self.shard.warn(format_args!("a message that is neither request nor response"));
                return Progress::Waits;
            }
            First::Status { code, .. } => {
                let (number, text) = cseq(bytes, &self.shard.index);
                let heard = ReceivedMessage { code, method: Method::of(text), method_text: text, bytes };
                if let Some(to) = self.shard.index.first(Name::To)
                    && let Some(tag) = tag(&bytes[to.value as usize..to.value_end as usize])
                    && self.call.tag() != Some(tag)
                    && self.names_dialog(&heard)
                {
                    if known && self.is_of_another_dialog(&heard, number) {
                        self.leave_dialog(&heard, tag);
                        return Progress::Waits;
                    }
                    self.call.set_tag(tag);
                }
                heard
            }
            First::Request { method, method_len, .. } => {
                let at = bytes.iter().position(|b| !matches!(b, b'\r' | b'\n')).unwrap_or(0);
                let text = &bytes[at..at + usize::from(method_len)];
                if method == Method::Ack {
                    self.call.established = true;
                }
                ReceivedMessage { code: 0, method, method_text: text, bytes }
            }
        };
        if self.call.leaving != Leaving::No {
            return self.receive_leaving(&heard);
        }
        // A response without To matches no request.
        if heard.code != 0 && self.shard.index.first(Name::To).is_none() {
            return self.unexpected(&heard);
        }
        if self.comes_again(&heard) {
            return Progress::Waits;
        }
        match self.find(&heard, own) {
            Found::At(index) => {
                self.count_received(&heard);
                self.take(index, &heard, own)
            }
            Found::Done => Progress::Waits,
            Found::Nowhere => self.unexpected(&heard),
        }
    }

    /// Returns whether this message was handled before, and sends the answer to it again if there was one.
    fn is_past(&mut self, own: u64, bytes: usize) -> bool {
        let Some(place) = self.call.past.iter().position(|p| p.hash == own) else { return false };
        let past = self.call.past[place];
        self.shard.recorder.received_again(bytes);
        let step = past.answer;
        if step == u32::MAX {
            return true;
        }
        if step == self.call.sent_step {
            self.send_again();
        } else if !past.request || place == 0 {
            // The text may quote the last message: a request answered long ago has been acknowledged meanwhile.
            self.send_step_again(step);
        } else {
            return true;
        }
        self.shard.stats.retransmissions += 1;
        if let Some(counts) = self.shard.stats.steps.get_mut(step as usize) {
            counts.sent_again += 1;
        }
        true
    }

    /// Records a message received for the first time.
    pub(super) fn count_received(&mut self, heard: &ReceivedMessage<'_>) {
        if self.call.kind == CallKind::Passing {
            return;
        }
        let shard = &mut *self.shard;
        let bytes = heard.bytes.len();
        // The answer of the scenario is due from now on.
        self.call.book.due(shard.came);
        if heard.code == 0 {
            self.call.asked = heard.method;
            shard.recorder.request_received(&mut self.call.book, shard.came, heard.method, bytes);
        } else {
            let retry = shard.index.first(Name::RetryAfter).is_some();
            if heard.method == Method::Invite && self.call.book.has_two() {
                self.call.book.answers(hash(branch(heard.bytes)));
            }
            shard.recorder.response_received(&mut self.call.book, shard.came, heard.method, heard.code, retry, bytes);
        }
    }

    fn loose_hash(&self, bytes: &[u8]) -> u64 {
        let (number, method) = cseq(bytes, &self.shard.index);
        let transaction = hash(branch(bytes)) ^ u64::from(number).rotate_left(17) ^ hash(method);
        if !bytes.starts_with(b"SIP/2.0") {
            return transaction | 1;
        }
        // All responses to a request share the transaction, so the first line and the body distinguish them.
        let line = &bytes[..memchr::memchr(b'\r', bytes).unwrap_or(bytes.len())];
        let body = memchr::memmem::find(bytes, b"\r\n\r\n").map_or(&b""[..], |at| &bytes[at..]);
        transaction ^ hash(line).rotate_left(31) ^ hash(body).rotate_left(7) | 1
    }

    /// Repeats the answer to a retransmitted message.
    fn answer_again(&mut self, bytes: &[u8]) -> Progress {
        self.shard.recorder.received_again(bytes.len());
        self.shard.stats.retransmissions += 1;
        let step = self.call.answer_step;
        if let Some(counts) = self.shard.stats.steps.get_mut(self.call.answered_step as usize) {
            counts.received_again += 1;
        }
        if let Some(counts) = self.shard.stats.steps.get_mut(step as usize) {
            counts.sent_again += 1;
        }
        if step == self.call.sent_step {
            self.send_again();
        } else {
            self.send_step_again(step);
        }
        Progress::Waits
    }

    /// Renders the message of this step again and sends it.
    fn send_step_again(&mut self, step: u32) {
        let script = self.script;
        let Some(line) = script.texts.get(step as usize) else { return };
        let range = self.write(line, step as i32);
        match &line.start {
            Some(Start::Request(method)) => self.shard.recorder.request_resent(method.known, range.len()),
            _ => self.shard.recorder.response_resent(range.len()),
        }
        self.post(range);
    }

    fn matches(&mut self, index: usize, heard: &ReceivedMessage<'_>) -> bool {
        let script = self.script;
        let StepKind::Receive(receive) = &script.scenario.steps[index].kind else { return false };
        match &receive.expected {
            Expected::Request(method) => {
                heard.code == 0
                    && method.known == heard.method
                    && (heard.method != Method::Other || *method.text == *heard.method_text)
            }
            Expected::RequestMatching(pattern) => {
                heard.code == 0 && pattern.expression.is_match(heard.method_text, &mut self.shard.matcher)
            }
            Expected::Response(code) => heard.code != 0 && *code == heard.code && self.answers(index, receive, heard),
            Expected::ResponseMatching(pattern) => {
                heard.code != 0
                    && pattern.expression.is_match(&digits(heard.code), &mut self.shard.matcher)
                    && self.answers(index, receive, heard)
            }
        }
    }

    fn answers(&self, index: usize, receive: &Receive, heard: &ReceivedMessage<'_>) -> bool {
        match receive.transaction {
            Some(transaction) => {
                let known = self.call.extra.as_ref().and_then(|e| e.transactions.get(usize::from(transaction)));
                known.is_some_and(|t| !t.branch.is_empty() && t.branch == branch(heard.bytes))
            }
            // The first step takes any response.
            None => index == 0 || receive.answers(heard.method_text),
        }
    }

    /// Searches forward to the first mandatory step, then backward.
    fn find(&mut self, heard: &ReceivedMessage<'_>, own: u64) -> Found {
        if self.call.kind == CallKind::Passing {
            return Found::Nowhere;
        }
        let script = self.script;
        let steps = &script.scenario.steps;
        let from = self.call.step as usize;
        for (index, step) in steps.iter().enumerate().skip(from) {
            if self.matches(index, heard) {
                return Found::At(index);
            }
            if !is_optional(step) {
                break;
            }
        }
        let mut contiguous = true;
        for index in (0..from.min(steps.len())).rev() {
            contiguous &= is_optional(&steps[index]);
            if !self.matches(index, heard) {
                continue;
            }
            let StepKind::Receive(receive) = &steps[index].kind else { continue };
            if contiguous || receive.optional == Optional::Global {
                return Found::At(index);
            }
            if let Some(transaction) = receive.transaction {
                if self.late_answer(usize::from(transaction), heard, own) {
                    return Found::Done;
                }
            } else if heard.code != 0
                && heard.method == Method::Invite
                && let place = if script.scenario.ready { successor(&steps[index], index) } else { index + 1 }
                && let Some(StepKind::Send(send)) = steps.get(place).map(|s| &s.kind)
                && matches!(&send.start, Start::Request(m) if m.known == Method::Ack)
            {
                // The ACK was lost and is sent again, or the peer retransmits its response.
                self.shard.recorder.received_again(heard.bytes.len());
                self.send_step_again(place as u32);
                return Found::Done;
            }
        }
        Found::Nowhere
    }

    /// Takes a response to a named transaction that the scenario has passed. Returns whether no step has to take it.
    #[cold]
    fn late_answer(&mut self, transaction: usize, heard: &ReceivedMessage<'_>, own: u64) -> bool {
        let Some(known) = self.call.extra.as_ref().and_then(|e| e.transactions.get(transaction)) else { return false };
        let (ack, answer) = (known.ack, known.answer);
        if (100..200).contains(&heard.code) {
            self.count_received(heard);
            return true;
        }
        if let Some(step) = ack {
            self.shard.recorder.received_again(heard.bytes.len());
            self.send_step_again(step);
            return true;
        }
        if answer == own && own != 0 {
            self.shard.recorder.received_again(heard.bytes.len());
            return true;
        }
        false
    }

    /// Takes the message for which step `index` waits.
    fn take(&mut self, index: usize, heard: &ReceivedMessage<'_>, own: u64) -> Progress {
        let script = self.script;
        let step = &script.scenario.steps[index];
        let StepKind::Receive(receive) = &step.kind else { return Progress::Waits };
        if self.is_lost(step) {
            self.shard.stats.steps[index].lost += 1;
            if let Some(watch) = &mut self.shard.watch {
                let passage = Passage::LostReceiving(index as u32);
                watch.message(passage, self.call.target.transport, self.call.id(), heard.bytes);
            }
            return Progress::Waits;
        }
        if let Some(t) = receive.transaction
            && let Some(transaction) = self.call.extra().transactions.get_mut(usize::from(t))
        {
            transaction.answer = own;
        }
        self.keep_books(step);
        self.shard.stats.steps[index].received += 1;
        if let Some(media) = &mut self.shard.media
            && script.hears
            && !step.ignore_sdp
        {
            media.learn(self.slot, heard.bytes);
        }
        if !step.actions.is_empty() {
            match self.act(step, Some(heard.bytes)) {
                StepResult::On => (),
                StepResult::Waits => return Progress::Waits,
                StepResult::Over => return Progress::Over,
            }
        }
        if heard.code == 0 {
            let number = cseq(heard.bytes, &self.shard.index).0;
            self.call.cseq = self.call.cseq.max(number);
        }
        let stops =
            heard.code != 0 || matches!(heard.method, Method::Ack | Method::Cancel | Method::Bye | Method::Prack);
        if stops && (index as u32) > self.call.sent_step {
            let provisional = (100..200).contains(&heard.code) && heard.method != Method::Invite;
            // RFC 3261 section 17.1.2.2: a provisional response to a request other than INVITE slows its
            // retransmission.
            self.call.retransmit_at = if provisional && self.call.retransmit_at != 0 {
                self.shard.ms + u64::from(self.shard.run.retransmission.t2)
            } else {
                0
            };
        }
        if heard.code == 200 {
            self.call.ack_pending = true;
        }
        if heard.code >= 200 {
            self.call.concluded = cseq(heard.bytes, &self.shard.index).0;
        }
        if heard.method == Method::Invite && (200..300).contains(&heard.code) {
            self.call.confirmed = self.call.concluded;
        }
        // As in SIPp, the first message that has a Record-Route determines the routes.
        if receive.record_routes && self.call.extra.as_ref().is_none_or(|e| e.routes.is_empty()) {
            if self.shard.index.first(Name::Contact).is_none() {
                self.shard.warn(format_args!("Cannot record route set if there is no Contact"));
            }
            self.keep_routes(heard);
        }
        // As SIPp: `auth` has no effect on other messages.
        if receive.authenticate && matches!(heard.code, 401 | 407) && !self.keep_challenge(heard) {
            return Progress::Waits;
        }
        if !receive.advance {
            return Progress::Waits;
        }
        self.keep_last(heard.bytes);
        self.call.received_step = index as u32;
        self.call.received_hash = own;
        (self.call.burst, self.call.burst_hash) = (self.shard.burst, own);
        if own != 0 && self.shard.run.retransmission.rfc3261 {
            self.call.past.rotate_right(1);
            self.call.past[0] = Past { hash: own, request: heard.code == 0, answer: u32::MAX };
        }
        // SIPp 3.6.1 also proceeds from an optional message, unless a `test` prevents it, and even back to an optional
        // message that was passed before.
        let jumps = step
            .next
            .as_ref()
            .is_none_or(|jump| jump.test.is_none_or(|slot| self.call.value(slot, &self.shard.shared).is_set()));
        if receive.optional == Optional::No || jumps {
            if std::mem::take(&mut self.call.paused_until) != 0 {
                self.leave_pause();
            }
            self.call.step = index as u32;
            self.next(step);
            return self.drive();
        }
        // An optional message restarts the time limits of the steps still waited for.
        let default = self.shard.run.behaviour.receive_timeout;
        for later in script.scenario.steps.iter().skip(index + 1) {
            let StepKind::Receive(later) = &later.kind else { break };
            let Some(patience) = later.timeout.filter(|&t| t > 0).or(default) else { break };
            let until = self.shard.ms + u64::from(patience);
            if self.call.receive_until == 0 || until < self.call.receive_until {
                self.call.receive_until = until;
            }
        }
        Progress::Waits
    }

    /// Matches a message that waited while the call had other work.
    pub(super) fn receive_queued(&mut self) -> Progress {
        let last = std::mem::take(&mut self.call.last);
        let _ = self.shard.index.parse(&last, &self.shard.limits);
        self.shard.parsed = Some((self.slot, self.call.generation));
        let go = self.receive(&last);
        if self.call.last.is_empty() {
            self.call.last = last;
        }
        go
    }

    /// Sets the message of `[last_…]`.
    pub(super) fn keep_last(&mut self, bytes: &[u8]) {
        self.shard.messages.keep(&mut self.call.last, bytes);
        self.call.has_last = true;
        self.shard.parsed = Some((self.slot, self.call.generation));
    }

    /// Returns true for a response whose tag names another dialog: a response to the INVITE that made the dialog, or to
    /// the BYE that ended another dialog.
    fn is_of_another_dialog(&self, heard: &ReceivedMessage<'_>, number: u32) -> bool {
        match heard.method {
            Method::Invite => self.call.confirmed != 0 && number == self.call.confirmed && heard.code < 300,
            Method::Bye => self.call.forked,
            _ => false,
        }
    }

    /// Ends another dialog of a forked INVITE. All dialogs except the first are acknowledged and ended (RFC 3261
    /// section 13.2.2.4), each time their 2xx is received.
    #[cold]
    fn leave_dialog(&mut self, heard: &ReceivedMessage<'_>, tag: &[u8]) {
        self.count_received(heard);
        if heard.method != Method::Invite || heard.code < 200 {
            return;
        }
        self.call.forked = true;
        // The call itself stays in its own dialog.
        let mut kept = [(); 4].map(|()| self.shard.pool.buffer());
        let [last, routes, next_url, own] = &mut kept;
        own.extend_from_slice(self.call.tag().unwrap_or_default());
        std::mem::swap(last, &mut self.call.last);
        let extra = self.call.extra.get_or_insert_default();
        std::mem::swap(routes, &mut extra.routes);
        std::mem::swap(next_url, &mut extra.next_url);
        let had_routes = extra.has_routes;
        self.keep_routes(heard);
        self.keep_last(heard.bytes);
        self.call.set_tag(tag);
        let place = FORKED - (hash(tag) % 1_000) as i32;
        let script = self.script;
        self.send_line(&script.routed_ack, place);
        self.send_line(&script.routed_bye, place);
        let [last, routes, next_url, own] = &mut kept;
        self.call.set_tag(own);
        std::mem::swap(last, &mut self.call.last);
        let extra = self.call.extra.get_or_insert_default();
        std::mem::swap(routes, &mut extra.routes);
        std::mem::swap(next_url, &mut extra.next_url);
        extra.has_routes = had_routes;
        self.shard.parsed = None;
        for buffer in kept {
            self.shard.pool.give(buffer);
        }
    }

    /// Counts and reports a message that the scenario does not expect.
    pub(super) fn note_unexpected(&mut self, heard: &ReceivedMessage<'_>) {
        if let Some(counts) = self.shard.stats.steps.get_mut(self.call.step as usize) {
            counts.unexpected += 1;
        }
        self.shard.recorder.count(Counter::Unexpected, 0);
        if let Some(watch) = &mut self.shard.watch {
            watch.message(Passage::Unexpected, self.call.target.transport, self.call.id(), heard.bytes);
            if heard.code != 0 {
                watch.error_code(heard.code);
            }
        }
    }
}

/// Step numbers, downwards from here, of messages for other dialogs of an INVITE.
const FORKED: i32 = -10;

/// Match of a message.
enum Found {
    At(usize),
    /// The message was handled.
    Done,
    Nowhere,
}

/// Returns the index of the next step.
fn successor(step: &Step, place: usize) -> usize {
    step.next.as_ref().map_or(place + 1, |jump| jump.to as usize)
}

fn is_optional(step: &Step) -> bool {
    matches!(&step.kind, StepKind::Receive(receive) if receive.optional != Optional::No)
}
