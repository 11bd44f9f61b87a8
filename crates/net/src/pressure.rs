//! Pressure on connections: their turns while messages cannot be taken or the shard is overloaded, and rests between
//! turns. What is not read stays with the kernel, and then with the peer.
//!
//! A connection *rests* after a turn if its write queue is half full, if the service has no room for its peer, or if the
//! shard of its next message is late. It is read again at the end of the rest, a little at a time, even if nothing has
//! changed: two peers whose queues are full because neither reads would wait for ever.

use crate::Bounds;

/// Duration of a rest in milliseconds.
const REST: u64 = 20;

/// Messages of a connection between two rests.
const MESSAGES_BETWEEN_RESTS: usize = 4;

/// Part of a turn that a connection has while the shard is overloaded, so that datagrams and other connections wait for less,
/// or another shard is late, so that little is held of what it does not take.
const BUSY: usize = 8;

/// Turn of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Turn {
    /// Messages, and pieces between them, that the connection may still deliver.
    pub(crate) budget: usize,
    /// True if a system call reads less than usual, since the turn is short.
    pub(crate) is_short: bool,
    /// True if the connection rests after the turn, unless it has delivered everything.
    pub(crate) rests: bool,
}

impl Turn {
    /// Returns the turn of a connection with this number of bytes in its write queue. `has_room`: whether the service has
    /// room for its peer. `is_busy`: whether the shard is overloaded, or another one is late.
    pub(crate) fn new(bounds: &Bounds, waiting: usize, has_room: bool, is_busy: bool) -> Self {
        let most = bounds.messages_per_turn.max(1);
        let rests = waiting > bounds.write_queue / 2 || !has_room;
        let budget = match (rests, is_busy) {
            (true, _) => MESSAGES_BETWEEN_RESTS.min(most),
            (false, true) => (most / BUSY).max(1),
            (false, false) => most,
        };
        Self { budget, is_short: rests || is_busy, rests }
    }

    /// Ends the turn before a message that cannot be taken.
    pub(crate) const fn refuse(&mut self) {
        self.budget = 0;
        self.rests = true;
    }

    /// Returns the length of the part of a receive buffer that a system call fills.
    pub(crate) const fn room(self, buffer: usize) -> usize {
        if self.is_short { buffer / BUSY } else { buffer }
    }
}

/// Resting connections of a shard. All of them are read again at the same time, so that a rest may be shorter than
/// [`REST`].
#[derive(Debug, Default)]
pub(crate) struct Rests {
    /// Time of the end in milliseconds; `None` if no connection rests.
    until: Option<u64>,
    /// Slots and generations of the connections.
    connections: Vec<(u32, u32)>,
}

impl Rests {
    /// Begins the rest of a connection.
    pub(crate) fn begin(&mut self, connection: (u32, u32), now: u64) {
        self.until.get_or_insert(now + REST);
        self.connections.push(connection);
    }

    /// Returns the time of the next [`Rests::end`].
    pub(crate) const fn deadline(&self) -> Option<u64> {
        self.until
    }

    /// Ends the rests whose time has come. Returns the connections to read.
    pub(crate) fn end(&mut self, now: u64) -> impl Iterator<Item = (u32, u32)> {
        let is_over = self.until.is_some_and(|until| until <= now);
        self.until = self.until.filter(|_| !is_over);
        let ended = if is_over { self.connections.len() } else { 0 };
        self.connections.drain(..ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_is_short_under_pressure_and_never_empty() {
        let bounds = Bounds { messages_per_turn: 64, write_queue: 1_000, ..Bounds::default() };
        let turn = |waiting, has_room, is_busy| Turn::new(&bounds, waiting, has_room, is_busy);
        assert_eq!(turn(500, true, false), Turn { budget: 64, is_short: false, rests: false });
        assert_eq!(turn(0, true, true), Turn { budget: 8, is_short: true, rests: false });
        for pressed in [turn(501, true, false), turn(0, false, false), turn(501, false, true)] {
            assert_eq!(pressed, Turn { budget: 4, is_short: true, rests: true });
        }
        let least = Bounds { messages_per_turn: 0, ..bounds };
        for (has_room, is_busy) in [(true, false), (true, true), (false, false)] {
            assert_eq!(Turn::new(&least, 0, has_room, is_busy).budget, 1);
        }
        let mut refused = turn(0, true, false);
        refused.refuse();
        assert_eq!((refused.budget, refused.rests), (0, true));
        assert_eq!([turn(0, true, false), turn(0, true, true)].map(|turn| turn.room(65_536)), [65_536, 8_192]);
    }

    #[test]
    fn rests_end_together() {
        let mut rests = Rests::default();
        assert_eq!(rests.deadline(), None);
        rests.begin((1, 7), 1_000);
        rests.begin((2, 8), 1_015);
        assert_eq!(rests.deadline(), Some(1_020));
        assert_eq!(rests.end(1_019).count(), 0);
        assert_eq!(rests.end(1_020).collect::<Vec<_>>(), [(1, 7), (2, 8)]);
        assert_eq!(rests.deadline(), None);
        rests.begin((1, 7), 1_021);
        assert_eq!(rests.deadline(), Some(1_041));
    }
}
