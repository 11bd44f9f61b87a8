//! Metrics of the process and of its parts: names, kinds, units and texts. Those of the shards are in their crates.

use strowger_metrics::{Metric, MetricKind, Unit};

strowger_metrics::metrics! {
    values of = "process";
    /// Values of the process that belong to no shard.
    pub struct Process;

    /// Bindings that are registered.
    bindings: Gauge;
    /// Addresses-of-record that have a binding.
    aors: Gauge as "registered_users";
    /// Bindings that expired.
    bindings_expired: Counter;
    /// Used nonces that are remembered.
    used_nonces: Gauge;
    /// Sources that are banned.
    sources_banned: Gauge;
    /// Sources whose failed authentications are counted, banned ones among them; at most 65,536.
    sources_watched: Gauge;
    /// Next hops that are set aside: they failed, and have not answered since.
    targets_aside: Gauge;
    /// Peers that took no TCP connection within ten minutes: large requests go there by UDP at once.
    udp_only_peers: Gauge;
    /// Names that were asked for again, since they were used shortly before their answers expired.
    names_asked_ahead: Counter;
    /// Expired answers about names that were used, since the name servers gave no new ones.
    names_stale: Counter;
    /// Answers about names that are kept; at most 8192.
    names_known: Gauge;
    /// Addresses, and servers of SRV records, that were left out, since their names have more than 16.
    name_addresses_left_out: Counter;
    /// Times that the number of calls of another server under a common limit became too old, since the cache had no newer one for 5 s.
    call_counts_outdated: Counter;
    /// Connections to `metrics.listen` that were closed because 16 others were open.
    metrics_connections_closed: Counter;
    /// Connections to the control socket and to `control.listen` that were closed because 8 others were open.
    control_connections_closed: Counter;
    /// Threads that carry messages.
    shards: Gauge;
    /// Lines that the log has lost.
    log_lines_lost: Counter;
    /// Attempts to write the log that failed.
    log_write_errors: Counter;
    /// Changes of bindings that wait to be written, large ones counted several times.
    journal_queued: Gauge;
    /// Changes of bindings that may wait to be written.
    journal_bound: Gauge;
    /// Groups of bindings that were committed.
    journal_groups: Counter;
    /// Changes of bindings that were kept.
    journal_kept: Counter;
    /// Changes of bindings that could not be kept.
    journal_failed: Counter;
    /// Changes of bindings that were refused because the queue was full.
    journal_refused: Counter;
    /// The longest commit since the start.
    journal_longest_commit: Gauge in Seconds as "journal_longest_commit_seconds";
    /// Rows of expired bindings that are still to be deleted, because the database failed.
    journal_unpurged: Gauge;
    /// Configurations that took the place of the one before.
    reloads: Counter;
    /// Configurations that were refused while the server ran.
    reloads_refused: Counter;
    /// Data sets of rules that were read again without the rest of the configuration.
    sets_read: Counter;
    /// Failed attempts to read data sets of rules again: the data stayed as they were.
    sets_failed: Counter as "set_reads_failed";
    /// Data sets of rules that could not be read when that was last tried: their data may be old.
    sets_old: Gauge;
}

strowger_metrics::metrics! {
    values of = "look-ups";
    /// Cached subscribers, and questions to their database.
    pub struct Lookups;

    /// Answers about subscribers that are kept.
    cached: Gauge as "lookups_cached";
    /// Answers "there is no such user" that are kept; at most a tenth of `store.cache_entries`.
    cached_absent: Gauge as "lookups_cached_absent";
    /// Different questions about subscribers that the database is being asked.
    in_flight: Gauge as "lookups_in_flight";
    /// Different questions about subscribers that the database may be asked at once.
    bound: Gauge as "lookups_bound";
    /// Connections to the database of subscribers.
    connections: Gauge as "lookup_connections";
    /// 1 while the database of subscribers does not answer, and questions without a cached answer fail at once.
    silent: Gauge as "lookups_silent";
    /// Questions about subscribers that the cache answered.
    hits: Counter as "lookup_hits";
    /// Questions about subscribers that the cache could not answer.
    misses: Counter as "lookup_misses";
    /// Answers about subscribers past their lifetime that were used because the database was silent.
    stale: Counter as "lookups_stale";
    /// Questions about subscribers that joined an equal one.
    merged: Counter as "lookups_merged";
    /// Questions about subscribers that were refused because too many were in progress.
    refused: Counter as "lookups_refused";
    /// Questions about subscribers that had no answer in time.
    late: Counter as "lookups_late";
    /// Batches of questions that the database of subscribers failed.
    failed: Counter as "lookup_batches_failed";
    /// Questions about subscribers that failed at once, since the database had missed deadline after deadline.
    failed_at_once: Counter as "lookups_failed_at_once";
    /// Answers about subscribers that were kept and voided, one by one, since the database said that they had changed.
    voided: Counter as "lookups_voided";
    /// Times that no answer about subscribers was fresh any more, since the database did not report its changes.
    doubted: Counter as "lookups_doubted";
}

strowger_metrics::metrics! {
    values of = "accounting";
    /// Accounting rows.
    pub struct OfAccounting;

    /// Rows of accounting that wait to be written.
    queued: Gauge as "accounting_queued";
    /// Rows of accounting that may wait to be written.
    bound: Gauge as "accounting_bound";
    /// Rows of accounting that were written, those of the spool among them.
    written: Counter as "accounting_written";
    /// Rows of accounting that went to the spool, since they could not be written.
    spooled: Counter as "accounting_spooled";
    /// Rows of accounting in the spool.
    spool_rows: Gauge as "accounting_spool_rows";
    /// Size of the spool of accounting.
    spool_bytes: Gauge in Bytes as "accounting_spool_bytes";
    /// Rows of accounting that went to the quarantine, since the database refused them for their values.
    quarantined: Counter as "accounting_quarantined";
    /// Rows of accounting in the quarantine, until `strowger accounting retry` writes them.
    quarantine_rows: Gauge as "accounting_quarantine_rows";
    /// Size of the quarantine of accounting.
    quarantine_bytes: Gauge in Bytes as "accounting_quarantine_bytes";
    /// Rows of accounting that are lost, because the queue was full.
    dropped: Counter as "accounting_dropped";
    /// Attempts to write or remove rows of accounting, or to write their spool, that failed.
    failures: Counter as "accounting_failures";
    /// 1 while rows of accounting cannot be written.
    is_down: Gauge as "accounting_down";
}

strowger_metrics::metrics! {
    values of = "kept calls";
    /// Calls kept over a restart.
    pub struct OfKept;

    /// Calls that are kept over a restart, those that have just ended among them.
    kept: Gauge as "kept_calls";
    /// Size of the files in which calls are kept, or of their states in the table of a database server.
    bytes: Gauge in Bytes as "kept_calls_bytes";
    /// Kept calls whose last change is still to be written.
    pending: Gauge as "kept_calls_pending";
    /// Records or rows of kept calls that were written, including copies within the files.
    written: Counter as "kept_calls_written";
    /// Failed attempts to write kept calls.
    failures: Counter as "kept_calls_failures";
    /// 1 while kept calls cannot be written.
    is_down: Gauge as "kept_calls_down";
}

strowger_metrics::metrics! {
    values of = "caches";
    /// All `[[cache]]` tables together.
    pub struct OfCaches;

    /// Fetches from caches that found a value.
    hits: Counter as "cache_hits";
    /// Fetches from caches that found none.
    misses: Counter as "cache_misses";
    /// Values that were stored in caches.
    stores: Counter as "cache_stores";
    /// Requests that caches refused: beyond a bound, too many in progress, or refused by their servers.
    refused: Counter as "cache_requests_refused";
    /// Requests that servers of caches did not answer in time.
    late: Counter as "cache_requests_late";
    /// Requests that failed because a server of a cache was not reached, or was lost.
    failed: Counter as "cache_requests_failed";
    /// Requests that servers of caches have still to answer.
    in_flight: Gauge as "cache_requests_in_flight";
    /// Requests that servers of caches may have to answer at a time.
    bound: Gauge as "cache_requests_bound";
    /// Connections to servers of caches.
    connections: Gauge as "cache_connections";
    /// Connections to servers of caches that broke, or were given up.
    lost: Counter as "cache_connections_lost";
}

strowger_metrics::metrics! {
    values of = "";
    /// Values of the process about one shard.
    pub struct OfShard;

    /// Processor time that the thread of a shard has used.
    busy: Counter in Seconds as "shard_busy_seconds" by shard;
    /// The longest turn of a shard in the last 30 to 60 seconds, in which it did not receive new messages.
    longest_turn: Highest in Seconds as "shard_longest_turn_seconds" by shard;
    /// Bytes that wait in the kernel before the UDP sockets of a shard.
    backlog: Gauge in Bytes as "shard_backlog_bytes" by shard;
    /// Datagrams that the kernel dropped before the UDP sockets of a shard, because their buffer was full.
    kernel_drops: Counter as "shard_datagrams_dropped_by_kernel" by shard;
}

/// Durations of commits.
pub(super) const COMMITS: [Metric; 1] = [Metric {
    field: "commit",
    family: "commit_seconds",
    kind: MetricKind::Histogram,
    unit: Unit::Seconds,
    help: "How long the commits of groups of bindings took.",
    labels: &[],
    by: &[],
}];
