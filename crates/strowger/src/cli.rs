//! The commands and their flags, with examples in each help.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueHint};
use clap_complete::Shell;
use strowger_config::{Domain, ListenAddress};
use strowger_core::Transport;

use self::values::{advertise, domain, listen, transport};
use crate::configuration::Choice;
use crate::control::RegistrationsArguments;
use crate::control::arguments::*;

mod values;

pub(crate) use self::values::{AddressOfRecord, Advertise, address_of_record, whole};

/// A SIP server: proxy and registrar over UDP, TCP, TLS and WebSocket.
#[derive(Debug, Parser)]
#[command(name = "strowger", version, max_term_width = 110)]
#[command(after_long_help = "\
Examples:
  strowger demo                                  see it work, on loopback
  strowger init                                  answer a few questions, get a configuration
  strowger user add alice@example.org            give a phone its name and password
  strowger serve                                 run the server
  strowger status                                how the running server does
  strowger load 192.0.2.1                        make calls and measure them
  strowger lab list                              experiments on this server and others
  strowger db init                               make the tables of a database server
  strowger check                                 find what is wrong in a configuration

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used, 3 no server
reached.")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub command: Option<Command>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Serve(ServeArguments),
    Init(InitArguments),
    User(UserArguments),
    Db(DbArguments),
    Check(CheckArguments),
    Explain(ExplainArguments),
    Parse(ParseArguments),
    Demo(DemoArguments),
    Load(Box<crate::load::arguments::LoadArguments>),
    Lab(crate::lab::LabArguments),
    Sipp(SippArguments),
    Completion(CompletionArguments),
    Status(StatusArguments),
    Registrations(RegistrationsArguments),
    Calls(CallsArguments),
    Sets(SetsArguments),
    Limits(LimitsArguments),
    Caches(CachesArguments),
    Accounting(AccountingArguments),
    Ban(BanArguments),
    Log(LogArguments),
    Reload(ReloadArguments),
    Drain(DrainArguments),
}

/// Run the server.
///
/// The server uses strowger.toml of this folder if no other configuration is named. Without that file it listens on
/// 127.0.0.1:5060 by UDP and TCP, where only this machine reaches it. The log goes to standard error.
///
/// SIGTERM and SIGINT shut down gracefully: new calls and registrations get 503, and calls that are being set up may
/// complete within server.drain_timeout. A second signal ends the server at once. Answered calls continue without the
/// server. SIGHUP reloads the configuration and the certificates, as `strowger reload` does. SIGUSR1 asks for one more
/// thread that carries messages, up to server.shards or, if that is "auto", up to the number of cores. SIGUSR2 asks for
/// one less.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger serve
  strowger serve --config /etc/strowger/strowger.toml
  strowger serve --listen udp:192.0.2.10:5060 --listen tcp:192.0.2.10:5060
  strowger serve --check
  strowger serve --stand-by

Exit codes: 0 ended as asked, 1 refused or failed, 2 the command line cannot be used,
70 a part of the running server failed, or another server took over its registrations or calls.")]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub config: ConfigArgument,
    /// Listener, as TRANSPORT:ADDRESS:PORT with udp, tcp, tls, ws or wss; replaces all listeners of the configuration.
    #[arg(long, value_name = "TRANSPORT:ADDRESS:PORT", value_parser = listen)]
    pub listen: Vec<ListenAddress>,
    /// Stand by: wait until the server that keeps registrations and calls in the same database ends, or has been silent for five seconds,
    /// then take over.
    #[arg(long, conflicts_with_all = ["take_over", "check"])]
    pub stand_by: bool,
    /// Take over at once, even from a running server, which then ends with exit code 70.
    #[arg(long, conflicts_with = "check")]
    pub take_over: bool,
    /// Read and check the configuration and the files that it names, print the result, and end. No port is opened.
    #[arg(long)]
    pub check: bool,
}

/// The configuration file of commands that need one.
#[derive(Debug, Args)]
pub(crate) struct ConfigArgument {
    /// Configuration file [default: strowger.toml of this folder; without it, the defaults].
    #[arg(long, short, value_name = "FILE", env = "STROWGER_CONFIG", value_hint = ValueHint::FilePath)]
    pub config: Option<PathBuf>,
}

impl ConfigArgument {
    /// Returns the selected file.
    pub(crate) fn choose(&self) -> Choice {
        Choice::of(self.config.as_deref())
    }
}

/// Write a commented configuration from a few answers.
///
/// Asks on the terminal for each answer that no flag gives. Never overwrites a file without --force.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger init
  strowger init --domain example.org --advertise sip.example.org
  strowger init --domain example.org --domain example.net \\
      --listen udp:0.0.0.0:5060 --listen tcp:0.0.0.0:5060 \\
      --advertise sip.example.org --output /etc/strowger/strowger.toml

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used.")]
pub(crate) struct InitArguments {
    /// Domain of the users, as in alice@DOMAIN. The option may be given several times, for domains with separate users.
    #[arg(long, value_parser = domain)]
    pub domain: Vec<Domain>,
    /// Realm of the passwords, which phones may show when they ask for a password [default: the name of each domain; a
    /// realm given here is shared by all domains].
    #[arg(long)]
    pub realm: Option<String>,
    /// Listener [default: udp and tcp on 0.0.0.0:5060].
    #[arg(long, value_name = "TRANSPORT:ADDRESS:PORT", value_parser = listen)]
    pub listen: Vec<ListenAddress>,
    /// Host or host:port at which phones reach this machine; "none" for the address of the listener.
    #[arg(long, value_name = "HOST[:PORT]", value_parser = advertise)]
    pub advertise: Option<Advertise>,
    /// Certificate chain in PEM, for tls and wss.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "key")]
    pub certificate: Option<PathBuf>,
    /// Private key in PEM, for tls and wss.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "certificate")]
    pub key: Option<PathBuf>,
    /// File to write.
    #[arg(long, short, value_name = "FILE", default_value = "strowger.toml", value_hint = ValueHint::FilePath)]
    pub output: PathBuf,
    /// Overwrite the file if it exists.
    #[arg(long)]
    pub force: bool,
}

/// Add, change, remove and list the users that may register.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger user add alice@example.org
  printf '%s' \"$PASSWORD\" | strowger user add bob@example.org --password-stdin
  strowger user passwd alice@example.org
  strowger user remove bob@example.org
  strowger user list --json

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used.")]
pub(crate) struct UserArguments {
    #[command(subcommand)]
    pub command: UserCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum UserCommand {
    /// Add a user; asks for the password without showing it.
    #[command(after_long_help = "\
Examples:
  strowger user add alice@example.org
  printf '%s' \"$PASSWORD\" | strowger user add bob@example.org --password-stdin

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used.")]
    Add(UserWithPassword),
    /// Change the password of a user. Phones that registered with the old password still receive calls until their
    /// registration expires, unless --end-registrations ends it.
    #[command(after_long_help = "\
Examples:
  strowger user passwd alice@example.org
  strowger user passwd alice@example.org --end-registrations
  printf '%s' \"$PASSWORD\" | strowger user passwd bob@example.org --password-stdin

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 the password is changed, but no running server was reached to end registrations.")]
    Passwd(NewPassword),
    /// Remove a user with its passwords; a running server ends its registrations too.
    #[command(after_long_help = "\
Examples:
  strowger user remove bob@example.org

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used.")]
    Remove(UserName),
    /// List the users.
    #[command(after_long_help = "\
Examples:
  strowger user list
  strowger user list --json

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used.")]
    List(UserList),
}

#[derive(Debug, Args)]
pub(crate) struct UserWithPassword {
    #[command(flatten)]
    pub user: UserName,
    /// Read the password, one line, from standard input instead of the terminal.
    #[arg(long)]
    pub password_stdin: bool,
}

#[derive(Debug, Args)]
pub(crate) struct NewPassword {
    #[command(flatten)]
    pub user: UserWithPassword,
    /// End the registrations of the user at the running server: phones with the old password no longer ring.
    #[arg(long)]
    pub end_registrations: bool,
}

#[derive(Debug, Args)]
pub(crate) struct UserName {
    /// The user, as in its SIP address.
    #[arg(value_name = "NAME@DOMAIN", value_parser = address_of_record)]
    pub address: AddressOfRecord,
    #[command(flatten)]
    pub config: ConfigArgument,
}

#[derive(Debug, Args)]
pub(crate) struct UserList {
    /// One JSON array instead of a table.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigArgument,
}

/// Make the tables that the configuration needs, and bring older ones up to date.
///
/// The command connects to the databases that the configuration names: `store.database`, `store.bindings`,
/// `store.subscribers`, `dialogs.database`, and those of `[accounting]`. In a database server its tables are
/// `strowger_cdr`, `strowger_events`, `strowger_binding`, `strowger_call` and `strowger_schema`, and the table of
/// subscribers as OpenSIPS 3 has it; tables that another program made stay unchanged. A server creates and updates its
/// SQLite files itself when it starts.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger db init
  strowger db init --config /etc/strowger/strowger.toml
  strowger db init --dry-run             the SQL, for a person who may run it
  strowger db migrate --json

Exit codes: 0 a server can use the tables, 1 it cannot or something failed, 2 the command line cannot be used.")]
pub(crate) struct DbArguments {
    #[command(subcommand)]
    pub command: DbCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DbCommand {
    /// Create the missing tables.
    #[command(after_long_help = "\
Examples:
  strowger db init
  strowger db init --dry-run

Exit codes: 0 a server can use the tables, 1 it cannot or something failed, 2 the command line cannot be used.")]
    Init(DbOrder),
    /// Bring tables of an older version of this program up to date; their contents are kept.
    #[command(after_long_help = "\
Examples:
  strowger db migrate
  strowger db migrate --dry-run

Exit codes: 0 a server can use the tables, 1 it cannot or something failed, 2 the command line cannot be used.")]
    Migrate(DbOrder),
}

#[derive(Debug, Args)]
pub(crate) struct DbOrder {
    /// Print the SQL and run none of it.
    #[arg(long)]
    pub dry_run: bool,
    /// One JSON array instead of a table.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigArgument,
}

/// Check a configuration: every error with file, line and cure.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger check
  strowger check /etc/strowger/strowger.toml
  strowger check --effective             every key in force, secrets masked
  strowger check /dev/null --effective   the defaults
  sed s/5060/5070/ strowger.toml | strowger check -
  strowger check --keys                  all keys as a Markdown table

Exit codes: 0 it can be used, 1 it cannot, 2 the command line cannot be used.")]
pub(crate) struct CheckArguments {
    /// Configuration file, or - for standard input [default: strowger.toml of this folder; without it, the
    /// defaults].
    #[arg(value_name = "FILE", env = "STROWGER_CONFIG", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Print the whole configuration in force as a commented file, secrets masked.
    #[arg(long)]
    pub effective: bool,
    /// Print all keys with defaults and ranges as Markdown.
    #[arg(long, conflicts_with = "effective")]
    pub keys: bool,
}

/// Show what the server would do with a request, and which rules decide it.
///
/// The command reads the configuration and asks no server, so that no user is registered and no name is looked up. A
/// rule is shown with the part of its condition that decided. The log of a running server has the same text at the
/// level debug.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger explain --from alice@example.org --to bob@example.org
  strowger explain --from alice@example.org --to 0049@example.org --user alice
  strowger explain --from a@b.example --to c@d.example --source 192.0.2.7:5060
  strowger explain --from a@b.example --to c@d.example --json

Exit codes: 0 it was explained, 1 the configuration cannot be used or the request is none, 2 the command line cannot
be used.")]
pub(crate) struct ExplainArguments {
    /// URI of the caller, as in From.
    #[arg(long, value_name = "URI")]
    pub from: String,
    /// URI of the callee, as in To.
    #[arg(long, value_name = "URI")]
    pub to: String,
    /// Request-URI [default: the URI of --to].
    #[arg(long, value_name = "URI")]
    pub uri: Option<String>,
    /// Method of the request.
    #[arg(long, default_value = "INVITE")]
    pub method: String,
    /// Source address of the request.
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:5062")]
    pub source: SocketAddr,
    /// Transport by which the request is received: udp, tcp, tls, ws or wss.
    #[arg(long, default_value = "udp", value_parser = transport)]
    pub transport: Transport,
    /// User as whom the sender has authenticated, for a server that asks for a password.
    #[arg(long, value_name = "NAME")]
    pub user: Option<String>,
    /// A further header line; may be given several times.
    #[arg(long, value_name = "LINE")]
    pub header: Vec<String>,
    /// One JSON object instead of lines.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub config: ConfigArgument,
}

/// Show how the parser reads a SIP message.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger parse invite.sip
  strowger parse --json - < invite.sip

Exit codes: 0 the message is a SIP message, 1 it is refused (reason and offset are printed), 2 the command line cannot be used.")]
pub(crate) struct ParseArguments {
    /// File with one message, or - for standard input.
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// One JSON object instead of a table.
    #[arg(long)]
    pub json: bool,
}

/// See it work: a server, two users, a call drawn as a ladder, then ten seconds of calls and the figures.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Everything happens on loopback, on free ports, with a database that is gone afterwards.\n\n\
Examples:
  strowger demo
  strowger demo --rate 1000 --seconds 30   more calls, for longer
  strowger demo --seconds 0 --json         the one call alone, for a program

Exit codes: 0 every call succeeded, 1 one did not, 2 the command line cannot be used."
)]
pub(crate) struct DemoArguments {
    /// Seconds of load after the first call.
    #[arg(long, default_value_t = 10, value_parser = whole::<u32>(0..=3_600))]
    pub seconds: u32,
    /// Calls a second of the load.
    #[arg(long, default_value_t = 200, value_parser = whole::<u32>(1..=100_000))]
    pub rate: u32,
    /// One JSON object at the end instead of pictures.
    #[arg(long)]
    pub json: bool,
    /// File for the report of the load [default: a new file in the folder for temporary files].
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub html: Option<PathBuf>,
}

/// Run SIPp's scenarios with SIPp's own command line; a link named `sipp` to this program does the same.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
#[command(after_long_help = "\
Examples:
  strowger sipp -sn uas                          answer calls on port 5060
  strowger sipp -sn uac 127.0.0.1 -r 100         make calls, 100 a second
  strowger sipp -sf mine.xml -m 1 192.0.2.1      a scenario of your own, once

Exit codes: SIPp's: 0 all calls succeeded, 1 one failed, 97 nothing happened in time, 99 in the background, 255 it cannot run.")]
pub(crate) struct SippArguments {
    /// SIPp's options, each with one dash.
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, value_name = "WORDS")]
    pub words: Vec<String>,
}

/// Write the completion script of a shell.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger completion bash > ~/.local/share/bash-completion/completions/strowger
  strowger completion zsh > ~/.zfunc/_strowger
  strowger completion fish > ~/.config/fish/completions/strowger.fish

Exit codes: 0 done, 1 it could not be written, 2 the command line cannot be used.")]
pub(crate) struct CompletionArguments {
    /// The shell.
    pub shell: Shell,
}

#[cfg(test)]
mod tests;
