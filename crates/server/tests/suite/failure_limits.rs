//! Limits of calls that failures have: a failure without room is skipped, and a call frees its places when it ends.

use crate::decisions::{MAILBOX, SECOND, invite, request, site};
use crate::peer::{answer, ends, goes, invites, pass, receive, sent};
use crate::site::{ALICE, BOB, CALL_SECRET, Site, line};
use strowger_core::{Arrival, ListenerId, Transport, call};
use strowger_server::engine::{Effect, EngineInput};
use strowger_server::question::{HostKey, Resolved};

const BOB_URI: &str = "sip:bob@example.org";

/// Limit with room for one call. Its status applies to rules only.
const BOXES: &str = "[[call_limit]]\nname = \"boxes\"\nmost = 1\nstatus = 600\n";

/// Writes a failure with this name that sends the request to this place; `more` are further keys.
fn failure(name: &str, to: &str, more: &str) -> String {
    format!("[[failure]]\nname = \"{name}\"\nstatuses = [\"480\", \"486\"]\nto = [\"sip:{name}@{to}\"]\n{more}\n")
}

/// Writes a failure with a limit.
fn counted(name: &str, to: &str) -> String {
    failure(name, to, "call_limits = [\"boxes\"]")
}

/// Starts a site whose calls have these failures; `more` are further keys of their rule.
fn unregistered(failures: &[String], names: &str, more: &str) -> Site {
    let failures = failures.concat();
    let rule = format!("[[rule]]\nname = \"calls\"\nwhen = \"method == 'INVITE'\"\non_failure = {names}\n{more}\n");
    site(&format!("{BOXES}{failures}{rule}"))
}

/// Starts the same site with a phone of bob.
fn registered(failures: &[String], names: &str, more: &str) -> Site {
    let mut site = unregistered(failures, names, more);
    site.register(&format!("<sip:bob@{BOB}>"));
    site
}

/// Makes the `n`th call to bob, who is busy.
fn busy(site: &mut Site, n: u32) -> Vec<(String, String)> {
    let got = receive(site, ALICE, &invite(n, BOB_URI));
    let (at, text) = invites(&got)[0].clone();
    assert_eq!(at, BOB);
    receive(site, BOB, &answer(&text, 486, ""))
}

const ELSEWHERE: &str = "203.0.113.5:5060";

/// Has a foreign server, to which the call went, ask for credentials.
fn challenged(site: &mut Site, elsewhere: &[(String, String)]) {
    let challenge = "Proxy-Authenticate: Digest realm=\"elsewhere\", nonce=\"n\"\r\n";
    ends(&receive(site, ELSEWHERE, &answer(&goes(elsewhere).1, 407, challenge)), 407);
}

/// Writes the INVITE of the call in the form in which it is sent again to bob.
fn again(n: u32) -> String {
    invite(n, BOB_URI).replace("branch=z9hG4bK", "branch=z9hG4bKagain").replace("CSeq: 1 ", "CSeq: 2 ")
}

/// Returns the number of places that calls take under limits.
fn held(site: &Site) -> u32 {
    site.shared.call_limits.list().iter().map(|(_, calls)| calls).sum()
}

/// Returns the number of tracked calls.
fn calls(site: &Site) -> usize {
    site.engines.iter().map(|engine| engine.list_calls(site.now, 0, 100, None).calls.len()).sum()
}

#[test]
fn a_failure_without_room_is_passed_over() {
    let failures = [counted("second", SECOND), failure("mailbox", MAILBOX, "")];
    let mut site = registered(&failures, "[\"second\", \"mailbox\"]", "");
    let got = receive(&mut site, ALICE, &invite(1, BOB_URI));
    assert_eq!((held(&site), calls(&site)), (0, 1), "it is counted when its failure is used, and tracked before");
    let got = receive(&mut site, BOB, &answer(&invites(&got)[0].1, 486, ""));
    assert_eq!((goes(&got).0.as_str(), held(&site)), (SECOND, 1));
    let got = busy(&mut site, 2);
    assert_eq!((goes(&got).0.as_str(), held(&site)), (MAILBOX, 1));
    // A call without another failure ends as if it had none, and not with the status of the limit.
    let mut site = registered(&failures[..1], "[\"second\"]", "");
    let (_, first) = goes(&busy(&mut site, 1));
    ends(&busy(&mut site, 2), 486);
    // After the end of the first call there is room.
    ends(&receive(&mut site, SECOND, &answer(&first, 486, "")), 486);
    assert_eq!(held(&site), 0);
    assert_eq!(goes(&busy(&mut site, 3)).0, SECOND);
}

/// Checks that a failure that was skipped is considered again when the call fails at the next place.
#[test]
fn a_failure_that_was_passed_over_is_for_the_next_failure() {
    let failures = [counted("second", SECOND), failure("mailbox", MAILBOX, "")];
    let mut site = registered(&failures, "[\"second\", \"mailbox\"]", "");
    let (_, first) = goes(&busy(&mut site, 1));
    let (_, second) = goes(&busy(&mut site, 2));
    receive(&mut site, SECOND, &answer(&first, 600, ""));
    assert_eq!(held(&site), 0);
    let got = receive(&mut site, MAILBOX, &answer(&second, 486, ""));
    assert_eq!((goes(&got).0.as_str(), held(&site)), (SECOND, 1));
}

#[test]
fn what_a_failure_took_is_given_back_when_the_call_ends() {
    let mut site = registered(&[counted("mailbox", MAILBOX)], "[\"mailbox\"]", "");
    let cancel = |site: &mut Site, n| receive(site, ALICE, &request(n, "CANCEL", BOB_URI, ""));
    for n in 1..40 {
        if n % 5 == 0 {
            // The call is cancelled after bob has answered busy, and before that arrives: nothing follows.
            let got = receive(&mut site, ALICE, &invite(n, BOB_URI));
            let phone = &invites(&got)[0].1;
            receive(&mut site, BOB, &answer(phone, 180, ""));
            cancel(&mut site, n);
            ends(&receive(&mut site, BOB, &answer(phone, 486, "")), 486);
            assert_eq!(held(&site), 0);
            continue;
        }
        let (at, text) = goes(&busy(&mut site, n));
        assert_eq!((at.as_str(), held(&site)), (MAILBOX, 1));
        match n % 5 {
            1 => ends(&receive(&mut site, MAILBOX, &answer(&text, 503, "")), 486),
            2 => {
                receive(&mut site, MAILBOX, &answer(&text, 180, ""));
                cancel(&mut site, n);
                ends(&receive(&mut site, MAILBOX, &answer(&text, 487, "")), 486);
            }
            3 => {
                assert_eq!(held(&site), 1);
                pass(&mut site);
            }
            _ => {
                let taken = answer(&text, 200, &format!("Contact: <sip:m@{MAILBOX}>\r\n"));
                let got = receive(&mut site, MAILBOX, &taken);
                let ok = &got.iter().find(|(at, _)| at == ALICE).expect("it goes upstream").1;
                pass(&mut site);
                assert_eq!(held(&site), 1, "it goes on");
                let bye = format!(
                    "BYE sip:m@{MAILBOX} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bKbye{n};rport\r\nMax-Forwards: 70\r\n\
                     From: <sip:carol@example.net>;tag=c{n}\r\nTo: <{BOB_URI}>;tag=t\r\nCall-ID: d{n}\r\nCSeq: 2 BYE\r\n\
                     Route: {}\r\nContent-Length: 0\r\n\r\n",
                    line(ok, "Record-Route")
                );
                let got = receive(&mut site, ALICE, &bye);
                let (_, bye) = got.iter().find(|(_, text)| text.starts_with("BYE ")).expect("it passes");
                receive(&mut site, MAILBOX, &answer(bye, 200, ""));
            }
        }
        assert_eq!(held(&site), 0, "{n}");
    }
}

/// Checks that a limit may be one of a rule and a failure, of two failures, or of two rules.
#[test]
fn a_call_counts_once_under_one_limit() {
    let failures = [counted("second", SECOND), counted("mailbox", MAILBOX)];
    for more in ["call_limits = [\"boxes\"]", ""] {
        let mut site = registered(&failures, "[\"second\", \"mailbox\"]", more);
        let (at, text) = goes(&busy(&mut site, 1));
        assert_eq!((at.as_str(), held(&site)), (SECOND, 1));
        let (at, text) = goes(&receive(&mut site, SECOND, &answer(&text, 480, "")));
        assert_eq!((at.as_str(), held(&site)), (MAILBOX, 1));
        receive(&mut site, MAILBOX, &answer(&text, 480, ""));
        assert_eq!(held(&site), 0);
    }
    let also = "call_limits = [\"boxes\"]\n[[rule]]\nname = \"also\"\ncall_limits = [\"boxes\"]";
    let mut site = registered(&failures, "[\"mailbox\"]", also);
    let got = receive(&mut site, ALICE, &invite(1, BOB_URI));
    assert_eq!((goes(&got).0.as_str(), held(&site)), (BOB, 1));
}

/// Checks that a failure without room is skipped, too, if the request fails before it is forwarded.
#[test]
fn a_failure_without_room_is_passed_over_where_the_user_is_not_registered() {
    let gone = "[[failure]]\nname = \"gone\"\nstatuses = [\"480\"]\nanswer = 410\n".to_owned();
    for (names, status) in [("[\"mailbox\"]", 480), ("[\"mailbox\", \"gone\"]", 410)] {
        let mut site = unregistered(&[counted("mailbox", MAILBOX), gone.clone()], names, "");
        let (at, text) = goes(&receive(&mut site, ALICE, &invite(1, BOB_URI)));
        assert_eq!((at.as_str(), held(&site)), (MAILBOX, 1));
        ends(&receive(&mut site, ALICE, &invite(2, BOB_URI)), status);
        receive(&mut site, MAILBOX, &answer(&text, 603, ""));
        assert_eq!(held(&site), 0);
        assert_eq!(goes(&receive(&mut site, ALICE, &invite(3, BOB_URI))).0, MAILBOX);
    }
}

/// Covers a limit whose last place is taken while the name of the mailbox is looked up.
#[test]
fn a_failure_that_is_full_when_its_name_is_known_is_passed_over() {
    let failures = [counted("mailbox", "mailbox.example.net"), failure("second", SECOND, "")];
    for (names, goes_on) in [("[\"mailbox\"]", false), ("[\"mailbox\", \"second\"]", true)] {
        let mut site = unregistered(&failures, names, "");
        let asked = |site: &mut Site, text: &str| -> (u64, HostKey) {
            assert!(receive(site, ALICE, text).is_empty());
            let asked = site.engines[0].effects.drain(..).find_map(|effect| match effect {
                Effect::Resolve { ticket, name, .. } => Some((ticket, name)),
                _ => None,
            });
            asked.expect("its name is asked for")
        };
        let known = |site: &mut Site, (ticket, name)| {
            let targets = vec![(Transport::Udp, MAILBOX.parse().expect("an address"))];
            let resolved = EngineInput::Resolved { ticket, name, to: Resolved { targets, name: None } };
            site.work(|engine, now, out| engine.answered(now, resolved, out));
            sent(site)
        };
        // The state of a call that comes again stays.
        let elsewhere = asked(&mut site, &invite(2, &format!("sip:bob@{ELSEWHERE}")));
        let elsewhere = known(&mut site, elsewhere);
        challenged(&mut site, &elsewhere);
        let (first, second) = (asked(&mut site, &invite(1, BOB_URI)), asked(&mut site, &again(2)));
        let got = known(&mut site, first);
        assert_eq!((goes(&got).0.as_str(), held(&site)), (MAILBOX, 1));
        let got = known(&mut site, second);
        if goes_on {
            assert_eq!(goes(&got).0, SECOND);
        } else {
            ends(&got, 480);
        }
        assert_eq!((held(&site), calls(&site)), (1, 2));
        pass(&mut site);
        assert_eq!((held(&site), calls(&site)), (0, 0));
    }
}

/// Checks that such a call is refused before a failure with a limit can apply: it cannot be distinguished from the
/// first call, and so not be counted.
#[test]
fn no_second_call_hides_behind_one_whose_failures_count() {
    let mut site = registered(&[counted("mailbox", MAILBOX)], "[\"mailbox\"]", "");
    let first = receive(&mut site, ALICE, &invite(1, BOB_URI));
    let other = invite(1, BOB_URI).replace("z9hG4bKd1", "z9hG4bKother").replace("CSeq: 1 ", "CSeq: 7 ");
    ends(&receive(&mut site, ALICE, &other), 482);
    let got = receive(&mut site, BOB, &answer(&goes(&first).1, 486, ""));
    assert_eq!((goes(&got).0.as_str(), held(&site)), (MAILBOX, 1));
}

/// Covers a call that is repeated with credentials for a server behind this one, and is sent elsewhere than before.
#[test]
fn a_call_that_comes_again_counts_by_the_failure_that_leads_it_then() {
    let mut site = unregistered(&[counted("mailbox", MAILBOX)], "[\"mailbox\"]", "");
    let elsewhere = receive(&mut site, ALICE, &invite(1, &format!("sip:bob@{ELSEWHERE}")));
    challenged(&mut site, &elsewhere);
    let (at, text) = goes(&receive(&mut site, ALICE, &again(1)));
    assert_eq!((at.as_str(), held(&site)), (MAILBOX, 1));
    ends(&receive(&mut site, MAILBOX, &answer(&text, 486, "")), 486);
    assert_eq!(held(&site), 0);
}

/// Checks that the limits of the failures of a call move with the call to another shard.
#[test]
fn a_call_that_moves_counts_by_its_failures() {
    let mut site = registered(&[counted("mailbox", MAILBOX)], "[\"mailbox\"]", "");
    let bucket = call::bucket(call::hash(CALL_SECRET, b"d1"));
    let moves = |site: &mut Site, from: usize, to| {
        let records = site.engines[from].export(site.now, bucket);
        for record in records {
            site.work_at(to, |engine, now, out| engine.import(now, record, out));
        }
    };
    let receive_at = |site: &mut Site, shard, from: &str, text: &str| {
        let remote = from.parse().expect("an address");
        let arrival = Arrival { transport: Transport::Udp, listener: ListenerId(0), remote, flow: None };
        site.work_at(shard, |engine, now, out| engine.receive(now, &arrival, text.as_bytes(), out));
        sent(site)
    };
    let got = receive(&mut site, ALICE, &invite(1, BOB_URI));
    moves(&mut site, 0, 1);
    let (at, text) = goes(&receive_at(&mut site, 1, BOB, &answer(&invites(&got)[0].1, 486, "")));
    assert_eq!((at.as_str(), held(&site)), (MAILBOX, 1));
    moves(&mut site, 1, 0);
    assert_eq!(held(&site), 1);
    ends(&receive(&mut site, MAILBOX, &answer(&text, 486, "")), 486);
    assert_eq!(held(&site), 0);
}
