//! Bounds and lifetimes of bindings, and their writing.

use std::time::Duration;

use strowger_tests::call::exchange;
use strowger_tests::text::{self, Request};
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

use super::{SOON, code, open};

/// Returns a REGISTER with this lifetime; `None` leaves it to the server.
fn binding(wire: &Wire, user: &str, expires: Option<u32>) -> Request {
    let contact = format!("sip:{user}@{}", wire.local());
    let mut request = Request::register(user, "example.org", &contact, wire.transport().name(), wire.local());
    request.headers.truncate(1);
    request.headers.extend(expires.map(|seconds| format!("Expires: {seconds}")));
    request
}

fn granted(answer: &[u8]) -> u32 {
    let contact = text::field(answer, "Contact").unwrap_or_default();
    let value = contact.split("expires=").nth(1).unwrap_or_default();
    value.chars().take_while(char::is_ascii_digit).collect::<String>().parse().unwrap_or_default()
}

#[test]
fn bindings_live_as_long_as_the_bounds_say() {
    let server = open(
        "registrar.min_expires = \"2m\"\nregistrar.max_expires = \"4m\"\nregistrar.default_expires = \"3m\"\n\
         registrar.max_bindings = 2",
    );
    let mut wire = server.connect(Udp);
    let mut ask = |request: &Request| exchange(&mut wire, request);
    let local = server.connect(Udp);
    let brief = ask(&binding(&local, "a", Some(119)));
    assert_eq!((code(&brief), text::field(&brief, "Min-Expires").as_deref()), (423, Some("120")));
    assert_eq!(granted(&ask(&binding(&local, "a", Some(9_999)))), 240);
    assert_eq!(granted(&ask(&binding(&local, "a", None))), 180);
    // A smaller one would fit.
    let mut large = binding(&local, "b", None);
    large.headers[0] = format!("Contact: <sip:{}@127.0.0.1>", "x".repeat(16 << 10));
    assert!((400..600).contains(&code(&ask(&large))));
    assert_eq!(code(&ask(&binding(&local, "b", None))), 200);
    assert_eq!(code(&ask(&binding(&local, "c", None))), 503);
}

/// A phone announces support; "demand" refuses a Path added for a phone that does not.
#[test]
fn path_is_kept_ignored_or_demanded() {
    for (setting, said, unsaid) in [
        ("keep", (200, true), (200, true)),
        ("ignore", (200, false), (200, false)),
        ("demand", (200, true), (421, false)),
    ] {
        let server = open(&format!("registrar.path = \"{setting}\""));
        let mut wire = server.connect(Udp);
        for (supported, expected) in [("path", said), ("outbound", unsaid)] {
            let request = binding(&wire, "a", None).with(format!("Supported: {supported}"));
            let answer = exchange(&mut wire, &request.with("Path: <sip:127.0.0.1:9;lr>"));
            assert_eq!((code(&answer), text::field(&answer, "Path").is_some()), expected, "{setting}, {supported}");
        }
    }
}

/// By default pings are requests; this is the alternative.
#[test]
fn a_phone_is_pinged_by_line_ends_if_the_setting_says_so() {
    let server = open("nat.ping_interval = \"1s\"\nnat.ping_method = \"crlf\"");
    let mut wire = server.connect(Tcp);
    assert_eq!(
        code(&{
            let request = binding(&wire, "a", None);
            exchange(&mut wire, &request)
        }),
        200
    );
    let came = wire.chunk(SOON).expect("a ping comes");
    assert!(came.iter().all(|byte| b"\r\n".contains(byte)), "{}", String::from_utf8_lossy(&came));
}

/// Without flows to keep open there is no wake-up.
#[test]
fn without_pings_a_server_with_phones_rests() {
    let mut server = open("nat.ping_interval = \"never\"");
    let mut phone = server.connect(Tcp);
    let request = Request::register(
        "bob",
        "example.org",
        &format!("sip:bob@{};transport=tcp", phone.local()),
        "tcp",
        phone.local(),
    );
    assert_eq!(code(&exchange(&mut phone, &request)), 200);
    // The first pings would be due a second later.
    std::thread::sleep(Duration::from_millis(1_100));
    let (used, rest) = (server.process().run_time(), Duration::from_millis(300));
    // The time of the measurement.
    std::thread::sleep(rest);
    let used = server.process().run_time() - used;
    assert!(used < rest / 10, "{used:?} of processor time in {rest:?} without a message");
}
