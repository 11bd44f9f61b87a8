//! Flows with known delays against a peer by hand: each measure of RFC 6076 that `strowger load` reports is within a
//! millisecond of the peer's own measurement.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::Value;
use strowger_tests::peer::{sends_back, until_read};
use strowger_tests::{binary, undisturbed};

/// Answer: milliseconds after the request, start line (and further header fields).
type DelayedAnswer = (u64, &'static str);

/// Answers of the peer to a request, by its method and the number of this method's requests in this call.
type Flow = fn(method: &str, time: usize) -> &'static [DelayedAnswer];

/// Delays measured by the peer, from the arrival of a request to the departure of each answer: (method and number,
/// answer, µs).
type Seen = Arc<Mutex<Vec<(String, &'static str, u64)>>>;

/// Starts a peer for one call after another: it answers in order, and sleeps between.
fn peer(flow: Flow) -> (SocketAddr, Seen) {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_secs(20))).expect("it can be set");
    let address = socket.local_addr().expect("it is bound");
    let seen = Seen::default();
    let told = seen.clone();
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        let mut times: Vec<(String, String)> = Vec::new();
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let came = Instant::now();
            if sends_back(&socket, &buffer[..length], from) {
                continue;
            }
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            let method = text.split(' ').next().unwrap_or_default().to_owned();
            let header = |name: &str| text.lines().find(|l| l.starts_with(name)).unwrap_or_default().to_owned();
            let key = (header("Call-ID:"), method.clone());
            // A retransmission does not count: its CSeq came before.
            times.push(key.clone());
            let time = times.iter().filter(|k| **k == key).count();
            told.lock().expect("no test panics with it").push((format!("{method} {time}"), "came", 0));
            for (place, (delay, line)) in flow(&method, time).iter().enumerate() {
                let due = Duration::from_millis(*delay);
                // Sleeping is coarse, so the last millisecond is a busy wait.
                std::thread::sleep(due.saturating_sub(came.elapsed()).saturating_sub(Duration::from_millis(1)));
                while came.elapsed() < due {
                    std::hint::spin_loop();
                }
                // A forked 200 has a tag of its own.
                let tag = if line.ends_with("fork") { place } else { 0 };
                let line = line.trim_end_matches(" fork");
                let reply = format!(
                    "SIP/2.0 {line}\r\n{}\r\n{}\r\n{};tag=peer{tag}\r\n{}\r\n{}\r\nContact: <sip:{address}>\r\nContent-Length: 0\r\n\r\n",
                    header("Via:"),
                    header("From:"),
                    header("To:"),
                    header("Call-ID:"),
                    header("CSeq:"),
                );
                let took = came.elapsed().as_micros() as u64;
                let _ = socket.send_to(reply.as_bytes(), from);
                let mut told = told.lock().expect("no test panics with it");
                told.push((format!("{method} {time}"), flow(&method, time)[place].1, took));
            }
        }
    });
    (address, seen)
}

/// Number of calls of each flow: the median of so few is still the middle one.
const CALLS: u64 = 6;

/// Makes calls one by one, and returns the report. By then the peer has seen all calls.
fn run(address: SocketAddr, words: &[&str]) -> Value {
    let output = Command::new(binary::strowger())
        .args(["load", &address.to_string(), "--no-preflight", "-r", "50", "-l", "1", "--json", "-"])
        .args(["-m", &CALLS.to_string()])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("the program starts");
    until_read(address);
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
}

fn delay(report: &Value, name: &str, figure: &str) -> f64 {
    report["delays"][name][figure].as_f64().unwrap_or_else(|| panic!("no {name}.{figure}: {}", report["delays"]))
}

fn count(report: &Value, name: &str) -> u64 {
    report["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name}"))
}

fn ratio(report: &Value, name: &str) -> f64 {
    report["ratios"][name]["value"].as_f64().unwrap_or_else(|| panic!("no {name}"))
}

/// Returns the median of the peer's measurements in µs: the time from a request to its answer, or the sum of several
/// such in each call. A busy machine spoils a call or two, not the median.
fn middle(seen: &Seen, stations: &[(&str, &str)]) -> f64 {
    let seen = seen.lock().expect("no test panics with it");
    let mut sums: Vec<u64> = Vec::new();
    for (request, answer) in stations {
        let all = seen.iter().filter(|s| s.0 == *request && s.1 == *answer).map(|s| s.2);
        for (place, took) in all.enumerate() {
            match sums.get_mut(place) {
                Some(sum) => *sum += took,
                None => sums.push(took),
            }
        }
    }
    assert_eq!(sums.len() as u64, CALLS, "{stations:?}: {seen:?}");
    sums.sort_unstable();
    sums[(sums.len() - 1) / 2] as f64
}

/// Asserts equality within a millisecond, which includes the path between both ends.
#[track_caller]
fn near(measured: f64, seen: f64) {
    assert!((measured - seen).abs() < 1_000.0, "{measured} µs measured, {seen} µs seen by the peer");
}

const BYE: &[DelayedAnswer] = &[(20, "200 OK")];

#[test]
fn a_call_that_rings() {
    undisturbed(|| {
        let (address, seen) = peer(|method, _| match method {
            "INVITE" => &[(5, "100 Trying"), (40, "180 Ringing"), (90, "200 OK")],
            "BYE" => BYE,
            _ => &[],
        });
        let report = run(address, &["--hold", "50ms"]);
        near(delay(&report, "srd", "p50"), middle(&seen, &[("INVITE 1", "180 Ringing")]));
        near(delay(&report, "ttfr", "p50"), middle(&seen, &[("INVITE 1", "100 Trying")]));
        near(delay(&report, "response", "p50"), middle(&seen, &[("INVITE 1", "200 OK")]));
        near(delay(&report, "sdd", "p50"), middle(&seen, &[("BYE 1", "200 OK")]));
        let talk = delay(&report, "sdt.originating", "p50");
        assert!((49_000.0..52_000.0).contains(&talk), "{talk}");
        for ratio_name in ["ser", "seer", "scr"] {
            assert_eq!(ratio(&report, ratio_name), 100.0, "{ratio_name}");
        }
        assert_eq!((ratio(&report, "isa"), count(&report, "calls.successful")), (0.0, CALLS));
    });
}

#[test]
fn a_call_with_early_media_and_one_with_nothing_but_100() {
    undisturbed(|| {
        let (address, seen) = peer(|method, _| match method {
            "INVITE" => &[(30, "183 Session Progress"), (60, "200 OK")],
            "BYE" => BYE,
            _ => &[],
        });
        let report = run(address, &["--hold", "0"]);
        near(delay(&report, "srd", "p50"), middle(&seen, &[("INVITE 1", "183 Session Progress")]));
        let (address, seen) = peer(|method, _| match method {
            "INVITE" => &[(5, "100 Trying"), (60, "200 OK")],
            "BYE" => BYE,
            _ => &[],
        });
        let report = run(address, &["--hold", "0"]);
        // A 100 does not count as a status: the 200 is the first that does (RFC 6076 section 4.3).
        near(delay(&report, "srd", "p50"), middle(&seen, &[("INVITE 1", "200 OK")]));
    });
}

#[test]
fn a_challenge_is_part_of_the_delay() {
    undisturbed(|| {
        const CHALLENGE: &str = "407 Proxy Authentication Required\r\nProxy-Authenticate: Digest realm=\"example.org\", nonce=\"n\", qop=\"auth\", algorithm=SHA-256";
        const ASK: &str = "401 Unauthorized\r\nWWW-Authenticate: Digest realm=\"example.org\", nonce=\"n\", qop=\"auth\", algorithm=SHA-256";
        let (address, seen) = peer(|method, time| match (method, time) {
            ("INVITE", 1) => &[(30, CHALLENGE)],
            ("INVITE", _) => &[(40, "180 Ringing"), (50, "200 OK")],
            ("BYE", _) => BYE,
            _ => &[],
        });
        let report = run(address, &["--hold", "0", "--auth", "alice:secret"]);
        let both = middle(&seen, &[("INVITE 1", CHALLENGE), ("INVITE 2", "180 Ringing")]);
        near(delay(&report, "srd", "p50"), both);
        assert_eq!((count(&report, "session.attempts"), count(&report, "challenges")), (CALLS, CALLS));
        let (address, seen) = peer(|_, time| if time == 1 { &[(30, ASK)] } else { &[(40, "200 OK")] });
        let report = run(address, &["-w", "register", "--auth", "alice:secret"]);
        near(delay(&report, "rrd", "p50"), middle(&seen, &[("REGISTER 1", ASK), ("REGISTER 2", "200 OK")]));
        assert_eq!((ratio(&report, "ira"), count(&report, "registration.attempts")), (0.0, CALLS));
    });
}

#[test]
fn refusals_and_where_they_count() {
    undisturbed(|| {
        // ser, seer, isa; each flow refuses every call after 30 ms.
        let flows: [(Flow, &str, [f64; 3]); 2] = [
            (
                |method, _| if method == "INVITE" { &[(30, "486 Busy Here")] } else { &[] },
                "486 Busy Here",
                [0.0, 100.0, 0.0],
            ),
            (
                |method, _| if method == "INVITE" { &[(30, "503 Service Unavailable")] } else { &[] },
                "503 Service Unavailable",
                [0.0, 0.0, 100.0],
            ),
        ];
        for (flow, answer, ratios) in flows {
            let (address, seen) = peer(flow);
            let report = run(address, &[]);
            near(delay(&report, "srd.failed", "p50"), middle(&seen, &[("INVITE 1", answer)]));
            assert_eq!(["ser", "seer", "isa"].map(|name| ratio(&report, name)), ratios, "{answer}");
            assert_eq!((count(&report, "calls.failed"), count(&report, "session.failed")), (CALLS, CALLS), "{answer}");
        }
        let (address, seen) = peer(|method, _| if method == "INVITE" { &[(10, "302 Moved Temporarily")] } else { &[] });
        let report = run(address, &[]);
        let came = |method: &str| {
            let seen = seen.lock().expect("no test panics with it");
            seen.iter().filter(|s| s.0.starts_with(method) && s.1 == "came").count() as u64
        };
        assert_eq!((came("ACK"), came("CANCEL")), (CALLS, 0), "a final answer is acknowledged, not cancelled");
        // A redirected call does not count as an attempt (section 4.6).
        assert_eq!(count(&report, "session.redirected"), CALLS);
        assert!(report["ratios"]["ser"]["value"].is_null(), "{}", report["ratios"]["ser"]);
    });
}

#[test]
fn no_answer_at_all() {
    undisturbed(|| {
        let (address, _) = peer(|_, _| &[]);
        let report = run(address, &["--timeout", "300ms"]);
        assert_eq!((count(&report, "session.timed_out"), count(&report, "calls.failed")), (CALLS, CALLS));
        assert_eq!((ratio(&report, "ser"), ratio(&report, "isa")), (0.0, 100.0));
    });
}

#[test]
fn a_forked_200_is_one_session_and_counted() {
    undisturbed(|| {
        let (address, seen) = peer(|method, _| match method {
            "INVITE" => &[(20, "180 Ringing"), (40, "200 OK"), (45, "200 OK fork")],
            "BYE" => BYE,
            _ => &[],
        });
        let report = run(address, &["--hold", "30ms"]);
        near(delay(&report, "response", "p50"), middle(&seen, &[("INVITE 1", "200 OK")]));
        assert_eq!((count(&report, "session.attempts"), count(&report, "session.answered")), (CALLS, CALLS));
        assert_eq!((count(&report, "session.forked"), count(&report, "calls.successful")), (CALLS, CALLS));
        assert_eq!(ratio(&report, "ser"), 100.0);
        // The other dialog is acknowledged and ended at once (RFC 3261 section 13.2.2.4), the call's own after its hold
        // time.
        near(delay(&report, "sdd", "p50"), middle(&seen, &[("BYE 2", "200 OK")]));
        let seen = seen.lock().expect("no test panics with it");
        let came = |what: &str| seen.iter().filter(|s| s.0 == what && s.1 == "came").count() as u64;
        assert_eq!([came("ACK 1"), came("ACK 2"), came("ACK 3")], [CALLS, CALLS, 0]);
        assert_eq!([came("BYE 1"), came("BYE 2"), came("BYE 3")], [CALLS, CALLS, 0]);
    });
}

#[test]
fn registrations_that_are_refused_or_never_answered() {
    undisturbed(|| {
        let (address, _) = peer(|_, _| &[(20, "403 Forbidden")]);
        let report = run(address, &["-w", "register"]);
        assert_eq!((ratio(&report, "ira"), ratio(&report, "ira.any")), (100.0, 100.0));
        assert_eq!(
            (count(&report, "registration.failed"), report["delays"]["rrd"]["count"].as_u64()),
            (CALLS, Some(0))
        );
        let (address, _) = peer(|_, _| &[]);
        let report = run(address, &["-w", "register", "--timeout", "200ms"]);
        assert_eq!((ratio(&report, "ira"), count(&report, "registration.timed_out")), (100.0, CALLS));
        // A challenge without an answer of the client is no failure of the server (section 4.2), but no registration
        // either.
        const ASK: &str = "401 Unauthorized\r\nWWW-Authenticate: Digest realm=\"example.org\", nonce=\"n\"";
        let (address, _) = peer(|_, _| &[(5, ASK)]);
        let report = run(address, &["-w", "register"]);
        assert_eq!((ratio(&report, "ira"), ratio(&report, "ira.any")), (0.0, 100.0), "{}", report["counters"]);
    });
}

#[test]
fn a_session_that_does_not_end_well() {
    undisturbed(|| {
        let (address, seen) = peer(|method, _| match method {
            "INVITE" => &[(5, "200 OK")],
            "BYE" => &[(30, "481 Call/Transaction Does Not Exist")],
            _ => &[],
        });
        let report = run(address, &["--hold", "0"]);
        near(delay(&report, "sdd.failed", "p50"), middle(&seen, &[("BYE 1", "481 Call/Transaction Does Not Exist")]));
        assert_eq!((count(&report, "disconnect.failed"), ratio(&report, "scr")), (CALLS, 0.0));
        let (address, _) = peer(|method, _| if method == "INVITE" { &[(5, "200 OK")] } else { &[] });
        let report = run(address, &["--hold", "100ms", "--timeout", "300ms"]);
        assert_eq!((count(&report, "disconnect.timed_out"), ratio(&report, "scr")), (CALLS, 0.0));
        // From the 200 to the timeout of the BYE (section 4.5.2), and from the BYE on (section 4.4.2). A busy machine
        // makes some of them longer, not each.
        let (talk, bye) = (delay(&report, "sdt.failed", "min"), delay(&report, "sdd.failed", "min"));
        assert!((bye - 300_000.0).abs() < 5_000.0 && (talk - 400_000.0).abs() < 8_000.0, "{talk} {bye}");
    });
}
