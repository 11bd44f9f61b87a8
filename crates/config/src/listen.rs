//! Listeners: `listen = ["udp:127.0.0.1:5060"]`, or one `[[listener]]` table each.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use strowger_core::Transport;

use super::auth::Algorithm;
use super::ban::Network;
use super::certificate::{Certificate, CertificateFiles};
use super::key::{Rule, Text};
use super::name::Reference;
use super::reader::{ANY, section};
use super::table_text::Listed;

impl Text for Transport {
    const EXPECTED: &'static str = "\"udp\", \"tcp\", \"tls\", \"ws\" or \"wss\"";

    fn from_text(text: &str) -> Result<Self, String> {
        Self::of(text.as_bytes()).ok_or_else(|| format!("is {text:?}, a transport that does not exist"))
    }

    fn to_text(&self) -> String {
        self.text().into()
    }
}

/// A listener in its short form, `TRANSPORT:ADDRESS[:PORT]`.
///
/// Port 0 lets the system choose. IPv6 addresses are in brackets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenAddress {
    /// Transport of the listener.
    pub transport: Transport,
    /// Address and port it binds.
    pub address: SocketAddr,
}

impl FromStr for ListenAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text
            .split_once(':')
            .ok_or_else(|| format!("is {text:?}, which is not of the form TRANSPORT:ADDRESS:PORT"))?;
        let transport = Transport::of(name.as_bytes())
            .ok_or_else(|| format!("names the transport {name:?}, which does not exist"))?;
        let wrong_address = || format!("has {rest:?} where an IP address and a port belong");
        let (host, port) = match rest.strip_prefix('[') {
            Some(inner) => {
                let (host, after) = inner.split_once(']').ok_or_else(wrong_address)?;
                let port = match after {
                    "" => None,
                    _ => Some(after.strip_prefix(':').ok_or_else(wrong_address)?),
                };
                (IpAddr::V6(host.parse().map_err(|_| wrong_address())?), port)
            }
            None => {
                let (host, port) = match rest.split_once(':') {
                    Some((_, port)) if port.contains(':') => {
                        return Err(format!("has the IPv6 address {rest:?} without brackets"));
                    }
                    Some((host, port)) => (host, Some(port)),
                    None => (rest, None),
                };
                (IpAddr::V4(host.parse().map_err(|_| wrong_address())?), port)
            }
        };
        let port = match port {
            Some(port) => port.parse().map_err(|_| format!("has the port {port:?}, which is not from 0 to 65535"))?,
            None => transport.default_port(),
        };
        Ok(Self { transport, address: SocketAddr::new(host, port) })
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.transport.text(), self.address)
    }
}

impl Text for ListenAddress {
    const EXPECTED: &'static str = "TRANSPORT:ADDRESS:PORT such as \"udp:192.0.2.10:5060\" or \"tls:[2001:db8::10]:5061\", transport udp, tcp, tls, ws or wss";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

/// Name by which peers reach a listener: the host and port in Via, Record-Route and Contact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Advertised {
    /// Host name or address; an IPv6 address is in brackets.
    pub host: String,
    /// Port, if it differs from the bound one.
    pub port: Option<u16>,
}

impl FromStr for Advertised {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.contains("://") {
            return Err(format!("is {text:?}, which is a URL: write its host alone"));
        }
        if let Some((scheme @ ("sip" | "sips"), rest)) = text.split_once(':') {
            return Err(format!("is {text:?}, which is a URI: write it without {scheme}:, as {rest:?}"));
        }
        let colon = if text.starts_with('[') { text.find("]:").map(|at| at + 1) } else { text.find(':') };
        let (host, port) = match colon {
            Some(colon) => (&text[..colon], Some(&text[colon + 1..])),
            None => (text, None),
        };
        let host = super::domains::host(host).map_err(|_| format!("is {text:?}, which is not a host or HOST:PORT"))?;
        let unspecified = host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
        if unspecified {
            return Err(format!("is {host}, an address that no peer can send to"));
        }
        let port = match port.map(str::parse::<u16>) {
            None => None,
            Some(Ok(port)) if port > 0 => Some(port),
            Some(_) => return Err(format!("is {text:?}, whose port is not from 1 to 65535")),
        };
        Ok(Self { host, port })
    }
}

impl fmt::Display for Advertised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.port {
            Some(port) => write!(f, "{}:{port}", self.host),
            None => f.write_str(&self.host),
        }
    }
}

impl Text for Advertised {
    const EXPECTED: &'static str =
        "a host or HOST:PORT that peers can reach, such as \"sip.example.org\" or \"203.0.113.5:5060\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

section! {
    /// One listener in its long form; repeat the table for each.
    pub(crate) struct ListenerTable = "listener" {
        /// Transport: how messages arrive here.
        pub transport: Transport = Transport::Udp, ANY;
        /// Address of this machine to bind; `0.0.0.0` or `::` for all of them (then set `advertise`).
        pub address: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST), ANY;
        /// Port to bind; by default 5060 for udp and tcp, 5061 for tls, 80 for ws, 443 for wss; 0 lets the system choose.
        pub port: Option<u16> = None, Rule::number(0, 65_535).or("default");
        /// Host or host:port by which peers know this listener, if it differs from the bound address (behind NAT, or bound to all addresses). The
        /// server writes it into Via and Record-Route (RFC 3261 sections 18.1.1 and 16.6).
        pub advertise: Option<Advertised> = None, ANY.or("");
        /// Name of the network to which this listener belongs. A request that is forwarded from one network to another gets two Record-Route values,
        /// one for each side (RFC 5658).
        pub network: String = "default".into(), ANY;
        /// Networks of load balancers whose connections to this tcp, tls, ws or wss listener begin with a header of the PROXY protocol, version 1 or 2. The
        /// address in the header is the source of all messages of the connection, for rules, bans, limits and the log. A connection without a valid
        /// header is closed. A header from another source is not read, and refused like any garbage. A balancer is never banned and counts for no limit
        /// of connections by source; this holds for every peer in these networks, so name the balancers alone.
        pub proxy_protocol_from: Vec<Network> = Vec::new(), ANY;
        /// Algorithms of digest authentication that this listener offers, as in `[auth]`, such as MD5 alone for browsers while other listeners offer
        /// SHA-256; an empty list: the algorithms of `[auth]`.
        pub algorithms: Vec<Algorithm> = Vec::new(), ANY;
        /// Names of the `[[certificate]]` tables that a tls or wss listener shows. It selects the certificate that is valid for the server name which
        /// the client requests (SNI, RFC 6066 section 3), or else the first; an empty list: `certificate`.
        pub certificates: Vec<Reference<Certificate>> = Vec::new(), ANY;
        /// Certificate chain in PEM for tls and wss, in place of `certificates`; empty: the chain of `[tls]`.
        pub certificate: Option<PathBuf> = None, ANY.or("");
        /// Private key in PEM of `certificate`; empty: the key of `[tls]`.
        pub key: Option<PathBuf> = None, ANY.or("");
        /// Authorities in PEM; if named, every client must show a certificate that one of them signed; empty: the authorities of `[tls]`.
        pub client_ca: Option<PathBuf> = None, ANY.or("");
    }
}

/// Certificates and client authorities of a tls or wss listener.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Certificates, chosen by the server name that a client asks for (RFC 6066 section 3); at least one; the first is the default.
    pub certificates: Vec<CertificateFiles>,
    /// Authorities in PEM; if set, every client must show a certificate that one of them signed.
    pub client_ca: Option<PathBuf>,
}

/// Complete listener, with the defaults of both forms filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listener {
    /// Transport of the listener.
    pub transport: Transport,
    /// Address and port to bind; port 0 lets the system choose.
    pub address: SocketAddr,
    /// Name by which peers know the listener; `None`: the bound address.
    pub advertise: Option<Advertised>,
    /// Name of its network (RFC 5658).
    pub network: String,
    /// Load balancers that begin each connection with a header of the PROXY protocol.
    pub proxy_protocol_from: Vec<Network>,
    /// Algorithms of digest authentication that the listener offers: its own list, or the list of `[auth]`.
    pub algorithms: Vec<Algorithm>,
    /// Names of its certificates, in their order; empty: its certificate has no name.
    pub certificates: Vec<Reference<Certificate>>,
    /// Certificates of the listener; after the checks set for each tls or wss listener, and for no other listener.
    pub identity: Option<Identity>,
}

impl Listener {
    /// Tells whether only this machine can reach the listener.
    pub const fn is_loopback(&self) -> bool {
        match self.address.ip() {
            IpAddr::V4(address) => address.is_loopback(),
            IpAddr::V6(address) => address.is_loopback(),
        }
    }

    /// Returns the host by which peers know this listener, an IPv6 address in brackets; `None` if the listener is bound to all addresses and
    /// `advertise` is not set.
    pub fn host(&self) -> Option<String> {
        match (&self.advertise, self.address.ip()) {
            (Some(advertised), _) => Some(advertised.host.clone()),
            (None, address) if address.is_unspecified() => None,
            (None, IpAddr::V4(address)) => Some(address.to_string()),
            (None, IpAddr::V6(address)) => Some(format!("[{address}]")),
        }
    }
}

impl fmt::Display for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ListenAddress { transport: self.transport, address: self.address }.fmt(f)
    }
}

impl From<ListenAddress> for Listener {
    fn from(listen: ListenAddress) -> Self {
        Self {
            transport: listen.transport,
            address: listen.address,
            advertise: None,
            network: "default".into(),
            proxy_protocol_from: Vec::new(),
            algorithms: Vec::new(),
            certificates: Vec::new(),
            identity: None,
        }
    }
}

impl From<&ListenerTable> for ListenAddress {
    fn from(table: &ListenerTable) -> Self {
        let port = table.port.unwrap_or_else(|| table.transport.default_port());
        Self { transport: table.transport, address: (table.address, port).into() }
    }
}

impl From<ListenerTable> for Listener {
    /// Copies the values of the table; defaults that come from other tables are not yet filled in.
    fn from(table: ListenerTable) -> Self {
        let ListenAddress { transport, address } = (&table).into();
        let files = CertificateFiles::of(table.certificate, table.key);
        Self {
            transport,
            address,
            advertise: table.advertise,
            network: table.network,
            proxy_protocol_from: table.proxy_protocol_from,
            algorithms: table.algorithms,
            certificates: table.certificates,
            identity: Some(Identity { certificates: files.into_iter().collect(), client_ca: table.client_ca }),
        }
    }
}

impl Listed for Listener {
    type Table = ListenerTable;

    fn table(&self) -> Option<ListenerTable> {
        let identity = self.identity.as_ref();
        let unnamed = identity.filter(|_| self.certificates.is_empty());
        let files = unnamed.and_then(|identity| identity.certificates.first());
        Some(ListenerTable {
            transport: self.transport,
            address: self.address.ip(),
            port: Some(self.address.port()),
            advertise: self.advertise.clone(),
            network: self.network.clone(),
            proxy_protocol_from: self.proxy_protocol_from.clone(),
            algorithms: self.algorithms.clone(),
            certificates: self.certificates.clone(),
            certificate: files.map(|files| files.certificate.clone()),
            key: files.map(|files| files.key.clone()),
            client_ca: identity.and_then(|identity| identity.client_ca.clone()),
        })
    }

    fn is_shown(&self, key: &str) -> bool {
        let is_of_another = match key {
            "certificates" | "certificate" | "key" | "client_ca" => !self.transport.is_secure(),
            "proxy_protocol_from" => !self.transport.is_reliable(),
            _ => false,
        };
        !is_of_another
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_forms_are_written_as_they_are_read() {
        for text in
            ["udp:127.0.0.1:5060", "tcp:0.0.0.0:0", "tls:[::1]:5061", "ws:[2001:db8::1]:80", "wss:192.0.2.1:443"]
        {
            assert_eq!(text.parse::<ListenAddress>().map(|listen| listen.to_string()), Ok(text.to_owned()));
        }
    }

    #[test]
    fn the_port_follows_the_transport() {
        for (text, port) in [
            ("udp:127.0.0.1", 5060),
            ("tcp:127.0.0.1", 5060),
            ("TLS:[::1]", 5061),
            ("ws:[::]", 80),
            ("wss:10.0.0.1", 443),
        ] {
            assert_eq!(text.parse::<ListenAddress>().expect(text).address.port(), port, "{text}");
        }
    }

    #[test]
    fn short_forms_that_are_wrong() {
        for (text, part) in [
            ("127.0.0.1", "TRANSPORT"),
            ("sctp:127.0.0.1:5060", "sctp"),
            ("udp:localhost:5060", "IP address"),
            ("udp:127.0.0.1:65536", "port"),
            ("udp:127.0.0.1:", "port"),
            ("udp:::1:5060", "brackets"),
            ("udp:[::1", "IP address"),
            ("udp:[::1]5060", "IP address"),
            ("udp:", "IP address"),
        ] {
            let error = text.parse::<ListenAddress>().expect_err(text);
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn advertised_names() {
        for text in ["sip.example.org", "sip.example.org:5070", "203.0.113.5", "[2001:db8::1]:5060", "[2001:db8::1]"] {
            assert_eq!(text.parse::<Advertised>().map(|name| name.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "0.0.0.0", "[::]:5060", "a b", "host:0", "host:x", "http://x", "2001:db8::1"] {
            assert!(text.parse::<Advertised>().is_err(), "{text}");
        }
    }
}
