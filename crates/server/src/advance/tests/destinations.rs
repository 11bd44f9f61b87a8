//! Destinations of requests: addresses, names, registered users, Contacts of calls.

use super::*;

#[test]
fn destinations_of_requests() {
    let engine = engine("");
    let to = |uri: &str, answers: Answers| says(&engine, Stage::Route, answers, &text("MESSAGE", uri, ALICE, ""));
    let targets = |addresses: &[&str]| addresses.iter().map(|address| target(address)).collect();
    let hop = |addresses: &[&str], otherwise| {
        Verdict::Forward(Destination::NextHop { targets: targets(addresses), otherwise })
    };
    // An address, a name, a name that leads nowhere.
    assert_eq!(to("sip:carol@203.0.113.9", Answers::default()), hop(&["203.0.113.9:5060"], 500));
    assert_eq!(to("sip:carol@example.net", Answers::default()), Verdict::Ask(Question::Name(name("example.net"))));
    assert_eq!(to("sip:carol@example.net", leads("example.net", "203.0.113.9:5070")), hop(&["203.0.113.9:5070"], 500));
    let nowhere = Answers { names: vec![(name("example.net"), Resolved::default())], ..Answers::default() };
    assert_eq!(to("sip:carol@example.net", nowhere), hop(&[], 500));
    // A name may resolve to no address beyond the reach of its sender, such as one of this machine.
    assert_eq!(to("sip:carol@example.net", leads("example.net", "127.0.0.1:22")), hop(&[], 500));
    assert_eq!(to("urn:example:other", Answers::default()), hop(&[], 404));
}

/// Returns the BYE of a caller whose callee has this Contact.
fn after_a_call(engine: &mut Engine, contact: &str) -> String {
    const CALLEE: &str = "203.0.113.9:5060";
    let sent = |out: &Outbox, start: &str| {
        let texts = out.sends().iter().map(|send| String::from_utf8(out.bytes[send.range()].to_vec()).unwrap());
        texts.into_iter().find(|text| text.starts_with(start)).unwrap()
    };
    let tagged = |text: &str| text.replace("To: <sip:bob@example.org>", "To: <sip:bob@example.org>;tag=b");
    let mut out = Outbox::new();
    engine.receive(NOW, &arrival(), text("INVITE", &format!("sip:carol@{CALLEE}"), GUEST, "").as_bytes(), &mut out);
    let (mut answer, invite) = (String::from("SIP/2.0 200 OK\r\n"), sent(&out, "INVITE "));
    for name in ["Via: ", "Record-Route: ", "From: ", "To: ", "Call-ID: ", "CSeq: "] {
        invite.lines().filter(|line| line.starts_with(name)).for_each(|line| answer += &format!("{line}\r\n"));
    }
    answer += &format!("Contact: <{contact}>\r\nContent-Length: 0\r\n\r\n");
    let (from, mut out) = (Arrival { remote: CALLEE.parse().unwrap(), ..arrival() }, Outbox::new());
    engine.receive(NOW, &from, tagged(&answer).as_bytes(), &mut out);
    let answer = sent(&out, "SIP/2.0 200 ");
    let route = answer.lines().find_map(|line| line.strip_prefix("Record-Route: ")).unwrap();
    let bye = text("BYE", contact, GUEST, &format!("Route: {route}\r\n"));
    tagged(&bye).replace("branch=z9hG4bK1", "branch=z9hG4bK2").replace("CSeq: 1", "CSeq: 2")
}

/// Checks that a peer without a password cannot use a Contact to reach more: the requests of the other party go to no
/// network that the peer itself cannot reach.
#[test]
fn a_contact_leads_into_no_network_that_its_sender_does_not_reach() {
    let mut engine = engine("proxy.relay_for = \"everyone\"\n");
    let bye = after_a_call(&mut engine, "sip:carol@example.net");
    let outside = says(&engine, Stage::Route, leads("example.net", "203.0.113.9:5070"), &bye);
    let Verdict::Forward(_) = outside else { panic!("{outside:?}") };
    let inside = || leads("example.net", "10.0.0.5:22");
    let denied = Reply { counted: Counted::RelayDenied, ..Reply::new(500) };
    let denied = denied
        .because("the next hop has no address that its sender may name; `proxy.reachable` lets more networks through");
    assert_eq!(says(&engine, Stage::Route, inside(), &bye), denied.into());
    assert_eq!(says(&engine, Stage::Acknowledge, inside(), &bye.replace("BYE", "ACK")), Verdict::Drop);
    assert_eq!(engine.shared.counts().relay_denied, 1, "an ACK has no answer by which it would be counted");
}

#[test]
fn a_user_without_contact_is_looked_up() {
    let engine = engine("");
    let call = text("MESSAGE", BOB, GUEST, "");
    let asks = Question::User { username: b"bob"[..].into(), domain: b"example.org"[..].into(), place: 0 };
    assert_eq!(first(&engine, Stage::Route, &call), Verdict::Ask(asks));
    let says = |user| says(&engine, Stage::Route, Answers { user: Some((0, user)), ..Answers::default() }, &call);
    assert_eq!(says(Ok(SubscriberAnswer::Exists)), Reply::not_found(480).because("the user is not registered").into());
    assert_eq!(says(Ok(SubscriberAnswer::Absent)), Reply::not_found(404).because("unknown user").into());
    let failed = Reply { why: Why::Logged, ..Reply::new(500) };
    assert_eq!(says(Err(StoreError::TimedOut)), failed.into());
}

/// Checks that a phone behind NAT is reached at the source of its REGISTER, and a phone whose Contact names a host is
/// reached after a look-up of the host.
#[test]
fn the_ways_to_a_registered_user() {
    let mut engine = engine("registrar.authenticate = false\n");
    let call = text("MESSAGE", BOB, GUEST, "");
    let register = |engine: &mut Engine, contact: &str| {
        let text = text("REGISTER", "sip:example.org", BOB, "").replace(&format!("sip:alice@{PHONE}"), contact);
        let mut out = Outbox::new();
        engine.receive(NOW, &arrival(), text.as_bytes(), &mut out);
        assert!(out.bytes.starts_with(b"SIP/2.0 200 "), "{}", String::from_utf8_lossy(&out.bytes));
    };
    register(&mut engine, "sip:bob@10.0.0.5:5060");
    let behind = Verdict::Forward(Destination::Contacts([[target(PHONE)][..].into()].into_iter().collect()));
    assert_eq!(first(&engine, Stage::Route, &call), behind);
    let mut engine = self::engine("registrar.authenticate = false\n");
    register(&mut engine, "sip:bob@phone.example.net");
    assert_eq!(first(&engine, Stage::Route, &call), Verdict::Ask(Question::Name(name("phone.example.net"))));
}

#[test]
fn an_ack_of_no_call_goes_nowhere() {
    let engine = engine("");
    let ack = text("ACK", "sip:carol@203.0.113.9", GUEST, "")
        .replace("To: <sip:bob@example.org>", "To: <sip:bob@example.org>;tag=b");
    assert_eq!(first(&engine, Stage::Acknowledge, &ack), Verdict::Drop);
    let everyone = self::engine("proxy.relay_for = \"everyone\"\n");
    let Verdict::Forward(_) = first(&everyone, Stage::Acknowledge, &ack) else { panic!("it is let through") };
}
