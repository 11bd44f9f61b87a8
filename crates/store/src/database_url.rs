//! Address of a database server as one text: `mysql://USER:PASSWORD@HOST:PORT/DATABASE`, with `?tls=required` and
//! `&ca=FILE` for a protected connection. No output of this module contains the password.

use std::fmt;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Kind of database server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DatabaseKind {
    /// MariaDB or MySQL: `mysql://`, `mariadb://`.
    MariaDb,
    /// PostgreSQL: `postgresql://`, `postgres://`.
    PostgreSql,
}

impl DatabaseKind {
    /// Returns the scheme of URLs of this kind.
    pub const fn scheme(self) -> &'static str {
        match self {
            Self::MariaDb => "mysql",
            Self::PostgreSql => "postgresql",
        }
    }

    const fn default_port(self) -> u16 {
        match self {
            Self::MariaDb => 3306,
            Self::PostgreSql => 5432,
        }
    }

    fn of_scheme(scheme: &str) -> Option<Self> {
        match scheme {
            "mysql" | "mariadb" => Some(Self::MariaDb),
            "postgresql" | "postgres" => Some(Self::PostgreSql),
            _ => None,
        }
    }
}

/// Address of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DatabaseAddress {
    /// TCP.
    Host {
        /// Host name or address; IPv6 without brackets.
        host: String,
        /// Port.
        port: u16,
    },
    /// Socket on this machine: MariaDB's socket file, or the folder of PostgreSQL's.
    Socket(PathBuf),
}

/// Protection of a connection (RFC 8446).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum DatabaseTls {
    /// None: for this machine and closed networks.
    #[default]
    Off,
    /// TLS: the server must show a certificate for its host from an authority of this PEM file; `None`: from one that
    /// the system trusts.
    Required(Option<PathBuf>),
}

/// Address of a database, with the login.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl {
    /// Kind of server.
    pub kind: DatabaseKind,
    /// Address of the server.
    pub address: DatabaseAddress,
    /// User name of the login.
    pub user: String,
    /// Password of the login.
    pub password: Option<String>,
    /// Database name.
    pub database: String,
    /// Protection of the connection.
    pub tls: DatabaseTls,
}

impl DatabaseUrl {
    /// Displayed in place of a password.
    pub const MASK: &'static str = "********";

    /// Resolves the relative path of the authorities against this folder.
    pub fn resolve(&mut self, folder: &Path) {
        if let DatabaseTls::Required(Some(path)) = &mut self.tls {
            *path = folder.join(&*path);
        }
    }

    /// Tells whether traffic to the server stays on this machine, judged by the address.
    pub fn is_local(&self) -> bool {
        match &self.address {
            DatabaseAddress::Socket(_) => true,
            DatabaseAddress::Host { host, .. } => {
                host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
            }
        }
    }
}

/// Displays the URL without the password.
impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.kind.scheme(), encoded(&self.user))?;
        if self.password.is_some() {
            write!(f, ":{}", Self::MASK)?;
        }
        match &self.address {
            DatabaseAddress::Host { host, port } if host.contains(':') => write!(f, "@[{host}]:{port}")?,
            DatabaseAddress::Host { host, port } => write!(f, "@{host}:{port}")?,
            DatabaseAddress::Socket(_) => write!(f, "@")?,
        }
        write!(f, "/{}", encoded(&self.database))?;
        let file = |path: &Path| encoded(&path.to_string_lossy());
        match (&self.address, &self.tls) {
            (DatabaseAddress::Socket(path), _) => write!(f, "?socket={}", file(path)),
            (DatabaseAddress::Host { .. }, DatabaseTls::Off) => Ok(()),
            (DatabaseAddress::Host { .. }, DatabaseTls::Required(None)) => f.write_str("?tls=required"),
            (DatabaseAddress::Host { .. }, DatabaseTls::Required(Some(path))) => {
                write!(f, "?tls=required&ca={}", file(path))
            }
        }
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Errors are the end of a sentence whose subject is the supposed URL; they contain no part of the password.
impl FromStr for DatabaseUrl {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.chars().any(char::is_control) {
            return Err("contains a control character".into());
        }
        let (scheme, rest) = text.split_once("://").ok_or("is no URL of a database server")?;
        let kind = DatabaseKind::of_scheme(scheme).ok_or("begins with the name of no database server that is known")?;
        let (rest, options) = match rest.split_once('?') {
            None => (rest, Options::default()),
            Some((rest, options)) => (rest, Options::read(options)?),
        };
        // Passwords may contain any character; hosts and databases contain no `@`.
        let (login, place) = rest.rsplit_once('@').ok_or("names no user")?;
        let (user, password) = match login.split_once(':') {
            None => (login, None),
            Some((user, password)) => (user, Some(decoded(password)?)),
        };
        let (authority, database) = place.split_once('/').ok_or("names no database")?;
        let (user, database) = (decoded(user)?, decoded(database)?);
        if user.is_empty() {
            return Err("names no user".into());
        }
        if database.is_empty() || database.contains('/') {
            return Err("names no database".into());
        }
        let address = match options.socket {
            Some(_) if options.tls != DatabaseTls::Off => return Err("asks for TLS by a socket of this machine".into()),
            Some(path) if authority.is_empty() => DatabaseAddress::Socket(path.into()),
            Some(_) => return Err("names both a host and a socket".into()),
            None => {
                let (host, port) = host_and_port(authority)?;
                DatabaseAddress::Host { host, port: port.unwrap_or_else(|| kind.default_port()) }
            }
        };
        Ok(Self { kind, address, user, password, database, tls: options.tls })
    }
}

/// Options behind the `?` of a URL.
#[derive(Default)]
struct Options {
    socket: Option<String>,
    tls: DatabaseTls,
}

impl Options {
    fn read(text: &str) -> Result<Self, String> {
        // The text may be a password with a question mark, which must not be shown.
        let unknown = || "has something behind \"?\" that is not socket=PATH, tls=required or ca=FILE".to_owned();
        let (mut socket, mut tls, mut ca) = (None, None, None);
        for option in text.split('&') {
            let (name, value) = option.split_once('=').filter(|(_, value)| !value.is_empty()).ok_or_else(unknown)?;
            let place = match name {
                "socket" => &mut socket,
                "tls" if value == "required" => &mut tls,
                "ca" => &mut ca,
                _ => return Err(unknown()),
            };
            if place.replace(decoded(value)?).is_some() {
                return Err(format!("names {name} twice"));
            }
        }
        let tls = match (tls, ca) {
            (Some(_), ca) => DatabaseTls::Required(ca.map(PathBuf::from)),
            (None, None) => DatabaseTls::Off,
            (None, Some(_)) => return Err("names a ca without tls=required".into()),
        };
        Ok(Self { socket, tls })
    }
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>), String> {
    let number = |port: &str| match port.parse() {
        Ok(0) | Err(_) => Err(format!("names the port {port:?}, which is not a number from 1 to 65535")),
        Ok(port) => Ok(Some(port)),
    };
    if let Some(rest) = authority.strip_prefix('[') {
        let (host, rest) = rest.split_once(']').ok_or("names no host")?;
        if host.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(format!("names the host [{host}], which is not an IPv6 address"));
        }
        return match rest.strip_prefix(':') {
            None if rest.is_empty() => Ok((host.into(), None)),
            Some(port) => Ok((host.into(), number(port)?)),
            None => Err("has something behind its host that is not a port".into()),
        };
    }
    let (host, port) = match authority.split_once(':') {
        None => (authority, None),
        Some((host, port)) => (host, number(port)?),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    match host {
        "" => Err("names no host".into()),
        host if host.chars().all(is_name) => Ok((host.into(), port)),
        host => Err(format!("names the host {host:?}, which is no host")),
    }
}

/// Decodes percent-encoding.
fn decoded(text: &str) -> Result<String, String> {
    const WRONG: &str =
        "has a % without two hexadecimal digits behind it that stand for text: write %25 for the character itself";
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let byte = match byte {
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                let (high, low) = digit().zip(digit()).ok_or(WRONG)?;
                // Two hexadecimal digits are below 256.
                (high * 16 + low) as u8
            }
            byte => byte,
        };
        bytes.push(byte);
    }
    String::from_utf8(bytes).map_err(|_| WRONG.into())
}

fn encoded(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => encoded.push(byte.into()),
            byte => encoded.push_str(&format!("%{byte:02X}")),
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<DatabaseUrl, String> {
        text.parse()
    }

    #[test]
    fn urls_are_read_and_shown_without_their_password() {
        for (text, host, port, shown) in [
            ("mysql://u:p@db.example:3307/d", "db.example", 3307, "mysql://u:********@db.example:3307/d"),
            ("mariadb://u@127.0.0.1/d", "127.0.0.1", 3306, "mysql://u@127.0.0.1:3306/d"),
            ("postgres://u:p@[::1]/d", "::1", 5432, "postgresql://u:********@[::1]:5432/d"),
            (
                "postgresql://a%40b:@[2001:db8::1]:5433/d",
                "2001:db8::1",
                5433,
                "postgresql://a%40b:********@[2001:db8::1]:5433/d",
            ),
        ] {
            let url = read(text).unwrap_or_else(|error| panic!("{text} {error}"));
            assert_eq!(url.address, DatabaseAddress::Host { host: host.into(), port }, "{text}");
            assert_eq!((url.to_string(), format!("{url:?}")), (shown.into(), shown.into()));
        }
        let odd = read("mysql://u:p@ss/w:o%3Frd%25@h/d").expect("passwords have any character");
        assert_eq!((odd.password.as_deref(), odd.database.as_str()), (Some("p@ss/w:o?rd%"), "d"));
        let socket = read("mysql://u:p@/d?socket=/run/mysqld/mysqld.sock").expect("a socket");
        assert_eq!(socket.address, DatabaseAddress::Socket("/run/mysqld/mysqld.sock".into()));
        assert_eq!(socket.to_string(), "mysql://u:********@/d?socket=/run/mysqld/mysqld.sock");
        assert!(socket.is_local() && read("mysql://u@[::1]/d").is_ok_and(|url| url.is_local()));
        assert!(!odd.is_local());
    }

    #[test]
    fn protection_is_a_part_of_the_url() {
        let tls = |text: &str| read(text).unwrap_or_else(|error| panic!("{text} {error}")).tls;
        assert_eq!(tls("mysql://u:p@h/d"), DatabaseTls::Off);
        assert_eq!(tls("mysql://u:p@h/d?tls=required"), DatabaseTls::Required(None));
        let file = Some("own ca.pem".into());
        assert_eq!(tls("mysql://u:p@h/d?ca=own%20ca.pem&tls=required"), DatabaseTls::Required(file));
        let mut url = read("postgresql://u:p@h/d?tls=required&ca=a/ca.pem").expect("right");
        url.resolve(Path::new("/etc"));
        assert_eq!(url.to_string(), "postgresql://u:********@h:5432/d?tls=required&ca=/etc/a/ca.pem");
        let url = read("mysql://u@h/d?tls=required").expect("right");
        assert_eq!(read(&url.to_string()), Ok(url));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_password() {
        for (text, part) in [
            ("hunter2", "no URL"),
            ("sqlite://u:hunter2@h/d", "no database server that is known"),
            ("mysql://h/d", "names no user"),
            ("mysql://:hunter2@h/d", "names no user"),
            ("mysql://u:hunter2@h", "names no database"),
            ("mysql://u:hunter2@h/", "names no database"),
            ("mysql://u:hunter2@/d", "names no host"),
            ("mysql://u:hunter2@h:0/d", "the port \"0\""),
            ("mysql://u:hunter2@h:99999/d", "the port \"99999\""),
            ("mysql://u:hunter2@h h/d", "which is no host"),
            ("mysql://u:hunter2@[h]/d", "not an IPv6 address"),
            ("mysql://u:hunter2@[::1]x/d", "is not a port"),
            ("mysql://u:hunter2@h/d?ssl=hunter2", "is not socket=PATH"),
            ("mysql://u:hunter2@h/d?tls=hunter2", "is not socket=PATH"),
            ("mysql://u:hunter2@h/d?tls=required&", "is not socket=PATH"),
            ("mysql://u:hunter2@h/d?tls=required&tls=required", "names tls twice"),
            ("mysql://u:hunter2@h/d?ca=/hunter2", "a ca without tls=required"),
            ("mysql://u:hunter2@/d?socket=/s&tls=required", "TLS by a socket"),
            ("mysql://u:hunter2@h/d?socket=/s", "both a host and a socket"),
            ("mysql://u:hunter2%zz@h/d", "hexadecimal"),
            ("mysql://u:hunter2%ff@h/d", "hexadecimal"),
            ("mysql://u:hunter2\n@h/d", "control character"),
        ] {
            let error = read(text).expect_err(text);
            assert!(error.contains(part) && !error.contains("hunter2"), "{text}: {error}");
        }
    }
}
