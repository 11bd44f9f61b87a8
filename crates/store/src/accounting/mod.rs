//! Rows of accounting: what is written of calls, and the contract of the places where it is written.
//!
//! * [`record`]: the rows and their columns, the same for every form.
//! * [`mask`]: numbers and addresses that are not to be read.
//! * [`sink`]: where rows are written; `strowger-backend` has the writer and the sinks.

pub mod mask;
pub mod record;
pub mod sink;

pub use self::record::{Cdr, Event, Row};
