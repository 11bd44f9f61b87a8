//! Sessions of a media thread.

use std::collections::HashMap;
use strowger_media::session::{Session, SessionKey};

/// Sessions by key and by number. Numbers are small and are reused.
#[derive(Default)]
pub(super) struct Sessions {
    slots: Vec<Option<Slot>>,
    free: Vec<u32>,
    numbers: HashMap<SessionKey, u32>,
}

/// Session with its place in the process.
pub(super) struct Slot {
    pub(super) session: Session,
    /// Shard that gave the last order.
    pub(super) shard: usize,
    /// Version of that order.
    pub(super) version: u32,
    /// Places of its ports in the table of ports.
    pub(super) places: Vec<usize>,
    /// Valid timer of the session, in microseconds.
    pub(super) timer: Option<u64>,
    /// Set if its sound is written to a file.
    pub(super) is_recorded: bool,
}

impl Sessions {
    pub(super) fn number(&self, key: SessionKey) -> Option<u32> {
        self.numbers.get(&key).copied()
    }

    #[inline]
    pub(super) fn get(&mut self, number: u32) -> Option<&mut Slot> {
        self.slots.get_mut(number as usize)?.as_mut()
    }

    /// Returns all sessions.
    pub(super) fn each(&mut self) -> impl Iterator<Item = &mut Session> {
        self.slots.iter_mut().flatten().map(|slot| &mut slot.session)
    }

    /// Inserts a session of a new key. Returns its number.
    pub(super) fn insert(&mut self, slot: Slot) -> u32 {
        let key = slot.session.key();
        let number = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            (self.slots.len() - 1) as u32
        });
        self.slots[number as usize] = Some(slot);
        self.numbers.insert(key, number);
        number
    }

    /// Removes a session: its number and slot.
    pub(super) fn remove(&mut self, key: SessionKey) -> Option<(u32, Slot)> {
        let number = self.numbers.remove(&key)?;
        let slot = self.slots.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some((number, slot))
    }

    pub(super) fn len(&self) -> usize {
        self.numbers.len()
    }
}
