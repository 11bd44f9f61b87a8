//! Log of the last messages sent over each connection, with the sending shard: when a connection ends, those shards learn that no response will come
//! over it (RFC 3261 section 18.4).
//!
//! One ring of fixed size for all connections of a shard: it forgets the oldest messages first, which have been answered or have timers of their own.

/// Number of a connection's last message; 0: none.
pub(crate) type LastSent = u64;

/// Ring of sent messages.
pub(crate) struct SentLog {
    /// Message `n`, counted from 1, is at `(n - 1) % most`.
    ring: Vec<Entry>,
    most: u64,
    /// Number of messages ever noted.
    count: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    /// Shard that sent it, and its token.
    origin: usize,
    token: u64,
    /// Earlier message of the same connection.
    before: LastSent,
}

impl SentLog {
    /// Creates a log of `most` messages. It allocates with the first one.
    pub(crate) const fn new(most: usize) -> Self {
        Self { ring: Vec::new(), most: most as u64, count: 0 }
    }

    /// Notes a message of the connection whose previous message was `last`. Returns whether the oldest message was
    /// forgotten to make room.
    pub(crate) fn note(&mut self, last: &mut LastSent, origin: usize, token: u64) -> bool {
        if self.most == 0 {
            return true;
        }
        let is_full = self.ring.len() as u64 == self.most;
        let message = Entry { origin, token, before: *last };
        if !is_full {
            if self.ring.is_empty() {
                self.ring.reserve_exact(self.most as usize);
            }
            self.ring.push(message);
        } else {
            self.ring[(self.count % self.most) as usize] = message;
        }
        self.count += 1;
        *last = self.count;
        is_full
    }

    /// Returns the remembered messages of the connection with this last message, the latest first.
    pub(crate) fn of(&self, last: LastSent) -> impl Iterator<Item = (usize, u64)> + '_ {
        let remembered = |n: &LastSent| *n > 0 && self.count - *n < self.most;
        let at = move |n: LastSent| self.ring[((n - 1) % self.most) as usize];
        let all = std::iter::successors(Some(last).filter(remembered), move |n| Some(at(*n).before).filter(remembered));
        all.map(move |n| (at(n).origin, at(n).token))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_connection_finds_its_own_as_far_as_the_ring_reaches() {
        let mut sent = SentLog::new(5);
        let (mut a, mut b) = (0, 0);
        assert_eq!(sent.of(a).count(), 0);
        sent.note(&mut a, 0, 10);
        sent.note(&mut b, 1, 20);
        sent.note(&mut a, 2, 11);
        assert_eq!(sent.of(a).collect::<Vec<_>>(), [(2, 11), (0, 10)]);
        assert_eq!(sent.of(b).collect::<Vec<_>>(), [(1, 20)]);
        for token in 30..33 {
            sent.note(&mut b, 1, token);
        }
        // Six messages were noted: the first one is forgotten.
        assert_eq!(sent.of(a).collect::<Vec<_>>(), [(2, 11)]);
        assert_eq!(sent.of(b).collect::<Vec<_>>(), [(1, 32), (1, 31), (1, 30), (1, 20)]);
        for token in 40..90 {
            sent.note(&mut a, 0, token);
        }
        assert_eq!(sent.of(b).count(), 0);
        assert_eq!(sent.of(a).map(|(_, token)| token).collect::<Vec<_>>(), [89, 88, 87, 86, 85]);
    }

    #[test]
    fn none_are_remembered_where_none_may_be() {
        let (mut sent, mut last) = (SentLog::new(0), 0);
        sent.note(&mut last, 0, 1);
        assert_eq!((last, sent.of(last).count()), (0, 0));
    }
}
