//! What can go wrong in the laboratory.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Why an experiment, or a program that it needs, does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program by others is missing.
    #[error("{program} is not installed: apt-get install {package}")]
    NotInstalled {
        /// Name of its file.
        program: &'static str,
        /// Debian package that contains it.
        package: &'static str,
    },
    /// The kernel refuses to run a program.
    #[error("{name} does not start: {source}")]
    NotStarted {
        /// What it is called here.
        name: String,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A program does not do in time what it is waited for.
    #[error("{name} does not {what} within {limit:?}{}\n{tail}{threads}", if *.ended { ": it has ended" } else { "" })]
    NotInTime {
        /// What it is called here.
        name: String,
        /// What it was waited for.
        what: String,
        /// For so long.
        limit: Duration,
        /// It will never.
        ended: bool,
        /// The last lines that it printed.
        tail: String,
        /// What its threads wait for and which sockets it has, a line for each, unless it has ended.
        threads: String,
    },
    /// A program ended with an error.
    #[error("{name} failed ({status})\n{output}")]
    Failed {
        /// What it is called here.
        name: String,
        /// How it ended.
        status: std::process::ExitStatus,
        /// What it printed.
        output: String,
    },
    /// SIGINT, SIGTERM or SIGHUP came, and all programs were ended.
    #[error("interrupted")]
    Interrupted,
    /// A host cannot be used, or its connection is gone.
    #[error("{host}: {reason}")]
    Host {
        /// Its name on the command line.
        host: String,
        /// Fault, and the cure.
        reason: String,
    },
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A file of the user's has faults.
    #[error("{0}")]
    Faulty(Box<strowger_config::Report>),
    /// What a program wrote does not have the form that it should have.
    #[error("{what}: {reason}")]
    Unexpected {
        /// Where it stands.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
}

impl Error {
    /// For `map_err` of what concerns this file.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
