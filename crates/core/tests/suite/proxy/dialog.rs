//! Dialogs: addresses of devices behind NAT (Contact repair), and changed Contacts.

use super::rig::*;
use strowger_core::Transport;
use strowger_core::proxy::ProxySettings;

/// Source addresses of Alice's and Bob's messages.
const OUTER_ALICE: &str = "10.50.0.1:40001";
const OUTER_BOB: &str = "10.50.0.2:40002";

/// Makes a call between two devices with unreachable Contacts. Returns its forwarded INVITE and its forwarded 200.
fn call(rig: &mut Rig) -> (Sent, Sent) {
    let invite = alice("INVITE", "sip:bob@example.org", "").replace("alice@10.1.1.1:5060>", "alice@192.168.7.7:5060>");
    let tries = [Try {
        uri: Some("sip:bob@192.168.8.8".into()),
        at: vec![at(OUTER_BOB)],
        q: 1000,
        fixed: true,
        ..Try::default()
    }];
    let sent = only(rig.request(&invite, udp(OUTER_ALICE), &tries));
    let ok = only(rig.answer(&sent, 200, "Contact: <sip:bob@192.168.8.8>\n"));
    (sent, ok)
}

fn uri_of(contact: &str) -> &str {
    contact.split(['<', '>']).nth(1).expect("a URI in angle brackets")
}

/// Tells whether this is the plain URI followed by a seal.
fn is_sealed(uri: &str, plain: &str) -> bool {
    uri.strip_prefix(plain).is_some_and(|rest| rest.starts_with(";x-strowger="))
}

fn from_alice(method: &str, cseq: u32, uri: &str, routes: &str) -> String {
    alice(method, uri, routes)
        .replace("<sip:bob@example.org>", "<sip:bob@example.org>;tag=at40002")
        .replace("CSeq: 1", &format!("CSeq: {cseq}"))
        .replace("bKa", &format!("bKa{cseq}"))
        .replace("alice@10.1.1.1:5060>", "alice@192.168.7.7:5060>")
}

fn from_bob(method: &str, uri: &str, routes: &str) -> String {
    format!(
        "{method} {uri} SIP/2.0\nVia: SIP/2.0/UDP 192.168.8.8:5060;branch=z9hG4bKb{method}\nMax-Forwards: 70\n{routes}\
         From: <sip:bob@example.org>;tag=at40002\nTo: <sip:alice@example.org>;tag=alice\nCall-ID: call@10.1.1.1\n\
         CSeq: 9 {method}\nContact: <sip:bob@192.168.8.8>\nContent-Length: 0\n"
    )
}

#[test]
fn devices_behind_nat_are_reached_where_they_are() {
    let mut rig = Rig::new();
    let (invite, ok) = call(&mut rig);
    assert!(is_sealed(uri_of(invite.one("Contact")), "sip:alice@192.168.7.7:5060"));
    assert!(is_sealed(uri_of(ok.one("Contact")), "sip:bob@192.168.8.8"));
    // A to B: B gets its own Contact as Request-URI.
    let routes = format!("Route: {}\n", ok.one("Record-Route"));
    let bye = only(rig.request(&from_alice("BYE", 2, uri_of(ok.one("Contact")), &routes), udp(OUTER_ALICE), &[]));
    assert_eq!((bye.to().as_str(), bye.uri()), (OUTER_BOB, "sip:bob@192.168.8.8"));
    assert!(bye.all("Route").is_empty());
    // B to A.
    let routes = format!("Route: {}\n", invite.one("Record-Route"));
    let info = only(rig.request(&from_bob("INFO", uri_of(invite.one("Contact")), &routes), udp(OUTER_BOB), &[]));
    assert_eq!((info.to().as_str(), info.uri()), (OUTER_ALICE, "sip:alice@192.168.7.7:5060"));
    rig.end();
}

#[test]
fn a_re_invite_renews_both_contacts() {
    let mut rig = Rig::new();
    let (_, ok) = call(&mut rig);
    let routes = format!("Route: {}\n", ok.one("Record-Route"));
    let again = only(rig.request(&from_alice("INVITE", 2, uri_of(ok.one("Contact")), &routes), udp(OUTER_ALICE), &[]));
    assert!(is_sealed(uri_of(again.one("Contact")), "sip:alice@192.168.7.7:5060"));
    assert!(again.all("Record-Route").is_empty());
    // Section 12.2.1.2: the Contact of this 200 is the target of the next request.
    let ok = only(rig.answer(&again, 200, "Contact: <sip:bob@192.168.8.8;x=y?h=1>\n"));
    let renewed = uri_of(ok.one("Contact"));
    assert!(is_sealed(renewed, "sip:bob@192.168.8.8;x=y") && renewed.ends_with("?h=1"), "{renewed}");
    // ACK for it, without a transaction.
    let ack = from_alice("ACK", 2, uri_of(ok.one("Contact")).trim_end_matches("?h=1"), &routes);
    let ack = only(rig.request(&ack, udp(OUTER_ALICE), &[]));
    assert_eq!((ack.to().as_str(), ack.uri()), (OUTER_BOB, "sip:bob@192.168.8.8;x=y"));
    rig.end();
}

#[test]
fn a_contact_without_brackets_gets_them() {
    let mut rig = Rig::new();
    let invite = alice("INVITE", "sip:bob@10.2.2.2", "")
        .replace("<sip:alice@10.1.1.1:5060>", "sip:alice@192.168.7.7;expires=60");
    let sent = only(rig.request(&invite, udp(OUTER_ALICE), &to(BOB)));
    let contact = sent.one("Contact");
    assert!(is_sealed(contact, "<sip:alice@192.168.7.7") && contact.ends_with(">;expires=60"), "{contact}");
}

#[test]
fn a_device_on_a_stream_is_reached_by_its_connection() {
    let mut rig = Rig::new();
    let came = by(TLS, Transport::Tls, "10.1.1.1:33333");
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), came, &to(BOB)));
    let contact = uri_of(sent.one("Contact")).to_owned();
    assert!(is_sealed(&contact, "sip:alice@10.1.1.1:5060"), "{contact}");
    let ok = only(rig.answer(&sent, 200, "Contact: <sip:bob@10.2.2.2>\n"));
    assert_eq!(uri_of(ok.one("Contact")), "sip:bob@10.2.2.2");
    let recorded: Vec<&str> = sent.all("Record-Route");
    let routes = format!("Route: {},{}\n", recorded[0], recorded[1]);
    let bye = from_bob("BYE", &contact, &routes).replace("at40002", "at5060");
    let bye = only(rig.request(&bye, udp(BOB), &[]));
    assert_eq!((bye.target.flow, bye.target.listener, bye.target.transport), (came.flow, TLS, Transport::Tls));
    assert_eq!(bye.to(), "10.1.1.1:33333");
    assert_eq!(bye.uri(), "sip:alice@10.1.1.1:5060");
    assert!(bye.one("Via").starts_with("SIP/2.0/TLS 10.0.0.1:5061;"));
}

#[test]
fn only_the_contact_of_a_dialog_is_repaired_and_only_at_the_first_hop() {
    let contact = |method: &str, lines: &str, from: &str| {
        let text = alice(method, "sip:bob@10.2.2.2", lines);
        only(Rig::new().request(&text, udp(from), &to(BOB))).one("Contact").to_owned()
    };
    assert!(contact("INVITE", "", OUTER_ALICE).contains("x-strowger="));
    assert!(contact("SUBSCRIBE", "", OUTER_ALICE).contains("x-strowger="));
    // A Contact that is right is not repaired.
    assert!(!contact("INVITE", "", ALICE).contains("x-strowger="));
    // A registration elsewhere, and a method that makes no dialog.
    assert!(!contact("REGISTER", "", OUTER_ALICE).contains("x-strowger="));
    assert!(!contact("PUBLISH", "", OUTER_ALICE).contains("x-strowger="));
    // Another proxy was passed before.
    assert!(!contact("INVITE", "Via: SIP/2.0/UDP 10.9.9.9;branch=z9hG4bK0\n", OUTER_ALICE).contains("x-strowger="));
    let mut rig = Rig::with(ProxySettings { contact_repair: false, ..ProxySettings::default() });
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(OUTER_ALICE), &to(BOB)));
    assert!(!sent.one("Contact").contains("x-strowger="));
}

#[test]
fn a_redirection_is_not_touched() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &[contact(BOB, 1000)]));
    let lines = format!("Record-Route: {}\nContact: <sip:carol@192.0.2.77>\n", sent.one("Record-Route"));
    assert_eq!(sent.uri(), "sip:bob@10.2.2.2:5060");
    let up = rig.answer(&sent, 302, &lines);
    assert_eq!(up[1].one("Contact"), "<sip:carol@192.0.2.77>");
}

#[test]
fn behind_another_proxy_the_answer_is_not_touched() {
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &[contact(BOB, 1000)]));
    let text = String::from_utf8(respond(&sent, 200, "Contact: <sip:bob@192.168.8.8>\n")).unwrap();
    let text = text.replacen("Record-Route: ", "Record-Route: <sip:10.7.7.7;lr>\r\nRecord-Route: ", 1);
    let up = only(rig.response(text.as_bytes(), udp(BOB)));
    assert_eq!(up.one("Contact"), "<sip:bob@192.168.8.8>");
}

#[test]
fn a_device_that_did_not_register_here_is_where_its_contact_says() {
    // A proxy of another domain that does not record-route: the Contact is that of a peer behind it.
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    let up = only(rig.answer(&sent, 200, "Contact: <sip:bob@192.0.2.99>\n"));
    assert_eq!(up.one("Contact"), "<sip:bob@192.0.2.99>");
    // The same holds behind an edge proxy's Path.
    let mut rig = Rig::new();
    let tries = [Try { path: "<sip:10.7.7.7;lr>".into(), ..contact(BOB, 1000) }];
    let sent = only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &tries));
    let up = only(rig.answer(&sent, 200, "Contact: <sip:bob@192.0.2.99>\n"));
    assert_eq!(up.one("Contact"), "<sip:bob@192.0.2.99>");
}

#[test]
fn the_last_proxy_takes_the_seal_off() {
    // The first server forwards to the second, which has the same secret, or another one. Bob is behind NAT there.
    for secret in [&b"secret"[..], b"another"] {
        let mut first = Rig::new();
        let mut second = Rig::of(b"10.9.9.9:5060", secret);
        let invite = only(first.request(&alice("INVITE", "sip:bob@10.9.9.9", ""), udp(ALICE), &to("10.9.9.9:5060")));
        let tries =
            [Try { uri: Some("sip:bob@192.168.8.8".into()), at: vec![at(OUTER_BOB)], q: 1000, ..Try::default() }];
        let at_bob = only(second.request(&invite.0, udp("10.0.0.1:5060"), &tries));
        let ok = only(second.answer(&at_bob, 200, "Contact: <sip:bob@192.168.8.8>\n"));
        let ok = only(first.response(ok.0.as_bytes(), udp("10.9.9.9:5060")));
        // Alice's own requests go by both, and Bob changes his Contact.
        let routes = |text: &Sent| {
            text.all("Record-Route").iter().rev().map(|route| format!("Route: {route}\n")).collect::<String>()
        };
        let to_bob = routes(&ok);
        let through = |first: &mut Rig, second: &mut Rig, method: &str, cseq: u32, uri: &str| {
            let sent = only(first.request(&from_alice(method, cseq, uri, &to_bob), udp(ALICE), &[]));
            assert_eq!(sent.to(), "10.9.9.9:5060");
            only(second.request(&sent.0, udp("10.0.0.1:5060"), &[]))
        };
        let update = through(&mut first, &mut second, "UPDATE", 2, uri_of(ok.one("Contact")));
        assert_eq!((update.to().as_str(), update.uri()), (OUTER_BOB, "sip:bob@192.168.8.8"));
        let moved = only(second.answer(&update, 200, "Contact: <sip:robert@192.168.8.9:5066>\n"));
        let moved = only(first.response(moved.0.as_bytes(), udp("10.9.9.9:5060")));
        let seals = moved.one("Contact").matches("x-strowger=").count();
        assert_eq!(seals, if secret == b"secret" { 1 } else { 2 }, "{}", moved.0);
        let bye = through(&mut first, &mut second, "BYE", 3, uri_of(moved.one("Contact")));
        assert_eq!((bye.to().as_str(), bye.uri()), (OUTER_BOB, "sip:robert@192.168.8.9:5066"));
    }
}

#[test]
fn only_the_parameter_is_a_seal() {
    let mut rig = Rig::new();
    let (_, ok) = call(&mut rig);
    let routes = format!("Route: {}\n", ok.one("Record-Route"));
    let seal = uri_of(ok.one("Contact")).split_once(';').expect("a seal").1;
    // The user part looks like a seal, and so do other parameters; they stay.
    let contact = "sip:bob;x-strowger=x@192.168.8.8;x-strowger=AAAA;x-strowgers=1";
    let again = only(rig.request(&from_alice("INVITE", 2, uri_of(ok.one("Contact")), &routes), udp(OUTER_ALICE), &[]));
    let ok = only(rig.answer(&again, 200, &format!("Contact: <{contact}>\n")));
    let sealed = uri_of(ok.one("Contact"));
    assert!(is_sealed(sealed, contact) && !sealed.contains(seal), "{sealed}");
    let bye = only(rig.request(&from_alice("BYE", 3, sealed, &routes), udp(OUTER_ALICE), &[]));
    assert_eq!((bye.to().as_str(), bye.uri()), (OUTER_BOB, contact));
}

/// Checks that without an address translator, the Contact of a device states the port on which the device listens, even
/// if it sends from another port.
#[test]
fn a_port_is_repaired_only_where_it_may_have_been_translated() {
    let contact = |via: &str| {
        let text = alice("INVITE", "sip:bob@10.2.2.2", "").replace("10.1.1.1:5060;branch", via);
        only(Rig::new().request(&text, udp("10.1.1.1:40001"), &to(BOB))).one("Contact").to_owned()
    };
    assert_eq!(contact("10.1.1.1:5060;branch"), "<sip:alice@10.1.1.1:5060>");
    assert!(contact("10.1.1.1:5060;rport=40001;branch").contains("x-strowger="));
    assert!(contact("192.168.1.7:5060;received=10.1.1.1;branch").contains("x-strowger="));
    // The device answers from another port than the INVITE was sent to.
    let mut rig = Rig::new();
    let sent =
        only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &[contact_of("10.2.2.2:5060")]));
    let text = respond(&sent, 200, "Contact: <sip:bob@10.2.2.2:5060>\n");
    let ok = only(rig.response(&text, udp("10.2.2.2:40002")));
    assert_eq!(ok.one("Contact"), "<sip:bob@10.2.2.2:5060>");
    let mut rig = Rig::new();
    let sent =
        only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &[contact_of("10.2.2.2:5060")]));
    let text = respond(&sent, 200, "Contact: <sip:bob@192.168.8.8:5060>\n");
    let ok = only(rig.response(&text, udp("10.2.2.2:40002")));
    let routes = format!("Route: {}\n", ok.one("Record-Route"));
    let bye = from_alice("BYE", 2, uri_of(ok.one("Contact")), &routes).replace("at40002", "at5060");
    let bye = only(rig.request(&bye, udp(ALICE), &[]));
    assert_eq!(bye.to(), "10.2.2.2:5060", "where the INVITE reached it");
}

/// Checks that a sender with a second Via, or a callee without registration, cannot make the server send requests into
/// its own network.
#[test]
fn a_contact_of_a_narrower_scope_than_its_source_leads_back_there() {
    const WORLD: &str = "203.0.113.9:5060";
    for contact in ["sip:x@127.0.0.1:7379;transport=tcp", "sip:x@10.0.0.9:22", "sip:x@169.254.169.254", "sip:x@[::1]"] {
        let mut rig = Rig::new();
        let invite = alice("INVITE", "sip:bob@example.org", "").replace("sip:alice@10.1.1.1:5060", contact).replacen(
            "Via: ",
            "Via: SIP/2.0/UDP 203.0.113.9;branch=z9hG4bKtop\nVia: ",
            1,
        );
        let invite = only(rig.request(&invite, udp(WORLD), &[contact_of(BOB)]));
        let routes = format!("Route: {}\n", invite.one("Record-Route"));
        let bye = from_bob("BYE", uri_of(invite.one("Contact")), &routes).replace("at40002", "at5060");
        assert_eq!(only(rig.request(&bye, udp(BOB), &[])).to(), WORLD, "{contact}");
        // Without the seal the request is invalid.
        let bye = from_bob("BYE", contact, &routes).replace("at40002", "at5060").replace("bKb", "bKc");
        assert!(!in_dialog(&rig, &bye));
        // A callee with an address of the world.
        let mut rig = Rig::new();
        let invite = only(rig.request(&alice("INVITE", "sip:x@203.0.113.9", ""), udp(ALICE), &to(WORLD)));
        let ok = only(rig.answer(&invite, 200, &format!("Contact: <{contact}>\n")));
        let routes = format!("Route: {}\n", ok.one("Record-Route"));
        let ack = from_alice("ACK", 1, uri_of(ok.one("Contact")), &routes).replace("at40002", "at5060");
        assert_eq!(only(rig.request(&ack, udp(ALICE), &[])).to(), WORLD, "{contact}");
    }
    // Behind a proxy that record-routed, the Contact is the affair of that proxy.
    let mut rig = Rig::new();
    let invite = alice("INVITE", "sip:bob@example.org", "Record-Route: <sip:203.0.113.9;lr>\n");
    let invite = invite.replacen("Via: ", "Via: SIP/2.0/UDP 203.0.113.9;branch=z9hG4bKtop\nVia: ", 1);
    let invite = only(rig.request(&invite, udp(WORLD), &[contact_of(BOB)]));
    assert_eq!(invite.one("Contact"), "<sip:alice@10.1.1.1:5060>");
}

fn in_dialog(rig: &Rig, text: &str) -> bool {
    rig.routing(text, |router, request| router.route(NOW, request).in_dialog)
}

fn contact_of(address: &str) -> Try {
    contact(address, 1000)
}
