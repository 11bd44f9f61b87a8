//! Limits under which a call counts: those under which it counts until its end, and those of its target.

use crate::limits::LimitScope;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;

/// Limits under which a call counts. No additional memory is needed for one limit of each kind.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct CallScopes {
    /// Limits until the call ends.
    pub(crate) counted: SmallVec<[LimitScope; 1]>,
    /// Limits of the gateway or group that the call is sent to. A record of a bucket stores these apart.
    #[serde(skip)]
    pub(crate) held: SmallVec<[HeldLimit; 1]>,
}

/// Key of a call, and the limits of the gateway or group to which it is sent.
pub type HeldLimits = (u64, Box<[HeldLimit]>);

/// Limit under which a call counts at its target.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldLimit {
    pub(crate) scope: LimitScope,
    /// INVITEs of the call that were sent there.
    pub(crate) holds: u32,
    /// Number of times that room was taken for them.
    pub(crate) takes: u32,
}
