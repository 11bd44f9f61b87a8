//! Periodic upkeep of the process. No request waits for it.

use crate::process_state::ProcessState;
use crate::registration_log::Expired;
use strowger_core::Now;

/// Maximum number of bindings that one round of upkeep removes.
const EXPIRED_AT_ONCE: usize = 20_000;

impl ProcessState {
    /// Removes expired bindings, and reports the suppressed log lines. The owner calls this about once a second.
    pub fn keep_up(&self, now: Now) {
        let mut expired = Vec::new();
        self.location.expire(now.mono, EXPIRED_AT_ONCE, &mut |binding| {
            expired.extend(Expired::of(&binding, self, now.mono));
        });
        expired.iter().for_each(Expired::log);
        self.report_suppressed(now.mono);
    }

    /// Forgets bans that are over, nonces that are too old, next hops that need not be set aside any more, and adopted
    /// Call-IDs without a dialog. The owner calls this every few seconds.
    pub fn tidy(&self, now: Now) {
        let policy = self.policy();
        policy.bans.tidy(now.mono);
        policy.authenticator.purge(now);
        policy.router.clock_steps().note(now);
        self.set_aside.tidy(now.mono);
        self.udp_only.tidy(now.mono);
        self.bridged_dialogs.tidy(now.mono);
    }
}
