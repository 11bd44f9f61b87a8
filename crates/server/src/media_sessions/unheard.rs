//! Check of each answered call for a party from which nothing comes.

use super::{MediaCheck, MediaSession, side_names};
use crate::effect::Effect;
use crate::engine::{Anchored, Engine};
use strowger_core::Now;
use strowger_core::log_limiter::LogSubject;
use strowger_core::shown::shown;
use strowger_media::session::{SessionKey, SessionOrder, StreamReport};

/// Time after the answer of a call at which its parties should have been heard, in milliseconds.
const HEARD_WITHIN: u64 = 10_000;

impl Anchored {
    /// Returns the session of a call.
    fn session_mut(&mut self, key: SessionKey) -> Option<&mut MediaSession> {
        self.endpoints.session_mut(key).or_else(|| self.bridges.session_mut(key))
    }

    /// Checks the media of a call after ten seconds. It is answered now.
    pub(crate) fn check_media_soon(&mut self, now: Now, key: u64) {
        self.media.checks.push_back((now.mono + HEARD_WITHIN, key));
    }

    /// Returns the time of the next check, and forgets those of calls that have ended or left the shard.
    pub(crate) fn next_check(&mut self) -> Option<u64> {
        while let Some((at, key)) = self.media.checks.front().copied() {
            if self.session_mut(SessionKey(key)).is_some() {
                return Some(at);
            }
            self.media.checks.pop_front();
        }
        None
    }
}

impl Engine {
    /// Asks the media threads about the calls of which a party was not heard within ten seconds. The report is logged when it comes.
    pub(crate) fn check_media(&mut self, now: Now) {
        while self.anchored.next_check().is_some_and(|at| at <= now.mono) {
            let Some((_, key)) = self.anchored.media.checks.pop_front() else { return };
            let key = SessionKey(key);
            if self.anchored.bridges.has_heard_both(key) {
                continue;
            }
            if let Some(session) = self.anchored.session_mut(key)
                && let Some((key, thread)) = session.open()
            {
                session.check = MediaCheck::Asked;
                self.effects.push(Effect::Media { thread: Some(thread), order: SessionOrder::Report { key } });
            }
        }
    }

    /// Logs once the parties of a call that was checked from which nothing has come.
    pub(super) fn log_unheard(&mut self, now: Now, key: SessionKey, streams: &[(StreamReport, Option<StreamReport>)]) {
        let Some(session) = self.anchored.session_mut(key).filter(|session| session.check == MediaCheck::Asked) else {
            return;
        };
        session.check = MediaCheck::Done;
        let near = unheard(streams.iter().map(|(near, _)| near));
        let far = unheard(streams.iter().filter_map(|(_, far)| far.as_ref()));
        for (side, report) in side_names(session.is_turned).into_iter().zip([near, far]) {
            let Some((report, expected)) = report.and_then(|report| Some((report, report.expected?))) else { continue };
            if self.shared.log_limiter.allow(LogSubject::Request, expected.ip(), now.mono) {
                session.check = MediaCheck::Logged;
                let (call_id, seen) = (shown(&session.call_id), report.seen.map(tracing::field::display));
                let StreamReport { dropped, sent, .. } = report;
                tracing::warn!(%call_id, side, %expected, seen, dropped, sent, "one-way audio");
            }
        }
    }
}

/// Returns the report about a party that should send, and has sent nothing.
fn unheard<'r>(mut reports: impl Iterator<Item = &'r StreamReport> + Clone) -> Option<&'r StreamReport> {
    let is_heard = reports.clone().any(|report| report.figures.packets > 0 || report.unread > 0);
    reports.find(|report| report.is_silent() && report.is_expected).filter(|_| !is_heard)
}
