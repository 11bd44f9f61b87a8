//! Overrides: values of a command line that replace values of an experiment.

use super::{Axis, Experiment, Steps};
use crate::row::{AxisValue, Profile};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;
use strowger_config::nearest;
use strowger_load::campaign::period;

/// Values of a command line for one run.
///
/// ```
/// use strowger_lab::experiment::{Experiment, Overrides, plan};
/// use strowger_lab::row::Profile;
///
/// let (mut experiment, _) = Experiment::shipped("stress").expect("it is shipped");
/// let overrides = Overrides { only: [("letter".into(), vec!["A".into()])].into(), ..Overrides::default() };
/// overrides.apply(&mut experiment, Profile::Quick).expect("there is such a letter");
/// assert!(plan(&experiment, Profile::Quick, &[]).trials.iter().all(|trial| trial.system == "floor" || trial.configuration == "stress-A"));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Overrides {
    /// Chosen values of axes by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub only: BTreeMap<String, Vec<String>>,
    /// Fixed loads, without a search.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<f64>,
    /// Window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub window: Option<Duration>,
    /// Repetitions of each cell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repetitions: Option<u32>,
}

impl Overrides {
    /// Tells whether the experiment stays as its file describes it.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Puts the values into a profile of an experiment.
    ///
    /// # Errors
    /// There is no such axis or value, or the window ends before an event. The error is a sentence with the cure.
    pub fn apply(&self, experiment: &mut Experiment, profile: Profile) -> Result<(), String> {
        let mut only = BTreeMap::new();
        for (name, written) in &self.only {
            let axis = find(&experiment.axes, name)?;
            let values = written.iter().map(|value| value_of(axis, value)).collect::<Result<Vec<_>, _>>()?;
            only.insert(name.clone(), values);
        }
        if !self.loads.is_empty() {
            experiment.axes.iter_mut().for_each(|axis| axis.loads.clear());
        }
        let steps = experiment.profiles.entry(profile).or_insert_with(|| Steps::default_of(profile));
        steps.only.extend(only);
        if !self.loads.is_empty() {
            (steps.loads, steps.search) = (self.loads.clone(), false);
        }
        steps.window = self.window.unwrap_or(steps.window);
        steps.repetitions = self.repetitions.unwrap_or(steps.repetitions);
        let window = steps.window;
        let late = experiment.events.iter().filter_map(|event| event.at.get(&profile)).find(|at| **at >= window);
        late.map_or(Ok(()), |at| {
            let (at, window) = (period::show(*at), period::show(window));
            Err(format!("an event of the experiment is at {at}, and the window ends at {window}: give a longer one"))
        })
    }
}

fn find<'a>(axes: &'a [Axis], name: &str) -> Result<&'a Axis, String> {
    axes.iter().find(|axis| axis.name == name).ok_or_else(|| {
        let names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
        let cure = match (nearest(name, names.iter().copied()), names.is_empty()) {
            (Some(near), _) => format!("write {near}"),
            (None, true) => "it has none".to_owned(),
            (None, false) => format!("its axes are {}", names.join(", ")),
        };
        format!("the experiment has no axis {name:?}: {cure}")
    })
}

fn value_of(axis: &Axis, written: &str) -> Result<AxisValue, String> {
    let known: Vec<String> = axis.values.iter().map(ToString::to_string).collect();
    let found = known.iter().position(|known| known == written).map(|place| axis.values[place].clone());
    found.ok_or_else(|| format!("the axis {} has no value {written:?}: its values are {}", axis.name, known.join(", ")))
}

/// Words of the command line.
impl fmt::Display for Overrides {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut words: Vec<String> =
            self.only.iter().map(|(axis, values)| format!("--only {axis}={}", values.join(","))).collect();
        if !self.loads.is_empty() {
            let loads: Vec<String> = self.loads.iter().map(ToString::to_string).collect();
            words.push(format!("--load {}", loads.join(",")));
        }
        words.extend(self.window.map(|window| format!("--window {}s", window.as_secs_f64())));
        words.extend(self.repetitions.map(|count| format!("--repetitions {count}")));
        f.write_str(if words.is_empty() { "none" } else { "" })?;
        f.write_str(&words.join(" "))
    }
}
