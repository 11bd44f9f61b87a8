//! Results of a reload: changed keys, and the faults of a configuration or of a data set.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strowger_config::{Report, SetFault, Severity};

/// A data set that was read again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SetReload {
    /// Name in conditions.
    pub name: String,
    /// Source of the entries.
    pub origin: String,
    /// Number of entries before.
    pub before: usize,
    /// Number of entries now.
    pub entries: usize,
    /// True: the entries differ from those before.
    pub changed: bool,
}

/// Result of a reload.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Reload {
    /// Name of the file, or of the defaults if there is no file.
    pub file: String,
    /// Keys whose values have changed: those in force now, and those that need a restart.
    pub changes: Vec<Change>,
    /// Warnings about the configuration.
    pub warnings: Vec<Fault>,
}

/// A key whose value in the file has changed. Secrets are masked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// Name with its table, such as `proxy.fork_timeout`.
    pub key: String,
    /// Earlier value, as TOML.
    pub from: String,
    /// Value in the file, as TOML.
    pub to: String,
    /// True: the server keeps its value until it restarts.
    pub needs_restart: bool,
}

/// A configuration that the server refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Wrong {
    /// All faults, for people: file, line, the faulty words, cure.
    pub text: String,
    /// The same faults as a list.
    pub faults: Vec<Fault>,
}

/// A fault of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fault {
    /// Name of the file.
    pub file: String,
    /// Line, from 1; none if the fault is in no line of the file.
    pub line: Option<usize>,
    /// Column in characters, from 1.
    pub column: Option<usize>,
    /// True: the configuration can still be used.
    pub warning: bool,
    /// Description of the fault.
    pub message: String,
    /// Instruction that removes the fault.
    pub cure: String,
}

impl Wrong {
    /// Converts a report.
    pub fn of(report: &Report) -> Self {
        Self { text: report.to_string(), faults: Fault::all(report) }
    }
}

impl From<&SetFault> for Fault {
    fn from(fault: &SetFault) -> Self {
        let SetFault { place, line, message, cure } = fault.clone();
        Self { file: place, line, column: None, warning: false, message, cure }
    }
}

impl Wrong {
    /// Converts faults of data sets.
    pub(super) fn of_sets(faults: &[SetFault]) -> Self {
        let line = |SetFault { place, line, message, cure }: &SetFault| {
            let line = line.map_or_else(String::new, |line| format!(":{line}"));
            format!("{place}{line}: error: {message}\n  = {cure}\n")
        };
        Self { text: faults.iter().map(line).collect(), faults: faults.iter().map(Fault::from).collect() }
    }
}

impl Fault {
    /// Converts the faults of a report, in the order of the file.
    pub fn all(report: &Report) -> Vec<Self> {
        let fault = |fault: &strowger_config::Fault| {
            let (line, column) = report.position(fault).unzip();
            Self {
                file: report.file().into(),
                line,
                column,
                warning: fault.severity == Severity::Warning,
                message: fault.message.clone(),
                cure: fault.cure.clone(),
            }
        };
        report.faults().iter().map(fault).collect()
    }
}

impl From<strowger_config::Change> for Change {
    fn from(change: strowger_config::Change) -> Self {
        let strowger_config::Change { key, running, wanted, needs_restart } = change;
        Self { key, from: running, to: wanted, needs_restart }
    }
}
