//! The thread beside the shards that shares counts of calls with other servers by caches: [`strowger_server::shared_counts`] says what it asks.
//! What one server counts, the others know soon after `dialogs.count_interval`.

use crate::caches::Caches;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use strowger_cache::request::{Promise, Request};
use strowger_cache::waiting::{Outcome, WaitingCache};
use strowger_config::{Config, Name};
use strowger_net::clock;
use strowger_server::process_state::ProcessState;
use strowger_server::shared_counts::{Member, caches as named_caches, publish};

/// How often the configuration is looked at while no limit is counted by several servers.
const IDLE: Duration = Duration::from_secs(1);

/// The thread. Dropping it ends it: the other servers learn at once that this one has no calls any more.
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
    /// Whether the thread is to end; waits for that as long as this.
    fn wait(&self, most: Duration) -> bool {
        let is_wanted = self.is_wanted.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.changed.wait_timeout_while(is_wanted, most, |is_wanted| !*is_wanted);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl SharedCounts {
    /// Starts it. Without caches there is nothing to do.
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

/// Says what this server counts and hears what the others do. Returns when that is due again; none where no limit is shared.
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
        // Of one that the process began without the configuration has said that it needs a restart.
        if let Entry::Vacant(place) = members.entry((*name).clone())
            && let Some((cache, wait)) = caches.waiting(config, name)
        {
            let member = Member::new((*name).clone(), config.server.node, clock::now().mono);
            place.insert(Reached { member, cache, wait });
        }
    }
    let own = shared.call_limits.list();
    for Reached { member, cache, wait } in members.values_mut() {
        let mut exchange = member.begin(clock::now().mono, config, &own);
        let outcomes = ask(cache, &exchange.requests(), *wait);
        member.answered(&mut exchange, outcomes);
        let outcomes = ask(cache, &exchange.further_requests(), *wait);
        member.end(exchange, outcomes);
    }
    publish(clock::now().mono, config, members.values().map(|reached| &reached.member), &shared.call_limits);
    (!names.is_empty()).then_some(config.dialogs.count_interval)
}

/// A member, and its cache.
struct Reached {
    member: Member,
    cache: WaitingCache,
    /// How long an answer is waited for.
    wait: Duration,
}

impl Reached {
    fn leave(&mut self) {
        let keys = self.member.leave();
        let removals: Vec<Request<'_>> = keys.iter().map(|key| Request::Remove { key }).collect();
        ask(&mut self.cache, &removals, self.wait);
    }
}

fn ask(cache: &mut WaitingCache, requests: &[Request<'_>], wait: Duration) -> Vec<Outcome> {
    match requests {
        [] => Vec::new(),
        _ => cache.ask(requests, Promise::Held, clock::now().mono, wait),
    }
}
