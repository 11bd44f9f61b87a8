//! Laboratory: starts a system under test and the programs beside it, loads the system, and measures its cost.
//!
//! * [`process`]: a program that runs beside this one and ends with it; [`program`]: programs of other projects, and their
//!   packages.
//! * [`guard`]: the process that ends these programs when this one was killed.
//! * [`host`]: places of processes, and the machines that `ssh` reaches.
//! * [`backend`]: databases and caches in temporary folders.
//! * [`system`]: start of a system under test; [`echo`]: a system that only answers;
//!   [`media_floor`]: one that relays media without reading them.
//! * [`run`]: the execution of an experiment, and the folder of its run.
//! * [`capacity`]: the highest load of a server at an address, and the cause of the limit.
//! * [`generator`]: trials of load, by processes of `strowger load`.
//! * [`stack`]: the stack as a library, its rates and memory.
//! * [`statistics`]: medians and their intervals.
//!
//! The following do no I/O and read no clock:
//!
//! * [`experiment`]: files with the trials to make and the figures to show; [`row`]: the result of a trial.
//! * [`finder`]: the choice of the next trial in a search for a limit.
//! * [`formula`]: formulas of the published measurements.
//! * [`compare`]: two runs, and the differences that can be claimed.
//! * [`report`]: figures, tables and the answer of a run; only its last step reads and writes files.
//!
//! A sleeping child costs close to nothing:
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
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | start of a system: folder, marks, sign that the system is ready; shipped systems | `system/mod.rs`; `running.rs`, `start`; `driver.rs`, `DriverFile`; `ready.rs`; `certificate.rs`; `quota.rs`, `Quota`; `lab/systems/` |
//! | documents of calls and registrations, their users | `document.rs`, `text`; `lab/documents/` |
//! | examination of a machine before a run | `doctor/mod.rs`, `Finding` |
//! | experiment: file, faults, plan, values of a command line | `experiment/mod.rs`, `Experiment`; `fields.rs`; `plan.rs`; `overrides.rs`, `Overrides`; `lab/experiments/` |
//! | events within a trial; figures over time | `experiment/event.rs`, `EventSpec`; `run/events.rs`; `over_time.rs`, `Seconds`; `row/series.rs`, `Series` |
//! | one trial of load by processes of `strowger load` | `generator/mod.rs`, `Generator`; `trial.rs`; `reading.rs`; `document.rs`; `source.rs` |
//! | capacity of a server: obstacles, search, sentence, page | `capacity/mod.rs`, `measure`; `obstacle.rs`; `answer.rs`; `page.rs` |
//! | row of a trial, its figures with units | `row/mod.rs`, `Row`; `figure.rs`, `DEFINITIONS`; `reading.rs` |
//! | schedule of a run: next trial, repetition, resume | `run/next_trial.rs`, `Schedule`; `conduct.rs` |
//! | folder of a run: valid after a kill, hashes, verification | `run/folder.rs`, `Folder`; `recorded.rs`, `Recorded`; `sums.rs` |
//! | trial on real systems: start, registrations, samples, clients | `run/laboratory.rs`, `Laboratory`; `site.rs`; `trial.rs`; `clients.rs`; `sampled.rs` |
//! | server's side of a site, here or on a host | `run/side.rs`, `ServerSide`; `own_side.rs`; `host_side.rs` |
//! | hosts by `ssh`: agent, clocks, copies of the program | `host/mod.rs`, `Hosts`; `process_host.rs`; `link.rs`; `agent.rs`; `clock.rs`; `strowger/src/lab/hosts.rs` |
//! | validity of a trial: checks, other programs, ended processes | `run/validity.rs`, `reasons`; `neighbours.rs`; `processes.rs` |
//! | stack as a library: layers, parser, memory, unread echo | `stack/mod.rs`, `exchanges`; `layer.rs`, `Layer`; `pair.rs`, `Pair`; `unread.rs` |
//! | system whose own command makes the load | `system/driver.rs`, `measure`; `run/own_load.rs`, `trial` |
//! | bare echo; relay of media without reading; end of programs of a killed laboratory | `echo.rs`, `Echo`; `media_floor.rs`, `MediaFloor`; `guard.rs` |
//! | next trial; limits and their causes | `finder/search.rs`, `Search`; `rfc7502.rs`; `staircase.rs`; `cause.rs` |
//! | formulas of the published measurements | `formula/` |
//! | comparison of two runs, claimed differences | `compare/mod.rs`, `compare`; `ratio.rs`, `RatioInterval` |
//! | report: figures, tables, gates, headline, pages | `report/mod.rs`, `Report`; `cells.rs`; `plot.rs`; `table.rs`; `gate.rs`; `headline.rs`; `html.rs` |
//! | figures, lines and points that a report lacks | `report/shape.rs`, `missing` |
//! | databases and caches, also by name | `backend/mod.rs`, `Backend`; `beside.rs`, `Beside` |
//! | stress tests A to K and H1 | `lab/experiments/stress.toml`; `lab/systems/strowger/stress-a.toml`; `lab/systems/kamailio/stress.cfg`; `run/credentials.rs` |
//! | each shipped experiment by real processes | `tests/tests/lab_smoke.rs` |

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
pub mod media_floor;
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
