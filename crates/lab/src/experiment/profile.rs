//! Durations of trials by profile.

use super::axis::Axis;
use super::fields::{Faults, Fields};
use crate::row::{AxisValue, Profile};
use std::collections::BTreeMap;
use std::time::Duration;

/// Durations of a trial, and how many there are.
#[derive(Clone, Debug, PartialEq)]
pub struct Steps {
    /// Load before the window.
    pub warm_up: Duration,
    /// Calls or registrations before the window at least: a low load has a longer warm-up.
    pub warm_up_calls: u32,
    /// Window that is measured.
    pub window: Duration,
    /// Load after the window of a trial at a fixed load or of a staircase.
    pub cool_down: Duration,
    /// Pause after the load, before memory is read.
    pub settle: Duration,
    /// Number of the first repetitions in which memory is read after that pause; later repetitions do not read memory.
    /// `None` means all repetitions.
    pub settled: Option<u32>,
    /// Time between the answer and the end of a call. It replaces the time in `[call]`.
    pub hold: Option<Duration>,
    /// Short trial of a search.
    pub trial: Duration,
    /// Long trial of a search, by which the search confirms its limit.
    pub confirm: Duration,
    /// Repetitions of each cell.
    pub repetitions: u32,
    /// True if the finder in `[load]` searches the limit.
    pub search: bool,
    /// Sessions of a trial of RFC 7502. They replace those in `[load]`.
    pub sessions: Option<u32>,
    /// Weight of an increase of RFC 7502. It replaces the one in `[load]`.
    pub increase: Option<f64>,
    /// Fixed loads. They replace the loads in `[load]` unless the list is empty.
    pub loads: Vec<f64>,
    /// Values of axes in place of all.
    pub only: BTreeMap<String, Vec<AxisValue>>,
}

impl Steps {
    /// Returns the durations of a profile that a file does not set.
    pub fn default_of(profile: Profile) -> Self {
        let [warm_up, window, trial, confirm] = match profile {
            Profile::Smoke => [500, 1_000, 500, 1_000],
            Profile::Quick => [1_000, 5_000, 2_000, 15_000],
            Profile::Standard => [5_000, 20_000, 3_000, 30_000],
            Profile::Paper => [180_000, 600_000, 10_000, 600_000],
        }
        .map(Duration::from_millis);
        let repetitions = match profile {
            Profile::Smoke | Profile::Paper => 1,
            Profile::Quick => 3,
            Profile::Standard => 5,
        };
        Self {
            warm_up,
            warm_up_calls: 0,
            window,
            cool_down: Duration::ZERO,
            settle: Duration::ZERO,
            settled: None,
            hold: None,
            trial,
            confirm,
            repetitions,
            search: true,
            sessions: None,
            increase: None,
            loads: Vec::new(),
            only: BTreeMap::new(),
        }
    }

    /// Returns the pause before memory is read, or `None` for a repetition that does not read memory.
    pub fn settle_in(&self, repetition: u32) -> Option<Duration> {
        self.settled.is_none_or(|settled| repetition <= settled).then_some(self.settle)
    }

    pub(super) fn read(profile: Profile, fields: &Fields<'_>, axes: &[Axis], faults: &mut Faults) -> Self {
        fields.know(
            &[
                "warm_up",
                "warm_up_calls",
                "window",
                "cool_down",
                "settle",
                "settled",
                "hold",
                "trial",
                "confirm",
                "repetitions",
                "search",
                "sessions",
                "increase",
                "loads",
                "only",
            ],
            faults,
        );
        let default = Self::default_of(profile);
        let window = fields.duration("window", faults).unwrap_or(default.window);
        if let Some(value) = fields.value("window").filter(|_| window.is_zero()) {
            faults.push(value.span(), "a window has a length", "write window = \"5s\"");
        }
        Self {
            warm_up: fields.duration("warm_up", faults).unwrap_or(default.warm_up),
            warm_up_calls: fields.count("warm_up_calls", 1, faults).unwrap_or(default.warm_up_calls),
            window,
            cool_down: fields.duration("cool_down", faults).unwrap_or(default.cool_down),
            settle: fields.duration("settle", faults).unwrap_or(default.settle),
            settled: fields.count("settled", 1, faults),
            hold: fields.duration("hold", faults),
            trial: fields.duration("trial", faults).unwrap_or(default.trial),
            confirm: fields.duration("confirm", faults).unwrap_or(default.confirm),
            search: fields.flag("search", faults).unwrap_or(default.search),
            repetitions: fields.count("repetitions", 1, faults).unwrap_or(default.repetitions),
            sessions: fields.count("sessions", 1, faults),
            increase: super::load::increase(fields, faults),
            loads: fields.numbers("loads", faults),
            only: fields.axis_lists("only", axes, faults),
        }
    }
}
