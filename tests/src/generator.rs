//! `strowger load` as a user runs it, and its results.

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

/// Time limit of a start.
const START: Duration = Duration::from_secs(20);

/// Figures of a run, and its end.
pub struct Ran {
    /// Exit code; -1 after a signal.
    pub code: i32,
    /// Report; null if none was written.
    pub json: Value,
    /// Standard error: the table and all messages.
    pub said: String,
}

impl Ran {
    /// Returns a number of the report, such as `counters` `calls.failed`.
    ///
    /// # Panics
    /// There is no such number.
    pub fn count(&self, of: &str, name: &str) -> u64 {
        self.json[of][name].as_u64().unwrap_or_else(|| panic!("no {of}.{name}:\n{}", self.said))
    }

    /// Returns the counter `calls.NAME`.
    ///
    /// # Panics
    /// There is no such counter.
    pub fn calls(&self, name: &str) -> u64 {
        self.count("counters", &format!("calls.{name}"))
    }

    /// Returns a figure of a delay in µs.
    ///
    /// # Panics
    /// Nothing was measured.
    pub fn delay(&self, name: &str, figure: &str) -> f64 {
        self.json["delays"][name][figure].as_f64().unwrap_or_else(|| panic!("no {name}.{figure}:\n{}", self.said))
    }

    /// Returns the number of failed calls with this cause.
    pub fn failures(&self, name: &str) -> u64 {
        self.json["failures"][name].as_u64().unwrap_or(0)
    }

    /// Asserts the exit code; on a machine too busy for the generator, the code of INVALID is accepted instead.
    ///
    /// # Panics
    /// The code differs.
    #[track_caller]
    pub fn ended_with(&self, code: i32) {
        let late = self.json["verdict"]["valid"] == false;
        assert_eq!(self.code, if late { 4 } else { code }, "{}", self.said);
        let reasons = self.json["verdict"]["reasons"].to_string();
        let busy = ["late", "stood still", "slow to", "the processor", "keep its rate"];
        assert!(!late || busy.iter().any(|words| reasons.contains(words)), "{reasons}");
    }

    /// Asserts that this many calls were made, all successful.
    ///
    /// # Panics
    /// The numbers differ.
    #[track_caller]
    pub fn all_successful(&self, calls: u64) {
        assert_eq!((self.calls("successful"), self.calls("failed")), (calls, 0), "{}", self.said);
    }
}

/// Returns the command `strowger load` with these words.
pub fn command(words: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(binary::strowger());
    command.arg("load").args(words).stdin(Stdio::null());
    command
}

/// Runs `strowger load` to its end.
///
/// # Panics
/// The program does not start.
pub fn output(words: &[impl AsRef<OsStr>]) -> Output {
    command(words).output().expect("the program starts")
}

/// Runs `strowger load` to its end, with its report on standard output.
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

/// Runs a command line that the program must refuse. Returns the exit code and the message.
pub fn refused(words: &[&str]) -> (i32, String) {
    let output = output(words);
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Run in parallel to the test, in a folder of its own with the report `report.json`.
pub struct Running {
    process: Process,
    folder: TempDir,
}

impl Running {
    /// Starts the run.
    ///
    /// # Panics
    /// The program does not start.
    pub fn start(words: &[&str]) -> Self {
        Self::start_by(Command::new(binary::strowger()), words)
    }

    /// Starts the run by this command: the program, with some placement or scheduling (see [`crate::plant::program`]).
    ///
    /// # Panics
    /// The program does not start.
    pub fn start_by(mut command: Command, words: &[&str]) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        command.arg("load").args(words).args(["--json", "report.json"]).stdin(Stdio::null());
        let process = Process::start("load", folder.path(), command.current_dir(folder.path()));
        Self { process, folder }
    }

    /// Returns the run's folder.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Waits until the program has printed this text.
    ///
    /// # Panics
    /// The program has not printed the text within 20 seconds.
    pub fn wait_for(&mut self, text: &str) {
        self.process.wait_for(text, 1, START);
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: i32) {
        self.process.signal(signal);
    }

    /// See [`Process::stop_for`].
    pub fn stop_for(&self, length: Duration) {
        self.process.stop_for(length);
    }

    /// Waits until a line reports this second of the run or a later second: seconds without changes have no line, and
    /// the first second with a line depends on the wall clock. Returns false if the run ended before.
    ///
    /// # Panics
    /// No such line comes, and the run does not end.
    pub fn comes_to(&self, second: u64) -> bool {
        let told = |line: &str| line.trim_start().split_once(" s  ")?.0.parse::<u64>().ok();
        let has_come = || self.process.log().lines().filter_map(told).any(|told| told >= second);
        let came = wait::until(START, || has_come() || self.process.is_over());
        assert!(came, "neither second {second} nor its end:\n{}", self.process.log());
        has_come()
    }

    /// Waits until a line reports this second of the run or a later second.
    ///
    /// # Panics
    /// The run ends before, or no line comes.
    pub fn reach(&self, second: u64) {
        assert!(self.comes_to(second), "it ended before second {second}:\n{}", self.process.log());
    }

    /// Returns the program's process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits for the end of the run, and reads its report.
    ///
    /// # Panics
    /// The program is still running at the limit.
    pub fn end(&mut self, limit: Duration) -> Ran {
        let code = self.process.end(limit).code().unwrap_or(-1);
        let json = std::fs::read(self.folder.path().join("report.json")).ok();
        let json = json.and_then(|json| serde_json::from_slice(&json).ok()).unwrap_or(Value::Null);
        Ran { code, json, said: self.process.log() }
    }
}

/// Answering side in its own process.
pub struct Answers {
    running: Running,
    /// Address it listens on.
    pub address: SocketAddr,
}

/// Starts `strowger load uas` on a free port of 127.0.0.1.
///
/// # Panics
/// The program does not start.
pub fn answers(words: &[&str]) -> Answers {
    answers_at(Ipv4Addr::LOCALHOST.into(), words)
}

/// Starts `strowger load uas` on another IP address.
///
/// # Panics
/// The program does not start.
pub fn answers_at(ip: IpAddr, words: &[&str]) -> Answers {
    answers_by(Command::new(binary::strowger()), SocketAddr::new(ip, port::free()), words)
}

/// Starts `strowger load uas` by this command, at this address.
///
/// # Panics
/// The program does not start.
pub fn answers_by(command: Command, address: SocketAddr, words: &[&str]) -> Answers {
    let (ip, port) = (address.ip().to_string(), address.port().to_string());
    let mut running = Running::start_by(command, &[&["uas", "--source", &ip, "--port", &port], words].concat());
    running.wait_for("Answering on");
    Answers { running, address }
}

impl Answers {
    /// Returns the program's process id.
    pub fn id(&self) -> u32 {
        self.running.id()
    }

    /// Sends the program a signal.
    pub fn signal(&self, signal: i32) {
        self.running.signal(signal);
    }

    /// See [`Process::stop_for`].
    pub fn stop_for(&self, length: Duration) {
        self.running.stop_for(length);
    }

    /// Waits until the program has printed this text.
    ///
    /// # Panics
    /// The program has not printed the text within 20 seconds.
    pub fn wait_for(&mut self, text: &str) {
        self.running.wait_for(text);
    }

    /// See [`Running::reach`].
    ///
    /// # Panics
    /// See [`Running::reach`].
    pub fn reach(&self, second: u64) {
        self.running.reach(second);
    }

    /// Ends the answering side by Ctrl-C once pending messages have arrived. Returns its report.
    ///
    /// # Panics
    /// The program does not end.
    pub fn report(self) -> Ran {
        // The report contains the last messages.
        std::thread::sleep(Duration::from_millis(300));
        self.signal(libc::SIGINT);
        self.end()
    }

    /// Waits for the end of the answering side; returns its report.
    ///
    /// # Panics
    /// The program does not end.
    pub fn end(mut self) -> Ran {
        self.running.end(Duration::from_secs(10))
    }
}

/// Creates certificates in this folder, and returns the options that name them: the authority, then the own
/// certificate.
///
/// # Panics
/// The folder cannot be written.
pub fn certificates(folder: &Path) -> [String; 6] {
    let Certificate { authority, chain, key } = Certificate::in_folder(folder, &["example.org"]);
    let [authority, chain, key] = [authority, chain, key].map(|path| path.display().to_string());
    ["--tls-ca".into(), authority, "--tls-cert".into(), chain, "--tls-key".into(), key]
}

/// Returns the answer of a peer at this address to a request; `line` follows `SIP/2.0 `.
pub fn reply(line: &str, request: &str, own: SocketAddr) -> String {
    let kept: String = request
        .lines()
        .filter(|l| ["Via:", "From:", "Call-ID:", "CSeq:"].iter().any(|n| l.starts_with(n)))
        .map(|l| format!("{l}\r\n"))
        .collect();
    let to = request.lines().find(|l| l.starts_with("To:")).unwrap_or_default();
    format!("SIP/2.0 {line}\r\n{kept}{to};tag=peer\r\nContact: <sip:{own}>\r\nContent-Length: 0\r\n\r\n")
}

/// Starts a peer by hand that answers each request as `answer` says: with the text after `SIP/2.0 `, or not at all.
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
