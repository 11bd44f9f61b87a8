//! Orders and replies of the control socket.

use super::{
    AccountingState, CacheEntry, CacheList, CachedUser, Call, CallList, Found, LimitList, NextHopAside, Reload,
    SetList, SetPage, SetReload, Wrong,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

/// Maximum size of an order, in bytes.
pub const LONGEST_LINE: usize = 4_096;

/// Order of a client to the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlOrder {
    /// Status of the server: [`Reply::Status`].
    Status,
    /// Registrations of one user (`name@domain`) or of all, from the end of the page before: [`Reply::Registrations`].
    Registrations {
        /// `name@domain`; none: all users.
        user: Option<String>,
        /// [`Page::next`] of the page before.
        from: Option<u64>,
        /// Maximum number of registrations of the page; the server has a bound of its own.
        most: usize,
    },
    /// End of the registrations of a user, as if the phone had removed them: [`Reply::Done`].
    RemoveRegistrations {
        /// `name@domain`.
        user: String,
        /// Contact of the only one to end, as in [`Registration::contact`]; none: all.
        contact: Option<String>,
    },
    /// Tracked calls, from the end of the page before: [`Reply::Calls`].
    Calls {
        /// Part of the caller's or the callee's URI; none: all calls.
        party: Option<String>,
        /// [`CallList::next`] of the page before.
        from: Option<u64>,
        /// Maximum number of calls of the page; the server has a bound of its own.
        most: usize,
    },
    /// Tracked call with this id: [`Reply::Call`].
    Call {
        /// [`Call::id`].
        id: String,
    },
    /// End of the call with this id: each party that has answered gets a BYE, ringing callees get a CANCEL:
    /// [`Reply::Done`].
    EndCall {
        /// [`Call::id`].
        id: String,
    },
    /// Data sets of the rules: [`Reply::Sets`].
    Sets,
    /// Entries of a data set, ordered by key, from the end of the page before: [`Reply::Set`].
    Set {
        /// Its name.
        name: String,
        /// Beginning of the keys to list; empty: all.
        beginning: String,
        /// [`SetPage::next`] of the page before.
        from: Option<u64>,
        /// Maximum number of entries of the page; the server has a bound of its own.
        most: usize,
    },
    /// Entries of a data set that match a number, a text or an address: [`Reply::Found`].
    Search {
        /// Its name.
        name: String,
        /// Number, text or address.
        key: String,
    },
    /// Reading of data sets from their files and databases: [`Reply::Done`] if the server uses the new data; [`Reply::Wrong`]: all sets keep their
    /// data.
    ReloadSets {
        /// Name of a single set; none: all whose entries are outside the configuration.
        name: Option<String>,
    },
    /// Calls counted under the limits: [`Reply::Limits`].
    Limits {
        /// Name of a single limit.
        name: Option<String>,
        /// Single key: a user, group, address or URI.
        key: Option<String>,
        /// Maximum number of keys shown of a limit, those with the most calls; the server has a bound of its own.
        most: usize,
    },
    /// Cached subscribers, and the `[[cache]]` tables: [`Reply::Caches`].
    Caches,
    /// Cached data of a user, without proofs of a password: [`Reply::CachedUser`].
    CachedUser {
        /// `name@domain`.
        user: String,
    },
    /// Removal of cached subscribers, so that the database is queried again: [`Reply::Done`].
    DropSubscribers {
        /// Single user, `name@domain`.
        user: Option<String>,
    },
    /// Existence and size of an entry of a `[[cache]]`, without its value: [`Reply::CacheEntry`].
    CacheEntry {
        /// Name of the cache.
        cache: String,
        /// Key of the entry.
        key: String,
    },
    /// Removal of an entry of a `[[cache]]`: [`Reply::Done`].
    DropEntry {
        /// Name of the cache.
        cache: String,
        /// Key of the entry.
        key: String,
    },
    /// State of accounting: [`Reply::Accounting`].
    Accounting,
    /// Attempt to write the spool, and the state afterwards: [`Reply::Accounting`].
    FlushAccounting,
    /// Attempt to write the quarantine, and the state afterwards: [`Reply::Accounting`].
    RetryAccounting,
    /// Banned sources ordered by address, from the end of the page before: [`Reply::Bans`].
    Bans {
        /// [`BanList::next`] of the page before.
        from: Option<IpAddr>,
        /// Maximum number of bans of the reply; the server has a bound of its own.
        most: usize,
    },
    /// End of the ban of a source, or of all bans: [`Reply::Done`].
    Lift {
        /// Any address of the source.
        source: Option<IpAddr>,
    },
    /// Change of the log level, or the present level: [`Reply::Done`].
    LogLevel {
        /// Level in the syntax of the environment variable STROWGER_LOG; none: no change.
        level: Option<String>,
    },
    /// Reload of the configuration: [`Reply::Done`] if the server uses it; [`Reply::Wrong`]: the server keeps the earlier one.
    Reload {
        /// Complete path of the file; a server with another file refuses.
        file: Option<PathBuf>,
    },
    /// Graceful shutdown: [`Reply::Done`].
    Drain,
}

/// Answer of the server to a [`ControlOrder`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Answer to [`ControlOrder::Status`].
    Status(Box<Status>),
    /// Answer to [`ControlOrder::Registrations`].
    Registrations(Page),
    /// Answer to [`ControlOrder::Calls`].
    Calls(CallList),
    /// Answer to [`ControlOrder::Call`].
    Call(Box<Call>),
    /// Answer to [`ControlOrder::Sets`].
    Sets(SetList),
    /// Answer to [`ControlOrder::Set`].
    Set(SetPage),
    /// Answer to [`ControlOrder::Search`].
    Found(Found),
    /// Answer to [`ControlOrder::Limits`].
    Limits(LimitList),
    /// Answer to [`ControlOrder::Caches`].
    Caches(CacheList),
    /// Answer to [`ControlOrder::CachedUser`].
    CachedUser(CachedUser),
    /// Answer to [`ControlOrder::CacheEntry`].
    CacheEntry(CacheEntry),
    /// Answer to [`ControlOrder::Accounting`], [`ControlOrder::FlushAccounting`] and [`ControlOrder::RetryAccounting`].
    Accounting(AccountingState),
    /// Answer to [`ControlOrder::Bans`].
    Bans(BanList),
    /// The order was carried out.
    Done(Done),
    /// Reason for which the order was refused.
    Refused(String),
    /// Reason for which the order cannot be carried out now: a part of the server or a service behind it does not answer, or the server is shutting
    /// down.
    Unavailable(String),
    /// Answer to [`ControlOrder::Reload`] and [`ControlOrder::ReloadSets`]: the errors of the configuration, or of the sets.
    Wrong(Wrong),
}

/// Result of an order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// Bans have ended.
    Lifted {
        /// Number of ended bans.
        bans: usize,
    },
    /// Cached subscribers were removed from memory.
    Dropped {
        /// Number of removed answers.
        answers: usize,
    },
    /// An entry of a cache is gone.
    Removed {
        /// True: the entry existed before.
        was_there: bool,
    },
    /// Registrations have ended.
    Unregistered {
        /// Number of ended registrations.
        registrations: usize,
    },
    /// The call ends.
    Ended {
        /// [`Call::id`].
        id: String,
    },
    /// Log level.
    Level {
        /// Level in the syntax of the environment variable STROWGER_LOG.
        level: String,
    },
    /// The server uses the present configuration file.
    Reloaded(Reload),
    /// The server uses the present data of these sets.
    SetsReloaded {
        /// Sets in the order of the configuration.
        sets: Vec<SetReload>,
    },
    /// The shutdown has begun; calls being set up have this much time.
    Draining {
        /// `server.drain_timeout`.
        seconds: u64,
    },
}

/// State of the server at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub process: u32,
    /// `ready`, or the reason for which no new work is accepted.
    pub state: String,
    /// Time since the process began.
    pub uptime_seconds: u64,
    /// Listeners as `transport:address:port`.
    pub listeners: Vec<String>,
    /// Shards that have ever run.
    pub shards: Vec<ShardStatus>,
    /// Next hops that are set aside, 50 at most.
    #[serde(default)]
    pub next_hops_aside: Vec<NextHopAside>,
    /// All counters and gauges of the process and of all shards together, by their names in Prometheus.
    pub metrics: BTreeMap<String, f64>,
}

/// State of a shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShardStatus {
    /// Number of the shard.
    pub shard: usize,
    /// Processor time that its thread has used.
    pub busy_seconds: f64,
    /// Longest turn in the last 30 to 60 seconds.
    pub longest_turn_seconds: f64,
    /// Its buckets of 256.
    pub buckets: u64,
    /// Bytes that wait in the kernel.
    pub backlog_bytes: u64,
}

/// A page of registrations, and the place of the next one; `None` at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Page {
    /// Registrations in no particular order.
    pub registrations: Vec<Registration>,
    /// Place of the next page of the list of registrations.
    pub next: Option<u64>,
}

/// A contact of a user. Text of peers is unchanged, except for replaced bytes that are not UTF-8.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Registration {
    /// `name@domain`.
    pub user: String,
    /// The Contact URI.
    pub contact: String,
    /// Transport of its REGISTER.
    pub transport: Option<String>,
    /// Source of its REGISTER, if it differs from the contact.
    pub received: Option<SocketAddr>,
    /// Time until it ends, unless it is refreshed.
    pub expires_in_seconds: u64,
    /// Time of its last REGISTER, in milliseconds since 1970.
    pub updated_at: u64,
    /// User-Agent of its REGISTER.
    pub user_agent: String,
    /// Instance id, `+sip.instance` (RFC 5626).
    pub instance: String,
    /// Path URIs, separated by commas (RFC 3327).
    pub path: String,
    /// Preference in thousandths.
    pub q: Option<u16>,
}

/// A page of banned sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BanList {
    /// Bans ordered by address.
    pub bans: Vec<Ban>,
    /// Number of all bans.
    pub banned: usize,
    /// Begin of the next page of the list of bans; none: this was the last.
    pub next: Option<IpAddr>,
}

/// A banned source; its first address for an IPv6 network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ban {
    /// Address of the source.
    pub source: IpAddr,
    /// Time until the ban ends.
    pub seconds_left: u64,
}
