//! Realms, and the domains of their users.

/// Realm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realm {
    /// Name, as in a challenge.
    pub name: Box<str>,
    /// Domains of its users, in lower case, at least one; the domain with the name of the realm comes first.
    pub domains: Vec<Box<str>>,
    /// Aliases of these domains, each with its domain; includes names in `domains` that are aliases of another one.
    pub aliases: Vec<(Box<str>, Box<str>)>,
}

/// All realms. They may change while a server runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Realms(Vec<Realm>);

impl Realms {
    /// Creates realms with their domains. A realm without domains has the domain of its own name.
    pub fn new<'a>(realms: impl IntoIterator<Item = (&'a str, Vec<&'a str>)>) -> Self {
        let realm = |(name, domains): (&str, Vec<&str>)| {
            let mut domains: Vec<Box<str>> = domains.iter().map(|domain| domain.to_ascii_lowercase().into()).collect();
            if domains.is_empty() {
                domains.push(name.to_ascii_lowercase().into());
            }
            domains.sort_by_key(|domain| !domain.eq_ignore_ascii_case(name));
            Realm { name: name.into(), domains, aliases: Vec::new() }
        };
        Self(realms.into_iter().map(realm).collect())
    }

    /// Adds aliases of the domains of these realms, each with its domain, in lower case.
    #[must_use]
    pub fn with_aliases<'a>(mut self, aliases: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        for (alias, domain) in aliases {
            if let Some(realm) = self.0.iter_mut().find(|realm| realm.domains.iter().any(|own| **own == *domain)) {
                realm.aliases.push((alias.into(), domain.into()));
            }
        }
        self
    }

    /// Returns the number of domains, without aliases.
    pub(crate) fn domains(&self) -> usize {
        let names = self.0.iter().flat_map(|realm| realm.domains.iter().map(|name| realm.canonical(name) == &**name));
        names.filter(|is_canonical| *is_canonical).count()
    }

    /// Returns the realms, in order.
    pub fn all(&self) -> &[Realm] {
        &self.0
    }

    /// Returns the number of the realm with this name.
    pub(crate) fn named(&self, name: &[u8]) -> Option<usize> {
        self.0.iter().position(|realm| realm.name.as_bytes() == name)
    }

    /// Returns the number of the realm of a domain, and the stored spelling of the domain.
    pub(crate) fn of_domain(&self, domain: &[u8]) -> Option<(usize, &str)> {
        self.0.iter().enumerate().find_map(|(number, realm)| Some((number, realm.domain(domain)?)))
    }
}

impl Realm {
    /// Returns the stored spelling of a domain or alias of this realm, compared without case.
    pub(crate) fn domain(&self, domain: &[u8]) -> Option<&str> {
        self.names().find(|own| own.as_bytes().eq_ignore_ascii_case(domain))
    }

    /// Returns all names of the realm's domains, each once.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        let others = self.aliases.iter().map(|(alias, _)| alias).filter(|alias| !self.domains.contains(alias));
        self.domains.iter().chain(others).map(|name| &**name)
    }

    /// Returns the domain of which this name is an alias, or the name itself.
    pub(crate) fn canonical<'a>(&'a self, name: &'a str) -> &'a str {
        self.aliases.iter().find(|(alias, _)| **alias == *name).map_or(name, |(_, domain)| domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_found_by_realm_and_by_name() {
        let realms = Realms::new([("b.example", vec!["A.example", "b.example"]), ("Office", vec![])]);
        let domains = |n: usize| realms.all()[n].domains.iter().map(|domain| &**domain).collect::<Vec<_>>();
        assert_eq!((domains(0), domains(1)), (vec!["b.example", "a.example"], vec!["office"]));
        assert_eq!((realms.named(b"Office"), realms.named(b"office")), (Some(1), None));
        assert_eq!(realms.of_domain(b"a.EXAMPLE"), Some((0, "a.example")));
        assert_eq!(realms.of_domain(b"c.example"), None);
        assert_eq!(realms.domains(), 3);
        let realms = realms.with_aliases([("a.example", "b.example"), ("192.0.2.1", "office"), ("x", "elsewhere")]);
        assert_eq!(realms.domains(), 2);
        assert_eq!(realms.of_domain(b"192.0.2.1"), Some((1, "192.0.2.1")));
        assert_eq!(realms.all()[1].names().collect::<Vec<_>>(), ["office", "192.0.2.1"]);
        let canonical = ["a.example", "b.example"].map(|name| realms.all()[0].canonical(name));
        assert_eq!(canonical, ["b.example", "b.example"]);
    }
}
