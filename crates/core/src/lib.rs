//! Machines without I/O: transactions, dialogs, user agents, the proxy, the registrar, digest.
//!
//! The one rule of use: a machine reads no clock, opens no socket and draws no randomness. [`Now`], received
//! bytes and entropy come in; what is to be sent goes out through the [`Outbox`].

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod base64;
pub mod call;
pub mod dialog;
pub mod digest;
pub mod entropy;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod fuzz_dialog;
mod hmac;
mod message_store;
pub mod now;
pub mod outbox;
pub mod proxy;
pub mod quota;
pub mod record;
pub mod registrar;
mod round;
pub mod routing;
mod segments;
pub mod shown;
mod siphash;
pub mod slots;
pub mod source;
pub mod timer;
pub mod transaction;
pub mod transport;
pub mod user_agent;
pub mod via;

pub use now::Now;
pub use outbox::Outbox;
pub use round::Round;
pub use transport::{Arrival, Flow, ListenerId, PeerName, Target, Transport};
