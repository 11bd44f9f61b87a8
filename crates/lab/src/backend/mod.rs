//! Databases and caches beside a system under test: each in a folder of its own, on a port of loopback, and ended with its value.

mod caches;
mod mariadb;
mod postgresql;

pub use caches::{memcached, redis};
pub use mariadb::MariaDb;
pub use postgresql::PostgreSql;

use crate::Error;
use crate::process::Process;
use crate::sample::Usage;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long one may take to start: MariaDB writes 20 MB first.
const START: Duration = Duration::from_secs(60);

/// The user of databases, and its password.
pub const USER: &str = "strowger";
/// The database.
pub const DATABASE: &str = "strowger";

/// One that runs. When it is dropped it is ended.
#[derive(Debug)]
pub struct Backend {
    process: Process,
    port: u16,
}

impl Backend {
    /// Waits until it listens on this port of 127.0.0.1. What it prints goes to `NAME.log` in the folder.
    fn start(name: &str, folder: &Path, port: u16, command: &mut Command) -> Result<Self, Error> {
        let mut process = Process::start(name, folder, command.current_dir(folder))?;
        process.listens(port, START)?;
        Ok(Self { process, port })
    }

    /// Where it listens.
    pub const fn address(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port)
    }

    /// Processor time that it used so far.
    pub fn usage(&self) -> Usage {
        Usage::of_tree(self.process.id())
    }
}

/// Runs a program to its end and returns what it wrote to standard output.
fn run(name: &str, command: &mut Command) -> Result<String, Error> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|source| Error::NotStarted { name: name.into(), source })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let output_text = format!("{}{}", text(&output.stdout), text(&output.stderr));
    Err(Error::Failed { name: name.into(), status: output.status, output: output_text })
}

/// Whether this process runs as root, as whom database servers refuse to run.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
