//! `[[failure]]`: reactions of rules to failed requests.

use std::sync::Arc;
use std::time::Duration;

use strowger_message::Name as HeaderName;
use strowger_rules::SetNames;

use super::call_limit::{self, CallLimitTable};
use super::check_action::{COUNT_ONCE, COUNTS_EACH_PLACE, NOT_TRANSLATING, counts_each_place, translates};
use super::gateway_group::{GatewayGroup, RouteTarget, Targets};
use super::key::{Rule, Text};
use super::name::{Name, Reference};
use super::reader::{ANY, Reader, section};
use super::report::Fault;
use super::rule_text::{HeaderLine, RemovableHeader, UserText};
use super::set::SetTable;
use super::user_edit::UserEdit;

section! {
    /// Action for a failed request, for rules that name it in `on_failure`; repeat the table for each. A table is used at most once for a request,
    /// when every target has failed and the caller has not cancelled the request.
    pub struct FailureTable = "failure" {
        /// Name in rules.
        pub name: Name = Name::UNSET, ANY.required();
        /// Status codes and classes of the failures, such as ["408", "480", "6xx"]. They are compared with the response that the caller would
        /// otherwise get, which is 408 if no target has answered in time.
        pub statuses: Vec<StatusRange> = Vec::new(), ANY.required();
        /// Next targets of the request, in order of trying, as in `rule.to`: voicemail, another user, another gateway or a gateway group. `[]`: no
        /// further target is tried.
        pub to: Vec<RouteTarget> = Vec::new(), ANY;
        /// All of `to` ring at once (ring group), as in `rule.at_once`.
        pub at_once: bool = false, ANY;
        /// Status of the answer that the caller gets in place of the failed response; "none": the caller gets the failed response.
        pub answer: Option<u16> = None, Rule::number(300, 699).or("none");
        /// Status codes after which the next of `to` is tried, as in `rule.try_next`.
        pub try_next: Option<Vec<u16>> = None, Rule::number(300, 699).or("any");
        /// Number of characters to remove from the beginning of the user part of the Request-URI for these targets, because the next gateway may need
        /// numbers in another form. Characters are removed from the user part that the rules have made, as with `rule.strip`. A URI of `to` with a
        /// user stays unchanged.
        pub strip: u8 = 0, ANY;
        /// Text to insert before the user part after `strip`, such as "+49".
        pub prepend: UserText = UserText::default(), ANY;
        /// Name of a `[[set]]` of texts whose value replaces the user part; applied before `strip` and `prepend`.
        pub translate: Option<Reference<SetTable>> = None, ANY.or("");
        /// Header lines to add to the request for these targets, such as a Diversion.
        pub add_headers: Vec<HeaderLine> = Vec::new(), ANY;
        /// Names of header fields to remove from the request for these targets.
        pub remove_headers: Vec<RemovableHeader> = Vec::new(), ANY;
        /// Longest ringing of one of these targets, as in `rule.ring_timeout`; "as-set": the value for the previous targets.
        pub ring_timeout: Option<Duration> = None, Rule::time(Duration::from_secs(1), Duration::from_secs(600)).or("as-set");
        /// Longest silence of one of these targets before the next is tried; "as-set": the value for the previous targets.
        pub answer_timeout: Option<Duration> = None, Rule::time(Duration::from_millis(100), Duration::from_secs(60)).or("as-set");
        /// Names of `[[call_limit]]` tables under which the call counts from the use of this failure to its end; such a call is tracked. If one of
        /// these limits is full, the failure is skipped as if its `statuses` did not match, even if `over` of the limit is "answer".
        pub call_limits: Vec<Reference<CallLimitTable>> = Vec::new(), ANY;
    }
}

/// Range of status codes: one code, or a class.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StatusRange {
    /// First code.
    pub first: u16,
    /// Last code.
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

/// Compiled `[[failure]]` table.
#[derive(Debug, Clone, PartialEq)]
pub struct FailureAction {
    /// Name of its table.
    pub name: Name,
    /// Status codes to which it applies.
    pub statuses: Box<[StatusRange]>,
    /// Next targets of the request, in order; empty: it is answered.
    pub to: Targets,
    /// Status of the answer in place of the failure.
    pub answer: Option<u16>,
    /// Status codes after which the next target is tried; `None`: any but 6xx.
    pub try_next: Option<Box<[u16]>>,
    /// Edit of the user part of the Request-URI; `None`: it stays.
    pub user: Option<UserEdit>,
    /// Header lines, each with its end.
    pub add: Box<[u8]>,
    /// Header fields to remove.
    pub remove: Box<[HeaderName]>,
    /// Longest ringing of one target; `None`: unchanged.
    pub ring_timeout: Option<Duration>,
    /// Longest silence of a target; `None`: unchanged.
    pub answer_timeout: Option<Duration>,
    /// Limits that its call counts under.
    pub call_limits: Box<[Arc<CallLimitTable>]>,
}

impl FailureAction {
    /// Returns the limits that a call may count under: the limits of the failure, and the limits of the gateway groups of its targets.
    pub fn limits(&self) -> impl Iterator<Item = &Arc<CallLimitTable>> {
        self.call_limits.iter().chain(self.to.call_limits())
    }

    pub(super) fn of(
        table: &FailureTable,
        names: &SetNames,
        call_limits: &[Arc<CallLimitTable>],
        groups: &[Arc<GatewayGroup>],
    ) -> Self {
        Self {
            name: table.name.clone(),
            statuses: table.statuses.clone().into(),
            to: Targets::of(&table.to, table.at_once, groups),
            answer: table.answer,
            try_next: table.try_next.clone().map(Vec::into),
            user: UserEdit::of(table.translate.as_ref(), table.strip, &table.prepend, names),
            add: HeaderLine::lines(&table.add_headers),
            remove: RemovableHeader::names(&table.remove_headers),
            ring_timeout: table.ring_timeout,
            answer_timeout: table.answer_timeout,
            call_limits: call_limit::named(&table.call_limits, call_limits),
        }
    }
}

/// Returns those failures of `all` that `names` names.
pub(super) fn named(names: &[Reference<FailureTable>], all: &[Arc<FailureAction>]) -> Box<[Arc<FailureAction>]> {
    let failure = |name: &Reference<FailureTable>| all.iter().find(|failure| failure.name == *name.name()).cloned();
    names.iter().filter_map(failure).collect()
}

/// Notes contradictory and unusable keys of the tables.
pub(super) fn check(tables: &[FailureTable], actions: &[Arc<FailureAction>], sets: &[SetTable], reader: &mut Reader) {
    for (index, (table, action)) in tables.iter().zip(actions).enumerate() {
        let name = &table.name;
        if table.translate.as_ref().is_some_and(|set| !translates(set, sets)) {
            let message = format!("failure '{name}' translates by a set that has no value for a text");
            let span = reader.value_of(&format!("failure[{index}].translate"));
            reader.push(Fault::error(span, message, NOT_TRANSLATING));
        }
        if counts_each_place(&action.to, &action.call_limits) {
            let message = format!("failure '{name}' {COUNTS_EACH_PLACE}");
            let span = reader.value_of(&format!("failure[{index}].at_once"));
            reader.push(Fault::error(span, message, COUNT_ONCE));
        }
        // These keys apply to a forwarded request; without `to` no request is forwarded.
        let of_requests = [
            ("at_once", table.at_once),
            ("try_next", table.try_next.is_some()),
            ("strip", table.strip > 0),
            ("prepend", !table.prepend.as_str().is_empty()),
            ("translate", table.translate.is_some()),
            ("add_headers", !table.add_headers.is_empty()),
            ("remove_headers", !table.remove_headers.is_empty()),
            ("ring_timeout", table.ring_timeout.is_some()),
            ("answer_timeout", table.answer_timeout.is_some()),
        ];
        for (key, _) in of_requests.iter().filter(|(_, is_said)| *is_said && table.to.is_empty()) {
            let message = format!("failure '{name}' has `{key}`, and does not say where the request goes");
            let span = reader.value_of(&format!("failure[{index}].{key}"));
            reader.push(Fault::error(span, message, format!("add `to`, or remove `{key}`")));
        }
        let (key, message, cure) = match (table.to.is_empty(), table.answer.is_some()) {
            (true, false) => ("name", format!("failure '{name}' does nothing"), "add `to` or `answer`"),
            (false, true) => (
                "answer",
                format!("failure '{name}' answers, and says where the request goes"),
                "keep one of `to` and `answer`",
            ),
            (true, true) if !table.call_limits.is_empty() => (
                "call_limits",
                format!("failure '{name}' has limits for calls that it does not forward"),
                "remove `call_limits`",
            ),
            _ => continue,
        };
        let span = reader.value_of(&format!("failure[{index}].{key}"));
        reader.push(Fault::error(span, message, cure));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Source};
    use super::*;

    #[test]
    fn a_rule_whose_failures_have_limits_tracks_its_calls() {
        for (limits, tracks) in [("call_limits = [\"l\", \"m\"]\n", true), ("", false)] {
            let text = format!(
                "dialogs.lifetime = \"2d\"\n[[call_limit]]\nname = \"l\"\nmost = 1\n[[call_limit]]\nname = \"m\"\nmost = 1\n\
                 [[failure]]\nname = \"f\"\nstatuses = [\"486\"]\nto = [\"sip:192.0.2.1\"]\n{limits}\
                 [[rule]]\nname = \"r\"\non_failure = [\"f\"]\n"
            );
            match Config::read(Source { text: &text, ..Source::default() }) {
                Ok((config, _)) => {
                    let rule = config.decisions.rules.iter().next().expect("there is one");
                    assert!(!tracks && rule.action.on_failure[0].call_limits.is_empty(), "{text}");
                }
                // A tracked call may not last that long.
                Err(report) => assert!(tracks && report.to_string().contains("proxy.route_lifetime"), "{report}"),
            }
            let text = text.replace("2d", "1d");
            let (config, _) = Config::read(Source { text: &text, ..Source::default() }).expect("it is right");
            let rule = config.decisions.rules.iter().next().expect("there is one");
            let named: Vec<_> = rule.action.on_failure[0].call_limits.iter().map(|limit| limit.name.as_str()).collect();
            assert_eq!(named, if tracks { &["l", "m"][..] } else { &[] });
        }
    }

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
