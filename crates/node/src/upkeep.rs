//! Periodic work outside the shards.

use crate::lease::Leases;
use crate::metrics::{Metrics, Writers};
use crate::named_users::NamedUsers;
use crate::removal::Removals;
use crate::renaming::rename_bindings;
use crate::shard::{Services, Shard};
use std::sync::{Arc, Weak};
use std::time::Duration;
use strowger_net::{Handle, clock};
use strowger_server::process_state::ProcessState;
use strowger_store::subscriber::Subscribers;

/// Interval of work that no request waits for: expiry, bans, summaries of suppressed log lines.
const UPKEEP: Duration = Duration::from_secs(1);

/// Interval of database checks: removed users, ended threads.
const DATABASE_UPKEEP: Duration = Duration::from_millis(250);

/// Seconds from a reload until bindings are renamed a second time: a REGISTER that waited for the database meanwhile (`store.lookup_timeout`) uses
/// its earlier configuration, and a failed commit restores bindings under the earlier name.
const SECOND_RENAMING: u64 = 65;

/// Runs the periodic work of the process.
pub(crate) async fn keep_up(shared: Arc<ProcessState>, services: Arc<Services>) {
    let mut n = 0u64;
    let (mut configurations, mut renames_at) = (shared.configurations(), None);
    loop {
        clock::beat(UPKEEP).await;
        n += 1;
        if configurations != shared.configurations() {
            (configurations, renames_at) = (shared.configurations(), Some(n + SECOND_RENAMING));
        }
        if renames_at.take_if(|at| *at <= n).is_some() {
            let shared = shared.clone();
            services.policies.submit(move || rename_bindings(&shared));
        }
        let now = clock::now();
        shared.keep_up(now);
        if shared.has_retired() {
            let shared = shared.clone();
            services.policies.submit(move || shared.drop_retired());
        }
        if n.is_multiple_of(5) {
            shared.tidy(now);
            services.resolver().tidy();
            // Returns the memory of look-ups.
            (services.program.give_back)();
        }
    }
}

/// Logs all counters and gauges at the interval of `log.statistics`.
pub(crate) async fn log_statistics(shared: Arc<ProcessState>, metrics: Metrics) {
    let mut before = clock::micros();
    loop {
        // A reload may change the interval at any time.
        clock::beat(UPKEEP.min(shared.policy().config.log.statistics.unwrap_or(UPKEEP))).await;
        let now = clock::micros();
        // Due if a whole multiple of the interval lies between.
        let is_due = |interval: Duration| {
            let interval = (interval.as_micros() as u64).max(1);
            before / interval != now / interval
        };
        if shared.policy().config.log.statistics.is_some_and(is_due) {
            metrics.log("statistics");
        }
        before = now;
    }
}

/// Watches the writer threads.
pub(crate) async fn keep_up_writers(handle: Handle<Shard>, writers: Writers, leases: Leases) {
    loop {
        clock::beat(UPKEEP).await;
        // Without this thread every REGISTER would be refused.
        if writers.journal.as_ref().and_then(Weak::upgrade).is_some_and(|journal| journal.has_ended()) {
            handle.fail("the thread that writes bindings ended");
        }
        // Without this thread every row would be lost.
        if writers.accounting.as_ref().and_then(Weak::upgrade).is_some_and(|accounting| accounting.has_ended()) {
            handle.fail("the thread that writes rows of accounting ended");
        }
        if writers.call_store.as_ref().and_then(Weak::upgrade).is_some_and(|call_store| call_store.has_ended()) {
            handle.fail("the thread that keeps calls ended");
        }
        // The server would answer from registrations and calls that it no longer owns.
        if let Some(lease) = leases.lost() {
            handle.fail(format_args!("another server has taken the lease of {lease}"));
        }
    }
}

/// Watches the database of subscribers.
pub(crate) async fn keep_up_subscribers(
    shared: Arc<ProcessState>,
    handle: Handle<Shard>,
    subscribers: Arc<dyn Subscribers>,
    mut removals: Removals,
) {
    let mut named_users = NamedUsers::new(&*subscribers);
    loop {
        clock::beat(DATABASE_UPKEEP).await;
        if subscribers.has_ended() {
            handle.fail("the thread that reads subscribers ended");
        }
        let now = clock::now();
        removals.step(now, &shared, &*subscribers);
        named_users.step(now, &shared, &*subscribers);
    }
}
