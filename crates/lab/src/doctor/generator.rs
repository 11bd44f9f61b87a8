//! Rate that the generator reaches on this machine, against an answering side of its own.

use super::{Area, Finding, Grade};
use crate::process::Process;
use crate::{Error, port};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Calls a second that are tried, one after the other.
pub const RATES: [u32; 5] = [500, 1_000, 2_000, 4_000, 8_000];

/// Rate below which hardly an experiment can be run.
const LEAST: u32 = 1_000;

/// Time of one rate.
const SECONDS: u32 = 1;

/// Time in which a program ends.
const LIMIT: Duration = Duration::from_secs(60);

/// Finds the highest of [`RATES`] at which the generator keeps up with its schedule while both ends of the calls are on this machine. The
/// search stops at the first rate at which the generator falls behind.
///
/// # Errors
/// The generator does not start, or ends without a report.
pub fn generator(program: &Path, folder: &Path) -> Result<Finding, Error> {
    std::fs::create_dir_all(folder).map_err(Error::file(folder))?;
    let side = port::free();
    let mut command = Command::new(program);
    command.args(["load", "uas", "--source", "127.0.0.1", "--quiet", "--port", &side.to_string()]);
    let mut answers = Process::start("answers", folder, command.current_dir(folder))?;
    answers.listens(side, LIMIT)?;
    let mut kept = None;
    let mut reason = String::new();
    for rate in RATES {
        match trial(program, folder, side, rate)? {
            None => kept = Some(rate),
            Some(lost) => {
                reason = format!("at {rate} calls/s: {lost}");
                break;
            }
        }
    }
    Ok(judge(kept, &reason))
}

fn judge(kept: Option<u32>, reason: &str) -> Finding {
    let found = match kept {
        Some(rate) if reason.is_empty() => format!("keeps {rate} calls/s and more, both ends here"),
        Some(rate) => format!("keeps {rate} calls/s, both ends here ({reason})"),
        None => format!("keeps no rate ({reason})"),
    };
    let finding = Finding::good(Area::Generator, "generator", found);
    match kept.is_some_and(|rate| rate >= LEAST) {
        true => finding,
        false => finding.but(
            Grade::Bad,
            "the generator is the limit before a server is",
            "give this machine more cores, end other programs, or run the callers on other machines",
        ),
    }
}

/// Makes calls at a rate and returns the reason why the rate was not kept, or `None` if it was kept.
fn trial(program: &Path, folder: &Path, side: u16, rate: u32) -> Result<Option<String>, Error> {
    let report = folder.join("report.json");
    let calls = rate * SECONDS;
    let mut command = Command::new(program);
    command.args(["load", &format!("127.0.0.1:{side}"), "--source", "127.0.0.1", "--quiet", "--no-preflight"]);
    command.args(["--rate", &rate.to_string(), "--calls", &calls.to_string(), "--hold", "100ms", "--timeout", "4s"]);
    command.arg("--json").arg(&report);
    let mut process = Process::start("calls", folder, command.current_dir(folder))?;
    process.end(LIMIT)?;
    let text = std::fs::read_to_string(&report).map_err(|_| Error::Unexpected {
        what: "the report of the generator".into(),
        reason: format!("there is none\n{}", process.tail()),
    })?;
    std::fs::remove_file(&report).map_err(Error::file(&report))?;
    let wrong = |reason: &str| Error::Unexpected { what: "the report of the generator".into(), reason: reason.into() };
    let report: serde_json::Value = serde_json::from_str(&text).map_err(|error| wrong(&error.to_string()))?;
    let successful = report["calls"]["successful"].as_u64().ok_or_else(|| wrong("it counts no calls"))?;
    let verdict = &report["verdict"];
    if verdict["valid"].as_bool() != Some(true) {
        let first = verdict["reasons"].as_array().and_then(|reasons| reasons.first());
        return Ok(Some(first.and_then(|reason| reason.as_str()).unwrap_or("invalid").to_owned()));
    }
    let lost = u64::from(calls).saturating_sub(successful);
    Ok((lost > 0).then(|| format!("{lost} of {calls} calls were lost")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generator_below_a_thousand_calls_is_bad() {
        assert_eq!(judge(Some(8_000), "").found, "keeps 8000 calls/s and more, both ends here");
        assert_eq!(judge(Some(1_000), "at 2000 calls/s: late").grade, Grade::Good);
        assert_eq!(judge(Some(500), "at 1000 calls/s: late").grade, Grade::Bad);
        assert_eq!(judge(None, "at 500 calls/s: late").grade, Grade::Bad);
    }
}
