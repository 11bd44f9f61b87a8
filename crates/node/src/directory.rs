//! Subscribers of a database server, and the parts of the configuration that depend on their table.

use crate::authorities;
use anyhow::bail;
use std::sync::Arc;
use strowger_backend::sql::subscribers::{self, CurrentRealms, SqlSettings};
use strowger_backend::sql::{Realms, ServerSettings};
use strowger_config::{Algorithm, Config, DatabaseUrl};
use strowger_core::digest::{Ha1Set, Hash};
use strowger_store::cached_subscribers::CachedSubscribers;
use strowger_store::clock::Clock;
use strowger_store::second_level::SecondLevel;
use strowger_store::subscriber::{Ha1s, Subscribers};

/// Subscribers of a database server, while it is in use.
pub(crate) struct Directory {
    subscribers: Arc<CachedSubscribers>,
    realms: CurrentRealms,
    /// Names of the algorithms with HA1s in the table at the start.
    algorithms: Vec<&'static str>,
}

impl Directory {
    /// Connects and inspects the table.
    pub(crate) fn open(
        config: &Config,
        server: &DatabaseUrl,
        second: Option<&SecondLevel>,
        clock: Clock,
    ) -> anyhow::Result<Self> {
        let settings = SqlSettings {
            server: server_settings(server),
            table: config.store.subscriber_table.clone(),
            realms: realms(config),
            hash,
        };
        let started = subscribers::start(&settings, second, config.read_through_settings(), clock)?;
        let (table, algorithms) = (&config.store.subscriber_table, started.algorithms.join(", "));
        tracing::info!(database = %server, table, algorithms, "subscribers are read in place");
        Ok(Self { subscribers: Arc::new(started.subscribers), realms: started.realms, algorithms: started.algorithms })
    }

    pub(crate) fn subscribers(&self) -> Arc<dyn Subscribers> {
        self.subscribers.clone()
    }

    /// Removes from the configuration the algorithms for which no user has an HA1.
    pub(crate) fn fit(&self, config: &mut Config) -> anyhow::Result<()> {
        let has = |algorithm: &Algorithm| self.algorithms.contains(&algorithm.word());
        let mut left_out: Vec<Algorithm> = Vec::new();
        for listener in &mut config.listeners {
            let wanted = listener.algorithms.clone();
            listener.algorithms.retain(has);
            left_out.extend(wanted.iter().filter(|algorithm| !has(algorithm)));
            if listener.algorithms.is_empty() && !wanted.is_empty() {
                let wanted: Vec<&str> = wanted.iter().map(|algorithm| algorithm.word()).collect();
                bail!(
                    "{listener} offers {} alone, and the users in the table {:?} have an HA1 for {} alone: name that in `auth.algorithms`",
                    wanted.join(" and "),
                    config.store.subscriber_table,
                    self.algorithms.join(" and ")
                );
            }
        }
        for algorithm in Algorithm::ALL.iter().filter(|algorithm| left_out.contains(algorithm)) {
            let table = &config.store.subscriber_table;
            tracing::warn!(%algorithm, table, setting = "auth.algorithms", "algorithm not offered: no user in the table has an HA1 for it");
        }
        Ok(())
    }

    /// Adopts another configuration: from now on users are looked up by its domains and realms.
    pub(crate) fn take(&self, config: &Config) -> anyhow::Result<()> {
        self.realms.set(realms(config))?;
        self.subscribers.forget();
        Ok(())
    }
}

/// Returns the settings for a connection to this server.
pub fn server_settings(url: &DatabaseUrl) -> ServerSettings {
    ServerSettings { url: url.clone(), authorities: authorities::of_server(url) }
}

/// Returns the realms in which the server asks for passwords.
fn realms(config: &Config) -> Realms {
    let realms = config.realms();
    let domains = |realm: &str| {
        config.domains.iter().filter(|domain| domain.realm == realm).map(|domain| &*domain.name).collect()
    };
    let mut realms: Vec<(&str, Vec<&str>)> = realms.into_iter().map(|realm| (realm, domains(realm))).collect();
    // If any realm has domains, a realm without domains has no users of its own: it is the realm for callers from no
    // local domain.
    if realms.iter().any(|(_, domains)| !domains.is_empty()) {
        realms.retain(|(_, domains)| !domains.is_empty());
    }
    let aliases = config.aliases_on_machine();
    Realms::new(realms).with_aliases(aliases.iter().map(|(alias, domain)| (&**alias, &**domain)))
}

fn hash(username: &str, realm: &str, password: &str) -> Ha1s {
    let set = Ha1Set::of_password(username.as_bytes(), realm.as_bytes(), password.as_bytes());
    let bytes = |hash| set.of(hash).map(|ha1| ha1.value().as_bytes().to_vec());
    Ha1s {
        md5: bytes(Hash::Md5).and_then(|bytes| bytes.try_into().ok()),
        sha256: bytes(Hash::Sha256).and_then(|bytes| bytes.try_into().ok()),
        sha512_256: bytes(Hash::Sha512_256).and_then(|bytes| bytes.try_into().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_config::Source;

    #[test]
    fn realms_have_the_users_of_their_domains() {
        let of = |text: &str| {
            let (config, _) =
                Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
            realms(&config)
        };
        let short = Realms::new([("b.org", vec!["b.org", "a.org"])]);
        let aliases = [("a.org", "b.org"), ("127.0.0.1", "b.org"), ("sip.a.org", "b.org"), ("sip.b.org", "b.org")];
        assert_eq!(of("domains = [\"b.org\", \"a.org\"]"), short.with_aliases(aliases));
        let tables = "[[domain]]\nname = \"a.org\"\n[[domain]]\nname = \"b.org\"\nrealm = \"office\"";
        let own = [("a.org", vec!["a.org"]), ("office", vec!["b.org"])];
        assert_eq!(of(tables), Realms::new(own.clone()));
        assert_eq!(of(&format!("realm = \"elsewhere\"\n{tables}")), Realms::new(own));
        let named = [("x.org", "a.org"), ("192.0.2.1", "b.org")];
        let text = tables.replace(
            "[[domain]]\nname = \"b",
            "aliases = [\"X.org\"]\n[[domain]]\naliases = [\"192.0.2.1\"]\nname = \"b",
        );
        assert_eq!(of(&text), Realms::new([("a.org", vec!["a.org"]), ("office", vec!["b.org"])]).with_aliases(named));
        assert_eq!(of("domains = []\nrealm = \"a.org\""), Realms::new([("a.org", vec!["a.org"])]));
    }

    #[test]
    fn an_ha1_is_that_of_the_rfc() {
        // RFC 7616 section 3.9.1, without the nonce: printf 'Mufasa:http-auth@example.org:Circle of Life' | md5sum, sha256sum.
        let ha1 = hash("Mufasa", "http-auth@example.org", "Circle of Life");
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        assert_eq!(ha1.md5.map(|md5| hex(&md5)).as_deref(), Some("3d78807defe7de2157e2b0b6573a855f"));
        assert_eq!(
            ha1.sha256.map(|sha256| hex(&sha256)).as_deref(),
            Some("7987c64c30e25f1b74be53f966b49b90f2808aa92faf9a00262392d7b4794232")
        );
        assert!(ha1.sha512_256.is_some());
    }
}
