//! Site: a system that runs, the backends beside it and the generator in front of it.

use super::credentials::Credentials;
use super::processes::Processes;
use super::sampled::{CACHE, DATABASE, SERVER};
use super::validity::Accounting;
use crate::backend::{Beside, BesideKind};
use crate::document::user;
use crate::experiment::Axes;
use crate::generator::Generator;
use crate::process::Process;
use crate::system::{Measuring, Rows, RunningSystem, certificate};
use crate::{Error, port, wait};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;
use strowger_measure::Observer;
use strowger_measure::process::pss_of_tree;

/// Time in which rows of accounting come after the last call.
const WRITTEN: Duration = Duration::from_secs(10);

/// Largest file of a system that is kept with a trial.
const LARGEST: u64 = 1 << 20;

/// Server of a site.
#[derive(Debug)]
pub(super) enum Server {
    /// System under test.
    System(RunningSystem),
    /// Unread relay, and its port.
    Floor(Process, u16),
}

impl Server {
    /// Addresses of its servers: one, unless the system has several instances.
    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::System(system) => system.addresses().to_vec(),
            Self::Floor(_, port) => vec![SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), *port)],
        }
    }

    pub(super) fn ids(&self) -> Vec<u32> {
        match self {
            Self::System(system) => system.ids(),
            Self::Floor(process, _) => vec![process.id()],
        }
    }

    /// Ends it by SIGKILL; with `silent`, datagrams that come to its port are dropped from now on.
    pub(super) fn kill(&mut self, silent: bool) {
        match self {
            Self::System(system) if silent => system.kill_silently(),
            Self::System(system) => system.kill(),
            Self::Floor(process, _) => process.kill(),
        }
    }

    /// Starts it once more after [`Server::kill`].
    pub(super) fn start_again(&mut self) -> Result<(), Error> {
        match self {
            Self::System(system) => system.start_again(),
            Self::Floor(process, _) => process.runs(),
        }
    }

    /// Command that makes the load of a trial. None where the laboratory makes calls.
    pub(super) const fn measuring(&self) -> Option<&Measuring> {
        match self {
            Self::System(system) => system.measuring(),
            Self::Floor(..) => None,
        }
    }

    /// Sentence about a server that has ended.
    pub(super) fn ended(&mut self) -> Option<String> {
        let status = match self {
            Self::System(system) => system.ended(),
            Self::Floor(process, _) => process.ended(),
        };
        let tail = self.tail();
        let last =
            tail.lines().rev().find(|line| !line.trim().is_empty()).map(|line| format!(", its last line: {line}"));
        status.map(|status| format!("the server ended ({status}){}", last.unwrap_or_default()))
    }

    fn tail(&self) -> String {
        match self {
            Self::System(system) => system.tail(),
            Self::Floor(process, _) => process.tail(),
        }
    }
}

/// Site of a system. Everything ends and its files go when it is dropped.
#[derive(Debug)]
pub(super) struct Site {
    /// Name of the system.
    pub(super) name: String,
    pub(super) axes: Axes,
    pub(super) repetition: u32,
    // Dropped in this order.
    pub(super) clients: Vec<Generator>,
    pub(super) server: Server,
    pub(super) beside: Vec<Beside>,
    pub(super) rows: Option<Rows>,
    /// Users whose callers send credentials with their first INVITE; 0 for none.
    pub(super) provers: u32,
    pub(super) credentials: Option<Credentials>,
    /// Files of the site.
    pub(super) folder: Folder,
    /// Its configuration lies in the folder of a trial.
    pub(super) is_kept: bool,
}

/// Folder that is removed with its value.
#[derive(Debug)]
pub(super) struct Folder(pub(super) PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        // What remains lies in a temporary folder.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Site {
    /// Has everything of the site sampled.
    pub(super) fn watch(&self, observer: &Observer) {
        let mut number = 0;
        let mut watch = |part: &str, ids: Vec<u32>| {
            for id in ids {
                number += 1;
                observer.watch(if number == 1 { part.to_owned() } else { format!("{part}/{number}") }, id);
            }
        };
        watch(SERVER, self.server.ids());
        for beside in &self.beside {
            watch(part_of(beside), beside.ids());
        }
    }

    /// Memory of the server and of the caches, in bytes.
    pub(super) fn memory(&self) -> [u64; 2] {
        let sum = |ids: Vec<u32>| ids.into_iter().map(pss_of_tree).sum::<u64>();
        let caches = self.beside.iter().filter(|beside| beside.kind() == BesideKind::Cache);
        [sum(self.server.ids()), caches.map(|cache| sum(cache.ids())).sum()]
    }

    /// Tells whether the server and the backends are of this machine, so that they can be sampled.
    pub(super) fn is_local(&self) -> bool {
        !self.server.ids().is_empty()
    }

    pub(super) fn has_cache(&self) -> bool {
        self.beside.iter().any(|beside| beside.kind() == BesideKind::Cache)
    }

    /// Entries of the caches. None without a cache, or where one does not say it.
    pub(super) fn entries(&self) -> Option<u64> {
        let caches: Vec<_> = self.beside.iter().filter(|beside| beside.kind() == BesideKind::Cache).collect();
        if caches.is_empty() { None } else { caches.into_iter().map(Beside::entries).sum() }
    }

    /// Processes and threads of the server.
    pub(super) fn processes(&self) -> Processes {
        Processes::of(&self.server.ids())
    }

    /// Sentence about a server that has ended.
    pub(super) fn ended(&mut self) -> Option<String> {
        self.server.ended()
    }

    /// Gives callers credentials for so many calls: each user a use of its nonce in turn.
    pub(super) fn prepare_credentials(&mut self, calls: f64) -> Result<(), Error> {
        if self.provers == 0 {
            return Ok(());
        }
        let server = self.server.addresses()[0].port();
        let credentials = match self.credentials.take() {
            Some(credentials) => credentials,
            None => Credentials::ask(server, port::free(), self.provers)?,
        };
        let credentials = self.credentials.insert(credentials);
        let mut data = String::from("SEQUENTIAL\n");
        for _ in 0..(calls / f64::from(self.provers)).ceil().max(1.0) as u64 {
            for (number, line) in (1..).zip(credentials.next(server)?) {
                let ((name, password), (callee, _)) = (user(number), user(number % self.provers + 1));
                data.push_str(&format!(
                    "{name};[authentication username={name} password={password}];{callee};{line}\n"
                ));
            }
        }
        for client in &self.clients {
            std::fs::write(client.data(), &data).map_err(Error::file(client.data()))?;
        }
        Ok(())
    }

    /// Empties the table of accounting.
    pub(super) fn empty_accounting(&self) -> Result<(), Error> {
        match (&self.rows, self.database()) {
            (Some(rows), Some(database)) => database.truncate(&rows.table),
            _ => Ok(()),
        }
    }

    /// Counts rows of accounting, once there are enough. `completed` and `failed` calls include the warm-up.
    pub(super) fn accounting(&self, completed: u64, failed: u64) -> Result<Option<Accounting>, Error> {
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

    fn database(&self) -> Option<&Beside> {
        self.beside.iter().find(|beside| beside.kind() == BesideKind::Database)
    }

    /// Keeps the output of the server with a trial, and its files and documents with the first one.
    pub(super) fn keep(&mut self, trial: &Path) -> Result<(), Error> {
        if !self.is_kept {
            copy_files(&self.folder.0.join("system"), &trial.join("system"))?;
            copy_files(&self.folder.0.join("generator"), &trial.join("documents"))?;
            self.is_kept = true;
        }
        let output = trial.join("output.log");
        std::fs::write(&output, self.server.tail()).map_err(Error::file(&output))
    }
}

fn part_of(beside: &Beside) -> &'static str {
    match beside.kind() {
        BesideKind::Database => DATABASE,
        BesideKind::Cache => CACHE,
    }
}

/// Copies the small files of a folder and of its folders; a folder that is not there has none.
fn copy_files(from: &Path, to: &Path) -> Result<(), Error> {
    let Ok(entries) = std::fs::read_dir(from) else { return Ok(()) };
    for entry in entries.flatten() {
        let Ok(metadata) = entry.metadata() else { continue };
        if entry.file_name() == certificate::FOLDER {
            continue;
        }
        let (source, target) = (entry.path(), to.join(entry.file_name()));
        if metadata.is_dir() {
            copy_files(&source, &target)?;
        } else if metadata.is_file() && metadata.len() <= LARGEST {
            std::fs::create_dir_all(to).map_err(Error::file(to))?;
            std::fs::copy(&source, &target).map_err(Error::file(&target))?;
        }
    }
    Ok(())
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
        copy_files(from.path(), to.path()).expect("they are copied");
        let is_there = |name: &str| to.path().join(name).is_file();
        assert!(is_there("own.cfg") && is_there("data/one") && !to.path().join(".tls").exists());
    }
}
