//! Metrics of the server at one moment, from all sources.

pub(crate) mod labelled;
mod of_process;

use self::labelled::Sample;
use self::of_process::{OfProcess, of_caches};
use crate::caches::Caches;
use crate::shard::{Services, Shard};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Weak};
use std::time::Duration;
use strowger_backend::accounting::{Accounting, Figures};
use strowger_metrics::{Exposition, Metric, Observed};
use strowger_net::media::{MediaFigures, MediaThreads};
use strowger_net::{Handle, Snapshot, clock};
use strowger_server::counters::{Counts, Durations};
use strowger_server::process_state::ProcessState;
use strowger_store::calls::CallStore;
use strowger_store::journal::Journal;

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
const COMMITS: [Metric; 1] = [Metric {
    field: "commit",
    family: "commit_seconds",
    kind: strowger_metrics::MetricKind::Histogram,
    unit: strowger_metrics::Unit::Seconds,
    help: "How long the commits of groups of bindings took.",
    labels: &[],
    by: &[],
}];

/// Returns all metrics, in the order of their output.
pub fn table() -> impl Iterator<Item = &'static Metric> {
    let all = [
        OfProcess::TABLE,
        Process::TABLE,
        Lookups::TABLE,
        OfAccounting::TABLE,
        OfKept::TABLE,
        OfCaches::TABLE,
        MediaFigures::TABLE,
        OfShard::TABLE,
        Counts::TABLE,
        Snapshot::TABLE,
        &Durations::TABLE,
        &COMMITS,
    ]
    .into_iter()
    .flatten()
    .chain(labelled::TABLE);
    all.filter(|metric| is_of_server(metric))
}

/// Tells whether a metric applies to a server. Only the generator has sockets of a single call.
fn is_of_server(metric: &Metric) -> bool {
    !metric.family.starts_with("dedicated")
}

/// Writers, if there is anything to write. Weak references: strong ones would keep the writers alive after the shards.
#[derive(Clone)]
pub(crate) struct Writers {
    pub(crate) journal: Option<Weak<Journal>>,
    pub(crate) accounting: Option<Weak<Accounting>>,
    pub(crate) call_store: Option<Weak<CallStore>>,
}

/// Sources of the metrics.
#[derive(Clone)]
pub struct Metrics {
    shared: Arc<ProcessState>,
    services: Arc<Services>,
    handle: Handle<Shard>,
    caches: Arc<Caches>,
    writers: Writers,
    media: Weak<MediaThreads>,
    /// Start of the process, in milliseconds since 1970.
    started: u64,
}

impl Metrics {
    pub(crate) fn new(
        shared: Arc<ProcessState>,
        services: Arc<Services>,
        handle: Handle<Shard>,
        caches: Arc<Caches>,
        (writers, media): (Writers, Weak<MediaThreads>),
    ) -> Self {
        Self { shared, services, handle, caches, writers, media, started: clock::now().wall }
    }

    pub(crate) fn handle(&self) -> &Handle<Shard> {
        &self.handle
    }

    /// Returns the time since the start of the process, by the system's clock.
    pub fn uptime(&self) -> Duration {
        Duration::from_millis(clock::now().wall.saturating_sub(self.started))
    }

    /// Returns all counters and gauges with their labels, as sums over the shards. Metrics that are shown by shard are
    /// left out.
    pub(crate) fn totals(&self) -> impl Iterator<Item = Sample> + use<> {
        let all = self
            .of_process()
            .each()
            .chain(self.process().each())
            .chain(self.lookups().each())
            .chain(self.of_accounting().each())
            .chain(self.of_kept().each())
            .chain(of_caches(&self.caches).each())
            .chain(self.of_media().each())
            .chain(self.shared.counts().each())
            .chain(self.handle.total().each());
        let of_all = all.filter(|(metric, _)| !metric.is_by_shard() && is_of_server(metric));
        let samples = of_all.map(|(metric, value)| Sample { metric, labels: Vec::new(), value });
        samples.chain(self.labelled())
    }

    /// Reads the kernel's figures of the process.
    fn of_process(&self) -> OfProcess {
        OfProcess::read(self.started.saturating_mul(1_000))
    }

    /// Returns the values of the process.
    pub fn process(&self) -> Process {
        let (location, policy) = (self.shared.location.gauges(), self.shared.policy());
        let (log_lines_lost, log_write_errors) = (self.services.program.log_lost)();
        let journal =
            self.writers.journal.as_ref().and_then(Weak::upgrade).map(|journal| journal.gauges()).unwrap_or_default();
        let resolver = self.services.resolver();
        Process {
            bindings: location.bindings as u64,
            aors: location.aors as u64,
            bindings_expired: location.expired,
            used_nonces: policy.authenticator.used().entries() as u64,
            sources_banned: policy.bans.banned() as u64,
            sources_watched: policy.bans.watched() as u64,
            targets_aside: self.shared.targets_aside() as u64,
            udp_only_peers: self.shared.udp_only_peers() as u64,
            names_asked_ahead: resolver.counters().asked_ahead(),
            names_stale: resolver.counters().stale(),
            names_known: resolver.known() as u64,
            name_addresses_left_out: resolver.counters().left_out(),
            call_counts_outdated: self.shared.call_limits.outdated(),
            metrics_connections_closed: self.services.crowded.metrics.load(Relaxed),
            control_connections_closed: self.services.crowded.control.load(Relaxed),
            shards: self.handle.shards() as u64,
            log_lines_lost,
            log_write_errors,
            journal_queued: journal.queued as u64,
            journal_bound: journal.bound as u64,
            journal_groups: journal.groups,
            journal_kept: journal.kept,
            journal_failed: journal.failed,
            journal_refused: journal.refused,
            journal_longest_commit: journal.commit_max_us,
            journal_unpurged: journal.unpurged,
            reloads: self.shared.configurations(),
            reloads_refused: self.services.reloads_refused.load(Relaxed),
            sets_read: self.services.sets.reads(),
            sets_failed: self.services.sets.failures(),
            sets_old: self.services.sets.old(),
        }
    }

    /// Returns the values of subscriber look-ups.
    pub fn lookups(&self) -> Lookups {
        let gauges = self.shared.subscribers.as_ref().map(|subscribers| subscribers.gauges()).unwrap_or_default();
        Lookups {
            cached: gauges.entries as u64,
            cached_absent: gauges.absent as u64,
            in_flight: gauges.in_flight as u64,
            bound: gauges.bound as u64,
            connections: gauges.connections as u64,
            silent: u64::from(gauges.is_broken),
            hits: gauges.hits,
            misses: gauges.misses,
            stale: gauges.stale,
            merged: gauges.merged,
            refused: gauges.refused,
            late: gauges.late,
            failed: gauges.failed,
            failed_at_once: gauges.broken,
            voided: gauges.voided,
            doubted: gauges.doubted,
        }
    }

    /// Returns the values of accounting.
    pub fn of_accounting(&self) -> OfAccounting {
        let accounting = self.accounting();
        let figures: Figures = accounting.map(|accounting| accounting.figures()).unwrap_or_default();
        OfAccounting {
            queued: figures.queued,
            bound: figures.bound,
            written: figures.written,
            spooled: figures.spooled,
            spool_rows: figures.spool_rows,
            spool_bytes: figures.spool_bytes,
            quarantined: figures.quarantined,
            quarantine_rows: figures.quarantine_rows,
            quarantine_bytes: figures.quarantine_bytes,
            dropped: figures.dropped,
            failures: figures.failures,
            is_down: u64::from(figures.is_down),
        }
    }

    /// Returns the values of kept calls.
    pub fn of_kept(&self) -> OfKept {
        let call_store = self.writers.call_store.as_ref().and_then(Weak::upgrade);
        let strowger_store::calls::Figures { kept, bytes, pending, written, failures, is_down } =
            call_store.map(|call_store| call_store.figures()).unwrap_or_default();
        OfKept { kept, bytes, pending, written, failures, is_down: u64::from(is_down) }
    }

    /// Returns the figures of media; all are 0 if there are no media threads.
    pub fn of_media(&self) -> MediaFigures {
        self.media.upgrade().map(|threads| threads.total()).unwrap_or_default()
    }

    /// Returns the writer of accounting, if there is one and the server is not ending.
    pub(crate) fn accounting(&self) -> Option<Arc<Accounting>> {
        self.writers.accounting.as_ref()?.upgrade()
    }

    /// Returns the numbers of the shards that have ever run.
    pub fn started_shards(&self) -> impl Iterator<Item = usize> + use<'_> {
        (0..self.handle.most()).filter(|shard| self.handle.busy(*shard).is_some())
    }

    /// Returns the values of the process about its shards.
    pub fn of_shards(&self) -> Vec<(usize, OfShard)> {
        let backlogs = self.handle.backlogs();
        let of_shard = |shard| {
            let before = backlogs.iter().filter(|backlog| backlog.shard == shard);
            let (backlog, kernel_drops) = before.fold((0, 0), |(waiting, dropped), backlog| {
                (waiting + u64::from(backlog.waiting), dropped + u64::from(backlog.dropped))
            });
            let busy = self.handle.busy(shard).unwrap_or_default().as_micros() as u64;
            let longest_turn = self.handle.longest_turn(shard).as_micros() as u64;
            (shard, OfShard { busy, longest_turn, backlog, kernel_drops })
        };
        self.started_shards().map(of_shard).collect()
    }

    /// Logs all counters and gauges of the server, the network side and the process that are not 0.
    pub fn log(&self, event: &str) {
        self.log_messages(event);
        self.shared.counts().log(event);
        self.handle.total().log(event);
        self.process().log(event);
        if self.shared.subscribers.is_some() {
            self.lookups().log(event);
        }
        if self.writers.accounting.is_some() {
            self.of_accounting().log(event);
        }
        if self.writers.call_store.is_some() {
            self.of_kept().log(event);
        }
        if self.caches.are_there() {
            of_caches(&self.caches).log(event);
        }
        if self.media.strong_count() > 0 {
            self.of_media().log(event);
        }
    }

    /// Writes all metrics for Prometheus.
    pub fn exposition(&self) -> String {
        let mut text = Exposition::default();
        let of_process = self.of_process().each().chain(self.process().each()).chain(self.lookups().each());
        let beside = self.of_accounting().each().chain(self.of_kept().each()).chain(of_caches(&self.caches).each());
        for (metric, value) in of_process.chain(beside).chain(self.of_media().each()) {
            text.metric(metric, &[], value);
        }
        let of_shards = self.of_shards().into_iter().map(|(shard, values)| (shard, values.each().collect()));
        show(&mut text, &[], &of_shards.collect::<Vec<_>>());
        let counts =
            self.started_shards().map(|shard| (shard, self.shared.counters[shard].snapshot().each().collect()));
        show(&mut text, &self.shared.counts().each().collect::<Vec<_>>(), &counts.collect::<Vec<_>>());
        let counts = self.started_shards().map(|shard| (shard, self.handle.counters(shard).each().collect()));
        show(&mut text, &self.handle.total().each().collect::<Vec<_>>(), &counts.collect::<Vec<_>>());
        for Sample { metric, labels, value } in self.labelled() {
            let labels: Vec<_> = metric.by.iter().copied().zip(labels.iter().map(String::as_str)).collect();
            text.metric(metric, &labels, value);
        }
        for (metric, observed) in self.durations() {
            text.histogram(metric, &observed);
        }
        text.finish()
    }

    /// Returns all histograms.
    pub fn durations(&self) -> impl Iterator<Item = (&'static Metric, Observed)> + use<> {
        let mut of_shards = [Observed::default(); Durations::TABLE.len()];
        for durations in &self.shared.durations {
            of_shards.iter_mut().zip(durations.observed()).for_each(|(sum, observed)| *sum += observed);
        }
        let commits =
            self.writers.journal.as_ref().and_then(Weak::upgrade).map(|journal| journal.commits()).unwrap_or_default();
        Durations::TABLE.iter().chain(&COMMITS).zip(of_shards.into_iter().chain([commits]))
    }
}

type Values = Vec<(&'static Metric, u64)>;

/// Writes one table of metrics: the total of all shards, or by shard if the table says so.
fn show(text: &mut Exposition, total: &[(&'static Metric, u64)], shards: &[(usize, Values)]) {
    let Some((_, rows)) = shards.first() else { return };
    for (row, (metric, _)) in rows.iter().enumerate().filter(|(_, (metric, _))| is_of_server(metric)) {
        if metric.is_by_shard() {
            for (shard, values) in shards {
                text.metric(metric, &[("shard", &shard.to_string())], values[row].1);
            }
        } else {
            text.metric(metric, &[], total[row].1);
        }
    }
}

#[cfg(test)]
mod documents;
