//! Figures of a cache, for the log and the metrics.

/// Figures of a cache since it started; those of now are named so.
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
    /// Entries that gave way to others.
    pub evictions: u64,
    /// Entries whose life ended.
    pub expired: u64,
    /// Requests refused: beyond a bound, no room, or by a server.
    pub refused: u64,
    /// Entries now, those whose life has ended and that were not swept yet among them.
    pub entries: u64,
    /// Bytes of memory in use now, the index and all that belongs to the entries counted.
    pub bytes: u64,
    /// Bytes of keys and values now.
    pub data: u64,
    /// The bound of `bytes`.
    pub bound: u64,
}

/// Figures of the log of a cache since it started; those of now are named so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogGauges {
    /// Changes written, those of compactions among them.
    pub written: u64,
    /// Bytes of the segments now.
    pub bytes: u64,
    /// Segments now.
    pub segments: u64,
    /// Compactions that have ended.
    pub compactions: u64,
    /// Times that writing began to fail.
    pub failures: u64,
    /// 1 while what is stored does not outlive the process, since the log cannot be written or is behind; else 0.
    pub failing: u64,
    /// Bytes that wait for the thread of the log now.
    pub queued: u64,
    /// The bound of `queued`.
    pub bound: u64,
}

/// Figures of a cache in other processes since it started; those of now are named so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteGauges {
    /// Requests that were not answered within the deadline.
    pub late: u64,
    /// Requests that failed since a server was not reached, or was lost.
    pub failed: u64,
    /// Connections made.
    pub connected: u64,
    /// Connections that broke, or were given up.
    pub lost: u64,
    /// Connections now.
    pub connections: u64,
    /// Requests without an answer now.
    pub in_flight: u64,
    /// The bound of `in_flight`.
    pub bound: u64,
    /// No server is reached now: requests fail at once, until one is.
    pub is_down: bool,
    /// Servers that are not reached now, or do not answer: requests to them fail, all or some of them.
    pub silent: u64,
    /// Within the last minute a server did not do what it was asked, and said why.
    pub is_denied: bool,
}
