//! The command line of the benches, and their exit code.

use std::path::PathBuf;
use std::process::ExitCode;

use strowger_lab::process::end_by_signals;
use strowger_tests::program::Program;

use crate::bar::Bar;

/// Output format of a bench.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Output {
    /// One JSON object at the end in place of the lines
    #[arg(long)]
    pub json: bool,
}

impl Output {
    /// Prints a line, unless the output is JSON.
    pub fn say(self, line: &str) {
        if !self.json {
            println!("{line}");
        }
    }

    /// Prints each figure beside its limit, or one object of these and `others`. Returns whether all limits are met.
    pub fn judge(self, bars: &[Bar], others: &serde_json::Value) -> bool {
        let met = bars.iter().all(Bar::is_met);
        if self.json {
            println!("{}", serde_json::json!({"figures": others, "bars": bars, "met": met}));
        } else {
            println!("\n  {:<44} {:>10}  limit", "figure", "seen");
            bars.iter().for_each(|bar| println!("{bar}"));
        }
        met
    }
}

/// Options of every bench that compares a strowger with another program.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Rounds of each program; the median counts
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    #[command(flatten)]
    pub output: Output,
    /// The strowger to measure
    #[arg(long, value_name = "PROGRAM", env = "STROWGER_BIN", default_value_os_t = beside("strowger"))]
    pub server: PathBuf,
}

impl Options {
    /// Prints a line, unless the output is JSON.
    pub fn say(&self, line: &str) {
        self.output.say(line);
    }

    /// Checks that the strowger to measure and `programs` exist.
    ///
    /// # Errors
    /// The missing one, and how to get it.
    pub fn have(&self, programs: &[Program]) -> Result<(), String> {
        have(programs)?;
        if !self.server.is_file() {
            let server = self.server.display();
            return Err(format!("{server} is not there: cargo build --release --package strowger"));
        }
        Ok(())
    }
}

/// Checks that these programs exist.
///
/// # Errors
/// The Debian packages of the missing ones.
pub fn have(programs: &[Program]) -> Result<(), String> {
    let missing: Vec<&str> =
        programs.iter().filter(|program| program.path().is_none()).map(|program| program.package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    Err(format!("missing Debian packages: apt-get install {}", missing.join(" ")))
}

/// Returns the file of this name in the folder of the running program.
pub fn beside(name: &str) -> PathBuf {
    std::env::current_exe().map_or_else(|_| name.into(), |own| own.with_file_name(name))
}

/// Reads the command line and measures. The exit code is 0 when all limits are met, 1 when not or when the measurement
/// failed, 2 for a command line that cannot be read.
///
/// A signal also ends the programs that were started.
pub fn run<A: clap::Parser>(measure: impl FnOnce(&A) -> Result<bool, String>) -> ExitCode {
    let arguments = A::parse();
    let signals = end_by_signals().map_err(|error| format!("signals: {error}"));
    match signals.and_then(|()| measure(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => {
            eprintln!("a figure is worse than its limit");
            ExitCode::FAILURE
        }
        Err(message) => {
            eprintln!("{message}");
            ExitCode::FAILURE
        }
    }
}
