//! Non-INVITE client transaction: RFC 3261 section 17.1.2.

use super::step::{Action, Class, End, Retransmission, Step};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Trying,
    Proceeding,
    Completed,
    Terminated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Response(Class),
    /// Timer E.
    Retransmit,
    /// Timers F and K.
    End,
    TransportError,
}

/// Returns the first step; the caller sends the request.
pub(super) fn start(reliable: bool) -> Step<State> {
    // The request is kept over reliable transports too, because a response may be made from it.
    let retransmission = if reliable { Retransmission::Unchanged } else { Retransmission::Start };
    Step::to(State::Trying, Action::SendAndKeep).retransmission(retransmission).end(End::T1_64)
}

pub(super) fn step(state: State, event: Event, reliable: bool) -> Step<State> {
    use State::{Completed, Proceeding, Terminated, Trying};
    match (state, event) {
        (Trying, Event::Retransmit) => Step::to(Trying, Action::Resend).retransmission(Retransmission::DoubleToT2),
        (Proceeding, Event::Retransmit) => Step::to(Proceeding, Action::Resend).retransmission(Retransmission::T2),
        (Trying | Proceeding, Event::Response(Class::Provisional)) => Step::to(Proceeding, Action::Deliver),
        (Trying | Proceeding, Event::Response(_)) => {
            let end = if reliable { End::Now } else { End::T4 };
            Step::to(Completed, Action::Deliver).retransmission(Retransmission::Stop).end(end).forget()
        }
        (Trying | Proceeding, Event::End) => Step::to(Terminated, Action::Timeout),
        (Trying | Proceeding, Event::TransportError) => Step::to(Terminated, Action::TransportError),
        (Completed, Event::End) => Step::to(Terminated, Action::Absorb),
        (state, _) => Step::to(state, Action::Absorb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmitted_slower_after_a_provisional() {
        assert_eq!(start(true).retransmission, Retransmission::Unchanged);
        assert_eq!(step(State::Trying, Event::Retransmit, false).retransmission, Retransmission::DoubleToT2);
        let trying = step(State::Trying, Event::Response(Class::Provisional), false);
        assert_eq!((trying.next, trying.retransmission), (State::Proceeding, Retransmission::Unchanged));
        assert_eq!(step(State::Proceeding, Event::Retransmit, false).retransmission, Retransmission::T2);
        assert_eq!(step(State::Proceeding, Event::End, false).action, Action::Timeout);
    }

    #[test]
    fn one_final_response_and_no_more() {
        for class in [Class::Success, Class::Failure] {
            let first = step(State::Trying, Event::Response(class), false);
            assert_eq!((first.next, first.action, first.end), (State::Completed, Action::Deliver, End::T4));
            assert!(first.forget);
            assert_eq!(step(State::Proceeding, Event::Response(class), true).end, End::Now);
            assert_eq!(step(State::Completed, Event::Response(class), false).action, Action::Absorb);
        }
        assert_eq!(step(State::Completed, Event::End, false).next, State::Terminated);
    }
}
