//! Test bed of synthetic systems: its outcomes are functions of the load and of the number of the trial.

use std::path::Path;
use strowger_lab::Error;
use strowger_lab::experiment::{Experiment, Planned, plan};
use strowger_lab::finder::TrialOutcome;
use strowger_lab::row::{Check, Digest, Profile, Reason, Row, System, Validity};
use strowger_lab::run::{NextTrial, Schedule, TestBed};

/// Calls a second that the synthetic server carries.
pub(super) const CAPACITY: f64 = 700.0;

/// Outcome of a trial by its number from 1, in place of the server's.
pub(super) type Fault = Box<dyn Fn(usize, &NextTrial) -> Option<Check>>;

pub(super) struct Bed {
    pub(super) trials: usize,
    pub(super) fault: Fault,
    /// Number of the trial that cannot be made.
    pub(super) fails_at: Option<usize>,
}

impl Bed {
    pub(super) fn new(fault: impl Fn(usize, &NextTrial) -> Option<Check> + 'static) -> Self {
        Self { trials: 0, fault: Box::new(fault), fails_at: None }
    }

    pub(super) fn sound() -> Self {
        Self::new(|_, _| None)
    }
}

impl TestBed for Bed {
    fn identity(&self, planned: &Planned) -> (System, Digest) {
        (System::new(planned.system.as_str(), "0.1.0"), Digest::of(planned.configuration.as_bytes()))
    }

    fn trial(&mut self, order: &NextTrial, folder: &Path) -> Result<TrialOutcome, Error> {
        self.trials += 1;
        if self.fails_at == Some(self.trials) {
            return Err(Error::Unexpected { what: "the system".into(), reason: "port 5060 is taken".into() });
        }
        std::fs::write(folder.join("samples.log"), format!("{}", order.load)).expect("it is written");
        let mut outcome = TrialOutcome::default();
        let load = order.load.value;
        let lost = (1.0 - CAPACITY / load).max(0.0) * 100.0;
        for (figure, value) in [
            ("isa.any", lost),
            ("srd.p95", 2_000.0),
            ("failed", lost),
            ("rate.achieved", load),
            ("load", load / 10.0),
            ("server.thread/shard-0", (load / CAPACITY * 100.0).min(100.0)),
        ] {
            outcome.figures.set(figure, value).expect("a known figure");
        }
        if let Some(check) = (self.fault)(self.trials, order) {
            let sentence = format!("a planted fault of {check}");
            outcome.validity = Validity::of(vec![Reason { check, sentence }]);
        }
        Ok(outcome)
    }
}

const EXPERIMENT: &str = r#"
title = "Two systems, a fixed load and a search"
[call]
document = "call"
[load]
values = [90]
finder = "search"
start = 50
most = 2000
expected = 700
[[axis]]
name = "letter"
values = ["A", "B"]
[[system]]
name = "strowger"
configuration = "stress-{letter}"
[[system]]
name = "kamailio"
configuration = "stress-{letter}"
[profile.quick]
warm_up = "1s"
window = "5s"
repetitions = 2
[[figure]]
name = "limits"
title = "Limits"
form = "table"
y = ["limit"]
"#;

pub(super) fn schedule(profile: Profile) -> Schedule {
    let (experiment, _) = Experiment::read("mine.toml", EXPERIMENT).unwrap_or_else(|report| panic!("{report}"));
    let plan = plan(&experiment, profile, &[]);
    Schedule::new(experiment, profile, plan)
}

/// Returns the rows of the trials at fixed loads.
pub(super) fn fixed(rows: &[Row]) -> impl Iterator<Item = &Row> {
    rows.iter().filter(|row| row.load.value == 90.0 && row.limit.is_none())
}
