//! `[store]`: the embedded database of bindings and subscribers, and the database servers that may have them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strowger_store::database_url::DatabaseUrl;

use super::cache::CacheTable;
use super::key::{Rule, Text, words};
use super::name::Reference;
use super::reader::{ANY, section};

words! {
    /// Protection of the connection to a database server (RFC 8446).
    pub enum DatabaseTls {
        /// No protection: for this machine and closed networks.
        Off = "off",
        /// TLS: the server must show a certificate for its host from a trusted authority.
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
    /// The embedded SQLite database of bindings and subscribers. Either may be in a database server instead.
    pub struct Store = "store" {
        /// Database file, made if it is missing; "memory" keeps everything in memory and forgets it at the end.
        pub database: Option<PathBuf> = Some(PathBuf::from("strowger.sqlite")), ANY.or("memory").fixed();
        /// Place of the subscribers. "database": in `database`, where `strowger user` keeps them. A URL: the table of a MariaDB, MySQL or PostgreSQL
        /// server, read in place as OpenSIPS 3 and Kamailio 5 have it, by `username` and `domain`, with those of the columns `ha1`, `ha1_sha256`,
        /// `ha1_sha512t256`, `ha1b` and `password` that exist; nothing is written to it. An algorithm for which no user has an HA1 is not offered,
        /// even if `auth.algorithms` names it. In a password write %40 for "@" and %3F for "?";
        /// `mysql://USER:PASSWORD@/DATABASE?socket=/run/mysqld/mysqld.sock` is a server on this machine.
        pub subscribers: Option<DatabaseUrl> = None, ANY.or("database").fixed();
        /// Table of a database server that has the subscribers, as TABLE or SCHEMA.TABLE.
        pub subscriber_table: String = "subscriber".to_owned(), ANY.fixed();
        /// Protection of the connections to such a server.
        pub subscriber_tls: DatabaseTls = DatabaseTls::Off, ANY.fixed();
        /// PEM file of the authorities trusted for the certificate of such a server; "system": those of the system.
        pub subscriber_ca: Option<PathBuf> = None, ANY.or("system").fixed();
        /// Place of the bindings. "database": in `database`. A URL: the table `strowger_binding` of a MariaDB, MySQL or PostgreSQL server, which
        /// `strowger db init` makes; one server at a time keeps its bindings in a database. They are read once, at the start: while that server is
        /// unavailable, known phones are called, and a REGISTER that changes something fails with 500.
        pub bindings: Option<DatabaseUrl> = None, ANY.or("database").fixed();
        /// Protection of the connections to such a server.
        pub binding_tls: DatabaseTls = DatabaseTls::Off, ANY.fixed();
        /// PEM file of the authorities trusted for the certificate of such a server; "system": those of the system.
        pub binding_ca: Option<PathBuf> = None, ANY.or("system").fixed();
        /// Longest wait for another process that holds the database, or for a database server to keep bindings, before a request fails with 500. A
        /// server has at least 100 ms, and for accounting one millisecond more for each row.
        pub busy_timeout: Duration = Duration::from_secs(1), Rule::time(Duration::ZERO, Duration::from_secs(60)).fixed();
        /// Longest time of a look-up before its request fails with 500. A connection to a database server that takes longer is replaced.
        pub lookup_timeout: Duration = Duration::from_secs(2), Rule::time(Duration::from_millis(10), Duration::from_secs(60)).fixed();
        /// Look-ups that miss that time in a row after which further ones fail at once, until the database answers again.
        pub breaker_after: u32 = 5, Rule::number(1, 1 << 20).fixed();
        /// Most connections by which look-ups are made at a time; the second is opened when the first is busy. To a database server each shard
        /// has one more of its own, which it uses first.
        pub lookup_connections: usize = 4, Rule::number(1, 256).fixed();
        /// Answers about subscribers kept in memory.
        pub cache_entries: usize = 200_000, Rule::number(1, 1 << 28).fixed();
        /// Longest lifetime of such an answer. The server sees a change of a subscriber in `database` within `poll_interval`; a database server
        /// reports no changes, so there it is seen when this time has passed: "0s" queries it for each request. No answer is kept for a phone that
        /// authenticates by its whole address with upper-case letters in the domain.
        pub cache_lifetime: Duration = Duration::from_secs(300), Rule::time(Duration::ZERO, Duration::from_secs(86_400)).fixed();
        /// Time for which an expired answer is still used while the database fails or is silent: known users can still authenticate. "0s": not at
        /// all.
        pub serve_stale: Duration = Duration::from_secs(86_400), Rule::time(Duration::ZERO, Duration::from_secs(30 * 86_400)).fixed();
        /// Longest wait for the database before such an answer is used.
        pub stale_wait: Duration = Duration::from_millis(200), Rule::time(Duration::from_millis(10), Duration::from_secs(60)).fixed();
        /// Answers "there is none" kept in memory. They evict one another, never the answer about a user.
        pub cache_absent_entries: usize = 20_000, Rule::number(1, 1 << 28).fixed();
        /// Lifetime of such an answer.
        pub cache_absent_lifetime: Duration = Duration::from_secs(30), Rule::time(Duration::ZERO, Duration::from_secs(86_400)).fixed();
        /// A `[[cache]]` that is queried before the database, and stores the users that the database found: an entry lives for `cache_lifetime`, and
        /// then as long again in memory at most. Answers "there is none" are kept in memory alone. Several servers may share it. It holds HA1s: a
        /// reader of it can register as any user in it.
        pub cache: Option<Reference<CacheTable>> = None, ANY.or("").fixed();
        /// Interval at which the database is queried for changed subscribers and, after a failure, for a sign of life.
        pub poll_interval: Duration = Duration::from_millis(500), Rule::time(Duration::from_millis(10), Duration::from_secs(60)).fixed();
        /// Memory of the database for pages of its file, each connection.
        pub page_cache: usize = 16 << 20, Rule::bytes(64 << 10, 1 << 34).fixed();
        /// Largest size of the database file; "disk" leaves it to the disk.
        pub max_size: Option<u64> = None, Rule::bytes(64 << 10, 1 << 44).or("disk").fixed();
    }
}

impl Store {
    /// Returns the database server of subscribers, if they are on one.
    pub fn subscriber_server(&self) -> Option<DatabaseServer<'_>> {
        let (tls, authorities) = (self.subscriber_tls, self.subscriber_ca.as_deref());
        self.subscribers.as_ref().map(|url| DatabaseServer { url, tls, authorities })
    }

    /// Returns the database server of bindings, if they are on one.
    pub fn binding_server(&self) -> Option<DatabaseServer<'_>> {
        let (tls, authorities) = (self.binding_tls, self.binding_ca.as_deref());
        self.bindings.as_ref().map(|url| DatabaseServer { url, tls, authorities })
    }
}

/// A database server named in the file.
#[derive(Debug, Clone, Copy)]
pub struct DatabaseServer<'a> {
    /// URL of the server.
    pub url: &'a DatabaseUrl,
    /// Protection of the connection.
    pub tls: DatabaseTls,
    /// PEM file of the authorities that verify the server; `None`: those of the system.
    pub authorities: Option<&'a Path>,
}
