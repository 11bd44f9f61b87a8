//! SIPp's interface: its command line, files, screens and exit codes over this engine.

pub mod options;
pub mod time;

mod background;
mod behaviours;
mod binding;
mod call_debug;
mod console;
mod counts;
mod error_codes;
mod errors;
mod face;
mod help;
mod host;
pub(crate) mod keys;
mod log_file;
mod media;
mod plan;
mod screen;
mod session;
mod sockets;
mod start;
mod statistics;
pub(crate) mod terminal;
mod third_party;
mod tls;
mod trace;
mod traces;

pub use face::{code, run};
pub use options::Options;
