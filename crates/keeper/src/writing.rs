//! What the thread has: segments, where each state stands, what is still to be written, and the compaction of the oldest segment.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use strowger_records::{FileLock, Writer};

use crate::pending::{Change, Changes, Pending};
use crate::place::{Index, LONGEST, Place};
use crate::segments::{BESIDE, CLOSED, REMOVED, Records, STATE, Segment, path};
use crate::{Counts, Settings};

/// Makes a segment.
pub(crate) type OpenSegment = Box<dyn FnMut(&Path) -> io::Result<Writer> + Send>;

/// Bytes that one write has, about.
const WRITE: u64 = 1 << 20;
/// Bytes that a compaction reads between two groups, beside twice those of the group before: so it is faster than what it is for.
const STEP: u64 = 1 << 20;
const MOST: u64 = 4 << 20;
/// Segments that may be, beside those that the bytes need: each start begins one.
const FEW: u64 = 16;
/// A trouble that lasts is logged so often.
const AGAIN: Duration = Duration::from_secs(60);

pub(crate) struct Writing {
    settings: Settings,
    create: OpenSegment,
    /// The last one is being written.
    segments: Vec<Segment>,
    /// None: the next group begins a segment.
    writer: Option<Writer>,
    index: Index,
    /// Bytes of the records that count.
    live: u64,
    unwritten: Changes,
    scratch: Changes,
    /// Numbers that were closed, and when they are to be removed.
    closed: VecDeque<(Instant, u64, Place)>,
    /// The oldest segment, from which what counts is copied.
    compaction: Option<Records>,
    trouble: Trouble,
    counts: Arc<Counts>,
    _lock: FileLock,
}

/// Since when nothing can be written.
#[derive(Default)]
struct Trouble {
    since: Option<Instant>,
    said: Option<Instant>,
    next_try: Option<Instant>,
}

impl Writing {
    pub(crate) fn new(
        settings: Settings,
        create: OpenSegment,
        segments: Vec<Segment>,
        index: Index,
        counts: Arc<Counts>,
        lock: FileLock,
    ) -> Self {
        let live = index.values().map(|place| place.length()).sum();
        let (closed, unwritten, scratch, trouble) = Default::default();
        Self {
            settings,
            create,
            segments,
            writer: None,
            index,
            live,
            unwritten,
            scratch,
            closed,
            compaction: None,
            trouble,
            counts,
            _lock: lock,
        }
    }

    /// These numbers were closed by an earlier process.
    pub(crate) fn were_closed(&mut self, numbers: &[u64]) {
        let until = Instant::now() + self.settings.grace;
        let places = numbers.iter().filter_map(|number| Some((until, *number, *self.index.get(number)?)));
        self.closed.extend(places);
    }

    /// After which time there is work without a change; none: there is none. `interval`: between two steps of a compaction.
    pub(crate) fn pause(&self, interval: Duration) -> Option<Duration> {
        let until = |at: Instant| at.saturating_duration_since(Instant::now());
        if let Some(next_try) = self.trouble.next_try {
            return Some(until(next_try));
        }
        let removal = self.closed.front().map(|(at, ..)| until(*at).max(interval));
        let compaction = self.compaction.is_some().then_some(interval);
        removal.into_iter().chain(compaction).min()
    }

    /// Takes the changes that wait.
    pub(crate) fn take(&mut self, pending: &Pending) {
        pending.take(&mut self.unwritten, &mut self.scratch, &self.counts.unwritten);
        self.show();
    }

    /// Writes what is to be written, as far as it can be. `is_last`: no further attempt follows.
    pub(crate) fn work(&mut self, now: Instant, is_last: bool) {
        if !is_last && self.trouble.next_try.is_some_and(|next_try| now < next_try) {
            return;
        }
        match self.write(now, is_last) {
            Ok(()) => self.works(),
            Err(error) => self.fails(now, &error),
        }
        if is_last && !self.unwritten.is_empty() {
            let numbers = self.unwritten.len();
            tracing::error!(numbers, folder = %self.settings.folder.display(), "state lost: it could not be written at the end");
        }
        self.show();
    }

    fn write(&mut self, now: Instant, is_last: bool) -> io::Result<()> {
        self.remove_closed(now);
        let mut bytes = 0;
        while !self.unwritten.is_empty() {
            bytes += self.write_some(now)?;
        }
        if self.unwritten.capacity() > 1 << 16 {
            self.unwritten = Changes::new();
        }
        if !is_last {
            self.compact((STEP + 2 * bytes).min(MOST))?;
        }
        Ok(())
    }

    /// Those that were closed long enough ago.
    fn remove_closed(&mut self, now: Instant) {
        while let Some((_, number, place)) = self.closed.pop_front_if(|(at, ..)| *at <= now) {
            // Another call may have this number by now.
            if self.index.get(&number) == Some(&place) {
                self.unwritten.entry(number).or_insert(Change::Removed);
            }
        }
    }

    /// One write, of so many bytes: the changes that go into it are done with, or stay as they are.
    fn write_some(&mut self, now: Instant) -> io::Result<u64> {
        let segment = self.ready()?;
        let Some(writer) = &mut self.writer else { return Err(io::ErrorKind::NotFound.into()) };
        let mut offset = writer.start();
        let first = offset;
        let mut done: Vec<(u64, Option<Place>, bool)> = Vec::new();
        let mut too_long = 0;
        let (unwritten, index) = (&self.unwritten, &self.index);
        writer.write(|records| {
            for (number, change) in unwritten {
                if offset - first >= WRITE {
                    break;
                }
                let (kind, said) = match change {
                    Change::State(said) => (STATE, &**said),
                    Change::Closed(said) => (CLOSED, &**said),
                    Change::Removed => (REMOVED, &[][..]),
                };
                let length = BESIDE + said.len() as u64;
                // What is not there need not be removed.
                let is_nothing = kind == REMOVED && !index.contains_key(number);
                if is_nothing || length > LONGEST {
                    too_long += u64::from(!is_nothing);
                    done.push((*number, index.get(number).copied(), false));
                    continue;
                }
                records.push(kind, |out| {
                    out.extend_from_slice(&number.to_le_bytes());
                    out.extend_from_slice(said);
                });
                let place = Place::new(segment, offset, length);
                done.push((*number, (kind != REMOVED).then_some(place), kind == CLOSED));
                offset += length;
            }
        })?;
        if too_long > 0 {
            tracing::error!(numbers = too_long, most = LONGEST, "state not kept: it is too long");
        }
        self.counts.written.fetch_add(done.len() as u64, Relaxed);
        for (number, place, is_closed) in done {
            self.unwritten.remove(&number);
            self.set_place(number, place);
            if let Some(place) = place.filter(|_| is_closed) {
                self.closed.push_back((now + self.settings.grace, number, place));
            }
        }
        self.written();
        Ok(offset - first)
    }

    fn set_place(&mut self, number: u64, place: Option<Place>) {
        let before = match place {
            Some(place) => self.index.insert(number, place),
            None => self.index.remove(&number),
        };
        self.live += place.map_or(0, Place::length);
        self.live -= before.map_or(0, Place::length);
    }

    /// The number of the segment that takes the next write.
    fn ready(&mut self) -> io::Result<u64> {
        if self.writer.as_ref().is_none_or(|writer| writer.length() >= self.settings.segment) {
            self.begin_segment()?;
        }
        Ok(self.segments.last().map_or(0, |segment| segment.number))
    }

    /// # Errors
    /// The file cannot be made, or its beginning not be written.
    pub(crate) fn begin_segment(&mut self) -> io::Result<()> {
        let number = self.segments.last().map_or(1, |segment| segment.number + 1);
        let path = path(&self.settings.folder, number);
        let mut writer = (self.create)(&path)?;
        if let Err(error) = writer.write(|_| ()) {
            // Attempts leave no files.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        self.segments.push(Segment { number, bytes: writer.length() });
        self.writer = Some(writer);
        Ok(())
    }

    fn written(&mut self) {
        if let (Some(segment), Some(writer)) = (self.segments.last_mut(), &self.writer) {
            segment.bytes = writer.length();
        }
    }

    fn bytes(&self) -> u64 {
        self.segments.iter().map(|segment| segment.bytes).sum()
    }

    /// Goes on with the compaction of the oldest segment, or begins one if more than half of all is of no use any more.
    fn compact(&mut self, step: u64) -> io::Result<()> {
        if self.compaction.is_none() {
            let (bytes, segments, largest) = (self.bytes(), self.segments.len() as u64, self.settings.segment);
            let is_much = bytes > 2 * self.live + largest || segments > FEW + 2 * bytes / largest.max(1);
            let is_worth = is_much && segments > 1;
            let Some(oldest) = self.segments.first().filter(|_| is_worth) else { return Ok(()) };
            match Records::open(&self.settings.folder, oldest.number) {
                Ok(Some(records)) => self.compaction = Some(records),
                Ok(None) => return self.remove_oldest(),
                Err(error) => {
                    tracing::error!(%error, "state lost: a segment cannot be read");
                    return self.remove_oldest();
                }
            }
        }
        let mut copies: Vec<(u8, u64, Place, Box<[u8]>)> = Vec::new();
        let Some(records) = &mut self.compaction else { return Ok(()) };
        let until = records.position() + step;
        let is_whole = loop {
            if records.position() >= until {
                break false;
            }
            let Some((kind, number, place, said)) = records.next() else { break true };
            if self.index.get(&number) == Some(&place) {
                copies.push((kind, number, place, said.into()));
            }
        };
        if let Err(error) = self.copy(&copies) {
            // It is read again from the beginning: what was copied before does not count there any more.
            self.compaction = None;
            return Err(error);
        }
        if is_whole {
            self.compaction = None;
            return self.remove_oldest();
        }
        Ok(())
    }

    fn copy(&mut self, copies: &[(u8, u64, Place, Box<[u8]>)]) -> io::Result<()> {
        if copies.is_empty() {
            return Ok(());
        }
        let segment = self.ready()?;
        let Some(writer) = &mut self.writer else { return Err(io::ErrorKind::NotFound.into()) };
        let mut offset = writer.start();
        writer.write(|records| {
            for (kind, number, _, said) in copies {
                records.push(*kind, |out| {
                    out.extend_from_slice(&number.to_le_bytes());
                    out.extend_from_slice(said);
                });
            }
        })?;
        self.counts.written.fetch_add(copies.len() as u64, Relaxed);
        for (kind, number, before, _) in copies {
            let place = Place::new(segment, offset, before.length());
            offset += before.length();
            self.index.insert(*number, place);
            if *kind == CLOSED
                && let Some((.., closed)) = self.closed.iter_mut().find(|(.., at)| at == before)
            {
                *closed = place;
            }
        }
        self.written();
        Ok(())
    }

    /// All that counts of it was copied.
    fn remove_oldest(&mut self) -> io::Result<()> {
        let Some(oldest) = self.segments.first().copied() else { return Ok(()) };
        let path = path(&self.settings.folder, oldest.number);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => (),
        }
        self.segments.remove(0);
        // What could not be read again is lost: the disk has damaged it since.
        let before = self.index.len();
        let live = &mut self.live;
        self.index.retain(|_, place| {
            let is_there = !place.is_in(oldest.number);
            *live -= if is_there { 0 } else { place.length() };
            is_there
        });
        let lost = before - self.index.len();
        if lost > 0 {
            tracing::error!(numbers = lost, segment = %path.display(), "state lost: a segment is damaged");
        }
        Ok(())
    }

    fn works(&mut self) {
        if let Some(since) = self.trouble.since.take() {
            self.trouble = Trouble::default();
            tracing::info!(after = ?since.elapsed(), "state is kept again");
        }
    }

    fn fails(&mut self, now: Instant, error: &io::Error) {
        self.trouble.since.get_or_insert(now);
        self.trouble.next_try = Some(now + self.settings.retry);
        self.counts.failures.fetch_add(1, Relaxed);
        if self.trouble.said.is_none_or(|said| now.duration_since(said) >= AGAIN) {
            self.trouble.said = Some(now);
            let (folder, numbers) = (self.settings.folder.display(), self.unwritten.len());
            tracing::error!(%error, %folder, numbers, "state not kept: it waits in memory");
        }
    }

    fn show(&self) {
        let counts = &self.counts;
        counts.kept.store(self.index.len() as u64, Relaxed);
        counts.bytes.store(self.bytes(), Relaxed);
        counts.unwritten.store(self.unwritten.len() as u64, Relaxed);
        counts.is_down.store(u64::from(self.trouble.since.is_some()), Relaxed);
    }
}
