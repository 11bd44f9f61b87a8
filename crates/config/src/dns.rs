//! `[dns]`: how names are resolved (RFC 3263).

use std::net::IpAddr;
use std::time::Duration;

use super::key::Rule;
use super::reader::{ANY, section};

section! {
    /// How names of other servers are resolved (RFC 3263).
    pub struct Dns = "dns" {
        /// Name servers to ask; `[]` for those of the system.
        pub servers: Vec<IpAddr> = Vec::new(), ANY;
        /// How long one question may take.
        pub timeout: Duration = Duration::from_secs(2), Rule::time(Duration::from_millis(50), Duration::from_secs(60));
        /// Addresses that one name leads to at most; they are tried one after the other, and of more the best are kept.
        pub max_targets: usize = 16, Rule::number(1, 1_000);
        /// Names in the Routes of one request that are looked up at most, to learn whether they lead here; a request with more is
        /// answered 400.
        pub names_per_request: usize = 4, Rule::number(1, 256);
        /// How often a question is asked before the name counts as unknown.
        pub attempts: usize = 2, Rule::number(1, 10);
        /// Answers kept in memory for as long as they say, and names that TLS peers have to prove (of these at least 1024).
        pub cache_entries: usize = 8_192, Rule::number(0, 1 << 24);
    }
}
