//! Processes of one trial.

use super::clocks::Clocks;
use super::document::Files;
use super::reading::{self, Window};
use super::words::Words;
use super::{CalleeBehaviour, Made, Setting, Traffic, Trial, source};
use crate::Error;
use crate::formula::methodology::call_rate;
use crate::host::{Ahead, Party, Start, Started};
use crate::process;
use crate::row::Load;
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use strowger_load::campaign::Connections;
use strowger_report::rfc3339;

/// Time for a process to read its documents and open its sockets before its first call.
const PREPARATION: Duration = Duration::from_millis(400);

/// Preparation time of processes on other machines.
const FAR_PREPARATION: Duration = Duration::from_millis(1_200);

/// Time between two checks of the processes of a trial.
const STEP: Duration = Duration::from_millis(50);

/// Time for a caller to write its log after its last time-out.
const WRITING: Duration = Duration::from_secs(5);

/// Time in which calls that are cut off send their BYE or CANCEL.
const GRACE: Duration = Duration::from_secs(1);

/// Starts the answering sides and the callers, waits for the end of the calls, and reads the logs.
pub(super) fn make(setting: &Setting, files: &Files, trial: &Trial<'_>) -> Result<Made, Error> {
    let folder = trial.folder;
    let steps = steps(setting, trial)?;
    let length = trial.warm_up + trial.window + trial.cool_down;
    let longest = setting.connecting() + length + setting.hold + 3 * setting.patience + WRITING;
    let clocks = Clocks::of(setting)?;
    let mut sides = Vec::new();
    for (number, side) in setting.sides.iter().enumerate() {
        let ahead = clocks.ahead(setting.answerer(number));
        sides.push(answering(setting, files, folder, number, *side, longest, ahead)?);
    }
    let orders = calling(setting, files, trial, &steps)?;
    for (party, words, _) in &orders {
        party.place.prepare(words)?;
    }
    let preparation = setting.connecting() + if clocks.0.is_empty() { PREPARATION } else { FAR_PREPARATION };
    let begin = whole_second(SystemTime::now() + preparation + trial.warm_up);
    let first = moment(begin - trial.warm_up);
    let (mut callers, mut logs) = (Vec::new(), Vec::new());
    for (number, (party, mut words, log)) in orders.into_iter().enumerate() {
        words.text(["--start-at", &first]).clock(clocks.ahead(&party.place));
        let name = name("caller", number, setting.callers.len());
        callers.push(party.place.start(&Start {
            name: &name,
            folder,
            program: &setting.program,
            cores: &setting.cores,
            words: &words,
        })?);
        logs.push(log);
    }
    if let Some(begins) = &trial.begins {
        // The receiver may be gone.
        let _ = begins.send(begin);
    }
    wait_for(&mut callers, &mut sides, preparation + Duration::from_secs(1) + longest)?;
    for caller in &mut callers {
        finish(caller, Duration::ZERO)?;
    }
    for (mut side, log) in sides {
        side.signal(Signal::INT)?;
        finish(&mut side, WRITING)?;
        logs.push(log);
    }
    for (caller, log) in callers.iter().zip(&logs) {
        if !log.is_file() {
            let reason = format!("it wrote no log\n{}", caller.tail());
            return Err(Error::Unexpected { what: "the calling side".into(), reason });
        }
    }
    let window = Window { begin, length: trial.window, is_last: trial.cool_down.is_zero() };
    let (figures, mut reasons) = reading::read(&logs, window, trial.load, mean(&steps, trial), setting)?;
    reasons.extend(clocks.changed()?);
    Ok(Made { figures, reasons, logs, begin, end: begin + trial.window })
}

/// Returns the words of each caller except its log and the moment of the first call.
fn calling<'a>(
    setting: &'a Setting,
    files: &Files,
    trial: &Trial<'_>,
    steps: &[Step],
) -> Result<Vec<(&'a Party, Words, PathBuf)>, Error> {
    let count = setting.callers.len();
    let share = |step: &Step| Step { rate: step.rate / count as f64, ..*step };
    let steps: Vec<Step> = steps.iter().map(share).collect();
    let most = steps.iter().map(|step| step.rate).fold(0.0, f64::max);
    let mut orders = Vec::new();
    for (number, party) in setting.callers.iter().enumerate() {
        let log = trial.folder.join(name("caller", number, count) + ".results");
        let mut words = Words::default();
        words.text(["load", &setting.target, "--quiet", "--no-preflight", "--transport", setting.transport.text()]);
        schedule(&mut words, &steps);
        words.text(["--warm-up", &written(trial.warm_up), "--timeout", &written(setting.patience)]);
        words.text(["--grace", &written(GRACE), "--log"]).output(&log);
        traffic(&mut words, setting, files, &files.data_of(number, count)?);
        if let Some(rate) = setting.connections.connect_rate {
            words.text(["--connect-rate", &(rate / count as f64).to_string()]);
        }
        match party.address {
            Some(address) => drop(words.text(["--source", &address.to_string()])),
            None => {
                for source in source::fresh(setting, most) {
                    words.text(["--source", &source.to_string()]);
                }
            }
        }
        orders.push((party, words, log));
    }
    Ok(orders)
}

/// Returns the name of a process of a trial among several of its kind, numbered from 0.
fn name(kind: &str, number: usize, count: usize) -> String {
    if count == 1 { kind.to_owned() } else { format!("{kind}-{}", number + 1) }
}

/// Registers the users of one answering side.
pub(super) fn register(
    setting: &Setting,
    number: usize,
    (document, data, users): &(PathBuf, PathBuf, u32),
    rate: f64,
    folder: &Path,
) -> Result<PathBuf, Error> {
    let name = document.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let log = folder.join(format!("{name}.results"));
    let mut words = Words::default();
    words.text(["load", &setting.target, "--quiet", "--no-exec", "--transport", setting.transport.text()]);
    words.text(["--rate", &rate.to_string(), "--calls", &users.to_string()]);
    words.text(["--scenario"]).input(document, "").text(["--inf"]).input(data, "").text(["--log"]).output(&log);
    if setting.is_loopback() {
        words.text(["--source", "127.0.0.1"]);
    }
    let (program, cores) = (&setting.program, &setting.cores);
    let mut process = setting.answerer(number).start(&Start { name: &name, folder, program, cores, words: &words })?;
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

/// Divides warm-up, window and cool-down into steps: one for the first load, and one for each change of it. A step without a length is
/// left out.
fn steps(setting: &Setting, trial: &Trial<'_>) -> Result<Vec<Step>, Error> {
    let load = |value: f64| Load { value, ..trial.load };
    let first = (Duration::ZERO, trial.before.map_or(trial.load, load));
    let own = trial.before.map(|_| (trial.warm_up, trial.load));
    let changes = trial.changes.iter().map(|(at, value)| (trial.warm_up + *at, load(*value)));
    let after = trial.after.map(|value| (trial.warm_up + trial.window, load(value)));
    let begins: Vec<(Duration, Load)> = [first].into_iter().chain(own).chain(changes).chain(after).collect();
    let ends = begins.iter().skip(1).map(|(at, _)| *at).chain([trial.warm_up + trial.window + trial.cool_down]);
    let step = |((at, load), end): (&(Duration, Load), Duration)| {
        Ok(Step { rate: rate(setting, *load)?, length: end.saturating_sub(*at) })
    };
    let steps = begins.iter().zip(ends).map(step).collect::<Result<Vec<Step>, Error>>()?;
    Ok(steps.into_iter().filter(|step| !step.length.is_zero()).collect())
}

/// Adds the options of the schedule.
fn schedule(words: &mut Words, steps: &[Step]) {
    if let [Step { rate, length }] = steps {
        words.text(["--rate", &rate.to_string(), "--duration", &written(*length)]);
        return;
    }
    let parts = steps.iter().map(|step| format!("{}:{}", step.rate, written(step.length)));
    words.text(["--rate-profile", &parts.collect::<Vec<_>>().join(",")]);
}

/// Returns the mean rate in the window.
fn mean(steps: &[Step], trial: &Trial<'_>) -> f64 {
    let (begin, end_of_window) = (trial.warm_up, trial.warm_up + trial.window);
    let (mut passed, mut calls, mut time) = (Duration::ZERO, 0.0, 0.0);
    for step in steps {
        let end = passed + step.length;
        let within = end.min(end_of_window).saturating_sub(passed.max(begin)).as_secs_f64();
        (calls, time, passed) = (calls + step.rate * within, time + within, end);
    }
    if time > 0.0 { calls / time } else { 0.0 }
}

/// Returns the calls a second that produce the load.
fn rate(setting: &Setting, load: Load) -> Result<f64, Error> {
    if load.unit.is_rate() {
        return Ok(load.value);
    }
    call_rate(load.value, setting.hold).ok_or_else(|| Error::Unexpected {
        what: load.to_string(),
        reason: "calls that are not held do not exist at a time: give them a hold".into(),
    })
}

/// Appends the options of the traffic.
fn traffic(words: &mut Words, setting: &Setting, files: &Files, data: &Path) {
    match setting.connections.owner {
        Connections::One => {}
        Connections::PerUser => drop(words.text(["--connections", "per-user"])),
        Connections::PerCall => drop(words.text(["--connections", "per-call"])),
    }
    match &setting.traffic {
        Traffic::Ready(workload, others) => {
            words.text(["--workload", workload, "--hold", &written(setting.hold)]);
            words.text(others.iter().map(String::as_str));
        }
        Traffic::Documents(_) => {
            words.text(["--no-exec", "--inf"]).input(data, "");
            for (file, share) in &files.calling {
                let share = if files.calling.len() > 1 { format!(":{share}") } else { String::new() };
                words.text(["--scenario"]).input(file, &share);
            }
        }
    }
}

/// Starts an answering side, by its number from 0, and waits until it listens.
fn answering(
    setting: &Setting,
    files: &Files,
    folder: &Path,
    number: usize,
    side: SocketAddr,
    longest: Duration,
    ahead: Option<Ahead>,
) -> Result<(Started, PathBuf), Error> {
    let name = format!("answer-{}", number + 1);
    let log = folder.join(format!("{name}.results"));
    let mut words = Words::default();
    words.text(["load", "uas", "--quiet", "--transport", setting.answering_transport().text()]);
    words.text(["--source", &side.ip().to_string(), "--port", &side.port().to_string()]);
    words.text(["--grace", "200ms", "--log"]).output(&log);
    // The duration ends the process even if its owner is gone.
    words.text(["--duration", &written(longest + Duration::from_secs(60))]).clock(ahead);
    match (&setting.answer, &files.answering) {
        (CalleeBehaviour::Document(_), Some(file)) => drop(words.text(["--no-exec", "--scenario"]).input(file, "")),
        (CalleeBehaviour::Ring(time), _) => drop(words.text(["--ring", &written(*time)])),
        (CalleeBehaviour::Document(_), None) => {}
    }
    let (program, cores) = (&setting.program, &setting.cores);
    let mut process = setting.answerer(number).start(&Start { name: &name, folder, program, cores, words: &words })?;
    process.listens(side.port(), Duration::from_secs(20))?;
    Ok((process, log))
}

/// Waits until all callers have ended, or a connection is gone.
fn wait_for(callers: &mut [Started], sides: &mut [(Started, PathBuf)], limit: Duration) -> Result<(), Error> {
    let end = Instant::now() + limit;
    while Instant::now() < end && !process::is_ending() {
        let mut are_over = true;
        for caller in callers.iter_mut() {
            are_over &= caller.has_ended()?;
        }
        if are_over {
            break;
        }
        for (side, _) in sides.iter_mut() {
            // An error says that its host is gone.
            side.has_ended()?;
        }
        std::thread::sleep(STEP);
    }
    Ok(())
}

/// Waits for the end of a process. A process that runs for too long is asked to end, so that its log is complete.
fn finish(process: &mut Started, limit: Duration) -> Result<(), Error> {
    match process.end(limit) {
        Err(gone @ Error::Host { .. }) => return Err(gone),
        Err(_) => {
            process.signal(Signal::INT)?;
            process.end(GRACE + WRITING)?;
        }
        Ok(()) => {}
    }
    if process::is_ending() { Err(Error::Interrupted) } else { Ok(()) }
}

/// Returns the next whole second.
fn whole_second(moment: SystemTime) -> SystemTime {
    let since = moment.duration_since(UNIX_EPOCH).unwrap_or_default();
    UNIX_EPOCH + Duration::from_secs(since.as_secs() + 1)
}

/// Formats a moment for the command line.
fn moment(moment: SystemTime) -> String {
    let us = moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as u64;
    let whole = rfc3339(us);
    format!("{}.{:06}Z", whole.trim_end_matches('Z'), us % 1_000_000)
}

/// Formats a duration for the command line.
fn written(length: Duration) -> String {
    format!("{}ms", length.as_millis())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::Word;
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
            let mut words = Words::default();
            schedule(&mut words, &steps);
            let text = |word: &Word| match word {
                Word::Text(text) => text.clone(),
                file => format!("{file:?}"),
            };
            (words.iter().map(text).collect::<Vec<_>>().join(" "), mean(&steps, trial))
        };
        assert_eq!(words(&trial), ("--rate 100 --duration 10000ms".into(), 100.0));
        trial.changes = vec![(second(4), 1_000.0), (second(6), 0.0)];
        // 400, 2,000 and no calls in the eight seconds of the window.
        assert_eq!(words(&trial), ("--rate-profile 100:6000ms,1000:2000ms,0:2000ms".into(), 300.0));
        // The load continues after the window, and its mean is that of the window.
        trial.cool_down = second(5);
        assert_eq!(words(&trial), ("--rate-profile 100:6000ms,1000:2000ms,0:7000ms".into(), 300.0));
        trial.changes.clear();
        assert_eq!(words(&trial), ("--rate 100 --duration 15000ms".into(), 100.0));
        // Other loads around the window are not in its mean, and a warm-up of no length has none.
        (trial.before, trial.after) = (Some(50.0), Some(90.0));
        assert_eq!(words(&trial), ("--rate-profile 50:2000ms,100:8000ms,90:5000ms".into(), 100.0));
        trial.warm_up = Duration::ZERO;
        assert_eq!(words(&trial), ("--rate-profile 100:8000ms,90:5000ms".into(), 100.0));
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
