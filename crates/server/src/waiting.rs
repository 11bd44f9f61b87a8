//! Table of requests that wait, and of messages that are held back behind them.

use crate::handling::Progress;
use crate::policy::ActivePolicy;
use crate::question::{HostKey, QuestionKind, Resolved};
use crate::registration_log::{Changes, Sender};
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;
use strowger_cache::error::CacheError;
use strowger_core::routing::Request;
use strowger_core::slots::{Id, Slots};
use strowger_core::source::counted;
use strowger_core::transaction::ServerId;
use strowger_core::{Arrival, Target, call};
use strowger_store::error::StoreError;
use strowger_store::subscriber;

/// Key of a line, the messages that stay in order: hashes of the Call-ID and of the sender's tag. A peer that knows the
/// Call-ID but not the tag delays none of them.
pub(crate) type HoldKey = (u32, u32);

/// Returns the key of a request. `secret`: key of [`call::hash`].
pub(crate) fn line_of(request: &Request<'_>, secret: u32) -> HoldKey {
    (request.call_hash, call::hash(secret, request.from_tag))
}

/// Work that waits under a ticket.
#[derive(Debug)]
pub(crate) enum Suspended {
    /// Request that waits for an answer to its stage.
    Request(Box<SuspendedRequest>),
    /// Responses to a REGISTER whose bindings or credentials are being written.
    Registration(Box<Registration>),
}

/// Request that waits for the answer to a question.
#[derive(Debug)]
pub(crate) struct SuspendedRequest {
    pub(crate) bytes: Vec<u8>,
    pub(crate) arrival: Arrival,
    pub(crate) call_hash: u32,
    pub(crate) line: HoldKey,
    /// Kind of the question.
    pub(crate) asks: QuestionKind,
    /// Server transaction; none for a REGISTER and an ACK.
    pub(crate) server: Option<ServerId>,
    /// [`strowger_core::Now::mono`] when the request began to wait.
    pub(crate) since: u64,
    pub(crate) progress: Progress,
}

/// Message that is held back behind a suspended request.
#[derive(Debug, Serialize, Deserialize)]
pub struct Held {
    pub(crate) bytes: Vec<u8>,
    pub(crate) arrival: Arrival,
    /// Policy with which the message came. It is not part of the bytes: a message read from bytes uses the policy of
    /// its new engine.
    #[serde(skip)]
    pub(crate) policy: Option<Arc<ActivePolicy>>,
}

impl SuspendedRequest {
    /// Stores the answer. An answer to another kind of question is ignored.
    pub(crate) fn take_answer(&mut self, answer: LookupResult) {
        let answers = &mut self.progress.answers;
        match (self.asks, answer) {
            (QuestionKind::Name, LookupResult::Name(name, to)) => answers.names.push((name, to)),
            (QuestionKind::Credential, LookupResult::Subscriber(result)) => answers.credential = Some(result),
            (QuestionKind::Registered, LookupResult::Registered(result)) => answers.registered = Some(result),
            (QuestionKind::User(place), LookupResult::Subscriber(result)) => answers.user = Some((place, result)),
            _ => (),
        }
    }
}

/// Counts of suspended requests and held messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitingCounts {
    /// Requests that wait for an answer or a commit.
    pub requests: usize,
    /// Messages held back behind others of their call and sender.
    pub held: usize,
    /// Length of the longest queue of held messages of one call and sender.
    pub longest: usize,
    /// Pairs of call and sender with suspended requests, plus pairs with held messages.
    pub lines: usize,
    /// Sources of requests that wait for a name.
    pub sources: usize,
    /// Bytes of all that waits for look-ups.
    pub bytes: usize,
}

impl WaitingCounts {
    /// Returns the number of suspended requests and held messages.
    pub fn messages(&self) -> usize {
        self.requests + self.held
    }

    /// Tells whether all counts are zero.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Requests that wait for an answer, and messages held back behind them.
#[derive(Default)]
pub(crate) struct Waiting {
    pub(crate) suspended: Slots<Suspended>,
    /// Memory of resumed requests, reused for the next ones.
    #[expect(clippy::vec_box, reason = "they go into slots as they are")]
    spare: Vec<Box<SuspendedRequest>>,
    /// Held messages by call and sender, in order of arrival.
    pub(crate) held: HashMap<HoldKey, VecDeque<Held>>,
    /// Number of suspended requests by call and sender.
    lines: HashMap<HoldKey, usize>,
    /// Number of requests that wait for a name, by source.
    pub(crate) resolving: HashMap<IpAddr, usize>,
    /// Bytes of all that waits.
    pub(crate) bytes: usize,
}

/// Answer to one question.
pub(crate) enum LookupResult {
    Name(HostKey, Resolved),
    Subscriber(Result<subscriber::SubscriberAnswer, StoreError>),
    /// Value in the cache of registered users, if it has one.
    Registered(Result<Option<Box<[u8]>>, CacheError>),
}

#[derive(Debug, Default)]
pub(crate) struct Registration {
    pub(crate) ok: Vec<u8>,
    pub(crate) failed: Vec<u8>,
    pub(crate) target: Option<Target>,
    /// Address of record, for the log.
    pub(crate) aor: String,
    /// Entry to log when the bindings are stored, if there is one.
    pub(crate) log: Option<(Changes, Sender)>,
    /// Number of results that are still missing, of the journal and of the credential cache.
    pub(crate) left: u8,
    /// Set if one of the results demands a 500.
    pub(crate) has_failed: bool,
    /// Set if the cache stores the credentials of the registrant.
    pub(crate) stores: bool,
    /// Set if a failure of the cache demands a 500.
    pub(crate) needs_cache: bool,
}

impl Waiting {
    /// Returns the counts of suspended requests and held messages.
    pub(crate) fn counts(&self) -> WaitingCounts {
        WaitingCounts {
            requests: self.suspended.len(),
            held: self.held.values().map(VecDeque::len).sum(),
            longest: self.held.values().map(VecDeque::len).max().unwrap_or(0),
            lines: self.held.len() + self.lines.len(),
            sources: self.resolving.len(),
            bytes: self.bytes,
        }
    }

    /// Tells whether no request is suspended.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Tells whether a request of this line is suspended.
    pub(crate) fn holds(&self, line: HoldKey) -> bool {
        self.lines.contains_key(&line)
    }

    /// Returns the queue of held messages of a line.
    pub(crate) fn queue(&mut self, line: HoldKey) -> &mut VecDeque<Held> {
        self.held.entry(line).or_default()
    }

    /// Inserts a request that begins to wait, and returns its ticket. `source`: the source that waits for a name.
    pub(crate) fn insert(&mut self, waiting: SuspendedRequest, bytes: &[u8], source: Option<IpAddr>) -> Id {
        *self.lines.entry(waiting.line).or_insert(0) += 1;
        if let Some(source) = source {
            *self.resolving.entry(source).or_insert(0) += 1;
        }
        let mut entry = match self.spare.pop() {
            Some(mut spare) => {
                let bytes = std::mem::take(&mut spare.bytes);
                *spare = SuspendedRequest { bytes, ..waiting };
                spare
            }
            None => Box::new(waiting),
        };
        entry.bytes.extend_from_slice(bytes);
        self.suspended.insert(Suspended::Request(entry))
    }

    /// Removes the suspended request of this ticket. `prefix`: bits of an IPv6 network that counts as one source.
    pub(crate) fn remove(&mut self, ticket: Id, prefix: u8) -> Option<Box<SuspendedRequest>> {
        let Some(Suspended::Request(waiting)) = self.suspended.remove(ticket) else { return None };
        one_less(&mut self.lines, &waiting.line);
        if waiting.asks == QuestionKind::Name {
            let arrival = &waiting.arrival;
            let source = counted(arrival.remote.ip(), prefix);
            one_less(&mut self.resolving, &source);
        }
        Some(waiting)
    }

    /// Returns the next held message of a line unless a request of the line is suspended.
    pub(crate) fn next_held(&mut self, line: HoldKey) -> Option<Held> {
        if self.holds(line) {
            return None;
        }
        let queue = self.held.get_mut(&line)?;
        let held = queue.pop_front();
        if held.is_none() {
            self.held.remove(&line);
        }
        held
    }

    /// Keeps the memory of a resumed request for reuse by the next one.
    pub(crate) fn keep_spare(&mut self, mut waiting: Box<SuspendedRequest>) {
        const SPARE: usize = 64;
        const LONGEST: usize = 8_192;
        if self.spare.len() < SPARE && waiting.bytes.capacity() <= LONGEST {
            waiting.bytes.clear();
            waiting.progress = Progress::new(waiting.progress.began);
            self.spare.push(waiting);
        }
    }
}

/// Decrements a count, and removes the entry at zero.
fn one_less<K: Eq + Hash>(counts: &mut HashMap<K, usize>, of: &K) {
    if let Some(count) = counts.get_mut(of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(of);
        }
    }
}
