//! Permissions to call: `proxy.relay_for`, `auth.calls`.

use crate::site::*;

/// Starts a site with four phones: alice, bob (registered), an unknown caller, and a phone of a foreign domain by its address.
fn world(lines: &str) -> (Site, Phone, Phone, Phone, Phone) {
    let site = start(lines, &["alice", "bob"]);
    let (alice, bob, stranger, foreign) =
        (site.phone("alice"), site.phone("bob"), site.foreign_phone(), site.foreign_phone());
    bob.register();
    (site, alice, bob, stranger, foreign)
}

fn foreign_uri(foreign: &Phone) -> String {
    format!("sip:carol@{}", foreign.address)
}

/// Checks that the request is forwarded and its response returned.
fn comes_through(from: &Phone, to: &Phone, text: &str) -> Got {
    from.send(text);
    let got = to.next();
    assert_eq!(got.method(), "MESSAGE", "{}", got.0);
    to.respond(&got, 200, "");
    assert_eq!(from.answer().status(), 200);
    got
}

#[test]
fn authenticated_users_only() {
    let (_site, alice, bob, stranger, foreign) = world("");
    // Any caller reaches a local user.
    comes_through(&stranger, &bob, &stranger.text(&stranger.call("MESSAGE", "sip:bob@example.org")));
    // An unknown caller reaches no other target.
    for from in [&stranger, &alice] {
        let got = from.ask(&from.call("MESSAGE", &foreign_uri(&foreign)));
        assert_eq!(got.status(), 407);
        assert!(got.all("Proxy-Authenticate").iter().all(|c| c.contains("realm=\"example.org\"")));
    }
    // A local user must authenticate even to call a local user.
    assert_eq!(alice.ask(&alice.call("MESSAGE", "sip:bob@example.org")).status(), 407);
    for (to, phone) in [(foreign_uri(&foreign), &foreign), ("sip:bob@example.org".to_owned(), &bob)] {
        let call = alice.call("MESSAGE", &to);
        let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
        let got = comes_through(&alice, phone, &alice.text(&call));
        // Credentials for this server are not forwarded (RFC 3261 section 22.3).
        assert!(got.all("Proxy-Authorization").is_empty());
    }
    // A wrong password, an unknown user, another user.
    let call = alice.call("MESSAGE", &foreign_uri(&foreign));
    let wrong = alice.authorized(&call, &alice.ask(&call), "alice", "wrong");
    assert_eq!(alice.ask(&wrong).status(), 407);
    let unknown = alice.authorized(&call, &alice.ask(&alice.call("MESSAGE", &foreign_uri(&foreign))), "nobody", "x");
    assert_eq!(alice.ask(&unknown).status(), 407);
    let call = alice.call("MESSAGE", &foreign_uri(&foreign));
    assert_eq!(alice.ask_as(&call, "bob").status(), 403);
    foreign.hears_nothing();
}

#[test]
fn from_local_domains() {
    let (_site, alice, _bob, stranger, foreign) = world("proxy.relay_for = \"local-domains\"");
    assert_eq!(stranger.ask(&stranger.call("MESSAGE", &foreign_uri(&foreign))).status(), 403);
    let call = alice.call("MESSAGE", &foreign_uri(&foreign));
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    comes_through(&alice, &foreign, &alice.text(&call));
}

#[test]
fn from_local_domains_without_a_password() {
    let (_site, alice, bob, stranger, foreign) = world("proxy.relay_for = \"local-domains\"\nauth.calls = false");
    assert_eq!(stranger.ask(&stranger.call("MESSAGE", &foreign_uri(&foreign))).status(), 403);
    comes_through(&alice, &foreign, &alice.text(&alice.call("MESSAGE", &foreign_uri(&foreign))));
    comes_through(&alice, &bob, &alice.text(&alice.call("MESSAGE", "sip:bob@example.org")));
}

#[test]
fn everyone() {
    let (_site, alice, bob, stranger, foreign) = world("proxy.relay_for = \"everyone\"");
    comes_through(&stranger, &foreign, &stranger.text(&stranger.call("MESSAGE", &foreign_uri(&foreign))));
    comes_through(&stranger, &bob, &stranger.text(&stranger.call("MESSAGE", "sip:bob@example.org")));
    // The name of a local user is protected for all targets.
    for to in ["sip:bob@example.org".to_owned(), foreign_uri(&foreign)] {
        assert_eq!(alice.ask(&alice.call("MESSAGE", &to)).status(), 407);
    }
}

#[test]
fn everyone_without_passwords() {
    let (_site, alice, bob, _stranger, foreign) = world("proxy.relay_for = \"everyone\"\nauth.calls = false");
    comes_through(&alice, &bob, &alice.text(&alice.call("MESSAGE", "sip:bob@example.org")));
    comes_through(&alice, &foreign, &alice.text(&alice.call("MESSAGE", &foreign_uri(&foreign))));
}

/// Checks that a local name with another port needs a password too, because a phone shows the caller's name without the
/// port.
#[test]
fn a_port_or_a_dot_in_from_hides_no_local_user() {
    let (site, alice, bob, stranger, _) = world("domains = [\"example.org\", \"{ip}\"]");
    for from in ["sip:alice@example.org:9", "sips:alice@EXAMPLE.org:5061", "sip:alice@example.org.", "sip:alice@{ip}:9"]
    {
        let from = from.replace("{ip}", &site.udp().ip().to_string());
        let call = Call { from: format!("<{from}>;tag=1"), ..stranger.call("MESSAGE", "sip:bob@example.org") };
        assert_eq!(stranger.ask(&call).status(), 407, "{from}");
    }
    // With the password, the port is allowed.
    let call = Call { from: "<sip:alice@example.org:9>;tag=1".into(), ..alice.call("MESSAGE", "sip:bob@example.org") };
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    comes_through(&alice, &bob, &alice.text(&call));
}

/// Checks that a phone that registered by UDP is no target of a sips URI, which promises TLS up to the phone (RFC 3261
/// section 26.2.2).
#[test]
fn a_sips_uri_leads_to_no_phone_without_tls() {
    let (_site, _, bob, stranger, _) = world("");
    assert_eq!(stranger.ask(&stranger.call("INVITE", "sips:bob@example.org")).status(), 480);
    bob.hears_nothing();
}

#[test]
fn a_domain_may_bear_a_dot_at_its_end_and_a_port_that_we_are_known_by() {
    let lines = "[[listener]]\ntransport = \"tcp\"\nport = 0\nadvertise = \"sip.example.org:7070\"";
    let (_site, _, bob, stranger, _) = world(lines);
    for to in ["sip:bob@example.org.", "sip:bob@example.org:7070"] {
        comes_through(&stranger, &bob, &stranger.text(&stranger.call("MESSAGE", to)));
    }
    // Any other port belongs to another server.
    assert_eq!(stranger.ask(&stranger.call("MESSAGE", "sip:bob@example.org:7071")).status(), 407);
}

#[test]
fn a_route_elsewhere_is_relaying_too() {
    let (_site, alice, _bob, stranger, foreign) = world("");
    // The Request-URI is local, but the Route leads to another server.
    let route = format!("Route: <sip:{};lr>\n", foreign.address);
    let with_route = |phone: &Phone| Call { lines: route.clone(), ..phone.call("MESSAGE", "sip:bob@example.org") };
    assert_eq!(stranger.ask(&with_route(&stranger)).status(), 407);
    let call = with_route(&alice);
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    let got = comes_through(&alice, &foreign, &alice.text(&call));
    assert_eq!(got.all("Route"), [route.trim().trim_start_matches("Route: ")]);
    // A preloaded Route to this server changes nothing.
    let mut call = stranger.call("MESSAGE", &foreign_uri(&foreign));
    call.lines = "Route: <sip:example.org;lr>\n".into();
    assert_eq!(stranger.ask(&call).status(), 407);
}

#[test]
fn a_to_tag_alone_opens_nothing() {
    let (_site, _alice, _bob, stranger, foreign) = world("");
    for method in ["INVITE", "BYE", "INFO"] {
        let mut call = stranger.call(method, &foreign_uri(&foreign));
        call.to.push_str(";tag=x");
        assert_eq!(stranger.ask(&call).status(), 407, "{method}");
        call.lines = "Route: <sip:example.org;lr>\n".into();
        call.cseq += 1;
        assert_eq!(stranger.ask(&call).status(), 407, "{method}");
    }
    let mut ack = stranger.call("ACK", &foreign_uri(&foreign));
    ack.to.push_str(";tag=x");
    stranger.send(&stranger.text(&ack));
    stranger.hears_nothing();
    foreign.hears_nothing();
}

/// Returns the header lines, except From, that name the caller in a received request.
fn named(got: &Got) -> Vec<String> {
    let names = ["P-Preferred-Identity", "P-Asserted-Identity", "Remote-Party-ID"];
    names.iter().flat_map(|name| got.all(name).into_iter().map(move |value| format!("{name}: {value}"))).collect()
}

/// Checks RFC 3325 sections 5 and 7.
#[test]
fn a_caller_that_withholds_its_identity_is_not_named() {
    let (_site, alice, bob, stranger, foreign) = world("");
    let anonymous = "\"Anonymous\" <sip:anonymous@anonymous.invalid>;tag=1";
    let preferred = "P-Preferred-Identity: <sip:alice@example.org>\n";
    let asserted = "P-Asserted-Identity: \"Alice\" <sip:alice@example.org>";
    let party = "Remote-Party-ID: <sip:alice@example.org>;party=calling;screen=no";
    let lines = [preferred, &format!("{preferred}{asserted}\n{party}\n"), &format!("{asserted}\n")];
    for lines in lines {
        for (to, phone) in [("sip:bob@example.org".to_owned(), &bob), (foreign_uri(&foreign), &foreign)] {
            let mut call = Call { from: anonymous.into(), ..alice.call("MESSAGE", &to) };
            call.lines = format!("{lines}Privacy: id\n");
            if phone.address == foreign.address {
                call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
            }
            let got = comes_through(&alice, phone, &alice.text(&call));
            assert_eq!((named(&got), got.one("Privacy")), (vec![], "id"), "{}", got.0);
            assert!(!got.0.contains("alice@example.org"), "{}", got.0);
        }
    }
    // Without Privacy the asserted identity passes; the preferred one is only for the first proxy.
    let mut call = alice.call("MESSAGE", "sip:bob@example.org");
    call.lines = format!("{preferred}{asserted}\n{party}\n");
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    let got = comes_through(&alice, &bob, &alice.text(&call));
    assert_eq!(named(&got), [asserted, party]);
    // The privacy of a caller from a foreign domain is respected too.
    let mut call = stranger.call("MESSAGE", "sip:bob@example.org");
    call.lines = "P-Asserted-Identity: <tel:+4930123>\nPrivacy: user;id\n".into();
    assert_eq!(named(&comes_through(&stranger, &bob, &stranger.text(&call))), [""; 0]);
}

#[test]
fn no_caller_is_named_as_a_user_of_ours_whose_password_it_did_not_show() {
    let (_site, alice, bob, stranger, _) = world("");
    let of_bob = [
        "P-Asserted-Identity: <sip:carol@example.org>",
        "P-Asserted-Identity: <tel:+4930123>, \"Carol\" <sip:carol@EXAMPLE.org:5999>",
        "Remote-Party-ID: \"Carol\" <sip:carol@example.org>;party=calling",
        "Remote-Party-ID: <sip:carol@example.org",
        // An identity of another user: the sender is not trusted (RFC 3325 section 5).
        "P-Asserted-Identity: <tel:+4930123>",
        "Remote-Party-ID: <sip:x@example.net>;party=calling",
    ];
    for line in of_bob {
        let mut call = stranger.call("MESSAGE", "sip:bob@example.org");
        call.lines = format!("{line}\n");
        let got = comes_through(&stranger, &bob, &stranger.text(&call));
        assert_eq!(named(&got), [""; 0], "{line}");
    }
    // A password proves one user only.
    let mut call = alice.call("MESSAGE", "sip:bob@example.org");
    call.lines = "Remote-Party-ID: <sip:carol@example.org>;party=calling\n".into();
    let call = alice.authorized(&call, &alice.ask(&call), "alice", "alice");
    assert_eq!(named(&comes_through(&alice, &bob, &alice.text(&call))), [""; 0]);
}

/// Checks that without authentication of calls, the names of callers are not checked either.
#[test]
fn where_calls_need_no_password_callers_are_named_as_they_say() {
    let (_site, alice, bob, ..) = world("auth.calls = false");
    let mut call = alice.call("MESSAGE", "sip:bob@example.org");
    call.lines = "P-Asserted-Identity: <sip:carol@example.org>\n".into();
    let got = comes_through(&alice, &bob, &alice.text(&call));
    assert_eq!(named(&got), ["P-Asserted-Identity: <sip:carol@example.org>"]);
}
