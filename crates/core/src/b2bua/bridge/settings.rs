//! Settings of a bridge.

use strowger_message::Name;

use crate::user_agent::Capabilities;

/// Settings of a [`super::Bridge`].
#[derive(Clone, Debug)]
pub struct BridgeSettings {
    /// Header fields that the bridge copies to the messages of the other side: from INVITE, REFER, final responses,
    /// CANCEL and BYE. Retry-After passes without comment and parameters, Reason without text, Warning without agent and text, since
    /// those may name a host. Others, such as Privacy, pass unchanged. Header fields of the dialog and of the body
    /// must not be listed. Default: Reason, Retry-After, Warning.
    pub passed: Vec<Name>,
    /// Milliseconds in which a side answers an UPDATE, or acknowledges an offer by PRACK or ACK. Default 32,000 (64*T1).
    pub answer: u64,
    /// Milliseconds in which the far side answers an INVITE after its last provisional response, a side a re-INVITE, and the
    /// owner a redirection. Default 181,000, as Timer C.
    pub ringing: u64,
    /// Milliseconds until an INVITE without a final response is cancelled, also while provisional responses come: early media hold ports.
    /// Default 600,000.
    pub setup: u64,
    /// Set if far INVITEs leave through a proxy of the owner, which makes the 503 of another server 500 (RFC 3261 section 16.7 step 6): a 503 to a
    /// far INVITE is then of the owner, and passes. Default false: it becomes 500.
    pub has_own_proxy: bool,
}

impl Default for BridgeSettings {
    fn default() -> Self {
        Self {
            passed: vec![Name::Reason, Name::RetryAfter, Name::Warning],
            answer: 32_000,
            ringing: 181_000,
            setup: 600_000,
            has_own_proxy: false,
        }
    }
}

/// Returns the capabilities of a user agent for a bridge: those of a telephone, with transfers (RFC 3515, RFC 3891). Requests of unknown
/// methods are carried over if [`UserAgentSettings::other_methods`](crate::user_agent::UserAgentSettings::other_methods) is set.
pub fn capabilities() -> Capabilities {
    let telephone = Capabilities::default();
    Capabilities {
        allow: [&telephone.allow[..], b", REFER, NOTIFY"].concat(),
        supported: [&telephone.supported[..], b", replaces"].concat(),
        ..telephone
    }
}
