//! Calls that continue in the next process, and their kept state.
//!
//! A tracked call is kept from its first answer on. When its kept state has changed, the new state is emitted as an
//! effect at the end of the round, only once even after several changes. The end of the call is emitted as an effect
//! too. Work in progress (a BYE without a response, a renewal, a ringing fork) is not kept: the transactions end with
//! the process, and their requests may be retransmitted to the next process.
//!
//! The kept state consists of a version, the moment of writing, the state of the role that anchors the call, and the [`Call`] in bytes. Moments are
//! written as ages, since no other process has the clock of this one. The role encodes its state itself ([`with_anchor`], [`anchor_of`]).

use crate::call::{Call, HASHED, names};
use crate::dialog::Dialog;
use crate::effect::CallEffect;
use crate::table::{CallTable, Ended};
use crate::times::moment;
use strowger_core::record::Unreadable;
use strowger_core::{Now, call};
use strowger_store::accounting::{PartyMedia, Row};

/// Format version of kept calls. Each change of the format needs a new number.
pub const VERSION: u8 = 7;

/// Bytes before the call: the version, and the moment of writing in milliseconds since 1970.
const HEAD: usize = 1 + 8;

/// Bytes of the length of the state of the role.
const LENGTH: usize = 4;

/// Reads a call that an earlier process kept.
///
/// # Errors
/// The bytes are no kept call, or of another version of this program.
pub fn read_kept(now: Now, bytes: &[u8]) -> Result<Call, Unreadable> {
    let (&version, rest) = bytes.split_first().ok_or(Unreadable::Malformed)?;
    if version != VERSION {
        return Err(Unreadable::Version(version));
    }
    let (wall, rest) = rest.split_first_chunk().ok_or(Unreadable::Malformed)?;
    let (_, rest) = split_anchor(rest).ok_or(Unreadable::Malformed)?;
    let mut call: Call = postcard::from_bytes(rest).map_err(|_| Unreadable::Malformed)?;
    // The ages of calls must not decrease if a clock was set back since the state was written.
    let since = now.wall.saturating_sub(u64::from_le_bytes(*wall));
    call.turn(moment(now).saturating_sub_unsigned(since));
    Ok(call)
}

/// Splits the part after the head into the state of the role and the call.
fn split_anchor(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<LENGTH>()?;
    rest.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)
}

/// Returns kept state of a call with the state of the role that anchors the call, which replaces an earlier one.
pub fn with_anchor(state: &[u8], anchor: &[u8]) -> Box<[u8]> {
    let (head, rest) = state.split_at_checked(HEAD).unwrap_or((state, &[][..]));
    let Some((_, call)) = split_anchor(rest) else { return state.into() };
    let length = u32::try_from(anchor.len()).unwrap_or_default().to_le_bytes();
    [head, &length[..], anchor, call].concat().into()
}

/// Returns the state of the role that anchors a call, from kept state that [`read_kept`] can read; empty if there is none.
pub fn anchor_of(state: &[u8]) -> &[u8] {
    state.get(HEAD..).and_then(split_anchor).map_or(&[][..], |(anchor, _)| anchor)
}

impl Call {
    /// Returns the bucket of its Call-ID, 0 to 255.
    pub const fn bucket(&self) -> u8 {
        call::bucket(self.call_hash)
    }

    /// Forgets the transactions of the call, which ended with another process.
    fn goes_on(&mut self) {
        (self.open, self.cancelled, self.challenged) = (0, false, false);
        self.dialogs.retain(|dialog| dialog.answer.is_some());
        self.dialogs.iter_mut().for_each(Dialog::goes_on);
    }

    fn write(&mut self, now: Now) -> Box<[u8]> {
        let mut bytes = Vec::with_capacity(HEAD + LENGTH + 1_024);
        bytes.push(VERSION);
        bytes.extend_from_slice(&now.wall.to_le_bytes());
        bytes.extend_from_slice(&[0; LENGTH]);
        self.turn(moment(now));
        // In the next process the call is sent to no other target.
        let scopes = self.without_target().map(|stays| self.scopes.replace(stays));
        let bytes = postcard::to_extend(self, bytes).expect("a vector takes all, and every sequence knows its length");
        if let Some(scopes) = scopes {
            self.scopes = scopes;
        }
        self.turn(moment(now));
        bytes.into()
    }
}

impl CallTable {
    /// Emits the state of kept calls that have changed as [`CallEffect`]s, and the end of kept calls that have ended.
    /// The owner calls this at the end of a round.
    #[inline]
    pub fn keep_changed(&mut self, now: Now) {
        if !self.changed.is_empty() {
            self.keep_all_changed(now);
        }
    }

    #[cold]
    fn keep_all_changed(&mut self, now: Now) {
        let mut changed = std::mem::take(&mut self.changed);
        for key in changed.drain(..) {
            // The end of such a call was emitted separately.
            let Some(call) = self.get_mut(key).filter(|call| call.changed) else { continue };
            call.changed = false;
            let state = call.write(now);
            self.effects.push(CallEffect::PersistCall { call: key, state });
        }
        self.changed = changed;
    }

    /// Emits the rows of ended calls, and the end of their kept state. A call that awaits a report about its media waits.
    pub fn close_accounts(&mut self, now: Now) {
        // The list keeps its memory.
        let mut all = std::mem::take(&mut self.ended);
        for ended in all.drain(..) {
            if ended.was_tracked {
                self.settings.ended.note(ended.key, now);
            }
            if ended.account.as_ref().is_some_and(|account| account.awaits_media()) {
                self.unreported.push(now.mono, ended);
            } else {
                self.close_account(ended);
            }
        }
        self.ended = all;
    }

    fn close_account(&mut self, Ended { key, is_kept, account, texts, .. }: Ended) {
        let rows: Vec<Box<Row>> = account.into_iter().flat_map(|account| account.close(names(&texts))).collect();
        match (is_kept, rows.is_empty()) {
            (true, true) => self.effects.push(CallEffect::DeleteCall { call: key }),
            (true, false) => {
                self.effects.push(CallEffect::FinishCall { call: key, rows: Row::write_all(&rows).into() });
            }
            (false, _) => (),
        }
        self.effects.extend(rows.into_iter().map(CallEffect::Account));
    }

    /// Notes that the media session of a call is being closed: the rows of the call wait for [`CallTable::media_ended`], for a second after its
    /// end at most.
    pub fn await_media(&mut self, key: u64) {
        if let Some((account, _)) = self.account(key) {
            account.await_media();
            self.has_changed(key);
        }
    }

    /// Takes the quality of the media of a call, by party, after the end of its media session. The rows of a call that has ended follow.
    pub fn media_ended(&mut self, key: u64, media: PartyMedia) {
        if let Some(mut ended) = self.unreported.take(key) {
            if let Some(account) = &mut ended.account {
                account.media_ended(media);
            }
            self.close_account(ended);
        } else if let Some((account, _)) = self.account(key) {
            account.media_ended(media);
            self.has_changed(key);
        }
    }

    /// Emits the rows of ended calls without a report about their media, if they wait no longer at `now`, in milliseconds. Returns whether
    /// there were any.
    pub fn close_unreported(&mut self, now: u64) -> bool {
        let mut is_any = false;
        while let Some(ended) = self.unreported.take_due(now) {
            is_any = true;
            self.close_account(ended);
        }
        is_any
    }

    /// Continues the calls of an earlier process, and asks their parties soon whether the calls still exist. Returns
    /// the number of calls that were written under another secret: no request of their parties is admitted as a request
    /// within a dialog, so this server does not see their end. `call_secret`: key of the hashes of Call-IDs.
    pub fn take_over(&mut self, now: Now, calls: Vec<Call>, call_secret: u32) -> usize {
        let (mut strange, count) = (0, calls.len());
        for (place, mut call) in calls.into_iter().enumerate() {
            call.goes_on();
            call.doubt_all(now, place, count);
            strange += usize::from(self.is_strange(&call, call_secret));
            if call.is_over() {
                let Call { key, account, texts, .. } = call;
                self.ended.push(Ended { key, is_kept: true, was_tracked: true, account, texts });
                continue;
            }
            self.put_back(call);
        }
        self.close_accounts(now);
        strange
    }
}

impl CallTable {
    /// Writes rows without an end for the calls that continue when the process ends. Kept calls continue in the next
    /// process. Rows of ended calls wait for no report any more.
    pub fn cut_off_accounts(&mut self, now: Now) {
        self.close_unreported(u64::MAX);
        self.keep_changed(now);
        let cut_off = self.take_accounts(|account, names| account.cut_off(names));
        self.effects.extend(cut_off.into_iter().map(CallEffect::Account));
    }

    /// Notes that the next process does not continue a call, although it is answered: its role could not write its state.
    pub fn has_no_successor(&mut self, key: u64) {
        self.get_mut(key).into_iter().for_each(|call| call.kept = false);
    }

    /// Tells whether the call would have other keys in this process, as far as the keys can be computed.
    fn is_strange(&self, call: &Call, call_secret: u32) -> bool {
        let (call_id, tag) = (call.call_id(), call.caller_tag());
        let is_known = !call_id.is_empty() && tag.first() != Some(&HASHED);
        let hash = call::hash(call_secret, call_id);
        // The bucket may be that of a call in which this one has replaced a party.
        let is_same = call::in_bucket(hash, 0) == call::in_bucket(call.call_hash, 0);
        is_known && !(is_same && self.key_of_call(call_id, tag) == call.key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_of_the_role_stands_beside_the_call() {
        let state = [&[VERSION; HEAD][..], &[0_u8; LENGTH][..], &b"call"[..]].concat();
        assert!(anchor_of(&state).is_empty());
        let with = with_anchor(&with_anchor(&state, b"of an earlier round"), b"role");
        assert_eq!((anchor_of(&with), with.len()), (&b"role"[..], state.len() + 4));
        assert_eq!(*with_anchor(&with, b""), *state);
        for length in 0..with.len() - 4 {
            assert!(anchor_of(&with[..length]).len() < 5, "cut at {length}");
        }
    }

    #[test]
    fn bytes_that_are_no_call_are_refused() {
        let now = Now { mono: 5, wall: 1_000 };
        assert_eq!(read_kept(now, b"").err(), Some(Unreadable::Malformed));
        assert_eq!(read_kept(now, &[VERSION + 1; 40]).err(), Some(Unreadable::Version(VERSION + 1)));
        for length in 0..60 {
            let bytes = [&[VERSION][..], &[255; 60][..length]].concat();
            assert_eq!(read_kept(now, &bytes).err(), Some(Unreadable::Malformed));
        }
    }
}
