//! Third party call control: commands between controllers over TCP (`sendCmd`, `recvCmd`).
//!
//! A command is text with a `Call-ID` line, and in the extended form a `From` line with the sender's name; it ends with
//! the byte 0x1B. Classic form: there are two controllers and one connection, which the sender of the first command
//! makes. Extended form: every controller listens, and each sends over the connections that it made.

mod link;
mod plan;
mod word;

pub use link::{Deliver, Link, LinkError, LinkReceiver};
pub use plan::{Plan, PlanError, peers};
pub use word::{LinkEvent, PeerCommand, call_id, is_abort, sender, trimmed};
