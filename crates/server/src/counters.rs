//! What the server counts, one set a shard: written by its shard alone, read from any thread.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one shard since its start.
        #[derive(Debug, Default)]
        pub struct Counters { $($(#[$doc])* pub $name: Counter,)* }

        /// The values of [`Counters`] at one moment, of one shard or of all together.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counts { $($(#[$doc])* pub $name: u64,)* }

        impl Counters {
            /// The values as they are; of two counters one may be a moment older than the other.
            pub fn read(&self) -> Counts {
                Counts { $($name: self.$name.0.load(Relaxed),)* }
            }
        }

        impl Counts {
            /// Something is under way that a caller waits for.
            pub const fn busy(&self) -> bool {
                self.waiting > 0 || self.unanswered > 0
            }

            /// Logs each that is not 0 as a field of one event.
            pub fn log(&self, event: &str) {
                tracing::info!(of = "server", $($name = counted(self.$name),)* "{event}");
            }
        }

        impl std::ops::AddAssign for Counts {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

/// The value of a field in the log; none for 0.
pub fn counted(value: u64) -> Option<u64> {
    (value > 0).then_some(value)
}

/// A number that one thread adds to.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// To be called by the owner of the counter alone: of two threads one would be lost.
    #[inline]
    pub fn add(&self, n: u64) {
        // One writer: no need for an atomic read-modify-write.
        self.0.store(self.0.load(Relaxed).wrapping_add(n), Relaxed);
    }

    /// As [`Counter::add`] of 1.
    #[inline]
    pub fn one(&self) {
        self.add(1);
    }

    /// The value of a gauge.
    pub fn set(&self, n: u64) {
        self.0.store(n, Relaxed);
    }
}

counters! {
    /// Requests received, retransmissions included.
    requests,
    /// Responses received.
    responses,
    /// Messages that could not be parsed and not be answered.
    unreadable,
    /// Requests refused for what is wrong with them (400, 413, 414, 416, 420, 482, 483, 505, 513).
    refused,
    /// Messages of banned sources and of scanners, dropped unread.
    banned,
    /// UDP requests that were not answered: they proved nothing, and the answer would have been more than three times as long.
    withheld,
    /// Requests forwarded.
    forwarded,
    /// REGISTER requests answered 200.
    registrations,
    /// Challenges sent (401, 407).
    challenges,
    /// Wrong passwords and unknown users.
    failed_authentications,
    /// Right responses challenged again because no more used nonces can be remembered, of all users or of that one.
    nonces_refused,
    /// Requests answered 403 because no rule lets their sender relay there.
    relay_denied,
    /// Requests answered 404 or 480: no such user, or not registered.
    not_found,
    /// Requests that waited for a look-up.
    parked,
    /// Messages dropped because too many of their call, or too many bytes, were waiting.
    held_dropped,
    /// Look-ups that failed or were late.
    failed_lookups,
    /// Bindings that could not be kept.
    failed_writes,
    /// Requests answered 503 because a bound was reached.
    overloaded,
    /// Requests answered 503 because the server was shutting down.
    refused_at_shutdown,
    /// Keep-alive requests sent to phones.
    pings,
    /// Calls that were not logged because as many as `log.open_calls` are open.
    calls_unlogged,
    /// Calls of which the log forgot the beginning, since no BYE came for as long as `log.longest_call`.
    calls_forgotten,
    /// Gauge: calls that are logged and have not ended.
    calls_logged,
    /// Gauge: server transactions.
    server_transactions,
    /// Gauge: client transactions.
    client_transactions,
    /// Gauge: forwarded requests without a final response.
    unanswered,
    /// Gauge: requests waiting for a look-up or a commit.
    waiting,
    /// Gauge: bytes of messages kept for retransmission.
    kept_bytes,
    /// Gauge: bytes that sources are charged for, kept for requests without a final response or waiting for a look-up.
    charged_bytes,
    /// Messages of which not all was kept: they take more than `limits.request_memory` admits, or their source has no room for them or may
    /// be forged. They are sent once.
    kept_abridged,
    /// Requests and responses sent again by timers or on request.
    retransmissions,
    /// Transactions that ended without an answer.
    timeouts,
}
