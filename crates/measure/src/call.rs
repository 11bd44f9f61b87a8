//! What the books remember of one running call.

use strowger_message::Method;

/// Who started the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The schedule did (a user agent client in SIPp's words).
    Outgoing,
    /// A message that came in did (a user agent server).
    Incoming,
}

/// What a request that is sent is to the measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// It begins an attempt.
    Initial,
    /// The same attempt again: after a challenge (401, 407), or a BYE after a 503 with Retry-After.
    Again,
    /// Within a session (a re-INVITE).
    InDialog,
}

/// How a call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The scenario was run to its end.
    Successful,
    /// It failed, and why first.
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
    /// Answered with a challenge, or with another response after which the same is tried again.
    Challenged,
    /// Concluded.
    Done,
}

/// One request and its tries.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    /// First bit of the first try, µs.
    pub(super) sent: u64,
    /// When the schedule wanted it sent, µs.
    pub(super) intended: u64,
    pub(super) state: State,
}

impl Open {
    pub(super) fn is_open(&self) -> bool {
        matches!(self.state, State::Open | State::Challenged)
    }
}

/// What is remembered of an INVITE while another of the same call is looked at.
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

/// What the books remember of one running call: part of the engine's call slot, made by
/// [`Books::call_started`](super::Books::call_started), given to [`Books::call_ended`](super::Books::call_ended).
/// Plain data, nothing on the heap.
#[derive(Clone, Copy, Debug)]
pub struct CallBook {
    /// When the schedule wanted the call started, µs.
    pub intended: u64,
    /// When it was started, µs.
    pub started: u64,
    pub role: Role,
    /// When the schedule wanted the next request sent, µs; 0: when it is sent.
    pub(super) due: u64,
    pub(super) registration: Open,
    pub(super) session: Open,
    pub(super) disconnect: Open,
    pub(super) request: Open,
    pub(super) request_method: Method,
    /// The first provisional response other than 100 to the open INVITE, µs; 0: none yet.
    pub(super) indicated: u64,
    /// The 200 to the INVITE, µs.
    pub(super) talk_since: u64,
    /// The BYE that we sent, µs.
    pub(super) talk_until: u64,
    /// Whose INVITE the session came from, while it lasts.
    pub(super) talking: Side,
    /// Whose INVITE the session came from whose BYE waits for its answer.
    pub(super) leaving: Side,
    pub(super) answered_first: bool,
    /// A re-INVITE of ours.
    pub(super) modifying: State,
    /// Which INVITE `session` to `modifying` are about, and what is remembered of another that was open when it was sent.
    pub(super) invite: u64,
    pub(super) beside: Beside,
    pub(super) registered: bool,
    /// An INVITE came in and has no final response yet.
    pub(super) asked: bool,
    /// Call of the warm-up: it fell due before the end of the warm-up, and all its events count there.
    pub warm_up: bool,
}

impl CallBook {
    /// Of work beside all calls, which no book counts.
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

    /// The next request of this call should be sent at `due` (µs). To be called when a pause or a wait ends, with the time at
    /// which it should have ended, and when a message comes, with the time at which it came. Without this, the first request of an
    /// outgoing call is intended when the call is, and every other one when it is sent.
    #[inline]
    pub fn due(&mut self, due: u64) {
        self.due = due;
    }

    /// When that should have been done which is done `now` (µs).
    #[inline]
    pub fn intends(&self, now: u64) -> u64 {
        if self.due == 0 { now } else { self.due.min(now) }
    }

    /// The connection of the call carries messages from `at` on (µs): requests that waited for it have left then (RFC 6076: the
    /// first bit of the message sent).
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

    /// Looks at the other INVITE of the call.
    pub(super) fn turn(&mut self) {
        use std::mem::swap;
        swap(&mut self.session, &mut self.beside.session);
        swap(&mut self.indicated, &mut self.beside.indicated);
        swap(&mut self.answered_first, &mut self.beside.answered_first);
        swap(&mut self.modifying, &mut self.beside.modifying);
        swap(&mut self.invite, &mut self.beside.invite);
    }

    /// Two INVITEs of this call may be open: [`CallBook::answers`] is to be asked which one an answer is for.
    #[inline]
    pub fn has_two(&self) -> bool {
        self.beside.invite != 0
    }

    /// The next response to an INVITE is for this one, by what was told to [`Books::invite_sent`](super::Books::invite_sent).
    #[inline]
    pub fn answers(&mut self, invite: u64) {
        if self.invite != invite && self.beside.invite == invite {
            self.turn();
        }
    }

    /// What a request of this method, sent now, is, as far as the books can tell: after a challenge it is the same
    /// attempt, within a session an INVITE modifies it, everything else begins an attempt.
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
