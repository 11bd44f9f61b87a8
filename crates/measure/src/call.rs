//! Recorder state of one running call.

use strowger_message::Method;

/// Origin of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Begun by the schedule (SIPp's user agent client).
    Outgoing,
    /// Begun by a received message (user agent server).
    Incoming,
}

/// Meaning of a sent request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Beginning of an attempt.
    Initial,
    /// Repetition of the same attempt: after a challenge (401, 407), or a BYE after a 503 with Retry-After.
    Again,
    /// Request within a session (a re-INVITE).
    InDialog,
}

/// End of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOutcome {
    /// The call finished its scenario.
    Successful,
    /// The call failed, by this first cause.
    Failed(super::Failure),
    /// The run ended before the call; neither success nor failure.
    Stopped,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum State {
    #[default]
    Idle,
    /// Sent, no final response yet.
    Open,
    /// Answered with a challenge, or with another response after which the same attempt continues.
    Challenged,
    /// Concluded.
    Done,
}

/// Request and its tries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    /// First bit of the first try, µs.
    pub(super) sent: u64,
    /// Intended time of sending, µs.
    pub(super) intended: u64,
    pub(super) state: State,
}

impl Open {
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Challenged)
    }
}

/// State of an INVITE while another of the same call is current.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Beside {
    session: Open,
    indicated: u64,
    answered_first: bool,
    modifying: State,
    invite: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Side {
    #[default]
    Nobody,
    Originating,
    Terminating,
}

/// Recorder state of one running call: part of the engine's call slot, made by
/// [`ShardRecorder::call_started`](super::ShardRecorder::call_started), given to [`ShardRecorder::call_ended`](super::ShardRecorder::call_ended). Plain
/// data, nothing on the heap.
#[derive(Clone, Copy, Debug)]
pub struct CallBook {
    /// Intended start of the call, µs.
    pub intended: u64,
    /// Actual start, µs.
    pub started: u64,
    pub role: Role,
    /// Intended time of the next request, µs; 0: the time of sending.
    pub(super) due: u64,
    pub(super) registration: Open,
    pub(super) session: Open,
    pub(super) disconnect: Open,
    pub(super) request: Open,
    pub(super) request_method: Method,
    /// First provisional response other than 100 to the open INVITE, µs; 0: none yet.
    pub(super) indicated: u64,
    /// 200 to the INVITE, µs.
    pub(super) talk_since: u64,
    /// Our BYE, µs.
    pub(super) talk_until: u64,
    /// Sender of the INVITE of the current session.
    pub(super) talking: Side,
    /// Sender of the INVITE of the session whose BYE waits for its response.
    pub(super) leaving: Side,
    pub(super) answered_first: bool,
    /// State of our re-INVITE.
    pub(super) modifying: State,
    /// INVITE that the fields from `session` to `modifying` describe, and the state of another that was open when it was sent.
    pub(super) invite: u64,
    pub(super) beside: Beside,
    pub(super) registered: bool,
    /// True if a received INVITE has no final response yet.
    pub(super) asked: bool,
    /// The call belongs to the warm-up: it fell due before the end of the warm-up, and all its events count in the
    /// warm-up.
    pub warm_up: bool,
}

impl CallBook {
    /// Creates the state of work outside all calls, which no recorder counts.
    pub fn outside(now: u64) -> Self {
        Self::new(Role::Outgoing, now, now)
    }

    pub(super) fn new(role: Role, intended: u64, started: u64) -> Self {
        Self {
            intended,
            started,
            role,
            due: intended,
            registration: Open::default(),
            session: Open::default(),
            disconnect: Open::default(),
            request: Open::default(),
            request_method: Method::Other,
            indicated: 0,
            talk_since: 0,
            talk_until: 0,
            talking: Side::Nobody,
            leaving: Side::Nobody,
            answered_first: false,
            modifying: State::Idle,
            invite: 0,
            beside: Beside::default(),
            registered: false,
            asked: false,
            warm_up: false,
        }
    }

    /// Sets the intended time of this call's next request (µs). To be called when a pause or a wait ends, with its
    /// intended end, and when a message arrives, with its arrival. Without such a call, the first request of an
    /// outgoing call is intended at the call's intended start, and every other request when it is sent.
    #[inline]
    pub fn due(&mut self, due: u64) {
        self.due = due;
    }

    /// Returns the intended time of work that is done `now` (µs).
    #[inline]
    pub fn intends(&self, now: u64) -> u64 {
        if self.due == 0 { now } else { self.due.min(now) }
    }

    /// Records that the connection of the call carries messages from `at` on (µs): the requests that waited for the
    /// connection were sent at this time (RFC 6076: the first bit of the message sent).
    pub fn connected(&mut self, at: u64) {
        let all = [
            &mut self.registration,
            &mut self.session,
            &mut self.disconnect,
            &mut self.request,
            &mut self.beside.session,
        ];
        for open in all.into_iter().filter(|open| open.is_open()) {
            open.sent = open.sent.max(at);
        }
    }

    /// Makes the other INVITE of the call current.
    pub(super) fn turn(&mut self) {
        use std::mem::swap;
        swap(&mut self.session, &mut self.beside.session);
        swap(&mut self.indicated, &mut self.beside.indicated);
        swap(&mut self.answered_first, &mut self.beside.answered_first);
        swap(&mut self.modifying, &mut self.beside.modifying);
        swap(&mut self.invite, &mut self.beside.invite);
    }

    /// Returns whether two INVITEs of this call may be open: [`CallBook::answers`] MUST then select the one of a
    /// response.
    #[inline]
    pub fn has_two(&self) -> bool {
        self.beside.invite != 0
    }

    /// Selects the INVITE of the next response, by the mark given to [`ShardRecorder::invite_sent`](super::ShardRecorder::invite_sent).
    #[inline]
    pub fn answers(&mut self, invite: u64) {
        if self.invite != invite && self.beside.invite == invite {
            self.turn();
        }
    }

    /// Returns the meaning of a request of this method that is sent now, as far as the recorder can tell. After a challenge the request
    /// continues the same attempt. An INVITE within a session modifies the session. Every other request begins an attempt.
    #[inline]
    pub fn attempt(&self, method: Method) -> Attempt {
        let again = match method {
            Method::Invite => self.session.state == State::Challenged,
            Method::Register => self.registration.state == State::Challenged,
            Method::Bye => self.disconnect.state == State::Challenged,
            _ => self.request.state == State::Challenged && self.request_method == method,
        };
        if again {
            Attempt::Again
        } else if method == Method::Invite && self.talking != Side::Nobody {
            Attempt::InDialog
        } else {
            Attempt::Initial
        }
    }
}
