//! Decisions of rules at an engine: failures, redirections, numbers, filters, limits.

use crate::peer::{answer, invites, pass, receive, sent, status, statuses, uri};
use crate::site::{ALICE, BOB, Site, credentials};
use strowger_store::subscriber;

/// Settings under which callers need no password, and may call anywhere.
const OPEN: &str = "auth.calls = false\nproxy.relay_for = \"everyone\"\n";
pub(crate) const GATEWAY: &str = "203.0.113.1:5060";
pub(crate) const SECOND: &str = "203.0.113.2:5060";
pub(crate) const MAILBOX: &str = "203.0.113.9:5060";

pub(crate) fn site(settings: &str) -> Site {
    Site::new(&format!("{OPEN}{settings}"))
}

/// Writes a request of a foreign caller, the `n`th of a test; `more` are further header lines.
pub(crate) fn request(n: u32, method: &str, uri: &str, more: &str) -> String {
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKd{n};rport\r\nMax-Forwards: 70\r\n\
         From: <sip:carol@example.net>;tag=c{n}\r\nTo: <{uri}>\r\nCall-ID: d{n}\r\nCSeq: 1 {method}\r\n\
         Contact: <sip:carol@{ALICE}>\r\n{more}Content-Length: 0\r\n\r\n"
    )
}

pub(crate) fn invite(n: u32, uri: &str) -> String {
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
         [[rule]]\nname = \"gateways\"\nwhen = \"number starts_with '+1'\"\nto = [\"sip:{GATEWAY}\", \"sip:b@{SECOND}\"]\nredirect = true\n\
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
    // A place without a user is called with the dialled user part.
    for (n, dialled, contact) in [
        (5, "sip:+1-212@example.org", "<sip:+1-212@203.0.113.1:5060>;q=1"),
        (6, "sip:+1212;ext=7@example.org;user=phone", "<sip:+1212;ext=7@203.0.113.1:5060;user=phone>;q=1"),
        (7, "tel:+1212;ext=7", "<sip:+1212;ext=7@203.0.113.1:5060;user=phone>;q=1"),
    ] {
        let (status, contacts) = redirected(n, dialled);
        assert_eq!((status, &*contacts[0], &*contacts[1]), (Some(300), contact, &*places[1]), "{dialled}");
    }
    // A caller is never redirected to the URI that it called (RFC 3261 section 8.3): the request is forwarded.
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
        // A number in another form is the same number; its parameters stay.
        ("sip:00-44(1)@example.org", "sip:+441@example.org"),
        ("sip:0%3044.1;npdi=yes@example.org", "sip:+441;npdi=yes@example.org"),
        ("tel:00-44-1;isub=2", "tel:+441;isub=2"),
        ("sip:%2A1@example.org", "sip:+49301@example.org"),
        // A number that would become empty stays.
        ("sip:9@example.org", "sip:9@example.org"),
    ]
    .into_iter()
    .enumerate()
    {
        let got = receive(&mut site, ALICE, &invite(n as u32, dialled));
        assert_eq!((&*got[0].0, uri(&got[0].1)), (GATEWAY, leaves));
    }
    // Without a place the edited number is looked up.
    let register = "REGISTER sip:example.org SIP/2.0\r\nVia: SIP/2.0/UDP 198.51.100.8:5060;branch=z9hG4bKr8;rport\r\n\
         From: <sip:81@example.org>;tag=b\r\nTo: <sip:81@example.org>\r\nCall-ID: r81\r\nCSeq: 1 REGISTER\r\n\
         Contact: <sip:81@198.51.100.8:5060>\r\nContent-Length: 0\r\n\r\n";
    assert!(site.receive(BOB, register).starts_with("SIP/2.0 200 "));
    let got = receive(&mut site, ALICE, &invite(99, "sip:71@example.org"));
    assert_eq!((&*got[0].0, uri(&got[0].1)), (BOB, "sip:81@198.51.100.8:5060"));
}

/// Checks that for each key the first rule that sets it counts.
#[test]
fn several_rules_change_one_number() {
    let set = |name: &str, key: &str| {
        let file = std::env::temp_dir().join(format!("strowger-several-{}-{name}.csv", std::process::id()));
        std::fs::write(&file, format!("key,value\n{key},0301\n")).expect("it can be written");
        (format!("[[set]]\nname = \"{name}\"\nfile = {file:?}\nvalue = \"value\"\n"), file)
    };
    let ((one, a), (two, b)) = (set("one", "71"), set("two", "72"));
    let mut site = site(&format!(
        "{one}{two}[[rule]]\nname = \"a\"\nwhen = \"number in ['030', '71', '72']\"\ntranslate = \"one\"\nstrip = 1\n\
         [[rule]]\nname = \"b\"\nwhen = \"exists number\"\ntranslate = \"two\"\nstrip = 2\nprepend = \"+49\"\n\
         [[rule]]\nname = \"c\"\nprepend = \"00\"\nto = [\"sip:{GATEWAY}\"]\n"
    ));
    [a, b].into_iter().for_each(|file| std::fs::remove_file(file).expect("it is ours"));
    for (n, (dialled, leaves)) in [
        ("sip:030@example.org", "sip:+4930@example.org"),
        ("sip:71@example.org", "sip:+49301@example.org"),
        // A set without a value for the number sets nothing.
        ("sip:72@example.org", "sip:+49301@example.org"),
        ("sip:0301@example.org", "sip:+4901@example.org"),
        ("sip:bob@example.org", "sip:00bob@example.org"),
    ]
    .into_iter()
    .enumerate()
    {
        let got = receive(&mut site, ALICE, &invite(n as u32, dialled));
        assert_eq!((&*got[0].0, uri(&got[0].1)), (GATEWAY, leaves), "{dialled}");
    }
}

/// Checks that each of these forms has the same target as the plain form (RFC 3261 section 19.1.4, RFC 3966).
#[test]
fn no_form_of_a_user_or_number_gets_around_a_rule() {
    let mut site = site(
        "[[rule]]\nname = \"barred\"\nwhen = \"number starts_with '+4900' or number starts_with '0049'\"\nanswer = 403\n\
         [[rule]]\nname = \"trap\"\nwhen = \"request.user == 'trap' or from.user == 'mallory'\"\nanswer = 403\n",
    );
    for (n, barred) in [
        "sip:+4900@203.0.113.5",
        "tel:+49-00-12",
        "sip:%2B4900@203.0.113.5",
        "sip:00493012;npdi=yes@203.0.113.5",
        "sip:0049-30@203.0.113.5",
        "sip:(0049)30@203.0.113.5;user=phone",
        "sip:%30049@203.0.113.5",
        "sip:trap@203.0.113.5",
        "sip:t%72ap@203.0.113.5",
    ]
    .into_iter()
    .enumerate()
    {
        let got = receive(&mut site, ALICE, &invite(n as u32, barred));
        assert_eq!(statuses(&got, ALICE), [403], "{barred}");
    }
    let from = invite(50, "sip:bob@203.0.113.5").replace("sip:carol@", "sip:%6Dallory@");
    assert_eq!(statuses(&receive(&mut site, ALICE, &from), ALICE), [403]);
    for (n, other) in ["sip:bob0049@203.0.113.5", "sip:trapped@203.0.113.5"].into_iter().enumerate() {
        let got = receive(&mut site, ALICE, &invite(60 + n as u32, other));
        assert_eq!(uri(&got[0].1), other);
    }
}

/// Checks that a Request-URI of a local domain, for which no caller needs a password, is not enough if a rule sends the
/// request outside.
#[test]
fn a_rule_leads_outside_only_those_who_may_be_relayed() {
    let rule = |more: &str| {
        format!("[[rule]]\nname = \"away\"\nwhen = \"request.user == 'bob'\"\nto = [\"sip:{GATEWAY}\"]\n{more}\n")
    };
    let known = "[[rule]]\nname = \"known\"\nwhen = \"user == 'alice'\"\nadd_headers = [\"X-Known: alice\"]\n";
    let mut site = Site::new(&format!("{known}{}", rule("")));
    let calls = |site: &mut Site, n| receive(site, ALICE, &invite(n, "sip:bob@example.org"));
    let challenged = calls(&mut site, 1);
    assert_eq!(statuses(&challenged, ALICE), [407]);
    // After the password the rules are asked again, about that user.
    let shown = credentials(b"secret of alice", "INVITE", &challenged[0].1, 1);
    let more = format!("P-Preferred-Identity: <sip:alice@example.org>\r\n{shown}");
    let asks = request(2, "INVITE", "sip:bob@example.org", &more);
    let asks = asks.replace("From: <sip:carol@example.net>", "From: <sip:anonymous@anonymous.invalid>");
    let asks = receive(&mut site, ALICE, &asks);
    assert!(invites(&asks).is_empty(), "{asks:?}");
    let sent = site.answer();
    assert!(sent.contains("INVITE sip:bob@example.org") && sent.contains("\r\nX-Known: alice\r\n"), "{sent}");
    // Such a rule does not affect requests for the server itself.
    let mut site = Site::new(&format!("[[rule]]\nname = \"all\"\nto = [\"sip:{GATEWAY}\"]\n"));
    assert_eq!(statuses(&receive(&mut site, ALICE, &request(1, "OPTIONS", "sip:example.org", "")), ALICE), [200]);
    assert_eq!(statuses(&calls(&mut site, 2), ALICE), [407]);

    let trusted = "[[source]]\nname = \"peers\"\nnetworks = [\"198.51.100.0/24\"]\ntrusted = true\n";
    for settings in [
        rule("relay_for = \"everyone\""),
        format!("proxy.relay_for = \"everyone\"\n{}", rule("")),
        format!("{trusted}{}", rule("")),
    ] {
        let got = calls(&mut Site::new(&settings), 1);
        assert_eq!(&*invites(&got)[0].0, GATEWAY, "{settings}");
    }
    for (settings, statuses_of_it) in [
        (format!("proxy.relay_for = \"everyone\"\n{}", rule("relay_for = \"authenticated\"")), &[407][..]),
        (rule("relay_for = \"local-domains\""), &[403]),
        // A user of the domain, who has no phone.
        (rule("").replace(GATEWAY, "carol@example.org"), &[480]),
    ] {
        assert_eq!(statuses(&calls(&mut Site::new(&settings), 1), ALICE), statuses_of_it, "{settings}");
    }
}

#[test]
fn a_route_does_not_change_of_which_domain_a_request_is() {
    let mut site = site(
        "[[rule]]\nname = \"away\"\nwhen = \"request.local and request.routed\"\nanswer = 403\n\
         [[rule]]\nname = \"ours\"\nwhen = \"request.local\"\nanswer = 480\n[[rule]]\nname = \"routed\"\nwhen = \"request.routed\"\nanswer = 484\n\
         [[rule]]\nname = \"theirs\"\nanswer = 486\n",
    );
    let (theirs, ours) = ("Route: <sip:203.0.113.9;lr>\r\n", "Route: <sip:192.0.2.1;lr>\r\n");
    for (n, (uri, route, status)) in [
        ("sip:bob@example.org", theirs, 403),
        ("sip:bob@example.org", ours, 480),
        ("sip:bob@example.org", "", 480),
        ("sip:dave@203.0.113.5", theirs, 484),
        ("sip:dave@203.0.113.5", ours, 486),
        ("sip:dave@203.0.113.5", "", 486),
    ]
    .into_iter()
    .enumerate()
    {
        let got = receive(&mut site, ALICE, &request(n as u32, "INVITE", uri, route));
        assert_eq!(statuses(&got, ALICE), [status], "{uri} {route}");
    }
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
    // No state of it is kept: a retransmission is dropped again.
    assert_eq!(receive(&mut site, ALICE, &invite(1, "sip:trap@example.org")), []);
    assert_eq!(statuses(&receive(&mut site, ALICE, &invite(2, "sip:bob@example.org")), ALICE), [480]);
}

/// Checks that calls count from their INVITE to their BYE, or their failure.
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
    // One fails; the other rings, is answered and ends.
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

/// Checks that requests are sent to a place of rules with the Request-URI that the rules saw, and without other Routes.
#[test]
fn routes_of_the_caller_lead_no_place_of_a_rule_elsewhere() {
    let mut site = site(&format!(
        "[[failure]]\nname = \"mailbox\"\nstatuses = [\"486\"]\nto = [\"sip:{MAILBOX}\"]\n\
         [[rule]]\nname = \"short\"\nwhen = \"number starts_with '1'\"\nto = [\"sip:{GATEWAY}\"]\non_failure = [\"mailbox\"]\n"
    ));
    for (n, route) in [(1, format!("<sip:0900123@{GATEWAY}>")), (2, "<sip:203.0.113.66;lr>".to_owned())] {
        let routed = request(n, "INVITE", "sip:100@example.org", &format!("Route: {route}\r\n"));
        let first = invites(&receive(&mut site, ALICE, &routed))[0].clone();
        let failed = receive(&mut site, GATEWAY, &answer(&first.1, 486, ""));
        let second = invites(&failed)[0].clone();
        for (place, (at, text)) in [(GATEWAY, first), (MAILBOX, second)] {
            assert_eq!((&*at, uri(&text)), (place, "sip:100@example.org"), "{route}");
            assert!(!text.contains("\r\nRoute: "), "{text}");
        }
    }
}

#[test]
fn a_request_for_a_sips_uri_goes_to_no_place_without_tls() {
    for to in [format!("sip:{GATEWAY}"), format!("sip:mailbox@{GATEWAY}")] {
        let mut site = site(&format!("[[rule]]\nname = \"all\"\nto = [\"{to}\"]\n"));
        let sips = receive(&mut site, ALICE, &invite(1, "sips:100@example.org"));
        assert!(invites(&sips).is_empty(), "{sips:?}");
        assert!(statuses(&sips, ALICE)[0] >= 400);
        assert_eq!(invites(&receive(&mut site, ALICE, &invite(2, "sip:100@example.org"))).len(), 1);
    }
}

#[test]
fn another_writing_of_a_domain_passes_no_rule() {
    let mut site = site(&format!(
        "[[rule]]\nname = \"blocked\"\nwhen = \"request.domain == 'blocked.example' or request.routed\"\nanswer = 403\n\
         [[rule]]\nname = \"all\"\nto = [\"sip:{GATEWAY}\"]\n"
    ));
    for (n, uri) in [
        (1, "sip:x@blocked.example"),
        (2, "sip:x@BLOCKED.example."),
        (3, "sip:x@partner.example;maddr=203.0.113.66"),
        (4, "sip:x@203.0.113.5;maddr=203.0.113.66"),
    ] {
        assert_eq!(statuses(&receive(&mut site, ALICE, &invite(n, uri)), ALICE), [403], "{uri}");
    }
    for (n, uri) in [(5, "sip:x@partner.example"), (6, "sip:x@203.0.113.5;maddr=203.0.113.5")] {
        assert_eq!(invites(&receive(&mut site, ALICE, &invite(n, uri))).len(), 1, "{uri}");
    }
}

#[test]
fn the_parts_of_each_uri_are_asked_for() {
    let mut site = site(
        "[[filter]]\nname = \"caller\"\nwhen = \"from.scheme == 'SIPS' and from.port == 5070 and not exists to.port\"\nanswer = 403\n\
         [[filter]]\nname = \"callee\"\nwhen = \"to.scheme == 'tel' and not exists from.port\"\nanswer = 404\n\
         [[filter]]\nname = \"port\"\nwhen = \"to.port == 5071 and request.port == 5072\"\nanswer = 410\n",
    );
    let uri = "sip:bob@example.org:5072";
    for (n, from, to, wanted) in [
        (1, "sips:carol@example.net:5070", "sip:bob@example.org", 403),
        (2, "sip:carol@example.net", "tel:+4930", 404),
        (3, "sip:carol@example.net", "sip:bob@example.org:5071", 410),
    ] {
        let text = invite(n, uri).replace("<sip:carol@example.net>", &format!("<{from}>"));
        let text = text.replace(&format!("To: <{uri}>"), &format!("To: <{to}>"));
        assert_eq!(statuses(&receive(&mut site, ALICE, &text), ALICE), [wanted], "{from} {to}");
    }
}

#[test]
fn a_failure_says_how_the_next_gateway_is_tried() {
    let settings = format!(
        "[[set]]\nname = \"short\"\nentries = {{ \"+112\" = \"4912\" }}\n\
         [[failure]]\nname = \"next\"\nstatuses = [\"5xx\", \"404\", \"480\"]\nto = [\"sip:{SECOND}\", \"sip:desk@{MAILBOX}\"]\n\
         try_next = [486]\nstrip = 1\nprepend = \"9\"\ntranslate = \"short\"\nremove_headers = [\"User-Agent\"]\n\
         ring_timeout = \"5s\"\nanswer_timeout = \"1s\"\n\
         [[rule]]\nname = \"numbers\"\nwhen = \"exists number\"\nprepend = \"+\"\nto = [\"sip:{GATEWAY}\"]\ntry_next = [500]\n\
         on_failure = [\"next\"]\n[[rule]]\nname = \"users\"\nwhen = \"request.local\"\non_failure = [\"next\"]\n"
    );
    let mut bed = site(&settings);
    let site = &mut bed;
    let tried = |site: &mut Site, n: u32, number: &str, status: u16| {
        let text = request(n, "INVITE", &format!("sip:{number}@example.org"), "User-Agent: phone\r\n");
        let got = receive(site, ALICE, &text);
        let first = invites(&got)[0].1.clone();
        let got = receive(site, GATEWAY, &answer(&first, status, ""));
        let (at, text) = invites(&got)[0].clone();
        (uri(&first).to_owned(), at, text)
    };
    // For the second gateway the number is changed after the rule has changed it, and the header too.
    let (first, at, second) = tried(site, 1, "4930;x=1", 503);
    assert_eq!((&*first, &*at, uri(&second)), ("sip:+4930;x=1@example.org", SECOND, "sip:94930;x=1@example.org"));
    assert!(first != uri(&second) && !second.contains("User-Agent"));
    // After these statuses alone its next target is tried; a target with a user keeps it.
    let got = receive(site, SECOND, &answer(&second, 486, ""));
    assert_eq!((&*invites(&got)[0].0, uri(&invites(&got)[0].1)), (MAILBOX, "sip:desk@203.0.113.9:5060"));
    let (_, _, second) = tried(site, 2, "4931", 503);
    let got = receive(site, SECOND, &answer(&second, 503, ""));
    assert_eq!((invites(&got).len(), statuses(&got, ALICE)), (0, vec![500]));
    // A silent target is given up after a second, a ringing one after five: then the caller gets 408.
    let (_, _, second) = tried(site, 3, "4932", 503);
    site.wait(1_100);
    let left = sent(site);
    let desk = invites(&left).into_iter().find(|(at, text)| at == MAILBOX && text.contains("Call-ID: d3\r\n"));
    let (_, desk) = desk.unwrap_or_else(|| panic!("{second} {left:?}"));
    receive(site, MAILBOX, &answer(desk, 180, ""));
    let rang = (0..60).find(|_| {
        site.wait(100);
        sent(site).iter().any(|(_, text)| text.starts_with("CANCEL sip:desk@") && text.contains("Call-ID: d3\r\n"))
    });
    assert!(rang.is_some_and(|tenths| tenths >= 45), "{rang:?}");
    let (first, _, second) = tried(site, 4, "112", 404);
    assert_eq!((&*first, uri(&second)), ("sip:+112@example.org", "sip:9912@example.org"), "it is translated first");
    // The call to an unregistered user fails before it is forwarded; the second gateway has not failed then.
    let mut site = self::site(&settings);
    let mut got = receive(&mut site, ALICE, &invite(5, "sip:absent@example.org"));
    if got.is_empty() {
        let exists = site.says(Ok(subscriber::SubscriberAnswer::Exists));
        site.work(|engine, now, out| engine.answered(now, exists, out));
        got = sent(&site);
    }
    assert_eq!((&*invites(&got)[0].0, uri(&invites(&got)[0].1)), (SECOND, "sip:9bsent@example.org"));
}
