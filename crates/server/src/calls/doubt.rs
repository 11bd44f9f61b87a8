//! Dialogs that may have ended unseen: the server asks both parties by an OPTIONS within the dialog (RFC 3261 sections 11.2 and 12.2.2).
//!
//! Two things raise a doubt: the process began after the call (the end may have been lost with the process before), and a BYE was refused
//! (its sender has hung up, or has not). A party that answers 481 or 408, or lets the transaction time out, has lost the dialog (RFC 3261
//! section 12.2.1.2): then the server ends it. Any other answer confirms it. A party that cannot be reached at all, such as a telephone whose connection
//! ended with the process before, is asked again; when no party has confirmed a dialog for [`PATIENCE`], it ends too.
//!
//! The OPTIONS has the last CSeq of the party in whose name it goes: one more would make the next request of that party look old.

use super::dialog::{Dialog, Party};
use super::{Call, Purpose, moment};
use crate::accounting::Ender;
use crate::engine::Engine;
use serde::{Deserialize, Serialize};
use strowger_core::proxy::NoticeEvent;
use strowger_core::{Now, Outbox};

/// Time from the first question to the end of an unconfirmed dialog, in milliseconds.
pub(super) const PATIENCE: u64 = 60_000;

/// Time between two questions to an unreachable party, in milliseconds.
const AGAIN: u64 = 15_000;

/// Time from the refusal of a BYE to the first question, in milliseconds. The sender may send a correct BYE meanwhile.
const AFTER_BYE: u64 = 2_000;

/// Time from the start of a process to its first question, in milliseconds. Telephones reconnect meanwhile.
const AFTER_START: u64 = 1_000;

/// The questions of the calls of another process are spread over this time, so that the last transaction times out (64*T1) within a minute.
const LONGEST_SPREAD: u64 = 25_000;

/// Time between the questions of two calls, in milliseconds, up to [`LONGEST_SPREAD`] for all.
const SPREAD: u64 = 2;

/// An open question about a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Doubt {
    /// Moment of the next question, on the clock of [`Call::began`].
    pub(super) next: i64,
    /// When it ends.
    until: i64,
    /// Parties that have confirmed the dialog, in the order of [`Party`].
    confirmed: [bool; 2],
    /// Questions so far. The branches of their transactions differ by it.
    asked: u16,
}

impl Doubt {
    fn at(moment: i64) -> Box<Self> {
        let until = moment.saturating_add_unsigned(PATIENCE);
        Box::new(Self { next: moment, until, confirmed: [false; 2], asked: 0 })
    }

    pub(super) fn change_moments(&mut self, change: impl Fn(&mut i64)) {
        change(&mut self.next);
        change(&mut self.until);
    }
}

impl Dialog {
    /// A BYE was refused, and the dialog stands as far as is known.
    pub(super) fn doubt_refusal(&mut self, now: Now) {
        if self.answer.is_some() {
            self.doubt.get_or_insert_with(|| Doubt::at(moment(now).saturating_add_unsigned(AFTER_BYE)));
        }
    }
}

impl Call {
    /// Another process had this call, the one at this place among so many.
    pub(super) fn doubt_all(&mut self, now: Now, place: usize, count: usize) {
        let spread = (count as u64 * SPREAD).min(LONGEST_SPREAD);
        let delay = AFTER_START + spread * place as u64 / (count as u64).max(1);
        let at = moment(now).saturating_add_unsigned(delay);
        self.dialogs.iter_mut().for_each(|dialog| dialog.doubt = Some(Doubt::at(at)));
    }
}

impl Engine {
    /// Asks the parties of the due dialogs of a call, and ends the dialogs that no party has confirmed in time.
    pub(super) fn ask_parties(&mut self, now: Now, key: u64, out: &mut Outbox) {
        let is_due = |dialog: &Dialog| dialog.doubt.as_ref().is_some_and(|doubt| doubt.next <= moment(now));
        let Some(call) = self.calls.get(key).filter(|call| call.dialogs.iter().any(is_due)) else { return };
        let (mut questions, mut unasked) = (Vec::new(), Vec::new());
        let due = call.dialogs.iter().filter(|dialog| is_due(dialog));
        for (dialog, doubt) in due.filter_map(|dialog| Some((dialog, dialog.doubt.as_ref()?))) {
            let is_open = |party: &Party| doubt.until > moment(now) && !doubt.confirmed[*party as usize];
            for asked in Party::BOTH.into_iter().filter(is_open) {
                let mut text = Vec::new();
                let context = call.dialog_context(dialog, Purpose::Question, asked);
                if self.write_question(call, dialog, asked, doubt.asked, &mut text) {
                    questions.push((context, text));
                } else {
                    unasked.push(context);
                }
            }
        }
        // Tags or URIs too long to keep allow no question, so the party counts as one that has confirmed.
        self.calls.change(key, |call| {
            for context in &unasked {
                let Some((at, party)) = call.dialog_at(*context) else { continue };
                call.dialogs[at].doubt.iter_mut().for_each(|doubt| doubt.confirmed[party as usize] = true);
            }
        });
        let is_over = |doubt: &Doubt| doubt.until <= moment(now);
        let is_lost = |dialog: &Dialog| {
            let doubt = dialog.doubt.as_ref().filter(|doubt| is_over(doubt));
            doubt.is_some_and(|doubt| doubt.confirmed == [false; 2])
        };
        self.end_dialogs(now, key, (Ender::Lost, moment(now)), out, is_lost);
        self.calls.change(key, |call| {
            for dialog in &mut call.dialogs {
                dialog.doubt.take_if(|doubt| is_over(doubt));
                for doubt in dialog.doubt.iter_mut().filter(|doubt| doubt.next <= moment(now)) {
                    doubt.next = moment(now).saturating_add_unsigned(AGAIN).min(doubt.until);
                    doubt.asked += 1;
                }
            }
        });
        for (context, question) in questions {
            self.send_own(now, &question, context, out);
        }
    }

    /// Handles the result of a question.
    pub(super) fn hear_of_question(
        &mut self,
        now: Now,
        (key, context): (u64, u64),
        event: &NoticeEvent,
        out: &mut Outbox,
    ) {
        let is_lost = match event {
            NoticeEvent::Answered { .. } => false,
            NoticeEvent::Exhausted { status, .. } => match self.calls.responded {
                Some(_) => matches!(status, 408 | 481),
                // It did not leave.
                None => return,
            },
            NoticeEvent::Abandoned => true,
            _ => return,
        };
        let Some((at, party)) = self.calls.get(key).and_then(|call| call.dialog_at(context)) else { return };
        if is_lost {
            let salt = self.calls.get(key).map(|call| call.dialogs[at].salt);
            return self.end_dialogs(now, key, (Ender::Lost, moment(now)), out, |dialog| Some(dialog.salt) == salt);
        }
        self.calls.change(key, |call| {
            call.dialogs[at].doubt.take_if(|doubt| {
                doubt.confirmed[party as usize] = true;
                doubt.confirmed == [true; 2]
            })
        });
    }
}
