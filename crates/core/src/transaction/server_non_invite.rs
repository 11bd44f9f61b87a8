//! Non-INVITE server transaction: RFC 3261 section 17.2.2.

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
    /// Repeated request.
    Request,
    /// Response of the user.
    Respond(Class),
    /// Timer J.
    End,
    TransportError,
}

pub(super) fn step(state: State, event: Event, reliable: bool) -> Step<State> {
    use State::{Completed, Proceeding, Terminated, Trying};
    let send = if reliable { Action::Send } else { Action::SendAndKeep };
    match (state, event) {
        (Trying | Proceeding, Event::Respond(Class::Provisional)) => Step::to(Proceeding, send),
        (Trying | Proceeding, Event::Respond(_)) => {
            let end = if reliable { End::Now } else { End::T1_64 };
            Step::to(Completed, send).retransmission(Retransmission::Stop).end(end)
        }
        (Proceeding | Completed, Event::Request) => Step::to(state, Action::Resend),
        (Proceeding | Completed, Event::TransportError) => Step::to(Terminated, Action::TransportError),
        (Completed, Event::End) => Step::to(Terminated, Action::Absorb),
        (state, _) => Step::to(state, Action::Absorb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_response_answers_a_retransmission() {
        assert_eq!(step(State::Trying, Event::Request, false).action, Action::Absorb);
        let trying = step(State::Trying, Event::Respond(Class::Provisional), false);
        assert_eq!((trying.next, trying.action), (State::Proceeding, Action::SendAndKeep));
        assert_eq!(step(State::Proceeding, Event::Request, false).action, Action::Resend);
        let done = step(State::Proceeding, Event::Respond(Class::Failure), false);
        assert_eq!((done.next, done.action, done.end), (State::Completed, Action::SendAndKeep, End::T1_64));
        assert_eq!(step(State::Trying, Event::Respond(Class::Success), true).end, End::Now);
        assert_eq!(step(State::Completed, Event::Request, false).action, Action::Resend);
        assert_eq!(step(State::Completed, Event::Respond(Class::Success), false).action, Action::Absorb);
        assert_eq!(step(State::Completed, Event::End, false).next, State::Terminated);
    }
}
