//! End of a dialog by this server: a BYE to each party, and the responses.
//!
//! The dialog stays in the table until each party has ended it: a 2xx or 481 to the BYE, a 408, or no answer until the transaction times out
//! (RFC 3261 sections 12.2.1.2 and 15.1.1). After any other answer the party gets another BYE with a higher CSeq, [`MOST_BYES`] in all.
//! Meanwhile the call counts under its limits, and nothing passes in the dialog but a BYE.

use crate::account::Ender;
use crate::call::{Call, LAST_CSEQ, Legs, moment};
use crate::call_log::log_ended;
use crate::context::Purpose;
use crate::dialog::{Bye, CallAnswer, Dialog};
use crate::effect::{CallEffect, DialogId};
use crate::environment::Environment;
use crate::table::CallTable;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use strowger_core::Now;
use strowger_core::notice::{NoticeEvent, Party};

/// Maximum number of BYEs to one party.
const MOST_BYES: u8 = 4;

/// Time from a refusal to the next BYE, in milliseconds, by the number of BYEs so far.
const AGAIN: [u64; MOST_BYES as usize] = [500, 2_000, 8_000, 0];

/// Time in milliseconds, after the timeout of a transaction, until a BYE without any notice is sent again. A BYE has no client transaction while its
/// next hop is looked up, or if there is no room for one.
const SLACK: u64 = 2_000;

/// Dialog that this server ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Ending {
    by: Ender,
    /// Moment of the end: when this server ended the dialog, or of the last 2xx to its BYEs.
    at: i64,
    /// Q.850 cause and status of the BYE. Only for the end by a party.
    cause: u16,
    status: u16,
    /// State of each party, in the order of [`Party`].
    parties: [PartyEnd; 2],
}

/// End of the dialog at one party.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
struct PartyEnd {
    has_ended: bool,
    /// BYEs sent so far.
    byes: u8,
    /// Moment of the next BYE.
    next: i64,
}

impl Ending {
    /// Creates the end of a dialog. `lost`: parties that are known to have lost the dialog. They get one BYE, and
    /// nothing waits for the response.
    pub(crate) fn new(now: Now, by: Ender, at: i64, lost: [bool; 2]) -> Box<Self> {
        let party = |has_ended| PartyEnd { has_ended, byes: 0, next: moment(now) };
        Box::new(Self { by, at, cause: 0, status: 0, parties: lost.map(party) })
    }

    /// Creates the end by a BYE of this party, with this status. The server sends one to each party.
    pub(crate) fn after_bye(now: Now, party: Party, bye: Bye, status: u16) -> Box<Self> {
        let mut ending = Self::new(now, party.into(), bye.at, [false; 2]);
        (ending.cause, ending.status) = (bye.cause, status);
        ending
    }

    /// Creates the end by a BYE of this party that its peer has not answered. The server sends one to the peer, and one
    /// to each party if the source of the BYE is foreign.
    pub(crate) fn by_party(now: Now, party: Party, bye: Bye) -> Box<Self> {
        let mut ending = Self::after_bye(now, party, bye, 408);
        if !bye.from_elsewhere {
            ending.spare(party);
        }
        ending
    }

    /// Creates the end by a BYE in the name of this party from another address, with this status of the peer. The
    /// server sends one to the party.
    pub(crate) fn in_name_of(now: Now, party: Party, bye: Bye, status: u16) -> Box<Self> {
        let mut ending = Self::after_bye(now, party, bye, status);
        ending.spare(party.other());
        ending
    }

    /// Creates the end by a BYE of this party that a role of this server has answered. The server sends one to the peer.
    pub(crate) fn by_answered_bye(now: Now, party: Party, bye: Bye) -> Box<Self> {
        let mut ending = Self::after_bye(now, party, bye, 200);
        ending.spare(party);
        ending
    }

    /// Sends no BYE to a party that has ended the dialog itself.
    pub(crate) fn spare(&mut self, party: Party) {
        let party = &mut self.parties[party as usize];
        (party.has_ended, party.byes) = (true, MOST_BYES);
    }

    pub(crate) fn change_moments(&mut self, change: impl Fn(&mut i64)) {
        change(&mut self.at);
        self.parties.iter_mut().for_each(|party| change(&mut party.next));
    }

    /// Returns the moment of the next BYE.
    pub(crate) fn next(&self) -> Option<i64> {
        self.parties.iter().filter(|party| !party.has_ended).map(|party| party.next).min()
    }

    /// Resumes the end in another process, from this moment on. A party that has refused a BYE may have continued: the
    /// record lasts until its last response.
    pub(crate) fn resume(&mut self, at: i64) {
        for party in self.parties.iter_mut().filter(|party| !party.has_ended) {
            (party.byes, party.next) = (u8::from(party.byes > 1), at);
        }
    }

    /// Notes that both parties have ended the dialog. `at`: moment of a 2xx between them.
    pub(crate) fn conclude(&mut self, at: i64) {
        self.at = self.at.max(at);
        self.parties.iter_mut().for_each(|party| party.has_ended = true);
    }

    fn is_over(&self) -> bool {
        self.parties.iter().all(|party| party.has_ended)
    }
}

impl CallTable {
    /// Ends a dialog of a call. Its new salt tells the answers to these BYEs from those to earlier requests.
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
            // Above each CSeq that this server let through.
            let least = if is_first { 0 } else { LAST_CSEQ };
            let number = dialog.next_cseq(from).max(least + 1);
            // Without this context it would pass as a BYE of the other party, and its response would end the dialog.
            let context = call.dialog_context(dialog, Purpose::Question, party);
            let may_send = end.byes < MOST_BYES;
            let bye = if may_send { self.own_bye(call, dialog, (party, context), number) } else { None };
            let is_sent = bye.is_some();
            self.change(key, |call| {
                let Some(dialog) = call.dialogs.iter_mut().find(|dialog| dialog.salt == salt) else { return };
                if is_sent {
                    dialog.hear(from, number);
                }
                let Some(end) = dialog.ending_mut().map(|ending| &mut ending.parties[party as usize]) else { return };
                end.byes = end.byes.saturating_add(1);
                end.next = moment(now).saturating_add_unsigned(timeout);
                end.has_ended |= !is_sent;
            });
            self.effects.extend(bye);
        }
        // While the BYEs are on their way through the stages, the dialog is in the table.
        if self.effects.len() > first {
            self.effects.push(CallEffect::HasSent(DialogId { call: key, salt }));
        } else {
            self.close_dialog(now, (key, salt));
        }
    }

    /// Handles the departure of the requests of a [`CallEffect::HasSent`].
    pub fn has_sent(&mut self, now: Now, dialog: DialogId) {
        self.close_dialog(now, (dialog.call, dialog.salt));
    }

    /// Notes the end of an answered dialog at this moment.
    pub(crate) fn count_ended(&mut self, at: i64, answer: Option<CallAnswer>) {
        let lasted = answer.map(|answer| at.saturating_sub(answer.at).max(0).cast_unsigned());
        self.effects.extend(lasted.map(|lasted| CallEffect::DialogEnded { lasted }));
    }

    /// Takes a dialog out of its call once both parties have ended it.
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

    /// Removes a dialog that has ended from its call, and doubts the dialog with the same two tags in exchanged roles: its parties take both for one.
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
    pub(crate) fn hear_of_own_bye(&mut self, env: &Environment<'_>, (key, context): (u64, u64), event: &NoticeEvent) {
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
            // A party that has left an anchored call has left it for both.
            if is_left {
                return;
            }
            // A party that refuses, or has refused, may have continued until now.
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
