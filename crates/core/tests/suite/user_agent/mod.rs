//! User agents against each other: the flows of RFC 3665, and the duties of both ends by RFC 3261; one file for each behaviour.

mod accounts;
mod calls;
mod capabilities;
mod chaos;
mod contents;
mod forks;
mod loss;
mod moves;
mod names;
mod owner;
mod reliable;
mod requests;
pub(crate) mod rig;
mod session_timers;
mod sessions;
