//! `[[cache]]`: named caches, in this process or on servers, for data that the server may forget and several servers may share.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use strowger_cache::servers::{Credentials, Endpoint, Service};

use super::key::{Rule, Text, words};
use super::name::Name;
use super::reader::{ANY, section};

words! {
    /// Location of a cache.
    pub enum CacheEngine {
        /// Memory of this process.
        Local = "local",
        /// Memcached servers, version 1.6 or later.
        Memcached = "memcached",
        /// Redis servers, version 6 or later, or others with the same protocol.
        Redis = "redis",
    }
}

words! {
    /// Topology of Redis servers.
    pub enum CacheMode {
        /// One server.
        Single = "single",
        /// `servers` are Sentinels, which name the master of a group.
        Sentinel = "sentinel",
        /// `servers` are some of a Redis Cluster.
        Cluster = "cluster",
    }
}

section! {
    /// A cache that other tables name, such as `store.cache`; repeat the table for each.
    pub struct CacheTable = "cache" {
        /// Name in other tables.
        pub name: Name = Name::UNSET, ANY.required().fixed();
        /// Location of the cache.
        pub engine: CacheEngine = CacheEngine::Local, ANY.fixed();
        /// Servers for "memcached" and "redis". Several Memcached servers share the keys among them; all SIP servers that share the cache need the
        /// same list.
        pub servers: Vec<Endpoint> = Vec::new(), ANY.fixed();
        /// Topology for "redis".
        pub mode: CacheMode = CacheMode::Single, ANY.fixed();
        /// Name of the group that the Sentinels watch, for "sentinel".
        pub group: String = "mymaster".into(), ANY.fixed();
        /// Number of the database, for "redis" with "single" or "sentinel".
        pub database: u32 = 0, Rule::number(0, 65_535).fixed();
        /// User name for the servers; "": no user name. Redis then uses its default user, which needs only a password.
        pub user: String = String::new(), ANY.fixed();
        /// Password of that user; "": none. Without TLS it crosses the network in clear text.
        pub password: Option<Password> = None, ANY.or("").fixed();
        /// User name for the Sentinels, for "sentinel"; "" as for `user`.
        pub sentinel_user: String = String::new(), ANY.fixed();
        /// Password of the Sentinels, for "sentinel"; "": none. The Sentinels do not get the password of the servers.
        pub sentinel_password: Option<Password> = None, ANY.or("").fixed();
        /// Connect by TLS: servers must show a certificate for their host from `tls.outbound_ca`, which is read at the start.
        pub tls: bool = false, ANY.fixed();
        /// Longest wait for an answer of a cache server, for "memcached" and "redis"; then the request continues without the answer.
        pub timeout: Duration = Duration::from_millis(200), Rule::time(Duration::from_millis(5), Duration::from_secs(30)).fixed();
        /// Most memory, for "local".
        pub memory: usize = 64 << 20, Rule::bytes(64 << 10, 1 << 40).fixed();
        /// Folder of the files that keep entries over a restart, for "local"; created if it is missing; "memory": entries are lost when the process
        /// ends.
        pub folder: Option<PathBuf> = None, ANY.or("memory").fixed();
    }
}

impl CacheTable {
    /// Returns the protocol of the servers of the cache; `None`: the cache is in this process.
    pub fn service(&self) -> Option<Service> {
        Some(match (self.engine, self.mode) {
            (CacheEngine::Local, _) => return None,
            (CacheEngine::Memcached, _) => Service::Memcached,
            (CacheEngine::Redis, CacheMode::Single) => Service::Redis { database: self.database },
            (CacheEngine::Redis, CacheMode::Sentinel) => Service::Sentinel {
                group: self.group.clone(),
                database: self.database,
                credentials: shown(&self.sentinel_user, self.sentinel_password.as_ref()),
            },
            (CacheEngine::Redis, CacheMode::Cluster) => Service::Cluster,
        })
    }

    /// Returns the credentials for the servers of the cache.
    pub fn credentials(&self) -> Option<Credentials> {
        shown(&self.user, self.password.as_ref())
    }
}

fn shown(user: &str, password: Option<&Password>) -> Option<Credentials> {
    password.map(|password| Credentials { user: user.to_owned(), password: password.0.clone() })
}

/// Password of this server as a client of another one. Neither `Debug` nor `--effective` shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(pub(super) String);

impl Password {
    /// Returns the password itself, which must not be shown.
    pub fn reveal(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(super::Secret::MASK)
    }
}

impl Text for Password {
    const EXPECTED: &'static str = "a password in quotes on one line";

    fn from_text(text: &str) -> Result<Self, String> {
        // Memcached receives it on a line of its own.
        if text.chars().any(char::is_control) {
            return Err("contains a control character".into());
        }
        Ok(Self(text.to_owned()))
    }

    fn to_text(&self) -> String {
        super::Secret::MASK.into()
    }
}

impl Text for Endpoint {
    const EXPECTED: &'static str =
        "a server such as \"127.0.0.1\", \"cache.example.org:6379\", \"[2001:db8::7]:6379\" or the path of its socket";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse().map_err(|reason| format!("is {text:?}, {reason}"))
    }

    fn to_text(&self) -> String {
        match self {
            Self::Tcp(host, 0) => host.clone(),
            other => other.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Source};
    use super::*;

    fn read(text: &str) -> Result<Config, super::super::Report> {
        Config::read(Source { text, ..Source::default() }).map(|(config, _)| config)
    }

    const TABLE: &str = "[[cache]]\nname = \"a\"\n";

    #[test]
    fn tables_say_how_servers_are_spoken_to() {
        let redis = "engine = \"redis\"\nservers = [\"192.0.2.1\"]\n";
        let group = "west".to_owned();
        for (lines, service) in [
            ("", None),
            ("engine = \"memcached\"\nservers = [\"192.0.2.1\", \"[::1]:77\"]", Some(Service::Memcached)),
            (&format!("{redis}database = 4"), Some(Service::Redis { database: 4 })),
            (&format!("{redis}mode = \"cluster\""), Some(Service::Cluster)),
            (
                &format!("{redis}mode = \"sentinel\"\ngroup = \"west\""),
                Some(Service::Sentinel { group: group.clone(), database: 0, credentials: None }),
            ),
            (
                &format!("{redis}mode = \"sentinel\"\ngroup = \"west\"\npassword = \"x\"\nsentinel_password = \"y\""),
                Some(Service::Sentinel {
                    group,
                    database: 0,
                    credentials: Some(Credentials { user: String::new(), password: "y".into() }),
                }),
            ),
        ] {
            let config = read(&format!("{TABLE}{lines}")).unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(config.caches[0].service(), service);
        }
    }

    #[test]
    fn a_password_is_shown_nowhere() {
        let lines = "engine = \"redis\"\nservers = [\"/run/redis.sock\"]\npassword = \"open sesame\"";
        let config = read(&format!("{TABLE}{lines}")).unwrap_or_else(|report| panic!("{report}"));
        let credentials = config.caches[0].credentials().expect("a password");
        assert_eq!((&*credentials.user, &*credentials.password), ("", "open sesame"));
        let effective = config.effective();
        assert!(effective.contains("/run/redis.sock") && !effective.contains("sesame"), "{effective}");
        assert!(!format!("{config:?}").contains("sesame"));
        // The mask is not read as a value.
        assert!(read(&effective).unwrap_or_else(|report| panic!("{report}")).caches[0].password.is_none());
    }

    #[test]
    fn contradictions_have_their_place_and_their_cure() {
        let servers = "servers = [\"192.0.2.1\"]\n";
        let redis = format!("engine = \"redis\"\n{servers}");
        let memcached = format!("engine = \"memcached\"\n{servers}");
        for (lines, line, cure) in [
            ("engine = \"redis\"".to_owned(), 1, "name at least one"),
            (servers.to_owned(), 3, "set engine"),
            (format!("{redis}folder = \"x\""), 5, "remove `folder`"),
            ("engine = \"redis\"\nservers = [\"192.0.2.1\", \"192.0.2.2\"]".into(), 4, "set mode"),
            (format!("{memcached}mode = \"cluster\""), 5, "set engine"),
            (format!("{redis}mode = \"sentinel\"\ngroup = \"\""), 6, "group = \"mymaster\""),
            (format!("{redis}mode = \"cluster\"\ndatabase = 1"), 6, "remove `database`"),
            (format!("{redis}user = \"x\""), 5, "add `password`"),
            (format!("{redis}mode = \"sentinel\"\nsentinel_user = \"x\""), 6, "add `sentinel_password`"),
            (format!("{redis}sentinel_user = \"y\"\nsentinel_password = \"x\""), 6, "set mode = \"sentinel\", or"),
            (format!("{memcached}password = \"x\""), 5, "add `user`"),
            (format!("{memcached}user = \"x\"\npassword = \"a b\""), 6, "without spaces"),
            ("engine = \"redis\"\nservers = [\"/run/redis.sock\"]\ntls = true".into(), 5, "remove `tls`"),
            ("engine = \"redis\"\nservers = [\"192.0.2.1:0\"]".into(), 4, "a server such as"),
            ("engine = \"rediss\"".into(), 3, "did you mean \"redis\"?"),
        ] {
            let report = read(&format!("{TABLE}{lines}")).expect_err(&lines);
            let fault = report.faults().iter().find(|fault| fault.cure.contains(cure));
            let fault = fault.unwrap_or_else(|| panic!("{lines}\n{report}"));
            assert_eq!(report.position(fault).map(|(line, _)| line), Some(line), "{lines}\n{report}");
        }
        let report = read("store.cache = \"b\"\n[[cache]]\nname = \"a\"").expect_err("there is none");
        assert!(report.to_string().contains("cache 'b' does not exist"), "{report}");
    }

    #[test]
    fn one_cache_for_answers_and_credentials_is_warned_of() {
        for (credentials, count) in [("a", 1), ("b", 0)] {
            let text = format!(
                "domains = [\"example.org\"]\nlisten = [\"udp:127.0.0.1:5060\"]\nstore.cache = \"a\"\nauth.credential_cache = {credentials:?}\n\
                 {TABLE}[[cache]]\nname = \"b\"\n"
            );
            let source = Source { text: &text, ..Source::default() };
            let (_, warnings) = Config::read(source).unwrap_or_else(|report| panic!("{report}"));
            let found = warnings.faults().iter().filter(|fault| fault.cure.contains("add another [[cache]]"));
            let places: Vec<_> = found.map(|fault| warnings.position(fault).map(|(line, _)| line)).collect();
            assert_eq!(places, vec![Some(4); count], "{warnings}");
        }
    }

    #[test]
    fn a_cache_without_a_password_is_doubtful() {
        for (lines, cure) in [
            ("engine = \"redis\"\nservers = [\"127.0.0.1\"]", "`requirepass` of each Redis"),
            ("engine = \"redis\"\nservers = [\"c.example\"]\nmode = \"cluster\"", "`requirepass` of each Redis"),
            ("engine = \"redis\"\nservers = [\"c\"]\nmode = \"sentinel\"", "`requirepass` of each Redis"),
            ("engine = \"redis\"\nservers = [\"c\"]\nmode = \"sentinel\"\npassword = \"x\"", "of each Sentinel"),
            ("engine = \"memcached\"\nservers = [\"127.0.0.1\"]", "-Y FILE"),
            ("engine = \"redis\"\nservers = [\"127.0.0.1\"]\npassword = \"x\"", ""),
            ("engine = \"redis\"\nservers = [\"/run/redis.sock\"]", ""),
            ("", ""),
        ] {
            let text = format!("{TABLE}{lines}");
            let (_, report) = Config::read(Source { text: &text, ..Source::default() }).expect("it can be used");
            let faults = report.faults().iter().filter(|fault| !fault.message.contains("used nowhere"));
            let cures: String = faults.map(|fault| fault.cure.clone()).collect();
            assert!(if cure.is_empty() { cures.is_empty() } else { cures.contains(cure) }, "{lines}\n{report}");
        }
    }

    #[test]
    fn a_running_process_keeps_its_caches() {
        let running = read(TABLE).unwrap_or_else(|report| panic!("{report}"));
        for text in
            [format!("{TABLE}memory = \"1MiB\""), format!("{TABLE}{}", TABLE.replace("\"a\"", "\"b\"")), String::new()]
        {
            let file = read(&text).unwrap_or_else(|report| panic!("{report}"));
            let (config, changes) = file.for_running(&running);
            assert_eq!(config.caches, running.caches, "{text}");
            assert!(changes.len() == 1 && changes[0].needs_restart, "{changes:?}");
        }
    }
}
