//! The calls of a shard that are tracked or logged: from the INVITE that begins one to the end of its last dialog.
//!
//! A call hangs on what becomes of its requests, as the proxy tells it ([`notices`]), and on the requests in its dialogs that pass
//! ([`within`]). The log of calls ([`crate::call_log`]) is one user of that.
//!
//! A peer chooses all that it writes. So a call is known by Call-ID and caller's tag together, and its dialogs by the callee's tag besides
//! (RFC 3261 section 12); who its parties are says the INVITE alone, and that it ends a BYE that our own route token lets through.

pub(crate) mod answers;
mod context;
mod counts;
pub(crate) mod dialog;
mod doubt;
mod end;
pub(crate) mod endable;
mod ending;
mod in_dialog;
mod kept;
mod led;
mod list;
mod notices;
mod origin;
mod shares;
mod table;
pub(crate) mod texts;
mod times;
pub(crate) mod within;

pub use context::{NO_CALL, begins_call};
pub use kept::{VERSION as KEPT_VERSION, read_kept};
pub use list::{CallPage, CallState, CallView, DialogView};

use crate::accounting::Account;
use crate::engine::Engine;
use crate::process_state::CALL_SEED;
use crate::session_timer::SessionOffer;
use context::{PURPOSES, Purpose, SALTS};
use dialog::Dialog;
use led::{CallScopes, LedScope};
use origin::Source;
use serde::{Deserialize, Serialize};
use shares::Parties;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::hash::{BuildHasher, Hasher};
use strowger_core::Now;
use strowger_core::routing::Request;
use strowger_core::shown::LONGEST;
pub(crate) use table::Calls;
use table::Ended;
use texts::Texts;
pub(crate) use times::CallTimes;

/// A call that is tracked, or logged, or both.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// By which it is found.
    key: u64,
    call_hash: u32,
    texts: Texts,
    /// [`Now::mono`] of its INVITE, negative if that came before this process began; on its way to another shard the milliseconds since.
    pub(crate) began: i64,
    /// The CSeq of its INVITE.
    cseq: u32,
    /// Source of its INVITE.
    source: Source,
    /// In the context of its requests: what becomes of those of an earlier call of its Call-ID and tag is nothing to this one. No peer
    /// knows it.
    salt: u16,
    pub(crate) logged: bool,
    /// Its dialogs are known, with what a request to either party must have.
    pub(crate) tracked: bool,
    /// Later requests of it come by: this server is in its route sets.
    pub(crate) stays: bool,
    /// Its INVITE had a To tag: the caller has chosen the tag of the callee, who may have another dialog with the same tags.
    chose_tag: bool,
    /// An emergency call, of which no 2xx is refused.
    #[serde(skip)]
    urgent: bool,
    /// INVITEs of it without a final response: it may pass here again and again, through servers that try one target after another.
    pub(crate) open: u16,
    /// The caller has cancelled it.
    pub(crate) cancelled: bool,
    /// A server behind this one has asked for credentials: the INVITE comes again.
    pub(crate) challenged: bool,
    /// Session timer that its last INVITE offered.
    offer: SessionOffer,
    pub(crate) dialogs: SmallVec<[Dialog; 1]>,
    /// Limits that it counts under. None: under none.
    scopes: Option<Box<CallScopes>>,
    /// What is to be written down of it.
    pub(crate) account: Option<Box<Account>>,
    /// Its state was given out, or is in a moment: the next process is to go on with it.
    kept: bool,
    /// What is kept of it is out of date.
    #[serde(skip)]
    changed: bool,
    /// Deadline in steps of [`table::STEP`]. 0: it has none.
    #[serde(skip)]
    deadline: u32,
    /// Caller and callee whose shares of the table it uses. A call that moved here from another shard uses none.
    #[serde(skip)]
    parties: Parties,
}

/// Bytes of a call in the table. A segment of 128 calls then fills a size class of the allocator.
const _: () = assert!(size_of::<Option<Call>>() == 192);

/// Texts of a call as its INVITE has them: Call-ID, caller, callee. Empty where the table does not store them.
pub(crate) type CallNames<'a> = [&'a [u8]; 3];

/// What the call with a key counts under where it is led.
pub type LedScopes = (u64, Box<[LedScope]>);

const CALLER: usize = 0;
const CALLEE: usize = 1;
const CALL_ID: usize = 2;
const CALLER_TAG: usize = 3;
const CALLER_CONTACT: usize = 4;
const CALLER_ROUTES: usize = 5;
/// Tag hashes of ended dialogs of a call that continues.
const ENDED_TAGS: usize = 6;

/// Bytes of a Contact, of a route set, and of Call-ID and both URIs together, that are kept. A call with more is not begun ([`endable`]).
const LONGEST_WAY: usize = 2_048;

/// Longest tag that the table stores, in bytes. A longer one, in a call that is only logged or an emergency call, is stored as its hash.
const LONGEST_TAG: usize = 256;

/// Highest CSeq of a request that passes in a tracked call. The numbers above, up to 2^31 (RFC 3261 section 8.1.1.5), are for the BYEs of
/// this server: none of them looks old to a party.
const LAST_CSEQ: u32 = i32::MAX as u32 - 1_024;

/// Begins what is kept of a tag that is too long. No tag has it.
const HASHED: u8 = 0;

impl Call {
    /// `tag`: the caller's, as it is kept. Of `salt` some bits count.
    fn begun(request: &Request<'_>, now: Now, tracked: bool, tag: &[u8], salt: u64) -> Self {
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
            stays: false,
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

    /// Texts that its account need not repeat.
    pub(crate) fn names(&self) -> CallNames<'_> {
        names(&self.texts)
    }

    /// It is tracked from now on, as this one that has just begun.
    fn track(&mut self, begun: Self) {
        (self.tracked, self.texts) = (true, begun.texts);
    }

    /// The URI of From in its INVITE; of a call that is not tracked as far as a line shows it.
    pub(crate) fn caller(&self) -> &[u8] {
        self.texts.get(CALLER)
    }

    /// The URI of To.
    pub(crate) fn callee(&self) -> &[u8] {
        self.texts.get(CALLEE)
    }

    /// Empty if it is not tracked, or says too much of itself.
    pub fn call_id(&self) -> &[u8] {
        self.texts.get(CALL_ID)
    }

    fn caller_tag(&self) -> &[u8] {
        self.texts.get(CALLER_TAG)
    }

    fn caller_contact(&self) -> &[u8] {
        self.texts.get(CALLER_CONTACT)
    }

    fn caller_routes(&self) -> &[u8] {
        self.texts.get(CALLER_ROUTES)
    }

    fn set_caller_way(&mut self, contact: &[u8], routes: &[u8], source: Source) {
        self.texts = self.texts.with(&[(CALLER_CONTACT, contact), (CALLER_ROUTES, routes)]);
        self.source = source;
    }

    fn set_caller_contact(&mut self, contact: &[u8]) {
        if self.caller_contact() != contact {
            self.texts = self.texts.with(&[(CALLER_CONTACT, contact)]);
        }
    }

    pub(crate) fn dialog(&mut self, tag: &[u8]) -> Option<&mut Dialog> {
        self.dialogs.iter_mut().find(|dialog| dialog.tag() == tag)
    }

    /// The log knows nothing of it any more.
    fn forget_log(&mut self) {
        self.logged = false;
        self.dialogs.iter_mut().for_each(|dialog| dialog.logged = false);
        if !self.tracked {
            self.dialogs.clear();
            self.challenged = false;
            self.forget_invites();
        }
    }

    /// What becomes of its INVITEs is of interest to its account alone.
    pub(crate) fn forget_invites(&mut self) {
        if self.account.is_none() {
            self.open = 0;
        }
    }

    /// An INVITE of it has a final response, or was not forwarded after all.
    pub(crate) fn conclude(&mut self) {
        self.open = self.open.saturating_sub(1);
    }

    /// An INVITE of it was answered by no callee.
    pub(crate) fn fail(&mut self) {
        // A dialog of an earlier process outlasts the failure of an INVITE within it: its call does not count as ended.
        self.stays &= !self.dialogs.iter().any(Dialog::is_resumed);
        self.conclude();
        self.end_early();
    }

    /// After the last of its INVITEs, what rings cannot answer any more.
    pub(crate) fn end_early(&mut self) {
        if self.open == 0 {
            self.dialogs.retain(|dialog| dialog.answer.is_some());
        }
    }

    /// The context of its INVITEs.
    fn context(&self) -> u64 {
        self.context_with(self.salt, Purpose::Invite)
    }

    /// A line is to follow.
    fn is_in_log(&self) -> bool {
        self.logged && (self.open > 0 || self.challenged || self.dialogs.iter().any(|dialog| dialog.logged))
    }

    /// Nothing of it goes on. Once its INVITE has a final response, a callee that rings does not hold it: its branch is being cancelled, or
    /// it lost to another behind the next hop, and if it answers all the same (RFC 3261 section 13.2.2.4), that passes without the call.
    fn is_over(&self) -> bool {
        self.open == 0 && !self.challenged && !self.has_answer()
    }

    /// Its caller was asked for credentials, and may come again.
    pub(crate) fn is_left(&self) -> bool {
        self.challenged && self.open == 0 && !self.has_answer()
    }

    /// A callee has answered its last INVITE.
    fn is_invite_answered(&self) -> bool {
        self.dialogs.iter().any(|dialog| dialog.answer.is_some() && dialog.last_of_caller() >= self.cseq)
    }

    fn has_answer(&self) -> bool {
        self.dialogs.iter().any(|dialog| dialog.answer.is_some())
    }

    /// Makes ages at this moment of its moments, and moments of its ages.
    fn turn(&mut self, now: i64) {
        let turn = |at: &mut i64| *at = now.saturating_sub(*at);
        turn(&mut self.began);
        self.account.iter_mut().for_each(|account| turn(&mut account.began));
        self.dialogs.iter_mut().for_each(|dialog| dialog.change_moments(turn));
    }
}

/// How long a caller may take to come again with credentials, in milliseconds.
const CHALLENGE: u64 = 32_000;

impl Engine {
    /// What is kept of a tag: by that dialogs are told apart.
    pub(crate) fn kept_tag<'a>(&self, tag: &'a [u8]) -> Cow<'a, [u8]> {
        if tag.len() <= LONGEST_TAG {
            return Cow::Borrowed(tag);
        }
        let hash = self.key_of_call(b"", tag).to_le_bytes();
        Cow::Owned([&[HASHED][..], &hash].concat())
    }

    /// The same in all shards, and known to no peer.
    pub(crate) fn key_of_call(&self, call_id: &[u8], caller_tag: &[u8]) -> u64 {
        let seed = u64::from_le_bytes(self.shared.seed[CALL_SEED].try_into().expect("eight of thirty-two bytes"));
        let mut hasher = foldhash::quality::FixedState::with_seed(seed).build_hasher();
        for part in [call_id, caller_tag] {
            hasher.write_usize(part.len());
            hasher.write(part);
        }
        hasher.finish() & !PURPOSES
    }
}

fn names(texts: &Texts) -> CallNames<'_> {
    [CALL_ID, CALLER, CALLEE].map(|number| texts.get(number))
}

pub(crate) const fn moment(now: Now) -> i64 {
    now.mono.cast_signed()
}

/// What From and To of a request name.
pub(crate) fn parties<'a>(request: &Request<'a>) -> (&'a [u8], &'a [u8]) {
    (request.mandatory.from.addr.uri_text, request.mandatory.to.addr.uri_text)
}
