//! The proxy of RFC 3261 section 16, driven with texts of messages: one file for each behaviour.

mod cancel;
mod forks;
mod forwarding;
mod responses;
mod rig;
