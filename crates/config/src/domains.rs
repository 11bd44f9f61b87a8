//! Domains this server is responsible for, and the keys above the first table of the file.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::ops::Deref;

use super::key::Text;
use super::listen::ListenAddress;
use super::reader::{ANY, section};
use super::table_text::Listed;

/// A domain of a SIP URI: a host name, an IPv4 address or an IPv6 address in brackets; in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Domain(String);

impl Domain {
    /// Returns the text, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Deref for Domain {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::str::FromStr for Domain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        host(text).map(Self)
    }
}

impl Text for Domain {
    const EXPECTED: &'static str = "a domain alone, such as \"example.org\", \"192.0.2.10\" or \"[2001:db8::10]\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn to_text(&self) -> String {
        self.0.clone()
    }
}

/// Parses a host as in RFC 3261 section 25.1, to lower case and without a dot at the end.
pub(super) fn host(text: &str) -> Result<String, String> {
    let wrong = || Err(format!("is {text:?}, which is not a host name or address"));
    if let Some(inner) = text.strip_prefix('[') {
        return match inner.strip_suffix(']').map(str::parse::<Ipv6Addr>) {
            Some(Ok(address)) => Ok(format!("[{address}]")),
            _ => wrong(),
        };
    }
    if let Ok(IpAddr::V4(address)) = text.parse::<IpAddr>() {
        return Ok(address.to_string());
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    let label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    // A name whose last label is a number could be confused with an address, so it is no host name (RFC 3696 section 2).
    let last_is_number = name.rsplit('.').next().is_some_and(|last| last.bytes().all(|byte| byte.is_ascii_digit()));
    if name.len() > 253 || !name.split('.').all(label) || last_is_number {
        return wrong();
    }
    Ok(name.to_ascii_lowercase())
}

/// A domain whose users live here, and the realm of their passwords.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalDomain {
    /// Part after the `@` of its users.
    pub name: Domain,
    /// Realm of its users' passwords. In domains with the same realm, a user name means the same user.
    pub realm: String,
    /// True: a `[[domain]]` table defines the domain and its realm. The realm of other domains is [`Config::realm`](super::Config::realm).
    pub has_table: bool,
    /// Further names from the table.
    pub aliases: Vec<Domain>,
}

impl LocalDomain {
    /// Builds the domain of a table; `None` if the table has no name.
    pub(super) fn of(table: DomainTable) -> Option<Self> {
        let name = table.name?;
        let realm = table.realm.unwrap_or_else(|| name.to_string());
        Some(Self { name, realm, has_table: true, aliases: table.aliases })
    }
}

impl Listed for LocalDomain {
    type Table = DomainTable;

    fn table(&self) -> Option<DomainTable> {
        let (name, realm, aliases) = (Some(self.name.clone()), Some(self.realm.clone()), self.aliases.clone());
        let table = DomainTable { name, realm, aliases };
        self.has_table.then_some(table)
    }
}

section! {
    /// A domain with a realm and users of its own; repeat the table for each. Further names of one domain may be in `domains` instead.
    pub(crate) struct DomainTable = "domain" {
        /// Domain part of its users' addresses of record, after the `@` (RFC 3261 section 16.4).
        pub name: Option<Domain> = None, ANY.required();
        /// Realm of its users (RFC 7616 section 3.3), which phones may show; "auto": the name of the domain. Name and realm identify a user: `alice`
        /// in two domains with different realms is two users, each with a password of its own. Passwords are stored hashed with the realm: after a
        /// change of the realm each password must be set again.
        pub realm: Option<String> = None, ANY.or("auto");
        /// Further names of this domain: `alice@ALIAS` is the same user as `alice@NAME`, wherever a request names her. If the file has no other
        /// domain, the addresses and names of this server (`listen`, `advertise`, `server.names`) are aliases without an entry here, and so is
        /// `sip.NAME`, unless a target of rules has that host. If the file has several domains, an address belongs only to the domain that lists the
        /// address. A reload that turns a domain into an alias of another domain moves the registrations to that domain. After a reload that turns an
        /// alias into a domain, phones must register again: the server does not know which name they used.
        pub aliases: Vec<Domain> = Vec::new(), ANY;
    }
}

section! {
    /// The keys above the first table.
    pub(crate) struct Top = "" {
        /// Listeners in short form; a listener that needs further keys is a `[[listener]]` table.
        pub listen: Vec<ListenAddress> = default_listen(), ANY;
        /// Names of the domain whose users live here (RFC 3261 section 16.4), the canonical name first: `alice@` any of these names is one user. A
        /// domain with users of its own is a `[[domain]]` table. Without such a table the addresses and names of this server (`listen`, `advertise`,
        /// `server.names`) are further names without an entry here. Each name with `sip.` before it is a further name too, unless a target of rules
        /// has that host. "auto": the hosts of the listeners, or none if there is a `[[domain]]`; `[]`: no names; without a `[[domain]]` the server
        /// is then a pure relay.
        pub domains: Option<Vec<Domain>> = None, ANY.or("auto");
        /// Realm of digest authentication (RFC 7616 section 3.3), which phones may show; "auto": the first of `domains`, or the realm of the first
        /// `[[domain]]`. This realm applies to all `domains`, and to callers whose From is of no local domain. Passwords are stored hashed with the
        /// realm: after a change of the realm each password must be set again.
        pub realm: Option<String> = None, ANY.or("auto");
    }
}

/// Returns the default listeners: UDP and TCP on the loopback interface, so that no other machine reaches a server without a configuration.
fn default_listen() -> Vec<ListenAddress> {
    ["udp:127.0.0.1:5060", "tcp:127.0.0.1:5060"].map(|text| text.parse().expect("both are well formed")).to_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_put_in_one_form() {
        for (text, form) in [
            ("Example.ORG", "example.org"),
            ("example.org.", "example.org"),
            ("127.0.0.1", "127.0.0.1"),
            ("[2001:DB8:0::1]", "[2001:db8::1]"),
            ("localhost", "localhost"),
        ] {
            assert_eq!(text.parse::<Domain>().map(|domain| domain.to_string()), Ok(form.to_owned()));
        }
    }

    #[test]
    fn what_is_no_domain() {
        for text in [
            "",
            ".",
            "sip:example.org",
            "example.org:5060",
            "a@b",
            "-a.org",
            "a..b",
            "1.2.3",
            "::1",
            "300.1.1.1",
            "é.org",
        ] {
            assert!(text.parse::<Domain>().is_err(), "{text}");
        }
    }
}
