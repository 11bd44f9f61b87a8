//! Artificial run, event by event, and the schema of its JSON report.

pub(crate) mod schema;

#[path = "../../../measure/tests/suite/measured.rs"]
mod run;

pub(crate) use run::{MS, S, STARTED, heading, run};
