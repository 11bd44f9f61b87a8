//! Notices of the proxy about the requests of calls.

use super::answers::MOST_DIALOGS;
use super::dialog::{Bye, CallAnswer, Dialog, Party};
use super::ending::Ending;
use super::origin::Source;
use super::within::{contact_of, way};
use super::{Call, Purpose, moment};
use crate::account_text::cause;
use crate::accounting::NORMAL;
use crate::call_limits::Claim;
use crate::call_log::{log_ended, log_outcome};
use crate::decision::Question;
use crate::engine::{Effect, Engine};
use crate::session_timer::SessionOffer;
use std::num::NonZeroU16;
use std::ops::Range;
use strowger_core::notice::{Notice, NoticeEvent};
use strowger_core::proxy::{Choice, Question as ProxyQuestion, Report};
use strowger_core::shown::shown;
use strowger_core::transaction::ServerId;
use strowger_core::{Now, Outbox, Round};
use strowger_message::header::SessionExpires;
use strowger_message::{Index, Limits, Message, Name};

impl Engine {
    /// Handles the notices since the last time. The responses that they name are in the outbox.
    pub(crate) fn hear_notices(&mut self, now: Now, out: &mut Outbox) {
        self.set_targets_aside(now);
        // A decision about one notice may cause others.
        while !self.stack.proxy.reports().is_empty() {
            self.take_reports(now, out);
        }
        self.calls.responded = None;
        if !self.calls.ended.is_empty() {
            self.close_accounts(now);
        }
    }

    fn take_reports(&mut self, now: Now, out: &mut Outbox) {
        let mut reports = std::mem::take(self.stack.proxy.reports());
        if let Some(heard) = &mut self.heard {
            heard.extend_from_slice(&reports);
        }
        for report in reports.drain(..) {
            match report {
                Report::Notice(notice) => self.take_notice(now, &notice, out),
                Report::Question(question) => self.decide_for_proxy(now, &question, out),
            }
        }
        reports.append(self.stack.proxy.reports());
        *self.stack.proxy.reports() = reports;
    }

    /// Handles a notice of a role about a call.
    fn take_notice(&mut self, now: Now, notice: &Notice, out: &mut Outbox) {
        if super::begins_call(notice.context) {
            self.decider().count_outcome(&notice.event);
            if let NoticeEvent::Rang { after, .. } | NoticeEvent::Answered { after, .. } = &notice.event
                && let Some(milliseconds) = after
            {
                self.shared.durations[self.shard.number].call_setup.observe(u64::from(*milliseconds) * 1_000);
            }
        }
        self.hear(now, notice, out);
    }

    /// Answers a question of the proxy about the next target of an INVITE.
    fn decide_for_proxy(&mut self, now: Now, question: &ProxyQuestion, out: &mut Outbox) {
        let (key, server) = (self.calls.key_of(question.context), question.server);
        match &question.choice {
            Choice::Failing { plan: Some(claims), .. } => self.consider(now, key, server, claims, out),
            // No plan of this server asks as a whole.
            Choice::Failing { plan: None, .. } => (),
            Choice::Choosing { before, next } => self.choose(now, key, server, [before, next], out),
        }
    }

    fn hear(&mut self, now: Now, notice: &Notice, out: &mut Outbox) {
        let Some(key) = self.calls.key_of(notice.context) else { return };
        match Purpose::of(notice.context) {
            Some(Purpose::Invite) => self.hear_of_invite(now, key, &notice.event, out),
            Some(Purpose::Renewal) => self.hear_of_renewal(now, (key, notice.context), &notice.event, out),
            Some(Purpose::Bye) => self.hear_of_bye(now, (key, notice.context), &notice.event, out),
            Some(Purpose::Question) => self.hear_of_question(now, (key, notice.context), &notice.event, out),
            None => (),
        }
    }

    /// Decides whether a failure rule, which the proxy found for the outcome of an INVITE, leads the INVITE on: it does
    /// unless one of its limits is full. `key`: call of the INVITE, if that is in the table.
    #[inline(never)]
    pub(crate) fn consider(&mut self, now: Now, key: Option<u64>, server: ServerId, claims: &[u8], out: &mut Outbox) {
        let is_counted = key.zip(Question::read(claims)).is_some_and(|(key, Question { claims, places })| {
            let call = self.calls.get(key);
            let counts = |claim: &Claim| {
                let is_own = claims.iter().any(|other| other.counted == claim.counted);
                is_own || call.is_some_and(|call| call.counts_under(claim))
            };
            self.decider().has_room_at_any(&places, &[], counts) && self.calls.count(key, &claims)
        });
        self.say(now, server, is_counted, out);
    }

    /// Leads an INVITE to its next place of rules, if that has room. The call counts under limits at this place, or did
    /// at the one before.
    fn choose(&mut self, now: Now, key: Option<u64>, server: ServerId, places: [&[u8]; 2], out: &mut Outbox) {
        let [before, next] = places.map(Claim::read_all);
        let is_chosen = next.is_some_and(|next| self.calls.lead_on(key, &before.unwrap_or_default(), &next));
        self.say(now, server, is_chosen, out);
    }

    /// Answers a question of the proxy: it carries its plan out, or passes it over.
    fn say(&mut self, now: Now, server: ServerId, is_so: bool, out: &mut Outbox) {
        let round = &mut Round { now, tx: &mut self.stack.transactions, out };
        if is_so {
            self.stack.proxy.carry_out(round, server);
        } else {
            self.stack.proxy.pass(round, server);
        }
    }

    /// Tells the account of a call about an INVITE, before the table hears of it.
    fn tell_account(&mut self, now: Now, key: u64, event: &NoticeEvent) {
        let Some((account, _)) = self.calls.account(key) else { return };
        match event {
            NoticeEvent::Rang { status: 180 | 183, .. } => account.rang(now),
            NoticeEvent::Refused { by, .. } => account.failed_at(by.map(|by| by.address), true),
            NoticeEvent::TimedOut { target } => account.failed_at(target.map(|target| target.address), false),
            NoticeEvent::Cancelled => account.cancelled(),
            _ => (),
        }
    }

    fn hear_of_invite(&mut self, now: Now, key: u64, event: &NoticeEvent, out: &Outbox) {
        self.tell_account(now, key, event);
        match event {
            NoticeEvent::Rang { branch, bytes, .. } => {
                if self.calls.get(key).is_some_and(|call| call.tracked) {
                    self.read_response(bytes, out, |engine, response| engine.rang(key, *branch, response));
                }
            }
            NoticeEvent::BranchEnded { branch } => {
                self.calls.change(key, |call| call.dialogs.retain(|dialog| !dialog.rings_by(*branch)));
            }
            NoticeEvent::Answered { status, first, bytes, .. } => {
                self.read_response(bytes, out, |engine, response| engine.answered_with(now, key, *status, response));
                if *first {
                    self.calls.change(key, Call::conclude);
                }
            }
            NoticeEvent::Exhausted { status, bytes } => {
                self.read_response(bytes, out, |engine, response| engine.failed_with(now, key, *status, response));
                self.calls.change(key, Call::fail);
            }
            NoticeEvent::Cancelled => {
                self.calls.change(key, |call| call.cancelled = true);
            }
            NoticeEvent::Abandoned => {
                self.calls.change(key, Call::fail);
            }
            // No other callee can answer now.
            NoticeEvent::Ended => {
                self.calls.change(key, Call::end_early);
            }
            NoticeEvent::Refused { .. } | NoticeEvent::TimedOut { .. } => (),
        }
    }

    /// Reads the response that a notice names.
    pub(super) fn read_response(
        &mut self,
        range: &Range<usize>,
        out: &Outbox,
        read: impl FnOnce(&mut Self, &Message<'_>),
    ) {
        let Some(bytes) = out.bytes.get(range.clone()) else { return };
        let mut index: Index = std::mem::take(&mut self.calls.index);
        if index.parse(bytes, &Limits::UNLIMITED).is_ok() {
            read(self, &Message::new(bytes, &index));
        }
        self.calls.index = index;
    }

    fn rang(&mut self, key: u64, branch: u32, response: &Message<'_>) {
        let Some(tag) = response.to().ok().and_then(|to| to.tag) else { return };
        let tag = &*self.decider().kept_tag(tag);
        if self.calls.get(key).is_none_or(|call| call.dialogs.iter().any(|dialog| dialog.tag() == tag)) {
            return;
        }
        let Some(salt) = self.free_salt(key) else { return };
        self.calls.change(key, |call| {
            if call.open > 0 && call.dialogs.len() < MOST_DIALOGS {
                call.dialogs.push(Dialog::early(tag, call.cseq, salt, branch));
            }
        });
    }

    fn answered_with(&mut self, now: Now, key: u64, status: u16, response: &Message<'_>) {
        let (Ok(call_id), Ok(to), Some(call)) = (response.call_id(), response.to(), self.calls.get(key)) else {
            return;
        };
        let tag = &*self.decider().kept_tag(to.tag.unwrap_or_default());
        if call.dialogs.iter().any(|dialog| dialog.tag() == tag && dialog.answer.is_some()) {
            return;
        }
        // Otherwise another callee was the first to answer, and that was logged.
        let is_first = call.open > 0 && !call.is_invite_answered();
        let is_logged = call.logged && is_first;
        if is_logged {
            log_outcome(now, call, status, call_id.text);
        }
        let way = if call.tracked { way(&self.policy.router, response) } else { None };
        let session_end = if call.tracked { session_end(now, response, call.offer) } else { SessionEnd::Never };
        // Without this the BYE of the call will not pass here.
        let stays = call.stays;
        let by = self.calls.responded;
        let source = by.map(Source::of).unwrap_or_default();
        let bypasses = call.tracked && stays && self.decider().bypasses(call, response);
        if bypasses && is_logged {
            let (gateway, call_id) = (by.map(tracing::field::display), shown(call_id.text));
            tracing::info!(gateway, %call_id, "answer without Record-Route: the end of the call will not be seen");
        }
        if let Some((account, names)) = self.calls.account(key) {
            let row = account.answered(now, status, by, response, names);
            self.effects.extend(row.map(Effect::Account));
        }
        let Some(salt) = self.free_salt(key) else { return };
        let transaction = self.calls.times.transaction;
        self.calls.change(key, |call| {
            call.challenged = false;
            if !stays || bypasses || !(call.tracked || is_logged) {
                return;
            }
            let cseq = call.cseq;
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
            // A BYE passed before the answer.
            if dialog.doubt.take().is_some() {
                dialog.doubt_beside(now, transaction);
            }
        });
        self.calls.has_changed(key);
    }

    fn failed_with(&mut self, now: Now, key: u64, status: u16, response: &Message<'_>) {
        let (Ok(call_id), Some(call)) = (response.call_id(), self.calls.get(key)) else { return };
        // The caller tries again with credentials.
        let is_challenged = matches!(status, 401 | 407);
        // A server on the way, to which another INVITE of the call went, may still try another target.
        let is_last = call.open == 1 && !call.is_invite_answered();
        if call.logged && is_last && !is_challenged {
            log_outcome(now, call, status, call_id.text);
        }
        if let Some((account, _)) = self.calls.account(key) {
            account.refused(now, status, cause(status, response));
        }
        // The outcome of the last INVITE counts. A call that is or was answered does not come again.
        self.calls.change(key, |call| {
            let comes_again = is_challenged || (call.challenged && call.open > 1);
            call.challenged = comes_again && !call.has_answer() && !call.kept;
        });
    }

    /// Handles the result of a renewal. Afterwards both parties are reached at their new Contacts (RFC 3261 section
    /// 12.2.1.2).
    fn hear_of_renewal(&mut self, now: Now, (key, context): (u64, u64), event: &NoticeEvent, out: &Outbox) {
        match event {
            NoticeEvent::Answered { bytes, .. } => {
                self.read_response(bytes, out, |engine, response| engine.renewed(now, key, context, response));
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
            self.calls.change(key, |call| call.set_caller_contact(&contact));
        }
        self.calls.has_changed(key);
    }

    /// Changes the dialog that this context names. `change` also gets the sender of the request.
    fn change_dialog(&mut self, key: u64, context: u64, change: impl FnOnce(&mut Dialog, Party)) {
        self.calls.change(key, |call| {
            if let Some((at, sender)) = call.dialog_at(context) {
                change(&mut call.dialogs[at], sender);
            }
        });
    }

    /// Handles the final response to a BYE. A 2xx, 481, 408 or a timeout ends the dialog (RFC 3261 sections 12.2.1.2 and 15.1.1). After any
    /// other response the session may continue.
    fn hear_of_bye(&mut self, now: Now, (key, context): (u64, u64), event: &NoticeEvent, out: &mut Outbox) {
        if self.hear_of_hang_up(now, (key, context), event, out) {
            return;
        }
        let status = match event {
            NoticeEvent::Answered { status, .. } | NoticeEvent::Exhausted { status, .. } => *status,
            // No response came.
            NoticeEvent::Abandoned => 408,
            _ => return,
        };
        match status {
            200..300 | 408 | 481 => self.end_by_bye(now, (key, context), status, out),
            _ => self.bye_refused(now, (key, context), status),
        }
    }

    /// Keeps a dialog whose BYE was refused, and asks its parties soon.
    pub(super) fn bye_refused(&mut self, now: Now, (key, context): (u64, u64), status: u16) {
        let dialog = self.calls.get(key).and_then(|call| Some((call, call.dialog_at(context)?)));
        let answered = dialog.map(|(call, (at, party))| (party, &call.dialogs[at]));
        let bye = answered.filter(|(_, dialog)| dialog.answer.is_some());
        if let Some((party, bye)) = bye.and_then(|(party, dialog)| Some((party, dialog.bye(party)?)))
            && let Some((account, names)) = self.calls.account(key)
        {
            let row = account.bye_refused(party, bye, status, names);
            self.effects.extend(row.map(Effect::Account));
        }
        self.change_dialog(key, context, |dialog, party| {
            dialog.end_bye(party);
            dialog.doubt_refusal(now);
        });
        self.calls.has_changed(key);
    }

    /// Ends a dialog by a BYE. If the peer has not answered, the server sends a BYE of its own: the party's BYE may have been lost, for example
    /// as a datagram that was too long.
    fn end_by_bye(&mut self, now: Now, (key, context): (u64, u64), status: u16, out: &mut Outbox) {
        let Some(call) = self.calls.get(key) else { return };
        let Some((at, party)) = call.dialog_at(context) else { return };
        let dialog = &call.dialogs[at];
        let bye = dialog.bye(party).unwrap_or_else(|| Bye { at: moment(now), cause: NORMAL, from_elsewhere: false });
        let salt = dialog.salt;
        if status == 408 && dialog.answer.is_some() {
            // The peer may have continued until now.
            let bye = Bye { at: moment(now), ..bye };
            if dialog.ending().is_none() {
                self.end_dialog(now, (key, salt), Ending::by_party(now, party, bye), out);
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
            // The caller may get the 2xx behind the BYE, and talk.
            self.change_dialog(key, context, |dialog, party| {
                dialog.end_bye(party);
                dialog.doubt_refusal(now);
            });
            return self.calls.has_changed(key);
        }
        if call.chose_tag && dialog.answer.is_some() {
            // The BYE may be of another dialog with the same tags, and another callee may have answered this call.
            return self.end_dialog(now, (key, salt), Ending::after_bye(now, party, bye, status), out);
        }
        if bye.from_elsewhere && dialog.answer.is_some() {
            return self.end_dialog(now, (key, salt), Ending::in_name_of(now, party, bye, status), out);
        }
        if dialog.logged {
            log_ended(bye.at, call, party.text(), dialog.answer, call.call_id());
        }
        self.decider().count_ended(bye.at, dialog.answer);
        let is_answered = dialog.answer.is_some();
        if is_answered && let Some((account, names)) = self.calls.account(key) {
            let row = account.bye_ended(party, bye, status, names);
            self.effects.extend(row.map(Effect::Account));
        }
        self.remove_dialog(now, (key, salt));
    }
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
