//! End of a dialog by this server: a BYE to each party, and the responses.
//!
//! The dialog stays in the table until each party has ended it: a 2xx or 481 to the BYE, a 408, or no answer until the transaction times out
//! (RFC 3261 sections 12.2.1.2 and 15.1.1). After any other answer the party gets another BYE with a higher CSeq, [`MOST_BYES`] in all.
//! Meanwhile the call counts under its limits, and nothing passes in the dialog but a BYE.

use super::dialog::{Bye, Dialog, Party};
use super::{Call, LAST_CSEQ, Purpose, moment};
use crate::accounting::Ender;
use crate::call_log::log_ended;
use crate::engine::{Effect, Engine};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use strowger_core::notice::NoticeEvent;
use strowger_core::{Now, Outbox};

/// Maximum number of BYEs to one party.
const MOST_BYES: u8 = 4;

/// Time from a refusal to the next BYE, in milliseconds, by the number of BYEs so far.
const AGAIN: [u64; MOST_BYES as usize] = [500, 2_000, 8_000, 0];

/// Time beyond the timeout of a transaction until a BYE without any notice is sent again, in milliseconds. Without room, or while its next
/// hop is looked up, a BYE has no client transaction.
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
    pub(super) fn new(now: Now, by: Ender, at: i64, lost: [bool; 2]) -> Box<Self> {
        let party = |has_ended| PartyEnd { has_ended, byes: 0, next: moment(now) };
        Box::new(Self { by, at, cause: 0, status: 0, parties: lost.map(party) })
    }

    /// Creates the end by a BYE of this party, with this status. The server sends one to each party.
    pub(super) fn after_bye(now: Now, party: Party, bye: Bye, status: u16) -> Box<Self> {
        let mut ending = Self::new(now, party.into(), bye.at, [false; 2]);
        (ending.cause, ending.status) = (bye.cause, status);
        ending
    }

    /// Creates the end by a BYE of this party that its peer has not answered. The server sends one to the peer, and one
    /// to each party if the source of the BYE is foreign.
    pub(super) fn by_party(now: Now, party: Party, bye: Bye) -> Box<Self> {
        let mut ending = Self::after_bye(now, party, bye, 408);
        if !bye.from_elsewhere {
            ending.spare(party);
        }
        ending
    }

    /// Creates the end by a BYE in the name of this party from another address, with this status of the peer. The
    /// server sends one to the party.
    pub(super) fn in_name_of(now: Now, party: Party, bye: Bye, status: u16) -> Box<Self> {
        let mut ending = Self::after_bye(now, party, bye, status);
        ending.spare(party.other());
        ending
    }

    /// Sends no BYE to a party that has ended the dialog itself.
    fn spare(&mut self, party: Party) {
        let party = &mut self.parties[party as usize];
        (party.has_ended, party.byes) = (true, MOST_BYES);
    }

    pub(super) fn change_moments(&mut self, change: impl Fn(&mut i64)) {
        change(&mut self.at);
        self.parties.iter_mut().for_each(|party| change(&mut party.next));
    }

    /// Returns the moment of the next BYE.
    pub(super) fn next(&self) -> Option<i64> {
        self.parties.iter().filter(|party| !party.has_ended).map(|party| party.next).min()
    }

    /// Resumes the end in another process, from this moment on. A party that has refused a BYE may have continued: the
    /// record lasts until its last response.
    pub(super) fn resume(&mut self, at: i64) {
        for party in self.parties.iter_mut().filter(|party| !party.has_ended) {
            (party.byes, party.next) = (u8::from(party.byes > 1), at);
        }
    }

    /// Notes that both parties have ended the dialog. `at`: moment of a 2xx between them.
    pub(super) fn conclude(&mut self, at: i64) {
        self.at = self.at.max(at);
        self.parties.iter_mut().for_each(|party| party.has_ended = true);
    }

    fn is_over(&self) -> bool {
        self.parties.iter().all(|party| party.has_ended)
    }
}

impl Engine {
    /// Ends a dialog of a call. Its new salt tells the answers to these BYEs from those to earlier requests.
    pub(super) fn end_dialog(&mut self, now: Now, (key, salt): (u64, u16), ending: Box<Ending>, out: &mut Outbox) {
        let Some(fresh) = self.free_salt(key) else { return };
        self.calls.change(key, |call| {
            if let Some(dialog) = call.dialogs.iter_mut().find(|dialog| dialog.salt == salt) {
                dialog.begin_ending(fresh, ending);
            }
        });
        self.calls.has_changed(key);
        self.send_byes(now, (key, fresh), out);
    }

    pub(super) fn free_salt(&mut self, key: u64) -> Option<u16> {
        self.calls.get(key).map(|call| call.free_salt(|| self.stack.entropy.u64()))
    }

    /// Sends the due BYEs of the dialogs of a call that this server ends.
    pub(super) fn send_due_byes(&mut self, now: Now, key: u64, out: &mut Outbox) {
        let Some(call) = self.calls.get(key) else { return };
        let is_due = |dialog: &&Dialog| dialog.ending().and_then(Ending::next).is_some_and(|next| next <= moment(now));
        let due: SmallVec<[u16; 4]> = call.dialogs.iter().filter(is_due).map(|dialog| dialog.salt).collect();
        due.into_iter().for_each(|salt| self.send_byes(now, (key, salt), out));
    }

    /// Sends the due BYEs of a dialog that this server ends, and closes it once both parties have ended it.
    fn send_byes(&mut self, now: Now, (key, salt): (u64, u16), out: &mut Outbox) {
        let timeout = self.calls.times.transaction + SLACK;
        let mut requests: SmallVec<[(u64, Vec<u8>); 2]> = SmallVec::new();
        for party in Party::BOTH {
            let Some(call) = self.calls.get(key) else { return };
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
            let mut text = Vec::new();
            let is_sent = end.byes < MOST_BYES && self.decider().write_bye(call, dialog, from, number, &mut text);
            // Without this context it would pass as a BYE of the other party, and its response would end the dialog.
            let context = call.dialog_context(dialog, Purpose::Question, party);
            self.calls.change(key, |call| {
                let Some(dialog) = call.dialogs.iter_mut().find(|dialog| dialog.salt == salt) else { return };
                if is_sent {
                    dialog.hear(from, number);
                }
                let Some(end) = dialog.ending_mut().map(|ending| &mut ending.parties[party as usize]) else { return };
                end.byes = end.byes.saturating_add(1);
                end.next = moment(now).saturating_add_unsigned(timeout);
                end.has_ended |= !is_sent;
            });
            if is_sent {
                requests.push((context, text));
            }
        }
        for (context, text) in requests {
            self.counters().byes.one();
            self.send_own(now, &text, context, out);
        }
        self.close_dialog(now, (key, salt));
    }

    /// Takes a dialog out of its call once both parties have ended it.
    pub(super) fn close_dialog(&mut self, now: Now, (key, salt): (u64, u16)) {
        let Some(call) = self.calls.get(key) else { return };
        let Some(dialog) = call.dialogs.iter().find(|dialog| dialog.salt == salt) else { return };
        let Some(ending) = dialog.ending().filter(|ending| ending.is_over()) else { return };
        let &Ending { by, at, cause, status, .. } = ending;
        self.decider().count_ended(at, dialog.answer);
        if dialog.logged {
            log_ended(at, call, by.text(), dialog.answer, call.call_id());
        }
        if let Some((account, names)) = self.calls.account(key) {
            let row = match by.party() {
                Some(party) => account.bye_ended(party, Bye { at, cause, from_elsewhere: false }, status, names),
                None => account.dialog_ended(at, by, names),
            };
            self.effects.extend(row.map(Effect::Account));
        }
        self.remove_dialog(now, (key, salt));
    }

    /// Removes a dialog that has ended from its call, and doubts the dialog that has its tags the other way round: to its parties both are one.
    pub(super) fn remove_dialog(&mut self, now: Now, (key, salt): (u64, u16)) {
        let Some(call) = self.calls.get(key) else { return };
        let Some(dialog) = call.dialogs.iter().find(|dialog| dialog.salt == salt) else { return };
        let hash = self.decider().key_of_call(b"", dialog.tag());
        let mirrored = self.decider().key_of_call(call.call_id(), dialog.tag());
        if call.tracked && self.calls.get(mirrored).is_some_and(|other| other.tracked) {
            let caller_tag = call.caller_tag().to_vec();
            let doubt = |other: &mut Call| other.dialog(&caller_tag).map(|dialog| dialog.doubt_refusal(now)).is_some();
            if self.calls.change(mirrored, doubt) == Some(true) {
                self.calls.has_changed(mirrored);
            }
        }
        self.calls.change(key, |call| call.remove_dialog(salt, hash));
        self.calls.has_changed(key);
    }

    /// Handles the result of a BYE of this server to a party.
    pub(super) fn hear_of_own_bye(
        &mut self,
        now: Now,
        (key, context): (u64, u64),
        event: &NoticeEvent,
        out: &mut Outbox,
    ) {
        let is_peer = self.calls.responded.is_some();
        let (status, is_confirmed) = match event {
            NoticeEvent::Answered { status, .. } => (*status, true),
            NoticeEvent::Exhausted { status, .. } => (*status, false),
            NoticeEvent::Abandoned => (408, false),
            _ => return,
        };
        let has_ended = is_confirmed || matches!(status, 408 | 481);
        let Some((at, party)) = self.calls.get(key).and_then(|call| call.dialog_at(context)) else { return };
        let mut salt = 0;
        let mut was_over = false;
        self.calls.change(key, |call| {
            salt = call.dialogs[at].salt;
            let Some(ending) = call.dialogs[at].ending_mut() else { return };
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
            // A party that refuses, or has refused, may have continued until now.
            if is_confirmed || (has_ended && end.byes > 1) || (is_peer && !has_ended) {
                ending.at = ending.at.max(moment(now));
            }
        });
        if !has_ended
            && !was_over
            && is_peer
            && let Some((account, names)) = self.calls.account(key)
        {
            let row = account.own_bye_refused(now, status, names);
            self.effects.extend(row.map(Effect::Account));
        }
        self.calls.has_changed(key);
        self.send_byes(now, (key, salt), out);
    }
}
