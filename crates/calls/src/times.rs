//! Maximum durations of calls.

use crate::call::{CHALLENGE, Call};
use crate::dialog::Dialog;

/// Times of calls, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct CallTimes {
    /// Time from the INVITE until the log forgets the call.
    pub logged: u64,
    /// Time from the answer until the server ends a tracked call.
    pub lifetime: u64,
    /// Timeout of a transaction: 64*T1.
    pub transaction: u64,
}

impl Call {
    /// Returns the deadline of the call, as [`strowger_core::Now::mono`].
    pub(crate) fn until(&self, times: CallTimes) -> Option<u64> {
        let whole = |at: i64| at.max(0).cast_unsigned();
        let after = |at: i64, time: u64| whole(at.saturating_add_unsigned(time));
        let logged = self.is_in_log().then(|| after(self.began, times.logged));
        let challenged = self.is_left().then(|| after(self.began, CHALLENGE));
        let dialogs = self.dialogs.iter().filter_map(|dialog| match dialog.ending() {
            Some(ending) => ending.next().map(whole),
            None => self.dialog_until(dialog, times),
        });
        [logged, challenged, dialogs.min()].into_iter().flatten().min()
    }

    fn dialog_until(&self, dialog: &Dialog, times: CallTimes) -> Option<u64> {
        let whole = |at: i64| at.max(0).cast_unsigned();
        let answer = dialog.answer.filter(|_| self.tracked);
        let lifetime = answer.map(|answer| whole(answer.at.saturating_add_unsigned(times.lifetime)));
        let ack = answer.and_then(|_| dialog.unacknowledged_until(times.transaction)).map(whole);
        let session = dialog.session_end().map(whole);
        let doubt = dialog.doubt.as_ref().filter(|_| answer.is_some()).map(|doubt| whole(doubt.next));
        [lifetime, ack, session, doubt].into_iter().flatten().min()
    }
}
