//! What the owner of a user agent may choose.

use crate::Target;
use crate::timer::TimerSettings;

/// When a callee sends provisional responses reliably (RFC 3262).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Reliability {
    /// Only if the INVITE requires it.
    #[default]
    Required,
    /// Whenever the caller supports it.
    Supported,
}

/// The settings of a [`super::UserAgent`].
#[derive(Clone, Debug)]
pub struct UserAgentSettings {
    /// Value of User-Agent and Server; empty: neither is written. Default `Strowger`.
    pub name: Vec<u8>,
    /// T1 to T4 of calls and transactions. Default: those of RFC 3261.
    pub timers: TimerSettings,
    /// Most calls at once; further ones are refused with 503. Default 1,000,000.
    pub calls: usize,
    /// Answer each INVITE 100 at once (RFC 3261 section 17.2.1). Off where every call is answered or refused within
    /// 200 ms. Default on.
    pub trying: bool,
    /// Default [`Reliability::Required`].
    pub reliability: Reliability,
    /// The owner answers requests of methods that the user agent does not know ([`super::Event::Request`]). Default off: 405.
    pub other_methods: bool,
    /// Every request goes here, in place of where its Route or Request-URI leads (an outbound proxy). Default none.
    pub outbound: Option<Target>,
    /// Send credentials for the last challenge of the same account unasked (RFC 3261 section 22.2). Default on.
    pub reuse_challenges: bool,
    /// Milliseconds until a registration that failed is tried again; 0: it is not. Default 30,000.
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
            other_methods: false,
            outbound: None,
            reuse_challenges: true,
            registration_retry: 30_000,
        }
    }
}
