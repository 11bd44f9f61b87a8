//! Events of a trial: the server is killed and started under load.

use super::side::ServerSide;
use crate::experiment::{Action, TrialEvent};
use crate::{Error, process};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

/// Interval at which a wait checks for the end of the trial.
const STEP: Duration = Duration::from_millis(20);

/// Lateness of an event that a trial bears.
const LATE: Duration = Duration::from_millis(500);

/// Events that were made.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// Time in which the server was to be away.
    pub(super) away: Duration,
    /// Sentence about a server that did not start again.
    pub(super) fault: Option<String>,
    /// Sentence about an event that was not made at its time.
    pub(super) late: Option<String>,
}

/// Makes the events of a trial. `begins`: the beginning of its window; `is_over`: whether the trial has ended.
pub(super) fn make(
    events: &[TrialEvent],
    begins: Receiver<SystemTime>,
    is_over: &AtomicBool,
    side: &mut dyn ServerSide,
) -> Made {
    let mut made = Made::default();
    // The generator itself makes the changes of the load. A trial that does not begin has no events.
    let mut own = events.iter().filter(|event| !matches!(event.action, Action::Load(_))).peekable();
    if own.peek().is_none() {
        return made;
    }
    let Ok(begin) = begins.recv() else { return made };
    let mut killed = None;
    for event in own {
        if !wait(begin + event.at, is_over) {
            made.late = Some(format!("the trial ended before the event at {:?}", event.at));
            return made;
        }
        let late = SystemTime::now().duration_since(begin + event.at).unwrap_or_default();
        if late > LATE {
            made.late = Some(format!("the event at {:?} was made {late:.1?} later", event.at));
        }
        if let Err(fault) = one(event, side, &mut killed, &mut made.away) {
            made.fault = Some(fault);
            return made;
        }
    }
    made
}

/// Makes an event. A fault is a sentence.
fn one(
    event: &TrialEvent,
    side: &mut dyn ServerSide,
    killed: &mut Option<Instant>,
    away: &mut Duration,
) -> Result<(), String> {
    let sentence = |error: Error| error.to_string().lines().next().unwrap_or_default().to_owned();
    match event.action {
        Action::Kill { silent } => {
            if let Some(status) = side.ended().map_err(sentence)? {
                return Err(format!("{status} before the event at {:?}", event.at));
            }
            *killed = Some(Instant::now());
            side.kill(silent).map_err(sentence)
        }
        Action::Start => {
            let started = side.start_again();
            *away += killed.take().map_or(Duration::ZERO, |killed| killed.elapsed());
            started.map_err(|error| format!("the server did not start again: {}", sentence(error)))
        }
        Action::Load(_) => Ok(()),
    }
}

/// Waits for a moment. False: the trial or the run has ended before.
fn wait(moment: SystemTime, is_over: &AtomicBool) -> bool {
    loop {
        let rest = moment.duration_since(SystemTime::now()).unwrap_or_default();
        if rest.is_zero() {
            return true;
        }
        if is_over.load(Ordering::Relaxed) || process::is_ending() {
            return false;
        }
        std::thread::sleep(rest.min(STEP));
    }
}
