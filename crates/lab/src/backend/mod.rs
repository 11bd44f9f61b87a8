//! Databases and caches for a system under test. Each has a folder and a port of loopback, and ends when its value is dropped.

mod beside;
mod caches;
mod cluster;
mod delay;
mod mariadb;
mod postgresql;
pub mod subscribers;

pub use beside::{Beside, BesideKind};
pub use caches::{memcached, memcached_with, redis, redis_of_cluster, redis_with, sentinel, stop as stop_cache};
pub use mariadb::MariaDb;
pub use postgresql::PostgreSql;

use crate::Error;
use crate::process::Process;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use strowger_measure::process::{Usage, is_stopped, tree};

/// Time limit of a start: MariaDB writes 20 MB first.
const START: Duration = Duration::from_secs(60);

/// Name of the database user, and its password.
pub const USER: &str = "strowger";
/// Name of the database.
pub const DATABASE: &str = "strowger";

/// Time limit of an end.
const END: Duration = Duration::from_secs(60);

/// Time limit for the backend's processes to stop (SIGSTOP).
const STOP: Duration = Duration::from_secs(10);

/// Running database or cache. It ends when it is dropped.
#[derive(Debug)]
pub struct Backend {
    name: String,
    folder: PathBuf,
    command: Command,
    process: Process,
    port: u16,
}

impl Backend {
    /// Starts a backend and waits until it listens on this port of 127.0.0.1. Its output is in `NAME.log` of the folder.
    fn start(name: &str, folder: &Path, port: u16, mut command: Command) -> Result<Self, Error> {
        let process = listening(name, folder, port, command.current_dir(folder))?;
        Ok(Self { name: name.into(), folder: folder.into(), command, process, port })
    }

    /// Ends the backend by this signal and waits for its end.
    ///
    /// # Errors
    /// The backend is still running after twenty seconds.
    fn end(&mut self, signal: Signal) -> Result<(), Error> {
        self.thaw();
        self.process.signal(signal);
        self.process.end(END).map(drop)
    }

    /// Starts the backend once more with its files, on the same port.
    ///
    /// # Errors
    /// The backend does not start.
    pub fn start_again(&mut self) -> Result<(), Error> {
        self.process = listening(&self.name, &self.folder, self.port, &mut self.command)?;
        Ok(())
    }

    /// Stops all processes of the backend (SIGSTOP), and returns once they have stopped: the kernel still takes connections and bytes, and none is
    /// answered.
    ///
    /// # Panics
    /// A process still runs after ten seconds.
    pub fn freeze(&self) {
        self.signal_all(Signal::STOP);
        let end = Instant::now() + STOP;
        while !tree(self.process.id()).into_iter().all(is_stopped) {
            assert!(Instant::now() < end, "{} does not stop", self.name);
            // A process needs the processor to stop.
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Continues the stopped processes of the backend.
    pub fn thaw(&self) {
        self.signal_all(Signal::CONT);
    }

    fn signal_all(&self, signal: Signal) {
        for id in tree(self.process.id()) {
            if let Some(pid) = i32::try_from(id).ok().and_then(Pid::from_raw) {
                // A child may have ended since the tree was seen.
                let _ended = kill_process(pid, signal);
            }
        }
    }

    /// Returns the process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Returns the address of the server.
    pub const fn address(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), self.port)
    }

    /// Returns the processor time that the server has used so far.
    pub fn usage(&self) -> Usage {
        Usage::of_tree(self.process.id())
    }
}

/// Starts a program, and waits until it listens on this port. A program that hangs at its start (as Memcached did once) is started a
/// second time, after the states of its threads are printed.
fn listening(name: &str, folder: &Path, port: u16, command: &mut Command) -> Result<Process, Error> {
    let mut first = Process::start(name, folder, command)?;
    match first.listens(port, START) {
        Err(error @ Error::NotInTime { ended: false, .. }) => {
            // Written to standard error directly, because the test harness hides captured output of tests that pass.
            let _closed = writeln!(std::io::stderr(), "{error}\n{name} is started a second time");
        }
        other => return other.map(|()| first),
    }
    first.kill();
    let mut second = Process::start(name, folder, command)?;
    second.listens(port, START).map(|()| second)
}

impl Drop for Backend {
    fn drop(&mut self) {
        // Only SIGKILL ends a stopped process.
        if self.process.ended().is_none() {
            self.thaw();
        }
    }
}

/// Runs a program to its end and returns its standard output.
pub(crate) fn run(name: &str, command: &mut Command) -> Result<String, Error> {
    let output =
        command.stdin(Stdio::null()).output().map_err(|source| Error::NotStarted { name: name.into(), source })?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    let output_text = format!("{}{}", text(&output.stdout), text(&output.stderr));
    Err(Error::Failed { name: name.into(), status: output.status, output: output_text })
}

/// Tells whether this process runs as root, as whom database servers refuse to run.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
