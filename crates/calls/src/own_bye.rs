//! BYEs of this server to the parties of a dialog that it ends, and their results ([`Ending`]).

use crate::bye::Bye;
use crate::call::{Call, LAST_CSEQ};
use crate::call_log::log_ended;
use crate::context::Purpose;
use crate::dialog::{CallAnswer, Dialog};
use crate::dialog_end::{Ending, MOST_BYES};
use crate::effect::{CallEffect, DialogId};
use crate::environment::Environment;
use crate::keys::CallSeed;
use crate::legs::Legs;
use crate::own_request::own_bye;
use crate::table::CallTable;
use crate::times::moment;
use smallvec::SmallVec;
use strowger_core::Now;
use strowger_core::notice::{NoticeEvent, Party};

/// Time from a refusal to the next BYE, in milliseconds, by the number of BYEs already sent.
const AGAIN: [u64; MOST_BYES as usize] = [500, 2_000, 8_000, 0];

/// Additional time after the time-out of a transaction before a BYE without any notice is sent again, in milliseconds.
/// If there was no room, or while its next hop is looked up, a BYE has no client transaction.
const SLACK: u64 = 2_000;

impl CallTable {
    /// Ends a dialog of a call. The new salt of the dialog distinguishes the answers to these BYEs from answers to
    /// earlier requests.
    pub(crate) fn end_dialog(&mut self, env: &mut Environment<'_>, (key, salt): (u64, u16), ending: Box<Ending>) {
        let Some(fresh) = self.free_salt(env, key) else { return };
        self.change(key, |call| {
            if let Some(dialog) = call.dialogs.iter_mut().find(|dialog| dialog.salt == salt) {
                dialog.begin_ending(fresh, ending);
            }
        });
        self.has_changed(key);
        self.send_byes(env, (key, fresh));
    }

    pub(crate) fn free_salt(&self, env: &mut Environment<'_>, key: u64) -> Option<u16> {
        self.get(key).map(|call| call.free_salt(|| env.entropy.u64()))
    }

    /// Sends the due BYEs of the dialogs of a call that this server ends.
    pub(crate) fn send_due_byes(&mut self, env: &Environment<'_>, key: u64) {
        let now = env.now;
        let Some(call) = self.get(key) else { return };
        let is_due = |dialog: &&Dialog| dialog.ending().and_then(Ending::next).is_some_and(|next| next <= moment(now));
        let due: SmallVec<[u16; 4]> = call.dialogs.iter().filter(is_due).map(|dialog| dialog.salt).collect();
        due.into_iter().for_each(|salt| self.send_byes(env, (key, salt)));
    }

    /// Sends the due BYEs of a dialog that this server ends, and closes it once both parties have ended it.
    fn send_byes(&mut self, env: &Environment<'_>, (key, salt): (u64, u16)) {
        let now = env.now;
        let timeout = self.times.transaction + SLACK;
        let seed = CallSeed(self.settings.seed);
        let first = self.effects.len();
        for party in Party::BOTH {
            let Some(call) = self.get(key) else { return };
            let Some(dialog) = call.dialogs.iter().find(|dialog| dialog.salt == salt) else { return };
            let Some(end) = dialog.ending().map(|ending| ending.parties[party as usize]) else { return };
            let is_first = end.byes == 0;
            if (end.has_ended && !is_first) || end.next > moment(now) {
                continue;
            }
            let from = party.other();
            // The number is above each CSeq that this server has forwarded.
            let least = if is_first { 0 } else { LAST_CSEQ };
            let number = dialog.next_cseq(from).max(least + 1);
            // Without this context the BYE would be handled as a BYE of the other party, and its response would end the
            // dialog.
            let context = call.dialog_context(dialog, Purpose::Question, party);
            let may_send = end.byes < MOST_BYES;
            let bye = if may_send { own_bye(seed, call, dialog, (party, context), number) } else { None };
            let is_sent = bye.is_some();
            self.change(key, |call| {
                let Some(dialog) = call.dialogs.iter_mut().find(|dialog| dialog.salt == salt) else { return };
                if is_sent {
                    dialog.note_cseq(from, number);
                }
                let Some(end) = dialog.ending_mut().map(|ending| &mut ending.parties[party as usize]) else { return };
                end.byes = end.byes.saturating_add(1);
                end.next = moment(now).saturating_add_unsigned(timeout);
                end.has_ended |= !is_sent;
            });
            self.effects.extend(bye);
        }
        // While the BYEs pass the stages, the dialog is in the table.
        if self.effects.len() > first {
            self.effects.push(CallEffect::HasSent(DialogId { call: key, salt }));
        } else {
            self.close_dialog(now, (key, salt));
        }
    }

    /// Notes that the requests of a [`CallEffect::HasSent`] have been sent.
    pub fn has_sent(&mut self, now: Now, dialog: DialogId) {
        self.close_dialog(now, (dialog.call, dialog.salt));
    }

    /// Notes the end of an answered dialog at this moment.
    pub(crate) fn count_ended(&mut self, at: i64, answer: Option<CallAnswer>) {
        let lasted = answer.map(|answer| at.saturating_sub(answer.at).max(0).cast_unsigned());
        self.effects.extend(lasted.map(|lasted| CallEffect::DialogEnded { lasted }));
    }

    /// Removes a dialog from its call once both parties have ended it.
    pub(crate) fn close_dialog(&mut self, now: Now, (key, salt): (u64, u16)) {
        let Some(call) = self.get(key) else { return };
        let Some(dialog) = call.dialogs.iter().find(|dialog| dialog.salt == salt) else { return };
        let Some(ending) = dialog.ending().filter(|ending| ending.is_over()) else { return };
        let &Ending { by, at, cause, status, .. } = ending;
        let answer = dialog.answer;
        if dialog.logged {
            log_ended(at, call, by.text(), answer, call.call_id());
        }
        self.count_ended(at, answer);
        if let Some((account, names)) = self.account(key) {
            let row = match by.party() {
                Some(party) => account.bye_ended(party, Bye { at, cause, from_elsewhere: false }, status, names),
                None => account.dialog_ended(at, by, names),
            };
            self.effects.extend(row.map(CallEffect::Account));
        }
        self.remove_dialog(now, (key, salt));
    }

    /// Removes a dialog that has ended from its call, and doubts the dialog whose local and remote tags are swapped,
    /// because the parties cannot distinguish the two dialogs.
    pub(crate) fn remove_dialog(&mut self, now: Now, (key, salt): (u64, u16)) {
        let Some(call) = self.get(key) else { return };
        let Some(dialog) = call.dialogs.iter().find(|dialog| dialog.salt == salt) else { return };
        let hash = self.key_of_call(b"", dialog.tag());
        let mirrored = self.key_of_call(call.call_id(), dialog.tag());
        if call.tracked && self.get(mirrored).is_some_and(|other| other.tracked) {
            let caller_tag = call.caller_tag().to_vec();
            let doubt = |other: &mut Call| other.dialog(&caller_tag).map(|dialog| dialog.doubt_refusal(now)).is_some();
            if self.change(mirrored, doubt) == Some(true) {
                self.has_changed(mirrored);
            }
        }
        self.change(key, |call| call.remove_dialog(salt, hash));
        self.has_changed(key);
    }

    /// Handles the result of a BYE of this server to a party.
    pub(crate) fn on_own_bye(&mut self, env: &Environment<'_>, (key, context): (u64, u64), event: &NoticeEvent) {
        let now = env.now;
        let is_peer = self.responded.is_some();
        let (status, is_confirmed) = match event {
            NoticeEvent::Answered { status, .. } => (*status, true),
            NoticeEvent::Exhausted { status, .. } => (*status, false),
            NoticeEvent::Abandoned => (408, false),
            _ => return,
        };
        let has_ended = is_confirmed || matches!(status, 408 | 481);
        let Some((at, party)) = self.get(key).and_then(|call| call.dialog_at(context)) else { return };
        let mut salt = 0;
        let mut was_over = false;
        self.change(key, |call| {
            salt = call.dialogs[at].salt;
            let is_anchored = call.legs == Legs::Anchored;
            let Some(ending) = call.dialogs[at].ending_mut() else { return };
            let is_left = is_anchored && ending.by.party().is_some();
            let end = &mut ending.parties[party as usize];
            was_over = end.has_ended;
            if was_over {
                return;
            }
            end.has_ended = has_ended;
            if !has_ended {
                let wait = AGAIN[usize::from(end.byes.clamp(1, MOST_BYES)) - 1];
                end.next = moment(now).saturating_add_unsigned(wait);
                end.has_ended |= end.byes >= MOST_BYES;
            }
            // A party that has ended an anchored call has ended it for both legs.
            if is_left {
                return;
            }
            // A party that refuses a BYE, or has refused one before, may have continued the session until now.
            if is_confirmed || (has_ended && end.byes > 1) || (is_peer && !has_ended) {
                ending.at = ending.at.max(moment(now));
            }
        });
        if !has_ended
            && !was_over
            && is_peer
            && let Some((account, names)) = self.account(key)
        {
            let row = account.own_bye_refused(now, status, names);
            self.effects.extend(row.map(CallEffect::Account));
        }
        self.has_changed(key);
        self.send_byes(env, (key, salt));
    }
}
