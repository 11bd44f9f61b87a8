//! User agents against each other: the flows of RFC 3665 and what RFC 3261 asks of both ends, one file for each behaviour.

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
