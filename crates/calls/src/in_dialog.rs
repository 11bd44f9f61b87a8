//! Requests within the dialogs of calls, on their way to the other party.

use crate::bye::Bye;
use crate::call::{Call, LONGEST_WAY};
use crate::call_log::log_ended;
use crate::cdr::NORMAL;
use crate::cdr_fields::reason;
use crate::context::Purpose;
use crate::dialog::{Dialog, Renewal};
use crate::dropped_answers::MOST_DIALOGS;
use crate::environment::Environment;
use crate::origin::Source;
use crate::remote_target::{contact_of, leads_along};
use crate::session_offer::SessionOffer;
use crate::table::CallTable;
use crate::times::moment;
use std::net::SocketAddr;
use strowger_core::Now;
use strowger_core::notice::Party;
use strowger_core::routing::Request;
use strowger_message::{Message, Method, Uri};

impl CallTable {
    /// Notes a request within a dialog. Returns its context, or 0 if no notices about it are needed.
    pub fn pass_within(&mut self, env: &mut Environment<'_>, request: &Request<'_>) -> u64 {
        if self.is_empty() {
            return 0;
        }
        let (call_id, from, to) = (request.call_id, request.from_tag, request.to_tag);
        // Both parties may have the same tag.
        let mut beside = None;
        for (party, tag, other) in [(Party::Caller, from, to), (Party::Callee, to, from)] {
            let key = self.key_of_call(call_id, tag);
            let Some(call) = self.get(key) else { continue };
            let other = &*self.kept_tag(other);
            let known = call.dialogs.iter().find(|dialog| dialog.tag() == other && dialog.answer.is_some());
            // A callee may begin another call with the same Call-ID and its own tag.
            if known.is_none() && party == Party::Caller && self.has_dialog(call_id, to, from) {
                continue;
            }
            if call.tracked && known.is_some_and(|dialog| !leads_along(env.router, request, call, dialog, party)) {
                beside = Some((key, other.to_vec()));
                continue;
            }
            if request.method == Method::Bye {
                return self.pass_bye(env, request, (key, party, other));
            }
            let dialog = call.dialogs.iter().find(|dialog| dialog.tag() == other).filter(|_| call.tracked);
            let Some(context) = dialog.map(|dialog| call.dialog_context(dialog, Purpose::Renewal, party)) else {
                continue;
            };
            let number = request.cseq;
            let note_cseq = |call: &mut Call| call.dialog(other).is_some_and(|dialog| dialog.note_cseq(party, number));
            if self.change(key, note_cseq) == Some(true) {
                self.has_changed(key);
            }
            return if matches!(request.method, Method::Invite | Method::Update) { context } else { 0 };
        }
        if let Some((key, tag)) = beside {
            self.pass_beside(env.now, request, key, &tag);
        }
        0
    }

    /// Handles a request that has the tags of a dialog but is sent elsewhere. Such a request changes nothing in the
    /// table, but after a BYE the server asks both parties whether the dialog still exists.
    fn pass_beside(&mut self, now: Now, request: &Request<'_>, key: u64, callee_tag: &[u8]) {
        if request.method == Method::Bye {
            let transaction = self.times.transaction;
            self.change(key, |call| {
                call.dialog(callee_tag).into_iter().for_each(|dialog| dialog.doubt_beside(now, transaction));
            });
            self.has_changed(key);
        }
    }

    /// Adds the dialog of a call that began in an earlier process. A request to the callee uses the Request-URI and
    /// Routes of this INVITE, because the 2xx to the INVITE need not repeat the route set.
    pub(crate) fn resume_dialog(&mut self, env: &mut Environment<'_>, request: &Request<'_>, key: u64) {
        let is_own = |uri: &Uri<'_>| uri.sip().is_some_and(|uri| env.router.is_own(uri));
        let (contact, mut routes) = (request.message.request_uri(), Vec::new());
        for route in request.message.routes().flatten() {
            if !routes.is_empty() || is_own(&route.value.uri) {
                routes.extend_from_slice(if routes.is_empty() { b"<" } else { b", <" });
                routes.extend_from_slice(route.value.uri_text);
                routes.push(b'>');
            }
        }
        let tag = self.kept_tag(request.to_tag).into_owned();
        let Some(salt) = self.free_salt(env, key).filter(|_| contact.len().max(routes.len()) <= LONGEST_WAY) else {
            return;
        };
        self.change(key, |call| {
            let mut dialog = Dialog::new(&tag, call.cseq, salt);
            dialog.set_way(contact, &routes, Source::default());
            call.dialogs.push(dialog);
        });
    }

    /// Handles a BYE on its way. A tracked dialog ends with the final response to the BYE, not with the BYE itself.
    fn pass_bye(
        &mut self,
        env: &mut Environment<'_>,
        request: &Request<'_>,
        (key, party, callee_tag): (u64, Party, &[u8]),
    ) -> u64 {
        let now = env.now;
        let Some(call) = self.get(key) else { return 0 };
        let dialog = call.dialogs.iter().find(|dialog| dialog.tag() == callee_tag);
        // A caller may end a dialog before this server sees its answer (RFC 3261 section 15). A BYE whose CSeq is not above the CSeq of the
        // INVITE belongs to an earlier call.
        let is_early = dialog.is_none_or(|dialog| dialog.answer.is_none());
        let is_older = request.cseq <= call.cseq;
        if is_early && (party == Party::Callee || call.open == 0 || is_older) {
            if party == Party::Callee {
                self.doubt_before_answer(env, key, callee_tag);
            }
            return 0;
        }
        let source = request.arrival.remote;
        let from_elsewhere = dialog.is_some_and(|dialog| call.is_from_elsewhere(dialog, party, source));
        let (is_tracked, answer) = (call.tracked, dialog.and_then(|dialog| dialog.answer));
        let ends_here = is_early || !is_tracked;
        let (is_unknown, has_room) = (dialog.is_none(), call.dialogs.len() < MOST_DIALOGS);
        if ends_here && call.logged && dialog.is_none_or(|dialog| is_early || dialog.logged) {
            log_ended(moment(now), call, party.text(), answer, request.call_id);
        }
        if !is_tracked && !is_early {
            self.count_ended(moment(now), answer);
        }
        // The dialog may have a tag that the caller chose, and that no response has named yet.
        if is_unknown
            && is_tracked
            && has_room
            && let Some(salt) = self.free_salt(env, key)
        {
            self.change(key, |call| call.dialogs.push(Dialog::new(callee_tag, call.cseq, salt)));
        }
        let Some(call) = self.get(key) else { return 0 };
        let dialog = call.dialogs.iter().find(|dialog| dialog.tag() == callee_tag);
        let context = dialog.map(|dialog| call.dialog_context(dialog, Purpose::Bye, party));
        if is_early && let Some((account, _)) = self.account(key) {
            account.cancelled();
        }
        let bye = Bye { at: moment(now), cause: reason(&request.message).unwrap_or(NORMAL), from_elsewhere };
        self.change(key, |call| {
            if is_early {
                // The outcome of the INVITE gets no log line of its own.
                call.logged = false;
                if !is_tracked {
                    call.forget_invites();
                }
            }
            match call.dialog(callee_tag) {
                Some(dialog) if is_tracked => {
                    dialog.note_cseq(party, request.cseq);
                    dialog.begin_bye(party, bye);
                    dialog.logged &= !is_early;
                }
                _ => call.dialogs.retain(|dialog| dialog.tag() != callee_tag),
            }
        });
        context.filter(|_| is_tracked).unwrap_or_default()
    }

    pub(crate) fn note_renewal(&mut self, key: u64, context: u64, message: &Message<'_>, source: SocketAddr) {
        let (contact, offer) = (contact_of(message).map(Box::from), SessionOffer::of(message));
        self.change(key, |call| {
            let Some((at, sender)) = call.dialog_at(context) else { return };
            let contact = contact.filter(|_| !call.is_from_elsewhere(&call.dialogs[at], sender, source));
            call.dialogs[at].begin_renewal(Renewal { sender, contact, offer });
        });
    }
}

impl CallTable {
    /// Returns whether the call of this caller has an answered dialog with this callee.
    fn has_dialog(&self, call_id: &[u8], caller_tag: &[u8], callee_tag: &[u8]) -> bool {
        let callee_tag = &*self.kept_tag(callee_tag);
        let call = self.get(self.key_of_call(call_id, caller_tag));
        call.is_some_and(|call| call.dialogs.iter().any(|dialog| dialog.tag() == callee_tag && dialog.answer.is_some()))
    }
}
