//! Requests to a cache of any engine, and its answers.

use std::time::Duration;

/// Lifetime of an entry, in milliseconds. Engines that count in seconds round up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(u64);

impl Life {
    /// Lives until it is removed or evicted.
    pub const FOREVER: Self = Self(u64::MAX);

    /// Ends at once.
    pub const NONE: Self = Self(0);

    /// Creates a lifetime from milliseconds. With 0 the entry ends at once, so storing it removes the key.
    pub const fn ms(ms: u64) -> Self {
        Self(ms)
    }

    /// Returns the milliseconds, or `None` if the lifetime is unlimited.
    pub const fn in_ms(self) -> Option<u64> {
        if self.0 == u64::MAX { None } else { Some(self.0) }
    }

    /// Returns the end of an entry stored `now`.
    pub(crate) const fn end(self, now: u64) -> u64 {
        now.saturating_add(self.0)
    }
}

impl From<Duration> for Life {
    fn from(life: Duration) -> Self {
        Self(u64::try_from(life.as_millis()).unwrap_or(u64::MAX))
    }
}

/// Lower limit of a counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Floor {
    /// A counter stops at zero: a negative result becomes zero.
    #[default]
    Zero,
    /// A counter may become negative. Engines whose counters cannot do so refuse.
    None,
}

/// Change of a counter.
///
/// A counter is an entry whose value is a decimal number from -2^63 to 2^63-1, as in Memcached and Redis: a value
/// stored as such a text can be counted, and a fetch returns the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Count {
    /// Added to the counter; may be negative.
    pub by: i64,
    /// Lower limit.
    pub floor: Floor,
    /// Lifetime of a counter that this change creates, starting at zero. An existing counter keeps its end.
    pub life: Life,
}

/// Guarantee that the answer to a change gives: how far the change has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Promise {
    /// The engine has the change in memory.
    #[default]
    Held,
    /// The change also outlives the process: a local engine with a log answers under the ticket once it does. After an
    /// error the change may be in memory alone. A local engine evicts such a value only for another such value. Other
    /// engines answer as for [`Held`](Self::Held).
    Kept,
}

/// Request to a cache. Keys and values are bytes, within the bounds of the engine; a key has at least one byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request<'a> {
    /// Fetches the value of a key: [`CacheAnswer::Found`] or [`CacheAnswer::Absent`].
    Fetch {
        /// Key.
        key: &'a [u8],
    },
    /// Stores a value, replacing an existing one: [`CacheAnswer::Stored`].
    Store {
        /// Key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
        /// Lifetime.
        life: Life,
    },
    /// Stores a value for a key without one: [`CacheAnswer::Stored`] or [`CacheAnswer::Present`].
    Add {
        /// Key.
        key: &'a [u8],
        /// Value.
        value: &'a [u8],
        /// Lifetime.
        life: Life,
    },
    /// Changes a counter: [`CacheAnswer::Count`].
    Count {
        /// Key.
        key: &'a [u8],
        /// Change of the counter.
        count: Count,
    },
    /// Removes a key: [`CacheAnswer::Removed`] or [`CacheAnswer::Absent`].
    Remove {
        /// Key.
        key: &'a [u8],
    },
}

/// Answer of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CacheAnswer {
    /// The key has a value, returned beside the answer.
    Found,
    /// The key has no value.
    Absent,
    /// The value was stored.
    Stored,
    /// The value was not added, since the key has one.
    Present,
    /// Value of the counter after the change.
    Count(i64),
    /// The key had a value, and has none any more.
    Removed,
}
