//! Engines with files of their own: folders of JSON lines and CSV, segments of kept calls, and the files of waiting
//! accounting rows.

pub mod accounting;
pub mod calls;
pub mod form;
pub mod quarantine;
pub mod spool;
