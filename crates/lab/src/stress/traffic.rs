//! Calls through a system under test, by this project's generator: users that register, a side that answers, a side that calls.

use super::credentials::Credentials;
use super::{Calls, DOMAIN};
use crate::driver::fill;
use crate::process::Process;
use crate::{Error, port};
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Where a call goes, whose user is known to no server.
const SERVICE: &str = "sip:service@127.0.0.1";

/// What came of a run of calls or registrations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// That came to the end of their scenario.
    pub successful: u64,
    /// That did not.
    pub failed: u64,
    /// Microseconds from an INVITE to its first answer other than a 100 (RFC 6076 section 4.3), as the caller has them: of half of the calls at
    /// most so many, and of 99 %. None where none was answered.
    pub setup: Option<[u64; 2]>,
    /// The generator kept up with its schedule.
    pub valid: bool,
    /// Why it did not, and what is doubtful.
    pub remarks: Vec<String>,
}

/// The generator beside one system under test. The side that answers runs until this is dropped.
#[derive(Debug)]
pub struct Traffic {
    generator: PathBuf,
    folder: PathBuf,
    /// Port of the system under test.
    port: u16,
    ends: Ends,
    calls: Calls,
    /// Once they were asked for.
    credentials: Option<Credentials>,
    _answers: Process,
}

/// Ports of 127.0.0.1.
#[derive(Clone, Copy, Debug)]
pub struct Ends {
    /// Of the side that calls.
    pub caller: u16,
    /// Of the side that answers.
    pub called: u16,
}

impl Ends {
    /// Two that are free.
    pub fn free() -> Self {
        Self { caller: port::free(), called: port::free() }
    }
}

/// User name and password of a user, from 1.
pub(super) fn user(number: u32) -> (String, String) {
    (format!("user{number}"), format!("secret{number}"))
}

impl Traffic {
    /// Writes what the generator needs into this folder, and starts the side that answers.
    ///
    /// # Errors
    /// The folder cannot be written, or the generator does not start.
    pub fn start(generator: &Path, folder: &Path, port: u16, ends: Ends, calls: Calls) -> Result<Self, Error> {
        let answers = ends.called;
        let uri = if calls.users() == 0 { format!("{SERVICE}:{answers}") } else { format!("sip:[field2]@{DOMAIN}") };
        let cseq = if calls.is_challenged() { "2" } else { "1" };
        // A line of its own.
        let credentials = if calls.sends_at_once() { "\n      [field1]" } else { "" };
        let values = [
            ("URI", uri),
            ("DOMAIN", DOMAIN.to_owned()),
            ("CSEQ", cseq.to_owned()),
            ("ANSWERS", answers.to_string()),
            ("CREDENTIALS", credentials.to_owned()),
        ];
        let part = |is_wanted, text| if is_wanted { fill(text, &values) } else { Ok(String::new()) };
        let documents = [
            (
                "call.xml",
                include_str!("documents/call.xml"),
                part(calls.is_challenged(), include_str!("documents/challenge.xml"))?,
            ),
            (
                "register.xml",
                include_str!("documents/register.xml"),
                part(calls.authenticates(), include_str!("documents/register_challenge.xml"))?,
            ),
        ];
        let exchange = part(calls.has_exchange(), include_str!("documents/exchange.xml"))?;
        for (name, document, challenge) in documents {
            let values = [&values[..], &[("CHALLENGE", challenge), ("EXCHANGE", exchange.clone())]].concat();
            let file = folder.join(name);
            std::fs::write(&file, fill(document, &values)?).map_err(Error::file(&file))?;
        }
        write_users(folder, calls, |name, password| format!("[authentication username={name} password={password}]"))?;
        let mut command = Command::new(generator);
        // It rings for a moment: a 180 and a 200 at once overtake each other in servers of several processes.
        command.args(["load", "uas", "--source", "127.0.0.1", "--quiet", "--ring", "50ms"]);
        command.args(["--port", &answers.to_string()]);
        let mut process = Process::start("answers", folder, command.current_dir(folder))?;
        process.listens(answers, Duration::from_secs(20))?;
        Ok(Self {
            generator: generator.into(),
            folder: folder.into(),
            port,
            ends,
            calls,
            credentials: None,
            _answers: process,
        })
    }

    /// Registers all users, if there are any; no more of them a second than calls.
    ///
    /// # Errors
    /// The generator does not run, or ends without a report.
    pub fn register(&self, calls: u32) -> Result<Option<Outcome>, Error> {
        match self.calls.users() {
            0 => Ok(None),
            users => self.run("register", u64::from(users), self.calls.rate().min(calls)).map(Some),
        }
    }

    /// Makes so many calls. Callers that send credentials at once ask for a nonce before their first.
    ///
    /// # Errors
    /// The generator does not run, or ends without a report; a user is not challenged.
    pub fn call(&mut self, calls: u64, rate: u32) -> Result<Outcome, Error> {
        if self.calls.sends_at_once() {
            let asked = match self.credentials.take() {
                Some(credentials) => credentials,
                None => Credentials::ask(self.port, self.ends.caller, self.calls.users())?,
            };
            let mut lines = self.credentials.insert(asked).next(self.port)?.into_iter();
            write_users(&self.folder, self.calls, |_, _| lines.next().unwrap_or_default())?;
        }
        self.run("call", calls, rate)
    }

    fn run(&self, document: &str, calls: u64, rate: u32) -> Result<Outcome, Error> {
        let report = self.folder.join(format!("{document}.json"));
        let server = format!("127.0.0.1:{}", self.port);
        let mut command = Command::new(&self.generator);
        command
            .args(["load", &server, "--source", "127.0.0.1", "--quiet", "--no-exec"])
            .args(["--rate", &rate.to_string(), "--calls", &calls.to_string(), "--port", &self.ends.caller.to_string()])
            .arg("--scenario")
            .arg(self.folder.join(format!("{document}.xml")))
            .arg("--inf")
            .arg(self.folder.join("users.csv"))
            .arg("--json")
            .arg(&report);
        let mut process = Process::start(document, &self.folder, command.current_dir(&self.folder))?;
        // A call that fails by its timer does so in 32 s.
        process.end(Duration::from_secs(calls / u64::from(rate.max(1)) * 3 + 90))?;
        let text = std::fs::read_to_string(&report).map_err(|_| Error::Unexpected {
            what: format!("the report of {document}"),
            reason: format!("the generator wrote none\n{}", process.tail()),
        })?;
        std::fs::remove_file(&report).map_err(Error::file(&report))?;
        Outcome::of(&text).ok_or_else(|| Error::Unexpected { what: format!("the report of {document}"), reason: text })
    }
}

/// The data of the generator: of each user its name, what proves it, and whom it calls.
fn write_users(folder: &Path, calls: Calls, mut proof: impl FnMut(&str, &str) -> String) -> Result<(), Error> {
    let users = calls.users().max(1);
    let mut data = String::from("SEQUENTIAL\n");
    for number in 1..=users {
        let ((name, password), (callee, _)) = (user(number), user(number % users + 1));
        let proof = proof(&name, &password);
        // Writing to a String cannot fail.
        let _ = writeln!(data, "{name};{proof};{callee}");
    }
    let file = folder.join("users.csv");
    std::fs::write(&file, data).map_err(Error::file(&file))
}

impl Outcome {
    /// Of a report as JSON.
    fn of(text: &str) -> Option<Self> {
        let report: serde_json::Value = serde_json::from_str(text).ok()?;
        let verdict = report.get("verdict")?;
        let texts = |name: &str| verdict.get(name).and_then(|texts| texts.as_array()).into_iter().flatten();
        let remarks = texts("reasons").chain(texts("warnings")).filter_map(|text| text.as_str().map(str::to_owned));
        let count = |name: &str| report.get("calls")?.get(name)?.as_u64();
        let setup = |percentile: &str| Some(report.get("delays")?.get("srd")?.get(percentile)?.as_f64()? as u64);
        Some(Self {
            successful: count("successful")?,
            failed: count("failed")? + count("stopped")?,
            setup: setup("p50").zip(setup("p99")).map(|(half, most)| [half, most]),
            valid: verdict.get("valid")?.as_bool()?,
            remarks: remarks.collect(),
        })
    }

    /// All so many came to their end, and the figures are the server's.
    pub fn is_whole(&self, calls: u64) -> bool {
        self.valid && self.failed == 0 && self.successful == calls
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_outcome_is_read_from_a_report() {
        let text = r#"{"calls":{"successful":9,"failed":1,"stopped":0},"delays":{"srd":{"p50":310.5,"p99":900}},
            "verdict":{"valid":true,"reasons":[],"warnings":["x"]}}"#;
        let outcome = Outcome::of(text).expect("it has all");
        assert_eq!((outcome.successful, outcome.failed, outcome.valid), (9, 1, true));
        assert_eq!(outcome.setup, Some([310, 900]));
        assert!(!outcome.is_whole(10) && outcome.remarks == ["x"]);
        assert!(Outcome { failed: 0, successful: 10, ..outcome }.is_whole(10));
        assert_eq!(Outcome::of("{}"), None);
    }
}
