//! Dialogs (RFC 3261 section 12): peer-to-peer state of two user agents.
//!
//! A [`Dialog`] is created from the message that establishes it, verifies the peer's messages in it, and writes the
//! start line and header of our messages. It can be serialized. Its [`OfferAnswer`] tracks the exchange of session
//! descriptions (RFC 3264).

mod offer;
mod request;
mod state;
mod text;

pub use offer::{Description, OfferAnswer, OfferError};
pub use request::RequestRoute;
pub(crate) use state::refreshes;
pub use state::{Dialog, Fault, Invalid, Role, State};
