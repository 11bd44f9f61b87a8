//! Contexts of requests: the eight bytes by which the proxy's notices name a call, or a party of one of its dialogs.

/// Context of calls that are neither tracked nor logged. Their set-up time is measured nevertheless.
pub const NO_CALL: u64 = 4;

/// Tells whether this is the context of an INVITE that begins a call.
pub const fn begins_call(context: u64) -> bool {
    context == NO_CALL || context & PURPOSES == Purpose::Invite as u64
}

/// Lowest bits of a context: the purpose of the request. Above them is the salt of its call, and above the salt the key without its lowest
/// bits.
pub(crate) const PURPOSES: u64 = 3;
pub(crate) const SALTS: u64 = (1 << 14) - 1;
pub(crate) const BELOW_KEY: u32 = 16;

/// Purpose of a request of a call. With the key of the call it makes the context of the notices about the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Question to a party whether a dialog still exists.
    Question = 0,
    /// INVITE that begins the call.
    Invite = 1,
    /// Renewal of a dialog: targets, session timer.
    Renewal = 2,
    Bye = 3,
}

impl Purpose {
    pub(crate) const fn of(context: u64) -> Option<Self> {
        if context == 0 || context == NO_CALL {
            return None;
        }
        Some(match context & PURPOSES {
            0 => Self::Question,
            1 => Self::Invite,
            2 => Self::Renewal,
            _ => Self::Bye,
        })
    }
}
