//! State shared by the calls of one shard.

use super::buffer_pool::BufferPool;
use super::call::Shared;
use super::helper::Helper;
use super::message_pool::MessagePool;
use super::run::Run;
use super::sipp_stats::SippStats;
use super::watch::Watch;
use crate::random::Random;
use std::fmt::Arguments;
use std::sync::Arc;
use strowger_measure::{Counter, ShardRecorder};
use strowger_message::{Index, Limits};

/// State shared by the calls of one shard.
pub(super) struct ShardContext {
    pub(super) run: Arc<Run>,
    pub(super) recorder: ShardRecorder,
    pub(super) stats: SippStats,
    pub(super) shared: Shared,
    pub(super) random: Random,
    pub(super) watch: Option<Box<dyn Watch>>,
    /// Engine clock, in microseconds and in milliseconds.
    pub(super) now: u64,
    pub(super) ms: u64,
    /// Arrival time of the message that the current call has received; else `now`.
    pub(super) came: u64,
    /// Send times of the oldest message in the outbox, and of the oldest message that the last round handed to the
    /// kernel; 0: none.
    pub(super) posted: u64,
    pub(super) departing: u64,
    /// Counts bursts: messages read without a pause, which all lay in the queue when the shard began to read.
    pub(super) burst: u64,
    /// Wall clock, ms since 1970.
    pub(super) wall: u64,
    /// Header offsets of the message that `parsed` names.
    pub(super) index: Index,
    /// Call whose last message `index` describes, and the generation of its slot.
    pub(super) parsed: Option<(u32, u32)>,
    pub(super) limits: Limits,
    pub(super) scratch: Vec<u8>,
    pub(super) pool: BufferPool,
    pub(super) messages: MessagePool,
    pub(super) dynamic_id: u64,
    /// Open calls not yet concluded, and the places freed while others waited.
    pub(super) open: u64,
    pub(super) places: super::free_places::FreePlaces,
    /// End of the run that an action asked for.
    pub(super) halt: Option<Halt>,
    /// True if the shared connection has ended and is not made again.
    pub(super) broken: bool,
    /// True if the run has ended immediately, so that no call works any more.
    pub(super) frozen: bool,
    /// Helper for work that may block.
    pub(super) helper: Helper,
    /// Connection to the other controllers of third party call control.
    pub(super) link: Option<crate::command::Link>,
    /// Dedicated sockets, if calls have their own.
    pub(super) call_sockets: Option<Box<super::sockets::CallSockets>>,
    /// Media of the calls, if any.
    pub(super) media: Option<crate::media::Legs>,
    /// True once the warning that no media is sent was logged.
    pub(super) warned_of_media: bool,
    /// States of the expressions matched so far.
    pub(super) matcher: strowger_scenario::expression::Matcher,
}

/// Ends of the run that an action may ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Halt {
    /// No calls begin any more.
    Gracefully,
    /// The run ends immediately.
    Now,
    /// The run ends with an error, which was reported.
    Error,
}

impl ShardContext {
    /// Sets the clock, µs, which never decreases.
    #[inline]
    pub(super) fn at(&mut self, now: u64) {
        self.now = now.max(self.now);
        self.ms = self.ms.max(self.now / 1_000);
        self.came = self.now;
    }

    /// Records that the outbox of the last round was sent by `now`.
    #[inline]
    pub(super) fn sent_by(&mut self, now: u64) {
        if let departed @ 1.. = std::mem::take(&mut self.departing) {
            self.recorder.send_lag(now.saturating_sub(departed));
        }
    }

    /// Frees the place of a call below the limit.
    #[inline]
    pub(super) fn leave_place(&mut self) {
        self.open = self.open.saturating_sub(1);
        self.places.free(self.came, 1);
    }

    /// Adds the media sent and received to the recorder.
    pub(super) fn count_media(&mut self) {
        if let Some(media) = &mut self.media {
            let recorder = &mut self.recorder;
            media.count(|counter, by| recorder.count(counter, by));
            media.report_delays(|delays| recorder.packets_delayed(delays));
        }
    }

    /// Ends the run with an error. As SIPp, sends nothing more.
    #[cold]
    pub(super) fn fatal(&mut self, why: Arguments<'_>) {
        // Only the first error is reported.
        if self.halt == Some(Halt::Error) {
            return;
        }
        self.recorder.count(Counter::FatalErrors, 1);
        self.stats.fatal_errors += 1;
        if let Some(watch) = &mut self.watch {
            watch.warning(why);
        }
        self.halt = Some(Halt::Error);
    }

    /// Counts and reports a warning.
    pub(super) fn warn(&mut self, text: Arguments<'_>) {
        self.recorder.count(Counter::Warnings, 1);
        self.stats.warnings += 1;
        if let Some(watch) = &mut self.watch {
            watch.warning(text);
        }
    }
}
