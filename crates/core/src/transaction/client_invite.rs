//! INVITE client transaction: RFC 3261 section 17.1.1 with RFC 6026 section 8.4.

use super::step::{Action, Class, End, Retransmission, Step};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Calling,
    Proceeding,
    /// A 300-699 was received and acknowledged.
    Completed,
    /// A 2xx was received; further ones may follow (RFC 6026 section 7.2).
    Accepted,
    Terminated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Response(Class),
    /// Timer A.
    Retransmit,
    /// Timers B, D and M, and the 64*T1 after a CANCEL (section 9.1).
    End,
    /// A CANCEL was sent.
    Cancelled,
    TransportError,
}

/// Returns the first step; the caller sends the request.
pub(super) fn start(reliable: bool) -> Step<State> {
    let retransmission = if reliable { Retransmission::Unchanged } else { Retransmission::Start };
    Step::to(State::Calling, Action::SendAndKeep).retransmission(retransmission).end(End::B)
}

pub(super) fn step(state: State, event: Event, reliable: bool) -> Step<State> {
    use State::{Accepted, Calling, Completed, Proceeding, Terminated};
    match (state, event) {
        (Calling, Event::Retransmit) => Step::to(Calling, Action::Resend).retransmission(Retransmission::Double),
        (Calling, Event::Response(Class::Provisional)) => {
            Step::to(Proceeding, Action::Deliver).retransmission(Retransmission::Stop).end(End::Stop)
        }
        (Proceeding, Event::Response(Class::Provisional)) => Step::to(Proceeding, Action::Deliver),
        // Timer M: for this time other branches of a fork may send a 2xx too.
        (Calling | Proceeding, Event::Response(Class::Success)) => {
            Step::to(Accepted, Action::Deliver).retransmission(Retransmission::Stop).end(End::T1_64).forget()
        }
        // Timer D: for this time the response may be retransmitted, and each copy needs an ACK.
        (Calling | Proceeding, Event::Response(Class::Failure)) => {
            let end = if reliable { End::Now } else { End::D };
            Step::to(Completed, Action::Acknowledge).retransmission(Retransmission::Stop).end(end)
        }
        (Calling | Proceeding, Event::End) => Step::to(Terminated, Action::Timeout),
        (Calling | Completed, Event::TransportError) => Step::to(Terminated, Action::TransportError),
        (Proceeding, Event::Cancelled) => Step::to(Proceeding, Action::Absorb).end(End::T1_64),
        (Completed, Event::Response(Class::Failure)) => Step::to(Completed, Action::Resend),
        (Accepted, Event::Response(Class::Success)) => Step::to(Accepted, Action::DeliverAgain),
        (Completed | Accepted, Event::End) => Step::to(Terminated, Action::Absorb),
        (state, _) => Step::to(state, Action::Absorb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retransmitted_until_something_comes() {
        assert_eq!(start(false).retransmission, Retransmission::Start);
        assert_eq!(start(true).retransmission, Retransmission::Unchanged);
        let again = step(State::Calling, Event::Retransmit, false);
        assert_eq!((again.action, again.retransmission), (Action::Resend, Retransmission::Double));
        let ringing = step(State::Calling, Event::Response(Class::Provisional), false);
        assert_eq!(
            (ringing.next, ringing.retransmission, ringing.end),
            (State::Proceeding, Retransmission::Stop, End::Stop)
        );
        assert_eq!(step(State::Proceeding, Event::Retransmit, false).action, Action::Absorb);
        let lost = step(State::Calling, Event::End, false);
        assert_eq!((lost.next, lost.action), (State::Terminated, Action::Timeout));
    }

    #[test]
    fn failures_are_acknowledged_each_time() {
        for state in [State::Calling, State::Proceeding] {
            let first = step(state, Event::Response(Class::Failure), false);
            assert_eq!((first.next, first.action, first.end), (State::Completed, Action::Acknowledge, End::D));
            assert_eq!(step(state, Event::Response(Class::Failure), true).end, End::Now);
        }
        assert_eq!(step(State::Completed, Event::Response(Class::Failure), false).action, Action::Resend);
        assert_eq!(step(State::Completed, Event::Response(Class::Success), false).action, Action::Absorb);
        assert_eq!(step(State::Completed, Event::End, false).next, State::Terminated);
    }

    #[test]
    fn every_2xx_passes_in_accepted() {
        let first = step(State::Proceeding, Event::Response(Class::Success), true);
        assert_eq!(
            (first.next, first.action, first.end, first.forget),
            (State::Accepted, Action::Deliver, End::T1_64, true)
        );
        assert_eq!(step(State::Accepted, Event::Response(Class::Success), false).action, Action::DeliverAgain);
        assert_eq!(step(State::Accepted, Event::Response(Class::Failure), false).action, Action::Absorb);
        assert_eq!(step(State::Accepted, Event::TransportError, false).next, State::Accepted);
        assert_eq!(step(State::Accepted, Event::End, false).next, State::Terminated);
    }
}
