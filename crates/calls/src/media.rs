//! Quality of the media of calls, and ended calls whose rows wait for it.
//!
//! A role closes the media session of a call when the call ends, and the report of the media thread follows within milliseconds. So the account
//! of a call knows that a report is due, and the rows of the end of the call are written once it has come, [`REPORT_WAIT`] after the end at
//! the latest. They wait in their shard alone: if the bucket of the call moves, or the process ends, they are written without the report.

use crate::cdr::{Account, MEDIA};
use crate::table::Ended;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use strowger_store::accounting::PartyMedia;

/// Longest time for which the rows of an ended call wait for the report about its media, in milliseconds.
pub(crate) const REPORT_WAIT: u64 = 1_000;

/// Report about the media of a call.
#[derive(Debug, Serialize, Deserialize)]
enum MediaReport {
    /// The media session is being closed.
    Due,
    /// Quality of the media of caller and callee.
    Received(PartyMedia),
}

impl Account {
    /// Notes that a report about the media is due.
    pub(crate) fn await_media(&mut self) {
        self.set_media(&MediaReport::Due);
    }

    /// Takes the report about the media.
    pub(crate) fn media_ended(&mut self, media: PartyMedia) {
        self.set_media(&MediaReport::Received(media));
    }

    fn set_media(&mut self, report: &MediaReport) {
        let bytes = postcard::to_extend(report, Vec::new()).expect("a vector takes all, and numbers can be written");
        self.texts = self.texts.with(&[(MEDIA, &bytes[..])]);
    }

    /// Returns the report about the media, if the call has had any.
    fn media_report(&self) -> Option<MediaReport> {
        postcard::from_bytes(self.texts.get(MEDIA)).ok()
    }

    /// Tells whether a report about the media is due.
    pub(crate) fn awaits_media(&self) -> bool {
        matches!(self.media_report(), Some(MediaReport::Due))
    }

    /// Returns the quality of the media of caller and callee.
    pub(crate) fn media(&self) -> PartyMedia {
        match self.media_report() {
            Some(MediaReport::Received(media)) => media,
            Some(MediaReport::Due) | None => [None; 2],
        }
    }
}

/// Ended calls whose rows wait for the report about their media, in the order of their ends.
#[derive(Debug, Default)]
pub(crate) struct UnreportedCalls(VecDeque<Unreported>);

#[derive(Debug)]
struct Unreported {
    /// [`strowger_core::Now::mono`] at which the rows wait no longer.
    until: u64,
    ended: Ended,
}

impl UnreportedCalls {
    /// Adds a call that has ended at `now`, in milliseconds.
    pub(crate) fn push(&mut self, now: u64, ended: Ended) {
        self.0.push_back(Unreported { until: now.saturating_add(REPORT_WAIT), ended });
    }

    /// Takes the call with this key out.
    pub(crate) fn take(&mut self, key: u64) -> Option<Ended> {
        let place = self.0.iter().position(|call| call.ended.key == key)?;
        self.0.remove(place).map(|call| call.ended)
    }

    /// Takes the first call out if it waits no longer at `now`, in milliseconds.
    pub(crate) fn take_due(&mut self, now: u64) -> Option<Ended> {
        self.deadline().filter(|until| *until <= now)?;
        self.0.pop_front().map(|call| call.ended)
    }

    /// Returns the moment at which the first call waits no longer.
    pub(crate) fn deadline(&self) -> Option<u64> {
        self.0.front().map(|call| call.until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::texts::Texts;

    fn ended(key: u64) -> Ended {
        Ended { key, is_kept: false, was_tracked: true, account: None, texts: Texts::default() }
    }

    #[test]
    fn ended_calls_wait_for_a_second() {
        let mut calls = UnreportedCalls::default();
        for key in 1..=4 {
            calls.push(10_000 + 100 * key, ended(key));
        }
        assert_eq!(calls.take(3).map(|ended| ended.key), Some(3));
        assert!(calls.take(3).is_none());
        assert_eq!(calls.deadline(), Some(11_100));
        assert!(calls.take_due(11_099).is_none());
        let due: Vec<u64> = std::iter::from_fn(|| calls.take_due(11_200)).map(|ended| ended.key).collect();
        assert_eq!((due, calls.deadline()), (vec![1, 2], Some(11_400)));
    }
}
