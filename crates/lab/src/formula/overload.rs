//! Formulas of a server that is offered a multiple of its limit and refuses a part of it.
//!
//! A refused call costs r times an accepted one, for 0 <= r < 1. If the server can spend the cost of one call, and n calls are offered, it can
//! accept g of them with g + (n - g) r = 1, so that g = 1 - (n - 1) r / (1 - r).

/// Computes the cost of a refused call as a share of that of an accepted one, from the cost of an attempt under overload, of which this share
/// was accepted, and the cost of a call without overload. Costs are in one unit.
///
/// Returns `None` if nothing was refused, or a call costs nothing. Noise may make refusals cheaper than nothing: then the result is 0.
pub fn refusal_cost(of_attempt: f64, accepted: f64, of_call: f64) -> Option<f64> {
    let refused = 1.0 - accepted;
    (refused > 0.0 && of_call > 0.0).then(|| ((of_attempt / of_call - accepted) / refused).max(0.0))
}

/// Computes the ideal goodput at a multiple of the limit, as a share of the limit. `cost`: cost of a refused call as a share of that of an
/// accepted one.
///
/// Below the limit it is the multiple itself. Returns `None` above the limit if refusals cost as much as calls.
pub fn ideal_goodput(multiple: f64, cost: f64) -> Option<f64> {
    match multiple <= 1.0 {
        true => Some(multiple),
        false => (cost < 1.0).then(|| (1.0 - (multiple - 1.0) * cost / (1.0 - cost)).max(0.0)),
    }
}
