//! Events of the bridge for its owner.

use serde::{Deserialize, Serialize};

use super::pair::Side;
use crate::b2bua::negotiation::BridgedStream;
use crate::slots::ids;
use crate::user_agent::DialogName;

ids! {
    /// Key of two joined calls, from [`super::Bridge::start`] to [`BridgeEvent::Ended`].
    PairKey
}

/// Event of a pair.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BridgeEvent {
    /// The streams of the call are other ones than before.
    SessionChanged {
        /// Pair of the session.
        pair: PairKey,
        /// Streams by their place in the near leg; `None` for one that a side refuses.
        streams: Vec<Option<BridgedStream>>,
    },
    /// The far side has answered, and so was the near side.
    Answered {
        /// Pair that is up.
        pair: PairKey,
    },
    /// The far side redirects the call: the owner calls [`super::Bridge::retry`] or [`super::Bridge::end`].
    Redirected {
        /// Pair without a far call.
        pair: PairKey,
        /// Status, 300 to 399.
        status: u16,
        /// URI of the first Contact.
        target: Vec<u8>,
    },
    /// A new party has taken the place of one side (RFC 3891). The call of the old party is being ended; its later events belong to no pair.
    Replaced {
        /// Pair with another call.
        pair: PairKey,
        /// Side of the new party.
        side: Side,
    },
    /// A side has refused the other places of its streams ([`super::Bridge::relocate`]): no media come from it. The owner ends the pair.
    Stranded {
        /// Pair that is still up.
        pair: PairKey,
    },
    /// A REFER of this pair names a dialog of another bridge of the owner ([`super::Bridge::handle_among`]), which tells that bridge
    /// ([`super::Bridge::expect_party`]).
    Awaited {
        /// Pair of the REFER.
        pair: PairKey,
        /// Dialog whose place a new party is to take, from our side.
        dialog: DialogName,
        /// End of the wait ([`crate::Now::mono`] milliseconds); `None`: the outcome is known, and no party comes any more.
        until: Option<u64>,
    },
    /// Both calls are over.
    Ended {
        /// Key, which finds nothing from now on.
        pair: PairKey,
        /// Cause of the end.
        by: BridgeEnd,
    },
}

impl BridgeEvent {
    /// Returns the pair of the event.
    pub const fn pair(&self) -> PairKey {
        match *self {
            Self::SessionChanged { pair, .. }
            | Self::Answered { pair }
            | Self::Stranded { pair }
            | Self::Redirected { pair, .. }
            | Self::Replaced { pair, .. }
            | Self::Awaited { pair, .. }
            | Self::Ended { pair, .. } => pair,
        }
    }

    /// Returns the event with another key of its pair.
    pub(super) fn of(mut self, key: PairKey) -> Self {
        match &mut self {
            Self::SessionChanged { pair, .. }
            | Self::Answered { pair }
            | Self::Stranded { pair }
            | Self::Redirected { pair, .. }
            | Self::Replaced { pair, .. }
            | Self::Awaited { pair, .. }
            | Self::Ended { pair, .. } => *pair = key,
        }
        self
    }
}

/// Cause of the end of a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum BridgeEnd {
    /// [`super::Bridge::end`].
    Owner,
    /// The call of this side ended first: by BYE, CANCEL, a refusal or a failure.
    Side(Side),
    /// This side did not answer the INVITE or a change of the session in time.
    TimedOut(Side),
    /// Only one of the two calls moved with the pair.
    Torn,
    /// The bridge refused the INVITE or a description of this side with this status; a side that was up got BYE.
    Refused(u16, Side),
}
