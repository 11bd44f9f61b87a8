//! Memory in segments: it grows without copying, the lowest segment with room is used first, and empty segments are
//! freed.

use std::ops::{Index, IndexMut};

/// Part of a table.
pub(crate) trait Segment {
    /// Creates an empty segment, the `number`th of its table.
    fn new(number: usize) -> Box<Self>;

    fn is_empty(&self) -> bool;

    fn is_full(&self) -> bool;
}

/// Segments of one table.
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
    /// Returns the number of allocated segments, empty ones included.
    pub(crate) fn held(&self) -> usize {
        self.held.segments
    }

    /// Returns the number after the last segment that ever existed.
    pub(crate) fn end(&self) -> usize {
        self.all.len()
    }

    /// Calls `take` with the lowest segment that has room, and returns its result and the number of that segment.
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

    /// Notes that a place of this segment was freed.
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

    /// Returns the segments with their numbers.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &S)> {
        self.all.iter().enumerate().filter_map(|(number, segment)| Some((number, segment.as_deref()?)))
    }

    /// Frees segments that were not needed since the call before the last. To be called about once a second.
    ///
    /// Returns true if a later call may return more memory without any other event.
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
/// If no memory is allocated for this segment, because the caller named a missing entry.
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

/// Bit set of the segments with room.
#[derive(Debug, Default)]
struct Room {
    words: Vec<u64>,
    /// No word below this one has a bit set.
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

/// Numbers of allocated and used segments, and the recent maxima of the latter.
#[derive(Debug, Default)]
struct Held {
    segments: usize,
    used: usize,
    peak: usize,
    peak_before: usize,
}

impl Held {
    /// Notes the first entry of a segment.
    fn begin(&mut self) {
        self.used += 1;
        self.peak = self.peak.max(self.used);
    }

    /// Notes the removal of the last entry of a segment.
    fn end(&mut self) {
        self.used -= 1;
    }

    /// Ends a period. Returns the number of empty segments to free. Some empty segments are kept while any segment is
    /// in use, so that a load with small variations frees and allocates nothing.
    fn spare(&mut self) -> usize {
        let need = self.peak.max(self.peak_before);
        self.peak_before = self.peak;
        self.peak = self.used;
        let slack = if need == 0 { 0 } else { 1 + need / 16 };
        self.segments.saturating_sub(need + slack)
    }

    /// Tells whether a later period may free more.
    fn more(&self) -> bool {
        self.segments > self.used && self.peak_before.max(self.peak) > self.used || self.used == 0 && self.segments > 0
    }
}
