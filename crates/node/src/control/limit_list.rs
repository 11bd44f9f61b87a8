//! Limits of calls in replies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Limits of calls, and the calls counted now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LimitList {
    /// Limits in the order of the configuration, followed by those that a reload has removed and under which calls
    /// still count.
    pub limits: Vec<Limit>,
}

/// A `[[call_limit]]`, and the calls counted now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Limit {
    /// Name in rules.
    pub name: String,
    /// Property by which calls are counted: `all`, `user`, `source.group`, `source.address`, `from.uri` or `request.uri`; empty if the configuration
    /// no longer has the limit.
    pub per: String,
    /// Most concurrent calls of each key; none if the configuration no longer has the limit.
    pub most: Option<u32>,
    /// Calls counted now, over all keys.
    pub calls: u64,
    /// Keys with calls now: users, groups, addresses or URIs.
    pub keys: u64,
    /// Keys that have reached the limit.
    pub full: u64,
    /// Keys with the most calls, the highest first; in the answer about one key, this key.
    pub highest: Vec<LimitKey>,
}

/// The calls of one key of a limit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct LimitKey {
    /// Calls counted now.
    pub calls: u32,
    /// A user, a group, an address or a URI; empty for `all`. Bytes that are not UTF-8 are replaced.
    pub key: String,
}
