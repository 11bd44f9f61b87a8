//! Keep-alive of the flows of phones behind NAT or on a stream (RFC 5626 section 4.4, RFC 3261 section 11).

use crate::decider::Decider;
use crate::reachability::{is_gone, target_of};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};
use std::time::Duration;
use strowger_config::PingMethod;
use strowger_core::entropy::Entropy;
use strowger_core::{Now, Outbox, Target};
use strowger_store::location::Cursor;

/// Flag of a binding whose flow this server must keep open.
pub(crate) const NEEDS_PING: u32 = 1;

/// State of the rounds of pings. Only the first shard pings; its messages for flows of other shards reach them.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    /// Time between two pings of a binding, in milliseconds; `None`: there are no pings.
    interval: Option<u64>,
    at: Option<u64>,
    /// Position of the round in progress.
    cursor: Option<Cursor>,
    /// Start of the round; the next one begins an interval later.
    began: u64,
    /// Number of complete walks through the table, which the pings of a round bear.
    round: u32,
}

/// Time between two steps of a round, in milliseconds.
const STEP: u64 = 1_000;

impl Pings {
    pub(crate) fn every(interval: Option<Duration>) -> Self {
        let mut pings = Self::default();
        pings.set_interval(interval);
        pings
    }

    /// Sets the time between two pings. Returns whether it has changed.
    pub(crate) fn set_interval(&mut self, interval: Option<Duration>) -> bool {
        let interval = interval.map(|interval| interval.as_millis() as u64);
        std::mem::replace(&mut self.interval, interval) != interval
    }

    /// Begins another round, for another interval.
    pub(crate) fn begin_again(&mut self, now: Now) {
        (self.at, self.cursor) = (None, None);
        self.wake(now);
    }

    pub(crate) fn deadline(&self) -> Option<u64> {
        self.at
    }

    /// Begins the rounds if they rest, since bindings were added.
    pub(crate) fn wake(&mut self, now: Now) {
        if self.interval.is_some() {
            self.at.get_or_insert(now.mono + STEP);
        }
    }

    /// Notes that the shard with this number has new bindings that need pings. Returns whether the first shard must be told: another shard
    /// leaves them to the first, which finds them at its next step. `awake`: set while rounds run.
    pub(crate) fn note_new(&mut self, now: Now, shard: usize, awake: &AtomicBool) -> bool {
        if shard == 0 {
            awake.store(true, Relaxed);
            self.wake(now);
            return false;
        }
        // Else another registration has woken the first shard already.
        !awake.swap(true, AcqRel)
    }

    /// Pings its share of the table: all of it in one interval, and no binding twice in it.
    pub(crate) fn send_due(&mut self, now: Now, decider: Decider<'_>, entropy: &mut Entropy, out: &mut Outbox) {
        let Some(interval) = self.interval.filter(|_| self.at.is_some_and(|at| at <= now.mono)) else {
            return;
        };
        let Decider { shared, policy, .. } = decider;
        let mut bindings = shared.location.gauges().bindings;
        if bindings == 0 {
            shared.pings_awake.swap(false, AcqRel);
            // A binding that came to another shard meanwhile found this one awake, and woke nothing.
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
        // A walk ends with its partition of the table.
        loop {
            let mut seen = 0;
            let next = shared.location.walk(cursor, left, &mut |binding| {
                seen += 1;
                if binding.flags() & NEEDS_PING != 0 && binding.expires_at() > now.mono {
                    let target = target_of(&binding, policy.router.identity()).filter(|t| !is_gone(&shared.flows, t));
                    due.extend(target.map(|t| (t, binding.uri().to_vec(), binding.path().to_vec())));
                }
            });
            left -= seen.min(left);
            match next {
                None => {
                    self.round = self.round.wrapping_add(1);
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
            decider.counters().pings.one();
            let from = out.start();
            match policy.config.nat.ping_method {
                PingMethod::Crlf => out.bytes.extend_from_slice(b"\r\n\r\n"),
                PingMethod::Options => {
                    let sent_by = &policy.router.identity().listener(target.listener).sent_by;
                    self.write_options((&target, &uri, &path), sent_by, entropy.u64(), out);
                }
            }
            let range = from..out.bytes.len();
            out.send(target, range, 0);
        }
    }

    /// Writes an OPTIONS outside any transaction. Its response shows only that the flow lives, and is dropped. Along
    /// its Path it reaches a phone behind another proxy, which has this connection (RFC 3327 section 5.3).
    fn write_options(
        &self,
        (target, uri, path): (&Target, &[u8], &[u8]),
        sent_by: &[u8],
        unique: u64,
        out: &mut Outbox,
    ) {
        let text = &mut out.bytes;
        let hex = |text: &mut Vec<u8>, n: u64| strowger_core::entropy::write_hex(n, text);
        text.extend_from_slice(b"OPTIONS ");
        text.extend_from_slice(uri);
        text.extend_from_slice(b" SIP/2.0\r\nVia: SIP/2.0/");
        text.extend_from_slice(target.transport.via().as_bytes());
        text.push(b' ');
        text.extend_from_slice(sent_by);
        text.extend_from_slice(b";branch=z9hG4bK");
        hex(text, unique);
        if !path.is_empty() {
            text.extend_from_slice(b"\r\nRoute: ");
            text.extend_from_slice(path);
        }
        text.extend_from_slice(b"\r\nMax-Forwards: 70\r\nFrom: <sip:ping@");
        text.extend_from_slice(sent_by);
        text.extend_from_slice(b">;tag=");
        hex(text, unique.rotate_left(17));
        text.extend_from_slice(b"\r\nTo: <");
        text.extend_from_slice(uri);
        text.extend_from_slice(b">\r\nCall-ID: ping-");
        hex(text, unique.rotate_left(31));
        text.extend_from_slice(b"\r\nCSeq: ");
        text.extend_from_slice((self.round % 1_000_000 + 1).to_string().as_bytes());
        text.extend_from_slice(b" OPTIONS\r\nContent-Length: 0\r\n\r\n");
    }
}
