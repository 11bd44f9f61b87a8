//! Counts of the calls of a shard, for gauges and bounds.

use super::Call;

/// Counts of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct CallCounts {
    /// Calls that are logged and have not ended.
    pub(crate) logged: usize,
    /// Tracked calls.
    pub(crate) tracked: usize,
    /// Tracked dialogs without an answer.
    pub(crate) early: usize,
    /// Tracked dialogs with an answer.
    pub(crate) confirmed: usize,
    /// Calls with a dialog that has a BYE in progress.
    pub(crate) ending: usize,
    /// Places that the calls take under limits, in all.
    pub(crate) counted: usize,
}

impl CallCounts {
    pub(super) fn of(call: &Call) -> Self {
        let confirmed = call.dialogs.iter().filter(|dialog| dialog.answer.is_some()).count();
        let of_dialogs = |count: usize| if call.tracked { count } else { 0 };
        Self {
            logged: usize::from(call.is_in_log()),
            tracked: usize::from(call.tracked),
            early: of_dialogs(call.dialogs.len() - confirmed),
            confirmed: of_dialogs(confirmed),
            ending: usize::from(call.dialogs.iter().any(super::Dialog::is_ending)),
            counted: call.taken().count(),
        }
    }
}
