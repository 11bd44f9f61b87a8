//! Within a dialog: the mark that lets it through, and the address of a device behind NAT (Contact repair).

use crate::rig::*;
use strowger_core::Transport;
use strowger_core::proxy::Settings;

/// Where Alice's and Bob's messages really come from.
const OUTER_ALICE: &str = "10.50.0.1:40001";
const OUTER_BOB: &str = "10.50.0.2:40002";

/// A call between two devices whose Contacts lead nowhere: its INVITE as forwarded and its 200 as sent up.
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
    assert_eq!(uri_of(invite.one("Contact")), "sip:alice@192.168.7.7:5060;alias=10.50.0.1~40001~0");
    assert_eq!(uri_of(ok.one("Contact")), "sip:bob@192.168.8.8;alias=10.50.0.2~40002~0");
    // A to B: B sees its own Contact as Request-URI.
    let routes = format!("Route: {}\n", ok.one("Record-Route"));
    let bye = only(rig.request(&from_alice("BYE", 2, uri_of(ok.one("Contact")), &routes), udp(OUTER_ALICE), &[]));
    assert_eq!((bye.to().as_str(), bye.uri()), (OUTER_BOB, "sip:bob@192.168.8.8"));
    assert!(bye.all("Route").is_empty());
    // B to A.
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
    assert_eq!(uri_of(again.one("Contact")), "sip:alice@192.168.7.7:5060;alias=10.50.0.1~40001~0");
    assert!(again.all("Record-Route").is_empty());
    // Section 12.2.1.2: the Contact of this 200 is where the next request goes.
    let ok = only(rig.answer(&again, 200, "Contact: <sip:bob@192.168.8.8;x=y?h=1>\n"));
    assert_eq!(uri_of(ok.one("Contact")), "sip:bob@192.168.8.8;x=y;alias=10.50.0.2~40002~0?h=1");
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
    assert_eq!(sent.one("Contact"), "<sip:alice@192.168.7.7;alias=10.50.0.1~40001~0>;expires=60");
}

#[test]
fn a_device_on_a_stream_is_reached_by_its_connection() {
    let mut rig = Rig::new();
    let came = by(TLS, Transport::Tls, "10.1.1.1:33333");
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), came, &to(BOB)));
    let contact = uri_of(sent.one("Contact")).to_owned();
    assert!(contact.starts_with("sip:alice@10.1.1.1:5060;alias=10.1.1.1~33333~2~"), "{contact}");
    let ok = only(rig.answer(&sent, 200, "Contact: <sip:bob@10.2.2.2>\n"));
    assert_eq!(uri_of(ok.one("Contact")), "sip:bob@10.2.2.2");
    let recorded: Vec<&str> = ok.all("Record-Route");
    let routes = format!("Route: {},{}\n", recorded[0], recorded[1]);
    let bye = from_bob("BYE", &contact, &routes).replace("at40002", "at5060");
    let bye = only(rig.request(&bye, udp(BOB), &[]));
    assert_eq!((bye.target.flow, bye.target.listener, bye.target.transport), (came.flow, TLS, Transport::Tls));
    assert_eq!(bye.uri(), "sip:alice@10.1.1.1:5060");
    assert!(bye.one("Via").starts_with("SIP/2.0/TLS 10.0.0.1:5061;"));
}

#[test]
fn only_the_contact_of_a_dialog_is_repaired_and_only_at_the_first_hop() {
    let contact = |method: &str, lines: &str, from: &str| {
        let text = alice(method, "sip:bob@10.2.2.2", lines);
        only(Rig::new().request(&text, udp(from), &to(BOB))).one("Contact").to_owned()
    };
    assert!(contact("INVITE", "", OUTER_ALICE).contains("alias="));
    assert!(contact("SUBSCRIBE", "", OUTER_ALICE).contains("alias="));
    // It says where it is.
    assert!(!contact("INVITE", "", ALICE).contains("alias="));
    // A registration elsewhere, and what makes no dialog.
    assert!(!contact("REGISTER", "", OUTER_ALICE).contains("alias="));
    assert!(!contact("PUBLISH", "", OUTER_ALICE).contains("alias="));
    // Another proxy was there before.
    assert!(!contact("INVITE", "Via: SIP/2.0/UDP 10.9.9.9;branch=z9hG4bK0\n", OUTER_ALICE).contains("alias="));
    let mut rig = Rig::with(Settings { contact_repair: false, ..Settings::default() });
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(OUTER_ALICE), &to(BOB)));
    assert!(!sent.one("Contact").contains("alias="));
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
fn whoever_did_not_register_here_is_where_its_contact_says() {
    // A proxy of another domain that does not record-route: the Contact is that of somebody behind it.
    let mut rig = Rig::new();
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    let up = only(rig.answer(&sent, 200, "Contact: <sip:bob@192.0.2.99>\n"));
    assert_eq!(up.one("Contact"), "<sip:bob@192.0.2.99>");
    // Nor is one behind an edge proxy's Path.
    let mut rig = Rig::new();
    let tries = [Try { path: "<sip:10.7.7.7;lr>".into(), ..contact(BOB, 1000) }];
    let sent = only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &tries));
    let up = only(rig.answer(&sent, 200, "Contact: <sip:bob@192.0.2.99>\n"));
    assert_eq!(up.one("Contact"), "<sip:bob@192.0.2.99>");
}

#[test]
fn an_alias_is_the_last_proxys_affair() {
    // Bob's Contact was repaired by a proxy behind us: the Route to that one is followed, the alias left alone.
    let mut rig = Rig::new();
    let (_, ok) = call(&mut rig);
    let routes = format!("Route: {}, <sip:10.7.7.7;lr>\n", ok.one("Record-Route"));
    let uri = "sip:bob@192.168.8.8;alias=10.66.0.1~1234~0";
    let bye = only(rig.request(&from_alice("BYE", 2, uri, &routes), udp(OUTER_ALICE), &[]));
    assert_eq!((bye.to().as_str(), bye.uri()), ("10.7.7.7:5060", uri));
}

#[test]
fn only_the_parameter_is_an_alias() {
    let mut rig = Rig::new();
    let (_, ok) = call(&mut rig);
    let routes = format!("Route: {}\n", ok.one("Record-Route"));
    let uri = "sip:bob;alias=x@192.168.8.8;alias=10.50.0.2~40002~0;y";
    let bye = only(rig.request(&from_alice("BYE", 2, uri, &routes), udp(OUTER_ALICE), &[]));
    assert_eq!((bye.to().as_str(), bye.uri()), (OUTER_BOB, "sip:bob;alias=x@192.168.8.8;y"));
}

/// Whether the proxy takes this request as one of a dialog that it let through.
fn in_dialog(rig: &Rig, text: &str) -> bool {
    rig.routing(text, |proxy, request| proxy.route(request).in_dialog)
}

#[test]
fn the_mark_opens_its_own_dialog_only() {
    let mut rig = Rig::new();
    let (_, ok) = call(&mut rig);
    let mark = ok.one("Record-Route").to_owned();
    let routes = format!("Route: {mark}\n");
    let bye = from_alice("BYE", 2, "sip:bob@192.168.8.8", &routes);
    assert!(in_dialog(&rig, &bye));
    assert!(in_dialog(&rig, &from_bob("BYE", "sip:alice@192.168.7.7", &routes)));
    // Another server with the same secret.
    assert!(in_dialog(&Rig::seeded(Settings::default(), 2), &bye));
    let refused = [
        // No mark, or none of ours.
        from_alice("BYE", 2, "sip:bob@192.168.8.8", "Route: <sip:10.0.0.1;lr>\n"),
        from_alice("BYE", 2, "sip:bob@192.168.8.8", ""),
        from_alice("BYE", 2, "sip:bob@192.168.8.8", "Route: <sip:10.0.0.1;lr;d=AAAAAAAAAAAAAAAA>\n"),
        from_alice("BYE", 2, "sip:bob@192.168.8.8", "Route: <sip:10.0.0.1;lr;d>\n"),
        from_alice("BYE", 2, "sip:bob@192.168.8.8", &routes.replace(">", "A>")),
        // On another's Route.
        from_alice("BYE", 2, "sip:bob@192.168.8.8", &routes.replace("10.0.0.1", "10.0.0.2")),
        // Another call, another caller.
        bye.replace("call@10.1.1.1", "other@10.1.1.1"),
        bye.replace("tag=alice", "tag=mallory"),
        // Nothing new is started with it.
        bye.replace(";tag=at40002", ""),
    ];
    for text in refused {
        assert!(!in_dialog(&rig, &text), "{text}");
    }
}

#[test]
fn an_alias_without_the_mark_leads_nowhere() {
    let rig = Rig::new();
    for routes in ["", "Route: <sip:10.0.0.1;lr>\n", "Route: <sip:10.0.0.1;lr;d=AAAAAAAAAAAAAAAA>\n"] {
        let bye = from_alice("BYE", 2, "sip:bob@192.168.8.8;alias=10.66.0.1~1234~0", routes);
        assert!(rig.routing(&bye, |proxy, request| proxy.route(request).alias.is_none()));
    }
}
