//! Identity of this server: addresses of its listeners, its names, and its domains.

use super::domains::Domains;
use super::machine::Machine;
use crate::{ListenerId, Target, Transport};
use std::net::{IpAddr, SocketAddr};
use strowger_message::uri::sip::{unescape, unescaped};
use strowger_message::{Host, SipUri, Uri};

/// Address of one listener as written in Via and Record-Route.
#[derive(Clone, Debug)]
pub struct ListenerAddress {
    /// Transport of its messages.
    pub transport: Transport,
    /// Bound address; its port is never 0.
    pub bound: SocketAddr,
    /// Advertised or bound address, as `host` or `host:port`.
    pub sent_by: Box<[u8]>,
    /// Network: listeners of different networks get a Record-Route each (RFC 3261 section 16.6 step 4).
    pub network: u16,
}

impl ListenerAddress {
    /// Returns host and port of `sent_by`.
    fn known_by(&self) -> (&[u8], u16) {
        let (host, port) = split_port(&self.sent_by);
        (host, port.unwrap_or_else(|| self.transport.default_port()))
    }

    /// Writes the URI of a Contact at this listener, for messages by this transport. `is_secure`: whether it is a SIPS URI.
    pub(crate) fn write_contact_uri(
        &self,
        user: Option<&[u8]>,
        transport: Transport,
        is_secure: bool,
        out: &mut Vec<u8>,
    ) {
        out.extend_from_slice(if is_secure { b"sips:" } else { b"sip:" });
        if let Some(user) = user {
            out.extend_from_slice(user);
            out.push(b'@');
        }
        out.extend_from_slice(&self.sent_by);
        // A SIPS URI implies TLS (RFC 3261 section 26.2.2), a SIP URI without a transport UDP.
        if transport != Transport::Udp && !(is_secure && transport == Transport::Tls) {
            out.extend_from_slice(b";transport=");
            let plain = if is_secure && transport == Transport::Wss { Transport::Ws } else { transport };
            out.extend_from_slice(plain.text().as_bytes());
        }
    }
}

/// Listeners, in the order of [`ListenerId`], and names of this server.
#[derive(Clone, Debug, Default)]
pub struct Identity {
    listeners: Vec<ListenerAddress>,
    /// Lower-case host and port of each own address with a name.
    addresses: Vec<(Box<[u8]>, u16)>,
    ips: Vec<(IpAddr, u16)>,
    /// Ports of the listeners: bound, advertised, and default ports of their transports.
    ports: Vec<u16>,
    domains: Domains,
    /// Further names of this server in lower case, valid at any own port.
    names: Vec<Box<[u8]>>,
    /// Lower-case hosts and ports that listeners had before, which the Record-Routes of open calls contain.
    former: Vec<(Box<[u8]>, u16)>,
    machine: Machine,
}

impl Identity {
    /// Creates an identity. `interfaces`: addresses of this machine, in place of an unspecified bound address.
    pub fn new(
        listeners: Vec<ListenerAddress>,
        domains: impl IntoIterator<Item = impl AsRef<[u8]>>,
        interfaces: &[IpAddr],
    ) -> Self {
        let machine = Machine::new(interfaces.iter().copied(), []);
        Self::on(machine, listeners, domains, interfaces)
    }

    /// Creates an identity on this machine with these interfaces.
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
        domains.into_iter().for_each(|domain| identity.domains.add(domain.as_ref()));
        identity
    }

    /// Adds further names of local domains, each with its domain.
    #[must_use]
    pub fn with_aliases(mut self, aliases: impl IntoIterator<Item = (impl AsRef<[u8]>, impl AsRef<[u8]>)>) -> Self {
        for (alias, domain) in aliases {
            self.domains.add_alias(alias.as_ref(), domain.as_ref());
        }
        self
    }

    /// Adds names that peers use for this server, such as that of an outbound proxy. A Route with one of these names,
    /// and no port or a port of ours, is an own Route. The names are no domains.
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

    /// Adds the names of the previous configuration, because open calls have them in their Routes, though listeners may
    /// have other names now.
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

    /// Returns the addresses of the machine, and of the services that the server uses.
    pub fn machine(&self) -> &Machine {
        &self.machine
    }

    /// Tells whether a listener of this transport has this address.
    pub fn listens(&self, transport: Transport, address: &SocketAddr) -> bool {
        let (ip, port) = (address.ip().to_canonical(), address.port());
        let takes = |listener: &&ListenerAddress| listener.transport == transport;
        self.listeners.iter().filter(takes).any(|listener| {
            let (bound, (host, known_port)) = (listener.bound, listener.known_by());
            let is_bound = bound.ip().is_unspecified() && bound.is_ipv4() == ip.is_ipv4() || bound.ip() == ip;
            let is_known = || ip_of(host).map_or_else(|| self.machine.is_advertised(ip), |known| known == ip);
            (is_bound && bound.port() == port) || (known_port == port && is_known())
        })
    }

    /// Tells whether a peer at this address is a listener of this server. This can happen because a peer can make the
    /// server send to itself.
    pub fn is_this_server(&self, transport: Transport, address: &SocketAddr) -> bool {
        self.machine.is_own(address.ip()) && self.listens(transport, address)
    }

    /// Returns the address of this listener.
    ///
    /// # Panics
    /// If no listener has this number because it belongs to another configuration.
    pub fn listener(&self, id: ListenerId) -> &ListenerAddress {
        &self.listeners[id.0 as usize]
    }

    /// Returns all listeners, in the order of [`ListenerId`].
    pub fn listeners(&self) -> &[ListenerAddress] {
        &self.listeners
    }

    /// Returns the listener from which `address` is reached: the preferred one if it fits, else the first of the same
    /// transport and family, with those of its own network first.
    pub fn listener_for(&self, transport: Transport, address: &SocketAddr, prefer: ListenerId) -> Option<ListenerId> {
        let fits = |f: &ListenerAddress| fits(f, transport, address);
        // A record of an earlier configuration may name a removed listener.
        let preferred = self.listeners.get(prefer.0 as usize).or_else(|| self.listeners.first())?;
        let same = |f: &ListenerAddress| fits(f) && f.network == preferred.network;
        let named = Some(prefer.0 as usize).filter(|&at| self.listeners.get(at).is_some_and(fits));
        let at =
            named.or_else(|| self.listeners.iter().position(same)).or_else(|| self.listeners.iter().position(fits))?;
        Some(ListenerId(at as u16))
    }

    /// Tells whether several listeners reach this target, the first of them bound to an address.
    pub fn has_choice(&self, target: &Target) -> bool {
        let mut rivals = self.listeners.iter().filter(|listener| self.reaches(listener, target));
        rivals.next().is_some_and(|listener| !listener.bound.ip().is_unspecified()) && rivals.next().is_some()
    }

    /// Tells whether transport, family and scope of the addresses allow a listener to reach a target.
    pub fn reaches(&self, listener: &ListenerAddress, target: &Target) -> bool {
        fits(listener, target.transport, &target.address)
    }

    /// Tells whether a host and port are those of an own listener, so that a Route or Request-URI with them means this
    /// server. Without a port, the transport decides.
    pub fn is_own_address(&self, host: Host<'_>, port: Option<u16>, transport: impl Fn() -> Transport) -> bool {
        let is_port = |own: u16| match port.ok_or_else(&transport) {
            Ok(port) => own == port,
            // `transport=ws` does not say whether TLS is used (RFC 7118 section 5.2).
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

    /// Tells whether a host is that of an own listener, at any port.
    pub fn is_own_host(&self, host: Host<'_>) -> bool {
        match host.ip() {
            Some(ip) => self.ips.iter().any(|&(own, _)| own == ip),
            None => self.addresses.iter().map(|(own, _)| own).chain(&self.names).any(|own| host == Host::Name(own)),
        }
    }

    /// Tells whether an address is that of an own listener.
    pub fn is_own_socket(&self, address: &SocketAddr) -> bool {
        self.ips.contains(&(address.ip().to_canonical(), address.port()))
    }

    /// Tells whether a port is one of an own listener: bound, advertised or the default of its transport.
    pub fn is_own_port(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// Tells whether a name is below a local domain.
    pub fn is_below_local_domain(&self, name: &[u8]) -> bool {
        self.domains.names().any(|domain| {
            let host = name.len().checked_sub(domain.len()).and_then(|at| name.split_at_checked(at));
            host.is_some_and(|(host, rest)| host.ends_with(b".") && rest.eq_ignore_ascii_case(domain))
        })
    }

    /// Tells whether a host is a local domain, with no port or a port of ours. Addresses of this server are domains
    /// only if the configuration names them.
    pub fn is_at_local_domain(&self, host: Host<'_>, port: Option<u16>) -> bool {
        self.is_local_domain(host) && port.is_none_or(|port| self.is_own_port(port))
    }

    /// Tells whether a host is a local domain, at any port; see [`Identity::is_at_local_domain`].
    pub fn is_local_domain(&self, host: Host<'_>) -> bool {
        self.domains.named(host).is_some()
    }

    /// Returns the canonical name of the local domain of users with this host: the domain with this name or alias, or, for an address or
    /// name of this server, the only domain. Bindings, digest, identities, rules and limits use it as the domain of a user.
    pub fn domain_of(&self, host: Host<'_>) -> Option<&[u8]> {
        match self.domains.named(host) {
            Some(domain) => Some(domain),
            None => self.domains.only().filter(|_| self.is_own_host(host)),
        }
    }

    /// Returns [`Identity::domain_of`] of a party if its URI has no port or a port of ours.
    pub fn domain_at(&self, host: Host<'_>, port: Option<u16>) -> Option<&[u8]> {
        self.domain_of(host).filter(|_| port.is_none_or(|port| self.is_own_port(port)))
    }

    /// Returns the canonical name of the local domain with this name, alias or address, or else the text itself.
    pub fn canonical_domain<'a>(&'a self, domain: &'a [u8]) -> &'a [u8] {
        match self.domains.canonical(domain) {
            Some(domain) => domain,
            None => Host::parse(domain).ok().and_then(|host| self.domain_of(host)).unwrap_or(domain),
        }
    }

    /// Replaces the host of a URI of a local user by the canonical name of its domain, without a port. Other URIs stay unchanged.
    pub fn canonical_uri<'a>(&'a self, uri: &Uri<'a>) -> Uri<'a> {
        let Uri::Sip(sip) = uri else { return *uri };
        match self.domain_of(sip.host).and_then(|domain| Host::parse(domain).ok()) {
            Some(host) => Uri::Sip(SipUri { host, port: None, ..*sip }),
            None => *uri,
        }
    }

    /// Writes the address-of-record of a URI; for a local user, with the canonical name of its domain. The port is
    /// omitted, because it only selects a listener.
    pub fn write_aor(&self, uri: &Uri<'_>, out: &mut Vec<u8>) {
        let Uri::Sip(sip) = uri else { return uri.write_aor(out) };
        let Some(domain) = self.domain_of(sip.host) else {
            return Uri::Sip(SipUri { port: None, ..*sip }).write_aor(out);
        };
        if let Some(user) = sip.user {
            unescape(user, out);
            out.push(b'@');
        }
        out.extend_from_slice(domain);
    }

    /// Tells whether a URI names the local user with this name in the domain with this canonical name. The schemes im
    /// and pres are accepted too.
    pub fn is_user(&self, name: &[u8], domain: &[u8], uri: &Uri<'_>) -> bool {
        let Some(uri) = uri.address() else { return false };
        let is_name = |user| unescaped(user).eq(name.iter().copied());
        let is_domain = || self.domain_of(uri.host).map_or_else(|| uri.host.is_lower(domain), |own| own == domain);
        uri.user.is_some_and(is_name) && is_domain()
    }

    /// Returns the configured names of the domain with this canonical name, the canonical one first.
    pub fn names_of<'a>(&'a self, domain: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        std::iter::once(domain).chain(self.domains.others(domain))
    }

    /// Returns the canonical name of the domain to show in place of an alias, or of an address or name of this server
    /// that the configuration does not name. Returns `None` for a name in `domains`, which is shown as written.
    pub fn shown_domain(&self, host: Host<'_>) -> Option<&[u8]> {
        self.domain_of(host).filter(|_| !self.domains.is_name(host))
    }
}

fn fits(listener: &ListenerAddress, transport: Transport, address: &SocketAddr) -> bool {
    listener.transport == transport
        && listener.bound.is_ipv4() == address.is_ipv4()
        // A socket bound to loopback can reach only loopback, and no other socket can reach loopback.
        && (listener.bound.ip().is_unspecified() || listener.bound.ip().is_loopback() == address.ip().is_loopback())
}

/// Name of every machine for itself.
const LOCALHOST: &[u8] = b"localhost";

/// Splits `host[:port]`; an IPv6 reference has brackets.
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

pub(super) fn ip_of(host: &[u8]) -> Option<IpAddr> {
    let host = std::str::from_utf8(host).ok()?;
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::routing::Scope;

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
    fn an_address_of_an_advertised_name_is_of_this_machine() {
        let listener = ListenerAddress {
            transport: Transport::Udp,
            bound: "10.0.0.1:5060".parse().unwrap(),
            sent_by: b"sip.example.org:5062"[..].into(),
            network: 0,
        };
        let [known, other] = ["203.0.113.1", "203.0.113.2"].map(|ip| ip.parse().unwrap());
        let machine = Machine::default().with_advertised(&[known]);
        let identity = Identity::on(machine, vec![listener], [""; 0], &[]);
        let scope_of = |ip| identity.machine().scope_of(ip);
        assert_eq!((scope_of(known), scope_of(other)), (Scope::Machine, Scope::World));
        let listens = |ip, port| identity.listens(Transport::Udp, &SocketAddr::new(ip, port));
        assert!(listens(known, 5062) && !listens(known, 5060) && !listens(other, 5062));
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

    #[test]
    fn a_host_has_one_canonical_domain() {
        let listener = ListenerAddress {
            transport: Transport::Udp,
            bound: "192.0.2.1:5060".parse().unwrap(),
            sent_by: b"sip.test:5070"[..].into(),
            network: 0,
        };
        let one = Identity::new(vec![listener.clone()], ["A.example"], &[]).with_names(["proxy.test"]);
        let one = one.with_aliases([("b.example", "a.example"), ("[2001:DB8::1]", "A.example"), ("c", "elsewhere")]);
        let two = Identity::new(vec![listener], ["a.example", "b.example", "a.example"], &[]);
        let two = two.with_aliases([("192.0.2.1", "b.example"), ("c.example", "b.example")]);
        let of = |identity: &Identity, host: &str| {
            let host = Host::parse(host.as_bytes()).unwrap();
            identity.domain_of(host).map(|domain| String::from_utf8_lossy(domain).into_owned())
        };
        for (host, in_one, in_two) in [
            ("a.EXAMPLE", "a.example", "a.example"),
            ("b.example", "a.example", "b.example"),
            ("[2001:db8:0::1]", "a.example", ""),
            ("192.0.2.1", "a.example", "b.example"),
            ("sip.test", "a.example", ""),
            ("proxy.test", "a.example", ""),
            ("c.example", "", "b.example"),
            ("c", "", ""),
            ("192.0.2.2", "", ""),
            ("sub.a.example", "", ""),
        ] {
            let found = [&one, &two].map(|identity| of(identity, host).unwrap_or_default());
            assert_eq!(found, [in_one, in_two], "{host}");
        }
        let aor = |identity: &Identity, uri: &str| {
            let mut aor = Vec::new();
            identity.write_aor(&Uri::parse(uri.as_bytes()).unwrap(), &mut aor);
            String::from_utf8(aor).unwrap()
        };
        for (uri, in_one, in_two) in [
            ("sip:%61l@B.example:5070", "al@a.example", "al@b.example"),
            ("sips:al@192.0.2.1", "al@a.example", "al@b.example"),
            ("sip:al@sip.test:5070", "al@a.example", "al@sip.test"),
            ("sip:al@elsewhere.test:5070", "al@elsewhere.test", "al@elsewhere.test"),
            ("tel:+1-2", "tel:+12", "tel:+12"),
        ] {
            assert_eq!([aor(&one, uri), aor(&two, uri)], [in_one, in_two], "{uri}");
        }
        let names: Vec<_> = one.names_of(b"a.example").map(String::from_utf8_lossy).collect();
        assert_eq!(names, ["a.example", "b.example", "[2001:db8::1]"]);
        assert_eq!(one.canonical_domain(b"192.0.2.1"), b"a.example");
        assert_eq!(two.canonical_domain(b"x.example"), b"x.example");
        // Rules see a name in `domains` as written, and in place of an alias the name of its domain.
        let list =
            Identity::new(Vec::new(), ["a.example", "b.example"], &[]).with_aliases([("b.example", "a.example")]);
        assert_eq!(list.shown_domain(Host::Name(b"b.example")), None);
        assert_eq!(one.shown_domain(Host::Name(b"B.example")), Some(&b"a.example"[..]));
    }
}
