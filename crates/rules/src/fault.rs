//! Faults of a condition: position, cause and cure.

use std::fmt;
use std::ops::Range;

/// A fault of a text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Byte range in the text, on the boundaries of characters; empty and at the end if something is missing there.
    pub span: Range<usize>,
    /// Cause, in one sentence without a full stop.
    pub message: String,
    /// Cure, as the continuation of a sentence.
    pub cure: String,
}

impl Fault {
    pub(crate) fn new(span: Range<usize>, message: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { span, message: message.into(), cure: cure.into() }
    }

    /// Returns the column of the first character of the fault, from 1.
    pub fn column(&self, text: &str) -> usize {
        text.get(..self.span.start).map_or(0, |before| before.chars().count()) + 1
    }

    /// Returns three lines: the line of the fault, a caret under it, and the cure.
    pub fn shown(&self, text: &str) -> String {
        let (before, rest) = text.split_at_checked(self.span.start).unwrap_or((text, ""));
        let start = before.rfind('\n').map_or(0, |at| at + 1);
        let end = rest.find('\n').map_or(text.len(), |at| before.len() + at);
        let line = text[start..end].trim_end_matches('\r');
        // Tabs are kept, so that the caret is under the word on any terminal.
        let lead: String = text[start..before.len()].chars().map(|c| if c == '\t' { c } else { ' ' }).collect();
        let marked =
            text.get(before.len()..self.span.end.min(end)).map_or(0, |marked| marked.trim_end().chars().count());
        format!("{line}\n{lead}{} {}\n{lead}= {}", "^".repeat(marked.max(1)), self.message, self.cure)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.cure)
    }
}

impl std::error::Error for Fault {}

/// Reason for the refusal of a single text, such as a name or a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Cause, in one sentence without a full stop.
    pub message: String,
    /// Cure, as the continuation of a sentence.
    pub cure: String,
}

impl Refusal {
    pub(crate) fn new(message: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { message: message.into(), cure: cure.into() }
    }

    /// Converts the refusal to a fault of these octets of a condition.
    pub(crate) fn at(self, span: Range<usize>) -> Fault {
        Fault { span, message: self.message, cure: self.cure }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.message, self.cure)
    }
}

impl std::error::Error for Refusal {}

/// Returns the cure for a misspelt name: a question with the nearest known name. `None` if no name is near.
pub(crate) fn did_you_mean<'a>(written: &str, names: impl IntoIterator<Item = &'a str>) -> Option<String> {
    Some(format!("did you mean `{}`?", nearest(written, names.into_iter())?))
}

/// Returns the most similar name, if the difference is small enough for a typing error.
pub fn nearest<'a>(written: &str, names: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    let plain = |text: &str| text.to_ascii_lowercase().replace('-', "_");
    let written = plain(written);
    let near = names.map(|name| (strsim::osa_distance(&written, &plain(name)), name));
    let (distance, name) = near.min_by_key(|(distance, _)| *distance)?;
    (distance <= (name.len().max(written.len()) / 3).max(1)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_stands_under_its_words() {
        let text = "user == 'ä' and methd == 'x'";
        let at = text.find("methd").expect("it is there");
        let fault = Fault::new(at..at + 5, "there is no field `methd`", "did you mean `method`?");
        assert_eq!(fault.column(text), 17);
        assert_eq!(
            fault.shown(text),
            "user == 'ä' and methd == 'x'\n\
             \u{20}               ^^^^^ there is no field `methd`\n\
             \u{20}               = did you mean `method`?"
        );
        let lines = "user == 'x'\r\n\tand (\r\n\tx)";
        let at = lines.find('(').expect("it is there");
        let fault = Fault::new(at..lines.len(), "this is open", "close it");
        assert_eq!(fault.shown(lines), "\tand (\n\t    ^ this is open\n\t    = close it");
        let fault = Fault::new(at..at + 5, "there is no field `methd`", "did you mean `method`?");
        assert_eq!(fault.to_string(), "there is no field `methd`: did you mean `method`?");
    }

    #[test]
    fn the_nearest_name_is_near() {
        let names = ["method", "from.user", "max_forwards"];
        assert_eq!(nearest("mehtod", names.into_iter()), Some("method"));
        assert_eq!(nearest("max-forward", names.into_iter()), Some("max_forwards"));
        assert_eq!(nearest("From.User", names.into_iter()), Some("from.user"));
        assert_eq!(nearest("colour", names.into_iter()), None);
        assert_eq!(nearest("max-expire", ["min_expires", "max_expires"].into_iter()), Some("max_expires"));
        // Two adjacent letters that were exchanged are one typing error.
        assert_eq!(nearest("apth", ["path"].into_iter()), Some("path"));
        assert_eq!(did_you_mean("x", []), None);
    }
}
