//! Accounting: a row for each call, or for each of its events, to SQL, JSON lines or CSV.
//!
//! The one rule of use: [`Accounting::submit`] neither waits nor does I/O. A separate thread writes accepted rows in
//! groups. Rows that cannot be written go to a [spool](crate::files::spool), a file of records with checksums, and
//! follow later, in order; each row has an identity and is written once. A row that the database refuses for its values
//! goes to a [quarantine](crate::files::quarantine), and the rows behind it are written. A row is lost only in two
//! cases: the process is killed before its group is written, or both sink and spool fail until the queue is full. Rows
//! lost in the second case are counted.
//!
//! * [`crate::files::form`]: JSON lines and CSV.
//! * [`writer`]: the public interface; `work.rs` has its thread.
//!
//! ```
//! use strowger_store::accounting::cdr::{Cdr, Row};
//! use strowger_backend::accounting::writer::{Accounting, Settings};
//! use strowger_backend::files::accounting::Files;
//! use strowger_backend::files::form::Form;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let folder = tempfile::tempdir()?;
//! let sink = Box::new(Files::new(&folder.path().join("rows"), Form::Json));
//! let settings = Settings::new(folder.path().join("spool"));
//! // The time is fixed here, so that the name of the file is.
//! let accounting = Accounting::start(sink, settings, std::sync::Arc::new(|| 1_700_000_000_000))?;
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
//! | rows and columns; masks | `store/src/accounting/cdr.rs`; `mask.rs` |
//! | writer thread; halving of a refused group | `writer.rs`; `work.rs`; `halving.rs` |
//! | spool; quarantine | `backend/src/files/spool.rs`; `quarantine.rs` |

mod counts;
mod halving;
mod work;
pub mod writer;

pub use writer::{Accounting, Figures, Settings};
