//! Figures of a cache, for the log and the metrics.

/// Figures of a cache since it started; those with "now" are current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Fetches that found a value.
    pub hits: u64,
    /// Fetches that found none.
    pub misses: u64,
    /// Values stored, added and counted.
    pub stores: u64,
    /// Entries removed by request.
    pub removals: u64,
    /// Entries evicted for others.
    pub evictions: u64,
    /// Entries that expired.
    pub expired: u64,
    /// Requests refused: beyond a bound, no space, or by a server.
    pub refused: u64,
    /// Entries now, including expired ones that are not swept yet.
    pub entries: u64,
    /// Bytes of memory in use now, including the index and all overhead of the entries.
    pub bytes: u64,
    /// Bytes of keys and values now.
    pub data: u64,
    /// Bound of `bytes`.
    pub bound: u64,
}

/// Figures of the log of a cache since it started; those with "now" are current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogGauges {
    /// Changes written, including those of compactions.
    pub written: u64,
    /// Bytes of the segments now.
    pub bytes: u64,
    /// Segments now.
    pub segments: u64,
    /// Completed compactions.
    pub compactions: u64,
    /// Times that writing began to fail.
    pub failures: u64,
    /// 1 while stored values do not outlive the process, because the log cannot be written or is behind; otherwise 0.
    pub failing: u64,
    /// Bytes that wait for the log thread now.
    pub queued: u64,
    /// Bound of `queued`.
    pub bound: u64,
}

/// Figures of a cache in other processes since it started; those with "now" are current values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteGauges {
    /// Requests that were not answered within the deadline.
    pub late: u64,
    /// Requests that failed because a server was not reached, or was lost.
    pub failed: u64,
    /// Connections opened.
    pub connected: u64,
    /// Connections that broke, or were abandoned.
    pub lost: u64,
    /// Connections now.
    pub connections: u64,
    /// Requests without an answer now.
    pub in_flight: u64,
    /// Bound of `in_flight`.
    pub bound: u64,
    /// True while no server is reached: requests fail at once.
    pub is_down: bool,
    /// Servers that are not reached now, or do not answer: all or some requests to them fail.
    pub silent: u64,
    /// True if a server refused a request with a reason within the last minute.
    pub is_denied: bool,
}
