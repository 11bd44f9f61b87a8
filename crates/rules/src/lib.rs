#![forbid(unsafe_code)]
#![warn(missing_docs)]
//! x
mod csv;
mod fault;
mod field;
mod network;
mod networks;
mod pattern;
mod prefixes;
mod set;
mod sets;
mod texts;
mod token;
pub use fault::*;
pub use field::*;
pub use network::*;
pub use pattern::MAX_PATTERN_TABLE;
pub use set::{Columns, Entry, EntryFault, FileFault, Kind, Set};
pub use sets::{SetId, SetNames, Sets};
