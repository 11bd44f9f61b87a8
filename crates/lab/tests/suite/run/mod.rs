//! Runs: folder, schedule, validity, resume.

mod bed;
mod conduct;
mod folder;
mod multiples;
mod steps;
mod validity;

use strowger_lab::experiment::Overrides;
use strowger_lab::row::{Digest, Load, LoadUnit, Profile, Row, System};
use strowger_lab::run::{Description, FORMAT, Machine, SystemUsed};

/// Returns the description of a run of one system.
fn description() -> Description {
    let strowger = SystemUsed {
        name: "strowger".into(),
        path: None,
        version: "0.1.0".into(),
        program: Some(Digest::of(b"program")),
    };
    Description {
        format: FORMAT,
        program: "0.1.0".into(),
        experiment: "mine".into(),
        file: Digest::of(b"title"),
        profile: Profile::Quick,
        overrides: Overrides::default(),
        systems: vec![strowger],
        versions: std::collections::BTreeMap::new(),
        hosts: std::collections::BTreeMap::new(),
        server_cores: None,
        machine: Machine { host: "here".into(), cores: 2, ..Machine::default() },
        started: 1_700_000_000,
        planned: 60,
    }
}

/// Returns a row at this load.
fn row(load: f64) -> Row {
    let load = Load { value: load, unit: LoadUnit::Calls };
    Row::new("mine", System::new("strowger", "0.1.0"), load, Profile::Quick, b"configuration")
}
