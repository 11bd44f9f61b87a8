//! `[[filter]]`: requests that the server refuses before any other check.

use strowger_rules::{Rule as CompiledRule, SetNames};

use super::condition::condition;
use super::key::Rule;
use super::name::Name;
use super::reader::{ANY, Reader, section};
use super::report::Fault;

section! {
    /// Filter for requests that are refused before any other check, also for registrations and for requests of established calls. The senders are not
    /// yet authenticated. Repeat the table for each filter; the first one whose condition holds is used.
    pub struct FilterTable = "filter" {
        /// Name in the log.
        pub name: Name = Name::UNSET, ANY.required();
        /// Condition, such as "header.User-Agent starts_with 'friendly-scanner'"; docs/rules.md has the fields and the language. The field `user` is
        /// always absent here.
        pub when: String = String::new(), ANY.required();
        /// Status of the answer to the request; "none": the request gets no answer.
        pub answer: Option<u16> = None, Rule::number(300, 699).or("none");
        /// Reason phrase of the answer; "": the usual phrase of its status.
        pub reason: String = String::new(), ANY;
    }
}

/// Action of a filter.
#[derive(Debug, Clone, PartialEq)]
pub struct FilterAction {
    /// Status and reason phrase of the answer; an empty phrase: the usual one; `None`: no answer.
    pub answer: Option<(u16, Box<str>)>,
}

/// Compiles the tables. Notes each fault, and continues with the next table.
pub(super) fn compile(
    tables: &[FilterTable],
    names: &SetNames,
    reader: &mut Reader,
) -> Vec<CompiledRule<FilterAction>> {
    let mut compiled = Vec::new();
    for (index, table) in tables.iter().enumerate() {
        let (path, shown) = (format!("filter[{index}]"), format!("filter '{}'", table.name));
        if let Some(condition) = condition(&table.when, &path, &shown, names, reader) {
            let answer = table.answer.map(|status| (status, table.reason.as_str().into()));
            let name = table.name.as_str().into();
            compiled.push(CompiledRule { name, condition, action: FilterAction { answer } });
        }
        if table.answer.is_none() && !table.reason.is_empty() {
            let span = reader.value_of(&format!("{path}.reason"));
            let message = format!("{shown} has a reason and no answer");
            reader.push(Fault::error(span, message, "add `answer`, or remove `reason`"));
        }
    }
    compiled
}
