//! `strowger sipp` on a terminal: keys without Enter, each screen, commands, and a terminal that is as it was afterwards.

use std::fs::File;
use std::io::{Read, Write};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strowger_tests::wait;

use strowger_tests::binary;
use strowger_tests::duel::Ports;

const SOON: Duration = Duration::from_secs(15);

/// A program on a terminal of its own.
struct Terminal {
    child: Child,
    keyboard: File,
    /// The program's side, kept open so that its settings can be asked for after its end.
    line: OwnedFd,
    seen: Arc<Mutex<Vec<u8>>>,
    before: Settings,
}

/// What matters of the settings: whether lines are collected, whether keys are echoed.
type Settings = (bool, bool);

impl Terminal {
    fn start(command: &mut Command) -> Self {
        let (mut own, mut line) = (-1, -1);
        let size = libc::winsize { ws_row: 40, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        // SAFETY: both numbers are written to, the size is read, nothing else is asked for.
        let opened = unsafe { libc::openpty(&mut own, &mut line, std::ptr::null_mut(), std::ptr::null(), &size) };
        assert_eq!(opened, 0, "this machine has terminals");
        // SAFETY: openpty made both, and nobody else has them.
        let (own, line) = unsafe { (OwnedFd::from_raw_fd(own), OwnedFd::from_raw_fd(line)) };
        let again = || line.try_clone().expect("a descriptor is left");
        command.stdin(again()).stdout(again()).stderr(again()).env("TERM", "xterm");
        // SAFETY: between fork and exec only system calls are made.
        unsafe {
            command.pre_exec(|| {
                // The tests themselves may have been started with signals ignored, by nohup or in the background.
                for signal in [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGTSTP] {
                    libc::signal(signal, libc::SIG_DFL);
                }
                libc::setsid();
                libc::ioctl(0, libc::TIOCSCTTY, 0);
                Ok(())
            });
        }
        let before = settings(&line);
        let child = command.spawn().expect("strowger starts");
        let keyboard = File::from(own);
        let mut screen = keyboard.try_clone().expect("a descriptor is left");
        let seen = Arc::<Mutex<Vec<u8>>>::default();
        let into = seen.clone();
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                into.lock().expect("nobody panics with it").extend_from_slice(&bytes[..n]);
            }
        });
        Self { child, keyboard, line, seen, before }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).expect("the terminal is there");
    }

    fn text(&self) -> String {
        String::from_utf8_lossy(&self.seen.lock().expect("nobody panics with it")).into_owned()
    }

    /// The picture that was drawn last, whole.
    fn picture(&self) -> String {
        let text = self.text();
        let end = text.rfind("\x1b[J").unwrap_or(0);
        let begin = text[..end].rfind("\x1b[H").unwrap_or(0);
        text[begin..end].replace("\x1b[H", "").replace("\x1b[K", "")
    }

    /// Waits until the picture says something.
    fn shows(&self, what: &str) {
        let is_shown = wait::until(SOON, || self.picture().contains(what));
        assert!(is_shown, "{what:?} is not shown:\n{}", self.picture());
    }

    fn signal(&self, signal: i32) {
        // SAFETY: the child was started here and not yet waited for.
        unsafe { libc::kill(self.child.id() as i32, signal) };
    }

    /// Waits until the settings are these.
    fn is_set(&self, wanted: Settings) {
        let is_set = wait::until(SOON, || settings(&self.line) == wanted);
        assert!(is_set, "the terminal is not set to {wanted:?}:\n{}", self.text());
    }

    /// Waits for the end; then the terminal is as it was.
    fn ends(&mut self) -> ExitStatus {
        let status = wait::look(SOON, || self.child.try_wait().expect("a child can be asked"));
        let status = status.unwrap_or_else(|| panic!("it does not end:\n{}", self.picture()));
        assert_eq!(settings(&self.line), self.before, "the terminal is not as it was");
        // What the child wrote last may still be on its way to the reader.
        assert!(wait::until(SOON, || self.has_left_screen()), "the other screen was not left");
        status
    }

    /// The alternate screen was left after it was last entered.
    fn has_left_screen(&self) -> bool {
        let text = self.text();
        text.rfind("\x1b[?1049l") > text.rfind("\x1b[?1049h")
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn settings(line: &OwnedFd) -> Settings {
    // SAFETY: a terminal's settings are plain numbers, and it fills them in.
    let mut termios: libc::termios = unsafe { std::mem::zeroed() };
    // SAFETY: the descriptor is open.
    assert_eq!(unsafe { libc::tcgetattr(line.as_raw_fd(), &mut termios) }, 0);
    (termios.c_lflag & libc::ICANON != 0, termios.c_lflag & libc::ECHO != 0)
}

/// Calls to somebody who never answers.
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
    assert_eq!(settings(&t.line), RAW);
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
    // On the screen that was there before stands how it ended.
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
            // An error that ends the run.
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
    // A shell with jobs: it has the terminal while the run is stopped, and lets it go on after a while.
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
