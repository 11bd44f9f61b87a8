//! Execution of an experiment, and the folder of its run.
//!
//! # Folder of a run
//!
//! | file | content |
//! |---|---|
//! | `run.json` | [`Description`]: experiment, profile, systems, versions, machine, time of the plan |
//! | `experiment.toml` | text of the experiment |
//! | `rows.jsonl` | rows, one line each, in the order in which they were measured |
//! | `configurations/SYSTEM/NAME` | configuration as the folder of the system has it, before marks are filled in; its hash is in rows |
//! | `trials/NNNN/` | files of row NNNN, counted from 1: raw logs of both ends, `samples.log` of processes and machine, documents and users, filled configuration, output of the system |
//! | `SHA256SUMS` | hash of each file, for `sha256sum --check` and [`Recorded::open`] |
//!
//! Reports of the run may be in the same folder; they have no hash. A file under `trials` or `configurations` without a hash is
//! refused in a whole run. In an interrupted run such a file belongs to the trial that was in progress when the laboratory was killed.
//!
//! # Order of writing
//!
//! A row is written after the files of its trial, and `SHA256SUMS` is replaced atomically after the row. After a kill at any moment
//! the rows that `SHA256SUMS` covers are complete, and `--resume` removes everything else.
//!
//! # Rows of a cell
//!
//! An invalid trial is repeated. So several rows may have the same cell and repetition, of which the valid one counts. If all are
//! invalid, the last row counts, and it is marked by its reasons. Trials of a search are rows too. The row that ends a search has
//! a [`limit`](crate::row::Row::limit), the load 0, and the figures `limit`, `limit.low` and `limit.high` beside those of the
//! trial that confirmed the limit.
//!
//! ```
//! use strowger_lab::row::{Load, LoadUnit, Profile, Row, System};
//! use strowger_lab::run::{Description, Folder, Recorded};
//! # use strowger_lab::{row::Digest, run::Machine};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let (path, experiment) = (folder.path().join("run"), "title = \"mine\"");
//! # let description = Description { format: 1, program: "0.1.0".into(), experiment: "mine".into(), file: Digest::of(b""),
//! #     profile: Profile::Quick, overrides: Default::default(), systems: vec![], versions: Default::default(), machine: Machine::this(),
//! #     hosts: Default::default(), server_cores: None, started: 0, planned: 60 };
//! let load = Load { value: 1_000.0, unit: LoadUnit::Calls };
//! let row = Row::new("mine", System::new("strowger", "0.1.0"), load, Profile::Quick, b"configuration");
//! let mut run = Folder::create(&path, &description, experiment)?;
//! std::fs::write(run.next_trial()?.join("samples.log"), "samples")?;
//! run.append(&row)?;
//! run.finish()?;
//! assert_eq!(Recorded::open(&path)?.rows, [row]);
//! std::fs::write(path.join("trials/0001/samples.log"), "others")?;
//! assert!(Recorded::open(&path).is_err());
//! # Ok(())
//! # }
//! ```

mod chosen;
mod clients;
mod conduct;
mod cores;
mod credentials;
mod description;
mod events;
mod folder;
mod host_side;
mod laboratory;
mod neighbours;
mod next_trial;
mod over_time;
mod own_load;
mod own_side;
mod processes;
mod recorded;
mod sampled;
mod side;
mod site;
mod sums;
mod trial;
mod validity;

pub use chosen::{Chosen, check, check_hosts, choose, describe, versions};
pub use conduct::{Ending, Event, TestBed, conduct, replay};
pub use cores::divide;
pub use description::{Description, HostUsed, Machine, SystemUsed};
pub use folder::Folder;
pub(crate) use host_side::{FarServer, HostedSides};
pub use laboratory::Laboratory;
pub use next_trial::{Due, Marked, NextTrial, PlanVerdict, Schedule};
pub(crate) use own_load::printed_figures;
pub use recorded::{DESCRIPTION, EXPERIMENT, FolderError, ROWS, Recorded, SUMS};
pub(crate) use sampled::{SERVER, Sampled};
pub(crate) use side::SideRequest;
pub use sums::{FORMAT, Sums};
pub use validity::{Accounting, Evidence, reasons};
