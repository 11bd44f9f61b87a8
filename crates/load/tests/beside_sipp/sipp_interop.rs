//! This engine with SIPp's command line against Debian's SIPp: the built-in scenarios in both roles, over UDP and TCP,
//! the exit codes, and the statistics file column by column.

use crate::listening::{wait_for_tcp, wait_for_udp};
use std::net::{TcpListener, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Returns the example with SIPp's command line, built with the tests.
fn ours() -> PathBuf {
    let mut path = std::env::current_exe().expect("a test has a file");
    path.pop();
    path.pop();
    path.join("examples/sipp")
}

/// Returns Debian's SIPp, if installed.
fn theirs() -> Option<PathBuf> {
    let path = PathBuf::from("/usr/bin/sipp");
    if path.exists() {
        return Some(path);
    }
    println!("{} is not there (package sip-tester): the test is left out", path.display());
    None
}

/// Returns a port free for UDP and TCP.
fn port() -> u16 {
    loop {
        let udp = UdpSocket::bind("127.0.0.1:0").expect("there are ports");
        let port = udp.local_addr().expect("it is bound").port();
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    fn start(program: &PathBuf, folder: &std::path::Path, line: &str) -> Self {
        let mut command = Command::new(program);
        command.args(line.split_whitespace()).arg("-nostdin").current_dir(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Self(command.spawn().expect("the program is there"))
    }

    fn code(&mut self) -> Option<i32> {
        let until = Instant::now() + Duration::from_secs(40);
        while Instant::now() < until {
            if let Some(status) = self.0.try_wait().expect("it is ours") {
                return status.code();
            }
            // Between two looks.
            std::thread::sleep(Duration::from_millis(10));
        }
        None
    }
}

#[test]
fn both_roles_by_udp_and_tcp() {
    let Some(theirs) = theirs() else { return };
    let files = tempfile::tempdir().expect("a temporary folder");
    for (mode, callee, caller) in
        [("u1", &ours(), &theirs), ("u1", &theirs, &ours()), ("t1", &ours(), &theirs), ("t1", &theirs, &ours())]
    {
        let (a, b, media) = (port(), port(), port() & !3);
        let mut uas = Running::start(callee, files.path(), &format!("-sn uas -i 127.0.0.1 -p {a} -t {mode} -m 30"));
        let wait = if mode == "u1" { wait_for_udp } else { wait_for_tcp };
        wait(&format!("127.0.0.1:{a}"));
        let line = format!("-sn uac -i 127.0.0.1 -p {b} -t {mode} -m 30 -r 100 -mp {media} 127.0.0.1:{a}");
        let mut uac = Running::start(caller, files.path(), &line);
        assert_eq!((uac.code(), uas.code()), (Some(0), Some(0)), "{mode}, caller {}", caller.display());
    }
}

/// Returns the lines of a statistics file, split at the delimiter.
fn rows(path: &std::path::Path) -> Vec<Vec<String>> {
    let text = std::fs::read_to_string(path).expect("the file was written");
    text.lines().map(|line| line.split(';').map(str::to_owned).collect()).collect()
}

#[test]
fn the_statistics_have_the_same_columns_and_the_same_counts() {
    let Some(theirs) = theirs() else { return };
    let files = tempfile::tempdir().expect("a temporary folder");
    let mut all = Vec::new();
    for program in [&ours(), &theirs] {
        let (a, b, media) = (port(), port(), port() & !3);
        let _uas = Running::start(program, files.path(), &format!("-sn uas -i 127.0.0.1 -p {a}"));
        wait_for_udp(&format!("127.0.0.1:{a}"));
        let line =
            format!("-sn uac -i 127.0.0.1 -p {b} -m 20 -r 50 -mp {media} -trace_stat -stf s.csv -fd 1 127.0.0.1:{a}");
        assert_eq!(Running::start(program, files.path(), &line).code(), Some(0));
        all.push(rows(&files.path().join("s.csv")));
    }
    let (mine, reference) = (&all[0], &all[1]);
    assert_eq!(mine[0], reference[0], "the header");
    let last = |rows: &Vec<Vec<String>>| rows.last().expect("there are lines").clone();
    let (mine, reference) = (last(mine), last(reference));
    assert_eq!(mine.len(), reference.len());
    for (i, name) in all[0][0].iter().enumerate() {
        // Cumulative counts that do not depend on the speed of the machine.
        let counts = name.ends_with("(C)") && !name.starts_with("Elapsed") && !name.starts_with("CallRate");
        let counts = counts && !name.starts_with("ResponseTime") && !name.starts_with("CallLength");
        let counts = counts && !name.starts_with("Warnings") && !name.starts_with("Watchdog");
        if counts || matches!(name.as_str(), "TargetRate" | "TotalCallCreated" | "CurrentCall") {
            assert_eq!(mine[i], reference[i], "{name}");
        }
    }
}

#[test]
fn exit_codes() {
    let files = tempfile::tempdir().expect("a temporary folder");
    let free = port();
    for (line, code) in [
        (format!("-sn uas -p {} -timeout 1", port()), 97),
        (format!("-sn uas -p {} -timeout 1 -timeout_error", port()), 255),
        (format!("-sn uac 127.0.0.1:{free} -p {} -m 1 -recv_timeout 300", port()), 1),
        ("-sn nonsense 127.0.0.1".into(), 1),
        ("-sf no-such-file.xml 127.0.0.1".into(), 1),
        ("-sn uac".into(), 255),
        ("-sn uac -bogus 127.0.0.1".into(), 1),
        (format!("-sn uas -i 192.0.2.77 -p {}", port()), 255),
    ] {
        let programs = std::iter::once(ours()).chain(theirs());
        for program in programs {
            assert_eq!(
                Running::start(&program, files.path(), &line).code(),
                Some(code),
                "{} {line}",
                program.display()
            );
        }
    }
}

#[test]
fn several_threads_share_the_calls() {
    let files = tempfile::tempdir().expect("a temporary folder");
    let (a, b, control) = (port(), port(), port());
    let line = format!("-sn uas -i 127.0.0.1 -p {a} -threads 2 -cp {control}");
    let mut uas = Running::start(&ours(), files.path(), &line);
    wait_for_udp(&format!("127.0.0.1:{a}"));
    let line =
        format!("-sn uac -i 127.0.0.1 -p {b} -threads 3 -m 3000 -r 2000 -trace_stat -stf s.csv -fd 1 127.0.0.1:{a}");
    assert_eq!(Running::start(&ours(), files.path(), &line).code(), Some(0));
    let rows = rows(&files.path().join("s.csv"));
    let last = rows.last().expect("there are lines");
    // Created, successful, failed.
    assert_eq!((last[11].as_str(), last[15].as_str(), last[17].as_str()), ("3000", "3000", "0"));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("there are ports");
    socket.send_to(b"Q", ("127.0.0.1", control)).expect("loopback takes it");
    assert_eq!(uas.code(), Some(0));
}

#[test]
fn the_control_port_and_signals_end_a_run() {
    let files = tempfile::tempdir().expect("a temporary folder");
    let control = port();
    let mut uas = Running::start(&ours(), files.path(), &format!("-sn uas -i 127.0.0.1 -p {} -cp {control}", port()));
    wait_for_udp(&format!("127.0.0.1:{control}"));
    let socket = UdpSocket::bind("127.0.0.1:0").expect("there are ports");
    socket.send_to(b"q", ("127.0.0.1", control)).expect("loopback takes it");
    assert_eq!(uas.code(), Some(0));
}
