//! Data sets, as the control socket shows them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Data sets that conditions of rules query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetList {
    /// Sets in the order of the configuration.
    pub sets: Vec<SetSummary>,
}

/// A data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetSummary {
    /// Name in conditions.
    pub name: String,
    /// `texts`, `prefixes` or `networks`.
    pub kind: String,
    /// Number of its keys.
    pub entries: usize,
    /// Memory in bytes.
    pub memory_bytes: usize,
    /// Place of its entries: `configuration`, a file, or a database without its password.
    pub origin: String,
    /// Time of the last reading, in milliseconds since 1970; none for entries in the configuration.
    pub read_at: Option<u64>,
    /// Error of the latest reading: the set keeps its earlier entries.
    pub error: Option<String>,
}

/// A page of entries of a data set, and the place of the next one; `None` at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetPage {
    /// Entries ordered by key.
    pub entries: Vec<SetEntry>,
    /// Place of the next page of the entries of a set. A set that was read again meanwhile may show an entry twice or not
    /// at all.
    pub next: Option<u64>,
}

/// Entries of a data set for a number, a text or an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// Matching entries, the decisive one first. Empty: no entry matches.
    pub entries: Vec<SetEntry>,
}

/// An entry of a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetEntry {
    /// A text, a prefix or a network.
    pub key: String,
    /// Its value, if it has one.
    pub value: Option<String>,
}
