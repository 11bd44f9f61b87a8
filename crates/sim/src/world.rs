//! Hosts, the network between them and one clock.

use crate::network::{Arriving, Conditions, Network};
use crate::wire::Wire;
use std::collections::{BTreeMap, HashMap};
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
    /// Who gets what is sent to an address.
    by_address: HashMap<SocketAddr, usize>,
    /// The address that each host has of itself.
    own: Vec<SocketAddr>,
    /// What stands before some of them: the address that others see.
    translated: HashMap<usize, SocketAddr>,
    /// When a translator takes another address for a host: [`Now::mono`], then host.
    changes: BTreeMap<(u64, usize), SocketAddr>,
    network: Network,
    wire: Wire,
    out: Outbox,
    /// Every message, with the moment of its sending, if asked for.
    pub trace: Option<Vec<String>>,
}

/// Of the first public address of a host behind a translator.
pub const PUBLIC_PORT: u16 = 20_000;

/// When a world begins.
pub const START: Now = Now { mono: 1_000, wall: 1_700_000_000_000 };

/// ms after which a simulation that finds no end is given up.
const LONGEST: u64 = 3_600_000;

impl<H: Host> World<H> {
    pub fn new(network: Network, hosts: Vec<(SocketAddr, H)>) -> Self {
        let wire = Wire::new(hosts.iter().filter(|(_, host)| host.is_stateless()).map(|(address, _)| *address));
        let own: Vec<SocketAddr> = hosts.iter().map(|(address, _)| *address).collect();
        Self {
            now: START,
            hosts: hosts.into_iter().map(|(_, host)| host).collect(),
            by_address: own.iter().enumerate().map(|(n, address)| (*address, n)).collect(),
            own,
            translated: HashMap::new(),
            changes: BTreeMap::new(),
            network,
            wire,
            out: Outbox::new(),
            trace: None,
        }
    }

    pub fn conditions(&self) -> &Conditions {
        self.network.conditions()
    }

    /// Puts a translator before the host with this address: it is reached by the first of the public addresses, from each of the moments on
    /// by the next, and by no other.
    pub fn translate(&mut self, private: SocketAddr, public: impl IntoIterator<Item = (u64, SocketAddr)>) {
        let Some(at) = self.by_address.remove(&private) else { return };
        self.changes.extend(public.into_iter().map(|(moment, address)| ((moment, at), address)));
        self.change_addresses();
    }

    /// A translator takes another address for a host while that is in use.
    pub fn moves_hosts(&self) -> bool {
        self.translated.values().any(|public| public.port() != PUBLIC_PORT)
    }

    fn change_addresses(&mut self) {
        while let Some(entry) = self.changes.first_entry().filter(|entry| entry.key().0 <= self.now.mono) {
            let ((_, at), public) = entry.remove_entry();
            if let Some(before) = self.translated.insert(at, public) {
                self.by_address.remove(&before);
            }
            self.by_address.insert(public, at);
        }
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
            self.change_addresses();
            self.step().map_err(|e| format!("after {} ms: {e}", self.now.mono - start))?;
        }
        let left: Vec<String> = self.hosts.iter().filter_map(|h| h.leftovers().err()).collect();
        Err(format!("no end after {LONGEST} ms: {}", left.join("; ")))
    }

    fn deadline(&mut self) -> Option<u64> {
        let change = self.changes.keys().next().map(|(moment, _)| *moment);
        self.hosts.iter_mut().filter_map(Host::deadline).chain(self.network.deadline()).chain(change).min()
    }

    /// One arrival, or one round of the timers of one host.
    fn step(&mut self) -> Result<(), String> {
        let at = match self.network.next(self.now.mono) {
            Some(Arriving::Message { from, to, transport, bytes }) => {
                // Nothing is there any more.
                let Some(&at) = self.by_address.get(&to) else { return Ok(()) };
                self.wire.arrived(self.own[at], &bytes);
                let arrival = Arrival { transport, listener: listener(transport), remote: from, flow: None };
                self.hosts[at].receive(self.now, &arrival, &bytes, &mut self.out);
                at
            }
            Some(Arriving::Failure { to, token }) => {
                let Some(&at) = self.by_address.get(&to) else { return Ok(()) };
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
            self.wire.restarted(self.own[at]);
        }
        self.hosts[at].check()
    }

    fn flush(&mut self, at: usize) -> Result<(), String> {
        let own = self.own[at];
        let from = self.translated.get(&at).copied().unwrap_or(own);
        for send in self.out.sends() {
            let bytes = &self.out.bytes[send.range()];
            if let Some(trace) = &mut self.trace {
                let (to, text) = (send.target.address, String::from_utf8_lossy(bytes));
                trace.push(format!("{} {from} -> {to} {}\n{text}", self.now.mono, send.target.transport.text()));
            }
            self.wire.check(own, send.target.address, bytes, send.target.transport.is_reliable())?;
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
