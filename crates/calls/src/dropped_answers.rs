//! 2xx responses to INVITEs. The server drops a 2xx that would create a session which is neither counted nor recorded.
//!
//! The sender of a dropped 2xx gets no ACK, and ends its dialog itself (RFC 3261 section 13.3.1.4).

use crate::call::{Call, ENDED_TAGS};
use crate::context::Purpose;
use crate::dialog::Dialog;
use crate::legs::Legs;
use crate::remote_target::{contact_of, has_own_routes_alone};
use crate::table::CallTable;
use crate::unendable::{is_beyond_reach, is_nobody};
use strowger_core::routing::Router;
use strowger_message::{Message, Method};

/// Maximum number of dialogs of one call, including those that have ended.
pub(crate) const MOST_DIALOGS: usize = 64;

/// Bytes of the hash of a tag.
const HASH: usize = 8;

/// Decision about a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Forwarded upstream.
    Passes,
    /// Dropped.
    Dropped,
    /// Failure of its branch.
    Refused,
}

impl CallTable {
    /// Decides about a response to a request with this context.
    #[inline]
    pub fn passage(&self, router: &Router, context: u64, response: &Message<'_>) -> Passage {
        let is_answer = response.status().is_some_and(|status| (200..300).contains(&status));
        match Purpose::of(context).filter(|_| is_answer) {
            Some(Purpose::Invite) => self.passage_of_answer(router, context, response),
            Some(Purpose::Renewal) => self.passage_of_renewal(context, response),
            _ => Passage::Passes,
        }
    }

    fn passage_of_answer(&self, router: &Router, context: u64, response: &Message<'_>) -> Passage {
        let tag = response.to().ok().and_then(|to| to.tag).unwrap_or_default();
        let Some(call) = self.key_of(context).and_then(|key| self.get(key)) else {
            return self.passage_after_end(response);
        };
        if call.legs == Legs::Anchored {
            // The role that anchors the call ends each callee but the first by a BYE to its Contact.
            return if is_nobody(response) { Passage::Refused } else { Passage::Passes };
        }
        let tag = &*self.kept_tag(tag);
        if !call.tracked || call.dialogs.iter().any(|dialog| dialog.tag() == tag && dialog.answer.is_some()) {
            return Passage::Passes;
        }
        if call.has_ended_dialog(self.key_of_call(b"", tag)) || call.is_full_of_answers() {
            return Passage::Dropped;
        }
        let is_resumed = call.dialogs.iter().any(|dialog| dialog.tag() == tag && dialog.is_resumed());
        let is_refused = call.legs.are_here()
            && !call.urgent
            && !is_resumed
            && is_beyond_reach(router, response)
            && !bypasses(router, call, response);
        if is_refused { Passage::Refused } else { Passage::Passes }
    }

    /// Decides about the 2xx of a forked callee that answers after the end of the call.
    fn passage_after_end(&self, response: &Message<'_>) -> Passage {
        let (Ok(call_id), Ok(from)) = (response.call_id(), response.from()) else { return Passage::Passes };
        if response.record_routes().next().is_none() {
            // This is a copy of a 2xx that bypasses this server.
            return Passage::Passes;
        }
        let key = self.key_of_call(call_id.text, from.tag.unwrap_or_default());
        if self.settings.ended.is_there(key) { Passage::Dropped } else { Passage::Passes }
    }

    /// Decides about a response to a re-INVITE. If a BYE has overtaken the re-INVITE, or is about to overtake it, the
    /// peer may take the re-INVITE for a new call (RFC 3261 section 12.2.2).
    fn passage_of_renewal(&self, context: u64, response: &Message<'_>) -> Passage {
        let is_invite = response.cseq().is_ok_and(|cseq| cseq.method == Method::Invite);
        let call = self.key_of(context).and_then(|key| self.get(key));
        let stands =
            call.is_some_and(|call| call.dialog_at(context).is_some_and(|(at, _)| !call.dialogs[at].is_ending()));
        if is_invite && !stands { Passage::Refused } else { Passage::Passes }
    }
}

/// Returns whether a callee has dropped the whole route set, against RFC 3261 section 12.1.1, as the scenario `uas` of
/// SIPp does. The later requests of such a dialog bypass this server, so the call counts and is recorded only up to its
/// answer. If the caller had a route set of its own, it could have made the set so long that the callee drops it: such
/// a 2xx is refused.
pub(crate) fn bypasses(router: &Router, call: &Call, response: &Message<'_>) -> bool {
    let is_whole = response.to().is_ok_and(|to| to.tag.is_some()) && contact_of(response).is_some();
    is_whole
        && response.record_routes().next().is_none()
        && !call.dialogs.iter().any(Dialog::is_resumed)
        && has_own_routes_alone(router, call.caller_routes())
}

impl Call {
    fn is_full_of_answers(&self) -> bool {
        let ended = self.texts.get(ENDED_TAGS).len() / HASH;
        self.dialogs.len() + ended >= MOST_DIALOGS && self.dialogs.iter().all(|dialog| dialog.answer.is_some())
    }

    /// Makes room for an answered dialog in place of an early one.
    pub(crate) fn make_room_for_answer(&mut self) {
        let early = self.dialogs.iter().position(|dialog| dialog.answer.is_none());
        if let Some(early) = early.filter(|_| self.dialogs.len() >= MOST_DIALOGS) {
            self.dialogs.remove(early);
        }
    }

    /// Removes a dialog that has ended. `hash`: hash of the dialog's tag, which identifies late copies of its 2xx.
    pub(crate) fn remove_dialog(&mut self, salt: u16, hash: u64) {
        let Some(at) = self.dialogs.iter().position(|dialog| dialog.salt == salt) else { return };
        let ended = self.dialogs.remove(at);
        let goes_on = self.open > 0 || self.has_answer();
        if ended.answer.is_some() && self.tracked && goes_on {
            let tags = [self.texts.get(ENDED_TAGS), &hash.to_le_bytes()].concat();
            self.texts = self.texts.with(&[(ENDED_TAGS, &tags)]);
        }
    }

    fn has_ended_dialog(&self, hash: u64) -> bool {
        self.texts.get(ENDED_TAGS).chunks(HASH).any(|known| known == hash.to_le_bytes())
    }
}
