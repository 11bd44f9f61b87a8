//! A changed key, for a reload.

/// A key whose value in the file differs from the running value. Secrets are masked in both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Name with its table, such as `server.shards` or `listener[0].advertise`.
    pub key: String,
    /// Running value, as TOML.
    pub running: String,
    /// Value in the file, as TOML.
    pub wanted: String,
    /// True: the process keeps its value until it restarts.
    pub needs_restart: bool,
}
