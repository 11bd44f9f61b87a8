//! Emergency calls: before authentication, rules, filters, limits and bans.

use crate::accounting::rows;
use crate::decisions::{GATEWAY, SECOND};
use crate::dialogs::of_alice;
use crate::peer::{answer, ends, goes, invites, receive, status, statuses, uri};
use crate::site::{ALICE, BOB, Site, credentials, invite, line};
use strowger_core::{Arrival, ListenerId, Transport};
use strowger_server::explain::ExplainedOutcome;

/// Writes settings with numbers and two gateways, and with everything that could keep a call from them.
fn settings(more: &str) -> String {
    format!(
        "emergency.numbers = [\"112\", \"110\"]\nemergency.target = \"carrier\"\ndialogs.calls = 1\ndialogs.track = true\n{more}\
         [[call_limit]]\nname = \"one\"\nmost = 1\n\
         [[gateway_group]]\nname = \"carrier\"\nto = [\"sip:{GATEWAY}\", \"sip:{SECOND}\"]\ncall_limits = [\"one\"]\n\
         [[filter]]\nname = \"none\"\nwhen = \"number starts_with '11'\"\n\
         [[rule]]\nname = \"refused\"\nwhen = \"number starts_with '11'\"\nanswer = 403\n"
    )
}

fn call(n: u32, uri: &str, from: &str, at: &str, more: &str) -> String {
    format!(
        "INVITE {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {at};branch=z9hG4bKe{n};rport\r\nMax-Forwards: 70\r\n\
         From: <{from}>;tag=e{n}\r\nTo: <{uri}>\r\nCall-ID: e{n}\r\nCSeq: 1 INVITE\r\nContact: <sip:bob@{at}>\r\n\
         {more}Content-Length: 0\r\n\r\n"
    )
}

const OWN: &str = "sip:alice@example.org";

#[test]
fn an_emergency_call_needs_no_password_and_meets_no_rule_filter_or_limit() {
    let mut site = Site::new(&settings(""));
    for (n, dialled) in (1..).zip([
        "sip:112@example.org",
        "sip:110@EXAMPLE.org:5060;user=phone",
        "sip:1-1-2@example.org",
        "sip:%3112@example.org",
        "sip:112@192.0.2.1",
        "sip:112;phone-context=+49@example.org;user=phone",
        "tel:112",
        "tel:1.1.2;phone-context=example.org",
        "urn:service:sos",
        "urn:service:sos.police",
    ]) {
        let (at, text) = goes(&receive(&mut site, ALICE, &call(n, dialled, OWN, ALICE, "")));
        assert_eq!((&*at, uri(&text)), (GATEWAY, dialled), "{text}");
        assert_eq!(text.contains("\r\nRoute: <sip:"), dialled.starts_with("urn:"), "{text}");
    }
    // The first gateway fails: the second is tried.
    let (_, text) = goes(&receive(&mut site, ALICE, &call(50, "sip:112@example.org", OWN, ALICE, "")));
    let (at, _) = goes(
        &receive(&mut site, GATEWAY, &answer(&text, 503, ""))
            .into_iter()
            .filter(|(_, text)| !text.starts_with("ACK"))
            .collect::<Vec<_>>(),
    );
    assert_eq!(at, SECOND);
    // Requests that are no emergency calls.
    for (n, (dialled, method)) in (70..).zip([
        ("sip:113@example.org", "INVITE"),
        ("sip:112@example.org", "MESSAGE"),
        ("urn:service:sos", "SUBSCRIBE"),
        ("urn:service:sos", "REFER"),
        // Gateways may route by the parameters or digits behind a number.
        ("sip:112;rn=+490900123;npdi@example.org", "INVITE"),
        ("sip:112,0900123@example.org", "INVITE"),
        ("sip:112%2C0900123@example.org", "INVITE"),
        ("sip:112&0900123@example.org", "INVITE"),
        ("tel:112;rn=+490900123", "INVITE"),
    ]) {
        let text = call(n, dialled, OWN, ALICE, "").replace("INVITE", method);
        let got = receive(&mut site, ALICE, &text);
        assert!(got.is_empty() || status(&got[0].1).is_some(), "{dialled} {method}: {got:?}");
    }
}

#[test]
fn emergency_numbers_are_for_callers_that_may_be_users() {
    let mut site = Site::new(&settings("[[source]]\nname = \"pbx\"\nnetworks = [\"198.51.100.77\"]\ntrusted = true\n"));
    site.register(&format!("<sip:bob@{BOB}>"));
    let foreign = "sip:carol@example.net";
    for (n, (from, at, is_emergency)) in (1..).zip([
        (OWN, ALICE, true),
        ("sip:unknown@example.org", ALICE, true),
        ("sip:anonymous@anonymous.invalid", ALICE, true),
        ("sip:alice@192.0.2.1", ALICE, true),
        // Bob's phone registered from this address.
        ("tel:+4930123", BOB, true),
        (foreign, BOB, true),
        (foreign, "198.51.100.77:5060", true),
        (foreign, ALICE, false),
        ("tel:+4930123", ALICE, false),
    ]) {
        let got = receive(&mut site, at, &call(n, "sip:112@example.org", from, at, ""));
        let leaves = got.iter().any(|(to, text)| to == GATEWAY && text.starts_with("INVITE "));
        assert_eq!(leaves, is_emergency, "{from} at {at}: {got:?}");
    }
}

#[test]
fn a_banned_source_makes_an_emergency_call_and_nothing_else() {
    let mut site = Site::new(&settings("ban.failures = 1\n"));
    let challenged = site.receive(ALICE, &invite(1, 1, ""));
    assert_eq!(site.receive(ALICE, &invite(1, 2, &credentials(b"wrong", "INVITE", &challenged, 1))), "");
    assert!(site.answer().starts_with("SIP/2.0 407 "));
    assert_eq!(site.receive(ALICE, &invite(2, 1, "")), "", "it is banned");
    let (_, text) = goes(&receive(&mut site, ALICE, &call(3, "sip:112@example.org", OWN, ALICE, "")));
    let answered = receive(&mut site, GATEWAY, &answer(&text, 200, &format!("Contact: <sip:psap@{GATEWAY}>\r\n")));
    let ok = &answered.iter().find(|(to, _)| to == ALICE).expect("the 200 comes back").1;
    for (cseq, method) in [(1, "ACK"), (2, "BYE")] {
        let got = receive(&mut site, ALICE, &of_alice(method, ok, cseq, ""));
        assert!(got.iter().any(|(to, text)| to == GATEWAY && text.starts_with(method)), "{method}: {got:?}");
    }
    // A call that fails has its ACK and its CANCEL.
    let (_, text) = goes(&receive(&mut site, ALICE, &call(4, "sip:112@example.org", OWN, ALICE, "")));
    receive(&mut site, GATEWAY, &answer(&text, 180, ""));
    let cancel = call(4, "sip:112@example.org", OWN, ALICE, "").replace("INVITE", "CANCEL");
    let got = receive(&mut site, ALICE, &cancel);
    assert!(got.iter().any(|(to, text)| to == GATEWAY && text.starts_with("CANCEL ")), "{got:?}");
    assert_eq!(site.receive(ALICE, &invite(5, 1, "")), "", "it is banned still");
    assert_eq!(site.receive(ALICE, &call(6, "sip:113@example.org", OWN, ALICE, "")), "");
}

#[test]
fn an_emergency_call_has_a_record_and_an_identity() {
    let identity = "emergency.identity = \"+4930100\"\naccounting.cdr = true\n";
    let mut site = Site::new(&settings(identity));
    let more = "P-Asserted-Identity: <sip:alice@example.org>\r\nPrivacy: id\r\n";
    let (_, text) = goes(&receive(&mut site, ALICE, &call(1, "sip:112@example.org", OWN, ALICE, more)));
    assert!(text.contains("\r\nP-Asserted-Identity: <sip:+4930100@example.org>\r\n"), "{text}");
    assert_eq!(text.matches("P-Asserted-Identity").count(), 1, "{text}");
    receive(&mut site, GATEWAY, &answer(&text, 603, ""));
    let (cdrs, _) = rows(&mut site);
    assert_eq!(cdrs.iter().map(|cdr| &*cdr.account).collect::<Vec<_>>(), ["emergency"]);
    // The explanation tells the same.
    let arrival = Arrival {
        transport: Transport::Udp,
        listener: ListenerId(0),
        remote: ALICE.parse().expect("an address"),
        flow: None,
    };
    let asked = call(2, "sip:112@example.org", OWN, ALICE, "");
    let explained =
        site.engines[0].explain(site.now, &arrival, asked.as_bytes(), false, &|_, _| None).expect("a request");
    assert!(explained.to_string().starts_with("rule    yes [emergency]: emergency call is true, "), "{explained}");
    let ExplainedOutcome::Forward(plan) = explained.course.outcome else { panic!("no plan") };
    assert_eq!((plan.to.len(), plan.account_as.as_deref(), plan.limits.len()), (2, Some("emergency"), 0));
    // Without a target such a call is an ordinary one.
    let mut site = Site::new("");
    ends(&receive(&mut site, ALICE, &call(2, "urn:service:sos", OWN, ALICE, "")), 407);
}

/// Starts a server whose table of calls and transactions have these bounds, with bob's phone.
fn bounded(transactions: u32, calls: u32) -> Site {
    let settings = format!(
        "auth.calls = false\nproxy.record_route = true\nlimits.transactions = {transactions}\ndialogs.calls = {calls}\n\
         dialogs.track = true\nemergency.numbers = [\"112\"]\nemergency.target = \"sip:{GATEWAY}\"\n"
    );
    let mut site = Site::new(&settings);
    site.register(&format!("<sip:bob@{BOB}>"));
    site
}

/// Sends this number of forged emergency calls, each from another source. Returns how many reach the gateway.
fn forged(site: &mut Site, first: u32, count: u32) -> u32 {
    let reaches = |n: &u32| {
        let at = format!("203.0.{}.{}:5060", n / 250, n % 250 + 1);
        let got = receive(site, &at, &call(*n, "sip:112@example.org", OWN, &at, ""));
        let leaves = got.iter().any(|(to, text)| to == GATEWAY && text.starts_with("INVITE "));
        assert!(leaves || got.iter().any(|(_, text)| status(text) == Some(503)), "{got:?}");
        leaves
    };
    (first..first + count).filter(reaches).count() as u32
}

/// Returns whether an INVITE of a caller without an account from this address reaches bob's phone.
fn rings(site: &mut Site, n: u32, at: &str) -> bool {
    let text = invite(n, 1, "").replace(ALICE, at).replace("alice@example.org", &format!("s{n}@example.net"));
    receive(site, at, &text).iter().any(|(to, text)| to == BOB && text.starts_with("INVITE "))
}

#[test]
fn an_emergency_call_passes_where_others_have_filled_the_transactions() {
    let mut site = bounded(64, 10_000);
    let rung = (1_000..2_000).take_while(|n| rings(&mut site, *n, "203.0.113.9:5060")).count();
    assert!(rung <= 64, "{rung}");
    assert!(!rings(&mut site, 3_000, ALICE), "the table is full");
    let got = receive(&mut site, ALICE, &call(1, "sip:112@example.org", OWN, ALICE, ""));
    assert_eq!(goes(&got).0, GATEWAY);
    let got = receive(&mut site, ALICE, &call(2, "urn:service:sos", OWN, ALICE, ""));
    assert_eq!(goes(&got).0, GATEWAY);
    ends(&receive(&mut site, ALICE, &call(3, "sip:113@example.org", OWN, ALICE, "")), 503);
    // One source has its share of these places, and forged sources leave half of them to registered phones.
    assert!(forged(&mut site, 100, 100) < 32);
    let got = receive(&mut site, BOB, &call(4, "sip:112@example.org", "sip:bob@example.org", BOB, ""));
    assert_eq!(goes(&got).0, GATEWAY, "a registered phone");
}

#[test]
fn forged_emergency_calls_leave_room_for_others() {
    let mut site = bounded(1_024, 10_000);
    let (forwarded, ok) = crate::dialogs::answered(&mut site, 1);
    let taken = forged(&mut site, 10, 1_000);
    assert_eq!(taken, 1_024 / 16, "half of an eighth");
    // Transactions of refused requests end with the round.
    site.wait(1);
    for n in 2_000..2_100 {
        assert!(rings(&mut site, n, "198.51.100.77:5060"), "{n}");
    }
    let bye = receive(&mut site, ALICE, &of_alice("BYE", &ok, 2, ""));
    assert!(bye.iter().any(|(to, text)| to == BOB && text.starts_with("BYE ")), "{bye:?}");
    let bye = receive(&mut site, BOB, &crate::dialogs::of_bob("BYE", &forwarded, "bob", 9, ""));
    assert!(bye.iter().any(|(to, text)| to == ALICE && text.starts_with("BYE ")), "{bye:?}");
    // Calls that have ended give their places back.
    let got = receive(&mut site, BOB, &call(5_000, "sip:112@example.org", "sip:bob@example.org", BOB, ""));
    let (_, text) = goes(&got);
    receive(&mut site, GATEWAY, &answer(&text, 486, ""));
    (0..12).for_each(|_| drop(site.wait(10_000)));
    assert_eq!(forged(&mut site, 6_000, 1_000), taken);
}

/// Makes an emergency call that is answered. Returns whether it was forwarded.
fn answered_emergency(site: &mut Site, n: u32, at: &str) -> bool {
    let got = receive(site, at, &call(n, "sip:112@example.org", OWN, at, ""));
    let Some((_, text)) = got.iter().find(|(to, text)| to == GATEWAY && text.starts_with("INVITE ")) else {
        return false;
    };
    let ok = answer(text, 200, &format!("Contact: <sip:psap@{GATEWAY}>\r\n"));
    let got = receive(site, GATEWAY, &ok);
    assert!(got.iter().any(|(to, text)| to == at && status(text) == Some(200)), "{got:?}");
    true
}

#[test]
fn emergency_calls_have_places_beyond_the_table_of_calls() {
    // There are two shards, with 800 places each, and 100 more for emergencies.
    let mut site = bounded(100_000, 1_600);
    let tracked = |site: &Site| crate::dialogs::counts(site).0;
    let mut number = 10_000;
    let mut answered = |site: &mut Site, more: &dyn Fn(u32) -> String| {
        number += 1;
        answered_emergency(site, number, &more(number))
    };
    let sources = |n: u32| format!("203.0.{}.{}:5060", n % 200, n % 250 + 1);
    let mut taken = 0;
    while answered(&mut site, &sources) {
        taken += 1;
        assert!(taken < 2_000);
    }
    // That is the share of the callee 112 in the table, and half of the emergency places, since the sources may be
    // forged.
    assert_eq!(taken, 400 + 50);
    assert_eq!(tracked(&site), 450);
    assert!(rings(&mut site, 1, ALICE), "the other half of the table is for others");
    let got = receive(&mut site, BOB, &call(4, "sip:112@example.org", "sip:bob@example.org", BOB, ""));
    assert_eq!(goes(&got).0, GATEWAY, "a registered phone");
}

#[test]
fn no_answer_to_an_emergency_call_is_refused() {
    for from in ["Contact: ", "Record-Route: "] {
        let mut site = Site::new(&settings("accounting.cdr = true\n"));
        site.register(&format!("<sip:bob@{BOB}>"));
        let text = call(1, "sip:112@example.org", "sip:bob@example.org", BOB, "");
        let sent = receive(&mut site, BOB, &text);
        let (_, forwarded) = invites(&sent)[0].clone();
        let routes = line(&forwarded, "Record-Route");
        let ok = answer(&forwarded, 200, &format!("Record-Route: {routes}\r\nContact: <sip:gw@{GATEWAY}>\r\n"));
        assert!(ok.contains(from), "{ok}");
        let sent = receive(&mut site, GATEWAY, &ok.replace(from, "X-Other: "));
        assert_eq!(statuses(&sent, BOB), [200], "{from}");
    }
}
