//! The usage of a dialog that a route token or a seal proves (RFC 5057).
//!
//! A dialog that a SUBSCRIBE made carries no call: an INVITE in it sets up a session that nobody has admitted. So a route token says by
//! which method its dialog was made, and how far that came.

use serde::{Deserialize, Serialize};
use strowger_message::Method;

/// The usage of a dialog, as a route token or a seal states it in two bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Usage {
    /// A SUBSCRIBE, a REFER or a NOTIFY made the dialog (RFC 6665, RFC 3515).
    Subscription = 0,
    /// An INVITE made the dialog and has no final response yet. Tokens and seals of the earlier format read as this: they do not state a
    /// usage.
    Early = 1,
    /// An INVITE made the dialog and was answered, or the token leads to its caller.
    Call = 2,
    /// As [`Usage::Call`], and the server that wrote the token has the call in its table of tracked calls.
    TrackedCall = 3,
}

impl Usage {
    /// The usage of the dialog that a request with this method makes. `tracked`: the call is tracked.
    pub(crate) const fn made_by(method: Method, tracked: bool) -> Self {
        match (method, tracked) {
            (Method::Invite, false) => Self::Call,
            (Method::Invite, true) => Self::TrackedCall,
            _ => Self::Subscription,
        }
    }

    /// The usage that a response with this status states to the sender of the request that makes the dialog.
    pub(crate) const fn after(self, status: u16) -> Self {
        match self {
            Self::Call | Self::TrackedCall if status < 200 => Self::Early,
            usage => usage,
        }
    }

    /// Whether a request with this method belongs to the usage by what that states alone. A subscription lets an ACK and a BYE pass too: they
    /// set up nothing, and end a call that was admitted by itself within the same dialog.
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

    /// The usage of these two bits; those above them belong to another value.
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
