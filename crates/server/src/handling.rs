//! A request in hand, and what an answer to it needs.

use crate::parked::Found;
use strowger_core::routing::Request;
use strowger_core::transaction::ServerId;
use strowger_core::{Now, Outbox};

/// What is asked of this server, while it is looked at.
pub(crate) struct Asked<'t, 'm> {
    pub(crate) now: Now,
    pub(crate) request: &'t Request<'m>,
    /// Its transaction; none for a REGISTER and an ACK.
    pub(crate) server: Option<ServerId>,
    /// What look-ups for it have brought.
    pub(crate) found: &'t mut Found,
    /// What the log says if it is refused.
    pub(crate) why: Why,
    pub(crate) out: &'t mut Outbox,
}

/// Why a request is refused, for the operator: the peer gets the status alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// What the status code means says all.
    Status,
    Text(&'static str),
    /// It was logged with more than a text.
    Logged,
}
