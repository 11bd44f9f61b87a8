//! How many lines the log gets about single requests and connections that were refused or failed: see
//! [`Quota`](strowger_net::Quota). Bans have lines of their own, which are few.

use crate::asked::Asked;
use crate::shard::Shard;
use crate::shared::Shared;

impl Shard {
    /// Whether a line may be written about this request.
    pub(crate) fn may_say(&self, asked: &Asked<'_, '_>) -> bool {
        self.shared.quota.may_say(asked.request.arrival.remote.ip(), asked.now.mono)
    }
}

/// Says how many were left out, once a minute; `now` in milliseconds.
pub(crate) fn say_left_out(shared: &Shared, now: u64) {
    let lines = shared.quota.left_out(now);
    if lines > 0 {
        tracing::warn!(
            lines,
            "requests or connections were refused or failed that no line says: log.refusals_per_minute"
        );
    }
}
