//! Bounded memory of the laws: no law needs a message that ended long ago, and a simulated day has many.

use std::collections::HashMap;

/// Time in ms after which an unused entry is forgotten, at most twice that: far longer than a call setup.
const WHILE: u64 = 1_200_000;

/// Values by name.
#[derive(Debug)]
pub(crate) struct Recent<V> {
    young: HashMap<Vec<u8>, V>,
    old: HashMap<Vec<u8>, V>,
    turned: u64,
}

impl<V> Default for Recent<V> {
    fn default() -> Self {
        Self { young: HashMap::new(), old: HashMap::new(), turned: 0 }
    }
}

impl<V> Recent<V> {
    pub(crate) fn get(&self, key: &[u8]) -> Option<&V> {
        self.young.get(key).or_else(|| self.old.get(key))
    }

    pub(crate) fn contains(&self, key: &[u8]) -> bool {
        self.get(key).is_some()
    }

    pub(crate) fn get_mut(&mut self, key: &[u8]) -> Option<&mut V> {
        if let Some((key, value)) = self.old.remove_entry(key) {
            self.young.insert(key, value);
        }
        self.young.get_mut(key)
    }

    pub(crate) fn insert(&mut self, key: Vec<u8>, value: V) -> Option<V> {
        let before = self.old.remove(&key);
        self.young.insert(key, value).or(before)
    }

    pub(crate) fn remove(&mut self, key: &[u8]) {
        self.old.remove(key);
        self.young.remove(key);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Vec<u8>, &V)> {
        self.young.iter().chain(&self.old)
    }

    pub(crate) fn retain(&mut self, mut is_kept: impl FnMut(&[u8]) -> bool) {
        self.young.retain(|key, _| is_kept(key));
        self.old.retain(|key, _| is_kept(key));
    }

    /// Forgets entries that were not used for a long time.
    pub(crate) fn turn(&mut self, now: u64) {
        if now >= self.turned + WHILE {
            self.turned = now;
            self.old = std::mem::take(&mut self.young);
        }
    }
}

impl<V: Default> Recent<V> {
    /// Returns the value of this name, created if missing.
    pub(crate) fn of(&mut self, key: Vec<u8>) -> &mut V {
        if let Some(value) = self.old.remove(&key) {
            self.young.insert(key.clone(), value);
        }
        self.young.entry(key).or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn used_entries_stay() {
        let mut recent = Recent::<u32>::default();
        *recent.of(b"a".to_vec()) = 1;
        recent.insert(b"b".to_vec(), 2);
        for round in 1..4 {
            recent.turn(round * WHILE);
            assert_eq!(recent.get_mut(b"a"), Some(&mut 1));
            assert_eq!(recent.contains(b"b"), round == 1);
        }
        assert_eq!(recent.iter().count(), 1);
        recent.turn(3 * WHILE + 1);
        assert_eq!(*recent.of(b"a".to_vec()), 1, "it is not time yet");
    }
}
