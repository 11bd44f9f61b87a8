//! `[timers]`: the timers of RFC 3261 (table 4 of its appendix A).

use std::time::Duration;

use super::key::Rule;
use super::reader::section;

section! {
    /// The timers of RFC 3261, appendix A; B, D, F, H, J and L follow from these.
    pub struct Timers = "timers" {
        /// Estimate of the round trip; B, F and H are 64 of it (RFC 3261 section 17.1.1.1).
        pub t1: Duration = Duration::from_millis(500), Rule::time(Duration::from_millis(10), Duration::from_secs(10));
        /// Longest time between two retransmissions of a request that is no INVITE (RFC 3261 section 17.1.2.2).
        pub t2: Duration = Duration::from_secs(4), Rule::time(Duration::from_millis(10), Duration::from_secs(60));
        /// How long a message can stay in the network (RFC 3261 section 17.1.2.2).
        pub t4: Duration = Duration::from_secs(5), Rule::time(Duration::from_millis(10), Duration::from_secs(60));
        /// How long a forwarded INVITE may ring without news; over 3 minutes (RFC 3261 section 16.6 step 11).
        pub timer_c: Duration = Duration::from_secs(185), Rule::time(Duration::from_secs(1), Duration::from_secs(86_400));
    }
}
