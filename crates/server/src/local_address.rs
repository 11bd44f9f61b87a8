//! From which listener of several a next hop is reached: the one at the address that the kernel's routes would send from.
//!
//! A request from a phone of the local network need not leave by the listener that it came by: the trunk is in another network.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use strowger_core::routing::Identity;
use strowger_core::{ListenerId, Target};

/// How long what the kernel said is taken for true, in milliseconds: routes change seldom.
const FRESH: u64 = 5_000;

/// What the kernel said of its routes. Of one shard.
#[derive(Debug)]
pub(crate) struct LocalAddresses {
    /// Of each address of this machine, the number of its interface.
    interfaces: Vec<(IpAddr, Option<u32>)>,
    /// By the other side: the address to send from, and until when that is taken for true.
    known: HashMap<IpAddr, (Option<IpAddr>, u64)>,
    /// Entries of it at most.
    most: usize,
}

impl LocalAddresses {
    pub(crate) fn new(most: usize) -> Self {
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        let interfaces = interfaces.into_iter().map(|interface| (interface.ip(), interface.index)).collect();
        Self { interfaces, known: HashMap::new(), most }
    }

    /// The target, from the listener of the interface by which it is reached if there are several to choose from. Of those at one
    /// interface that of `target` stays.
    pub(crate) fn settle(&mut self, identity: &Identity, target: Target, now: u64) -> Target {
        let to = target.address.ip();
        if to.is_loopback() || !identity.has_choice(&target) {
            return target;
        }
        let Some(from) = self.from(to, now) else { return target };
        let interface = |ip: IpAddr| self.interfaces.iter().find(|(own, _)| *own == ip).and_then(|(_, index)| *index);
        let is_near = |ip: IpAddr| ip == from || (interface(ip).is_some() && interface(ip) == interface(from));
        if is_near(identity.listener(target.listener).bound.ip()) {
            return target;
        }
        let rivals = || (0..).zip(identity.listeners()).filter(|(_, listener)| identity.reaches(listener, &target));
        let found = rivals().find(|(_, listener)| listener.bound.ip() == from);
        let found = found.or_else(|| rivals().find(|(_, listener)| is_near(listener.bound.ip())));
        found.map_or(target, |(at, _)| Target { listener: ListenerId(at), ..target })
    }

    fn from(&mut self, to: IpAddr, now: u64) -> Option<IpAddr> {
        if let Some((from, _)) = self.known.get(&to).filter(|(_, until)| now < *until) {
            return *from;
        }
        if self.known.len() >= self.most {
            self.known.clear();
        }
        let from = asked(to);
        self.known.insert(to, (from, now + FRESH));
        from
    }
}

/// The address that the kernel would send from. Nothing is sent.
fn asked(to: IpAddr) -> Option<IpAddr> {
    let any: IpAddr = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    // Any port but 0 will do.
    socket.connect(SocketAddr::new(to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}
