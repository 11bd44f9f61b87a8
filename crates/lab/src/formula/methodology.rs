//! Formulas of "Methodology for SIP Infrastructure Performance Testing".
//!
//! Erratum: equation (1) is printed as a product. A rate is a count over a time.

use std::time::Duration;

/// Limit of the registration and session request delays.
pub const DELAY_LIMIT: Duration = Duration::from_millis(300);

/// Limit of the delay between consecutive media packets.
pub const PACKET_DELAY_LIMIT: Duration = Duration::from_millis(90);

/// Limit of IRA and ISA in per cent.
pub const INEFFECTIVE_LIMIT: f64 = 1.0;

/// Computes the calls a second that keep this number of simultaneous calls, equation (1): calls divided by the duration of a
/// call.
///
/// Returns `None` if calls have no duration.
pub fn call_rate(simultaneous: f64, duration: Duration) -> Option<f64> {
    let seconds = duration.as_secs_f64();
    (seconds > 0.0).then(|| simultaneous / seconds)
}

/// Computes the performance rating factor in per cent, equation (2): a figure with codec translation over the same figure
/// without translation at the same load.
///
/// Returns `None` if the figure without translation is zero.
pub fn rating_factor(with_translation: f64, without_translation: f64) -> Option<f64> {
    (without_translation != 0.0).then(|| with_translation / without_translation * 100.0)
}

/// Computes IRA as the methodology counts it, in per cent: registrations that failed for any reason.
///
/// Returns `None` without attempts.
pub fn ineffective_registrations(attempts: u64, successful: u64) -> Option<f64> {
    ineffective(attempts, successful)
}

/// Computes ISA as the methodology counts it, in per cent: calls that failed for any reason, among the calls whose
/// registration succeeded.
///
/// Returns `None` if no registration succeeded.
pub fn ineffective_sessions(registered: u64, successful: u64) -> Option<f64> {
    ineffective(registered, successful)
}

fn ineffective(attempts: u64, successful: u64) -> Option<f64> {
    (attempts > 0).then(|| attempts.saturating_sub(successful) as f64 / attempts as f64 * 100.0)
}
