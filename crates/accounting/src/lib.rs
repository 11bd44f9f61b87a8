//! Accounting: a row for each call, or for each of its events, to SQL, JSON lines or CSV.
//!
//! The one rule of use: [`Accounting::submit`] neither waits nor does I/O. A row that is taken is written in a group by a thread of its own.
//! What cannot be written goes to a [spool](spool), a file of records with checksums, and follows later, in order; each row has an identity
//! that is written once. A row that the database refuses for its values goes to a [quarantine](quarantine), and the rows behind it are
//! written. A row is lost where the process is killed before its group is written, where both the place of the rows and the
//! spool fail until the queue is full, and nowhere else: the last are counted.
//!
//! * [`record`]: the rows and their columns, the same for every form.
//! * [`form`]: JSON lines and CSV; [`sql`]: tables and statements.
//! * [`mask`]: numbers and addresses that are not to be read.
//! * [`sink`]: where rows are written; [`files`] and [`sqlite`] are two of them, and database servers are written by `strowger-sql`.
//! * [`writer`]: the public interface; `work.rs` has its thread.
//!
//! ```
//! use strowger_accounting::record::{Cdr, Row};
//! use strowger_accounting::sink::Place;
//! use strowger_accounting::writer::{Accounting, Settings};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let place = Place::Json(folder.path().join("rows"));
//! let settings = Settings::new(folder.path().join("spool"));
//! // The time is fixed here, so that the name of the file is.
//! let accounting = Accounting::start(&place, settings, std::sync::Arc::new(|| 1_700_000_000_000))?;
//! let cdr = Cdr { identity: "1f".into(), setup: 1_700_000_000_000, outcome: "missed".into(), status: 486, ..Cdr::default() };
//! accounting.submit(Box::new(Row::Cdr(cdr)));
//! // Writes what is queued.
//! drop(accounting);
//! let text = std::fs::read_to_string(folder.path().join("rows/cdr-2023-11-14.jsonl"))?;
//! assert!(text.starts_with("{\"identity\":\"1f\",") && text.contains("\"outcome\":\"missed\""));
//! # Ok(())
//! # }
//! ```
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | rows and columns | `record.rs` |
//! | writer thread, spool, quarantine | `writer.rs`; `spool.rs`; `quarantine.rs` |
//! | masks | `mask.rs` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod counts;
pub mod files;
pub mod form;
mod halving;
pub mod mask;
pub mod quarantine;
pub mod record;
pub mod sink;
pub mod spool;
pub mod sql;
pub mod sqlite;
mod work;
pub mod writer;

pub use record::{Cdr, Event, Row};
pub use writer::{Accounting, Figures, Settings};
