//! Calls whose deadline has passed: end of their lifetime, end of their session timer, or time to probe their parties.

use crate::call::{CHALLENGE, Call};
use crate::cdr::Ender;
use crate::dialog::Dialog;
use crate::dialog_end::Ending;
use crate::effect::CallEffect;
use crate::environment::Environment;
use crate::table::CallTable;
use crate::times::moment;
use smallvec::SmallVec;

/// Maximum number of calls that end in one turn; further calls end in the next turn.
pub const AT_ONCE: usize = 64;

impl CallTable {
    /// Handles a call whose deadline has passed. Returns false if there is no such call. The owner carries out the
    /// effects of one call before the next, and leaves calls beyond [`AT_ONCE`] for the next turn.
    pub fn end_due(&mut self, env: &mut Environment<'_>) -> bool {
        if self.close_unreported(env.now.mono) {
            return true;
        }
        let Some(key) = self.due(env.now.mono) else { return false };
        self.look_at_call(env, key);
        true
    }

    fn look_at_call(&mut self, env: &mut Environment<'_>, key: u64) {
        let now = env.now;
        let times = self.times;
        let lasts = |at: i64, time: u64| moment(now) < at.saturating_add_unsigned(time);
        let Some(call) = self.get(key) else { return };
        if call.is_in_log() && !lasts(call.began, times.logged) {
            self.effects.push(CallEffect::LogForgotten);
            self.change(key, Call::forget_log);
        }
        if self.get(key).is_some_and(|call| call.tracked) {
            self.end_dialogs(env, key, (Ender::Lifetime, moment(now), [false; 2]), |dialog| {
                dialog.answer.is_some_and(|answer| !lasts(answer.at, times.lifetime))
            });
        }
        self.end_sessions(env, key);
        self.doubt_unacknowledged(now, key);
        self.ask_parties(env, key);
        self.send_due_byes(env, key);
        self.change(key, |call| call.challenged &= lasts(call.began, CHALLENGE));
        // Without a new deadline, the call would remain due.
        self.set_deadline(key);
    }

    /// Ends sessions that no party has refreshed in time. The parties should send a BYE themselves (RFC 4028 section
    /// 10), but afterwards the call is no longer counted or recorded. So the server sends a BYE to each of them.
    fn end_sessions(&mut self, env: &mut Environment<'_>, key: u64) {
        let now = env.now;
        let is_over =
            |dialog: &Dialog| dialog.ending().is_none() && dialog.session_end().is_some_and(|at| at <= moment(now));
        let Some(call) = self.get(key) else { return };
        let ended = call.dialogs.iter().filter(|dialog| is_over(dialog));
        // The session may have ended before this process began.
        let Some(at) = ended.filter_map(Dialog::session_end).max() else { return };
        self.end_dialogs(env, key, (Ender::SessionTimer, at, [false; 2]), is_over);
    }

    /// Starts the end of the answered dialogs of a call for which `is_meant` is true. `at`: moment of the end in the
    /// records. `lost`: parties that are known to have lost the dialogs.
    pub(crate) fn end_dialogs(
        &mut self,
        env: &mut Environment<'_>,
        key: u64,
        (by, at, lost): (Ender, i64, [bool; 2]),
        is_meant: impl Fn(&Dialog) -> bool,
    ) {
        let Some(call) = self.get(key) else { return };
        let is_meant = |dialog: &&Dialog| dialog.ending().is_none() && is_meant(dialog);
        let meant: SmallVec<[u16; 4]> = call.dialogs.iter().filter(is_meant).map(|dialog| dialog.salt).collect();
        for salt in meant {
            self.end_dialog(env, (key, salt), Ending::new(env.now, by, at, lost));
        }
    }
}
