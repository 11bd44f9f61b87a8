//! Requests that are refused, denied or not answered at all.

use super::{SOON, Stage, code, send};
use strowger_tests::meter::Shows::{At, By};
use strowger_tests::server::Setup;
use strowger_tests::text::{Request, status};
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

pub(super) const SCENES: &[(&str, fn())] = &[
    ("refusals", refusals),
    ("unreadable messages", unreadable),
    ("withheld answers", withheld),
    ("relaying", relaying),
    ("nowhere to go", nowhere),
    ("a shutdown", shutdown),
];

/// Status code of the answer, and the change that makes a request wrong.
type Case = (u16, fn(Request) -> Vec<u8>);

const CASES: &[Case] = &[
    (400, |r| replaced(&r, "CSeq: 1 OPTIONS", "CSeq: one OPTIONS")),
    (400, |r| replaced(&r, "Call-ID", "X-Call-ID")),
    (414, |r| replaced(&r, "OPTIONS sip:", &format!("OPTIONS sip:{}@", "x".repeat(4_100)))),
    (416, |r| replaced(&r, "OPTIONS sip:", "OPTIONS unknown:")),
    (420, |r| r.with("Require: something").bytes()),
    (420, |r| Request { uri: "sip:x@127.0.0.1:9".into(), ..r.with("Proxy-Require: something") }.bytes()),
    (405, |r| replaced(&r, "OPTIONS", "PUBLISH")),
    (483, |r| Request { uri: "sip:x@127.0.0.1:9".into(), max_forwards: 0, ..r }.bytes()),
    (501, |r| replaced(&r, "OPTIONS", "UNHEARDOF")),
    (505, |r| replaced(&r, " SIP/2.0\r\nVia", " SIP/3.0\r\nVia")),
    (513, |r| r.with(format!("X: {}", "x".repeat(7_000))).bytes()),
];

fn replaced(request: &Request, from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(request.bytes()).expect("it is text");
    assert!(text.contains(from), "no {from} in {text}");
    text.replace(from, to).into_bytes()
}

fn refusals() {
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar().with("limits.message_size = \"6KiB\""));
    let uri = format!("sip:{}", stage.server.address(Udp));
    for (number, (refused, make)) in CASES.iter().enumerate() {
        let mut wire = stage.server.connect(Udp);
        let request = make(Request::new("OPTIONS", &uri, "udp", wire.local()));
        wire.send(&request).expect("loopback takes it");
        let answer = wire.final_response(SOON).and_then(|answer| status(&answer));
        assert_eq!(answer, Some(*refused), "case {number}");
        stage.shows(&[("requests_refused_total", By(1)), ("requests_total", By(1))]);
    }
    let mut phone = stage.server.connect(Udp);
    let register = |contact: &str, expires: u32| {
        let mut request = Request::register("bob", "example.org", contact, "udp", phone.local());
        request.headers[1] = format!("Expires: {expires}");
        request
    };
    let own = register(&uri, 600);
    let brief = register("sip:bob@127.0.0.1:9", 1);
    assert_eq!((code(&mut phone, &own), code(&mut phone, &brief)), (403, 423));
    stage.shows(&[("requests_refused_total", By(2)), ("registrations_total", By(0)), ("bindings", At(0))]);
    // A correct request is not refused.
    let right = Request::new("OPTIONS", &uri, "udp", phone.local());
    assert_eq!(code(&mut phone, &right), 200);
    stage.shows(&[("requests_refused_total", By(0)), ("requests_total", By(1))]);
    stage.end();
}

fn unreadable() {
    let mut stage = Stage::start(Setup::on(&[Udp]).open_registrar());
    let mut wire = stage.server.connect(Udp);
    let request = Request::new("OPTIONS", "sip:example.org", "udp", wire.local());
    let without_via = replaced(&request, "Via", "X-Via");
    let response = "SIP/2.0 OK\r\n\r\n".to_owned();
    for message in [b"neither a request nor a response\r\n\r\n".to_vec(), without_via, response.into_bytes()] {
        wire.send(&message).expect("loopback takes it");
        stage.shows(&[
            ("messages_unreadable_total", By(1)),
            ("datagrams_in_total", By(1)),
            ("datagrams_out_total", By(0)),
        ]);
    }
    stage.end();
}

/// An answer of more than three times the length of its request.
fn withheld() {
    let lines = "domains = [\"example.org\"]\nauth.algorithms = [\"MD5\", \"SHA-256\", \"SHA-512-256\"]";
    let mut stage = Stage::start(Setup::on(&[Udp, Tcp]).with(lines));
    let short = |wire: &Wire, transport: &str| {
        format!(
            "REGISTER sip:example.org SIP/2.0\r\nv:SIP/2.0/{transport} {};branch=z9hG4bK1\r\nf:<sip:b@example.org>;tag=1\r\nt:<sip:b@example.org>\r\n\
             i:{transport}\r\nCSeq:1 REGISTER\r\nl:0\r\n\r\n",
            wire.local()
        )
    };
    let mut phone = stage.server.connect(Udp);
    let request = short(&phone, "UDP");
    phone.send(request.as_bytes()).expect("loopback takes it");
    stage.shows(&[
        ("answers_withheld_total", By(1)),
        ("challenges_total", By(0)),
        ("requests_total", By(1)),
        ("datagrams_out_total", By(0)),
    ]);
    // A connection cannot forge its source.
    let mut phone = stage.server.connect(Tcp);
    let request = short(&phone, "TCP");
    phone.send(request.as_bytes()).expect("the server reads");
    assert_eq!(phone.final_response(SOON).as_deref().and_then(status), Some(401));
    stage.shows(&[("answers_withheld_total", By(0)), ("challenges_total", By(1)), ("requests_total", By(1))]);
    stage.end();
}

fn relaying() {
    let lines = "domains = [\"example.org\"]\nproxy.relay_for = \"local-domains\"";
    let mut stage = Stage::start(Setup::on(&[Udp]).with(lines));
    let mut guest = stage.server.connect(Udp);
    let request = Request::new("MESSAGE", "sip:x@127.0.0.1:9", "udp", guest.local());
    assert_eq!(code(&mut guest, &request), 403);
    stage.shows(&[
        ("requests_relay_denied_total", By(1)),
        ("datagrams_out_total", By(1)),
        ("requests_forwarded_total", By(0)),
        ("challenges_total", By(0)),
    ]);
    let mut ack = Request::new("ACK", "sip:x@127.0.0.1:9", "udp", guest.local());
    ack.to += ";tag=x";
    send(&mut guest, &ack);
    stage.shows(&[("requests_relay_denied_total", By(1)), ("datagrams_out_total", By(0))]);
    stage.end();
}

fn nowhere() {
    let mut stage = Stage::with_users(Setup::on(&[Udp]).with("domains = [\"example.org\"]"), &["bob"]);
    let mut guest = stage.server.connect(Udp);
    for (user, answer) in [("nobody", 404), ("bob", 480)] {
        let request = Request::new("MESSAGE", &format!("sip:{user}@example.org"), "udp", guest.local());
        assert_eq!(code(&mut guest, &request), answer);
        stage.shows(&[
            ("requests_not_found_total", By(1)),
            ("requests_suspended_total", By(1)),
            ("subscriber_lookup_seconds_count", By(1)),
            ("failed_lookups_total", By(0)),
        ]);
    }
    stage.end();
}

fn shutdown() {
    let setup = Setup::on(&[Udp]).relay().with("timers.t1 = \"4s\"\nserver.drain_timeout = \"20s\"");
    let mut stage = Stage::start(setup);
    let silent = stage.server.connect(Udp);
    let uri = format!("sip:bob@{}", silent.local());
    let mut caller = stage.server.connect(Udp);
    // The pending call keeps the server from ending.
    let call = Request::new("INVITE", &uri, "udp", caller.local());
    send(&mut caller, &call);
    stage.shows(&[("requests_unanswered", At(1)), ("requests_refused_at_shutdown_total", By(0))]);
    stage.server.process().signal(libc::SIGTERM);
    stage.server.log_with("graceful shutdown");
    let late = Request::new("INVITE", &uri, "udp", caller.local());
    assert_eq!(code(&mut caller, &late), 503);
    stage.shows(&[
        ("requests_refused_at_shutdown_total", By(1)),
        ("requests_overloaded_total", By(0)),
        ("requests_unanswered", At(1)),
    ]);
    stage.end();
}
