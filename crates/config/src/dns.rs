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
        /// Name servers to ask; `[]` for those of the system.
        pub servers: Vec<IpAddr> = Vec::new(), ANY;
        /// Longest wait for the answer to a question, which is then sent once more.
        pub timeout: Duration = Duration::from_secs(2), Rule::time(Duration::from_millis(50), Duration::from_secs(60));
        /// Time for which an expired answer is still used while the name servers fail or are silent (RFC 8767): the first request waits 0.3 s for a
        /// new answer, further ones do not wait. That a name does not exist ends its answer. "0s": not at all.
        pub serve_stale: Duration = Duration::from_secs(86_400), Rule::time(Duration::ZERO, MONTH);
        /// Time for which a failed next hop is set aside: it could not be reached, or said nothing at all to a request. Until then it is tried after
        /// all others that its name, or a rule, leads to; then one request may try it again. Any answer of it ends this at once. "0s": none is set
        /// aside.
        pub set_aside: Duration = Duration::from_secs(30), Rule::time(Duration::ZERO, HOUR);
    }
}
