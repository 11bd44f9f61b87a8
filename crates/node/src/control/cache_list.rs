//! Cached data in replies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Caches of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheList {
    /// Subscribers in memory; none without a database of subscribers.
    pub subscribers: Option<SubscriberCache>,
    /// The `[[cache]]` tables, in the order of the configuration.
    pub caches: Vec<CacheSummary>,
}

/// Cached subscribers in memory, now and since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SubscriberCache {
    /// `works`, or that the database does not answer and unknown users fail at once.
    pub state: String,
    /// Cached answers.
    pub entries: u64,
    /// Questions answered from memory.
    pub hits: u64,
    /// Questions to the database, or to the cache before it.
    pub misses: u64,
    /// Expired answers that were used because the database was silent.
    pub stale: u64,
    /// Questions without an answer in time.
    pub late: u64,
    /// Questions that failed at once, and batches that the database failed.
    pub failed: u64,
    /// Connections to the database.
    pub connections: u64,
    /// Questions that the database has still to answer.
    pub in_flight: u64,
    /// Name of the `[[cache]]` before the database.
    pub second: Option<String>,
}

/// A `[[cache]]`, now and since the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheSummary {
    /// Name in other tables.
    pub name: String,
    /// `local`, `memcached` or `redis`.
    pub engine: String,
    /// `works`, or a description of the failure.
    pub state: String,
    /// Its servers; empty for a local cache.
    pub servers: Vec<String>,
    /// Entries; none for a cache on servers.
    pub entries: Option<u64>,
    /// Memory in bytes, including all overhead of the entries; none for a cache on servers.
    pub memory_bytes: Option<u64>,
    /// Most memory in bytes.
    pub most_bytes: Option<u64>,
    /// Fetches that found a value.
    pub hits: u64,
    /// Fetches that found no value.
    pub misses: u64,
    /// Stored values.
    pub stores: u64,
    /// Entries evicted for others; 0 for a cache on servers.
    pub evictions: u64,
    /// Requests that failed, came too late or were refused.
    pub errors: u64,
    /// Connections to its servers.
    pub connections: u64,
    /// Requests that its servers have still to answer.
    pub in_flight: u64,
}

/// Cached data of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CachedUser {
    /// `name@domain`.
    pub user: String,
    /// Cached answers. Empty: the next request queries the database; if `auth.credential_cache` is set, the user is not verified until it registers.
    pub kept: Vec<KeptAnswer>,
    /// Error of a cache that does not answer, and about which nothing else is shown.
    pub error: Option<String>,
}

/// A cached answer about a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct KeptAnswer {
    /// `memory`, or the name of the `[[cache]]`.
    pub place: String,
    /// `credential`: proof of the password; `user`: existence of the user; `registered`: proof of the password of a registered user, in the cache
    /// that `auth.credential_cache` names.
    pub question: String,
    /// Name in the question.
    pub name: String,
    /// Realm or domain in the question.
    pub within: String,
    /// True: the user exists; false: the cached answer is that there is none.
    pub exists: bool,
    /// Algorithms with an HA1.
    pub algorithms: Vec<String>,
    /// True: valid without a question to the database. In memory an expired answer is still used while the database is
    /// silent.
    pub fresh: bool,
    /// Time of the database's answer, in milliseconds since 1970; none: unknown.
    pub read_at: Option<u64>,
}

/// An entry of a `[[cache]]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheEntry {
    /// Name of the cache.
    pub cache: String,
    /// The key.
    pub key: String,
    /// Size of its value in bytes.
    pub value_bytes: usize,
}
