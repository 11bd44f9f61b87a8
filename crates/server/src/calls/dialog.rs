//! A dialog of a call: between its caller and one callee that rang or answered (RFC 3261 section 12).

use super::doubt::Doubt;
use super::texts::Texts;
use crate::session_timer::SessionOffer;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU16;

/// One of the two parties of a dialog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Party {
    Caller,
    Callee,
}

impl Party {
    pub(crate) const BOTH: [Self; 2] = [Self::Caller, Self::Callee];

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Caller => Self::Callee,
            Self::Callee => Self::Caller,
        }
    }

    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Callee => "callee",
        }
    }
}

/// A 2xx that went upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallAnswer {
    /// When: [`super::Call::began`] says how.
    pub(crate) at: i64,
    pub(crate) status: NonZeroU16,
}

/// A BYE that has no final response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bye {
    /// When it passed: a moment as [`CallAnswer::at`].
    pub(crate) at: i64,
    /// Q.850 cause, for the record.
    pub(crate) cause: u16,
}

/// A request that renews a dialog, until its final response.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Renewal {
    pub(crate) sender: Party,
    /// Its Contact: the new target of its sender.
    pub(crate) contact: Option<Box<[u8]>>,
    pub(crate) offer: SessionOffer,
}

/// A dialog of a call. Early while it has no answer: then it ends with its branch, or with the last dialog that has one.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Dialog {
    texts: Texts,
    pub(crate) answer: Option<CallAnswer>,
    /// The last CSeq of the caller, and of the callee; 0: that has sent nothing.
    cseqs: [u32; 2],
    /// Its end is to be logged.
    pub(crate) logged: bool,
    /// Random bits in the contexts of its requests ([`super::Call::dialog_context`]). The lowest is free: it names the sender there.
    pub(crate) salt: u16,
    /// BYEs under way, by sender.
    byes: Option<Box<[Option<Bye>; 2]>>,
    renewal: Option<Box<Renewal>>,
    /// The server asks its parties whether it still exists.
    pub(crate) doubt: Option<Box<Doubt>>,
    /// When its session ends: see [`Dialog::session_end`].
    session_end: i64,
}

/// A session that has no timer: it ends at no moment.
const NEVER: i64 = i64::MAX;

const TAG: usize = 0;
const CONTACT: usize = 1;
const ROUTES: usize = 2;
const BRANCH: usize = 3;

impl Dialog {
    /// Makes a dialog from the callee's tag in a response and the CSeq of the INVITE. `salt` is random.
    pub(crate) fn new(tag: &[u8], cseq: u32, salt: u64) -> Self {
        Self::of(Texts::new(&[tag]), cseq, salt)
    }

    /// One that rings: the response came by this branch.
    pub(crate) fn early(tag: &[u8], cseq: u32, salt: u64, branch: u32) -> Self {
        Self::of(Texts::new(&[tag, b"", b"", &branch.to_le_bytes()]), cseq, salt)
    }

    /// The CSeq of the last request of the caller in it.
    pub(crate) fn last_of_caller(&self) -> u32 {
        self.cseqs[0]
    }

    fn of(texts: Texts, cseq: u32, salt: u64) -> Self {
        let salt = (salt & super::SALTS) as u16 & !1;
        let (answer, byes, renewal, doubt) = Default::default();
        Self { texts, answer, cseqs: [cseq, 0], logged: false, salt, byes, renewal, doubt, session_end: NEVER }
    }

    /// It has no answer, and rang by this branch.
    pub(crate) fn rings_by(&self, branch: u32) -> bool {
        self.answer.is_none() && self.texts.get(BRANCH) == branch.to_le_bytes()
    }

    /// The callee's tag.
    pub(crate) fn tag(&self) -> &[u8] {
        self.texts.get(TAG)
    }

    /// The Contact of the callee, as the caller has it; empty: none is kept.
    pub(crate) fn contact(&self) -> &[u8] {
        self.texts.get(CONTACT)
    }

    /// The Routes of a request to the callee from here on.
    pub(crate) fn routes(&self) -> &[u8] {
        self.texts.get(ROUTES)
    }

    /// What the 2xx says of how the callee is reached; by which branch it rang counts no more.
    pub(crate) fn set_way(&mut self, contact: &[u8], routes: &[u8]) {
        self.texts = Texts::new(&[self.texts.get(TAG), contact, routes]);
    }

    /// The callee is reached by another Contact from now on.
    pub(crate) fn set_contact(&mut self, contact: &[u8]) {
        if self.contact() != contact {
            self.texts = self.texts.with(&[(CONTACT, contact)]);
        }
    }

    /// When its session ends unless a party refreshes it (RFC 4028): a moment as those of [`CallAnswer`]. None: it has no timer.
    pub(crate) fn session_end(&self) -> Option<i64> {
        (self.session_end != NEVER).then_some(self.session_end)
    }

    pub(crate) fn set_session_end(&mut self, at: Option<i64>) {
        self.session_end = at.unwrap_or(NEVER);
    }

    /// Changes each moment that it has.
    pub(crate) fn change_moments(&mut self, change: impl Fn(&mut i64)) {
        self.answer.iter_mut().for_each(|answer| change(&mut answer.at));
        if self.session_end != NEVER {
            change(&mut self.session_end);
        }
        let byes = self.byes.iter_mut().flat_map(|byes| byes.iter_mut()).flatten();
        byes.for_each(|bye| change(&mut bye.at));
        self.doubt.iter_mut().for_each(|doubt| doubt.change_moments(&change));
    }

    /// A request of this party has this CSeq. Whether none so high has been before.
    pub(crate) fn hear(&mut self, party: Party, cseq: u32) -> bool {
        let last = &mut self.cseqs[party as usize];
        let is_new = cseq > *last;
        *last = cseq.max(*last);
        is_new
    }

    /// It goes on in another process: what was under way has come to nothing, as far as is known.
    pub(crate) fn goes_on(&mut self) {
        (self.byes, self.renewal, self.doubt) = Default::default();
    }

    /// The CSeq of the last request of this party; 0: it has sent none.
    pub(crate) const fn last_cseq(&self, party: Party) -> u32 {
        self.cseqs[party as usize]
    }

    /// The CSeq of one more request of this party.
    pub(crate) fn next_cseq(&self, party: Party) -> u32 {
        // Below 2^31 (RFC 3261 section 8.1.1.5).
        (self.cseqs[party as usize].saturating_add(1)).min(i32::MAX as u32)
    }

    /// Adds a BYE of this party, in place of one before it.
    pub(crate) fn begin_bye(&mut self, party: Party, bye: Bye) {
        self.byes.get_or_insert_default()[party as usize] = Some(bye);
    }

    /// Takes out the BYE of this party: it was refused.
    pub(crate) fn end_bye(&mut self, party: Party) {
        self.byes.iter_mut().for_each(|byes| byes[party as usize] = None);
        self.byes.take_if(|byes| byes.iter().all(Option::is_none));
    }

    /// The BYE of this party that is under way.
    pub(crate) fn bye(&self, party: Party) -> Option<Bye> {
        self.byes.as_ref().and_then(|byes| byes[party as usize])
    }

    /// A BYE is under way.
    pub(crate) const fn is_ending(&self) -> bool {
        self.byes.is_some()
    }

    pub(crate) fn begin_renewal(&mut self, renewal: Renewal) {
        self.renewal = Some(Box::new(renewal));
    }

    /// Takes out the last request that renews this dialog: it has its final response.
    pub(crate) fn end_renewal(&mut self) -> Option<Renewal> {
        self.renewal.take().map(|renewal| *renewal)
    }
}
