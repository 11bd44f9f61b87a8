//! The laboratory: it starts a system under test with what that needs, loads it, and samples what it costs.
//!
//! * [`process`]: a program that runs beside this one and ends with it; [`program`]: programs by others, and where they come from.
//! * [`sample`]: processor time and memory of a tree of processes.
//! * [`backend`]: databases and caches in temporary folders.
//! * [`driver`]: how a system under test is started.
//! * [`stress`]: the eleven stress tests, A to K.
//! * [`statistics`]: medians and how sure they are.
//!
//! What a sleeping child costs is close to nothing:
//!
//! ```
//! use std::process::Command;
//! use strowger_lab::process::Process;
//! use strowger_lab::sample::Usage;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let sleeper = Process::start("sleeper", folder.path(), Command::new("sleep").arg("60"))?;
//! let before = Usage::of_tree(sleeper.id());
//! let spent = Usage::of_tree(sleeper.id()).since(&before);
//! assert!(spent.total().as_millis() < 100);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod backend;
pub mod driver;
mod error;
pub mod port;
pub mod process;
pub mod program;
pub mod sample;
pub mod statistics;
pub mod stress;
pub mod wait;

pub use error::Error;
