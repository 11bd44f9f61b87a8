//! Processes of one trial.

use super::document::Files;
use super::reading::{self, Window};
use super::{Answer, Made, Setting, Traffic, Trial, source};
use crate::Error;
use crate::formula::methodology::call_rate;
use crate::process::{self, Process};
use crate::row::Load;
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use strowger_load::campaign::Connections;
use strowger_report::rfc3339;

/// Time for a process to read its documents and open its sockets before its first call.
const PREPARATION: Duration = Duration::from_millis(400);

/// Time after the last patience in which a caller writes its log.
const WRITING: Duration = Duration::from_secs(5);

/// Time in which calls that are cut off say so to their peers.
const GRACE: Duration = Duration::from_secs(1);

/// Starts the answering sides and the caller, waits for the end of the calls, and reads the logs.
pub(super) fn make(setting: &Setting, files: &Files, trial: &Trial<'_>) -> Result<Made, Error> {
    let folder = trial.folder;
    let steps = steps(setting, trial)?;
    let length = trial.warm_up + trial.window;
    let longest = length + setting.hold + 3 * setting.patience + WRITING;
    let mut sides = Vec::new();
    for (number, side) in setting.sides.iter().enumerate() {
        sides.push(answering(setting, files, folder, number + 1, *side, longest)?);
    }
    let log = folder.join("caller.results");
    let mut command = program(setting);
    command.args(["load", &setting.target, "--quiet", "--no-preflight", "--transport", setting.transport.text()]);
    schedule(&mut command, &steps);
    command.arg("--warm-up").arg(written(trial.warm_up)).arg("--timeout").arg(written(setting.patience));
    command.arg("--grace").arg(written(GRACE)).arg("--log").arg(&log);
    traffic(&mut command, setting, files);
    for source in source::fresh(setting, steps.iter().map(|step| step.rate).fold(0.0, f64::max)) {
        command.arg("--source").arg(source.to_string());
    }
    let begin = whole_second(SystemTime::now() + PREPARATION + trial.warm_up);
    let first = begin - trial.warm_up;
    command.arg("--start-at").arg(moment(first));
    let mut caller = Process::start("caller", folder, command.current_dir(folder))?;
    if let Some(begins) = &trial.begins {
        // Who asked may have given up.
        let _ = begins.send(begin);
    }
    finish(&mut caller, PREPARATION + Duration::from_secs(1) + longest)?;
    let mut logs = vec![log];
    for (mut side, log) in sides {
        side.signal(Signal::INT);
        finish(&mut side, WRITING)?;
        logs.push(log);
    }
    if !logs[0].is_file() {
        let reason = format!("it wrote no log\n{}", caller.tail());
        return Err(Error::Unexpected { what: "the calling side".into(), reason });
    }
    let window = Window { begin, length: trial.window };
    let (figures, reasons) = reading::read(&logs, window, trial.load, mean(&steps, trial.warm_up), setting)?;
    Ok(Made { figures, reasons, logs, begin, end: begin + trial.window })
}

/// Registers the users of one answering side.
pub(super) fn register(
    setting: &Setting,
    (document, data, users): &(PathBuf, PathBuf, u32),
    rate: f64,
    folder: &Path,
) -> Result<PathBuf, Error> {
    let name = document.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let log = folder.join(format!("{name}.results"));
    let mut command = program(setting);
    command.args(["load", &setting.target, "--quiet", "--no-exec", "--transport", setting.transport.text()]);
    command.arg("--rate").arg(rate.to_string()).arg("--calls").arg(users.to_string());
    command.arg("--scenario").arg(document).arg("--inf").arg(data).arg("--log").arg(&log);
    if setting.is_loopback() {
        command.args(["--source", "127.0.0.1"]);
    }
    let mut process = Process::start(&name, folder, command.current_dir(folder))?;
    let length = Duration::from_secs_f64(f64::from(*users) / rate);
    // A registration that fails by its timer does so in 32 s.
    finish(&mut process, length * 2 + Duration::from_secs(60))?;
    match log.is_file() {
        true => Ok(log),
        false => Err(Error::Unexpected { what: name, reason: format!("it wrote no log\n{}", process.tail()) }),
    }
}

/// Part of the schedule with one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Step {
    rate: f64,
    length: Duration,
}

/// Warm-up and window in steps: the load, and each change of it.
fn steps(setting: &Setting, trial: &Trial<'_>) -> Result<Vec<Step>, Error> {
    let changes = trial.changes.iter().map(|(at, value)| (trial.warm_up + *at, Load { value: *value, ..trial.load }));
    let begins: Vec<(Duration, Load)> = [(Duration::ZERO, trial.load)].into_iter().chain(changes).collect();
    let ends = begins.iter().skip(1).map(|(at, _)| *at).chain([trial.warm_up + trial.window]);
    let step = |((at, load), end): (&(Duration, Load), Duration)| {
        Ok(Step { rate: rate(setting, *load)?, length: end.saturating_sub(*at) })
    };
    begins.iter().zip(ends).map(step).collect()
}

/// The options of the schedule.
fn schedule(command: &mut Command, steps: &[Step]) {
    if let [Step { rate, length }] = steps {
        command.arg("--rate").arg(rate.to_string()).arg("--duration").arg(written(*length));
        return;
    }
    let parts = steps.iter().map(|step| format!("{}:{}", step.rate, written(step.length)));
    command.arg("--rate-profile").arg(parts.collect::<Vec<_>>().join(","));
}

/// Mean rate behind the warm-up.
fn mean(steps: &[Step], warm_up: Duration) -> f64 {
    let (mut passed, mut calls, mut time) = (Duration::ZERO, 0.0, 0.0);
    for step in steps {
        let end = passed + step.length;
        let within = end.saturating_sub(passed.max(warm_up)).as_secs_f64();
        (calls, time, passed) = (calls + step.rate * within, time + within, end);
    }
    if time > 0.0 { calls / time } else { 0.0 }
}

/// Calls a second that make the load.
fn rate(setting: &Setting, load: Load) -> Result<f64, Error> {
    if load.unit.is_rate() {
        return Ok(load.value);
    }
    call_rate(load.value, setting.hold).ok_or_else(|| Error::Unexpected {
        what: load.to_string(),
        reason: "calls that are not held do not exist at a time: give them a hold".into(),
    })
}

/// The options that make calls.
fn traffic(command: &mut Command, setting: &Setting, files: &Files) {
    match setting.connections {
        Connections::One => {}
        Connections::PerUser => drop(command.args(["--connections", "per-user"])),
        Connections::PerCall => drop(command.args(["--connections", "per-call"])),
    }
    match &setting.traffic {
        Traffic::Ready(workload, words) => {
            command.args(["--workload", workload, "--hold", &written(setting.hold)]).args(words);
        }
        Traffic::Documents(_) => {
            command.arg("--no-exec").arg("--inf").arg(&files.data);
            for (file, share) in &files.calling {
                let mut word = file.clone().into_os_string();
                if files.calling.len() > 1 {
                    word.push(format!(":{share}"));
                }
                command.arg("--scenario").arg(word);
            }
        }
    }
}

/// Starts an answering side and waits until it listens.
fn answering(
    setting: &Setting,
    files: &Files,
    folder: &Path,
    number: usize,
    side: SocketAddr,
    longest: Duration,
) -> Result<(Process, PathBuf), Error> {
    let name = format!("answer-{number}");
    let log = folder.join(format!("{name}.results"));
    let mut command = program(setting);
    command.args(["load", "uas", "--quiet", "--transport", setting.transport.text()]);
    command.arg("--source").arg(side.ip().to_string()).arg("--port").arg(side.port().to_string());
    command.arg("--grace").arg("200ms").arg("--log").arg(&log);
    // It ends without its owner, too.
    command.arg("--duration").arg(written(longest + Duration::from_secs(60)));
    match (&setting.answer, &files.answering) {
        (Answer::Document(_), Some(file)) => drop(command.arg("--no-exec").arg("--scenario").arg(file)),
        (Answer::Ring(time), _) => drop(command.arg("--ring").arg(written(*time))),
        (Answer::Document(_), None) => {}
    }
    let mut process = Process::start(&name, folder, command.current_dir(folder))?;
    process.listens(side.port(), Duration::from_secs(20))?;
    Ok((process, log))
}

/// The program on the cores of the generator.
fn program(setting: &Setting) -> Command {
    if setting.cores.is_empty() {
        return Command::new(&setting.program);
    }
    let cores: Vec<String> = setting.cores.iter().map(ToString::to_string).collect();
    let mut command = Command::new("taskset");
    command.args(["--cpu-list", &cores.join(",")]).arg(&setting.program);
    command
}

/// Waits for the end of a process. One that lasts too long is asked to end, so that its log is whole.
fn finish(process: &mut Process, limit: Duration) -> Result<(), Error> {
    if process.end(limit).is_err() {
        process.signal(Signal::INT);
        process.end(GRACE + WRITING)?;
    }
    if process::is_ending() { Err(Error::Interrupted) } else { Ok(()) }
}

/// The next whole second.
fn whole_second(moment: SystemTime) -> SystemTime {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs() + 1)
}

/// A moment as the command line reads it.
fn moment(moment: SystemTime) -> String {
    let us = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let whole = rfc3339(us);
    format!("{}.{:06}Z", whole.trim_end_matches('Z'), us % 1_000_000)
}

/// A length of time as the command line reads it.
fn written(length: Duration) -> String {
    format!("{}ms", length.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::LoadUnit;

    #[test]
    fn moments_have_their_fraction() {
        let at = UNIX_EPOCH + Duration::from_micros(1_795_183_606_040_000);
        assert_eq!(moment(at), "2026-11-20T14:06:46.040000Z");
        assert_eq!(whole_second(at), UNIX_EPOCH + Duration::from_secs(1_795_183_607));
    }

    #[test]
    fn a_load_that_changes_is_a_profile_of_rates() {
        let setting = Setting::new("127.0.0.1", Traffic::Ready("call", vec![])).expect("a path");
        let second = Duration::from_secs;
        let load = Load { value: 100.0, unit: LoadUnit::Registrations };
        let mut trial = Trial::new(load, second(2), second(8), Path::new(""));
        let words = |trial: &Trial<'_>| {
            let steps = steps(&setting, trial).expect("a rate");
            let mut command = Command::new("load");
            schedule(&mut command, &steps);
            let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
            (words.join(" "), mean(&steps, trial.warm_up))
        };
        assert_eq!(words(&trial), ("--rate 100 --duration 10000ms".into(), 100.0));
        trial.changes = vec![(second(4), 1_000.0), (second(6), 0.0)];
        // 400, 2,000 and no calls in the eight seconds of the window.
        assert_eq!(words(&trial), ("--rate-profile 100:6000ms,1000:2000ms,0:2000ms".into(), 300.0));
    }

    #[test]
    fn calls_at_a_time_are_a_rate_over_the_time_of_a_call() {
        let mut setting = Setting::new("127.0.0.1", Traffic::Ready("call", vec![])).expect("a path");
        setting.hold = Duration::from_secs(10);
        let of = |setting: &Setting, unit| rate(setting, Load { value: 500.0, unit });
        assert_eq!(of(&setting, LoadUnit::Calls).ok(), Some(500.0));
        assert_eq!(of(&setting, LoadUnit::Concurrent).ok(), Some(50.0));
        setting.hold = Duration::ZERO;
        assert!(of(&setting, LoadUnit::Concurrent).is_err_and(|error| error.to_string().contains("give them a hold")));
    }
}
