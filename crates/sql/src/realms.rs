//! Realms, and the domains whose users have their passwords in them.

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Realm {
    /// As phones are asked for it.
    pub name: Box<str>,
    /// The domains of its users, in lower case, at least one; that which is called as the realm first.
    pub domains: Vec<Box<str>>,
}

/// All of them. They may change while a server runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Realms(Vec<Realm>);

impl Realms {
    /// Of realms with their domains. A realm without domains has the users of the domain that is called as it is.
    pub fn new<'a>(realms: impl IntoIterator<Item = (&'a str, Vec<&'a str>)>) -> Self {
        let realm = |(name, domains): (&str, Vec<&str>)| {
            let mut domains: Vec<Box<str>> = domains.iter().map(|domain| domain.to_ascii_lowercase().into()).collect();
            if domains.is_empty() {
                domains.push(name.to_ascii_lowercase().into());
            }
            domains.sort_by_key(|domain| !domain.eq_ignore_ascii_case(name));
            Realm { name: name.into(), domains }
        };
        Self(realms.into_iter().map(realm).collect())
    }

    /// The realms, in their order.
    pub fn all(&self) -> &[Realm] {
        &self.0
    }

    /// The number of the realm that has this name.
    pub(crate) fn named(&self, name: &[u8]) -> Option<usize> {
        self.0.iter().position(|realm| realm.name.as_bytes() == name)
    }

    /// The number of the realm in which the users of this domain are, and the domain as it is kept here.
    pub(crate) fn of_domain(&self, domain: &[u8]) -> Option<(usize, &str)> {
        self.0.iter().enumerate().find_map(|(number, realm)| Some((number, realm.domain(domain)?)))
    }
}

impl Realm {
    /// A domain as it is kept here, if it is one of this realm, in lower case or upper.
    pub(crate) fn domain(&self, domain: &[u8]) -> Option<&str> {
        self.domains.iter().map(|own| &**own).find(|own| own.as_bytes().eq_ignore_ascii_case(domain))
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
    }
}
