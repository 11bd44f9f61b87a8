//! `[registrar]`: the registrar (RFC 3261 section 10).

use std::time::Duration;

use super::key::{Rule, words};
use super::proxy::SipUri;
use super::reader::{ANY, section};

words! {
    /// Events that an acknowledged binding survives.
    pub enum Durability {
        /// End of the process (`kill -9`): committed to the database before the 200 leaves.
        Crash = "crash",
        /// Failure of the machine: synced to the disk before the 200 leaves.
        PowerLoss = "power-loss",
        /// No event: bindings are kept in memory only, and a restart loses them.
        None = "none",
    }
}

words! {
    /// Handling of a Path header (RFC 3327).
    pub enum PathRule {
        /// Path is ignored; `Require: path` is answered 420.
        Ignore = "ignore",
        /// Path is kept, whether the phone supports it or not.
        Keep = "keep",
        /// Path is kept only if the phone supports it; else 421 (RFC 3327 section 5.3).
        Demand = "demand",
    }
}

section! {
    /// Registrar: bindings and their lifetimes (RFC 3261 section 10).
    pub struct Registrar = "registrar" {
        /// Ask for a password before a phone is registered; false admits all users of a local domain (for experiments).
        pub authenticate: bool = true, ANY;
        /// Events that an acknowledged binding survives.
        pub durability: Durability = Durability::Crash, ANY.fixed();
        /// Shortest lifetime of a binding; a phone that requests a shorter one gets 423 with Min-Expires (RFC 3261 section 10.3 step 7).
        pub min_expires: Duration = Duration::from_secs(60), Rule::time(Duration::from_secs(1), Duration::from_secs(86_400));
        /// Longest lifetime of a binding; a phone that requests a longer one gets this lifetime (RFC 3261 section 10.2.1.1).
        pub max_expires: Duration = Duration::from_secs(7_200), Rule::time(Duration::from_secs(1), Duration::from_secs(30 * 86_400));
        /// Lifetime of a binding whose phone requests none (RFC 3261 section 10.3 step 7).
        pub default_expires: Duration = Duration::from_secs(3_600), Rule::time(Duration::from_secs(1), Duration::from_secs(30 * 86_400));
        /// Most contacts of one address of record. A further contact replaces a contact that cannot be reached, or a contact of the same device
        /// (`+sip.instance`); if there is none, its REGISTER is answered 403.
        pub max_contacts: usize = 10, Rule::number(1, 1_024);
        /// Most bindings of all users together; a REGISTER for a further binding is answered 503.
        pub max_bindings: usize = 10_000_000, Rule::number(1, 1 << 30).fixed();
        /// Handling of the Path of edge proxies (RFC 3327); calls to the phone later take this path.
        pub path: PathRule = PathRule::Keep, ANY;
        /// Routes sent to phones in Service-Route (RFC 3608).
        pub service_route: Vec<SipUri> = Vec::new(), ANY;
    }
}
