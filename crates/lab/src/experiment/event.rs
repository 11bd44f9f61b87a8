//! Events within a trial: the end and start of the server, and changes of the load.

use super::axis::Axis;
use super::fields::{Faults, Fields, Value, text};
use super::load::word;
use super::plan::combinations;
use super::{Axes, Experiment, FinderKind, Source, Steps};
use crate::row::{AxisValue, Profile};
use std::collections::BTreeMap;
use std::time::Duration;
use strowger_load::campaign::period;

/// Words of actions.
const ACTIONS: [&str; 3] = ["kill", "start", "load"];

/// Action of an event.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Action {
    /// All processes of the server end by SIGKILL.
    Kill {
        /// Datagrams that arrive while the server is down are dropped. Without this option the kernel refuses them by
        /// ICMP.
        silent: bool,
    },
    /// The server starts again, with the files that it has.
    Start,
    /// New load, in the unit of `[load]`.
    Load(f64),
}

impl Action {
    /// Tells whether the server is killed.
    pub const fn is_kill(self) -> bool {
        matches!(self, Self::Kill { .. })
    }
}

/// Event as the file of an experiment has it.
#[derive(Clone, Debug, PartialEq)]
pub struct EventSpec {
    /// Time since the begin of the window, by profile.
    pub at: BTreeMap<Profile, Duration>,
    /// Action.
    pub action: Action,
    /// Values of axes whose trials have the event. An axis without an entry allows all its values.
    pub only: BTreeMap<String, Vec<AxisValue>>,
    /// Place in the file, for faults about several events.
    start: usize,
}

/// Event of a trial.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrialEvent {
    /// Time since the begin of the window.
    pub at: Duration,
    /// Action.
    pub action: Action,
}

/// Course of a trial in addition to its load: its events, and the figures that it has for each second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Course {
    /// Events in their order.
    pub events: Vec<TrialEvent>,
    /// Users that are registered when the load begins.
    pub users: u32,
    /// Figures that figures over time show.
    pub over_time: Vec<String>,
    /// Load of the warm-up, if it differs from that of the window.
    pub before: Option<f64>,
    /// Load after the window, if it differs from that of the window.
    pub after: Option<f64>,
}

impl Course {
    /// Tells whether the server is killed and started.
    pub fn restarts(&self) -> bool {
        self.events.iter().any(|event| !matches!(event.action, Action::Load(_)))
    }

    /// Returns the moment of the last kill.
    pub fn killed(&self) -> Option<Duration> {
        self.events.iter().rev().find(|event| event.action.is_kill()).map(|event| event.at)
    }
}

impl EventSpec {
    pub(super) fn read(fields: &Fields<'_>, axes: &[Axis], faults: &mut Faults) -> Option<Self> {
        fields.know(&["at", "do", "load", "silent", "where"], faults);
        if fields.value("do").is_none() {
            fields.missing("do", "write do = \"kill\", \"start\" or \"load\"", faults);
        }
        let at = at(fields, faults);
        let verb = word(fields, "do", &ACTIONS, |word| word, faults);
        let load = fields.number("load", faults);
        let silent = fields.flag("silent", faults);
        let only = fields.axis_lists("where", axes, faults);
        let verb = verb?;
        for (key, of) in [("load", "load"), ("silent", "kill")] {
            if let Some(value) = fields.value(key).filter(|_| verb != of) {
                faults.push(value.span(), format!("do = \"{verb}\" has no {key}"), "remove it");
            }
        }
        let action = match verb {
            "kill" => Action::Kill { silent: silent.unwrap_or_default() },
            "start" => Action::Start,
            _ => {
                if fields.value("load").is_none() {
                    fields.missing("load", "write load = 1000", faults);
                }
                Action::Load(load?)
            }
        };
        Some(Self { at, action, only, start: fields.start })
    }

    fn is_of(&self, axes: &Axes) -> bool {
        self.only.iter().all(|(name, values)| axes.get(name).is_none_or(|value| values.contains(value)))
    }
}

/// Reads `at = "5s"`, or `at = { smoke = "1s", quick = "5s", ... }`.
fn at(fields: &Fields<'_>, faults: &mut Faults) -> BTreeMap<Profile, Duration> {
    let Some(value) = fields.value("at") else {
        fields.missing("at", "write at = \"5s\"", faults);
        return BTreeMap::new();
    };
    let Some(table) = value.get_ref().as_table() else {
        let at = moment(value, faults);
        return at.map_or_else(BTreeMap::new, |at| Profile::ALL.iter().map(|profile| (*profile, at)).collect());
    };
    let words: Vec<&str> = Profile::ALL.iter().map(|profile| profile.word()).collect();
    let inner = Fields { name: "at", table, start: value.span().start };
    inner.know(&words, faults);
    let lacking: Vec<&str> = words.iter().copied().filter(|word| inner.value(word).is_none()).collect();
    if !lacking.is_empty() {
        let message = format!("at has no time for the profile {}", lacking.join(", "));
        faults.push(value.span(), message, "name all profiles, or write at = \"5s\" for all");
    }
    let of = |profile: &Profile| Some((*profile, inner.value(profile.word())?));
    let found: Vec<_> = Profile::ALL.iter().filter_map(of).collect();
    found.into_iter().filter_map(|(profile, value)| Some((profile, moment(value, faults)?))).collect()
}

/// Reads the moment of an event in whole seconds. Figures are of whole seconds, so that no figure would show an event
/// within a second.
fn moment(value: Value<'_>, faults: &mut Faults) -> Option<Duration> {
    let at = text(value).and_then(|text| period::duration(&text).ok());
    let whole = at.filter(|at| at.subsec_nanos() == 0);
    if whole.is_none() {
        faults.push(value.span(), "an event is at a whole second of the window", "write at = \"5s\"");
    }
    whole
}

impl Experiment {
    /// Returns the course of a trial.
    pub fn course(&self, profile: Profile, axes: &Axes) -> Course {
        let mut over_time: Vec<String> = Vec::new();
        for y in self.figures.iter().filter(|figure| figure.x == Some(Source::Time)).flat_map(|figure| &figure.y) {
            if !over_time.contains(y) {
                over_time.push(y.clone());
            }
        }
        let users = self.registered_users(axes);
        Course { events: self.events(profile, axes), users, over_time, ..Course::default() }
    }

    fn events(&self, profile: Profile, axes: &Axes) -> Vec<TrialEvent> {
        let own = self.events.iter().filter(|event| event.is_of(axes));
        let mut events: Vec<TrialEvent> =
            own.filter_map(|event| Some(TrialEvent { at: *event.at.get(&profile)?, action: event.action })).collect();
        events.sort_by_key(|event| event.at);
        events
    }

    /// Refuses events outside of the window, and servers that are killed twice or stay dead.
    pub(super) fn check_events(&self, faults: &mut Faults) {
        let Some(first) = self.events.first() else { return };
        if self.load.finder != FinderKind::Fixed {
            let cure = "remove the finder of [load], or the [[event]]";
            faults.push(first.start..first.start + 1, "trials of a finder have no events", cure);
        }
        for profile in Profile::ALL {
            let steps = self.profiles.get(profile).cloned().unwrap_or_else(|| Steps::default_of(*profile));
            for event in &self.events {
                if event.at.get(profile).is_some_and(|at| *at >= steps.window) {
                    let window = period::show(steps.window);
                    let message = format!("the window of [profile.{profile}] ends before the event: it has {window}");
                    let cure = format!("write a longer window in [profile.{profile}], or an earlier event");
                    faults.push(event.start..event.start + 1, message, cure);
                }
            }
            let mut all = combinations(self, &BTreeMap::new()).into_iter();
            if let Some(sentence) = all.find_map(|axes| disorder(&self.events(*profile, &axes))) {
                faults.push(first.start..first.start + 1, sentence.0, sentence.1);
                return;
            }
        }
    }
}

/// Returns the fault in the order of events, if there is one, with its cure.
fn disorder(events: &[TrialEvent]) -> Option<(&'static str, &'static str)> {
    let mut runs = true;
    for event in events {
        runs = match (event.action, runs) {
            (Action::Kill { .. }, true) => false,
            (Action::Kill { .. }, false) => {
                return Some(("the server is killed twice", "write an event with do = \"start\" between them"));
            }
            (Action::Start, false) => true,
            (Action::Start, true) => {
                return Some(("the server is started while it runs", "write an event with do = \"kill\" before it"));
            }
            (Action::Load(_), runs) => runs,
        };
    }
    (!runs).then_some(("nothing starts the killed server again", "write [[event]] with do = \"start\" behind it"))
}
