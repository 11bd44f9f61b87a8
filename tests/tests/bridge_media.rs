//! Media of bridged calls, as the generator and phones on both sides judge them.

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use strowger_tests::baresip::{Baresip, Phone, end, with_users};
use strowger_tests::bridge::{Documents, Ends, documents, setup};
use strowger_tests::control::{json, wait_for_no_calls};
use strowger_tests::generator::{Answers, Ran, Running, answers_at};
use strowger_tests::program::{BARESIP, have};
use strowger_tests::server::{Server, Setup};
use strowger_tests::stalls::Stalls;
use strowger_tests::wire::Transport::Udp;
use strowger_tests::{undisturbed, wait};
use tempfile::TempDir;

use crate::echo_media::{over_the_rest, watched};

const SOON: Duration = Duration::from_secs(30);

/// Ports of the tests with the generator: 28 pairs, which carry 14 bridged calls.
const PORTS: &str = "22000-22055";

/// Largest time between two packets of a stream while the machine does not stand still.
const DELTA: Duration = Duration::from_millis(150);

/// Largest number of calls at a time, so that the ports of ended calls can return.
const CALLS: &str = "12";

/// Generators on both sides of a server.
struct Bench {
    server: Server,
    callee: Answers,
    caller: String,
    _folder: TempDir,
}

/// Starts a server with its media at 127.0.0.`octet`, and a generator that answers at the next address.
fn bench(octet: u8, ends: Ends) -> Bench {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, content).expect("the folder can be written");
        path.display().to_string()
    };
    file("sound.raw", &[0xff; 8_000]);
    let Documents { caller, callee } = documents(Duration::from_secs(2), ends);
    let (caller, callee) = (file("caller.xml", caller.as_bytes()), file("callee.xml", callee.as_bytes()));
    let callee = answers_at([127, 0, 0, octet + 1].into(), &["--scenario", &callee]);
    let to = format!("to = [\"sip:{}\"]", callee.address);
    let server = setup(&format!("127.0.0.{octet}"), PORTS, &to).start();
    Bench { server, callee, caller, _folder: folder }
}

impl Bench {
    /// Begins `calls` calls, which must meet these requirements.
    fn call(&self, from: &str, calls: &str, required: &[&str]) -> Running {
        let target = self.server.address(Udp).to_string();
        let mut words = vec![&*target, "--sf", &self.caller, "--source", from, "--no-preflight"];
        words.extend(["-r", "10", "-m", calls, "-l", CALLS]);
        words.extend(required.iter().flat_map(|requirement| ["--require", requirement]));
        Running::start(&words)
    }
}

/// Asserts that a side has heard a stream in each of these calls of two seconds.
fn hears(ran: &Ran, calls: u64) {
    let count = |name: &str| ran.count("counters", name);
    let figures = ["media.streams", "media.silent", "media.lost", "media.doubled"].map(count);
    assert_eq!(figures, [calls, 0, 0, 0], "{}", ran.said);
    // 50 packets a second. The first may come before the other side has shown that it is there.
    let heard = count("media.heard");
    assert!((85 * calls..=106 * calls).contains(&heard), "{heard}\n{}", ran.said);
}

#[test]
fn calls_of_the_generator_are_heard_on_both_sides() {
    undisturbed(|| {
        let mut bench = bench(61, Ends::Caller);
        let required = ["media.silent==0", "media.lost==0", "media.doubled==0", "media.mos.min>=4.3"];
        let (stalls, begun) = (Stalls::watch(), Instant::now());
        // Each pair of ports serves several calls.
        let mut generator = bench.call("127.0.0.63", "40", &required);
        let (process, ip) = (bench.server.process().id(), [127, 0, 0, 61]);
        // Two sockets on each side of a call.
        let is_open = wait::until(SOON, || watched(process, ip) >= 24);
        let ran = generator.end(Duration::from_secs(60));
        assert!(is_open, "no six calls had their sessions:\n{}", bench.server.log());
        ran.ended_with(0);
        ran.all_successful(40);
        hears(&ran, 40);
        let (largest, stood) = (ran.delay("media.max_delta", "p99"), stalls.longest(begun, Instant::now()));
        // A generator that was late says nothing of the delay.
        assert!(ran.code != 0 || largest < (DELTA + stood).as_micros() as f64, "{largest} us, {stood:?}\n{}", ran.said);
        assert!(wait::until(SOON, || watched(process, ip) == 0), "{} sockets are left", watched(process, ip));
        assert_eq!(json(&bench.server, &["calls", "list"]), serde_json::json!([]));
        hears(&bench.callee.report(), 40);
    });
}

#[test]
fn a_callee_of_the_generator_ends_its_calls() {
    undisturbed(|| {
        let bench = bench(64, Ends::Callee);
        let ran = bench.call("127.0.0.66", "10", &["media.silent==0"]).end(Duration::from_secs(60));
        ran.ended_with(0);
        ran.all_successful(10);
        hears(&ran, 10);
        assert_eq!(json(&bench.server, &["calls", "list"]), serde_json::json!([]));
        hears(&bench.callee.report(), 10);
    });
}

/// Returns a phone of a user of this server. All but that of alice answer.
pub(crate) fn phone(user: &'static str, password: &'static str, server: SocketAddr) -> Phone<'static> {
    Phone {
        user,
        domain: "example.org",
        password,
        server,
        outbound_name: None,
        transport: "udp",
        authority: None,
        answers: user != "alice",
        namespace: None,
        listen: end(),
    }
}

#[test]
fn two_phones_hear_each_other_within_a_second_of_the_answer() {
    if !have(&[BARESIP]) {
        return;
    }
    undisturbed(|| {
        let media = "media.addresses = [\"127.0.0.67\"]\nmedia.ports = \"22000-22199\"\nlog.level = \"debug\"";
        let rule = "[[rule]]\nname = \"bridge\"\nb2bua = true";
        let server = with_users(Setup::on(&[Udp]).with(media).with(rule));
        let start = |user, password, tone| {
            let mut phone = Baresip::start_with_tone(&phone(user, password, server.address(Udp)), tone);
            phone.registered(SOON);
            phone
        };
        let mut bob = start("bob", "secret-of-bob", 700);
        let mut alice = start("alice", "secret-of-alice", 1_000);
        alice.order("dial", "sip:bob@example.org");
        alice.expect("CALL_ESTABLISHED", SOON);
        let (stalls, answered) = (Stalls::watch(), Instant::now());
        // A fifth of a second of the other's tone, 20 dB over the rest.
        let hears = |phone: &Baresip, tone: f64| {
            let sound = phone.recording();
            sound.len().checked_sub(1_600).is_some_and(|from| over_the_rest(&sound[from..], tone) > 20.0)
        };
        let came = wait::until(SOON, || hears(&alice, 700.0) && hears(&bob, 1_000.0)).then(|| stalls.since(answered));
        assert!(came.is_some_and(|time| time < Duration::from_secs(1)), "{came:?}\n{}", server.log());
        let calls = json(&server, &["calls", "list"]);
        assert_eq!(calls.as_array().map(Vec::len), Some(1), "{calls}");
        bob.order("hangup", "");
        alice.expect("CALL_CLOSED", SOON);
        wait_for_no_calls(&server, SOON);
    });
}
