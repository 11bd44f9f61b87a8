//! What a machine says when something happens: its next state and what to do.

/// The answer of a machine to one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step<S> {
    pub(super) next: S,
    pub(super) action: Action,
    pub(super) retransmission: Retransmission,
    pub(super) end: End,
    /// The kept message is needed no longer.
    pub(super) forget: bool,
}

impl<S> Step<S> {
    pub(super) const fn to(next: S, action: Action) -> Self {
        Self { next, action, retransmission: Retransmission::Unchanged, end: End::Unchanged, forget: false }
    }

    pub(super) const fn retransmission(mut self, change: Retransmission) -> Self {
        self.retransmission = change;
        self
    }

    pub(super) const fn end(mut self, change: End) -> Self {
        self.end = change;
        self
    }

    pub(super) const fn forget(mut self) -> Self {
        self.forget = true;
        self
    }

    pub(super) fn map<T>(self, of: impl FnOnce(S) -> T) -> Step<T> {
        Step {
            next: of(self.next),
            action: self.action,
            retransmission: self.retransmission,
            end: self.end,
            forget: self.forget,
        }
    }
}

/// What is to be done with the event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Nothing; a message is swallowed.
    Absorb,
    /// The message goes to the user of the transaction.
    Deliver,
    /// A 2xx after the first: to the user, which tells them apart (RFC 6026 section 7.2).
    DeliverAgain,
    /// As [`Action::Deliver`], and an ACK is made, sent and kept (RFC 3261 section 17.1.1.3).
    Acknowledge,
    /// The kept message is sent again.
    Resend,
    /// The response given is sent and kept.
    SendAndKeep,
    /// The response given is sent.
    Send,
    /// The user hears that no final response came.
    Timeout,
    /// The user hears that no ACK came (timer H).
    NoAck,
    /// The user hears that nothing can be sent (RFC 3261 sections 17.1.4 and 17.2.4).
    TransportError,
}

/// What becomes of the timer of retransmissions: A, E or G.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retransmission {
    Unchanged,
    /// After T1.
    Start,
    /// After twice the last pause.
    Double,
    /// After twice the last pause, T2 at most.
    DoubleToT2,
    /// After T2.
    T2,
    Stop,
}

/// What becomes of the timer that ends the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Unchanged,
    Stop,
    /// At once, by the next poll.
    Now,
    /// After T4: timers I and K.
    T4,
    /// After 64*T1: timers F, H, J, L, M.
    T1_64,
    /// Timer B.
    B,
    /// Timer D.
    D,
}

/// The class of a response, as the machines tell them apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// 1xx.
    Provisional,
    /// 2xx.
    Success,
    /// 300 to 699.
    Failure,
}

impl Class {
    pub(super) const fn of(status: u16) -> Self {
        match status {
            0..200 => Self::Provisional,
            200..300 => Self::Success,
            _ => Self::Failure,
        }
    }
}
