//! Requests within the dialogs of calls, on their way to the other party.

use super::dialog::{Bye, Party, Renewal};
use super::within::contact_of;
use super::{Call, Purpose, moment};
use crate::account_text::reason;
use crate::accounting::NORMAL;
use crate::call_log::log_ended;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::session_timer::SessionOffer;
use strowger_message::{Message, Method};

impl Engine {
    /// Notes a request within a dialog. Returns its context; 0: nothing waits for its response.
    pub(super) fn pass_within(&mut self, handling: &Handling<'_, '_>) -> u64 {
        let request = handling.request;
        let (call_id, from, to) = (request.call_id, request.from_tag, request.to_tag);
        for (party, tag, other) in [(Party::Caller, from, to), (Party::Callee, to, from)] {
            let key = self.key_of_call(call_id, tag);
            let Some(call) = self.calls.get(key) else { continue };
            let other = &*self.kept_tag(other);
            if request.method == Method::Bye {
                return self.pass_bye(handling, key, party, other);
            }
            let dialog = call.dialogs.iter().find(|dialog| dialog.tag() == other).filter(|_| call.tracked);
            let Some(context) = dialog.map(|dialog| call.dialog_context(dialog, Purpose::Renewal, party)) else {
                continue;
            };
            let number = request.cseq;
            let hear = |call: &mut Call| call.dialog(other).is_some_and(|dialog| dialog.hear(party, number));
            if self.calls.change(key, hear) == Some(true) {
                self.calls.has_changed(key);
            }
            return if matches!(request.method, Method::Invite | Method::Update) { context } else { 0 };
        }
        0
    }

    /// A BYE ends a tracked dialog by its final response, not by passing.
    fn pass_bye(&mut self, handling: &Handling<'_, '_>, key: u64, party: Party, callee_tag: &[u8]) -> u64 {
        let (now, request) = (handling.now, handling.request);
        let Some(call) = self.calls.get(key) else { return 0 };
        let dialog = call.dialogs.iter().find(|dialog| dialog.tag() == callee_tag);
        // A caller may end a dialog before this server sees its answer (RFC 3261 section 15). A BYE whose CSeq is not above the CSeq of the
        // INVITE belongs to an earlier call.
        let is_early = dialog.is_none_or(|dialog| dialog.answer.is_none());
        let is_older = request.cseq <= call.cseq;
        if is_early && (party == Party::Callee || call.open == 0 || is_older) {
            return 0;
        }
        let (is_tracked, answer) = (call.tracked, dialog.and_then(|dialog| dialog.answer));
        let ends_here = is_early || !is_tracked;
        if ends_here && call.logged && dialog.is_none_or(|dialog| is_early || dialog.logged) {
            log_ended(moment(now), call, party.text(), answer, request.call_id);
        }
        let context = dialog.map(|dialog| call.dialog_context(dialog, Purpose::Bye, party));
        if is_early && let Some(account) = self.calls.account(key) {
            account.cancelled();
        }
        let bye = Bye { at: moment(now), cause: reason(&request.message).unwrap_or(NORMAL) };
        self.calls.change(key, |call| {
            if is_early {
                // The outcome of the INVITE gets no log line of its own.
                call.logged = false;
                if !is_tracked {
                    call.forget_invites();
                }
            }
            match call.dialog(callee_tag) {
                Some(dialog) if is_tracked => {
                    dialog.hear(party, request.cseq);
                    dialog.begin_bye(party, bye);
                    dialog.logged &= !is_early;
                }
                _ => call.dialogs.retain(|dialog| dialog.tag() != callee_tag),
            }
        });
        context.filter(|_| is_tracked).unwrap_or_default()
    }

    pub(super) fn hear_renewal(&mut self, key: u64, context: u64, message: &Message<'_>) {
        let (contact, offer) = (contact_of(message).map(Box::from), SessionOffer::of(message));
        self.calls.change(key, |call| {
            let Some((at, sender)) = call.dialog_at(context) else { return };
            call.dialogs[at].begin_renewal(Renewal { sender, contact, offer });
        });
    }
}
