//! What rules make of requests, at an engine: failures, redirections, numbers, filters, limits; and that `explain` says the same.

use crate::peer::{answer, invites, pass, receive, status, statuses, uri};
use crate::site::{ALICE, BOB, Site};
use strowger_core::entropy::Entropy;
use strowger_core::{Arrival, ListenerId, Transport};
use strowger_server::explain::{Explained, Outcome};

/// Callers need no password, and may call anywhere.
const OPEN: &str = "auth.calls = false\nproxy.relay_for = \"everyone\"\n";
const GATEWAY: &str = "203.0.113.1:5060";
const SECOND: &str = "203.0.113.2:5060";
const MAILBOX: &str = "203.0.113.9:5060";

fn site(settings: &str) -> Site {
    Site::new(&format!("{OPEN}{settings}"))
}

/// A request of a caller elsewhere, the `n`th of a test; `more` are further header lines.
fn request(n: u32, method: &str, uri: &str, more: &str) -> String {
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKd{n};rport\r\nMax-Forwards: 70\r\n\
         From: <sip:carol@example.net>;tag=c{n}\r\nTo: <{uri}>\r\nCall-ID: d{n}\r\nCSeq: 1 {method}\r\n\
         Contact: <sip:carol@{ALICE}>\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

fn invite(n: u32, uri: &str) -> String {
    request(n, "INVITE", uri, "")
}

#[test]
fn failures_lead_to_the_mailbox_or_another_answer() {
    let mut site = site(&format!(
        "[[failure]]\nname = \"mailbox\"\nstatuses = [\"486\", \"408\"]\nto = [\"sip:mailbox@{MAILBOX}\"]\n\
         add_headers = [\"X-From: voicemail\"]\n[[failure]]\nname = \"no-redirects\"\nstatuses = [\"3xx\"]\nanswer = 404\n\
         [[rule]]\nname = \"calls\"\nwhen = \"method == 'INVITE'\"\non_failure = [\"mailbox\", \"no-redirects\"]\n"
    ));
    site.register("<sip:bob@198.51.100.8:5060>");
    let got = receive(&mut site, ALICE, &invite(1, "sip:bob@example.org"));
    let busy = answer(&invites(&got)[0].1, 486, "");
    let got = receive(&mut site, BOB, &busy);
    assert_eq!(statuses(&got, ALICE), <[u16; 0]>::default());
    let (at, text) = invites(&got)[0];
    assert_eq!((&**at, uri(text)), (MAILBOX, "sip:mailbox@203.0.113.9:5060"));
    assert!(text.contains("\r\nX-From: voicemail\r\n"));
    let taken = answer(text, 200, &format!("Contact: <sip:m@{MAILBOX}>\r\n"));
    assert_eq!(statuses(&receive(&mut site, MAILBOX, &taken), ALICE), [200]);
    let got = receive(&mut site, ALICE, &invite(2, "sip:bob@example.org"));
    let moved = answer(&invites(&got)[0].1, 302, "Contact: <sip:bob@203.0.113.77>\r\n");
    assert_eq!(statuses(&receive(&mut site, BOB, &moved), ALICE), [404]);
    let got = receive(&mut site, ALICE, &invite(3, "sip:bob@example.org"));
    let unknown = answer(&invites(&got)[0].1, 480, "");
    assert_eq!(statuses(&receive(&mut site, BOB, &unknown), ALICE), [480]);
}

#[test]
fn redirections_name_contacts_and_places_with_q() {
    let mut site = site(&format!(
        "[[rule]]\nname = \"places\"\nwhen = \"request.user == '1'\"\nto = [\"sip:a@{GATEWAY}\", \"sip:b@{SECOND}\"]\nredirect = true\n\
         [[rule]]\nname = \"number\"\nwhen = \"request.user == '00491'\"\nstrip = 2\nprepend = \"+\"\nredirect = true\n\
         [[rule]]\nname = \"all\"\nredirect = true\n"
    ));
    site.register("<sip:bob@198.51.100.8:5060>");
    let mut redirected = |n, uri: &str| {
        let got = receive(&mut site, ALICE, &invite(n, uri));
        let text = &got[0].1;
        let contacts = text.split("\r\n").filter_map(|line| line.strip_prefix("Contact: ")).map(str::to_owned);
        (status(text), contacts.collect::<Vec<_>>())
    };
    let places = ["<sip:a@203.0.113.1:5060>;q=1", "<sip:b@203.0.113.2:5060>;q=0.500"].map(str::to_owned);
    assert_eq!(redirected(1, "sip:1@example.org"), (Some(300), places.to_vec()));
    assert_eq!(redirected(2, "sip:bob@example.org"), (Some(302), vec!["<sip:bob@198.51.100.8:5060>".to_owned()]));
    assert_eq!(
        redirected(3, "sip:00491@203.0.113.5"),
        (Some(302), vec!["<sip:+491@203.0.113.5>".to_owned()]),
        "the number that it became"
    );
    // A caller is never sent to where it is already (RFC 3261 section 8.3): that goes on.
    let got = receive(&mut site, ALICE, &invite(4, "sip:carol@203.0.113.5"));
    assert_eq!((&*got[0].0, uri(&got[0].1)), ("203.0.113.5:5060", "sip:carol@203.0.113.5"));
}

#[test]
fn numbers_are_translated_stripped_and_prepended() {
    let folder = std::env::temp_dir().join(format!("strowger-decisions-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("the folder for files of tests can be written");
    let file = folder.join("short.csv");
    std::fs::write(&file, "key,value\n*1,0049301\n").expect("it can be written");
    let mut site = site(&format!(
        "[[set]]\nname = \"short\"\nfile = {file:?}\nvalue = \"value\"\n\
         [[rule]]\nname = \"short\"\nwhen = \"request.user in short\"\ntranslate = \"short\"\nstrip = 2\nprepend = \"+\"\n\
         to = [\"sip:{GATEWAY}\"]\n\
         [[rule]]\nname = \"abroad\"\nwhen = \"number starts_with '00'\"\nstrip = 2\nprepend = \"+\"\nto = [\"sip:{GATEWAY}\"]\n\
         [[rule]]\nname = \"nine\"\nwhen = \"number == '9'\"\nstrip = 1\nto = [\"sip:{GATEWAY}\"]\n\
         [[rule]]\nname = \"alias\"\nwhen = \"request.user == '71'\"\nstrip = 1\nprepend = \"8\"\n"
    ));
    std::fs::remove_dir_all(&folder).expect("it is ours");
    for (n, (dialled, leaves)) in [
        ("sip:*1@example.org", "sip:+49301@example.org"),
        ("sip:00441@example.org;user=phone", "sip:+441@example.org;user=phone"),
        ("tel:00441", "tel:+441"),
        // What would leave nothing stays as it is.
        ("sip:9@example.org", "sip:9@example.org"),
    ]
    .into_iter()
    .enumerate()
    {
        let got = receive(&mut site, ALICE, &invite(n as u32, dialled));
        assert_eq!((&*got[0].0, uri(&got[0].1)), (GATEWAY, leaves));
    }
    // Without a place the edited number is what is looked for.
    let register = "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 198.51.100.8:5060;branch=z9hG4bKr8;rport\r\n\
         From: <sip:81@example.org>;tag=b\r\nTo: <sip:81@example.org>\r\nCall-ID: r81\r\nCSeq: 1 REGISTER\r\n\
         Contact: <sip:81@198.51.100.8:5060>\r\nContent-Length: 0\r\n\r\n";
    assert!(site.receive(BOB, register).starts_with("SIP/2.0 200 "));
    let got = receive(&mut site, ALICE, &invite(99, "sip:71@example.org"));
    assert_eq!((&*got[0].0, uri(&got[0].1)), (BOB, "sip:81@198.51.100.8:5060"));
}

#[test]
fn filters_come_before_everything_else() {
    let mut site = site(
        "[[filter]]\nname = \"scanners\"\nwhen = \"header.User-Agent matches 'scanner'\"\n\
         [[filter]]\nname = \"long\"\nwhen = \"request.length > 60\"\nanswer = 403\nreason = \"URI Too Large\"\n",
    );
    let scanner = "User-Agent: a scanner\r\n";
    for (n, method) in ["REGISTER", "INVITE", "OPTIONS"].into_iter().enumerate() {
        let uri = if method == "INVITE" { "sip:bob@example.org" } else { "sip:example.org" };
        assert_eq!(receive(&mut site, ALICE, &request(n as u32, method, uri, scanner)), []);
        assert!(!receive(&mut site, ALICE, &request(10 + n as u32, method, uri, "")).is_empty(), "{method}");
    }
    let got = receive(&mut site, ALICE, &invite(20, &format!("sip:{}@example.org", "b".repeat(60))));
    assert!(got[0].1.starts_with("SIP/2.0 403 URI Too Large\r\n"), "{}", got[0].1);
    assert!(site.shared.counts().refused >= 4);
}

#[test]
fn a_rule_drops_what_it_names() {
    let mut site = site("[[rule]]\nname = \"quiet\"\nwhen = \"request.user == 'trap'\"\ndrop = true\n");
    assert_eq!(receive(&mut site, ALICE, &invite(1, "sip:trap@example.org")), []);
    // Nothing is kept of it: what comes again is dropped again.
    assert_eq!(receive(&mut site, ALICE, &invite(1, "sip:trap@example.org")), []);
    assert_eq!(statuses(&receive(&mut site, ALICE, &invite(2, "sip:bob@example.org")), ALICE), [480]);
}

/// From the INVITE to the BYE of a call, or its failure.
#[test]
fn calls_count_under_limits_until_they_end() {
    let mut site = site(&format!(
        "[[call_limit]]\nname = \"gateway\"\nmost = 1\nover = \"next-rule\"\n\
         [[call_limit]]\nname = \"second\"\nmost = 1\nstatus = 486\n\
         [[rule]]\nname = \"first\"\nwhen = \"exists number\"\nto = [\"sip:{GATEWAY}\"]\ncall_limits = [\"gateway\"]\n\
         [[rule]]\nname = \"second\"\nwhen = \"exists number\"\nto = [\"sip:{SECOND}\"]\ncall_limits = [\"second\"]\n"
    ));
    let held = |site: &Site| {
        let all = site.shared.call_limits.list();
        all.into_iter().map(|(counted, count)| (counted.name.to_string(), count)).collect::<Vec<_>>()
    };
    let first = receive(&mut site, ALICE, &invite(1, "sip:4930@example.org"));
    let second = receive(&mut site, ALICE, &invite(2, "sip:4930@example.org"));
    assert_eq!([&*first[0].0, &*second[0].0], [GATEWAY, SECOND]);
    assert_eq!(held(&site), [("gateway".to_owned(), 1), ("second".to_owned(), 1)]);
    let third = receive(&mut site, ALICE, &invite(3, "sip:4930@example.org"));
    assert_eq!(statuses(&third, ALICE), [486]);
    // One fails, the other rings, is answered and ends.
    let rings = answer(&second[0].1, 180, "");
    receive(&mut site, SECOND, &rings);
    let busy = answer(&first[0].1, 486, "");
    receive(&mut site, GATEWAY, &busy);
    pass(&mut site);
    assert_eq!(held(&site), [("second".to_owned(), 1)]);
    let taken = answer(&second[0].1, 200, &format!("Contact: <sip:gw@{SECOND}>\r\n"));
    let got = receive(&mut site, SECOND, &taken);
    let ok = &got.iter().find(|(at, _)| at == ALICE).expect("it goes upstream").1;
    let route = ok.split("\r\n").find_map(|line| line.strip_prefix("Record-Route: ")).expect("it stays");
    pass(&mut site);
    assert_eq!(held(&site), [("second".to_owned(), 1)]);
    let bye = format!(
        "BYE sip:gw@{SECOND} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKbye;rport\r\nMax-Forwards: 70\r\n\
         From: <sip:carol@example.net>;tag=c2\r\nTo: <sip:4930@example.org>;tag=t\r\nCall-ID: d2\r\nCSeq: 2 BYE\r\n\
         Route: {route}\r\nContent-Length: 0\r\n\r\n"
    );
    let got = receive(&mut site, ALICE, &bye);
    let ended = answer(&got[0].1, 200, "");
    receive(&mut site, SECOND, &ended);
    assert_eq!(held(&site), []);
}

#[test]
fn a_limit_is_for_each_of_what_it_counts_by() {
    let mut site = site(
        "[[call_limit]]\nname = \"line\"\nper = \"request.uri\"\nmost = 1\nstatus = 486\n\
         [[rule]]\nname = \"all\"\ncall_limits = [\"line\"]\n",
    );
    let called = |site: &mut Site, n, uri: &str| statuses(&receive(site, ALICE, &invite(n, uri)), ALICE);
    assert_eq!(called(&mut site, 1, "sip:1@203.0.113.5"), <[u16; 0]>::default());
    assert_eq!(called(&mut site, 2, "sip:2@203.0.113.5"), <[u16; 0]>::default());
    assert_eq!(called(&mut site, 3, "sip:1@203.0.113.5"), [486]);
    // Other requests do not count.
    let message = request(4, "MESSAGE", "sip:1@203.0.113.5", "");
    assert_eq!(statuses(&receive(&mut site, ALICE, &message), ALICE), <[u16; 0]>::default());
}

#[test]
fn contacts_are_passed_over_that_do_not_take_the_method() {
    let contact = "<sip:bob@198.51.100.8:5060>;methods=\"INVITE,ACK,BYE\"";
    let asked = |settings: &str| {
        let mut site = site(settings);
        site.register(contact);
        let message = receive(&mut site, ALICE, &request(1, "MESSAGE", "sip:bob@example.org", ""));
        let call = receive(&mut site, ALICE, &invite(2, "sip:bob@example.org"));
        assert_eq!(invites(&call).len(), 1);
        status(&message[0].1)
    };
    assert_eq!(asked(""), None, "the phone says itself what it takes");
    assert_eq!(asked("proxy.method_filter = true\n"), Some(405));
    assert_eq!(asked("proxy.method_filter = true\nproxy.unfit_status = 404\n"), Some(404));
}

#[test]
fn statuses_of_users_that_are_away_and_cancels_that_match_nothing_are_settings() {
    let ask = |settings: &str| {
        let mut site = site(settings);
        let call = receive(&mut site, ALICE, &invite(1, "sip:bob@example.org"));
        let cancel = receive(&mut site, ALICE, &request(2, "CANCEL", "sip:bob@example.org", ""));
        (statuses(&call, ALICE), statuses(&cancel, ALICE))
    };
    assert_eq!(ask(""), (vec![480], vec![481]));
    let scripted = "proxy.unregistered_status = 404\nproxy.unmatched_cancel = \"drop\"\n";
    assert_eq!(ask(scripted), (vec![404], vec![]));
}

/// A configuration with a bit of everything, without names to look up.
fn everything() -> String {
    let prefixes: String = (10..60).map(|n| format!("\"{n}\", ")).collect();
    format!(
        "proxy.method_filter = true\n\
         [[source]]\nname = \"carrier\"\nnetworks = [\"198.51.100.0/29\"]\n\
         [[set]]\nname = \"prefixes\"\nkind = \"prefixes\"\nentries = [{prefixes}]\n\
         [[set]]\nname = \"blocked\"\nentries = [\"u1\", \"u5\"]\n\
         [[filter]]\nname = \"scanners\"\nwhen = \"header.User-Agent == 'scanner'\"\n\
         [[filter]]\nname = \"long\"\nwhen = \"request.length > 40\"\nanswer = 414\n\
         [[failure]]\nname = \"mailbox\"\nstatuses = [\"486\"]\nto = [\"sip:mailbox@{MAILBOX}\"]\n\
         [[rule]]\nname = \"no-user\"\nwhen = \"request.local and not exists request.user\"\nanswer = 484\n\
         [[rule]]\nname = \"blocked\"\nwhen = \"from.user in blocked and method == 'INVITE'\"\nanswer = 403\n\
         [[rule]]\nname = \"trap\"\nwhen = \"request.user == 'u2' and from.user == 'u2'\"\ndrop = true\n\
         [[rule]]\nname = \"hint\"\nwhen = \"not request.local\"\nadd_headers = [\"P-Hint: outbound\"]\nrecord_route = false\n\
         [[rule]]\nname = \"subscriptions\"\nwhen = \"method in ['PUBLISH', 'SUBSCRIBE']\"\nanswer = 503\n\
         [[rule]]\nname = \"abroad\"\nwhen = \"number starts_with '00'\"\nstrip = 2\nprepend = \"+\"\n\
         [[rule]]\nname = \"carrier\"\nwhen = \"source.group == 'carrier' and number in prefixes\"\nto = [\"sip:{SECOND}\"]\n\
         [[rule]]\nname = \"gateways\"\nwhen = \"number in prefixes\"\nto = [\"sip:{GATEWAY}\", \"sip:desk@{SECOND}\"]\n\
         on_failure = [\"mailbox\"]\n\
         [[rule]]\nname = \"moved\"\nwhen = \"request.user == 'u3'\"\nto = [\"sip:new@{GATEWAY}\"]\nredirect = true\n\
         [[rule]]\nname = \"tracked\"\nwhen = \"request.user == 'bob'\"\ntrack = true\n"
    )
}

/// A request at random.
fn drawn(random: &mut Entropy, n: u32) -> (&'static str, String) {
    let mut pick = |list: &[&'static str]| list[(random.u64() % list.len() as u64) as usize];
    let method = pick(&["INVITE", "INVITE", "MESSAGE", "OPTIONS", "SUBSCRIBE", "PUBLISH", "REGISTER"]);
    let user =
        pick(&["bob@", "u1@", "u2@", "u3@", "u4@", "", "4930@", "004930@", "999@", "12345678901234567890123456@"]);
    let host = pick(&["example.org", "example.org", "203.0.113.5", "192.0.2.1:5060"]);
    let from = pick(&["u1", "u2", "u3", "carol"]);
    let source = pick(&[ALICE, "198.51.100.1:5060", "203.0.113.40:5060"]);
    let agent = pick(&["phone", "phone", "phone", "scanner"]);
    let scheme = if method == "REGISTER" { "sip:example.org".to_owned() } else { format!("sip:{user}{host}") };
    let text = request(n, method, &scheme, &format!("User-Agent: {agent}\r\n"))
        .replace("<sip:carol@example.net>", &format!("<sip:{from}@example.net>"))
        .replace(&format!("SIP/2.0/UDP {ALICE}"), &format!("SIP/2.0/UDP {source}"))
        .replace("To: <sip:example.org>", "To: <sip:zoe@example.org>");
    (source, text)
}

/// What was explained is what left.
fn agrees(explained: &Explained, source: &str, sent: &[(String, String)]) -> bool {
    let answers = statuses(sent, source);
    match &explained.outcome {
        Outcome::Answer { status, .. } => answers == [*status],
        Outcome::Drop => sent.is_empty(),
        Outcome::Register => answers == [200],
        Outcome::Redirect { contacts } => {
            let text = &sent[0].1;
            matches!(answers[..], [300 | 302]) && contacts.iter().all(|to| text.contains(&format!("Contact: <{to}>")))
        }
        Outcome::Forward(plan) => {
            let (at, text) = &sent[0];
            let goes_there = plan.to[0].at.contains(&format!("udp:{at}"));
            let has_lines = plan.add.iter().all(|line| text.contains(&format!("\r\n{line}\r\n")));
            let stays = !text.starts_with("INVITE ") || text.contains("\r\nRecord-Route: ") == plan.record_route;
            // A place without a user has the Request-URI as it is.
            let named = uri(text) == plan.to[0].uri || !plan.to[0].uri.contains('@');
            goes_there && has_lines && stays && named
        }
    }
}

#[test]
fn what_explain_says_of_a_thousand_requests_is_what_happens() {
    let mut site = site(&everything());
    site.register("<sip:bob@198.51.100.8:5060>;methods=\"INVITE,ACK,BYE\"");
    let mut random = Entropy::new([9; 32]);
    let mut kinds = std::collections::BTreeMap::new();
    for n in 0..1_000 {
        let (source, text) = drawn(&mut random, n);
        let remote = source.parse().expect("an address");
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
        let explained = site.engines[0].explain(site.now, &arrival, text.as_bytes(), false);
        let explained = explained.unwrap_or_else(|error| panic!("{error}: {text}"));
        let sent = receive(&mut site, source, &text);
        assert!(agrees(&explained, source, &sent), "{explained}\n{text}\n{sent:?}");
        // Rules that hold are those that made it so.
        let kind = match &explained.outcome {
            Outcome::Answer { status, because } => format!("{status} {because}"),
            Outcome::Forward(plan) => plan.to[0].at[0].clone(),
            other => format!("{other:?}").split([' ', '{']).next().unwrap_or_default().to_owned(),
        };
        *kinds.entry(kind).or_insert(0) += 1;
        pass(&mut site);
    }
    for kind in ["484 no-user", "403 blocked", "503 subscriptions", "414 long", "Drop", "Register", "Redirect"] {
        assert!(kinds.get(kind).is_some_and(|count| *count > 5), "{kind}: {kinds:?}");
    }
    assert!(kinds.keys().filter(|kind| kind.starts_with("udp:")).count() >= 4, "{kinds:?}");
}
