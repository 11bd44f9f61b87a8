//! Keep-alive of the flows of phones behind NAT or on a stream (RFC 5626 section 4.4, RFC 3261 section 11).
//!
//! An OPTIONS is a client transaction of [`Role::Ping`]: over UDP, Timer E retransmits the OPTIONS until a final
//! response or Timer F (RFC 3261 section 17.1.2.2). The end of a flow ends its transaction. Neither a response nor its
//! absence changes a binding, and the next round asks again. A pending ping takes less than 1,000 bytes, half of them
//! for its text. All of its memory is freed after the final response.
//!
//! A phone that keeps its connection open itself is not pinged: it has agreed to (`outbound.rs`), or its keep-alives
//! are heard.

use crate::decider::Decider;
use crate::reachability::{is_gone, target_of};
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::time::Duration;
use strowger_config::PingMethod;
use strowger_core::call::{self, BucketSet};
use strowger_core::entropy::{Entropy, hex, write_hex};
use strowger_core::slots::{GENERATION_BITS, Id};
use strowger_core::transaction::{ClientId, Event, Role, TransactionRecord, TransactionUser, Transactions};
use strowger_core::{Flow, Now, Outbox, Target};
use strowger_store::binding::BindingView;
use strowger_store::location::Cursor;

/// Flag of a binding whose flow this server must keep open.
pub(crate) const NEEDS_PING: u32 = 1;

/// State of the rounds of pings. Only the first shard pings; it sends messages for flows of other shards through those
/// shards.
#[derive(Debug)]
pub(crate) struct Pings {
    /// Time between two pings of a binding, in milliseconds; `None`: there are no pings.
    interval: Option<u64>,
    at: Option<u64>,
    /// Position of the round in progress.
    cursor: Option<Cursor>,
    /// Start of the round; the next one begins an interval later.
    began: u64,
    /// Number of complete walks through the table. The pings of a round contain this number.
    round: u32,
    /// Pings without a final response, by [`number`].
    pending: HashSet<Id>,
    /// Buckets that have never left the first shard, which has all buckets at first. Some buckets never leave it.
    buckets: BucketSet,
}

/// Shortest time in seconds for which a keep-alive of a phone stands for pings: the longest time between two of them
/// (RFC 5626 section 4.4.1) and 10 s for late ones.
const KEPT_ALIVE: u64 = 130;

/// Time between two steps of a round, in milliseconds.
const STEP: u64 = 1_000;

/// Divisor of `limits.transactions` that gives the maximum of pending pings. Further pings are sent once, without a
/// transaction, which still keeps the flow open.
const SHARE: usize = 8;

/// Maximum number of Call-IDs that are tried to find one in a bucket of this shard. The first of 64 shards needs 64 on
/// average.
const TRIES: u64 = 4_096;

impl Pings {
    pub(crate) fn every(interval: Option<Duration>) -> Self {
        let mut pings = Self {
            interval: None,
            at: None,
            cursor: None,
            began: 0,
            round: 0,
            pending: HashSet::new(),
            buckets: BucketSet::ALL,
        };
        pings.set_interval(interval);
        pings
    }

    /// Returns the number of pings without a final response.
    pub(crate) fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Notes that a bucket leaves this shard, with these transactions.
    pub(crate) fn leave(&mut self, bucket: u8, transactions: &[TransactionRecord]) {
        self.buckets = self.buckets.without(BucketSet::of(|other| other == bucket));
        for ping in pings_of(transactions) {
            self.pending.remove(&ping);
        }
    }

    /// Notes that these transactions have come to this shard.
    pub(crate) fn arrive(&mut self, transactions: &[TransactionRecord]) {
        self.pending.extend(pings_of(transactions));
    }

    /// Sets the time between two pings. Returns whether it has changed.
    pub(crate) fn set_interval(&mut self, interval: Option<Duration>) -> bool {
        let interval = interval.map(|interval| interval.as_millis() as u64);
        std::mem::replace(&mut self.interval, interval) != interval
    }

    /// Begins a new round, for a new interval.
    pub(crate) fn begin_again(&mut self, now: Now) {
        (self.at, self.cursor) = (None, None);
        self.wake(now);
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.at
    }

    /// Begins the rounds if none is running, since bindings were added.
    pub(crate) fn wake(&mut self, now: Now) {
        if self.interval.is_some() {
            self.at.get_or_insert(now.mono + STEP);
        }
    }
}

fn pings_of(transactions: &[TransactionRecord]) -> impl Iterator<Item = Id> {
    transactions.iter().filter_map(|record| match record.tu.role() {
        Role::Ping(ping) => Some(ping),
        _ => None,
    })
}

/// Returns the number of the pings to this Contact by this flow.
fn number(target: &Target, uri: &[u8], path: &[u8]) -> Id {
    let mut hasher = DefaultHasher::new();
    (target.transport as u8, target.address, target.flow.map(Flow::to_bytes), uri, path).hash(&mut hasher);
    let hash = hasher.finish();
    Id { slot: hash as u32, generation: (hash >> (u64::BITS - GENERATION_BITS)) as u32 }
}

impl Pings {
    /// Notes that the shard with this number has new bindings that need pings. Returns whether a message must be sent
    /// to the first shard. Other shards leave such bindings to the first, which finds them at its next step. `awake`:
    /// flag that is set while rounds run.
    pub(crate) fn note_new(&mut self, now: Now, shard: usize, awake: &AtomicBool) -> bool {
        if shard == 0 {
            awake.store(true, Relaxed);
            self.wake(now);
            return false;
        }
        // Else another registration has woken the first shard already.
        !awake.swap(true, AcqRel)
    }

    /// Pings the part of the table that is due: the whole table in one interval, and no binding twice in an interval.
    pub(crate) fn send_due(
        &mut self,
        now: Now,
        decider: Decider<'_>,
        (transactions, entropy): (&mut Transactions, &mut Entropy),
        out: &mut Outbox,
    ) {
        let Some(interval) = self.interval.filter(|_| self.at.is_some_and(|at| at <= now.mono)) else {
            return;
        };
        let Decider { shared, policy, .. } = decider;
        let within = KEPT_ALIVE.max(2 * interval / 1_000) as u32;
        // A keep-alive of an edge proxy does not show that its connection to the phone works.
        let is_kept_alive = |binding: &BindingView<'_>, flow: Option<Flow>| {
            binding.path().is_empty() && flow.is_some_and(|flow| shared.flows.is_kept_alive(now, flow, within))
        };
        let mut bindings = shared.location.gauges().bindings;
        if bindings == 0 {
            shared.pings_awake.swap(false, AcqRel);
            // A binding that another shard added meanwhile found the rounds running, and so did not start them.
            bindings = shared.location.gauges().bindings;
            if bindings == 0 {
                self.at = None;
                return;
            }
            shared.pings_awake.store(true, Release);
        }
        let mut cursor = self.cursor.take().unwrap_or_else(|| {
            self.began = now.mono;
            Cursor::default()
        });
        let mut left = bindings.div_ceil((interval / STEP).max(1) as usize);
        let mut due: Vec<(Target, Vec<u8>, Vec<u8>)> = Vec::new();
        // A walk ends with the end of a partition of the table.
        loop {
            let mut seen = 0;
            let next = shared.location.walk(cursor, left, &mut |binding| {
                seen += 1;
                if binding.flags() & NEEDS_PING != 0 && binding.expires_at() > now.mono {
                    let target = target_of(&binding, policy.router.identity());
                    let target = target.filter(|t| !is_gone(&shared.flows, t) && !is_kept_alive(&binding, t.flow));
                    due.extend(target.map(|t| (t, binding.uri().to_vec(), binding.path().to_vec())));
                }
            });
            left -= seen.min(left);
            match next {
                None => {
                    self.round = self.round.wrapping_add(1);
                    self.pending.shrink_to_fit();
                    self.at = Some((self.began + interval).max(now.mono + 1));
                    break;
                }
                Some(next) if left == 0 => {
                    self.cursor = Some(next);
                    self.at = Some(now.mono + STEP);
                    break;
                }
                Some(next) => cursor = next,
            }
        }
        for (target, uri, path) in due {
            match policy.config.nat.ping_method {
                PingMethod::Crlf => {
                    decider.counters().pings.one();
                    let from = out.start();
                    out.bytes.extend_from_slice(b"\r\n\r\n");
                    let range = from..out.bytes.len();
                    out.send(target, range, 0);
                }
                PingMethod::Options => {
                    self.send_options(now, decider, (transactions, entropy), (target, &uri, &path), out);
                }
            }
        }
    }

    /// Sends an OPTIONS, unless one is pending. Along its Path the OPTIONS reaches a phone behind another proxy, to
    /// which this connection leads (RFC 3327 section 5.3).
    fn send_options(
        &mut self,
        now: Now,
        decider: Decider<'_>,
        (transactions, entropy): (&mut Transactions, &mut Entropy),
        (target, uri, path): (Target, &[u8], &[u8]),
        out: &mut Outbox,
    ) {
        let ping = number(&target, uri, path);
        if self.pending.contains(&ping) {
            return;
        }
        decider.counters().pings.one();
        let unique = entropy.u64();
        let branch = [&b"z9hG4bK"[..], &hex(unique)].concat();
        let (call_id, call_hash) = self.own_call_id(decider.shared.call_secret(), entropy.u64());
        let from = out.start();
        let sent_by = &decider.policy.router.identity().listener(target.listener).sent_by;
        self.write_options((&target, uri, path), sent_by, (&branch, unique.rotate_left(17), &call_id), &mut out.bytes);
        let range = from..out.bytes.len();
        if self.pending.len() >= decider.policy.config.limits.transactions / SHARE {
            decider.counters().pings_unrepeated.one();
            return out.send(target, range, 0);
        }
        self.pending.insert(ping);
        let user = TransactionUser::new(Role::Ping(ping));
        transactions.send(now, range, &branch, b"OPTIONS", target, call_hash, user, out);
    }

    /// Returns a new Call-ID whose bucket belongs to this shard, so that the response arrives here, and the hash of the
    /// Call-ID.
    fn own_call_id(&self, secret: u32, first: u64) -> ([u8; 21], u32) {
        let mut call_id = *b"ping-0123456789abcdef";
        let mut hash = 0;
        for n in 0..TRIES {
            call_id[5..].copy_from_slice(&hex(first.wrapping_add(n)));
            hash = call::hash(secret, &call_id);
            if self.buckets.contains(call::bucket(hash)) {
                break;
            }
        }
        (call_id, hash)
    }

    /// Writes an OPTIONS with this branch, tag and Call-ID.
    fn write_options(
        &self,
        (target, uri, path): (&Target, &[u8], &[u8]),
        sent_by: &[u8],
        (branch, tag, call_id): (&[u8], u64, &[u8]),
        text: &mut Vec<u8>,
    ) {
        text.extend_from_slice(b"OPTIONS ");
        text.extend_from_slice(uri);
        text.extend_from_slice(b" SIP/2.0\r\nVia: SIP/2.0/");
        text.extend_from_slice(target.transport.via().as_bytes());
        text.push(b' ');
        text.extend_from_slice(sent_by);
        text.extend_from_slice(b";branch=");
        text.extend_from_slice(branch);
        if !path.is_empty() {
            text.extend_from_slice(b"\r\nRoute: ");
            text.extend_from_slice(path);
        }
        text.extend_from_slice(b"\r\nMax-Forwards: 70\r\nFrom: <sip:ping@");
        text.extend_from_slice(sent_by);
        text.extend_from_slice(b">;tag=");
        write_hex(tag, text);
        text.extend_from_slice(b"\r\nTo: <");
        text.extend_from_slice(uri);
        text.extend_from_slice(b">\r\nCall-ID: ");
        text.extend_from_slice(call_id);
        text.extend_from_slice(b"\r\nCSeq: ");
        text.extend_from_slice((self.round % 1_000_000 + 1).to_string().as_bytes());
        text.extend_from_slice(b" OPTIONS\r\nContent-Length: 0\r\n\r\n");
    }

    /// Handles a response with this status to a ping. Any final response shows that the flow works.
    pub(crate) fn response(&mut self, ping: Id, id: ClientId, status: u16, transactions: &mut Transactions) {
        if status >= 200 {
            self.pending.remove(&ping);
            transactions.terminate(id);
        }
    }

    /// Handles the end of a ping. Returns whether it was unanswered.
    pub(crate) fn end(&mut self, ping: Id, event: &Event) -> bool {
        self.pending.remove(&ping);
        matches!(event, Event::Timeout { .. })
    }
}
