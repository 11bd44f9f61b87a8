//! Server's side on this machine.

use super::neighbours::Neighbours;
use super::own_load;
use super::processes::Processes;
use super::sampled::{CACHE, DATABASE, SERVER};
use super::side::{ServerSide, SideMemory, SideOrder, Watched, Work};
use super::validity::Accounting;
use crate::backend::{Beside, BesideKind, run};
use crate::capacity::owner_of_port;
use crate::compare::FLOOR;
use crate::generator::{Made, Trial};
use crate::process::Process;
use crate::system::{self, Measuring, Rows, RunningSystem, certificate};
use crate::{Error, wait};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};
use strowger_measure::process::{Memory, tree};
use strowger_measure::{Heading, Observer};

/// The floor answers one of this many datagrams of a caller: the INVITE of INVITE, ACK and BYE.
const ANSWERED: u32 = 3;

/// Time in which the floor has to listen.
const START: Duration = Duration::from_secs(20);

/// Time in which rows of accounting come after the last call.
const WRITTEN: Duration = Duration::from_secs(10);

/// Largest file of a system that is kept with a trial.
const LARGEST: u64 = 1 << 20;

/// Server of a side.
#[derive(Debug)]
enum Server {
    /// System under test.
    System(RunningSystem),
    /// Server that runs already, and its process if it can be seen.
    External(Option<u32>),
    /// Unread relay or echo.
    Floor(Process),
}

impl Server {
    fn ids(&self) -> Vec<u32> {
        match self {
            Self::System(system) => system.ids(),
            Self::External(id) => id.iter().copied().collect(),
            Self::Floor(process) => vec![process.id()],
        }
    }

    fn kill(&mut self, silent: bool) -> Result<(), Error> {
        match self {
            Self::System(system) if silent => system.kill_silently(),
            Self::System(system) => system.kill(),
            Self::Floor(process) => process.kill(),
            Self::External(_) => return Err(not_ours()),
        }
        Ok(())
    }

    fn start_again(&mut self) -> Result<(), Error> {
        match self {
            Self::System(system) => system.start_again(),
            Self::Floor(process) => process.runs(),
            Self::External(_) => Err(not_ours()),
        }
    }

    /// Returns the command that makes the load of a trial, or `None` if the laboratory makes the calls.
    const fn measuring(&self) -> Option<&Measuring> {
        match self {
            Self::System(system) => system.measuring(),
            Self::External(_) | Self::Floor(_) => None,
        }
    }

    /// Returns the number of entries in the server's own caches, or `None` for a server that has ended.
    fn entries(&mut self) -> Result<Option<u64>, Error> {
        match self {
            Self::System(system) => match system.ended() {
                None => system.entries(),
                Some(_) => Ok(None),
            },
            Self::External(_) | Self::Floor(_) => Ok(None),
        }
    }

    /// Returns a sentence about the server if it has ended.
    fn ended(&mut self) -> Option<String> {
        let status = match self {
            Self::System(system) => system.ended()?,
            Self::Floor(process) => process.ended()?,
            Self::External(id) => {
                let id = id.filter(|id| !Path::new(&format!("/proc/{id}")).exists())?;
                return Some(format!("process {id} of the server has ended"));
            }
        };
        let tail = self.tail();
        let last =
            tail.lines().rev().find(|line| !line.trim().is_empty()).map(|line| format!(", its last line: {line}"));
        Some(format!("the server ended ({status}){}", last.unwrap_or_default()))
    }

    fn tail(&self) -> String {
        match self {
            Self::System(system) => system.tail(),
            Self::External(_) => String::new(),
            Self::Floor(process) => process.tail(),
        }
    }
}

fn none_begun() -> Error {
    Error::Unexpected { what: "samples".into(), reason: "none were begun".into() }
}

fn not_ours() -> Error {
    Error::Unexpected { what: "the server".into(), reason: "it runs already, so no event ends it".into() }
}

/// Server's side on this machine.
#[derive(Debug)]
pub(super) struct OwnSide {
    // Dropped in this order.
    watch: Option<Watch>,
    server: Server,
    beside: Vec<Beside>,
    addresses: Vec<SocketAddr>,
    rows: Option<Rows>,
    folder: PathBuf,
}

/// Samplers that run.
#[derive(Debug)]
struct Watch {
    observer: Observer,
    neighbours: Neighbours,
    processes: Processes,
    begun: Instant,
    samples: PathBuf,
}

impl OwnSide {
    pub(super) fn start(order: &SideOrder, program: &Path, folder: &Path) -> Result<Self, Error> {
        let own = folder.join("system");
        std::fs::create_dir_all(&own).map_err(Error::file(&own))?;
        let SideOrder { work, address, cores, quota } = order;
        let (mut beside, mut rows) = (Vec::new(), None);
        let (server, addresses) = match work {
            Work::Floor(_) | Work::Echo => {
                let called = if let Work::Floor(called) = work { Some(*called) } else { None };
                let (floor, addresses) = floor(program, *address, called, &own)?;
                pin(&floor.ids(), cores)?;
                (floor, addresses)
            }
            Work::External(at) => (Server::External(owner_of_port(at.port())), vec![*at]),
            Work::System { system, configuration, workers, copies, beside: names, answers, capacity } => {
                for name in names {
                    let own = folder.join(name);
                    std::fs::create_dir_all(&own).map_err(Error::file(&own))?;
                    beside.extend(Beside::start(name, &own)?);
                }
                for beside in &beside {
                    pin(&beside.ids(), cores)?;
                }
                rows = system.scenario(configuration).and_then(|scenario| scenario.rows.clone());
                let mut setting = system::Setting::new(&own, configuration);
                setting.workers = *workers;
                setting.copies = *copies;
                setting.answers = answers;
                setting.cores = cores;
                setting.values = beside.iter().flat_map(Beside::values).collect();
                setting.address = *address;
                (setting.quota, setting.capacity) = (*quota, *capacity);
                let running = system::start(system, &setting)?;
                let addresses = running.addresses().to_vec();
                match system.address() {
                    None => (Server::System(running), addresses),
                    Some(at) => (Server::External(owner_of_port(at.port())), addresses),
                }
            }
        };
        Ok(Self { watch: None, server, beside, addresses, rows, folder: folder.to_owned() })
    }

    /// Tells whether the processes of the server can be seen.
    pub(super) fn is_seen(&self) -> bool {
        !self.server.ids().is_empty()
    }

    /// Begins to sample by a clock that now shows `wall`.
    pub(super) fn begin_by(&mut self, samples: &Path, rate: u32, wall: SystemTime) -> Result<(), Error> {
        let observer = Observer::start_by(samples, Heading::default(), rate, wall).map_err(Error::file(samples))?;
        let mut number = 0;
        let mut watch = |part: &str, ids: Vec<u32>| {
            for id in ids {
                number += 1;
                observer.watch(sample_name(part, number), id);
            }
        };
        watch(SERVER, self.server.ids());
        for beside in &self.beside {
            watch(part_of(beside), beside.ids());
        }
        let ids = self.server.ids();
        let (neighbours, processes) = (Neighbours::now(&ids), Processes::of(&ids));
        self.watch =
            Some(Watch { observer, neighbours, processes, begun: Instant::now(), samples: samples.to_owned() });
        Ok(())
    }

    fn database(&self) -> Option<&Beside> {
        self.beside.iter().find(|beside| beside.kind() == BesideKind::Database)
    }

    /// Returns the small files of the server, with paths below its folder.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        small_files(&self.folder.join("system"), &mut found);
        found
    }
}

impl ServerSide for OwnSide {
    fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    fn begin(&mut self, samples: &Path, rate: u32) -> Result<(), Error> {
        self.begin_by(samples, rate, SystemTime::now())
    }

    fn finish(&mut self) -> Result<Watched, Error> {
        let Watch { observer, neighbours, processes, begun, samples } = self.watch.take().ok_or_else(none_begun)?;
        let ids = self.server.ids();
        let others = Neighbours::now(&ids).since(&neighbours);
        observer.stop("the load has ended").map_err(Error::file(&samples))?;
        let other = others.seconds / begun.elapsed().as_secs_f64().max(0.01) * 100.0;
        let lost = processes.lost(&Processes::of(&ids));
        let cores = ids.first().and_then(|id| cores_of(*id));
        let cores = cores.map(|cores| cores.min(available()));
        Ok(Watched { other, busiest: others.busiest, cores, lost, clock: None })
    }

    fn is_measuring(&self) -> bool {
        self.server.measuring().is_some()
    }

    fn measuring(&mut self, trial: &Trial<'_>) -> Result<Made, Error> {
        match (self.server.measuring(), &self.watch) {
            (Some(command), Some(watch)) => own_load::trial(command, trial, &watch.observer),
            _ => Err(none_begun()),
        }
    }

    fn memory(&mut self) -> Result<SideMemory, Error> {
        let sum = |ids: Vec<u32>| ids.into_iter().map(Memory::of_tree).fold(Memory::default(), Memory::plus);
        let server = self.is_seen().then(|| sum(self.server.ids())).filter(|memory| memory.pss > 0);
        let caches: Vec<&Beside> = self.beside.iter().filter(|beside| beside.kind() == BesideKind::Cache).collect();
        if caches.is_empty() {
            return Ok(SideMemory { server, cache: None, entries: self.server.entries()? });
        }
        let cache = Some(sum(caches.iter().flat_map(|cache| cache.ids()).collect()));
        Ok(SideMemory { server, cache, entries: caches.into_iter().map(Beside::entries).sum() })
    }

    fn kill(&mut self, silent: bool) -> Result<(), Error> {
        self.server.kill(silent)
    }

    fn start_again(&mut self) -> Result<(), Error> {
        self.server.start_again()?;
        if let Some(watch) = &self.watch {
            for (number, id) in (1..).zip(self.server.ids()) {
                watch.observer.watch(sample_name(SERVER, number), id);
            }
        }
        Ok(())
    }

    fn ended(&mut self) -> Result<Option<String>, Error> {
        Ok(self.server.ended())
    }

    fn tail(&mut self) -> Result<String, Error> {
        Ok(self.server.tail())
    }

    fn empty_accounting(&mut self) -> Result<(), Error> {
        match (&self.rows, self.database()) {
            (Some(rows), Some(database)) => database.truncate(&rows.table),
            _ => Ok(()),
        }
    }

    fn accounting(&mut self, completed: u64, failed: u64) -> Result<Option<Accounting>, Error> {
        let (Some(rows), Some(database)) = (&self.rows, self.database()) else { return Ok(None) };
        let per_call = u64::from(rows.per_call);
        let wanted = completed * per_call;
        let count = || database.count(&rows.table).ok().filter(|written| *written >= wanted);
        let written = match wait::look(WRITTEN, count) {
            Some(written) => written,
            None => database.count(&rows.table)?,
        };
        Ok(Some(Accounting { written, wanted, allowed: failed * per_call }))
    }

    fn keep(&mut self, folder: &Path) -> Result<(), Error> {
        copy_small_files(&self.folder.join("system"), folder)
    }
}

/// Starts the unread relay to a called end, or the echo without one.
fn floor(
    program: &Path,
    address: IpAddr,
    called: Option<SocketAddr>,
    folder: &Path,
) -> Result<(Server, Vec<SocketAddr>), Error> {
    let own = SocketAddr::new(address, crate::port::free_at(address));
    let mut command = Command::new(program);
    let listen = ["--listen".to_owned(), own.to_string()];
    match called {
        Some(called) => {
            command.args(["lab", "floor"]).args(listen).args(["--called", &called.to_string()]);
            command.args(["--answered", &ANSWERED.to_string()])
        }
        None => command.args(["lab", "echo"]).args(listen),
    };
    let mut relay = Process::start(FLOOR, folder, &mut command)?;
    relay.listens(own.port(), START)?;
    Ok((Server::Floor(relay), vec![own]))
}

/// Limits running processes to these cores; an empty list sets no limit.
fn pin(ids: &[u32], cores: &[usize]) -> Result<(), Error> {
    let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
    for id in ids.iter().copied().flat_map(tree).filter(|_| !cores.is_empty()) {
        let mut command = Command::new("taskset");
        command.args(["--all-tasks", "--cpu-list", "--pid", &cores.join(","), &id.to_string()]);
        run("taskset", &mut command)?;
    }
    Ok(())
}

/// Returns the number of cores of this machine.
fn available() -> u32 {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u32
}

/// Returns the number of cores that a process may use.
fn cores_of(id: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let mask = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed:"))?;
    mask.trim().split(',').map(|word| u32::from_str_radix(word, 16).map(u32::count_ones)).sum::<Result<u32, _>>().ok()
}

/// Returns the name of the samples of a process among the processes of its part, by its number.
fn sample_name(part: &str, number: usize) -> String {
    if number == 1 { part.to_owned() } else { format!("{part}/{number}") }
}

fn part_of(beside: &Beside) -> &'static str {
    match beside.kind() {
        BesideKind::Database => DATABASE,
        BesideKind::Cache => CACHE,
    }
}

/// Copies the small files of a folder and of its subfolders; a missing folder has no files.
pub(super) fn copy_small_files(from: &Path, to: &Path) -> Result<(), Error> {
    let mut found = Vec::new();
    small_files(from, &mut found);
    for source in found {
        let target = to.join(source.strip_prefix(from).unwrap_or(&source));
        if let Some(folder) = target.parent() {
            std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
        }
        std::fs::copy(&source, &target).map_err(Error::file(&target))?;
    }
    Ok(())
}

fn small_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if entry.file_name() == certificate::FOLDER {
            continue;
        }
        if metadata.is_dir() {
            small_files(&entry.path(), found);
        } else if metadata.is_file() && metadata.len() <= LARGEST {
            found.push(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_system_are_kept_and_its_key_is_not() {
        let [from, to] = [(); 2].map(|()| tempfile::tempdir().expect("a temporary folder"));
        for name in ["own.cfg", "data/one", ".tls/key.pem"] {
            let file = from.path().join(name);
            std::fs::create_dir_all(file.parent().expect("it has one")).expect("a folder");
            std::fs::write(file, name).expect("it is written");
        }
        copy_small_files(from.path(), to.path()).expect("they are copied");
        let is_there = |name: &str| to.path().join(name).is_file();
        assert!(is_there("own.cfg") && is_there("data/one") && !to.path().join(".tls").exists());
    }
}
