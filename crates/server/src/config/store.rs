//! `[store]`: the embedded database of subscribers and bindings.

use std::path::PathBuf;
use std::time::Duration;

use super::key::Rule;
use super::reader::{ANY, section};

section! {
    /// The embedded SQLite database of subscribers and bindings.
    pub struct Store = "store" {
        /// Database file, made if it is missing; "memory" keeps everything in memory and forgets it at the end.
        pub database: Option<PathBuf> = Some(PathBuf::from("strowger.sqlite")), ANY.or("memory");
        /// How long to wait for another process that holds the database before a request fails with 500.
        pub busy_timeout: Duration = Duration::from_secs(5), Rule::time(Duration::ZERO, Duration::from_secs(60));
        /// Subscribers kept in memory; 0 asks the database each time.
        pub cache_entries: usize = 100_000, Rule::number(0, 1 << 28);
        /// How long a subscriber in memory is believed: a changed password is known everywhere after it.
        pub cache_lifetime: Duration = Duration::from_secs(60), Rule::time(Duration::ZERO, Duration::from_secs(86_400));
    }
}
