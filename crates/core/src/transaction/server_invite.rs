//! INVITE server transaction: RFC 3261 section 17.2.1 with RFC 6026 section 8.5.

use super::step::{Action, Class, End, Retransmission, Step};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum State {
    Proceeding,
    /// A 300-699 was sent; its ACK is awaited.
    Completed,
    /// The ACK was received.
    Confirmed,
    /// A 2xx was sent; further ones may follow (RFC 6026 section 7.1).
    Accepted,
    Terminated,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// Repeated INVITE.
    Request,
    Ack,
    /// Response of the user.
    Respond(Class),
    /// Timer G.
    Retransmit,
    /// Timers H, I and L.
    End,
    TransportError,
}

pub(super) fn step(state: State, event: Event, reliable: bool) -> Step<State> {
    use State::{Accepted, Completed, Confirmed, Proceeding, Terminated};
    match (state, event) {
        (Proceeding, Event::Request) => Step::to(Proceeding, Action::Resend),
        (Proceeding, Event::Respond(Class::Provisional)) => {
            Step::to(Proceeding, if reliable { Action::Send } else { Action::SendAndKeep })
        }
        (Proceeding, Event::Respond(Class::Success)) => Step::to(Accepted, Action::Send).end(End::T1_64).forget(),
        (Proceeding, Event::Respond(Class::Failure)) => {
            let step = Step::to(Completed, if reliable { Action::Send } else { Action::SendAndKeep }).end(End::T1_64);
            step.retransmission(if reliable { Retransmission::Unchanged } else { Retransmission::Start })
        }
        (Completed, Event::Request) => Step::to(Completed, Action::Resend),
        (Completed, Event::Retransmit) => {
            Step::to(Completed, Action::Resend).retransmission(Retransmission::DoubleToT2)
        }
        (Completed, Event::Ack) => {
            let end = if reliable { End::Now } else { End::T4 };
            Step::to(Confirmed, Action::Absorb).retransmission(Retransmission::Stop).end(end).forget()
        }
        // A proxy forwards a late 2xx, even after another final response (RFC 3261 section 16.7 step 5).
        (Completed | Confirmed, Event::Respond(Class::Success)) => Step::to(state, Action::Send),
        (Completed, Event::End) => Step::to(Terminated, Action::NoAck),
        (Completed, Event::TransportError) => Step::to(Terminated, Action::TransportError),
        // The user gets the event and decides what to do (RFC 6026 section 7.1 for Accepted).
        (Proceeding | Accepted, Event::TransportError) => Step::to(state, Action::TransportError),
        (Accepted, Event::Respond(Class::Success)) => Step::to(Accepted, Action::Send),
        (Accepted, Event::Ack) => Step::to(Accepted, Action::Deliver),
        (Confirmed | Accepted, Event::End) => Step::to(Terminated, Action::Absorb),
        (state, _) => Step::to(state, Action::Absorb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_provisional_answers_a_retransmission() {
        assert_eq!(step(State::Proceeding, Event::Respond(Class::Provisional), false).action, Action::SendAndKeep);
        assert_eq!(step(State::Proceeding, Event::Respond(Class::Provisional), true).action, Action::Send);
        assert_eq!(step(State::Proceeding, Event::Request, false).action, Action::Resend);
    }

    #[test]
    fn a_failure_is_sent_until_its_ack() {
        let sent = step(State::Proceeding, Event::Respond(Class::Failure), false);
        assert_eq!((sent.next, sent.action, sent.end), (State::Completed, Action::SendAndKeep, End::T1_64));
        assert_eq!(sent.retransmission, Retransmission::Start);
        let over_tcp = step(State::Proceeding, Event::Respond(Class::Failure), true);
        assert_eq!((over_tcp.retransmission, over_tcp.end), (Retransmission::Unchanged, End::T1_64));
        assert_eq!(step(State::Completed, Event::Retransmit, false).retransmission, Retransmission::DoubleToT2);
        assert_eq!(step(State::Completed, Event::End, false).action, Action::NoAck);
        let ack = step(State::Completed, Event::Ack, false);
        assert_eq!((ack.next, ack.end, ack.forget), (State::Confirmed, End::T4, true));
        assert_eq!(step(State::Completed, Event::Ack, true).end, End::Now);
        assert_eq!(step(State::Confirmed, Event::Request, false).action, Action::Absorb);
        assert_eq!(step(State::Confirmed, Event::Ack, false).action, Action::Absorb);
    }

    #[test]
    fn accepted_absorbs_the_invite_and_passes_2xx_and_ack() {
        let sent = step(State::Proceeding, Event::Respond(Class::Success), false);
        assert_eq!((sent.next, sent.action, sent.forget), (State::Accepted, Action::Send, true));
        assert_eq!(step(State::Accepted, Event::Request, false).action, Action::Absorb);
        assert_eq!(step(State::Accepted, Event::Respond(Class::Success), false).action, Action::Send);
        assert_eq!(step(State::Accepted, Event::Respond(Class::Failure), false).action, Action::Absorb);
        assert_eq!(step(State::Accepted, Event::Ack, false).action, Action::Deliver);
        assert_eq!(step(State::Accepted, Event::TransportError, false).next, State::Accepted);
    }
}
