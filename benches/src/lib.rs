//! What the benches share.

pub mod command_line;
pub mod memory;
pub mod processor_time;

/// The middle one, or between the two in the middle.
///
/// # Panics
/// Without values.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 { values[middle] } else { (values[middle - 1] + values[middle]) / 2.0 }
}
