//! `[timers]`: the timers of RFC 3261 (table 4 of its appendix A).

use std::time::Duration;

use super::key::Rule;
use super::reader::section;

section! {
    /// The timers of RFC 3261, appendix A. Timers F, H, J, L and M are 64 times `t1`; Timer D is 64 times `t1`, but at least 32 s.
    pub struct Timers = "timers" {
        /// Estimate of the round-trip time, which is the first interval of retransmissions (RFC 3261 section 17.1.1.1).
        pub t1: Duration = Duration::from_millis(500), Rule::time(Duration::from_millis(10), Duration::from_secs(10)).fixed();
        /// Longest interval between two retransmissions of a request other than INVITE (RFC 3261 section 17.1.2.2).
        pub t2: Duration = Duration::from_secs(4), Rule::time(Duration::from_millis(10), Duration::from_secs(60)).fixed();
        /// Longest life of a message in the network (RFC 3261 section 17.1.2.2).
        pub t4: Duration = Duration::from_secs(5), Rule::time(Duration::from_millis(10), Duration::from_secs(60)).fixed();
        /// Timer B: longest wait of a forwarded INVITE for any response, 100 included. After it the next address or contact is tried, or the caller
        /// gets 408 (RFC 3261 section 17.1.1.2). "auto": 64 times `t1`. Later responses are ignored.
        pub timer_b: Option<Duration> = None, Rule::time(Duration::from_millis(100), Duration::from_secs(600)).or("auto").fixed();
        /// Timer C: longest ringing of a forwarded INVITE without a further provisional response; over 3 minutes (RFC
        /// 3261 section 16.6 step 11).
        pub timer_c: Duration = Duration::from_secs(181), Rule::time(Duration::from_secs(1), Duration::from_secs(86_400)).fixed();
    }
}
