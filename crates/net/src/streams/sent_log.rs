//! What was sent lately over each connection, and by which shard: when a connection ends, those shards learn that no answer comes by it
//! (RFC 3261 section 18.4).
//!
//! One ring of fixed size for all connections of a shard: what it forgets first is what was sent longest ago, and that
//! has been answered or has timers of its own.

/// The last message of a connection; 0: none.
pub(crate) type LastSent = u64;

/// The ring.
pub(crate) struct SentLog {
    /// Message `n`, counted from 1, stands at `(n - 1) % most`.
    ring: Vec<Entry>,
    most: u64,
    /// Messages ever noted.
    count: u64,
}

#[derive(Clone, Copy)]
struct Entry {
    /// The shard that sent it, and its token.
    origin: usize,
    token: u64,
    /// The message before it of the same connection.
    before: LastSent,
}

impl SentLog {
    /// Remembers so many messages. Nothing is held before the first.
    pub(crate) const fn new(most: usize) -> Self {
        Self { ring: Vec::new(), most: most as u64, count: 0 }
    }

    /// Notes a message of the connection whose last one this was.
    pub(crate) fn note(&mut self, last: &mut LastSent, origin: usize, token: u64) {
        if self.most == 0 {
            return;
        }
        let message = Entry { origin, token, before: *last };
        if (self.ring.len() as u64) < self.most {
            if self.ring.is_empty() {
                self.ring.reserve_exact(self.most as usize);
            }
            self.ring.push(message);
        } else {
            self.ring[(self.count % self.most) as usize] = message;
        }
        self.count += 1;
        *last = self.count;
    }

    /// The messages of the connection whose last one this is, the latest first, as far as they are remembered.
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
        // Six were noted: the first is forgotten.
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
