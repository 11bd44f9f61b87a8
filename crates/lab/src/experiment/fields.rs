//! Reading of tables: values by key, and faults with their place in the file.

use super::Axes;
use super::axis::Axis;
use crate::row::{AxisValue, definition};
use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;
use strowger_config::{Fault, nearest};
use strowger_load::campaign::period;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// Value with its place.
pub(crate) type Value<'a> = &'a Spanned<DeValue<'a>>;

/// Table of the file with its name for people.
#[derive(Clone, Copy)]
pub(crate) struct Fields<'a> {
    pub name: &'a str,
    pub table: &'a DeTable<'a>,
    /// Place of the table, for faults about missing keys.
    pub start: usize,
}

/// Faults found so far.
#[derive(Default)]
pub(crate) struct Faults {
    pub found: Vec<Fault>,
}

impl Faults {
    pub(crate) fn push(&mut self, span: Range<usize>, message: impl Into<String>, cure: impl Into<String>) {
        self.found.push(Fault::error(Some(span), message, cure));
    }

    /// Refuses a word that is none of these.
    pub(crate) fn wrong_word(&mut self, value: Value<'_>, written: &str, what: &str, words: &[&str]) {
        let cure = match nearest(written, words.iter().copied()) {
            Some(near) => format!("write {near}"),
            None if words.is_empty() => "there is none in this file".into(),
            None => format!("write one of {}", words.join(", ")),
        };
        self.push(value.span(), format!("there is no {what} {written:?}"), cure);
    }
}

impl<'a> Fields<'a> {
    /// Refuses keys that are none of these.
    pub(crate) fn know(&self, keys: &[&str], faults: &mut Faults) {
        for key in self.table.keys().filter(|key| !keys.contains(&key.get_ref().as_ref())) {
            let written = key.get_ref();
            let cure = match nearest(written, keys.iter().copied()) {
                Some(near) => format!("write {near}"),
                None => format!("{} has {}", self.name, keys.join(", ")),
            };
            faults.push(key.span(), format!("there is no key {written} in {}", self.name), cure);
        }
    }

    pub(crate) fn value(&self, key: &str) -> Option<Value<'a>> {
        self.table.get(key)
    }

    /// Returns the place for a fault about the whole table.
    pub(crate) const fn span(&self) -> Range<usize> {
        self.start..self.start + 1
    }

    /// Notes that a key is missing.
    pub(crate) fn missing(&self, key: &str, cure: &str, faults: &mut Faults) {
        faults.push(self.span(), format!("{} has no {key}", self.name), cure);
    }

    fn wrong(&self, key: &str, value: Value<'_>, what: &str, example: &str, faults: &mut Faults) {
        faults.push(value.span(), format!("{key} of {} is no {what}", self.name), format!("write {key} = {example}"));
    }

    pub(crate) fn text(&self, key: &str, faults: &mut Faults) -> Option<String> {
        let value = self.value(key)?;
        let text = text(value);
        if text.is_none() {
            self.wrong(key, value, "text", "\"...\"", faults);
        }
        text
    }

    /// Reads a list of texts, or one text.
    pub(crate) fn texts(&self, key: &str, faults: &mut Faults) -> Vec<String> {
        let mut texts = Vec::new();
        for item in self.items(key) {
            match text(item) {
                Some(text) => texts.push(text),
                None => self.wrong(key, item, "list of texts", "[\"...\"]", faults),
            }
        }
        texts
    }

    /// Reads a text that is required; returns an empty text after a fault.
    pub(crate) fn required_text(&self, key: &str, example: &str, faults: &mut Faults) -> String {
        if self.value(key).is_none() {
            self.missing(key, &format!("write {key} = {example}"), faults);
        }
        self.text(key, faults).unwrap_or_default()
    }

    pub(crate) fn number(&self, key: &str, faults: &mut Faults) -> Option<f64> {
        let value = self.value(key)?;
        let number = number(value).filter(|number| *number >= 0.0);
        if number.is_none() {
            self.wrong(key, value, "number from 0", "10", faults);
        }
        number
    }

    /// Reads a whole number of at least `least`.
    pub(crate) fn count(&self, key: &str, least: u32, faults: &mut Faults) -> Option<u32> {
        let value = self.value(key)?;
        let number = number(value).filter(|number| number.fract() == 0.0);
        let count = number.filter(|number| (f64::from(least)..=f64::from(u32::MAX)).contains(number));
        if count.is_none() {
            self.wrong(key, value, &format!("whole number from {least}"), &least.max(1).to_string(), faults);
        }
        count.map(|count| count as u32)
    }

    pub(crate) fn flag(&self, key: &str, faults: &mut Faults) -> Option<bool> {
        let value = self.value(key)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.wrong(key, value, "true or false", "false", faults);
        }
        flag
    }

    pub(crate) fn duration(&self, key: &str, faults: &mut Faults) -> Option<Duration> {
        let value = self.value(key)?;
        let duration = text(value).and_then(|text| period::duration(&text).ok());
        if duration.is_none() {
            self.wrong(key, value, "length of time", "\"10s\"", faults);
        }
        duration
    }

    /// Returns the items of a list. A single value is treated as a list of one.
    pub(crate) fn items(&self, key: &str) -> Vec<Value<'a>> {
        match self.value(key) {
            None => Vec::new(),
            Some(value) => match value.get_ref() {
                DeValue::Array(items) => items.iter().collect(),
                _ => vec![value],
            },
        }
    }

    pub(crate) fn numbers(&self, key: &str, faults: &mut Faults) -> Vec<f64> {
        let mut numbers = Vec::new();
        for item in self.items(key) {
            match number(item).filter(|number| *number > 0.0) {
                Some(number) => numbers.push(number),
                None => self.wrong(key, item, "list of numbers above 0", "[100, 200]", faults),
            }
        }
        numbers
    }

    /// Reads a list of names of defined figures.
    pub(crate) fn figures(&self, key: &str, faults: &mut Faults) -> Vec<String> {
        let mut figures = Vec::new();
        for item in self.items(key) {
            match text(item) {
                Some(name) if definition(&name).is_some() => figures.push(name),
                Some(name) => unknown_figure(item, &name, faults),
                None => self.wrong(key, item, "name of a figure", "\"server.cpu.call\"", faults),
            }
        }
        figures
    }

    /// Reads a table within this table.
    pub(crate) fn table(&self, key: &str, faults: &mut Faults) -> Option<&'a DeTable<'a>> {
        let value = self.value(key)?;
        match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => {
                self.wrong(key, value, "table", "{ ... }", faults);
                None
            }
        }
    }

    /// Reads one value for each axis: `{ letter = "A" }`.
    pub(crate) fn axes(&self, key: &str, axes: &[Axis], faults: &mut Faults) -> Axes {
        let lists = self.axis_lists(key, axes, faults);
        let single = lists.into_iter().filter_map(|(name, values)| Some((name, values.into_iter().next()?)));
        single.collect()
    }

    /// Reads several values for each axis: `{ letter = ["A", "B"] }`.
    pub(crate) fn axis_lists(&self, key: &str, axes: &[Axis], faults: &mut Faults) -> BTreeMap<String, Vec<AxisValue>> {
        let Some(table) = self.table(key, faults) else { return BTreeMap::new() };
        let inner = Fields { name: self.name, table, start: self.start };
        let names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
        let mut found = BTreeMap::new();
        for (written, value) in table {
            let name = written.get_ref().as_ref();
            let Some(axis) = axes.iter().find(|axis| axis.name == name) else {
                let cure = match nearest(name, names.iter().copied()) {
                    Some(near) => format!("write {near}"),
                    None => "name an [[axis]] of this file".into(),
                };
                faults.push(written.span(), format!("{key} of {} names no axis {name:?}", self.name), cure);
                continue;
            };
            let mut values = Vec::new();
            for item in inner.items(name) {
                match axis_value(item).filter(|value| axis.values.contains(value)) {
                    Some(value) => values.push(value),
                    None => {
                        let known: Vec<String> = axis.values.iter().map(ToString::to_string).collect();
                        let message = format!("the axis {name} has no such value");
                        faults.push(item.span(), message, format!("its values are {}", known.join(", ")));
                    }
                }
            }
            // The value itself was refused.
            let _ = value;
            found.insert(name.to_owned(), values);
        }
        found
    }
}

pub(crate) fn unknown_figure(value: Value<'_>, name: &str, faults: &mut Faults) {
    let names: Vec<&str> = crate::row::DEFINITIONS.iter().map(|definition| definition.name).collect();
    let cure = match nearest(name, names.iter().copied()) {
        Some(near) => format!("write {near}"),
        None => format!("the figures are {}", names.join(", ")),
    };
    faults.push(value.span(), format!("there is no figure {name:?}"), cure);
}

pub(crate) fn text(value: Value<'_>) -> Option<String> {
    match value.get_ref() {
        DeValue::String(text) => Some(text.to_string()),
        _ => None,
    }
}

/// Reads a finite number.
pub(crate) fn number(value: Value<'_>) -> Option<f64> {
    let number: f64 = match value.get_ref() {
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok()? as f64,
        DeValue::Float(number) => number.as_str().parse().ok()?,
        _ => return None,
    };
    number.is_finite().then_some(number)
}

pub(crate) fn axis_value(value: Value<'_>) -> Option<AxisValue> {
    number(value).map(AxisValue::Number).or_else(|| text(value).map(AxisValue::Text))
}
