//! Experiments: files of TOML with the trials to make and the figures to show.
//!
//! A file has these tables:
//!
//! | table | content |
//! |---|---|
//! | above the first table | `title`; `answer`: the figure of the sentence at the top of the report; `notes`: sentences for its readers |
//! | `[published]` | `source`, `machine` and `errata` of the published figures |
//! | `[call]` | `document` and `answer`: scenarios of both ends; `users`, `registers`, `hold`, `patience`, `answering` sides, `transport`, `connections`, `connect_rate`, `fresh`, `mixed`, `quota` |
//! | `[load]` | `unit`; fixed `values`; a `finder` with `start`, `step`, `most`, `expected`, `sessions`, `increase`; `before` and `after` |
//! | `[goal]` | figures and the most that each may be, for a finder |
//! | `[[axis]]` | `name`, `values`; `title`, `users`, `load`, `document`, `configuration`, `transport`, `connections`, `figures`, `against` by value; `per_core`, `of_limit` |
//! | `[[system]]` | `name`, `driver`, `configuration` with `{axis}`, `workers`, `beside`, `skip`, `step`, `expected`, `optional`, `lossless` |
//! | `[[event]]` | `at`, a time or times by profile; `do`: `kill` with `silent`, `start`, or `load` with `load`; `where` |
//! | `[profile.NAME]` | `warm_up`, `warm_up_calls`, `window`, `cool_down`, `settle`, `settled`, `hold`, `trial`, `confirm`, `repetitions`, `search`, `sessions`, `increase`, `loads`, `only` |
//! | `[[figure]]` | `name`, `title`, `form`, `x`, `y`, `line`, `where`, `entries`; published: `points`, `rows`, `erratum`, `picture` |
//! | `[[gate]]` | `figure`, `system`, `against`, `where`, `against_where`; `at_most`, `at_least` or `adds_at_most`; `or_over` with `system` and `at_most`; `aim`, `each`, `repetitions` |
//!
//! An axis of the name `clients` is the number of generators that share the load of a trial, each with answering sides of its own. A system
//! of several servers has at least one answering side for each server.
//!
//! Each mistake in a file is a fault with line and cure.
//!
//! ```
//! use strowger_lab::experiment::{Experiment, plan};
//! use strowger_lab::row::Profile;
//!
//! let (experiment, _) = Experiment::shipped("relay").expect("it is shipped");
//! let plan = plan(&experiment, Profile::Smoke, &[]);
//! assert!(plan.time.as_secs() < 60);
//! let report = Experiment::read("mine.toml", "titel = \"a\"").expect_err("the key is misspelt");
//! assert!(report.to_string().contains("write title"));
//! ```

mod axis;
mod entry;
mod event;
pub(crate) mod fields;
mod figure;
mod gate;
mod load;
mod overrides;
mod plan;
mod profile;
pub(crate) mod reading;
mod shipped;
mod system;
mod transport;

pub use axis::Axis;
pub(crate) use entry::marks as entry_marks;
pub use entry::{ENTRY_MARKS, Entry, EntryValue};
pub use event::{Action, Course, EventSpec, TrialEvent};
pub use figure::{Figure, Form, PublishedPoint, PublishedRow, Source};
pub use gate::{Bound, Gate};
pub use load::{FinderKind, LoadPlan};
pub use overrides::Overrides;
pub use plan::{Plan, Planned, PlannedLoad, TrialPosition, combinations, plan};
pub(crate) use plan::{REGISTRATIONS, floor_window};
pub use profile::Steps;
pub use shipped::SHIPPED;
pub use system::{SystemSpec, Workers, fill};

use crate::row::{AxisValue, Profile};
use std::collections::BTreeMap;
use std::time::Duration;
use strowger_config::Report;
use strowger_core::Transport;
use strowger_load::campaign::Connections;

/// Values of some axes.
pub type Axes = BTreeMap<String, AxisValue>;

/// Experiment as its file describes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Experiment {
    /// Name: the file's name without folder and ending.
    pub name: String,
    /// Title for people.
    pub title: String,
    /// Figure that answers the question of the experiment. `None` means the limit, or the first figure.
    pub answer: Option<String>,
    /// Sentences for readers of the report.
    pub notes: Vec<String>,
    /// Source of the published figures, or `None` if nothing was published.
    pub published: Option<Publication>,
    /// Calls of a trial.
    pub call: Call,
    /// Loads.
    pub load: LoadPlan,
    /// Axes besides system and load.
    pub axes: Vec<Axis>,
    /// Systems under test.
    pub systems: Vec<SystemSpec>,
    /// Events within each trial.
    pub events: Vec<EventSpec>,
    /// Durations by profile.
    pub profiles: BTreeMap<Profile, Steps>,
    /// Figures and tables of the report.
    pub figures: Vec<Figure>,
    /// Gates.
    pub gates: Vec<Gate>,
}

impl Experiment {
    /// Reads an experiment, whose name is the name of the file without its folder and ending. Also returns a report of
    /// warnings.
    ///
    /// # Errors
    /// The report of everything that is wrong.
    pub fn read(file: &str, text: &str) -> Result<(Self, Report), Report> {
        reading::read(file, text)
    }

    /// Returns the number of registered users at these values of axes.
    pub fn users(&self, axes: &Axes) -> u32 {
        let of_values = self.axes.iter().filter_map(|axis| axis.users.get(&axes.get(&axis.name)?.to_string()));
        of_values.copied().max().unwrap_or(self.call.users)
    }

    /// Returns the number of users that register before the load at these values of axes.
    pub fn registered_users(&self, axes: &Axes) -> u32 {
        if self.call.registers { self.users(axes) } else { 0 }
    }

    /// Returns the scenario of the calling side at these values of axes.
    pub fn document(&self, axes: &Axes) -> &str {
        let mut of_values = self.axes.iter().filter_map(|axis| axis.documents.get(&axes.get(&axis.name)?.to_string()));
        of_values.next().unwrap_or(&self.call.document)
    }

    /// Returns the loads of a system.
    pub fn load_of(&self, system: &str) -> LoadPlan {
        let mut load = self.load.clone();
        if let Some(spec) = self.systems.iter().find(|spec| spec.name == system) {
            (load.step, load.expected) = (spec.step.unwrap_or(load.step), spec.expected.unwrap_or(load.expected));
        }
        load
    }

    /// Tells whether trials at these values of axes have a figure.
    pub fn has_figure(&self, axes: &Axes, figure: &str) -> bool {
        self.axes.iter().all(|axis| {
            let value = axes.get(&axis.name).map(ToString::to_string);
            let figures = value.and_then(|value| axis.figures.get(&value));
            figures.is_none_or(|figures| figures.iter().any(|name| name == figure))
        })
    }

    /// Returns the axis whose values are multiples of a limit.
    pub fn multiples(&self) -> Option<&Axis> {
        self.axes.iter().find(|axis| axis.is_of_limit)
    }

    /// Returns the multiple of the limit that is offered at these values of axes.
    pub fn multiple(&self, axes: &Axes) -> Option<f64> {
        match axes.get(&self.multiples()?.name) {
            Some(AxisValue::Number(multiple)) => Some(*multiple),
            _ => None,
        }
    }

    /// Returns the values of the axes besides the one of multiples.
    pub fn others(&self, axes: &Axes) -> Axes {
        let mut others = axes.clone();
        others.retain(|name, _| self.multiples().is_none_or(|axis| axis.name != *name));
        others
    }

    /// Removes from all profiles the values of axes with `per_core` that are too high for this number of cores.
    pub fn fit(&mut self, cores: usize) {
        for axis in &self.axes {
            let Some(per_core) = axis.per_core else { continue };
            let most = f64::from(per_core) * cores as f64;
            let fits = |value: &AxisValue| !matches!(value, AxisValue::Number(number) if *number > most);
            for steps in self.profiles.values_mut() {
                steps.only.entry(axis.name.clone()).or_insert_with(|| axis.values.clone()).retain(fits);
            }
        }
    }

    /// Reads one of the shipped experiments. Returns `None` for an unknown name.
    ///
    /// # Panics
    /// A shipped file is faulty; a test excludes that.
    pub fn shipped(name: &str) -> Option<(Self, &'static str)> {
        let (_, text) = SHIPPED.iter().find(|(shipped, _)| *shipped == name)?;
        match Self::read(&format!("{name}.toml"), text) {
            Ok((experiment, _)) => Some((experiment, text)),
            Err(report) => panic!("{report}"),
        }
    }
}

/// Source of published figures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Publication {
    /// Measured program, for legends.
    pub source: String,
    /// Machine on which it was measured.
    pub machine: String,
    /// Errata and gaps of the publication.
    pub errata: String,
}

/// Calls of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    /// Scenario of the calling side: a shipped name or a path.
    pub document: String,
    /// Scenario of the answering side, or `None` if the server itself answers.
    pub answer: Option<String>,
    /// Number of users that register before the load; 0 for none.
    pub users: u32,
    /// Time between the answer and the end of a call.
    pub hold: Duration,
    /// Time for which a caller waits for a response before its call has failed. `None` means the default of the
    /// generator.
    pub patience: Option<Duration>,
    /// Answering sides among which the server chooses.
    pub answering: u32,
    /// Transport of callers and answering sides.
    pub transport: Transport,
    /// Owner of a socket or connection of callers.
    pub connections: Connections,
    /// Users that connect in a second before the load, where each has a connection. They make one call each, and calls of the load take
    /// users at random. `None`: users connect with their first call of the load.
    pub connect_rate: Option<u32>,
    /// True if the system is restarted before each trial, also before a repeated one.
    pub fresh: bool,
    /// True if the users register before the load, and call each other. Users that do not register call the answering side.
    pub registers: bool,
    /// Documents of some of the calls, each with its share of all calls in per cent.
    pub mixed: Vec<(String, u32)>,
    /// Processor time of the system, in per cent of one core: its control group gets this share of every 5 ms. `None` means no limit.
    pub quota: Option<u32>,
}
