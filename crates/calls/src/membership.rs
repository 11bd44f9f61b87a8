//! Requests that belong to dialogs of tracked calls, by Call-ID and tags.

use crate::call::Call;
use crate::dialog::Dialog;
use crate::remote_target::leads_along;
use crate::table::CallTable;
use crate::unendable::{Unendable, unendable_after};
use strowger_core::notice::Party;
use strowger_core::routing::{Request, Router};

impl CallTable {
    /// Returns whether a request belongs to a tracked dialog.
    pub fn is_of_tracked_dialog(&self, request: &Request<'_>) -> bool {
        self.is_of_dialog(request, |_, _, _| true)
    }

    /// Returns whether a request belongs to an answered dialog of a tracked call.
    pub fn is_of_answered_dialog(&self, router: &Router, request: &Request<'_>) -> bool {
        self.is_of_dialog(request, |call, dialog, party| {
            dialog.answer.is_some() && leads_along(router, request, call, dialog, party)
        })
    }

    /// Returns whether a request belongs to a dialog that this server ends.
    pub fn is_of_ending_dialog(&self, request: &Request<'_>) -> bool {
        self.is_of_dialog(request, |_, dialog, _| dialog.ending().is_some())
    }

    /// Returns whether a request belongs to a dialog with a BYE in progress.
    pub fn has_bye_under_way(&self, request: &Request<'_>) -> bool {
        self.is_of_dialog(request, |_, dialog, _| dialog.is_ending())
    }

    /// Returns whether a request belongs to a dialog of a tracked call, or to a tracked call whose INVITE has no final
    /// response. Such a call is accepted without a dialog, because the table has only a bounded number of its early
    /// dialogs.
    pub fn is_of_open_or_tracked_dialog(&self, request: &Request<'_>) -> bool {
        let is_open = |tag| {
            let call = self.get(self.key_of_call(request.call_id, tag));
            call.is_some_and(|call| call.tracked && call.open > 0)
        };
        self.is_of_tracked_dialog(request) || is_open(request.from_tag) || is_open(request.to_tag)
    }

    fn is_of_dialog(&self, request: &Request<'_>, is_meant: impl Fn(&Call, &Dialog, Party) -> bool) -> bool {
        let (from, to) = (request.from_tag, request.to_tag);
        [(Party::Caller, from, to), (Party::Callee, to, from)].into_iter().any(|(party, tag, other)| {
            let call = self.get(self.key_of_call(request.call_id, tag)).filter(|call| call.tracked);
            let other = self.kept_tag(other);
            call.is_some_and(|call| {
                call.dialogs.iter().any(|dialog| dialog.tag() == &*other && is_meant(call, dialog, party))
            })
        })
    }

    /// Returns whether a request belongs to a dialog that has an answer, or comes from the callee, who alone may end an early dialog.
    pub fn is_of_begun_dialog(&self, request: &Request<'_>) -> bool {
        self.is_of_dialog(request, |_, dialog, party| dialog.answer.is_some() || party == Party::Callee)
    }

    /// Returns the reason if a request with the tags of a tracked dialog, wherever it is sent, would leave the server
    /// no way to end the dialog: the request has no CSeq, or a new Contact that the table cannot store.
    #[inline]
    pub fn unendable_within(&self, request: &Request<'_>) -> Option<Unendable> {
        if self.counts().tracked == 0 || request.to_tag.is_empty() {
            return None;
        }
        unendable_after(request).filter(|_| self.is_of_tracked_dialog(request))
    }

    /// Tells whether the call with this key is tracked.
    pub fn is_tracked(&self, key: u64) -> bool {
        self.get(key).is_some_and(|call| call.tracked)
    }
}
