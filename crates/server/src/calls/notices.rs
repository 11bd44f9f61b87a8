//! What the proxy tells of the requests of calls.

use super::dialog::{CallAnswer, Dialog, Party};
use super::within::{contact_of, way};
use super::{Call, Purpose, moment};
use crate::account_text::cause;
use crate::accounting::Account;
use crate::call_limits::Claim;
use crate::call_log::log_outcome;
use crate::decision::Question;
use crate::engine::{Effect, Engine};
use std::num::NonZeroU16;
use std::ops::Range;
use strowger_core::proxy::{Notice, NoticeEvent};
use strowger_core::transaction::ServerId;
use strowger_core::{Now, Outbox, Round};
use strowger_message::header::SessionExpires;
use strowger_message::{Index, Limits, Message, Name};

/// Early dialogs of one call, at most.
const MOST_EARLY: usize = 64;

impl Engine {
    /// Takes what the proxy has told since the last time; the responses that it names stand in the outbox.
    pub(crate) fn hear_notices(&mut self, now: Now, out: &mut Outbox) {
        self.set_targets_aside(now);
        // What is decided of one may lead to others.
        while !self.proxy.notices().is_empty() {
            self.take_notices(now, out);
        }
        if !self.calls.ended.is_empty() {
            self.close_accounts();
        }
    }

    fn take_notices(&mut self, now: Now, out: &mut Outbox) {
        let mut notices = std::mem::take(self.proxy.notices());
        if let Some(heard) = &mut self.heard {
            heard.extend_from_slice(&notices);
        }
        for notice in notices.drain(..) {
            if let NoticeEvent::Rang { after, .. } | NoticeEvent::Answered { after, .. } = &notice.event
                && let Some(milliseconds) = after
                && super::begins_call(notice.context)
            {
                self.shared.durations[self.number].call_setup.observe(u64::from(*milliseconds) * 1_000);
            }
            self.hear(now, &notice, out);
        }
        notices.append(self.proxy.notices());
        *self.proxy.notices() = notices;
    }

    fn hear(&mut self, now: Now, notice: &Notice, out: &mut Outbox) {
        let key = self.calls.key_of(notice.context);
        if let NoticeEvent::Failing { server, plan: Some(claims), .. } = &notice.event {
            return self.consider(now, key, *server, claims, out);
        }
        if let NoticeEvent::Choosing { server, before, next } = &notice.event {
            return self.choose(now, key, *server, [before, next], out);
        }
        let Some(key) = key else { return };
        match Purpose::of(notice.context) {
            Some(Purpose::Invite) => self.hear_of_invite(now, key, &notice.event, out),
            Some(Purpose::Renewal) => self.hear_of_renewal(now, key, &notice.event, out),
            Some(Purpose::Bye) => self.hear_of_bye(key, &notice.event),
            None => (),
        }
    }

    /// A failure of the rules is for what has become of an INVITE. It leads that on unless one of its limits is full.
    /// `key`: of its call, if that is there.
    #[inline(never)]
    pub(crate) fn consider(&mut self, now: Now, key: Option<u64>, server: ServerId, claims: &[u8], out: &mut Outbox) {
        let is_counted = key.zip(Question::read(claims)).is_some_and(|(key, Question { claims, places })| {
            let call = self.calls.get(key);
            let counts = |claim: &Claim| {
                let is_own = claims.iter().any(|other| other.counted == claim.counted);
                is_own || call.is_some_and(|call| call.counts_under(claim))
            };
            self.has_room_at_any(&places, &[], counts) && self.calls.count(key, &claims)
        });
        self.say(now, server, is_counted, out);
    }

    /// A place that rules lead an INVITE to has its turn: its call counts under something there, or did where it was led before.
    fn choose(&mut self, now: Now, key: Option<u64>, server: ServerId, places: [&[u8]; 2], out: &mut Outbox) {
        let [before, next] = places.map(Claim::read_all);
        let is_chosen = next.is_some_and(|next| self.calls.lead_on(key, &before.unwrap_or_default(), &next));
        self.say(now, server, is_chosen, out);
    }

    /// What the proxy has asked is done, or not.
    fn say(&mut self, now: Now, server: ServerId, is_so: bool, out: &mut Outbox) {
        let round = &mut Round { now, tx: &mut self.transactions, out };
        if is_so {
            self.proxy.carry_out(round, server);
        } else {
            self.proxy.pass(round, server);
        }
    }

    /// What an account hears of an INVITE of its call, before the table does.
    fn tell_account(&mut self, now: Now, key: u64, event: &NoticeEvent) {
        let Some(account) = self.calls.account(key) else { return };
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
            // No other callee answers now.
            NoticeEvent::Ended => {
                self.calls.change(key, Call::end_early);
            }
            // What is asked was answered before.
            NoticeEvent::Failing { .. }
            | NoticeEvent::Choosing { .. }
            | NoticeEvent::Refused { .. }
            | NoticeEvent::TimedOut { .. } => (),
        }
    }

    /// The response that a notice names.
    fn read_response(&mut self, range: &Range<usize>, out: &Outbox, read: impl FnOnce(&mut Self, &Message<'_>)) {
        let Some(bytes) = out.bytes.get(range.clone()) else { return };
        let mut index: Index = std::mem::take(&mut self.calls.index);
        if index.parse(bytes, &Limits::UNLIMITED).is_ok() {
            read(self, &Message::new(bytes, &index));
        }
        self.calls.index = index;
    }

    fn rang(&mut self, key: u64, branch: u32, response: &Message<'_>) {
        let Some(tag) = response.to().ok().and_then(|to| to.tag) else { return };
        let tag = &*self.kept_tag(tag);
        if self.calls.get(key).is_none_or(|call| call.dialogs.iter().any(|dialog| dialog.tag() == tag)) {
            return;
        }
        self.calls.change(key, |call| {
            if call.open > 0 && call.dialogs.len() < MOST_EARLY {
                call.dialogs.push(Dialog::early(tag, call.cseq, branch));
            }
        });
    }

    fn answered_with(&mut self, now: Now, key: u64, status: u16, response: &Message<'_>) {
        let (Ok(call_id), Ok(to), Some(call)) = (response.call_id(), response.to(), self.calls.get(key)) else {
            return;
        };
        let tag = &*self.kept_tag(to.tag.unwrap_or_default());
        if call.dialogs.iter().any(|dialog| dialog.tag() == tag && dialog.answer.is_some()) {
            return;
        }
        // Another one of its callees was the first to answer: that was logged.
        let is_first = call.open > 0 && !call.is_invite_answered();
        let is_logged = call.logged && is_first;
        if is_logged {
            log_outcome(now, call, status, call_id.text);
        }
        let way = if call.tracked { way(&self.policy.router, response) } else { None };
        let (session_end, call_is_tracked) = (session_end(now, response), call.tracked);
        // Otherwise its BYE will not come by.
        let stays = call.stays;
        let by = self.calls.responded;
        if let Some(account) = self.calls.account(key) {
            let row = account.answered(now, status, by, response);
            self.effects.extend(row.map(Effect::Account));
        }
        self.calls.change(key, |call| {
            call.challenged = false;
            if !stays || !(call.tracked || is_logged) {
                return;
            }
            let cseq = call.cseq;
            if call.dialog(tag).is_none() {
                call.dialogs.push(Dialog::new(tag, cseq));
            }
            let Some(dialog) = call.dialog(tag) else { return };
            let answer = NonZeroU16::new(status).map(|status| CallAnswer { at: moment(now), status });
            (dialog.answer, dialog.logged) = (answer, is_logged);
            if let Some((contact, routes)) = way {
                dialog.set_way(contact, &routes);
            }
            dialog.set_session_end(session_end.filter(|_| call_is_tracked));
        });
        self.calls.has_changed(key);
    }

    fn failed_with(&mut self, now: Now, key: u64, status: u16, response: &Message<'_>) {
        let (Ok(call_id), Some(call)) = (response.call_id(), self.calls.get(key)) else { return };
        // The caller tries again with credentials.
        let is_challenged = matches!(status, 401 | 407);
        // A server on the way, to which another INVITE of the call went, may try another target yet.
        let is_last = call.open == 1 && !call.is_invite_answered();
        if call.logged && is_last && !is_challenged {
            log_outcome(now, call, status, call_id.text);
        }
        if let Some(account) = self.calls.account(key) {
            account.refused(now, status, cause(status, response));
        }
        // What the last of its INVITEs came to counts. Of one that is or was answered nothing comes again.
        self.calls.change(key, |call| {
            let comes_again = is_challenged || (call.challenged && call.open > 1);
            call.challenged = comes_again && !call.has_answer() && !call.kept;
        });
    }

    /// A dialog was renewed, or not: both parties are reached where they say now (RFC 3261 section 12.2.1.2).
    fn hear_of_renewal(&mut self, now: Now, key: u64, event: &NoticeEvent, out: &Outbox) {
        match event {
            NoticeEvent::Answered { bytes, .. } => {
                self.read_response(bytes, out, |engine, response| engine.renewed(now, key, response));
            }
            NoticeEvent::Exhausted { bytes, .. } => {
                self.read_response(bytes, out, |engine, response| {
                    engine.change_dialog(key, response, |dialog, _| drop(dialog.end_renewal()));
                });
            }
            _ => (),
        }
    }

    fn renewed(&mut self, now: Now, key: u64, response: &Message<'_>) {
        let (contact, session_end) = (contact_of(response), session_end(now, response));
        let mut of_caller = None;
        self.change_dialog(key, response, |dialog, sender| {
            dialog.set_session_end(session_end);
            let renewal = dialog.end_renewal().filter(|(party, _)| *party == sender);
            let said = renewal.as_ref().map(|(_, contact)| &contact[..]);
            let (caller, callee) = match sender {
                Party::Caller => (said, contact),
                Party::Callee => (contact, said),
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

    /// Changes the dialog of this response to a request of the party that it names.
    fn change_dialog(&mut self, key: u64, response: &Message<'_>, change: impl FnOnce(&mut Dialog, Party)) {
        let (Ok(from), Ok(to)) = (response.from(), response.to()) else { return };
        let [from, to] = [from, to].map(|party| self.kept_tag(party.tag.unwrap_or_default()));
        self.calls.change(key, |call| {
            let (sender, tag) = call.sender(&from, &to);
            if let Some(dialog) = call.dialog(tag) {
                change(dialog, sender);
            }
        });
    }

    /// Any final response ends the dialog, 481 and 408 too (RFC 3261 section 15.1.1); one who is to show a password tries again.
    fn hear_of_bye(&mut self, key: u64, event: &NoticeEvent) {
        match event {
            NoticeEvent::Exhausted { status: 401 | 407, .. } => {
                self.calls.account(key).into_iter().for_each(Account::bye_is_challenged);
                self.calls.change(key, |call| call.dialogs.iter_mut().for_each(|dialog| dialog.ending = None));
            }
            NoticeEvent::Answered { .. } | NoticeEvent::Exhausted { .. } | NoticeEvent::Abandoned => {
                let status = match event {
                    NoticeEvent::Answered { status, .. } | NoticeEvent::Exhausted { status, .. } => *status,
                    // None came.
                    _ => 408,
                };
                let row = self.calls.account(key).and_then(|account| account.bye_ended(status));
                self.effects.extend(row.map(Effect::Account));
                self.calls.change(key, |call| call.dialogs.retain(|dialog| dialog.ending.is_none()));
                self.calls.has_changed(key);
            }
            _ => (),
        }
    }
}

/// When the session ends that this 2xx agrees on, if it has a timer (RFC 4028 section 8.3).
fn session_end(now: Now, response: &Message<'_>) -> Option<i64> {
    let timer = SessionExpires::parse(response.header(Name::SessionExpires)?).ok()?;
    Some(moment(now).saturating_add(i64::from(timer.seconds) * 1_000))
}
