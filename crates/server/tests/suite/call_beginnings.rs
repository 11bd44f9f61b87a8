//! INVITEs that begin a call: each one that reaches the gateway outside a known call needs a password, counts and has a
//! record.

use crate::accounting::rows;
use crate::dialogs::{answer_byes, answered, from_phone, of_alice, of_bob, request};
use crate::site::{ALICE, BOB, Site, credentials_of, line, response};
use strowger_core::Now;
use strowger_server::engine::{EngineInput, ProcessStatus};
use strowger_store::accounting::Cdr;
use strowger_store::subscriber;

pub(crate) const GATEWAY: &str = "203.0.113.1:5060";

const RULES: &str = "[[call_limit]]\nname = \"line\"\nper = \"user\"\nmost = 1\nstatus = 486\n\
                     [[rule]]\nname = \"out\"\nto = [\"sip:203.0.113.1:5060\"]\ncall_limits = [\"line\"]\n";

/// Server whose rule sends every request to the gateway. Each user may have one call at a time, and each call is
/// recorded.
pub(crate) struct Office {
    pub(crate) site: Site,
    /// Number of the last request.
    n: u32,
}

impl Office {
    pub(crate) fn new(settings: &str) -> Self {
        Self { site: Site::new(&format!("accounting.cdr = true\n{settings}{RULES}")), n: 0 }
    }

    /// Starts the next process with the same secret, this number of seconds later.
    pub(crate) fn next(&self, seconds: u64, settings: &str) -> Self {
        let ms = seconds * 1_000;
        let now = Now { mono: self.site.now.mono + ms, wall: self.site.now.wall + ms };
        let text = format!("accounting.cdr = true\n{settings}{RULES}");
        Self { site: Site::start(now, &["udp:192.0.2.1:5060"], &text), n: self.n }
    }

    /// Writes alice's request outside any dialog, without a password. `to` is the text behind the URI in To.
    pub(crate) fn request(&mut self, method: &str, to: &str) -> String {
        self.n += 1;
        let n = self.n;
        format!(
            "{method} sip:4930@example.org SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKo{n};rport\r\nMax-Forwards: 70\r\n\
             From: <sip:alice@example.org>;tag=a{n}\r\nTo: <sip:4930@example.org>{to}\r\nCall-ID: o{n}\r\nCSeq: 1 {method}\r\n\
             Contact: <sip:alice@{ALICE}>\r\nContent-Length: 0\r\n\r\n"
        )
    }

    /// Sends a request, and again with alice's password if it is challenged. Returns whether it was challenged, and the text that the server
    /// sent last.
    pub(crate) fn send(&mut self, text: &str) -> (bool, String) {
        let sent = self.site.receive(ALICE, text);
        if !sent.starts_with("SIP/2.0 407 ") {
            return (false, sent);
        }
        let method = text.split(' ').next().expect("a method");
        let uri = text.split(' ').nth(1).expect("a URI");
        let line = credentials_of("alice", b"secret of alice", (method, uri), &sent, 1);
        let again = text.replacen("branch=z9hG4bK", "branch=z9hG4bKp", 1);
        let again = again.replacen("Content-Length", &format!("{line}Content-Length"), 1);
        assert_eq!(self.site.receive(ALICE, &again), "", "it waits for the database");
        (true, self.site.answer())
    }

    /// Answers a request at the gateway with this status. Returns the response that alice gets.
    pub(crate) fn answer(&mut self, sent: &str, status: &str) -> String {
        let at = sent.rfind(" sip:").and_then(|_| sent.find("\r\nVia: ")).expect("a request");
        let start = sent[..at].rfind("\r\n\r\n").map_or(0, |end| end + 4);
        let request = &sent[start..];
        let is_within = line(request, "To").contains(";tag=");
        let text = if is_within { response(request, status) } else { from_phone(request, status, "gw") };
        let contact = format!("Contact: <sip:gw@{GATEWAY}>\r\nContent-Length");
        let text = text.replace("Contact: <sip:gw@198.51.100.8:5060>\r\n", "").replace("Content-Length", &contact);
        self.site.receive(GATEWAY, &text)
    }

    /// Makes a dialog by a request of alice with her password. Returns the request that the gateway got, and the response that alice got.
    pub(crate) fn dialog(&mut self, method: &str, status: &str) -> (String, String) {
        let text = self.request(method, "");
        let (_, sent) = self.send(&text);
        let forwarded = reaches(&sent, method).to_owned();
        let answer = self.answer(&forwarded, status);
        (forwarded, answer)
    }

    pub(crate) fn counted(&self) -> u32 {
        self.site.shared.call_limits.list().into_iter().map(|(_, calls)| calls).sum()
    }

    pub(crate) fn records(&mut self) -> Vec<Cdr> {
        rows(&mut self.site).0
    }
}

/// Returns the sent request of this method, as the gateway gets it.
#[track_caller]
pub(crate) fn reaches<'a>(sent: &'a str, method: &str) -> &'a str {
    let start = format!("{method} sip:");
    &sent[sent.find(&start).unwrap_or_else(|| panic!("no {method} leaves: {sent}"))..]
}

#[test]
fn a_to_tag_that_was_made_up_hides_no_call() {
    let mut office = Office::new("");
    let text = office.request("INVITE", ";tag=madeup");
    let (is_challenged, sent) = office.send(&text);
    assert!(is_challenged, "{sent}");
    let ok = office.answer(reaches(&sent, "INVITE"), "200 OK");
    assert!(ok.starts_with("SIP/2.0 200 "), "{ok}");
    assert_eq!(office.counted(), 1);
    for tag in ["", ";tag=other", ";tag=madeup"] {
        let text = office.request("INVITE", tag);
        let (_, sent) = office.send(&text);
        assert!(sent.starts_with("SIP/2.0 486 "), "{tag}: {sent}");
    }
    // The BYE follows the path of that call, and ends its record.
    office.site.wait(5_000);
    let (is_challenged, bye) = office.send(&of_alice("BYE", &ok, 2, ""));
    assert!(!is_challenged);
    office.answer(reaches(&bye, "BYE"), "200 OK");
    assert_eq!(answer_byes(&mut office.site, "481 Call/Transaction Does Not Exist").len(), 2);
    let records = office.records();
    assert_eq!((records.len(), office.counted()), (4, 0), "{records:#?}");
    let of_call = &records[3];
    assert_eq!((&*of_call.outcome, &*of_call.ended_by, &*of_call.user), ("answered", "caller", "alice"));
    assert_eq!(of_call.end.expect("an end") - of_call.answer.expect("an answer"), 5_000);
}

/// Covers a caller that chooses the tag of the callee, so that another dialog may have the same tags.
#[test]
fn the_bye_of_a_dialog_with_the_same_tags_hides_no_call() {
    let mut site = Site::new("auth.calls = false\naccounting.cdr = true\n");
    site.register(&format!("<sip:bob@{BOB}>"));
    let (forwarded, ok) = answered(&mut site, 1);
    let bye = site.receive(ALICE, &of_alice("BYE", &ok, 2, ""));
    site.receive(BOB, &response(request(&bye, "BYE"), "200 OK"));
    assert_eq!(rows(&mut site).0.len(), 1);
    // Another phone answers her next call with the same tags.
    let again = crate::site::invite(1, 5, "").replace("To: <sip:bob@example.org>", "To: <sip:bob@example.org>;tag=bob");
    let sent = site.receive(ALICE, &again);
    let text = response(request(&sent, "INVITE"), "200 OK");
    let text = text.replace("Content-Length", &format!("Contact: <sip:gw@{GATEWAY}>\r\nContent-Length"));
    assert!(site.receive(BOB, &text).starts_with("SIP/2.0 200 "));
    // Bob's phone ends its old dialog, and alice answers 200.
    let bye = site.receive(BOB, &of_bob("BYE", &forwarded, "bob", 9, ""));
    site.receive(ALICE, &response(request(&bye, "BYE"), "200 OK"));
    assert_eq!(rows(&mut site).0.len(), 0, "that phone has not ended it");
    let mut ended = answer_byes(&mut site, "200 OK");
    ended.sort();
    assert_eq!((ended, rows(&mut site).0.len()), (vec![ALICE.to_owned(), GATEWAY.to_owned()], 1));
}

#[test]
fn an_invite_with_a_to_tag_goes_to_one_phone() {
    for (settings, phones) in [("accounting.cdr = true\n", 1), ("log.calls_per_minute = 0\n", 2)] {
        let mut site = Site::new(&format!("auth.calls = false\nproxy.fork = \"parallel\"\n{settings}"));
        site.register(&format!("<sip:bob@{BOB}>"));
        site.register(&format!("<sip:bob2@{BOB}>"));
        let text = crate::site::invite(1, 1, "").replace("To: <sip:bob@example.org>", "To: <sip:bob@h>;tag=x");
        let sent = site.receive(ALICE, &text);
        assert_eq!(sent.matches("INVITE sip:bob").count(), phones, "{sent}");
    }
}

#[test]
fn a_caller_from_outside_with_a_to_tag_is_counted_as_one_without() {
    let settings = "auth.calls = false\n[[call_limit]]\nname = \"callee\"\nper = \"request.uri\"\nmost = 1\nstatus = 486\n\
                    [[rule]]\nname = \"in\"\ncall_limits = [\"callee\"]\n";
    let mut site = Site::new(settings);
    site.register("<sip:bob@198.51.100.8:5060>");
    for (n, to, goes) in [(1, "", true), (2, "", false), (3, ";tag=x1", false), (4, ";tag=x2", false)] {
        let text = crate::site::invite(n, 1, "").replace("To: <sip:bob@example.org>", &format!("To: <sip:bob@h>{to}"));
        let sent = site.receive(ALICE, &text);
        assert_eq!(sent.contains("INVITE sip:bob"), goes, "{n}: {sent}");
        assert_eq!(sent.starts_with("SIP/2.0 486 "), !goes, "{n}: {sent}");
    }
}

#[test]
fn a_route_token_of_another_usage_opens_no_call() {
    for method in ["SUBSCRIBE", "REFER", "NOTIFY"] {
        let mut office = Office::new("");
        let (_, ok) = office.dialog(method, "200 OK");
        assert!(ok.starts_with("SIP/2.0 200 "), "{method}: {ok}");
        // Requests of that usage pass.
        for (n, within) in ["SUBSCRIBE", "NOTIFY", "REFER"].iter().enumerate() {
            let (is_challenged, sent) = office.send(&of_alice(within, &ok, 10 + n as u32, ""));
            assert!(!is_challenged, "{method}: {sent}");
            let _ = reaches(&sent, within);
        }
        for carrier in ["UPDATE", "INFO", "PRACK"] {
            let (is_challenged, sent) = office.send(&of_alice(carrier, &ok, 20, ""));
            assert!(is_challenged, "{method} {carrier}: {sent}");
        }
        let (is_challenged, sent) =
            office.send(&of_alice("INVITE", &ok, 30, "Contact: <sip:alice@198.51.100.7:5060>\r\n"));
        assert!(is_challenged, "{method}: {sent}");
        let answer = office.answer(reaches(&sent, "INVITE"), "200 OK");
        assert_eq!(office.counted(), 1, "{method}");
        // The table knows the call within the dialog, though its Routes belong to the other usage.
        let (is_challenged, sent) =
            office.send(&of_alice("INVITE", &ok, 31, "Contact: <sip:alice@198.51.100.7:5060>\r\n"));
        assert!(!is_challenged && answer.starts_with("SIP/2.0 200 "), "{method}: {sent}");
        let (_, bye) = office.send(&of_alice("BYE", &ok, 32, ""));
        office.answer(reaches(&bye, "BYE"), "200 OK");
        answer_byes(&mut office.site, "481 Call/Transaction Does Not Exist");
        assert_eq!((office.counted(), office.records().len()), (0, 1), "{method}");
    }
}

#[test]
fn the_route_token_of_a_call_that_has_ended_opens_none() {
    let mut office = Office::new("");
    let (_, ok) = office.dialog("INVITE", "200 OK");
    let again = |n| of_alice("INVITE", &ok, n, "Contact: <sip:alice@198.51.100.7:5060>\r\n");
    for n in 2..4 {
        let (is_challenged, sent) = office.send(&again(n));
        assert!(!is_challenged, "{sent}");
        office.answer(reaches(&sent, "INVITE"), "200 OK");
    }
    let (_, bye) = office.send(&of_alice("BYE", &ok, 4, ""));
    office.answer(reaches(&bye, "BYE"), "200 OK");
    assert_eq!((office.counted(), office.records().len()), (0, 1), "an INVITE within the call is none of its own");
    let (is_challenged, sent) = office.send(&again(5));
    assert!(is_challenged, "{sent}");
    office.answer(reaches(&sent, "INVITE"), "200 OK");
    assert_eq!(office.counted(), 1);
}

#[test]
fn the_route_token_of_a_call_that_only_rang_opens_none() {
    for settings in ["", "accounting.all = false\n"] {
        let mut office = Office::new(settings);
        let (forwarded, ringing) = office.dialog("INVITE", "183 Session Progress");
        assert!(ringing.starts_with("SIP/2.0 183 "), "{ringing}");
        office.answer(&forwarded, "486 Busy Here");
        office.records();
        let again = of_alice("INVITE", &ringing, 5, "Contact: <sip:alice@198.51.100.7:5060>\r\n");
        let (is_challenged, sent) = office.send(&again);
        assert!(is_challenged, "{sent}");
        // Requests of an early dialog pass.
        let (is_challenged, sent) = office.send(&of_alice("PRACK", &ringing, 6, ""));
        assert!(!is_challenged, "{sent}");
    }
}

/// Checks that without tracked calls, only the route token states that a call was answered.
#[test]
fn an_untracked_call_is_known_by_its_route_token() {
    let settings = format!("[[rule]]\nname = \"out\"\nto = [\"sip:{GATEWAY}\"]\n");
    let mut office = Office { site: Site::new(&settings), n: 0 };
    let (forwarded, ok) = office.dialog("INVITE", "200 OK");
    for n in 2..4 {
        let (is_challenged, sent) =
            office.send(&of_alice("INVITE", &ok, n, "Contact: <sip:alice@198.51.100.7:5060>\r\n"));
        assert!(!is_challenged, "{sent}");
        office.answer(reaches(&sent, "INVITE"), "200 OK");
        let text = of_bob("INVITE", &forwarded, "gw", n, "Contact: <sip:gw@203.0.113.1:5060>\r\n");
        assert!(office.site.receive(GATEWAY, &text).contains("INVITE sip:alice@"));
    }
}

/// Checks that a call of an earlier process continues if no calls are kept. If calls are kept, the table has all of
/// them.
#[test]
fn after_a_restart_a_call_of_before_goes_on() {
    for (settings, seconds, is_known) in [
        ("", 10, true),
        ("dialogs.folder = \"calls\"\n", 10, false),
        // A process that ran when the call began either has it in its table or does not know it.
        ("", 0, false),
    ] {
        let mut office = Office::new(settings);
        let (_, ok) = office.dialog("INVITE", "200 OK");
        let mut next = office.next(seconds, settings);
        let again = of_alice("INVITE", &ok, 5, "Contact: <sip:alice@198.51.100.7:5060>\r\n");
        let (is_challenged, sent) = next.send(&again);
        assert_eq!(!is_challenged, is_known, "{settings:?} {seconds}: {sent}");
        assert_eq!(next.site.shared.counts().earlier_calls > 0, is_known);
        next.answer(reaches(&sent, "INVITE"), "200 OK");
        assert_eq!(next.counted(), 1, "{settings:?} {seconds}");
        // A BYE passes in any case.
        let (is_challenged, sent) = next.send(&of_alice("BYE", &ok, 6, ""));
        assert!(!is_challenged, "{sent}");
    }
}

/// Covers steps of the wall clock: a machine learns the true time long after its start, or an operator sets the clock.
#[test]
fn a_step_of_the_wall_clock_ends_no_call_and_opens_none() {
    const CONTACT: &str = "Contact: <sip:alice@198.51.100.7:5060>\r\n";
    for days in [400, -400] {
        let mut office = Office::new("");
        let ends = |office: &mut Office, ok: &str, cseq: u32| {
            let (is_challenged, sent) = office.send(&of_alice("BYE", ok, cseq, ""));
            assert!(!is_challenged, "{days}: {sent}");
            office.answer(reaches(&sent, "BYE"), "200 OK");
            assert_eq!(office.counted(), 0, "{days}");
        };
        let (_, before) = office.dialog("INVITE", "200 OK");
        assert_eq!(office.counted(), 1);
        office.site.now.wall = office.site.now.wall.wrapping_add_signed(days * 86_400_000);
        let (is_challenged, sent) = office.send(&of_alice("INVITE", &before, 5, CONTACT));
        assert!(!is_challenged, "{days}: {sent}");
        office.answer(reaches(&sent, "INVITE"), "200 OK");
        ends(&mut office, &before, 6);
        // A call that ended opens nothing, from before the step or after it.
        let (_, after) = office.dialog("INVITE", "200 OK");
        ends(&mut office, &after, 7);
        for (ok, cseq) in [(&before, 8), (&after, 9)] {
            let (is_challenged, sent) = office.send(&of_alice("INVITE", ok, cseq, CONTACT));
            assert!(is_challenged, "{days}: {sent}");
        }
    }
    // After a step no call counts as one from before the start, not even an unknown one.
    for days in [400, -400] {
        let mut office = Office::new("");
        let mut other = office.next(0, "");
        for site in [&mut office.site, &mut other.site] {
            site.now.wall = site.now.wall.wrapping_add_signed(days * 86_400_000);
        }
        let (_, ok) = office.dialog("INVITE", "200 OK");
        let (is_challenged, sent) = other.send(&of_alice("INVITE", &ok, 5, CONTACT));
        assert!(is_challenged, "{days}: {sent}");
    }
    // A step does not undo the removal of an account.
    for days in [400, -400] {
        let mut office = Office::new("");
        let (_, ok) = office.dialog("INVITE", "200 OK");
        office.site.shared.end_routes_of(b"alice", b"example.org", office.site.now);
        office.site.now.wall = office.site.now.wall.wrapping_add_signed(days * 86_400_000);
        let (is_challenged, sent) = office.send(&of_alice("INFO", &ok, 5, CONTACT));
        assert!(is_challenged, "{days}: {sent}");
    }
}

#[test]
fn the_removal_of_an_account_ends_what_its_route_tokens_open() {
    let mut office = Office::new("");
    let (_, subscription) = office.dialog("SUBSCRIBE", "200 OK");
    let (_, call) = office.dialog("INVITE", "200 OK");
    let passes = |office: &mut Office, method: &str, ok: &str, cseq: u32| {
        let sent =
            office.site.receive(ALICE, &of_alice(method, ok, cseq, "Contact: <sip:alice@198.51.100.7:5060>\r\n"));
        let is_sent = sent.contains(&format!("{method} sip:gw@"));
        assert_eq!(sent.contains("SIP/2.0 407 "), !is_sent, "{method}: {sent}");
        is_sent
    };
    assert!(passes(&mut office, "SUBSCRIBE", &subscription, 5) && passes(&mut office, "INFO", &call, 5));
    office.site.shared.end_routes_of(b"alice", b"example.org", office.site.now);
    assert!(!passes(&mut office, "SUBSCRIBE", &subscription, 6) && !passes(&mut office, "INFO", &call, 6));
    assert!(!passes(&mut office, "UPDATE", &call, 7));
    assert!(passes(&mut office, "BYE", &call, 8), "a call can be ended");
    // A new account with the same name renews its own subscription.
    office.site.wait(2_000);
    let (_, subscription) = office.dialog("SUBSCRIBE", "200 OK");
    assert!(passes(&mut office, "SUBSCRIBE", &subscription, 15));
}

/// Checks that each renewal of a subscription asks for the user, because no event follows the deletion of a row in a
/// database.
#[test]
fn a_subscription_is_renewed_while_its_user_exists() {
    let mut office = Office::new("registrar.authenticate = true\n");
    let (_, ok) = office.dialog("SUBSCRIBE", "200 OK");
    let gone = subscriber::SubscriberAnswer::Absent;
    for (n, says, passes) in [
        (5, Ok(subscriber::SubscriberAnswer::Exists), true),
        (6, Err(strowger_store::error::StoreError::TimedOut), true),
        (7, Ok(gone), false),
    ] {
        let refresh = of_alice("SUBSCRIBE", &ok, n, "Contact: <sip:alice@198.51.100.7:5060>\r\n");
        assert_eq!(office.site.receive(ALICE, &refresh), "", "it waits");
        let answer: EngineInput = office.site.says(says);
        let sent = office.site.work(|engine, now, out| engine.answered(now, answer, out));
        assert_eq!(sent.contains("SUBSCRIBE sip:gw@"), passes, "{n}: {sent}");
        assert_eq!(sent.contains("SIP/2.0 407 "), !passes, "{n}: {sent}");
    }
}

#[test]
fn rules_and_filters_take_no_to_tag_for_a_dialog() {
    let mut site = Site::new(
        "auth.calls = false\n[[filter]]\nname = \"new\"\nwhen = \"method == 'INVITE' and not in_dialog\"\nanswer = 403\n",
    );
    site.register("<sip:bob@198.51.100.8:5060>");
    for to in ["", ";tag=x"] {
        let text = crate::site::invite(1, 1, "").replace("To: <sip:bob@example.org>", &format!("To: <sip:bob@h>{to}"));
        assert!(site.receive(ALICE, &text).starts_with("SIP/2.0 403 "), "{to:?}");
    }
}

#[test]
fn at_shutdown_a_to_tag_lets_no_call_begin() {
    let mut site = Site::new("auth.calls = false\ndialogs.track = true\n");
    site.register("<sip:bob@198.51.100.8:5060>");
    site.engines[0].shard.process_status = ProcessStatus { draining: true, shards: 2 };
    for to in ["", ";tag=x"] {
        let text = crate::site::invite(1, 1, "").replace("To: <sip:bob@example.org>", &format!("To: <sip:bob@h>{to}"));
        assert!(site.receive(ALICE, &text).starts_with("SIP/2.0 503 "), "{to:?}");
    }
}
