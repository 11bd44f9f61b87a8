//! Contacts that lead back to this server: they forward calls, and no request multiplies.

use std::net::SocketAddr;
use std::time::Duration;

use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, fields, request_uri, respond, status, unique};
use strowger_tests::wire::Transport::Udp;
use strowger_tests::wire::Wire;

const LIMIT: Duration = Duration::from_secs(5);

/// Starts a registrar without passwords; by default external callers may call its users.
fn start(lines: &str) -> Site {
    let lines = format!("domains = [\"example.org\"]\nregistrar.authenticate = false\nlog.level = \"error\"\n{lines}");
    Setup::on(&[Udp]).with(&lines).in_memory().site()
}

/// Registers these contacts, verbatim in the header field; returns the status.
fn register(wire: &mut Wire, user: &str, contacts: &str) -> Option<u16> {
    let mut request = Request::register(user, "example.org", "sip:x", "udp", wire.local());
    request.headers = vec![format!("Contact: {contacts}"), "Expires: 600".into()];
    wire.send(&request.bytes()).expect("loopback takes it");
    wire.final_response(LIMIT).as_deref().and_then(status)
}

/// Registers a phone of this user.
fn phone(server: &Site, user: &str) -> Wire {
    let mut wire = server.connect(Udp);
    let contact = format!("<sip:{user}@{}>", wire.local());
    assert_eq!(register(&mut wire, user, &contact), Some(200));
    wire
}

/// Sends a request to this user; returns the wire that gets the answer.
fn ask(server: &Site, user: &str) -> Wire {
    let mut wire = server.connect(Udp);
    let request = Request::new("MESSAGE", &format!("sip:{user}@example.org"), "udp", wire.local());
    wire.send(&request.bytes()).expect("loopback takes it");
    wire
}

fn answer(phone: &mut Wire, code: u16) {
    let request = phone.request("MESSAGE", LIMIT).expect("the request");
    phone.send(&respond(&request, code, "t", &[])).expect("loopback takes it");
}

#[test]
fn a_contact_that_is_a_user_of_ours_stands_for_its_phones() {
    let server = start("");
    let mut admin = server.connect(Udp);
    let [mut bob, mut carol, mut desk] = ["bob", "carol", "alice"].map(|user| phone(&server, user));
    // Alice has a desk phone, and forwards to bob and, after him, to carol through a group.
    assert_eq!(register(&mut admin, "alice", "<sip:bob@example.org>;q=0.5, <sip:group@EXAMPLE.org>;q=0.4"), Some(200));
    assert_eq!(register(&mut admin, "group", "<sip:carol@example.org>"), Some(200));
    let mut caller = ask(&server, "alice");
    answer(&mut desk, 480);
    answer(&mut bob, 486);
    let request = carol.request("MESSAGE", LIMIT).expect("the request");
    assert_eq!(request_uri(&request), format!("sip:carol@{}", carol.local()));
    assert_eq!(fields(&request, "Via").len(), 2, "it did not leave the server in between");
    carol.send(&respond(&request, 200, "c", &[])).expect("loopback takes it");
    assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200));
}

/// An edge in front of a registrar, both with one secret, so that each can continue calls of the other: an unchanged
/// request through both is no loop (RFC 3261 section 16.3 item 4).
#[test]
fn what_passes_two_servers_with_one_secret_is_no_loop() {
    const SECRET: &str = "auth.secret = \"one secret, two servers\"";
    let edge = Setup::on(&[Udp]).relay().with(SECRET).site();
    let open = "domains = [\"127.0.0.1\"]\nregistrar.authenticate = false\nauth.calls = false";
    let registrar = Setup::on(&[Udp]).with(open).with(SECRET).in_memory().site_beside(&edge);
    let mut bob = registrar.connect(Udp);
    let mut request = Request::register("bob", "127.0.0.1", "sip:x", "udp", bob.local());
    request.headers = vec![format!("Contact: <sip:bob@{}>", bob.local()), "Expires: 600".into()];
    bob.send(&request.bytes()).expect("loopback takes it");
    assert_eq!(bob.final_response(LIMIT).as_deref().and_then(status), Some(200));
    let mut caller = edge.connect(Udp);
    let uri = format!("sip:bob@{}", registrar.address(Udp));
    caller.send(&Request::new("MESSAGE", &uri, "udp", caller.local()).bytes()).expect("loopback takes it");
    answer(&mut bob, 200);
    assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200));
}

#[test]
fn contacts_that_lead_round_end_in_482() {
    let server = start("");
    let mut admin = server.connect(Udp);
    assert_eq!(register(&mut admin, "alice", "<sip:bob@example.org>"), Some(200));
    assert_eq!(register(&mut admin, "bob", "<sip:carol@example.org>, <sip:alice@example.org>;q=0.5"), Some(200));
    assert_eq!(register(&mut admin, "carol", "<sip:alice@example.org>"), Some(200));
    assert_eq!(ask(&server, "alice").final_response(LIMIT).as_deref().and_then(status), Some(482));
    // A phone among these contacts is found nevertheless, and only once.
    let mut dave = phone(&server, "dave");
    assert_eq!(register(&mut admin, "carol", "<sip:dave@example.org>;q=0.1"), Some(200));
    let mut caller = ask(&server, "alice");
    answer(&mut dave, 200);
    assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200));
}

#[test]
fn a_contact_that_names_this_server_is_refused() {
    let server = start("");
    let mut admin = server.connect(Udp);
    let own = server.address(Udp);
    for contact in [
        format!("<sip:m@{own};x=1>"),
        format!("<sip:{own}>"),
        format!("<sip:m@elsewhere.test:{};maddr=127.0.0.1>", own.port()),
        String::from("<sip:example.org>"),
        // No user may forward to itself.
        String::from("<sip:m@example.org;x=1>"),
    ] {
        assert_eq!(register(&mut admin, "m", &contact), Some(403), "{contact}");
    }
    // A phone on this machine is allowed.
    let here = admin.local();
    assert_eq!(register(&mut admin, "m", &format!("<sip:m@{here}>")), Some(200));
    // A Path determines the target of each contact.
    for (path, code) in [
        (format!("<sip:{own};lr>"), 403),
        (String::from("<sip:m@example.org;lr>, <sip:127.0.0.9;lr>"), 403),
        (format!("<sip:example.org:{};lr>", own.port()), 403),
        (format!("<sip:elsewhere.test:{};maddr=127.0.0.1;lr>", own.port()), 403),
        (format!("<sip:{here};lr>, <sip:{own};lr>"), 200),
    ] {
        let mut request = Request::register("p", "example.org", "sip:x", "udp", here);
        let contact = "Contact: <sip:p@10.9.9.9>".into();
        request.headers = vec![contact, "Supported: path".into(), format!("Path: {path}")];
        admin.send(&request.bytes()).expect("loopback takes it");
        assert_eq!(admin.final_response(LIMIT).as_deref().and_then(status), Some(code), "{path}");
    }
}

/// The server recognizes a name as its own only after the look-up, so requests come straight back to it: with its own
/// Via on top.
#[test]
fn what_comes_straight_back_costs_a_bounded_number_of_branches() {
    let lines = "domains = [\"example.org\", \"localhost\"]\nregistrar.authenticate = false\nproxy.max_branches = 20";
    let server = Setup::on(&[Udp]).with(lines).in_memory().site();
    let mut admin = server.connect(Udp);
    let mut request = Request::register("m", "example.org", "sip:x", "udp", admin.local());
    let contacts: Vec<_> = (1..10).map(|n| format!("<sip:m@example.org;x={n}>;q=0.{n}")).collect();
    let path = format!("Path: <sip:pbx.localhost:{};lr>", server.address(Udp).port());
    request.headers = vec![format!("Contact: {}", contacts.join(", ")), "Supported: path".into(), path];
    admin.send(&request.bytes()).expect("loopback takes it");
    assert_eq!(admin.final_response(LIMIT).as_deref().and_then(status), Some(200));
    let answer = ask(&server, "m").final_response(LIMIT);
    assert!(matches!(answer.as_deref().and_then(status), Some(440 | 482)));
    // Each of these is a request, and forwards at least one request.
    let forwarded = server.rig().counts().forwarded;
    assert!((2..=21).contains(&forwarded), "{forwarded}");
}

/// Passes a request back to its server from an address that the server does not know as its own; removes the server's
/// Via from a response. Returns the number of requests.
fn reflect(wire: &mut Wire, message: &[u8]) -> usize {
    let (text, own) = (String::from_utf8_lossy(message), wire.local());
    let (start, rest) = text.split_once("\r\n").expect("a message has lines");
    let is_request = !start.starts_with("SIP/2.0");
    let back = if is_request {
        let start = start.replace(&own.to_string(), "example.org");
        format!("{start}\r\nVia: SIP/2.0/UDP {own};branch={}\r\n{rest}", unique("z9hG4bK"))
    } else {
        format!("{start}\r\n{}", rest.split_once("\r\n").map_or("", |(_, rest)| rest))
    };
    wire.send(back.as_bytes()).expect("the server takes messages");
    usize::from(is_request)
}

/// Each contact leads the request back to all of them, so every order of them is possible.
#[test]
fn one_request_costs_a_bounded_number_of_branches() {
    for (most, lines) in [(64, ""), (20, "proxy.max_branches = 20")] {
        let server = start(lines);
        for count in [3, 5, 10] {
            let mut reflector = server.connect_from(Udp, SocketAddr::from(([127, 0, 0, 2], 0)));
            let mut admin = server.connect(Udp);
            let user = format!("m{count}");
            let contacts: Vec<_> =
                (0..count).map(|n| format!("<sip:{user}@{};x={n}>;q=0.{}", reflector.local(), 99 - n)).collect();
            assert_eq!(register(&mut admin, &user, &contacts.join(", ")), Some(200));
            let mut caller = ask(&server, &user);
            let mut requests = 0;
            while let Some(message) = reflector.receive(Duration::from_millis(100)) {
                requests += reflect(&mut reflector, &message);
            }
            assert!((count..=most).contains(&requests), "{requests} requests by {count} contacts");
            // The branches ran out, or only loops remained.
            let answer = caller.final_response(LIMIT).as_deref().and_then(status);
            assert!(matches!(answer, Some(440 | 482)), "{answer:?}");
        }
    }
}
