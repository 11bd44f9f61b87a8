//! Failover: next address after a failure (RFC 3263 section 4.3), large requests by TCP (section 18.1.1), transport failures (section
//! 16.9).

use super::rig::*;
use std::sync::Arc;
use strowger_core::proxy::{FailedTarget, Plan, ProxySettings, TargetFailure, TryNext, UdpOnly};
use strowger_core::{Target, Transport};

fn two() -> Vec<Try> {
    vec![Try { at: vec![at("10.3.3.1:5060"), at("10.3.3.2:5060")], q: 1000, ..Try::default() }]
}

#[test]
fn a_503_leads_to_the_next_address_and_at_last_to_500() {
    let mut rig = Rig::new();
    let first = only(rig.request(&alice("INVITE", "sip:bob@example.net", ""), udp(ALICE), &two()));
    assert_eq!(first.to(), "10.3.3.1:5060");
    let next = rig.answer(&first, 503, "");
    assert_eq!((words(&next), next[1].to().as_str()), (vec!["ACK".into(), "INVITE".into()], "10.3.3.2:5060"));
    assert_ne!(next[1].branch(), first.branch());
    assert_eq!(words(&rig.answer(&next[1], 503, "")), ["ACK", "500"]);
    rig.end();
    // Only a 503 does: a busy user is not searched elsewhere.
    let mut rig = Rig::new();
    let first = only(rig.request(&alice("INVITE", "sip:bob@example.net", ""), udp(ALICE), &two()));
    assert_eq!(words(&rig.answer(&first, 486, "")), ["ACK", "486"]);
    rig.end();
}

/// Checks that a request is no further load for a cluster whose members are overloaded. Other failures than a 503 do not count.
#[test]
fn a_503_is_tried_at_one_other_address_at_most() {
    let four = || {
        let addresses = ["10.3.3.1:5060", "10.3.3.2:5060", "10.3.3.3:5060", "10.3.3.4:5060"];
        vec![Try { at: addresses.map(at).to_vec(), q: 1000, ..Try::default() }]
    };
    let mut rig = Rig::new();
    let first = only(rig.request(&alice("MESSAGE", "sip:bob@example.net", ""), udp(ALICE), &four()));
    let second = only(rig.answer(&first, 503, ""));
    assert_eq!(second.to(), "10.3.3.2:5060");
    assert_eq!(words(&rig.answer(&second, 503, "")), ["500"]);
    rig.end();
    let mut rig = Rig::new();
    let first = only(rig.request(&alice("MESSAGE", "sip:bob@example.net", ""), udp(ALICE), &four()));
    let second = only(rig.fail(&first));
    let third = only(rig.answer(&second, 503, ""));
    assert_eq!(third.to(), "10.3.3.3:5060");
    assert_eq!(words(&rig.answer(&third, 503, "")), ["500"]);
    rig.end();
    // A plan that names 503 goes on.
    let mut rig = Rig::new();
    rig.plan = Plan { try_next: TryNext::On(&[503]), ..Plan::default() };
    let mut sent = only(rig.request(&alice("MESSAGE", "sip:bob@example.net", ""), udp(ALICE), &four()));
    for to in ["10.3.3.2:5060", "10.3.3.3:5060", "10.3.3.4:5060"] {
        sent = only(rig.answer(&sent, 503, ""));
        assert_eq!(sent.to(), to);
    }
    rig.end();
}

#[test]
fn the_second_address_answers_as_if_it_were_the_first() {
    let mut rig = Rig::new();
    let first = only(rig.request(&alice("MESSAGE", "sip:bob@example.net", ""), udp(ALICE), &two()));
    let second = only(rig.answer(&first, 503, ""));
    assert_eq!(only(rig.answer(&second, 200, "")).status(), 200);
    rig.end();
}

#[test]
fn another_flow_of_a_device_gets_the_contact_that_it_registered() {
    let at = two().remove(0).at;
    let flows = vec![(at[1], "sip:older@a.invalid".into(), String::new())];
    let device = Try { uri: Some("sip:newer@b.invalid".into()), flows, at, q: 1000, fixed: true, ..Try::default() };
    let mut rig = Rig::new();
    let first =
        only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), std::slice::from_ref(&device)));
    assert_eq!((first.uri(), first.to().as_str()), ("sip:newer@b.invalid", "10.3.3.1:5060"));
    let next = rig.answer(&first, 503, "").pop().expect("the other flow");
    assert_eq!((next.uri(), next.to().as_str()), ("sip:older@a.invalid", "10.3.3.2:5060"));
    assert_eq!(words(&rig.answer(&next, 486, "")), ["ACK", "486"]);
    rig.end();
    // Alone, and in a group.
    let older = Try { at: vec![device.at[1]], ..device };
    for tries in [vec![older.clone()], vec![older, contact("10.2.2.2:5060", 1000)]] {
        let mut rig = Rig::new();
        let sent = rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &tries);
        assert_eq!(sent[0].uri(), "sip:older@a.invalid");
    }
}

/// Each flow has an edge proxy of its own (RFC 5626 sections 7 and 11.5).
#[test]
fn a_flow_that_has_failed_at_its_edge_leads_to_the_next_flow_of_the_device() {
    let at = two().remove(0).at;
    let [newer, older] = ["<sip:edge1.example.net;lr;ob>", "<sip:edge2.example.net;lr;ob>"];
    let flows = vec![(at[1], "sip:older@a.invalid".into(), older.into())];
    let device =
        [Try { uri: Some("sip:newer@b.invalid".into()), path: newer.into(), flows, at, q: 1000, ..Try::default() }];
    let request = || {
        let mut rig = Rig::new();
        let first = only(rig.request(&alice("MESSAGE", "sip:bob@example.org", ""), udp(ALICE), &device));
        assert_eq!((first.uri(), first.to().as_str()), ("sip:newer@b.invalid", "10.3.3.1:5060"));
        assert_eq!(first.all("Route"), [newer]);
        (rig, first)
    };
    let (mut rig, first) = request();
    let next = only(rig.answer(&first, 430, ""));
    assert_eq!((next.uri(), next.to().as_str()), ("sip:older@a.invalid", "10.3.3.2:5060"));
    assert_eq!(next.all("Route"), [older]);
    assert_eq!(only(rig.answer(&next, 430, "")).status(), 480, "no endpoint gets a 430");
    rig.end();
    let (mut rig, first) = request();
    assert_eq!(only(rig.answer(&first, 486, "")).status(), 486, "the phone has answered");
    rig.end();
}

#[test]
fn silence_leads_to_the_next_address_too() {
    let mut rig = Rig::new();
    rig.request(&alice("INVITE", "sip:bob@example.net", ""), udp(ALICE), &two());
    let all = rig.pass(33_000);
    let second = &all.iter().find(|(_, s)| s.to() == "10.3.3.2:5060").expect("the second address").1;
    assert!(all.iter().all(|(_, s)| s.to() != ALICE));
    let up = rig.answer(second, 200, "Contact: <sip:bob@10.3.3.2>\n");
    assert_eq!(words(&up), ["200"]);
    rig.end();
}

#[test]
fn an_unsent_request_counts_as_503() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    let up = only(rig.fail(&sent));
    assert_eq!((up.status(), up.to().as_str()), (500, ALICE));
    assert_eq!(up.all("Via"), ["SIP/2.0/UDP 10.1.1.1:5060;branch=z9hG4bKaINVITE"]);
    rig.end();
    let mut rig = Rig::new();
    let first = only(rig.request(&alice("MESSAGE", "sip:bob@example.net", ""), udp(ALICE), &two()));
    let second = only(rig.fail(&first));
    assert_eq!(second.to(), "10.3.3.2:5060");
    assert_eq!(only(rig.fail(&second)).status(), 500);
    rig.end();
}

#[test]
fn one_branch_that_fails_does_not_end_the_others() {
    let mut rig = Rig::new();
    let contacts = ["10.2.2.1:5060", "10.2.2.2:5060"].map(|a| contact(a, 1000));
    let sent = rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &contacts);
    assert!(rig.fail(&sent[0]).is_empty());
    assert_eq!(words(&rig.answer(&sent[1], 200, "Contact: <sip:b@10.2.2.2>\n")), ["200"]);
    rig.end();
}

/// Returns a rig, and a forwarded request that is too large for UDP.
fn large(settings: ProxySettings, fixed: bool) -> (Rig, Sent) {
    let mut rig = Rig::with(settings);
    let mut tries = to(BOB);
    tries[0].fixed = fixed;
    let lines = format!("X-Large: {}\n", "x".repeat(1_300));
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", &lines), udp(ALICE), &tries));
    (rig, sent)
}

#[test]
fn a_large_request_goes_by_tcp_and_by_udp_if_that_fails() {
    let (mut rig, sent) = large(ProxySettings::default(), false);
    assert_eq!((sent.target.transport, sent.target.listener, sent.to().as_str()), (Transport::Tcp, TCP, BOB));
    assert!(sent.one("Via").starts_with("SIP/2.0/TCP 10.0.0.1:5060;"));
    assert!(sent.has_fallback, "it waits for no connection for long");
    let next = only(rig.fail(&sent));
    assert_eq!((next.target.transport, next.to().as_str(), next.has_fallback), (Transport::Udp, BOB, false));
    // Also for a target that is no next hop of a rule.
    let failed: Vec<FailedTarget> = rig.proxy.failed_targets().drain(..).collect();
    assert_eq!(failed, [FailedTarget { target: sent.target, failure: TargetFailure::NoTcp }]);
    assert!(next.one("Via").starts_with("SIP/2.0/UDP 10.0.0.1:5060;"));
    assert_ne!(next.branch(), sent.branch());
    assert_eq!(words(&rig.answer(&next, 200, "Contact: <sip:b@10.2.2.2>\n")), ["200"]);
    rig.end();
}

#[test]
fn a_large_request_goes_by_udp_at_once_where_tcp_failed_lately() {
    let table = Arc::new(UdpOnly::default());
    table.insert(at(BOB).address, NOW.mono);
    let first = |address: &str, after: u64| {
        let mut rig = Rig::new();
        rig.proxy.set_udp_only(table.clone());
        rig.now.mono += after;
        let lines = format!("X-Large: {}\n", "x".repeat(1_300));
        let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", &lines), udp(ALICE), &to(address)));
        (sent.target.transport, sent.has_fallback)
    };
    assert_eq!(first(BOB, 0), (Transport::Udp, false));
    assert_eq!(first(BOB, UdpOnly::TIME - 1), (Transport::Udp, false));
    assert_eq!(first(BOB, UdpOnly::TIME), (Transport::Tcp, true), "its time is over");
    assert_eq!(first("10.2.2.2:5080", 0), (Transport::Tcp, true), "another address");
}

/// Covers a name that offers TCP and UDP and so has two targets. The TCP target has the full connection time-out.
#[test]
fn a_target_by_tcp_of_its_own_is_tried_once_and_waited_for() {
    let tcp = Target { transport: Transport::Tcp, listener: TCP, ..at(BOB) };
    let tries = [Try { at: vec![tcp, at(BOB)], q: 1000, watched: true, ..Try::default() }];
    let lines = format!("X-Large: {}\n", "x".repeat(1_300));
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", &lines), udp(ALICE), &tries));
    assert_eq!((sent.target, sent.has_fallback), (tcp, false));
    let next = only(rig.fail(&sent));
    assert_eq!(next.target.transport, Transport::Udp);
    let failed: Vec<TargetFailure> = rig.proxy.failed_targets().drain(..).map(|failed| failed.failure).collect();
    assert_eq!(failed, [TargetFailure::Unsent]);
}

#[test]
fn a_large_request_stays_where_it_must() {
    // The flow of a binding, and the setting switched off.
    assert_eq!(large(ProxySettings::default(), true).1.target.transport, Transport::Udp);
    assert_eq!(
        large(ProxySettings { tcp_above: None, ..ProxySettings::default() }, false).1.target.transport,
        Transport::Udp
    );
    assert_eq!(
        large(ProxySettings { tcp_above: Some(9_000), ..ProxySettings::default() }, false).1.target.transport,
        Transport::Udp
    );
    // No TCP listener of that family.
    let mut rig = Rig::new();
    let target = Target { listener: SIX, address: "[2001:db8::9]:5060".parse().unwrap(), ..at(BOB) };
    let tries = [Try { at: vec![target], q: 1000, ..Try::default() }];
    let lines = format!("X-Large: {}\n", "x".repeat(1_300));
    let sent = only(rig.request(&alice("INVITE", "sip:bob@[2001:db8::9]", &lines), udp(ALICE), &tries));
    assert_eq!(sent.target, target);
}

#[test]
fn over_a_stream_nothing_is_sent_twice_and_time_still_ends() {
    let mut rig = Rig::new();
    let target = Target { transport: Transport::Tcp, listener: TCP, ..at(BOB) };
    let tries = [Try { at: vec![target], q: 1000, ..Try::default() }];
    let came = by(TCP, Transport::Tcp, "10.1.1.1:40000");
    rig.request(&alice("INVITE", "sip:bob@10.2.2.2;transport=tcp", ""), came, &tries);
    let all = rig.pass(33_000);
    let (_, up) = all.first().expect("a final response");
    assert_eq!((all.len() > 1, up.status(), up.target.flow), (false, 408, came.flow));
    rig.end();
}
