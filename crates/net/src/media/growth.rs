//! Number of media threads, and the thread for new sessions, by the load.

/// Share of the time above which a thread is busy.
const BUSY: f64 = 0.7;

/// Measurements in a row, about a second each, after which a further thread starts.
const ENOUGH: u32 = 3;

/// Difference of the loads of two threads above which new sessions go to the less busy one. After each such change the shards borrow other
/// ports, so a small difference is not worth it.
const DIFFERENCE: f64 = 0.1;

/// Growth of the number of threads.
///
/// A session keeps its thread, so a further thread serves new sessions only, and does not help while another thread has time for them.
#[derive(Debug, Default)]
pub(super) struct Growth {
    /// Measurements in a row in which all threads were busy.
    busy_for: u32,
}

impl Growth {
    /// Takes the shares of the time, 0 to 1, in which the threads were busy since the last call. Returns whether a further thread should start.
    pub(super) fn needs_thread(&mut self, shares: &[f64]) -> bool {
        self.busy_for = if shares.iter().all(|share| *share > BUSY) { self.busy_for + 1 } else { 0 };
        let is_enough = self.busy_for >= ENOUGH;
        if is_enough {
            self.busy_for = 0;
        }
        is_enough
    }
}

/// Returns the thread for new sessions: the least busy one, or `preferred` if it is about as busy.
pub(super) fn least_busy(shares: &[f64], preferred: usize) -> usize {
    let of = |thread: usize| shares.get(thread).copied().unwrap_or(f64::MAX);
    let least = (0..shares.len()).min_by(|one, other| of(*one).total_cmp(&of(*other)));
    least.filter(|least| of(*least) + DIFFERENCE < of(preferred)).unwrap_or(preferred)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_starts_after_seconds_in_which_all_are_busy() {
        let mut growth = Growth::default();
        let mut needs = |shares: &[f64]| growth.needs_thread(shares);
        assert_eq!([needs(&[0.8]), needs(&[0.9]), needs(&[0.6]), needs(&[0.8])], [false; 4]);
        assert_eq!([needs(&[0.71]), needs(&[0.9])], [false, true]);
        // The first thread keeps its sessions, and new ones go to the second one.
        for _ in 0..9 {
            assert!(!needs(&[0.9, 0.2]));
        }
        assert_eq!([needs(&[0.9, 0.8]), needs(&[0.9, 0.8]), needs(&[0.8, 0.9])], [false, false, true]);
    }

    #[test]
    fn new_sessions_go_to_the_least_busy_thread() {
        assert_eq!(least_busy(&[0.5, 0.2, 0.3], 0), 1);
        assert_eq!(least_busy(&[0.25, 0.2, 0.3], 0), 0, "about as busy");
        assert_eq!(least_busy(&[0.9, 0.0], 0), 1);
        assert_eq!((least_busy(&[0.4], 0), least_busy(&[], 0)), (0, 0));
    }
}
