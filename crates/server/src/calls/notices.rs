//! What the proxy tells of the requests of calls.

use super::dialog::{CallAnswer, Dialog, Party};
use super::within::{contact_of, way};
use super::{PURPOSES, Purpose, moment};
use crate::accounting::{Account, cause};
use crate::call_log::log_outcome;
use crate::engine::{Effect, Engine};
use std::num::NonZeroU16;
use std::ops::Range;
use strowger_core::proxy::{Notice, NoticeEvent};
use strowger_core::{Now, Outbox};
use strowger_message::header::SessionExpires;
use strowger_message::{Index, Message, Name};

/// Early dialogs of one call, at most.
const MOST_EARLY: usize = 64;

impl Engine {
    /// Takes what the proxy has told since the last time; the responses that it names stand in the outbox.
    pub(crate) fn hear_notices(&mut self, now: Now, out: &Outbox) {
        self.set_targets_aside(now);
        if !self.proxy.notices().is_empty() {
            self.take_notices(now, out);
        }
        if !self.calls.ended.is_empty() {
            self.close_accounts();
        }
    }

    fn take_notices(&mut self, now: Now, out: &Outbox) {
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
        *self.proxy.notices() = notices;
    }

    fn hear(&mut self, now: Now, notice: &Notice, out: &Outbox) {
        let key = notice.context & !PURPOSES;
        match Purpose::of(notice.context) {
            Some(Purpose::Invite) => self.hear_of_invite(now, key, &notice.event, out),
            Some(Purpose::Renewal) => self.hear_of_renewal(now, key, &notice.event, out),
            Some(Purpose::Bye) => self.hear_of_bye(key, &notice.event),
            None => (),
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

    /// An INVITE of a call has its final response.
    fn conclude_invite(&mut self, key: u64) {
        self.calls.change(key, |call| {
            call.account.iter_mut().for_each(|account| account.open = account.open.saturating_sub(1));
        });
    }

    fn hear_of_invite(&mut self, now: Now, key: u64, event: &NoticeEvent, out: &Outbox) {
        self.tell_account(now, key, event);
        match event {
            NoticeEvent::Rang { bytes, .. } => {
                if self.calls.get(key).is_some_and(|call| call.tracked) {
                    self.read_response(bytes, out, |engine, response| engine.rang(key, response));
                }
            }
            NoticeEvent::Answered { status, first, bytes, .. } => {
                self.read_response(bytes, out, |engine, response| engine.answered_with(now, key, *status, response));
                if *first {
                    self.conclude_invite(key);
                }
            }
            NoticeEvent::Exhausted { status, bytes } => {
                self.read_response(bytes, out, |engine, response| engine.failed_with(now, key, *status, response));
                self.conclude_invite(key);
            }
            NoticeEvent::Cancelled => {
                self.calls.change(key, |call| call.cancelled = true);
            }
            NoticeEvent::Ended => {
                self.calls.change(key, |call| {
                    call.live = call.live.saturating_sub(1);
                    // No other callee answers now; one whose INVITE was not answered at all has ended.
                    if call.live == 0 {
                        call.account.iter_mut().for_each(|account| account.open = 0);
                        call.inviting = false;
                        call.dialogs.retain(|dialog| dialog.answer.is_some());
                    }
                });
            }
            // No plan asks.
            NoticeEvent::Failing { .. } | NoticeEvent::Refused { .. } | NoticeEvent::TimedOut { .. } => (),
        }
    }

    /// The response that a notice names.
    fn read_response(&mut self, range: &Range<usize>, out: &Outbox, read: impl FnOnce(&mut Self, &Message<'_>)) {
        let Some(bytes) = out.bytes.get(range.clone()) else { return };
        let mut index: Index = std::mem::take(&mut self.calls.index);
        if index.parse(bytes, &self.policy.limits).is_ok() {
            read(self, &Message::new(bytes, &index));
        }
        self.calls.index = index;
    }

    fn rang(&mut self, key: u64, response: &Message<'_>) {
        let Some(tag) = response.to().ok().and_then(|to| to.tag) else { return };
        let tag = &*self.kept_tag(tag);
        if self.calls.get(key).is_none_or(|call| call.dialogs.iter().any(|dialog| dialog.tag() == tag)) {
            return;
        }
        self.calls.change(key, |call| {
            if call.inviting && call.dialogs.len() < MOST_EARLY {
                call.dialogs.push(Dialog::new(tag, call.cseq));
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
        let is_first = call.inviting;
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
            call.inviting = false;
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
        if call.logged && call.inviting && !is_challenged {
            log_outcome(now, call, status, call_id.text);
        }
        if let Some(account) = self.calls.account(key) {
            account.refused(now, status, cause(status, response));
        }
        self.calls.change(key, |call| {
            call.challenged |= is_challenged;
            call.inviting = false;
            call.dialogs.retain(|dialog| dialog.answer.is_some());
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
            NoticeEvent::Answered { .. } | NoticeEvent::Exhausted { .. } | NoticeEvent::Ended => {
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
