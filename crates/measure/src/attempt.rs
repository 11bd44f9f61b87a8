//! Attempts of RFC 6076. Each lasts from its request to its end, of which there is exactly one.

use super::call::{Side, State};
use super::{CallBook, CallOutcome, Counter, Delay, ShardRecorder};
use strowger_message::Method;

impl ShardRecorder {
    /// Records a response to our INVITE (RFC 6076 sections 4.3, 4.6 to 4.9).
    pub(super) fn invite_answered(&mut self, call: &mut CallBook, now: u64, code: u16) {
        if call.modifying == State::Open {
            call.modifying = match code {
                ..200 => State::Open,
                401 | 402 | 407 => State::Challenged,
                _ => State::Idle,
            };
            return;
        }
        if !call.session.is_open() {
            // Another branch answers too: only the dialog of the first 2xx counts (section 5).
            if call.session.state == State::Done && (200..300).contains(&code) && call.talking == Side::Originating {
                self.page.count(Counter::SessionForked, 1);
            }
            return;
        }
        let wire = now.saturating_sub(call.session.sent);
        let whole = now.saturating_sub(call.session.intended);
        if !std::mem::replace(&mut call.answered_first, true) {
            self.delay(Delay::FirstResponse, wire);
        }
        match code {
            ..=100 => {}
            101..=199 => {
                if call.indicated == 0 {
                    call.indicated = now;
                }
            }
            200..=299 => {
                self.page.count(Counter::SessionAnswered, 1);
                self.delay(Delay::Response, wire);
                self.delay(Delay::ResponseIntended, whole);
                self.set_up(call, now, Delay::Setup, Delay::SetupIntended);
                (call.talking, call.talk_since) = (Side::Originating, now);
                self.session_concluded(call, true);
            }
            300..=399 => {
                self.page.count(Counter::SessionRedirected, 1);
                self.session_concluded(call, false);
            }
            401 | 402 | 407 => call.session.state = State::Challenged,
            _ => {
                self.page.count(Counter::SessionFailed, 1);
                match code {
                    480 | 486 | 600 | 603 => self.page.count(Counter::SessionEffective, 1),
                    408 | 500 | 503 | 504 => self.page.count(Counter::SessionIneffective, 1),
                    _ => {}
                }
                self.set_up(call, now, Delay::SetupFailed, Delay::SetupFailedIntended);
                self.session_concluded(call, false);
            }
        }
    }

    fn set_up(&mut self, call: &CallBook, now: u64, wire: Delay, intended: Delay) {
        let end = if call.indicated == 0 { now } else { call.indicated };
        self.delay(wire, end.saturating_sub(call.session.sent));
        self.delay(intended, end.saturating_sub(call.session.intended));
    }

    fn session_concluded(&mut self, call: &mut CallBook, answered: bool) {
        call.session.state = State::Done;
        if call.registered {
            self.page.count(Counter::SessionRegistered, 1);
            self.page.count(Counter::SessionRegisteredAnswered, u64::from(answered));
        }
    }

    /// Records a response to our REGISTER (RFC 6076 sections 4.1 and 4.2).
    pub(super) fn register_answered(&mut self, call: &mut CallBook, now: u64, code: u16) {
        match code {
            ..=199 => return,
            200..=299 => {
                self.page.count(Counter::RegistrationSuccessful, 1);
                self.delay(Delay::Registration, now.saturating_sub(call.registration.sent));
                self.delay(Delay::RegistrationIntended, now.saturating_sub(call.registration.intended));
                call.registered = true;
            }
            300..=399 => self.page.count(Counter::RegistrationRedirected, 1),
            401 | 402 | 407 => {
                call.registration.state = State::Challenged;
                return;
            }
            _ => self.page.count(Counter::RegistrationFailed, 1),
        }
        call.registration.state = State::Done;
    }

    /// Records a response to our BYE (RFC 6076 section 4.4).
    pub(super) fn bye_answered(&mut self, call: &mut CallBook, now: u64, code: u16, retry_after: bool) {
        let delay = now.saturating_sub(call.disconnect.sent);
        match code {
            ..=199 => return,
            401 | 407 => {
                call.disconnect.state = State::Challenged;
                return;
            }
            503 if retry_after => {
                call.disconnect.state = State::Challenged;
                return;
            }
            200..=299 => {
                self.page.count(Counter::DisconnectSuccessful, 1);
                self.delay(Delay::Disconnect, delay);
                self.delay(Delay::DisconnectIntended, now.saturating_sub(call.disconnect.intended));
            }
            _ => {
                self.page.count(Counter::DisconnectFailed, 1);
                self.delay(Delay::DisconnectFailed, delay);
            }
        }
        call.disconnect.state = State::Done;
        let until = call.talk_until;
        self.talked(call, until);
        if (200..300).contains(&code) {
            self.completed(call);
        } else {
            call.leaving = Side::Nobody;
        }
    }

    pub(super) fn request_answered(&mut self, call: &mut CallBook, now: u64, code: u16) {
        match code {
            ..=199 => return,
            401 | 407 => {
                call.request.state = State::Challenged;
                return;
            }
            200..=299 => {
                self.page.count(Counter::RequestSuccessful, 1);
                self.delay(Delay::Request, now.saturating_sub(call.request.sent));
                self.delay(Delay::RequestIntended, now.saturating_sub(call.request.intended));
            }
            _ => self.page.count(Counter::RequestFailed, 1),
        }
        call.request.state = State::Done;
    }

    /// Records that a BYE ended the session of `call.leaving` at `until` (RFC 6076 section 4.5.1).
    pub(super) fn talked(&mut self, call: &CallBook, until: u64) {
        let us = until.saturating_sub(call.talk_since);
        match call.leaving {
            Side::Originating => self.delay(Delay::TalkOriginating, us),
            Side::Terminating => self.delay(Delay::TalkTerminating, us),
            Side::Nobody => {}
        }
    }

    /// Records the response to the BYE of the session of `call.leaving` (RFC 6076 section 4.9).
    pub(super) fn completed(&mut self, call: &mut CallBook) {
        match std::mem::take(&mut call.leaving) {
            Side::Originating => self.page.count(Counter::SessionCompleted, 1),
            Side::Terminating => self.page.count(Counter::IncomingCompleted, 1),
            Side::Nobody => {}
        }
    }

    /// Concludes the open request of this method, if any, without a final response.
    pub(super) fn conclude(&mut self, call: &mut CallBook, now: u64, method: Method, outcome: CallOutcome) {
        let (timeout, transport, stopped) = match outcome {
            CallOutcome::Failed(failure) => (failure.is_timeout(), failure.is_transport(), false),
            CallOutcome::Stopped => (false, false, true),
            CallOutcome::Successful => (false, false, false),
        };
        match method {
            Method::Invite if call.session.is_open() => {
                let challenged = call.session.state == State::Challenged;
                self.page.count(
                    match () {
                        () if stopped => Counter::SessionUnresolved,
                        () if challenged && !transport => Counter::SessionChallenged,
                        () if timeout => Counter::SessionTimedOut,
                        () if transport => Counter::SessionTransport,
                        () => Counter::SessionAbandoned,
                    },
                    1,
                );
                if stopped {
                    call.session.state = State::Done;
                } else {
                    // The call rang without an answer in time: a failed setup, with the delay to the ringing.
                    if call.indicated != 0 && timeout {
                        self.set_up(call, now, Delay::SetupFailed, Delay::SetupFailedIntended);
                    }
                    self.session_concluded(call, false);
                }
            }
            Method::Register if call.registration.is_open() => {
                let challenged = call.registration.state == State::Challenged;
                self.page.count(
                    match () {
                        () if stopped => Counter::RegistrationUnresolved,
                        () if challenged && !transport => Counter::RegistrationChallenged,
                        () if timeout => Counter::RegistrationTimedOut,
                        () if transport => Counter::RegistrationTransport,
                        () => Counter::RegistrationAbandoned,
                    },
                    1,
                );
                call.registration.state = State::Done;
            }
            Method::Bye if call.disconnect.is_open() => {
                if !stopped {
                    if timeout && call.disconnect.state == State::Open {
                        self.page.count(Counter::DisconnectTimedOut, 1);
                        self.delay(Delay::DisconnectFailed, now.saturating_sub(call.disconnect.sent));
                        if call.leaving != Side::Nobody {
                            self.delay(Delay::TalkFailed, now.saturating_sub(call.talk_since));
                        }
                    } else {
                        self.page.count(Counter::DisconnectFailed, 1);
                    }
                }
                call.leaving = Side::Nobody;
                call.disconnect.state = State::Done;
            }
            Method::Invite | Method::Register | Method::Bye => {}
            _ if call.request.is_open() => {
                if !stopped {
                    self.page.count(if timeout { Counter::RequestTimedOut } else { Counter::RequestFailed }, 1);
                }
                call.request.state = State::Done;
            }
            _ => {}
        }
    }
}
