//! Answers kept in two generations, close to "least recently used" for nothing per entry.
//!
//! When the young generation is full it becomes the old one and the old one goes; an old answer that is used becomes young
//! again.

use std::time::Duration;

use hashbrown::HashTable;

use crate::subscriber::{Answer, Question};

/// A question with its texts, to keep.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    user: bool,
    split: usize,
    text: Box<[u8]>,
}

impl Key {
    pub(crate) fn new(question: Question<'_>) -> Self {
        let (user, a, b) = parts(question);
        Self { user, split: a.len(), text: [a, b].concat().into_boxed_slice() }
    }

    /// Bytes of its texts.
    pub(crate) fn len(&self) -> usize {
        self.text.len()
    }

    pub(crate) fn question(&self) -> Question<'_> {
        let (username, second) = self.text.split_at(self.split);
        if self.user {
            Question::User { username, domain: second }
        } else {
            Question::Credential { username, realm: second }
        }
    }
}

pub(crate) fn parts(question: Question<'_>) -> (bool, &[u8], &[u8]) {
    match question {
        Question::Credential { username, realm } => (false, username, realm),
        Question::User { username, domain } => (true, username, domain),
    }
}

pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) answer: Answer,
    /// [`Moment::mono`](crate::clock::Moment::mono).
    pub(crate) read_at: u64,
    /// Version of the cache when the engine was asked.
    pub(crate) version: u64,
}

/// Two generations of answers of one kind.
pub(crate) struct Part {
    young: HashTable<Entry>,
    old: HashTable<Entry>,
    /// Most entries of one generation.
    bound: usize,
    ttl: Duration,
}

impl Part {
    pub(crate) fn new(bound: usize, ttl: Duration) -> Self {
        Self { young: HashTable::new(), old: HashTable::new(), bound: bound.div_ceil(2), ttl }
    }

    pub(crate) fn find(
        &mut self,
        hash: u64,
        question: Question<'_>,
        fresh: impl Fn(&Entry, Duration) -> bool,
        rehash: impl Fn(&Entry) -> u64,
    ) -> Option<Answer> {
        let same = |e: &Entry| e.key.question() == question;
        if let Ok(entry) = self.young.find_entry(hash, same) {
            if fresh(entry.get(), self.ttl) {
                return Some(entry.get().answer.clone());
            }
            entry.remove();
            return None;
        }
        let (entry, _) = self.old.find_entry(hash, same).ok()?.remove();
        if !fresh(&entry, self.ttl) {
            return None;
        }
        let answer = entry.answer.clone();
        self.insert(hash, entry, rehash);
        Some(answer)
    }

    pub(crate) fn insert(&mut self, hash: u64, entry: Entry, rehash: impl Fn(&Entry) -> u64) {
        if self.bound == 0 {
            return;
        }
        self.remove(hash, &entry.key);
        if self.young.len() >= self.bound {
            std::mem::swap(&mut self.young, &mut self.old);
            self.young.clear();
        }
        self.young.insert_unique(hash, entry, rehash);
    }

    pub(crate) fn remove(&mut self, hash: u64, key: &Key) {
        for table in [&mut self.young, &mut self.old] {
            if let Ok(same) = table.find_entry(hash, |e| e.key == *key) {
                same.remove();
            }
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

pub(crate) struct Parts {
    pub(crate) found: Part,
    pub(crate) absent: Part,
}
