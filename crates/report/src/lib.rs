//! Reports for people: pages of HTML that need no network, tables, and text for terminals.
//!
//! The crate measures nothing and has no SIP. The generator supplies the figures and sentences for a run, the
//! laboratory those for an experiment.
//!
//! | item | purpose |
//! |---|---|
//! | [`Page`] | one HTML file: style, data and script are in it, and its Content-Security-Policy forbids every request |
//! | [`Figure`] | checked data of a chart, which the script of the page draws |
//! | [`Bed`], [`Ladder`] | drawings of a test bed and of a call flow |
//! | [`Table`], [`Terminal`] | rows of figures, and lines broken at the width of a terminal |
//! | [`Tone`], [`Item`], [`Mark`] | tone of a sentence, and result of a requirement |
//! | [`printable`], [`rfc3339`] | text of peers, moments |
//!
//! ```
//! use strowger_report::{Page, Table};
//!
//! let mut table = Table::new(["system", "calls a second"]);
//! table.row(["strowger", "1,000"]);
//! let mut page = Page::new("A run");
//! page.section("Limits");
//! page.table(&table);
//! let html = page.html("Made by a test.");
//! assert!(html.contains("Content-Security-Policy") && html.contains("1,000"));
//! ```
//!
//! # Where is ...?
//!
//! | behaviour | file |
//! |---|---|
//! | frame, style and script of a page | `page.rs`, `Page` |
//! | charts; their export as SVG | `page/chart.js`, `Chart`; `export.js` |
//! | data of a chart | `figure.rs`, `Plot` |
//! | drawings of a test bed and a call flow; tables; text for terminals | `drawing.rs`; `table.rs`; `terminal.rs` |
//! | control bytes of a peer | `printable.rs` |

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod date;
pub mod drawing;
pub mod figure;
mod page;
mod printable;
mod table;
mod terminal;
mod tone;

pub use date::rfc3339;
pub use drawing::{Bed, Drawing, Ladder};
pub use figure::{Figure, Plot};
pub use page::{Page, Tile, escape};
pub use printable::{printable, printable_bytes};
pub use table::Table;
pub use terminal::{Ink, Terminal, WIDTH};
pub use tone::{Item, Mark, Tone};
