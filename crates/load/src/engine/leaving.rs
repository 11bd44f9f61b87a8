//! Calls that are open when the run ends. Each ends its dialog or transaction with the peer and remains open until the
//! peer answers.

use super::call::Leaving;
use super::call_runner::{CallRunner, Progress};
use super::received_message::{ReceivedMessage, cseq, tag};
use super::script::{Line, OF_REFUSAL};
use std::ops::Range;
use strowger_measure::CallOutcome;
use strowger_message::index::Start;
use strowger_message::{Index, Message, Method, Name, respond};
use strowger_scenario::Role;
use strowger_scenario::step::StepKind;

/// T1 (RFC 3261 section 17.1.1.1), milliseconds.
const T1: u32 = 500;

/// Maximum number of challenges to a BYE that are answered: one of a proxy, one of the peer, and one for a stale nonce.
const CHALLENGES: u8 = 3;

impl CallRunner<'_> {
    /// Begins to end the call, by a command given at `since` (µs): sends the peer a message and waits for its answer.
    pub(super) fn take_leave(&mut self, since: u64) -> Progress {
        // The message sent now was not due before.
        self.call.book.due(since);
        let sent = |method: &[u8]| self.call.has_sent && self.call.sent.starts_with(method);
        let (invite, bye) = (sent(b"INVITE "), sent(b"BYE "));
        if self.call.timewait || self.call.counted {
            return self.cut_off();
        }
        if self.is_answerer() {
            return self.hang_up();
        }
        let dialog = self.call.confirmed != 0;
        if bye && !dialog && matches!(self.step().map(|step| &step.kind), Some(StepKind::Receive(_))) {
            // The call has sent its own BYE and only waits for the answer.
            return Progress::Waits;
        }
        if !dialog && !invite {
            return self.cut_off();
        }
        if std::mem::take(&mut self.call.paused_until) != 0
            && matches!(self.step().map(|step| &step.kind), Some(StepKind::Pause(_)))
        {
            self.leave_pause();
        }
        (self.call.receive_until, self.call.queued) = (0, false);
        if dialog {
            if std::mem::take(&mut self.call.ack_pending) {
                self.say_ack();
            }
            return self.end_dialog(1);
        }
        match self.answer_to_invite() {
            None => self.call.leaving = Leaving::Asked,
            Some(100..=199) => self.cancel(),
            Some(200..=299) => {
                self.say_ack();
                return self.end_dialog(1);
            }
            Some(_) => {
                self.send_line(&self.script.ack, OF_REFUSAL);
                return self.cut_off();
            }
        }
        Progress::Waits
    }

    /// Returns true for a call of the ready answering side.
    pub(super) fn is_answerer(&self) -> bool {
        self.script.scenario.ready && self.script.scenario.role == Role::Server
    }

    /// Ends a call as the called side, if the caller has not ended it. A call that is still ringing is refused.
    fn hang_up(&mut self) -> Progress {
        self.call.receive_until = 0;
        match self.final_answer() {
            _ if self.call.established => self.end_dialog(1),
            Some(true) => {
                self.call.leaving = Leaving::Answered;
                Progress::Waits
            }
            Some(false) => self.refuse(480),
            None => self.cut_off(),
        }
    }

    /// Returns whether the peer's INVITE has its final response, or `None` if the request was no INVITE.
    fn final_answer(&self) -> Option<bool> {
        (self.call.has_sent && self.call.last.starts_with(b"INVITE "))
            .then(|| !self.call.sent.starts_with(b"SIP/2.0 1"))
    }

    /// Refuses the peer's INVITE with this code.
    fn refuse(&mut self, code: u16) -> Progress {
        let mut index = Index::new();
        let to = index.parse(&self.call.sent, &self.shard.limits).ok().and_then(|()| index.first(Name::To));
        let to = to.map_or(&b""[..], |to| &self.call.sent[to.value as usize..to.value_end as usize]);
        let own = tag(to).map(<[u8]>::to_vec);
        if !self.parse_last() {
            return self.cut_off();
        }
        let start = self.out.start();
        let invite = Message::new(&self.call.last, &self.shard.index);
        let length = respond(&invite, code, None, own.as_deref(), &mut self.out.bytes).finish(b"");
        if std::mem::take(&mut self.call.paused_until) != 0 {
            self.leave_pause();
        }
        let shard = &mut *self.shard;
        // Timer H (RFC 3261 section 17.2.1).
        self.call.receive_until = shard.ms + u64::from(T1) * 64;
        shard.recorder.response_sent(&mut self.call.book, shard.now, Method::Invite, code, length);
        self.keep_asking(start..start + length);
        self.call.leaving = Leaving::Refused;
        Progress::Waits
    }

    /// Handles the peer's CANCEL (RFC 3261 section 9.2), which only has an effect on a call that rings.
    pub(super) fn on_cancel(&mut self, heard: &ReceivedMessage<'_>) -> Progress {
        self.answer_beside(heard);
        match self.final_answer() {
            Some(false) => self.refuse(487),
            _ => Progress::Waits,
        }
    }

    /// Ends the call at the end of the run.
    pub(super) fn cut_off(&mut self) -> Progress {
        // A call that only waits for retransmissions has finished the scenario.
        self.finish(match self.call.failed {
            _ if !self.call.timewait => CallOutcome::Stopped,
            Some(failure) => CallOutcome::Failed(failure),
            None => CallOutcome::Successful,
        });
        Progress::Over
    }

    /// Returns the code of the last response to the last INVITE.
    fn answer_to_invite(&mut self) -> Option<u16> {
        if !self.parse_last() {
            return None;
        }
        let Start::Status { code, .. } = self.shard.index.start() else { return None };
        let (number, method) = cseq(&self.call.last, &self.shard.index);
        (method == b"INVITE" && self.is_sent_last(number)).then_some(code)
    }

    fn say_ack(&mut self) {
        let script = self.script;
        self.send_line(if self.is_routed() { &script.routed_ack } else { &script.ack2 }, -1);
    }

    fn cancel(&mut self) {
        let script = self.script;
        self.ask(&script.cancel, Method::Cancel);
        self.call.leaving = Leaving::Cancelled;
    }

    fn end_dialog(&mut self, times: u8) -> Progress {
        let script = self.script;
        self.ask(if self.is_routed() { &script.routed_bye } else { &script.bye }, Method::Bye);
        // A repeated BYE has a CSeq of its own.
        self.call.cseq = self.call.cseq.wrapping_add(1);
        self.call.leaving = Leaving::Ended(times);
        Progress::Waits
    }

    /// Sends a request that is repeated until it is answered (timer E, RFC 3261 section 17.1.2.2).
    fn ask(&mut self, line: &Line, method: Method) {
        let range = self.write(line, -1);
        let shard = &mut *self.shard;
        shard.recorder.request_sent(&mut self.call.book, shard.now, method, range.len());
        self.keep_asking(range);
    }

    /// Sends a message that is repeated until it is answered.
    fn keep_asking(&mut self, range: Range<usize>) {
        let shard = &mut *self.shard;
        shard.messages.keep(&mut self.call.sent, &self.out.bytes[range.clone()]);
        self.call.has_sent = true;
        // The message belongs to no step.
        self.call.sent_step = u32::MAX;
        self.call.retransmit_at = 0;
        if shard.run.retransmission.enabled && !self.call.target.transport.is_reliable() {
            self.call.retransmit_delay = T1;
            self.call.retransmit_at = shard.ms + u64::from(T1);
        }
        self.post(range);
    }

    /// Handles a message for a call that is ending.
    pub(super) fn receive_leaving(&mut self, heard: &ReceivedMessage<'_>) -> Progress {
        let script = self.script;
        let ended = matches!(self.call.leaving, Leaving::Ended(_));
        if ended && heard.method == Method::Invite && (200..300).contains(&heard.code) {
            // The ACK was lost.
            self.shard.recorder.received_again(heard.bytes.len());
            self.keep_last(heard.bytes);
            self.say_ack();
            return Progress::Waits;
        }
        self.count_received(heard);
        match (heard.method, heard.code) {
            (Method::Ack, 0) => match self.call.leaving {
                Leaving::Answered => {
                    self.keep_last(heard.bytes);
                    self.end_dialog(1)
                }
                Leaving::Refused => self.cut_off(),
                _ => Progress::Waits,
            },
            (Method::Cancel, 0) => {
                self.answer_beside(heard);
                Progress::Waits
            }
            (Method::Bye, 0) => {
                self.keep_last(heard.bytes);
                self.send_line(&script.ok, -1);
                self.cut_off()
            }
            (Method::Bye, 100..=199) => {
                if self.call.retransmit_at != 0 {
                    self.call.retransmit_at = self.shard.ms + u64::from(self.shard.run.retransmission.t2);
                }
                Progress::Waits
            }
            (Method::Bye, 401 | 407) => match self.call.leaving {
                Leaving::Ended(times) if times <= CHALLENGES && self.bye_has_credentials() => {
                    if !self.keep_challenge(heard) {
                        return self.cut_off();
                    }
                    self.keep_last(heard.bytes);
                    self.end_dialog(times + 1)
                }
                _ => self.cut_off(),
            },
            (Method::Bye, _) => self.cut_off(),
            (Method::Cancel, 200..) => {
                // The INVITE is not answered yet (RFC 3261 section 9.1). After its response the repeated message is a
                // BYE.
                if self.call.leaving == Leaving::Cancelled {
                    self.call.retransmit_at = 0;
                }
                Progress::Waits
            }
            (Method::Invite, 100..=199) if self.call.leaving == Leaving::Asked => {
                self.keep_last(heard.bytes);
                self.cancel();
                Progress::Waits
            }
            (Method::Invite, 200..=299) => {
                // The 2xx crossed the CANCEL.
                self.call.confirmed = cseq(heard.bytes, &self.shard.index).0;
                self.keep_routes(heard);
                self.keep_last(heard.bytes);
                self.say_ack();
                self.end_dialog(1)
            }
            (Method::Invite, 300..) => {
                self.keep_last(heard.bytes);
                self.send_line(&script.ack, OF_REFUSAL);
                if ended { Progress::Waits } else { self.cut_off() }
            }
            _ => Progress::Waits,
        }
    }

    fn bye_has_credentials(&self) -> bool {
        if self.is_routed() { self.script.routed_bye.has_authentication } else { self.script.bye.has_authentication }
    }

    /// Handles an alarm of a call that is ending: sends its last message again, until the end of the run cuts the call
    /// off.
    pub(super) fn wake_leaving(&mut self) -> Progress {
        let ms = self.shard.ms;
        if self.call.receive_until != 0 && self.call.receive_until <= ms {
            return self.cut_off();
        }
        if self.call.retransmit_at != 0 && self.call.retransmit_at <= ms {
            let delay = self.call.retransmit_delay.saturating_mul(2);
            // Timer A of an INVITE has no bound (RFC 3261 section 17.1.1.2).
            let bound = if self.call.leaving == Leaving::Asked { delay } else { self.shard.run.retransmission.t2 };
            self.call.retransmit_delay = delay.min(bound);
            self.call.retransmit_at = ms + u64::from(self.call.retransmit_delay);
            self.shard.stats.retransmissions += 1;
            self.send_again();
        }
        Progress::Waits
    }
}
