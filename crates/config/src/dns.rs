//! `[dns]`: resolution of names (RFC 3263).

use std::net::IpAddr;
use std::time::Duration;

use super::key::Rule;
use super::reader::{ANY, section};

const HOUR: Duration = Duration::from_secs(3_600);
const MONTH: Duration = Duration::from_secs(30 * 86_400);

section! {
    /// Resolution of the names of other servers (RFC 3263).
    pub struct Dns = "dns" {
        /// Addresses of the name servers to query; `[]`: the name servers of the system.
        pub servers: Vec<IpAddr> = Vec::new(), ANY;
        /// Longest wait for the answer to a query; after it the query is sent once more.
        pub timeout: Duration = Duration::from_secs(2), Rule::time(Duration::from_millis(50), Duration::from_secs(60));
        /// Time for which an expired answer is still used while the name servers fail or are silent (RFC 8767): the first request waits 0.3 s for a
        /// new answer, and further requests do not wait. The answer that a name does not exist removes the expired answer. "0s": expired answers are
        /// never used.
        pub serve_stale: Duration = Duration::from_secs(86_400), Rule::time(Duration::ZERO, MONTH);
        /// Time for which a failed next hop is set aside. A next hop fails if it cannot be reached, or sends no response to a request. During this
        /// time it is tried after all other targets of its name or rule; after it, one request may try it again. Any response of the next hop ends
        /// this state at once. "0s": no next hop is set aside.
        pub set_aside: Duration = Duration::from_secs(30), Rule::time(Duration::ZERO, HOUR);
    }
}
