//! Lines of the log about calls that were answered, ended or failed.
//!
//! A call is logged whole or not at all: the owner of the table decides when it begins. The state for its further lines
//! is in the table.

use crate::call::Call;
use crate::dialog::CallAnswer;
use crate::times::moment;
use strowger_core::Now;
use strowger_core::shown::shown;

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

/// Logs the final response to the INVITE of the call, which is sent upstream.
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
