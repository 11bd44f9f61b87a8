//! Choice among several listeners for a next hop: the listener at the source address that the kernel's routes select
//! for the next hop.
//!
//! A request from a phone of the local network need not be sent from the listener that received it, because the trunk
//! may be in another network.

use std::collections::HashMap;
use std::net::IpAddr;
use strowger_core::routing::Identity;
use strowger_core::{ListenerId, Target};

/// Time for which an answer of the kernel is used, in milliseconds: routes change rarely.
const FRESH: u64 = 5_000;
/// Maximum number of cached answers.
const MOST: usize = 8_192;

/// Routes of this machine, as the kernel knows them.
pub trait Routes: Send + Sync {
    /// Returns the source address that the kernel would select for this destination. Shards call this function, so it
    /// must not block.
    fn source(&self, to: IpAddr) -> Option<IpAddr>;

    /// Returns the number of the interface that has this address.
    fn interface(&self, own: IpAddr) -> Option<u32>;
}

/// Routes of a server without a kernel: the listener is never changed. For tests, examples and benches.
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

/// Cached answers of the kernel about its routes. Each shard has its own.
#[derive(Debug, Default)]
pub(crate) struct LocalAddresses {
    /// Local source address by remote address, and the moment until which the entry is used.
    known: HashMap<IpAddr, (Option<IpAddr>, u64)>,
}

impl LocalAddresses {
    /// Returns the target with the listener at the interface through which the target is reached, if the server has
    /// several listeners. If several listeners are at that interface, the listener of `target` is kept.
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
        if self.known.len() >= MOST {
            self.known.clear();
        }
        let from = routes.source(to);
        self.known.insert(to, (from, now + FRESH));
        from
    }
}
