//! Hosts, the network between them and one clock.

use crate::network::{Arriving, Conditions, Network};
use crate::wire::Wire;
use std::collections::HashMap;
use std::fmt::Display;
use std::net::SocketAddr;
use strowger_core::transaction::Transactions;
use strowger_core::{Arrival, ListenerId, Now, Outbox, Transport};

/// Something with an address and machines inside.
pub trait Host {
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox);

    /// What was sent with this token could not be sent.
    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox);

    fn poll(&mut self, now: Now, out: &mut Outbox);

    /// When [`Host::poll`] is due.
    fn deadline(&mut self) -> Option<u64>;

    /// Keeps nothing of the requests that it refuses.
    fn is_stateless(&self) -> bool {
        false
    }

    /// Its process has ended and started again since this was last asked for, and remembers nothing.
    fn has_restarted(&mut self) -> bool {
        false
    }

    /// What must hold after every step.
    ///
    /// # Errors
    /// What does not.
    fn check(&self) -> Result<(), String>;

    /// What must hold when nothing is under way and no timer runs.
    ///
    /// # Errors
    /// What is left over.
    fn leftovers(&self) -> Result<(), String>;
}

/// Listener ids of every host, by transport.
pub const fn listener(transport: Transport) -> ListenerId {
    ListenerId(transport.is_reliable() as u16)
}

/// All of it.
pub struct World<H> {
    pub now: Now,
    pub hosts: Vec<H>,
    by_address: HashMap<SocketAddr, usize>,
    network: Network,
    wire: Wire,
    out: Outbox,
    /// Every message, with the moment of its sending, if asked for.
    pub trace: Option<Vec<String>>,
}

/// When a world begins.
pub const START: Now = Now { mono: 1_000, wall: 1_700_000_000_000 };

/// ms after which a simulation that finds no end is given up.
const LONGEST: u64 = 3_600_000;

impl<H: Host> World<H> {
    pub fn new(network: Network, hosts: Vec<(SocketAddr, H)>) -> Self {
        let wire = Wire::new(hosts.iter().filter(|(_, host)| host.is_stateless()).map(|(address, _)| *address));
        let by_address = hosts.iter().enumerate().map(|(n, (address, _))| (*address, n)).collect();
        Self {
            now: START,
            hosts: hosts.into_iter().map(|(_, host)| host).collect(),
            by_address,
            network,
            wire,
            out: Outbox::new(),
            trace: None,
        }
    }

    pub fn conditions(&self) -> &Conditions {
        self.network.conditions()
    }

    /// Runs until nothing is under way and no timer runs.
    ///
    /// # Errors
    /// The first thing that did not hold, with its moment.
    pub fn run(&mut self) -> Result<(), String> {
        let start = self.now.mono;
        while self.now.mono < start + LONGEST {
            let Some(next) = self.deadline() else {
                for host in &self.hosts {
                    host.leftovers().map_err(|e| format!("at the end: {e}"))?;
                }
                return Ok(());
            };
            let passed = next.saturating_sub(self.now.mono);
            self.now = Now { mono: self.now.mono + passed, wall: self.now.wall + passed };
            self.step().map_err(|e| format!("after {} ms: {e}", self.now.mono - start))?;
        }
        let left: Vec<String> = self.hosts.iter().filter_map(|h| h.leftovers().err()).collect();
        Err(format!("no end after {LONGEST} ms: {}", left.join("; ")))
    }

    fn deadline(&mut self) -> Option<u64> {
        self.hosts.iter_mut().filter_map(Host::deadline).chain(self.network.deadline()).min()
    }

    /// One arrival, or one round of the timers of one host.
    fn step(&mut self) -> Result<(), String> {
        let at = match self.network.next(self.now.mono) {
            Some(Arriving::Message { from, to, transport, bytes }) => {
                let at = self.by_address[&to];
                self.wire.arrived(to, &bytes);
                let arrival = Arrival { transport, listener: listener(transport), remote: from, flow: None };
                self.hosts[at].receive(self.now, &arrival, &bytes, &mut self.out);
                at
            }
            Some(Arriving::Failure { to, token }) => {
                let at = self.by_address[&to];
                self.hosts[at].failed(self.now, token, &mut self.out);
                at
            }
            None => {
                let now = self.now.mono;
                let Some(at) = self.hosts.iter_mut().position(|h| h.deadline().is_some_and(|d| d <= now)) else {
                    return Ok(());
                };
                at
            }
        };
        // As a shard does: the timers are looked at once after each round.
        self.hosts[at].poll(self.now, &mut self.out);
        self.flush(at)?;
        if self.hosts[at].has_restarted() {
            self.wire.restarted(self.address_of(at));
        }
        self.hosts[at].check()
    }

    fn address_of(&self, at: usize) -> SocketAddr {
        *self.by_address.iter().find(|(_, n)| **n == at).expect("every host has an address").0
    }

    fn flush(&mut self, at: usize) -> Result<(), String> {
        let from = self.address_of(at);
        for send in self.out.sends() {
            let bytes = &self.out.bytes[send.range()];
            if let Some(trace) = &mut self.trace {
                let (to, text) = (send.target.address, String::from_utf8_lossy(bytes));
                trace.push(format!("{} {from} -> {to} {}\n{text}", self.now.mono, send.target.transport.text()));
            }
            self.wire.check(from, send.target.address, bytes, send.target.transport.is_reliable())?;
            let exists = self.by_address.contains_key(&send.target.address);
            self.network.send(self.now.mono, from, send.target, bytes, send.token, exists);
        }
        self.out.clear();
        Ok(())
    }
}

/// A table of transactions after its last timer.
pub(crate) fn nothing_left(host: &dyn Display, tx: &Transactions) -> Result<(), String> {
    let counts = tx.counts();
    let left =
        counts.servers + counts.clients + counts.kept_messages + counts.timers + counts.timers_waiting + counts.keys;
    if left > 0 || tx.memory() > 0 {
        return Err(format!("{host}: {} bytes for {counts:?}", tx.memory()));
    }
    Ok(())
}
