//! Log of calls: begun, answered, ended, failed.
//!
//! A call is logged whole or not at all: `log.calls_per_minute` decides when it begins. The state for its further lines
//! is in the table of calls ([`crate::calls`]).

use crate::calls::dialog::CallAnswer;
use crate::calls::{Call, moment, parties};
use crate::decider::Decider;
use crate::handling::Handling;
use strowger_core::Now;
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
        let most = self.policy.config.log.open_calls.div_ceil(self.shared.counters.len());
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

impl Decider<'_> {
    /// Counts the end of an answered dialog at this moment.
    pub(crate) fn count_ended(&self, at: i64, answer: Option<CallAnswer>) {
        let Some(answer) = answer else { return };
        let milliseconds = at.saturating_sub(answer.at).max(0).cast_unsigned();
        self.counters().calls_ended.one();
        self.counters().call_time.add(milliseconds.saturating_mul(1_000));
    }
}

/// Logs the end of a dialog at this moment. `by`: party that sent the BYE, or another cause.
pub(crate) fn log_ended(at: i64, call: &Call, by: &str, answer: Option<CallAnswer>, call_id: &[u8]) {
    tracing::info!(
        caller = %shown(call.caller()),
        callee = %shown(call.callee()),
        %by,
        code = answer.map(|answer| answer.status.get()),
        seconds = answer.map(|answer| seconds_between(answer.at, at)),
        call_id = %shown(call_id),
        "call ended"
    );
}

/// Logs the final response to its INVITE, which goes upstream.
pub(crate) fn log_outcome(now: Now, call: &Call, code: u16, call_id: &[u8]) {
    let event = match code {
        ..300 => "call answered",
        487 if call.cancelled => "call cancelled",
        _ => "call failed",
    };
    tracing::info!(
        caller = %shown(call.caller()),
        callee = %shown(call.callee()),
        code,
        seconds = seconds_between(call.began, moment(now)),
        call_id = %shown(call_id),
        "{event}"
    );
}

fn seconds_between(from: i64, to: i64) -> f64 {
    to.saturating_sub(from) as f64 / 1000.0
}

/// Tells whether the log takes lines about calls.
pub(crate) fn is_wanted() -> bool {
    tracing::enabled!(tracing::Level::INFO)
}
