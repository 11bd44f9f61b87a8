//! Owners of the buckets of calls in the view of one shard, and the moves of buckets.
//!
//! To move bucket b from shard A to shard B, the shards proceed as follows: at the end of a round A exports the
//! bucket's calls into the ring to B, and sends every other shard a *fence*. Each shard that gets the fence empties its
//! sockets, and still sends messages of b to A; then it records B as the owner and confirms. A passes late messages on
//! to B. Once all have confirmed, no message of b is on its way to A any more, and A reports to B that b has *settled*.
//! Until then B works on messages from A and holds back those that arrive by other ways, which are younger. So no
//! message is lost, and messages by one way stay in order.

use strowger_core::call::BUCKETS;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Foreign,
    Owned,
    /// Imported from this shard and not yet settled.
    Arriving(u8),
}

/// Destination of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Placement {
    Here,
    /// Held until the bucket has settled here.
    Hold,
    /// This shard.
    Shard(u8),
}

pub(crate) struct Buckets {
    me: u8,
    owned: usize,
    owner: [u8; BUCKETS],
    state: [State; BUCKETS],
    /// Outstanding confirmations of buckets that left this shard.
    leaving: [u8; BUCKETS],
}

/// Returns the shard of a bucket when `shards` shards divide the buckets among them; the packet filter computes the
/// same.
pub(crate) const fn share(bucket: u8, shards: usize) -> u8 {
    ((bucket as usize * shards) >> 8) as u8
}

impl Buckets {
    /// Creates the view of shard `me`; `owner` is the owner of each bucket.
    pub(crate) fn new(me: u8, owner: [u8; BUCKETS]) -> Self {
        let state = owner.map(|o| if o == me { State::Owned } else { State::Foreign });
        let owned = state.iter().filter(|s| **s == State::Owned).count();
        Self { me, owned, owner, state, leaving: [0; BUCKETS] }
    }

    /// Tells whether this shard owns all buckets; then no message is searched for its Call-ID.
    pub(crate) const fn owns_all(&self) -> bool {
        self.owned == BUCKETS
    }

    pub(crate) const fn owned(&self) -> usize {
        self.owned
    }

    /// Returns the destination of a message from a socket or connection of this shard.
    pub(crate) fn placement(&self, bucket: u8) -> Placement {
        let b = bucket as usize;
        match self.state[b] {
            State::Owned => Placement::Here,
            _ if self.owner[b] == self.me => Placement::Hold,
            _ => Placement::Shard(self.owner[b]),
        }
    }

    /// Returns the destination of a message that shard `from` passed to this one.
    pub(crate) fn placement_of_passed(&self, bucket: u8, from: u8) -> Placement {
        let b = bucket as usize;
        match self.state[b] {
            State::Owned => Placement::Here,
            _ if self.leaving[b] > 0 => Placement::Shard(self.owner[b]),
            State::Arriving(source) if source == from => Placement::Here,
            // Two cases are possible. The message is younger than messages that still arrive through the old owner; or
            // `from` knows already that the bucket belongs to this shard, and this shard does not know it yet.
            _ => Placement::Hold,
        }
    }

    /// Returns the owned buckets that belong to another shard when `shards` shards divide the buckets among them, each
    /// with that shard.
    pub(crate) fn surplus(&self, shards: usize) -> impl Iterator<Item = (u8, u8)> + '_ {
        (0..=255u8)
            .filter(|&b| self.state[b as usize] == State::Owned && self.leaving[b as usize] == 0)
            .map(move |b| (b, share(b, shards)))
            .filter(|&(_, to)| to != self.me)
    }

    /// Moves an owned bucket to shard `to`; the move ends when `others` shards have confirmed it.
    pub(crate) fn move_out(&mut self, bucket: u8, to: u8, others: u8) {
        let b = bucket as usize;
        debug_assert!(self.state[b] == State::Owned && to != self.me && others > 0);
        self.state[b] = State::Foreign;
        self.owned -= 1;
        self.owner[b] = to;
        self.leaving[b] = others;
    }

    /// Notes that the calls of the bucket have been imported.
    pub(crate) fn move_in(&mut self, bucket: u8, from: u8) {
        self.state[bucket as usize] = State::Arriving(from);
    }

    /// Notes the new owner of a bucket, after its fence has been passed.
    pub(crate) fn set_owner(&mut self, bucket: u8, to: u8) {
        self.owner[bucket as usize] = to;
    }

    /// Counts a confirmation. Returns the new owner of the bucket if this was the last confirmation.
    pub(crate) fn confirmed(&mut self, bucket: u8) -> Option<u8> {
        let left = &mut self.leaving[bucket as usize];
        *left = left.saturating_sub(1);
        (*left == 0).then_some(self.owner[bucket as usize])
    }

    /// Notes that the bucket has settled here.
    pub(crate) fn settled(&mut self, bucket: u8) {
        let b = bucket as usize;
        if self.state[b] != State::Owned {
            self.state[b] = State::Owned;
            self.owned += 1;
        }
        self.owner[b] = self.me;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_even_and_whole() {
        for shards in 1..=64 {
            let mut count = [0; 64];
            for b in 0..=255u8 {
                count[share(b, shards) as usize] += 1;
            }
            assert!(count[..shards].iter().all(|&c| (256 / shards..=256 / shards + 1).contains(&c)));
            assert!(count[shards..].iter().all(|&c| c == 0));
        }
    }

    #[test]
    fn a_bucket_moves_with_everything_in_order() {
        let [mut a, mut b, mut c] = [0, 1, 2].map(|me| Buckets::new(me, [0; BUCKETS]));
        assert!(a.owns_all() && b.placement(200) == Placement::Shard(0));
        assert_eq!(a.surplus(3).count(), 170);
        a.move_out(200, 1, 2);
        // The third shard does not know the move yet: the first shard passes its messages on.
        assert_eq!(c.placement(200), Placement::Shard(0));
        assert_eq!(a.placement_of_passed(200, 2), Placement::Shard(1));
        // The third shard knows the move before the second has imported the bucket: the second shard holds the message.
        c.set_owner(200, 1);
        assert_eq!((c.placement(200), b.placement_of_passed(200, 2)), (Placement::Shard(1), Placement::Hold));
        b.move_in(200, 0);
        assert_eq!((b.placement_of_passed(200, 0), b.placement_of_passed(200, 2)), (Placement::Here, Placement::Hold));
        assert_eq!(b.placement(200), Placement::Shard(0));
        b.set_owner(200, 1);
        assert_eq!(b.placement(200), Placement::Hold);
        assert_eq!((a.confirmed(200), a.confirmed(200)), (None, Some(1)));
        b.settled(200);
        assert_eq!((b.placement(200), b.placement_of_passed(200, 2), b.owned()), (Placement::Here, Placement::Here, 1));
        assert_eq!(a.placement(200), Placement::Shard(1));
    }
}
