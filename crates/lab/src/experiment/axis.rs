//! Axes of an experiment.

use super::fields::{Faults, Fields, Value, axis_value, number, text};
use super::transport::{connections, transport};
use crate::row::{AxisValue, definition};
use std::collections::BTreeMap;
use strowger_config::nearest;
use strowger_core::Transport;
use strowger_load::campaign::Connections;

/// Axis that an experiment varies, besides system and load.
#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    /// Name in rows.
    pub name: String,
    /// Values in their order.
    pub values: Vec<AxisValue>,
    /// Titles of values for people.
    pub titles: BTreeMap<String, String>,
    /// Number of registered users by value. It replaces the number in `[call]`.
    pub users: BTreeMap<String, u32>,
    /// Fixed load by value. It replaces the loads in `[load]`.
    pub loads: BTreeMap<String, f64>,
    /// Scenario of the calling side by value. It replaces the scenario in `[call]`.
    pub documents: BTreeMap<String, String>,
    /// Configuration of the systems by value, with `{axis}`. It replaces the one in `[[system]]`.
    pub configurations: BTreeMap<String, String>,
    /// Transport by value. It replaces the transport in `[call]`.
    pub transports: BTreeMap<String, Transport>,
    /// Owner of a connection by value. It replaces the owner in `[call]`.
    pub connections: BTreeMap<String, Connections>,
    /// Values above this multiple of the number of cores are left out of a plan. `None`: all values are planned.
    pub per_core: Option<u32>,
    /// True if the values are loads: multiples of the limit that a search finds at the other values of axes.
    pub is_of_limit: bool,
    /// Figures that trials have, by value. Trials of a value without an entry promise all figures.
    pub figures: BTreeMap<String, Vec<String>>,
    /// Value against which the penalty of a value is computed.
    pub against: BTreeMap<String, String>,
}

/// Reads a list of names of defined figures.
fn figures(value: Value<'_>) -> Option<Vec<String>> {
    let names: Option<Vec<String>> = value.get_ref().as_array()?.iter().map(text).collect();
    names.filter(|names| names.iter().all(|name| definition(name).is_some()))
}

/// Names of axes that rows have anyway.
const TAKEN: [&str; 4] = ["system", "load", "repetition", "time"];

impl Axis {
    pub(super) fn read(fields: &Fields<'_>, before: &[Self], faults: &mut Faults) -> Self {
        let by_value =
            ["title", "users", "load", "document", "configuration", "transport", "connections", "figures", "against"];
        fields.know(&[&["name", "values", "per_core", "of_limit"][..], &by_value].concat(), faults);
        let name = fields.required_text("name", "\"workers\"", faults);
        if let Some(value) = fields.value("name") {
            if TAKEN.contains(&name.as_str()) {
                faults.push(value.span(), format!("every row has {name} already"), "give the axis another name");
            } else if before.iter().any(|axis| axis.name == name) {
                faults.push(value.span(), format!("there are two axes {name}"), "put their values into one [[axis]]");
            }
        }
        let mut values: Vec<AxisValue> = Vec::new();
        for item in fields.items("values") {
            match axis_value(item) {
                Some(value) if values.contains(&value) => {
                    faults.push(item.span(), format!("the value {value} stands twice"), "write it once");
                }
                Some(value) => values.push(value),
                None => faults.push(item.span(), "a value is neither a number nor text", "write values = [4, 16]"),
            }
        }
        if values.is_empty() {
            fields.missing("values", "write values = [4, 16], or values = [\"a\", \"b\"]", faults);
        }
        let mut axis = Self {
            name,
            values,
            titles: BTreeMap::new(),
            users: BTreeMap::new(),
            loads: BTreeMap::new(),
            documents: BTreeMap::new(),
            configurations: BTreeMap::new(),
            transports: BTreeMap::new(),
            connections: BTreeMap::new(),
            per_core: fields.count("per_core", 1, faults),
            is_of_limit: fields.flag("of_limit", faults).unwrap_or(false),
            figures: BTreeMap::new(),
            against: BTreeMap::new(),
        };
        axis.check_multiples(fields, before, faults);
        let whole = |number: &f64| *number >= 0.0 && number.fract() == 0.0 && *number <= f64::from(u32::MAX);
        axis.titles = axis.by_value(fields, "title", "\"text\"", text, faults);
        axis.name_apart(fields, faults);
        axis.users =
            axis.by_value(fields, "users", "1000", |value| number(value).filter(whole).map(|n| n as u32), faults);
        axis.loads = axis.by_value(fields, "load", "500", |value| number(value).filter(|n| *n > 0.0), faults);
        axis.documents = axis.by_value(fields, "document", "\"register\"", text, faults);
        axis.configurations = axis.by_value(fields, "configuration", "\"relay\"", text, faults);
        axis.transports = axis.by_value(fields, "transport", "\"tcp\"", transport, faults);
        axis.connections = axis.by_value(fields, "connections", "\"per-user\"", connections, faults);
        axis.figures = axis.by_value(fields, "figures", "[\"rate.achieved\"]", figures, faults);
        let known: Vec<String> = axis.values.iter().map(ToString::to_string).collect();
        axis.against = axis.by_value(
            fields,
            "against",
            "\"another value\"",
            |value| text(value).filter(|text| known.contains(text)),
            faults,
        );
        axis
    }

    /// Refuses values that are no multiples of a limit.
    fn check_multiples(&self, fields: &Fields<'_>, before: &[Self], faults: &mut Faults) {
        let Some(value) = fields.value("of_limit").filter(|_| self.is_of_limit) else { return };
        let is_multiple = |value: &AxisValue| matches!(value, AxisValue::Number(number) if *number > 0.0);
        if !self.values.iter().all(is_multiple) {
            faults.push(value.span(), "a multiple of the limit is a number above 0", "write values = [0.5, 1, 2]");
        }
        if before.iter().any(|axis| axis.is_of_limit) {
            faults.push(value.span(), "two axes are multiples of the limit", "remove one of them");
        }
    }

    /// Refuses titles that do not distinguish two values of the axis.
    fn name_apart(&self, fields: &Fields<'_>, faults: &mut Faults) {
        let written = self.values.iter().map(ToString::to_string);
        let names: Vec<String> = written.map(|value| self.titles.get(&value).cloned().unwrap_or(value)).collect();
        let twice = names.iter().enumerate().find(|(at, name)| names[..*at].contains(name));
        if let (Some((_, name)), Some(value)) = (twice, fields.value("title")) {
            faults.push(value.span(), format!("two values are called {name:?}"), "give each a title of its own");
        }
    }

    /// Reads a table whose keys are values of this axis.
    fn by_value<T>(
        &self,
        fields: &Fields<'_>,
        key: &str,
        example: &str,
        read: impl Fn(Value<'_>) -> Option<T>,
        faults: &mut Faults,
    ) -> BTreeMap<String, T> {
        let mut found = BTreeMap::new();
        let known: Vec<String> = self.values.iter().map(ToString::to_string).collect();
        for (name, value) in fields.table(key, faults).into_iter().flatten() {
            let written = name.get_ref();
            if !known.iter().any(|known| known == written) {
                let cure = match nearest(written, known.iter().map(String::as_str)) {
                    Some(near) => format!("write {near}"),
                    None => format!("its values are {}", known.join(", ")),
                };
                faults.push(name.span(), format!("the axis {} has no value {written}", self.name), cure);
            } else if let Some(value) = read(value) {
                found.insert(written.to_string(), value);
            } else {
                let cure = format!("write {key} = {{ {written} = {example} }}");
                faults.push(value.span(), format!("{key} of {written} has the wrong type"), cure);
            }
        }
        found
    }
}
