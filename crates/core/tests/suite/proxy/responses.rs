//! Forwarding of responses upstream (section 16.7).

use super::rig::*;

fn invited(rig: &mut Rig) -> Sent {
    only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)))
}

#[test]
fn a_100_stays_here_and_other_provisional_responses_pass() {
    let mut rig = Rig::new();
    let sent = invited(&mut rig);
    assert!(rig.answer(&sent, 100, "").is_empty());
    for status in [180, 181, 182, 183, 199, 180] {
        let up = only(rig.answer(&sent, status, ""));
        assert_eq!((up.status(), up.to().as_str(), up.all("Via").len()), (status, ALICE, 1));
    }
    rig.answer(&sent, 486, "");
    rig.end();
}

#[test]
fn only_an_invite_has_provisional_responses_but_100() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("MESSAGE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    assert!(rig.answer(&sent, 100, "").is_empty());
    // RFC 4320 section 4.1.
    assert!(rig.answer(&sent, 183, "").is_empty());
    assert_eq!(only(rig.answer(&sent, 200, "")).status(), 200);
    rig.end();
}

#[test]
fn every_2xx_goes_up_and_each_ack_down() {
    let mut rig = Rig::new();
    let sent = invited(&mut rig);
    let contact = "Contact: <sip:bob@10.2.2.2>\n";
    let first = only(rig.answer(&sent, 200, contact));
    // A copy while the caller's ACK is on the way.
    rig.pass(500);
    assert_eq!(only(rig.answer(&sent, 200, contact)).0, first.0);
    // A copy of the INVITE gets nothing: the callee repeats its 2xx (RFC 6026 section 7.1).
    let again = rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB));
    assert!(again.is_empty(), "{again:?}");
    let route = first.one("Record-Route");
    let ack = |branch: &str| {
        format!(
            "ACK sip:bob@10.2.2.2 SIP/2.0\nVia: SIP/2.0/UDP 10.1.1.1:5060;branch={branch}\nMax-Forwards: 70\nRoute: {route}\n\
             From: <sip:alice@example.org>;tag=alice\nTo: <sip:bob@example.org>;tag=at5060\nCall-ID: call@10.1.1.1\n\
             CSeq: 1 ACK\nContent-Length: 0\n"
        )
    };
    let one = only(rig.request(&ack("z9hG4bKack"), udp(ALICE), &[]));
    let two = only(rig.request(&ack("z9hG4bKack"), udp(ALICE), &[]));
    let other = only(rig.request(&ack("z9hG4bKack2"), udp(ALICE), &[]));
    assert_eq!((one.to().as_str(), one.method(), one.uri()), (BOB, "ACK", "sip:bob@10.2.2.2"));
    assert!(one.all("Route").is_empty() && one.one("Max-Forwards") == "69");
    assert_eq!(one.0, two.0);
    assert_ne!(one.branch(), other.branch());
    assert_ne!(one.branch(), sent.branch());
    // After 64*T1 no peer answers any more, and a stray 2xx goes nowhere (RFC 6026 section 7.3).
    rig.end();
    assert!(rig.answer(&sent, 200, contact).is_empty());
}

#[test]
fn a_failure_is_acknowledged_here_and_sent_until_its_ack_comes() {
    let mut rig = Rig::new();
    let sent = invited(&mut rig);
    let both = rig.answer(&sent, 486, "Reason: busy\n");
    assert_eq!(words(&both), ["ACK", "486"]);
    let (ack, up) = (&both[0], &both[1]);
    assert_eq!((ack.to().as_str(), ack.branch(), ack.one("To")), (BOB, sent.branch(), up.one("To")));
    assert_eq!((up.one("Reason"), up.to().as_str()), ("busy", ALICE));
    // A copy of it is acknowledged again and does not go up.
    assert_eq!(words(&rig.answer(&sent, 486, "Reason: busy\n")), ["ACK"]);
    let again: Vec<u64> = rig.pass(3_600).into_iter().map(|(at, s)| (s.status(), at).1).collect();
    assert_eq!(again, [500, 1_500, 3_500]);
    let ack = alice("INVITE", "sip:bob@10.2.2.2", "").replace("INVITE sip", "ACK sip").replace("1 INVITE", "1 ACK");
    assert!(rig.request(&ack, udp(ALICE), &to(BOB)).is_empty());
    assert!(rig.pass(20_000).is_empty());
    rig.end();
}

#[test]
fn one_final_response_of_another_request() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("MESSAGE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    let up = only(rig.answer(&sent, 202, ""));
    assert!(rig.answer(&sent, 202, "").is_empty());
    // The copy of the request gets the copy of the response.
    let again = rig.request(&alice("MESSAGE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB));
    assert_eq!(only(again).0, up.0);
    rig.end();
}

#[test]
fn a_503_becomes_a_500() {
    let mut rig = Rig::new();
    let sent = invited(&mut rig);
    let both = rig.answer(&sent, 503, "Retry-After: 60\n");
    assert_eq!(words(&both), ["ACK", "500"]);
    assert_eq!(both[1].start(), "SIP/2.0 500 Server Internal Error");
    assert_eq!(both[1].all("Via").len(), 1);
    assert!(both[1].all("Retry-After").is_empty());
    rig.end();
    // Retry-After of another server in a 500 stays.
    let mut rig = Rig::new();
    let sent = invited(&mut rig);
    assert_eq!(rig.answer(&sent, 500, "Retry-After: 60\n")[1].all("Retry-After"), ["60"]);
    rig.end();
}

#[test]
fn a_late_response_without_a_transaction_goes_nowhere() {
    let mut rig = Rig::new();
    let sent = invited(&mut rig);
    let mut stray = sent.clone();
    stray.message.0 = stray.0.replace(sent.branch(), "z9hG4bKsomebodyelse");
    assert!(rig.answer(&stray, 200, "").is_empty());
    assert!(rig.answer(&stray, 180, "").is_empty());
    rig.answer(&sent, 404, "");
    // A 180 after the end is too late.
    assert!(rig.answer(&sent, 180, "").is_empty());
    rig.end();
}

#[test]
fn a_response_without_a_second_via_stays_here() {
    for method in ["INVITE", "MESSAGE"] {
        let mut rig = Rig::new();
        let sent = only(rig.request(&alice(method, "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
        let mut cut = sent.clone();
        let lower = cut.0.rfind("Via: ").expect("the caller's");
        let end = lower + cut.0[lower..].find("\r\n").expect("lines end") + 2;
        cut.message.0.replace_range(lower..end, "");
        assert!(rig.answer(&cut, 180, "").is_empty());
        let said = rig.answer(&cut, 486, "");
        assert!(said.iter().all(|s| !s.start().starts_with("SIP/2.0")), "{said:?}");
        rig.end();
    }
}
