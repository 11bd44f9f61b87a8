//! `strowger load` and failures on the way: its counts, messages and exit codes.

use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::path::Path;
use std::time::Duration;

use strowger_tests::certificate::Certificate;
use strowger_tests::generator::{Running, answers, load, output, peer, refused};
use strowger_tests::kamailio::Kamailio;
use strowger_tests::program::{KAMAILIO, have};
use strowger_tests::server::Setup;
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::wire::Transport;
use strowger_tests::{port, together};

#[test]
fn what_goes_wrong_is_counted_and_said() {
    together(&[
        ("a_closed_port", a_closed_port),
        ("a_frozen_receiver", a_frozen_receiver),
        ("an_overloaded_receiver", an_overloaded_receiver),
        ("a_rate_limiter", a_rate_limiter_is_met_before_the_calls),
        ("a_silent_host", a_silent_host_is_named_while_calls_wait),
        ("a_ban_of_our_server", a_ban_of_our_server_is_named_with_the_password),
        ("pike", pike_is_named_and_the_preflight_does_not_wake_it),
        ("a_server_itself", options_ask_the_server_itself),
        ("a_handshake_that_fails", a_handshake_that_fails),
        ("a_full_disk", a_full_disk),
    ]);
}

fn a_closed_port() {
    let address = port::free_address().to_string();
    // The pre-flight meets the failure, before a call is made.
    for target in [address.clone(), format!("tcp://{address}"), format!("tls://{address}")] {
        let (code, said) = refused(&[&target, "-m", "10"]);
        assert_eq!(code, 1, "{said}");
        assert!(said.contains("nothing listens on") && said.contains("is the server running"), "{target}: {said}");
    }
    // The calls meet the failure.
    let ran = load(&[&address, "--no-preflight", "-r", "100", "-m", "20", "--timeout", "1s"]);
    ran.ended_with(1);
    assert_eq!((ran.calls("outgoing"), ran.calls("failed")), (20, 20), "{}", ran.said);
    assert!(ran.failures("refused") == 20 && ran.said.contains("nothing listens on"), "{}", ran.said);
    let tcp = format!("tcp://{address}");
    let ran = load(&[&tcp, "--no-preflight", "-r", "100", "-m", "20", "--timeout", "1s"]);
    ran.ended_with(1);
    assert_eq!((ran.calls("failed"), ran.failures("connect")), (20, 20), "{}", ran.said);
    assert!(ran.said.contains("No connection to"), "{}", ran.said);
    let own = ran.count("counters", "send_failures");
    assert_eq!(own, 0, "the target refused, not the generator:\n{}", ran.said);
}

fn a_frozen_receiver() {
    let uas = answers(&[]);
    uas.signal(libc::SIGSTOP);
    let ran = load(&[&uas.address.to_string(), "-r", "100", "-m", "50", "--timeout", "1500ms"]);
    uas.signal(libc::SIGCONT);
    ran.ended_with(1);
    assert_eq!((ran.calls("outgoing"), ran.calls("failed")), (50, 50), "{}", ran.said);
    assert_eq!(ran.failures("receive_timeout"), 50, "{}", ran.said);
    // Timer A: 500 ms and 1.5 s after the INVITE; the second coincides with the timeout.
    assert!((50..=100).contains(&ran.count("counters", "retransmissions")), "{}", ran.said);
    assert_eq!(ran.json["ratios"]["isa"]["value"], 100.0, "{}", ran.said);
    assert!(ran.said.contains("Nothing came back from"), "{}", ran.said);
}

fn an_overloaded_receiver() {
    // OPTIONS is answered; of the calls only the first ten.
    let address = peer(|number, text| match text.split(' ').next() {
        Some("INVITE") if number > 20 => Some("503 Service Unavailable\r\nRetry-After: 5"),
        _ => Some("200 OK"),
    });
    let ran = load(&[&address.to_string(), "-r", "100", "-m", "100", "--hold", "0"]);
    ran.ended_with(1);
    assert_eq!(ran.calls("outgoing"), 100, "{}", ran.said);
    let refused = ran.count("counters", "session.ineffective");
    assert!(refused >= 80, "{}", ran.said);
    assert_eq!((ran.failures("unexpected"), ran.calls("failed")), (refused, refused), "{}", ran.said);
    assert!(ran.said.contains("refused for overload, or by a rate limiter"), "{}", ran.said);
}

fn a_rate_limiter_is_met_before_the_calls() {
    let address = peer(|number, text| match text.starts_with("OPTIONS") && number >= 6 {
        true => Some("503 Service Unavailable\r\nRetry-After: 7"),
        false => Some("200 OK"),
    });
    let ran = load(&[&address.to_string(), "-r", "200", "-m", "10", "--hold", "0"]);
    assert!(ran.said.contains("seems to limit the rate: after 6 requests"), "{}", ran.said);
    assert!(ran.json["verdict"]["warnings"].to_string().contains("Retry-After: 7"), "{}", ran.json["verdict"]);
}

/// Long before the first call times out, which takes 32 s.
fn a_silent_host_is_named_while_calls_wait() {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    let address = socket.local_addr().expect("it is bound").to_string();
    let mut run = Running::start(&[&address, "-r", "2", "-m", "100", "--grace", "0"]);
    let begun = Stopwatch::start();
    run.wait_for(&format!("Nothing has come back from {address} yet"));
    assert!(begun.took().is_below(Duration::from_secs(10)), "{:?}", begun.took());
    run.signal(libc::SIGINT);
    let ran = run.end(Duration::from_secs(10));
    ran.ended_with(1);
    assert_eq!(ran.calls("failed"), 0, "no call was given up yet: {}", ran.said);
}

fn a_ban_of_our_server_is_named_with_the_password() {
    let server = Setup::on(&[Transport::Udp])
        .with("domains = [\"example.org\"]\nrealm = \"example.org\"\nban.exempt = []")
        .start();
    server.add_user("alice@example.org", "secret");
    let target = server.address(Transport::Udp).to_string();
    // Ten failures cause the ban. A separate source address keeps the test's own free.
    let words = [&target, "-w", "register", "--domain", "example.org", "--auth", "alice:wrong"];
    let ran = load(&[&words[..], &["--source", "127.0.0.9", "-r", "40", "-m", "60", "--timeout", "1500ms"]].concat());
    ran.ended_with(1);
    assert_eq!(ran.failures("authentication"), 10, "{}", ran.said);
    assert!(ran.said.contains("is the password right"), "{}", ran.said);
    assert!(
        ran.said.contains("a rate limit or ban of this address (pike, fail2ban, Strowger's [ban])"),
        "{}",
        ran.said
    );
    let warnings = ran.json["verdict"]["warnings"].to_string();
    assert!(warnings.contains(&format!("Answers from {target} stopped after")), "{warnings}");
    assert!(!ran.said.contains("got no answer"), "one hint is enough: {}", ran.said);
    // The next run meets the ban at once.
    let ran =
        load(&[&words[..], &["--source", "127.0.0.9", "-m", "1", "--no-preflight", "--timeout", "600ms"]].concat());
    assert!(ran.said.contains("is this address banned there?"), "{}", ran.said);
    assert!(ran.said.contains("Server       answered nothing: 1 call, "), "{}", ran.said);
}

fn pike_is_named_and_the_preflight_does_not_wake_it() {
    if !have(&[KAMAILIO]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let port = port::free();
    let _kamailio = Kamailio::start(folder.path(), "pike", &[("UDP", &port.to_string())]);
    let target = format!("127.0.0.1:{port}");
    let one = load(&[&target, "-r", "200", "-m", "1", "--hold", "0"]);
    one.all_successful(1);
    assert!(!one.said.contains("stopped answering"), "{}", one.said);
    let ran = load(&[&target, "-r", "50", "-m", "75", "--hold", "0", "--timeout", "1500ms"]);
    ran.ended_with(1);
    assert!(ran.said.contains(&format!("Answers from {target} stopped after")), "{}", ran.said);
    assert!(ran.said.contains("pike"), "{}", ran.said);
}

/// A server without a user `service` answers itself.
fn options_ask_the_server_itself() {
    let server = Setup::on(&[Transport::Udp]).start();
    let target = server.address(Transport::Udp).to_string();
    for words in [&["-w", "options"][..], &["--mix", "options=100,call=0"]] {
        let ran = load(&[&[target.as_str(), "-r", "100", "-m", "5"], words].concat());
        ran.ended_with(0);
        ran.all_successful(5);
    }
    // A named user is asked.
    let ran = load(&[&format!("sip:service@{target}"), "-w", "options", "-r", "100", "-m", "5"]);
    ran.ended_with(1);
}

fn a_handshake_that_fails() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let [server, other] = ["server", "other"].map(|name| {
        let path = folder.path().join(name);
        std::fs::create_dir(&path).expect("the folder can be written");
        Certificate::in_folder(&path, &["example.org"])
    });
    let text = |path: &Path| path.display().to_string();
    let uas = answers(&["--transport", "tls", "--tls-cert", &text(&server.chain), "--tls-key", &text(&server.key)]);
    let target = format!("tls://{}", uas.address);
    let trust = |authority: &Path| {
        load(&[&target, "-r", "50", "-m", "10", "--timeout", "2s", "--hold", "0", "--tls-ca", &text(authority)])
    };
    let good = trust(&server.authority);
    good.all_successful(10);
    let bad = trust(&other.authority);
    bad.ended_with(1);
    assert_eq!(bad.calls("failed"), 10, "{}", bad.said);
    assert!(bad.said.contains("TLS handshake with") && bad.said.contains("must be of an authority"), "{}", bad.said);
    // The reason is reported, and that the server did not refuse it.
    let warnings = bad.json["verdict"]["warnings"].to_string();
    assert!(bad.said.contains("failed: invalid peer certificate: "), "{}", bad.said);
    assert!(
        warnings.contains("handshake failed, the last with") && !warnings.contains("The target refused"),
        "{warnings}"
    );
    assert_eq!(bad.count("counters", "send_failures.remote"), 0, "{}", bad.said);

    // A port without TLS, which closes the connection.
    let plain = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let target = format!("tls://{}", plain.local_addr().expect("it is bound"));
    std::thread::spawn(move || {
        for mut stream in plain.incoming().flatten() {
            let _ = stream.read(&mut [0; 64]);
            let _ = stream.write_all(b"SIP/2.0 400 Bad Request\r\n\r\n");
        }
    });
    let ran = load(&[&target, "-r", "50", "-m", "5", "--timeout", "2s"]);
    ran.ended_with(1);
    assert_eq!(ran.calls("failed"), 5, "{}", ran.said);
    assert!(ran.said.contains("does it speak TLS on this port?"), "{}", ran.said);
    assert!(
        ran.said.contains("a handshake failed, the last with") && !ran.said.contains("The target refused"),
        "{}",
        ran.said
    );
}

fn a_full_disk() {
    let uas = answers(&[]);
    let address = uas.address.to_string();
    let calls = [address.as_str(), "-r", "50", "-m", "10", "--hold", "0"];
    for option in ["--json", "--csv", "--html"] {
        let output = output(&[&calls[..], &[option, "/dev/full"]].concat());
        let (table, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert_eq!(output.status.code(), Some(if table.contains("INVALID") { 4 } else { 1 }), "{said}");
        assert!(said.contains("/dev/full cannot be written: No space left on device"), "{said}");
        assert!(table.contains("10 successful"), "the figures are shown all the same: {table}");
    }
    let ran = load(&[&calls[..], &["--log", "/dev/full"]].concat());
    ran.ended_with(0);
    assert_eq!(ran.calls("successful"), 10, "a log that is lost stops no run: {}", ran.said);
    assert!(ran.said.contains("raw log cannot be written"), "{}", ran.said);
    let output = output(&[&calls[..], &["--log", "/dev/full", "--quiet"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("raw log cannot be written"), "it is no matter of taste: {said}");
}
