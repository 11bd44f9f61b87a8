//! The calls of a shard that are tracked or logged: from the INVITE that begins one to the end of its last dialog.
//!
//! A call hangs on what becomes of its requests, as the proxy tells it ([`notices`]), and on the requests in its dialogs that pass
//! ([`within`]). The log of calls ([`crate::call_log`]) is one user of that.
//!
//! A peer chooses all that it writes. So a call is known by Call-ID and caller's tag together, and its dialogs by the callee's tag besides
//! (RFC 3261 section 12); who its parties are says the INVITE alone, and that it ends a BYE that our own route token lets through.

mod context;
mod counts;
pub(crate) mod dialog;
mod doubt;
mod end;
mod in_dialog;
mod kept;
mod led;
mod list;
mod notices;
mod shares;
pub(crate) mod texts;
pub(crate) mod within;

pub use context::{NO_CALL, begins_call};
pub use kept::{VERSION as KEPT_VERSION, read_kept};
pub use list::{CallPage, CallState, CallView, DialogView};

use crate::accounting::Account;
use crate::call_limits::{CallLimits, Claim, LimitScope};
use crate::engine::Engine;
use crate::process_state::CALL_SEED;
use crate::session_timer::SessionOffer;
use context::{BELOW_KEY, PURPOSES, Purpose, SALTS};
pub(crate) use counts::CallCounts;
use dialog::Dialog;
use hashbrown::HashTable;
use led::LedScope;
use serde::{Deserialize, Serialize};
use shares::{Parties, Shares};
use smallvec::SmallVec;
use std::borrow::Cow;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use strowger_config::Config;
use strowger_core::routing::Request;
use strowger_core::shown::{LONGEST, shown};
use strowger_core::slots::{Id, Slots};
use strowger_core::{Now, call};
use strowger_message::Index;
use texts::Texts;

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
    /// In the context of its requests: what becomes of those of an earlier call of its Call-ID and tag is nothing to this one. No peer
    /// knows it.
    salt: u16,
    pub(crate) logged: bool,
    /// Its dialogs are known, with what a request to either party must have.
    pub(crate) tracked: bool,
    /// Later requests of it come by: this server is in its route sets.
    pub(crate) stays: bool,
    /// INVITEs of it without a final response: it may pass here again and again, through servers that try one target after another.
    pub(crate) open: u16,
    /// The caller has cancelled it.
    pub(crate) cancelled: bool,
    /// A server behind this one has asked for credentials: the INVITE comes again.
    pub(crate) challenged: bool,
    /// Session timer that its last INVITE offered.
    offer: SessionOffer,
    pub(crate) dialogs: SmallVec<[Dialog; 1]>,
    /// Limits that it counts under to its end.
    pub(crate) counted: Box<[LimitScope]>,
    /// Those that it counts under while it is led where it is. A record of a bucket has them beside its calls.
    #[serde(skip)]
    led: Box<[LedScope]>,
    /// What is to be written down of it.
    pub(crate) account: Option<Box<Account>>,
    /// Its state was given out, or is in a moment: the next process is to go on with it.
    kept: bool,
    /// What is kept of it is out of date.
    #[serde(skip)]
    changed: bool,
    /// When it is to be looked at, in steps of [`STEP`]: so it stands among the deadlines; 0: it does not.
    #[serde(skip)]
    deadline: u32,
    /// Caller and callee whose shares of the table it uses. A call that moved here from another shard uses none.
    #[serde(skip)]
    parties: Parties,
}

/// What the call with a key counts under where it is led.
pub type LedScopes = (u64, Box<[LedScope]>);

const CALLER: usize = 0;
const CALLEE: usize = 1;
const CALL_ID: usize = 2;
const CALLER_TAG: usize = 3;
const CALLER_CONTACT: usize = 4;
const CALLER_ROUTES: usize = 5;

/// Bytes of a Contact, of a route set, and of Call-ID and both URIs together, that are kept. A party that writes more into a dialog is not
/// reached by a BYE of ours.
const LONGEST_WAY: usize = 2_048;

/// Bytes of a tag that is kept as it is. Of a longer one its hash is kept.
const LONGEST_TAG: usize = 256;

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
            salt: (salt & SALTS) as u16,
            logged: false,
            tracked,
            stays: false,
            open: 0,
            cancelled: false,
            challenged: false,
            offer: SessionOffer::default(),
            dialogs: SmallVec::new(),
            counted: Box::default(),
            led: Box::default(),
            account: None,
            kept: false,
            changed: false,
            deadline: 0,
            parties: [0; 2],
        }
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

    fn set_caller_way(&mut self, contact: &[u8], routes: &[u8]) {
        self.texts = self.texts.with(&[(CALLER_CONTACT, contact), (CALLER_ROUTES, routes)]);
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

    /// When it is to be looked at again, as [`Now::mono`].
    fn until(&self, times: CallTimes) -> Option<u64> {
        let after = |at: i64, time: u64| at.saturating_add_unsigned(time).max(0).cast_unsigned();
        let logged = self.is_in_log().then(|| after(self.began, times.logged));
        let challenged = self.is_left().then(|| after(self.began, CHALLENGE));
        let answered = self.dialogs.iter().filter(|_| self.tracked).filter_map(|dialog| dialog.answer);
        let lifetime = answered.map(|answer| after(answer.at, times.lifetime)).min();
        let sessions = self.dialogs.iter().filter_map(Dialog::session_end).min();
        let session = sessions.map(|at| at.max(0).cast_unsigned());
        let doubts = self.dialogs.iter().filter_map(|dialog| dialog.doubt.as_ref());
        let doubt = doubts.map(|doubt| doubt.next.max(0).cast_unsigned()).min();
        [logged, challenged, lifetime, session, doubt].into_iter().flatten().min()
    }

    /// Makes ages at this moment of its moments, and moments of its ages.
    fn turn(&mut self, now: i64) {
        let turn = |at: &mut i64| *at = now.saturating_sub(*at);
        turn(&mut self.began);
        self.account.iter_mut().for_each(|account| turn(&mut account.began));
        self.dialogs.iter_mut().for_each(|dialog| dialog.change_moments(turn));
    }
}

/// How long calls may last, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallTimes {
    /// From its INVITE until the log forgets one.
    pub(crate) logged: u64,
    /// From its answer until this server ends one that is tracked.
    pub(crate) lifetime: u64,
}

impl CallTimes {
    pub(crate) fn of(config: &Config) -> Self {
        let milliseconds = |time: Duration| time.as_millis() as u64;
        Self { logged: milliseconds(config.log.longest_call), lifetime: milliseconds(config.dialogs.lifetime) }
    }
}

/// A call that has left the table.
#[derive(Debug)]
pub(crate) struct Ended {
    key: u64,
    is_kept: bool,
    account: Option<Box<Account>>,
}

/// The calls of one shard.
#[derive(Debug)]
pub(crate) struct Calls {
    calls: Slots<Call>,
    /// By a hash of Call-ID and caller's tag, the same in all shards.
    places: HashTable<Id>,
    /// When a call is to be looked at, in steps of [`STEP`], and its slot.
    deadlines: BTreeSet<(u32, u32)>,
    times: CallTimes,
    counts: CallCounts,
    shares: Shares,
    limits: Arc<CallLimits>,
    /// Calls that are over, of which something is to be written or no longer to be kept.
    pub(crate) ended: Vec<Ended>,
    /// Calls are kept over a restart.
    keeps: bool,
    /// Calls of which what is kept is out of date.
    changed: Vec<u64>,
    /// Where the response came from that the proxy has last looked at.
    pub(crate) responded: Option<SocketAddr>,
    /// [`Now::mono`] of the last giving back of memory.
    tidied: u64,
    /// Scratch.
    index: Index,
}

/// Deadlines are rounded up to so many milliseconds: one turn for many of them. In steps a word of four bytes has room for thirteen years.
const STEP: u64 = 100;

/// How long a caller may take to come again with credentials, in milliseconds.
const CHALLENGE: u64 = 32_000;

impl Calls {
    /// `keeps`: calls are kept over a restart.
    pub(crate) fn new(times: CallTimes, limits: Arc<CallLimits>, keeps: bool) -> Self {
        let (calls, places, deadlines, counts, index) = Default::default();
        let (ended, changed, responded, shares) = Default::default();
        Self {
            calls,
            places,
            deadlines,
            times,
            counts,
            shares,
            limits,
            ended,
            keeps,
            changed,
            responded,
            tidied: 0,
            index,
        }
    }

    /// How long calls may last, from their next change on.
    pub(crate) fn set_times(&mut self, times: CallTimes) {
        self.times = times;
    }

    pub(crate) fn counts(&self) -> CallCounts {
        self.counts
    }

    /// Calls are kept over a restart.
    pub(crate) fn are_kept(&self) -> bool {
        self.keeps
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    pub(crate) fn get(&self, key: u64) -> Option<&Call> {
        self.calls.get(self.place(key)?)
    }

    fn place(&self, key: u64) -> Option<Id> {
        let is_meant = |id: &Id| self.calls.get(*id).is_some_and(|call| call.key == key);
        self.places.find(place_hash(key), is_meant).copied()
    }

    fn get_mut(&mut self, key: u64) -> Option<&mut Call> {
        self.calls.get_mut(self.place(key)?)
    }

    /// The key of the call that a request with this context is of, if that is still there.
    pub(crate) fn key_of(&self, context: u64) -> Option<u64> {
        let purpose = Purpose::of(context)?;
        let is_meant = |id: &Id| self.calls.get(*id).is_some_and(|call| call.has_context(context, purpose));
        let id = self.places.find(place_hash(context), is_meant)?;
        self.calls.get(*id).map(|call| call.key)
    }

    /// When [`Engine::end_calls`] is due.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(at, _)| u64::from(*at) * STEP)
    }

    /// The first call that is to be looked at by now.
    fn due(&self, now: u64) -> Option<u64> {
        let (_, slot) = self.deadlines.first().filter(|(at, _)| u64::from(*at) * STEP <= now)?;
        self.calls.at(*slot).map(|(_, call)| call.key)
    }

    /// Puts a call in, which counts under its limits already. What was there under its key goes.
    pub(crate) fn put(&mut self, key: u64, call: Call) {
        if let Some(before) = self.take(key).filter(|before| before.kept) {
            self.ended.push(Ended { key, is_kept: before.kept, account: None });
        }
        self.recount(CallCounts::default(), CallCounts::of(&call));
        self.shares.add(call.parties);
        let id = self.calls.insert(Call { key, changed: false, deadline: 0, ..call });
        let calls = &self.calls;
        self.places.insert_unique(place_hash(key), id, |id| calls.get(*id).map_or(0, |call| place_hash(call.key)));
        self.set_deadline(key);
    }

    /// Takes a call out: it counts under no limit any more.
    pub(crate) fn take(&mut self, key: u64) -> Option<Call> {
        let calls = &self.calls;
        let is_meant = |id: &Id| calls.get(*id).is_some_and(|call| call.key == key);
        let (id, _) = self.places.find_entry(place_hash(key), is_meant).ok()?.remove();
        let mut call = self.calls.remove(id)?;
        self.recount(CallCounts::of(&call), CallCounts::default());
        self.shares.remove(call.parties);
        call.taken().for_each(|counted| self.limits.give_back(counted));
        if call.deadline != 0 {
            self.deadlines.remove(&(call.deadline, id.slot));
            call.deadline = 0;
        }
        Some(call)
    }

    /// Counts a call that is there under these too, once under each. False: it is not there, or one of them is full.
    pub(crate) fn count(&mut self, key: u64, claims: &[Claim]) -> bool {
        let Some(call) = self.get(key) else { return false };
        let more: Vec<Claim> = claims.iter().filter(|claim| !call.counts_to_its_end(claim)).cloned().collect();
        let taken: Vec<Claim> = more.iter().filter(|claim| !call.counts_under(claim)).cloned().collect();
        if let Err(full) = self.limits.take(&taken) {
            let call_id = shown(call.call_id());
            tracing::debug!(limit = %full.counted.name, %call_id, "failure passed over: its limit of calls is full");
            return false;
        }
        self.change(key, |call| call.count(&more, &taken));
        self.has_changed(key);
        true
    }

    /// Changes a call, if it is there; one that is over then goes.
    pub(crate) fn change<T>(&mut self, key: u64, change: impl FnOnce(&mut Call) -> T) -> Option<T> {
        let call = self.get_mut(key)?;
        let before = CallCounts::of(call);
        let result = change(call);
        let (after, is_over) = (CallCounts::of(call), call.is_over());
        self.recount(before, after);
        if is_over {
            let call = self.take(key).filter(|call| call.kept || call.account.is_some());
            self.ended.extend(call.map(|call| Ended { key, is_kept: call.kept, account: call.account }));
        } else {
            self.set_deadline(key);
        }
        Some(result)
    }

    /// What is to be written down of a call, if it is there and accounted.
    pub(crate) fn account(&mut self, key: u64) -> Option<&mut Account> {
        self.get_mut(key)?.account.as_deref_mut()
    }

    /// All accounts of calls that are not kept: those go on without.
    #[expect(clippy::vec_box, reason = "they leave calls as they are")]
    pub(crate) fn take_accounts(&mut self) -> Vec<Box<Account>> {
        let ids: Vec<Id> = self.places.iter().copied().collect();
        let mut take = |id| self.calls.get_mut(id).filter(|call| !call.kept)?.account.take();
        ids.into_iter().filter_map(&mut take).collect()
    }

    fn recount(&mut self, before: CallCounts, after: CallCounts) {
        let add = |count: &mut usize, before: usize, after: usize| *count = *count + after - before;
        add(&mut self.counts.logged, before.logged, after.logged);
        add(&mut self.counts.tracked, before.tracked, after.tracked);
        add(&mut self.counts.early, before.early, after.early);
        add(&mut self.counts.confirmed, before.confirmed, after.confirmed);
        add(&mut self.counts.counted, before.counted, after.counted);
    }

    fn set_deadline(&mut self, key: u64) {
        let times = self.times;
        let Some(id) = self.place(key) else { return };
        let Some(call) = self.calls.get_mut(id) else { return };
        let steps = |at: u64| u32::try_from(at.div_ceil(STEP).max(1)).unwrap_or(u32::MAX);
        let at = call.until(times).map_or(0, steps);
        let before = std::mem::replace(&mut call.deadline, at);
        if before == at {
            return;
        }
        if before != 0 {
            self.deadlines.remove(&(before, id.slot));
        }
        if at != 0 {
            self.deadlines.insert((at, id.slot));
        }
    }

    /// Takes out the calls of a bucket.
    pub(crate) fn export(&mut self, now: Now, bucket: u8) -> Vec<Call> {
        let of_bucket = |call: &Call| call::bucket(call.call_hash) == bucket;
        let keys: Vec<u64> = self.calls.iter().filter(|(_, call)| of_bucket(call)).map(|(_, call)| call.key).collect();
        let mut taken: Vec<_> = keys.into_iter().filter_map(|key| self.take(key)).collect();
        taken.iter_mut().for_each(|call| call.turn(moment(now)));
        taken
    }

    /// What calls on their way to another shard count under where they are led, by their keys.
    pub(crate) fn export_led(calls: &mut [Call]) -> Vec<LedScopes> {
        let led = calls.iter_mut().filter(|call| !call.led.is_empty());
        led.map(|call| (call.key, std::mem::take(&mut call.led))).collect()
    }

    /// Takes in what another shard exported; `led`: by the keys of some of these calls, in their order, what they count under where they are
    /// led.
    pub(crate) fn import(&mut self, now: Now, calls: Vec<Call>, led: Vec<LedScopes>) {
        let mut led = led.into_iter().peekable();
        for mut call in calls {
            call.turn(moment(now));
            if let Some((_, led)) = led.next_if(|(key, _)| *key == call.key) {
                call.led = led;
            }
            self.put_back(call);
        }
    }

    /// Puts a call in that counted elsewhere, or here, before.
    pub(crate) fn put_back(&mut self, call: Call) {
        call.taken().for_each(|counted| self.limits.take_over(counted));
        self.put(call.key, call);
    }

    /// Gives memory back, once a second at most.
    pub(crate) fn tidy(&mut self, now: u64) {
        if now < self.tidied + 1_000 {
            return;
        }
        self.tidied = now;
        self.calls.tidy();
        if self.calls.is_empty() {
            self.places = HashTable::new();
        }
    }
}

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

/// A hash of the bits that a key and its contexts have in common.
const fn place_hash(key: u64) -> u64 {
    (key >> BELOW_KEY).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

pub(crate) const fn moment(now: Now) -> i64 {
    now.mono.cast_signed()
}

/// What From and To of a request name.
pub(crate) fn parties<'a>(request: &Request<'a>) -> (&'a [u8], &'a [u8]) {
    (request.mandatory.from.addr.uri_text, request.mandatory.to.addr.uri_text)
}
