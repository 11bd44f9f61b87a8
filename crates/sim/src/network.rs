//! The network between hosts: with a seed it loses, duplicates, delays and reorders datagrams. Streams only have
//! delays, until they break.

use crate::random::Random;
use std::collections::BTreeMap;
use std::net::SocketAddr;

/// Treatment of datagrams.
#[derive(Clone, Copy, Debug)]
pub struct Conditions {
    /// Lost datagrams in thousandths.
    pub loss: u64,
    /// Duplicated datagrams in thousandths.
    pub doubling: u64,
    /// Datagrams delayed by ten times the longest delay, in thousandths.
    pub reordering: u64,
    /// Shortest and longest delay, ms.
    pub delay: (u64, u64),
    /// Period in which every datagram is lost.
    pub outage: (u64, u64),
}

impl Conditions {
    pub const PERFECT: Self = Self { loss: 0, doubling: 0, reordering: 0, delay: (1, 1), outage: (0, 0) };

    /// Returns random network conditions (weather): up to 30 % of each fault.
    pub fn random(random: &mut Random) -> Self {
        if random.chance(200) {
            return Self::PERFECT;
        }
        let mut share = |often: u64| if random.chance(often) { random.between(1, 300) } else { 0 };
        let (loss, doubling, reordering) = (share(600), share(600), share(600));
        let shortest = random.between(1, 20);
        let outage = if random.chance(200) { random.between(2_000, 60_000) } else { 0 };
        let outage = (outage, outage + if outage == 0 { 0 } else { random.between(1_000, 80_000) });
        Self { loss, doubling, reordering, delay: (shortest, shortest + random.between(0, 100)), outage }
    }

    /// Returns whether so little is lost that retransmissions always succeed in the end.
    pub const fn is_fair(&self) -> bool {
        self.loss <= 100 && !self.has_outage()
    }

    pub const fn has_outage(&self) -> bool {
        self.outage.1 > 0
    }

    pub const fn is_perfect(&self) -> bool {
        self.loss == 0 && self.doubling == 0 && self.reordering == 0 && !self.has_outage()
    }
}

/// One end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EndId {
    pub connection: u32,
    /// 0 for the host that made it; 1 for the host that accepted it.
    pub side: usize,
}

/// An arrival.
#[derive(Debug)]
pub enum Arriving {
    Datagram {
        from: SocketAddr,
        to: SocketAddr,
        bytes: Vec<u8>,
    },
    /// A message over a connection, at this end of it.
    Message {
        at: EndId,
        bytes: Vec<u8>,
    },
    /// This end learns that the connection has ended.
    End(EndId),
    /// The host learns that the message with this token was not sent.
    Unsent {
        host: usize,
        token: u64,
    },
}

/// Messages and events in transit.
#[derive(Debug)]
pub struct Network {
    conditions: Conditions,
    random: Random,
    /// Arrivals by time, then in the order of sending.
    under_way: BTreeMap<(u64, u64), Arriving>,
    sent: u64,
}

impl Network {
    pub const fn new(conditions: Conditions, random: Random) -> Self {
        Self { conditions, random, under_way: BTreeMap::new(), sent: 0 }
    }

    pub const fn conditions(&self) -> &Conditions {
        &self.conditions
    }

    /// Returns the delay in ms of a message that is sent now.
    pub const fn delay(&mut self) -> u64 {
        self.random.between(self.conditions.delay.0, self.conditions.delay.1)
    }

    pub const fn random(&mut self) -> &mut Random {
        &mut self.random
    }

    /// Sends a datagram. `exists`: whether there is a host at the target; without a host the datagram vanishes.
    pub fn send(&mut self, now: u64, from: SocketAddr, to: SocketAddr, bytes: &[u8], exists: bool) {
        let copies = 1 + u64::from(self.random.chance(self.conditions.doubling));
        for _ in 0..copies {
            let late = self.random.chance(self.conditions.reordering);
            let delay = self.delay();
            let delay = if late { delay + self.random.between(0, 10 * self.conditions.delay.1) } else { delay };
            let lost = (self.conditions.outage.0..self.conditions.outage.1).contains(&now)
                || self.random.chance(self.conditions.loss);
            if exists && !lost {
                self.put(now + delay, Arriving::Datagram { from, to, bytes: bytes.to_vec() });
            }
        }
    }

    /// Schedules an arrival.
    pub fn put(&mut self, due: u64, what: Arriving) {
        self.sent += 1;
        self.under_way.insert((due, self.sent), what);
    }

    /// Returns the time of the next arrival.
    pub fn deadline(&self) -> Option<u64> {
        self.under_way.keys().next().map(|(due, _)| *due)
    }

    /// Removes and returns the next arrival, if its time has come.
    pub fn next(&mut self, now: u64) -> Option<Arriving> {
        let entry = self.under_way.first_entry().filter(|e| e.key().0 <= now)?;
        Some(entry.remove())
    }
}
