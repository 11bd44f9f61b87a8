//! Users of this server as places of rules and failures: ring group, hunt group, call forward.

mod office;

use self::office::{
    ANNA, ANNA_TOO, BEN, CLEO, USERS, answers, calls, cancels, failure, is_cancelled, office, phone, phones, register,
    rings, rule, tagged, takes, wait,
};
use crate::accounting::rows;
use crate::decisions::{GATEWAY, MAILBOX, invite, request, site};
use crate::dialogs::of_bob;
use crate::peer::{answer, ends, goes, invites, pass, receive, sent, statuses, uri};
use crate::site::{ALICE, Site, line};
use strowger_core::{Arrival, ListenerId, Transport};

#[test]
fn a_ring_group_rings_all_and_the_first_to_answer_has_the_call() {
    let mut site = office(&rule("sales", USERS, "at_once = true"));
    // A phone of two users rings once.
    register(&mut site, "anna", BEN, &format!("<sip:ben@{BEN}>"));
    let all = rings(&calls(&mut site, 1, "sales"));
    assert_eq!(phones(&all), [ANNA, ANNA_TOO, BEN]);
    assert_eq!(uri(&all[0].1), format!("sip:anna@{ANNA}"));
    assert_eq!(uri(&all[2].1), format!("sip:ben@{BEN}"));
    for (_, text) in &all {
        assert!(text.contains("\r\nFrom: <sip:carol@example.net>;tag=c1\r\nTo: <sip:sales@example.org>\r\n"), "{text}");
        assert!(text.contains("\r\nMax-Forwards: 69\r\n"), "{text}");
    }
    answers(&mut site, &all, 180);
    let got = takes(&mut site, &all[1]);
    assert_eq!((statuses(&got, ALICE), cancels(&got)), (vec![200], vec![ANNA, BEN]));
    assert!(got.iter().any(|(_, text)| text.starts_with("CANCEL ") && text.contains("Call completed elsewhere")));
    // The server forwards the answer of a phone that answers nevertheless: the caller ends that dialog.
    let late = takes(&mut site, &all[2]);
    assert_eq!(statuses(&late, ALICE), [200]);
    assert!(is_cancelled(&mut site, &all[..1]).iter().all(|(at, _)| at != ALICE));
    // All are busy: the caller gets one response.
    let all = rings(&calls(&mut site, 2, "sales"));
    ends(&answers(&mut site, &all, 486), 486);
    // One user declines for all.
    let all = rings(&calls(&mut site, 3, "sales"));
    let got = receive(&mut site, BEN, &tagged(BEN, &answer(&all[2].1, 603, "")));
    assert_eq!(cancels(&got), [] as [&str; 0], "nothing rang");
    ends(&is_cancelled(&mut site, &all[..2]), 603);
    pass(&mut site);
}

#[test]
fn a_hunt_group_rings_one_user_after_the_other() {
    let mut site = office(&rule("sales", USERS, "ring_timeout = \"5s\""));
    // Each phone of the first user rings, then those of the next user with a phone.
    let first = rings(&calls(&mut site, 1, "sales"));
    assert_eq!(phones(&first), [ANNA, ANNA_TOO]);
    assert!(invites(&receive(&mut site, ANNA, &answer(&first[0].1, 486, ""))).is_empty());
    let second = goes(&receive(&mut site, ANNA_TOO, &answer(&first[1].1, 480, "")));
    assert_eq!((&*second.0, uri(&second.1)), (BEN, "sip:ben@198.51.100.13:5060"));
    ends(&receive(&mut site, BEN, &answer(&second.1, 486, "")), 486);
    // Ringing users have five seconds each; after the last the caller gets 408.
    let first = rings(&calls(&mut site, 2, "sales"));
    answers(&mut site, &first, 180);
    let got = wait(&mut site, 60, |sent| !cancels(sent).is_empty());
    assert_eq!((cancels(&got), invites(&got).len()), (vec![ANNA, ANNA_TOO], 0));
    let second = goes(&is_cancelled(&mut site, &first));
    answers(&mut site, std::slice::from_ref(&second), 180);
    wait(&mut site, 60, |sent| cancels(sent).contains(&BEN));
    ends(&is_cancelled(&mut site, &[second]), 408);
    // A user who declines for all ends the search.
    let first = rings(&calls(&mut site, 3, "sales"));
    receive(&mut site, ANNA, &answer(&first[0].1, 603, ""));
    ends(&is_cancelled(&mut site, &first[1..]), 603);
    pass(&mut site);
}

#[test]
fn a_caller_who_gives_up_while_one_of_several_rings_rings_no_other() {
    let mut site = office(&rule("sales", USERS, "ring_timeout = \"5s\""));
    let first = rings(&calls(&mut site, 1, "sales"));
    answers(&mut site, &first, 180);
    wait(&mut site, 60, |sent| !cancels(sent).is_empty());
    let second = goes(&is_cancelled(&mut site, &first));
    receive(&mut site, BEN, &answer(&second.1, 180, ""));
    let cancel = invite(1, "sip:sales@example.org").replace("INVITE", "CANCEL");
    let got = receive(&mut site, ALICE, &cancel);
    assert_eq!((cancels(&got), invites(&got).len()), (vec![BEN], 0));
    ends(&is_cancelled(&mut site, &[second]), 487);
    pass(&mut site);
}

/// Covers a phone that answered just as its time ended.
#[test]
fn a_late_answer_of_a_user_before_has_the_call() {
    let users = "[\"sip:ben@example.org\", \"sip:cleo@example.org\"]";
    let mut site = office(&rule("sales", users, "ring_timeout = \"5s\"\nanswer_timeout = \"1s\""));
    let first = goes(&calls(&mut site, 1, "sales"));
    receive(&mut site, BEN, &answer(&first.1, 180, ""));
    wait(&mut site, 60, |sent| cancels(sent) == [BEN]);
    let got = takes(&mut site, &first);
    assert_eq!((statuses(&got, ALICE), invites(&got).len()), (vec![200], 0));
    // A phone that did not answer for too long is abandoned, and answers the call while the next phone rings.
    let first = goes(&calls(&mut site, 2, "sales"));
    let second = goes(&wait(&mut site, 20, |sent| invites(sent).iter().any(|(at, _)| at == CLEO)));
    receive(&mut site, CLEO, &answer(&second.1, 180, ""));
    let got = takes(&mut site, &first);
    assert_eq!((statuses(&got, ALICE), cancels(&got)), (vec![200], vec![CLEO]));
    assert_eq!(statuses(&is_cancelled(&mut site, &[second]), ALICE), <[u16; 0]>::default());
    pass(&mut site);
}

#[test]
fn calls_are_forwarded_always_on_busy_and_on_no_answer() {
    let forwards = failure("busy", "[\"486\"]", "[\"sip:ben@example.org\"]", "")
        + &failure("away", "[\"408\", \"480\"]", "[\"sip:dora@example.org\", \"sip:cleo@example.org\"]", "")
        + &rule("dora", "[\"sip:ben@example.org\"]", "")
        + "[[rule]]\nname = \"anna\"\nwhen = \"request.user == 'cleo'\"\nring_timeout = \"5s\"\n\
           on_failure = [\"busy\", \"away\"]\n\
           [[rule]]\nname = \"erik\"\nwhen = \"request.user == 'erik'\"\non_failure = [\"away\"]\n";
    let mut site = office(&forwards);
    assert_eq!(phones(&rings(&calls(&mut site, 1, "dora"))), [BEN], "always");
    let own = goes(&calls(&mut site, 2, "cleo"));
    assert_eq!(own.0, CLEO);
    let busy = goes(&receive(&mut site, CLEO, &answer(&own.1, 486, "")));
    assert_eq!((&*busy.0, uri(&busy.1)), (BEN, "sip:ben@198.51.100.13:5060"), "on busy");
    let got = takes(&mut site, &busy);
    assert_eq!(statuses(&got, ALICE), [200]);
    let own = goes(&calls(&mut site, 3, "cleo"));
    receive(&mut site, CLEO, &answer(&own.1, 180, ""));
    wait(&mut site, 60, |sent| cancels(sent) == [CLEO]);
    let late = goes(&is_cancelled(&mut site, &[own]));
    assert_eq!(late.0, CLEO, "on no answer: dora has no phone, and is passed over");
    // The call to an unregistered user fails before it is forwarded.
    let mut got = calls(&mut site, 4, "erik");
    if got.is_empty() {
        let exists = site.says(Ok(strowger_store::subscriber::SubscriberAnswer::Exists));
        site.work(|engine, now, out| engine.answered(now, exists, out));
        got = sent(&site);
    }
    assert_eq!(phones(&rings(&got)), [CLEO]);
    pass(&mut site);
}

#[test]
fn without_a_registered_user_the_next_failure_has_its_turn() {
    let absent = "[\"sip:dora@example.org\", \"sip:erik@example.org\"]";
    let mut alone = office(&rule("sales", absent, ""));
    ends(&calls(&mut alone, 1, "sales"), 480);
    let mailbox = failure("absent", "[\"480\"]", "[\"sip:erik@example.org\"]", "")
        + &failure("busy", "[\"486\"]", absent, "")
        + &failure("mailbox", "[\"480\", \"486\"]", &format!("[\"sip:{MAILBOX}\"]"), "");
    let more = "on_failure = [\"absent\", \"busy\", \"mailbox\"]";
    let mut site = office(&(mailbox + &rule("sales", absent, more) + &rule("ben", "[\"sip:ben@example.org\"]", more)));
    assert_eq!(goes(&calls(&mut site, 1, "sales")).0, MAILBOX);
    let ben = goes(&calls(&mut site, 2, "ben"));
    let mailbox = goes(&receive(&mut site, BEN, &answer(&ben.1, 486, "")));
    assert_eq!((&*mailbox.0, uri(&mailbox.1)), (MAILBOX, "sip:ben@example.org"));
}

#[test]
fn users_and_gateways_stand_in_one_list() {
    let mixed = format!("[\"sip:{GATEWAY}\", \"sip:anna@example.org\", \"sip:desk@{MAILBOX}\"]");
    let mut site = office(&(rule("sales", &mixed, "") + &rule("all", &mixed, "at_once = true")));
    let gateway = goes(&calls(&mut site, 1, "sales"));
    assert_eq!((&*gateway.0, uri(&gateway.1)), (GATEWAY, "sip:sales@example.org"));
    let anna = rings(&receive(&mut site, GATEWAY, &answer(&gateway.1, 503, "")));
    assert_eq!(phones(&anna), [ANNA, ANNA_TOO]);
    let desk = goes(&answers(&mut site, &anna, 486));
    assert_eq!((&*desk.0, uri(&desk.1)), (MAILBOX, "sip:desk@203.0.113.9:5060"));
    let all = rings(&calls(&mut site, 2, "all"));
    assert_eq!(phones(&all), [ANNA, ANNA_TOO, GATEWAY, MAILBOX]);
}

/// Checks that users in a gateway group are tried in turn, and that each call counts under the limits of the group.
#[test]
fn groups_may_have_users_and_limits_pass_over_a_user_with_all_phones() {
    let group = "[[call_limit]]\nname = \"one\"\nmost = 1\n[[call_limit]]\nname = \"each\"\nper = \"gateway\"\nmost = 1\n\
                 [[gateway_group]]\nname = \"anna\"\nto = [\"sip:anna@example.org\"]\ncall_limits = [\"one\"]\n";
    let to = format!("[\"sip:{GATEWAY}\", \"anna\", \"sip:ben@example.org\"]");
    let mut site = office(&format!("{group}{}", rule("sales", &to, "call_limits = [\"each\"]")));
    let counted = |site: &Site| site.shared.call_limits.list().len();
    let refused = |site: &mut Site, (at, text): &(String, String)| receive(site, at, &answer(text, 503, ""));
    let gateway = goes(&calls(&mut site, 1, "sales"));
    assert_eq!((&*gateway.0, counted(&site)), (GATEWAY, 1));
    let anna = rings(&refused(&mut site, &gateway));
    assert_eq!((phones(&anna), counted(&site)), (vec![ANNA, ANNA_TOO], 1), "both phones, and one count");
    // Another call finds the group full, and rings at neither phone of it.
    let gateway = goes(&calls(&mut site, 2, "sales"));
    let ben = goes(&refused(&mut site, &gateway));
    assert_eq!(ben.0, BEN);
    // A third call takes the gateway, so a fourth has no room there.
    let third = goes(&calls(&mut site, 3, "sales"));
    assert_eq!(third.0, GATEWAY);
    let fourth = goes(&calls(&mut site, 4, "sales"));
    assert_eq!(fourth.0, BEN, "users are no gateways: no limit counts them");
    takes(&mut site, &anna[0]);
    is_cancelled(&mut site, &anna[1..]);
    assert_eq!(counted(&site), 2);
    ends(&receive(&mut site, BEN, &answer(&ben.1, 486, "")), 486);
    pass(&mut site);
}

/// Checks that rules are evaluated for the number that was dialled, and for no user whom a rule names, and that each
/// failure applies only once.
#[test]
fn forwards_that_lead_round_end() {
    let circle = rule("ben", "[\"sip:cleo@example.org\"]", "") + &rule("cleo", "[\"sip:ben@example.org\"]", "");
    let mut site = office(&circle);
    let cleo = goes(&calls(&mut site, 1, "ben"));
    assert_eq!(cleo.0, CLEO);
    ends(&receive(&mut site, CLEO, &answer(&cleo.1, 486, "")), 486);
    let circle = failure("to-cleo", "[\"486\"]", "[\"sip:cleo@example.org\"]", "")
        + &failure("to-ben", "[\"486\"]", "[\"sip:ben@example.org\"]", "")
        + "[[rule]]\nname = \"calls\"\nwhen = \"method == 'INVITE'\"\non_failure = [\"to-cleo\", \"to-ben\"]\n";
    let mut site = office(&circle);
    let mut call = goes(&calls(&mut site, 1, "ben"));
    let mut rang = vec![call.0.clone()];
    loop {
        let got = receive(&mut site, &call.0, &answer(&call.1, 486, ""));
        if invites(&got).is_empty() {
            ends(&got, 486);
            break;
        }
        call = goes(&got);
        rang.push(call.0.clone());
    }
    assert_eq!(rang, [BEN, CLEO, BEN]);
    // Each of the two has also registered the other as a contact.
    register(&mut site, "dora", BEN, "<sip:erik@example.org>");
    register(&mut site, "erik", BEN, "<sip:dora@example.org>");
    let mut round = office(&rule("sales", "[\"sip:dora@example.org\", \"sip:erik@example.org\"]", ""));
    register(&mut round, "dora", BEN, "<sip:erik@example.org>");
    register(&mut round, "erik", BEN, "<sip:dora@example.org>");
    ends(&calls(&mut round, 1, "sales"), 480);
    // If one of the two has a phone of its own, that phone rings.
    phone(&mut round, "erik", CLEO);
    assert_eq!(phones(&rings(&calls(&mut round, 2, "sales"))), [CLEO]);
}

/// Checks the bound on the branches of a request, which does not depend on the number of phones of the users.
#[test]
fn a_list_of_users_has_a_bound_of_branches() {
    let users: Vec<String> = (0..30).map(|n| format!("\"sip:u{n}@example.org\"")).collect();
    let list = format!("[{}]", users.join(", "));
    let settings = rule("all", &list, "at_once = true") + &rule("each", &list, "");
    let mut site = office(&format!("proxy.max_branches = 16\n{settings}"));
    for n in 0..30 {
        for phones in 0..2 {
            let at = format!("198.51.100.{}:{}", 100 + n, 5060 + phones);
            phone(&mut site, &format!("u{n}"), &at);
        }
    }
    assert_eq!(rings(&calls(&mut site, 1, "all")).len(), 16);
    let (mut all, mut count) = (rings(&calls(&mut site, 2, "each")), 0);
    while !all.is_empty() {
        count += all.len();
        all = rings(&answers(&mut site, &all, 486));
    }
    assert_eq!(count, 16);
    // A sender may bound the number of phones that ring at the same time (RFC 5393 section 5.3.3).
    let narrow = failure("all", "[\"486\"]", &list, "at_once = true");
    let mut site = office(&format!("{narrow}[[rule]]\nname = \"r\"\non_failure = [\"all\"]\n"));
    for n in 0..3 {
        phone(&mut site, &format!("u{n}"), &format!("198.51.100.{}:5060", 100 + n));
    }
    let text = request(1, "INVITE", "sip:ben@example.org", "Max-Breadth: 2\r\n");
    let ben = goes(&receive(&mut site, ALICE, &text));
    let first = rings(&receive(&mut site, BEN, &answer(&ben.1, 486, "")));
    let second = rings(&answers(&mut site, &first, 486));
    assert_eq!((first.len(), second.len()), (2, 1));
    let breadth = |(_, text): &(String, String)| line(text, "Max-Breadth").to_owned();
    assert_eq!(first.iter().chain(&second).map(breadth).collect::<Vec<_>>(), ["1", "1", "2"]);
}

/// Checks that a phone that is not at the address of its Contact is reached at its source, by each kind of place and
/// within its dialog.
#[test]
fn a_phone_behind_a_translator_is_called_where_it_is_and_its_dialog_leads_there() {
    let own = "[\"sip:dora@example.org\"]";
    let settings = failure("on", "[\"486\"]", own, "")
        + &rule("direct", own, "")
        + &rule("then", &format!("[\"sip:{GATEWAY}\", \"sip:dora@example.org\"]"), "")
        + &rule("failed", &format!("[\"sip:{GATEWAY}\"]"), "on_failure = [\"on\"]");
    let mut site = office(&settings);
    register(&mut site, "dora", CLEO, "<sip:dora@dora.invalid>");
    for (n, user) in [(1, "direct"), (2, "then"), (3, "failed")] {
        let mut got = calls(&mut site, n, user);
        if user != "direct" {
            let gateway = goes(&got);
            assert_eq!(gateway.0, GATEWAY);
            got = receive(&mut site, GATEWAY, &answer(&gateway.1, 486, ""));
        }
        let dora = goes(&got);
        assert_eq!((&*dora.0, uri(&dora.1)), (CLEO, "sip:dora@dora.invalid"), "{user}");
        let ok = takes(&mut site, &dora);
        let (_, ok) = ok.iter().find(|(at, _)| at == ALICE).expect("the caller has it");
        let contact = line(ok, "Contact").trim_matches(['<', '>']).to_owned();
        let routes = ok.split("\r\n").filter_map(|line| line.strip_prefix("Record-Route: "));
        let route: String = routes.map(|route| format!("Route: {route}\r\n")).collect();
        let to = line(ok, "To");
        let ack = request(n, "ACK", &contact, &route).replace(&format!("To: <{contact}>"), &format!("To: {to}"));
        let got = receive(&mut site, ALICE, &ack.replace("bKd", "bKa"));
        assert!(
            matches!(&got[..], [(at, text)] if at == CLEO && text.starts_with("ACK sip:dora@dora.invalid")),
            "{got:?}"
        );
    }
}

/// Checks that the address is no target: the sender of the REGISTER may not name it, and no rule names it in place of
/// the sender.
#[test]
fn a_binding_reached_by_a_rule_is_a_target_of_its_sender() {
    let rule = rule("sales", "[\"sip:dora@example.org\", \"sip:ben@example.org\"]", "at_once = true");
    let mut site = office(&format!("registrar.path = \"keep\"\n{rule}"));
    for (n, inner, wanted) in [(1, "10.1.2.9:5060", &[BEN][..]), (2, "127.0.0.1:6379", &[BEN]), (3, CLEO, &[BEN, CLEO])]
    {
        let path = format!("<sip:dora@{CLEO}>;expires=3600\r\nSupported: path\r\nPath: <sip:{inner};lr>\r\nX: <");
        register(&mut site, "dora", CLEO, &path);
        let all = rings(&calls(&mut site, n, "sales"));
        assert_eq!(phones(&all), wanted, "{inner}");
    }
}

/// Checks that a caller from outside needs no password for a local user, who is no foreign server.
#[test]
fn callers_from_outside_reach_users_by_rules_without_a_password() {
    let settings = rule("sales", "[\"sip:ben@example.org\"]", "") + &rule("out", "[\"sip:203.0.113.1\"]", "");
    let mut site = Site::new(&format!("registrar.authenticate = false\n{settings}"));
    phone(&mut site, "ben", BEN);
    assert_eq!(phones(&rings(&calls(&mut site, 1, "sales"))), [BEN]);
    let refused = calls(&mut site, 2, "out");
    assert_eq!((statuses(&refused, ALICE), invites(&refused).len()), (vec![407], 0));
}

#[test]
fn a_record_has_the_number_that_was_dialled_and_the_phone_that_answered() {
    let settings = "accounting.cdr = true\ndialogs.track = true\n[[call_limit]]\nname = \"sales\"\nmost = 1\n"
        .to_owned()
        + &failure("busy", "[\"486\"]", "[\"sip:cleo@example.org\"]", "")
        + &rule("sales", USERS, "at_once = true\non_failure = [\"busy\"]\ncall_limits = [\"sales\"]");
    let mut site = office(&settings);
    let all = rings(&calls(&mut site, 1, "sales"));
    assert_eq!(site.shared.call_limits.list()[0].1, 1, "three phones, one call");
    let cleo = goes(&answers(&mut site, &all, 486));
    assert_eq!(site.shared.call_limits.list()[0].1, 1);
    receive(&mut site, CLEO, &answer(&cleo.1, 180, ""));
    let got = takes(&mut site, &cleo);
    let (_, ok) = got.iter().find(|(at, _)| at == ALICE).expect("the caller has it");
    let routes = ok.split("\r\n").filter_map(|line| line.strip_prefix("Record-Route: "));
    let route: String = routes.map(|route| format!("Route: {route}\r\n")).collect();
    let contact = line(ok, "Contact").trim_matches(['<', '>']).to_owned();
    let bye = request(1, "BYE", &contact, &route).replace("CSeq: 1", "CSeq: 2").replace("bKd1", "bKb1");
    let bye = receive(&mut site, ALICE, &bye.replace(&format!("To: <{contact}>"), &format!("To: {}", line(ok, "To"))));
    let [(at, text)] = &bye[..] else { panic!("{bye:?}") };
    assert_eq!(at, CLEO);
    receive(&mut site, CLEO, &answer(text, 200, "").replace(";tag=t\r\n", "\r\n"));
    assert!(site.shared.call_limits.list().is_empty());
    let (cdrs, _) = rows(&mut site);
    let [cdr] = &cdrs[..] else { panic!("{cdrs:?}") };
    assert_eq!((&*cdr.caller, &*cdr.callee, &*cdr.gateway), ("sip:carol@example.net", "sip:sales@example.org", CLEO));
    assert_eq!((&*cdr.outcome, cdr.attempts), ("answered", 4));
}

#[test]
fn explain_shows_the_users_that_would_ring() {
    let settings = failure("busy", "[\"486\"]", USERS, "at_once = true")
        + &rule("hunt", &format!("[\"sip:anna@example.org\", \"sip:{GATEWAY}\"]"), "on_failure = [\"busy\"]")
        + &rule("ring", USERS, "at_once = true")
        + &rule("none", "[\"sip:dora@example.org\"]", "");
    let site = site(&settings);
    let explain = |user: &str| {
        let arrival =
            Arrival { transport: Transport::Udp, listener: ListenerId(0), remote: ALICE.parse().unwrap(), flow: None };
        let text = invite(1, &format!("sip:{user}@example.org"));
        site.engines[0]
            .explain(site.now, &arrival, text.as_bytes(), false, &|_, _| None)
            .expect("a request")
            .to_string()
    };
    let hunt = explain("hunt");
    assert!(
        hunt.contains("\nto      sip:anna@example.org, each phone of this user\nthen    sip:203.0.113.1:5060 at "),
        "{hunt}"
    );
    let failure = "failure 486: sip:anna@example.org and sip:dora@example.org and sip:ben@example.org\n";
    assert!(hunt.contains(failure), "{hunt}");
    let ring = explain("ring");
    let group = "\nto      sip:anna@example.org, each phone of this user\nwith    sip:dora@example.org, each phone of this user\nwith    sip:ben";
    assert!(ring.contains(group) && !ring.contains("next    after"), "{ring}");
    assert!(explain("none").contains("to      sip:dora@example.org, each phone of this user\n"));
}

/// Checks that the route token of a phone states the account of its user, for each user or group that was dialled.
#[test]
fn a_phone_that_a_rule_called_loses_its_dialogs_with_its_own_account() {
    let forward = failure("busy", "[\"486\"]", "[\"sip:ben@example.org\"]", "");
    let rules = rule("sales", "[\"sip:ben@example.org\"]", "at_once = true")
        + &rule("hunt", "[\"sip:cleo@example.org\", \"sip:ben@example.org\"]", "")
        + "[[rule]]\nname = \"anna\"\nwhen = \"request.user == 'anna'\"\non_failure = [\"busy\"]\n";
    let mut site = Site::new(&format!("registrar.authenticate = false\n{forward}{rules}"));
    for (user, at) in [("anna", ANNA), ("ben", BEN), ("cleo", CLEO)] {
        phone(&mut site, user, at);
    }
    let mut dialogs = Vec::new();
    for (n, user) in [(1, "sales"), (2, "hunt"), (3, "anna")] {
        let mut ringing = goes(&calls(&mut site, n, user));
        if ringing.0 != BEN {
            ringing = goes(&receive(&mut site, &ringing.0, &answer(&ringing.1, 486, "")));
        }
        assert_eq!(ringing.0, BEN, "{user}");
        assert_eq!(statuses(&takes(&mut site, &ringing), ALICE), [200]);
        dialogs.push((user, ringing.1));
    }
    let reaches_caller = |site: &mut Site, cseq: u32, (user, invite): &(&str, String)| {
        let info = of_bob("INFO", invite, "t198511001135060", cseq, "").replace("bKb", &format!("bKb{user}"));
        receive(site, BEN, &info).iter().any(|(at, text)| at == ALICE && text.starts_with("INFO "))
    };
    for removed in ["sales", "hunt", "anna", "cleo"] {
        site.shared.end_routes_of(removed.as_bytes(), b"example.org", site.now);
    }
    assert!(dialogs.iter().all(|dialog| reaches_caller(&mut site, 1, dialog)), "ben's account is there");
    site.shared.end_routes_of(b"ben", b"example.org", site.now);
    for dialog in &dialogs {
        assert!(!reaches_caller(&mut site, 2, dialog), "{}", dialog.0);
    }
}
