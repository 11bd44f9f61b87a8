//! State machine of a transaction: one of four.

use super::record::Side;
use super::step::{Action, Class, Step};
use super::{client_invite, client_non_invite, server_invite, server_non_invite};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::enum_variant_names, reason = "the names of the RFC")]
pub(super) enum Machine {
    ClientInvite(client_invite::State),
    ClientNonInvite(client_non_invite::State),
    ServerInvite(server_invite::State),
    ServerNonInvite(server_non_invite::State),
}

impl Machine {
    pub(super) const fn side(self) -> Side {
        match self {
            Self::ClientInvite(_) | Self::ClientNonInvite(_) => Side::Client,
            Self::ServerInvite(_) | Self::ServerNonInvite(_) => Side::Server,
        }
    }

    pub(super) const fn is_terminated(self) -> bool {
        matches!(
            self,
            Self::ClientInvite(client_invite::State::Terminated)
                | Self::ClientNonInvite(client_non_invite::State::Terminated)
                | Self::ServerInvite(server_invite::State::Terminated)
                | Self::ServerNonInvite(server_non_invite::State::Terminated)
        )
    }

    /// Tells whether a request was received and has no final response.
    pub(super) const fn awaits_answer(self) -> bool {
        use server_non_invite::State::{Proceeding, Trying};
        matches!(
            self,
            Self::ServerInvite(server_invite::State::Proceeding) | Self::ServerNonInvite(Trying | Proceeding)
        )
    }

    /// Tells whether a request was sent and has no response yet.
    pub(super) const fn hears_nothing(self) -> bool {
        matches!(
            self,
            Self::ClientInvite(client_invite::State::Calling) | Self::ClientNonInvite(client_non_invite::State::Trying)
        )
    }

    pub(super) fn retransmit(self, reliable: bool) -> Step<Self> {
        match self {
            Self::ClientInvite(s) => {
                client_invite::step(s, client_invite::Event::Retransmit, reliable).map(Self::ClientInvite)
            }
            Self::ClientNonInvite(s) => {
                client_non_invite::step(s, client_non_invite::Event::Retransmit, reliable).map(Self::ClientNonInvite)
            }
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::Retransmit, reliable).map(Self::ServerInvite)
            }
            // The responses of such a transaction are retransmitted only when the request is retransmitted.
            Self::ServerNonInvite(_) => Step::to(self, Action::Absorb),
        }
    }

    pub(super) fn end(self, reliable: bool) -> Step<Self> {
        match self {
            Self::ClientInvite(s) => {
                client_invite::step(s, client_invite::Event::End, reliable).map(Self::ClientInvite)
            }
            Self::ClientNonInvite(s) => {
                client_non_invite::step(s, client_non_invite::Event::End, reliable).map(Self::ClientNonInvite)
            }
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::End, reliable).map(Self::ServerInvite)
            }
            Self::ServerNonInvite(s) => {
                server_non_invite::step(s, server_non_invite::Event::End, reliable).map(Self::ServerNonInvite)
            }
        }
    }

    pub(super) fn transport_error(self, reliable: bool) -> Step<Self> {
        match self {
            Self::ClientInvite(s) => {
                client_invite::step(s, client_invite::Event::TransportError, reliable).map(Self::ClientInvite)
            }
            Self::ClientNonInvite(s) => client_non_invite::step(s, client_non_invite::Event::TransportError, reliable)
                .map(Self::ClientNonInvite),
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::TransportError, reliable).map(Self::ServerInvite)
            }
            Self::ServerNonInvite(s) => server_non_invite::step(s, server_non_invite::Event::TransportError, reliable)
                .map(Self::ServerNonInvite),
        }
    }

    pub(super) fn respond(self, class: Class, reliable: bool) -> Step<Self> {
        match self {
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::Respond(class), reliable).map(Self::ServerInvite)
            }
            Self::ServerNonInvite(s) => server_non_invite::step(s, server_non_invite::Event::Respond(class), reliable)
                .map(Self::ServerNonInvite),
            Self::ClientInvite(_) | Self::ClientNonInvite(_) => Step::to(self, Action::Absorb),
        }
    }

    pub(super) fn request(self, reliable: bool) -> Step<Self> {
        match self {
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::Request, reliable).map(Self::ServerInvite)
            }
            Self::ServerNonInvite(s) => {
                server_non_invite::step(s, server_non_invite::Event::Request, reliable).map(Self::ServerNonInvite)
            }
            Self::ClientInvite(_) | Self::ClientNonInvite(_) => Step::to(self, Action::Absorb),
        }
    }

    pub(super) fn ack(self, reliable: bool) -> Step<Self> {
        match self {
            Self::ServerInvite(s) => {
                server_invite::step(s, server_invite::Event::Ack, reliable).map(Self::ServerInvite)
            }
            _ => Step::to(self, Action::Absorb),
        }
    }

    pub(super) fn response(self, class: Class, reliable: bool) -> Step<Self> {
        match self {
            Self::ClientInvite(s) => {
                client_invite::step(s, client_invite::Event::Response(class), reliable).map(Self::ClientInvite)
            }
            Self::ClientNonInvite(s) => client_non_invite::step(s, client_non_invite::Event::Response(class), reliable)
                .map(Self::ClientNonInvite),
            Self::ServerInvite(_) | Self::ServerNonInvite(_) => Step::to(self, Action::Absorb),
        }
    }
}

/// Relation of a transaction to CANCEL.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Cancel {
    No,
    /// To be cancelled after the next provisional response (RFC 3261 section 9.1).
    Wanted,
    /// CANCEL sent.
    Sent,
    /// Own CANCEL; it has no transaction user.
    Request,
}
