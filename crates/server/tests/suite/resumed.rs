//! Calls that an earlier process tracked and did not keep: the first INVITE within such a call needs no password, and
//! begins a call in the table.

use crate::call_beginnings::{GATEWAY, Office, reaches};
use crate::dialogs::{answer_byes, of_alice, of_bob};
use crate::site::ALICE;

const CONTACT: &str = "Contact: <sip:alice@198.51.100.7:5060>\r\n";

/// Returns the next process, ten seconds after an answered call, the request that the gateway got, and the response
/// that alice got.
fn after_restart(settings: &str) -> (Office, String, String) {
    let mut office = Office::new(settings);
    let (forwarded, ok) = office.dialog("INVITE", "200 OK");
    (office.next(10, settings), forwarded, ok)
}

/// Sends an INVITE within the dialog that passes without a password. Returns it as the gateway gets it.
#[track_caller]
fn passes(office: &mut Office, ok: &str, cseq: u32) -> String {
    let (is_challenged, sent) = office.send(&of_alice("INVITE", ok, cseq, CONTACT));
    assert!(!is_challenged, "{sent}");
    reaches(&sent, "INVITE").to_owned()
}

#[track_caller]
fn ends(office: &mut Office, ok: &str, cseq: u32) {
    let (is_challenged, bye) = office.send(&of_alice("BYE", ok, cseq, ""));
    assert!(!is_challenged, "{bye}");
    office.answer(reaches(&bye, "BYE"), "200 OK");
    answer_byes(&mut office.site, "481 Call/Transaction Does Not Exist");
}

#[test]
fn a_resumed_call_counts_and_is_recorded_from_its_answer() {
    let (mut office, _, ok) = after_restart("");
    let sent = passes(&mut office, &ok, 5);
    assert!(!sent.contains(&format!("INVITE sip:4930@{GATEWAY}")), "rules lead it nowhere: {sent}");
    office.site.wait(1_000);
    office.answer(&sent, "200 OK");
    assert_eq!((office.counted(), office.records().len()), (1, 0));
    // Later requests belong to that call.
    office.site.wait(2_000);
    let sent = passes(&mut office, &ok, 6);
    office.answer(&sent, "200 OK");
    assert_eq!(office.counted(), 1);
    assert_eq!(office.site.shared.counts().earlier_calls, 1);
    office.site.wait(3_000);
    ends(&mut office, &ok, 7);
    let records = office.records();
    let [record] = &records[..] else { panic!("{records:#?}") };
    assert_eq!((&*record.outcome, &*record.ended_by, &*record.user), ("answered", "caller", "alice"));
    assert_eq!(record.answer.expect("an answer") - record.setup, 1_000);
    assert_eq!(record.end.expect("an end") - record.answer.expect("an answer"), 5_000);
    assert_eq!(office.counted(), 0);
    // The call has ended here: its route token opens no other call.
    let (is_challenged, sent) = office.send(&of_alice("INVITE", &ok, 8, CONTACT));
    assert!(is_challenged, "{sent}");
}

#[test]
fn a_full_limit_refuses_a_resumed_call() {
    let (mut office, _, ok) = after_restart("");
    office.dialog("INVITE", "200 OK");
    assert_eq!(office.counted(), 1);
    let (is_challenged, sent) = office.send(&of_alice("INVITE", &ok, 5, CONTACT));
    assert!(!is_challenged && sent.starts_with("SIP/2.0 486 "), "{sent}");
    // The dialog continues.
    let (is_challenged, sent) = office.send(&of_alice("INFO", &ok, 6, ""));
    assert!(!is_challenged && sent.contains("INFO sip:gw@"), "{sent}");
}

/// Checks that a dialog continues after the failure of an INVITE within it (RFC 3261 section 14.1).
#[test]
fn a_call_whose_first_refresh_fails_goes_on() {
    let (mut office, _, ok) = after_restart("");
    for (n, status) in [(5, "488 Not Acceptable Here"), (7, "491 Request Pending")] {
        let sent = passes(&mut office, &ok, n);
        office.answer(&sent, status);
        let (is_challenged, sent) = office.send(&of_alice("INFO", &ok, n + 1, ""));
        assert!(!is_challenged && sent.contains("INFO sip:gw@"), "{sent}");
        office.answer(reaches(&sent, "INFO"), "200 OK");
        assert_eq!(office.counted(), 0);
    }
    let sent = passes(&mut office, &ok, 9);
    office.answer(&sent, "200 OK");
    assert_eq!(office.counted(), 1);
}

/// Covers a 2xx to a refresh that does not repeat the route set, which is fixed (RFC 3261 section 12.2).
#[test]
fn the_callee_of_a_resumed_call_is_reached_by_the_route_set_of_the_caller() {
    let (mut office, _, ok) = after_restart("");
    let sent = passes(&mut office, &ok, 5);
    let bare: Vec<&str> = sent.split("\r\n").filter(|line| !line.starts_with("Record-Route: ")).collect();
    let answer = office.answer(&bare.join("\r\n"), "200 OK");
    assert!(answer.starts_with("SIP/2.0 200 "), "{answer}");
    assert_eq!(office.counted(), 1);
    let sent = passes(&mut office, &ok, 6);
    office.answer(&sent, "200 OK");
    assert_eq!(office.site.shared.counts().earlier_calls, 1);
    ends(&mut office, &ok, 7);
    assert_eq!((office.counted(), office.records().len()), (0, 1));
}

#[test]
fn a_callee_resumes_a_call_as_well() {
    let (mut office, forwarded, ok) = after_restart("");
    let again = of_bob("INVITE", &forwarded, "gw", 5, "Contact: <sip:gw@203.0.113.1:5060>\r\n");
    let sent = office.site.receive(GATEWAY, &again);
    let sent = reaches(&sent, "INVITE").to_owned();
    assert!(sent.starts_with("INVITE sip:alice@"), "{sent}");
    // While that INVITE is open, the other party begins no second call of the dialog.
    let (is_challenged, other) = office.send(&of_alice("INVITE", &ok, 5, CONTACT));
    assert!(is_challenged, "{other}");
    let response = crate::site::response(&sent, "200 OK");
    let contact = format!("{CONTACT}Content-Length");
    let answer = office.site.receive(ALICE, &response.replace("Content-Length", &contact));
    assert!(answer.contains("SIP/2.0 200 "), "{answer}");
    let sent = passes(&mut office, &ok, 9);
    office.answer(&sent, "200 OK");
    assert_eq!(office.site.shared.counts().earlier_calls, 1);
    ends(&mut office, &ok, 10);
    let records = office.records();
    assert_eq!(records.iter().filter(|record| record.outcome == "answered" && record.ended_by == "callee").count(), 1);
}

/// Checks that rules neither answer nor redirect the INVITE of a resumed call: its dialog determines the target.
#[test]
fn rules_do_not_end_a_resumed_call() {
    let mut office = Office::new("");
    let (_, ok) = office.dialog("INVITE", "200 OK");
    let settings = "[[rule]]\nname = \"refuses\"\nanswer = 403\n";
    let mut next = office.next(10, settings);
    let sent = passes(&mut next, &ok, 5);
    next.answer(&sent, "200 OK");
    ends(&mut next, &ok, 6);
    assert_eq!(next.records().len(), 1);
}

/// Checks the user of a resumed call. From may change within a dialog (RFC 4916), so the record has no user if the
/// route token states another account.
#[test]
fn a_resumed_call_has_the_user_that_its_route_token_states() {
    let (mut office, _, ok) = after_restart("");
    let text = of_alice("INVITE", &ok, 5, CONTACT).replace("From: <sip:alice@", "From: <sip:bob@");
    let (is_challenged, sent) = office.send(&text);
    assert!(!is_challenged, "{sent}");
    office.answer(reaches(&sent, "INVITE"), "200 OK");
    ends(&mut office, &ok, 6);
    let records = office.records();
    assert!(records.len() == 1 && records[0].user.is_empty(), "{records:#?}");
}
