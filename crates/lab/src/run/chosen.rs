//! Systems of a run: all of the experiment, or the ones on the command line.

use super::description::SystemUsed;
use super::host_side;
use crate::Error;
use crate::document;
use crate::experiment::{self, Experiment, Plan, SystemSpec, TrialPosition as PlaceOfTrial};
use crate::host::{Hosts, ProcessHost};
use crate::program::{MARIADBD, MEMCACHED, Program, REDIS};
use crate::row::Digest;
use crate::system::{SHIPPED, SystemFolder};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;
use std::time::Duration;
use strowger_config::nearest;

/// System of a run, opened.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Table of the system in the experiment.
    pub spec: SystemSpec,
    /// Folder of the system.
    pub folder: SystemFolder,
    /// Version that the system states.
    pub version: String,
    /// Hash of the system's program, or `None` if the system runs already.
    pub program: Option<Digest>,
    /// Program, folder or address that the command line named.
    pub given: Option<String>,
}

/// Opens the systems of a run: the named systems, each with or without a path, or all systems of the experiment that are not optional. A
/// name that the experiment does not have is added to the experiment as a further system, with the configurations of the experiment's
/// first system.
///
/// # Errors
/// A name or path has no system, or the program of the system is missing.
pub fn choose(
    experiment: &mut Experiment,
    named: &[(String, Option<String>)],
    server: &ProcessHost,
) -> Result<Vec<Chosen>, Error> {
    for (name, given) in named {
        if experiment.systems.iter().all(|spec| spec.name != *name) {
            let spec = further(experiment, name, given.is_some())?;
            experiment.systems.push(spec);
        }
    }
    let names: Vec<&str> = named.iter().map(|(name, _)| name.as_str()).collect();
    let open = |spec: &SystemSpec| {
        let given = named.iter().find(|(name, _)| *name == spec.name).and_then(|(_, given)| given.clone());
        let folder = SystemFolder::open(&spec.driver, given.as_deref())?;
        let (version, program) = match server {
            ProcessHost::Here => identify(&folder)?,
            ProcessHost::There(host) => host_side::describe(&folder, host)?,
        };
        Ok(Chosen { spec: spec.clone(), version, program, folder, given })
    };
    experiment.systems.iter().filter(|spec| spec.is_among(&names)).map(open).collect()
}

/// Creates the table of a system that the experiment does not have.
fn further(experiment: &Experiment, name: &str, has_path: bool) -> Result<SystemSpec, Error> {
    let is_shipped = SHIPPED.iter().any(|(shipped, _)| *shipped == name);
    let known: Vec<&str> = experiment.systems.iter().map(|spec| spec.name.as_str()).collect();
    let first = experiment.systems.first().filter(|_| is_shipped || has_path).cloned();
    let mut spec = first.ok_or_else(|| {
        let cure = match nearest(name, known.iter().copied()) {
            Some(near) => format!("write {near}"),
            None => format!("write one of {}, or {name}=PATH", known.join(", ")),
        };
        Error::Unexpected {
            what: format!("system {name}"),
            reason: format!("the experiment has no such system: {cure}"),
        }
    })?;
    if is_shipped {
        name.clone_into(&mut spec.driver);
    }
    name.clone_into(&mut spec.name);
    spec.is_optional = false;
    Ok(spec)
}

/// Refuses a plan that asks a system for a configuration that it does not have, or that kills a system on another
/// machine.
///
/// # Errors
/// The first such trial, with a cure.
pub fn check(plan: &Plan, systems: &[Chosen]) -> Result<(), Error> {
    for planned in plan.trials.iter().filter(|planned| planned.place == experiment::TrialPosition::Trial) {
        let chosen = systems.iter().find(|chosen| chosen.spec.name == planned.system);
        let Some(chosen) = chosen else { continue };
        if chosen.folder.address().is_some() {
            if planned.kills {
                let reason = "it is not started here, and an event of the experiment kills it: name a system that the laboratory starts";
                return Err(Error::Unexpected {
                    what: format!("system {}", planned.system),
                    reason: reason.to_owned(),
                });
            }
            continue;
        }
        if chosen.folder.scenario(&planned.configuration).is_none() {
            let known = chosen.folder.driver().scenarios.iter().map(|scenario| scenario.name.as_str());
            let known: Vec<&str> = known.collect();
            let reason = format!(
                "it has no scenario {}, and the plan needs it: leave the system out by --system, or add the scenario; it has {}",
                planned.configuration,
                known.join(", ")
            );
            return Err(Error::Unexpected { what: format!("system {}", planned.system), reason });
        }
    }
    Ok(())
}

/// Returns the version of a system on this machine and the hash of its program.
pub(super) fn identify(folder: &SystemFolder) -> Result<(String, Option<Digest>), Error> {
    let program = match folder.address() {
        Some(_) => None,
        None => {
            let path = folder.program()?;
            let bytes = std::fs::read(&path).map_err(Error::file(&path))?;
            Some(Digest::of(&bytes))
        }
    };
    Ok((folder.version()?, program))
}

/// Describes the systems.
pub fn describe(systems: &[Chosen]) -> Vec<SystemUsed> {
    let one = |chosen: &Chosen| {
        let Chosen { spec, version, program, given, .. } = chosen;
        SystemUsed { name: spec.name.clone(), path: given.clone(), version: version.clone(), program: program.clone() }
    };
    systems.iter().map(one).collect()
}

/// Returns the versions of the databases and caches that the plan needs, by name, on the machine of the server.
///
/// # Errors
/// The connection is gone.
pub fn versions(plan: &Plan, systems: &[Chosen], server: &ProcessHost) -> Result<BTreeMap<String, String>, Error> {
    let mut names = Vec::new();
    for planned in &plan.trials {
        let chosen = systems.iter().find(|chosen| chosen.spec.name == planned.system);
        names.extend(chosen.map(|chosen| chosen.spec.beside_at(&planned.axes)).unwrap_or_default());
    }
    names.sort();
    names.dedup();
    match server {
        ProcessHost::Here => Ok(versions_of(&names)),
        ProcessHost::There(host) => host_side::versions(names, host),
    }
}

/// Returns the versions of these databases and caches on this machine.
pub(super) fn versions_of(names: &[String]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for name in names {
        let program: Option<&Program> = [("mariadb", &MARIADBD), ("memcached", &MEMCACHED), ("redis", &REDIS)]
            .into_iter()
            .find(|(start, _)| name.starts_with(start))
            .map(|(_, program)| program);
        if let Some(program) = program.filter(|program| !found.contains_key(program.name)) {
            let path = program.path();
            let output = path.and_then(|path| Command::new(path).arg("--version").output().ok());
            let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
            let version = text.lines().next().unwrap_or("not installed").trim().to_owned();
            found.insert(program.name.to_owned(), version);
        }
    }
    found
}

/// Refuses a plan that works only on one machine if several take part: callers show credentials with their first INVITE or play media, or a
/// command of the system makes the load.
///
/// # Errors
/// The first such trial, with a cure, or a document that cannot be read.
pub fn check_hosts(experiment: &Experiment, plan: &Plan, systems: &[Chosen], hosts: &Hosts) -> Result<(), Error> {
    const CURE: &str = "leave out --caller, --answerer and --server";
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let refused = |what, reason: &str| Err(Error::Unexpected { what, reason: format!("{reason}: {CURE}") });
    for planned in plan.trials.iter().filter(|planned| hosts.is_distributed() && planned.place == PlaceOfTrial::Trial) {
        let chosen = systems.iter().find(|chosen| chosen.spec.name == planned.system);
        if chosen.is_some_and(|chosen| !chosen.folder.driver().measure.is_empty()) {
            return refused(
                format!("system {}", planned.system),
                "a command of its own makes the load, on this machine alone",
            );
        }
        let (users, name) = (experiment.users(&planned.axes), experiment.document(&planned.axes));
        let parties = document::Parties { users, answer: nowhere, hold: Duration::ZERO };
        let text = document::text(name, &parties)?;
        if document::plays_sound(&text) {
            return refused(
                format!("document {name}"),
                "the delay of its packets is measured by the clock of one machine",
            );
        }
        if users > 0 && document::sends_at_once(&text) {
            return refused(
                format!("document {name}"),
                "its callers show credentials for nonces that this machine was given",
            );
        }
    }
    Ok(())
}
