//! What is asked and answered over the control socket.

use super::{AccountingState, CacheEntry, CacheList, CachedUser, LimitList, NextHopAside};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use strowger_config::{Report, SetFault, Severity};

/// Bytes of an order at most.
pub const LONGEST_LINE: usize = 4_096;

/// What a command wants of the server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// [`Reply::Status`].
    Status,
    /// [`Reply::Registrations`]: of one user (`name@domain`), or of all, from where the page before ended.
    Registrations {
        /// `name@domain`; none: all users.
        user: Option<String>,
        /// [`Page::next`] of the page before.
        from: Option<u64>,
        /// Registrations of the page at most; the server has a bound of its own.
        most: usize,
    },
    /// [`Reply::Done`]: registrations of a user end, as if its phone had removed them.
    RemoveRegistrations {
        /// `name@domain`.
        user: String,
        /// The one with this contact, as [`Registration::contact`] has it; none: all.
        contact: Option<String>,
    },
    /// [`Reply::Calls`]: tracked calls, from where the page before ended.
    Calls {
        /// A part of the caller's or the callee's URI; none: all calls.
        party: Option<String>,
        /// [`CallList::next`] of the page before.
        from: Option<u64>,
        /// Calls of the page at most; the server has a bound of its own.
        most: usize,
    },
    /// [`Reply::Call`]: the tracked call with this id.
    Call {
        /// [`Call::id`].
        id: String,
    },
    /// [`Reply::Done`]: the call with this id ends: each party that has answered gets a BYE, callees that ring a CANCEL.
    EndCall {
        /// [`Call::id`].
        id: String,
    },
    /// [`Reply::Sets`]: the data sets of the rules.
    Sets,
    /// [`Reply::Set`]: entries of a data set, in the order of their keys, from where the page before ended.
    Set {
        /// Its name.
        name: String,
        /// Those whose key begins so; all for an empty text.
        beginning: String,
        /// [`SetPage::next`] of the page before.
        from: Option<u64>,
        /// Entries of the page at most; the server has a bound of its own.
        most: usize,
    },
    /// [`Reply::Found`]: the entries of a data set that hold for a number, a text or an address.
    Search {
        /// Its name.
        name: String,
        /// What is looked for.
        key: String,
    },
    /// [`Reply::Done`]: data sets are read again from their files and databases, and the server goes by them; [`Reply::Wrong`]: all stay as they
    /// were.
    ReloadSets {
        /// This one alone; none: all that have their entries outside of the configuration.
        name: Option<String>,
    },
    /// [`Reply::Limits`]: what counts under the limits of calls.
    Limits {
        /// Of this limit alone.
        name: Option<String>,
        /// The calls of this key alone: a user, group, address or URI.
        key: Option<String>,
        /// Keys of a limit that are shown at most: those with the most calls; the server has a bound of its own.
        most: usize,
    },
    /// [`Reply::Caches`]: what is kept of subscribers, and the `[[cache]]`s.
    Caches,
    /// [`Reply::CachedUser`]: what the caches hold of a user, without what proves a password.
    CachedUser {
        /// `name@domain`.
        user: String,
    },
    /// [`Reply::Done`]: what the caches hold of subscribers counts no more: the database is asked again.
    DropSubscribers {
        /// Of this one alone, `name@domain`.
        user: Option<String>,
    },
    /// [`Reply::CacheEntry`]: whether a `[[cache]]` has an entry, and how large it is. No value is shown.
    CacheEntry {
        /// Name of the cache.
        cache: String,
        /// Its key.
        key: String,
    },
    /// [`Reply::Done`]: an entry of a `[[cache]]` is removed.
    DropEntry {
        /// Name of the cache.
        cache: String,
        /// Its key.
        key: String,
    },
    /// [`Reply::Accounting`]: what became of its rows, and what waits.
    Accounting,
    /// [`Reply::Accounting`]: the same, after an attempt to write what waits in the spool.
    FlushAccounting,
    /// [`Reply::Accounting`]: the same, after an attempt to write the rows of the quarantine.
    RetryAccounting,
    /// [`Reply::Bans`]: the banned sources by address, from where the page before ended.
    Bans {
        /// [`BanList::next`] of the page before.
        from: Option<IpAddr>,
        /// Bans of the reply at most; the server has a bound of its own.
        most: usize,
    },
    /// [`Reply::Done`]: the bans of this source end; of all without one.
    Lift {
        /// Any address of the source.
        source: Option<IpAddr>,
    },
    /// [`Reply::Done`]: what is logged from now on; without a level what is logged now.
    LogLevel {
        /// As the environment variable STROWGER_LOG has it.
        level: Option<String>,
    },
    /// [`Reply::Done`]: the server reads its configuration again and goes by it; [`Reply::Wrong`]: it goes on by what it has.
    Reload {
        /// The file that is meant, with all of its path; a server that goes by another refuses.
        file: Option<PathBuf>,
    },
    /// [`Reply::Done`]: the server shuts down gracefully.
    Drain,
}

/// Answer of the server to an [`Order`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reply {
    /// Answer to [`Order::Status`].
    Status(Box<Status>),
    /// Answer to [`Order::Registrations`].
    Registrations(Page),
    /// Answer to [`Order::Calls`].
    Calls(CallList),
    /// Answer to [`Order::Call`].
    Call(Box<Call>),
    /// Answer to [`Order::Sets`].
    Sets(SetList),
    /// Answer to [`Order::Set`].
    Set(SetPage),
    /// Answer to [`Order::Search`].
    Found(Found),
    /// Answer to [`Order::Limits`].
    Limits(LimitList),
    /// Answer to [`Order::Caches`].
    Caches(CacheList),
    /// Answer to [`Order::CachedUser`].
    CachedUser(CachedUser),
    /// Answer to [`Order::CacheEntry`].
    CacheEntry(CacheEntry),
    /// Answer to [`Order::Accounting`], [`Order::FlushAccounting`] and [`Order::RetryAccounting`].
    Accounting(AccountingState),
    /// Answer to [`Order::Bans`].
    Bans(BanList),
    /// It was carried out.
    Done(Done),
    /// Why the order was not carried out.
    Refused(String),
    /// Why it cannot be carried out now: a part of the server or what stands behind it does not answer, or the server is shutting down.
    Unavailable(String),
    /// Answer to [`Order::Reload`] and [`Order::ReloadSets`]: the errors of the configuration, or of the sets.
    Wrong(Wrong),
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Done {
    /// So many bans ended.
    Lifted {
        /// The bans that ended.
        bans: usize,
    },
    /// So many answers about subscribers that were in memory are kept no more.
    Dropped {
        /// The answers.
        answers: usize,
    },
    /// An entry of a cache is there no more.
    Removed {
        /// Whether it was there before.
        was_there: bool,
    },
    /// Registrations have ended.
    Unregistered {
        /// How many.
        registrations: usize,
    },
    /// The call ends.
    Ended {
        /// [`Call::id`].
        id: String,
    },
    /// This is logged.
    Level {
        /// As the environment variable STROWGER_LOG has it.
        level: String,
    },
    /// The server goes by its configuration as the file has it now.
    Reloaded(Reload),
    /// The server goes by these data sets as they are now.
    SetsReloaded {
        /// In the order of the configuration.
        sets: Vec<SetReload>,
    },
    /// The shutdown has begun; calls that are set up have so many seconds.
    Draining {
        /// `server.drain_timeout`.
        seconds: u64,
    },
}

/// A data set that was read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetReload {
    /// What conditions call it.
    pub name: String,
    /// Where it was read.
    pub origin: String,
    /// Entries that it had.
    pub before: usize,
    /// Entries that it has.
    pub entries: usize,
    /// Its entries are others than before.
    pub changed: bool,
}

/// What a new configuration came to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reload {
    /// Name of the file; that of the defaults where there is none.
    pub file: String,
    /// Keys that have other values than before: those in force now, and those that need a restart.
    pub changes: Vec<Change>,
    /// What the configuration is warned of.
    pub warnings: Vec<Fault>,
}

/// A key that has another value in the file than before. Secrets are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// With its table, such as `proxy.fork_timeout`.
    pub key: String,
    /// The value so far, as TOML.
    pub from: String,
    /// The value in the file, as TOML.
    pub to: String,
    /// The server keeps its value until it starts again.
    pub needs_restart: bool,
}

/// A configuration that a server does not take.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wrong {
    /// Everything that is wrong, for people: file, line, the words concerned, cure.
    pub text: String,
    /// The same, fault by fault.
    pub faults: Vec<Fault>,
}

/// One thing that is wrong with a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// Name of the file.
    pub file: String,
    /// From 1; none where the fault lies in no line of the file.
    pub line: Option<usize>,
    /// In characters, from 1.
    pub column: Option<usize>,
    /// Whether the configuration can be used all the same.
    pub warning: bool,
    /// What is wrong.
    pub message: String,
    /// What would be right.
    pub cure: String,
}

impl Wrong {
    /// Everything that this report says.
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
    /// What is wrong with data sets.
    pub(super) fn of_sets(faults: &[SetFault]) -> Self {
        let line = |SetFault { place, line, message, cure }: &SetFault| {
            let line = line.map_or_else(String::new, |line| format!(":{line}"));
            format!("{place}{line}: error: {message}\n  = {cure}\n")
        };
        Self { text: faults.iter().map(line).collect(), faults: faults.iter().map(Fault::from).collect() }
    }
}

impl Fault {
    /// Those of a report, in the order of the file.
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

/// The server at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// Of the program.
    pub version: String,
    /// Its id.
    pub process: u32,
    /// `ready`, or why no new work is taken.
    pub state: String,
    /// Since the process began.
    pub uptime_seconds: u64,
    /// As `transport:address:port`.
    pub listeners: Vec<String>,
    /// Those that have ever worked.
    pub shards: Vec<ShardStatus>,
    /// Next hops that are set aside, 50 at most.
    #[serde(default)]
    pub next_hops_aside: Vec<NextHopAside>,
    /// Every counter and gauge of the process and of all shards together, by the names that Prometheus sees.
    pub metrics: BTreeMap<String, f64>,
}

/// One shard.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShardStatus {
    /// Its number.
    pub shard: usize,
    /// Processor time that its thread has used.
    pub busy_seconds: f64,
    /// Of the last 30 to 60 seconds.
    pub longest_turn_seconds: f64,
    /// Of 256.
    pub buckets: u64,
    /// Bytes that wait in the kernel.
    pub backlog_bytes: u64,
}

/// Some registrations, and where to go on; `None` at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Page {
    /// In no particular order.
    pub registrations: Vec<Registration>,
    /// [`Order::Registrations`] takes it.
    pub next: Option<u64>,
}

/// One contact of a user. Text of peers stands as it came, what is no UTF-8 replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Registration {
    /// `name@domain`.
    pub user: String,
    /// The Contact URI.
    pub contact: String,
    /// By which its REGISTER came.
    pub transport: Option<String>,
    /// Where its REGISTER came from, if that is not where the contact is.
    pub received: Option<SocketAddr>,
    /// Until it ends, unless it is refreshed.
    pub expires_in_seconds: u64,
    /// Last REGISTER for it, in milliseconds since 1970.
    pub updated_at: u64,
    /// Of its REGISTER.
    pub user_agent: String,
    /// `+sip.instance` (RFC 5626).
    pub instance: String,
    /// Path URIs, with commas between (RFC 3327).
    pub path: String,
    /// Preference in thousandths.
    pub q: Option<u16>,
}

/// Some tracked calls, and where to go on; `None` at the end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CallList {
    /// In no particular order.
    pub calls: Vec<Call>,
    /// [`Order::Calls`] takes it.
    pub next: Option<u64>,
    /// Whether the configuration has any calls tracked: false is no list of the calls that pass, set `dialogs.track = true` for one.
    pub tracked: bool,
}

/// One tracked call. Text of peers stands as it came, what is no UTF-8 replaced.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Call {
    /// By which it is shown and ended, while it lasts.
    pub id: String,
    /// The URI of From.
    pub caller: String,
    /// The URI of To.
    pub callee: String,
    /// Its Call-ID.
    pub call_id: String,
    /// `calling`, `ringing`, `answered` or `ending`.
    pub state: String,
    /// Since its INVITE.
    pub seconds: f64,
    /// Since its answer.
    pub answered_seconds: Option<f64>,
    /// One for each callee that rang or answered and has not ended.
    pub dialogs: Vec<Dialog>,
}

/// One dialog of a call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Dialog {
    /// The callee's tag.
    pub tag: String,
    /// The callee's Contact; empty before its answer.
    pub contact: String,
    /// Since its answer.
    pub answered_seconds: Option<f64>,
}

/// The data sets that conditions of rules ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetList {
    /// In the order of the configuration.
    pub sets: Vec<SetSummary>,
}

/// One data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetSummary {
    /// What conditions call it.
    pub name: String,
    /// `texts`, `prefixes` or `networks`.
    pub kind: String,
    /// How many keys it has.
    pub entries: usize,
    /// Bytes that it holds.
    pub memory_bytes: usize,
    /// Where its entries stand: `configuration`, a file, or a database without its password.
    pub origin: String,
    /// When it was read there, in milliseconds since 1970; none of one that stands in the configuration.
    pub read_at: Option<u64>,
    /// Why it could not be read since: its entries are those of before.
    pub error: Option<String>,
}

/// Some entries of a data set, and where to go on; `None` at the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetPage {
    /// In the order of their keys.
    pub entries: Vec<SetEntry>,
    /// [`Order::Set`] takes it. A set that was read again meanwhile may show an entry twice or not at all.
    pub next: Option<u64>,
}

/// What a data set has for a number, a text or an address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Found {
    /// All entries that hold for it: the one that counts comes first. None: it is not in the set.
    pub entries: Vec<SetEntry>,
}

/// One entry of a data set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetEntry {
    /// A text, a prefix or a network.
    pub key: String,
    /// Its value, if it has one.
    pub value: Option<String>,
}

/// A page of the banned sources.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BanList {
    /// By address, as many as were asked for.
    pub bans: Vec<Ban>,
    /// How many there are.
    pub banned: usize,
    /// Where the next page begins; none: this was the last. [`Order::Bans`] takes it.
    pub next: Option<IpAddr>,
}

/// One banned source; an IPv6 network stands as its first address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ban {
    /// Where the requests came from.
    pub source: IpAddr,
    /// Until it ends.
    pub seconds_left: u64,
}
