//! Systems that run.

use super::marks::OF_TRIAL;
use super::quota::Quota;
use super::{Entries, Ready, Scenario, SystemFolder, certificate, fill, marks, ready};
use crate::backend::run;
use crate::document::DOMAIN;
use crate::process::Process;
use crate::wait;
use crate::{Error, port};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::Duration;

/// Time in which the port of a killed server becomes free.
const FREED: Duration = Duration::from_secs(1);

/// Capacity of a server that no search has measured: above all loads.
const UNKNOWN_CAPACITY: f64 = 1e6;

/// Time in which a command that counts entries succeeds.
const ANSWERED: Duration = Duration::from_secs(20);

/// Start of a system: its configuration and surroundings.
#[derive(Clone, Debug)]
pub struct Setting<'a> {
    /// Folder of this start, made if it is missing. Configurations, logs and files of the system go there.
    pub folder: &'a Path,
    /// Name of the scenario of the system: the filled-in configuration of the experiment.
    pub scenario: &'a str,
    /// Number of workers; `None` means 1.
    pub workers: Option<u32>,
    /// Answering sides, for systems that choose among them.
    pub answers: &'a [SocketAddr],
    /// Values of further marks, which are those of the backends.
    pub values: Vec<(&'static str, String)>,
    /// Cores on which the system runs; empty for all.
    pub cores: &'a [usize],
    /// Starts a copy of the program: the code of a copy lies in other pages of memory than at the previous start, and so uses the caches of
    /// the processor in another way.
    pub copies: bool,
    /// Address that it listens on.
    pub address: IpAddr,
    /// Processor time of all processes of a server, in per cent of one core. `None`: no limit.
    pub quota: Option<u32>,
    /// Load that the server is known to carry, for configurations that bound it.
    pub capacity: Option<f64>,
    /// Port of the address, or `None` for a free one. A system of several servers always has free ports.
    pub port: Option<u16>,
}

impl<'a> Setting<'a> {
    /// Creates the setting of a scenario with one worker on all cores, on a free port.
    pub const fn new(folder: &'a Path, scenario: &'a str) -> Self {
        Self {
            folder,
            scenario,
            workers: None,
            answers: &[],
            values: Vec::new(),
            cores: &[],
            copies: false,
            address: IpAddr::V4(Ipv4Addr::LOCALHOST),
            quota: None,
            capacity: None,
            port: None,
        }
    }
}

/// Starts a system and waits until it is ready. An external system is not started, but has to answer OPTIONS.
///
/// # Errors
/// The scenario is unknown, a program is missing, a mark has no value, a first command fails, the port is taken, or the system ends or
/// is not ready in time. The error has the last lines that the system printed.
pub fn start(system: &SystemFolder, setting: &Setting<'_>) -> Result<RunningSystem, Error> {
    if let Some(address) = system.address() {
        ready::answers(system.name(), address)?;
        return Ok(RunningSystem { addresses: vec![address], ..RunningSystem::new(Ready::Options) });
    }
    let mut running = RunningSystem::new(system.driver().ready.clone());
    let instances = system.driver().instances;
    for node in 1..=instances {
        let written = write(system, setting, node, instances)?;
        for words in &written.first {
            run(
                &format!("the first command of {}", system.name()),
                written.command(words)?.current_dir(&written.folder),
            )?;
        }
        if !written.measure.is_empty() {
            let words = pinned(&written.measure, setting.cores);
            running.measuring.get_or_insert_with(|| Measuring { words, folder: written.folder.clone() });
        }
        running.counting.extend(written.entries.clone().map(|of| (of, written.folder.clone())));
        if written.start.is_empty() {
            continue;
        }
        let quota = setting.quota.map(Quota::of_a_core).transpose()?;
        let words = match &quota {
            Some(quota) => quota.within(&written.start),
            None => written.start.clone(),
        };
        let mut server = Server {
            process: None,
            quota,
            words: pinned(&words, setting.cores),
            name: system.name().to_owned(),
            folder: written.folder.clone(),
            address: SocketAddr::new(setting.address, written.port),
        };
        server.start(&running.ready)?;
        running.addresses.push(server.address);
        running.servers.push(server);
    }
    Ok(running)
}

/// Writes the configuration of a scenario as a start does, and runs the system's command that checks it. If the driver has no such
/// command, only the marks are checked.
///
/// # Errors
/// Errors of [`start`], or the program refuses the configuration; the error has the output of the program.
pub fn check(system: &SystemFolder, setting: &Setting<'_>) -> Result<(), Error> {
    if system.address().is_some() {
        return Ok(());
    }
    let instances = system.driver().instances;
    for node in 1..=instances {
        let written = write(system, setting, node, instances)?;
        if !written.check.is_empty() {
            let name = format!("the check of {} by {}", setting.scenario, system.name());
            run(&name, written.command(&written.check)?.current_dir(&written.folder))?;
        }
    }
    Ok(())
}

/// Files and commands of a start, with their marks filled in.
struct Written {
    folder: PathBuf,
    port: u16,
    first: Vec<Vec<String>>,
    start: Vec<String>,
    measure: Vec<String>,
    check: Vec<String>,
    entries: Option<Entries>,
}

impl Written {
    fn command(&self, words: &[String]) -> Result<Command, Error> {
        let (program, others) = words.split_first().ok_or_else(|| Error::Unexpected {
            what: self.folder.display().to_string(),
            reason: "a command has no words".to_owned(),
        })?;
        let mut command = Command::new(program);
        command.args(others);
        Ok(command)
    }
}

fn write(system: &SystemFolder, setting: &Setting<'_>, node: u32, instances: u32) -> Result<Written, Error> {
    let scenario = find(system, setting.scenario)?;
    let folder = match instances {
        1 => setting.folder.to_owned(),
        _ => setting.folder.join(node.to_string()),
    };
    std::fs::create_dir_all(&folder).map_err(Error::file(&folder))?;
    // A command may change its folder.
    let folder = folder.canonicalize().map_err(Error::file(&folder))?;
    let port = match (instances, setting.port) {
        (1, Some(port)) => port,
        _ => port::free_at(setting.address),
    };
    let config = scenario.configuration.as_ref().map(|name| folder.join(name).display().to_string());
    let program = match setting.copies {
        true => copy(&system.program()?, &folder)?,
        false => system.program()?,
    };
    let mut values = vec![
        ("PROGRAM", program.display().to_string()),
        ("FOLDER", folder.display().to_string()),
        ("ADDRESS", host(setting.address)),
        ("PORT", port.to_string()),
        ("NODE", node.to_string()),
        ("WORKERS", setting.workers.unwrap_or(1).to_string()),
        ("CAPACITY", setting.capacity.unwrap_or(UNKNOWN_CAPACITY).round().to_string()),
        ("DOMAIN", DOMAIN.to_owned()),
    ];
    values.extend(config.map(|config| ("CONFIG", config)));
    values.extend(["ANSWER_1", "ANSWER_2"].into_iter().zip(setting.answers.iter().map(ToString::to_string)));
    values.extend(setting.values.iter().cloned());
    let texts = scenario.configuration.iter().chain(&scenario.files).filter_map(|name| system.file(name));
    let is_certificate = |mark: &&str| certificate::MARKS.iter().any(|(name, _)| name == mark);
    if texts.flat_map(marks::names).any(|mark| is_certificate(&mark)) {
        certificate::write(&folder, setting.address)?;
    }
    let of_certificate = |(mark, name)| (mark, folder.join(certificate::FOLDER).join(name).display().to_string());
    values.extend(certificate::MARKS.map(of_certificate));
    for name in scenario.configuration.iter().chain(&scenario.files) {
        let text = system.file(name).unwrap_or_default();
        let text = fill(text, &values).map_err(|error| missing(system, scenario, name, &error))?;
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(Error::file(&file))?;
    }
    // Each trial fills these in.
    let of_trial = OF_TRIAL.map(|mark| (mark, format!("@{mark}@")));
    let with_trial: Vec<_> = values.iter().cloned().chain(of_trial).collect();
    let words = |words: &[String], what: &str| {
        fill_words(words, &scenario.words, &values).map_err(|error| missing(system, scenario, what, &error))
    };
    Ok(Written {
        first: scenario.first.iter().map(|command| words(command, "first")).collect::<Result<_, _>>()?,
        start: words(&system.driver().start, "start")?,
        measure: fill_words(&system.driver().measure, &scenario.words, &with_trial)
            .map_err(|error| missing(system, scenario, "measure", &error))?,
        check: words(&system.driver().check, "check")?,
        entries: match &scenario.entries {
            Some(of) => Some(Entries { command: words(&of.command, "entries")?, behind: of.behind.clone() }),
            None => None,
        },
        folder,
        port,
    })
}

/// Formats an address as the host of a URI.
fn host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => format!("[{address}]"),
    }
}

/// Runs a command that counts entries.
fn count(of: &Entries, folder: &Path) -> Result<u64, Error> {
    let what = of.command.join(" ");
    let Some((program, others)) = of.command.split_first() else { return Ok(0) };
    let ask = || run(&what, Command::new(program).args(others).current_dir(folder));
    // A server may listen for calls before it listens for its commands.
    let output = wait::look(ANSWERED, || ask().ok()).map_or_else(ask, Ok)?;
    number_behind(&output, &of.behind).ok_or_else(|| {
        let reason = format!("it prints no number behind {:?}: {output}", of.behind);
        Error::Unexpected { what, reason }
    })
}

/// Returns the first number behind a text.
fn number_behind(output: &str, text: &str) -> Option<u64> {
    let (_, rest) = output.split_once(text)?;
    let rest = rest.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    rest[..end].parse().ok()
}

/// Copies a program into a folder.
fn copy(program: &Path, folder: &Path) -> Result<PathBuf, Error> {
    let copy = folder.join(program.file_name().unwrap_or_default());
    std::fs::copy(program, &copy).map_err(Error::file(program))?;
    Ok(copy)
}

/// Creates the error about a mark without a value.
fn missing(system: &SystemFolder, scenario: &Scenario, place: &str, error: &Error) -> Error {
    let reason = match error {
        Error::Unexpected { reason, .. } => reason.clone(),
        other => other.to_string(),
    };
    let cure = match scenario.needs.as_slice() {
        [] => "the backend that gives it is none of the scenario's needs".to_owned(),
        needs => format!("the scenario needs {}", needs.join(", ")),
    };
    let what = format!("{place} of {}, scenario {}", system.name(), scenario.name);
    Error::Unexpected { what, reason: format!("{reason}: {cure}") }
}

fn find<'a>(system: &'a SystemFolder, name: &str) -> Result<&'a Scenario, Error> {
    system.scenario(name).ok_or_else(|| {
        let known: Vec<&str> = system.driver().scenarios.iter().map(|scenario| scenario.name.as_str()).collect();
        let cure = match strowger_config::nearest(name, known.iter().copied()) {
            Some(near) => format!("write {near}"),
            None => format!("it has {}", known.join(", ")),
        };
        Error::Unexpected {
            what: format!("system {}", system.name()),
            reason: format!("it has no configuration for the scenario {name}: {cure}"),
        }
    })
}

/// Fills in the marks of words. Replaces `@WORDS@` by the words in `own`, whose marks are filled in too.
pub(super) fn fill_words(words: &[String], own: &[String], values: &[(&str, String)]) -> Result<Vec<String>, Error> {
    let all = words.iter().flat_map(|word| if word == "@WORDS@" { own } else { std::slice::from_ref(word) });
    all.map(|word| fill(word, values)).collect()
}

/// Returns the command that runs these words on only these cores.
fn pinned(words: &[String], cores: &[usize]) -> Vec<String> {
    let cores: Vec<String> = cores.iter().map(ToString::to_string).collect();
    let prefix = match cores.is_empty() {
        true => Vec::new(),
        false => vec!["taskset".to_owned(), "--cpu-list".to_owned(), cores.join(",")],
    };
    [prefix.as_slice(), words].concat()
}

/// Server of a system.
#[derive(Debug)]
struct Server {
    // Dropped in this order: a group is removed after its processes.
    process: Option<Process>,
    /// Control group of its processes. It stays for the next start.
    #[expect(dead_code, reason = "it is removed when it is dropped")]
    quota: Option<Quota>,
    words: Vec<String>,
    name: String,
    folder: PathBuf,
    address: SocketAddr,
}

impl Server {
    fn start(&mut self, sign: &Ready) -> Result<(), Error> {
        ready::is_free(&self.name, self.address)?;
        let Some((program, others)) = self.words.split_first() else {
            let reason = "start has no words: write the program first".to_owned();
            return Err(Error::Unexpected { what: format!("system {}", self.name), reason });
        };
        let mut command = Command::new(program);
        command.args(others).current_dir(&self.folder);
        let mut process = Process::start(&self.name, &self.folder, &mut command)?;
        ready::wait(&mut process, self.address, sign)?;
        self.process = Some(process);
        Ok(())
    }
}

/// Command that makes the load of a trial.
#[derive(Clone, Debug)]
pub(crate) struct Measuring {
    /// Arguments of the command, with the marks of a trial.
    pub(crate) words: Vec<String>,
    /// Folder in which it runs.
    pub(crate) folder: PathBuf,
}

/// Running system, which ends when it is dropped. An external system continues to run.
#[derive(Debug)]
pub struct RunningSystem {
    servers: Vec<Server>,
    addresses: Vec<SocketAddr>,
    ready: Ready,
    /// Unread sockets on the UDP ports of killed servers.
    held: Vec<UdpSocket>,
    measuring: Option<Measuring>,
    /// Commands that count the entries of caches within the servers, with their folders.
    counting: Vec<(Entries, PathBuf)>,
}

impl RunningSystem {
    const fn new(ready: Ready) -> Self {
        Self {
            servers: Vec::new(),
            addresses: Vec::new(),
            ready,
            held: Vec::new(),
            measuring: None,
            counting: Vec::new(),
        }
    }

    /// Returns the number of entries in the caches within the processes of the system, or `None` if the system has no
    /// such cache.
    ///
    /// # Errors
    /// A command fails, or prints no number; the error has its output.
    pub fn entries(&self) -> Result<Option<u64>, Error> {
        if self.counting.is_empty() {
            return Ok(None);
        }
        self.counting.iter().map(|(of, folder)| count(of, folder)).sum::<Result<u64, Error>>().map(Some)
    }

    /// Returns the command that makes the load of a trial, or `None` if the laboratory makes the calls.
    pub(crate) const fn measuring(&self) -> Option<&Measuring> {
        self.measuring.as_ref()
    }

    /// Returns the addresses of the system's servers: one, unless the system has several instances.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the address of the system's first server.
    pub fn address(&self) -> SocketAddr {
        self.addresses[0]
    }

    /// Returns the process ids of the roots of the system's process trees; an external system has none.
    pub fn ids(&self) -> Vec<u32> {
        self.servers.iter().filter_map(|server| server.process.as_ref()).map(Process::id).collect()
    }

    /// Returns the status of a server that has ended, or `None` while all run.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.servers.iter_mut().filter_map(|server| server.process.as_mut()).find_map(Process::ended)
    }

    /// Returns the last lines that the system printed.
    pub fn tail(&self) -> String {
        let tails = self.servers.iter().filter_map(|server| server.process.as_ref()).map(Process::tail);
        tails.collect::<Vec<_>>().join("\n")
    }

    /// Ends the system by SIGKILL.
    pub fn kill(&mut self) {
        for server in &mut self.servers {
            if let Some(mut process) = server.process.take() {
                process.kill();
            }
        }
    }

    /// Ends the system by [`RunningSystem::kill`], and drops the datagrams that arrive until it starts again. Without this the kernel would
    /// refuse them by ICMP, which clients behind a NAT do not see.
    pub fn kill_silently(&mut self) {
        self.kill();
        let bind = |address: &SocketAddr| wait::look(FREED, || UdpSocket::bind(address).ok());
        self.held = self.addresses.iter().filter_map(bind).collect();
    }

    /// Starts the servers that have ended again on the same ports, with the same files, and waits until they are ready.
    ///
    /// # Errors
    /// Errors of [`start`].
    pub fn start_again(&mut self) -> Result<(), Error> {
        self.held.clear();
        for server in &mut self.servers {
            if server.process.as_mut().is_none_or(|process| process.ended().is_some()) {
                server.process = None;
                server.start(&self.ready)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::number_behind;

    #[test]
    fn entries_are_the_number_behind_a_text() {
        let json = "{\n  \"entries\": 1000,\n  \"memory_bytes\": 7\n}";
        assert_eq!(number_behind(json, "\"entries\":"), Some(1_000));
        assert_eq!(number_behind("all: 12", "all: "), Some(12));
        assert_eq!((number_behind(json, "items"), number_behind("all: none", "all: ")), (None, None));
    }
}
