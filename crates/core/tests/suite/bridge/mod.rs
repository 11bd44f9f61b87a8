//! Calls joined by a bridge between two phones; one file for each behaviour.

mod calls;
mod changes;
mod chaos;
mod failures_of_others;
mod forks;
mod late_offers;
mod matrix;
mod moves;
mod relocation;
mod renewals;
mod requests;
mod rig;
mod transfers;
