//! Requests within the dialogs of calls, on their way to the other party.

use super::dialog::{Bye, Dialog, Party, Renewal};
use super::within::contact_of;
use super::{Call, Purpose, moment};
use crate::account_text::reason;
use crate::accounting::NORMAL;
use crate::call_log::log_ended;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::session_timer::SessionOffer;
use strowger_core::routing::{Place, Request};
use strowger_message::{Message, Method, SipUri, Uri};

impl Engine {
    /// Notes a request within a dialog. Returns its context; 0: nothing waits for its response.
    pub(super) fn pass_within(&mut self, handling: &Handling<'_, '_>) -> u64 {
        let request = handling.request;
        let (call_id, from, to) = (request.call_id, request.from_tag, request.to_tag);
        // Both parties may have one tag.
        let mut beside = None;
        for (party, tag, other) in [(Party::Caller, from, to), (Party::Callee, to, from)] {
            let key = self.key_of_call(call_id, tag);
            let Some(call) = self.calls.get(key) else { continue };
            let other = &*self.kept_tag(other);
            let known = call.dialogs.iter().find(|dialog| dialog.tag() == other && dialog.answer.is_some());
            if call.tracked && known.is_some_and(|dialog| !self.leads_along(request, call, dialog, party)) {
                beside = Some((key, other.to_vec()));
                continue;
            }
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
        if let Some((key, tag)) = beside {
            self.pass_beside(handling, key, &tag);
        }
        0
    }

    /// Notes nothing of a request that has the tags of a dialog and goes elsewhere. After a BYE the server asks both parties.
    fn pass_beside(&mut self, handling: &Handling<'_, '_>, key: u64, callee_tag: &[u8]) {
        if handling.request.method == Method::Bye {
            self.calls.change(key, |call| {
                call.dialog(callee_tag).into_iter().for_each(|dialog| dialog.doubt_refusal(handling.now));
            });
            self.calls.has_changed(key);
        }
    }

    /// Returns whether a request of this party goes to the remote target of the dialog, by its route set (RFC 3261 section 12.2.1.1). Call-ID
    /// and tags alone prove nothing: a party can lend them to a call with another peer.
    pub(super) fn leads_along(&self, request: &Request<'_>, call: &Call, dialog: &Dialog, party: Party) -> bool {
        let (contact, routes) = match party {
            Party::Caller => (dialog.contact(), dialog.routes()),
            Party::Callee => (call.caller_contact(), call.caller_routes()),
        };
        // Too long to be kept.
        if contact.is_empty() {
            return true;
        }
        let is_target = match (Uri::parse(contact), &request.uri) {
            (Ok(Uri::Sip(known)), Uri::Sip(uri)) => Place::of(&known) == Place::of(uri),
            _ => request.message.request_uri() == contact,
        };
        is_target && self.has_routes(request, routes)
    }

    /// Returns whether the Routes of a request lead past the same proxies as these, from ours on.
    fn has_routes(&self, request: &Request<'_>, routes: &[u8]) -> bool {
        let is_own = |uri: &SipUri<'_>| self.policy.router.is_own(uri);
        // As they were written: `<URI>, <URI>`.
        let known = routes.split(|b| *b == b'>').map(|route| {
            let start = route.iter().position(|b| *b == b'<').map_or(0, |at| at + 1);
            &route[start..]
        });
        let known = known.filter_map(|route| Uri::parse(route).ok()?.sip().copied());
        let mut known = known.filter(|uri| !is_own(uri));
        let mut is_before = true;
        for route in request.message.routes() {
            let Some(uri) = route.ok().and_then(|route| route.value.uri.sip().copied()) else { return false };
            let is_ours = is_own(&uri);
            // Proxies before this server.
            is_before &= !is_ours;
            if is_before || is_ours {
                continue;
            }
            if known.next().is_none_or(|known| Place::of(&known) != Place::of(&uri)) {
                return false;
            }
        }
        known.next().is_none()
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
