//! `strowger sipp` on a terminal: keys without Enter, each screen, commands, and a terminal restored at the end.

use std::net::UdpSocket;
use std::process::Command;
use strowger_tests::wait;

use strowger_tests::binary;
use strowger_tests::duel::Ports;
use strowger_tests::terminal::{SOON, Settings, Terminal};

/// Starts a caller at a peer that never answers.
fn caller(folder: &std::path::Path, silent: &UdpSocket, arguments: &[&str]) -> Terminal {
    let ports = Ports::free();
    let target = silent.local_addr().expect("it is bound").to_string();
    let mut command = Command::new(binary::strowger());
    command
        .args(["sipp", "-sn", "uac", &target, "-i", "127.0.0.1", "-nr"])
        .args(["-p", &ports.own.to_string(), "-cp", &ports.control.to_string(), "-mp", &ports.media.to_string()])
        .args(arguments)
        .current_dir(folder);
    Terminal::start(&mut command)
}

fn silent() -> UdpSocket {
    UdpSocket::bind("127.0.0.1:0").expect("a port is free")
}

const RAW: Settings = (false, false);

#[test]
fn each_key_does_what_it_does_in_sipp() {
    let (folder, silent) = (tempfile::tempdir().expect("a temporary folder"), silent());
    let mut t = caller(folder.path(), &silent, &["-r", "2", "-l", "3", "-trace_screen"]);
    t.shows("Scenario Screen");
    assert_eq!(t.settings(), RAW);
    for (key, what) in [
        ("2", "Statistics Screen"),
        ("3", "- Repartition Screen"),
        ("4", "=> No action found on any messages"),
        ("5", "TDM"),
        ("6", "Repartition 2 Screen"),
        ("7", "Repartition 3 Screen"),
        ("8", "Repartition 4 Screen"),
        ("9", "Repartition 5 Screen"),
        ("1", "Scenario Screen"),
        ("+", "  3.0(0 ms)/1.000s"),
        ("*", "  13.0(0 ms)/1.000s"),
        ("-", "  12.0(0 ms)/1.000s"),
        ("/", "  2.0(0 ms)/1.000s"),
        ("p", "- Traffic Paused - Press [p] again to resume -"),
        ("p", "- [+|-|*|/]: Adjust rate -"),
        ("cset rat", "Command: set rat"),
        ("e 7\n", "  7.0(0 ms)/1.000s"),
        (":set rate-scale 2\n+", "  9.0(0 ms)/1.000s"),
        ("cset limit 5\n", "  5 calls (limit 5)"),
        ("cjump\n", "Last Error: Unrecognized command: \"jump\""),
        ("cset users 5\n", "Last Error: Calls come by rate here"),
        ("creset stats\n", "INVITE ---------->         0"),
        ("cset display ooc\n", "Last Error: There is no out-of-call scenario"),
        ("cset limit 0\n", "(limit 0)"),
        ("q", "- Waiting for active calls to end. Press [q] again to force exit. -"),
    ] {
        t.press(key);
        t.shows(what);
    }
    t.press("s");
    let screens = || {
        let mut files = folder.path().read_dir().expect("it is there").map(|e| e.expect("a file").path());
        let file = files.find(|path| path.to_string_lossy().ends_with("_screen.log")).expect("it was opened at once");
        std::fs::read_to_string(file).expect("it is text")
    };
    let are_written = wait::until(SOON, || screens().contains("Average Call Length Repartition"));
    assert!(are_written, "the screens were not written:\n{}", screens());
    t.press("q");
    let status = t.ends();
    assert!(status.code().is_some(), "{status}");
    // After the alternate screen the primary one shows the exit report.
    let text = t.text();
    let after = &text[text.rfind("\x1b[?1049l").unwrap_or(0)..];
    assert!(after.contains("- Test Terminated -") && after.contains("Statistics Screen"), "{after}");
}

#[test]
fn users_come_and_go() {
    let (folder, silent) = (tempfile::tempdir().expect("a temporary folder"), silent());
    let mut t = caller(folder.path(), &silent, &["-users", "2"]);
    t.shows("  2 calls (limit 2)");
    for (key, what) in [("+", "  3 calls (limit 3)"), ("cset users 6\n", "  6 calls (limit 6)")] {
        t.press(key);
        t.shows(what);
    }
    t.press("Q");
    t.ends();
}

#[test]
fn the_steps_of_both_scenarios_are_shown() {
    let (folder, silent) = (tempfile::tempdir().expect("a temporary folder"), silent());
    let mut t = caller(folder.path(), &silent, &["-m", "1", "-oocsn", "ooc_default"]);
    t.shows("Scenario Screen");
    let mut buffer = [0; 4_096];
    let (_, caller_at) = silent.recv_from(&mut buffer).expect("it calls");
    let own = silent.local_addr().expect("it is bound");
    let asked = format!(
        "OPTIONS sip:x@{caller_at} SIP/2.0\r\nVia: SIP/2.0/UDP {own};branch=z9hG4bK-1\r\nFrom: <sip:b@{own}>;tag=1\r\n\
         To: <sip:x@{caller_at}>\r\nCall-ID: another@call\r\nCSeq: 1 OPTIONS\r\nContent-Length: 0\r\n\r\n"
    );
    silent.send_to(asked.as_bytes(), caller_at).expect("it can be sent");
    for (key, what) in [
        ("cset display ooc\n", "          .* <----------         1         0"),
        ("", "         200 ---------->         1         0"),
        ("cset display main\n", "      INVITE ---------->         1         0"),
        ("cset display both\n", "Last Error: Unknown display scenario: both"),
    ] {
        t.press(key);
        t.shows(what);
    }
    t.press("Q");
    t.ends();
}

#[test]
fn every_end_gives_the_terminal_back() {
    std::thread::scope(|scope| {
        for (signal, code) in [
            (libc::SIGINT, 0),
            (libc::SIGTERM, 0),
            (libc::SIGHUP, 128 + libc::SIGHUP),
            (libc::SIGQUIT, 128 + libc::SIGQUIT),
        ] {
            scope.spawn(move || {
                let (folder, silent) = (tempfile::tempdir().expect("a temporary folder"), silent());
                let mut t = caller(folder.path(), &silent, &["-m", "1"]);
                t.is_set(RAW);
                t.shows("Scenario Screen");
                t.signal(signal);
                assert_eq!(t.ends().code(), Some(code), "signal {signal}");
            });
        }
        scope.spawn(|| {
            // An error ends the run.
            let (folder, silent) = (tempfile::tempdir().expect("a temporary folder"), silent());
            let mut t = caller(folder.path(), &silent, &["-timeout", "1", "-timeout_error"]);
            t.is_set(RAW);
            assert_eq!(t.ends().code(), Some(255));
            assert!(t.text().contains("uac timed out after '1."), "{}", t.text());
        });
    });
}

#[test]
fn a_stopped_run_lends_the_terminal() {
    let (folder, silent) = (tempfile::tempdir().expect("a temporary folder"), silent());
    let target = silent.local_addr().expect("it is bound").to_string();
    let ports = Ports::free();
    // A shell with job control: it has the terminal while the run is stopped, and continues the run after a while.
    let mut shell = Command::new("sh");
    shell.args(["-m", "-c", "\"$@\"; sleep 0.5; fg >/dev/null", "sh"]).arg(binary::strowger());
    shell.args(["sipp", "-sn", "uac", &target, "-i", "127.0.0.1", "-nr", "-r", "1"]);
    shell.args(["-p", &ports.own.to_string(), "-cp", &ports.control.to_string(), "-mp", &ports.media.to_string()]);
    let mut t = Terminal::start(shell.current_dir(folder.path()));
    t.is_set(RAW);
    t.shows("Scenario Screen");
    t.press("\x1a");
    t.is_set(t.before);
    t.is_set(RAW);
    t.press("2");
    t.shows("Statistics Screen");
    t.press("Q");
    t.ends();
}
