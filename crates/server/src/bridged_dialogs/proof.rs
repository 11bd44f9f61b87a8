//! Proof that an INVITE belongs to a bridged call.

use super::{BridgedDialogs, Entry, State};
use std::sync::atomic::Ordering::Acquire;
use strowger_core::call;
use strowger_message::header::Replaces;
use strowger_message::{Message, Method, Name};

impl BridgedDialogs {
    /// Tells whether an INVITE is to replace a party of a bridged call: its Replaces names the dialog by Call-ID and both tags, which only the
    /// parties and those whom they tell know (RFC 3891 section 3).
    pub(crate) fn are_named_by(&self, message: &Message<'_>) -> bool {
        if self.all.load(Acquire) == 0 || message.method() != Some(Method::Invite) {
            return false;
        }
        let Some(Ok(replaces)) = message.header(Name::Replaces).map(Replaces::parse) else { return false };
        let named = replaces.call_id.text;
        let table = self.partition(call::hash(self.secret(), named)).lock();
        let entry = table.calls.get(named);
        matches!(entry, Some(Entry { state: State::Dialog(known), .. }) if known.is_named_by(&replaces))
    }
}
