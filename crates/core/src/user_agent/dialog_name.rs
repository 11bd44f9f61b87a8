//! Names of confirmed dialogs, for requests that are about another dialog (RFC 3891).

use serde::{Deserialize, Serialize};

use super::call::{Call, Stage};
use super::{CallKey, UserAgent};
use crate::dialog::State;

/// Identifiers of a dialog, as one of its ends knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DialogName {
    /// Call-ID.
    pub call_id: Vec<u8>,
    /// Tag of this end.
    pub local_tag: Vec<u8>,
    /// Tag of the other end.
    pub remote_tag: Vec<u8>,
}

impl DialogName {
    /// Returns the name by which the other end knows the dialog.
    #[must_use]
    pub fn reversed(self) -> Self {
        Self { call_id: self.call_id, local_tag: self.remote_tag, remote_tag: self.local_tag }
    }
}

impl UserAgent {
    /// Returns the call whose confirmed dialog has this name from our side. All three identifiers must match, and the end of the call
    /// must not have begun.
    pub fn call_of(&self, name: &DialogName) -> Option<CallKey> {
        let (id, leg) = self.find(&name.call_id, &name.local_tag, &name.remote_tag)?;
        let call = self.calls.get(id)?;
        let has_tags = !name.local_tag.is_empty() && !name.remote_tag.is_empty();
        (has_tags && leg == 0 && is_up(call)).then_some(CallKey(id))
    }

    /// Returns the name of the confirmed dialog of a call from our side; `None` for a call that is not up.
    pub fn dialog_name(&self, call: CallKey) -> Option<DialogName> {
        let call = self.calls.get(call.0).filter(|call| is_up(call))?;
        let dialog = &call.legs.first()?.dialog;
        Some(DialogName {
            call_id: dialog.call_id().to_vec(),
            local_tag: dialog.local_tag().to_vec(),
            remote_tag: dialog.remote_tag().to_vec(),
        })
    }

    /// Returns the CSeq of our last request in the first dialog of a call.
    pub fn last_cseq(&self, call: CallKey) -> Option<u32> {
        Some(self.calls.get(call.0)?.legs.first()?.dialog.local_cseq())
    }
}

fn is_up(call: &Call) -> bool {
    let is_confirmed = call.legs.first().is_some_and(|leg| leg.dialog.state() == State::Confirmed);
    call.stage == Stage::Established && call.hang_up.is_none() && is_confirmed
}
