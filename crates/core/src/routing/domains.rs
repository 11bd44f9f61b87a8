//! Local domains with their names and aliases.

use super::identity::ip_of;
use std::net::IpAddr;
use strowger_message::Host;

/// A name of a local domain.
#[derive(Clone, Debug)]
struct DomainName {
    /// Name or address in lower case; an IPv6 address is in brackets.
    text: Box<[u8]>,
    ip: Option<IpAddr>,
    /// Position of the canonical name of its domain.
    canonical: u16,
    is_alias: bool,
}

impl DomainName {
    fn is(&self, host: Host<'_>, ip: Option<IpAddr>) -> bool {
        match ip {
            Some(_) => self.ip == ip,
            None => self.ip.is_none() && host == Host::Name(&self.text),
        }
    }
}

/// All names of all local domains.
#[derive(Clone, Debug, Default)]
pub(super) struct Domains(Vec<DomainName>);

impl Domains {
    /// Adds a domain with this name, unless it exists.
    pub(super) fn add(&mut self, name: &[u8]) {
        let text = name.to_ascii_lowercase();
        if self.canonical(&text).is_some() {
            return;
        }
        let (ip, canonical) = (ip_of(&text), u16::try_from(self.0.len()).unwrap_or(u16::MAX));
        self.0.push(DomainName { text: text.into(), ip, canonical, is_alias: false });
    }

    /// Adds a name to the domain with this name. If the new name was a domain, it becomes a name of this domain.
    pub(super) fn add_alias(&mut self, alias: &[u8], domain: &[u8]) {
        let is = |name: &DomainName, text: &[u8]| name.text.eq_ignore_ascii_case(text);
        let Some(canonical) = self.0.iter().find(|name| is(name, domain)).map(|name| name.canonical) else { return };
        match self.0.iter_mut().find(|name| is(name, alias)) {
            Some(name) => name.canonical = canonical,
            None => {
                self.add(alias);
                if let Some(name) = self.0.last_mut() {
                    (name.canonical, name.is_alias) = (canonical, true);
                }
            }
        }
    }

    fn text(&self, canonical: u16) -> Option<&[u8]> {
        self.0.get(usize::from(canonical)).map(|name| &*name.text)
    }

    fn find(&self, host: Host<'_>) -> Option<&DomainName> {
        let ip = host.ip();
        self.0.iter().find(|name| name.is(host, ip))
    }

    /// Returns the canonical name of the domain with this name or alias.
    pub(super) fn named(&self, host: Host<'_>) -> Option<&[u8]> {
        self.find(host).and_then(|name| self.text(name.canonical))
    }

    /// Returns [`Domains::named`] of a text in lower case.
    pub(super) fn canonical(&self, text: &[u8]) -> Option<&[u8]> {
        self.0.iter().find(|name| *name.text == *text).and_then(|name| self.text(name.canonical))
    }

    /// Tells whether a host is a name of a domain, not an alias.
    pub(super) fn is_name(&self, host: Host<'_>) -> bool {
        self.find(host).is_some_and(|name| !name.is_alias)
    }

    /// Returns the canonical name of the domain if it is the only one.
    pub(super) fn only(&self) -> Option<&[u8]> {
        let first = self.0.first()?;
        self.0.iter().all(|name| name.canonical == first.canonical).then(|| self.text(first.canonical)).flatten()
    }

    /// Returns the other names and aliases of the domain with this canonical name.
    pub(super) fn others<'a>(&'a self, domain: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
        let of_domain = move |name: &&DomainName| self.text(name.canonical) == Some(domain) && *name.text != *domain;
        self.0.iter().filter(of_domain).map(|name| &*name.text)
    }

    /// Returns all host names.
    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().filter(|name| name.ip.is_none()).map(|name| &*name.text)
    }
}
