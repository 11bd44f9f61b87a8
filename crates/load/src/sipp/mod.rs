//! SIPp's face: its command line, files, screens and exit codes over this engine.

pub mod options;
pub mod time;

mod background;
mod counts;
mod face;
mod host;
mod keys;
mod media;
mod screen;
mod statistics;
mod third_party;
mod trace;

pub use face::{code, run};
pub use options::Options;
