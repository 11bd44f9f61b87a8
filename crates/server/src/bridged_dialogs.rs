//! Dialogs of the bridged calls of all shards, by Call-ID. An INVITE with Replaces (RFC 3891) has a Call-ID of its own, whose hash may name
//! another bucket than that of the call that it replaces a party of.
//!
//! 1. Each shard enters the dialogs of a call that was answered, with the bucket of the call.
//! 2. The receiver of an INVITE whose Replaces names one of them *adopts* the Call-ID of the INVITE: all messages with it belong to the bucket of the
//!    bridged call, from the first one on. A CANCEL or an ACK has no Replaces, so the Call-ID decides. The INVITE is not authorized yet: it must
//!    name both tags, and the number of Call-IDs adopted for a dialog is bounded.
//! 3. An adopted Call-ID stays while its dialog does, and then for as long as a message of it may come. That of an INVITE that was refused goes in
//!    the same way.
//!
//! The table names buckets, not shards, so moves of buckets do not change it. The next process enters the dialogs of the calls that it takes over.

mod proof;

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

/// Maximum number of adopted Call-IDs whose INVITEs name the same dialog and have none of their own yet. An INVITE beyond it goes by its own
/// Call-ID.
const MOST_ADOPTIONS: usize = 8;

/// Maximum length of an adopted Call-ID, in bytes.
const LONGEST_ADOPTED: usize = 512;

/// Time for which an adopted Call-ID stays without a dialog, in milliseconds: the re-INVITE to the other party may ring for 181 s, and messages of a
/// transaction come for 32 s more.
const PASSING: u64 = 240_000;

/// Dialogs of the bridged calls of a process.
#[derive(Debug)]
pub(crate) struct BridgedDialogs {
    /// Key of [`call::hash`].
    secret: u32,
    /// Number of Call-IDs in all partitions.
    pub(crate) all: AtomicUsize,
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
    /// End of its time ([`strowger_core::Now::mono`]) and hash of each Call-ID adopted for an INVITE that names this dialog.
    adoptions: Vec<(u64, u32)>,
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
        if call_id.len() > LONGEST_ADOPTED {
            return hash;
        }
        // The given hash may have the bucket of an entry whose time is over.
        let hash = call::hash(self.secret, call_id);
        let partition = self.partition(hash);
        let is_full = {
            let mut table = partition.lock();
            self.expire(now, partition, &mut table);
            // A Call-ID that is known stays where it is.
            if let Some(entry) = table.calls.get(call_id) {
                return call::in_bucket(hash, entry.bucket);
            }
            table.passing.len() >= MOST_PASSING
        };
        if is_full {
            return hash;
        }
        // The named dialog may be in the same partition, so the lock is free meanwhile.
        let Some(bucket) = self.bucket_of_replaced(now, hash, message) else { return hash };
        let mut table = partition.lock();
        if let Some(entry) = table.calls.get(call_id) {
            return call::in_bucket(hash, entry.bucket);
        }
        let until = now + PASSING;
        table.calls.insert(call_id.into(), Entry { bucket, is_adopted: true, state: State::Passing(until) });
        table.passing.push_back((until, call_id.into()));
        self.all.fetch_add(1, Release);
        partition.adopted.fetch_add(1, Release);
        call::in_bucket(hash, bucket)
    }

    /// Returns the bucket of the dialog that the Replaces of an INVITE outside any dialog names by Call-ID and both tags, and counts the Call-ID of
    /// the INVITE, which has this hash, for that dialog. `None` if both belong to the same bucket, or the dialog has enough Call-IDs.
    fn bucket_of_replaced(&self, now: u64, hash: u32, message: &[u8]) -> Option<u8> {
        let mut index = Index::new();
        index.parse(message, &Limits::UNLIMITED).ok()?;
        let message = Message::new(message, &index);
        if message.to().ok()?.tag.is_some() {
            return None;
        }
        let replaces = Replaces::parse(message.header(Name::Replaces)?).ok()?;
        let named = replaces.call_id.text;
        let mut table = self.partition(call::hash(self.secret, named)).lock();
        let Entry { bucket, state: State::Dialog(known), .. } = table.calls.get_mut(named)? else { return None };
        let is_other = call::bucket(hash) != *bucket;
        (is_other && known.is_named_by(&replaces) && known.count(now, hash)).then_some(*bucket)
    }

    /// Removes the Call-IDs of a partition whose time is over.
    fn expire(&self, now: u64, partition: &Partition, table: &mut Table) {
        let (removed, adopted) = table.expire(now);
        self.all.fetch_sub(removed, Release);
        partition.adopted.fetch_sub(adopted, Release);
    }

    /// Removes all Call-IDs whose time is over. The owner calls this every few seconds. `now`: [`strowger_core::Now::mono`].
    pub(crate) fn tidy(&self, now: u64) {
        for partition in self.partitions.iter().filter(|partition| partition.adopted.load(Acquire) > 0) {
            self.expire(now, partition, &mut partition.lock());
        }
    }

    /// Enters both dialogs of a call in this bucket, from our side. A dialog that is known keeps its wait for a new party, and its adopted Call-IDs
    /// but that of the other dialog.
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
            let (awaited_until, mut adoptions) = match before.map(|entry| entry.state) {
                Some(State::Dialog(known)) if known.is(name) => (known.awaited_until, known.adoptions),
                _ => (0, Vec::new()),
            };
            let newcomer = call::hash(self.secret, &beyond.call_id);
            adoptions.retain(|(_, hash)| *hash != newcomer);
            let (local_tag, remote_tag) = (name.local_tag.clone(), name.remote_tag.clone());
            let known = Box::new(Known { local_tag, remote_tag, beyond: beyond.clone(), awaited_until, adoptions });
            table.calls.insert((&*name.call_id).into(), Entry { bucket, is_adopted, state: State::Dialog(known) });
        }
    }

    /// Removes the dialog with this Call-ID, which is over. An adopted Call-ID stays for a while.
    pub(crate) fn remove(&self, now: u64, call_id: &[u8]) {
        let partition = self.partition(call::hash(self.secret, call_id));
        let mut table = partition.lock();
        self.expire(now, partition, &mut table);
        match table.calls.get_mut(call_id) {
            Some(entry) if entry.is_adopted => {
                let until = now + PASSING;
                entry.state = State::Passing(until);
                table.passing.push_back((until, call_id.into()));
            }
            Some(_) => {
                table.calls.remove(call_id);
                self.all.fetch_sub(1, Release);
            }
            None => (),
        }
    }

    /// Tells whether a bridged call in any shard has a dialog with this Call-ID.
    pub(crate) fn has_dialog(&self, call_id: &[u8]) -> bool {
        self.with(call_id, |_| ()).is_some()
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

    /// Tells whether these are the tags of the dialog, as this server or as its peer names them.
    fn is_named_by(&self, replaces: &Replaces<'_>) -> bool {
        let tags = [&self.local_tag[..], &self.remote_tag[..]];
        tags == [replaces.to_tag, replaces.from_tag] || tags == [replaces.from_tag, replaces.to_tag]
    }

    /// Counts a Call-ID with this hash as adopted, once. Returns false if there are enough.
    fn count(&mut self, now: u64, hash: u32) -> bool {
        self.adoptions.retain(|(until, _)| *until > now);
        if self.adoptions.iter().any(|(_, of)| *of == hash) {
            return true;
        }
        let has_room = self.adoptions.len() < MOST_ADOPTIONS;
        if has_room {
            self.adoptions.push((now + PASSING, hash));
        }
        has_room
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
        let (call_id, mut index) = (&message[at], Index::new());
        index.parse(message, &Limits::UNLIMITED).expect("a message");
        let has_replaces = Message::new(message, &index).has(Name::Replaces);
        assert_eq!(has_replaces, names_replaces(message), "the engine asks the index");
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
        let partition = |call_id: &str| call::hash(SECRET, call_id.as_bytes()) as usize % PARTITIONS;
        let names =
            (0..).map(|number| format!("{number}")).filter(|name| partition(name) == 0 && bucket(name) != there);
        let adopted: Vec<bool> = names
            .take(MOST_PASSING + 1)
            .enumerate()
            .map(|(number, call_id)| {
                let (near, far) = (format!("near{number}"), format!("far{number}"));
                dialogs.enter(there, [&name(&near, "n1", "n2"), &name(&far, "f1", "f2")]);
                let line = format!("Replaces: {near};to-tag=n1;from-tag=n2\r\n");
                bucket_of(&dialogs, 5, &invite(&call_id, "", &line)) == there
            })
            .collect();
        assert!(adopted[..MOST_PASSING].iter().all(|is| *is) && !adopted[MOST_PASSING]);
    }

    /// Returns Call-IDs that belong to another bucket than this one.
    fn elsewhere(there: u8) -> impl Iterator<Item = String> {
        (0..).map(|number| format!("{number}")).filter(move |name| bucket(name) != there)
    }

    #[test]
    fn a_call_id_is_adopted_for_both_tags_alone() {
        let (dialogs, there) = with_a_call();
        let is_adopted = |call_id: &str, tags: &str| {
            bucket_of(&dialogs, 0, &invite(call_id, "", &format!("Replaces: near;{tags}\r\n"))) == there
        };
        for wrong in ["to-tag=1;from-tag=2", "to-tag=n1;from-tag=2", "to-tag=1;from-tag=n2", "to-tag=n1;from-tag=n1"] {
            assert!(!is_adopted("new", wrong), "{wrong}");
        }
        let long = "l".repeat(LONGEST_ADOPTED);
        let mut longest = elsewhere(there).map(|name| format!("{name}{long}")[..LONGEST_ADOPTED].to_owned());
        let longest = longest.find(|name| bucket(name) != there).expect("a name");
        let mut longer = elsewhere(there).map(|name| format!("{longest}{name}"));
        let longer = longer.find(|name| bucket(name) != there).expect("a name");
        assert!(!is_adopted(&longer, "to-tag=n1;from-tag=n2"));
        assert!(is_adopted(&longest, "to-tag=n1;from-tag=n2"));
        assert!(is_adopted("new", "to-tag=n1;from-tag=n2"));
        assert!(is_adopted("other", "to-tag=n2;from-tag=n1"));
    }

    #[test]
    fn a_dialog_has_a_bounded_number_of_adopted_call_ids() {
        let (dialogs, there) = with_a_call();
        let line = "Replaces: far;to-tag=f1;from-tag=f2\r\n";
        let is_adopted = |now, call_id: &str| bucket_of(&dialogs, now, &invite(call_id, "", line)) == there;
        let names: Vec<String> = elsewhere(there).take(MOST_ADOPTIONS + 2).collect();
        let (first, more) = names.split_at(MOST_ADOPTIONS);
        for _ in 0..2 {
            assert!(first.iter().all(|call_id| is_adopted(0, call_id)), "copies are not counted");
        }
        assert!(!is_adopted(0, &more[0]));
        // The first one has a dialog now, so it is not counted any more.
        dialogs.enter(there, [&name(&first[0], "n3", "n4"), &name("far", "f1", "f2")]);
        assert!(is_adopted(1, &more[0]) && !is_adopted(1, &more[1]));
        assert!(is_adopted(PASSING, &more[1]), "the time of the first ones is over");
    }

    #[test]
    fn adopted_call_ids_go_without_later_ones() {
        let (dialogs, there) = with_a_call();
        let (all, adopted) = (dialogs.all.load(Relaxed), || -> usize {
            dialogs.partitions.iter().map(|partition| partition.adopted.load(Relaxed)).sum()
        });
        let before = adopted();
        assert_eq!(bucket_of(&dialogs, 0, &invite("new", "", "Replaces: near;to-tag=n1;from-tag=n2\r\n")), there);
        dialogs.tidy(PASSING - 1);
        assert_eq!((dialogs.all.load(Relaxed), adopted()), (all + 1, before + 1));
        dialogs.tidy(PASSING);
        assert_eq!((dialogs.all.load(Relaxed), adopted()), (all, before));
        assert_eq!(bucket_of(&dialogs, PASSING, &invite("new", "", "")), bucket("new"));
        assert!(dialogs.has_dialog(b"near") && !dialogs.has_dialog(b"new"));
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
