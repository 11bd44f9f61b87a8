//! Media threads of a server, without media: their orders are kept for the test, and ports are lent at once.

use std::collections::VecDeque;
use strowger_config::Media;
use strowger_media::session::{PortPair, SessionEvent, SessionOrder, StreamReport};

/// Free ports of a server, and the orders to its media threads.
pub(crate) struct MediaThread {
    free: VecDeque<PortPair>,
    /// Ports of the sessions of the process before, which wait for their claims.
    reserved: Vec<PortPair>,
    /// Orders about sessions that the test has not taken.
    pub(crate) orders: Vec<SessionOrder>,
    /// Reports about the stream of each session: of the near side, and of the far side if there is one.
    pub(crate) reports: (StreamReport, Option<StreamReport>),
}

impl MediaThread {
    /// Creates the media thread of a configuration.
    pub(crate) fn new(media: &Media) -> Self {
        let first = media.ports.first.next_multiple_of(2);
        // In turn for each address, as media threads lend them.
        let pairs = |n: usize| {
            let pair = move |address| PortPair { thread: 0, address: address as u16, rtp: first + 2 * n as u16 };
            (0..media.addresses.len()).map(pair)
        };
        let free = (0..media.ports.pairs()).flat_map(pairs).collect();
        Self { free, reserved: Vec::new(), orders: Vec::new(), reports: Default::default() }
    }

    /// Keeps these ports for their claims, without those that another program has.
    pub(crate) fn reserve(&mut self, ports: &[PortPair], foreign: &[u16]) {
        self.free.retain(|free| !ports.contains(free) && !foreign.contains(&free.rtp));
        self.reserved.extend(ports.iter().filter(|ports| !foreign.contains(&ports.rtp)));
    }

    /// Carries out an order; returns its answer.
    pub(crate) fn carry_out(&mut self, order: SessionOrder) -> Option<SessionEvent> {
        let answer = match &order {
            SessionOrder::Lend { shard, pairs } => {
                let pairs = usize::from(*pairs).min(self.free.len());
                return Some(SessionEvent::Lent { shard: *shard, ports: self.free.drain(..pairs).collect() });
            }
            SessionOrder::Return(ports) => {
                self.reserved.retain(|reserved| !ports.contains(reserved));
                self.free.extend(ports);
                return None;
            }
            SessionOrder::Report { key } => {
                return Some(SessionEvent::Reported { key: *key, streams: vec![self.reports] });
            }
            SessionOrder::Claim { key, ports } => {
                let is_bound = ports.iter().all(|ports| self.reserved.contains(ports));
                let reserved = std::mem::take(&mut self.reserved);
                let (bound, rest): (Vec<_>, _) = reserved.into_iter().partition(|own| ports.contains(own));
                self.reserved = rest;
                if !is_bound {
                    self.free.extend(bound);
                }
                Some(SessionEvent::Claimed { key: *key, ports: ports.clone(), is_bound })
            }
            SessionOrder::Set { .. } => None,
            SessionOrder::Close { key } => Some(SessionEvent::Closed { key: *key, streams: vec![self.reports] }),
        };
        self.orders.push(order);
        answer
    }
}
