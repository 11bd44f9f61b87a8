//! Target of the load, in any spelling that a person would try.

use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs};
use std::str::FromStr;
use strowger_core::Transport;

/// Parsed target: `192.0.2.1`, `pbx:5070`, `[2001:db8::1]:5060`, `sip:bob@example.org;transport=tcp`,
/// `sips:example.org`, `tls://example.org`, `tcp:192.0.2.1:5060`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Text before the `@`.
    pub user: Option<String>,
    /// Name or address, IPv6 without brackets.
    pub host: String,
    pub port: Option<u16>,
    pub transport: Option<Transport>,
}

/// Error of a target, with its cure.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}; write a host, host:port, [IPv6]:port or a SIP URI such as sip:bob@192.0.2.1:5060;transport=tcp")]
pub struct TargetError {
    what: String,
}

fn wrong(what: impl Into<String>) -> TargetError {
    TargetError { what: what.into() }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        let mut rest = text.trim();
        // As in a To header field, with or without a display name.
        if let Some((_, inner)) = rest.strip_suffix('>').and_then(|r| r.rsplit_once('<')) {
            rest = inner;
        }
        let mut transport = None;
        if let Some((scheme, after)) = scheme(rest) {
            transport = match scheme.as_str() {
                "sip" => None,
                "sips" => Some(Transport::Tls),
                "tel" => {
                    return Err(wrong(format!("'{text}' names no server; a number is called as sip:{after}@HOST")));
                }
                other => Some(
                    Transport::of(other.as_bytes())
                        .ok_or_else(|| wrong(format!("'{other}' in '{text}' is no scheme that calls are made by")))?,
                ),
            };
            rest = after;
        }
        // Header fields of a URI do not affect its destination.
        rest = rest.split_once('?').map_or(rest, |(before, _)| before);
        let (user, rest) = match rest.rsplit_once('@') {
            Some((user, rest)) => (Some(user.split([':', ';']).next().unwrap_or_default()), rest),
            None => (None, rest),
        };
        let mut parts = rest.split(';');
        let place = parts.next().unwrap_or_default().trim_end_matches('/');
        for parameter in parts {
            let Some((name, value)) = parameter.split_once('=') else { continue };
            if name.eq_ignore_ascii_case("transport") {
                let named = Transport::of(value.as_bytes())
                    .ok_or_else(|| wrong(format!("'{value}' in '{text}' is no transport: udp, tcp, tls, ws or wss")))?;
                // TCP below a sips URI is TLS (RFC 3261 section 26.2.2).
                transport = match (transport, named) {
                    (Some(Transport::Tls), Transport::Tcp) => Some(Transport::Tls),
                    (Some(Transport::Tls), Transport::Ws) => Some(Transport::Wss),
                    _ => Some(named),
                };
            }
        }
        let (host, port) = host_and_port(place).map_err(|what| wrong(format!("{what} in '{text}'")))?;
        if host.is_empty() {
            return Err(wrong(format!("there is no host in '{text}'")));
        }
        if port.is_none() && host.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong(format!("'{host}' is a port or a number, and no host")));
        }
        if host.contains(':') && host.split('%').next().is_none_or(|v6| v6.parse::<std::net::Ipv6Addr>().is_err()) {
            return Err(wrong(format!("'{host}' is neither host:port nor an IPv6 address")));
        }
        let strange = |c: char| !(c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '%'));
        if let Some(bad) = host.chars().find(|c| strange(*c)) {
            return Err(wrong(format!("'{bad}' cannot stand in a host, as in '{text}'")));
        }
        let user = user.filter(|u| !u.is_empty()).map(str::to_owned);
        Ok(Self { user, host: host.to_owned(), port, transport })
    }
}

/// Splits `name:` or `name://` from the text after it. `host:port` has no scheme, because a port consists of digits.
fn scheme(text: &str) -> Option<(String, &str)> {
    let (name, rest) = text.split_once(':')?;
    let lower = name.to_ascii_lowercase();
    if let Some(rest) = rest.strip_prefix("//") {
        return Some((lower, rest));
    }
    matches!(lower.as_str(), "sip" | "sips" | "tel" | "udp" | "tcp" | "tls" | "ws" | "wss")
        .then_some((lower, rest))
        // A host may be called `tcp`.
        .filter(|(_, rest)| rest.is_empty() || !rest.bytes().all(|b| b.is_ascii_digit()))
}

/// Parses `host`, `host:port`, `v6`, `[v6]`, `[v6]:port`.
fn host_and_port(text: &str) -> Result<(&str, Option<u16>), String> {
    let number = |port: &str| match port.parse() {
        Ok(0) | Err(_) => Err(format!("'{port}' is no port, 1 to 65535,")),
        Ok(port) => Ok(Some(port)),
    };
    if let Some(rest) = text.strip_prefix('[') {
        let (host, tail) = rest.split_once(']').ok_or_else(|| "the closing bracket is missing".to_owned())?;
        return match tail.strip_prefix(':') {
            Some(port) => Ok((host, number(port)?)),
            None if tail.is_empty() => Ok((host, None)),
            None => Err(format!("'{tail}' behind the bracket is no port")),
        };
    }
    match text.split_once(':') {
        Some((host, port)) if !port.contains(':') => Ok((host, number(port)?)),
        // An address, but not that of a host.
        _ if [":5060", ":5061"].iter().any(|port| text.ends_with(port)) => {
            Err("an IPv6 address with a port needs brackets, [::1]:5060,".into())
        }
        _ => Ok((text, None)),
    }
}

impl Target {
    /// Returns the host as in a URI: IPv6 in brackets.
    pub fn uri_host(&self) -> String {
        if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() }
    }

    /// Returns host and port as written.
    pub fn place(&self) -> String {
        match self.port {
            Some(port) => format!("{}:{port}", self.uri_host()),
            None => self.uri_host(),
        }
    }

    /// Returns the first address of the host, IPv4 first, with the default port of `transport` if none is given.
    ///
    /// # Errors
    /// The name does not resolve here: a sentence.
    pub fn resolve(&self, transport: Transport) -> Result<SocketAddr, String> {
        let port = self.port.unwrap_or_else(|| transport.default_port());
        let all = (self.host.as_str(), port).to_socket_addrs().map_err(|error| {
            format!(
                "the name {} is unknown here ({error}); write an address, or give the name to the system's resolver",
                self.host
            )
        })?;
        // An IPv4-mapped IPv6 address is used as IPv4.
        let plain = |mut address: SocketAddr| {
            if address.ip().to_canonical().is_ipv4() {
                address.set_ip(address.ip().to_canonical());
            }
            address
        };
        let mut all: Vec<SocketAddr> = all.map(plain).collect();
        all.sort_by_key(SocketAddr::is_ipv6);
        all.into_iter().next().ok_or_else(|| format!("the name {} has no address", self.host))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("sip:")?;
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        f.write_str(&self.place())?;
        match self.transport {
            Some(transport) => write!(f, ";transport={}", transport.text()),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spellings() {
        for (text, want) in [
            ("127.0.0.1", "sip:127.0.0.1"),
            ("pbx.example.org", "sip:pbx.example.org"),
            ("pbx:5070", "sip:pbx:5070"),
            ("::1", "sip:[::1]"),
            ("[::1]", "sip:[::1]"),
            ("[::1]:5070", "sip:[::1]:5070"),
            ("sip:192.0.2.1", "sip:192.0.2.1"),
            ("SIP:bob@Example.org", "sip:bob@Example.org"),
            ("<sip:bob@example.org>", "sip:bob@example.org"),
            ("\"Bob <B>\" <sip:bob@example.org;transport=tcp>", "sip:bob@example.org;transport=tcp"),
            ("bob@example.org:5080", "sip:bob@example.org:5080"),
            ("sip:bob:secret@example.org", "sip:bob@example.org"),
            ("sip:example.org;transport=tcp", "sip:example.org;transport=tcp"),
            ("sip:example.org;lr;transport=WSS?x=y", "sip:example.org;transport=wss"),
            ("sips:example.org", "sip:example.org;transport=tls"),
            ("sips:example.org;transport=tcp", "sip:example.org;transport=tls"),
            ("tcp://192.0.2.1", "sip:192.0.2.1;transport=tcp"),
            ("tls://example.org:5071/", "sip:example.org:5071;transport=tls"),
            ("wss://example.org", "sip:example.org;transport=wss"),
            ("udp:127.0.0.1:5070", "sip:127.0.0.1:5070;transport=udp"),
            ("sip://127.0.0.1:5070", "sip:127.0.0.1:5070"),
            (" 127.0.0.1 ", "sip:127.0.0.1"),
            ("tcp:5060", "sip:tcp:5060"),
            ("sip:[2001:db8::1]:5060;transport=udp", "sip:[2001:db8::1]:5060;transport=udp"),
        ] {
            let target: Target = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!(target.to_string(), want, "{text}");
        }
    }

    #[test]
    fn wrong_targets_are_explained() {
        for (text, part) in [
            ("", "no host"),
            ("sip:", "no host"),
            ("5060", "no host"),
            ("sip:bob@4912345", "no host"),
            ("host:99999", "no port"),
            ("host:0", "no port"),
            ("[::1", "closing bracket"),
            ("::1:5060", "with a port needs brackets"),
            ("tcp://2001:db8::1:5061", "with a port needs brackets"),
            ("[::1]x", "no port"),
            ("http://example.org", "'http'"),
            ("some:host:x", "neither host:port"),
            ("sip:host;transport=sctp", "'sctp'"),
            ("a host", "' ' cannot stand"),
            ("tel:+4912345", "sip:+4912345@HOST"),
        ] {
            let error = text.parse::<Target>().unwrap_err().to_string();
            assert!(error.contains(part) && error.contains("sip:bob@"), "{text}: {error}");
        }
    }

    #[test]
    fn addresses() {
        let target: Target = "127.0.0.1".parse().unwrap();
        assert_eq!(target.resolve(Transport::Tls).unwrap().to_string(), "127.0.0.1:5061");
        let target: Target = "[::1]:7".parse().unwrap();
        assert_eq!(target.resolve(Transport::Udp).unwrap().to_string(), "[::1]:7");
        let target: Target = "[::ffff:127.0.0.1]:7".parse().unwrap();
        assert_eq!(target.resolve(Transport::Udp).unwrap().to_string(), "127.0.0.1:7");
    }
}
