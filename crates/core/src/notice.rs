//! Notices about the requests of calls: the only source for accounting, limits, dialogs and the log. Each role that carries a call emits
//! them; the proxy takes the context from [`Plan::context`](crate::proxy::Plan::context).

use crate::Target;
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Event of a request of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// Context that the user of the role passed with the request. It identifies the call.
    pub context: u64,
    /// Event of the request.
    pub event: NoticeEvent,
}

/// Event of a request that a role has carried to its next hops.
///
/// `bytes`: range of the upstream response in [`crate::Outbox::bytes`], valid until the outbox is sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoticeEvent {
    /// A provisional response other than 100 goes upstream.
    Rang {
        /// 101 to 199.
        status: u16,
        /// Number of the branch; [`NoticeEvent::BranchEnded`] repeats it.
        branch: u32,
        /// Range of the response in the outbox.
        bytes: Range<usize>,
        /// Milliseconds since the request was forwarded; only in the notice of the first response that was sent
        /// upstream.
        after: Option<u32>,
    },
    /// A 2xx is sent upstream. For an INVITE: each 2xx of each callee, including retransmissions.
    Answered {
        /// 200 to 299.
        status: u16,
        /// True for the first 2xx of the request.
        first: bool,
        /// Range of the response in the outbox.
        bytes: Range<usize>,
        /// Milliseconds since the request was forwarded; only in the notice of the first response that was sent
        /// upstream.
        after: Option<u32>,
    },
    /// A branch has a final response of 300 or more, or its request could not be sent (503).
    Refused {
        /// 300 to 699.
        status: u16,
        /// Next hop. None: its transaction is gone.
        by: Option<Target>,
    },
    /// A branch has no final response in time.
    TimedOut {
        /// Next hop. None: its transaction is gone.
        target: Option<Target>,
    },
    /// A branch of an INVITE has no 2xx and gets none in time: its phone has stopped ringing. This notice is also
    /// emitted for a branch that lost to another, and for an abandoned branch that responded later.
    BranchEnded {
        /// Number of the branch, as in [`NoticeEvent::Rang`].
        branch: u32,
    },
    /// The sender has cancelled the request.
    Cancelled,
    /// Every target was tried, and the best response is sent upstream.
    Exhausted {
        /// Status of the response to the sender.
        status: u16,
        /// Range of the response in the outbox.
        bytes: Range<usize>,
    },
    /// The sender gets no final response: there is none, or it would come too late.
    Abandoned,
    /// A party has ended its dialog with this server by a BYE, which this server has answered. Only a role that anchors
    /// calls emits this notice, with the context of the INVITE; [`Party`] names the leg.
    HungUp {
        /// Sender of the BYE.
        by: Party,
        /// Q.850 cause that the BYE names.
        cause: Option<u16>,
    },
    /// The last transaction of the request has ended. An earlier notice had its outcome.
    Ended,
}

/// Party of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Party {
    /// Sender of the INVITE.
    Caller,
    /// Receiver of the INVITE.
    Callee,
}

impl Party {
    /// Both parties.
    pub const BOTH: [Self; 2] = [Self::Caller, Self::Callee];

    /// Returns the peer of this party.
    pub const fn other(self) -> Self {
        match self {
            Self::Caller => Self::Callee,
            Self::Callee => Self::Caller,
        }
    }

    /// Returns the name in lower case.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Callee => "callee",
        }
    }
}
