//! The laboratory: it starts a system under test and the programs beside it, loads it, and measures its cost.
//!
//! * [`process`]: a program that runs beside this one and ends with it; [`program`]: programs by others, and where they come from.
//! * [`guard`]: the end of these programs when this one was killed.
//! * [`host`]: places of processes, and the machines that `ssh` reaches.
//! * [`backend`]: databases and caches in temporary folders.
//! * [`system`]: how a system under test is started; [`echo`]: the one that does nothing but answer.
//! * [`run`]: the execution of an experiment, and the folder of its run.
//! * [`capacity`]: the highest load of a server at an address, and the cause of the limit.
//! * [`generator`]: trials of load, by processes of `strowger load`.
//! * [`stack`]: the stack as a library, its rates and memory.
//! * [`statistics`]: medians and how sure they are.
//!
//! The following do no I/O and read no clock:
//!
//! * [`experiment`]: which trials to make and what to show; [`row`]: the result of a trial.
//! * [`finder`]: the choice of the next trial in a search for a limit.
//! * [`formula`]: formulas of the published measurements.
//! * [`compare`]: two runs, and the differences that can be claimed.
//! * [`report`]: figures, tables and the answer of a run; only its last step reads and writes files.
//!
//! What a sleeping child costs is close to nothing:
//!
//! ```
//! use std::process::Command;
//! use strowger_lab::process::Process;
//! use strowger_measure::process::Usage;
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
pub mod capacity;
pub mod compare;
pub mod doctor;
pub mod document;
pub mod echo;
mod error;
pub mod experiment;
pub mod finder;
pub mod formula;
pub mod generator;
pub mod guard;
pub mod host;
pub mod port;
pub mod process;
pub mod program;
pub mod report;
pub mod row;
pub mod run;
pub mod stack;
pub mod statistics;
pub mod system;
pub mod wait;

pub use error::Error;
