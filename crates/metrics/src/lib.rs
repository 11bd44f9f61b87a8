//! Metrics of a process: a table with the name, kind, unit, help and labels of each metric, numbers that one thread
//! writes and all may read, and their text for Prometheus.
//!
//! The one rule of use: each number has one writer. An addition is a load and a store, so a second writer would lose
//! counts; any thread may read.
//!
//! ```
//! strowger_metrics::metrics! {
//!     of = "kitchen";
//!     /// Metrics of a cook.
//!     pub struct Counters;
//!     /// Their values at one moment.
//!     pub struct Snapshot;
//!
//!     /// Meals that left the kitchen.
//!     meals: Counter;
//!     /// Pots on the fire.
//!     pots: Gauge;
//! }
//!
//! let counters = Counters::default();
//! counters.meals.add(2);
//! let mut text = strowger_metrics::Exposition::default();
//! for (metric, value) in counters.snapshot().each() {
//!     text.metric(metric, &[], value);
//! }
//! assert!(text.finish().contains("\nstrowger_meals_total 2\n"));
//! ```

#![forbid(unsafe_code)]

mod count;
mod exposition;
mod histogram;
mod table;

pub use count::{Count, counted};
pub use exposition::{CONTENT_TYPE, Exposition};
pub use histogram::{BOUNDS, Histogram, Observed};
pub use table::{Metric, MetricKind, Unit};
