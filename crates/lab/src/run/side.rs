//! Server's side of a site: the server, the backends beside it, and their samples.

use super::host_side::HostSide;
use super::own_side::OwnSide;
use super::validity::Accounting;
use crate::Error;
use crate::generator::{Made, Trial};
use crate::host::{Party, ProcessHost};
use crate::system::SystemFolder;
use serde::{Deserialize, Serialize};
use std::fmt::Debug;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use strowger_measure::process::Memory;

/// Start of a server's side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct SideOrder {
    pub(super) work: Work,
    /// Address on which the server listens.
    pub(super) address: IpAddr,
    /// Cores of the server. Empty for all.
    pub(super) cores: Vec<usize>,
    /// Processor time of the system under test, in per cent of one core. `None`: no limit.
    pub(super) quota: Option<u32>,
}

/// Server of a side.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) enum Work {
    /// Unread relay to this address.
    Floor(SocketAddr),
    /// Echo, which answers each request.
    Echo,
    /// Server that runs already at this address.
    External(SocketAddr),
    /// System under test.
    System {
        system: Box<SystemFolder>,
        configuration: String,
        workers: Option<u32>,
        /// Starts a copy of the program.
        copies: bool,
        /// Backends beside it.
        beside: Vec<String>,
        /// Answering sides.
        answers: Vec<SocketAddr>,
        /// Load that the system is known to carry.
        capacity: Option<f64>,
    },
}

/// Request to a side on a host, in the order of [`ServerSide`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum SideRequest {
    Start(Box<SideOrder>),
    Begin { rate: u32, ahead: i64 },
    Finish,
    Memory,
    Kill { silent: bool },
    Again,
    Ended,
    Tail,
    Empty,
    Accounting { completed: u64, failed: u64 },
    Files,
    Stop,
    Describe(Box<SystemFolder>),
    Versions(Vec<String>),
}

/// Memory of a side, and the entries of its caches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SideMemory {
    /// Memory of the server, or `None` if it cannot be seen.
    pub(super) server: Option<Memory>,
    /// Memory of external caches, or `None` if there are none.
    pub(super) cache: Option<Memory>,
    /// Number of entries of external caches, or of the server's own cache; `None` without a cache, or if a cache does not
    /// report the number.
    pub(super) entries: Option<u64>,
}

/// Machine of a side during a trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Watched {
    /// Processor time of other programs, in per cent of one core.
    pub(super) other: f64,
    /// Program that used most of it.
    pub(super) busiest: Option<String>,
    /// Cores that the server may use.
    pub(super) cores: Option<u32>,
    /// Sentence about a process of the server that has ended.
    pub(super) lost: Option<String>,
    /// Sentence about a host whose clock was set.
    pub(super) clock: Option<String>,
}

/// Server's side of a site, on this machine or on a host. It ends when it is dropped.
pub(super) trait ServerSide: Debug + Send {
    /// Returns the addresses of the system's servers: one, unless the system has several instances.
    fn addresses(&self) -> &[SocketAddr];

    /// Begins to sample, `rate` times a second.
    fn begin(&mut self, samples: &Path, rate: u32) -> Result<(), Error>;

    /// Ends the samples, whose log is at the path given to `begin`.
    fn finish(&mut self) -> Result<Watched, Error>;

    /// Tells whether a command of the system makes the load, in place of the laboratory.
    fn is_measuring(&self) -> bool {
        false
    }

    /// Runs the command that makes the load of a trial, and takes samples of the command too.
    fn measuring(&mut self, _: &Trial<'_>) -> Result<Made, Error> {
        let reason = "no command of it makes the load here".to_owned();
        Err(Error::Unexpected { what: "the system".into(), reason })
    }

    /// Returns the memory that the server uses now.
    fn memory(&mut self) -> Result<SideMemory, Error>;

    /// Ends the server by SIGKILL. If `silent` is set, datagrams that arrive at its port are dropped from now on.
    fn kill(&mut self, silent: bool) -> Result<(), Error>;

    /// Starts the server once more after [`ServerSide::kill`], and has its processes sampled.
    fn start_again(&mut self) -> Result<(), Error>;

    /// Returns a sentence about the server if it has ended.
    fn ended(&mut self) -> Result<Option<String>, Error>;

    /// Returns the last lines that the server printed.
    fn tail(&mut self) -> Result<String, Error>;

    /// Empties the table of accounting.
    fn empty_accounting(&mut self) -> Result<(), Error>;

    /// Counts rows of accounting, as soon as enough rows exist. `completed` and `failed` calls include the warm-up.
    fn accounting(&mut self, completed: u64, failed: u64) -> Result<Option<Accounting>, Error>;

    /// Copies the small files of the server to this folder.
    fn keep(&mut self, folder: &Path) -> Result<(), Error>;
}

/// Starts a side on the machine of the server. `folder`: a folder on this machine that no other side uses.
pub(super) fn start(
    order: SideOrder,
    server: &Party,
    program: &Path,
    folder: &Path,
) -> Result<Box<dyn ServerSide>, Error> {
    Ok(match &server.place {
        ProcessHost::Here => Box::new(OwnSide::start(&order, program, folder)?),
        ProcessHost::There(host) => Box::new(HostSide::start(order, host)?),
    })
}
