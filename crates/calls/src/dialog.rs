//! Dialog of a call: between its caller and one callee that rang or answered (RFC 3261 section 12).

use crate::bye::Bye;
use crate::dialog_end::Ending;
use crate::doubted_dialog::{AFTER_BYE, Doubt, Standing};
use crate::origin::Source;
use crate::session_offer::SessionOffer;
use crate::texts::Texts;
use crate::times::moment;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;
use strowger_core::Now;
use strowger_core::notice::Party;

/// 2xx that went upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallAnswer {
    /// Moment of the 2xx, on the clock of [`crate::call::Call::began`].
    pub(crate) at: i64,
    pub(crate) status: NonZeroU16,
}

/// BYEs of a dialog without a final response.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Byes {
    /// BYEs of the parties, by sender.
    of_parties: [Option<Bye>; 2],
    /// End of the dialog by this server.
    ending: Option<Box<Ending>>,
    /// Set if a BYE of the callee passed before the ACK for its 2xx, against RFC 3261 section 15.
    #[serde(skip)]
    hasty: bool,
}

/// Request that renews a dialog, until its final response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Renewal {
    pub(crate) sender: Party,
    /// Contact of the request: the new target of its sender.
    pub(crate) contact: Option<Box<[u8]>>,
    pub(crate) offer: SessionOffer,
}

/// Dialog of a call. It is early while it has no answer. An early dialog ends with its branch, or with the last
/// answered dialog.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Dialog {
    texts: Texts,
    pub(crate) answer: Option<CallAnswer>,
    /// Last CSeq of the caller, and of the callee; 0 if the party has sent nothing.
    cseqs: [u32; 2],
    /// Source of its 2xx.
    pub(crate) source: Source,
    /// Set if its end is to be logged.
    pub(crate) logged: bool,
    /// Set once the ACK for the dialog's 2xx has passed, or the dialog was confirmed or doubted without an ACK.
    pub(crate) acknowledged: bool,
    /// Random bits in the contexts of the dialog's requests ([`crate::call::Call::dialog_context`]). The lowest bit is
    /// not part of the salt: in a context it names the sender.
    pub(crate) salt: u16,
    /// BYEs in progress.
    byes: Option<Box<Byes>>,
    renewal: Option<Box<Renewal>>,
    /// Questions to its parties whether it still exists.
    pub(crate) doubt: Option<Box<Doubt>>,
    /// End of its session: see [`Dialog::session_end`].
    session_end: i64,
}

/// Session end of a session without a timer.
const NEVER: i64 = i64::MAX;

const TAG: usize = 0;
const CONTACT: usize = 1;
const ROUTES: usize = 2;
const BRANCH: usize = 3;

impl Dialog {
    /// Creates a dialog from the callee's tag in a response and the CSeq of the INVITE. `salt`:
    /// [`crate::call::Call::free_salt`].
    pub(crate) fn new(tag: &[u8], cseq: u32, salt: u16) -> Self {
        Self::of(Texts::new(&[tag]), cseq, salt)
    }

    /// Creates a dialog whose callee rings. The response arrived by this branch.
    pub(crate) fn early(tag: &[u8], cseq: u32, salt: u16, branch: u32) -> Self {
        Self::of(Texts::new(&[tag, b"", b"", &branch.to_le_bytes()]), cseq, salt)
    }

    /// Returns the CSeq of the last request of the caller in it.
    pub(crate) fn last_of_caller(&self) -> u32 {
        self.cseqs[0]
    }

    fn of(texts: Texts, cseq: u32, salt: u16) -> Self {
        let (answer, byes, renewal, doubt) = Default::default();
        Self {
            texts,
            answer,
            cseqs: [cseq, 0],
            source: Source::default(),
            logged: false,
            acknowledged: false,
            salt,
            byes,
            renewal,
            doubt,
            session_end: NEVER,
        }
    }

    /// Tells whether the dialog has no answer, and its callee rang by this branch.
    pub(crate) fn rings_by(&self, branch: u32) -> bool {
        self.answer.is_none() && self.texts.get(BRANCH) == branch.to_le_bytes()
    }

    /// Returns the callee's tag.
    pub(crate) fn tag(&self) -> &[u8] {
        self.texts.get(TAG)
    }

    /// Returns the Contact of the callee, as sent to the caller; empty if none is stored.
    pub(crate) fn contact(&self) -> &[u8] {
        self.texts.get(CONTACT)
    }

    /// Tells whether the dialog began in an earlier process and is resumed by an INVITE that has no answer yet.
    pub(crate) fn is_resumed(&self) -> bool {
        self.answer.is_none() && !self.contact().is_empty()
    }

    /// Returns the Routes of a request from this server to the callee.
    pub(crate) fn routes(&self) -> &[u8] {
        self.texts.get(ROUTES)
    }

    /// Sets Contact, route set and source of the callee from its 2xx. The branch of the early dialog is forgotten.
    pub(crate) fn set_way(&mut self, contact: &[u8], routes: &[u8], source: Source) {
        self.texts = Texts::new(&[self.texts.get(TAG), contact, routes]);
        self.source = source;
    }

    /// Replaces the Contact of the callee.
    pub(crate) fn set_contact(&mut self, contact: &[u8]) {
        if self.contact() != contact {
            self.texts = self.texts.with(&[(CONTACT, contact)]);
        }
    }

    /// Returns the moment when the session of the dialog ends unless a party refreshes it (RFC 4028), on the clock of
    /// [`CallAnswer::at`]; `None` if the session has no timer.
    pub(crate) fn session_end(&self) -> Option<i64> {
        (self.session_end != NEVER).then_some(self.session_end)
    }

    pub(crate) fn set_session_end(&mut self, at: Option<i64>) {
        self.session_end = at.unwrap_or(NEVER);
    }

    /// Applies a change to each moment of the dialog.
    pub(crate) fn change_moments(&mut self, change: impl Fn(&mut i64)) {
        self.answer.iter_mut().for_each(|answer| change(&mut answer.at));
        if self.session_end != NEVER {
            change(&mut self.session_end);
        }
        if let Some(byes) = &mut self.byes {
            byes.of_parties.iter_mut().flatten().for_each(|bye| change(&mut bye.at));
            byes.ending.iter_mut().for_each(|ending| ending.change_moments(&change));
        }
        self.doubt.iter_mut().for_each(|doubt| doubt.change_moments(&change));
    }

    /// Notes the CSeq of a request of this party. Returns whether it is higher than all earlier numbers.
    pub(crate) fn note_cseq(&mut self, party: Party, cseq: u32) -> bool {
        let last = &mut self.cseqs[party as usize];
        let is_new = cseq > *last;
        *last = cseq.max(*last);
        is_new
    }

    /// Forgets the transactions of the previous process. An end of the dialog that had begun continues.
    pub(crate) fn goes_on(&mut self) {
        (self.renewal, self.doubt, self.acknowledged) = (None, None, true);
        self.byes.iter_mut().for_each(|byes| byes.of_parties = Default::default());
        self.byes.take_if(|byes| byes.ending.is_none());
    }

    /// Returns the CSeq of the last request of this party; 0 if it has sent none.
    pub(crate) const fn last_cseq(&self, party: Party) -> u32 {
        self.cseqs[party as usize]
    }

    /// Returns the CSeq for the next request of this party.
    pub(crate) fn next_cseq(&self, party: Party) -> u32 {
        // The number must be below 2^31 (RFC 3261 section 8.1.1.5).
        (self.cseqs[party as usize].saturating_add(1)).min(i32::MAX as u32)
    }

    /// Adds a BYE of this party, which replaces an earlier BYE.
    pub(crate) fn begin_bye(&mut self, party: Party, bye: Bye) {
        let byes = self.byes.get_or_insert_default();
        byes.of_parties[party as usize] = Some(bye);
        byes.hasty |= party == Party::Callee && !self.acknowledged;
    }

    /// Takes out the refused BYE of this party.
    pub(crate) fn end_bye(&mut self, party: Party) {
        self.byes.iter_mut().for_each(|byes| byes.of_parties[party as usize] = None);
        self.byes.take_if(|byes| byes.ending.is_none() && byes.of_parties.iter().all(Option::is_none));
    }

    /// Returns the BYE of this party that is in progress.
    pub(crate) fn bye(&self, party: Party) -> Option<Bye> {
        self.byes.as_ref().and_then(|byes| byes.of_parties[party as usize])
    }

    /// Tells whether a BYE of the callee may have arrived before the 2xx.
    pub(crate) fn has_hasty_bye(&self) -> bool {
        self.byes.as_ref().is_some_and(|byes| byes.hasty)
    }

    /// Tells whether a BYE is in progress.
    pub(crate) const fn is_ending(&self) -> bool {
        self.byes.is_some()
    }

    /// Starts the end of the dialog by this server, and forgets other transactions.
    pub(crate) fn begin_ending(&mut self, salt: u16, ending: Box<Ending>) {
        (self.salt, self.renewal, self.doubt) = (salt, None, None);
        self.byes = Some(Box::new(Byes { ending: Some(ending), ..Byes::default() }));
    }

    /// Returns the end of the dialog by this server.
    pub(crate) fn ending(&self) -> Option<&Ending> {
        self.byes.as_ref()?.ending.as_deref()
    }

    pub(crate) fn ending_mut(&mut self) -> Option<&mut Ending> {
        self.byes.as_mut()?.ending.as_deref_mut()
    }

    pub(crate) fn begin_renewal(&mut self, renewal: Renewal) {
        self.renewal = Some(Box::new(renewal));
    }

    /// Takes out the last request that renews this dialog, once it has its final response.
    pub(crate) fn end_renewal(&mut self) -> Option<Renewal> {
        self.renewal.take().map(|renewal| *renewal)
    }

    /// Returns the moment at which the dialog's 2xx is doubted unless the ACK passes before.
    pub(crate) fn unacknowledged_until(&self, patience: u64) -> Option<i64> {
        let waits = !self.acknowledged && self.ending().is_none();
        self.answer.filter(|_| waits).map(|answer| answer.at.saturating_add_unsigned(patience))
    }

    /// Doubts the dialog after a refused BYE. Earlier confirmations no longer count.
    pub(crate) fn doubt_refusal(&mut self, now: Now) {
        if self.answer.is_none() || self.ending().is_some() {
            return;
        }
        let fresh = Doubt::at(moment(now).saturating_add_unsigned(AFTER_BYE), Standing::Suspected);
        match &mut self.doubt {
            Some(doubt) => {
                (doubt.parties, doubt.until) = (fresh.parties, doubt.until.max(fresh.until));
                doubt.next = doubt.next.min(fresh.next);
                doubt.since = now.mono + 1;
            }
            None => self.doubt = Some(fresh),
        }
    }

    /// Doubts the dialog after a BYE that names it but is sent elsewhere. The receiver of the BYE may accept a copy
    /// until the transaction ends, so the server asks once more then.
    pub(crate) fn doubt_beside(&mut self, now: Now, transaction: u64) {
        self.doubt_refusal(now);
        if let Some(doubt) = &mut self.doubt {
            doubt.again = Some(moment(now).saturating_add_unsigned(transaction + AFTER_BYE));
        }
    }

    /// Returns the salt of the last [`HangUp`](crate::doubted_dialog::HangUp).
    pub(crate) fn hang_up_salt(&self) -> Option<u16> {
        Some(self.doubt.as_ref()?.hang_up?.salt)
    }
}
