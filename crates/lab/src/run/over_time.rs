//! Figures for each second of a window, from the logs of the generator and the samples.

use super::sampled::{CACHE, DATABASE, SERVER};
use crate::Error;
use crate::experiment::Course;
use crate::generator::of_second;
use crate::row::{Figures, Series, UnknownFigure};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use strowger_measure::{Counter, Observed, Page, Run, Span};

/// Microseconds in a second.
const SECOND: u64 = 1_000_000;

/// Share of the sessions of a second that may be unanswered at its end: those that are on their way, and those that are never answered because
/// their callers cancel them.
const UNANSWERED: f64 = 0.05;

/// Shares of the phones whose return has a figure.
const RETURNS: [(&str, f64); 2] = [("registered.after", 1.0), ("registered.after.95", 0.95)];

/// Seconds of a window: the figures of each second, and the registrations.
#[derive(Debug)]
pub(super) struct Seconds {
    first: u64,
    figures: Vec<Figures>,
    registrations: Vec<u64>,
}

impl Seconds {
    /// Reads the logs of all clients. The window begins at a whole second.
    pub(super) fn read(logs: &[PathBuf], begin: SystemTime, end: SystemTime) -> Result<Self, Error> {
        let second = |moment: SystemTime| moment.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let span = Span { from: second(begin), until: second(end) };
        let count = span.seconds() as usize;
        // In a second without a page nothing happened.
        let blank = of_second(&Page::new(0)).map_err(unknown)?;
        let (mut figures, mut registrations) = (vec![blank; count], vec![0; count]);
        let mut fault = None;
        let mut see = |page: &Page| {
            let at = (page.second - span.from) as usize;
            registrations[at] += page.counter(Counter::RegistrationSuccessful);
            match of_second(page) {
                Ok(found) => figures[at] = found,
                Err(error) => fault = Some(error),
            }
        };
        Run::read_seconds(logs, span, &mut see)
            .map_err(|error| Error::Unexpected { what: "the log of a generator".into(), reason: error.to_string() })?;
        match fault {
            Some(fault) => Err(unknown(fault)),
            None => Ok(Self { first: span.from, figures, registrations }),
        }
    }

    /// Returns the values of the figures of the course.
    pub(super) fn series(&self, course: &Course, observed: &Observed) -> Result<Series, UnknownFigure> {
        let mut series = Series::default();
        for name in &course.over_time {
            let values = match name.as_str() {
                "registered" => self.registered(course).into_iter().map(|count| Some(count as f64)).collect(),
                name => match self.sampled(name, observed) {
                    Some(values) => values,
                    None => self.figures.iter().map(|figures| figures.value(name)).collect(),
                },
            };
            series.set(name, values)?;
        }
        Ok(series)
    }

    /// Adds the times from the kill of the server until the phones were registered again. A time later than the window has no value.
    pub(super) fn returns(&self, course: &Course, figures: &mut Figures) -> Result<(), UnknownFigure> {
        let Some(killed) = course.killed().filter(|_| course.users > 0) else { return Ok(()) };
        for (name, share) in RETURNS {
            let wanted = (f64::from(course.users) * share).ceil() as u64;
            if let Some(after) = reached(&self.registrations[killed.as_secs() as usize..], wanted) {
                figures.set(name, after)?;
            }
        }
        Ok(())
    }

    /// Returns the number of phones that have registered since the last start of the server, at the end of each second. Users
    /// take turns, so that the number of registrations is the number of phones.
    fn registered(&self, course: &Course) -> Vec<u64> {
        let users = u64::from(course.users);
        let kills = || course.events.iter().filter(|event| event.action.is_kill()).map(|event| event.at.as_secs());
        let most = if users > 0 { users } else { u64::MAX };
        let mut registered = users;
        let count = |(second, registrations): (u64, &u64)| {
            if kills().any(|killed| killed == second) {
                registered = 0;
            }
            registered = (registered + registrations).min(most);
            registered
        };
        (0..).zip(&self.registrations).map(count).collect()
    }

    /// Returns the values of a figure that samples have, or `None` for another figure.
    fn sampled(&self, name: &str, observed: &Observed) -> Option<Vec<Option<f64>>> {
        let trees = |part: &'static str| observed.trees.iter().filter(move |tree| tree.name.starts_with(part));
        let cores = observed.machine.iter().map(|sample| sample.cores.len()).max().unwrap_or(1).max(1) as f64;
        let used: Vec<f64> = match name {
            "server.cpu" => self.spread(trees(SERVER).map(|tree| (tree.at, tree.interval, tree.cpu as f64))),
            "server.cpu.user" => self.spread(trees(SERVER).map(|tree| (tree.at, tree.interval, tree.user as f64))),
            "server.cpu.system" => self.spread(trees(SERVER).map(|tree| (tree.at, tree.interval, tree.system as f64))),
            "database.cpu" => self.spread(trees(DATABASE).map(|tree| (tree.at, tree.interval, tree.cpu as f64))),
            "cache.cpu" => self.spread(trees(CACHE).map(|tree| (tree.at, tree.interval, tree.cpu as f64))),
            "machine.cpu" => {
                let busy = |busy: f64, interval: u64| busy * interval as f64 * cores;
                self.spread(observed.machine.iter().map(|s| (s.at, s.interval, busy(s.busy(), s.interval))))
            }
            _ => return None,
        };
        // The machine is sampled all the time, a server only while it runs.
        let covered = self.spread(observed.machine.iter().map(|s| (s.at, s.interval, s.interval as f64)));
        let share =
            |(used, covered): (&f64, &f64)| (*covered * 2.0 >= SECOND as f64).then(|| used / covered / cores * 100.0);
        Some(used.iter().zip(&covered).map(share).collect())
    }

    /// Spreads the amount of each sample (end, interval, amount) over its interval, and returns the amounts by second.
    fn spread(&self, samples: impl Iterator<Item = (u64, u64, f64)>) -> Vec<f64> {
        let mut sums = vec![0.0; self.figures.len()];
        for (end, interval, amount) in samples.filter(|(_, interval, _)| *interval > 0) {
            let begin = end.saturating_sub(interval);
            for (second, sum) in (self.first..).zip(&mut sums) {
                let (from, until) = (second * SECOND, (second + 1) * SECOND);
                let overlap = end.min(until).saturating_sub(begin.max(from));
                *sum += amount * overlap as f64 / interval as f64;
            }
        }
        sums
    }
}

/// Returns the time after a window until all new calls are answered, of the first `rest` after its end: in each later second the answered
/// sessions are as many as the begun ones but for [`UNANSWERED`]. The time is `rest` if they never are, and `None` if no session was begun.
pub(super) fn recovery(logs: &[PathBuf], end: SystemTime, rest: Duration) -> Result<Option<f64>, Error> {
    let from = end.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let span = Span { from, until: from + rest.as_secs() };
    let mut sessions = vec![[0, 0]; span.seconds() as usize];
    let mut see = |page: &Page| {
        let [begun, answered] = &mut sessions[(page.second - span.from) as usize];
        *begun += page.counter(Counter::SessionAttempts);
        *answered += page.counter(Counter::SessionAnswered);
    };
    Run::read_seconds(logs, span, &mut see)
        .map_err(|error| Error::Unexpected { what: "the log of a generator".into(), reason: error.to_string() })?;
    Ok(recovered(&sessions))
}

/// Returns the number of the first second from which on the answered sessions follow the begun ones.
fn recovered(sessions: &[[u64; 2]]) -> Option<f64> {
    if sessions.iter().all(|[begun, _]| *begun == 0) {
        return None;
    }
    let follows = |[begun, answered]: &[u64; 2]| *answered as f64 >= *begun as f64 * (1.0 - UNANSWERED);
    let late = sessions.iter().rposition(|second| !follows(second));
    Some(late.map_or(0.0, |late| (late + 1) as f64))
}

/// Returns the seconds until `wanted` registrations were made; within a second they are spread evenly.
fn reached(registrations: &[u64], wanted: u64) -> Option<f64> {
    let mut before = 0;
    for (second, count) in registrations.iter().enumerate() {
        if before + count >= wanted {
            let part = if *count == 0 { 0.0 } else { (wanted - before) as f64 / *count as f64 };
            return Some(second as f64 + part);
        }
        before += count;
    }
    None
}

fn unknown(error: UnknownFigure) -> Error {
    Error::Unexpected { what: "a figure over time".into(), reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::experiment::{Action, TrialEvent};
    use strowger_measure::{MachineSample, TreeSample};

    fn seconds(registrations: &[u64]) -> Seconds {
        let figures = registrations.iter().map(|count| {
            let mut page = Page::new(0);
            page.count(Counter::CallsFailed, 10 - count.min(&10));
            page.count(Counter::CallsSuccessful, *count);
            page.count(Counter::RegistrationTimedOut, 2);
            of_second(&page).expect("known figures")
        });
        Seconds { first: 100, figures: figures.collect(), registrations: registrations.to_vec() }
    }

    fn course(users: u32, killed: &[u64], over_time: &[&str]) -> Course {
        let event = |at: &u64| {
            let kill = TrialEvent { at: Duration::from_secs(*at), action: Action::Kill { silent: false } };
            [kill, TrialEvent { at: kill.at, action: Action::Start }]
        };
        let over_time = over_time.iter().map(|name| (*name).to_owned()).collect();
        Course { events: killed.iter().flat_map(event).collect(), users, over_time, ..Course::default() }
    }

    #[test]
    fn a_server_has_recovered_once_all_new_calls_are_answered() {
        for (sessions, wanted) in [
            (&[[100, 100], [100, 96], [100, 101]][..], Some(0.0)),
            (&[[100, 30], [100, 94], [100, 95]], Some(2.0)),
            // A good second between two bad ones is no recovery.
            (&[[100, 10], [100, 100], [100, 10], [100, 100]], Some(3.0)),
            (&[[100, 100], [100, 10]], Some(2.0)),
            (&[[0, 0], [0, 0]], None),
            (&[], None),
        ] {
            assert_eq!(recovered(sessions), wanted, "{sessions:?}");
        }
    }

    #[test]
    fn an_unreadable_log_has_no_recovery() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = folder.path().join("caller.results");
        std::fs::write(&log, "no log").expect("it is written");
        let end = UNIX_EPOCH + Duration::from_secs(100);
        let error = recovery(&[log], end, Duration::from_secs(3)).expect_err("it is no log").to_string();
        assert!(error.contains("the log of a generator"), "{error}");
    }

    #[test]
    fn phones_return_after_each_kill() {
        let seconds = seconds(&[10, 10, 0, 5, 10, 10, 10]);
        assert_eq!(seconds.registered(&course(20, &[2], &[])), [20, 20, 0, 5, 15, 20, 20]);
        assert_eq!(seconds.registered(&course(20, &[2, 5], &[])), [20, 20, 0, 5, 15, 10, 20]);
        assert_eq!(seconds.registered(&course(20, &[], &[])), [20; 7]);
        assert_eq!(seconds.registered(&course(0, &[], &[])), [10, 20, 20, 25, 35, 45, 55]);
        let after = |course: &Course| {
            let mut figures = Figures::default();
            seconds.returns(course, &mut figures).expect("known figures");
            ["registered.after", "registered.after.95"].map(|name| figures.value(name))
        };
        // 20 phones: 0 + 5 + 10 in three seconds, and half of the next second; 19 of them a tenth of a second before.
        assert_eq!(after(&course(20, &[2], &[])), [Some(3.5), Some(3.4)]);
        assert_eq!(after(&course(40, &[2], &[])), [None, None]);
        assert_eq!(after(&course(0, &[2], &[])), [None, None]);
        assert_eq!(after(&course(20, &[], &[])), [None, None]);
    }

    #[test]
    fn figures_are_those_of_each_second() {
        let mut observed = Observed::default();
        // Half of the sample from 100.5 to 101.5 belongs to each second. The server is away in the last second.
        for (at, interval) in [(100_500_000, 500_000), (101_500_000, 1_000_000), (103_000_000, 1_500_000)] {
            let busy = MachineSample { at, interval, cores: vec![0.25, 0.75], ..MachineSample::default() };
            observed.machine.push(busy);
        }
        let tree = |at, interval, cpu| TreeSample { name: "server".into(), at, interval, cpu, ..TreeSample::default() };
        observed.trees = vec![tree(100_500_000, 500_000, 100_000), tree(101_500_000, 1_000_000, 600_000)];
        let course = course(
            4,
            &[1],
            &["registered", "failed", "failed.any", "timeouts", "rrd.p50", "server.cpu", "machine.cpu"],
        );
        let series = seconds(&[4, 0, 4]).series(&course, &observed).expect("known figures");
        let near = |name: &str, wanted: &[f64]| {
            let found = series.values(name);
            let is_near =
                |(found, wanted): (&Option<f64>, &f64)| found.is_some_and(|found| (found - wanted).abs() < 1e-6);
            assert!(found.len() == wanted.len() && found.iter().zip(wanted).all(is_near), "{name}: {found:?}");
        };
        near("registered", &[4.0, 0.0, 4.0]);
        near("failed", &[6.0, 10.0, 6.0]);
        near("failed.any", &[60.0, 100.0, 60.0]);
        near("timeouts", &[2.0; 3]);
        near("server.cpu", &[20.0, 15.0, 0.0]);
        near("machine.cpu", &[50.0; 3]);
        assert_eq!(series.values("rrd.p50"), [None; 3]);
        assert!(series.values("attempts").is_empty());
    }
}
