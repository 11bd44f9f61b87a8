//! Calls that servers count together, through a cache in another process that is slow, fails and loses answers. A
//! server sees a recent past state of the other server's calls. So it may admit calls beyond a limit only within that
//! time, and after there is room it may refuse calls no longer than that time.

use super::database::{Outage, OutageKind, outage};
use super::process::Due;
use super::{ServerHost, is_said_by};
use crate::random::Random;
use crate::world::START;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strowger_cache::error::CacheError;
use strowger_cache::request::{CacheAnswer, Request};
use strowger_cache::waiting::CacheResponse;
use strowger_calls::limits::LimitScope;
use strowger_calls::shared_counts::{Exchange, Member, publish};
use strowger_config::Config;
use strowger_core::{Now, Outbox};
use strowger_message::{Limits, Message};
use strowger_server::bounds::EngineBounds;
use strowger_server::call_settings::{caches, shared_counts};

/// Settings of two servers that count together, and of their cache.
#[derive(Clone, Debug)]
pub struct CountManners {
    /// Shortest and longest delay of the cache in ms.
    pub delay: (u64, u64),
    /// Answers that miss the timeout, in thousandths.
    pub failures: u64,
    pub outages: Vec<Outage>,
    /// Limit of all calls.
    pub most: u32,
    /// True if calls are refused without the cache.
    pub refuses: bool,
}

/// Status of a call beyond the limit.
pub const LIMITED: u16 = 477;

/// Timeout of an answer in ms.
const TIMEOUT: u64 = 200;

/// Time until which servers exchange counts even without calls: most planned calls have begun by then. Later, a server
/// without calls sleeps until a message arrives, and less is known of its view.
const BUSY: u64 = START.mono + 80_000;

/// The cache, and the true counts of each server.
pub(super) struct Counting(Mutex<State>);

struct State {
    /// Values, and their expiry.
    entries: HashMap<Vec<u8>, (Vec<u8>, u64)>,
    servers: BTreeMap<u16, Past>,
    /// Time until which servers continue their exchanges.
    until: u64,
}

/// Past counts of a server.
#[derive(Default)]
struct Past {
    /// Number of the server's own calls under each limit over time.
    own: HashMap<LimitScope, VecDeque<(u64, u32)>>,
    /// Start times of exchanges that were answered completely.
    whole: VecDeque<u64>,
}

/// Bounds of a server's view of the other's calls.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Lower bound; `None` if the view may be forgotten.
    least: Option<u32>,
    most: u32,
}

/// Times of the exchanges in ms.
#[derive(Clone, Copy)]
struct Times {
    interval: u64,
    lifetime: u64,
}

impl Times {
    fn of(bounds: &EngineBounds) -> Self {
        let [interval, lifetime] = [bounds.count_interval, bounds.count_lifetime];
        Self { interval: interval.as_millis() as u64, lifetime: lifetime.as_millis() as u64 }
    }

    /// Returns the greatest age of a value that counts: as old as allowed when it was read, and as old again since.
    const fn oldest(self) -> u64 {
        2 * self.lifetime + self.interval + 3 * TIMEOUT
    }
}

impl Past {
    fn last(&self, scope: &LimitScope) -> u32 {
        self.own.get(scope).and_then(VecDeque::back).map_or(0, |(_, count)| *count)
    }

    /// Returns the least and the greatest number of calls at any moment since `from`.
    fn range(&self, scope: &LimitScope, from: u64) -> (u32, u32) {
        let Some(counts) = self.own.get(scope) else { return (0, 0) };
        let first = counts.iter().rfind(|(at, _)| *at < from).map_or(0, |(_, count)| *count);
        let since = counts.iter().filter(|(at, _)| *at >= from).map(|(_, count)| *count);
        since.fold((first, first), |(least, most), count| (least.min(count), most.max(count)))
    }

    /// Returns the greater of two times: the longest pause between recent complete exchanges, and the time since the
    /// last one. The start counts as an exchange, because the server began without calls.
    fn pause(&self, now: u64, lifetime: u64) -> u64 {
        let from = now.saturating_sub(2 * lifetime);
        let begun = || std::iter::once(START.mono).chain(self.whole.iter().copied());
        let before = begun().rfind(|at| *at < from).unwrap_or(START.mono);
        let (mut last, mut longest) = (before, 0);
        for at in begun().filter(|at| *at >= from).chain([now]) {
            longest = longest.max(at - last);
            last = at;
        }
        longest
    }
}

impl Default for Counting {
    fn default() -> Self {
        let (entries, servers) = Default::default();
        Self(Mutex::new(State { entries, servers, until: BUSY }))
    }
}

impl Counting {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Performs the requests now. Returns the responses with their delays, and the delay of the last response.
    fn ask(&mut self, manners: &CountManners, random: &mut Random, now: u64, requests: &[Request<'_>]) -> Answers {
        let mut all = Answers { after: 0, outcomes: Vec::new() };
        for request in requests {
            let delay = random.between(manners.delay.0, manners.delay.1);
            let (is_done, delay) = match outage(&manners.outages, now).map(|outage| outage.kind) {
                Some(OutageKind::Failing) => (false, delay),
                Some(OutageKind::Silent) => (false, u64::MAX),
                Some(OutageKind::Slow(more)) => (true, delay + more),
                None if random.chance(manners.failures) => (random.chance(500), u64::MAX),
                None => (true, delay),
            };
            let done = is_done.then(|| self.carry_out(now, request));
            let late = || CacheResponse { result: Err(CacheError::TimedOut), value: Box::default() };
            let refused = || CacheResponse { result: Err(CacheError::Unavailable), value: Box::default() };
            all.after = all.after.max(delay.min(TIMEOUT));
            all.outcomes.push(if delay > TIMEOUT { late() } else { done.unwrap_or_else(refused) });
        }
        all
    }

    fn carry_out(&mut self, now: u64, request: &Request<'_>) -> CacheResponse {
        let (result, value) = match *request {
            Request::Store { key, value, life } => {
                self.entries.insert(
                    key.to_vec(),
                    (value.to_vec(), life.in_ms().map_or(u64::MAX, |life| now.saturating_add(life))),
                );
                (Ok(CacheAnswer::Stored), Vec::new())
            }
            Request::Fetch { key } => match self.entries.get(key).filter(|(_, until)| now < *until) {
                Some((value, _)) => (Ok(CacheAnswer::Found), value.clone()),
                None => (Ok(CacheAnswer::Absent), Vec::new()),
            },
            Request::Remove { key } => {
                let was_there = self.entries.remove(key).is_some();
                (Ok(if was_there { CacheAnswer::Removed } else { CacheAnswer::Absent }), Vec::new())
            }
            _ => (Err(CacheError::Refused), Vec::new()),
        };
        CacheResponse { result, value: value.into() }
    }

    /// Records the calls of this server from now on.
    fn record(&mut self, node: u16, now: u64, own: &[(LimitScope, u32)], times: Times) {
        let past = self.servers.entry(node).or_default();
        for (scope, count) in own {
            if past.last(scope) != *count {
                past.own.entry(scope.clone()).or_default().push_back((now, *count));
            }
        }
        let from = now.saturating_sub(times.oldest());
        for (scope, counts) in &mut past.own {
            let is_there = own.iter().any(|(of, _)| of == scope);
            if !is_there && counts.back().is_some_and(|(_, count)| *count > 0) {
                counts.push_back((now, 0));
            }
            while counts.get(1).is_some_and(|(at, _)| *at < from) {
                counts.pop_front();
            }
        }
        while past.whole.get(1).is_some_and(|at| *at < from) {
            past.whole.pop_front();
        }
    }

    /// Returns the bounds of a server's view of the other's calls.
    fn bounds(&self, node: u16, scope: &LimitScope, now: u64, times: Times) -> Bounds {
        let others = || self.servers.iter().filter(|(other, _)| **other != node).map(|(_, past)| past);
        let pause = self.servers.values().map(|past| past.pause(now, times.lifetime)).max().unwrap_or(0);
        // Values are stored again when a third of their life is over.
        let is_known = pause + TIMEOUT <= times.lifetime / 3;
        let since = now.saturating_sub(if is_known { 2 * pause } else { times.oldest() });
        let (least, most) = others().map(|past| past.range(scope, since)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        Bounds { least: is_known.then_some(least), most }
    }

    fn scopes(&self) -> BTreeSet<(Box<str>, Box<[u8]>)> {
        let scopes = self.servers.values().flat_map(|past| past.own.keys());
        scopes.map(|scope| (scope.name.clone(), scope.value.clone())).collect()
    }
}

struct Answers {
    after: u64,
    outcomes: Vec<CacheResponse>,
}

/// Knowledge of one process about the calls of the other server.
pub(super) struct Sharing {
    member: Member,
    /// The exchange in progress, and its answers in transit.
    asked: Option<(Exchange, Vec<CacheResponse>)>,
    /// Time of the next exchange.
    next: u64,
    /// Start of the last exchange that was answered completely; else the start of the process.
    heard: u64,
    has_heard: bool,
    /// Time since which exchanges follow each other without a pause.
    awake: u64,
    /// Refused calls, by branch and CSeq.
    refused: HashSet<Vec<u8>>,
}

impl Sharing {
    /// Creates the state at this moment.
    pub(super) fn new(now: Now, config: &Config) -> Option<Self> {
        let member = Member::new(caches(config).first()?.as_str(), config.server.node, now.mono);
        let [next, heard, awake] = [now.mono; 3];
        Some(Self { member, asked: None, next, heard, has_heard: false, awake, refused: HashSet::new() })
    }
}

impl ServerHost {
    fn counting(&self) -> Arc<Counting> {
        self.site.counting.clone()
    }

    /// Returns the time of the next exchange of counts.
    pub(super) fn next_exchange(&self) -> Option<u64> {
        let sharing = self.process.sharing.as_ref().filter(|sharing| sharing.asked.is_none())?;
        let until = self.site.counting.state().until;
        Some(sharing.next).filter(|next| *next <= until)
    }

    /// Sends the counts of this server, if it is time.
    pub(super) fn exchange_counts(&mut self, now: Now) {
        let (counting, policy) = (self.counting(), self.process.shared.policy());
        let (Some(sharing), Some(manners)) = (&mut self.process.sharing, &self.settings.counts) else { return };
        if sharing.asked.is_some() || sharing.next > now.mono {
            return;
        }
        if sharing.next < now.mono {
            sharing.awake = now.mono;
        }
        let own = self.process.shared.call_limits.list();
        let settings = shared_counts(&policy.config, &self.process.shared.bounds);
        let exchange = sharing.member.begin(now.mono, &settings, &own);
        let answers = counting.state().ask(manners, &mut self.later_random, now.mono, &exchange.requests());
        sharing.asked = Some((exchange, answers.outcomes));
        self.plan(now.mono + answers.after, Due::Counted);
    }

    /// Handles the answers of the cache.
    pub(super) fn on_counts(&mut self, now: Now) {
        let (counting, policy, node) = (self.counting(), self.process.shared.policy(), self.node());
        let (Some(sharing), Some(manners)) = (&mut self.process.sharing, &self.settings.counts) else { return };
        let Some((mut exchange, outcomes)) = sharing.asked.take() else { return };
        sharing.member.answered(&mut exchange, outcomes);
        let further = exchange.further_requests();
        let answers = counting.state().ask(manners, &mut self.later_random, now.mono, &further);
        let began = exchange.began();
        if sharing.member.end(exchange, answers.outcomes) {
            counting.state().servers.entry(node).or_default().whole.push_back(began);
            (sharing.heard, sharing.has_heard) = (began, true);
        }
        let shared = &self.process.shared;
        let settings = shared_counts(&policy.config, &shared.bounds);
        publish(now.mono, &settings, [&sharing.member], &shared.call_limits);
        sharing.next = now.mono + Times::of(&shared.bounds).interval;
        self.watch_counts(now, &Outbox::new(), true);
    }

    /// Removes the counts of a process that ends gracefully.
    pub(super) fn leave_counts(&mut self, now: Now) {
        let counting = self.counting();
        let (Some(sharing), Some(manners)) = (&mut self.process.sharing, &self.settings.counts) else { return };
        let keys = sharing.member.leave();
        let removals: Vec<Request<'_>> = keys.iter().map(|key| Request::Remove { key }).collect();
        counting.state().ask(manners, &mut self.later_random, now.mono, &removals);
    }

    /// Records the calls of a new process: first none, and then those that it continues.
    pub(super) fn record_counts(&self, now: Now) {
        if self.process.sharing.is_some() {
            let shared = &self.process.shared;
            let (own, times) = (shared.call_limits.list(), Times::of(&shared.bounds));
            self.site.counting.state().record(self.node(), now.mono, &own, times);
        }
    }

    /// Checks the output of an engine. `may_admit`: whether calls may have begun in this step.
    pub(super) fn watch_counts(&mut self, now: Now, out: &Outbox, may_admit: bool) {
        if let Err(problem) = self.check_counts(now, out, may_admit) {
            self.wrong(format!("calls that are counted together: {problem}"));
        }
    }

    fn check_counts(&mut self, now: Now, out: &Outbox, may_admit: bool) -> Result<(), String> {
        let (counting, node) = (self.counting(), self.node());
        let (Some(sharing), Some(manners)) = (&mut self.process.sharing, &self.settings.counts) else { return Ok(()) };
        let (times, limits) = (Times::of(&self.process.shared.bounds), &self.process.shared.call_limits);
        let (state, own) = (&mut *counting.state(), limits.list());
        let past = state.servers.entry(node).or_default();
        let before: HashMap<LimitScope, u32> = past.own.keys().map(|scope| (scope.clone(), past.last(scope))).collect();
        state.record(node, now.mono, &own, times);
        let is_overdue = sharing.asked.is_none() && sharing.next < now.mono;
        let alone_since = now.mono - sharing.heard;
        let mut room = (0, Bounds { least: None, most: 0 });
        for (name, value) in state.scopes() {
            let scope = LimitScope { name, value };
            let most = if &*scope.name == "all" { manners.most } else { u32::MAX };
            let here = own.iter().find(|(of, _)| *of == scope).map_or(0, |(_, count)| *count);
            let were = before.get(&scope).copied().unwrap_or(0);
            let elsewhere = limits.calls(&scope) - here;
            let bounds = state.bounds(node, &scope, now.mono, times);
            let least = bounds.least.filter(|_| sharing.has_heard).unwrap_or(0);
            if elsewhere < least || elsewhere > bounds.most {
                return Err(format!("{elsewhere} of the other server count under {scope:?}, not {bounds:?}"));
            }
            if may_admit && here > were && here + least > most {
                return Err(format!("{here} calls and {bounds:?} elsewhere, of {most} under {scope:?}"));
            }
            if may_admit
                && here > were
                && manners.refuses
                && !is_overdue
                && now.mono - sharing.awake.max(sharing.heard) > times.lifetime + times.interval + 2 * TIMEOUT
            {
                return Err(format!(
                    "a call is let through under {scope:?} {alone_since} ms after the cache has answered"
                ));
            }
            if here + elsewhere > 0 {
                state.until = state.until.max(now.mono + 2 * times.lifetime + 1_000);
            }
            if &*scope.name == "all" {
                room = (here.max(were), bounds);
            }
        }
        let (here, bounds) = room;
        let may_be_full = here + bounds.most >= manners.most || manners.refuses && alone_since >= times.lifetime;
        for send in out.sends() {
            let bytes = &out.bytes[send.range()];
            if !bytes.starts_with(b"SIP/2.0 477 ") || self.index.parse(bytes, &Limits::default()).is_err() {
                continue;
            }
            let message = Message::new(bytes, &self.index);
            let branch = message.via().ok().and_then(|via| via.branch).unwrap_or_default();
            if is_said_by(self.settings.address, &message) && sharing.refused.insert(branch.to_vec()) && !may_be_full {
                return Err(format!(
                    "a call is refused, with {here} calls and {bounds:?} elsewhere of {}",
                    manners.most
                ));
            }
        }
        Ok(())
    }

    /// Checks that no calls count when no work is in progress.
    ///
    /// # Errors
    /// Calls still count.
    pub(super) fn counts_left(&self) -> Result<(), String> {
        let (limits, mut left) = (&self.process.shared.call_limits, Vec::new());
        (0..limits.parts()).for_each(|part| limits.each(part, &mut |scope, count| left.push((scope.clone(), count))));
        match left.first() {
            Some(left) => Err(format!("calls count under limits that have ended, here or elsewhere: {left:?}")),
            None => Ok(()),
        }
    }
}
