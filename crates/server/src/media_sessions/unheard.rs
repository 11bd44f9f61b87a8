//! Check of each answered call for a party from which nothing comes.

use super::quality::Reports;
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

    /// Logs once the parties of a call that was checked from which nothing has come. The call is checked again if a party has just begun to send, or
    /// has resumed.
    pub(super) fn log_unheard(&mut self, now: Now, key: SessionKey, streams: &Reports) {
        let Some(session) = self.anchored.session_mut(key).filter(|session| session.check == MediaCheck::Asked) else {
            return;
        };
        let parties = unheard(streams, |report| report.is_silent() && report.is_expected);
        if parties.iter().flatten().any(|report| is_early(now, report)) {
            session.check = MediaCheck::Ahead;
            self.anchored.check_media_soon(now, key.0);
            return;
        }
        session.check = MediaCheck::Done;
        for (side, report) in side_names(session.is_turned).into_iter().zip(parties) {
            let Some((report, expected)) = report.and_then(|report| Some((report, report.expected?))) else { continue };
            if self.shared.log_limiter.allow(LogSubject::Request, expected.ip(), now.mono) {
                session.check = MediaCheck::Logged;
                let (call_id, seen) = (shown(&session.call_id), report.seen.map(tracing::field::display));
                let StreamReport { dropped, sent, .. } = report;
                tracing::warn!(%call_id, side, %expected, seen, dropped, sent, "one-way audio");
            }
        }
    }

    /// Logs the parties of an ended call from which nothing has come.
    pub(super) fn log_never_heard(&self, now: Now, call_id: &[u8], is_turned: bool, streams: &Reports) {
        let parties = unheard(streams, StreamReport::is_silent);
        for (side, report) in side_names(is_turned).into_iter().zip(parties) {
            let Some((report, expected)) = report.and_then(|report| Some((report, report.expected?))) else { continue };
            if self.shared.log_limiter.allow(LogSubject::Request, expected.ip(), now.mono) {
                let (call_id, seen) = (shown(call_id), report.seen.map(tracing::field::display));
                tracing::info!(%call_id, side, %expected, seen, dropped = report.dropped, "one-way audio");
            }
        }
    }
}

/// Tells whether a silent party has had no time to send: it has resumed the call a moment ago.
fn is_early(now: Now, report: &StreamReport) -> bool {
    report.expected_since.is_some_and(|since| now.mono.saturating_sub(since / 1_000) < HEARD_WITHIN / 2)
}

/// Returns for near and far peer the report about its first stream that is missed, if no stream of the peer had a packet.
fn unheard(streams: &Reports, is_missed: impl Fn(&StreamReport) -> bool) -> [Option<&StreamReport>; 2] {
    let near = streams.iter().map(|(near, _)| near);
    let far = streams.iter().filter_map(|(_, far)| far.as_ref());
    [missed(near, &is_missed), missed(far, &is_missed)]
}

fn missed<'r>(
    mut reports: impl Iterator<Item = &'r StreamReport> + Clone,
    is_missed: impl Fn(&StreamReport) -> bool,
) -> Option<&'r StreamReport> {
    let is_heard = reports.clone().any(|report| report.figures.packets > 0 || report.unread > 0);
    reports.find(|&report| is_missed(report)).filter(|_| !is_heard)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_media::received_stream::Figures;

    #[test]
    fn a_party_is_unheard_if_none_of_its_streams_had_a_packet() {
        let (expected, expected_since) = ("192.0.2.1:4000".parse().ok(), Some(0));
        let silent = StreamReport { expected, expected_since, ..StreamReport::default() };
        let heard = StreamReport { figures: Figures { packets: 9, ..Figures::default() }, ..silent };
        let unread = StreamReport { unread: 9, ..silent };
        let listening = StreamReport { expected_since: None, ..silent };
        let refused = StreamReport::default();
        for (near, far, are_unheard) in [
            ([silent, refused], [heard, refused], [true, false]),
            ([heard, silent], [silent, heard], [false, false]),
            ([silent, unread], [refused, silent], [false, true]),
            ([listening, refused], [refused, refused], [false, false]),
        ] {
            let streams = [0, 1].map(|at| (near[at], Some(far[at])));
            let found = unheard(&streams, StreamReport::is_silent).map(|report| report.is_some());
            assert_eq!(found, are_unheard, "{streams:?}");
        }
        assert_eq!(unheard(&[(silent, None)], StreamReport::is_silent), [Some(&silent), None]);
    }
}
