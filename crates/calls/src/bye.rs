//! BYE of a party, in progress (RFC 3261 section 15).

use serde::{Deserialize, Serialize};

/// BYE without a final response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bye {
    /// Moment when the BYE passed, on the clock of [`crate::times::moment`].
    pub(crate) at: i64,
    /// Q.850 cause, for the record.
    pub(crate) cause: u16,
    /// Set if the BYE came from a foreign address ([`crate::origin`]).
    #[serde(skip)]
    pub(crate) from_elsewhere: bool,
}
