//! Realm in which a request is judged (RFC 3261 sections 22.1 and 22.3). A domain may have a realm of its own. Users of
//! such a domain then differ from users of the same name in other domains, and their credentials are valid in that
//! realm only.

use crate::proof::User;
use strowger_config::{Config, LocalDomain};
use strowger_core::digest::ChallengeHeader;
use strowger_core::routing::{Identity, Request};
use strowger_message::{Name, NameAddr, Uri};

/// Compiled realms of a configuration.
pub(crate) struct Realms {
    /// Realms by the canonical name of the domain.
    domains: Vec<(Box<[u8]>, Box<str>)>,
    /// Realm of parties outside the local domains.
    others: Box<str>,
    /// Domain whose users are identified by their name without a domain, if all domains share one realm.
    named_alone: Option<Box<str>>,
}

impl Realms {
    pub(crate) fn of(config: &Config) -> Self {
        let first = config.first_domain_of(&config.realm).filter(|_| !config.has_several_realms());
        let (others, named_alone) = ((*config.realm).into(), first.map(Box::from));
        let realm = |domain: &LocalDomain| (domain.name.as_bytes().into(), (*domain.realm).into());
        Self { domains: config.domains.iter().map(realm).collect(), others, named_alone }
    }

    /// Returns the realm in which this request is challenged and judged.
    ///
    /// For a REGISTER to this server it is the realm of the domain in To, in which the user registers. For any other
    /// request it is the realm of the domain in From. From does not show the user if the caller withholds its identity
    /// (RFC 3323) or shows another identity (RFC 3325). Such a caller names its user in P-Preferred-Identity or
    /// P-Asserted-Identity.
    pub(crate) fn judging(&self, identity: &Identity, request: &Request<'_>, header: ChallengeHeader) -> &str {
        if header == ChallengeHeader::WwwAuthenticate {
            return self.of_uri(identity, &request.mandatory.to.uri).unwrap_or(&self.others);
        }
        let stated = || {
            let values = |name| request.message.values::<NameAddr<'_>>(name).flatten();
            let mut named = values(Name::PPreferredIdentity).chain(values(Name::PAssertedIdentity));
            named.find_map(|value| self.of_uri(identity, &value.uri))
        };
        self.of_uri(identity, &request.mandatory.from.uri).or_else(stated).unwrap_or(&self.others)
    }

    /// Appends the domain of a user to the user's name if the domain distinguishes the user from others of the same
    /// name. It does if domains have realms of their own, and for all domains but the first of those that share a
    /// realm.
    pub(crate) fn with_domain(&self, user: &User, mut name: Vec<u8>) -> Vec<u8> {
        if self.named_alone.as_ref().is_none_or(|domain| *domain.as_bytes() != *user.domain) {
            name.push(b'@');
            name.extend_from_slice(&user.domain);
        }
        name
    }

    /// Returns the realm of the users of a local domain. A port in the URI is ignored, because it only selects a
    /// listener.
    fn of_uri(&self, identity: &Identity, uri: &Uri<'_>) -> Option<&str> {
        self.of_domain(identity.domain_of(uri.sip()?.host)?)
    }

    /// Returns the realm of the domain with this canonical name.
    pub(crate) fn of_domain(&self, domain: &[u8]) -> Option<&str> {
        self.domains.iter().find(|(own, _)| **own == *domain).map(|(_, realm)| &**realm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_config::Source;
    use strowger_core::{Arrival, ListenerId, Transport};
    use strowger_message::{Index, Limits, Message};

    #[test]
    fn each_request_is_judged_in_one_realm() {
        let text = "domains = [\"a.example\", \"192.0.2.1\"]\nrealm = \"shared\"\n[[domain]]\nname = \"b.example\"\n\
                    [[domain]]\nname = \"[2001:db8::1]\"\nrealm = \"six\"\n";
        let (config, _) =
            Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
        let realms = Realms::of(&config);
        let identity = Identity::new(Vec::new(), config.domain_names(), &[]).with_aliases(config.aliases());
        let remote = "198.51.100.7:5060".parse().unwrap();
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
        let judging = |header, from: &str, to: &str, more: &str| {
            let text = format!(
                "MESSAGE sip:a.example SIP/2.0\r\nVia: SIP/2.0/UDP 198.51.100.7;branch=z9hG4bK1\r\nFrom: <{from}>;tag=a\r\n\
                 To: <{to}>\r\nCall-ID: 1\r\nCSeq: 1 MESSAGE\r\n{more}Content-Length: 0\r\n\r\n"
            );
            let mut index = Index::new();
            index.parse(text.as_bytes(), &Limits::default()).unwrap();
            let request = Request::of(Message::new(text.as_bytes(), &index), &arrival, 1).unwrap();
            realms.judging(&identity, &request, header).to_owned()
        };
        const ANONYMOUS: &str = "sip:anonymous@anonymous.invalid";
        const PREFERRED: &str = "P-Preferred-Identity: <sip:alice@b.example>\r\n";
        const ASSERTED: &str = "P-Asserted-Identity: <tel:+1>, <sip:alice@[2001:db8::1]>\r\n";
        for (from, to, more, registers, calls) in [
            ("sip:alice@a.example", "sip:alice@a.example", "", "shared", "shared"),
            ("sip:alice@b.example", "sip:alice@b.example", "", "b.example", "b.example"),
            ("sip:alice@b.example", "sip:alice@a.example", "", "shared", "b.example"),
            ("sip:alice@192.0.2.1", "sips:alice@B.Example:5061", "", "b.example", "shared"),
            ("sip:alice@[2001:DB8:0::1]:5070", "sip:[2001:db8::1]", "", "six", "six"),
            ("sip:alice@[2001:db8::2]", "sip:alice@192.0.2.2", "", "shared", "shared"),
            ("sip:alice@sub.b.example", "tel:+1", "", "shared", "shared"),
            (ANONYMOUS, ANONYMOUS, "", "shared", "shared"),
            (ANONYMOUS, ANONYMOUS, PREFERRED, "shared", "b.example"),
            ("tel:+1", "tel:+1", ASSERTED, "shared", "six"),
            // From decides.
            ("sip:alice@a.example", "tel:+1", PREFERRED, "shared", "shared"),
            (ANONYMOUS, "tel:+1", "P-Preferred-Identity: <sip:alice@c.example>\r\n", "shared", "shared"),
            (ANONYMOUS, "tel:+1", "P-Preferred-Identity: <\r\n", "shared", "shared"),
        ] {
            assert_eq!(judging(ChallengeHeader::WwwAuthenticate, from, to, more), registers, "{to}");
            assert_eq!(judging(ChallengeHeader::ProxyAuthenticate, from, to, more), calls, "{from} {more}");
        }
    }

    #[test]
    fn users_have_a_domain_where_their_name_is_not_all() {
        for (text, domain, named) in [
            ("domains = [\"a.example\", \"a.test\"]\nrealm = \"shared\"\n", "a.example", "al"),
            ("domains = [\"a.example\", \"a.test\"]\nrealm = \"shared\"\n", "a.test", "al"),
            ("domains = [\"a.example\", \"a.test\"]\nrealm = \"a.test\"\n", "a.test", "al"),
            ("domains = [\"a.example\"]\n", "left.example", "al@left.example"),
            ("[[domain]]\nname = \"a.example\"\nrealm = \"one\"\n", "a.example", "al"),
            ("[[domain]]\nname = \"a.example\"\n[[domain]]\nname = \"b.example\"\n", "a.example", "al@a.example"),
            ("[[domain]]\nname = \"a.example\"\n[[domain]]\nname = \"b.example\"\n", "b.example", "al@b.example"),
            ("domains = [\"a.example\", \"a.test\"]\n[[domain]]\nname = \"b.example\"\n", "a.test", "al@a.example"),
        ] {
            let (config, _) =
                Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
            let identity = Identity::new(Vec::new(), config.domain_names(), &[]).with_aliases(config.aliases());
            let domain = identity.canonical_domain(domain.as_bytes());
            let user = User { name: b"al"[..].into(), domain: domain.into() };
            let all = Realms::of(&config).with_domain(&user, user.name.to_vec());
            assert_eq!(String::from_utf8_lossy(&all), named, "{text}");
        }
    }
}
