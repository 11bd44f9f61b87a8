//! Proof of identity that a request has given.

use crate::question::Text;
use serde::{Deserialize, Serialize};

/// User as the database spells it; credentials may spell it in many ways.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct User {
    pub(crate) name: Text,
    pub(crate) domain: Text,
}

/// Proof of identity that a request has given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Proof {
    /// User of the verified credentials.
    pub(crate) user: Option<User>,
    /// Set if the credentials were right, but had been used before: the request must change nothing.
    pub(crate) replayed: bool,
    /// Set if the route token or seal is right, so that the request goes to the other party of an admitted call.
    pub(crate) in_dialog: bool,
}

impl Proof {
    /// Tells whether the sender proved a password, a route token or a seal.
    pub(crate) const fn is_any(&self) -> bool {
        self.user.is_some() || self.in_dialog
    }
}
