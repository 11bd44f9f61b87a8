//! Rows of accounting, one for each call or event, and the contract of the sinks that write them.
//!
//! * [`record`]: the rows and their columns, the same for every form.
//! * [`mask`]: numbers and addresses that are not to be read.
//! * [`sink`]: where rows are written; `strowger-backend` has the writer and the sinks.

pub mod mask;
pub mod record;
pub mod sink;

pub use self::record::{Cdr, Event, Row};
