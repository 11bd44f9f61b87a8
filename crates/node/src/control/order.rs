//! Orders and replies of the control socket.

use super::{AccountingState, CacheEntry, CacheList, CachedUser, LimitList, NextHopAside};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use strowger_config::{Report, SetFault, Severity};

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

/// A data set that was read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetReload {
    /// Name in conditions.
    pub name: String,
    /// Source of the entries.
    pub origin: String,
    /// Number of entries before.
    pub before: usize,
    /// Number of entries now.
    pub entries: usize,
    /// True: the entries differ from those before.
    pub changed: bool,
}

/// Result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reload {
    /// Name of the file; without a file that of the defaults.
    pub file: String,
    /// Keys whose values have changed: those in force now, and those that need a restart.
    pub changes: Vec<Change>,
    /// Warnings about the configuration.
    pub warnings: Vec<Fault>,
}

/// A key whose value in the file has changed. Secrets are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Name with its table, such as `proxy.fork_timeout`.
    pub key: String,
    /// Earlier value, as TOML.
    pub from: String,
    /// Value in the file, as TOML.
    pub to: String,
    /// True: the server keeps its value until it restarts.
    pub needs_restart: bool,
}

/// A configuration that the server refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wrong {
    /// All faults, for people: file, line, the faulty words, cure.
    pub text: String,
    /// The same faults as a list.
    pub faults: Vec<Fault>,
}

/// A fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// Name of the file.
    pub file: String,
    /// Line, from 1; none if the fault is in no line of the file.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// True: the configuration can still be used.
    pub warning: bool,
    /// Description of the fault.
    pub message: String,
    /// Instruction that removes the fault.
    pub cure: String,
}

impl Wrong {
    /// Converts a report.
    pub fn of(report: &Report) -> Self {
        Self { text: report.to_string(), faults: Fault::all(report) }
    }
}

impl From<&SetFault> for Fault {
    fn from(fault: &SetFault) -> Self {
        let SetFault { place, line, message, cure } = fault.clone();
        Self { file: place, line, column: None, warning: false, message, cure }
    }
}

impl Wrong {
    /// Converts faults of data sets.
    pub(super) fn of_sets(faults: &[SetFault]) -> Self {
        let line = |SetFault { place, line, message, cure }: &SetFault| {
            let line = line.map_or_else(String::new, |line| format!(":{line}"));
            format!("{place}{line}: error: {message}\n  = {cure}\n")
        };
        Self { text: faults.iter().map(line).collect(), faults: faults.iter().map(Fault::from).collect() }
    }
}

impl Fault {
    /// Converts the faults of a report, in the order of the file.
    pub fn all(report: &Report) -> Vec<Self> {
        let fault = |fault: &strowger_config::Fault| {
            let (line, column) = report.position(fault).unzip();
            Self {
                file: report.file().into(),
                line,
                column,
                warning: fault.severity == Severity::Warning,
                message: fault.message.clone(),
                cure: fault.cure.clone(),
            }
        };
        report.faults().iter().map(fault).collect()
    }
}

impl From<strowger_config::Change> for Change {
    fn from(change: strowger_config::Change) -> Self {
        let strowger_config::Change { key, running, wanted, needs_restart } = change;
        Self { key, from: running, to: wanted, needs_restart }
    }
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

/// A page of tracked calls, and the place of the next one; `None` at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallList {
    /// Calls in no particular order.
    pub calls: Vec<Call>,
    /// Place of the next page of the list of calls.
    pub next: Option<u64>,
    /// True: the configuration tracks calls. False: the list does not show the calls in progress; set `dialogs.track = true`.
    pub tracked: bool,
}

/// A tracked call. Text of peers is unchanged, except for replaced bytes that are not UTF-8.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Call {
    /// Id by which it is shown and ended, while it lasts.
    pub id: String,
    /// The URI of From.
    pub caller: String,
    /// The URI of To.
    pub callee: String,
    /// Its Call-ID.
    pub call_id: String,
    /// Call-ID of the call to the callee, if this server has made that call itself; else empty.
    pub far_call_id: String,
    /// File on this machine in which the caller is recorded, if a rule says so; a list of calls leaves it out.
    pub recording: Option<String>,
    /// `calling`, `ringing`, `answered` or `ending`.
    pub state: String,
    /// Time since its INVITE.
    pub seconds: f64,
    /// Time since its answer.
    pub answered_seconds: Option<f64>,
    /// Dialogs, one for each callee that rang or answered and has not ended.
    pub dialogs: Vec<Dialog>,
    /// Media that this server has received so far, by party; a list of calls leaves them out.
    pub media: Vec<CallMedia>,
}

/// Media that this server has received from a party of a call, of the first stream of the description.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallMedia {
    /// `caller` or `callee`.
    pub party: String,
    /// Packets, duplicates included.
    pub packets: u64,
    /// Packets that never came.
    pub lost: u64,
    /// Packets that came after one with a higher sequence number.
    pub reordered: u64,
    /// Packets that came before.
    pub doubled: u64,
    /// Mean interarrival jitter (RFC 3550 section 6.4.1), milliseconds.
    pub jitter_ms: f64,
    /// Largest interarrival jitter, milliseconds.
    pub max_jitter_ms: f64,
    /// Largest time between two packets, milliseconds.
    pub max_delay_ms: f64,
    /// Transmission rating R of the E-model (ITU-T G.107), 0 to 100, by the loss alone; null: it is not known for the codec.
    pub rating: Option<f64>,
    /// Mean opinion score of the rating, 1 to 4.5.
    pub mos: Option<f64>,
}

/// A dialog of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Dialog {
    /// The callee's tag.
    pub tag: String,
    /// The callee's Contact; empty before its answer.
    pub contact: String,
    /// Time since its answer.
    pub answered_seconds: Option<f64>,
}

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
