//! Systems under test of an experiment.

use super::axis::Axis;
use super::fields::{Faults, Fields};
use crate::compare::FLOOR;
use crate::row::AxisValue;
use std::collections::BTreeMap;

/// System under test.
#[derive(Clone, Debug, PartialEq)]
pub struct SystemSpec {
    /// Name in rows.
    pub name: String,
    /// Driver that starts it: a folder of the systems.
    pub driver: String,
    /// Name of the system's configuration, with `{axis}` in place of the value of an axis.
    pub configuration: String,
    /// Workers: a number, an axis in braces, or `best` for the best of 2, 4 and 8.
    pub workers: Option<String>,
    /// Backends that run with the system, such as `mariadb`; `{axis}` is filled in here too.
    pub beside: Vec<String>,
    /// Values of axes that it does not have.
    pub skip: BTreeMap<String, Vec<AxisValue>>,
    /// Measured only if the command line names the system.
    pub is_optional: bool,
    /// True if a trial of this system in which media packets are lost is invalid: such a floor shows that the machine is too busy. The trials of
    /// a repetition begin with it.
    pub is_lossless: bool,
    /// Step of a staircase. It replaces the step of `[load]`.
    pub step: Option<f64>,
    /// Expected limit, by which the plan estimates its time. It replaces the limit of `[load]`.
    pub expected: Option<f64>,
}

/// Number of workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Workers {
    /// Fixed number.
    Number(u32),
    /// The best of 2, 4 and 8.
    Best,
}

impl SystemSpec {
    pub(super) fn read(fields: &Fields<'_>, before: &[Self], axes: &[Axis], faults: &mut Faults) -> Self {
        fields.know(
            &[
                "name",
                "driver",
                "configuration",
                "workers",
                "beside",
                "skip",
                "step",
                "expected",
                "optional",
                "lossless",
            ],
            faults,
        );
        let name = fields.required_text("name", "\"strowger\"", faults);
        if let Some(value) = fields.value("name") {
            if name == FLOOR {
                faults.push(value.span(), "each run measures the floor anyway", "remove this [[system]]");
            } else if before.iter().any(|system| system.name == name) {
                let cure = "give each a name of its own; driver says how it is started";
                faults.push(value.span(), format!("there are two systems {name}"), cure);
            }
        }
        let configuration = fields.required_text("configuration", "\"relay\"", faults);
        let workers = match fields.value("workers").map(|value| super::fields::number(value).is_some()) {
            Some(true) => fields.count("workers", 1, faults).map(|count| count.to_string()),
            _ => fields.text("workers", faults),
        };
        let beside: Vec<String> = fields.items("beside").into_iter().filter_map(super::fields::text).collect();
        for (key, texts) in [
            ("configuration", vec![&configuration]),
            ("workers", workers.iter().collect()),
            ("beside", beside.iter().collect()),
        ] {
            for text in texts {
                check_braces(fields, key, text, axes, faults);
            }
        }
        if let (Some(value), Some(workers)) = (fields.value("workers"), &workers) {
            let is_right = workers == "best" || workers.starts_with('{') || workers.parse::<u32>().is_ok();
            if !is_right {
                faults.push(value.span(), "workers is no number", "write workers = 4, \"{axis}\" or \"best\"");
            }
        }
        Self {
            driver: fields.text("driver", faults).unwrap_or_else(|| name.clone()),
            name,
            configuration,
            workers,
            beside,
            skip: fields.axis_lists("skip", axes, faults),
            is_optional: fields.flag("optional", faults).unwrap_or(false),
            is_lossless: fields.flag("lossless", faults).unwrap_or(false),
            step: positive(fields, "step", faults),
            expected: positive(fields, "expected", faults),
        }
    }

    /// Returns the number of workers at these values of axes, or `None` if the file names none.
    pub fn workers_at(&self, axes: &super::Axes) -> Option<Workers> {
        let text = fill(self.workers.as_ref()?, axes);
        if text == "best" { Some(Workers::Best) } else { text.parse().ok().map(Workers::Number) }
    }

    /// Returns the backends at these values of axes.
    pub fn beside_at(&self, axes: &super::Axes) -> Vec<String> {
        self.beside.iter().map(|name| fill(name, axes)).collect()
    }

    /// Returns whether a run of the systems with these names includes this system. An empty list means all systems that
    /// are not optional.
    pub fn is_among(&self, names: &[&str]) -> bool {
        if names.is_empty() { !self.is_optional } else { names.contains(&self.name.as_str()) }
    }

    /// Tells whether the system has these values.
    pub fn has(&self, axes: &super::Axes) -> bool {
        !self.skip.iter().any(|(name, skipped)| axes.get(name).is_some_and(|value| skipped.contains(value)))
    }
}

/// Reads a number above 0.
fn positive(fields: &Fields<'_>, key: &str, faults: &mut Faults) -> Option<f64> {
    let number = fields.number(key, faults);
    if let (Some(0.0), Some(value)) = (number, fields.value(key)) {
        faults.push(value.span(), format!("{key} is 0"), format!("write {key} = 200, or remove it"));
    }
    number
}

/// Checks that each name in braces is an axis.
fn check_braces(fields: &Fields<'_>, key: &str, text: &str, axes: &[Axis], faults: &mut Faults) {
    for part in text.split('{').skip(1) {
        let name = part.split_once('}').map(|(name, _)| name);
        if name.is_none_or(|name| !axes.iter().any(|axis| axis.name == name)) {
            let span = fields.value(key).map_or_else(|| fields.span(), |value| value.span());
            let known: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
            let cure = match known.is_empty() {
                true => "this file has no [[axis]]: write the name without braces".to_owned(),
                false => format!("write the name of an axis between braces: {}", known.join(", ")),
            };
            faults.push(span, format!("{key} names no axis: {text:?}"), cure);
        }
    }
}

/// Puts the values of axes in place of their names in braces, as in `stress-{letter}`.
pub fn fill(text: &str, axes: &super::Axes) -> String {
    axes.iter().fold(text.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), &value.to_string()))
}
