//! What the calls of one shard share.

use super::call::Shared;
use super::desk::Desk;
use super::ledger::Ledger;
use super::run::Run;
use super::shelf::Shelf;
use super::watch::Watch;
use std::fmt::Arguments;
use std::sync::Arc;
use strowger_measure::{Books, Counter};
use strowger_message::{Index, Limits};

/// What the calls of one shard share.
pub(super) struct World {
    pub(super) run: Arc<Run>,
    pub(super) books: Books,
    pub(super) ledger: Ledger,
    pub(super) shared: Shared,
    pub(super) random: Random,
    pub(super) watch: Option<Box<dyn Watch>>,
    /// Microseconds and milliseconds of the engine's clock.
    pub(super) now: u64,
    pub(super) ms: u64,
    /// When that came which the call at work has received; else `now`.
    pub(super) came: u64,
    /// When the first message counts as sent that is in the outbox, and of those that the round hands to the kernel; 0: there is
    /// none.
    pub(super) posted: u64,
    pub(super) departing: u64,
    /// Counts what was read without a pause: all that lay there when the shard came to read it.
    pub(super) burst: u64,
    /// The wall clock, ms since 1970.
    pub(super) wall: u64,
    /// Offsets in the message that `parsed` names.
    pub(super) index: Index,
    /// The call whose last message `index` describes, and the use of its place.
    pub(super) parsed: Option<(u32, u32)>,
    pub(super) limits: Limits,
    pub(super) scratch: Vec<u8>,
    pub(super) desk: Desk,
    pub(super) shelf: Shelf,
    pub(super) dynamic_id: u64,
    /// Calls that are open and not yet concluded, and what has become free of those that were while others waited.
    pub(super) open: u64,
    pub(super) places: super::places::Places,
    /// What an action asked of the whole run.
    pub(super) halt: Option<Halt>,
    /// The only connection has ended, and none is made again.
    pub(super) broken: bool,
    /// The run has ended at once: nothing more is done.
    pub(super) frozen: bool,
    /// The way to the other controllers of third party call control.
    pub(super) link: Option<crate::command::Link>,
    /// The sockets of calls, where calls have their own.
    pub(super) ways: Option<Box<super::sockets::Ways>>,
    /// The media of the calls, where there are any.
    pub(super) media: Option<crate::media::Legs>,
    /// The warning that no media is sent was given.
    pub(super) told_of_media: bool,
    /// The states of expressions met so far.
    pub(super) matcher: crate::expression::Matcher,
}

/// What an action asks of the whole run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// No new calls.
    Gracefully,
    /// The end, now.
    Now,
    /// The end, with an error that was said.
    Error,
}

impl World {
    /// It is this time by now.
    #[inline]
    pub(super) fn at(&mut self, now: u64) {
        self.now = now.max(self.now);
        self.ms = self.ms.max(self.now / 1_000);
        self.came = self.now;
    }

    /// What the last round left in the outbox is sent by now.
    #[inline]
    pub(super) fn sent_by(&mut self, now: u64) {
        if let departed @ 1.. = std::mem::take(&mut self.departing) {
            self.books.send_lag(now.saturating_sub(departed));
        }
    }

    /// A call is not open any more.
    #[inline]
    pub(super) fn leave_place(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.places.free(self.came, 1);
    }

    /// The books learn what was sent and received as media.
    pub(super) fn count_media(&mut self) {
        if let Some(media) = &mut self.media {
            let books = &mut self.books;
            media.count(|counter, by| books.count(counter, by));
        }
    }

    /// The run cannot go on. SIPp ends here: nothing more is sent.
    #[cold]
    pub(super) fn fatal(&mut self, why: Arguments<'_>) {
        // The first is the last.
        if self.halt == Some(Halt::Error) {
            return;
        }
        self.books.count(Counter::FatalErrors, 1);
        self.ledger.fatal_errors += 1;
        if let Some(watch) = &mut self.watch {
            watch.warning(why);
        }
        self.halt = Some(Halt::Error);
    }

    /// Says something to the reader of the errors.
    pub(super) fn warn(&mut self, text: Arguments<'_>) {
        self.books.count(Counter::Warnings, 1);
        self.ledger.warnings += 1;
        if let Some(watch) = &mut self.watch {
            watch.warning(text);
        }
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): repeatable, not secret.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Random(pub u64);

impl Random {
    pub(crate) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From [0, 1).
    pub(super) fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / (1u64 << 53) as f64
    }
}
