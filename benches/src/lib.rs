//! Code shared by the benches.

pub mod bar;
pub mod bare_timer;
pub mod command_line;
pub mod engine_alone;
pub mod memory;
pub mod processor_time;

pub use strowger_lab::statistics::{Interval, median};
