//! Settings of a user agent.

use super::Capabilities;
use crate::Target;
use crate::timer::TimerSettings;

/// Use of reliable provisional responses by a callee (RFC 3262).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reliability {
    /// Only if the INVITE requires it.
    #[default]
    Required,
    /// Whenever the caller supports it.
    Supported,
}

/// Settings of a [`super::UserAgent`].
#[derive(Clone, Debug)]
pub struct UserAgentSettings {
    /// Value of User-Agent and Server. Empty: neither is written. Default `Strowger`.
    pub name: Vec<u8>,
    /// T1 to T4 of calls and transactions. Default: those of RFC 3261.
    pub timers: TimerSettings,
    /// Maximum number of concurrent calls; further ones get 503. Default 1,000,000.
    pub calls: usize,
    /// Answers each INVITE with 100 at once (RFC 3261 section 17.2.1). Off if every call is answered or refused within 200 ms. Default on.
    pub trying: bool,
    /// Reliable provisional responses. Default [`Reliability::Required`].
    pub reliability: Reliability,
    /// Methods, option tags and content types of new calls, and of requests outside of calls.
    pub capabilities: Capabilities,
    /// Passes requests of methods that [`Capabilities::allow`] lacks to the owner ([`super::Event::Request`]). Default off: 405.
    pub other_methods: bool,
    /// Target of every request, in place of its Route or Request-URI (an outbound proxy). Default none.
    pub outbound: Option<Target>,
    /// Sends credentials for the last challenge of the same account in advance (RFC 3261 section 22.2). Default on.
    pub reuse_challenges: bool,
    /// Secret by which a user agent knows the tags of its dialogs, also after their end ([`super::UserAgent::has_written`]). Default 0.
    pub tag_secret: u32,
    /// Milliseconds until a failed registration is tried again. 0: never. Default 30,000.
    pub registration_retry: u64,
}

impl Default for UserAgentSettings {
    fn default() -> Self {
        Self {
            name: b"Strowger".to_vec(),
            timers: TimerSettings::default(),
            calls: 1_000_000,
            trying: true,
            reliability: Reliability::default(),
            capabilities: Capabilities::default(),
            other_methods: false,
            outbound: None,
            reuse_challenges: true,
            tag_secret: 0,
            registration_retry: 30_000,
        }
    }
}
