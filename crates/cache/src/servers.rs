//! Servers of caches in other processes: what is spoken with them, where they are, and what they are shown.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// What is spoken with servers, and how they belong together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// Memcached 1.6, by its meta commands. Of several servers each has its share of the keys, the same share for each client with the same
    /// list.
    Memcached,
    /// One Redis server, version 6 or later, or another that speaks its protocol.
    Redis {
        /// Its number.
        database: u32,
    },
    /// The master of a group of Redis servers; the servers that are named are its Sentinels.
    Sentinel {
        /// The name of the group.
        group: String,
        /// Its number.
        database: u32,
        /// What Sentinels are shown.
        credentials: Option<Credentials>,
    },
    /// A Redis Cluster; the servers that are named are some of it.
    Cluster,
}

impl Service {
    /// The port where servers listen by default.
    pub const fn port(&self) -> u16 {
        match self {
            Self::Memcached => 11_211,
            Self::Redis { .. } | Self::Cluster => 6_379,
            Self::Sentinel { .. } => 26_379,
        }
    }
}

/// Proves to a server who asks.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// A user; empty for the only one of a Redis that has a password alone.
    pub user: String,
    /// The password of it.
    pub password: String,
}

/// A password never gets into a log.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Where a server listens.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// A name or an address, and a port; 0: the one of the service.
    Tcp(String, u16),
    /// A socket in the file system.
    Unix(PathBuf),
}

impl Endpoint {
    /// With a port where none was given.
    #[must_use]
    pub fn or_port(self, port: u16) -> Self {
        match self {
            Self::Tcp(host, 0) => Self::Tcp(host, port),
            other => other,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl FromStr for Endpoint {
    type Err = &'static str;

    /// `192.0.2.7`, `cache.example:6379`, `[2001:db8::1]:6379`, `/run/redis.sock`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or("which has something behind the bracket")?)),
            // An address of IPv6 without brackets has no port.
            None if text.matches(':').count() > 1 => (text, None),
            None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
        };
        let is_host = |c: char| c.is_ascii_alphanumeric() || ".-_:%".contains(c);
        if host.is_empty() || !host.chars().all(is_host) {
            return Err("which names no host");
        }
        if host.contains(':') && host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err("which is no address of IPv6");
        }
        let port = match port.map(str::parse) {
            None => 0,
            Some(Ok(port)) if port > 0 => port,
            Some(_) => return Err("whose port is not between 1 and 65535"),
        };
        Ok(Self::Tcp(host.into(), port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_read_and_written() {
        for (text, shown) in [
            ("192.0.2.7", "192.0.2.7:6379"),
            ("cache.example:11", "cache.example:11"),
            ("[2001:db8::1]:77", "[2001:db8::1]:77"),
            ("[2001:db8::1]", "[2001:db8::1]:6379"),
            ("2001:db8::1", "[2001:db8::1]:6379"),
            ("/run/redis.sock", "/run/redis.sock"),
        ] {
            assert_eq!(text.parse::<Endpoint>().expect(text).or_port(6379).to_string(), shown);
        }
        for text in ["", ":1", "a b", "host:0", "host:65536", "host:x", "[::1]x", "[::1", "1:2:zz"] {
            text.parse::<Endpoint>().expect_err(text);
        }
    }

    #[test]
    fn a_password_is_not_shown() {
        let shown = format!("{:?}", Credentials { user: "strowger".into(), password: "sesame".into() });
        assert!(shown.contains("strowger") && !shown.contains("sesame"), "{shown}");
    }
}
