//! Change of the configuration while requests wait, ring and arrive: each request keeps the configuration that was
//! current when it arrived.

use crate::site::*;
use std::sync::Arc;
use strowger_core::call;
use strowger_server::engine::EngineInput;

/// Starts a site at which bob has two phones, the second to be tried after the first.
fn site(settings: &str) -> Site {
    let mut site = Site::new(settings);
    site.register(&format!("<sip:bob1@{BOB}>;q=1.0"));
    site.register(&format!("<sip:bob2@{BOB}>;q=0.5"));
    site
}

#[test]
fn new_requests_use_the_new_policy() {
    let mut site = site(ONE);
    let before = site.receive(ALICE, &invite(1, 1, ""));
    assert_eq!(line(&before, "Server"), "one");
    site.reload(TWO);
    let after = site.receive(ALICE, &invite(2, 1, ""));
    assert_eq!(line(&after, "Server"), "two");
    site.reload(&format!("{TWO}auth.calls = false\n"));
    assert_eq!(is_forwarded_by(&site.receive(ALICE, &invite(3, 1, ""))), "two", "without a password");
    site.reload(&format!("{ONE}realm = \"elsewhere\"\n"));
    let realm = site.receive(ALICE, &invite(4, 1, ""));
    assert!(line(&realm, "Proxy-Authenticate").contains("realm=\"elsewhere\""), "{realm}");
}

#[test]
fn a_request_that_waits_keeps_its_own() {
    let mut site = site(ONE);
    let challenged = site.receive(ALICE, &invite(0, 1, ""));
    let text = authorized(1, &challenged, 1);
    assert_eq!(site.receive(ALICE, &text), "", "it waits for the database");
    site.reload(TWO);
    assert_eq!(is_forwarded_by(&site.answer()), "one");
    // The earlier nonce is still valid.
    let text = authorized(2, &challenged, 2);
    assert_eq!(site.receive(ALICE, &text), "");
    assert_eq!(is_forwarded_by(&site.answer()), "two");
    let replayed = authorized(3, &challenged, 2);
    assert_eq!(site.receive(ALICE, &replayed), "");
    assert!(line(&site.answer(), "Proxy-Authenticate").contains("stale=true"), "its use was not forgotten");
}

#[test]
fn a_request_that_waits_keeps_its_own_in_another_shard() {
    let mut site = site(ONE);
    let challenged = site.receive(ALICE, &invite(0, 1, ""));
    let text = authorized(1, &challenged, 1);
    assert_eq!(site.receive(ALICE, &text), "");
    site.reload(TWO);
    let bucket = call::bucket(call::hash(CALL_SECRET, b"1"));
    let records = site.engines[0].export(site.now, bucket);
    assert!(site.engines[0].waiting().is_nothing());
    for record in records {
        let sent = site.work_at(1, |engine, now, out| engine.import(now, record, out));
        assert_eq!(sent, "", "it asks again");
    }
    let answer = site.known();
    let forwarded = site.work_at(1, |engine, now, out| engine.answered(now, answer, out));
    assert_eq!(is_forwarded_by(&forwarded), "one");
}

#[test]
fn waiting_messages_are_not_counted_again_in_another_shard() {
    let mut site = site(ONE);
    let challenged = site.receive(ALICE, &invite(0, 1, ""));
    let text = authorized(1, &challenged, 1);
    assert_eq!(site.receive(ALICE, &text), "");
    let behind = text.replace("INVITE", "MESSAGE").replace("branch=z9hG4bK", "branch=z9hG4bKbehind");
    assert_eq!(site.receive(ALICE, &behind), "", "it waits behind the other");
    let counted = site.shared.received();
    assert_eq!(site.engines[0].waiting().messages(), 2);
    for record in site.engines[0].export(site.now, call::bucket(call::hash(CALL_SECRET, b"1"))) {
        site.work_at(1, |engine, now, out| engine.import(now, record, out));
    }
    assert_eq!((site.engines[0].waiting().messages(), site.engines[1].waiting().messages()), (0, 2));
    assert_eq!(site.shared.received(), counted);
}

#[test]
fn a_message_that_is_held_back_keeps_its_own() {
    for moves in [false, true] {
        let mut site = site(ONE);
        let challenged = site.receive(ALICE, &invite(0, 1, ""));
        assert_eq!(site.receive(ALICE, &authorized(1, &challenged, 1)), "", "it waits for the database");
        assert_eq!(site.receive(ALICE, &invite(1, 3, "")), "", "and this one behind it");
        site.reload(TWO);
        let mut shard = 0;
        if moves {
            let bucket = call::bucket(call::hash(CALL_SECRET, b"1"));
            for record in site.engines[0].export(site.now, bucket) {
                let sent = site.work_at(1, |engine, now, out| engine.import(now, record, out));
                assert_eq!(sent, "");
            }
            shard = 1;
        }
        let answer = site.known();
        let sent = site.work_at(shard, |engine, now, out| engine.answered(now, answer, out));
        let held = sent.find("SIP/2.0 407 ").expect("it is challenged");
        assert_eq!((is_forwarded_by(&sent), line(&sent[held..], "Server")), ("one", "one"), "moves: {moves}");
    }
}

#[test]
fn a_request_that_rings_keeps_its_own() {
    let free = "auth.calls = false\n";
    let mut site = site(&format!("{ONE}{free}"));
    let first = site.receive(ALICE, &invite(1, 1, ""));
    assert!(first.contains("INVITE sip:bob1@") && is_forwarded_by(&first) == "one", "{first}");
    let one = Arc::downgrade(&site.shared.policy());
    site.reload(&format!("{TWO}{free}"));
    // The phone refuses, and the next one is tried: its request is written like the first.
    let request = first[first.find("INVITE sip:").expect("it was forwarded")..].to_owned();
    let second = site.receive(BOB, &response(&request, "486 Busy Here"));
    assert!(second.contains("INVITE sip:bob2@") && is_forwarded_by(&second) == "one", "{second}");
    // Another request rings under the other configuration.
    let other = site.receive(ALICE, &invite(2, 1, ""));
    assert!(other.contains("INVITE sip:bob1@") && is_forwarded_by(&other) == "two", "{other}");
    assert!(
        !site.wait(5_100).contains("CANCEL"),
        "of the second phone nothing waits, and the other call rings for 9 s"
    );
    site.shared.drop_retired();
    assert_eq!(one.upgrade().map(|policy| policy.config.server.software.clone()), None, "the shards have given it up");
}

#[test]
fn a_policy_that_nothing_goes_by_is_forgotten() {
    let mut site = site(ONE);
    let challenged = site.receive(ALICE, &invite(0, 1, ""));
    let text = authorized(1, &challenged, 1);
    assert_eq!(site.receive(ALICE, &text), "");
    let waits = Arc::downgrade(&site.shared.policy());
    let passed = site.reload(TWO);
    site.reload(ONE);
    // A shard frees no policy: data sets are large.
    assert_eq!((waits.strong_count() > 1, passed.strong_count()), (true, 1));
    site.shared.drop_retired();
    assert_eq!((waits.strong_count() > 1, passed.strong_count()), (true, 0));
    site.answer();
    assert_eq!(waits.strong_count(), 1, "the request that waited was the last");
    site.shared.drop_retired();
    assert_eq!(waits.strong_count(), 0);
}

#[test]
fn bounds_follow() {
    let mut site = site("auth.calls = false\n");
    site.reload("auth.calls = false\nlimits.transactions = 100\n");
    let sent: Vec<String> = (0..60).map(|number| site.receive(ALICE, &invite(number, 1, ""))).collect();
    let refused = sent.iter().filter(|sent| sent.starts_with("SIP/2.0 503 ")).count();
    assert!(refused >= 10, "an INVITE has two transactions: {refused}");
    site.reload("auth.calls = false\nlimits.transactions = 1000\n");
    assert!(site.receive(ALICE, &invite(100, 1, "")).contains("INVITE sip:bob1@"));
}

#[test]
fn pings_begin_and_end() {
    let mut site = site("nat.ping_interval = \"never\"\n");
    assert!(!site.wait(60_000).contains("OPTIONS"));
    assert!(site.engines[0].deadline().is_none_or(|at| at > site.now.mono + 10_000));
    site.reload("nat.ping_interval = \"1s\"\n");
    assert!(site.engines[0].deadline().is_some_and(|at| at <= site.now.mono + 1_000), "a round begins");
    site.reload("nat.ping_interval = \"never\"\n");
    assert!(site.engines[0].deadline().is_none_or(|at| at > site.now.mono + 10_000));
}

#[test]
fn other_data_are_a_policy_that_differs_in_nothing_else() {
    let rules = "[[set]]\nname = \"closed\"\nentries = [\"x\"]\n\
                 [[rule]]\nname = \"closed\"\nwhen = \"request.user in closed\"\nanswer = 486\n";
    let mut site = site(&format!("{ONE}auth.calls = false\n{rules}"));
    let first = site.receive(ALICE, &invite(1, 1, ""));
    assert_eq!(is_forwarded_by(&first), "one");
    let decisions = site.shared.policy().config.decisions.clone();
    let set = strowger_rules::Set::new(strowger_rules::LookupKind::Texts, [("bob", None::<&str>)]).expect("a set");
    let policy = site.shared.set_decisions(Arc::new(decisions.with_set("closed", Arc::new(set))));
    assert_eq!((site.shared.reloads(), site.shared.configurations()), (1, 0));
    // Until the shard has the policy, the earlier data count.
    assert_eq!(is_forwarded_by(&site.receive(ALICE, &invite(2, 1, ""))), "one");
    let (now, answer) = (site.now, EngineInput::Policy(policy));
    site.work(|engine, _, out| engine.answered(now, answer, out));
    let refused = site.receive(ALICE, &invite(3, 1, ""));
    assert!(refused.contains("SIP/2.0 486 ") && line(&refused, "Server") == "one", "{refused}");
}
