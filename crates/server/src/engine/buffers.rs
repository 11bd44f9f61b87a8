//! Scratch memory of an engine.

use crate::contacts::Contacts;
use strowger_core::transaction::Event;
use strowger_message::{Edit, Index};

/// Scratch memory, reused for each message.
#[derive(Default)]
pub(crate) struct Buffers {
    /// Index of the received message.
    pub(crate) index: Index,
    /// Canonical form of a loosely written message.
    pub(super) canonical: Vec<u8>,
    /// Message with a completed top Via.
    pub(super) completed: Vec<u8>,
    pub(crate) edit: Edit,
    /// Message without the identities that must not be forwarded.
    pub(crate) concealed: (Vec<u8>, Index),
    /// Events of transactions.
    pub(super) events: Vec<Event>,
    /// Contacts of the called user.
    pub(crate) contacts: Contacts,
    /// Address of record of a registration.
    pub(crate) aor: Vec<u8>,
    /// Header lines of the 200 to a REGISTER.
    pub(crate) lines: Vec<u8>,
    /// Header lines of a reply.
    pub(crate) reply_lines: Vec<u8>,
}
