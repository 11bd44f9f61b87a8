//! Spellings of a user's name: counts, rules and records use the name of the database.

use crate::accounting::rows;
use crate::site::*;
use strowger_store::subscriber;

/// Sends the INVITE of a phone, with this spelling of alice's name and this password. Returns the messages that leave,
/// and whether they waited for the database.
fn calls(site: &mut Site, from: &str, number: u32, spelled: &str, password: &[u8]) -> (String, bool) {
    let challenged = site.receive(from, &invite(number, 1, ""));
    assert!(challenged.starts_with("SIP/2.0 407 "), "{challenged}");
    let line = credentials_of(spelled, password, ("INVITE", "sip:bob@example.org"), &challenged, 1);
    let at_once = site.receive(from, &invite(number, 2, &line));
    if !at_once.is_empty() {
        return (at_once, false);
    }
    let known = credential_as(spelled, "alice", b"secret of alice");
    let known = site.says(Ok(subscriber::SubscriberAnswer::Credential(known)));
    (site.work(|engine, now, out| engine.answered(now, known, out)), true)
}

/// Returns the result of alice's INVITE, by each spelling in turn.
fn by_each(site: &mut Site) -> [String; 3] {
    let mut number = 0;
    SPELLINGS.map(|spelled| {
        number += 1;
        calls(site, ALICE, number, spelled, b"secret of alice").0
    })
}

#[test]
fn a_user_has_one_limit_of_calls() {
    let mut site = Site::new(
        "[[call_limit]]\nname = \"line\"\nper = \"user\"\nmost = 1\nstatus = 486\n\
         [[rule]]\nname = \"all\"\nto = [\"sip:203.0.113.1\"]\ncall_limits = [\"line\"]\n",
    );
    let [first, others @ ..] = by_each(&mut site);
    assert!(first.contains("INVITE sip:bob@example.org "), "{first}");
    for other in others {
        assert!(other.starts_with("SIP/2.0 486 "), "{other}");
    }
    let counted = site.shared.call_limits.list();
    let counted: Vec<_> = counted.iter().map(|(counted, calls)| (&*counted.value, *calls)).collect();
    assert_eq!(counted, [(&b"alice"[..], 1)]);
}

#[test]
fn rules_see_the_name_of_a_user_and_so_do_records() {
    let mut site = Site::new(
        "accounting.cdr = true\n[[rule]]\nname = \"hers\"\nwhen = \"authenticated and user == 'alice'\"\nanswer = 486\n",
    );
    for answer in by_each(&mut site) {
        assert!(answer.starts_with("SIP/2.0 486 "), "{answer}");
    }
    let users: Vec<_> = rows(&mut site).0.into_iter().map(|cdr| cdr.user).collect();
    assert_eq!(users, ["alice"; 3]);
}

/// Checks that failures in all spellings count for one account: after three failures, each from its own source and in
/// its own spelling, each further source may fail for the account once.
#[test]
fn guesses_at_a_user_count_together() {
    let mut site = Site::new("ban.account_failures = 3\n");
    let sources = ["203.0.113.1:5060", "203.0.113.2:5060", "203.0.113.3:5060"];
    for (number, (source, spelled)) in sources.into_iter().zip(SPELLINGS).enumerate() {
        let (answer, is_judged) = calls(&mut site, source, number as u32, spelled, b"guessed");
        assert!(is_judged && answer.starts_with("SIP/2.0 407 "), "{answer}");
    }
    let last = "203.0.113.4:5060";
    for (number, spelled, expected) in
        [(3, "alice@EXAMPLE.org", true), (4, "alice@example.ORG", false), (5, "alice", false)]
    {
        let (answer, is_judged) = calls(&mut site, last, number, spelled, b"guessed");
        assert!(is_judged == expected && answer.starts_with("SIP/2.0 407 "), "{spelled}: {answer}");
    }
    // Alice herself is still accepted.
    let (answer, is_judged) = calls(&mut site, ALICE, 6, "alice", b"secret of alice");
    assert!(is_judged && !answer.starts_with("SIP/2.0 407 "), "{answer}");
}
