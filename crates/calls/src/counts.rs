//! Counts of the calls of a shard, for gauges and bounds.

use crate::call::Call;
use crate::dialog::Dialog;

/// Counts of calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCounts {
    /// Calls that are logged and have not ended.
    pub logged: usize,
    /// Tracked calls.
    pub tracked: usize,
    /// Tracked dialogs without an answer.
    pub early: usize,
    /// Tracked dialogs with an answer.
    pub confirmed: usize,
    /// Calls with a dialog that has a BYE in progress.
    pub ending: usize,
    /// Places that the calls take under limits, in all.
    pub counted: usize,
}

impl CallCounts {
    pub(crate) fn of(call: &Call) -> Self {
        let confirmed = call.dialogs.iter().filter(|dialog| dialog.answer.is_some()).count();
        let of_dialogs = |count: usize| if call.tracked { count } else { 0 };
        Self {
            logged: usize::from(call.is_in_log()),
            tracked: usize::from(call.tracked),
            early: of_dialogs(call.dialogs.len() - confirmed),
            confirmed: of_dialogs(confirmed),
            ending: usize::from(call.dialogs.iter().any(Dialog::is_ending)),
            counted: call.taken().count(),
        }
    }
}
