//! From which listener of several a next hop is reached: the one at the address that the kernel's routes would send from.
//!
//! A request from a phone of the local network need not leave by the listener that it came by: the trunk is in another network.

use std::collections::HashMap;
use std::net::IpAddr;
use strowger_core::routing::Identity;
use strowger_core::{ListenerId, Target};

/// How long what the kernel said is taken for true, in milliseconds: routes change seldom.
const FRESH: u64 = 5_000;

/// What the kernel knows of the ways out of this machine.
pub trait Routes: Send + Sync {
    /// The address that it would send from to this one. Asked by a shard, so it must not wait for anything.
    fn source(&self, to: IpAddr) -> Option<IpAddr>;

    /// The number of the interface that has this address.
    fn interface(&self, own: IpAddr) -> Option<u32>;
}

/// Routes of a server without a kernel: one listener is always the right one. For tests, examples and benches.
#[derive(Clone, Copy, Debug)]
pub struct OneWay;

impl Routes for OneWay {
    fn source(&self, _to: IpAddr) -> Option<IpAddr> {
        None
    }

    fn interface(&self, _own: IpAddr) -> Option<u32> {
        None
    }
}

/// What the kernel said of its routes. Of one shard.
#[derive(Debug)]
pub(crate) struct LocalAddresses {
    /// By the other side: the address to send from, and until when that is taken for true.
    known: HashMap<IpAddr, (Option<IpAddr>, u64)>,
    /// Entries of it at most.
    most: usize,
}

impl LocalAddresses {
    pub(crate) fn new(most: usize) -> Self {
        Self { known: HashMap::new(), most }
    }

    /// The target, from the listener of the interface by which it is reached if there are several to choose from. Of those at one
    /// interface that of `target` stays.
    pub(crate) fn settle(&mut self, routes: &dyn Routes, identity: &Identity, target: Target, now: u64) -> Target {
        let to = target.address.ip();
        if to.is_loopback() || !identity.has_choice(&target) {
            return target;
        }
        let Some(from) = self.from(routes, to, now) else { return target };
        let interface = routes.interface(from);
        let is_near = |ip: IpAddr| ip == from || (interface.is_some() && routes.interface(ip) == interface);
        if is_near(identity.listener(target.listener).bound.ip()) {
            return target;
        }
        let rivals = || (0..).zip(identity.listeners()).filter(|(_, listener)| identity.reaches(listener, &target));
        let found = rivals().find(|(_, listener)| listener.bound.ip() == from);
        let found = found.or_else(|| rivals().find(|(_, listener)| is_near(listener.bound.ip())));
        found.map_or(target, |(at, _)| Target { listener: ListenerId(at), ..target })
    }

    fn from(&mut self, routes: &dyn Routes, to: IpAddr, now: u64) -> Option<IpAddr> {
        if let Some((from, _)) = self.known.get(&to).filter(|(_, until)| now < *until) {
            return *from;
        }
        if self.known.len() >= self.most {
            self.known.clear();
        }
        let from = routes.source(to);
        self.known.insert(to, (from, now + FRESH));
        from
    }
}
