//! Alarms of calls and media streams, to the millisecond: a wheel of 1,024 milliseconds, a wheel of 1,024 turns of the first, and a
//! heap for later alarms.
//!
//! An entry costs 24 bytes and is never removed early: its owner records its deadline and ignores an alarm that it no longer expects.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

const PLACES: usize = 1_024;
const TURN: u64 = PLACES as u64;
const WORDS: usize = PLACES / 64;

/// Alarm time, with the slot of the call and the slot's generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Alarm {
    /// Milliseconds of the wheel's clock.
    pub(crate) due: u64,
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

/// Chained entries of both rings, free ones included, so that no place allocates.
struct Pool {
    nodes: Vec<WheelEntry>,
    free: u32,
}

struct WheelEntry {
    alarm: Alarm,
    next: u32,
}

const NONE: u32 = u32::MAX;

impl Pool {
    fn take(&mut self, alarm: Alarm, next: u32) -> u32 {
        let node = WheelEntry { alarm, next };
        match self.nodes.get_mut(self.free as usize) {
            Some(place) => {
                let at = self.free;
                self.free = place.next;
                *place = node;
                at
            }
            None => {
                self.nodes.push(node);
                self.nodes.len() as u32 - 1
            }
        }
    }
}

/// Ring of places, with a bit for each filled one.
struct Ring {
    /// First entry of each place.
    places: Box<[u32; PLACES]>,
    filled: [u64; WORDS],
}

impl Ring {
    fn new() -> Self {
        Self { places: Box::new([NONE; PLACES]), filled: [0; WORDS] }
    }

    fn put(&mut self, pool: &mut Pool, place: usize, alarm: Alarm) {
        self.places[place] = pool.take(alarm, self.places[place]);
        self.filled[place / 64] |= 1 << (place % 64);
    }

    fn first(&self, pool: &Pool, place: usize) -> Option<Alarm> {
        pool.nodes.get(self.places[place] as usize).map(|node| node.alarm)
    }

    fn pop(&mut self, pool: &mut Pool, place: usize) -> Option<Alarm> {
        let at = self.places[place];
        let node = pool.nodes.get_mut(at as usize)?;
        let alarm = node.alarm;
        self.places[place] = node.next;
        node.next = pool.free;
        pool.free = at;
        if self.places[place] == NONE {
            self.filled[place / 64] &= !(1 << (place % 64));
        }
        Some(alarm)
    }

    /// Returns the next filled place at or after `from`, without wrapping.
    fn next(&self, from: usize) -> Option<usize> {
        let mut word = from / 64;
        let mut bits = self.filled.get(word)? & (!0 << (from % 64));
        while bits == 0 {
            word += 1;
            bits = *self.filled.get(word)?;
        }
        Some(word * 64 + bits.trailing_zeros() as usize)
    }
}

/// Alarms of one shard. Time is in milliseconds.
pub(crate) struct Wheel {
    /// No alarm waits before this time.
    at: u64,
    pool: Pool,
    near: Ring,
    far: Ring,
    later: BinaryHeap<Reverse<Alarm>>,
    waiting: usize,
}

impl Wheel {
    /// Creates a wheel. No alarm may be set for before `now`.
    pub(crate) fn new(now: u64) -> Self {
        let pool = Pool { nodes: Vec::new(), free: NONE };
        Self { at: now, pool, near: Ring::new(), far: Ring::new(), later: BinaryHeap::new(), waiting: 0 }
    }

    /// Sets an alarm. An alarm in the past is due in the next round.
    pub(crate) fn set(&mut self, alarm: Alarm) {
        self.waiting += 1;
        self.place(Alarm { due: alarm.due.max(self.at), ..alarm });
    }

    fn place(&mut self, alarm: Alarm) {
        let turns = alarm.due / TURN - self.at / TURN;
        if turns == 0 {
            self.near.put(&mut self.pool, (alarm.due % TURN) as usize, alarm);
        } else if turns < TURN {
            self.far.put(&mut self.pool, (alarm.due / TURN % TURN) as usize, alarm);
        } else {
            self.later.push(Reverse(alarm));
        }
    }

    /// Takes a due alarm. The alarms of one millisecond have no defined order.
    pub(crate) fn ring(&mut self, now: u64) -> Option<Alarm> {
        if self.waiting == 0 {
            self.at = self.at.max(now);
            // Memory that a flood needed is released.
            if self.pool.nodes.capacity() > 1 << 16 {
                self.pool = Pool { nodes: Vec::new(), free: NONE };
            }
            return None;
        }
        loop {
            if self.at > now {
                return None;
            }
            let turn = self.at / TURN;
            match self.near.next((self.at % TURN) as usize) {
                Some(place) if turn * TURN + place as u64 <= now => {
                    self.at = turn * TURN + place as u64;
                    self.waiting -= 1;
                    return self.near.pop(&mut self.pool, place);
                }
                Some(_) => {
                    self.at = now;
                    return None;
                }
                None if now / TURN == turn => {
                    self.at = now;
                    return None;
                }
                None => self.turn(turn + 1),
            }
        }
    }

    /// Begins the next turn of the near wheel.
    fn turn(&mut self, turn: u64) {
        self.at = turn * TURN;
        let place = (turn % TURN) as usize;
        while let Some(alarm) = self.far.pop(&mut self.pool, place) {
            self.near.put(&mut self.pool, (alarm.due % TURN) as usize, alarm);
        }
        while let Some(Reverse(alarm)) = self.later.peek().copied() {
            if alarm.due / TURN - turn >= TURN {
                break;
            }
            self.later.pop();
            self.place(alarm);
        }
    }

    /// Returns the latest time at which the wheel must be asked again: the time of the next alarm, or the start of the
    /// turn that has it.
    pub(crate) fn deadline(&mut self) -> Option<u64> {
        self.expected(|_| Fate::Expected)
    }

    /// Returns the deadline as [`Wheel::deadline`] does, but removes alarms that no call expects, so that no call is
    /// woken for them. `fate` decides which alarms are expected.
    pub(crate) fn expected(&mut self, mut fate: impl FnMut(Alarm) -> Fate) -> Option<u64> {
        loop {
            if self.waiting == 0 {
                return None;
            }
            let turn = self.at / TURN;
            let Some(place) = self.near.next((self.at % TURN) as usize) else { break };
            let Some(alarm) = self.near.first(&self.pool, place) else { break };
            match fate(alarm) {
                Fate::Expected => return Some(turn * TURN + place as u64),
                Fate::Forgotten => {
                    self.near.pop(&mut self.pool, place);
                    self.waiting -= 1;
                }
                Fate::Later(due) => {
                    self.near.pop(&mut self.pool, place);
                    self.place(Alarm { due: due.max(self.at), ..alarm });
                }
            }
        }
        let turn = self.at / TURN;
        let from = (turn % TURN) as usize;
        let far = match self.far.next(from) {
            Some(place) => Some(turn + (place - from) as u64),
            None => self.far.next(0).map(|place| turn + (place + PLACES - from) as u64),
        };
        let later = self.later.peek().map(|Reverse(alarm)| alarm.due / TURN);
        let turn = match (far, later) {
            (Some(a), Some(b)) => a.min(b),
            (a, b) => a.or(b)?,
        };
        Some(turn * TURN)
    }
}

/// State of a waiting alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Expected,
    /// No call waits for it any more.
    Forgotten,
    /// The call expects the alarm at this later time.
    Later(u64),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_alarm_rings_in_its_millisecond_and_none_is_lost() {
        let start = 123_456;
        let mut wheel = Wheel::new(start);
        let mut want = Vec::new();
        let mut seed = 1u64;
        for slot in 0..5_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let span = [1, 700, 30_000, 1_048_576, 9_000_000][slot as usize % 5];
            let due = start + (seed >> 20) % span;
            wheel.set(Alarm { due, slot, generation: 1 });
            want.push((due, slot));
        }
        want.sort_unstable();
        let mut rung = Vec::new();
        let mut now = start;
        // As a shard does: sleeps until the deadline, and is sometimes woken before.
        while let Some(deadline) = wheel.deadline() {
            assert!(deadline >= now, "{deadline} is before {now}");
            now = if rung.len() % 3 == 0 { now + (deadline - now).div_ceil(2) } else { deadline };
            while let Some(alarm) = wheel.ring(now) {
                assert!(alarm.due <= now);
                rung.push((alarm.due, alarm.slot));
            }
        }
        assert!(rung.is_sorted_by_key(|r| r.0));
        rung.sort_unstable();
        assert_eq!(rung, want);
        assert_eq!(wheel.waiting, 0);
    }

    #[test]
    fn no_call_is_woken_for_a_forgotten_alarm() {
        let mut wheel = Wheel::new(10);
        for slot in 0..3 {
            wheel.set(Alarm { due: 20 + u64::from(slot), slot, generation: 0 });
        }
        let fate = |alarm: Alarm| match (alarm.slot, alarm.due) {
            (0, _) => Fate::Forgotten,
            (1, 21) => Fate::Later(2_000),
            _ => Fate::Expected,
        };
        assert_eq!((wheel.expected(fate), wheel.waiting), (Some(22), 2));
        assert_eq!(wheel.ring(22).map(|a| a.slot), Some(2));
        assert_eq!(wheel.expected(fate), Some(1_024));
        assert_eq!(wheel.ring(1_999), None);
        assert_eq!((wheel.expected(fate), wheel.ring(2_000).map(|a| a.due)), (Some(2_000), Some(2_000)));
    }

    #[test]
    fn late_alarms_ring_at_once_and_long_sleeps_do_no_harm() {
        let mut wheel = Wheel::new(0);
        assert_eq!(wheel.ring(5_000_000), None);
        wheel.set(Alarm { due: 3, slot: 7, generation: 0 });
        assert_eq!(wheel.deadline(), Some(5_000_000));
        assert_eq!(wheel.ring(5_000_000).map(|a| a.slot), Some(7));
        wheel.set(Alarm { due: 5_000_001, slot: 8, generation: 0 });
        wheel.set(Alarm { due: 7_000_001, slot: 9, generation: 0 });
        assert_eq!(wheel.ring(8_000_000).map(|a| a.slot), Some(8));
        assert_eq!(wheel.ring(8_000_000).map(|a| a.slot), Some(9));
    }
}
