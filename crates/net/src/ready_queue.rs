//! Connections that may have data, in the order in which they became ready. Each has one turn in a round, then goes behind the others.

use std::collections::VecDeque;

/// Kind of work that the data of a connection need. A handshake takes far longer than a message, so each kind has a line and a budget of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Messages,
    Handshake,
}

/// Queue of ready connections. The caller queues a connection at most once: see [`Flags::QUEUED`](crate::flags::Flags::QUEUED).
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    messages: Line,
    handshakes: Line,
}

/// Connections with one kind of work, the oldest first.
#[derive(Debug, Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// Number of the first connections that have a turn in this round.
    of_round: usize,
}

#[derive(Debug)]
struct Waiting {
    slot: u32,
    generation: u32,
    /// Time since it waits in milliseconds.
    since: u64,
}

impl ReadyQueue {
    /// Appends a connection. Its turn is in the next round. `now`: time in milliseconds, never less than before.
    pub(crate) fn push(&mut self, slot: u32, generation: u32, work: Work, now: u64) {
        self.line(work).waiting.push_back(Waiting { slot, generation, since: now });
    }

    /// Begins a round: all connections in the queue have a turn. Those that are pushed from now on belong to the next round, so that one that is
    /// always ready does not keep the shard from its other work.
    pub(crate) fn begin_round(&mut self) {
        for line in [&mut self.messages, &mut self.handshakes] {
            line.of_round = line.waiting.len();
        }
    }

    /// Removes the first connection with this work that has a turn in this round: slot and generation. The connection may have ended meanwhile.
    pub(crate) fn pop(&mut self, work: Work) -> Option<(u32, u32)> {
        let line = self.line(work);
        line.of_round = line.of_round.checked_sub(1)?;
        line.waiting.pop_front().map(|Waiting { slot, generation, .. }| (slot, generation))
    }

    /// Returns how long the first connection with messages has waited, in milliseconds; `None` if there is none. Handshakes wait for their budget,
    /// which is no sign of overload.
    pub(crate) fn oldest(&self, now: u64) -> Option<u64> {
        self.messages.waiting.front().map(|first| now.saturating_sub(first.since))
    }

    /// Tells whether no connection waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.waiting.is_empty() && self.handshakes.waiting.is_empty()
    }

    const fn line(&mut self, work: Work) -> &mut Line {
        match work {
            Work::Messages => &mut self.messages,
            Work::Handshake => &mut self.handshakes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flags::Flags;

    fn popped(queue: &mut ReadyQueue, work: Work) -> Vec<(u32, u32)> {
        std::iter::from_fn(|| queue.pop(work)).collect()
    }

    #[test]
    fn connections_have_one_turn_a_round_in_their_order() {
        let mut queue = ReadyQueue::default();
        for slot in [7, 3, 9] {
            queue.push(slot, slot + 100, Work::Messages, 5);
        }
        assert_eq!(queue.pop(Work::Messages), None, "no round has begun");
        queue.begin_round();
        assert_eq!(queue.pop(Work::Messages), Some((7, 107)));
        // It has more data, and another connection becomes ready.
        queue.push(7, 107, Work::Messages, 6);
        queue.push(4, 104, Work::Messages, 6);
        assert_eq!(popped(&mut queue, Work::Messages), [(3, 103), (9, 109)]);
        assert!(!queue.is_empty());
        queue.begin_round();
        assert_eq!(popped(&mut queue, Work::Messages), [(7, 107), (4, 104)]);
        assert!(queue.is_empty());
    }

    #[test]
    fn those_without_a_turn_in_a_round_are_the_first_of_the_next() {
        let mut queue = ReadyQueue::default();
        (0..4).for_each(|slot| queue.push(slot, 1, Work::Messages, 1));
        queue.begin_round();
        assert_eq!([queue.pop(Work::Messages), queue.pop(Work::Messages)], [Some((0, 1)), Some((1, 1))]);
        queue.push(0, 1, Work::Messages, 2);
        queue.begin_round();
        assert_eq!(popped(&mut queue, Work::Messages), [(2, 1), (3, 1), (0, 1)]);
    }

    #[test]
    fn handshakes_wait_apart_from_messages() {
        let mut queue = ReadyQueue::default();
        (0..1_000).for_each(|slot| queue.push(slot, 1, Work::Handshake, 10));
        assert_eq!(queue.oldest(500), None, "handshakes tell nothing about the wait of messages");
        queue.push(1_000, 1, Work::Messages, 200);
        assert_eq!(queue.oldest(500), Some(300));
        queue.begin_round();
        assert_eq!(popped(&mut queue, Work::Messages), [(1_000, 1)]);
        assert_eq!((queue.oldest(500), queue.is_empty()), (None, false));
        assert_eq!(popped(&mut queue, Work::Handshake).len(), 1_000);
        assert!(queue.is_empty());
    }

    #[test]
    fn the_oldest_connection_has_waited_since_it_was_pushed() {
        let mut queue = ReadyQueue::default();
        assert_eq!(queue.oldest(1), None);
        queue.push(1, 1, Work::Messages, 1_000);
        queue.push(2, 1, Work::Messages, 1_004);
        assert_eq!((queue.oldest(1_006), queue.oldest(999)), (Some(6), Some(0)));
        queue.begin_round();
        queue.pop(Work::Messages);
        // Its next turn begins another wait.
        queue.push(1, 1, Work::Messages, 1_006);
        assert_eq!(queue.oldest(1_006), Some(2));
        queue.pop(Work::Messages);
        assert_eq!(queue.oldest(1_006), Some(0));
    }

    #[test]
    fn a_flag_keeps_a_connection_from_a_second_place() {
        let (mut queue, mut flags) = (ReadyQueue::default(), [Flags::default(); 3]);
        // Events of three connections; a further event of a queued one changes flags only.
        for slot in [0, 2, 0, 1, 2, 2, 0] {
            if flags[slot].insert(Flags::QUEUED) {
                queue.push(slot as u32, 1, Work::Messages, 1);
            }
        }
        queue.begin_round();
        assert_eq!(popped(&mut queue, Work::Messages), [(0, 1), (2, 1), (1, 1)]);
    }
}
