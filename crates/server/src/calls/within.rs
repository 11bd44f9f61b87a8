//! Requests of calls on their way downstream: the INVITE that begins one, and what passes in its dialogs.

use super::dialog::Party;
use super::{Call, LONGEST_WAY, NO_CALL, Purpose};
use crate::call_log::log_ended;
use crate::engine::Engine;
use crate::handling::Handling;
use smallvec::SmallVec;
use strowger_core::Outbox;
use strowger_core::routing::Router;
use strowger_message::header::Hop;
use strowger_message::{Message, Method};

/// Under which context the proxy tells what becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// 0: it need not be told.
    Notices(u64),
    /// No more calls can be tracked.
    Full,
    /// As many calls are under way as a limit lets, whose status this is.
    Limited(u16),
}

impl Engine {
    /// A request that has a target is about to be forwarded.
    pub(crate) fn context_of(&mut self, handling: &Handling<'_, '_>) -> Context {
        let request = handling.request;
        match (request.method, request.to_tag) {
            (Method::Invite, b"") => self.begin_call(handling),
            (_, b"") => Context::Notices(0),
            // Outside of its dialog a request changes nothing of a call.
            _ if self.calls.is_empty() || !handling.progress.proof.in_dialog => Context::Notices(0),
            _ => Context::Notices(self.pass_within(handling)),
        }
    }

    fn begin_call(&mut self, handling: &Handling<'_, '_>) -> Context {
        let request = handling.request;
        let decision = handling.progress.decision.as_deref();
        let claims = decision.map_or(&[][..], |decision| &decision.claims);
        let (tracks, stays) = (self.tracks(handling) || !claims.is_empty(), self.stays(handling));
        let (logs, accounts) = (self.may_log_calls(), self.accounts(handling));
        if !tracks && !logs && !accounts {
            return Context::Notices(NO_CALL);
        }
        let key = self.key_of_call(request.call_id, request.from_tag);
        let context = Purpose::Invite.context(key);
        if let Some(call) = self.calls.get(key) {
            // With credentials for a server behind us, or the same call once more on its way.
            let comes_again = call.challenged || self.policy.router.has_been_here(request);
            // A second call of the same Call-ID and tag, which no caller makes by chance, is not told from the first by its end.
            let is_other = call.inviting && !comes_again;
            let is_logged = !comes_again && logs && self.log_call_begun(handling);
            if is_other {
                // Its end would not be seen.
                return if claims.is_empty() { Context::Notices(NO_CALL) } else { Context::Full };
            }
            let began = super::moment(handling.now);
            self.calls.change(key, |call| {
                call.live += 1;
                call.account.iter_mut().for_each(|account| account.open += 1);
                call.inviting = true;
                call.cseq = request.cseq;
                if !std::mem::take(&mut call.challenged) && !comes_again {
                    (call.logged, call.began) = (call.logged || is_logged, began);
                }
            });
            return Context::Notices(context);
        }
        let most = self.policy.config.dialogs.calls.div_ceil(self.shared.counters.len());
        if tracks && self.calls.counts().tracked >= most {
            return Context::Full;
        }
        if let Err(claim) = self.shared.call_limits.take(claims) {
            return Context::Limited(claim.status);
        }
        let is_logged = logs && self.log_call_begun(handling);
        if !is_logged && !tracks && !accounts {
            return Context::Notices(NO_CALL);
        }
        let mut call = Call::begun(request, handling.now, tracks, &self.kept_tag(request.from_tag));
        (call.live, call.inviting, call.logged, call.stays) = (1, true, is_logged, stays);
        call.counted = claims.iter().map(|claim| claim.counted.clone()).collect();
        call.account = accounts.then(|| self.open_account(handling));
        self.calls.put(key, call);
        Context::Notices(context)
    }

    /// A request within a dialog.
    fn pass_within(&mut self, handling: &Handling<'_, '_>) -> u64 {
        let request = handling.request;
        let (call_id, from, to) = (request.call_id, request.from_tag, request.to_tag);
        for (party, tag, other) in [(Party::Caller, from, to), (Party::Callee, to, from)] {
            let key = self.key_of_call(call_id, tag);
            let Some(call) = self.calls.get(key) else { continue };
            let other = &*self.kept_tag(other);
            let (is_tracked, is_known) = (call.tracked, call.dialogs.iter().any(|dialog| dialog.tag() == other));
            if request.method == Method::Bye {
                return self.pass_bye(handling, key, party, other);
            }
            if !is_tracked || !is_known {
                continue;
            }
            let number = request.cseq;
            let hear = |call: &mut Call| call.dialog(other).is_some_and(|dialog| dialog.hear(party, number));
            if self.calls.change(key, hear) == Some(true) {
                self.calls.has_changed(key);
            }
            let renews = matches!(request.method, Method::Invite | Method::Update);
            return if renews { Purpose::Renewal.context(key) } else { 0 };
        }
        0
    }

    fn pass_bye(&mut self, handling: &Handling<'_, '_>, key: u64, party: Party, callee_tag: &[u8]) -> u64 {
        let Some(call) = self.calls.get(key) else { return 0 };
        let dialog = call.dialogs.iter().find(|dialog| dialog.tag() == callee_tag);
        // A caller may end what has not been answered here yet (RFC 3261 section 15).
        let is_early = dialog.is_none_or(|dialog| dialog.answer.is_none());
        if is_early && (party == Party::Callee || !call.inviting) {
            return 0;
        }
        let answer = dialog.and_then(|dialog| dialog.answer);
        if call.logged && dialog.is_none_or(|dialog| is_early || dialog.logged) {
            log_ended(handling.now, call, party.text(), answer, handling.request.call_id);
        }
        let number = handling.request.cseq;
        if let Some(account) = self.calls.account(key) {
            match is_early {
                true => account.cancelled(),
                false => account.bye(handling.now, party, &handling.request.message),
            }
        }
        let is_tracked = self.calls.change(key, |call| {
            let is_tracked = call.tracked;
            if is_early {
                // What becomes of its INVITE is no other line.
                call.logged = false;
                call.inviting &= is_tracked;
            }
            match call.dialog(callee_tag) {
                Some(dialog) if is_tracked => {
                    dialog.hear(party, number);
                    (dialog.ending, dialog.logged) = (Some(party), false);
                }
                _ => call.dialogs.retain(|dialog| dialog.tag() != callee_tag),
            }
            is_tracked
        });
        if is_tracked == Some(true) { Purpose::Bye.context(key) } else { 0 }
    }

    /// A request of a call was forwarded; from `sent` on stands in the outbox what left. What a party says there of how it is reached is as
    /// its peer gets it: with our seal and our route token.
    pub(crate) fn forwarded(&mut self, handling: &Handling<'_, '_>, context: u64, sent: usize) {
        let key = context & !super::PURPOSES;
        let purpose = Purpose::of(context).filter(|purpose| *purpose != Purpose::Bye);
        let Some(purpose) = purpose.filter(|_| self.calls.get(key).is_some_and(|call| call.tracked)) else { return };
        let mut index = std::mem::take(&mut self.calls.index);
        if let Some(bytes) = first_sent(handling.out, sent)
            && index.parse(bytes, &self.policy.limits).is_ok()
        {
            let message = Message::new(bytes, &index);
            match purpose {
                Purpose::Invite => self.hear_caller(key, &message),
                _ => self.hear_renewal(handling, key, &message),
            }
        }
        self.calls.index = index;
    }

    /// A request with this context could not be forwarded after all.
    pub(crate) fn not_forwarded(&mut self, context: u64) {
        if Purpose::of(context) == Some(Purpose::Invite) {
            self.calls.change(context & !super::PURPOSES, |call| {
                call.live = call.live.saturating_sub(1);
                call.account.iter_mut().for_each(|account| account.open = account.open.saturating_sub(1));
                call.inviting = false;
            });
        }
    }

    fn hear_caller(&mut self, key: u64, message: &Message<'_>) {
        let Some((contact, routes)) = way(&self.policy.router, message) else { return };
        self.calls.change(key, |call| call.set_caller_way(contact, &routes));
    }

    fn hear_renewal(&mut self, handling: &Handling<'_, '_>, key: u64, message: &Message<'_>) {
        let (Some(contact), request) = (contact_of(message), handling.request) else { return };
        let (from, to) = (self.kept_tag(request.from_tag), self.kept_tag(request.to_tag));
        self.calls.change(key, |call| {
            let (party, tag) = call.sender(&from, &to);
            if let Some(dialog) = call.dialog(tag) {
                dialog.begin_renewal(party, contact);
            }
        });
    }
}

fn first_sent(out: &Outbox, sent: usize) -> Option<&[u8]> {
    out.sends().get(sent).and_then(|send| out.bytes.get(send.range()))
}

/// The URI of the Contact, as it stands there.
pub(super) fn contact_of<'a>(message: &Message<'a>) -> Option<&'a [u8]> {
    let text = message.contacts().next()?.ok()?.addr.uri_text;
    (text.len() <= LONGEST_WAY).then_some(text)
}

/// How this party is reached by a request that comes from its peer: its Contact, and the Routes from this server on, ours first (RFC 3261
/// sections 12.1.1 and 12.1.2). In a request stand those to the caller, in a response those to the callee, the other way round.
pub(super) fn way<'a>(router: &Router, message: &Message<'a>) -> Option<(&'a [u8], Vec<u8>)> {
    let contact = contact_of(message)?;
    let mut routes: SmallVec<[Hop<'a>; 4]> = SmallVec::new();
    for route in message.record_routes() {
        routes.push(route.ok()?.value);
    }
    if !message.is_request() {
        routes.reverse();
    }
    let is_own = |route: &Hop<'_>| route.uri.sip().is_some_and(|uri| router.is_own(uri));
    let first = routes.iter().position(is_own)?;
    let mut text = Vec::new();
    for route in &routes[first..] {
        text.extend_from_slice(if text.is_empty() { b"<" } else { b", <" });
        text.extend_from_slice(route.uri_text);
        text.push(b'>');
    }
    (text.len() <= LONGEST_WAY).then_some((contact, text))
}
