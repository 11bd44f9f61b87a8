//! `[store]`: the embedded database of subscribers and bindings.

use std::path::PathBuf;
use std::time::Duration;

use super::cache::CacheTable;
use super::key::Rule;
use super::name::Reference;
use super::reader::{ANY, section};

section! {
    /// The embedded SQLite database of subscribers and bindings.
    pub struct Store = "store" {
        /// Database file, made if it is missing; "memory" keeps everything in memory and forgets it at the end.
        pub database: Option<PathBuf> = Some(PathBuf::from("strowger.sqlite")), ANY.or("memory").fixed();
        /// How long to wait for another process that holds the database before a request fails with 500.
        pub busy_timeout: Duration = Duration::from_secs(1), Rule::time(Duration::ZERO, Duration::from_secs(60)).fixed();
        /// How long a look-up may take before its request fails with 500.
        pub lookup_timeout: Duration = Duration::from_secs(2), Rule::time(Duration::from_millis(10), Duration::from_secs(60)).fixed();
        /// Look-ups that miss that time in a row after which further ones fail at once, until the database answers again.
        pub breaker_after: u32 = 5, Rule::number(1, 1 << 20).fixed();
        /// Most connections by which look-ups are made at a time; the second is opened when the first is busy.
        pub lookup_connections: usize = 4, Rule::number(1, 256).fixed();
        /// Answers about subscribers kept in memory.
        pub cache_entries: usize = 200_000, Rule::number(1, 1 << 28).fixed();
        /// How long such an answer is good at most; a change of a subscriber is seen within `poll_interval`.
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
