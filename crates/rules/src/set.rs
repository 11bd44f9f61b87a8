//! An immutable data set: texts, prefixes or networks, each with an optional value.

use crate::networks::Networks;
use crate::prefixes::Prefixes;
use crate::texts::{Arena, Texts};
use crate::{Case, Network, csv};
use std::collections::HashMap;
use std::fmt;
use std::io::{self, BufRead};
use std::net::IpAddr;

/// Kind of look-up in a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupKind {
    /// The key is the whole text: numbers, users, domains. Case is compared as for the field that is looked up.
    Texts,
    /// The longest prefix of the text; the case of letters is ignored.
    Prefixes,
    /// The longest network that contains an address.
    Networks,
}

impl LookupKind {
    /// Returns the plural name of the keys in a sentence.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Texts => "texts",
            Self::Prefixes => "prefixes",
            Self::Networks => "networks",
        }
    }
}

/// Columns of a file for a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Columns<'a> {
    /// Name of the column of keys.
    pub key: &'a str,
    /// Name of the column of values, if the set has values. An empty cell means no value.
    pub value: Option<&'a str>,
}

/// An entry, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Text, prefix or network.
    pub key: String,
    /// Value, if any.
    pub value: Option<String>,
}

/// Fault of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryFault {
    /// Index of the entry, from 0.
    pub place: usize,
    /// Cause, in one sentence without a full stop.
    pub message: String,
    /// Cure.
    pub cure: String,
}

impl fmt::Display for EntryFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "entry {}: {}: {}", self.place + 1, self.message, self.cure)
    }
}

impl std::error::Error for EntryFault {}

/// Fault of a line of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileFault {
    /// Name of the file, for people.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// Cause, in one sentence without a full stop.
    pub message: String,
    /// Cure.
    pub cure: String,
}

impl fmt::Display for FileFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.message, self.cure)
    }
}

impl std::error::Error for FileFault {}

/// Error of reading a set from a file.
#[derive(Debug)]
pub enum FileError {
    /// The file cannot be read.
    Unread {
        /// Name of the file, for people.
        file: String,
        /// Cause.
        error: io::Error,
    },
    /// A line is wrong.
    Wrong(FileFault),
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unread { file, error } => write!(f, "{file} cannot be read: {error}"),
            Self::Wrong(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for FileError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unread { error, .. } => Some(error),
            Self::Wrong(fault) => Some(fault),
        }
    }
}

/// An immutable data set. Two sets are equal if they were built from the same entries in the same order.
#[derive(Debug, PartialEq, Eq)]
pub struct Set {
    keys: Keys,
    len: usize,
    values: Arena,
}

/// Keys, each with the number of its value.
#[derive(Debug, PartialEq, Eq)]
enum Keys {
    /// Texts, and the number of the value of each by its index.
    Texts(Texts, Box<[u32]>),
    Prefixes(Prefixes),
    Networks(Networks),
}

/// Number that stands for the value of a key without a value. No set has so many values, and prefixes accept numbers
/// below `u32::MAX`.
const NO_VALUE: u32 = u32::MAX - 1;

impl Set {
    /// Builds a set from keys with their values. A key may occur twice with equal values.
    ///
    /// # Errors
    /// The first entry whose key is empty, is not a network in a set of networks, or occurred with another value.
    pub fn new<K, V>(kind: LookupKind, entries: impl IntoIterator<Item = (K, Option<V>)>) -> Result<Self, EntryFault>
    where
        K: AsRef<str>,
        V: AsRef<str>,
    {
        let mut builder = Builder::new(kind);
        for (place, (key, value)) in entries.into_iter().enumerate() {
            builder.add(place, key.as_ref(), value.as_ref().map(V::as_ref))?;
        }
        builder.finish("entry", 1)
    }

    /// Reads a CSV file (RFC 4180) whose first line names the columns. `file` is its name in errors.
    ///
    /// # Errors
    /// The first faulty line, or the read error of the source.
    pub fn read_csv(
        kind: LookupKind,
        file: &str,
        source: impl BufRead,
        columns: Columns<'_>,
    ) -> Result<Self, FileError> {
        csv::read(kind, source, columns).map_err(|refusal| match refusal {
            csv::Refusal::Unread(error) => FileError::Unread { file: file.to_owned(), error },
            csv::Refusal::Wrong(EntryFault { place, message, cure }) => {
                FileError::Wrong(FileFault { file: file.to_owned(), line: place, message, cure })
            }
        })
    }

    /// Returns the kind of the set.
    pub const fn kind(&self) -> LookupKind {
        match self.keys {
            Keys::Texts(..) => LookupKind::Texts,
            Keys::Prefixes(_) => LookupKind::Prefixes,
            Keys::Networks(_) => LookupKind::Networks,
        }
    }

    /// Returns the number of keys.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Tells whether there is no key.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory use in bytes.
    pub fn memory(&self) -> usize {
        let keys = match &self.keys {
            Keys::Texts(texts, values_of) => texts.memory() + size_of_val(&**values_of),
            Keys::Prefixes(prefixes) => prefixes.memory(),
            Keys::Networks(networks) => networks.memory(),
        };
        keys + self.values.memory()
    }

    /// Finds the entries that match a text or an address, the best match first. Empty if the set has networks and the
    /// text is not an address.
    pub fn find(&self, text: &str) -> Vec<Entry> {
        match &self.keys {
            Keys::Texts(..) => {
                let value = self.number_of_text(text.as_bytes(), Case::Exact);
                value.map(|value| self.entry(text, value)).into_iter().collect()
            }
            Keys::Prefixes(prefixes) => {
                let mut found = Vec::new();
                prefixes.each(text.as_bytes(), |length, value| {
                    let prefix = text.as_bytes().get(..length).unwrap_or_default().to_ascii_lowercase();
                    found.push(self.entry(&String::from_utf8_lossy(&prefix), value));
                });
                found.reverse();
                found
            }
            Keys::Networks(networks) => {
                let Ok(address) = text.parse() else { return Vec::new() };
                networks.each(address).map(|(network, value)| self.entry(&network.to_string(), value)).collect()
            }
        }
    }

    /// Returns the entries whose displayed key begins with this text, in order, for paged output; all entries for an
    /// empty text.
    pub fn list(&self, beginning: &str) -> Box<dyn Iterator<Item = Entry> + '_> {
        match &self.keys {
            Keys::Texts(texts, values_of) => {
                let entry = |place| self.entry(texts.keys().text(place), values_of[place as usize]);
                Box::new(texts.beginning(beginning).map(entry))
            }
            Keys::Prefixes(prefixes) => {
                Box::new(prefixes.beginning(beginning).map(|(prefix, value)| self.entry(&prefix, value)))
            }
            Keys::Networks(networks) => {
                let beginning = beginning.to_owned();
                let all = networks.all().map(|(network, value)| (network.to_string(), value));
                let wanted = all.filter(move |(network, _)| network.starts_with(&beginning));
                Box::new(wanted.map(|(network, value)| self.entry(&network, value)))
            }
        }
    }

    /// Tells whether a text is in the set; false for a set of networks.
    pub(crate) fn has_text(&self, text: &[u8], case: Case) -> bool {
        self.number_of_text(text, case).is_some()
    }

    /// Returns the value of a text; in a set of prefixes, of its longest prefix; `None` in a set of networks.
    pub fn text_value(&self, text: &[u8], case: Case) -> Option<&[u8]> {
        self.value(self.number_of_text(text, case)?)
    }

    /// Tells whether an address is in the set; false unless it is a set of networks.
    pub(crate) fn has_address(&self, address: IpAddr) -> bool {
        self.number_of_address(address).is_some()
    }

    /// Returns the value of an address.
    pub fn address_value(&self, address: IpAddr) -> Option<&[u8]> {
        self.value(self.number_of_address(address)?)
    }

    /// Returns the number of the value of a text.
    fn number_of_text(&self, text: &[u8], case: Case) -> Option<u32> {
        match &self.keys {
            Keys::Texts(texts, values_of) => texts.find(text, case).map(|place| values_of[place as usize]),
            Keys::Prefixes(prefixes) => prefixes.longest(text).map(|(_, value)| value),
            Keys::Networks(_) => None,
        }
    }

    /// Returns the number of the value of an address.
    fn number_of_address(&self, address: IpAddr) -> Option<u32> {
        match &self.keys {
            Keys::Networks(networks) => networks.longest(address),
            Keys::Texts(..) | Keys::Prefixes(_) => None,
        }
    }

    /// Returns the value with this number.
    fn value(&self, number: u32) -> Option<&[u8]> {
        (number != NO_VALUE).then(|| self.values.text(number).as_bytes())
    }

    fn entry(&self, key: &str, number: u32) -> Entry {
        let value = self.value(number).map(|value| String::from_utf8_lossy(value).into_owned());
        Entry { key: key.to_owned(), value }
    }
}

/// A set under construction.
pub(crate) struct Builder {
    kind: LookupKind,
    keys: Arena,
    entries: Vec<Raw>,
    values: Arena,
    numbers: HashMap<Box<str>, u32>,
}

/// An entry: key and value by their numbers, and its position in the source.
struct Raw {
    key: u32,
    value: u32,
    place: usize,
}

impl Builder {
    pub(crate) fn new(kind: LookupKind) -> Self {
        Self { kind, keys: Arena::default(), entries: Vec::new(), values: Arena::default(), numbers: HashMap::new() }
    }

    pub(crate) fn add(&mut self, place: usize, key: &str, value: Option<&str>) -> Result<(), EntryFault> {
        if key.is_empty() {
            return Err(EntryFault::new(place, "the key is empty", "write a key, or remove the entry"));
        }
        let value = match value {
            None => NO_VALUE,
            Some(text) => match self.numbers.get(text) {
                Some(number) => *number,
                None => {
                    let number = self.values.push(text).ok_or_else(|| EntryFault::too_much(place))?;
                    self.numbers.insert(text.into(), number);
                    number
                }
            },
        };
        let key = match self.kind {
            LookupKind::Texts | LookupKind::Prefixes => self.keys.push(key),
            LookupKind::Networks => match Network::read(key) {
                // Each network has only one spelling.
                Ok(network) => self.keys.push(&network.to_string()),
                Err(refusal) => return Err(EntryFault::new(place, refusal.message, refusal.cure)),
            },
        };
        let key = key.ok_or_else(|| EntryFault::too_much(place))?;
        self.entries.push(Raw { key, value, place });
        Ok(())
    }

    /// Builds the set. In messages, `place` is `word` and the position, counted from `first`.
    pub(crate) fn finish(self, word: &str, first: usize) -> Result<Set, EntryFault> {
        let Self { kind, mut keys, mut entries, mut values, .. } = self;
        if kind == LookupKind::Prefixes {
            keys.make_lowercase();
        }
        let key = |entry: &Raw| keys.text(entry.key);
        entries.sort_by(|a, b| key(a).cmp(key(b)));
        for pair in entries.windows(2) {
            let [one, other] = pair else { unreachable!("windows of two") };
            if key(one) == key(other) && one.value != other.value {
                let message = format!("{} has another value at {word} {}", key(one), one.place + first);
                return Err(EntryFault::new(other.place, message, "give each key one value"));
            }
        }
        entries.dedup_by(|a, b| key(a) == key(b));
        values.shrink();
        let len = entries.len();
        let keys = match kind {
            LookupKind::Texts => {
                let mut sorted = Arena::default();
                for entry in &entries {
                    sorted.push(key(entry)).ok_or_else(|| EntryFault::too_much(entry.place))?;
                }
                Keys::Texts(Texts::new(sorted), entries.iter().map(|entry| entry.value).collect())
            }
            LookupKind::Prefixes => {
                let rows: Vec<(&[u8], u32)> =
                    entries.iter().map(|entry| (key(entry).as_bytes(), entry.value)).collect();
                Keys::Prefixes(Prefixes::new(&rows))
            }
            LookupKind::Networks => {
                let network = |entry| Network::read(key(entry)).expect("a key that was written as a network");
                let rows: Vec<(Network, u32)> = entries.iter().map(|entry| (network(entry), entry.value)).collect();
                Keys::Networks(Networks::new(&rows))
            }
        };
        Ok(Set { keys, len, values })
    }
}

impl EntryFault {
    pub(crate) fn new(place: usize, message: impl Into<String>, cure: impl Into<String>) -> Self {
        Self { place, message: message.into(), cure: cure.into() }
    }

    fn too_much(place: usize) -> Self {
        Self::new(place, "the set has more than 4 GiB of text", "cut it into several sets")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(key: &str, value: &str) -> Entry {
        Entry { key: key.into(), value: Some(value.into()).filter(|value: &String| !value.is_empty()) }
    }

    #[test]
    fn a_set_of_prefixes_is_searched_by_number() {
        let set = Set::new(
            LookupKind::Prefixes,
            [("49", Some("de")), ("4930", Some("berlin")), ("43", None), ("49", Some("de"))],
        );
        let set = set.expect("a set");
        assert_eq!((set.len(), set.kind(), set.is_empty()), (3, LookupKind::Prefixes, false));
        assert_eq!(set.find("4930123"), [entry("4930", "berlin"), entry("49", "de")]);
        assert_eq!(set.find("43"), [entry("43", "")]);
        assert_eq!(set.find("1"), []);
        assert_eq!(set.list("49").collect::<Vec<_>>(), [entry("49", "de"), entry("4930", "berlin")]);
        assert_eq!(set.text_value(b"4989", Case::Exact), Some(&b"de"[..]));
        assert!(set.has_text(b"431", Case::Exact) && set.text_value(b"431", Case::Exact).is_none());
    }

    #[test]
    fn a_set_of_networks_is_searched_by_address() {
        let entries = [("10.0.0.0/8", Some("all")), ("10.1.0.0/16", Some("some")), ("2001:db8::1/128", None)];
        let set = Set::new(LookupKind::Networks, entries).expect("a set");
        assert_eq!(set.find("10.1.1.1"), [entry("10.1.0.0/16", "some"), entry("10.0.0.0/8", "all")]);
        assert_eq!(set.list("2001").collect::<Vec<_>>(), [entry("2001:db8::1", "")]);
        assert_eq!(set.find("x"), []);
        assert_eq!(set.address_value(IpAddr::from([10, 1, 0, 0])), Some(&b"some"[..]));
        assert!(!set.has_text(b"10.1.1.1", Case::Exact));
    }

    #[test]
    fn a_set_of_texts_is_searched_by_the_whole_text() {
        let set = Set::new(LookupKind::Texts, [("bob", Some("gold")), ("alice", Some("gold"))]).expect("a set");
        assert_eq!(set.find("alice"), [entry("alice", "gold")]);
        assert_eq!(set.find("Alice"), []);
        assert!(set.has_text(b"Alice", Case::Ignored));
        assert_eq!(set.list("").collect::<Vec<_>>(), [entry("alice", "gold"), entry("bob", "gold")]);
        assert_eq!(set.values.len(), 1);
    }

    #[test]
    fn sets_of_the_same_entries_are_equal() {
        for kind in [LookupKind::Texts, LookupKind::Prefixes, LookupKind::Networks] {
            let set = |last: &str, value: &str| {
                Set::new(kind, [("192.0.2.1", Some("a")), (last, Some(value))]).expect("each can be a key")
            };
            assert_eq!(set("192.0.2.2", "b"), set("192.0.2.2", "b"));
            assert_ne!(set("192.0.2.2", "b"), set("192.0.2.3", "b"));
            assert_ne!(set("192.0.2.2", "b"), set("192.0.2.2", "c"));
        }
    }

    #[test]
    fn a_wrong_entry_is_named() {
        let fault = Set::new(LookupKind::Texts, [("a", Some("1")), ("b", None), ("a", Some("2"))]).expect_err("twice");
        assert_eq!(fault.to_string(), "entry 3: a has another value at entry 1: give each key one value");
        let fault = Set::new(LookupKind::Networks, [("10.0.0.1/8", None::<&str>)]).expect_err("no network");
        assert_eq!(fault.to_string(), "entry 1: `10.0.0.1/8` names bits behind its first 8: write 10.0.0.0/8");
        let fault = Set::new(LookupKind::Prefixes, [("", None::<&str>)]).expect_err("empty");
        assert_eq!(fault.to_string(), "entry 1: the key is empty: write a key, or remove the entry");
    }
}
