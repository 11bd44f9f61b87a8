//! Responses of the server itself.

use crate::site::*;

fn refused(lines: &str, call: impl Fn(&Phone) -> Call) -> u16 {
    let site = start(lines, &["alice"]);
    let phone = site.foreign_phone();
    phone.ask(&call(&phone)).status()
}

#[test]
fn options_and_what_is_not_for_a_proxy() {
    let site = start("", &[]);
    let phone = site.foreign_phone();
    for uri in ["sip:example.org".to_owned(), format!("sip:{}", site.udp()), "sip:EXAMPLE.org;transport=udp".to_owned()]
    {
        let mut call = phone.call("OPTIONS", &uri);
        call.lines = "Accept: application/sdp\n".into();
        let got = phone.ask(&call);
        assert_eq!(got.status(), 200, "{uri}");
        assert!(got.one("Allow").contains("REGISTER") && got.one("To").contains(";tag="));
        assert!(got.one("Supported").contains("path") && !got.all("Accept").is_empty());
    }
    // Max-Forwards concerns only forwarding.
    let text = phone.text(&phone.call("OPTIONS", "sip:example.org")).replace("Max-Forwards: 70", "Max-Forwards: 0");
    phone.send(&text);
    assert_eq!(phone.answer().status(), 200);
    for (method, status) in [("INVITE", 405), ("MESSAGE", 405), ("SUBSCRIBE", 405), ("UNHEARD", 501)] {
        let got = phone.ask(&phone.call(method, "sip:example.org"));
        assert_eq!(got.status(), status, "{method}");
        assert!(got.one("Allow").contains("OPTIONS"));
    }
    let mut call = phone.call("OPTIONS", "sip:example.org");
    call.lines = "Require: path, nothing-we-know\nRequire: nor-this\n".into();
    let got = phone.ask(&call);
    assert_eq!((got.status(), got.one("Unsupported")), (420, "nothing-we-know, nor-this"));
}

#[test]
fn an_unknown_method_is_forwarded() {
    let site = start("", &["bob"]);
    let (bob, phone) = (site.phone("bob"), site.foreign_phone());
    bob.register();
    phone.send(&phone.text(&phone.call("UNHEARD", "sip:bob@example.org")));
    let got = bob.next();
    assert_eq!(got.method(), "UNHEARD");
    bob.respond(&got, 405, "Allow: INVITE\n");
    assert_eq!(phone.answer().status(), 405);
}

#[test]
fn no_such_user_and_no_phone() {
    let site = start("", &["alice"]);
    let phone = site.foreign_phone();
    assert_eq!(phone.ask(&phone.call("INVITE", "sip:nobody@example.org")).status(), 404);
    assert_eq!(phone.ask(&phone.call("INVITE", "sip:alice@example.org")).status(), 480);
    assert_eq!(phone.ask(&phone.call("INVITE", "sip:%61lice@EXAMPLE.ORG:5060")).status(), 480);
    // Second request: from cached answers.
    assert_eq!(phone.ask(&phone.call("MESSAGE", "sip:nobody@example.org")).status(), 404);
    assert_eq!(phone.ask(&phone.call("MESSAGE", "sip:alice@example.org")).status(), 480);
}

#[test]
fn too_many_hops() {
    let site = start("", &["bob"]);
    let (bob, phone) = (site.phone("bob"), site.foreign_phone());
    bob.register();
    for method in ["INVITE", "OPTIONS", "MESSAGE"] {
        let text =
            phone.text(&phone.call(method, "sip:bob@example.org")).replace("Max-Forwards: 70", "Max-Forwards: 0");
        phone.send(&text);
        assert_eq!(phone.answer().status(), 483, "{method}");
    }
    bob.hears_nothing();
}

#[test]
fn schemes() {
    assert_eq!(refused("", |p| p.call("OPTIONS", "nobodyKnowsThisScheme:totallyopaquecontent")), 416);
    assert_eq!(refused("", |p| p.call("INVITE", "http://example.org/")), 416);
}

#[test]
fn extensions_that_a_proxy_must_know() {
    let site = start("", &["bob"]);
    let phone = site.foreign_phone();
    let mut call = phone.call("INVITE", "sip:bob@example.org");
    call.lines = "Proxy-Require: foo, bar\nProxy-Require: baz\n".into();
    let got = phone.ask(&call);
    assert_eq!((got.status(), got.all("Unsupported")), (420, vec!["foo, bar", "baz"]));
    // Require is for user agents (section 16.3 item 5 names Proxy-Require alone).
    let bob = site.phone("bob");
    bob.register();
    let mut call = phone.call("INVITE", "sip:bob@example.org");
    call.lines = "Require: 100rel\n".into();
    phone.send(&phone.text(&call));
    assert_eq!(bob.next().one("Require"), "100rel");
}

#[test]
fn emergency_calls_have_a_way() {
    let site = start("", &[]);
    let phone = site.foreign_phone();
    assert_eq!(phone.ask(&phone.call("INVITE", "urn:service:sos")).status(), 407);
    for parameter in ["", ";lr"] {
        let target = "sip:127.0.0.1:5070";
        let site = start(&format!("emergency.target = \"{target}{parameter}\""), &[]);
        let (phone, psap, route) = (site.foreign_phone(), phone_at(&site, "127.0.0.1:5070"), format!("<{target};lr>"));
        for (phone, uri) in [(&phone, "urn:service:sos"), (&site.phone("alice"), "urn:service:sos.fire")] {
            phone.send(&phone.text(&phone.call("INVITE", uri)));
            let got = psap.next();
            assert_eq!((got.method(), got.uri(), got.one("Route")), ("INVITE", uri, route.as_str()));
            psap.respond(&got, 486, "");
            assert_eq!(phone.answer().status(), 486);
            let ack = psap.next();
            assert_eq!((ack.method(), ack.one("Route")), ("ACK", route.as_str()));
        }
    }
    // Another service is no emergency call (RFC 5031 section 4.3).
    assert_eq!(site.foreign_phone().ask(&site.foreign_phone().call("INVITE", "urn:service:counseling")).status(), 407);
}

#[test]
fn a_telephone_number_goes_where_its_route_says() {
    let site = start("proxy.relay_for = \"everyone\"", &[]);
    let (phone, gateway) = (site.foreign_phone(), site.foreign_phone());
    let mut call = phone.call("INVITE", "tel:+49-30-123456");
    call.lines = format!("Route: <sip:{};lr>\n", gateway.address);
    phone.send(&phone.text(&call));
    let got = gateway.next();
    assert_eq!((got.uri(), got.all("Route").len()), ("tel:+49-30-123456", 1));
    gateway.respond(&got, 404, "");
    // Without a Route the server has no target.
    let got = phone.answer();
    assert_eq!(got.status(), 404, "{}", got.0);
    assert_eq!(phone.ask(&phone.call("INVITE", "tel:+49-30-123456")).status(), 404);
}

#[test]
fn routes_that_cannot_be_read() {
    for route in ["<sip:example.org;lr", "<>", "nonsense<"] {
        let lines = format!("Route: {route}\n");
        assert_eq!(
            refused("", |p| Call { lines: lines.clone(), ..p.call("INVITE", "sip:alice@example.org") }),
            400,
            "{route}"
        );
    }
}

#[test]
fn requests_that_lack_what_they_must_have() {
    let site = start("", &["alice"]);
    let phone = site.foreign_phone();
    let text = phone.text(&phone.call("INVITE", "sip:alice@example.org"));
    let without = |name: &str| {
        let lines: Vec<&str> = text.split("\r\n").filter(|l| !l.starts_with(name)).collect();
        lines.join("\r\n")
    };
    for name in ["From:", "To:", "CSeq:", "Call-ID:"] {
        phone.send(&without(name));
        assert_eq!(phone.answer().status(), 400, "{name}");
    }
    // Without Via there is no path for a response.
    phone.send(&without("Via:"));
    phone.hears_nothing();
    phone.send(&text.replace("CSeq: 1 INVITE", "CSeq: 1 BYE"));
    assert_eq!(phone.answer().status(), 400);
    phone.send(&text.replace("SIP/2.0\r\n", "SIP/7.0\r\n"));
    assert_eq!(phone.answer().status(), 505);
    // The server still works.
    assert_eq!(phone.ask(&phone.call("OPTIONS", "sip:example.org")).status(), 200);
}

#[test]
fn what_goes_round_is_a_loop() {
    let site = start("proxy.relay_for = \"everyone\"", &[]);
    let (phone, mirror) = (site.foreign_phone(), site.foreign_phone());
    let uri = format!("sip:somebody@{}", mirror.address);
    phone.send(&phone.text(&phone.call("MESSAGE", &uri)));
    let got = mirror.next();
    let back =
        got.0.replacen("Via: ", &format!("Via: SIP/2.0/UDP {};branch=z9hG4bKmirror\r\nVia: ", mirror.address), 1);
    mirror.send(&back);
    let refused = mirror.answer();
    assert_eq!(refused.status(), 482, "{}", refused.0);
}

#[test]
fn cancel_of_nothing() {
    let site = start("", &[]);
    let phone = site.foreign_phone();
    assert_eq!(phone.ask(&phone.call("CANCEL", "sip:bob@example.org")).status(), 481);
}

#[test]
fn a_server_that_drains_takes_nothing_new() {
    let site = start("", &["bob"]);
    let (bob, phone) = (site.phone("bob"), site.foreign_phone());
    bob.register();
    let call = phone.call("INVITE", "sip:bob@example.org");
    phone.send(&phone.text(&call));
    let invite = bob.next();
    bob.respond(&invite, 200, "");
    let ok = phone.answer();
    site.drain();
    for (method, uri) in
        [("INVITE", "sip:bob@example.org"), ("OPTIONS", "sip:example.org"), ("REGISTER", "sip:example.org")]
    {
        let got = phone.ask(&phone.call(method, uri));
        assert_eq!(got.status(), 503, "{method}");
        assert!(!got.one("Retry-After").is_empty());
    }
    // Requests of existing calls continue.
    let bye = Call {
        method: "BYE".into(),
        uri: format!("sip:phone@{}", bob.address),
        to: ok.one("To").into(),
        cseq: 2,
        lines: format!("Route: {}\n", ok.one("Record-Route")),
        ..call
    };
    phone.send(&phone.text(&bye));
    let got = bob.next();
    assert_eq!(got.method(), "BYE");
}

#[test]
fn a_user_at_our_own_address_is_one_of_the_only_domain() {
    let site = start("proxy.relay_for = \"everyone\"", &["alice"]);
    let phone = site.foreign_phone();
    for (user, status) in [("alice", 480), ("carol", 404)] {
        let got = phone.ask(&phone.call("INVITE", &format!("sip:{user}@{}", site.udp())));
        assert_eq!(got.status(), status, "{user}");
    }
}

#[test]
fn an_address_of_ours_may_be_a_domain_of_ours() {
    let site = start("domains = [\"example.org\", \"{ip}\"]\nregistrar.authenticate = false\nauth.calls = false", &[]);
    let (bob, phone) = (site.phone("bob"), site.foreign_phone());
    let call =
        Call { uri: format!("sip:{}", site.udp()), to: format!("<sip:bob@{}>", site.udp()), ..bob.register_call("") };
    assert_eq!(bob.ask(&call).status(), 200);
    phone.send(&phone.text(&phone.call("MESSAGE", &format!("sip:bob@{}", site.udp().ip()))));
    assert_eq!(bob.next().method(), "MESSAGE");
    assert_eq!(phone.ask(&phone.call("OPTIONS", &format!("sip:{}", site.udp()))).status(), 200);
}
