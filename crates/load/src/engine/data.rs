//! Lines of injection files, as calls use them.

use super::call_runner::CallRunner;
use std::sync::Arc;
use strowger_scenario::injection::{Injection, InjectionError, LineOrder};
use strowger_scenario::template::Field;

/// Marks a file that gives this call no line.
const NONE: u32 = u32::MAX;

impl CallRunner<'_> {
    /// Takes a line of each file for a new call.
    pub(super) fn take_lines(&mut self) {
        let files = self.shard.run.injections.clone();
        let mut lines = std::mem::take(&mut self.call.extra().lines);
        lines.clear();
        for file in &*files {
            // A number is drawn only for a RANDOM file, so that the sequence of the other draws is unchanged.
            let entropy = if file.order() == LineOrder::Random { self.shard.pool.rand.draw() } else { 0 };
            let line = file.pick(self.call.user, u64::from(entropy));
            lines.push(self.or_halt(line).flatten().unwrap_or(NONE));
        }
        self.call.extra().lines = lines;
    }

    /// Ends the run, as SIPp does, if a file lacks the requested data.
    fn or_halt<T>(&mut self, result: Result<T, InjectionError>) -> Option<T> {
        result.map_err(|error| self.halt(format_args!("{error}"))).ok()
    }

    /// Writes `[fieldN]`.
    pub(super) fn field(&mut self, field: &Field, out: &mut Vec<u8>) {
        let files = self.shard.run.injections.clone();
        let place = usize::from(field.file);
        let Some(file) = files.get(place) else { return };
        let line = match &field.line {
            None => self.call.extra.as_ref().and_then(|e| e.lines.get(place)).copied().filter(|&line| line != NONE),
            Some(template) => {
                let bytes = self.text(template);
                let text = String::from_utf8_lossy(&bytes);
                // The text of a variable has decimals; an empty variable means the first line.
                let digits = if text.trim().is_empty() { "0" } else { text.trim() };
                let number = digits.parse::<f64>();
                if number.is_err() {
                    self.halt(format_args!("'{text}' is no line of {}", file.name()));
                }
                drop(text);
                self.shard.pool.give(bytes);
                number.ok().filter(|&number| number >= 0.0).map(|number| number as u32)
            }
        };
        if let Some(line) = line {
            if !file.has_field(line, field.column) {
                let (column, name) = (field.column, file.name());
                self.shard.warn(format_args!("Field {column} not found in the file {name}"));
            }
            let written = file.write_field(line, field.column, out);
            self.or_halt(written);
        }
    }

    fn file(&mut self, name: &[u8]) -> Option<(Arc<[Injection]>, usize)> {
        let files = self.shard.run.injections.clone();
        let place = files.iter().position(|file| file.answers_to(name));
        if place.is_none() {
            let name = String::from_utf8_lossy(name).into_owned();
            self.halt(format_args!("Invalid injection file: {name}"));
        }
        place.map(|place| (files, place))
    }

    /// Runs `lookup`: returns the line of a key, or -1 if no line has it.
    pub(super) fn look_up(&mut self, file: &[u8], key: &[u8]) -> f64 {
        let Some((files, place)) = self.file(file) else { return -1.0 };
        let found = files[place].look_up(key);
        self.or_halt(found).flatten().map_or(-1.0, f64::from)
    }

    /// Runs `insert`: adds a line.
    pub(super) fn insert(&mut self, file: &[u8], value: &[u8]) {
        if let Some((files, place)) = self.file(file) {
            let inserted = files[place].insert(value);
            self.or_halt(inserted);
        }
    }

    /// Runs `replace`.
    pub(super) fn replace(&mut self, file: &[u8], line: &[u8], value: &[u8]) {
        let Some((files, place)) = self.file(file) else { return };
        let number = String::from_utf8_lossy(line).trim().parse::<f64>().map_or(-1, |n| n as i64);
        let replaced = files[place].replace(number, value);
        self.or_halt(replaced);
    }
}
