//! Messages of calls in the figures of a shard.

use super::ShardRecorder;
use crate::call::{Open, Side, State};
use crate::{Attempt, CallBook, CallOutcome, Counter};
use strowger_message::Method;

impl ShardRecorder {
    /// Records a request sent for the first time (including an ACK). Its meaning follows from the earlier messages of
    /// the call; see [`CallBook::attempt`]. `bytes`: its length.
    #[inline]
    pub fn request_sent(&mut self, call: &mut CallBook, now: u64, method: Method, bytes: usize) {
        let attempt = call.attempt(method);
        self.request_sent_as(call, now, method, attempt, bytes);
    }

    /// Records as [`ShardRecorder::request_sent_as`] does an INVITE with an identifying mark (a hash of its branch, for
    /// example). If another INVITE is open, both are measured; if two are open, the first is given up.
    pub fn invite_sent(&mut self, call: &mut CallBook, now: u64, attempt: Attempt, invite: u64, bytes: usize) {
        if attempt == Attempt::Initial && call.session.is_open() {
            call.turn();
        }
        self.request_sent_as(call, now, Method::Invite, attempt, bytes);
        call.invite = invite;
    }

    /// Records as [`ShardRecorder::request_sent`], where the engine knows the attempt better.
    pub fn request_sent_as(&mut self, call: &mut CallBook, now: u64, method: Method, attempt: Attempt, bytes: usize) {
        self.sent(bytes);
        self.page.requests_sent[method as usize] += 1;
        if matches!(method, Method::Ack | Method::Cancel | Method::Prack) {
            return;
        }
        let intended = call.intends(now);
        call.due = 0;
        let begun = Open { sent: now, intended, state: State::Open };
        if attempt == Attempt::Initial {
            self.conclude(call, now, method, CallOutcome::Successful);
        }
        match method {
            Method::Invite => match attempt {
                Attempt::Initial => {
                    self.page.count(Counter::SessionAttempts, 1);
                    call.session = begun;
                    (call.indicated, call.answered_first, call.modifying) = (0, false, State::Idle);
                }
                Attempt::Again => call.session.state = State::Open,
                Attempt::InDialog => {
                    // After a challenge it is the same attempt again.
                    if call.modifying != State::Challenged {
                        self.page.count(Counter::SessionModified, 1);
                    }
                    call.modifying = State::Open;
                }
            },
            Method::Register => match attempt {
                Attempt::Again => call.registration.state = State::Open,
                _ => {
                    self.page.count(Counter::RegistrationAttempts, 1);
                    call.registration = begun;
                }
            },
            Method::Bye => match attempt {
                Attempt::Again => call.disconnect.state = State::Open,
                _ => {
                    self.page.count(Counter::DisconnectAttempts, 1);
                    call.disconnect = begun;
                    call.leaving = std::mem::take(&mut call.talking);
                    call.talk_until = now;
                }
            },
            _ => match attempt {
                Attempt::Again => call.request.state = State::Open,
                _ => {
                    self.page.count(Counter::RequestAttempts, 1);
                    call.request = begun;
                    call.request_method = method;
                }
            },
        }
    }

    /// Records a response received for the first time, to a request of `method` (from its CSeq). `retry_after`: whether
    /// the response has a Retry-After header field. `bytes`: its length.
    pub fn response_received(
        &mut self,
        call: &mut CallBook,
        now: u64,
        method: Method,
        code: u16,
        retry_after: bool,
        bytes: usize,
    ) {
        self.received(bytes);
        self.page.responses_received.count(method, code, 1);
        if matches!(code, 401 | 402 | 407) {
            self.page.count(Counter::Challenges, 1);
        }
        match method {
            Method::Invite => self.invite_answered(call, now, code),
            Method::Register if call.registration.is_open() => self.register_answered(call, now, code),
            Method::Bye if call.disconnect.is_open() => self.bye_answered(call, now, code, retry_after),
            Method::Ack | Method::Cancel | Method::Prack | Method::Register | Method::Bye => {}
            _ if call.request.is_open() && call.request_method == method => self.request_answered(call, now, code),
            _ => {}
        }
    }

    /// Records a request received for the first time. `bytes`: its length.
    pub fn request_received(&mut self, call: &mut CallBook, now: u64, method: Method, bytes: usize) {
        self.received(bytes);
        self.page.requests_received[method as usize] += 1;
        match method {
            Method::Invite if call.talking == Side::Nobody && !call.asked => {
                self.page.count(Counter::IncomingSessions, 1);
                call.asked = true;
            }
            Method::Bye if call.talking != Side::Nobody => {
                call.leaving = std::mem::take(&mut call.talking);
                self.talked(call, now);
            }
            _ => {}
        }
    }

    /// Records a response sent for the first time, to a request of `method`. `bytes`: its length.
    pub fn response_sent(&mut self, call: &mut CallBook, now: u64, method: Method, code: u16, bytes: usize) {
        self.sent(bytes);
        self.page.responses_sent.count(method, code, 1);
        match method {
            Method::Invite if call.asked => match code {
                // After a challenge the INVITE is sent again, and still belongs to the same attempt.
                ..200 | 401 | 407 => {}
                200..=299 => {
                    self.page.count(Counter::IncomingAnswered, 1);
                    (call.asked, call.talking, call.talk_since) = (false, Side::Terminating, now);
                }
                _ => {
                    self.page.count(Counter::IncomingRefused, 1);
                    call.asked = false;
                }
            },
            Method::Bye if (200..300).contains(&code) && !call.disconnect.is_open() => self.completed(call),
            _ => {}
        }
    }

    /// Records a retransmitted request.
    #[inline]
    pub fn request_resent(&mut self, method: Method, bytes: usize) {
        self.sent(bytes);
        self.page.count(Counter::RetransmissionsSent, 1);
        self.page.requests_resent[method as usize] += 1;
    }

    /// Records a retransmitted response.
    #[inline]
    pub fn response_resent(&mut self, bytes: usize) {
        self.sent(bytes);
        self.page.count(Counter::RetransmissionsSent, 1);
    }

    /// Records a received retransmission. It is counted here and nowhere else.
    #[inline]
    pub fn received_again(&mut self, bytes: usize) {
        self.received(bytes);
        self.page.count(Counter::RetransmissionsReceived, 1);
    }

    /// Records that the scenario did not expect the message just reported.
    #[inline]
    pub fn unexpected(&mut self) {
        self.page.count(Counter::Unexpected, 1);
    }

    /// Records a message that belongs to no known call and begins none. It is counted here and nowhere else.
    #[inline]
    pub fn out_of_call(&mut self, bytes: usize) {
        self.received(bytes);
        self.page.count(Counter::OutOfCall, 1);
    }

    /// Records a message of a call that has ended. It is counted here and nowhere else.
    #[inline]
    pub fn dead_call(&mut self, bytes: usize) {
        self.received(bytes);
        self.page.count(Counter::DeadCall, 1);
    }

    /// Records a message sent outside any call (an automatic answer, for example): bytes and message only.
    #[inline]
    pub fn sent(&mut self, bytes: usize) {
        self.page.count(Counter::MessagesSent, 1);
        self.page.count(Counter::BytesSent, bytes as u64);
    }

    #[inline]
    fn received(&mut self, bytes: usize) {
        self.page.count(Counter::MessagesReceived, 1);
        self.page.count(Counter::BytesReceived, bytes as u64);
    }
}
