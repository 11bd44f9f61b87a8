//! Maximum durations of calls.

use super::dialog::Dialog;
use super::{CHALLENGE, Call};
use std::time::Duration;
use strowger_config::Config;

/// Times of calls, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimes {
    /// Time from the INVITE until the log forgets the call.
    pub(crate) logged: u64,
    /// Time from the answer until the server ends a tracked call.
    pub(crate) lifetime: u64,
    /// Timeout of a transaction: 64*T1.
    pub(crate) transaction: u64,
}

impl CallTimes {
    pub(crate) fn of(config: &Config) -> Self {
        let milliseconds = |time: Duration| time.as_millis() as u64;
        Self {
            logged: milliseconds(config.log.longest_call),
            lifetime: milliseconds(config.dialogs.lifetime),
            transaction: config.timer_settings().t1_64(),
        }
    }
}

impl Call {
    /// Returns the deadline of the call, as [`strowger_core::Now::mono`].
    pub(super) fn until(&self, times: CallTimes) -> Option<u64> {
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
