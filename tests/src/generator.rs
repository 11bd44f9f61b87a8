//! `strowger load` as its user runs it, and what it leaves behind.

use crate::wait;
use std::ffi::OsStr;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use crate::certificate::Certificate;
use crate::peer::sends_back;
use crate::process::Process;
use crate::{binary, port};

/// How long a start may take.
const START: Duration = Duration::from_secs(20);

/// The figures of a run, and how it ended.
pub struct Ran {
    /// The exit code; -1 after a signal.
    pub code: i32,
    /// The report; null where none was written.
    pub json: Value,
    /// Standard error: the table and what was said.
    pub said: String,
}

impl Ran {
    /// A number of the report: `counters` `calls.failed`, say.
    ///
    /// # Panics
    /// There is none.
    pub fn count(&self, of: &str, name: &str) -> u64 {
        self.json[of][name].as_u64().unwrap_or_else(|| panic!("no {of}.{name}:\n{}", self.said))
    }

    /// The counter `calls.NAME`.
    ///
    /// # Panics
    /// There is none.
    pub fn calls(&self, name: &str) -> u64 {
        self.count("counters", &format!("calls.{name}"))
    }

    /// A figure of a delay, µs.
    ///
    /// # Panics
    /// Nothing was measured.
    pub fn delay(&self, name: &str, figure: &str) -> f64 {
        self.json["delays"][name][figure].as_f64().unwrap_or_else(|| panic!("no {name}.{figure}:\n{}", self.said))
    }

    /// Failed calls with this cause.
    pub fn failures(&self, name: &str) -> u64 {
        self.json["failures"][name].as_u64().unwrap_or(0)
    }

    /// It ended with this code; where the machine of the test was too busy for the generator, with that of INVALID instead.
    ///
    /// # Panics
    /// It did not.
    #[track_caller]
    pub fn ended_with(&self, code: i32) {
        let late = self.json["verdict"]["valid"] == false;
        assert_eq!(self.code, if late { 4 } else { code }, "{}", self.said);
        let reasons = self.json["verdict"]["reasons"].to_string();
        let busy = ["late", "stood still", "slow to", "the processor", "keep its rate"];
        assert!(!late || busy.iter().any(|words| reasons.contains(words)), "{reasons}");
    }

    /// So many calls were made, and all were successful.
    ///
    /// # Panics
    /// They were not.
    #[track_caller]
    pub fn all_successful(&self, calls: u64) {
        assert_eq!((self.calls("successful"), self.calls("failed")), (calls, 0), "{}", self.said);
    }
}

/// `strowger load` with these words.
pub fn command(words: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(binary::strowger());
    command.arg("load").args(words).stdin(Stdio::null());
    command
}

/// Runs it to its end.
///
/// # Panics
/// It does not start.
pub fn output(words: &[impl AsRef<OsStr>]) -> Output {
    command(words).output().expect("the program starts")
}

/// Runs it with its report on standard output.
///
/// # Panics
/// There is no report.
#[track_caller]
pub fn load(words: &[&str]) -> Ran {
    let output = output(&[words, &["--json", "-"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let json = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}\n{said}", String::from_utf8_lossy(&output.stdout)));
    Ran { code: output.status.code().unwrap_or(-1), json, said }
}

/// What it says to a command line that it refuses, and the exit code.
pub fn refused(words: &[&str]) -> (i32, String) {
    let output = output(words);
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// A run beside the test, in a folder of its own, where its report will be `report.json`.
pub struct Running {
    process: Process,
    folder: TempDir,
}

impl Running {
    /// Starts it.
    ///
    /// # Panics
    /// It does not start.
    pub fn start(words: &[&str]) -> Self {
        Self::start_by(Command::new(binary::strowger()), words)
    }

    /// The same by this command: the program, placed or scheduled in some way (see [`crate::plant::program`]).
    ///
    /// # Panics
    /// It does not start.
    pub fn start_by(mut command: Command, words: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        command.arg("load").args(words).args(["--json", "report.json"]).stdin(Stdio::null());
        let process = Process::start("load", folder.path(), command.current_dir(folder.path()));
        Self { process, folder }
    }

    /// Its folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until it has said this.
    ///
    /// # Panics
    /// It has not in 20 seconds.
    pub fn wait_for(&mut self, text: &str) {
        self.process.wait_for(text, 1, START);
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        self.process.signal(signal);
    }

    /// As [`Process::stop_for`].
    pub fn stop_for(&self, length: Duration) {
        self.process.stop_for(length);
    }

    /// Waits until a line tells of this second of the run or a later one: seconds in which nothing changes have none, and which is
    /// the first depends on when the wall clock's seconds end. False if it ended before.
    ///
    /// # Panics
    /// Neither happens.
    pub fn comes_to(&self, second: u64) -> bool {
        let told = |line: &str| line.trim_start().split_once(" s  ")?.0.parse::<u64>().ok();
        let has_come = || self.process.log().lines().filter_map(told).any(|told| told >= second);
        let came = wait::until(START, || has_come() || self.process.is_over());
        assert!(came, "neither second {second} nor its end:\n{}", self.process.log());
        has_come()
    }

    /// Waits until a line tells of this second of the run or a later one.
    ///
    /// # Panics
    /// It ends before, or none comes.
    pub fn reach(&self, second: u64) {
        assert!(self.comes_to(second), "it ended before second {second}:\n{}", self.process.log());
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for its end, and reads its report.
    ///
    /// # Panics
    /// It is still running after this time.
    pub fn end(&mut self, limit: Duration) -> Ran {
        let code = self.process.end(limit).code().unwrap_or(-1);
        let json = std::fs::read(self.folder.path().join("report.json")).ok();
        let json = json.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or(Value::Null);
        Ran { code, json, said: self.process.log() }
    }
}

/// An answering side of its own.
pub struct Answers {
    running: Running,
    /// Where it listens.
    pub address: SocketAddr,
}

/// `strowger load uas` on a free port of 127.0.0.1.
///
/// # Panics
/// It does not start.
pub fn answers(words: &[&str]) -> Answers {
    answers_at(Ipv4Addr::LOCALHOST.into(), words)
}

/// The same, elsewhere.
///
/// # Panics
/// It does not start.
pub fn answers_at(ip: IpAddr, words: &[&str]) -> Answers {
    answers_by(Command::new(binary::strowger()), SocketAddr::new(ip, port::free()), words)
}

/// The same by this command, at this address.
///
/// # Panics
/// It does not start.
pub fn answers_by(command: Command, address: SocketAddr, words: &[&str]) -> Answers {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let mut running = Running::start_by(command, &[&["uas", "--source", &ip, "--port", &port], words].concat());
    running.wait_for("Answering on");
    Answers { running, address }
}

impl Answers {
    /// Its process.
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: i32) {
        self.running.signal(signal);
    }

    /// As [`Process::stop_for`].
    pub fn stop_for(&self, length: Duration) {
        self.running.stop_for(length);
    }

    /// Waits until it has said this.
    ///
    /// # Panics
    /// It has not in 20 seconds.
    pub fn wait_for(&mut self, text: &str) {
        self.running.wait_for(text);
    }

    /// As [`Running::reach`].
    ///
    /// # Panics
    /// As that.
    pub fn reach(&self, second: u64) {
        self.running.reach(second);
    }

    /// Ends it by Ctrl-C once what is under way has come; what it counted.
    ///
    /// # Panics
    /// It does not end.
    pub fn report(self) -> Ran {
        // What it counted last stands in its report.
        std::thread::sleep(Duration::from_millis(300));
        self.signal(libc::SIGINT);
        self.end()
    }

    /// Waits for its end; what it counted.
    ///
    /// # Panics
    /// It does not end.
    pub fn end(mut self) -> Ran {
        self.running.end(Duration::from_secs(10))
    }
}

/// Certificates in this folder, and the options that name them: the authority, then our own.
///
/// # Panics
/// The folder cannot be written.
pub fn certificates(folder: &Path) -> [String; 6] {
    let Certificate { authority, chain, key } = Certificate::in_folder(folder, &["example.org"]);
    let [authority, chain, key] = [authority, chain, key].map(|path| path.display().to_string());
    ["--tls-ca".into(), authority, "--tls-cert".into(), chain, "--tls-key".into(), key]
}

/// The answer to a request, `line` being what follows `SIP/2.0 `, by a peer at this address.
pub fn reply(line: &str, request: &str, own: SocketAddr) -> String {
    let kept: String = request
        .lines()
        .filter(|l| ["Via:", "From:", "Call-ID:", "CSeq:"].iter().any(|n| l.starts_with(n)))
        .map(|l| format!("{l}\r\n"))
        .collect();
    let to = request.lines().find(|l| l.starts_with("To:")).unwrap_or_default();
    format!("SIP/2.0 {line}\r\n{kept}{to};tag=peer\r\nContact: <sip:{own}>\r\nContent-Length: 0\r\n\r\n")
}

/// A peer by hand that answers each request by this function: what follows `SIP/2.0 `, or nothing.
///
/// # Panics
/// No port is free.
pub fn peer(answer: impl Fn(usize, &str) -> Option<&'static str> + Send + 'static) -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
    socket.set_read_timeout(Some(Duration::from_secs(30))).expect("it can be set");
    let address = socket.local_addr().expect("it is bound");
    std::thread::spawn(move || {
        let mut buffer = [0; 65_536];
        let mut number = 0;
        while let Ok((length, from)) = socket.recv_from(&mut buffer) {
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            if text.starts_with("ACK") || sends_back(&socket, &buffer[..length], from) {
                continue;
            }
            let Some(line) = answer(number, &text) else { continue };
            number += 1;
            let reply = reply(line, &text, address);
            let _ = socket.send_to(reply.as_bytes(), from);
        }
    });
    address
}
