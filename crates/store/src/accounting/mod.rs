//! Rows of accounting, one for each call or event, and the contract of the sinks that write them.
//!
//! * [`record`]: rows and their columns, the same in every format.
//! * [`mask`]: masks of numbers and addresses.
//! * [`sink`]: contract of the sinks; `strowger-backend` has the writer and the sinks.

pub mod cdr;
pub mod mask;
pub mod sink;

pub use self::cdr::{Cdr, Event, Row};
