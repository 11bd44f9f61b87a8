//! Warnings about valid but probably unintended rules, filters and sets: unreachable rules, rules without effect, tests that never hold.

use std::collections::BTreeSet;

use strowger_message::Method;
use strowger_rules::{Condition, LookupKind, TextField};

use super::Config;
use super::call_limit::OverLimit;
use super::reader::Reader;
use super::report::Fault;
use super::rules::Action;
use super::set::SetKind;

pub(super) fn check(config: &Config, reader: &mut Reader) {
    let decisions = &config.decisions;
    check_order(config, reader);
    for (index, rule) in decisions.rules.iter().enumerate() {
        let (path, shown) = (format!("rule[{index}]"), format!("rule '{}'", rule.name));
        check_condition(&rule.condition, &path, &shown, reader);
        if does_nothing(&rule.action) {
            let cure = "say what becomes of the request, such as answer = 403, or remove the rule";
            reader.push(Fault::warning(reader.key_of(&format!("{path}.name")), format!("{shown} does nothing"), cure));
        }
    }
    for (index, filter) in decisions.filters.iter().enumerate() {
        check_condition(&filter.condition, &format!("filter[{index}]"), &format!("filter '{}'", filter.name), reader);
    }
    check_sets(config, reader);
}

/// Warns of the first unreachable rule. A rule is unreachable if an earlier rule holds for all requests and ends the evaluation.
fn check_order(config: &Config, reader: &mut Reader) {
    let is_last = |action: &Action| action.ends && !action.limits().any(|limit| limit.over == OverLimit::NextRule);
    let mut rules = config.decisions.rules.iter().enumerate();
    let Some((_, last)) = rules.find(|(_, rule)| rule.condition.constant() == Some(true) && is_last(&rule.action))
    else {
        return;
    };
    if let Some((index, rule)) = rules.next() {
        let message = format!(
            "rule '{}' is never asked: rule '{}' before it is the last for every request",
            rule.name, last.name
        );
        let cure = format!("put it before '{}', or give that a `when`", last.name);
        reader.push(Fault::warning(reader.key_of(&format!("rule[{index}].name")), message, cure));
    }
}

fn does_nothing(action: &Action) -> bool {
    let Action { answer, drop, to, on_failure, call_limits, redirect, user, identity, add, remove, .. } = action;
    let Action { path, track, account, ring_timeout, answer_timeout, ends, .. } = action;
    let leads = answer.is_some() || *drop || !to.uris.is_empty() || *redirect || *ends;
    let changes = user.is_some() || identity.is_some() || !add.is_empty() || !remove.is_empty();
    let sets = path.is_any() || track.is_some() || account.is_some();
    let times = ring_timeout.is_some() || answer_timeout.is_some();
    !(leads || changes || sets || times || !on_failure.is_empty() || !call_limits.is_empty())
}

/// Warns if a condition compares a field with a text that the field can never have.
fn check_condition(condition: &Condition, path: &str, shown: &str, reader: &mut Reader) {
    let span = reader.value_of(&format!("{path}.when"));
    for text in condition.texts_of(TextField::Method) {
        let upper = text.to_ascii_uppercase();
        if text != upper && Method::of(upper.as_bytes()) != Method::Other {
            let message = format!("{shown} compares `method` with '{text}', which is another method than {upper}");
            reader.push(Fault::warning(span.clone(), message, format!("write '{upper}': methods have a case")));
        }
    }
    for text in condition.texts_of(TextField::Number) {
        if !may_be_of_a_number(&text) {
            let message = format!("{shown} compares `number` with '{text}', which no number is");
            reader.push(Fault::warning(span.clone(), message, NUMBER));
        }
    }
}

/// Warns of sets of prefixes that conditions look up by `number` and that have a key with which no number can begin. Entries in databases are not
/// checked.
fn check_sets(config: &Config, reader: &mut Reader) {
    let decisions = &config.decisions;
    let rules = decisions.rules.iter().map(|rule| &rule.condition);
    let conditions = rules.chain(decisions.filters.iter().map(|filter| &filter.condition));
    let asked: BTreeSet<&str> = conditions
        .flat_map(|condition| condition.sets_of(TextField::Number))
        .filter_map(|set| decisions.names.of(set))
        .filter_map(|(name, kind)| (kind == LookupKind::Prefixes).then_some(name))
        .collect();
    for (index, table) in config.sets.iter().enumerate() {
        if table.kind != SetKind::Prefixes || !asked.contains(table.name.as_str()) {
            continue;
        }
        let path = format!("set[{index}]");
        let first = table.entries.iter().enumerate().find(|(_, (key, _))| !may_be_of_a_number(key));
        let (span, key) = match (first, &table.file) {
            (Some((place, (key, _))), _) => (reader.value_of(&format!("{path}.entries[{place}]")), key.to_owned()),
            (None, Some(_)) => {
                let listed = decisions
                    .set(table.name.as_str())
                    .and_then(|set| set.list("").map(|entry| entry.key).find(|key| !may_be_of_a_number(key)));
                let Some(key) = listed else { continue };
                (reader.value_of(&format!("{path}.file")), key)
            }
            (None, None) => continue,
        };
        let message =
            format!("set '{}' is asked for numbers, and has the prefix '{key}', with which none begins", table.name);
        reader.push(Fault::warning(span, message, NUMBER));
    }
}

/// Cure of a text that is no number.
const NUMBER: &str =
    "write a plus sign or none, and then digits, * and #: `number` has no spaces, separators and parameters";

fn may_be_of_a_number(text: &str) -> bool {
    text.bytes()
        .enumerate()
        .all(|(at, byte)| byte.is_ascii_digit() || matches!(byte, b'*' | b'#') || (at == 0 && byte == b'+'))
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    /// Lines and texts of the warnings.
    fn warnings(text: &str) -> Vec<(usize, String)> {
        let (_, report) =
            Config::read(Source { text, ..Source::default() }).unwrap_or_else(|report| panic!("{report}"));
        let line = |fault: &Fault| report.position(fault).map_or(0, |(line, _)| line);
        report.faults().iter().map(|fault| (line(fault), fault.message.clone())).collect()
    }

    #[test]
    fn what_is_hardly_meant_is_a_warning() {
        let limit = "[[call_limit]]\nname = \"l\"\nmost = 1\nover = \"next-rule\"\n";
        for (text, line, part) in [
            (
                "[[rule]]\nname = \"all\"\nanswer = 403\n[[rule]]\nname = \"b\"\ntrack = true",
                5,
                "rule 'b' is never asked",
            ),
            (
                "[[rule]]\nname = \"all\"\nwhen = \"true or user == 'a'\"\nstop = true\n[[rule]]\nname = \"b\"\ndrop = true",
                6,
                "never asked",
            ),
            ("[[rule]]\nname = \"a\"\nwhen = \"user == 'a'\"", 2, "rule 'a' does nothing"),
            ("[[rule]]\nname = \"a\"\nwhen = \"method == 'invite'\"\ndrop = true", 3, "another method than INVITE"),
            ("[[filter]]\nname = \"a\"\nwhen = \"not (method in ['BYE', 'Options'])\"", 3, "than OPTIONS"),
            ("[[rule]]\nname = \"a\"\nwhen = \"number starts_with '+49 30'\"\ndrop = true", 3, "which no number is"),
            (
                "[[set]]\nname = \"p\"\nkind = \"prefixes\"\nentries = [\"49\",\n \"49 30\"]\n[[rule]]\nname = \"a\"\nwhen = \"number in p\"\ndrop = true",
                5,
                "'49 30'",
            ),
            (
                "[[set]]\nname = \"p\"\nkind = \"prefixes\"\nentries = [\"bob\"]\n[[rule]]\nname = \"a\"\nwhen = \"exists number and number in p\"\ndrop = true",
                4,
                "'bob'",
            ),
        ] {
            let found = warnings(text);
            assert!(found.iter().any(|(at, message)| *at == line && message.contains(part)), "{text}\n{found:?}");
        }
        for text in [
            &format!(
                "{limit}[[rule]]\nname = \"a\"\nto = [\"sip:gw.example.net\"]\ncall_limits = [\"l\"]\n[[rule]]\nname = \"b\"\ndrop = true"
            ),
            "[[rule]]\nname = \"a\"\nwhen = \"not true\"\ndrop = true\n[[rule]]\nname = \"b\"\nanswer = 403",
            "[[rule]]\nname = \"a\"\ntrack = true\n[[rule]]\nname = \"b\"\nanswer = 403",
            "[[rule]]\nname = \"a\"\nwhen = \"method in ['INVITE', 'invented', 'x']\"\ndrop = true",
            "[[rule]]\nname = \"a\"\nwhen = \"number in ['+49', '*1#'] or request.user == 'bob' or from.user == 'invite'\"\ndrop = true",
            "[[set]]\nname = \"p\"\nkind = \"prefixes\"\nentries = [\"conf-\"]\n[[rule]]\nname = \"a\"\nwhen = \"request.user in p\"\ndrop = true",
        ] {
            assert_eq!(warnings(text), [], "{text}");
        }
    }
}
