//! Behaviours of the table of calls, without an engine.

mod anchored;
mod role;
