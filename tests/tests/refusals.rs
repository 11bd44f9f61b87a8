//! Log lines about refused requests: enough to identify the sender, never so many that they fill a disk.

use std::time::Duration;

use strowger_rig::credentials;
use strowger_tests::server::Setup;
use strowger_tests::site::Site;
use strowger_tests::text::{Request, status, unique};
use strowger_tests::wire::{Transport, Wire};

/// Time after which the server tells how many lines it has suppressed.
const SUMMARY: Duration = Duration::from_secs(61);

fn start(lines: &str) -> Site {
    let lines = format!("domains = [\"example.org\"]\nlog.refusals_per_minute = 50\n{lines}");
    let server = Setup::on(&[Transport::Udp]).with(&lines).site();
    server.add_user("bob@example.org", "his password");
    server
}

/// Registers with a wrong password; returns the status of the answer, if any.
fn fail(wire: &mut Wire) -> Option<u16> {
    let limit = Duration::from_secs(2);
    let mut request = Request::register("bob", "example.org", "sip:bob@127.0.0.1", "udp", wire.local());
    wire.send(&request.bytes()).expect("loopback takes it");
    let asked = wire.final_response(limit)?;
    let shown = credentials(&asked, "bob", b"a guess", ("REGISTER", &request.uri, b""), 1);
    request.cseq += 1;
    request.branch.push('2');
    request.headers.push(shown);
    wire.send(&request.bytes()).expect("loopback takes it");
    status(&wire.final_response(limit)?)
}

fn count(server: &Site, words: &str) -> usize {
    server.log().lines().filter(|line| line.contains(words)).count()
}

#[test]
fn wrong_passwords_do_not_fill_the_log() {
    let server = start("");
    let mut wire = server.connect(Transport::Udp);
    for _ in 0..30 {
        assert_eq!(fail(&mut wire), Some(401));
    }
    server.wait(SUMMARY);
    let said = "authentication failed call_id=";
    assert_eq!(count(&server, said), 5, "a tenth of 50 of one source: {}", server.log());
    assert_eq!(count(&server, &format!("source={} user=bob", wire.local())), 5, "{}", server.log());
    assert_eq!(
        count(&server, "suppressed log lines count=25 setting=log.refusals_per_minute authentication=25"),
        1,
        "{}",
        server.log()
    );
}

/// A proxy in front of phones, or an office behind one router, counts as one source.
#[test]
fn one_kind_of_refusal_does_not_hide_another() {
    let server = start("");
    let mut wire = server.connect(Transport::Udp);
    for _ in 0..12 {
        let request =
            Request::new("OPTIONS", "sip:example.org", "udp", wire.local()).with("User-Agent: friendly-scanner");
        wire.send(&request.bytes()).expect("loopback takes it");
    }
    let call = Request::new("INVITE", "sip:carol@example.org", "udp", wire.local());
    for _ in 0..7 {
        wire.send(&Request { branch: unique("z9hG4bK"), ..call.clone() }.bytes()).expect("loopback takes it");
        assert_eq!(wire.final_response(Duration::from_secs(2)).as_deref().and_then(status), Some(404));
    }
    assert_eq!(fail(&mut wire), Some(401));
    server.wait(SUMMARY);
    assert_eq!(count(&server, "scanner dropped"), 5, "{}", server.log());
    assert_eq!(count(&server, "request refused status=404"), 5, "{}", server.log());
    assert_eq!(count(&server, "authentication failed"), 1, "{}", server.log());
    let left_out = "suppressed log lines count=9 setting=log.refusals_per_minute scanners=7 requests=2";
    assert_eq!(count(&server, left_out), 1, "{}", server.log());
}

#[test]
fn who_is_banned_is_always_named() {
    let server = start("ban.exempt = []\nban.failures = 8");
    let mut wire = server.connect(Transport::Udp);
    for _ in 0..8 {
        assert_eq!(fail(&mut wire), Some(401));
    }
    server.wait(SUMMARY);
    assert_eq!(count(&server, "authentication failed call_id="), 5, "{}", server.log());
    assert_eq!(
        count(&server, "source banned: too many failed authentications source=127.0.0.1"),
        1,
        "{}",
        server.log()
    );
}
