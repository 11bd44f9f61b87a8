//! Databases and caches beside a system under test: each in a folder of its own, on a port of loopback, and ended with its value.

mod mariadb;
mod memcached;
mod postgresql;
mod redis;

pub use mariadb::MariaDb;
pub use memcached::Memcached;
pub use postgresql::PostgreSql;
pub use redis::Redis;

use crate::Error;
use std::process::{Command, Stdio};
use std::time::Duration;

/// How long one may take to start: MariaDB writes 20 MB first.
const START: Duration = Duration::from_secs(60);

/// The user of databases, and its password.
pub const USER: &str = "strowger";
/// The database.
pub const DATABASE: &str = "strowger";

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
