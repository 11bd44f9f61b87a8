//! Orders for ports, carried out in parts: a shard asks for hundreds of pairs at once, and packets must not wait until all are bound.

use super::ports::Ports;
use std::collections::VecDeque;
use strowger_media::session::{PortPair, SessionEvent};

/// Pairs that are bound between two looks at the sockets. A pair takes some 20 us.
const PART: usize = 16;

/// Attempts to bind a pair between two looks: other programs may have taken many ports.
const ATTEMPTS: usize = 256;

/// Open orders for ports, the oldest first.
#[derive(Default)]
pub(super) struct Lendings {
    open: VecDeque<Lending>,
}

/// Order for ports.
struct Lending {
    /// Shard that gave the order.
    shard: usize,
    /// Shard that gets the ports.
    borrower: u16,
    /// Pairs that are still to be bound.
    left: usize,
    /// Attempts so far. With as many as there are pairs, no pair was left out.
    attempts: usize,
    ports: Vec<PortPair>,
}

impl Lendings {
    /// Adds an order of a shard.
    pub(super) fn add(&mut self, shard: usize, borrower: u16, pairs: u16) {
        self.open.push_back(Lending { shard, borrower, left: usize::from(pairs), attempts: 0, ports: Vec::new() });
    }

    pub(super) fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Carries out a part of the oldest order. Returns the shard that gave it and the event for it, once all pairs are bound or no more are free.
    pub(super) fn step(&mut self, ports: &mut Ports) -> Option<(usize, SessionEvent)> {
        let lending = self.open.front_mut()?;
        let wanted = lending.left.min(PART);
        let most = ATTEMPTS.min(ports.pairs().saturating_sub(lending.attempts));
        let mut unused = most;
        let bound = ports.lend(wanted, &mut unused);
        lending.attempts += most - unused;
        let has_more = bound.len() == wanted || unused == 0 && lending.attempts < ports.pairs();
        lending.left -= bound.len();
        lending.ports.extend(bound);
        if lending.left > 0 && has_more {
            return None;
        }
        let Lending { shard, borrower, ports, .. } = self.open.pop_front()?;
        Some((shard, SessionEvent::Lent { shard: borrower, ports }))
    }
}
