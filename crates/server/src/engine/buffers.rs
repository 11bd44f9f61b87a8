//! Scratch memory of an engine.

use crate::contacts::Contacts;
use strowger_message::{Edit, Index};

/// Scratch memory, reused for each message.
#[derive(Default)]
pub(crate) struct Buffers {
    /// Index of a message that is shed.
    pub(super) index: Index,
    /// Message of this server to itself.
    pub(super) looped: (Vec<u8>, Index),
    pub(crate) edit: Edit,
    /// Message without the identities that must not be forwarded.
    pub(crate) concealed: (Vec<u8>, Index),
    /// Contacts of the called user.
    pub(crate) contacts: Contacts,
    /// Address of record of a registration.
    pub(crate) aor: Vec<u8>,
    /// Header lines of the 200 to a REGISTER.
    pub(crate) lines: Vec<u8>,
    /// Header lines of a reply.
    pub(crate) reply_lines: Vec<u8>,
}
