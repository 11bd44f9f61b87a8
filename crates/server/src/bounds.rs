//! Bounds of the engine that no configuration sets.

use std::time::Duration;

/// Bounds that are the same in each server, because no operator can know better values. Each has a metric. A test may set
/// small ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineBounds {
    /// Maximum number of watched sources of failed authentications, and of watched users; beyond it the oldest entry is
    /// forgotten. Default 65,536.
    pub ban_sources: usize,
    /// Maximum number of look-ups for which requests wait in a shard; half of it is reserved for requests that have
    /// proved a password or belong to a call. Further requests are answered 503. Default 10,000.
    pub lookups: usize,
    /// Maximum number of names that are looked up at once for requests of one source, in each shard. Default 1000.
    pub lookups_per_source: usize,
    /// Maximum number of bytes of all messages that wait for look-ups, divided among the running shards. Default
    /// 256 MiB.
    pub lookup_memory: usize,
    /// Maximum number of messages of one call that wait during a look-up for it. Default 32.
    pub held_messages: usize,
    /// Maximum number of names in the Routes of one request that are looked up; a request with more such names is
    /// answered 400. Default 4.
    pub names_per_request: usize,
    /// Longest time for which a next hop is set aside by its own 503 with Retry-After (RFC 3261 section 21.5.4).
    /// Default 5 minutes.
    pub retry_after: Duration,
    /// Maximum number of next hops that are set aside. Default 4096.
    pub set_aside_targets: usize,
    /// Interval at which servers that share counts of calls publish their own counts. Default 100 ms.
    pub count_interval: Duration,
    /// Time for which other servers use the published count of calls of a server; at least three intervals. Default 5
    /// s.
    pub count_lifetime: Duration,
    /// Maximum number of logged calls that have not ended; half of it for calls without a password. Default 20,000.
    pub logged_calls: usize,
    /// Longest duration for which the log tracks a call; then the log forgets the call. Default 12 h.
    pub logged_time: Duration,
}

impl Default for EngineBounds {
    fn default() -> Self {
        Self {
            ban_sources: 65_536,
            lookups: 10_000,
            lookups_per_source: 1_000,
            lookup_memory: 256 << 20,
            held_messages: 32,
            names_per_request: 4,
            retry_after: Duration::from_secs(300),
            set_aside_targets: 4_096,
            count_interval: Duration::from_millis(100),
            count_lifetime: Duration::from_secs(5),
            logged_calls: 20_000,
            logged_time: Duration::from_secs(12 * 3_600),
        }
    }
}
