//! `[nat]`: phones behind address translation.

use std::time::Duration;

use super::key::{Rule, words};
use super::reader::{ANY, section};

words! {
    /// Message that keeps the flow to a phone open.
    pub enum PingMethod {
        /// An OPTIONS request (RFC 3261 section 11): the phone answers, so the server also notices a dead phone.
        Options = "options",
        /// An empty line (RFC 5626 section 3.5.1): only four bytes, but over UDP the phone sends no answer.
        Crlf = "crlf",
    }
}

section! {
    /// Phones behind address translation.
    pub struct Nat = "nat" {
        /// Send to the source address of a phone if its Contact does not lead to the phone. That is so if the Contact names a private address other
        /// than the source, if a router has changed the port, or if the phone uses a connection, because then it can be reached only by this
        /// connection.
        pub contact_repair: bool = true, ANY;
        /// Answer every request to the port it came from, as if its Via had `rport` (RFC 3581 section 4).
        pub force_rport: bool = false, ANY;
        /// Interval of keep-alives on the flow of a binding behind NAT or on a stream (RFC 5626 section 4.4) that the phone does not keep open itself;
        /// "never" leaves it to the phone.
        pub ping_interval: Option<Duration> = Some(Duration::from_secs(25)), Rule::time(Duration::from_secs(1), Duration::from_secs(3_600)).or("never");
        /// Message of a keep-alive.
        pub ping_method: PingMethod = PingMethod::Options, ANY;
    }
}
