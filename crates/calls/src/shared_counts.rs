//! Counts of calls that servers share (`call_limit.cache`). Each server stores its counts under its own number, with a
//! lifetime that it renews, and reads the counts of the other servers. So the calls of a dead server count no longer
//! than that lifetime, and no call waits for a cache.
//!
//! The known count of another server is a count that the server had at some moment of a recent interval. The length of
//! this interval is twice the longest pause between two complete exchanges of either server, which is the interval
//! between two exchanges plus the response time of a healthy cache. A call is admitted only if the calls of this server
//! plus the smallest counts of the other servers in that interval are below the limit. A call is refused only if the
//! calls of this server plus the largest counts of the other servers reach the limit. A server that has just started
//! counts only its own calls until its first exchange.
//!
//! This module makes the requests and interprets the answers; a thread of the process sends them.

use crate::limits::{CallLimits, LimitScope};
use std::collections::{BTreeSet, HashMap};
use std::time::Duration;
use strowger_cache::error::CacheError;
use strowger_cache::request::{CacheAnswer, Life, Request};
use strowger_cache::waiting::CacheResponse;

/// Format version of values.
const VERSION: u8 = 1;
/// Maximum number of bytes in a part.
const PART: usize = 32 << 10;

/// Number of calls by scope of a limit.
type CallCounts = HashMap<LimitScope, u32>;

/// Limit whose calls several servers count together.
#[derive(Clone, Debug)]
pub struct SharedLimit {
    /// Name of the limit.
    pub name: Box<str>,
    /// Name of the cache through which they count.
    pub cache: Box<str>,
    /// Numbers of the servers.
    pub servers: Vec<u16>,
    /// Set if no call has room while the counts of the other servers are unknown.
    pub refuses: bool,
}

/// Settings of the counts that servers share.
#[derive(Clone, Debug)]
pub struct SharedCountSettings {
    /// Limits that are shared.
    pub limits: Vec<SharedLimit>,
    /// Lifetime of a count that another server has read.
    pub lifetime: Duration,
}

/// Adds the counts that these members have read of other servers to the table of limits. `now`:
/// [`Now::mono`](strowger_core::Now).
pub fn publish<'a>(
    now: u64,
    settings: &SharedCountSettings,
    members: impl IntoIterator<Item = &'a Member>,
    call_limits: &CallLimits,
) {
    let (mut elsewhere, mut closed) = (CallCounts::new(), Vec::new());
    for member in members {
        let limits: Vec<_> = member.limits(settings).collect();
        let is_of = |scope: &LimitScope| limits.iter().any(|limit| limit.name == scope.name);
        for (scope, count) in member.others.values().flat_map(|other| &other.counts).filter(|(scope, _)| is_of(scope)) {
            let sum = elsewhere.entry(scope.clone()).or_default();
            *sum = sum.saturating_add(*count);
        }
        if member.is_alone(now, settings.lifetime) {
            let refuses = limits.iter().filter(|limit| limit.refuses);
            closed.extend(refuses.map(|limit| limit.name.clone()));
        }
    }
    call_limits.set_elsewhere(&elsewhere, closed);
}

/// This server among those that share counts through one cache.
#[derive(Debug)]
pub struct Member {
    cache: Box<str>,
    node: u16,
    /// Other servers by number.
    others: HashMap<u16, Other>,
    /// Parts that were stored last.
    stored: Vec<Vec<u8>>,
    /// Moment when the parts were stored; `None` if the stored parts are unknown.
    stored_at: Option<u64>,
    /// Moment of the last complete exchange.
    heard: u64,
    is_silent: bool,
    /// Number of servers whose counts became too old, since this was taken.
    outdated: u64,
}

/// Counts of another server.
#[derive(Debug)]
struct Other {
    read_at: u64,
    counts: CallCounts,
}

/// Exchange of a member with its cache: requests, and answers so far.
#[derive(Debug)]
pub struct Exchange {
    began: u64,
    lifetime: Duration,
    /// Counts of this server, in parts.
    parts: Vec<Vec<u8>>,
    /// Keys of the parts to store.
    stores: Vec<Vec<u8>>,
    /// Other servers, with the keys of their first parts.
    others: Vec<(u16, Vec<u8>)>,
    /// Servers with further parts: number of the server, number of parts, counts of the first part.
    further: Vec<(u16, u16, CallCounts)>,
    further_keys: Vec<Vec<u8>>,
    error: Option<CacheError>,
}

impl Exchange {
    /// Returns the first requests.
    pub fn requests(&self) -> Vec<Request<'_>> {
        let life = Life::from(self.lifetime);
        // The first part contains the number of parts, so it is stored last.
        let stores = self.stores.iter().zip(&self.parts).rev().map(|(key, value)| Request::Store { key, value, life });
        stores.chain(self.others.iter().map(|(_, key)| Request::Fetch { key })).collect()
    }

    /// Returns the moment when the exchange began.
    pub const fn began(&self) -> u64 {
        self.began
    }

    /// Returns the requests for further parts. Most exchanges have none.
    pub fn further_requests(&self) -> Vec<Request<'_>> {
        self.further_keys.iter().map(|key| Request::Fetch { key }).collect()
    }

    fn fails(&mut self, error: CacheError) {
        self.error = self.error.or(Some(error));
    }
}

impl Member {
    /// Creates the member for the server with this number, from this moment on.
    pub fn new(cache: &str, node: u16, now: u64) -> Self {
        let cache = cache.into();
        let (others, stored, stored_at) = Default::default();
        Self { cache, node, others, stored, stored_at, heard: now, is_silent: false, outdated: 0 }
    }

    /// Returns the limits that use its cache.
    fn limits<'a>(&'a self, settings: &'a SharedCountSettings) -> impl Iterator<Item = &'a SharedLimit> {
        settings.limits.iter().filter(|limit| limit.cache == self.cache)
    }

    /// Begins an exchange. `own`: counts of this server.
    pub fn begin(&self, now: u64, settings: &SharedCountSettings, own: &[(LimitScope, u32)]) -> Exchange {
        let lifetime = settings.lifetime;
        let limits: Vec<_> = self.limits(settings).collect();
        let parts = encode(own.iter().filter(|(scope, _)| limits.iter().any(|limit| limit.name == scope.name)));
        let is_due = self.stored_at.is_none_or(|at| now.saturating_sub(at) * 3 >= millis(lifetime));
        let stores = if is_due || parts != self.stored { parts.len() } else { 0 };
        let servers: BTreeSet<u16> = limits.iter().flat_map(|limit| limit.servers.iter().copied()).collect();
        let others = servers.into_iter().filter(|node| *node != self.node).map(|node| (node, key(node, 0)));
        Exchange {
            began: now,
            lifetime,
            stores: (0..stores).map(|part| key(self.node, part)).collect(),
            others: others.collect(),
            parts,
            further: Vec::new(),
            further_keys: Vec::new(),
            error: None,
        }
    }

    /// Takes the answers to [`Exchange::requests`], in order.
    pub fn answered(&mut self, exchange: &mut Exchange, mut outcomes: Vec<CacheResponse>) {
        let stores = exchange.stores.len();
        let fetched = outcomes.split_off(stores.min(outcomes.len()));
        let refused = outcomes.iter().find_map(|outcome| outcome.result.err());
        exchange.error = refused;
        if stores > 0 {
            // A store without an answer may have been carried out, so it is repeated.
            self.stored_at = Some(exchange.began).filter(|_| refused.is_none());
            self.stored = std::mem::take(&mut exchange.parts);
        }
        for ((node, _), outcome) in std::mem::take(&mut exchange.others).into_iter().zip(fetched) {
            let (mut counts, found) = (CallCounts::new(), outcome.result);
            match found.map(|answer| decode(&outcome.value, &mut counts).filter(|_| answer == CacheAnswer::Found)) {
                Ok(Some(0 | 1)) => self.note_counts(node, exchange.began, Some(counts)),
                Ok(Some(parts)) => {
                    exchange.further_keys.extend((1..usize::from(parts)).map(|part| key(node, part)));
                    exchange.further.push((node, parts, counts));
                }
                // The server has stored nothing, or a value that cannot be decoded.
                Ok(None) => self.note_counts(node, exchange.began, None),
                Err(error) => exchange.fails(error),
            }
            exchange.others.push((node, Vec::new()));
        }
    }

    /// Takes the answers to [`Exchange::further_requests`]. Counts that the cache did not return remain until they are
    /// too old. Returns whether all answers arrived.
    pub fn end(&mut self, mut exchange: Exchange, outcomes: Vec<CacheResponse>) -> bool {
        let mut outcomes = outcomes.into_iter();
        for (node, parts, mut counts) in std::mem::take(&mut exchange.further) {
            let (mut is_whole, mut failure) = (true, None);
            for outcome in outcomes.by_ref().take(usize::from(parts) - 1) {
                match outcome.result {
                    Ok(CacheAnswer::Found) => is_whole &= decode(&outcome.value, &mut counts).is_some(),
                    // The cache had no room for this part; the other parts are used nevertheless.
                    Ok(_) => (),
                    Err(error) => failure = Some(error),
                }
            }
            match failure {
                Some(error) => exchange.fails(error),
                None => self.note_counts(node, exchange.began, Some(counts).filter(|_| is_whole)),
            }
        }
        let (began, lifetime) = (exchange.began, millis(exchange.lifetime));
        let is_of = |node: &u16| exchange.others.iter().any(|(other, _)| other == node);
        let known = self.others.keys().filter(|node| is_of(node)).count();
        self.others.retain(|node, other| is_of(node) && began.saturating_sub(other.read_at) < lifetime);
        self.outdated += (known - self.others.len()) as u64;
        self.note_error(began, exchange.error);
        exchange.error.is_none()
    }

    fn note_counts(&mut self, node: u16, read_at: u64, counts: Option<CallCounts>) {
        match counts {
            Some(counts) => self.others.insert(node, Other { read_at, counts }),
            None => self.others.remove(&node),
        };
    }

    fn note_error(&mut self, now: u64, error: Option<CacheError>) {
        let cache = &self.cache;
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

    /// Tells whether the counts of the other servers are no longer known.
    fn is_alone(&self, now: u64, lifetime: Duration) -> bool {
        now.saturating_sub(self.heard) >= millis(lifetime)
    }

    /// Returns the number of servers whose counts became too old since the last call.
    pub fn take_outdated(&mut self) -> u64 {
        std::mem::take(&mut self.outdated)
    }

    /// Returns the keys to remove, so that the other servers no longer count calls of this server. A key that the cache
    /// fails to remove expires after its lifetime.
    pub fn leave(&mut self) -> Vec<Vec<u8>> {
        let parts = std::mem::take(&mut self.stored).len();
        self.stored_at = None;
        (0..parts).map(|part| key(self.node, part)).collect()
    }
}

const fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

fn key(node: u16, part: usize) -> Vec<u8> {
    format!("strowger:calls:{node}:{part}").into_bytes()
}

/// Encodes counts in at least one part: version, number of parts, then each count with the lengths of its texts.
fn encode<'a>(counts: impl Iterator<Item = &'a (LimitScope, u32)>) -> Vec<Vec<u8>> {
    const HEAD: [u8; 3] = [VERSION, 0, 0];
    let mut parts = vec![HEAD.to_vec()];
    for (scope, count) in counts {
        let mut entry = Vec::new();
        for text in [scope.name.as_bytes(), &scope.value] {
            // Texts of a message are shorter than 4 GiB.
            entry.extend_from_slice(&(text.len() as u32).to_be_bytes());
            entry.extend_from_slice(text);
        }
        entry.extend_from_slice(&count.to_be_bytes());
        // The text is too long for any part, so its calls are counted only by this server.
        if HEAD.len() + entry.len() > PART {
            continue;
        }
        let is_full = parts.last().is_some_and(|part| part.len() + entry.len() > PART);
        // The cache accepts no further parts, so their calls are counted only by this server.
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

/// Adds the counts of a part, and returns the number of parts; `None` if the value is not a part of counts.
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
    fn a_count_that_fits_no_part_is_left_out() {
        let long = (scope("line", "x".repeat(PART)), 1);
        let [first, last] = ["a", "b"].map(|value| (scope("line", value.into()), 2));
        let parts = encode([first.clone(), long, last.clone()].iter());
        let mut read = CallCounts::new();
        assert_eq!(parts.iter().map(|part| decode(part, &mut read)).collect::<Vec<_>>(), [Some(1)]);
        assert_eq!(read, [first, last].into_iter().collect());
    }

    #[test]
    fn values_that_cannot_be_read_are_none() {
        let parts = encode([(scope("line", "a".into()), 7)].iter());
        for cut in 0..parts[0].len() {
            let is_head = cut == 3;
            assert_eq!(decode(&parts[0][..cut], &mut CallCounts::new()).is_some(), is_head, "{cut}");
        }
        let other_version = [&[VERSION + 1], &parts[0][1..]].concat();
        assert_eq!(decode(&other_version, &mut CallCounts::new()), None);
        // The length exceeds the remaining bytes.
        let long = [VERSION, 0, 1, 0xff, 0xff, 0xff, 0xff, b'x'];
        assert_eq!(decode(&long, &mut CallCounts::new()), None);
    }

    fn settings() -> SharedCountSettings {
        let line = SharedLimit { name: "line".into(), cache: "far".into(), servers: vec![1, 2], refuses: false };
        SharedCountSettings { limits: vec![line], lifetime: Duration::from_secs(5) }
    }

    /// Returns the answers of a simulated cache.
    fn ask(cache: &mut HashMap<Vec<u8>, Vec<u8>>, requests: &[Request<'_>]) -> Vec<CacheResponse> {
        let one = |request: &Request<'_>| match *request {
            Request::Store { key, value, .. } => {
                cache.insert(key.to_vec(), value.to_vec());
                CacheResponse { result: Ok(CacheAnswer::Stored), value: Box::default() }
            }
            Request::Fetch { key } => match cache.get(key) {
                Some(value) => CacheResponse { result: Ok(CacheAnswer::Found), value: value.as_slice().into() },
                None => CacheResponse { result: Ok(CacheAnswer::Absent), value: Box::default() },
            },
            _ => panic!("{request:?}"),
        };
        requests.iter().map(one).collect()
    }

    #[test]
    fn the_counts_of_another_server_are_heard_in_all_their_parts() {
        let (mut cache, mut members) = (HashMap::new(), [1, 2].map(|node| Member::new("far", node, 0)));
        let settings = settings();
        let own: Vec<_> = (0..5_000).map(|n| (scope("line", format!("sip:{n}@example.org")), 1)).collect();
        let mut turn = |cache: &mut HashMap<_, _>, server: usize, own: &[(LimitScope, u32)]| {
            let member = &mut members[server];
            let mut exchange = member.begin(100, &settings, own);
            let outcomes = ask(cache, &exchange.requests());
            member.answered(&mut exchange, outcomes);
            let outcomes = ask(cache, &exchange.further_requests());
            let further = outcomes.len();
            assert!(member.end(exchange, outcomes));
            let limits = CallLimits::new(1);
            publish(100, &settings, [&*member], &limits);
            (further, (0..5_000).filter(|n| limits.calls(&scope("line", format!("sip:{n}@example.org"))) == 1).count())
        };
        assert_eq!(turn(&mut cache, 0, &own), (0, 0));
        let (further, heard) = turn(&mut cache, 1, &[]);
        assert!(further > 2 && heard == 5_000, "{further} {heard}");
        // One part is lost.
        cache.remove(&key(1, further));
        let (_, heard) = turn(&mut cache, 1, &[]);
        assert!((1..5_000).contains(&heard), "{heard}");
        assert_eq!(turn(&mut cache, 0, &[]), (0, 0));
        assert_eq!(turn(&mut cache, 1, &[]), (0, 0));
    }

    #[test]
    fn a_store_without_an_answer_is_repeated() {
        let (settings, mut member) = (settings(), Member::new("far", 1, 0));
        let mut turn = |now, calls: u32, result: Result<CacheAnswer, CacheError>| {
            let own: Vec<_> = (0..calls.min(1)).map(|_| (scope("line", "a".into()), calls)).collect();
            let mut exchange = member.begin(now, &settings, &own);
            let outcomes: Vec<CacheResponse> =
                exchange.requests().iter().map(|_| CacheResponse { result, value: Box::default() }).collect();
            let stores = outcomes.len() - 1;
            member.answered(&mut exchange, outcomes);
            (stores, member.end(exchange, Vec::new()))
        };
        assert_eq!(turn(100, 0, Ok(CacheAnswer::Stored)), (1, true));
        assert_eq!(turn(200, 0, Ok(CacheAnswer::Stored)), (0, true));
        // Other servers may read 1 at this moment, or still 0.
        assert_eq!(turn(300, 1, Err(CacheError::TimedOut)), (1, false));
        assert_eq!(turn(400, 0, Ok(CacheAnswer::Stored)), (1, true));
        assert_eq!(turn(500, 0, Ok(CacheAnswer::Stored)), (0, true));
    }
}
