//! Agreement of `explain`, of the log at level debug, and of the engine itself.

use crate::decisions::{GATEWAY, MAILBOX, SECOND, invite, request, site};
use crate::log::{Line, Lines};
use crate::peer::{answer, pass, receive, statuses, uri};
use crate::site::{ALICE, BOB, Site};
use std::collections::BTreeMap;
use strowger_core::entropy::Entropy;
use strowger_core::{Arrival, ListenerId, Transport};
use strowger_server::explain::{Course, Explained, ExplainedOutcome, LimitView, PlanView, RuleResult};

/// Configuration with a bit of everything, without names to look up.
fn everything() -> String {
    let prefixes: String = (10..60).map(|n| format!("\"{n}\", ")).collect();
    format!(
        "proxy.method_filter = true\ndns.set_aside = \"0s\"\naccounting.cdr = true\naccounting.all = false\n\
         [[source]]\nname = \"carrier\"\nnetworks = [\"198.51.100.0/29\"]\n\
         [[set]]\nname = \"prefixes\"\nkind = \"prefixes\"\nentries = [{prefixes}]\n\
         [[set]]\nname = \"blocked\"\nentries = [\"u1\", \"u5\"]\n\
         [[filter]]\nname = \"scanners\"\nwhen = \"header.User-Agent == 'scanner'\"\n\
         [[filter]]\nname = \"long\"\nwhen = \"request.length > 40\"\nanswer = 414\n\
         [[failure]]\nname = \"mailbox\"\nstatuses = [\"480\", \"486\"]\nto = [\"sip:mailbox@{MAILBOX}\"]\n\
         add_headers = [\"X-From: voicemail\"]\n\
         [[failure]]\nname = \"gone\"\nstatuses = [\"6xx\"]\nanswer = 404\n\
         [[call_limit]]\nname = \"caller\"\nper = \"from.uri\"\nmost = 2\nstatus = 480\n\
         [[call_limit]]\nname = \"gold\"\nmost = 1\nover = \"next-rule\"\n\
         [[call_limit]]\nname = \"first\"\nmost = 1\nover = \"next-rule\"\n\
         [[call_limit]]\nname = \"second\"\nmost = 1\nover = \"next-rule\"\n\
         [[rule]]\nname = \"no-user\"\nwhen = \"request.local and not exists request.user\"\nanswer = 484\n\
         [[rule]]\nname = \"lines\"\nwhen = \"from.user != 'carol'\"\ncall_limits = [\"caller\"]\n\
         [[rule]]\nname = \"gold\"\nwhen = \"from.user == 'u3' and exists number\"\nadd_headers = [\"X-Class: gold\"]\n\
         call_limits = [\"gold\"]\n\
         [[rule]]\nname = \"blocked\"\nwhen = \"from.user in blocked and method == 'INVITE'\"\nanswer = 403\n\
         [[rule]]\nname = \"trap\"\nwhen = \"request.user == 'u2' and from.user == 'u2'\"\ndrop = true\n\
         [[rule]]\nname = \"hint\"\nwhen = \"not request.local\"\nadd_headers = [\"P-Hint: outbound\"]\nrecord_route = false\n\
         remove_headers = [\"User-Agent\"]\n\
         [[rule]]\nname = \"subscriptions\"\nwhen = \"method in ['PUBLISH', 'SUBSCRIBE'] and from.user == 'u1'\"\nanswer = 503\n\
         [[rule]]\nname = \"abroad\"\nwhen = \"number starts_with '00'\"\nstrip = 2\nprepend = \"+\"\naccount_as = \"abroad\"\n\
         [[rule]]\nname = \"carrier\"\nwhen = \"source.group == 'carrier' and number in prefixes\"\nto = [\"sip:{SECOND}\"]\n\
         call_limits = [\"first\"]\n\
         [[rule]]\nname = \"second\"\nwhen = \"number in prefixes\"\nto = [\"sip:{SECOND}\", \"sip:desk@{GATEWAY}\"]\n\
         call_limits = [\"second\"]\non_failure = [\"mailbox\", \"gone\"]\ntry_next = [486, 503]\n\
         [[gateway_group]]\nname = \"both\"\nto = [\"sip:{GATEWAY}\", \"sip:desk@{SECOND}\"]\ncall_limits = [\"caller\"]\n\
         [[rule]]\nname = \"gateways\"\nwhen = \"number in prefixes\"\nto = [\"both\"]\n\
         on_failure = [\"mailbox\"]\nring_timeout = \"30s\"\nanswer_timeout = \"20s\"\n\
         [[rule]]\nname = \"moved\"\nwhen = \"request.user == 'u3'\"\nto = [\"sip:new@{GATEWAY}\"]\nredirect = true\n\
         [[rule]]\nname = \"away\"\nwhen = \"request.user == 'u4'\"\non_failure = [\"mailbox\"]\n\
         [[rule]]\nname = \"tracked\"\nwhen = \"request.user == 'bob'\"\ntrack = true\n\
         [[rule]]\nname = \"last\"\nwhen = \"request.user == 'no-user-at-all'\"\nanswer = 500\n"
    )
}

/// Draws a random request.
fn drawn(random: &mut Entropy, n: u32) -> (&'static str, &'static str, String) {
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
fn agrees(outcome: &ExplainedOutcome, source: &str, sent: &[(String, String)]) -> bool {
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
fn ends_in_time(rules: &[RuleResult]) -> bool {
    let ends = |rule: &RuleResult| match &rule.full {
        Some(limit) => limit == "caller",
        None => rule.holds && ENDS.contains(&&*rule.name),
    };
    rules.is_empty() || rules.iter().position(ends).map_or(RULES, |last| last + 1) == rules.len()
}

/// Tells whether the log has the judged rules of this course, with the same results.
fn is_logged(course: &Course, lines: &[Line]) -> bool {
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

fn written(judgement: &RuleResult) -> [String; 7] {
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
fn course_for<'a>(explained: &'a Explained, is_full: &dyn Fn(&str) -> bool) -> &'a Course {
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
fn fails_as_planned(site: &mut Site, plan: &PlanView, source: &str, sent: &[(String, String)]) -> usize {
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

/// Compares explanation and work for each request: the engine explains it by its counts, an engine without calls by
/// cases, and the log tells the work that was done.
#[test]
fn explain_agrees_with_a_thousand_requests() {
    let (mut site, mut offline) = (site(&everything()), site(&everything()));
    for site in [&mut site, &mut offline] {
        site.register("<sip:bob@198.51.100.8:5060>;methods=\"INVITE,ACK,BYE\"");
    }
    let mut random = Entropy::new([9; 32]);
    let (mut kinds, mut ended, mut failures) = (BTreeMap::new(), BTreeMap::new(), 0);
    let lines = Lines::catch();
    for n in 0..1_000 {
        let (source, from, text) = drawn(&mut random, n);
        offline.now = site.now;
        let own = explained(&site, source, &text);
        let cases = explained(&offline, source, &text);
        let counts = site.shared.call_limits.list();
        lines.debug(true);
        let sent = receive(&mut site, source, &text);
        lines.debug(false);
        let written = lines.take();
        let log: String = written.iter().map(|line| line.text() + "\n").collect();

        let course = &own.course;
        assert!(agrees(&course.outcome, source, &sent), "{own}\n{text}\n{sent:?}");
        assert!(is_logged(course, &written), "{own}\n{text}\n{log}");
        assert!(ends_in_time(&course.rules), "{own}\n{text}");
        assert_eq!(own.filters, cases.filters);
        let caller = format!("{from}@example.net");
        let is_full = |limit: &str| {
            let most = if limit == "caller" { 2 } else { 1 };
            counts.iter().any(|(counted, count)| {
                *counted.name == *limit && [b"", caller.as_bytes()].contains(&&*counted.value) && *count >= most
            })
        };
        assert_eq!(*course, *course_for(&cases, &is_full), "{own}\n{cases}\n{text}\n{counts:?}");

        for judgement in &course.rules {
            let passed = if judgement.full.is_some() { " full" } else { "" };
            let held = if judgement.holds { "" } else { " not" };
            *kinds.entry(format!("{}{held}{passed}", judgement.name)).or_insert(0) += 1;
        }
        let kind = match &course.outcome {
            ExplainedOutcome::Answer { status, because } => format!("{status} {because}"),
            ExplainedOutcome::Forward(plan) => plan.to[0].at[0].clone(),
            other => format!("{other:?}").split([' ', '{']).next().unwrap_or_default().to_owned(),
        };
        *ended.entry(kind).or_insert(0) += 1;
        if let ExplainedOutcome::Forward(plan) = &course.outcome
            && text.starts_with("INVITE ")
            && n % 4 == 0
        {
            failures += fails_as_planned(&mut site, plan, source, &sent);
        }
        // Some calls are in progress when others begin.
        if n % 40 == 0 {
            pass(&mut site);
        }
    }
    for kind in
        ["484 no-user", "403 blocked", "503 subscriptions", "414 long", "Drop", "Register", "Redirect", "480 caller"]
    {
        assert!(ended.get(kind).is_some_and(|count| *count > 5), "{kind}: {ended:?}");
    }
    assert!(ended.keys().filter(|kind| kind.starts_with("udp:")).count() >= 4, "{ended:?}");
    for kind in ["lines full", "gold full", "carrier full", "second full", "abroad", "away", "last not"] {
        assert!(kinds.get(kind).is_some_and(|count| *count > 2), "{kind}: {kinds:?}");
    }
    assert!(failures > 20, "{failures}");
}

/// Configuration with two gateways, of which the first has room for one call.
fn two_gateways(more: &str) -> String {
    format!(
        "[[failure]]\nname = \"mailbox\"\nstatuses = [\"408\"]\nto = [\"sip:mailbox@{MAILBOX}\"]\nadd_headers = [\"X-From: voicemail\"]\n\
         [[call_limit]]\nname = \"west\"\nmost = 1\nover = \"next-rule\"\n\
         [[rule]]\nname = \"closed\"\nwhen = \"user == 'alice' or number starts_with '1'\"\nanswer = 403\n\
         [[rule]]\nname = \"abroad\"\nwhen = \"number starts_with '00'\"\nstrip = 2\nprepend = \"+\"\n\
         [[rule]]\nname = \"west\"\nwhen = \"exists number\"\nto = [\"sip:{GATEWAY}\"]\ncall_limits = [\"west\"]\n\
         [[rule]]\nname = \"east\"\nwhen = \"exists number\"\nto = [\"sip:{SECOND}\"]\non_failure = [\"mailbox\"]\n\
         remove_headers = [\"User-Agent\"]\n{more}"
    )
}

#[test]
fn the_log_has_the_path_and_the_plan() {
    let (mut site, lines) = (site(&two_gateways("")), Lines::catch());
    let logged = |site: &mut Site, n, uri| {
        lines.take();
        lines.debug(true);
        receive(site, ALICE, &invite(n, uri));
        lines.debug(false);
        let about = ["rule judged", "rule ends a request", "request planned"];
        let written =
            lines.take().into_iter().filter(|line| about.contains(&line.value("message").unwrap_or_default()));
        written.map(|line| line.text().trim_end().to_owned()).collect::<Vec<_>>()
    };
    let judged = |rule: &str, said: &str, n| format!("message=rule judged rule={rule} {said} call_id=d{n}");
    let condition = "part=user == 'alice' or number starts_with '1'";
    let closed = format!("holds=false {condition} part_holds=false values=user is absent, number is");
    let abroad = "holds=true part=number starts_with '00' part_holds=true values=number is '00441'";
    let exists = "holds=true part=exists number part_holds=true values=number is '00441'";
    let plan = "record_route=true track=true account=false";
    assert_eq!(
        logged(&mut site, 1, "sip:00441@example.org"),
        [
            judged("closed", &format!("{closed} '00441'"), 1),
            judged("abroad", abroad, 1),
            judged("west", &format!("{exists} limits=west"), 1),
            format!(
                "message=request planned to=sip:+441@example.org at udp:{GATEWAY} uri=sip:+441@example.org \
                 limits=west: at most 1 call, one more goes to the next rule {plan} call_id=d1"
            ),
        ]
    );
    let plan = "record_route=true track=false account=false remove=User-Agent";
    assert_eq!(
        logged(&mut site, 2, "sip:00441@example.org"),
        [
            judged("closed", &format!("{closed} '00441'"), 2),
            judged("abroad", abroad, 2),
            judged("west", &format!("{exists} full=west"), 2),
            judged("east", exists, 2),
            format!(
                "message=request planned to=sip:+441@example.org at udp:{SECOND} uri=sip:+441@example.org {plan} \
                 on_failure=408: sip:mailbox@{MAILBOX} with X-From: voicemail call_id=d2"
            ),
        ]
    );
    let held = "holds=true part=number starts_with '1' part_holds=true values=number is '110'";
    assert_eq!(
        logged(&mut site, 3, "sip:110@example.org"),
        [judged("closed", held, 3), "message=rule ends a request rule=closed answer=403 call_id=d3".to_owned()]
    );
    lines.debug(false);
    receive(&mut site, ALICE, &invite(4, "sip:00441@example.org"));
    assert!(lines.take().iter().all(|line| line.value("message") != Some("rule judged")));
}

/// Checks that reasons are built only for lines that are written: otherwise a rule that does not hold allocates
/// nothing.
#[test]
fn reasons_cost_nothing_at_another_level() {
    let lines = Lines::catch();
    let allocated = |rules: usize, debug: bool| {
        let rule = |n| {
            format!(
                "[[rule]]\nname = \"no{n}\"\nwhen = \"from.user == 'x{n}' and header.Subject matches '{n}'\"\nanswer = 403\n"
            )
        };
        let mut site = site(&two_gateways("").replace(
            "[[rule]]\nname = \"closed\"",
            &((0..rules).map(rule).collect::<String>() + "[[rule]]\nname = \"closed\""),
        ));
        // The first requests fill the scratch memory of the shard.
        for n in 0..3 {
            receive(&mut site, ALICE, &invite(n, "sip:4930@example.org"));
        }
        lines.debug(debug);
        receive(&mut site, ALICE, &invite(4, "sip:4930@example.org"));
        lines.debug(false);
        lines.take();
        site.allocated
    };
    assert_eq!(allocated(1, false), allocated(40, false));
    assert!(allocated(40, true) > allocated(1, true) + 80, "the lines are counted");
}

/// Checks each case of full limits: each limit that a call meets may be full, alone or with others.
#[test]
fn each_case_of_full_limits_is_followed() {
    let limits: String = ["a", "b", "c"]
        .map(|name| format!("[[call_limit]]\nname = \"{name}\"\nmost = 1\nover = \"next-rule\"\n"))
        .concat();
    let rule = |n: usize, limits: &str| format!("[[rule]]\nname = \"r{n}\"\ncall_limits = {limits}\n");
    let adds = [rule(1, "[\"a\"]"), rule(2, "[\"b\", \"a\"]")].concat();
    let site = site(&format!(
        "{limits}[[call_limit]]\nname = \"d\"\nmost = 1\nstatus = 486\n{adds}[[rule]]\nname = \"west\"\nto = [\"sip:{GATEWAY}\"]\n\
         call_limits = [\"c\"]\n[[rule]]\nname = \"east\"\nto = [\"sip:{SECOND}\"]\ncall_limits = [\"d\"]\n"
    ));
    let explained = explained(&site, ALICE, &invite(1, "sip:1@203.0.113.5"));
    let cases: Vec<String> = explained.if_full.iter().map(|case| case.limits.join("+")).collect();
    // While `a` is full, `b` does not count.
    let expected = ["a", "a+c", "a+c+d", "b", "b+c", "b+c+d", "c", "c+d"];
    assert_eq!((&cases[..], explained.more), (&expected.map(str::to_owned)[..], false), "{explained}");
    let ends: Vec<&str> = explained
        .if_full
        .iter()
        .map(|case| match &case.course.outcome {
            ExplainedOutcome::Forward(plan) if plan.to[0].uri.contains(SECOND) => "east",
            ExplainedOutcome::Forward(_) => "west",
            ExplainedOutcome::Answer { status: 486, .. } => "busy",
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ends, ["west", "east", "busy", "west", "east", "busy", "east", "busy"]);
    let ExplainedOutcome::Forward(plan) = &explained.course.outcome else { panic!("it goes on: {explained}") };
    let named: Vec<(&str, Option<u16>)> =
        plan.limits.iter().map(|LimitView { name, answer, .. }| (&**name, *answer)).collect();
    assert_eq!(named, [("a", None), ("b", None), ("c", None)], "each once");
    // Cases beyond a readable number are left out, and the text tells so.
    let many: String = (0..12)
        .map(|n| format!("[[call_limit]]\nname = \"l{n}\"\nmost = 1\nover = \"next-rule\"\n[[rule]]\nname = \"r{n}\"\ncall_limits = [\"l{n}\"]\n"))
        .collect();
    let site = crate::decisions::site(&many);
    let explained = self::explained(&site, ALICE, &invite(1, "sip:1@203.0.113.5"));
    assert!(
        explained.more && explained.to_string().ends_with("\nand more cases of limits that are full\n"),
        "{explained}"
    );
}

/// Checks failures before the request is forwarded, and the next targets of the request.
#[test]
fn a_failure_before_the_request_leaves_is_said() {
    let site = site(&format!(
        "dialogs.min_session_expires = \"120s\"\n[[failure]]\nname = \"mailbox\"\nstatuses = [\"480\"]\nto = [\"sip:mailbox@{MAILBOX}\"]\n\
         [[failure]]\nname = \"other\"\nstatuses = [\"404\"]\nanswer = 604\n\
         [[rule]]\nname = \"all\"\non_failure = [\"mailbox\", \"other\"]\ntrack = true\n"
    ));
    let text = explained(&site, ALICE, &invite(1, "sip:bob@example.org")).to_string();
    assert_eq!(
        text,
        format!(
            "rule    yes all: true is true\n\
             fails   480: the user is not registered\n\
             to      sip:mailbox@{MAILBOX} at udp:{MAILBOX}\n\
             path    record-route\n\
             track   the call is tracked\n\
             failure 404: answer 604\n"
        )
    );
    // The session timer of a tracked call is too short, and a tel URI has no route.
    let short = request(2, "INVITE", "sip:bob@203.0.113.5", "Supported: timer\r\nSession-Expires: 90\r\n");
    let ExplainedOutcome::Answer { status, .. } = explained(&site, ALICE, &short).course.outcome else {
        panic!("it is refused")
    };
    assert_eq!(status, 422);
    let ExplainedOutcome::Answer { status, because } = explained(&site, BOB, &invite(3, "tel:49301")).course.outcome
    else {
        panic!("it has no route")
    };
    assert_eq!((status, &*because), (604, "no route: nothing here leads to this kind of URI"));
}

/// Checks that the limits of a failure count at once if the failure applies before the request is forwarded.
#[test]
fn limits_of_failures_are_said() {
    let mut site = site(&format!(
        "[[call_limit]]\nname = \"boxes\"\nper = \"request.uri\"\nmost = 3\n\
         [[failure]]\nname = \"mailbox\"\nstatuses = [\"480\", \"486\"]\nto = [\"sip:mailbox@{MAILBOX}\"]\n\
         add_headers = [\"X-From: voicemail\"]\ncall_limits = [\"boxes\"]\n[[rule]]\nname = \"all\"\non_failure = [\"mailbox\"]\n"
    ));
    let limit = "boxes of bob@example.org: at most 3 calls, one more goes to the next failure";
    assert_eq!(
        explained(&site, ALICE, &invite(1, "sip:bob@example.org")).to_string(),
        format!(
            "rule    yes all: true is true\nfails   480: the user is not registered\n\
             to      sip:mailbox@{MAILBOX} at udp:{MAILBOX}\nlimit   {limit}\nadd     X-From: voicemail\npath    record-route\n\
             track   the call is tracked\n\nif boxes is full:\nanswer  480: the user is not registered\n"
        )
    );
    site.register("<sip:bob@198.51.100.8:5060>");
    let explained = explained(&site, ALICE, &invite(2, "sip:bob@example.org"));
    assert_eq!(
        explained.to_string(),
        format!(
            "rule    yes all: true is true\nto      sip:bob@198.51.100.8:5060 at udp:198.51.100.8:5060\npath    record-route\n\
             track   the call is tracked\n\
             failure 480, 486: sip:mailbox@{MAILBOX} with X-From: voicemail; limit {limit}\n"
        )
    );
    // A request that begins no call counts under no limit.
    let message = self::explained(&site, ALICE, &request(3, "MESSAGE", "sip:bob@example.org", ""));
    assert!(!message.to_string().contains("limit"), "{message}");
}

/// Checks the groups from which each place was selected, their choice, and the outcome of a call whose group has no
/// room.
#[test]
fn groups_of_gateways_are_said() {
    let settings = format!(
        "[[call_limit]]\nname = \"west\"\nmost = 3\n[[call_limit]]\nname = \"lines\"\nper = \"gateway\"\nmost = 1\nstatus = 486\n\
         [[gateway_group]]\nname = \"west\"\nto = [\"sip:{GATEWAY}\", \"sip:{SECOND}\"]\npick = \"in_turn\"\ncall_limits = [\"west\"]\n\
         [[gateway_group]]\nname = \"boxes\"\nto = [\"sip:{MAILBOX}\"]\npick = \"by_call\"\ncall_limits = [\"lines\"]\n\
         [[failure]]\nname = \"mailbox\"\nstatuses = [\"486\"]\nto = [\"boxes\"]\n\
         [[rule]]\nname = \"all\"\nto = [\"west\", \"sip:desk@{MAILBOX}\"]\non_failure = [\"mailbox\"]\n"
    );
    let mut site = site(&settings);
    let desk = format!("sip:desk@{MAILBOX} at udp:{MAILBOX}");
    let rest = format!(
        "path    record-route\ntrack   the call is tracked\n\
         failure 486: sip:{MAILBOX}; group boxes, by call; limit lines of {MAILBOX}: at most 1 call, one more goes to the next place\n"
    );
    let expected = format!(
        "rule    yes all: true is true\n\
         to      sip:{GATEWAY} at udp:{GATEWAY} of group west\n\
         then    sip:{SECOND} at udp:{SECOND} of group west\n\
         then    {desk}\n\
         group   west, in turn\n\
         next    after any but 6xx\n\
         limit   west: at most 3 calls, one more goes to the next place\n\
         {rest}\nif west is full:\nto      {desk}\n{rest}"
    );
    assert_eq!(explained(&site, ALICE, &invite(1, "sip:1@203.0.113.5")).to_string(), expected);
    // The explanation takes no turn, and the log tells the work that is done.
    let lines = Lines::catch();
    lines.debug(true);
    for (n, first) in [(1, GATEWAY), (2, SECOND)] {
        receive(&mut site, ALICE, &invite(n, "sip:1@203.0.113.5"));
        let said = lines
            .take()
            .into_iter()
            .find(|line| line.value("message") == Some("request planned"))
            .expect("it is planned");
        let to = said.value("to").expect("it goes somewhere");
        assert!(
            to.starts_with(&format!("sip:1@203.0.113.5 at udp:{first} of group west, ")) && to.ends_with(&desk),
            "{to}"
        );
    }
    // A group that is the only place decides about the call.
    let alone =
        settings.replace(&format!(", \"sip:desk@{MAILBOX}\""), "").replace("most = 3", "most = 3\nstatus = 480");
    let said = explained(&crate::decisions::site(&alone), ALICE, &invite(1, "sip:1@203.0.113.5")).to_string();
    assert!(
        said.contains("\nif west is full:\nrule    yes all: true is true; limit west is full\nanswer  480: west\n"),
        "{said}"
    );
}

#[test]
fn explain_names_the_sound_of_an_endpoint() {
    for (keys, name) in [
        ("answer = \"tone\"", "tone"),
        ("answer = \"announcement\"\nplay = \"/closed.wav\"", "announcement"),
        ("answer = \"recording\"\nrecord_to = \"/notes\"", "recording"),
    ] {
        let rule = format!("[media]\naddresses = [\"192.0.2.1\"]\n[[rule]]\nname = \"line\"\n{keys}\n");
        let explained = explained(&site(&rule), ALICE, &invite(1, "sip:line@example.org"));
        assert_eq!(explained.course.outcome, ExplainedOutcome::Endpoint { name });
    }
}

#[test]
fn explain_names_the_endpoint_that_answers() {
    let site = site(
        "[media]\naddresses = [\"192.0.2.1\"]\n[[rule]]\nname = \"echo\"\nwhen = \"request.user == 'echo'\"\nanswer = \"echo\"\n",
    );
    let explained = explained(&site, ALICE, &invite(1, "sip:echo@example.org"));
    assert_eq!(explained.course.outcome, ExplainedOutcome::Endpoint { name: "echo" });
    assert!(
        explained.to_string().ends_with("\nanswer  200 by the endpoint echo, with media of this server\n"),
        "{explained}"
    );
}
