//! Keys of SIPp's screen: another rate, a pause, the end.

use super::{Campaign, Stage, period, profile};
use crate::engine::pace::Part;
use crate::engine::traffic::ShardCommand;
use std::time::{Duration, Instant};
use strowger_measure::Level;

/// Reason of an end by `q` or `Q`.
pub const QUIT: &str = "ended by a key";

/// Longest pause between keys of one change.
const TOGETHER: Duration = Duration::from_secs(1);

/// Changes made by keys.
#[derive(Debug, Default)]
pub(super) struct Pressed {
    /// Rate, calls per second.
    rate: Option<f64>,
    pub(super) paused: bool,
    /// Change that is not yet reported: its start, the rate before it, the last key.
    change: Option<(Duration, f64, Instant)>,
}

impl Campaign {
    /// Handles a key: `+` and `-` change the rate by 1 call a second, `*` and `/` by 10, `p` pauses or resumes, `q`
    /// stops new calls (a second `q` ends open calls), `Q` ends open calls.
    pub fn press(&mut self, key: u8) {
        match key {
            b'Q' => self.end_by_key(),
            b'q' if self.ending.is_some() || self.only_answers() => self.end_by_key(),
            b'q' => {
                self.callers.iter().for_each(|side| side.send_command(ShardCommand::Quit));
                (self.reason, self.ending) = (QUIT, Some(Instant::now()));
                self.news.push("No more calls are begun; q once more ends those that are open.".into());
            }
            _ if self.stage != Stage::Running || self.only_answers() => (),
            b'+' => self.faster(1.0),
            b'-' => self.faster(-1.0),
            b'*' => self.faster(10.0),
            b'/' => self.faster(-10.0),
            b'p' => self.pause(),
            _ => (),
        }
    }

    fn end_by_key(&mut self) {
        if self.leaving.is_none() {
            self.interrupt();
            self.reason = QUIT;
        }
    }

    /// Returns the current intended rate.
    fn rate(&self) -> f64 {
        self.pressed.rate.unwrap_or_else(|| profile::rate(&self.plan.profile, self.elapsed().as_micros() as u64))
    }

    /// Changes the rate for the rest of the schedule.
    fn faster(&mut self, by: f64) {
        let before = self.rate();
        let rate = (before + by).max(0.0);
        let elapsed = self.elapsed();
        let left = profile::length(&self.plan.profile).map(|length| length.saturating_sub(elapsed.as_micros() as u64));
        let fractions = self.plan.fractions();
        let of_each = (self.callers.len() / fractions.len()).max(1);
        for (place, side) in self.callers.iter().enumerate() {
            let rate = rate * fractions[place / of_each] / of_each as f64;
            let part = match left {
                // A part without calls would end at once.
                Some(micros) if rate > 0.0 => Part::Ramp { from: rate, to: rate, micros },
                _ => Part::Hold { rate },
            };
            side.send_command(ShardCommand::Profile(vec![part]));
        }
        self.pressed.rate = Some(rate);
        let (since, from) = self.pressed.change.map_or((elapsed, before), |(since, from, _)| (since, from));
        self.pressed.change = Some((since, from, Instant::now()));
    }

    fn pause(&mut self) {
        let paused = !self.pressed.paused;
        self.pressed.paused = paused;
        self.callers.iter().for_each(|side| side.send_command(ShardCommand::Pause(paused)));
        let at = period::show(self.elapsed());
        let what = if paused { "no calls are begun" } else { "calls are begun again" };
        self.note(Level::Warning, format!("By a key, {at} into the run, {what}."));
    }

    /// Reports a change of the rate once no key has followed for [`TOGETHER`], or `now`.
    pub(super) fn tell_change(&mut self, now: bool) {
        let change = self.pressed.change.filter(|(.., last)| now || last.elapsed() > TOGETHER);
        let Some((since, from, _)) = change else { return };
        self.pressed.change = None;
        let (at, to) = (period::show(since), self.rate());
        self.note(
            Level::Warning,
            format!("By a key, {at} into the run, the rate became {to} a second instead of {from}."),
        );
    }

    /// Ends a schedule with rate 0, which has no last call.
    pub(super) fn stop_standstill(&self) {
        if self.pressed.rate == Some(0.0) {
            self.callers.iter().for_each(|side| side.send_command(ShardCommand::Quit));
        }
    }
}
