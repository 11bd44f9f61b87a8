//! `[store]`: the embedded database of bindings and subscribers, and the database server that may have the subscribers.

use std::path::PathBuf;
use std::time::Duration;

use strowger_store::database_url::DatabaseUrl;

use super::cache::CacheTable;
use super::key::{Rule, Text, words};
use super::name::Reference;
use super::reader::{ANY, section};
use super::tls::system_authorities;

words! {
    /// Whether what a database server says is protected on its way (RFC 8446).
    pub enum DatabaseTls {
        /// Not at all: for this machine and closed networks.
        Off = "off",
        /// By TLS, and the server must have a certificate of an authority that is trusted, for its host.
        Required = "required",
    }
}

impl Text for DatabaseUrl {
    const EXPECTED: &'static str = "a URL such as \"mysql://USER:PASSWORD@HOST:3306/DATABASE\" or \
                                    \"postgresql://USER:PASSWORD@HOST:5432/DATABASE\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn to_text(&self) -> String {
        self.to_string()
    }
}

section! {
    /// The embedded SQLite database of bindings and subscribers. Subscribers may be in a database server instead; bindings stay here.
    pub struct Store = "store" {
        /// Database file, made if it is missing; "memory" keeps everything in memory and forgets it at the end.
        pub database: Option<PathBuf> = Some(PathBuf::from("strowger.sqlite")), ANY.or("memory").fixed();
        /// Where the subscribers are. "database": in `database`, where `strowger user` keeps them. A URL: in the table of a MariaDB, MySQL or
        /// PostgreSQL server, read in place as OpenSIPS 3 and Kamailio 5 have it, by `username` and `domain`, with `ha1`, `ha1_sha256`,
        /// `ha1_sha512t256`, `ha1b` and `password` as far as they are there; nothing is written to it. Bindings stay in `database`. What no
        /// user has an HA1 for is not offered, though `auth.algorithms` names it. In a password write %40 for "@" and %3F for "?";
        /// `mysql://USER:PASSWORD@/DATABASE?socket=/run/mysqld/mysqld.sock` is a server on this machine.
        pub subscribers: Option<DatabaseUrl> = None, ANY.or("database").fixed();
        /// Table of a database server that has the subscribers, as TABLE or SCHEMA.TABLE.
        pub subscriber_table: String = "subscriber".to_owned(), ANY.fixed();
        /// Protection of what such a server is asked and says.
        pub subscriber_tls: DatabaseTls = DatabaseTls::Off, ANY.fixed();
        /// PEM file of the authorities one of which signed the certificate of such a server; "system": those of the system.
        pub subscriber_ca: Option<PathBuf> = None, ANY.or("system").fixed();
        /// How long to wait for another process that holds the database before a request fails with 500.
        pub busy_timeout: Duration = Duration::from_secs(1), Rule::time(Duration::ZERO, Duration::from_secs(60)).fixed();
        /// How long a look-up may take before its request fails with 500. A connection to a database server that takes longer is made again.
        pub lookup_timeout: Duration = Duration::from_secs(2), Rule::time(Duration::from_millis(10), Duration::from_secs(60)).fixed();
        /// Look-ups that miss that time in a row after which further ones fail at once, until the database answers again.
        pub breaker_after: u32 = 5, Rule::number(1, 1 << 20).fixed();
        /// Most connections by which look-ups are made at a time; the second is opened when the first is busy.
        pub lookup_connections: usize = 4, Rule::number(1, 256).fixed();
        /// Answers about subscribers kept in memory.
        pub cache_entries: usize = 200_000, Rule::number(1, 1 << 28).fixed();
        /// How long such an answer is good at most. In `database` a change of a subscriber is seen within `poll_interval`; a database server tells
        /// of none, so there it is seen when this time has passed: "0s" asks for each request.
        pub cache_lifetime: Duration = Duration::from_secs(300), Rule::time(Duration::ZERO, Duration::from_secs(86_400)).fixed();
        /// How long an answer is good beyond that while the database fails or is silent: who is known goes on to be authenticated. "0s": not at all.
        pub serve_stale: Duration = Duration::from_secs(86_400), Rule::time(Duration::ZERO, Duration::from_secs(30 * 86_400)).fixed();
        /// How long the database has to answer before such an answer is used.
        pub stale_wait: Duration = Duration::from_millis(200), Rule::time(Duration::from_millis(10), Duration::from_secs(60)).fixed();
        /// Answers "there is none" kept in memory.
        pub cache_absent_entries: usize = 20_000, Rule::number(1, 1 << 28).fixed();
        /// How long such an answer is good.
        pub cache_absent_lifetime: Duration = Duration::from_secs(30), Rule::time(Duration::ZERO, Duration::from_secs(86_400)).fixed();
        /// A `[[cache]]` that is asked before the database, and has what the database said: answers live there as long as `cache_lifetime` and
        /// `cache_absent_lifetime` say, and then as long again in memory at most. Servers that share it share what they learn. It holds HA1s: who
        /// can read it can register as any user in it.
        pub cache: Option<Reference<CacheTable>> = None, ANY.or("").fixed();
        /// How often the database is asked which subscribers changed and, when it has stopped answering, whether it does again.
        pub poll_interval: Duration = Duration::from_millis(500), Rule::time(Duration::from_millis(10), Duration::from_secs(60)).fixed();
        /// Memory of the database for pages of its file, each connection.
        pub page_cache: usize = 16 << 20, Rule::bytes(64 << 10, 1 << 34).fixed();
        /// Largest size of the database file; "disk" leaves it to the disk.
        pub max_size: Option<u64> = None, Rule::bytes(64 << 10, 1 << 44).or("disk").fixed();
    }
}

impl Store {
    /// PEM file of the authorities by which a database server is verified, if it is to be; those of the system where no file is named.
    pub fn subscriber_authorities(&self) -> Option<PathBuf> {
        match self.subscriber_tls {
            DatabaseTls::Off => None,
            DatabaseTls::Required => Some(self.subscriber_ca.clone().or_else(system_authorities).unwrap_or_default()),
        }
    }
}
