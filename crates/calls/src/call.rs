//! Call: from the INVITE that begins it to the end of its last dialog.
//!
//! A peer chooses all that it writes. So a call is identified by Call-ID and caller's tag together, and its dialogs by
//! the callee's tag in addition (RFC 3261 section 12). The INVITE alone names the parties, and the call ends only by a
//! BYE that a route token of this server admits.

use crate::cdr::{Account, CallNames};
use crate::context::{BELOW_KEY, Purpose, SALTS};
use crate::dialog::Dialog;
use crate::legs::Legs;
use crate::origin::Source;
use crate::scopes::CallScopes;
use crate::session_offer::SessionOffer;
use crate::shares::Parties;
use crate::texts::Texts;
use crate::times::{CallTimes, moment};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::net::SocketAddr;
use strowger_core::Now;
use strowger_core::notice::Party;
use strowger_core::routing::Request;
use strowger_core::shown::LONGEST;

/// Call that is tracked, or logged, or both.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// Key in the table.
    pub(crate) key: u64,
    pub(crate) call_hash: u32,
    pub(crate) texts: Texts,
    /// [`Now::mono`] of the call's INVITE, negative if the INVITE arrived before this process began. On the way to
    /// another shard: milliseconds since the INVITE.
    pub(crate) began: i64,
    /// CSeq of its INVITE.
    pub(crate) cseq: u32,
    /// Source of its INVITE.
    pub(crate) source: Source,
    /// Salt in the context of its requests, which no peer knows. By the salt, notices of an earlier call with this
    /// Call-ID and tag are recognised and ignored.
    pub(crate) salt: u16,
    pub(crate) logged: bool,
    /// Set if the dialogs of the call are known, with the parts that a request to either party needs.
    pub(crate) tracked: bool,
    /// Part of this server in its dialogs.
    pub(crate) legs: Legs,
    /// Set if the INVITE of the call had a To tag. Then the caller has chosen the tag of the callee, who may have
    /// another dialog with the same tags.
    pub(crate) chose_tag: bool,
    /// Set for an emergency call, of which no 2xx is refused.
    #[serde(skip)]
    pub(crate) urgent: bool,
    /// Number of INVITEs of the call without a final response. The INVITE may pass here repeatedly, through servers
    /// that try one target after another.
    pub(crate) open: u16,
    /// Set once the caller has cancelled it.
    pub(crate) cancelled: bool,
    /// Set once a server behind this one has asked for credentials: the INVITE is going to arrive again.
    pub(crate) challenged: bool,
    /// Session timer that its last INVITE offered.
    pub(crate) offer: SessionOffer,
    pub(crate) dialogs: SmallVec<[Dialog; 1]>,
    /// Limits under which the call counts; `None` if it counts under none.
    pub(crate) scopes: Option<Box<CallScopes>>,
    /// Data for its accounting.
    pub(crate) account: Option<Box<Account>>,
    /// Set once the state of the call was given to the owner, or is about to be: the next process continues the call.
    pub(crate) kept: bool,
    /// Set while its kept state is out of date.
    #[serde(skip)]
    pub(crate) changed: bool,
    /// Deadline in steps of [`crate::table::STEP`]; 0: there is none.
    #[serde(skip)]
    pub(crate) deadline: u32,
    /// Caller and callee whose shares of the table the call uses. A call that moved here from another shard uses none.
    #[serde(skip)]
    pub(crate) parties: Parties,
}

/// Bytes of a call in the table. A segment of 128 calls then fills a size class of the allocator.
const _: () = assert!(size_of::<Option<Call>>() == 192);

pub(crate) const CALLER: usize = 0;
pub(crate) const CALLEE: usize = 1;
pub(crate) const CALL_ID: usize = 2;
pub(crate) const CALLER_TAG: usize = 3;
pub(crate) const CALLER_CONTACT: usize = 4;
pub(crate) const CALLER_ROUTES: usize = 5;
/// Tag hashes of ended dialogs of a call that continues.
pub(crate) const ENDED_TAGS: usize = 6;
/// Call-ID of the far leg.
pub(crate) const FAR_CALL_ID: usize = 7;

/// Maximum bytes of a stored Contact, of a stored route set, and of Call-ID and both URIs together. A call with more is
/// refused ([`crate::unendable`]).
pub(crate) const LONGEST_WAY: usize = 2_048;

/// Longest tag that the table stores, in bytes. A longer one, in a call that is only logged or an emergency call, is stored as its hash.
pub(crate) const LONGEST_TAG: usize = 256;

/// Highest CSeq of a request that passes in a tracked call. The numbers above, up to 2^31 (RFC 3261 section 8.1.1.5),
/// are reserved for the BYEs of this server, so that no party takes such a BYE for an old request.
pub(crate) const LAST_CSEQ: u32 = i32::MAX as u32 - 1_024;

/// First byte of the stored form of a tag that is too long. No tag begins with it.
pub(crate) const HASHED: u8 = 0;

impl Call {
    /// Creates a call from its INVITE. `tag`: stored form of the caller's tag. `salt`: random number, of which some
    /// bits are used.
    pub(crate) fn begun(request: &Request<'_>, now: Now, tracked: bool, tag: &[u8], salt: u64) -> Self {
        let (caller, callee) = parties(request);
        let shown = |text: &[u8]| text.len().min(LONGEST + 1);
        let is_whole = caller.len() + callee.len() + request.call_id.len() <= LONGEST_WAY;
        let texts = match (tracked, is_whole) {
            (true, true) => Texts::new(&[caller, callee, request.call_id, tag]),
            (true, false) => Texts::new(&[&caller[..shown(caller)], &callee[..shown(callee)], b"", tag]),
            (false, _) => Texts::new(&[&caller[..shown(caller)], &callee[..shown(callee)]]),
        };
        Self {
            key: 0,
            call_hash: request.call_hash,
            texts,
            began: moment(now),
            cseq: request.cseq,
            source: Source::default(),
            salt: (salt & SALTS) as u16,
            logged: false,
            tracked,
            legs: Legs::Passing,
            chose_tag: !request.to_tag.is_empty(),
            urgent: false,
            open: 0,
            cancelled: false,
            challenged: false,
            offer: SessionOffer::default(),
            dialogs: SmallVec::new(),
            scopes: None,
            account: None,
            kept: false,
            changed: false,
            deadline: 0,
            parties: [0; 2],
        }
    }

    /// Returns the texts of the call that its account need not store.
    pub(crate) fn names(&self) -> CallNames<'_> {
        names(&self.texts)
    }

    /// Makes the call tracked from now on, with the texts of the call `begun`.
    pub(crate) fn track(&mut self, begun: Self) {
        (self.tracked, self.texts) = (true, begun.texts);
    }

    /// Returns the URI of From in the INVITE; for an untracked call, only as much as a log line shows.
    pub(crate) fn caller(&self) -> &[u8] {
        self.texts.get(CALLER)
    }

    /// Returns the URI of To.
    pub(crate) fn callee(&self) -> &[u8] {
        self.texts.get(CALLEE)
    }

    /// Returns the Call-ID; empty if the call is not tracked, or if its names are too long.
    pub fn call_id(&self) -> &[u8] {
        self.texts.get(CALL_ID)
    }

    /// Returns the Call-ID of the far leg; empty if the call has none.
    pub(crate) fn far_call_id(&self) -> &[u8] {
        self.texts.get(FAR_CALL_ID)
    }

    pub(crate) fn set_far_call_id(&mut self, call_id: &[u8]) {
        self.texts = self.texts.with(&[(FAR_CALL_ID, call_id)]);
    }

    pub(crate) fn caller_tag(&self) -> &[u8] {
        self.texts.get(CALLER_TAG)
    }

    pub(crate) fn caller_contact(&self) -> &[u8] {
        self.texts.get(CALLER_CONTACT)
    }

    pub(crate) fn caller_routes(&self) -> &[u8] {
        self.texts.get(CALLER_ROUTES)
    }

    pub(crate) fn set_caller_way(&mut self, contact: &[u8], routes: &[u8], source: Source) {
        self.texts = self.texts.with(&[(CALLER_CONTACT, contact), (CALLER_ROUTES, routes)]);
        self.source = source;
    }

    pub(crate) fn set_caller_contact(&mut self, contact: &[u8]) {
        if self.caller_contact() != contact {
            self.texts = self.texts.with(&[(CALLER_CONTACT, contact)]);
        }
    }

    pub(crate) fn dialog(&mut self, tag: &[u8]) -> Option<&mut Dialog> {
        self.dialogs.iter_mut().find(|dialog| dialog.tag() == tag)
    }

    /// Ends the logging of the call.
    pub(crate) fn forget_log(&mut self) {
        self.logged = false;
        self.dialogs.iter_mut().for_each(|dialog| dialog.logged = false);
        if !self.tracked {
            self.dialogs.clear();
            self.challenged = false;
            self.forget_invites();
        }
    }

    /// Stops counting the INVITEs of the call, unless its account waits for their outcome.
    pub(crate) fn forget_invites(&mut self) {
        if self.account.is_none() {
            self.open = 0;
        }
    }

    /// Notes that an INVITE of the call has a final response, or was not forwarded after all.
    pub(crate) fn conclude(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// Notes that no callee answered an INVITE of the call.
    pub(crate) fn fail(&mut self) {
        // A dialog of an earlier process continues after the failure of an INVITE within it: the call does not count as
        // ended.
        if self.dialogs.iter().any(Dialog::is_resumed) {
            self.legs = Legs::Passing;
        }
        self.conclude();
        self.end_early();
    }

    /// Removes the early dialogs after the last INVITE: their callees cannot answer any more.
    pub(crate) fn end_early(&mut self) {
        if self.open == 0 {
            self.dialogs.retain(|dialog| dialog.answer.is_some());
        }
    }

    /// Returns the context of its INVITEs.
    pub(crate) fn context(&self) -> u64 {
        self.context_with(self.salt, Purpose::Invite)
    }

    /// Tells whether a log line about the call is still to be written.
    pub(crate) fn is_in_log(&self) -> bool {
        self.logged && (self.open > 0 || self.challenged || self.dialogs.iter().any(|dialog| dialog.logged))
    }

    /// Tells whether the call is over. A callee that still rings after the final response to the INVITE is ignored,
    /// because its branch is being cancelled, or another callee behind the next hop has answered. If the callee
    /// nevertheless answers (RFC 3261 section 13.2.2.4), its answer passes without the call.
    pub(crate) fn is_over(&self) -> bool {
        self.open == 0 && !self.challenged && !self.has_answer()
    }

    /// Tells whether the call only waits for its caller to repeat the INVITE with credentials.
    pub fn is_left(&self) -> bool {
        self.challenged && self.open == 0 && !self.has_answer()
    }

    /// Tells whether a callee has answered the last INVITE of the call.
    pub(crate) fn is_invite_answered(&self) -> bool {
        self.dialogs.iter().any(|dialog| dialog.answer.is_some() && dialog.last_of_caller() >= self.cseq)
    }

    pub(crate) fn has_answer(&self) -> bool {
        self.dialogs.iter().any(|dialog| dialog.answer.is_some())
    }

    /// Changes the moments of the call into ages at `now`, or its ages into moments.
    pub(crate) fn turn(&mut self, now: i64) {
        let turn = |at: &mut i64| *at = now.saturating_sub(*at);
        turn(&mut self.began);
        self.account.iter_mut().for_each(|account| turn(&mut account.began));
        self.dialogs.iter_mut().for_each(|dialog| dialog.change_moments(turn));
    }

    /// Returns the context of a request for this purpose in this dialog. `party`: sender of the request or, for a
    /// question of the server, the party that is asked.
    pub(crate) fn dialog_context(&self, dialog: &Dialog, purpose: Purpose, party: Party) -> u64 {
        self.context_with(dialog.salt | party as u16, purpose)
    }

    pub(crate) fn context_with(&self, salt: u16, purpose: Purpose) -> u64 {
        self.key >> BELOW_KEY << BELOW_KEY | u64::from(salt) << 2 | purpose as u64
    }

    /// Returns the index of the dialog that this context names, and the party that it names.
    pub(crate) fn dialog_at(&self, context: u64) -> Option<(usize, Party)> {
        let salt = (context >> 2 & SALTS) as u16;
        let party = if salt & 1 == 0 { Party::Caller } else { Party::Callee };
        let at = self.dialogs.iter().position(|dialog| dialog.salt == salt & !1)?;
        Some((at, party))
    }

    /// Returns the dialog of a [`HangUp`](crate::doubted_dialog) with this context.
    pub(crate) fn hang_up_at(&self, context: u64) -> Option<&Dialog> {
        let salt = (context >> 2 & SALTS) as u16;
        self.dialogs.iter().find(|dialog| dialog.hang_up_salt() == Some(salt))
    }

    /// Draws a salt that no dialog of the call has yet.
    pub(crate) fn free_salt(&self, mut draw: impl FnMut() -> u64) -> u16 {
        loop {
            let salt = (draw() & SALTS) as u16 & !1;
            if self.dialogs.iter().all(|dialog| dialog.salt != salt && dialog.hang_up_salt() != Some(salt)) {
                return salt;
            }
        }
    }

    /// Tells whether a request with this context belongs to this call, or to one of its dialogs.
    pub(crate) fn has_context(&self, context: u64, purpose: Purpose) -> bool {
        let is_near = (self.key ^ context) >> BELOW_KEY == 0;
        is_near
            && match purpose {
                Purpose::Invite => self.context() == context,
                Purpose::Bye if self.hang_up_at(context).is_some() => true,
                _ => self.dialog_at(context).is_some(),
            }
    }

    /// Returns whether a request of this party came from another address than the party's INVITE or 2xx; false if that
    /// address is unknown.
    pub(crate) fn is_from_elsewhere(&self, dialog: &Dialog, party: Party, source: SocketAddr) -> bool {
        let known = self.source_of(dialog, party);
        known != Source::UNKNOWN && known != Source::of(source)
    }

    /// Returns whether a request of this party came from the address of the party's INVITE or 2xx; false if that
    /// address is unknown.
    pub(crate) fn is_from(&self, dialog: &Dialog, party: Party, source: SocketAddr) -> bool {
        self.source_of(dialog, party) == Source::of(source)
    }

    const fn source_of(&self, dialog: &Dialog, party: Party) -> Source {
        match party {
            Party::Caller => self.source,
            Party::Callee => dialog.source,
        }
    }

    /// Returns the deadline of the call, as [`strowger_core::Now::mono`].
    pub(crate) fn until(&self, times: CallTimes) -> Option<u64> {
        let whole = |at: i64| at.max(0).cast_unsigned();
        let after = |at: i64, time: u64| whole(at.saturating_add_unsigned(time));
        let logged = self.is_in_log().then(|| after(self.began, times.logged));
        let challenged = self.is_left().then(|| after(self.began, CHALLENGE));
        let dialogs = self.dialogs.iter().filter_map(|dialog| match dialog.ending() {
            Some(ending) => ending.next().map(whole),
            None => self.dialog_until(dialog, times),
        });
        [logged, challenged, dialogs.min()].into_iter().flatten().min()
    }

    fn dialog_until(&self, dialog: &Dialog, times: CallTimes) -> Option<u64> {
        let whole = |at: i64| at.max(0).cast_unsigned();
        let answer = dialog.answer.filter(|_| self.tracked);
        let lifetime = answer.map(|answer| whole(answer.at.saturating_add_unsigned(times.lifetime)));
        let ack = answer.and_then(|_| dialog.unacknowledged_until(times.transaction)).map(whole);
        let session = dialog.session_end().map(whole);
        let doubt = dialog.doubt.as_ref().filter(|_| answer.is_some()).map(|doubt| whole(doubt.next));
        [lifetime, ack, session, doubt].into_iter().flatten().min()
    }
}

/// Time for a caller to come again with credentials, in milliseconds.
pub(crate) const CHALLENGE: u64 = 32_000;

pub(crate) fn names(texts: &Texts) -> CallNames<'_> {
    [CALL_ID, CALLER, CALLEE, FAR_CALL_ID].map(|number| texts.get(number))
}

/// Returns the URIs of From and To.
pub fn parties<'a>(request: &Request<'a>) -> (&'a [u8], &'a [u8]) {
    (request.mandatory.from.addr.uri_text, request.mandatory.to.addr.uri_text)
}
