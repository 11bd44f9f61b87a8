//! Rows of accounting, one for each call or event, and the contract of the sinks that write them.
//!
//! * [`cdr`]: rows and their columns, the same in every format; [`media_quality`]: those of media.
//! * [`mask`]: masks of numbers and addresses.
//! * [`sink`]: contract of the sinks; `strowger-backend` has the writer and the sinks.

pub mod cdr;
pub mod mask;
pub mod media_quality;
pub mod sink;

pub use self::cdr::{Cdr, Event, Row};
pub use self::media_quality::{MediaQuality, PartyMedia};
