//! SIPp's face: its command line, files, screens and exit codes over this engine.

pub mod options;
pub mod time;

mod background;
mod binding;
mod console;
mod counts;
mod face;
mod host;
mod keys;
mod media;
mod plan;
mod screen;
mod session;
mod sockets;
mod start;
mod statistics;
mod third_party;
mod trace;

pub use face::{code, run};
pub use options::Options;
