//! Ends of calls: by the scenario, a time limit or an unexpected message.

use super::call::{CallKind, Leaving};
use super::call_runner::{CallRunner, Progress, StepResult};
use super::received_message::ReceivedMessage;
use super::script::{Line, OF_REFUSAL};
use strowger_measure::{CallOutcome, Counter, Failure};
use strowger_message::index::Start;
use strowger_message::{Index, Method};
use strowger_scenario::step::{Expected, StepKind};
use strowger_scenario::{Role, ThirdPartyRole};

impl CallRunner<'_> {
    /// Handles a message that no step waits for.
    pub(super) fn unexpected(&mut self, heard: &ReceivedMessage<'_>) -> Progress {
        let script = self.script;
        if self.absorb(heard) {
            return Progress::Waits;
        }
        if let Some(unexpected) = script.scenario.unexpected {
            let mut again = false;
            if let Some(slot) = unexpected.return_address {
                let from = f64::from(self.call.step);
                let value = self.call.value_mut(slot, &mut self.shard.shared);
                again = value.number() != 0.0;
                if !again {
                    *value = super::call::Value::Number(from);
                }
            }
            if !again {
                let paused = std::mem::take(&mut self.call.paused_until);
                if paused != 0 {
                    self.leave_pause();
                }
                if let Some(slot) = unexpected.paused {
                    let value = self.call.value_mut(slot, &mut self.shard.shared);
                    *value = super::call::Value::Number(paused as f64);
                }
                self.call.step = unexpected.main;
                self.keep_last(heard.bytes);
                self.call.queued = true;
                self.call.receive_until = 0;
                return self.drive();
            }
        }
        let behaviour = &self.shard.run.behaviour;
        let (abort, goodbye) = (behaviour.abort_unexpected, behaviour.goodbye);
        let (auto, ping) = (behaviour.auto_answer, behaviour.answer_ping);
        let automatic = heard.code == 0 && script.scenario.unexpected.is_none();
        self.count_received(heard);
        if heard.code == 0 && heard.method == Method::Ack && self.shard.run.retransmission.rfc3261 {
            // A reordered ACK, or an ACK for a 2xx acknowledged before, needs no answer.
            return Progress::Waits;
        }
        match heard.method {
            Method::Cancel if heard.code == 0 && self.is_answerer() && self.call.has_sent => self.on_cancel(heard),
            Method::Bye | Method::Cancel if automatic => {
                let name = if heard.method == Method::Bye { "a BYE" } else { "a CANCEL" };
                self.keep_last(heard.bytes);
                self.note_unexpected(heard);
                self.shard.recorder.unexpected();
                let id = self.id_text();
                if !abort {
                    self.shard.warn(format_args!("Continuing call on unexpected {} for call: {id}", &name[2..]));
                    return Progress::Waits;
                }
                self.shard.warn(format_args!("Aborting call on an unexpected {} for call: {id}", &name[2..]));
                if goodbye {
                    self.send_line(&script.ok, -1);
                }
                self.finish(CallOutcome::Failed(Failure::UnexpectedMessage));
                Progress::Over
            }
            Method::Info | Method::Notify | Method::Options | Method::Update if automatic && auto => {
                let id = self.id_text();
                self.shard.warn(format_args!(
                    "Automatic response mode for an unexpected INFO, NOTIFY, OPTIONS or UPDATE for call: {id}"
                ));
                self.answer_beside(heard);
                Progress::Waits
            }
            _ if automatic && heard.method_text == b"PING" => {
                self.keep_last(heard.bytes);
                let id = self.id_text();
                if !ping {
                    self.shard.warn(format_args!("Do not answer on an unexpected PING for call: {id}"));
                    return Progress::Waits;
                }
                self.shard.warn(format_args!("Automatic response mode for an unexpected PING for call: {id}"));
                self.answer();
                Progress::Waits
            }
            _ => self.process_unexpected(heard, abort),
        }
    }

    /// Answers a request that is not part of the scenario with 200, and keeps the last message of the scenario.
    pub(super) fn answer_beside(&mut self, heard: &ReceivedMessage<'_>) {
        let mut before = self.shard.pool.buffer();
        std::mem::swap(&mut before, &mut self.call.last);
        let had_last = self.call.has_last;
        self.keep_last(heard.bytes);
        self.answer();
        std::mem::swap(&mut before, &mut self.call.last);
        self.shard.pool.give(before);
        self.call.has_last = had_last;
        self.shard.parsed = None;
    }

    fn answer(&mut self) {
        let script = self.script;
        self.send_line(&script.ok, -1);
        self.shard.recorder.count(Counter::AutoAnswered, 1);
        self.shard.stats.auto_answered += 1;
    }

    fn id_text(&self) -> String {
        String::from_utf8_lossy(self.call.id()).into_owned()
    }

    fn process_unexpected(&mut self, heard: &ReceivedMessage<'_>, abort: bool) -> Progress {
        self.note_unexpected(heard);
        self.shard.recorder.unexpected();
        if self.shard.watch.is_some() {
            let what = match self.step().map(|s| &s.kind) {
                Some(StepKind::Receive(receive)) => match &receive.expected {
                    Expected::Request(method) => {
                        format!("while expecting '{}'", String::from_utf8_lossy(&method.text))
                    }
                    Expected::Response(code) => format!("while expecting '{code}'"),
                    Expected::RequestMatching(pattern) | Expected::ResponseMatching(pattern) => {
                        format!("while expecting '{}'", String::from_utf8_lossy(&pattern.text))
                    }
                },
                Some(StepKind::Send(_)) => "while sending".into(),
                Some(StepKind::Pause(_) | StepKind::TimeWait(_)) => "while pausing".into(),
                Some(StepKind::SendCommand { .. }) => "while sending command".into(),
                Some(StepKind::ReceiveCommand { .. }) => "while expecting command".into(),
                _ => "while in message type".into(),
            };
            let (id, step) = (self.id_text(), self.call.step);
            let begins = if abort { "Aborting" } else { "Continuing" };
            let message = String::from_utf8_lossy(heard.bytes);
            self.shard.warn(format_args!(
                "{begins} call on unexpected message for Call-Id '{id}': {what} (index {step}), received '{message}'"
            ));
        } else {
            self.shard.recorder.count(Counter::Warnings, 1);
            self.shard.stats.warnings += 1;
        }
        if !abort {
            return Progress::Waits;
        }
        self.keep_last(heard.bytes);
        self.abort_command();
        if heard.code >= 200 {
            self.shard.recorder.refused(heard.method, heard.code);
        }
        match self.give_up(match heard.code {
            401 | 407 => Failure::Authentication,
            _ => Failure::UnexpectedMessage,
        }) {
            StepResult::Over => Progress::Over,
            _ => Progress::Waits,
        }
    }

    /// Fails the call, and ends its dialog with the peer if the behaviour demands it.
    pub(super) fn give_up(&mut self, failure: Failure) -> StepResult {
        if self.shard.run.behaviour.goodbye {
            self.goodbye();
        }
        self.finish(CallOutcome::Failed(failure));
        StepResult::Over
    }

    /// Retransmits the last message, or gives up. `Waits`: the call jumped and has to be run.
    pub(super) fn retransmit(&mut self) -> StepResult {
        let run = self.shard.run.clone();
        let settings = &run.retransmission;
        self.call.retransmissions += 1;
        let invite = self.call.sent.starts_with(b"INVITE");
        let most = settings.most.min(if invite { settings.most_invite } else { settings.most_non_invite });
        let index = self.call.sent_step;
        if self.call.retransmissions > most {
            let until = std::mem::take(&mut self.call.retransmit_at);
            self.call.book.due(until * 1_000);
            if let Some(counts) = self.shard.stats.steps.get_mut(index as usize) {
                counts.timeouts += 1;
            }
            let steps = &self.script.scenario.steps;
            let to = steps.get(index as usize).and_then(|s| s.on_timeout);
            if let Some(to) = to.filter(|&to| (to as usize) < steps.len()) {
                self.warn_call(format_args!("timeout on max UDP retrans for message {index}, jumping to label {to}"));
                let method = self.sent_method();
                self.shard.recorder.timed_out(&mut self.call.book, self.shard.now, method);
                self.call.step = to;
                self.call.receive_until = 0;
                self.call.paused_until = 0;
                return StepResult::Waits;
            }
            let id = String::from_utf8_lossy(self.call.id()).into_owned();
            self.shard.warn(format_args!("Aborting call on UDP retransmission timeout for Call-ID '{id}'"));
            return self.give_up(Failure::MaxUdpRetransmissions);
        }
        self.call.retransmit_delay = self.call.retransmit_delay.saturating_mul(2);
        if !invite {
            self.call.retransmit_delay = self.call.retransmit_delay.min(settings.t2);
        }
        self.call.retransmit_at = self.shard.ms + u64::from(self.call.retransmit_delay);
        self.shard.stats.retransmissions += 1;
        self.send_again();
        if let Some(counts) = self.shard.stats.steps.get_mut(index as usize) {
            counts.sent_again += 1;
        }
        StepResult::On
    }

    pub(super) fn receive_timed_out(&mut self) -> Progress {
        let until = std::mem::take(&mut self.call.receive_until);
        self.call.book.due(until * 1_000);
        let script = self.script;
        let index = self.call.step;
        let Some(step) = script.scenario.steps.get(index as usize) else { return Progress::Waits };
        self.shard.stats.steps[index as usize].timeouts += 1;
        match step.on_timeout {
            Some(to) if (to as usize) < script.scenario.steps.len() => {
                self.warn_call(format_args!(
                    "receive timeout on message {}:{index} without label to jump to (ontimeout attribute): jumping to label {to}",
                    script.scenario.name
                ));
                self.call.step = to;
                self.drive()
            }
            _ => {
                self.warn_call(format_args!(
                    "receive timeout on message {}:{index} without label to jump to (ontimeout attribute): aborting call",
                    script.scenario.name
                ));
                let result = self.give_up(Failure::TimeoutOnReceive);
                self.over(result)
            }
        }
    }

    fn over(&self, result: StepResult) -> Progress {
        if result == StepResult::Over { Progress::Over } else { Progress::Waits }
    }

    /// Ends a call at the end of the scenario.
    pub(super) fn succeed(&mut self) -> Progress {
        match self.call.failed {
            Some(failure) => self.finish(CallOutcome::Failed(failure)),
            None => self.finish(CallOutcome::Successful),
        }
        Progress::Over
    }

    /// Records how the call ended, once.
    pub(super) fn finish(&mut self, outcome: CallOutcome) {
        if std::mem::replace(&mut self.call.counted, true) {
            return;
        }
        // A call that the end of the run interrupts counts as stopped, whatever its state.
        let outcome = if self.call.leaving == Leaving::No { outcome } else { CallOutcome::Stopped };
        self.shard.leave_place();
        // A call that ends in a pause leaves it.
        if std::mem::take(&mut self.call.paused_until) != 0
            && let Some(StepKind::Pause(_) | StepKind::TimeWait(_)) = self.step().map(|step| &step.kind)
        {
            self.leave_pause();
        }
        if self.call.kind == CallKind::Passing {
            return;
        }
        if self.call.kind == CallKind::Main {
            if !matches!(outcome, CallOutcome::Stopped) {
                let length = self.shard.came.saturating_sub(self.call.started);
                self.shard.stats.call_length.add(length);
            }
            match outcome {
                CallOutcome::Successful => self.shard.stats.successful += 1,
                CallOutcome::Failed(failure) => {
                    self.shard.stats.failed += 1;
                    self.shard.stats.failures[failure as usize] += 1;
                }
                CallOutcome::Stopped => (),
            }
        }
        if let Some(watch) = &mut self.shard.watch {
            let failure = match outcome {
                CallOutcome::Failed(failure) if !self.call.book.warm_up => Some(failure),
                _ => None,
            };
            watch.call_ended(self.call.id(), failure);
        }
        self.shard.recorder.call_ended(&mut self.call.book, self.shard.came, outcome);
    }

    /// Ends the dialog or transaction with the peer: ACK, CANCEL or BYE, by the progress of the call.
    pub(super) fn goodbye(&mut self) {
        let script = self.script;
        // The scenario of the run decides, also for calls outside of it.
        let main = &self.shard.run.scenario;
        let calls = main.role == Role::Client || main.third_party == Some(ThirdPartyRole::B);
        if !calls || self.call.step == 0 {
            return;
        }
        let invite = self.call.has_sent && self.call.sent.starts_with(b"INVITE");
        if self.shard.run.retransmission.rfc3261 {
            return self.leave(invite);
        }
        if self.call.established || !invite {
            if self.call.has_last {
                // As SIPp 3.7: along the route set of the dialog (RFC 3261 section 12.2.1.1).
                self.send_line(if self.is_routed() { &script.routed_bye } else { &script.bye }, -1);
            }
            return;
        }
        if !self.parse_last() {
            // No message was received: there is nothing to end.
            return;
        }
        match self.shard.index.start() {
            Start::Status { code: 400.., .. } => self.send_line(&script.ack, OF_REFUSAL),
            _ if std::mem::take(&mut self.call.ack_pending) => {
                self.send_line(&script.ack, -1);
                self.send_line(&script.bye, -1);
            }
            _ => self.send_line(&script.cancel, -1),
        }
    }

    /// Ends the dialog as RFC 3261 demands: an established dialog with a BYE along its route set (section 15.1.1), an
    /// INVITE with a provisional response with a CANCEL (section 9.1), and a refused INVITE with an ACK (section
    /// 17.1.1.3). In other states there is nothing to end.
    fn leave(&mut self, invite: bool) {
        let script = self.script;
        let routed = self.is_routed();
        let (ack, bye) = if routed { (&script.routed_ack, &script.routed_bye) } else { (&script.ack2, &script.bye) };
        if std::mem::take(&mut self.call.confirmed) != 0 {
            if std::mem::take(&mut self.call.ack_pending) {
                self.send_line(ack, -1);
            }
            return self.send_line(bye, -1);
        }
        if !invite || !self.parse_last() {
            return;
        }
        // Only a response to the INVITE that was sent last.
        let index = &self.shard.index;
        let (number, method) = super::received_message::cseq(&self.call.last, index);
        let Start::Status { code, .. } = index.start() else { return };
        if method != b"INVITE" || !self.is_sent_last(number) {
            return;
        }
        match code {
            0..200 => self.send_line(&script.cancel, -1),
            200..300 => {
                self.send_line(&script.ack2, -1);
                self.send_line(&script.bye, -1);
            }
            _ => self.send_line(&script.ack, OF_REFUSAL),
        }
    }

    /// Returns whether the dialog's target and routes are known.
    pub(super) fn is_routed(&self) -> bool {
        self.call.extra.as_ref().is_some_and(|e| e.has_routes && !e.next_url.is_empty())
    }

    /// Returns whether the message sent last has this CSeq number.
    pub(super) fn is_sent_last(&self, number: u32) -> bool {
        let mut index = Index::new();
        let read = index.parse(&self.call.sent, &self.shard.limits);
        read.is_ok() && super::received_message::cseq(&self.call.sent, &index).0 == number
    }

    /// Sends a message that is not of the scenario.
    pub(super) fn send_line(&mut self, line: &Line, step: i32) {
        let range = self.write(line, step);
        self.shard.recorder.sent(range.len());
        if let Some(media) = &mut self.shard.media {
            media.read_sent(self.slot, &self.out.bytes[range.clone()]);
        }
        self.post(range);
    }
}
