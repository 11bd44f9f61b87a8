//! The command line of the benches, and their end.

use std::path::PathBuf;
use std::process::ExitCode;

use strowger_tests::program::Program;

/// What every bench takes that measures a strowger beside another program.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Rounds of each program; the median counts
    #[arg(long, value_name = "N", default_value = "3", value_parser = clap::value_parser!(u64).range(1..))]
    pub rounds: u64,
    /// One JSON object at the end in place of the lines
    #[arg(long)]
    pub json: bool,
    /// The strowger to measure
    #[arg(long, value_name = "PROGRAM", env = "STROWGER_BIN", default_value_os_t = beside("strowger"))]
    pub server: PathBuf,
}

impl Options {
    /// Prints a line, unless JSON is wanted.
    pub fn say(&self, line: &str) {
        if !self.json {
            println!("{line}");
        }
    }

    /// Whether the strowger to measure and `programs` are there.
    ///
    /// # Errors
    /// What is missing, and how to get it.
    pub fn have(&self, programs: &[Program]) -> Result<(), String> {
        let missing: Vec<&str> =
            programs.iter().filter(|program| program.path().is_none()).map(|program| program.package).collect();
        if !missing.is_empty() {
            return Err(format!("missing Debian packages: apt-get install {}", missing.join(" ")));
        }
        if !self.server.is_file() {
            let server = self.server.display();
            return Err(format!("{server} is not there: cargo build --release --package strowger"));
        }
        Ok(())
    }
}

/// The file of this name beside the running program.
pub fn beside(name: &str) -> PathBuf {
    std::env::current_exe().map_or_else(|_| name.into(), |own| own.with_file_name(name))
}

/// Reads the command line and measures. The exit code is 0 when all that is demanded was reached, 1 when not or when it
/// could not be measured, 2 for a command line that cannot be read.
pub fn run<A: clap::Parser>(measure: impl FnOnce(&A) -> Result<bool, String>) -> ExitCode {
    match measure(&A::parse()) {
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
