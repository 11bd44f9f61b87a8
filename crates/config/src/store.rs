//! `[store]`: the embedded database of bindings and subscribers, and the database servers that may have them.

use std::path::{Path, PathBuf};
use std::time::Duration;

use strowger_store::database_url::DatabaseUrl;

use super::cache::CacheTable;
use super::key::{Rule, Text};
use super::name::Reference;
use super::reader::{ANY, section};

impl Text for DatabaseUrl {
    const EXPECTED: &'static str = "a URL such as \"mysql://USER:PASSWORD@HOST:3306/DATABASE\" or \
                                    \"postgresql://USER:PASSWORD@HOST:5432/DATABASE\"";

    fn from_text(text: &str) -> Result<Self, String> {
        text.parse()
    }

    fn to_text(&self) -> String {
        self.to_string()
    }

    fn resolve(&mut self, folder: &Path) {
        Self::resolve(self, folder);
    }
}

section! {
    /// The embedded SQLite database of bindings and subscribers. Bindings, subscribers or both may be in a database server instead.
    pub struct Store = "store" {
        /// Database file, made if it is missing; "memory" keeps everything in memory and forgets it at the end.
        pub database: Option<PathBuf> = Some(PathBuf::from("strowger.sqlite")), ANY.or("memory").fixed();
        /// Place of the subscribers. "database": in `database`, where `strowger user` keeps them. A URL: the table of a MariaDB, MySQL or PostgreSQL
        /// server, read in the form of OpenSIPS 3 and Kamailio 5: rows are found by `username` and `domain`, and of the columns `ha1`, `ha1_sha256`,
        /// `ha1_sha512t256`, `ha1b` and `password` those that exist are used. Nothing is written to the table. An algorithm for which no user has an
        /// HA1 is not offered, even if `auth.algorithms` names it. In a password write %40 for "@" and %3F for "?". The URL
        /// `mysql://USER:PASSWORD@/DATABASE?socket=/run/mysqld/mysqld.sock` names a server on this machine. Parameters after a "?" protect the
        /// connection: `tls=required` demands TLS (RFC 8446) and a certificate for the host of the server, signed by an authority of the system, or
        /// with `&ca=FILE` by one in this PEM file.
        pub subscribers: Option<DatabaseUrl> = None, ANY.or("database").fixed();
        /// Table of a database server that has the subscribers, as TABLE or SCHEMA.TABLE.
        pub subscriber_table: String = "subscriber".to_owned(), ANY.fixed();
        /// Place of the bindings. "database": in `database`. A URL: the table `strowger_binding` of a MariaDB, MySQL or PostgreSQL server, which
        /// `strowger db init` makes; only one SIP server at a time may use this table. The bindings are read once, at the start. While the database
        /// server is unavailable, registered phones can still be called, and a REGISTER that changes a binding fails with 500.
        pub bindings: Option<DatabaseUrl> = None, ANY.or("database").fixed();
        /// Longest wait for a lock that another process holds on the database, or for a database server to store bindings; then the request fails
        /// with 500. A database server has at least 100 ms, and for accounting one millisecond more for each row.
        pub busy_timeout: Duration = Duration::from_secs(1), Rule::time(Duration::ZERO, Duration::from_secs(60)).fixed();
        /// Longest time of a look-up before its request fails with 500. A connection to a database server that takes longer is replaced.
        pub lookup_timeout: Duration = Duration::from_secs(2), Rule::time(Duration::from_millis(10), Duration::from_secs(60)).fixed();
        /// Most connections for simultaneous look-ups; a further one is opened when all open ones are busy. For a database server each shard has in
        /// addition a connection of its own, which it uses first.
        pub lookup_connections: usize = 4, Rule::number(1, 256).fixed();
        /// Most answers about subscribers that are cached in memory.
        pub cache_entries: usize = 200_000, Rule::number(1, 1 << 28).fixed();
        /// Longest lifetime of such an answer. The server sees a change of a subscriber in `database` within half a second. A database server reports
        /// no changes, so a change there is seen only when this time has passed; with "0s" the database server is queried for each request. No answer
        /// is cached for a phone that authenticates by its whole address with upper-case letters in the domain.
        pub cache_lifetime: Duration = Duration::from_secs(300), Rule::time(Duration::ZERO, Duration::from_secs(86_400)).fixed();
        /// Time for which an expired answer is still used while the database fails or does not answer, so that known users can authenticate. "0s":
        /// expired answers are never used.
        pub serve_stale: Duration = Duration::from_secs(86_400), Rule::time(Duration::ZERO, Duration::from_secs(30 * 86_400)).fixed();
        /// A `[[cache]]` that is queried before the database, and stores the users that the database found: an entry lives for `cache_lifetime`, and
        /// after that in memory for at most the same time. Answers "there is no such user" are cached in memory alone. Several servers may share the
        /// cache. It holds HA1s: an attacker who can read the cache can register as any user in it.
        pub cache: Option<Reference<CacheTable>> = None, ANY.or("").fixed();
    }
}
