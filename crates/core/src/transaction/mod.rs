//! Transactions: RFC 3261 section 17 with the corrections of RFC 6026.
//!
//! Four small machines (`client_invite`, `client_non_invite`, `server_invite`, `server_non_invite`) map a state and an event to the next
//! state and a `step::Step`. [`Transactions`] finds the transaction of each message, drives its machine, sends, keeps messages for
//! repetition, and runs the timers.
//!
//! The rule of use: hand every request to [`Transactions::request`] and every response to [`Transactions::response`]; call
//! [`Transactions::poll`] when [`Transactions::deadline`] is reached, and once after each round. The last event of each transaction that
//! its user knows is exactly one [`Event::ServerEnded`] or [`Event::ClientEnded`], unless the user ends it by [`Transactions::terminate`].

mod abridged;
mod ack_cancel;
mod admission;
mod allowance;
mod cancel;
mod charges;
mod client_invite;
mod client_non_invite;
mod dues;
mod entry;
mod failure;
mod icmp_quote;
mod key;
mod key_index;
mod machine;
mod outcome;
mod packed_target;
mod record;
mod server_invite;
mod server_non_invite;
mod server_transaction;
mod step;
mod table;
mod timer_table;
mod user;

pub use allowance::{MOST_TIMES, length_as_sent};
pub use outcome::{ClientId, Counts, Event, Incoming, ServerId};
pub use record::{NewIds, Side, TransactionRecord};
pub use table::Transactions;
pub use user::{Role, TransactionUser};
