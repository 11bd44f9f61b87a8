//! `[[failure]]`: what rules do about requests that fail.

use super::key::{Rule, Text};
use super::name::Name;
use super::proxy::SipUri;
use super::reader::{ANY, Reader, section};
use super::report::Fault;
use super::rules::HeaderLine;

section! {
    /// What is done about a request that fails, for rules that name it in `on_failure`; repeat the table for each. It is used when every target
    /// has failed and its caller has not cancelled it, once a request.
    pub struct FailureTable = "failure" {
        /// What rules call it.
        pub name: Name = Name::UNSET, ANY.required();
        /// The failures that it is for: status codes and classes of them, such as ["408", "480", "6xx"], of the response that the caller
        /// would get; 408 where no target has answered in time.
        pub statuses: Vec<StatusRange> = Vec::new(), ANY.required();
        /// Where the request goes then, in order of trying, as `rule.to` says it: voicemail, another gateway. `[]`: it is tried no further.
        pub to: Vec<SipUri> = Vec::new(), ANY;
        /// Status of the answer that the caller gets in place of the failure; "none": the failure's own.
        pub answer: Option<u16> = None, Rule::number(300, 699).or("none");
        /// Header lines that the request gets on its way to these targets, such as a Diversion.
        pub add_headers: Vec<HeaderLine> = Vec::new(), ANY;
    }
}

/// Status codes of responses: one, or a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    /// The first.
    pub first: u16,
    /// The last.
    pub last: u16,
}

impl Text for StatusRange {
    const EXPECTED: &'static str = "a status code or a class of them, such as \"486\" or \"3xx\"";

    fn from_text(text: &str) -> Result<Self, String> {
        let wrong = || format!("is {text:?}, which is no failure from 300 to 699");
        let class = text.strip_suffix("xx").and_then(|digit| digit.parse::<u16>().ok()).map(|class| class * 100);
        let range = match (class, text.parse()) {
            (Some(first), _) => Self { first, last: first + 99 },
            (None, Ok(status)) => Self { first: status, last: status },
            (None, Err(_)) => return Err(wrong()),
        };
        let is_failure = |status: &u16| (300..700).contains(status);
        if is_failure(&range.first) && is_failure(&range.last) { Ok(range) } else { Err(wrong()) }
    }

    fn to_text(&self) -> String {
        if self.first == self.last { self.first.to_string() } else { format!("{}xx", self.first / 100) }
    }
}

/// What is done about some failures.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureAction {
    /// Name of its table.
    pub name: Name,
    /// The failures that it is for.
    pub statuses: Box<[StatusRange]>,
    /// Where the request goes, in order; empty: it is answered.
    pub to: Box<[SipUri]>,
    /// The answer in place of the failure.
    pub answer: Option<u16>,
    /// Header lines, each with its end.
    pub add: Box<[u8]>,
}

impl FailureAction {
    pub(super) fn of(table: &FailureTable) -> Self {
        Self {
            name: table.name.clone(),
            statuses: table.statuses.clone().into(),
            to: table.to.clone().into(),
            answer: table.answer,
            add: HeaderLine::lines(&table.add_headers),
        }
    }
}

/// Notes what a table says that cannot be done.
pub(super) fn check(tables: &[FailureTable], reader: &mut Reader) {
    for (index, table) in tables.iter().enumerate() {
        let name = &table.name;
        let (key, message, cure) = match (table.to.is_empty(), table.answer.is_some()) {
            (true, false) => ("name", format!("failure '{name}' does nothing"), "add `to` or `answer`"),
            (false, true) => (
                "answer",
                format!("failure '{name}' answers, and says where the request goes"),
                "keep one of `to` and `answer`",
            ),
            (true, true) if !table.add_headers.is_empty() => (
                "add_headers",
                format!("failure '{name}' answers, and has header lines for a request"),
                "remove `add_headers`",
            ),
            _ => continue,
        };
        let span = reader.value_of(&format!("failure[{index}].{key}"));
        reader.push(Fault::error(span, message, cure));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_codes_and_classes() {
        for (text, first, last) in [("486", 486, 486), ("3xx", 300, 399), ("6xx", 600, 699)] {
            let range = StatusRange::from_text(text).expect("it is one");
            assert_eq!((range.first, range.last, range.to_text().as_str()), (first, last, text));
        }
        for text in ["", "xx", "2xx", "7xx", "200", "700", "48x", "-3xx", "99999xx", "486 "] {
            assert!(StatusRange::from_text(text).is_err(), "{text}");
        }
    }
}
