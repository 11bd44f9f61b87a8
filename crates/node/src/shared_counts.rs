//! The thread that shares counts of calls with other servers through caches; [`strowger_calls::shared_counts`] defines
//! the requests. Other servers learn the count of this server after about
//! [`EngineBounds::count_interval`](strowger_server::bounds::EngineBounds::count_interval).

use crate::caches::Caches;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use strowger_cache::request::{Promise, Request};
use strowger_cache::waiting::{CacheResponse, WaitingCache};
use strowger_calls::shared_counts::{Member, publish};
use strowger_config::{Config, Name};
use strowger_net::clock;
use strowger_server::call_settings::{caches as named_caches, shared_counts};
use strowger_server::process_state::ProcessState;

/// Interval of checking the configuration while no limit is shared by servers.
const IDLE: Duration = Duration::from_secs(1);

/// The thread. A drop ends it, and the other servers learn at once that this one has no calls.
pub(crate) struct SharedCounts {
    stop: Arc<Stop>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Stop {
    is_wanted: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Waits for the request to stop, at most for `most`. Returns whether the request has arrived.
    fn wait(&self, most: Duration) -> bool {
        let is_wanted = self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_wanted, most, |is_wanted| !*is_wanted);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl SharedCounts {
    /// Starts the thread. Returns `None` without caches.
    pub(crate) fn start(shared: &Arc<ProcessState>, caches: &Arc<Caches>) -> std::io::Result<Option<Self>> {
        if !caches.are_there() {
            return Ok(None);
        }
        let stop = Arc::<Stop>::default();
        let (shared, caches, of_thread) = (shared.clone(), caches.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("call-counts".into());
        let thread = thread.spawn(move || run(&shared, &caches, &of_thread))?;
        Ok(Some(Self { stop, thread: Some(thread) }))
    }
}

impl Drop for SharedCounts {
    fn drop(&mut self) {
        *self.stop.is_wanted.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.stop.changed.notify_all();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread that shares counts of calls had ended by a panic");
        }
    }
}

fn run(shared: &ProcessState, caches: &Caches, stop: &Stop) {
    let mut members: HashMap<Name, Reached> = HashMap::new();
    loop {
        let policy = shared.policy();
        let interval = turn(&policy.config, shared, caches, &mut members);
        if stop.wait(interval.unwrap_or(IDLE)) {
            break;
        }
    }
    members.values_mut().for_each(Reached::leave);
}

/// Publishes the counts of this server and reads the counts of the other servers. Returns the time until the next turn;
/// `None` if no limit is shared.
fn turn(
    config: &Config,
    shared: &ProcessState,
    caches: &Caches,
    members: &mut HashMap<Name, Reached>,
) -> Option<Duration> {
    let names = named_caches(config);
    members.retain(|name, reached| {
        let is_wanted = names.contains(&name);
        if !is_wanted {
            reached.leave();
        }
        is_wanted
    });
    for name in &names {
        // The process began without this cache: the reload has reported that the cache needs a restart.
        if let Entry::Vacant(place) = members.entry((*name).clone())
            && let Some((cache, wait)) = caches.waiting(config, name)
        {
            let member = Member::new(name.as_str(), config.server.node, clock::now().mono);
            place.insert(Reached { member, cache, wait });
        }
    }
    let (settings, own) = (shared_counts(config, &shared.bounds), shared.call_limits.list());
    for Reached { member, cache, wait } in members.values_mut() {
        let mut exchange = member.begin(clock::now().mono, &settings, &own);
        let outcomes = ask(cache, &exchange.requests(), *wait);
        member.answered(&mut exchange, outcomes);
        let outcomes = ask(cache, &exchange.further_requests(), *wait);
        member.end(exchange, outcomes);
        shared.call_limits.note_outdated(member.take_outdated());
    }
    publish(clock::now().mono, &settings, members.values().map(|reached| &reached.member), &shared.call_limits);
    (!names.is_empty()).then_some(shared.bounds.count_interval)
}

/// A member, and the cache for its counts.
struct Reached {
    member: Member,
    cache: WaitingCache,
    /// Longest wait for an answer.
    wait: Duration,
}

impl Reached {
    fn leave(&mut self) {
        let keys = self.member.leave();
        let removals: Vec<Request<'_>> = keys.iter().map(|key| Request::Remove { key }).collect();
        ask(&mut self.cache, &removals, self.wait);
    }
}

fn ask(cache: &mut WaitingCache, requests: &[Request<'_>], wait: Duration) -> Vec<CacheResponse> {
    match requests {
        [] => Vec::new(),
        _ => cache.ask(requests, Promise::Held, clock::now().mono, wait),
    }
}
