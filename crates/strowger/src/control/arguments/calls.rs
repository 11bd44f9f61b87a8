//! Flags of `strowger calls`.

use clap::{Args, Subcommand};

use super::ServerArgument;

/// List, show and end the calls that the running server tracks.
///
/// The server tracks calls if its configuration has dialogs.track = true. A list is read page by page while calls
/// continue: a call that begins or ends meanwhile may be in the list or not.
#[derive(Debug, Args)]
#[command(after_long_help = "\
Examples:
  strowger calls list
  strowger calls list --party alice@example.org
  strowger calls show 8f2c0a51d3b4e6f8
  strowger calls end 8f2c0a51d3b4e6f8

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
pub(crate) struct CallsArguments {
    #[command(subcommand)]
    pub command: CallsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CallsCommand {
    /// List the tracked calls: who calls whom, for how long, and the id of each.
    #[command(after_long_help = "\
Examples:
  strowger calls list
  strowger calls list --party alice@example.org --limit 20
  strowger calls list --json

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    List(ListCallsArguments),
    /// Show all details of one call: its dialogs, and the quality of the media that pass the server.
    #[command(after_long_help = "\
Examples:
  strowger calls show 8f2c0a51d3b4e6f8
  strowger calls show 8f2c0a51d3b4e6f8 --json

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    Show(CallArguments),
    /// End a call: both parties get a BYE. Callees that still ring get a CANCEL, and their caller gets a 487.
    #[command(after_long_help = "\
Examples:
  strowger calls end 8f2c0a51d3b4e6f8

Exit codes: 0 done, 1 refused or failed, 2 the command line cannot be used,
3 no server reached.")]
    End(CallArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ListCallsArguments {
    /// Only calls whose caller or callee has this text in its URI.
    #[arg(long, value_name = "TEXT")]
    pub party: Option<String>,
    /// Maximum number of calls [default: all].
    #[arg(long, value_name = "NUMBER")]
    pub limit: Option<usize>,
    #[command(flatten)]
    pub server: ServerArgument,
}

#[derive(Debug, Args)]
pub(crate) struct CallArguments {
    /// The id of the call, as `strowger calls list` shows it.
    #[arg(value_name = "ID")]
    pub id: String,
    #[command(flatten)]
    pub server: ServerArgument,
}
