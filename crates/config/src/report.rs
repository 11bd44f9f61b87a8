//! Faults of a configuration, each with file, line, column and cure.

use std::fmt;
use std::ops::Range;

use super::key_positions::KeyPositions;
use super::{Secret, mask};

/// Severity of a [`Fault`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The configuration cannot be used.
    Error,
    /// The configuration can be used, but probably not as its author intends.
    Warning,
}

/// One fault: position, message and cure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Severity of the fault.
    pub severity: Severity,
    /// Byte range in the file; `None` if the fault is in a default, the environment or the command line.
    pub span: Option<Range<usize>>,
    /// Description of the fault, in one sentence.
    pub message: String,
    /// Instruction that removes the fault, in one sentence.
    pub cure: String,
}

impl Fault {
    /// Creates a fault that makes the configuration unusable.
    pub fn error(span: Option<Range<usize>>, message: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { severity: Severity::Error, span, message: message.into(), cure: cure.into() }
    }

    /// Returns the start of the range of the fault, or the largest number if it has none, so that such faults are sorted last.
    fn start(&self) -> usize {
        self.span.as_ref().map_or(usize::MAX, |span| span.start)
    }

    /// Creates a fault with which the server can still start.
    pub fn warning(span: Option<Range<usize>>, message: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, span, message: message.into(), cure: cure.into() }
    }
}

/// All faults of one configuration, with its text.
///
/// `Display` writes them for people: for each fault the position as `FILE:LINE:COLUMN`, the line itself, a caret under
/// the faulty words, and the cure.
#[derive(Debug, Clone)]
pub struct Report {
    file: String,
    text: String,
    faults: Vec<Fault>,
    /// Parts of the text that are not shown.
    secrets: Vec<Range<usize>>,
    places: KeyPositions,
}

impl Report {
    /// Creates a report about `text` from `file` (a name for people). Sorts the faults by position.
    pub fn new(file: impl Into<String>, text: impl Into<String>, mut faults: Vec<Fault>) -> Self {
        faults.sort_by_key(Fault::start);
        let text = text.into();
        let secrets = mask::secrets(&text);
        Self { file: file.into(), text, faults, secrets, places: KeyPositions::default() }
    }

    pub(super) fn with_places(self, places: KeyPositions) -> Self {
        Self { places, ..self }
    }

    /// Adds faults.
    #[must_use]
    pub fn with(mut self, faults: Vec<Fault>) -> Self {
        self.faults.extend(faults);
        self.faults.sort_by_key(Fault::start);
        self
    }

    /// Returns the positions of the keys in the text.
    pub const fn places(&self) -> &KeyPositions {
        &self.places
    }

    /// Returns the name of the file.
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns all faults in the order of the file; those without a position come last.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Returns the number of faults that make the configuration unusable.
    pub fn errors(&self) -> usize {
        self.faults.iter().filter(|fault| fault.severity == Severity::Error).count()
    }

    /// Returns the number of faults with which the server can still start.
    pub fn warnings(&self) -> usize {
        self.faults.len() - self.errors()
    }

    /// Returns line and column of a fault, both counted from 1, the column in characters.
    pub fn position(&self, fault: &Fault) -> Option<(usize, usize)> {
        let start = fault.span.as_ref()?.start;
        let line = self.line_at(start);
        let column = self.text.get(line.start..start).map_or(0, |before| before.chars().count());
        Some((line.number, column + 1))
    }

    /// Returns the line with its secret masked, and the byte range of the mask.
    fn shown(&self, line: &Line<'_>) -> (String, Option<Range<usize>>) {
        let end = line.start + line.text.len();
        let Some(secret) = self.secrets.iter().find(|secret| secret.start < end && secret.end > line.start) else {
            return (line.text.to_owned(), None);
        };
        let from = secret.start.saturating_sub(line.start);
        let to = secret.end.min(end) - line.start;
        let shown = format!("{}{}{}", &line.text[..from], Secret::MASK, &line.text[to..]);
        (shown, Some(from..from + Secret::MASK.len()))
    }

    fn line_at(&self, offset: usize) -> Line<'_> {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        let start = self.text[..offset].rfind('\n').map_or(0, |newline| newline + 1);
        let end = self.text[offset..].find('\n').map_or(self.text.len(), |newline| offset + newline);
        let number = self.text[..start].bytes().filter(|byte| *byte == b'\n').count() + 1;
        Line { number, start, text: self.text[start..end].trim_end_matches('\r') }
    }
}

struct Line<'a> {
    number: usize,
    start: usize,
    text: &'a str,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for fault in &self.faults {
            let word = match fault.severity {
                Severity::Error => "error",
                Severity::Warning => "warning",
            };
            match (self.position(fault), &fault.span) {
                (Some((number, column)), Some(span)) => {
                    writeln!(f, "{}:{number}:{column}: {word}: {}", self.file, fault.message)?;
                    let line = self.line_at(span.start);
                    let margin = " ".repeat(number.to_string().len());
                    let (text, mask) = self.shown(&line);
                    writeln!(f, " {margin} |")?;
                    writeln!(f, " {number} | {text}")?;
                    // A value over several lines is underlined on its first line only.
                    let from = (span.start - line.start).min(line.text.len());
                    let to = (span.end.max(span.start) - line.start).min(line.text.len());
                    let marked = match mask {
                        Some(mask) if to > mask.start => from.min(mask.start)..mask.end,
                        _ => from..to,
                    };
                    let width = text.get(marked.clone()).map_or(1, |marked| marked.chars().count().max(1));
                    // Tabs are kept, so that the caret is below the word on any terminal.
                    let lead = text.get(..marked.start).unwrap_or_default().chars();
                    let lead: String = lead.map(|c| if c == '\t' { '\t' } else { ' ' }).collect();
                    writeln!(f, " {margin} | {lead}{}", "^".repeat(width))?;
                    writeln!(f, " {margin} = {}", fault.cure)?;
                }
                _ => {
                    writeln!(f, "{}: {word}: {}", self.file, fault.message)?;
                    writeln!(f, "   = {}", fault.cure)?;
                }
            }
        }
        Ok(())
    }
}

impl std::error::Error for Report {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_shows_its_line_with_a_caret_under_the_word() {
        let text = "realm = \"é\"\n[timers]\n\tt1 = \"fast\"\n";
        let start = text.find("\"fast\"").expect("it is there");
        let fault = Fault::error(Some(start..start + 6), "timers.t1 is not a duration", "write \"500ms\"");
        let shown = Report::new("a.toml", text, vec![fault]).to_string();
        assert_eq!(
            shown,
            "a.toml:3:7: error: timers.t1 is not a duration\n   |\n 3 | \tt1 = \"fast\"\n   | \t     ^^^^^^\n   = write \"500ms\"\n"
        );
    }

    #[test]
    fn columns_count_characters() {
        let text = "a = \"é\" x";
        let report = Report::new("f", text, vec![Fault::error(Some(text.len() - 1..text.len()), "m", "c")]);
        assert_eq!(report.position(&report.faults()[0]), Some((1, 9)));
    }

    #[test]
    fn a_span_at_or_past_the_end_of_the_file_is_shown() {
        for text in ["", "a", "a\n", "é"] {
            for at in 0..4 {
                let shown = Report::new("f", text, vec![Fault::error(Some(at..at + 1), "m", "c")]).to_string();
                assert!(shown.contains("= c"), "{text:?} {at}");
            }
        }
    }
}
