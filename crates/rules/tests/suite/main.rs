//! Behaviours of conditions, rules and sets: one program, linked once.

mod allocation;
mod equivalence;
mod explanation;
mod faults;
mod language;
mod request;
