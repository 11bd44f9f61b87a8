//! Database or cache server beside the SIP server.

use super::*;

/// Database or cache server.
pub(super) enum Beside {
    MariaDb(MariaDb),
    PostgreSql(PostgreSql),
    Redis(Backend),
    Memcached(Backend),
}

impl Beside {
    pub(super) fn start(name: &str, folder: &TempDir) -> Self {
        let path = folder.path();
        match name {
            "mariadb" => {
                let database = MariaDb::start(path).expect("it starts");
                database
                    .execute(
                        "CREATE TABLE subscriber (username VARCHAR(64), domain VARCHAR(64), ha1 VARCHAR(64), UNIQUE (username, domain))",
                    )
                    .expect("a table");
                let users = format!(
                    "INSERT INTO subscriber SELECT CONCAT('user', seq), 'example.org', \
                     MD5(CONCAT('user', seq, ':example.org:user', seq)) FROM seq_0_to_{USERS}"
                );
                database.execute(&users).expect("its rows");
                Self::MariaDb(database)
            }
            "postgresql" => {
                let database = PostgreSql::start(path).expect("it starts");
                database
                    .execute(
                        "CREATE TABLE subscriber (username VARCHAR(64), domain VARCHAR(64), ha1 VARCHAR(64), UNIQUE (username, domain))",
                    )
                    .expect("a table");
                let users = format!(
                    "INSERT INTO subscriber SELECT 'user' || n, 'example.org', \
                     md5('user' || n || ':example.org:user' || n) FROM generate_series(0, {USERS}) n"
                );
                database.execute(&users).expect("its rows");
                Self::PostgreSql(database)
            }
            "redis" => Self::Redis(backend::redis(path).expect("it starts")),
            _ => Self::Memcached(backend::memcached(path).expect("it starts")),
        }
    }

    pub(super) fn server(&self) -> &Backend {
        match self {
            Self::MariaDb(database) => database.server(),
            Self::PostgreSql(database) => database.server(),
            Self::Redis(cache) | Self::Memcached(cache) => cache,
        }
    }

    pub(super) fn is_cache(&self) -> bool {
        matches!(self, Self::Redis(_) | Self::Memcached(_))
    }

    pub(super) fn stop(&mut self) {
        match self {
            Self::MariaDb(database) => database.stop(),
            Self::PostgreSql(database) => database.stop(),
            Self::Redis(cache) | Self::Memcached(cache) => backend::stop_cache(cache),
        }
        .expect("it ends");
    }

    pub(super) fn start_again(&mut self) {
        match self {
            Self::MariaDb(database) => database.server_mut().start_again(),
            Self::PostgreSql(database) => database.start_again(),
            Self::Redis(cache) | Self::Memcached(cache) => cache.start_again(),
        }
        .expect("it starts");
    }

    /// Returns the setup of a SIP server that asks this one through the relay about each user.
    pub(super) fn prepare(&self, relay: &SlowRelay, callee: SocketAddr, lookup_timeout: Duration) -> Setup {
        let (own, by_relay) = (self.server().address().to_string(), relay.address().to_string());
        let mut lines =
            String::from("domains = [\"example.org\"]\nban.enabled = false\nlog.refusals_per_minute = 100\n");
        lines.push_str("log.calls_per_minute = 0\nlog.registrations_per_minute = 0\n");
        lines.push_str("store.cache_lifetime = \"0s\"\nserver.scheduling = \"normal\"\n");
        // Writing to a String cannot fail.
        let _ = writeln!(lines, "store.lookup_timeout = \"{}ms\"", lookup_timeout.as_millis());
        let url = match self {
            Self::MariaDb(database) => Some(database.url()),
            Self::PostgreSql(database) => Some(database.url()),
            _ => None,
        };
        let engine = if matches!(self, Self::Redis(_)) { "redis" } else { "memcached" };
        let _ = match url {
            Some(url) => writeln!(lines, "store.subscribers = \"{}\"", url.replace(&own, &by_relay)),
            None => writeln!(
                lines,
                "store.cache = \"shared\"\ncache = [{{ name = \"shared\", engine = \"{engine}\", servers = [\"{by_relay}\"] }}]"
            ),
        };
        let _ = writeln!(
            lines,
            "[[source]]\nname = \"trunk\"\nnetworks = [\"127.0.0.8/32\"]\ntrusted = true\n\
             [[rule]]\nname = \"trunk\"\nwhen = \"source.group == 'trunk'\"\nto = [\"sip:{callee}\"]"
        );
        Setup::on(&[Udp, Tcp]).with(&lines)
    }
}
