//! Comparison of an explanation with the log and with the messages of the engine.

use super::*;

/// Draws a random request.
pub(super) fn drawn(random: &mut Entropy, n: u32) -> (&'static str, &'static str, String) {
    let mut pick = |list: &[&'static str]| list[(random.u64() % list.len() as u64) as usize];
    let methods = ["MESSAGE", "OPTIONS", "SUBSCRIBE", "PUBLISH", "INFO", "REFER", "NOTIFY", "UPDATE", "REGISTER"];
    let method = if pick(&["call", "other"]) == "call" { "INVITE" } else { pick(&methods) };
    let user = pick(&[
        "bob@",
        "u1@",
        "u2@",
        "u3@",
        "u4@",
        "",
        "4930@",
        "4930@",
        "4930@",
        "4931@",
        "4931@",
        "004930@",
        "999@",
        "12345678901234567890123456@",
    ]);
    let host = pick(&["example.org", "example.org", "203.0.113.5", "192.0.2.1:5060"]);
    let from = pick(&["u1", "u2", "u3", "carol"]);
    let source = pick(&[ALICE, "198.51.100.1:5060", "203.0.113.40:5060"]);
    let agent = pick(&["phone", "phone", "phone", "phone", "phone", "scanner"]);
    let hops = pick(&["70", "70", "70", "70", "70", "70", "0"]);
    let scheme = if method == "REGISTER" { "sip:example.org".to_owned() } else { format!("sip:{user}{host}") };
    let text = request(n, method, &scheme, &format!("User-Agent: {agent}\r\n"))
        .replace("<sip:carol@example.net>", &format!("<sip:{from}@example.net>"))
        .replace(&format!("SIP/2.0/UDP {ALICE}"), &format!("SIP/2.0/UDP {source}"))
        .replace("To: <sip:example.org>", "To: <sip:zoe@example.org>")
        .replace("Max-Forwards: 70", &format!("Max-Forwards: {hops}"));
    (source, from, text)
}

pub(crate) fn explained(site: &Site, source: &str, text: &str) -> Explained {
    let remote = source.parse().expect("an address");
    let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
    let explained = site.engines[0].explain(site.now, &arrival, text.as_bytes(), false, &|_, _| None);
    explained.unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Tells whether the sent messages match the explanation.
pub(super) fn agrees(outcome: &ExplainedOutcome, source: &str, sent: &[(String, String)]) -> bool {
    let answers = statuses(sent, source);
    match outcome {
        ExplainedOutcome::Answer { status, .. } => answers == [*status],
        ExplainedOutcome::Drop => sent.is_empty(),
        ExplainedOutcome::Register => answers == [200],
        ExplainedOutcome::Endpoint { .. } => answers == [200],
        ExplainedOutcome::Redirect { contacts } => {
            let text = &sent[0].1;
            matches!(answers[..], [300 | 302]) && contacts.iter().all(|to| text.contains(&format!("Contact: <{to}>")))
        }
        ExplainedOutcome::Forward(plan) => {
            let (at, text) = &sent[0];
            let has = |line: &str| text.contains(&format!("\r\n{line}"));
            let has_lines = plan.add.iter().all(|line| has(&format!("{line}\r\n")));
            let lacks = plan.remove.iter().all(|name| !has(&format!("{name}:")));
            let stays = has("Record-Route: ") == plan.record_route;
            goes_to(&plan.to[0].uri, &plan.to[0].at[0], at, text) && has_lines && lacks && stays
        }
    }
}

/// Tells whether a request went to this place. For a place without a user the Request-URI stays.
fn goes_to(place: &str, address: &str, at: &str, text: &str) -> bool {
    address == format!("udp:{at}") && (uri(text) == place || !place.contains('@'))
}

/// Rules that end the course if they hold: by a response, or by a place.
const ENDS: [&str; 9] =
    ["no-user", "blocked", "trap", "subscriptions", "carrier", "second", "gateways", "moved", "last"];
/// Number of rules.
const RULES: usize = 15;

/// Tells whether the rules end with the first one that decides. If none does, all were asked; if the request was
/// refused before, none was.
pub(super) fn ends_in_time(rules: &[RuleResult]) -> bool {
    let ends = |rule: &RuleResult| match &rule.full {
        Some(limit) => limit == "caller",
        None => rule.holds && ENDS.contains(&&*rule.name),
    };
    rules.is_empty() || rules.iter().position(ends).map_or(RULES, |last| last + 1) == rules.len()
}

/// Tells whether the log has the judged rules of this course, with the same results.
pub(super) fn is_logged(course: &Course, lines: &[Line]) -> bool {
    let of = |event: &'static str| lines.iter().filter(move |line| line.value("message") == Some(event));
    let value = |line: &Line, name| line.value(name).unwrap_or_default().to_owned();
    let fields = ["rule", "holds", "part", "part_holds", "values", "limits", "full"];
    let judged: Vec<_> = of("rule judged").map(|line| fields.map(|name| value(line, name))).collect();
    let rules: Vec<_> = course.rules.iter().map(written).collect();
    let ended: Vec<_> = of("rule ends a request").map(|line| value(line, "rule")).collect();
    let fails: Vec<_> = of("failed before it was forwarded").map(|line| value(line, "status")).collect();
    let failed: Vec<_> = course.failed.iter().map(|failed| failed.status.to_string()).collect();
    let planned = match (&course.outcome, of("request planned").next_back()) {
        (ExplainedOutcome::Forward(plan), Some(line)) => is_planned(plan, course.uri.as_deref(), line),
        (outcome, line) => !matches!(outcome, ExplainedOutcome::Forward(_)) && line.is_none(),
    };
    let is_ended = match (&course.outcome, &ended[..]) {
        (ExplainedOutcome::Answer { because, .. }, [rule]) => course.rules.last().is_some_and(|last| {
            // The reason is the full limit of the rule, or the rule.
            last.name == *rule && last.full.as_ref().unwrap_or(&last.name) == because
        }),
        (ExplainedOutcome::Drop, [rule]) => course.rules.last().is_some_and(|last| last.name == *rule),
        (_, rules) => rules.is_empty(),
    };
    judged == rules && fails == failed && planned && is_ended
}

pub(super) fn written(judgement: &RuleResult) -> [String; 7] {
    let RuleResult { name, holds, part, part_holds, values, limits, full } = judgement;
    let values: Vec<String> = values.iter().map(|(name, value)| format!("{name} is {value}")).collect();
    let (holds, part_holds) = (holds.to_string(), part_holds.to_string());
    let (values, limits, full) = (values.join(", "), limits.join(", "), full.clone().unwrap_or_default());
    [name.clone(), holds, part.clone(), part_holds, values, limits, full]
}

fn is_planned(plan: &PlanView, uri: Option<&str>, line: &Line) -> bool {
    let is = |name, value: String| line.value(name).unwrap_or_default() == value;
    let list = |texts: Vec<String>| texts.join(", ");
    let some = |number: Option<u64>| number.map_or(String::new(), |number| number.to_string());
    let statuses = plan.try_next.iter().flatten().map(ToString::to_string).collect();
    let to = line.value("to").unwrap_or_default();
    plan.to.iter().all(|place| place.at.iter().all(|at| to.contains(at)))
        && is("uri", uri.unwrap_or_default().to_owned())
        && is("try_next", list(statuses))
        && is("limits", list(plan.limits.iter().map(ToString::to_string).collect()))
        && is("record_route", plan.record_route.to_string())
        && is("track", plan.track.to_string())
        && is("account", plan.account.to_string())
        && is("account_as", plan.account_as.clone().unwrap_or_default())
        && is("ring_timeout", some(plan.ring_timeout))
        && is("answer_timeout", some(plan.answer_timeout))
        && is("add", list(plan.add.clone()))
        && is("remove", list(plan.remove.clone()))
        && is("on_failure", list(plan.on_failure.iter().map(ToString::to_string).collect()))
}

/// Returns the course of an explanation for these full limits.
pub(super) fn course_for<'a>(explained: &'a Explained, is_full: &dyn Fn(&str) -> bool) -> &'a Course {
    let (mut full, mut course) = (Vec::new(), &explained.course);
    loop {
        let mut limits = course.rules.iter().flat_map(|rule| &rule.limits);
        let Some(limit) = limits.find(|limit| !full.contains(*limit) && is_full(limit)) else { return course };
        full.push(limit.clone());
        let case = explained.if_full.iter().find(|case| case.limits == full);
        course = &case.unwrap_or_else(|| panic!("no word of {full:?}: {explained}")).course;
    }
}

/// Makes each place that takes an INVITE fail with 486 until the caller gets that, and checks that the request goes
/// where the plan says. Returns the number of places.
pub(super) fn fails_as_planned(site: &mut Site, plan: &PlanView, source: &str, sent: &[(String, String)]) -> usize {
    let mut places: Vec<_> = plan.to[1..].iter().map(|place| (place.uri.clone(), &[][..])).collect();
    if plan.try_next.as_ref().is_some_and(|statuses| !statuses.contains(&486)) {
        places.clear();
    }
    for failure in plan.on_failure.iter().filter(|failure| failure.statuses.contains(&(486, 486))) {
        places.extend(failure.to.iter().map(|uri| (uri.clone(), &failure.add[..])));
    }
    let (mut at, mut text) = sent[0].clone();
    for (place, lines) in &places {
        let got = receive(site, &at, &answer(&text, 486, ""));
        let next = got.iter().find(|(_, text)| text.starts_with("INVITE "));
        let Some(next) = next else { panic!("it does not go to {place}: {got:?}\n{plan}") };
        assert!(
            place.contains(&next.0) && (uri(&next.1) == place || !place.contains('@')),
            "{place}: {next:?}\n{plan}"
        );
        assert!(lines.iter().all(|line| next.1.contains(&format!("\r\n{line}\r\n"))), "{next:?}\n{plan}");
        (at, text) = next.clone();
    }
    let got = receive(site, &at, &answer(&text, 486, ""));
    assert_eq!(statuses(&got, source), [486], "{got:?}\n{plan}");
    places.len()
}
