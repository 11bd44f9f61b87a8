//! Changes of a forwarded request, and nothing else (section 16.6).

use super::rig::*;
use strowger_core::proxy::ProxySettings;
use strowger_core::{Target, Transport};

#[test]
fn everything_else_passes_byte_for_byte() {
    let mut rig = Rig::new();
    let text = "INVITE sip:bob@10.2.2.2 SIP/2.0\n\
        X-Odd:   two  spaces \t and a tab\n\
        v: SIP/2.0/UDP 10.1.1.1:5060;branch=z9hG4bK1;x=\"a;b,c\"\n\
        max-forwards: 17\n\
        f: \"A \\\"B\\\" C\" <sip:alice@example.org>;tag=alice;unknown=1\n\
        TO: <sip:bob@example.org>\n\
        i: call@10.1.1.1\n\
        CSeq:  0001   INVITE\n\
        m: <sip:alice@10.1.1.1>\n\
        P-Unheard-Of: x,y;z=%20\n\
        c: application/x\n\
        l: 6\n\n";
    let text = format!("{}\r\n\r\na\0\u{e9}\r\n", text.trim_end().replace('\n', "\r\n"));
    // Body: 'a', NUL, two bytes of UTF-8, CR, LF.
    let sent = only(rig.request_bytes(text.as_bytes(), udp(ALICE), &to(BOB)));
    let (via, route) = (sent.all("Via")[0].to_owned(), sent.one("Record-Route").to_owned());
    let expected = text
        .replacen("X-Odd", &format!("Via: {via}\r\nRecord-Route: {route}\r\nMax-Breadth: 60\r\nX-Odd"), 1)
        .replace("max-forwards: 17", "max-forwards: 16");
    assert_eq!(sent.0, expected);
    assert!(via.starts_with("SIP/2.0/UDP 10.0.0.1:5060;branch=z9hG4bK"), "{via}");
    assert!(route.starts_with("<sip:10.0.0.1:5060;lr;d="), "{route}");
    // The response returns the sender's own Via and nothing else.
    let answer = only(rig.answer(&sent, 200, "X-Odd:  2\nContact: <sip:bob@10.2.2.2>\n"));
    assert_eq!(answer.to(), ALICE);
    assert_eq!(answer.all("v"), ["SIP/2.0/UDP 10.1.1.1:5060;branch=z9hG4bK1;x=\"a;b,c\""]);
    assert!(answer.0.contains("\r\nX-Odd:  2\r\n") && answer.0.contains("CSeq:  0001   INVITE\r\n"));
    rig.end();
}

#[test]
fn max_forwards_is_added_where_it_is_missing() {
    let mut rig = Rig::new();
    let text = alice("MESSAGE", "sip:bob@10.2.2.2", "").replace("Max-Forwards: 70\n", "");
    assert_eq!(only(rig.request(&text, udp(ALICE), &to(BOB))).all("Max-Forwards"), ["70"]);
}

#[test]
fn vias_on_one_line_come_apart_again() {
    let mut rig = Rig::new();
    let text =
        alice("INVITE", "sip:bob@10.2.2.2", "").replace("bKaINVITE", "bK1, SIP/2.0/UDP 10.9.9.9;branch=z9hG4bK2");
    let sent = only(rig.request(&text, udp(ALICE), &to(BOB)));
    assert_eq!(sent.all("Via").len(), 2);
    let response = String::from_utf8(respond(&sent, 180, "")).unwrap();
    // An element on the way joined them.
    let [first, second] = sent.all("Via")[..] else { panic!("{response}") };
    let joined = response.replace(&format!("Via: {second}\r\n"), "").replace(first, &format!("{first}, {second}"));
    assert_ne!(joined, response);
    let up = only(rig.response(joined.as_bytes(), udp(BOB)));
    assert_eq!(up.all("Via"), ["SIP/2.0/UDP 10.1.1.1:5060;branch=z9hG4bK1, SIP/2.0/UDP 10.9.9.9;branch=z9hG4bK2"]);
}

#[test]
fn one_record_route_where_nothing_changes() {
    for method in ["INVITE", "SUBSCRIBE", "REFER", "NOTIFY"] {
        let sent = only(Rig::new().request(&alice(method, "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
        assert_eq!(sent.all("Record-Route").len(), 1, "{method}");
    }
    for method in ["MESSAGE", "OPTIONS", "PUBLISH", "UNHEARD"] {
        let sent = only(Rig::new().request(&alice(method, "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
        assert!(sent.all("Record-Route").is_empty(), "{method}");
    }
    let mut rig = Rig::new();
    rig.plan.record_route = false;
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE), &to(BOB)));
    assert!(sent.all("Record-Route").is_empty());
}

/// Returns the Record-Routes of an INVITE that came by one listener and leaves by another for another URI (`-`: its own).
fn routes(uri: &str, came: (strowger_core::ListenerId, Transport), leaves: &str, lines: &str) -> Vec<String> {
    let mut rig = Rig::new();
    let request = alice("INVITE", uri, lines);
    let mut tries = to("10.2.2.2:5060");
    let uri = leaves.split(' ').next().unwrap();
    let (listener, transport, address) = match leaves.split(' ').nth(1).unwrap() {
        "udp" => (UDP, Transport::Udp, "10.2.2.2:5060"),
        "tcp" => (TCP, Transport::Tcp, "10.2.2.2:5060"),
        "tls" => (TLS, Transport::Tls, "10.2.2.2:5061"),
        "inner" => (INNER, Transport::Udp, "192.168.0.9:5060"),
        _ => (SIX, Transport::Udp, "[2001:db8::9]:5060"),
    };
    tries[0].at[0] = Target::new(transport, listener, address.parse().unwrap());
    tries[0].uri = (uri != "-").then(|| uri.to_owned());
    let sent = only(rig.request(&request, by(came.0, came.1, ALICE), &tries));
    let cut = |route: &&str| route.split(";d=").next().unwrap().trim_start_matches('<').to_owned();
    let routes: Vec<String> = sent.all("Record-Route").iter().map(cut).collect();
    let face = sent.one("Via").split(';').next().unwrap().to_owned();
    assert!(face.starts_with("SIP/2.0/"), "{face}");
    routes
}

#[test]
fn two_record_routes_where_the_way_changes() {
    let udp = (UDP, Transport::Udp);
    let uri = "sip:bob@example.org";
    assert_eq!(routes(uri, udp, "- udp", ""), ["sip:10.0.0.1:5060;lr"]);
    assert_eq!(routes(uri, udp, "- tcp", ""), ["sip:10.0.0.1:5060;transport=tcp;lr", "sip:10.0.0.1:5060;lr"]);
    assert_eq!(routes(uri, udp, "- inner", ""), ["sip:192.168.0.1:5060;lr", "sip:10.0.0.1:5060;lr"]);
    assert_eq!(routes(uri, udp, "- six", ""), ["sip:[2001:db8::1]:5060;lr", "sip:10.0.0.1:5060;lr"]);
    let tls = (TLS, Transport::Tls);
    assert_eq!(routes(uri, tls, "- udp", ""), ["sip:10.0.0.1:5060;lr", "sip:10.0.0.1:5061;transport=tls;lr"]);
    assert_eq!(routes(uri, tls, "- tls", ""), ["sip:10.0.0.1:5061;transport=tls;lr"]);
    // Record-Routes of others stand below.
    let others = "Record-Route: <sip:p1.example.net;lr>\n";
    assert_eq!(routes(uri, udp, "- udp", others), ["sip:10.0.0.1:5060;lr", "sip:p1.example.net;lr>"]);
}

#[test]
fn a_sips_request_is_record_routed_with_sips() {
    let tls = (TLS, Transport::Tls);
    assert_eq!(routes("sips:bob@example.org", tls, "- tls", ""), ["sips:10.0.0.1:5061;lr"]);
    let contact = "sips:bob@10.2.2.2 tls";
    assert_eq!(routes("sips:bob@example.org", tls, contact, ""), ["sips:10.0.0.1:5061;lr"]);
    // sips on one side only: each side gets the scheme that holds there.
    assert_eq!(
        routes("sip:bob@example.org", tls, contact, ""),
        ["sips:10.0.0.1:5061;lr", "sip:10.0.0.1:5061;transport=tls;lr"]
    );
    assert_eq!(
        routes("sip:bob@example.org", (UDP, Transport::Udp), contact, ""),
        ["sips:10.0.0.1:5061;lr", "sip:10.0.0.1:5060;lr"]
    );
}

#[test]
fn credentials_of_our_realms_are_taken_off_and_others_stay() {
    let realms = [&b"example.org"[..], b"example.net"].map(Box::from).into();
    let mut rig = Rig::with(ProxySettings { realms, ..ProxySettings::default() });
    let digest = |realm: &str| {
        format!(
            "Proxy-Authorization: Digest username=\"a\", realm=\"{realm}\", nonce=\"n\", uri=\"sip:b\", response=\"0123456789abcdef0123456789abcdef\"\n"
        )
    };
    let shown = ["example.org", "other.net", "example.net", "example.com"].map(digest).concat();
    let lines = format!("{shown}Authorization: Digest realm=\"example.org\"\n");
    let sent = only(rig.request(&alice("INVITE", "sip:bob@10.2.2.2", &lines), udp(ALICE), &to(BOB)));
    let left = sent.all("Proxy-Authorization");
    assert_eq!(left.len(), 2);
    assert!(left[0].contains("other.net") && left[1].contains("example.com"));
    assert!(sent.all("Authorization").is_empty(), "what cannot be read may be meant for us");
}

#[test]
fn a_binding_gets_its_own_uri_and_its_path_as_route() {
    let mut rig = Rig::new();
    let mut one = contact("10.2.2.2:5070", 1000);
    one.path = "<sip:edge.example.net;lr>,<sip:10.9.9.9;lr>".to_owned();
    one.at = vec![at("10.7.7.7:5060")];
    let sent = only(rig.request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &[one.clone()]));
    assert_eq!((sent.uri(), sent.to().as_str()), ("sip:bob@10.2.2.2:5070", "10.7.7.7:5060"));
    assert_eq!(sent.all("Route"), ["<sip:edge.example.net;lr>,<sip:10.9.9.9;lr>"]);
    // A preloaded own Route comes first.
    let mut rig = Rig::new();
    let lines = "Route: <sip:10.0.0.1:5060;lr>\n";
    let sent = only(rig.request(&alice("INVITE", "sip:bob@example.org", lines), udp(ALICE), &[one]));
    assert_eq!(sent.all("Route"), ["<sip:edge.example.net;lr>,<sip:10.9.9.9;lr>"]);
}

#[test]
fn a_retransmission_gets_the_last_response_and_is_not_forwarded() {
    let mut rig = Rig::new();
    let text = alice("INVITE", "sip:bob@10.2.2.2", "");
    let sent = only(rig.request(&text, udp(ALICE), &to(BOB)));
    assert!(rig.request(&text, udp(ALICE), &to(BOB)).is_empty());
    let ringing = only(rig.answer(&sent, 180, ""));
    assert_eq!(only(rig.request(&text, udp(ALICE), &to(BOB))).0, ringing.0);
}

#[test]
fn a_contact_becomes_a_request_uri_without_what_that_may_not_have() {
    // Section 19.1.1 table 1.
    for (contact, uri) in [
        ("sip:bob@10.2.2.2:5070;a=b?Subject=x&Priority=urgent", "sip:bob@10.2.2.2:5070;a=b"),
        ("sips:bob;p=1@Host.Example;METHOD=BYE;lr;x", "sips:bob;p=1@Host.Example;lr;x"),
        ("SIP:bob@10.2.2.2;line=1;ob", "SIP:bob@10.2.2.2;line=1;ob"),
    ] {
        let tries = [Try { uri: Some(contact.into()), ..to(BOB).remove(0) }];
        let sent = only(Rig::new().request(&alice("INVITE", "sip:bob@example.org", ""), udp(ALICE), &tries));
        assert_eq!(sent.uri(), uri);
    }
}

#[test]
fn a_request_of_this_server_has_the_contact_of_the_listener_by_which_each_copy_leaves() {
    let mut rig = Rig::new();
    rig.plan.record_route = false;
    let places = [(Transport::Tcp, TCP, BOB), (Transport::Udp, INNER, "192.168.0.9:5060")];
    let tries = places.map(|(transport, listener, address)| {
        let target = Target::new(transport, listener, address.parse().expect("an address"));
        Try { at: vec![target], q: 1000, ..Try::default() }
    });
    let sent = rig.request(&alice("INVITE", "sip:bob@10.2.2.2", ""), udp(ALICE).looped(), &tries);
    let contacts: Vec<&str> = sent.iter().map(|sent| sent.one("Contact")).collect();
    assert_eq!(contacts, ["<sip:alice@10.0.0.1:5060;transport=tcp>", "<sip:alice@192.168.0.1:5060>"]);
    assert!(sent.iter().all(|sent| sent.all("Record-Route").is_empty()));
    assert!(rig.answer(&sent[0], 180, "Contact: <sip:bob@10.2.2.2>\n").is_empty(), "the response stays in this server");
}
