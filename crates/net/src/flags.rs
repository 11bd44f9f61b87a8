//! Yes-or-no state of a connection in two bytes.

#![cfg_attr(not(test), expect(dead_code, reason = "until connections are entries"))]

/// Set of flags of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flags(u16);

impl Flags {
    /// It is in the [`ReadyQueue`](crate::ready_queue::ReadyQueue).
    pub(crate) const QUEUED: Self = Self(1);
    /// Its incomplete data may contain complete messages, since its turn ended.
    pub(crate) const OVER_BUDGET: Self = Self(1 << 1);
    /// The kernel has reported the end of the peer's side, or an error. Data may still be before it.
    pub(crate) const READ_CLOSED: Self = Self(1 << 2);
    /// The end of the peer's side was read.
    pub(crate) const READ_DONE: Self = Self(1 << 3);
    /// The peer has ended its side, and its earlier requests are still answered.
    pub(crate) const HALF_CLOSED: Self = Self(1 << 4);
    /// The service has closed it. It ends when everything is sent and the peer has ended it too.
    pub(crate) const CLOSING: Self = Self(1 << 5);
    /// A certificate that the peer has shown was verified.
    pub(crate) const VERIFIED: Self = Self(1 << 6);
    /// A WebSocket message in fragments has begun (RFC 6455 section 5.4). Its first fragment may be empty.
    pub(crate) const PIECES: Self = Self(1 << 7);
    /// It is not read, because its messages cannot be taken.
    pub(crate) const PAUSED: Self = Self(1 << 8);

    /// Tells whether all of these flags are set.
    pub(crate) const fn has(self, flags: Self) -> bool {
        self.0 & flags.0 == flags.0
    }

    /// Sets flags. Returns whether one of them was not set before.
    pub(crate) const fn insert(&mut self, flags: Self) -> bool {
        let is_new = !self.has(flags);
        self.0 |= flags.0;
        is_new
    }

    /// Clears flags. Returns whether one of them was set before.
    pub(crate) const fn remove(&mut self, flags: Self) -> bool {
        let was_set = self.0 & flags.0 != 0;
        self.0 &= !flags.0;
        was_set
    }

    /// Sets or clears flags.
    pub(crate) const fn set(&mut self, flags: Self, on: bool) {
        if on {
            self.insert(flags);
        } else {
            self.remove(flags);
        }
    }
}

impl std::ops::BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Flags; 9] = [
        Flags::QUEUED,
        Flags::OVER_BUDGET,
        Flags::READ_CLOSED,
        Flags::READ_DONE,
        Flags::HALF_CLOSED,
        Flags::CLOSING,
        Flags::VERIFIED,
        Flags::PIECES,
        Flags::PAUSED,
    ];

    #[test]
    fn each_flag_is_set_and_cleared_alone() {
        for (i, flag) in ALL.into_iter().enumerate() {
            let mut flags = Flags::default();
            assert!(flags.insert(flag) && !flags.insert(flag));
            let set: Vec<usize> = (0..ALL.len()).filter(|&j| flags.has(ALL[j])).collect();
            assert_eq!(set, [i]);
            let mut flags = ALL.into_iter().fold(Flags::default(), |all, flag| all | flag);
            assert!(flags.remove(flag) && !flags.remove(flag));
            let cleared: Vec<usize> = (0..ALL.len()).filter(|&j| !flags.has(ALL[j])).collect();
            assert_eq!(cleared, [i]);
        }
    }

    #[test]
    fn several_flags_are_set_when_each_is() {
        let both = Flags::READ_CLOSED | Flags::PAUSED;
        let mut flags = Flags::PAUSED;
        assert!(!flags.has(both));
        assert!(flags.insert(both) && flags.has(both));
        flags.set(Flags::PAUSED, false);
        assert!(!flags.has(both) && flags.has(Flags::READ_CLOSED));
        flags.set(Flags::PAUSED, true);
        assert!(flags.remove(both));
        assert_eq!(flags, Flags::default());
    }
}
