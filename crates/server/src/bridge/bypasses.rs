//! Requests outside of calls that would get around the bridge between the sender and a destination whose calls are bridged. Others are forwarded.

use crate::decider::Decider;
use crate::decision::Decision;
use crate::handling::Handling;
use crate::reply::{Counted, Reply};
use strowger_config::ReferFrom;
use strowger_message::Method;

impl Decider<'_> {
    /// Returns the refusal of a request to a destination whose calls are bridged; `None` if it may pass.
    ///
    /// * An INVITE with a To tag is of no call of this server. The callee may take it for a new call (RFC 3261 section 12.2.2), in which the two
    ///   parties see each other.
    /// * A REFER asks the callee for a call of its own.
    pub(crate) fn refusal_beside_bridge(&self, handling: &Handling<'_, '_>) -> Option<Reply> {
        let request = handling.request;
        if handling.progress.proof.in_dialog {
            return None;
        }
        match request.method {
            Method::Invite if !request.to_tag.is_empty() => {
                Some(Reply::refused(481).because("calls to its destination are bridged, and none has its dialog"))
            }
            Method::Refer if !self.may_refer_callee(handling) => {
                let reply = Reply { counted: Counted::RelayDenied, ..Reply::new(403) };
                Some(reply.because("its sender may not refer the callee"))
            }
            _ => None,
        }
    }

    /// Tells whether the sender of a request may refer the callee (`rule.refer_from`).
    pub(super) fn may_refer_callee(&self, handling: &Handling<'_, '_>) -> bool {
        match handling.progress.decision.as_deref().map(Decision::refer_from).unwrap_or_default() {
            ReferFrom::Everyone => true,
            ReferFrom::None => false,
            ReferFrom::Users => {
                let source = handling.request.arrival.remote.ip().to_canonical();
                handling.progress.proof.is_any() || self.believes(source)
            }
        }
    }
}
