//! Beginning of a call in the log.
//!
//! A call is logged whole or not at all: `log.calls_per_minute` decides when it begins. The table of calls writes its
//! further lines.

use crate::decider::Decider;
use crate::handling::Handling;
use strowger_calls::parties;
use strowger_core::shown::shown;
use tracing::level_filters::LevelFilter;

impl Decider<'_> {
    /// Tells whether calls are logged at all.
    pub(crate) fn may_log_calls(&self) -> bool {
        self.shared.call_lines.is_on() && LevelFilter::current() >= LevelFilter::INFO
    }

    /// Logs the beginning of a call, as its INVITE outside a dialog is forwarded. Returns whether the call is logged
    /// from now on.
    pub(crate) fn log_call_begun(&self, handling: &Handling<'_, '_>) -> bool {
        let (request, now, lines) = (handling.request, handling.now, &self.shared.call_lines);
        // Each shard has its share.
        let most = self.shared.bounds.logged_calls.div_ceil(self.shared.counters.len());
        let authenticated = handling.progress.proof.user.is_some();
        let may_log = if authenticated { lines.may_log(now.mono) } else { lines.may_log_of_unproven(now.mono) };
        if !may_log || !is_wanted() {
            return false;
        }
        // Callers without a password leave room for those with one.
        let most = if authenticated { most } else { most.div_ceil(2) };
        if self.calls.counts().logged >= most {
            self.counters().calls_unlogged.one();
            return false;
        }
        let (caller, callee) = parties(request);
        let uri = request.message.request_uri();
        // Most callers write the same URI twice.
        let uri = (uri != callee).then(|| tracing::field::display(shown(uri)));
        tracing::info!(
            caller = %shown(caller),
            callee = %shown(callee),
            uri,
            source = %request.arrival.remote,
            transport = %request.arrival.transport.text(),
            authenticated,
            call_id = %shown(request.call_id),
            "call begun"
        );
        true
    }
}

/// Tells whether the log takes lines about calls.
pub(crate) fn is_wanted() -> bool {
    tracing::enabled!(tracing::Level::INFO)
}
