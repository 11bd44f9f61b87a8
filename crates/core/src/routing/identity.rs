//! The identity of this server: the addresses that it listens on, its names, and the domains that it is responsible for.

use super::machine::Machine;
use crate::{ListenerId, Target, Transport};
use std::net::{IpAddr, SocketAddr};
use strowger_message::Host;

/// One listener as it stands in Via and Record-Route.
#[derive(Clone, Debug)]
pub struct ListenerAddress {
    /// What it takes messages by.
    pub transport: Transport,
    /// The bound address, its port never 0.
    pub bound: SocketAddr,
    /// `host` or `host:port` that others reach us by: the advertised address or the bound one.
    pub sent_by: Box<[u8]>,
    /// Listeners of different networks get a Record-Route each (RFC 3261 section 16.6 step 4).
    pub network: u16,
}

impl ListenerAddress {
    /// Host and port of `sent_by`.
    fn known_by(&self) -> (&[u8], u16) {
        let (host, port) = split_port(&self.sent_by);
        (host, port.unwrap_or_else(|| self.transport.default_port()))
    }
}

/// Every listener, in the order of [`ListenerId`], and every name of ours.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    listeners: Vec<ListenerAddress>,
    /// Lower-case host and port of every address that is ours.
    addresses: Vec<(Box<[u8]>, u16)>,
    ips: Vec<(IpAddr, u16)>,
    /// Those that are bound, that listeners are known by, and that their transports have by default.
    ports: Vec<u16>,
    /// Lower-case local domains.
    domains: Vec<Box<[u8]>>,
    domain_ips: Vec<IpAddr>,
    /// Lower-case names of this server beside those, at any port of ours.
    names: Vec<Box<[u8]>>,
    /// Lower-case hosts and ports that listeners were known by before: the Record-Route of calls has them.
    former: Vec<(Box<[u8]>, u16)>,
    machine: Machine,
}

impl Identity {
    /// `interfaces` are the addresses of this machine, which stand for a listener bound to all of them.
    pub fn new(
        listeners: Vec<ListenerAddress>,
        domains: impl IntoIterator<Item = impl AsRef<[u8]>>,
        interfaces: &[IpAddr],
    ) -> Self {
        let machine = Machine::new(interfaces.iter().copied(), []);
        Self::on(machine, listeners, domains, interfaces)
    }

    /// [`Identity::new`] on this machine, which has those interfaces.
    pub fn on(
        machine: Machine,
        listeners: Vec<ListenerAddress>,
        domains: impl IntoIterator<Item = impl AsRef<[u8]>>,
        interfaces: &[IpAddr],
    ) -> Self {
        let mut identity = Self { listeners, machine, ..Self::default() };
        for listener in &identity.listeners {
            let port = listener.bound.port();
            if listener.bound.ip().is_unspecified() || listener.bound.ip().is_loopback() {
                // RFC 6761 section 6.3.
                identity.addresses.push((LOCALHOST.into(), port));
            }
            if listener.bound.ip().is_unspecified() {
                let same_family = |ip: &&IpAddr| ip.is_ipv4() == listener.bound.is_ipv4();
                identity.ips.extend(interfaces.iter().filter(same_family).map(|ip| (*ip, port)));
            } else {
                identity.ips.push((listener.bound.ip(), port));
            }
            let (host, sent_port) = listener.known_by();
            identity.machine.with_listener(listener.bound.ip(), ip_of(host));
            identity.ports.extend([listener.bound.port(), listener.transport.default_port(), sent_port]);
            match ip_of(host) {
                Some(ip) => identity.ips.push((ip, sent_port)),
                None => identity.addresses.push((host.to_ascii_lowercase().into(), sent_port)),
            }
        }
        identity.ports.sort_unstable();
        identity.ports.dedup();
        for domain in domains {
            let domain = domain.as_ref().to_ascii_lowercase();
            match ip_of(&domain) {
                Some(ip) => identity.domain_ips.push(ip),
                None => identity.domains.push(domain.into()),
            }
        }
        identity
    }

    /// Hosts by which peers name this server too, such as that of its outbound proxy: a Route with one of them, and no port or a port
    /// of ours, is ours. They are no domains.
    #[must_use]
    pub fn with_names(mut self, names: impl IntoIterator<Item = impl AsRef<[u8]>>) -> Self {
        for name in names {
            let name = name.as_ref().to_ascii_lowercase();
            match ip_of(&name) {
                Some(ip) => self.ips.extend(self.listeners.iter().map(|listener| (ip, listener.bound.port()))),
                None => self.names.push(name.into()),
            }
        }
        self
    }

    /// The same process under another configuration: its listeners may be known by other names now, and calls that go on have the
    /// names of `before` in their Routes.
    #[must_use]
    pub fn after(mut self, before: &Self) -> Self {
        let lower = |(host, port): (&[u8], u16)| (host.to_ascii_lowercase().into_boxed_slice(), port);
        let now: Vec<_> = self.listeners.iter().map(|listener| lower(listener.known_by())).collect();
        let then = before.listeners.iter().map(|listener| lower(listener.known_by()));
        for known_by in then.chain(before.former.iter().cloned()) {
            if now.contains(&known_by) || self.former.contains(&known_by) {
                continue;
            }
            match ip_of(&known_by.0) {
                Some(ip) => self.ips.push((ip, known_by.1)),
                None => self.addresses.push(known_by.clone()),
            }
            self.former.push(known_by);
        }
        self
    }

    /// Addresses of the machine, and of the services that the server uses.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Whether a listener of this transport has this address.
    pub fn listens(&self, transport: Transport, address: &SocketAddr) -> bool {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let takes = |listener: &&ListenerAddress| listener.transport == transport;
        self.listeners.iter().filter(takes).any(|listener| {
            let (bound, (host, known_port)) = (listener.bound, listener.known_by());
            let is_bound = bound.ip().is_unspecified() && bound.is_ipv4() == ip.is_ipv4() || bound.ip() == ip;
            (is_bound && bound.port() == port) || (known_port == port && ip_of(host) == Some(ip))
        })
    }

    /// The address of this listener.
    ///
    /// # Panics
    /// There is none of this number, so it is of another configuration.
    pub fn listener(&self, id: ListenerId) -> &ListenerAddress {
        &self.listeners[id.0 as usize]
    }

    /// All of them, each in the place that its [`ListenerId`] says.
    pub fn listeners(&self) -> &[ListenerAddress] {
        &self.listeners
    }

    /// The listener to reach `address` from: the one named first if it fits, else the first of the same
    /// transport and family, its own network before others.
    pub fn listener_for(&self, transport: Transport, address: &SocketAddr, prefer: ListenerId) -> Option<ListenerId> {
        let fits = |f: &ListenerAddress| fits(f, transport, address);
        // What was kept of an earlier configuration may name one that is no more.
        let preferred = self.listeners.get(prefer.0 as usize).or_else(|| self.listeners.first())?;
        let same = |f: &ListenerAddress| fits(f) && f.network == preferred.network;
        let named = Some(prefer.0 as usize).filter(|&at| self.listeners.get(at).is_some_and(fits));
        let at =
            named.or_else(|| self.listeners.iter().position(same)).or_else(|| self.listeners.iter().position(fits))?;
        Some(ListenerId(at as u16))
    }

    /// Several listeners reach this target, each bound to an address.
    pub fn has_choice(&self, target: &Target) -> bool {
        let mut rivals = self.listeners.iter().filter(|listener| self.reaches(listener, target));
        rivals.next().is_some_and(|listener| !listener.bound.ip().is_unspecified()) && rivals.next().is_some()
    }

    /// As far as transport, family and scope of the addresses say.
    pub fn reaches(&self, listener: &ListenerAddress, target: &Target) -> bool {
        fits(listener, target.transport, &target.address)
    }

    /// One of our listeners: a Route or Request-URI that names it names us. Without a port its transport says which is meant.
    pub fn is_own_address(&self, host: Host<'_>, port: Option<u16>, transport: impl Fn() -> Transport) -> bool {
        let is_port = |own: u16| match port.ok_or_else(&transport) {
            Ok(port) => own == port,
            // `transport=ws` says nothing of TLS (RFC 7118 section 5.2).
            Err(Transport::Ws) => [Transport::Ws, Transport::Wss].iter().any(|t| t.default_port() == own),
            Err(transport) => own == transport.default_port(),
        };
        match host.ip() {
            Some(ip) => self.ips.iter().any(|&(i, p)| i == ip && is_port(p)),
            None => {
                self.addresses.iter().any(|(h, p)| host == Host::Name(h) && is_port(*p))
                    || (self.names.iter().any(|name| host == Host::Name(name))
                        && port.is_none_or(|port| self.is_own_port(port)))
            }
        }
    }

    /// A host of one of our listeners, at any port.
    pub fn is_own_host(&self, host: Host<'_>) -> bool {
        match host.ip() {
            Some(ip) => self.ips.iter().any(|&(own, _)| own == ip),
            None => self.addresses.iter().map(|(own, _)| own).chain(&self.names).any(|own| host == Host::Name(own)),
        }
    }

    /// What is sent there reaches a listener of ours.
    pub fn is_own_socket(&self, address: &SocketAddr) -> bool {
        self.ips.contains(&(address.ip().to_canonical(), address.port()))
    }

    /// A port of one of our listeners: the bound one, the one that it is known by, or the one that its transport has by default.
    pub fn is_own_port(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// A name below a domain that we are responsible for.
    pub fn is_below_local_domain(&self, name: &[u8]) -> bool {
        self.domains.iter().any(|domain| {
            let host = name.len().checked_sub(domain.len()).and_then(|at| name.split_at_checked(at));
            host.is_some_and(|(host, rest)| host.ends_with(b".") && rest.eq_ignore_ascii_case(domain))
        })
    }

    /// A domain that we are responsible for, with no port or one of ours.
    pub fn is_at_local_domain(&self, host: Host<'_>, port: Option<u16>) -> bool {
        self.is_local_domain(host) && port.is_none_or(|port| self.is_own_port(port))
    }

    /// A domain that we are responsible for.
    pub fn is_local_domain(&self, host: Host<'_>) -> bool {
        match host.ip() {
            Some(ip) => self.domain_ips.contains(&ip),
            None => self.domains.iter().any(|d| host == Host::Name(d)),
        }
    }
}

fn fits(listener: &ListenerAddress, transport: Transport, address: &SocketAddr) -> bool {
    listener.transport == transport
        && listener.bound.is_ipv4() == address.is_ipv4()
        // A socket bound to loopback reaches nothing else, and the other way round.
        && (listener.bound.ip().is_unspecified() || listener.bound.ip().is_loopback() == address.ip().is_loopback())
}

/// What every machine calls itself.
const LOCALHOST: &[u8] = b"localhost";

/// `host[:port]`, an IPv6 reference in brackets.
pub(crate) fn split_port(text: &[u8]) -> (&[u8], Option<u16>) {
    let after = text.iter().rposition(|&b| b == b']').map_or(0, |n| n + 1);
    match text[after..].iter().position(|&b| b == b':') {
        Some(n) => {
            let port = std::str::from_utf8(&text[after + n + 1..]).ok().and_then(|p| p.parse().ok());
            (&text[..after + n], port)
        }
        None => (text, None),
    }
}

fn ip_of(host: &[u8]) -> Option<IpAddr> {
    let host = std::str::from_utf8(host).ok()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_an_earlier_configuration_stay_ours() {
        let known_by = |sent_by: &str| {
            let bound = "192.0.2.1:5060".parse().unwrap();
            let listener =
                ListenerAddress { transport: Transport::Udp, bound, sent_by: sent_by.as_bytes().into(), network: 0 };
            Identity::new(vec![listener], [""; 0], &[])
        };
        let is_own = |identity: &Identity, host: &str, port| {
            let host = host.parse().map_or(Host::Name(host.as_bytes()), |ip: std::net::Ipv4Addr| Host::V4(ip));
            identity.is_own_address(host, port, || Transport::Udp)
        };
        let first = known_by("Alpha.test:5070");
        let second = known_by("203.0.113.1:5060").after(&first);
        let third = known_by("alpha.test:5070").after(&known_by("beta.test").after(&second));
        for (host, port) in [("alpha.test", 5070), ("203.0.113.1", 5060), ("BETA.test", 5060), ("192.0.2.1", 5060)] {
            assert!(is_own(&third, host, Some(port)), "{host}");
        }
        assert!(!is_own(&third, "alpha.test", Some(5071)) && !is_own(&second, "beta.test", None));
        let again = (0..9).fold(third.clone(), |before, _| known_by("beta.test").after(&before));
        assert_eq!(again.addresses.len(), third.addresses.len());
    }

    #[test]
    fn a_listener_that_is_no_more_gives_way_to_one_that_fits() {
        let listener = |transport, bound: &str| ListenerAddress {
            transport,
            bound: bound.parse().unwrap(),
            sent_by: bound.as_bytes().into(),
            network: 0,
        };
        let listeners = vec![listener(Transport::Udp, "192.0.2.1:5060"), listener(Transport::Tcp, "192.0.2.1:5060")];
        let identity = Identity::new(listeners, [""; 0], &[]);
        let to = "192.0.2.9:5060".parse().unwrap();
        for prefer in [0, 1, 2, u16::MAX] {
            let listener = |transport| identity.listener_for(transport, &to, ListenerId(prefer));
            assert_eq!(listener(Transport::Tcp), Some(ListenerId(1)), "{prefer}");
            assert_eq!((listener(Transport::Udp), listener(Transport::Tls)), (Some(ListenerId(0)), None), "{prefer}");
        }
        assert_eq!(Identity::default().listener_for(Transport::Udp, &to, ListenerId(0)), None);
    }
}
