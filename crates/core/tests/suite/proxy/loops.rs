//! Loops and spirals (section 16.3 item 4, RFC 5393 section 4).

use super::rig::*;
use strowger_core::proxy::ProxySettings;

/// Returns the forwarded request after another element has changed its first line.
fn round(sent: &Sent, change: impl FnOnce(String) -> String) -> String {
    change(sent.0.replace("\r\n", "\n")).replacen(
        "Via: ",
        "Via: SIP/2.0/UDP 10.9.9.9:5060;branch=z9hG4bKother\nVia: ",
        1,
    )
}

fn is_loop(rig: &Rig, text: &str) -> bool {
    rig.routing(text, |router, request| router.is_loop(request))
}

#[test]
fn an_unchanged_request_that_returns_is_a_loop() {
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@example.net", "");
    assert!(!is_loop(&rig, &text));
    let sent = only(rig.request(&text, udp(ALICE), &to(BOB)));
    assert!(is_loop(&rig, &round(&sent, |t| t)));
    // Even after a second round.
    let again = only(rig.request(&round(&sent, |t| t), udp("10.9.9.9:5060"), &to(BOB)));
    assert!(is_loop(&rig, &round(&again, |t| t)));
}

/// Returns the forwarded request as it comes straight back, with our own Via on top.
fn straight(sent: &Sent) -> String {
    sent.0.replace("\r\n", "\n")
}

#[test]
fn a_request_that_comes_straight_back_is_a_loop() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("MESSAGE", "sip:bob@example.net", ""), udp(ALICE), &to(BOB)));
    assert!(is_loop(&rig, &straight(&sent)));
    assert!(!is_loop(&rig, &straight(&sent).replace("MESSAGE sip:bob@", "MESSAGE sip:carol@")));
}

#[test]
fn a_request_that_comes_straight_back_keeps_its_share_of_branches() {
    const MOST: u16 = 20;
    let mut rig = Rig::with(ProxySettings { max_branches: MOST, ..ProxySettings::default() });
    let mut waiting = vec![alice("MESSAGE", "sip:bob@example.net", "")];
    let (mut sent, mut arrival) = (0, udp(ALICE));
    while let Some(text) = waiting.pop() {
        let contacts: Vec<Try> = (0..4)
            .map(|n| Try { uri: Some(format!("sip:bob{n}-{sent}@example.net")), ..to("10.0.0.1:5060").remove(0) })
            .collect();
        let out = rig.request(&text, arrival, &contacts);
        sent += out.iter().filter(|s| s.status() == 0).count();
        waiting.extend(out.iter().filter(|s| s.status() == 0).map(straight));
        arrival = udp("10.0.0.1:5060");
    }
    assert!(sent > 4 && sent <= MOST.into(), "{sent} requests");
}

#[test]
fn a_request_with_a_new_uri_is_a_spiral() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@example.net", ""), udp(ALICE), &to(BOB)));
    let spiral = round(&sent, |t| t.replace("INVITE sip:bob@example.net", "INVITE sip:carol@example.org"));
    assert!(!is_loop(&rig, &spiral));
    // A second visit of the request with the same Request-URI is a loop.
    let second = only(rig.request(&spiral, udp("10.9.9.9:5060"), &to(BOB)));
    assert!(is_loop(&rig, &round(&second, |t| t)));
    // Another Route is another routing decision.
    let routed = round(&sent, |t| t.replacen("Max-Forwards", "Route: <sip:10.8.8.8;lr>\nMax-Forwards", 1));
    assert!(!is_loop(&rig, &routed));
}

#[test]
fn the_next_try_of_a_call_is_no_loop() {
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@example.net", "");
    let sent = only(rig.request(&text, udp(ALICE), &to(BOB)));
    let next = round(&sent, |t| t.replace("CSeq: 1", "CSeq: 2"));
    assert!(!is_loop(&rig, &next));
    // Via branches of others that look like ours.
    let strange = text.replace("bKaINVITE", "bK0123456789abcdef0123456789abcde\u{e9}");
    assert!(!is_loop(&rig, &round(&sent, |_| strange)));
}
