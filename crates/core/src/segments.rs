//! Memory in segments: it grows without copying, the lowest with room is used first, and empty ones are given back.

use std::ops::{Index, IndexMut};

/// What a table holds many of.
pub(crate) trait Segment {
    /// An empty one, the `number`th of its table.
    fn new(number: usize) -> Box<Self>;

    fn is_empty(&self) -> bool;

    fn is_full(&self) -> bool;
}

/// The segments of one table.
#[derive(Debug)]
pub(crate) struct Segments<S> {
    all: Vec<Option<Box<S>>>,
    room: Room,
    held: Held,
}

impl<S> Default for Segments<S> {
    fn default() -> Self {
        Self { all: Vec::new(), room: Room::default(), held: Held::default() }
    }
}

impl<S: Segment> Segments<S> {
    /// Segments that hold memory, empty ones included.
    pub(crate) fn held(&self) -> usize {
        self.held.segments
    }

    /// The number behind the last segment that there ever was.
    pub(crate) fn end(&self) -> usize {
        self.all.len()
    }

    /// Lets `take` have a place of the lowest segment that has one; with the number of that segment.
    #[inline]
    pub(crate) fn take<R>(&mut self, take: impl FnOnce(&mut S) -> R) -> (usize, R) {
        let number = self.room.lowest().unwrap_or_else(|| {
            self.all.push(None);
            self.room.set(self.all.len() - 1);
            self.all.len() - 1
        });
        let held = &mut self.held;
        let segment = self.all[number].get_or_insert_with(|| {
            held.segments += 1;
            S::new(number)
        });
        if segment.is_empty() {
            held.begin();
        }
        let taken = take(segment);
        if segment.is_full() {
            self.room.clear(number);
        }
        (number, taken)
    }

    /// A place of this segment was given back.
    #[inline]
    pub(crate) fn gave(&mut self, number: usize) {
        if self[number].is_empty() {
            self.held.end();
        }
        self.room.set(number);
    }

    #[inline]
    pub(crate) fn get(&self, number: usize) -> Option<&S> {
        self.all.get(number)?.as_deref()
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, number: usize) -> Option<&mut S> {
        self.all.get_mut(number)?.as_deref_mut()
    }

    /// With their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &S)> {
        self.all.iter().enumerate().filter_map(|(number, segment)| Some((number, segment.as_deref()?)))
    }

    /// To be called about once a second: gives back segments that the last two calls' time did not need.
    ///
    /// Returns whether a later call may give back more though nothing else happens.
    pub(crate) fn tidy(&mut self) -> bool {
        let mut spare = self.held.spare();
        for segment in self.all.iter_mut().rev() {
            if spare == 0 {
                break;
            }
            if segment.as_ref().is_some_and(|s| s.is_empty()) {
                *segment = None;
                self.held.segments -= 1;
                spare -= 1;
            }
        }
        while self.all.last().is_some_and(Option::is_none) {
            self.all.pop();
            self.room.clear(self.all.len());
        }
        if self.all.is_empty() {
            self.all = Vec::new();
            self.room = Room::default();
        }
        self.held.more()
    }
}

/// # Panics
/// If no memory is held for this segment: something in it was named that is not there.
impl<S> Index<usize> for Segments<S> {
    type Output = S;

    #[inline]
    fn index(&self, number: usize) -> &S {
        self.all[number].as_deref().expect("the segment of a place in use is held")
    }
}

impl<S> IndexMut<usize> for Segments<S> {
    #[inline]
    fn index_mut(&mut self, number: usize) -> &mut S {
        self.all[number].as_deref_mut().expect("the segment of a place in use is held")
    }
}

/// Which segments have room: a bit each.
#[derive(Debug, Default)]
struct Room {
    words: Vec<u64>,
    /// No word below has a bit set.
    from: usize,
}

impl Room {
    fn set(&mut self, at: usize) {
        let word = at / 64;
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] |= 1 << (at % 64);
        self.from = self.from.min(word);
    }

    fn clear(&mut self, at: usize) {
        if let Some(word) = self.words.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    fn lowest(&mut self) -> Option<usize> {
        while let Some(&word) = self.words.get(self.from) {
            if word != 0 {
                return Some(self.from * 64 + word.trailing_zeros() as usize);
            }
            self.from += 1;
        }
        None
    }
}

/// How many segments are held, how many are in use, and the most that were of late.
#[derive(Debug, Default)]
struct Held {
    segments: usize,
    used: usize,
    peak: usize,
    peak_before: usize,
}

impl Held {
    /// A segment got its first entry.
    fn begin(&mut self) {
        self.used += 1;
        self.peak = self.peak.max(self.used);
    }

    /// A segment lost its last entry.
    fn end(&mut self) {
        self.used -= 1;
    }

    /// Ends a period: so many empty segments may go. Some slack stays while any is in use, so that a load that
    /// merely wavers frees and takes nothing.
    fn spare(&mut self) -> usize {
        let need = self.peak.max(self.peak_before);
        self.peak_before = self.peak;
        self.peak = self.used;
        let slack = if need == 0 { 0 } else { 1 + need / 16 };
        self.segments.saturating_sub(need + slack)
    }

    /// A later period may end with fewer.
    fn more(&self) -> bool {
        self.segments > self.used && self.peak_before.max(self.peak) > self.used || self.used == 0 && self.segments > 0
    }
}
