//! Role of this server for a request.

use serde::{Deserialize, Serialize};

/// Role of this server for a request, by the rules.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ServerRole {
    /// Proxy (RFC 3261 section 16).
    #[default]
    Proxy,
    /// Redirect server: the response names the places (RFC 3261 section 8.3).
    Redirect,
    /// Endpoint: this server answers calls, and sends the caller a sound.
    Endpoint,
    /// Back-to-back user agent for calls: one call with the caller, one with the callee. Proxy for other requests.
    Bridge,
}

impl ServerRole {
    /// Tells whether this server itself answers the request.
    pub(crate) const fn is_endpoint(self) -> bool {
        matches!(self, Self::Endpoint)
    }
}
