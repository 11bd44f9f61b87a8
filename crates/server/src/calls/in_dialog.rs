//! Requests within the dialogs of calls, on their way to the other party.

use super::answers::MOST_DIALOGS;
use super::dialog::{Bye, Dialog, Party, Renewal};
use super::origin::Source;
use super::within::contact_of;
use super::{Call, LONGEST_WAY, Purpose, moment};
use crate::account_text::reason;
use crate::accounting::NORMAL;
use crate::call_log::log_ended;
use crate::decider::Decider;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::session_timer::SessionOffer;
use std::net::SocketAddr;
use strowger_core::routing::{Place, Request};
use strowger_message::{Message, Method, SipUri, Uri};

impl Engine {
    /// Notes a request within a dialog. Returns its context; 0: no notices about it are needed.
    pub(super) fn pass_within(&mut self, handling: &Handling<'_, '_>) -> u64 {
        let request = handling.request;
        let (call_id, from, to) = (request.call_id, request.from_tag, request.to_tag);
        // Both parties may have one tag.
        let mut beside = None;
        for (party, tag, other) in [(Party::Caller, from, to), (Party::Callee, to, from)] {
            let key = self.decider().key_of_call(call_id, tag);
            let Some(call) = self.calls.get(key) else { continue };
            let other = &*self.decider().kept_tag(other);
            let known = call.dialogs.iter().find(|dialog| dialog.tag() == other && dialog.answer.is_some());
            // A callee may begin another call with the Call-ID and its tag.
            if known.is_none() && party == Party::Caller && self.decider().has_dialog(call_id, to, from) {
                continue;
            }
            if call.tracked && known.is_some_and(|dialog| !self.decider().leads_along(request, call, dialog, party)) {
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

    /// Handles a request that has the tags of a dialog and goes elsewhere. Nothing is noted of it, but after a BYE the
    /// server asks both parties.
    fn pass_beside(&mut self, handling: &Handling<'_, '_>, key: u64, callee_tag: &[u8]) {
        if handling.request.method == Method::Bye {
            let transaction = self.calls.times.transaction;
            self.calls.change(key, |call| {
                call.dialog(callee_tag).into_iter().for_each(|dialog| dialog.doubt_beside(handling.now, transaction));
            });
            self.calls.has_changed(key);
        }
    }

    /// Adds the dialog of a call that began in an earlier process. A request to the callee uses the Request-URI and
    /// Routes of this INVITE, whose 2xx need not repeat the route set.
    pub(super) fn resume_dialog(&mut self, request: &Request<'_>, key: u64) {
        let is_own = |uri: &Uri<'_>| uri.sip().is_some_and(|uri| self.policy.router.is_own(uri));
        let (contact, mut routes) = (request.message.request_uri(), Vec::new());
        for route in request.message.routes().flatten() {
            if !routes.is_empty() || is_own(&route.value.uri) {
                routes.extend_from_slice(if routes.is_empty() { b"<" } else { b", <" });
                routes.extend_from_slice(route.value.uri_text);
                routes.push(b'>');
            }
        }
        let tag = self.decider().kept_tag(request.to_tag).into_owned();
        let Some(salt) = self.free_salt(key).filter(|_| contact.len().max(routes.len()) <= LONGEST_WAY) else { return };
        self.calls.change(key, |call| {
            let mut dialog = Dialog::new(&tag, call.cseq, salt);
            dialog.set_way(contact, &routes, Source::default());
            call.dialogs.push(dialog);
        });
    }

    /// Handles a BYE on its way. Its final response ends a tracked dialog, not the BYE itself.
    fn pass_bye(&mut self, handling: &Handling<'_, '_>, key: u64, party: Party, callee_tag: &[u8]) -> u64 {
        let (now, request) = (handling.now, handling.request);
        let Some(call) = self.calls.get(key) else { return 0 };
        let dialog = call.dialogs.iter().find(|dialog| dialog.tag() == callee_tag);
        // A caller may end a dialog before this server sees its answer (RFC 3261 section 15). A BYE whose CSeq is not above the CSeq of the
        // INVITE belongs to an earlier call.
        let is_early = dialog.is_none_or(|dialog| dialog.answer.is_none());
        let is_older = request.cseq <= call.cseq;
        if is_early && (party == Party::Callee || call.open == 0 || is_older) {
            if party == Party::Callee {
                self.doubt_before_answer(key, callee_tag);
            }
            return 0;
        }
        let source = request.arrival.remote;
        let from_elsewhere = dialog.is_some_and(|dialog| call.is_from_elsewhere(dialog, party, source));
        let (is_tracked, answer) = (call.tracked, dialog.and_then(|dialog| dialog.answer));
        let ends_here = is_early || !is_tracked;
        if ends_here && call.logged && dialog.is_none_or(|dialog| is_early || dialog.logged) {
            log_ended(moment(now), call, party.text(), answer, request.call_id);
        }
        if !is_tracked && !is_early {
            self.decider().count_ended(moment(now), answer);
        }
        // The dialog may have a tag that the caller chose, and that no response has named yet.
        if dialog.is_none()
            && is_tracked
            && call.dialogs.len() < MOST_DIALOGS
            && let Some(salt) = self.free_salt(key)
        {
            self.calls.change(key, |call| call.dialogs.push(Dialog::new(callee_tag, call.cseq, salt)));
        }
        let Some(call) = self.calls.get(key) else { return 0 };
        let dialog = call.dialogs.iter().find(|dialog| dialog.tag() == callee_tag);
        let context = dialog.map(|dialog| call.dialog_context(dialog, Purpose::Bye, party));
        if is_early && let Some((account, _)) = self.calls.account(key) {
            account.cancelled();
        }
        let bye = Bye { at: moment(now), cause: reason(&request.message).unwrap_or(NORMAL), from_elsewhere };
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

    pub(super) fn hear_renewal(&mut self, key: u64, context: u64, message: &Message<'_>, source: SocketAddr) {
        let (contact, offer) = (contact_of(message).map(Box::from), SessionOffer::of(message));
        self.calls.change(key, |call| {
            let Some((at, sender)) = call.dialog_at(context) else { return };
            let contact = contact.filter(|_| !call.is_from_elsewhere(&call.dialogs[at], sender, source));
            call.dialogs[at].begin_renewal(Renewal { sender, contact, offer });
        });
    }
}

impl Decider<'_> {
    /// Returns whether the call of this caller has an answered dialog with this callee.
    fn has_dialog(&self, call_id: &[u8], caller_tag: &[u8], callee_tag: &[u8]) -> bool {
        let callee_tag = &*self.kept_tag(callee_tag);
        let call = self.calls.get(self.key_of_call(call_id, caller_tag));
        call.is_some_and(|call| call.dialogs.iter().any(|dialog| dialog.tag() == callee_tag && dialog.answer.is_some()))
    }

    /// Returns whether a request of this party goes to the remote target of the dialog, by its route set (RFC 3261 section 12.2.1.1). Call-ID
    /// and tags alone prove nothing: a party can lend them to a call with another peer.
    pub(super) fn leads_along(&self, request: &Request<'_>, call: &Call, dialog: &Dialog, party: Party) -> bool {
        let (contact, routes) = match party {
            Party::Caller => (dialog.contact(), dialog.routes()),
            Party::Callee => (call.caller_contact(), call.caller_routes()),
        };
        // Only a party of an emergency call can be unknown.
        if contact.is_empty() {
            return true;
        }
        let is_target = match (Uri::parse(contact), &request.uri) {
            (Ok(Uri::Sip(known)), Uri::Sip(uri)) => Place::of(&known) == Place::of(uri),
            _ => request.message.request_uri() == contact,
        };
        is_target && self.has_routes(request, routes)
    }

    /// Returns whether the Routes of a request pass the same proxies as `routes`, from this server on.
    fn has_routes(&self, request: &Request<'_>, routes: &[u8]) -> bool {
        let is_own = |uri: &SipUri<'_>| self.policy.router.is_own(uri);
        // Format of the table: `<URI>, <URI>`.
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

    /// Returns whether a route set of the table passes no other proxy.
    pub(super) fn has_own_routes_alone(&self, routes: &[u8]) -> bool {
        let uris = routes.split(|b| matches!(b, b'<' | b'>')).skip(1).step_by(2);
        let mut uris = uris.map(|uri| Uri::parse(uri).ok().and_then(|uri| uri.sip().copied()));
        uris.all(|uri| uri.is_some_and(|uri| self.policy.router.is_own(&uri)))
    }
}
