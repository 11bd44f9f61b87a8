//! Environment of the table of calls during one of its functions.

use strowger_core::Now;
use strowger_core::entropy::Entropy;
use strowger_core::routing::Router;

/// Time, own addresses and randomness, which the owner of the table lends it.
pub struct Environment<'a> {
    /// Current time.
    pub now: Now,
    /// Router that knows the Routes of this server.
    pub router: &'a Router,
    /// Source of salts and identities.
    pub entropy: &'a mut Entropy,
}
