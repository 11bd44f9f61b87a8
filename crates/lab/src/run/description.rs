//! Description of a run: plan, programs and machine.

use super::sums::FORMAT;
use crate::experiment::Overrides;
use crate::row::{Digest, Profile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Content of `run.json`. It is written when the run begins and never changed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Description {
    /// Format version of the folder.
    pub format: u32,
    /// Version of this program.
    pub program: String,
    /// Name of the experiment.
    pub experiment: String,
    /// Hash of `experiment.toml`.
    pub file: Digest,
    /// Profile.
    pub profile: Profile,
    /// Values of the command line that replace values of the experiment.
    #[serde(default, skip_serializing_if = "Overrides::is_empty")]
    pub overrides: Overrides,
    /// Systems under test in the order of the plan.
    pub systems: Vec<SystemUsed>,
    /// Versions of databases and caches, by name.
    pub versions: BTreeMap<String, String>,
    /// Machine that made the trials.
    pub machine: Machine,
    /// Number of cores to which the server was limited, or `None` if it could use all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_cores: Option<u32>,
    /// Hosts by name, with their roles.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<String, HostUsed>,
    /// Begin of the run in seconds since 1970-01-01 UTC.
    pub started: u64,
    /// Time that the plan estimated, in seconds.
    pub planned: u64,
}

/// System of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SystemUsed {
    /// Name in rows.
    pub name: String,
    /// Program or folder that the command line named in place of the shipped one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Version that it states.
    pub version: String,
    /// Hash of the program, or `None` if the system runs on another machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<Digest>,
}

/// Host of a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostUsed {
    /// Roles: `caller`, `answerer` and `server`.
    pub roles: Vec<String>,
    /// Machine.
    pub machine: Machine,
    /// Settings of it that limit or spoil runs.
    pub findings: Vec<String>,
}

/// Machine of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Host name.
    pub host: String,
    /// Model of the processor.
    pub processor: String,
    /// Number of the machine's cores.
    pub cores: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// Version of the kernel.
    pub kernel: String,
}

impl Machine {
    /// Describes this machine by `/proc`. Facts that are missing there stay empty.
    pub fn this() -> Self {
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let (cpuinfo, meminfo) = (read("/proc/cpuinfo"), read("/proc/meminfo"));
        let value = |text: &str, key: &str| {
            let line = text.lines().find_map(|line| line.split_once(':').filter(|(name, _)| name.trim() == key));
            line.map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let memory = value(&meminfo, "MemTotal");
        let kibibytes = memory.split(' ').next().and_then(|number| number.parse::<u64>().ok()).unwrap_or(0);
        Self {
            host: read("/proc/sys/kernel/hostname").trim().to_owned(),
            processor: value(&cpuinfo, "model name"),
            cores: cpuinfo.lines().filter(|line| line.starts_with("processor")).count() as u32,
            memory: kibibytes * 1_024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

impl Description {
    /// Returns the text of `run.json`.
    ///
    /// # Panics
    /// Never: all keys are text.
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).expect("a description has text as keys") + "\n"
    }

    /// Reads the text of `run.json`.
    ///
    /// # Errors
    /// A sentence.
    pub fn read(text: &str) -> Result<Self, String> {
        let description: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        match description.format {
            FORMAT => Ok(description),
            other => Err(format!("it has format {other}, this program reads format {FORMAT}")),
        }
    }

    /// Returns the first difference between this run and a resumed one, for people.
    pub fn difference(&self, now: &Self) -> Option<String> {
        let differs = |what: &str, began: &str, now: &str| {
            (began != now).then(|| format!("{what}: it began with {began}, and now it is {now}"))
        };
        let machine = |of: &Self| format!("{}, {} cores, {}", of.machine.host, of.machine.cores, of.machine.processor);
        let systems = |of: &Self| {
            let one = |system: &SystemUsed| {
                let path = system.path.as_ref().map_or_else(String::new, |path| format!("={path}"));
                let program = system.program.as_ref().map_or_else(String::new, |hash| format!(" ({hash})"));
                format!("{}{path} {}{program}", system.name, system.version)
            };
            of.systems.iter().map(one).collect::<Vec<_>>().join(", ")
        };
        let roles =
            |of: &Self| of.hosts.iter().map(|(name, host)| (name.clone(), host.roles.clone())).collect::<Vec<_>>();
        differs("another experiment", &self.experiment, &now.experiment)
            .or_else(|| (self.file != now.file).then(|| "the experiment's file was changed".to_owned()))
            .or_else(|| differs("another profile", self.profile.word(), now.profile.word()))
            .or_else(|| differs("other options", &self.overrides.to_string(), &now.overrides.to_string()))
            .or_else(|| differs("other systems", &systems(self), &systems(now)))
            .or_else(|| differs("another version of strowger", &self.program, &now.program))
            .or_else(|| (self.versions != now.versions).then(|| "a database or cache has another version".to_owned()))
            .or_else(|| (self.server_cores != now.server_cores).then(|| "the server had other cores".to_owned()))
            .or_else(|| (roles(self) != roles(now)).then(|| "other hosts take part".to_owned()))
            .or_else(|| differs("another machine", &machine(self), &machine(now)))
    }
}
