//! `[nat]`: phones behind address translation.

use std::time::Duration;

use super::key::{Rule, words};
use super::reader::{ANY, section};

words! {
    /// Message that keeps the flow to a phone open.
    pub enum PingMethod {
        /// An OPTIONS request (RFC 3261 section 11): the phone answers, so its death is seen too.
        Options = "options",
        /// An empty line (RFC 5626 section 3.5.1): four bytes, but over UDP nothing comes back.
        Crlf = "crlf",
    }
}

section! {
    /// Phones behind address translation.
    pub struct Nat = "nat" {
        /// Send to the source address of a phone if its Contact does not lead there: the Contact names a private address that is not the source, or
        /// another port where a router has changed it, or the phone uses a connection, which alone leads to it.
        pub contact_repair: bool = true, ANY;
        /// Answer every request to the port it came from, as if its Via had `rport` (RFC 3581 section 4).
        pub force_rport: bool = false, ANY;
        /// Interval of keep-alives on the flow of a binding behind NAT or on a stream (RFC 5626 section 4.4); "never" leaves it to the phone.
        pub ping_interval: Option<Duration> = Some(Duration::from_secs(25)), Rule::time(Duration::from_secs(1), Duration::from_secs(3_600)).or("never");
        /// Message of a keep-alive.
        pub ping_method: PingMethod = PingMethod::Options, ANY;
    }
}
