//! Step of a state machine: next state and actions.

/// Result of a machine for one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Step<S> {
    pub(super) next: S,
    pub(super) action: Action,
    pub(super) retransmission: Retransmission,
    pub(super) end: End,
    /// Set if the kept message is no longer needed.
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

/// Action for an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// No action; a message is dropped.
    Absorb,
    /// Delivers the message to the user of the transaction.
    Deliver,
    /// Delivers a 2xx after the first; the user distinguishes them (RFC 6026 section 7.2).
    DeliverAgain,
    /// Delivers the response as [`Action::Deliver`] does, and creates, sends and keeps an ACK (RFC 3261 section
    /// 17.1.1.3).
    Acknowledge,
    /// Sends the kept message again.
    Resend,
    /// Sends and keeps the given response.
    SendAndKeep,
    /// Sends the given response.
    Send,
    /// Reports that no final response was received.
    Timeout,
    /// Reports that no ACK was received (timer H).
    NoAck,
    /// Reports that messages cannot be sent (RFC 3261 sections 17.1.4 and 17.2.4).
    TransportError,
}

/// Change of the retransmission timer: A, E or G.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Retransmission {
    Unchanged,
    /// Starts with T1.
    Start,
    /// Starts with twice the last pause.
    Double,
    /// Starts with twice the last pause, at most T2.
    DoubleToT2,
    /// Starts with T2.
    T2,
    Stop,
}

/// Change of the timer that ends the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Unchanged,
    Stop,
    /// Ends with the next poll.
    Now,
    /// Starts with T4: timers I and K.
    T4,
    /// Starts with 64*T1: timers F, H, J, L, M.
    T1_64,
    /// Starts timer B.
    B,
    /// Starts timer D.
    D,
}

/// Class of a response, as the machines distinguish it.
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
