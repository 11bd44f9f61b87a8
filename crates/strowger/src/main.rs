//! The command line of Strowger: only wiring and text for people.
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | signals, reload, leases of a server | `serve.rs`, `reload_each`, `take_leases` |
//! | configuration file of a command | `configuration.rs` |
//! | commands for a running server | `control/` |
//! | tables of a database server | `db.rs` |
//! | explain | `explain.rs` |
//! | log lines on standard error | `logging.rs`; `logging/plain.rs`; `queue.rs` |
//! | exit code of a load run | `load/reports.rs` |
//! | commands of the laboratory | `lab/mod.rs`; `doctor.rs`; `plan.rs`; `capacity.rs`; `stack.rs` |
//! | demo | `demo/` |
//! | huge pages, returned memory | `allocator.rs` |

mod access;
mod allocator;
mod banner;
mod check;
mod cli;
mod completion;
mod configuration;
mod control;
mod db;
mod demo;
mod explain;
mod init;
mod lab;
mod load;
mod logging;
mod output;
mod parse;
mod prompt;
mod realm;
mod serve;
mod sipp;
mod user;

use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use self::cli::{Cli, Command};
use self::output::CommandOutcome;

fn main() -> ExitCode {
    // Only `serve` has a setting for huge pages. It reads its configuration without huge pages, so that the memory for
    // this can be returned piece by piece.
    allocator::huge_pages(false);
    if let Some(words) = sipp::words() {
        return sipp::run(&words);
    }
    let Some(command) = Cli::parse().command else {
        let help = Cli::command().render_long_help();
        return output::exit(output::print(&format!("{}", help)).map(|()| CommandOutcome::Done));
    };
    output::exit(match command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Init(arguments) => init::run(arguments),
        Command::User(arguments) => user::run(&arguments),
        Command::Db(arguments) => db::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Parse(arguments) => parse::run(&arguments),
        Command::Demo(arguments) => demo::run(&arguments),
        Command::Load(arguments) => return load::run(*arguments),
        Command::Lab(arguments) => return lab::run(arguments),
        Command::Sipp(arguments) => return sipp::run(&arguments.words),
        Command::Completion(arguments) => completion::run(&arguments),
        Command::Status(arguments) => control::status(&arguments),
        Command::Registrations(arguments) => control::registrations(&arguments),
        Command::Calls(arguments) => control::calls(&arguments),
        Command::Sets(arguments) => control::sets(&arguments),
        Command::Limits(arguments) => control::limits(&arguments),
        Command::Caches(arguments) => control::caches(&arguments),
        Command::Accounting(arguments) => control::accounting(&arguments),
        Command::Ban(arguments) => control::ban(&arguments),
        Command::Log(arguments) => control::log(&arguments),
        Command::Reload(arguments) => control::reload(&arguments),
        Command::Drain(arguments) => control::drain(&arguments),
    })
}
