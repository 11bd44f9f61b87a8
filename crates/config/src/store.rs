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
    /// The embedded SQLite database of bindings and subscribers. Either may be in a database server instead.
    pub struct Store = "store" {
        /// Database file, made if it is missing; "memory" keeps everything in memory and forgets it at the end.
        pub database: Option<PathBuf> = Some(PathBuf::from("strowger.sqlite")), ANY.or("memory").fixed();
        /// Place of the subscribers. "database": in `database`, where `strowger user` keeps them. A URL: the table of a MariaDB, MySQL or PostgreSQL
        /// server, read in place as OpenSIPS 3 and Kamailio 5 have it, by `username` and `domain`, with those of the columns `ha1`, `ha1_sha256`,
        /// `ha1_sha512t256`, `ha1b` and `password` that exist; nothing is written to it. An algorithm for which no user has an HA1 is not offered,
        /// even if `auth.algorithms` names it. In a password write %40 for "@" and %3F for "?";
        /// `mysql://USER:PASSWORD@/DATABASE?socket=/run/mysqld/mysqld.sock` is a server on this machine.
        /// Behind a "?" at the end of a URL stands the protection of the connection: `tls=required` asks for TLS (RFC 8446) and for a certificate
        /// for the host of the server, from an authority of the system, or with `&ca=FILE` from one of this PEM file.
        pub subscribers: Option<DatabaseUrl> = None, ANY.or("database").fixed();
        /// Table of a database server that has the subscribers, as TABLE or SCHEMA.TABLE.
        pub subscriber_table: String = "subscriber".to_owned(), ANY.fixed();
        /// Place of the bindings. "database": in `database`. A URL: the table `strowger_binding` of a MariaDB, MySQL or PostgreSQL server, which
        /// `strowger db init` makes; one server at a time keeps its bindings in a database. They are read once, at the start: while that server is
        /// unavailable, known phones are called, and a REGISTER that changes something fails with 500.
        pub bindings: Option<DatabaseUrl> = None, ANY.or("database").fixed();
        /// Longest wait for another process that holds the database, or for a database server to keep bindings, before a request fails with 500. A
        /// server has at least 100 ms, and for accounting one millisecond more for each row.
        pub busy_timeout: Duration = Duration::from_secs(1), Rule::time(Duration::ZERO, Duration::from_secs(60)).fixed();
        /// Longest time of a look-up before its request fails with 500. A connection to a database server that takes longer is replaced.
        pub lookup_timeout: Duration = Duration::from_secs(2), Rule::time(Duration::from_millis(10), Duration::from_secs(60)).fixed();
        /// Most connections by which look-ups are made at a time; the second is opened when the first is busy. To a database server each shard
        /// has one more of its own, which it uses first.
        pub lookup_connections: usize = 4, Rule::number(1, 256).fixed();
        /// Answers about subscribers kept in memory.
        pub cache_entries: usize = 200_000, Rule::number(1, 1 << 28).fixed();
        /// Longest lifetime of such an answer. The server sees a change of a subscriber in `database` within half a second; a database server
        /// reports no changes, so there it is seen when this time has passed: "0s" queries it for each request. No answer is kept for a phone that
        /// authenticates by its whole address with upper-case letters in the domain.
        pub cache_lifetime: Duration = Duration::from_secs(300), Rule::time(Duration::ZERO, Duration::from_secs(86_400)).fixed();
        /// Time for which an expired answer is still used while the database fails or is silent: known users can still authenticate. "0s": not at
        /// all.
        pub serve_stale: Duration = Duration::from_secs(86_400), Rule::time(Duration::ZERO, Duration::from_secs(30 * 86_400)).fixed();
        /// A `[[cache]]` that is queried before the database, and stores the users that the database found: an entry lives for `cache_lifetime`, and
        /// then as long again in memory at most. Answers "there is none" are kept in memory alone. Several servers may share it. It holds HA1s: a
        /// reader of it can register as any user in it.
        pub cache: Option<Reference<CacheTable>> = None, ANY.or("").fixed();
    }
}
