//! Servers of caches in other processes: protocol, addresses and credentials.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// Protocol and arrangement of the servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Service {
    /// Memcached 1.6, by its meta commands. Each of several servers has its share of the keys, the same for each client
    /// with the same list.
    Memcached,
    /// One Redis server, version 6 or later, or another that speaks its protocol.
    Redis {
        /// Number of the database.
        database: u32,
    },
    /// Master of a group of Redis servers; the listed servers are its Sentinels.
    Sentinel {
        /// Name of the group.
        group: String,
        /// Number of the database.
        database: u32,
        /// Credentials for the Sentinels.
        credentials: Option<Credentials>,
    },
    /// Redis Cluster; the listed servers are some of its nodes.
    Cluster,
}

impl Service {
    /// Returns the default port.
    pub const fn port(&self) -> u16 {
        match self {
            Self::Memcached => 11_211,
            Self::Redis { .. } | Self::Cluster => 6_379,
            Self::Sentinel { .. } => 26_379,
        }
    }
}

/// Credentials for a server.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// User; empty for a Redis with a password alone.
    pub user: String,
    /// Password.
    pub password: String,
}

/// Omits the password, which must not reach a log.
impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").field("user", &self.user).finish_non_exhaustive()
    }
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// Host name or address, and a port; 0: the default port of the service.
    Tcp(String, u16),
    /// Socket in the file system.
    Unix(PathBuf),
}

impl Endpoint {
    /// Sets the port if none was given.
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

    /// Reads `192.0.2.7`, `cache.example:6379`, `[2001:db8::1]:6379`, `/run/redis.sock`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.starts_with('/') {
            return Ok(Self::Unix(text.into()));
        }
        let (host, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, rest)) => (host, Some(rest.strip_prefix(':').ok_or("which has something behind the bracket")?)),
            // An IPv6 address without brackets has no port.
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
