//! Reports for people: pages of HTML that need no network, tables, and text for terminals.
//!
//! The crate measures nothing and knows no SIP. Its users supply figures and sentences: the generator for a run, the
//! laboratory for an experiment.
//!
//! | item | purpose |
//! |---|---|
//! | [`Page`] | one HTML file: style, data and script are in it, and its Content-Security-Policy forbids every request |
//! | [`Figure`] | checked data of a chart, which the script of the page draws |
//! | [`Bed`], [`Ladder`] | drawings of a test bed and of a call flow |
//! | [`Table`], [`Terminal`] | rows of figures, and lines broken at the width of a terminal |
//! | [`Tone`], [`Item`], [`Mark`] | tone of a sentence, and result of a requirement |
//! | [`printable`], [`rfc3339`] | text of peers, moments |

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
