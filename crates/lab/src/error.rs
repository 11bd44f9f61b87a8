//! Errors of the laboratory.

use std::path::{Path, PathBuf};
use std::time::Duration;

/// Reason why an experiment, or a program that it needs, does not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program by others is missing.
    #[error("{program} is not installed: apt-get install {package}")]
    NotInstalled {
        /// Name of the program's file.
        program: &'static str,
        /// Debian package that contains it.
        package: &'static str,
    },
    /// The kernel refuses to run a program.
    #[error("{name} does not start: {source}")]
    NotStarted {
        /// Name in the laboratory.
        name: String,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A program does not reach a state in time.
    #[error("{name} does not {what} within {limit:?}{}\n{tail}{threads}", if *.ended { ": it has ended" } else { "" })]
    NotInTime {
        /// Name in the laboratory.
        name: String,
        /// State, as a verb: `listen on 5060`.
        what: String,
        /// Time limit.
        limit: Duration,
        /// True if the program has ended.
        ended: bool,
        /// Last lines of its output.
        tail: String,
        /// Threads of the program with their states, and its sockets, a line for each; empty if the program has ended.
        threads: String,
    },
    /// A program ended with an error.
    #[error("{name} failed ({status})\n{output}")]
    Failed {
        /// Name in the laboratory.
        name: String,
        /// Exit status.
        status: std::process::ExitStatus,
        /// Output.
        output: String,
    },
    /// SIGINT, SIGTERM or SIGHUP came, and all programs were ended.
    #[error("interrupted")]
    Interrupted,
    /// A host cannot be used, or its connection is gone.
    #[error("{host}: {reason}")]
    Host {
        /// Name of the host on the command line.
        host: String,
        /// Fault, and the cure.
        reason: String,
    },
    /// A file or folder cannot be read or written.
    #[error("{}: {source}", .path.display())]
    File {
        /// Path.
        path: PathBuf,
        /// The kernel's reason.
        source: std::io::Error,
    },
    /// A file of the user has faults.
    #[error("{0}")]
    Faulty(Box<strowger_config::Report>),
    /// Output of a program, or a file, has another form than expected.
    #[error("{what}: {reason}")]
    Unexpected {
        /// Place, such as a file or a program.
        what: String,
        /// Fault.
        reason: String,
    },
}

impl Error {
    /// Makes an error of this file, for `map_err`.
    pub(crate) fn file(path: &Path) -> impl FnOnce(std::io::Error) -> Self + use<> {
        let path = path.to_owned();
        move |source| Self::File { path, source }
    }
}
