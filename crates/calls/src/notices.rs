//! Notices of roles about the requests of calls.

use crate::bye::Bye;
use crate::call::Call;
use crate::call_log::{log_ended, log_outcome};
use crate::cdr::NORMAL;
use crate::cdr_fields::cause;
use crate::context::Purpose;
use crate::dialog::{CallAnswer, Dialog};
use crate::dialog_end::Ending;
use crate::dropped_answers::{MOST_DIALOGS, bypasses};
use crate::effect::CallEffect;
use crate::environment::Environment;
use crate::legs::Legs;
use crate::origin::Source;
use crate::remote_target::{contact_of, way};
use crate::session_offer::SessionOffer;
use crate::table::CallTable;
use crate::times::moment;
use smallvec::SmallVec;
use std::num::NonZeroU16;
use std::ops::Range;
use strowger_core::Now;
use strowger_core::notice::{Notice, NoticeEvent, Party};
use strowger_core::shown::shown;
use strowger_message::header::SessionExpires;
use strowger_message::{Index, Limits, Message, Name};

impl CallTable {
    /// Handles a notice of the role that carries a call. `sent`: bytes of the outbox with the response that the notice names.
    pub fn on_notice(&mut self, env: &mut Environment<'_>, notice: &Notice, sent: &[u8]) {
        let Some(key) = self.key_of(notice.context) else { return };
        let name = (key, notice.context);
        match Purpose::of(notice.context) {
            Some(Purpose::Invite) => self.on_invite_notice(env, key, &notice.event, sent),
            Some(Purpose::Renewal) => self.on_renewal_notice(env, name, &notice.event, sent),
            Some(Purpose::Bye) => self.on_bye_notice(env, name, &notice.event),
            Some(Purpose::Question) => self.on_question_notice(env, name, &notice.event, sent),
            None => (),
        }
    }

    /// Passes a notice about an INVITE to the account of its call, before the table handles the notice.
    fn tell_account(&mut self, now: Now, key: u64, event: &NoticeEvent) {
        let Some((account, _)) = self.account(key) else { return };
        match event {
            NoticeEvent::Rang { status: 180 | 183, .. } => account.rang(now),
            NoticeEvent::Refused { by, .. } => account.failed_at(by.map(|by| by.address), true),
            NoticeEvent::TimedOut { target } => account.failed_at(target.map(|target| target.address), false),
            NoticeEvent::Cancelled => account.cancelled(),
            _ => (),
        }
    }

    fn on_invite_notice(&mut self, env: &mut Environment<'_>, key: u64, event: &NoticeEvent, sent: &[u8]) {
        self.tell_account(env.now, key, event);
        match event {
            NoticeEvent::Rang { branch, bytes, .. } => {
                if self.get(key).is_some_and(|call| call.tracked) {
                    self.read_response(bytes, sent, |table, response| table.rang(env, key, *branch, response));
                }
            }
            NoticeEvent::BranchEnded { branch } => {
                self.change(key, |call| call.dialogs.retain(|dialog| !dialog.rings_by(*branch)));
            }
            NoticeEvent::Answered { status, first, bytes, .. } => {
                self.read_response(bytes, sent, |table, response| table.answered_with(env, key, *status, response));
                if *first {
                    self.change(key, Call::conclude);
                }
            }
            NoticeEvent::Exhausted { status, bytes } => {
                self.read_response(bytes, sent, |table, response| table.failed_with(env.now, key, *status, response));
                self.change(key, Call::fail);
            }
            NoticeEvent::Cancelled => {
                self.change(key, |call| call.cancelled = true);
            }
            NoticeEvent::Abandoned => {
                self.change(key, Call::fail);
            }
            // No other callee can answer any more.
            NoticeEvent::Ended => {
                self.change(key, Call::end_early);
            }
            NoticeEvent::HungUp { by, cause } => self.hung_up(env, key, *by, *cause),
            NoticeEvent::Refused { .. } | NoticeEvent::TimedOut { .. } => (),
        }
    }

    /// Reads the response that a notice names.
    pub(crate) fn read_response(
        &mut self,
        range: &Range<usize>,
        sent: &[u8],
        read: impl FnOnce(&mut Self, &Message<'_>),
    ) {
        let Some(bytes) = sent.get(range.clone()) else { return };
        let mut index: Index = std::mem::take(&mut self.index);
        if index.parse(bytes, &Limits::UNLIMITED).is_ok() {
            read(self, &Message::new(bytes, &index));
        }
        self.index = index;
    }

    fn rang(&mut self, env: &mut Environment<'_>, key: u64, branch: u32, response: &Message<'_>) {
        let Some(tag) = response.to().ok().and_then(|to| to.tag) else { return };
        let tag = &*self.kept_tag(tag);
        if self.get(key).is_none_or(|call| call.dialogs.iter().any(|dialog| dialog.tag() == tag)) {
            return;
        }
        let Some(salt) = self.free_salt(env, key) else { return };
        self.change(key, |call| {
            if call.open > 0 && call.dialogs.len() < MOST_DIALOGS {
                call.dialogs.push(Dialog::early(tag, call.cseq, salt, branch));
            }
        });
    }

    fn answered_with(&mut self, env: &mut Environment<'_>, key: u64, status: u16, response: &Message<'_>) {
        let now = env.now;
        let (Ok(call_id), Ok(to), Some(call)) = (response.call_id(), response.to(), self.get(key)) else {
            return;
        };
        let tag = &*self.kept_tag(to.tag.unwrap_or_default());
        if call.dialogs.iter().any(|dialog| dialog.tag() == tag && dialog.answer.is_some()) {
            return;
        }
        // The role that anchors a call keeps the dialog of the first callee that answers, and ends all others.
        if call.legs == Legs::Anchored && call.is_invite_answered() {
            return;
        }
        // If this 2xx is not the first, another callee was the first to answer, and that was logged.
        let is_first = call.open > 0 && !call.is_invite_answered();
        let is_logged = call.logged && is_first;
        if is_logged {
            log_outcome(now, call, status, logged_id(call, call_id.text));
        }
        let way = match call.legs {
            _ if !call.tracked => None,
            Legs::Anchored => contact_of(response).map(|contact| (contact, Vec::new())),
            Legs::Passing | Legs::Proxied => way(env.router, response),
        };
        // The role that anchors a call keeps the timers of both dialogs.
        let has_timer = call.tracked && call.legs != Legs::Anchored;
        let session_end = if has_timer { session_end(now, response, call.offer) } else { SessionEnd::Never };
        // Without a Record-Route the BYE of the call does not pass this server.
        let stays = call.legs.are_here();
        let by = self.responded;
        let source = by.map(Source::of).unwrap_or_default();
        let bypasses = call.tracked && call.legs == Legs::Proxied && bypasses(env.router, call, response);
        if bypasses && is_logged {
            let (gateway, call_id) = (by.map(tracing::field::display), shown(call_id.text));
            tracing::info!(gateway, %call_id, "answer without Record-Route: the end of the call will not be seen");
        }
        if let Some((account, names)) = self.account(key) {
            let row = account.answered(now, status, by, response, names);
            self.effects.extend(row.map(CallEffect::Account));
        }
        let Some(salt) = self.free_salt(env, key) else { return };
        let transaction = self.times.transaction;
        self.change(key, |call| {
            call.challenged = false;
            if !stays || bypasses || !(call.tracked || is_logged) {
                return;
            }
            let (cseq, is_anchored) = (call.cseq, call.legs == Legs::Anchored);
            if call.dialog(tag).is_none() {
                call.make_room_for_answer();
                call.dialogs.push(Dialog::new(tag, cseq, salt));
            }
            let Some(dialog) = call.dialog(tag) else { return };
            if dialog.is_resumed() {
                contact_of(response).into_iter().for_each(|contact| dialog.set_contact(contact));
                dialog.source = source;
            }
            let answer = NonZeroU16::new(status).map(|status| CallAnswer { at: moment(now), status });
            (dialog.answer, dialog.logged) = (answer, is_logged);
            if let Some((contact, routes)) = way {
                dialog.set_way(contact, &routes, source);
            }
            session_end.apply(dialog);
            // The role that anchors a call waits for the ACK itself.
            dialog.acknowledged |= is_anchored;
            // A BYE passed before the answer did.
            if dialog.doubt.take().is_some() {
                dialog.doubt_beside(now, transaction);
            }
        });
        self.has_changed(key);
    }

    fn failed_with(&mut self, now: Now, key: u64, status: u16, response: &Message<'_>) {
        let (Ok(call_id), Some(call)) = (response.call_id(), self.get(key)) else { return };
        // The caller sends the INVITE again with credentials.
        let is_challenged = matches!(status, 401 | 407);
        // A server before this one, which has sent another INVITE of the call here, may still try another target.
        let is_last = call.open == 1 && !call.is_invite_answered();
        if call.logged && is_last && !is_challenged {
            log_outcome(now, call, status, logged_id(call, call_id.text));
        }
        if let Some((account, _)) = self.account(key) {
            account.refused(now, status, cause(status, response));
        }
        // The outcome of the last INVITE counts. The INVITE of a call that is or was answered is not sent again.
        self.change(key, |call| {
            let comes_again = is_challenged || (call.challenged && call.open > 1);
            call.challenged = comes_again && !call.has_answer() && !call.kept;
        });
    }

    /// Handles the result of a renewal. Afterwards both parties are reached at their new Contacts (RFC 3261 section
    /// 12.2.1.2).
    fn on_renewal_notice(
        &mut self,
        env: &Environment<'_>,
        (key, context): (u64, u64),
        event: &NoticeEvent,
        sent: &[u8],
    ) {
        match event {
            NoticeEvent::Answered { bytes, .. } => {
                self.read_response(bytes, sent, |table, response| table.renewed(env.now, key, context, response));
            }
            NoticeEvent::Exhausted { .. } => self.change_dialog(key, context, |dialog, _| drop(dialog.end_renewal())),
            _ => (),
        }
    }

    fn renewed(&mut self, now: Now, key: u64, context: u64, response: &Message<'_>) {
        let contact = contact_of(response);
        let mut of_caller = None;
        self.change_dialog(key, context, |dialog, sender| {
            let renewal = dialog.end_renewal().filter(|renewal| renewal.sender == sender);
            let offer = renewal.as_ref().map_or_else(SessionOffer::default, |renewal| renewal.offer);
            session_end(now, response, offer).apply(dialog);
            let renewed = renewal.as_ref().and_then(|renewal| renewal.contact.as_deref());
            let (caller, callee) = match sender {
                Party::Caller => (renewed, contact),
                Party::Callee => (contact, renewed),
            };
            if let Some(contact) = callee {
                dialog.set_contact(contact);
            }
            of_caller = caller.map(<[u8]>::to_vec);
        });
        if let Some(contact) = of_caller {
            self.change(key, |call| call.set_caller_contact(&contact));
        }
        self.has_changed(key);
    }

    /// Changes the dialog that this context names. `change` also gets the sender of the request.
    fn change_dialog(&mut self, key: u64, context: u64, change: impl FnOnce(&mut Dialog, Party)) {
        self.change(key, |call| {
            if let Some((at, sender)) = call.dialog_at(context) {
                change(&mut call.dialogs[at], sender);
            }
        });
    }

    /// Handles the final response to a BYE. A 2xx, 481, 408 or a timeout ends the dialog (RFC 3261 sections 12.2.1.2 and 15.1.1). After any
    /// other response the session may continue.
    fn on_bye_notice(&mut self, env: &mut Environment<'_>, (key, context): (u64, u64), event: &NoticeEvent) {
        if self.on_hang_up(env, (key, context), event) {
            return;
        }
        let status = match event {
            NoticeEvent::Answered { status, .. } | NoticeEvent::Exhausted { status, .. } => *status,
            // No response came.
            NoticeEvent::Abandoned => 408,
            _ => return,
        };
        match status {
            200..300 | 408 | 481 => self.end_by_bye(env, (key, context), status),
            _ => self.bye_refused(env.now, (key, context), status),
        }
    }

    /// Keeps a dialog whose BYE was refused, and soon asks the parties whether it still exists.
    pub(crate) fn bye_refused(&mut self, now: Now, (key, context): (u64, u64), status: u16) {
        let dialog = self.get(key).and_then(|call| Some((call, call.dialog_at(context)?)));
        let answered = dialog.map(|(call, (at, party))| (party, &call.dialogs[at]));
        let bye = answered.filter(|(_, dialog)| dialog.answer.is_some());
        if let Some((party, bye)) = bye.and_then(|(party, dialog)| Some((party, dialog.bye(party)?)))
            && let Some((account, names)) = self.account(key)
        {
            let row = account.bye_refused(party, bye, status, names);
            self.effects.extend(row.map(CallEffect::Account));
        }
        self.change_dialog(key, context, |dialog, party| {
            dialog.end_bye(party);
            dialog.doubt_refusal(now);
        });
        self.has_changed(key);
    }

    /// Ends a dialog by a BYE. If the peer has not answered, the server sends a BYE of its own: the party's BYE may have been lost, for example
    /// as a datagram that was too long.
    fn end_by_bye(&mut self, env: &mut Environment<'_>, (key, context): (u64, u64), status: u16) {
        let now = env.now;
        let Some(call) = self.get(key) else { return };
        let Some((at, party)) = call.dialog_at(context) else { return };
        let dialog = &call.dialogs[at];
        let bye = dialog.bye(party).unwrap_or_else(|| Bye { at: moment(now), cause: NORMAL, from_elsewhere: false });
        let salt = dialog.salt;
        if status == 408 && dialog.answer.is_some() {
            // The peer may have continued the session until now.
            let bye = Bye { at: moment(now), ..bye };
            if dialog.ending().is_none() {
                self.end_dialog(env, (key, salt), Ending::by_party(now, party, bye));
            }
            return;
        }
        if dialog.ending().is_some() {
            let conclude =
                |dialog: &mut Dialog| dialog.ending_mut().into_iter().for_each(|ending| ending.conclude(bye.at));
            self.change_dialog(key, context, |dialog, _| conclude(dialog));
            return self.close_dialog(now, (key, salt));
        }
        if status == 481 && party == Party::Callee && dialog.answer.is_some() && dialog.has_hasty_bye() {
            // The caller may get the 2xx after the BYE, and continue the session.
            self.change_dialog(key, context, |dialog, party| {
                dialog.end_bye(party);
                dialog.doubt_refusal(now);
            });
            return self.has_changed(key);
        }
        if call.chose_tag && dialog.answer.is_some() {
            // The BYE may be of another dialog with the same tags, and another callee may have answered this call.
            return self.end_dialog(env, (key, salt), Ending::after_bye(now, party, bye, status));
        }
        if bye.from_elsewhere && dialog.answer.is_some() {
            return self.end_dialog(env, (key, salt), Ending::in_name_of(now, party, bye, status));
        }
        if dialog.logged {
            log_ended(bye.at, call, party.text(), dialog.answer, call.call_id());
        }
        let answer = dialog.answer;
        self.count_ended(bye.at, answer);
        if answer.is_some()
            && let Some((account, names)) = self.account(key)
        {
            let row = account.bye_ended(party, bye, status, names);
            self.effects.extend(row.map(CallEffect::Account));
        }
        self.remove_dialog(now, (key, salt));
    }

    /// Ends the dialogs of an anchored call after a BYE of this party, which the role has answered. The peer gets a BYE too.
    fn hung_up(&mut self, env: &mut Environment<'_>, key: u64, by: Party, cause: Option<u16>) {
        let now = env.now;
        let bye = Bye { at: moment(now), cause: cause.unwrap_or(NORMAL), from_elsewhere: false };
        let Some(call) = self.get(key).filter(|call| call.legs == Legs::Anchored) else { return };
        let answered = call.dialogs.iter().filter(|dialog| dialog.answer.is_some());
        let dialogs: SmallVec<[(u16, bool); 1]> =
            answered.map(|dialog| (dialog.salt, dialog.ending().is_some())).collect();
        for (salt, is_ending) in dialogs {
            if !is_ending {
                self.end_dialog(env, (key, salt), Ending::by_answered_bye(now, by, bye));
                continue;
            }
            // BYEs have crossed.
            self.change(key, |call| {
                let dialog = call.dialogs.iter_mut().find(|dialog| dialog.salt == salt);
                dialog.and_then(Dialog::ending_mut).into_iter().for_each(|ending| ending.spare(by));
            });
            self.close_dialog(now, (key, salt));
        }
    }
}

/// Returns the Call-ID under which a call was logged. `received`: Call-ID of the response, which may be of the far leg.
fn logged_id<'a>(call: &'a Call, received: &'a [u8]) -> &'a [u8] {
    if call.far_call_id().is_empty() { received } else { call.call_id() }
}

/// Session timer in a 2xx.
enum SessionEnd {
    /// The session has no timer.
    Never,
    /// The session expires at this moment (RFC 4028 section 8.3).
    At(i64),
    /// The value is outside the limits of RFC 4028, and is ignored.
    Void,
}

impl SessionEnd {
    fn apply(&self, dialog: &mut Dialog) {
        match self {
            Self::Never => dialog.set_session_end(None),
            Self::At(at) => dialog.set_session_end(Some(*at)),
            Self::Void => (),
        }
    }
}

fn session_end(now: Now, response: &Message<'_>, offer: SessionOffer) -> SessionEnd {
    let timer = response.header(Name::SessionExpires).and_then(|value| SessionExpires::parse(value).ok());
    match timer.map(|timer| timer.seconds) {
        None => SessionEnd::Never,
        Some(seconds) if offer.allows(seconds) => {
            SessionEnd::At(moment(now).saturating_add(i64::from(seconds) * 1_000))
        }
        Some(_) => SessionEnd::Void,
    }
}
