//! Links between shards: a ring in each direction between any two, and their transfers.

use crate::buffer_pool::BufferPool;
use crate::counters::Counters;
use crate::process::ShardEntry;
use crate::ring::{Consumer, Producer};
use crate::sender::Sender;
use crate::{Service, Unsent};
use std::collections::VecDeque;
use std::net::SocketAddr;
use strowger_core::{Arrival, Now, Target};

/// A slot of a ring.
pub(crate) struct Transfer<S: Service> {
    pub(crate) bytes: Vec<u8>,
    pub(crate) content: Content<S>,
}

impl<S: Service> Default for Transfer<S> {
    fn default() -> Self {
        Self { bytes: Vec::new(), content: Content::Nothing }
    }
}

pub(crate) enum Content<S: Service> {
    Nothing,
    /// A message (in `bytes`) of a call of this bucket.
    Message {
        bucket: u8,
        arrival: Arrival,
    },
    /// A message (in `bytes`) of another shard for a connection of the receiving one.
    Send {
        target: Target,
        sender: Sender,
    },
    /// The receiving shard's message with this token has failed.
    Failed {
        token: u64,
        cause: Unsent,
    },
    /// The connection of the receiving shard's message with this token has ended.
    CutOff {
        token: u64,
    },
    /// A datagram to this address, which began with `bytes`, was unreachable. Any shard may have sent it.
    Unreachable {
        to: SocketAddr,
    },
    /// An answer for a call of this bucket.
    Answer {
        bucket: u8,
        answer: S::ShardMessage,
    },
    /// The calls of a bucket, for their new owner.
    Records {
        bucket: u8,
        records: Vec<S::Record>,
    },
    /// The bucket has moved: turn to its new owner and confirm.
    Fence {
        bucket: u8,
        to: u8,
    },
    Confirmed {
        bucket: u8,
    },
    /// No message of this bucket will arrive through its old owner any more.
    Settled {
        bucket: u8,
    },
}

impl<S: Service> Content<S> {
    /// Tells whether a loss of this transfer is tolerable, because a peer would send the message again; all other
    /// transfers must arrive.
    const fn may_be_lost(&self) -> bool {
        matches!(self, Self::Message { .. } | Self::Send { .. } | Self::Unreachable { .. })
    }
}

/// The link to one other shard.
struct Link<S: Service> {
    ring: Producer<Transfer<S>>,
    /// Transfers for which the ring had no room.
    waiting: VecDeque<Transfer<S>>,
    /// Buffers of transfers that have arrived, for reuse.
    pool: BufferPool,
}

impl<S: Service> Link<S> {
    fn reclaim(&mut self) {
        let pool = &mut self.pool;
        self.ring.reclaim(|slot| pool.give(std::mem::take(&mut slot.bytes)));
    }
}

/// All links of one shard. The first index is that of the other shard.
pub(crate) struct Links<S: Service> {
    /// True if there are other shards.
    any: bool,
    outgoing: Vec<Option<Link<S>>>,
    incoming: Vec<Option<Consumer<Transfer<S>>>>,
    /// Number of waiting transfers of each ring, by the tails read at the start of the round.
    pub(crate) arrived: Vec<usize>,
    /// Shards to wake at the end of the round, one bit each.
    to_wake: u64,
    /// Maximum number of messages that may wait for one full ring.
    bound: usize,
    /// True if transfers wait for a full ring.
    is_behind: bool,
    /// [`Now::mono`] of the next release of buffers; `None` without buffers.
    tidy_at: Option<u64>,
}

/// Milliseconds between two checks of the buffers.
const PERIOD: u64 = 2_000;

impl<S: Service> Links<S> {
    pub(crate) fn new(shards: usize, bound: usize) -> Self {
        Self {
            any: false,
            outgoing: (0..shards).map(|_| None).collect(),
            incoming: (0..shards).map(|_| None).collect(),
            arrived: vec![0; shards],
            to_wake: 0,
            bound,
            is_behind: false,
            tidy_at: None,
        }
    }

    pub(crate) fn join(&mut self, peer: usize, outgoing: Producer<Transfer<S>>, incoming: Consumer<Transfer<S>>) {
        self.outgoing[peer] = Some(Link { ring: outgoing, waiting: VecDeque::new(), pool: BufferPool::default() });
        self.incoming[peer] = Some(incoming);
        self.any = true;
    }

    /// Tells whether there are other shards.
    #[inline]
    pub(crate) const fn has_any(&self) -> bool {
        self.any
    }

    /// Tells whether transfers wait for a full ring.
    #[inline]
    pub(crate) const fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// Tells whether there is room for a message of a connection to this shard: half of the room for waiting transfers is left
    /// to answers and datagrams.
    pub(crate) fn has_room(&self, to: usize) -> bool {
        let link = self.outgoing.get(to).and_then(Option::as_ref);
        link.is_none_or(|link| link.waiting.len() < self.bound.div_ceil(2))
    }

    /// Tells whether there is another shard of this number.
    pub(crate) fn reaches(&self, shard: usize) -> bool {
        self.outgoing.get(shard).is_some_and(Option::is_some)
    }

    /// Returns the other shards.
    pub(crate) fn peers(&self) -> impl Iterator<Item = usize> + use<S> {
        let outgoing: u64 = self.outgoing.iter().enumerate().filter(|(_, r)| r.is_some()).map(|(i, _)| 1 << i).sum();
        (0..64).filter(move |i| outgoing & (1 << i) != 0)
    }

    /// Queues a transfer for another shard. Returns false if the transfer was dropped, because too many transfers wait,
    /// or there is no such shard.
    pub(crate) fn put(&mut self, to: usize, content: Content<S>, bytes: &[u8], counters: &Counters) -> bool {
        let Some(Some(link)) = self.outgoing.get_mut(to) else {
            counters.crossings_dropped.add(1);
            return false;
        };
        self.to_wake |= 1 << to;
        let mut content = Some(content);
        let pool = &mut link.pool;
        let mut fill = |slot: &mut Transfer<S>| {
            let before = std::mem::replace(&mut slot.bytes, pool.take(bytes));
            pool.give(before);
            slot.content = content.take().expect("filled once");
        };
        if link.waiting.is_empty() && link.ring.push(&mut fill) {
            return true;
        }
        let content = content.take().expect("not filled");
        if content.may_be_lost() && link.waiting.len() >= self.bound {
            counters.crossings_dropped.add(1);
            return false;
        }
        link.waiting.push_back(Transfer { bytes: bytes.to_vec(), content });
        self.is_behind = true;
        counters.crossings_waiting.add(1);
        true
    }

    /// Ends a round: puts waiting transfers into rings with room, wakes the receiving shards, and reclaims the buffers of transfers that have
    /// arrived.
    #[inline]
    pub(crate) fn flush(&mut self, now: Now, entries: &[ShardEntry<S>], counters: &Counters) {
        if self.any {
            self.flush_each(now, entries, counters);
        }
    }

    #[inline(never)]
    fn flush_each(&mut self, now: Now, entries: &[ShardEntry<S>], counters: &Counters) {
        if self.to_wake != 0 && self.tidy_at.is_none() {
            self.tidy_at = Some(now.mono + PERIOD);
        }
        self.is_behind = false;
        for (i, link) in self.outgoing.iter_mut().enumerate() {
            let Some(link) = link else { continue };
            link.reclaim();
            while let Some(first) = link.waiting.front_mut() {
                let mut first = Some(std::mem::take(first));
                if !link.ring.push(|slot| *slot = first.take().expect("once")) {
                    *link.waiting.front_mut().expect("just seen") = first.expect("not taken");
                    break;
                }
                self.to_wake |= 1 << i;
                link.waiting.pop_front();
                counters.crossings_waiting.less(1);
            }
            self.is_behind |= !link.waiting.is_empty();
        }
        while self.to_wake != 0 {
            let i = self.to_wake.trailing_zeros() as usize;
            self.to_wake &= self.to_wake - 1;
            if entries[i].bell.ring() {
                counters.wakes.add(1);
            }
        }
    }

    /// Returns the time at which [`Links::tidy`] has work.
    pub(crate) const fn deadline(&self) -> Option<u64> {
        self.tidy_at
    }

    /// Frees buffers that were not needed for a while.
    #[cold]
    pub(crate) fn tidy(&mut self, now: Now) {
        let mut more = false;
        for link in self.outgoing.iter_mut().flatten() {
            link.reclaim();
            link.pool.tidy();
            if link.waiting.is_empty() {
                link.waiting = VecDeque::new();
            }
            more |= !link.pool.is_empty() || link.ring.has_unreclaimed();
        }
        self.tidy_at = more.then_some(now.mono + PERIOD);
    }

    /// Remembers how many transfers have arrived so far. Must be called before the sockets are emptied, so that a
    /// message which left its socket before one of this shard's messages arrived is not overtaken by that message.
    #[inline]
    pub(crate) fn count_arrived(&mut self) {
        if self.any {
            self.count_each();
        }
    }

    #[inline(never)]
    fn count_each(&mut self) {
        for (arrived, incoming) in self.arrived.iter_mut().zip(&self.incoming) {
            *arrived = incoming.as_ref().map_or(0, Consumer::len);
        }
    }

    /// Tells whether no transfer has arrived, and no waiting transfer can be sent. A shard checks this before it
    /// sleeps, because a peer that made room earlier does not wake it.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        !self.any || self.is_each_idle()
    }

    #[inline(never)]
    fn is_each_idle(&self) -> bool {
        let stuck = |link: &Link<S>| link.waiting.is_empty() || !link.ring.has_room();
        self.incoming.iter().flatten().all(|incoming| incoming.len() == 0) && self.outgoing.iter().flatten().all(stuck)
    }

    /// Takes out the ring from `peer`, so that it can be read while transfers are put into other rings; see
    /// [`Links::put_back`].
    pub(crate) fn take(&mut self, peer: usize) -> Option<Consumer<Transfer<S>>> {
        self.incoming[peer].take()
    }

    pub(crate) fn put_back(&mut self, peer: usize, link: Consumer<Transfer<S>>) {
        self.incoming[peer] = Some(link);
    }
}
