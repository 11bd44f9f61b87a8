//! Checks for contradictory keys of a rule.

use std::sync::Arc;

use super::call_limit::{self, CallLimitTable, CountedPer};
use super::failure::{self, FailureAction};
use super::gateway_group::{GatewayGroup, Targets};
use super::identity::{self, Identities};
use super::name::Reference;
use super::reader::Reader;
use super::report::Fault;
use super::rule_answer::CallEndpoint;
use super::rules::{RECORD_LIMIT, RuleTable, rule_shown};
use super::set::{SetKind, SetTable};

/// Tables that rules can refer to.
pub(super) struct Named<'a> {
    pub(super) sets: &'a [SetTable],
    pub(super) failures: &'a [Arc<FailureAction>],
    pub(super) call_limits: &'a [Arc<CallLimitTable>],
    pub(super) groups: &'a [Arc<GatewayGroup>],
}

/// Notes contradictory keys of a rule.
pub(super) fn check(table: &RuleTable, path: &str, named: &Named<'_>, record_route: bool, reader: &mut Reader) {
    let Named { sets, failures, call_limits, groups } = named;
    let mut note = |key: &str, what: &str, cure: &str| {
        let span = reader.value_of(&format!("{path}.{key}"));
        reader.push(Fault::error(span, format!("{} {what}", rule_shown(table)), cure));
    };
    let (answers, refuses, goes) = (table.answer.is_some(), table.status().is_some(), !table.to.is_empty());
    if answers && goes {
        note("to", "answers, and says where the request goes", "keep `answer` or `to`, or make two rules");
    }
    if !refuses && !table.reason.is_empty() {
        note("reason", "has a reason and no answer", "add a status as `answer`, or remove `reason`");
    }
    let is_announcement = table.endpoint() == Some(CallEndpoint::Announcement);
    if is_announcement && table.play.is_none() {
        note("answer", "announces, and names no file", "add `play` with a WAV file, such as play = \"closed.wav\"");
    }
    if !is_announcement && table.play.is_some() {
        note("play", "has a file and no announcement", "add answer = \"announcement\", or remove `play`");
    }
    if !is_announcement && table.repeat {
        note("repeat", "repeats no announcement", "add answer = \"announcement\" and `play`, or remove `repeat`");
    }
    let is_recording = table.endpoint() == Some(CallEndpoint::Recording);
    if is_recording && table.record_to.is_none() {
        note(
            "answer",
            "records, and names no folder",
            "add `record_to` with a folder, such as record_to = \"recordings\"",
        );
    }
    if !is_recording && table.record_to.is_some() {
        note("record_to", "has a folder and no recording", "add answer = \"recording\", or remove `record_to`");
    }
    if !is_recording && table.record_limit != RECORD_LIMIT {
        note(
            "record_limit",
            "limits no recording",
            "add answer = \"recording\" and `record_to`, or remove `record_limit`",
        );
    }
    if table.drop && (answers || goes) {
        note("drop", "drops the request, and says what becomes of it", "keep `drop`, `answer` or `to`");
    }
    if table.redirect && (answers || table.drop || !table.on_failure.is_empty()) {
        note("redirect", "redirects, and says what else becomes of the request", "keep `redirect`, or make two rules");
    }
    if (answers || table.drop) && !table.on_failure.is_empty() {
        note("on_failure", "does not forward the request, which cannot fail then", "remove `on_failure`");
    }
    if (refuses || table.drop || table.redirect) && !table.call_limits.is_empty() {
        note("call_limits", "has limits for calls that it does not forward", "remove `call_limits`");
    }
    let to = Targets::of(&table.to, table.at_once, groups);
    let counting = to.groups.iter().find(|part| !part.group.call_limits.is_empty());
    if let Some(part) = counting.filter(|_| table.redirect) {
        let what = format!("redirects to gateway group '{}', which has limits for calls", part.group.name);
        note("to", &what, "name its targets, or another group of them without limits");
    }
    let limits = call_limit::named(&table.call_limits, call_limits);
    if let Some(limit) = limits.iter().find(|limit| limit.per == CountedPer::Gateway && !goes) {
        let what = format!("has no `to`, and call limit '{}' counts the calls of each gateway there", limit.name);
        note(
            "call_limits",
            &what,
            "name the limit in the rule, the failure or the gateway group that has the gateways",
        );
    }
    if table.at_once && !goes {
        note("at_once", "has at_once without `to`", "add `to`, or remove `at_once`");
    }
    if table.at_once && table.redirect {
        note("at_once", "redirects, and says what rings at once", "keep `redirect` or `at_once`");
    }
    if counts_each_place(&to, &limits) {
        note("at_once", COUNTS_EACH_PLACE, COUNT_ONCE);
    }
    let is_bridged = table.b2bua == Some(true);
    if is_bridged && (answers || table.drop || table.redirect) {
        note("b2bua", "bridges calls, and says what else becomes of them", "keep `b2bua`, or make two rules");
    }
    if is_bridged && (table.record_route == Some(false) || table.track == Some(false)) {
        let what = "bridges calls, whose path and end the server has in any case";
        note("b2bua", what, "remove record_route = false and track = false");
    }
    // The server has a dialog of its own with the caller of an endpoint, and with each side of a bridged call.
    let stays = table.endpoint().is_some() || is_bridged || table.record_route.unwrap_or(record_route);
    if !stays || table.track == Some(false) {
        let cure = "let the rule have record_route = true, and not track = false";
        if !table.call_limits.is_empty() {
            note("call_limits", "counts calls whose end the server does not see", cure);
        }
        if let Some(part) = counting {
            let group = &part.group.name;
            let what =
                format!("leads to gateway group '{group}', which counts calls whose end the server does not see");
            note("to", &what, cure);
        }
        let failures = failure::named(&table.on_failure, failures);
        if let Some(failure) = failures.iter().find(|failure| failure.limits().next().is_some()) {
            let what =
                format!("has a failure, '{}', that counts calls whose end the server does not see", failure.name);
            note("on_failure", &what, cure);
        }
    }
    if !goes && table.try_next.is_some() {
        note("try_next", "has try_next without `to`", "add `to`, or remove `try_next`");
    }
    if !goes && table.relay_for.is_some() {
        note("relay_for", "has relay_for without `to`", "add `to`, or remove `relay_for`");
    }
    if (answers || table.drop || table.redirect) && table.identity.is_some() {
        note("identity", "asserts an identity of a request that it does not forward", "remove `identity`");
    }
    if table.translate.as_ref().is_some_and(|set| !translates(set, sets)) {
        note("translate", "translates by a set that has no value for a text", NOT_TRANSLATING);
    }
    if let Some(Identities::Set(set)) = &table.identity {
        identity::check_set(set, &format!("{path}.identity"), sets, reader);
    }
}

/// Tells whether targets that ring at once have limits by gateway. Such limits cannot be kept, because a call counts at one target at a time.
pub(super) fn counts_each_place(to: &Targets, limits: &[Arc<CallLimitTable>]) -> bool {
    to.at_once && (to.call_limits().next().is_some() || limits.iter().any(|limit| limit.per == CountedPer::Gateway))
}

/// Message of the fault that targets which ring at once have limits by gateway.
pub(super) const COUNTS_EACH_PLACE: &str = "rings all of `to` at once, and a limit counts the calls of each";

/// Cure of [`COUNTS_EACH_PLACE`].
pub(super) const COUNT_ONCE: &str = "name a limit of another `per` than \"gateway\" in `call_limits`, and no gateway group with limits, or remove `at_once`";

/// Help text of the error that a set cannot translate: it has no values, or they are not texts.
pub(super) const NOT_TRANSLATING: &str = "name a set of kind \"texts\" with `value`, or with values in its `entries`";

/// Tells whether a set maps texts to values. A set that does not exist is noted elsewhere.
pub(super) fn translates(set: &Reference<SetTable>, sets: &[SetTable]) -> bool {
    let named = sets.iter().find(|other| other.name == *set.name());
    named.is_none_or(|set| set.kind == SetKind::Texts && set.has_values())
}
