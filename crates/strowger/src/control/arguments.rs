//! Flags of the commands that reach a running server.

mod calls;

pub(crate) use self::calls::{CallArguments, CallsArguments, CallsCommand, ListCallsArguments};

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};

use crate::cli::{AddressOfRecord, ConfigArgument, address_of_record};

/// The server to reach.
#[derive(Debug, Args)]
pub(crate) struct ServerArgument {
    #[command(flatten)]
    pub config: ConfigArgument,
    /// Control socket of the server [default: `control.socket` of its configuration].
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub socket: Option<PathBuf>,
    /// One JSON document instead of text for people.
    #[arg(long)]
    pub json: bool,
}

/// Show the state of the running server: listeners, load, registrations, calls.
///
/// Connects to the control socket of the server, which only the user of the server and root may do.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger status
  strowger status --config /etc/strowger/strowger.toml
  strowger status --json | jq .metrics

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
pub(crate) struct StatusArguments {
    #[command(flatten)]
    pub server: ServerArgument,
}

/// List, show and search the data sets that the rules of the running server use.
///
/// The configuration of the server names the sets and their files; `strowger reload` reads these files again. The
/// output is the data that the server uses now.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger sets list
  strowger sets show carriers --beginning 49
  strowger sets search carriers 4930123456

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
pub(crate) struct SetsArguments {
    #[command(subcommand)]
    pub command: SetsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SetsCommand {
    /// List the sets: kind of keys, number of entries, and memory of each.
    #[command(after_long_help = "\
Examples:
  strowger sets list
  strowger sets list --json

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    List(ServerArgument),
    /// Show the entries of a set, in the order of their keys.
    #[command(after_long_help = "\
Examples:
  strowger sets show carriers
  strowger sets show carriers --beginning 49 --limit 20
  strowger sets show carriers --json

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    Show(ShowSetArguments),
    /// Show the entries that match a number, a text or an address, the best match first.
    #[command(after_long_help = "\
Examples:
  strowger sets search carriers 4930123456
  strowger sets search peers 192.0.2.7 --json

Exit codes: 0 done, 1 refused or failed, or it is not in the set, 2 the command line
cannot be used, 3 no server reached.")]
    Search(SearchSetArguments),
    /// Read sets again from their files and databases, without the other parts of the configuration.
    #[command(after_long_help = "\
What cannot be read or is wrong is named with its place and cure, and all sets stay as they
were. Calls go on; a request that is under way ends by the data with which it came.

Examples:
  strowger sets reload
  strowger sets reload carriers
  strowger sets reload --json

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    Reload(ReloadSetsArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ReloadSetsArguments {
    /// Name of the set [default: all sets whose entries are outside the configuration].
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    #[command(flatten)]
    pub server: ServerArgument,
}

#[derive(Debug, Args)]
pub(crate) struct ShowSetArguments {
    /// Name of the set.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Only entries whose key begins with this text.
    #[arg(long, value_name = "TEXT", default_value = "")]
    pub beginning: String,
    /// Maximum number of entries [default: all].
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub server: ServerArgument,
}

#[derive(Debug, Args)]
pub(crate) struct SearchSetArguments {
    /// Name of the set.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// The key to search for.
    #[arg(value_name = "KEY")]
    pub key: String,
    #[command(flatten)]
    pub server: ServerArgument,
}

/// Show the calls that count under the limits of the running server, and the users, groups or URIs with the most calls.
///
/// The configuration of the server has the limits ([[call_limit]]). The list is read part by part while calls continue.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger limits
  strowger limits west
  strowger limits per-user --key alice
  strowger limits --most 100 --json

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
pub(crate) struct LimitsArguments {
    /// Only this limit.
    #[arg(value_name = "NAME")]
    pub name: Option<String>,
    /// Show only the calls of this key: a user, a group, an address or a URI, as the limit counts them.
    #[arg(long, value_name = "KEY", requires = "name")]
    pub key: Option<String>,
    /// Number of keys of each limit, those with the most calls.
    #[arg(long, value_name = "NUMBER", default_value_t = 10)]
    pub most: usize,
    #[command(flatten)]
    pub server: ServerArgument,
}

/// Show the cached answers of the running server: about its subscribers in memory, and in the caches of its
/// configuration.
///
/// The cached answers about a user can be dropped, so that the database is asked again. No value is shown: it may prove
/// a password.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger caches list
  strowger caches user alice@example.org
  strowger caches drop alice@example.org
  strowger caches drop --all
  strowger caches get shared --key strowger:registered:11:example.org:alice

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
pub(crate) struct CachesArguments {
    #[command(subcommand)]
    pub command: CachesCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CachesCommand {
    /// List the caches, including that of subscribers: entries, hits, misses, errors, and whether servers are reached.
    #[command(after_long_help = "\
Examples:
  strowger caches list
  strowger caches list --json

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    List(ServerArgument),
    /// Show the cached answers about a user: whether the user exists, and the algorithms of its passwords, but nothing
    /// that proves a password.
    #[command(after_long_help = "\
Examples:
  strowger caches user alice@example.org
  strowger caches user alice@example.org --json

Exit codes: 0 done, 1 refused or failed, or nothing is kept of this user, 2 the command
line cannot be used, 3 no server reached.")]
    User(CachedUserArguments),
    /// Drop the cached answers about a user, or about all subscribers: the database is asked again at the next request.
    #[command(after_long_help = "\
Of a user, auth.credential_cache too: it calls no more until it registers again, which the
database has to allow. With --all that cache keeps what it has.
Of all subscribers, what a [[cache]] holds that servers share stays there for the others;
this server does not use it any more.

Examples:
  strowger caches drop alice@example.org
  strowger caches drop --all

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    Drop(DropSubscribersArguments),
    /// Show whether a cache has an entry, and how large its value is.
    #[command(after_long_help = "\
Examples:
  strowger caches get shared --key strowger:registered:11:example.org:alice

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    Get(CacheEntryArguments),
    /// Remove an entry of a cache.
    #[command(after_long_help = "\
Examples:
  strowger caches remove shared --key strowger:registered:11:example.org:alice

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    Remove(CacheEntryArguments),
}

#[derive(Debug, Args)]
pub(crate) struct CachedUserArguments {
    /// The user, as in its SIP address.
    #[arg(value_name = "NAME@DOMAIN", value_parser = address_of_record)]
    pub user: AddressOfRecord,
    #[command(flatten)]
    pub server: ServerArgument,
}

#[derive(Debug, Args)]
pub(crate) struct DropSubscribersArguments {
    /// The user, as in its SIP address.
    #[arg(
        value_name = "NAME@DOMAIN",
        value_parser = address_of_record,
        required_unless_present = "all",
        conflicts_with = "all"
    )]
    pub user: Option<AddressOfRecord>,
    /// All subscribers.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub server: ServerArgument,
}

#[derive(Debug, Args)]
pub(crate) struct CacheEntryArguments {
    /// Name of the cache.
    #[arg(value_name = "CACHE")]
    pub cache: String,
    /// Key of the entry.
    #[arg(long, value_name = "KEY")]
    pub key: String,
    #[command(flatten)]
    pub server: ServerArgument,
}

/// Show the state of the accounting rows, and the number of rows that wait in the spool; or write these rows now.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_long_help = "\
Examples:
  strowger accounting
  strowger accounting --json | jq .spool.rows
  strowger accounting flush
  strowger accounting retry

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
pub(crate) struct AccountingArguments {
    #[command(subcommand)]
    pub command: Option<AccountingCommand>,
    #[command(flatten)]
    pub server: ServerArgument,
}

#[derive(Debug, Subcommand)]
pub(crate) enum AccountingCommand {
    /// Write the rows that wait in the spool now, before the next attempt of the server.
    #[command(after_long_help = "\
Examples:
  strowger accounting flush

Exit codes: 0 the spool is empty, 1 rows are left in it, or refused, 2 the command line
cannot be used, 3 no server reached.")]
    Flush(ServerArgument),
    /// Try again to write the rows that the database refused for their values.
    ///
    /// Such rows wait in the quarantine, a file next to the spool, until the table is repaired. A row that is written
    /// is removed from the quarantine; a row that is refused again is kept, with the new reason.
    #[command(after_long_help = "\
Examples:
  strowger accounting retry
  strowger accounting retry --json | jq .quarantine.last_reason

Exit codes: 0 the quarantine is empty, 1 rows are left in it, or refused, 2 the command line
cannot be used, 3 no server reached.")]
    Retry(ServerArgument),
}

/// List and lift the bans of the running server.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger ban list
  strowger ban lift 203.0.113.7
  strowger ban lift --all

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
pub(crate) struct BanArguments {
    #[command(subcommand)]
    pub command: BanCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum BanCommand {
    /// List the banned sources. An IPv6 network is shown by its first address.
    #[command(after_long_help = "\
Examples:
  strowger ban list
  strowger ban list --json

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    List(ServerArgument),
    /// End the ban of a source, and forget the failures that led to it.
    #[command(after_long_help = "\
Examples:
  strowger ban lift 203.0.113.7
  strowger ban lift 2001:db8:1:2::3
  strowger ban lift --all

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    Lift(LiftArguments),
}

#[derive(Debug, Args)]
pub(crate) struct LiftArguments {
    /// The source; any address of a banned IPv6 network.
    #[arg(value_name = "ADDRESS", required_unless_present = "all", conflicts_with = "all")]
    pub source: Option<IpAddr>,
    /// All sources.
    #[arg(long)]
    pub all: bool,
    #[command(flatten)]
    pub server: ServerArgument,
}

/// Change what the running server logs.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger log level
  strowger log level debug
  strowger log level info,strowger_net=debug

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
pub(crate) struct LogArguments {
    #[command(subcommand)]
    pub command: LogCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LogCommand {
    /// Show the level, or set another until the next start.
    #[command(after_long_help = "\
Examples:
  strowger log level
  strowger log level debug
  strowger log level info,strowger_net=debug

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    Level(LevelArguments),
}

#[derive(Debug, Args)]
pub(crate) struct LevelArguments {
    /// error, warn, info, debug or trace, or levels of single targets such as strowger_net=debug, with commas between.
    pub level: Option<String>,
    #[command(flatten)]
    pub server: ServerArgument,
}

/// Make the running server read its configuration and its certificates again, as SIGHUP does.
///
/// The server accepts the whole configuration, or refuses it with the place and the cure of each mistake and keeps the
/// present one. Calls continue; a request in progress keeps the configuration with which it started. The output names
/// changed keys that need a restart (`strowger check --keys` lists these keys). The server reads the file with which it
/// was started: a different file in `--config` is refused.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger reload
  strowger reload --config /etc/strowger/strowger.toml
  strowger reload --json | jq '.changes[] | select(.needs_restart)'

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
pub(crate) struct ReloadArguments {
    #[command(flatten)]
    pub server: ServerArgument,
}

/// Shut the running server down gracefully, as SIGTERM does.
///
/// New calls and registrations get 503. Calls that are being set up may complete within server.drain_timeout.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger drain
  strowger drain --wait

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
pub(crate) struct DrainArguments {
    /// Return when the server has ended.
    #[arg(long)]
    pub wait: bool,
    #[command(flatten)]
    pub server: ServerArgument,
}
