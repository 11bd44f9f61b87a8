//! Behaviours of the laboratory that need no process: one program, linked once.

mod compare;
mod doctor;
mod events;
mod experiment;
mod finder;
mod formula;
mod report;
mod row;
mod run;
mod shipped;
mod system;
