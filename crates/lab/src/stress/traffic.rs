//! Calls through a system under test, by this project's generator: users that register, a side that answers, a side that calls.

use super::{DOMAIN, Letter};
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
    letter: Letter,
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
    pub fn start(generator: &Path, folder: &Path, port: u16, ends: Ends, letter: Letter) -> Result<Self, Error> {
        let answers = ends.called;
        let uri = if letter.users() == 0 { format!("{SERVICE}:{answers}") } else { format!("sip:[field2]@{DOMAIN}") };
        let cseq = if letter.authenticates() { "2" } else { "1" };
        let values =
            [("URI", uri), ("DOMAIN", DOMAIN.to_owned()), ("CSEQ", cseq.to_owned()), ("ANSWERS", answers.to_string())];
        let documents = [
            ("call.xml", include_str!("documents/call.xml"), include_str!("documents/challenge.xml")),
            ("register.xml", include_str!("documents/register.xml"), include_str!("documents/register_challenge.xml")),
        ];
        for (name, document, challenge) in documents {
            let challenge = if letter.authenticates() { fill(challenge, &values)? } else { String::new() };
            let values = [&values[..], &[("CHALLENGE", challenge)]].concat();
            let file = folder.join(name);
            std::fs::write(&file, fill(document, &values)?).map_err(Error::file(&file))?;
        }
        let users = letter.users().max(1);
        let mut data = String::from("SEQUENTIAL\n");
        for number in 1..=users {
            let ((name, password), (callee, _)) = (user(number), user(number % users + 1));
            // Writing to a String cannot fail.
            let _ = writeln!(data, "{name};[authentication username={name} password={password}];{callee}");
        }
        let file = folder.join("users.csv");
        std::fs::write(&file, data).map_err(Error::file(&file))?;
        let mut command = Command::new(generator);
        // It rings for a moment: a 180 and a 200 at once overtake each other in servers of several processes.
        command.args(["load", "uas", "--source", "127.0.0.1", "--quiet", "--ring", "50ms"]);
        command.args(["--port", &answers.to_string()]);
        let mut process = Process::start("answers", folder, command.current_dir(folder))?;
        process.listens(answers, Duration::from_secs(20))?;
        Ok(Self { generator: generator.into(), folder: folder.into(), port, ends, letter, _answers: process })
    }

    /// Registers all users of the letter, if it has any.
    ///
    /// # Errors
    /// The generator does not run, or ends without a report.
    pub fn register(&self) -> Result<Option<Outcome>, Error> {
        match self.letter.users() {
            0 => Ok(None),
            users => self.run("register", u64::from(users), self.letter.rate()).map(Some),
        }
    }

    /// Makes so many calls.
    ///
    /// # Errors
    /// The generator does not run, or ends without a report.
    pub fn call(&self, calls: u64, rate: u32) -> Result<Outcome, Error> {
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

impl Outcome {
    /// Of a report as JSON.
    fn of(text: &str) -> Option<Self> {
        let report: serde_json::Value = serde_json::from_str(text).ok()?;
        let verdict = report.get("verdict")?;
        let texts = |name: &str| verdict.get(name).and_then(|texts| texts.as_array()).into_iter().flatten();
        let remarks = texts("reasons").chain(texts("warnings")).filter_map(|text| text.as_str().map(str::to_owned));
        let count = |name: &str| report.get("calls")?.get(name)?.as_u64();
        Some(Self {
            successful: count("successful")?,
            failed: count("failed")? + count("stopped")?,
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
        let text = r#"{"calls":{"successful":9,"failed":1,"stopped":0},"verdict":{"valid":true,"reasons":[],"warnings":["x"]}}"#;
        let outcome = Outcome::of(text).expect("it has all");
        assert_eq!((outcome.successful, outcome.failed, outcome.valid), (9, 1, true));
        assert!(!outcome.is_whole(10) && outcome.remarks == ["x"]);
        assert!(Outcome { failed: 0, successful: 10, ..outcome }.is_whole(10));
        assert_eq!(Outcome::of("{}"), None);
    }
}
