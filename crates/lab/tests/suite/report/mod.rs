//! Reports of recorded rows.

mod answer;
mod figures;
mod gates;
mod text;

#[expect(dead_code, reason = "the example has a main function")]
#[path = "../../../examples/recorded_run.rs"]
mod recorded;
