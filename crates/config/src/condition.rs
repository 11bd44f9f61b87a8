//! Conditions of tables: compilation, and the position of a fault within a condition.

use std::ops::Range;

use strowger_rules::{Condition, SetNames};

use super::reader::{Reader, Section};
use super::report::Fault;
use super::set::SetTable;

/// Compiles the condition of the table at this path. Notes a fault and returns `None` if the condition is invalid.
pub(super) fn condition(
    text: &str,
    path: &str,
    shown: &str,
    names: &SetNames,
    reader: &mut Reader,
) -> Option<Condition> {
    match Condition::compile(text, names) {
        Ok(condition) => {
            let span = reader.value_of(&format!("{path}.when"));
            for (name, _) in condition.sets().into_iter().filter_map(|set| names.of(set)) {
                reader.note_reference(SetTable::NAME, name, span.clone().unwrap_or_default());
            }
            Some(condition)
        }
        Err(fault) => {
            let span = reader.value_of(&format!("{path}.when")).map(|value| within(&value, &fault.span));
            reader.push(Fault::error(span, format!("{shown}: {}", fault.message), fault.cure));
            None
        }
    }
}

/// Returns the position in the file for a position within a quoted value. TOML escapes before it make the result inexact, but it never lies outside
/// of the value.
fn within(value: &Range<usize>, span: &Range<usize>) -> Range<usize> {
    let at = |place: usize| (value.start + 1 + place).min(value.end.saturating_sub(1)).max(value.start);
    at(span.start)..at(span.end).max(at(span.start))
}
