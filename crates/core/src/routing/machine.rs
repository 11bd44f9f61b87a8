//! Addresses of the machine of a server, and of the services that the server uses. This module does no I/O: the owner
//! of the server reads the interfaces and resolves the names.

use super::scope::{Scope, plain};
use std::net::{IpAddr, SocketAddr};

/// Addresses of a machine and of the services of its server, which a peer may not name freely.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// Addresses of the machine's interfaces, sorted.
    own: Vec<IpAddr>,
    /// Advertised addresses of listeners behind an address translator; sorted.
    advertised: Vec<IpAddr>,
    /// Databases, caches, addresses for control and metrics; sorted.
    services: Vec<SocketAddr>,
    /// Bit set of service ports, modulo 64.
    ports: u64,
}

impl Machine {
    /// Creates a machine with these interfaces and these services of its server.
    pub fn new(interfaces: impl IntoIterator<Item = IpAddr>, services: impl IntoIterator<Item = SocketAddr>) -> Self {
        let mut this = Self { own: sorted(interfaces), ..Self::default() };
        this.services = services.into_iter().map(canonical).collect();
        this.services.sort_unstable();
        this.services.dedup();
        this.ports = this.services.iter().fold(0, |ports, service| ports | bit(service.port()));
        this
    }

    /// Adds addresses that the advertised names of listeners resolve to.
    #[must_use]
    pub fn with_advertised(mut self, addresses: &[IpAddr]) -> Self {
        self.advertised = sorted(addresses.iter().map(|ip| plain(*ip)).filter(|ip| !self.is_own(*ip)));
        self
    }

    /// Tells whether a listener advertises this address, and no interface has it.
    pub(super) fn is_advertised(&self, ip: IpAddr) -> bool {
        self.advertised.binary_search(&ip.to_canonical()).is_ok()
    }

    /// Adds the bound and the advertised address of a listener.
    pub(super) fn with_listener(&mut self, bound: IpAddr, known_by: Option<IpAddr>) {
        if !bound.is_unspecified() && !self.is_own(bound) {
            self.own.push(bound.to_canonical());
            self.own.sort_unstable();
        }
        if let Some(known_by) = known_by.map(plain)
            && !self.is_own(known_by)
            && !self.advertised.contains(&known_by)
        {
            self.advertised.push(known_by);
            self.advertised.sort_unstable();
        }
    }

    /// Tells whether an interface has this address, or it is a loopback address.
    pub fn is_own(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        ip.is_loopback() || self.own.binary_search(&ip).is_ok()
    }

    /// Returns the scope of this address as a target. Each address of this machine, in every textual or mapped form,
    /// has the scope of the machine.
    pub fn scope_of(&self, ip: IpAddr) -> Scope {
        let plain = plain(ip);
        match Scope::of(ip) {
            Scope::Machine => Scope::Machine,
            _ if self.is_own(ip) || self.is_own(plain) => Scope::Machine,
            _ if self.is_advertised(plain) => Scope::Machine,
            scope => scope,
        }
    }

    /// Returns the scope of this address as the source of a message. An advertised address belongs to no interface, so
    /// a sender may have forged it.
    pub fn scope_of_sender(&self, ip: IpAddr) -> Scope {
        match Scope::of(ip) {
            _ if ip.is_unspecified() => Scope::World,
            _ if self.is_own(ip) => Scope::Machine,
            scope => scope,
        }
    }

    /// Tells whether a service of the server has this address. A service on this machine has each address of the machine.
    #[inline]
    pub fn is_service(&self, address: &SocketAddr) -> bool {
        self.ports & bit(address.port()) != 0 && self.has_service(address)
    }

    #[cold]
    fn has_service(&self, address: &SocketAddr) -> bool {
        if self.services.binary_search(&canonical(*address)).is_ok() {
            return true;
        }
        let is_here = |ip: IpAddr| self.scope_of(ip) == Scope::Machine;
        let mut services = self.services.iter();
        is_here(address.ip()) && services.any(|other| other.port() == address.port() && is_here(other.ip()))
    }
}

fn sorted(ips: impl IntoIterator<Item = IpAddr>) -> Vec<IpAddr> {
    let mut ips: Vec<IpAddr> = ips.into_iter().map(|ip| ip.to_canonical()).collect();
    ips.sort_unstable();
    ips.dedup();
    ips
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(plain(address.ip()), address.port())
}

const fn bit(port: u16) -> u64 {
    1 << (port % 64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Machine {
        let address = |text: &str| text.parse::<SocketAddr>().expect("an address");
        let own = ["192.0.2.1", "10.0.0.1"].map(|ip| ip.parse().expect("an address"));
        let mut machine = Machine::new(own, ["127.0.0.1:6379", "10.0.0.9:3306", "[::1]:9060"].map(address));
        machine.with_listener("0.0.0.0".parse().expect("an address"), Some("203.0.113.1".parse().expect("an address")));
        machine
    }

    #[test]
    fn addresses_of_the_machine_reach_no_further_than_it() {
        let machine = machine();
        for (ip, target, sender) in [
            ("192.0.2.1", Scope::Machine, Scope::Machine),
            ("::ffff:192.0.2.1", Scope::Machine, Scope::Machine),
            ("10.0.0.1", Scope::Machine, Scope::Machine),
            ("10.0.0.2", Scope::Site, Scope::Site),
            ("203.0.113.1", Scope::Machine, Scope::World),
            ("64:ff9b::203.0.113.1", Scope::Machine, Scope::World),
            ("64:ff9b::192.0.2.1", Scope::Machine, Scope::World),
            ("::ffff:0:192.0.2.1", Scope::Machine, Scope::World),
            ("192.0.2.2", Scope::World, Scope::World),
            ("0.0.0.0", Scope::Machine, Scope::World),
            ("127.9.9.9", Scope::Machine, Scope::Machine),
        ] {
            let ip = ip.parse().expect("an address");
            assert_eq!((machine.scope_of(ip), machine.scope_of_sender(ip)), (target, sender), "{ip}");
        }
    }

    #[test]
    fn services_are_known_by_each_address_of_their_machine() {
        let machine = machine();
        for service in [
            "127.0.0.1:6379",
            "127.0.0.2:6379",
            "192.0.2.1:6379",
            "10.0.0.1:6379",
            "203.0.113.1:6379",
            "0.0.0.0:6379",
            "[::1]:6379",
            "[::ffff:127.0.0.1]:6379",
            "10.0.0.9:3306",
            "[::ffff:10.0.0.9]:3306",
            "[64:ff9b::10.0.0.9]:3306",
            "[64:ff9b::192.0.2.1]:6379",
            "127.0.0.1:9060",
        ] {
            assert!(machine.is_service(&service.parse().expect("an address")), "{service}");
        }
        for other in ["10.0.0.8:6379", "10.0.0.9:6379", "127.0.0.1:3306", "192.0.2.2:9060", "127.0.0.1:6315"] {
            assert!(!machine.is_service(&other.parse().expect("an address")), "{other}");
        }
        assert!(!Machine::default().is_service(&"127.0.0.1:6379".parse().expect("an address")));
    }
}
