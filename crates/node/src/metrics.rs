//! Metrics of the server at one moment, from all sources.

pub(crate) mod labelled;
mod of_process;
mod tables;

use self::labelled::Sample;
use self::of_process::{OfProcess, of_caches};
use self::tables::COMMITS;
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

pub use self::tables::{Lookups, OfAccounting, OfCaches, OfKept, OfShard, Process};

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
