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
        /// Longest time for one question.
        pub timeout: Duration = Duration::from_secs(2), Rule::time(Duration::from_millis(50), Duration::from_secs(60));
        /// Most addresses of one name. They are tried one after the other; of more, the best are kept.
        pub max_targets: usize = 16, Rule::number(1, 1_000);
        /// Names in the Routes of one request that are looked up at most, to learn whether they lead here; a request with more is
        /// answered 400.
        pub names_per_request: usize = 4, Rule::number(1, 256);
        /// Number of times that a question is asked before the name counts as unknown.
        pub attempts: usize = 2, Rule::number(1, 10);
        /// Answers kept in memory for as long as they say, and names that TLS peers have to prove (of these at least 1024).
        pub cache_entries: usize = 8_192, Rule::number(0, 1 << 24);
        /// Names that are asked for ahead at a time: one that is used in the last part of the time for which its answer is good is asked for
        /// again before that ends, so that no request waits for it. 0: none is.
        pub ask_ahead: usize = 64, Rule::number(0, 1 << 16);
        /// Time for which an expired answer is still used while the name servers fail or are silent (RFC 8767): the first request waits 0.3 s for a
        /// new answer, further ones do not wait. That a name does not exist ends its answer. "0s": not at all.
        pub serve_stale: Duration = Duration::from_secs(86_400), Rule::time(Duration::ZERO, MONTH);
        /// Time for which a failed next hop is set aside: it could not be reached, or said nothing at all to a request. Until then it is tried after
        /// all others that its name, or a rule, leads to; then one request may try it again. Any answer of it ends this at once. "0s": none is set
        /// aside.
        pub set_aside: Duration = Duration::from_secs(30), Rule::time(Duration::ZERO, HOUR);
        /// Longest time for which a next hop is set aside by its own 503 with Retry-After (RFC 3261 section 21.5.4). "0s": the 503 counts
        /// for one request alone.
        pub retry_after: Duration = Duration::from_secs(300), Rule::time(Duration::ZERO, HOUR);
        /// Next hops that are set aside at most; of further ones nothing is remembered.
        pub set_aside_targets: usize = 4_096, Rule::number(1, 1 << 20);
    }
}
