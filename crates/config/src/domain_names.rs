//! Local domains by their names and aliases.

use std::collections::BTreeSet;

use strowger_message::Uri;

use super::domains::{Domain, LocalDomain};
use super::gateway_group::RouteTarget;
use super::key::Text;
use super::proxy::SipUri;
use super::{Config, own_addresses};

impl Config {
    /// Tells whether a domain is local: a name or an alias of a domain whose users live here. Letter case is ignored.
    pub fn is_local(&self, domain: &str) -> bool {
        self.local_domain(domain).is_some()
    }

    /// Returns the realm of the passwords of a domain's users, or [`Config::realm`] if the domain is not local. Letter case is ignored.
    pub fn realm_of(&self, domain: &str) -> &str {
        self.local_domain(domain).map_or(&self.realm, |local| &local.realm)
    }

    /// Returns the domain for user names without a domain in this realm: the domain that has the name of the realm, or else the first domain with
    /// this realm.
    pub fn first_domain_of(&self, realm: &str) -> Option<&str> {
        let all = self.domains.iter().filter(|domain| domain.realm == realm);
        let first = all.min_by_key(|domain| !domain.name.eq_ignore_ascii_case(realm))?;
        self.canonical_name(first)
    }

    /// Tells whether a domain has a realm of its own.
    pub fn has_several_realms(&self) -> bool {
        self.domains.iter().any(|domain| domain.realm != self.realm)
    }

    /// Returns the names of the local domains, without aliases.
    pub fn domain_names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.domains.iter().map(|domain| domain.name.as_str())
    }

    /// Returns the canonical name of the local domain with this name or alias, or with this address or name of the
    /// server.
    pub fn canonical_domain(&self, domain: &str) -> Option<&str> {
        match self.local_domain(domain) {
            Some(local) => self.canonical_name(local),
            None => self.only_domain().filter(|_| self.own_names().contains(&domain.to_ascii_lowercase())),
        }
    }

    /// Returns each further name of a domain with the canonical name of that domain. Further names are aliases, and all names of `domains` after the
    /// first.
    pub fn aliases(&self) -> impl Iterator<Item = (&str, &str)> {
        self.domains.iter().flat_map(|domain| {
            let canonical = self.canonical_name(domain).unwrap_or_default();
            let name = Some(domain.name.as_str()).filter(|name| *name != canonical);
            name.into_iter().chain(domain.aliases.iter().map(|alias| alias.as_str())).map(move |name| (name, canonical))
        })
    }

    /// Returns [`Config::aliases`] and, if there is only one domain, the addresses and names of this server that the configuration and this machine
    /// provide.
    pub fn aliases_on_machine(&self) -> Vec<(String, String)> {
        let mut all: Vec<_> = self.aliases().map(|(name, domain)| (name.to_owned(), domain.to_owned())).collect();
        if let Some(only) = self.only_domain() {
            let own = self.own_names().into_iter().filter(|name| !self.is_local(name));
            all.extend(own.map(|name| (name, only.to_owned())));
        }
        all
    }

    /// Returns the canonical name of the only local domain; `None` if there are several or none.
    pub fn only_domain(&self) -> Option<&str> {
        let first = self.canonical_name(self.domains.first()?);
        self.domains.iter().all(|domain| self.canonical_name(domain) == first).then_some(first).flatten()
    }

    fn canonical_name(&self, domain: &LocalDomain) -> Option<&str> {
        let mut own = self.domains.iter();
        own.find(|own| if domain.has_table { own.name == domain.name } else { !own.has_table })
            .map(|own| own.name.as_str())
    }

    /// Returns the names of this server: `server.names` and, if there is only one domain, `sip.DOMAIN` for each of its names, unless a target of
    /// rules has that host.
    pub fn server_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.server.names.iter().map(|name| name.to_string()).collect();
        let of_domains = self.domain_names().filter(|_| self.only_domain().is_some()).map(|name| format!("sip.{name}"));
        let is_name = |name: &String| Domain::from_text(name).is_ok() && !self.is_local(name) && !self.is_target(name);
        names.extend(of_domains.filter(is_name));
        names
    }

    /// Tells whether a target of rules, failures, gateway groups or emergency calls has this host.
    fn is_target(&self, name: &str) -> bool {
        let has_host = |uri: &SipUri| match Uri::parse(uri.as_str().as_bytes()) {
            Ok(Uri::Sip(uri)) => uri.host.is_lower(name.as_bytes()),
            _ => false,
        };
        let places = self.rules.iter().flat_map(|rule| &rule.to);
        let places = places.chain(self.failures.iter().flat_map(|failure| &failure.to)).chain(&self.emergency.target);
        let uris = places.filter_map(|place| match place {
            RouteTarget::Uri(uri) => Some(uri),
            RouteTarget::Group(_) => None,
        });
        uris.chain(self.gateway_groups.iter().flat_map(|group| &group.to)).any(has_host)
    }

    /// Returns the hosts by which peers know this server.
    fn own_names(&self) -> BTreeSet<String> {
        let mut names: BTreeSet<String> =
            self.listeners.iter().filter_map(|listener| Some(listener.host()?.to_ascii_lowercase())).collect();
        names.extend(self.server_names());
        let bound = self.listeners.iter().map(|listener| listener.address.ip());
        names.extend(bound.clone().filter(|ip| !ip.is_unspecified()).map(host_of));
        for everywhere in bound.filter(std::net::IpAddr::is_unspecified) {
            names.extend(own_addresses().into_iter().filter(|ip| ip.is_ipv4() == everywhere.is_ipv4()).map(host_of));
        }
        names
    }

    fn local_domain(&self, domain: &str) -> Option<&LocalDomain> {
        let domain = domain.strip_suffix('.').unwrap_or(domain);
        let is = |name: &Domain| name.eq_ignore_ascii_case(domain);
        self.domains.iter().find(|local| is(&local.name) || local.aliases.iter().any(is))
    }
}

fn host_of(ip: std::net::IpAddr) -> String {
    match ip {
        std::net::IpAddr::V4(ip) => ip.to_string(),
        std::net::IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    fn read(text: &str) -> Config {
        Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}")).0
    }

    #[test]
    fn a_domain_has_one_canonical_name() {
        let listen =
            "listen = [\"udp:192.0.2.1:5060\", \"udp:[2001:db8::1]:5060\"]\nserver.names = [\"Proxy.example\"]\n";
        let short = "domains = [\"a.example\", \"b.example\"]\n";
        let table = "[[domain]]\nname = \"a.example\"\naliases = [\"B.example\"]\n";
        let tenants = format!("{table}[[domain]]\nname = \"c.example\"\naliases = [\"192.0.2.1\"]\n");
        const OWN: [&str; 3] = ["192.0.2.1", "[2001:db8::1]", "proxy.EXAMPLE"];
        for (text, own) in [
            (short, [Some("a.example"); 3]),
            (table, [Some("a.example"); 3]),
            (&*tenants, [Some("c.example"), None, None]),
        ] {
            let config = read(&format!("{listen}{text}"));
            for name in ["a.example", "A.example", "b.example", "B.EXAMPLE", "b.example."] {
                assert_eq!(config.canonical_domain(name), Some("a.example"), "{text} {name}");
                assert!(config.is_local(name), "{text} {name}");
            }
            assert_eq!(OWN.map(|name| config.canonical_domain(name)), own, "{text}");
            for name in ["x.example", "192.0.2.2", "sub.a.example"] {
                assert_eq!(config.canonical_domain(name), None, "{text} {name}");
            }
            let aliases = config.aliases_on_machine();
            assert!(aliases.contains(&("b.example".into(), "a.example".into())), "{aliases:?}");
            assert_eq!(aliases.iter().filter(|(alias, _)| alias == "proxy.example").count(), own[2].iter().count());
        }
        let both = read(&format!("{short}[[domain]]\nname = \"c.example\"\naliases = [\"d.example\"]\n"));
        let aliases: Vec<_> = both.aliases().collect();
        assert_eq!(aliases, [("b.example", "a.example"), ("d.example", "c.example")]);
        assert_eq!((both.only_domain(), both.realm_of("D.example")), (None, "c.example"));
        assert_eq!(read("domains = []").only_domain(), None);
    }

    #[test]
    fn the_name_sip_of_the_only_domain_is_one_of_the_server() {
        let has = |text: &str, name: &str| {
            let config = read(text);
            let is_there = config.server_names().iter().any(|own| own == name);
            assert_eq!(config.canonical_domain(name).is_some(), is_there || config.is_local(name), "{text}");
            let aliases = config.aliases_on_machine();
            assert_eq!(
                aliases.iter().any(|(alias, _)| alias == name),
                config.canonical_domain(name).is_some(),
                "{text}"
            );
            is_there
        };
        const SIP: &str = "sip.a.example";
        const GROUP: &str = "[[gateway_group]]\nname = \"g\"\nto = [\"sip:SIP.a.example:5070\"]\n";
        let two = "[[domain]]\nname = \"a.example\"\n[[domain]]\nname = \"b.example\"\n";
        let with = |more: &str| format!("domains = [\"a.example\"]\n{more}");
        for (text, is_own) in [
            (with(""), true),
            ("[[domain]]\nname = \"a.example\"\n".to_owned(), true),
            ("domains = [\"a.example\", \"c.example\"]\n".to_owned(), true),
            (two.to_owned(), false),
            ("domains = [\"a.example\", \"sip.a.example\"]\n".to_owned(), false),
            (with("[[rule]]\nname = \"r\"\nto = [\"sip:sip.a.example\"]\n"), false),
            (with("[[rule]]\nname = \"r\"\nto = [\"sip:gw.a.example\"]\n"), true),
            (with(&format!("{GROUP}[[rule]]\nname = \"r\"\nto = [\"g\"]\n")), false),
            (with("emergency = { numbers = [\"112\"], target = \"sip:sip.a.example\" }\n"), false),
        ] {
            assert_eq!(has(&text, SIP), is_own, "{text}");
        }
        assert!(has("domains = [\"a.example\", \"c.example\"]\n", "sip.c.example"));
        assert!(!has("domains = [\"192.0.2.1\"]\n", "sip.192.0.2.1"));
    }
}
