//! Dialogs (RFC 3261 section 12): what two user agents remember of each other.
//!
//! A [`Dialog`] is made from the message that establishes it, checks what the peer sends in it, and writes the start and
//! the header of what we send. It can be written down and read back. The exchange of session descriptions (RFC 3264) is
//! carried beside it as an [`OfferAnswer`].

mod offer;
mod request;
mod state;
mod text;

pub use offer::{Description, OfferAnswer, OfferError};
pub use request::RequestRoute;
pub(crate) use state::refreshes;
pub use state::{Dialog, Fault, Invalid, Role, State};
