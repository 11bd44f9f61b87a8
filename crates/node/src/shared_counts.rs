//! Calls that servers count together (`call_limit.cache`). Each server stores how many it has under its own number, with a life that it renews, and
//! reads what the others have stored: what one counts, the others know within `dialogs.count_interval`. So a server that dies holds no call
//! for longer than that life, no call waits for a cache, and what two servers admit in the same interval may be one too many.
//!
//! A thread beside the shards does this. A server has one value or, where it has very many counts, several parts of one.

use crate::caches::Caches;
use std::collections::hash_map::Entry;
use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use strowger_cache::error::CacheError;
use strowger_cache::request::{Answer, Life, Promise, Request};
use strowger_cache::waiting::{Outcome, WaitingCache};
use strowger_config::{Config, Name, WithoutCache};
use strowger_net::clock;
use strowger_server::call_limits::LimitScope;
use strowger_server::process_state::ProcessState;

/// The form of values.
const VERSION: u8 = 1;
/// Most bytes of a part.
const PART: usize = 32 << 10;
/// How often the configuration is looked at while no limit is counted by several servers.
const IDLE: Duration = Duration::from_secs(1);

/// How many calls count under each of these.
type CallCounts = HashMap<LimitScope, u32>;

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
    let mut members: HashMap<Name, Member> = HashMap::new();
    loop {
        let policy = shared.policy();
        let interval = turn(&policy.config, shared, caches, &mut members);
        if stop.wait(interval.unwrap_or(IDLE)) {
            break;
        }
    }
    members.values_mut().for_each(Member::leave);
}

/// Says what this server counts and hears what the others do. Returns when that is due again; none where no limit is shared.
fn turn(
    config: &Config,
    shared: &ProcessState,
    caches: &Caches,
    members: &mut HashMap<Name, Member>,
) -> Option<Duration> {
    let named = |limit: &strowger_config::CallLimitTable| limit.cache.as_ref().map(|cache| cache.name().clone());
    let names: BTreeSet<String> = config.call_limits.iter().filter_map(named).map(|name| name.to_string()).collect();
    members.retain(|name, member| {
        let is_wanted = names.contains(name.as_str());
        if !is_wanted {
            member.leave();
        }
        is_wanted
    });
    let (mut elsewhere, mut closed) = (CallCounts::new(), Vec::new());
    let own = shared.call_limits.list();
    for name in config.call_limits.iter().filter_map(named) {
        // Of one that the process began without the configuration has said that it needs a restart.
        if let Entry::Vacant(place) = members.entry(name)
            && let Some(member) = Member::of(config, caches, place.key())
        {
            place.insert(member);
        }
    }
    for (name, member) in members.iter_mut() {
        let limits: Vec<_> = config.call_limits.iter().filter(|limit| named(limit).as_ref() == Some(name)).collect();
        let is_of = |scope: &LimitScope| limits.iter().any(|limit| *limit.name == *scope.name);
        let own = own.iter().filter(|(scope, _)| is_of(scope));
        let servers: BTreeSet<u16> = limits.iter().flat_map(|limit| limit.servers.iter().copied()).collect();
        member.exchange(&servers, own, config.dialogs.count_lifetime);
        for (scope, count) in member.others.values().flat_map(|other| &other.counts).filter(|(scope, _)| is_of(scope)) {
            let sum = elsewhere.entry(scope.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        if member.is_alone(config.dialogs.count_lifetime) {
            let refuses = limits.iter().filter(|limit| limit.without_cache == WithoutCache::Refuse);
            closed.extend(refuses.map(|limit| limit.name.as_str().into()));
        }
    }
    shared.call_limits.hear(&elsewhere, closed);
    (!names.is_empty()).then_some(config.dialogs.count_interval)
}

/// This server among those that count together by one cache.
struct Member {
    name: Name,
    cache: WaitingCache,
    /// How long an answer is waited for.
    wait: Duration,
    node: u16,
    /// By their numbers.
    others: HashMap<u16, Other>,
    /// What was stored last, and when.
    stored: Vec<Vec<u8>>,
    stored_at: Option<u64>,
    /// When the cache last answered, in milliseconds of the monotonic clock.
    heard: u64,
    is_silent: bool,
}

/// What another server has.
struct Other {
    read_at: u64,
    counts: CallCounts,
}

impl Member {
    fn of(config: &Config, caches: &Caches, name: &Name) -> Option<Self> {
        let (cache, wait) = caches.waiting(config, name)?;
        Some(Self {
            name: name.clone(),
            cache,
            wait,
            node: config.server.node,
            others: HashMap::new(),
            stored: Vec::new(),
            stored_at: None,
            heard: clock::now().mono,
            is_silent: false,
        })
    }

    fn ask(&mut self, requests: &[Request<'_>]) -> Vec<Outcome> {
        self.cache.ask(requests, Promise::Held, clock::now().mono, self.wait)
    }

    /// Stores what this server counts, and reads what the others have. What the cache does not say stays as it was until it is too old.
    fn exchange<'a>(
        &mut self,
        servers: &BTreeSet<u16>,
        own: impl Iterator<Item = &'a (LimitScope, u32)>,
        lifetime: Duration,
    ) {
        let now = clock::now().mono;
        let parts = encode(own);
        let is_due = self.stored_at.is_none_or(|at| now.saturating_sub(at) * 3 >= millis(lifetime));
        let is_new = parts != self.stored;
        let others: Vec<u16> = servers.iter().copied().filter(|node| *node != self.node).collect();
        let own_keys: Vec<Vec<u8>> = (0..parts.len()).map(|part| key(self.node, part)).collect();
        let keys: Vec<Vec<u8>> = others.iter().map(|node| key(*node, 0)).collect();
        let mut requests = Vec::new();
        if is_due || is_new {
            // The first part says how many there are: it comes last.
            let stores = own_keys.iter().zip(&parts).rev();
            requests.extend(stores.map(|(key, value)| Request::Store { key, value, life: Life::from(lifetime) }));
        }
        let stores = requests.len();
        requests.extend(keys.iter().map(|key| Request::Fetch { key }));
        let mut outcomes = self.ask(&requests);
        let fetched = outcomes.split_off(stores);
        let mut error = outcomes.iter().find_map(|outcome| outcome.result.err());
        if stores > 0 && error.is_none() {
            (self.stored, self.stored_at) = (parts, Some(now));
        }
        for (node, outcome) in others.iter().zip(fetched) {
            match self.read(*node, outcome) {
                Ok(Some(counts)) => {
                    self.others.insert(*node, Other { read_at: now, counts });
                }
                Ok(None) => {
                    self.others.remove(node);
                }
                Err(failure) => error = error.or(Some(failure)),
            }
        }
        self.others.retain(|node, other| others.contains(node) && now.saturating_sub(other.read_at) < millis(lifetime));
        self.hear(now, error);
    }

    /// The counts of another server, of which this is the first part; none where it has stored none, or what is no such value.
    fn read(&mut self, node: u16, first: Outcome) -> Result<Option<CallCounts>, CacheError> {
        let is_there = |outcome: &Outcome| outcome.result.map(|answer| answer == Answer::Found);
        if !is_there(&first)? {
            return Ok(None);
        }
        let mut counts = CallCounts::new();
        let Some(parts) = decode(&first.value, &mut counts) else { return Ok(None) };
        let keys: Vec<Vec<u8>> = (1..usize::from(parts)).map(|part| key(node, part)).collect();
        if keys.is_empty() {
            return Ok(Some(counts));
        }
        let fetches: Vec<Request<'_>> = keys.iter().map(|key| Request::Fetch { key }).collect();
        for outcome in self.ask(&fetches) {
            if is_there(&outcome)? && decode(&outcome.value, &mut counts).is_none() {
                return Ok(None);
            }
        }
        Ok(Some(counts))
    }

    fn hear(&mut self, now: u64, error: Option<CacheError>) {
        let cache = &self.name;
        match error {
            Some(error) if !self.is_silent => {
                tracing::warn!(%cache, %error, "calls of other servers not counted");
            }
            None if self.is_silent => tracing::info!(%cache, "calls of other servers counted again"),
            _ => (),
        }
        self.is_silent = error.is_some();
        if error.is_none() {
            self.heard = now;
        }
    }

    /// It is not known any more what the others count.
    fn is_alone(&self, lifetime: Duration) -> bool {
        clock::now().mono.saturating_sub(self.heard) >= millis(lifetime)
    }

    /// The others count no call of this server any more.
    fn leave(&mut self) {
        let keys: Vec<Vec<u8>> = (0..self.stored.len()).map(|part| key(self.node, part)).collect();
        let removals: Vec<Request<'_>> = keys.iter().map(|key| Request::Remove { key }).collect();
        // What a cache does not do now ends with its life.
        self.ask(&removals);
        self.stored.clear();
    }
}

const fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

fn key(node: u16, part: usize) -> Vec<u8> {
    format!("strowger:calls:{node}:{part}").into_bytes()
}

/// At least one part: version, number of parts, then each count with the lengths of its texts.
fn encode<'a>(counts: impl Iterator<Item = &'a (LimitScope, u32)>) -> Vec<Vec<u8>> {
    const HEAD: [u8; 3] = [VERSION, 0, 0];
    let mut parts = vec![HEAD.to_vec()];
    for (scope, count) in counts {
        let mut entry = Vec::new();
        for text in [scope.name.as_bytes(), &scope.value] {
            // Texts of a message are shorter than that.
            entry.extend_from_slice(&(text.len() as u32).to_be_bytes());
            entry.extend_from_slice(text);
        }
        entry.extend_from_slice(&count.to_be_bytes());
        let is_full = parts.last().is_some_and(|part| part.len() > HEAD.len() && part.len() + entry.len() > PART);
        // More than that fit no cache; they count here alone.
        if is_full && parts.len() == usize::from(u16::MAX) {
            break;
        }
        if is_full {
            parts.push(HEAD.to_vec());
        }
        if let Some(part) = parts.last_mut() {
            part.extend_from_slice(&entry);
        }
    }
    let [high, low] = (parts.len() as u16).to_be_bytes();
    parts.iter_mut().for_each(|part| part[1..3].copy_from_slice(&[high, low]));
    parts
}

/// Adds the counts of a part; returns how many parts there are, none if it is no such value.
fn decode(value: &[u8], counts: &mut CallCounts) -> Option<u16> {
    fn take<'a>(rest: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
        let (front, back) = rest.split_at_checked(length)?;
        *rest = back;
        Some(front)
    }
    fn number(rest: &mut &[u8]) -> Option<u32> {
        Some(u32::from_be_bytes(take(rest, 4)?.try_into().ok()?))
    }
    let [VERSION, high, low, ref rest @ ..] = *value else { return None };
    let mut rest = rest;
    while !rest.is_empty() {
        let mut text = || {
            let length = usize::try_from(number(&mut rest)?).ok()?;
            take(&mut rest, length)
        };
        let (name, value) = (std::str::from_utf8(text()?).ok()?.into(), text()?.into());
        let count = number(&mut rest)?;
        counts.insert(LimitScope { name, value }, count);
    }
    Some(u16::from_be_bytes([high, low]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(name: &str, value: String) -> LimitScope {
        LimitScope { name: name.into(), value: value.into_bytes().into() }
    }

    #[test]
    fn counts_come_back_in_parts() {
        for many in [0_u32, 1, 10, 20_000] {
            let counts: Vec<_> = (0..many).map(|n| (scope("line", format!("sip:{n}@example.org")), n + 1)).collect();
            let parts = encode(counts.iter());
            assert!(parts.iter().all(|part| part.len() <= PART) && (parts.len() > 1) == (many > 1_000));
            let mut read = CallCounts::new();
            for part in &parts {
                assert_eq!(decode(part, &mut read).map(usize::from), Some(parts.len()));
            }
            assert_eq!(read, counts.into_iter().collect());
        }
    }

    #[test]
    fn what_is_no_value_is_none() {
        let parts = encode([(scope("line", "a".into()), 7)].iter());
        for cut in 0..parts[0].len() {
            let is_head = cut == 3;
            assert_eq!(decode(&parts[0][..cut], &mut CallCounts::new()).is_some(), is_head, "{cut}");
        }
        let other_version = [&[VERSION + 1], &parts[0][1..]].concat();
        assert_eq!(decode(&other_version, &mut CallCounts::new()), None);
        // As long as a text says that it is.
        let long = [VERSION, 0, 1, 0xff, 0xff, 0xff, 0xff, b'x'];
        assert_eq!(decode(&long, &mut CallCounts::new()), None);
    }
}
