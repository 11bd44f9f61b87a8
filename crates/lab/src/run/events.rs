//! Events of a trial: the server is killed and started while the load goes on.

use super::site::Server;
use crate::experiment::{Action, TrialEvent};
use crate::process;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant, SystemTime};

/// Step of a wait, after which the end of the trial is looked for.
const STEP: Duration = Duration::from_millis(20);

/// Events that were made.
#[derive(Debug, Default)]
pub(super) struct Made {
    /// Time in which the server was to be away.
    pub(super) away: Duration,
    /// Sentence about a server that did not start again, or an event that was not made.
    pub(super) fault: Option<String>,
}

/// Makes the events of a trial. `begins`: the begin of its window; `is_over`: whether it has ended; `watch`: has new processes sampled.
pub(super) fn make(
    events: &[TrialEvent],
    begins: Receiver<SystemTime>,
    is_over: &AtomicBool,
    server: &mut Server,
    watch: &dyn Fn(Vec<u32>),
) -> Made {
    let mut made = Made::default();
    // The generator makes the changes of the load. A trial that does not begin has no events.
    let mut own = events.iter().filter(|event| !matches!(event.action, Action::Load(_))).peekable();
    if own.peek().is_none() {
        return made;
    }
    let Ok(begin) = begins.recv() else { return made };
    let mut killed = None;
    for event in own {
        if !wait(begin + event.at, is_over) {
            made.fault = Some(format!("the trial ended before the event at {:?}", event.at));
            return made;
        }
        match event.action {
            Action::Kill { silent } => {
                if let Some(status) = server.ended() {
                    made.fault = Some(format!("{status} before the event at {:?}", event.at));
                    return made;
                }
                killed = Some(Instant::now());
                server.kill(silent);
            }
            Action::Start => {
                let started = server.start_again();
                made.away += killed.take().map_or(Duration::ZERO, |killed| killed.elapsed());
                if let Err(error) = started {
                    let sentence = error.to_string().lines().next().unwrap_or_default().to_owned();
                    made.fault = Some(format!("the server did not start again: {sentence}"));
                    return made;
                }
                watch(server.ids());
            }
            Action::Load(_) => {}
        }
    }
    made
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
