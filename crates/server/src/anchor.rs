//! Calls that a role of this server anchors: each party has a dialog with the role, which writes the requests of both (back-to-back user
//! agent, RFC 3261 section 6).
//!
//! After authentication the rules decide which role carries a call ([`ServerRole`]). The engine enters the INVITE into the table of calls,
//! and hands it to the role with its context. From then on the role emits notices and carries out orders about its legs. Records, limits,
//! lists, kept state and ends are those of every call.

use serde::{Deserialize, Serialize};
use strowger_calls::OwnRequest;
use strowger_core::notice::{Notice, Party};
use strowger_core::routing::Request;
use strowger_core::transaction::ServerId;
use strowger_core::{Round, Target};

/// Role of this server for a request, by the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ServerRole {
    /// Proxy (RFC 3261 section 16).
    #[default]
    Proxy,
    /// Redirect server: the response names the places (RFC 3261 section 8.3).
    Redirect,
    /// Back-to-back user agent: it anchors the call (RFC 3261 section 6).
    Anchor,
}

/// INVITE whose call a role is to anchor.
#[derive(Clone, Copy)]
pub struct AnchoredInvite<'a, 'm> {
    /// Context of the notices about the INVITE.
    pub context: u64,
    /// Server transaction, for the responses to the caller.
    pub server: ServerId,
    /// The INVITE.
    pub request: &'a Request<'m>,
    /// Next hops of the callee, in the order of trying.
    pub targets: &'a [Target],
}

/// Order of the table of calls to the role that anchors a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LegOrder {
    /// Sends a request to a party. The role emits the result with the context of the order.
    Send {
        /// Party to which the request goes.
        party: Party,
        /// Kind of the request.
        kind: OwnRequest,
    },
    /// Ends the INVITE with this context, if the INVITE has no final response: the callee gets a CANCEL, the caller
    /// 487.
    Cancel,
}

/// Role that anchors calls.
pub trait Anchor: Send {
    /// Takes an INVITE for which the rules selected this role.
    fn invite(&mut self, round: &mut Round<'_>, invite: AnchoredInvite<'_, '_>);

    /// Carries out an order about a leg of a call.
    fn order(&mut self, round: &mut Round<'_>, context: u64, order: LegOrder);

    /// Moves the notices since the last call to the end of `notices`. The responses that the notices name are in the
    /// outbox.
    fn take_notices(&mut self, notices: &mut Vec<Notice>);
}
