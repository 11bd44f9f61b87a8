//! What a cache of any engine is asked, and what it answers.

use std::time::Duration;

/// How long an entry lives, in milliseconds. Engines that count in seconds round up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Life(u64);

impl Life {
    /// Until it is removed or evicted.
    pub const FOREVER: Self = Self(u64::MAX);

    /// Gone at once.
    pub const NONE: Self = Self(0);

    /// So many milliseconds. An entry of none is gone at once: storing it removes the key.
    pub const fn ms(ms: u64) -> Self {
        Self(ms)
    }

    /// In milliseconds; none where it does not end.
    pub const fn in_ms(self) -> Option<u64> {
        if self.0 == u64::MAX { None } else { Some(self.0) }
    }

    /// The moment at which an entry ends that is stored `now`.
    pub(crate) const fn end(self, now: u64) -> u64 {
        now.saturating_add(self.0)
    }
}

impl From<Duration> for Life {
    fn from(life: Duration) -> Self {
        Self(u64::try_from(life.as_millis()).unwrap_or(u64::MAX))
    }
}

/// How far down a counter goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Floor {
    /// It stops at zero: what would go below becomes zero.
    #[default]
    Zero,
    /// It goes below zero. Engines whose counters cannot refuse.
    None,
}

/// A change of a counter.
///
/// A counter is an entry whose value is a decimal number from -2^63 to 2^63-1, as Memcached and Redis have it: what was stored as such a text
/// can be counted on, and a fetch gives the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Count {
    /// Added; a negative number is subtracted.
    pub by: i64,
    /// How far down it goes.
    pub floor: Floor,
    /// The life of a counter that this change makes, which starts at zero. A counter that is there keeps the end that it has.
    pub life: Life,
}

/// What an answer to a change promises.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Promise {
    /// The engine has it in memory.
    #[default]
    Held,
    /// It outlives the process as well: a local engine with a log answers under the ticket once it does. An error may mean that the change is
    /// in memory alone. A local engine evicts a value that was stored so for another such value alone. Other engines answer as for
    /// [`Held`](Self::Held).
    Kept,
}

/// What a cache is asked. Keys and values are bytes, within the bounds of the engine; a key has one byte at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Request<'a> {
    /// The value of a key: [`Answer::Found`] or [`Answer::Absent`].
    Fetch {
        /// The key.
        key: &'a [u8],
    },
    /// A value, in place of one that is there: [`Answer::Stored`].
    Store {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// How long it lives.
        life: Life,
    },
    /// A value where there is none: [`Answer::Stored`] or [`Answer::Present`].
    Add {
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
        /// How long it lives.
        life: Life,
    },
    /// A change of a counter: [`Answer::Count`].
    Count {
        /// The key.
        key: &'a [u8],
        /// The change.
        count: Count,
    },
    /// No value any more: [`Answer::Removed`] or [`Answer::Absent`].
    Remove {
        /// The key.
        key: &'a [u8],
    },
    /// A message for those who have [subscribed](crate::engine::Engine::subscribe): [`Answer::Published`]. Redis alone has that; others refuse.
    Publish {
        /// The channel, within the bound of keys.
        channel: &'a [u8],
        /// The message, within the bound of values.
        message: &'a [u8],
    },
}

/// What a cache answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// There is a value; it stands beside the answer.
    Found,
    /// There is none.
    Absent,
    /// The value was stored.
    Stored,
    /// It was not added, since there is one.
    Present,
    /// The counter after the change.
    Count(i64),
    /// There was a value, and is none any more.
    Removed,
    /// The message went to those who hear the channel at this moment, if there are any.
    Published,
}
