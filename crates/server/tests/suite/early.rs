//! Callees that rang and lost to another callee: an early dialog ends with its branch, and does not keep a call whose
//! last answered dialog has ended.

use crate::accounting::rows;
use crate::dialogs::{counts, of_alice};
use crate::peer::{invites, receive, sent, statuses};
use crate::site::{ALICE, BOB, CALL_SECRET, Site, invite, line, response, response_at};
use strowger_calls::CallState;
use strowger_core::call;

/// Other phone of bob.
const DESK: &str = "198.51.100.9:5060";
const GATEWAY: &str = "203.0.113.1:5060";
const SECOND: &str = "203.0.113.2:5060";
const MAILBOX: &str = "203.0.113.9:5060";

/// Starts a site with one call at a time, each with a record; bob's phones ring together.
fn site(settings: &str) -> Site {
    let mut site = Site::new(&format!(
        "auth.calls = false\nproxy.relay_for = \"everyone\"\nproxy.fork = \"parallel\"\naccounting.cdr = true\n\
         [[call_limit]]\nname = \"line\"\nmost = 1\nstatus = 486\n\
         [[failure]]\nname = \"mailbox\"\nstatuses = [\"486\", \"408\"]\nto = [\"sip:mailbox@{MAILBOX}\"]\n\
         [[rule]]\nname = \"calls\"\nwhen = \"method == 'INVITE'\"\ncall_limits = [\"line\"]\n{settings}"
    ));
    site.register(&format!("<sip:bob@{BOB}>"));
    site
}

/// Writes a response from this place, with this tag and a Contact at this place.
fn from(at: &str, forwarded: &str, status: &str, tag: &str) -> String {
    response_at(at, forwarded, status, tag)
}

/// Makes alice's call with this number. Returns its INVITE at each place.
fn call(site: &mut Site, number: u32) -> Vec<(String, String)> {
    let sent = receive(site, ALICE, &invite(number, 1, ""));
    let invites = invites(&sent).into_iter().cloned().collect::<Vec<_>>();
    assert!(!invites.is_empty(), "{sent:?}");
    invites
}

fn at<'a>(invites: &'a [(String, String)], place: &str) -> &'a str {
    &invites.iter().find(|(at, _)| at == place).unwrap_or_else(|| panic!("none at {place} of {invites:?}")).1
}

/// Rings at this place.
fn rings(site: &mut Site, place: &str, forwarded: &str, tag: &str) {
    let sent = receive(site, place, &from(place, forwarded, "180 Ringing", tag));
    assert_eq!(statuses(&sent, ALICE), [180]);
}

/// Answers at this place. Returns the 200 that alice gets.
fn answers(site: &mut Site, place: &str, forwarded: &str, tag: &str) -> String {
    let sent = receive(site, place, &from(place, forwarded, "200 OK", tag));
    sent.into_iter().find(|(_, text)| text.starts_with("SIP/2.0 200 ")).expect("alice hears it").1
}

/// Fails at this place. Returns the INVITEs that are sent then.
fn fails(site: &mut Site, place: &str, forwarded: &str, status: &str, tag: &str) -> Vec<(String, String)> {
    let sent = receive(site, place, &from(place, forwarded, status, tag));
    assert!(sent.iter().any(|(at, text)| at == place && text.starts_with("ACK ")), "{sent:?}");
    invites(&sent).into_iter().cloned().collect()
}

/// Advances the clock. Returns the INVITEs that are sent then.
fn waits(site: &mut Site, ms: u64) -> Vec<(String, String)> {
    site.wait(ms);
    let sent = sent(site);
    invites(&sent).into_iter().cloned().collect()
}

/// Sends a BYE. At most one BYE may be sent at a moment, since its CSeq is the time.
fn hangs_up(site: &mut Site, place: &str, ok: &str) {
    let cseq = site.now.mono as u32;
    let sent = receive(site, ALICE, &of_alice("BYE", ok, cseq, ""));
    let (to, bye) = sent.iter().find(|(_, text)| text.starts_with("BYE ")).expect("it goes on");
    assert_eq!(to, place);
    let sent = receive(site, place, &response(bye, "200 OK"));
    assert_eq!(statuses(&sent, ALICE), [200]);
}

/// Returns state and tags of the dialogs of the only tracked call, as an operator sees it.
fn shown(site: &Site) -> Option<(CallState, Vec<String>)> {
    let page = site.engines[0].list_calls(site.now, 0, 10, None);
    let [call] = &page.calls[..] else {
        assert!(page.calls.is_empty(), "{page:?}");
        return None;
    };
    Some((call.state, call.dialogs.iter().map(|d| String::from_utf8_lossy(&d.tag).into_owned()).collect()))
}

#[track_caller]
fn shows(site: &Site, state: CallState, tags: &[&str]) {
    assert_eq!(shown(site), Some((state, tags.iter().map(|tag| (*tag).to_owned()).collect())));
}

fn limited(site: &Site) -> u32 {
    site.shared.call_limits.list().iter().map(|(_, calls)| calls).sum()
}

/// Asserts that the call that this 200 answered 3 s ago ends with alice's BYE in the table, under its limit and in its
/// record.
#[track_caller]
fn ends_at_its_bye(site: &mut Site, place: &str, ok: &str) {
    site.wait(3_000);
    assert_eq!((limited(site), rows(site).0.len()), (1, 0));
    let end = site.now.wall;
    hangs_up(site, place, ok);
    assert_eq!((shown(site), counts(site), limited(site)), (None, (0, 0, 0), 0));
    let (cdrs, _) = rows(site);
    let [cdr] = &cdrs[..] else { panic!("{cdrs:?}") };
    assert_eq!((cdr.end, cdr.answer, &*cdr.ended_by), (Some(end), Some(end - 3_000), "caller"));
    assert_eq!((&*cdr.outcome, &*cdr.gateway), ("answered", place));
    // There is room for the next call at once.
    let next = call(site, 77);
    assert_eq!((limited(site), next.is_empty()), (1, false));
}

#[test]
fn of_two_phones_the_one_that_lost_does_not_hold_the_call() {
    for says_so in [true, false] {
        let mut site = site("");
        site.register(&format!("<sip:desk@{DESK}>"));
        let sent = call(&mut site, 1);
        rings(&mut site, BOB, at(&sent, BOB), "pocket");
        rings(&mut site, DESK, at(&sent, DESK), "desk");
        shows(&site, CallState::Ringing, &["pocket", "desk"]);
        let ok = answers(&mut site, DESK, at(&sent, DESK), "desk");
        shows(&site, CallState::Answered, &["pocket", "desk"]);
        // The phone may be silent after the CANCEL.
        if says_so {
            fails(&mut site, BOB, at(&sent, BOB), "487 Request Terminated", "pocket");
            shows(&site, CallState::Answered, &["desk"]);
        }
        ends_at_its_bye(&mut site, DESK, &ok);
    }
}

#[test]
fn a_phone_that_rang_too_long_leaves_the_call_to_the_voicemail() {
    let mut site = site("ring_timeout = \"5s\"\non_failure = [\"mailbox\"]\n");
    let sent = call(&mut site, 1);
    rings(&mut site, BOB, at(&sent, BOB), "pocket");
    let cancel = site.wait(5_100);
    assert!(cancel.contains("CANCEL sip:bob@"), "{cancel}");
    let next = fails(&mut site, BOB, at(&sent, BOB), "487 Request Terminated", "pocket");
    shows(&site, CallState::Calling, &[]);
    let ok = answers(&mut site, MAILBOX, at(&next, MAILBOX), "voice");
    shows(&site, CallState::Answered, &["voice"]);
    ends_at_its_bye(&mut site, MAILBOX, &ok);
}

#[test]
fn a_phone_that_rang_and_is_busy_leaves_the_call_to_the_voicemail() {
    let mut site = site("on_failure = [\"mailbox\"]\n");
    let sent = call(&mut site, 1);
    rings(&mut site, BOB, at(&sent, BOB), "pocket");
    let next = fails(&mut site, BOB, at(&sent, BOB), "486 Busy Here", "pocket");
    shows(&site, CallState::Calling, &[]);
    rings(&mut site, MAILBOX, at(&next, MAILBOX), "voice");
    shows(&site, CallState::Ringing, &["voice"]);
    let ok = answers(&mut site, MAILBOX, at(&next, MAILBOX), "voice");
    ends_at_its_bye(&mut site, MAILBOX, &ok);
}

#[test]
fn a_gateway_that_rang_and_failed_leaves_the_call_to_the_next() {
    for status in ["503 Service Unavailable", "500 Server Internal Error"] {
        let mut site = site(&format!("to = [\"sip:{GATEWAY}\", \"sip:{SECOND}\"]\ntry_next = [500, 503]\n"));
        let sent = call(&mut site, 1);
        rings(&mut site, GATEWAY, at(&sent, GATEWAY), "one");
        let next = fails(&mut site, GATEWAY, at(&sent, GATEWAY), status, "one");
        shows(&site, CallState::Calling, &[]);
        let ok = answers(&mut site, SECOND, at(&next, SECOND), "two");
        shows(&site, CallState::Answered, &["two"]);
        ends_at_its_bye(&mut site, SECOND, &ok);
    }
}

/// Covers a gateway that rings and then does not answer: the branch ends with its transaction.
#[test]
fn a_gateway_that_rang_and_never_answers_its_cancel_ends_with_its_transaction() {
    let mut site = site(&format!("to = [\"sip:{GATEWAY}\", \"sip:{SECOND}\"]\nring_timeout = \"5s\"\n"));
    let sent = call(&mut site, 1);
    rings(&mut site, GATEWAY, at(&sent, GATEWAY), "one");
    let mut next = waits(&mut site, 100);
    while next.is_empty() {
        shows(&site, CallState::Ringing, &["one"]);
        next = waits(&mut site, 100);
    }
    shows(&site, CallState::Calling, &[]);
    let ok = answers(&mut site, SECOND, at(&next, SECOND), "two");
    ends_at_its_bye(&mut site, SECOND, &ok);
}

/// Covers several phones that ring behind one next hop. Their dialogs end together, since this server does not see the
/// end of a single one.
#[test]
fn phones_behind_one_next_hop_end_with_its_branch() {
    let forks = |site: &mut Site| {
        let sent = call(site, 1);
        rings(site, BOB, at(&sent, BOB), "one");
        rings(site, BOB, at(&sent, BOB), "two");
        shows(site, CallState::Ringing, &["one", "two"]);
        sent
    };
    let mut refused = site("on_failure = [\"mailbox\"]\n");
    let sent = forks(&mut refused);
    let next = fails(&mut refused, BOB, at(&sent, BOB), "486 Busy Here", "one");
    shows(&refused, CallState::Calling, &[]);
    let ok = answers(&mut refused, MAILBOX, at(&next, MAILBOX), "voice");
    ends_at_its_bye(&mut refused, MAILBOX, &ok);
    // One of them answers. The other may still do so (RFC 3261 section 13.2.2.4), until the call has ended.
    let mut taken = site("");
    let sent = forks(&mut taken);
    let ok = answers(&mut taken, BOB, at(&sent, BOB), "two");
    shows(&taken, CallState::Answered, &["one", "two"]);
    ends_at_its_bye(&mut taken, BOB, &ok);
}

/// Covers a phone that answers though it was cancelled. While the call continues, the answer begins one more dialog of
/// the call. Afterwards the answer is dropped, and the record is not changed.
#[test]
fn a_late_answer_is_of_the_call_while_there_is_one() {
    for has_ended in [false, true] {
        let mut site = site("");
        site.register(&format!("<sip:desk@{DESK}>"));
        let sent = call(&mut site, 1);
        rings(&mut site, BOB, at(&sent, BOB), "pocket");
        let ok = answers(&mut site, DESK, at(&sent, DESK), "desk");
        if has_ended {
            hangs_up(&mut site, DESK, &ok);
            assert_eq!((rows(&mut site).0.len(), limited(&site)), (1, 0));
            // A forwarded 200 would begin a session without a record.
            assert_eq!(receive(&mut site, BOB, &from(BOB, at(&sent, BOB), "200 OK", "pocket")), []);
            assert_eq!((counts(&site), limited(&site)), ((0, 0, 0), 0));
            continue;
        }
        let late = answers(&mut site, BOB, at(&sent, BOB), "pocket");
        assert_eq!((counts(&site), limited(&site)), ((1, 0, 2), 1));
        hangs_up(&mut site, DESK, &ok);
        shows(&site, CallState::Answered, &["pocket"]);
        let sent = receive(&mut site, ALICE, &of_alice("ACK", &late, 1, ""));
        assert!(sent.iter().any(|(at, text)| at == BOB && text.starts_with("ACK ")), "{sent:?}");
        site.wait(500);
        let end = site.now.wall;
        hangs_up(&mut site, BOB, &late);
        assert_eq!((counts(&site), limited(&site)), ((0, 0, 0), 0));
        let ends: Vec<_> = rows(&mut site).0.iter().map(|cdr| cdr.end).collect();
        assert_eq!(ends, [Some(end)]);
    }
}

/// Covers a phone that was abandoned for its silence, which may still ring before its CANCEL arrives.
#[test]
fn a_phone_that_rings_after_it_was_given_up_ends_with_its_final_response() {
    let mut site = site(&format!("to = [\"sip:{GATEWAY}\", \"sip:{SECOND}\"]\nanswer_timeout = \"2s\"\n"));
    let sent = call(&mut site, 1);
    let next = waits(&mut site, 2_100);
    rings(&mut site, GATEWAY, at(&sent, GATEWAY), "one");
    shows(&site, CallState::Ringing, &["one"]);
    fails(&mut site, GATEWAY, at(&sent, GATEWAY), "487 Request Terminated", "one");
    shows(&site, CallState::Calling, &[]);
    let ok = answers(&mut site, SECOND, at(&next, SECOND), "two");
    ends_at_its_bye(&mut site, SECOND, &ok);
}

#[test]
fn early_dialogs_end_with_their_branch_in_another_shard_too() {
    let mut site = site("on_failure = [\"mailbox\"]\n");
    site.register(&format!("<sip:desk@{DESK}>"));
    let sent = call(&mut site, 1);
    rings(&mut site, BOB, at(&sent, BOB), "pocket");
    rings(&mut site, DESK, at(&sent, DESK), "desk");
    let bucket = call::bucket(call::hash(CALL_SECRET, b"1"));
    let mut moved = Vec::new();
    site.work(|engine, now, _| moved = engine.export(now, bucket));
    site.engines.swap(0, 1);
    site.work(|engine, now, out| moved.into_iter().for_each(|record| engine.import(now, record, out)));
    shows(&site, CallState::Ringing, &["pocket", "desk"]);
    fails(&mut site, BOB, at(&sent, BOB), "486 Busy Here", "pocket");
    shows(&site, CallState::Ringing, &["desk"]);
    let ok = answers(&mut site, DESK, at(&sent, DESK), "desk");
    assert_eq!(line(&ok, "Call-ID"), "1");
    ends_at_its_bye(&mut site, DESK, &ok);
}
