//! Loops and spirals (section 16.3 item 4, RFC 5393 section 4).

use crate::rig::*;

/// The request that was sent, with what another element made of its first line.
fn round(sent: &Sent, change: impl FnOnce(String) -> String) -> String {
    change(sent.text.replace("\r\n", "\n")).replacen(
        "Via: ",
        "Via: SIP/2.0/UDP 10.9.9.9:5060;branch=z9hG4bKother\nVia: ",
        1,
    )
}

fn is_loop(rig: &Rig, text: &str) -> bool {
    rig.routing(text, |proxy, request| proxy.is_loop(request))
}

#[test]
fn what_comes_round_unchanged_is_a_loop() {
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@example.net", "");
    assert!(!is_loop(&rig, &text));
    let sent = only(rig.request(&text, udp(ALICE), &to(BOB)));
    assert!(is_loop(&rig, &round(&sent, |t| t)));
    // Even a second time round.
    let again = only(rig.request(&round(&sent, |t| t), udp("10.9.9.9:5060"), &to(BOB)));
    assert!(is_loop(&rig, &round(&again, |t| t)));
}

#[test]
fn what_was_sent_elsewhere_meanwhile_is_a_spiral() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@example.net", ""), udp(ALICE), &to(BOB)));
    let spiral = round(&sent, |t| t.replace("INVITE sip:bob@example.net", "INVITE sip:carol@example.org"));
    assert!(!is_loop(&rig, &spiral));
    // And again with the Request-URI of its second visit: that one is a loop.
    let second = only(rig.request(&spiral, udp("10.9.9.9:5060"), &to(BOB)));
    assert!(is_loop(&rig, &round(&second, |t| t)));
    // Another Route decides another way.
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
