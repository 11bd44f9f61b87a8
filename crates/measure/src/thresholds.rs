//! Thresholds beyond which a generator counts as the limit.

use serde::{Deserialize, Serialize};

/// Thresholds beyond which a generator counts as the limit. Each is a setting, and is compared with each window of the
/// run.
///
/// A lag is compared with the delays that it falsifies: a tenth of a second does not change the result for calls that
/// take ten seconds, but does for answers within a millisecond. Without a configured bound, half of the 95th percentile
/// of the measured delays is allowed, at least [`lag_floor`](Self::lag_floor) and at most [`lag_most`](Self::lag_most).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Thresholds {
    /// Calls that were due, had a place below the limit of concurrent calls, and were not started by the end of the
    /// window, per cent of the calls that fell due in it. Default 1.
    pub rate_error: f64,
    /// 99th percentile of the lag of calls, of timers within calls and of sending, milliseconds. Default: by the
    /// delays.
    pub lag_p99: Option<f64>,
    /// 99th percentile of the time for which messages waited in our own socket, milliseconds. Default: as `lag_p99`.
    pub receive_lag: Option<f64>,
    /// Mean time for which a runnable thread waited for a core, milliseconds. Default: as `lag_p99`.
    pub run_queue: Option<f64>,
    /// Share of the time in which a thread waited for a core while calls waited for the limit of concurrent calls, per
    /// cent. Such a limit hides every lag of the schedule. Default 20.
    pub core_wait: f64,
    /// Allowed lag as a share of the 95th percentile of the delays, if it has no bound of its own, per cent. Default
    /// 50.
    pub lag_share: f64,
    /// Lag that is always allowed, however short the delays, milliseconds. Default 2.
    pub lag_floor: f64,
    /// Lag that is never allowed, however long the delays, milliseconds. Default 10.
    pub lag_most: f64,
    /// Datagrams that the kernel dropped before the generator read them. Default 0.
    pub socket_drops: u64,
    /// Messages that this machine could not send. Default 0.
    pub send_failures: u64,
    /// Longest stall of a shard, milliseconds. Default 250.
    pub stall: f64,
    /// Media packets that were skipped or that this machine could not send, and refused media actions. Default 0.
    pub media_losses: u64,
    /// Mean share of a core that a thread of the generator may use, per cent. Default 100: no bound, because a
    /// saturated thread that keeps its times measures correctly.
    pub cpu: f64,
    /// Share of a core from which on a thread counts as saturated, per cent. Default 95. A saturated thread alone gives
    /// a warning. If another threshold is exceeded, the thread is named as the cause. While calls wait for the limit of
    /// concurrent calls, a saturated thread makes the run invalid.
    pub saturated: f64,
    /// Seconds, per cent of all, in which a thread may be saturated without a warning. Default 10.
    pub saturated_seconds: f64,
    /// Share of windows with an exceeded threshold from which on the whole run is invalid, per cent of the windows in
    /// which the generator made or accepted calls. Default 10: in a run of less than ten windows one bad window is
    /// enough.
    pub bad_windows: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self {
            rate_error: 1.0,
            lag_p99: None,
            receive_lag: None,
            run_queue: None,
            core_wait: 20.0,
            lag_share: 50.0,
            lag_floor: 2.0,
            lag_most: 10.0,
            socket_drops: 0,
            send_failures: 0,
            stall: 250.0,
            media_losses: 0,
            cpu: 100.0,
            saturated: 95.0,
            saturated_seconds: 10.0,
            bad_windows: 10.0,
        }
    }
}

impl Thresholds {
    /// Returns the allowed lag, µs: `set` (ms) if given, otherwise a bound computed from the delays that the lag
    /// falsifies, whose 95th percentile is `p95` (µs). Without a delay the bound is [`lag_most`](Self::lag_most).
    pub fn lag(&self, set: Option<f64>, p95: Option<u64>) -> f64 {
        let by_delays = match p95 {
            Some(p95) => p95 as f64 * self.lag_share / 100.0,
            None => f64::INFINITY,
        };
        let most = self.lag_most.max(self.lag_floor) * 1e3;
        set.map_or_else(|| by_delays.clamp(self.lag_floor * 1e3, most), |ms| ms * 1e3)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_held_against_the_delays() {
        let of = Thresholds::default();
        let bounds = [Some(150), Some(6_000), Some(3_000_000), None].map(|p95| of.lag(None, p95));
        assert_eq!(bounds, [2_000.0, 3_000.0, 10_000.0, 10_000.0]);
        assert_eq!((of.lag(Some(0.0), Some(150)), of.lag(Some(1_000.0), None)), (0.0, 1_000_000.0));
        let odd = Thresholds { lag_floor: 20.0, ..of };
        assert_eq!(odd.lag(None, Some(150)), 20_000.0);
    }
}
