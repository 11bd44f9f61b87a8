//! Dialogs of the bridged calls of all shards, by Call-ID. An INVITE with Replaces (RFC 3891) has a Call-ID of its own, whose hash may name
//! another bucket than that of the call that it replaces a party of.
//!
//! 1. Each shard enters the dialogs of a call that was answered, with the bucket of the call.
//! 2. The receiver of an INVITE whose Replaces names one of them *adopts* the Call-ID of the INVITE: all messages with it belong to the bucket of the
//!    bridged call, from the first one on. A CANCEL or an ACK has no Replaces, so the Call-ID decides.
//! 3. An adopted Call-ID stays while its dialog does, and then for as long as a message of it may come. That of an INVITE that was refused goes in
//!    the same way.
//!
//! The table names buckets, not shards, so moves of buckets do not change it. The next process enters the dialogs of the calls that it takes over.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::{Mutex, MutexGuard, PoisonError};
use strowger_core::call;
use strowger_core::user_agent::DialogName;
use strowger_message::header::Replaces;
use strowger_message::{Index, Limits, Message, Name};

/// Number of partitions, a power of 2.
const PARTITIONS: usize = 64;

/// Maximum number of adopted Call-IDs of one partition whose INVITE has no dialog yet, or whose dialog is over. An INVITE beyond it goes by its own
/// Call-ID, and is refused there (481).
const MOST_PASSING: usize = 64;

/// Time for which an adopted Call-ID stays without a dialog, in milliseconds: the re-INVITE to the other party may ring for 181 s, and messages of a
/// transaction come for 32 s more.
const PASSING: u64 = 240_000;

/// Dialogs of the bridged calls of a process.
#[derive(Debug)]
pub(crate) struct BridgedDialogs {
    /// Key of [`call::hash`].
    secret: u32,
    /// Number of Call-IDs in all partitions.
    all: AtomicUsize,
    partitions: [Partition; PARTITIONS],
}

/// Call-IDs whose hashes have the same lowest bits.
#[derive(Debug, Default)]
struct Partition {
    /// Number of adopted Call-IDs. It is read without the lock.
    adopted: AtomicUsize,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    calls: BTreeMap<Box<[u8]>, Entry>,
    /// Call-IDs without a dialog by the end of their time ([`strowger_core::Now::mono`]), the first one first.
    passing: VecDeque<(u64, Box<[u8]>)>,
}

#[derive(Debug)]
struct Entry {
    bucket: u8,
    is_adopted: bool,
    state: State,
}

#[derive(Debug)]
enum State {
    /// The Call-ID has no dialog, and goes at this moment.
    Passing(u64),
    Dialog(Box<Known>),
}

/// Dialog of a leg, from the side of this server.
#[derive(Debug)]
struct Known {
    local_tag: Vec<u8>,
    remote_tag: Vec<u8>,
    /// Dialog of the other leg.
    beyond: DialogName,
    /// End of the wait for a new party in place of this one, which a REFER has announced; 0: none is awaited.
    awaited_until: u64,
}

impl Table {
    /// Removes the Call-IDs whose time is over. Returns the numbers of removed ones and of adopted ones among them.
    fn expire(&mut self, now: u64) -> (usize, usize) {
        let (mut removed, mut adopted) = (0, 0);
        while let Some((until, call_id)) = self.passing.pop_front_if(|(until, _)| *until <= now) {
            let is_over = |entry: &Entry| matches!(entry.state, State::Passing(end) if end <= until);
            if self.calls.get(&call_id).is_some_and(is_over)
                && let Some(entry) = self.calls.remove(&call_id)
            {
                removed += 1;
                adopted += usize::from(entry.is_adopted);
            }
        }
        (removed, adopted)
    }
}

impl Partition {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BridgedDialogs {
    /// Creates a table without calls. `secret`: key of [`call::hash`].
    pub(crate) fn new(secret: u32) -> Self {
        Self { secret, all: AtomicUsize::new(0), partitions: std::array::from_fn(|_| Partition::default()) }
    }

    /// Returns the key of [`call::hash`].
    pub(crate) const fn secret(&self) -> u32 {
        self.secret
    }

    fn partition(&self, hash: u32) -> &Partition {
        &self.partitions[hash as usize % PARTITIONS]
    }

    /// Returns this hash of a Call-ID with the bucket to which the Call-ID belongs in its highest bits. Takes a lock only if its partition has an
    /// adopted Call-ID.
    #[inline]
    pub(crate) fn placed_hash(&self, hash: u32, call_id: &[u8]) -> u32 {
        match self.partition(hash).adopted.load(Acquire) {
            0 => hash,
            _ => self.adopted_hash(hash, call_id),
        }
    }

    #[cold]
    fn adopted_hash(&self, hash: u32, call_id: &[u8]) -> u32 {
        let table = self.partition(hash).lock();
        table.calls.get(call_id).map_or(hash, |entry| call::in_bucket(hash, entry.bucket))
    }

    /// Returns [`BridgedDialogs::placed_hash`] of a message with this Call-ID, as received. Adopts that of an INVITE that is to replace a party of
    /// a bridged call. `now`: [`strowger_core::Now::mono`].
    #[inline]
    pub(crate) fn hash_of_message(&self, now: u64, (hash, call_id): (u32, &[u8]), message: &[u8]) -> u32 {
        let hash = self.placed_hash(hash, call_id);
        match self.all.load(Acquire) > 0 && message.starts_with(b"INVITE ") && names_replaces(message) {
            true => self.adopt(now, (hash, call_id), message),
            false => hash,
        }
    }

    /// Adopts the Call-ID of an initial INVITE whose Replaces names a dialog of a bridged call. Returns the hash of the Call-ID from now on.
    #[cold]
    fn adopt(&self, now: u64, (hash, call_id): (u32, &[u8]), message: &[u8]) -> u32 {
        let Some(bucket) = self.bucket_of_replaced(message) else { return hash };
        let partition = self.partition(hash);
        let mut table = partition.lock();
        let (removed, adopted) = table.expire(now);
        self.all.fetch_sub(removed, Release);
        partition.adopted.fetch_sub(adopted, Release);
        // A Call-ID that is known stays where it is.
        if let Some(entry) = table.calls.get(call_id) {
            return call::in_bucket(hash, entry.bucket);
        }
        if call::bucket(hash) == bucket || table.passing.len() >= MOST_PASSING {
            return hash;
        }
        let until = now + PASSING;
        table.calls.insert(call_id.into(), Entry { bucket, is_adopted: true, state: State::Passing(until) });
        table.passing.push_back((until, call_id.into()));
        self.all.fetch_add(1, Release);
        partition.adopted.fetch_add(1, Release);
        call::in_bucket(hash, bucket)
    }

    /// Returns the bucket of the dialog that the Replaces of an INVITE outside any dialog names.
    fn bucket_of_replaced(&self, message: &[u8]) -> Option<u8> {
        let mut index = Index::new();
        index.parse(message, &Limits::UNLIMITED).ok()?;
        let message = Message::new(message, &index);
        if message.to().ok()?.tag.is_some() {
            return None;
        }
        let replaces = Replaces::parse(message.header(Name::Replaces)?).ok()?;
        let named = replaces.call_id.text;
        let table = self.partition(call::hash(self.secret, named)).lock();
        table.calls.get(named).map(|entry| entry.bucket)
    }

    /// Enters both dialogs of a call in this bucket, from our side. A dialog that is known keeps its wait for a new party.
    pub(crate) fn enter(&self, bucket: u8, [one, other]: [&DialogName; 2]) {
        for (name, beyond) in [(one, other), (other, one)] {
            let hash = call::hash(self.secret, &name.call_id);
            let partition = self.partition(hash);
            let mut table = partition.lock();
            let is_adopted = call::bucket(hash) != bucket;
            let before = table.calls.remove(&*name.call_id);
            if before.is_none() {
                self.all.fetch_add(1, Release);
                partition.adopted.fetch_add(usize::from(is_adopted), Release);
            }
            let awaited_until = match before.map(|entry| entry.state) {
                Some(State::Dialog(known)) if known.is(name) => known.awaited_until,
                _ => 0,
            };
            let (local_tag, remote_tag) = (name.local_tag.clone(), name.remote_tag.clone());
            let known = Box::new(Known { local_tag, remote_tag, beyond: beyond.clone(), awaited_until });
            table.calls.insert((&*name.call_id).into(), Entry { bucket, is_adopted, state: State::Dialog(known) });
        }
    }

    /// Removes the dialog with this Call-ID, which is over. An adopted Call-ID stays for a while.
    pub(crate) fn remove(&self, now: u64, call_id: &[u8]) {
        let partition = self.partition(call::hash(self.secret, call_id));
        let mut table = partition.lock();
        let (mut removed, adopted) = table.expire(now);
        match table.calls.get_mut(call_id) {
            Some(entry) if entry.is_adopted => {
                let until = now + PASSING;
                entry.state = State::Passing(until);
                table.passing.push_back((until, call_id.into()));
            }
            Some(_) => {
                table.calls.remove(call_id);
                removed += 1;
            }
            None => (),
        }
        self.all.fetch_sub(removed, Release);
        partition.adopted.fetch_sub(adopted, Release);
    }

    /// Returns the dialog of the other leg of the call with this dialog, from our side; `None` if no bridged call has the dialog.
    pub(crate) fn beyond(&self, name: &DialogName) -> Option<DialogName> {
        self.with(&name.call_id, |known| known.is(name).then(|| known.beyond.clone())).flatten()
    }

    /// Notes until when a new party is to take the place of that of a dialog; `None`: no party comes any more.
    pub(crate) fn set_awaited(&self, name: &DialogName, until: Option<u64>) {
        self.with(&name.call_id, |known| {
            if known.is(name) {
                known.awaited_until = until.unwrap_or(0);
            }
        });
    }

    /// Returns the end of the wait for a new party in place of that of the dialog with this Call-ID; `None` if none is awaited at `now`.
    pub(crate) fn awaited_until(&self, now: u64, call_id: &[u8]) -> Option<u64> {
        self.with(call_id, |known| known.awaited_until).filter(|until| *until > now)
    }

    fn with<T>(&self, call_id: &[u8], work: impl FnOnce(&mut Known) -> T) -> Option<T> {
        if self.all.load(Relaxed) == 0 {
            return None;
        }
        let mut table = self.partition(call::hash(self.secret, call_id)).lock();
        match &mut table.calls.get_mut(call_id)?.state {
            State::Dialog(known) => Some(work(known)),
            State::Passing(_) => None,
        }
    }
}

impl Known {
    fn is(&self, name: &DialogName) -> bool {
        self.local_tag == name.local_tag && self.remote_tag == name.remote_tag
    }
}

/// Tells whether a line of a message begins with Replaces, which has no compact form.
fn names_replaces(message: &[u8]) -> bool {
    const NAME: &[u8] = b"replaces";
    message.windows(NAME.len() + 1).any(|window| {
        matches!(window[0], b'\n' | b'\r') && window[1] | 0x20 == NAME[0] && window[1..].eq_ignore_ascii_case(NAME)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_message::scan;

    const SECRET: u32 = 7;

    fn name(call_id: &str, local: &str, remote: &str) -> DialogName {
        let [call_id, local_tag, remote_tag] = [call_id, local, remote].map(|text| text.as_bytes().to_vec());
        DialogName { call_id, local_tag, remote_tag }
    }

    fn bucket(call_id: &str) -> u8 {
        call::bucket(call::hash(SECRET, call_id.as_bytes()))
    }

    fn invite(call_id: &str, to: &str, replaces: &str) -> Vec<u8> {
        format!(
            "INVITE sip:a@example.org SIP/2.0\r\nVia: SIP/2.0/UDP 192.0.2.1;branch=z9hG4bK1\r\nFrom: <sip:b@example.org>;tag=b\r\n\
             To: <sip:a@example.org>{to}\r\nCall-ID: {call_id}\r\nCSeq: 1 INVITE\r\n{replaces}Content-Length: 0\r\n\r\n"
        )
        .into_bytes()
    }

    /// Returns a table with a call in a bucket that is neither that of `new` nor of `other`, and the bucket.
    fn with_a_call() -> (BridgedDialogs, u8) {
        let dialogs = BridgedDialogs::new(SECRET);
        let bucket = (0..=u8::MAX).find(|one| *one != bucket("new") && *one != bucket("other")).expect("254 are free");
        dialogs.enter(bucket, [&name("near", "n1", "n2"), &name("far", "f1", "f2")]);
        (dialogs, bucket)
    }

    /// Returns the bucket of a received message.
    fn bucket_of(dialogs: &BridgedDialogs, now: u64, message: &[u8]) -> u8 {
        let at = scan::call_id(message).expect("a Call-ID");
        let call_id = &message[at];
        call::bucket(dialogs.hash_of_message(now, (call::hash(SECRET, call_id), call_id), message))
    }

    #[test]
    fn a_call_id_is_adopted_for_as_long_as_its_messages_may_come() {
        let (dialogs, there) = with_a_call();
        let line = "rePlaces : far;to-tag=f2;from-tag=f1\r\n";
        let of = |now, message: &[u8]| bucket_of(&dialogs, now, message);
        let cancel = String::from_utf8(invite("new", "", "")).expect("text").replace("INVITE", "CANCEL");
        assert_eq!(of(0, cancel.as_bytes()), bucket("new"));
        assert_eq!(of(0, &invite("new", "", "Replaces: other;to-tag=f2;from-tag=f1\r\n")), bucket("new"));
        assert_eq!(of(0, &invite("new", ";tag=a", line)), bucket("new"), "a re-INVITE has a dialog");
        assert_eq!(of(1, &invite("new", "", line)), there);
        assert_eq!(of(2, cancel.as_bytes()), there);
        assert_eq!(of(2, &invite("other", "", "")), bucket("other"));
        // The INVITE was refused, and another one comes later.
        assert_eq!(of(PASSING + 1, &invite("new", "", "")), there, "nothing has expired it");
        dialogs.remove(PASSING + 2, b"new");
        assert_eq!(of(PASSING + 2, cancel.as_bytes()), bucket("new"));
        // A dialog keeps it.
        assert_eq!(of(PASSING + 3, &invite("new", "", line)), there);
        dialogs.enter(there, [&name("new", "n3", "n4"), &name("far", "f1", "f2")]);
        dialogs.remove(3 * PASSING, b"near");
        assert_eq!(of(3 * PASSING, cancel.as_bytes()), there);
        dialogs.remove(3 * PASSING, b"new");
        assert_eq!(of(3 * PASSING, cancel.as_bytes()), there, "copies of its BYE may come");
        dialogs.remove(4 * PASSING, b"new");
        assert_eq!(of(4 * PASSING, cancel.as_bytes()), bucket("new"));
    }

    #[test]
    fn a_partition_adopts_a_bounded_number_of_call_ids() {
        let (dialogs, there) = with_a_call();
        let line = "Replaces: near;to-tag=n1;from-tag=n2\r\n";
        let partition = |call_id: &str| call::hash(SECRET, call_id.as_bytes()) as usize % PARTITIONS;
        let names =
            (0..).map(|number| format!("{number}")).filter(|name| partition(name) == 0 && bucket(name) != there);
        let adopted: Vec<bool> = names
            .take(MOST_PASSING + 1)
            .map(|name| bucket_of(&dialogs, 5, &invite(&name, "", line)) == there)
            .collect();
        assert!(adopted[..MOST_PASSING].iter().all(|is| *is) && !adopted[MOST_PASSING]);
    }

    #[test]
    fn dialogs_are_known_by_their_whole_names() {
        let (dialogs, there) = with_a_call();
        let (near, far) = (name("near", "n1", "n2"), name("far", "f1", "f2"));
        assert_eq!((dialogs.beyond(&near), dialogs.beyond(&far)), (Some(far.clone()), Some(near.clone())));
        assert_eq!(dialogs.beyond(&name("near", "n2", "n1")), None);
        dialogs.set_awaited(&name("near", "n1", "x"), Some(50));
        assert_eq!(dialogs.awaited_until(10, b"near"), None);
        dialogs.set_awaited(&near, Some(50));
        dialogs.enter(there, [&near, &far]);
        assert_eq!((dialogs.awaited_until(49, b"near"), dialogs.awaited_until(50, b"near")), (Some(50), None));
        dialogs.set_awaited(&near, None);
        assert_eq!(dialogs.awaited_until(10, b"near"), None);
        dialogs.remove(10, b"near");
        dialogs.remove(10, b"far");
        assert_eq!((dialogs.beyond(&near), dialogs.beyond(&far)), (None, None));
    }
}
