//! Places of processes: this machine, or a host that the user's `ssh` reaches.
//!
//! [`Hosts::connect`] opens a connection to each host. The program copies itself to `~/.cache/strowger` on the host, under its hash as
//! the name, and runs `strowger lab agent` there, with which it exchanges messages by standard input and output. The agent ends
//! everything that it started when the connection closes, when nothing comes for [`SILENCE`], and, by its guard, when the agent itself
//! is killed.
//!
//! A broken connection ends the run: all programs end as if by a signal, and [`Hosts::lost`] names the host.
//!
//! The times of all hosts are those of the laboratory's clock: the difference of each host's clock is measured before each
//! trial, and the programs on the host subtract it (`strowger load --clock-ahead`). A host whose clock is more than a
//! second off is refused.

mod agent;
mod clock;
mod link;
mod process_host;
mod protocol;

pub use agent::serve;
pub use clock::Ahead;
pub use process_host::{ProcessHost, Start, Started, Word};

use crate::doctor::Finding;
use crate::row::Digest;
use crate::run::{Machine, SideRequest};
use crate::{Error, port};
use clock::Exchange;
use link::{Link, OwnProgram};
use protocol::Request;
use rustix::process::Signal;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Time without a sign of life after which an agent ends itself and its programs.
pub const SILENCE: Duration = Duration::from_secs(10);

/// Exchanges by which clocks are compared.
const EXCHANGES: usize = 8;

/// First message of an agent.
#[derive(Debug, Serialize, Deserialize)]
struct Greeting {
    program: Digest,
    scratch: PathBuf,
    /// Address of the host, as this machine reaches it.
    seen_at: Option<IpAddr>,
    machine: Machine,
}

/// Host that is connected.
#[derive(Debug)]
pub struct Host {
    name: String,
    link: Link,
    greeting: Greeting,
    /// Number of the next process.
    next: AtomicU32,
    /// Files that the host has, by their hash.
    files: Mutex<BTreeSet<String>>,
}

impl Host {
    /// Returns the name on the command line.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the processor, the memory and the kernel.
    pub const fn machine(&self) -> &Machine {
        &self.greeting.machine
    }

    /// Returns the error of a lost connection that has ended the run.
    fn lost(&self) -> Option<Error> {
        self.link.lost()
    }

    fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T, Error> {
        self.link.ask(request, &[]).map(|(reply, _)| reply)
    }

    fn fault(&self, reason: impl Into<String>) -> Error {
        Error::Host { host: self.name.clone(), reason: reason.into() }
    }

    /// Returns the settings of the host that limit or spoil runs.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn limits(&self) -> Result<Vec<Finding>, Error> {
        self.ask(&Request::Examine)
    }

    /// Measures the difference between the host's clock and the local clock.
    ///
    /// # Errors
    /// The connection is gone.
    pub fn ahead(&self) -> Result<Ahead, Error> {
        let mut exchanges = Vec::new();
        for _ in 0..EXCHANGES {
            let asked = micros();
            let theirs = self.ask(&Request::Clock)?;
            exchanges.push(Exchange { asked, theirs, heard: micros() });
        }
        Ok(Ahead::of(&exchanges))
    }

    fn free_port(&self, ip: IpAddr) -> Result<u16, Error> {
        self.ask(&Request::Port(ip))
    }

    fn address_towards(&self, to: SocketAddr) -> Result<IpAddr, Error> {
        self.ask(&Request::Address(to))
    }

    /// Sends a file, unless the host has it, and gives its path there.
    pub(crate) fn send(&self, file: &Path, is_program: bool) -> Result<PathBuf, Error> {
        let bytes = std::fs::read(file).map_err(Error::file(file))?;
        let hash: String = Digest::of(&bytes).to_string().chars().skip(7).take(16).collect();
        let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let path = format!("files/{hash}/{name}");
        if !self.files().contains(&path) {
            let request = Request::Put { file: path.clone(), is_program };
            self.link.ask::<()>(&request, &bytes)?;
            self.files().insert(path.clone());
        }
        Ok(self.greeting.scratch.join(path))
    }

    fn files(&self) -> std::sync::MutexGuard<'_, BTreeSet<String>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fetches a file of the folder of a process.
    fn fetch(&self, file: &str, to: &Path) -> Result<(), Error> {
        let ((), bytes) = self.link.ask(&Request::Get(file.into()), &[])?;
        std::fs::write(to, bytes).map_err(Error::file(to))
    }

    /// Asks about the server's side of a site.
    pub(crate) fn side<T: DeserializeOwned>(&self, number: u32, request: SideRequest) -> Result<(T, Vec<u8>), Error> {
        self.link.ask(&Request::Side(number, request), &[])
    }

    /// Returns a number that no process or side on this host has had before.
    pub(crate) fn number(&self) -> u32 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn start(&self, number: u32, name: &str, cores: &[usize], words: Vec<String>) -> Result<(), Error> {
        self.ask(&Request::Start { number, name: name.into(), cores: cores.into(), words })
    }

    fn signal(&self, number: u32, signal: Signal) -> Result<(), Error> {
        self.ask(&Request::Signal { number, signal: signal.as_raw() })
    }
}

fn micros() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64
}

/// Returns the folder of a process on a host.
fn folder_of(scratch: &Path, number: u32) -> PathBuf {
    scratch.join(format!("process-{number}"))
}

/// Returns a command that runs only on these cores.
fn command(program: &Path, cores: &[usize], words: &[String]) -> Command {
    let mut command = match cores {
        [] => Command::new(program),
        cores => {
            let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
            let mut command = Command::new("taskset");
            command.args(["--cpu-list", &cores.join(",")]).arg(program);
            command
        }
    };
    command.args(words);
    command
}

/// Host on the command line: a name for `ssh`, and the address of its traffic if that is another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Name for `ssh`.
    pub name: String,
    /// Address of SIP traffic.
    pub address: Option<IpAddr>,
}

/// Roles of hosts on the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Roles {
    /// Hosts that call. If the list is empty, this machine calls.
    pub callers: Vec<Named>,
    /// Hosts that answer. If the list is empty, this machine answers.
    pub answerers: Vec<Named>,
    /// Host of the server. If there is none, the server runs on this machine.
    pub server: Option<Named>,
}

/// Party of a test bed: a place and its address.
#[derive(Clone, Debug)]
pub struct Party {
    /// Place of the party's processes.
    pub place: ProcessHost,
    /// Address of the party's traffic. `None` means the address that the kernel chooses.
    pub address: Option<IpAddr>,
}

impl Party {
    /// Makes a party of this machine.
    pub const fn here(address: Option<IpAddr>) -> Self {
        Self { place: ProcessHost::Here, address }
    }

    /// Returns an address and a free port for a program of this party to which others connect.
    ///
    /// # Errors
    /// The connection is gone.
    pub(crate) fn free_address(&self) -> Result<SocketAddr, Error> {
        let ip = self.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        let port = match &self.place {
            ProcessHost::Here => port::free_at(ip),
            ProcessHost::There(host) => host.free_port(ip)?,
        };
        Ok(SocketAddr::new(ip, port))
    }
}

/// Parties of a test bed.
#[derive(Clone, Debug)]
pub struct Hosts {
    /// Callers, which share the load.
    pub callers: Vec<Party>,
    /// Answering sides are dealt to these in turn.
    pub answerers: Vec<Party>,
    /// Server.
    pub server: Party,
    /// Cores of the server and of the databases and caches beside it. Empty for all.
    pub server_cores: Vec<usize>,
    /// Cores of the generator. Empty for all.
    pub generator_cores: Vec<usize>,
}

impl Hosts {
    /// Places all parties on this machine.
    pub fn local() -> Self {
        let here = || Party::here(None);
        let (server_cores, generator_cores) = (Vec::new(), Vec::new());
        Self { callers: vec![here()], answerers: vec![here()], server: here(), server_cores, generator_cores }
    }

    /// Connects the hosts by `ssh`, whose command has these words, and compares their clocks. `program`: this program.
    ///
    /// # Errors
    /// A host cannot be reached or cannot run the program, or its clock is off.
    pub fn connect(roles: &Roles, ssh: &[String], program: &Path) -> Result<Self, Error> {
        let named: Vec<&Named> = roles.callers.iter().chain(&roles.answerers).chain(&roles.server).collect();
        if named.is_empty() {
            return Ok(Self::local());
        }
        let bytes = std::fs::read(program).map_err(Error::file(program))?;
        let copy = OwnProgram { path: program, digest: Digest::of(&bytes), length: bytes.len() as u64 };
        drop(bytes);
        let mut hosts: BTreeMap<&str, Arc<Host>> = BTreeMap::new();
        for Named { name, .. } in named {
            if hosts.contains_key(name.as_str()) {
                continue;
            }
            let (link, greeting) = Link::open(ssh, name, &copy)?;
            let (next, files) = (AtomicU32::new(1), Mutex::default());
            let host = Host { name: name.clone(), link, greeting, next, files };
            if let Some(fault) = host.ahead()?.fault() {
                return Err(host.fault(fault));
            }
            hosts.insert(name, Arc::new(host));
        }
        let party = |named: &Named| {
            let host = Arc::clone(&hosts[named.name.as_str()]);
            if let Some(address) = named.address {
                // Fails unless the address is one of the host.
                host.free_port(address)?;
            }
            let unknown = || host.fault(format!("ssh does not tell its address: write {}=ADDRESS", named.name));
            let address = named.address.or(host.greeting.seen_at).ok_or_else(unknown)?;
            Ok(Party { address: Some(address), place: ProcessHost::There(host) })
        };
        let of = |named: &[Named]| named.iter().map(party).collect::<Result<Vec<Party>, Error>>();
        let (callers, answerers, server) = (of(&roles.callers)?, of(&roles.answerers)?, of(roles.server.as_slice())?);
        let mut here = None;
        if let Some(address) = server.iter().chain(&callers).chain(&answerers).find_map(|party| party.address) {
            here = Some(agent::own_address(SocketAddr::new(address, 9))?);
        }
        let or_here = |parties: Vec<Party>| if parties.is_empty() { vec![Party::here(here)] } else { parties };
        let [callers, answerers] = [callers, answerers].map(or_here);
        let server = server.into_iter().next().unwrap_or_else(|| Party::here(here));
        Ok(Self { callers, answerers, server, ..Self::local() })
    }

    /// Gives callers and answering sides the addresses from which they reach the server, except those that `roles`
    /// names.
    ///
    /// # Errors
    /// There is no route, some addresses are of IPv4 and others of IPv6, or a connection is gone.
    pub fn towards(mut self, server: SocketAddr, roles: &Roles) -> Result<Self, Error> {
        if server.ip().is_loopback() {
            let reason = "no other machine reaches a loopback address: name another one of the server".to_owned();
            return Err(Error::Unexpected { what: server.to_string(), reason });
        }
        for (parties, named) in [(&mut self.callers, &roles.callers), (&mut self.answerers, &roles.answerers)] {
            for (number, party) in parties.iter_mut().enumerate() {
                let given = named.get(number).and_then(|named| named.address);
                let address = match (&party.place, given) {
                    (_, Some(address)) => address,
                    (ProcessHost::There(host), None) => host.address_towards(server)?,
                    (ProcessHost::Here, None) => agent::own_address(server)?,
                };
                if address.is_ipv4() != server.is_ipv4() {
                    let reason = format!("it is no way to the server at {}: name one of the same IP", server.ip());
                    return Err(Error::Unexpected { what: format!("address {address}"), reason });
                }
                party.address = Some(address);
            }
        }
        Ok(self)
    }

    /// Gives the first cores of its machine to the server and its databases and caches, and the other cores to a generator on the same
    /// machine.
    ///
    /// # Errors
    /// The machine has fewer cores, or none is left for the generator; a sentence.
    pub fn pin(mut self, cores: usize) -> Result<Self, String> {
        let (all, is_shared) = match &self.server.place {
            ProcessHost::Here => (std::thread::available_parallelism().map_or(1, std::num::NonZero::get), true),
            ProcessHost::There(host) => (host.machine().cores as usize, false),
        };
        let most = if is_shared { all.saturating_sub(1) } else { all };
        if cores == 0 || cores > most {
            let rest = if is_shared { ", one of them for the generator" } else { "" };
            return Err(format!("{cores} cores of the server: its machine has {all}{rest}; write 1 to {most}"));
        }
        self.server_cores = (0..cores).collect();
        self.generator_cores = if is_shared { (cores..all).collect() } else { Vec::new() };
        Ok(self)
    }

    /// Returns all hosts, each once.
    pub fn hosts(&self) -> Vec<&Arc<Host>> {
        let all = self.callers.iter().chain(&self.answerers).chain([&self.server]);
        let mut found: Vec<&Arc<Host>> = Vec::new();
        for party in all {
            if let ProcessHost::There(host) = &party.place
                && !found.iter().any(|known| known.name == host.name)
            {
                found.push(host);
            }
        }
        found
    }

    /// Returns the error of a lost connection that has ended the run.
    pub fn lost(&self) -> Option<Error> {
        self.hosts().into_iter().find_map(|host| host.lost())
    }

    /// Tells whether a party is on a host.
    pub fn is_distributed(&self) -> bool {
        !self.hosts().is_empty()
    }
}
