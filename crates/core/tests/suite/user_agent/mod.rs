//! User agents against each other: the flows of RFC 3665, and the duties of both ends by RFC 3261; one file for each behaviour.

mod accounts;
mod calls;
mod chaos;
mod contents;
mod loss;
mod moves;
mod reliable;
mod requests;
mod rig;
mod sessions;
