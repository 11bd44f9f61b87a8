//! Usage of a dialog (RFC 5057), as stated by route tokens and seals.
//!
//! A SUBSCRIBE dialog carries no call. An INVITE within it would set up a session that was never admitted. So a route token states the
//! method that made its dialog, and whether an INVITE was answered.

use serde::{Deserialize, Serialize};
use strowger_message::Method;

/// Usage of a dialog, two bits in a route token or a seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Usage {
    /// Dialog made by SUBSCRIBE, REFER or NOTIFY (RFC 6665, RFC 3515).
    Subscription = 0,
    /// Dialog created by an INVITE without a final response yet. Tokens and seals of the earlier format have no usage
    /// and are read as this usage.
    Early = 1,
    /// Dialog created by an INVITE that was answered; also the usage in a token for requests to the caller.
    Call = 2,
    /// [`Usage::Call`] of a call that the writing server tracks in its table.
    TrackedCall = 3,
}

impl Usage {
    /// Returns the usage of the dialog that a request with this method makes. `tracked`: the call is tracked.
    pub(crate) const fn made_by(method: Method, tracked: bool) -> Self {
        match (method, tracked) {
            (Method::Invite, false) => Self::Call,
            (Method::Invite, true) => Self::TrackedCall,
            _ => Self::Subscription,
        }
    }

    /// Returns the usage that a response with this status states to the party that created the dialog.
    pub(crate) const fn after(self, status: u16) -> Self {
        match self {
            Self::Call | Self::TrackedCall if status < 200 => Self::Early,
            usage => usage,
        }
    }

    /// Tells whether the usage admits a request with this method. A subscription also admits ACK and BYE: neither sets up a session, and a
    /// call that was admitted within the same dialog needs both.
    pub const fn opens(self, method: Method) -> bool {
        match self {
            Self::Subscription => matches!(
                method,
                Method::Subscribe
                    | Method::Notify
                    | Method::Refer
                    | Method::Options
                    | Method::Message
                    | Method::Ack
                    | Method::Bye
            ),
            Self::Early => !matches!(method, Method::Invite),
            Self::Call | Self::TrackedCall => true,
        }
    }

    /// Reads the lowest two bits; higher bits belong to other values.
    pub(crate) const fn of_bits(bits: u8) -> Self {
        match bits & 0b11 {
            0 => Self::Subscription,
            1 => Self::Early,
            2 => Self::Call,
            _ => Self::TrackedCall,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_answered_invite_opens_the_way_for_an_invite() {
        for usage in [Usage::Subscription, Usage::Early, Usage::Call, Usage::TrackedCall] {
            assert_eq!(Usage::of_bits(usage as u8 | 0b100), usage);
            let is_call = matches!(usage, Usage::Call | Usage::TrackedCall);
            assert_eq!(usage.opens(Method::Invite), is_call, "{usage:?}");
            assert_eq!(usage.opens(Method::Update), usage != Usage::Subscription, "{usage:?}");
            for method in [Method::Ack, Method::Bye, Method::Notify, Method::Subscribe] {
                assert!(usage.opens(method), "{usage:?} {method:?}");
            }
        }
        for tracked in [false, true] {
            let made = Usage::made_by(Method::Invite, tracked);
            assert_eq!((made.after(183), made.after(200)), (Usage::Early, made));
            assert_eq!(Usage::made_by(Method::Refer, tracked).after(202), Usage::Subscription);
        }
    }
}
