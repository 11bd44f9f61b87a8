//! Events of media sessions, and their log lines.

use super::quality::{SessionReport, count_streams, party_media};
use super::{ClosingSession, SILENT, side_names};
use crate::bridge::HeardStream;
use crate::effect::Effect;
use crate::endpoint::{PLAYED, UNRECORDED};
use crate::engine::Engine;
use strowger_core::shown::shown;
use strowger_core::{Now, Outbox};
use strowger_media::session::{SessionEnd, SessionEvent, SessionKey, SessionOrder, StreamReport};

impl Engine {
    /// Handles an event of a media session, or lent ports.
    pub(crate) fn on_session_event(&mut self, now: Now, event: SessionEvent, out: &mut Outbox) {
        match event {
            SessionEvent::Heard { key, stream, side, source } => match self.anchored.bridges.pair_of_session(key) {
                Some(pair) => self.note_heard(pair, side, HeardStream::new(stream, source)),
                None => self.close_if_unknown(key),
            },
            SessionEvent::Silent { key, end: SessionEnd::Silence(side) } => {
                if let Some(call) = self.anchored.endpoints.call_of_session(key) {
                    self.end_endpoint(now, call, &SILENT, out);
                } else if let Some(pair) = self.anchored.bridges.pair_of_session(key) {
                    self.end_silent(now, pair, side, out);
                } else {
                    self.close_if_unknown(key);
                }
            }
            SessionEvent::Played { key, .. } => match self.anchored.endpoints.call_of_session(key) {
                Some(call) => self.end_endpoint(now, call, &PLAYED, out),
                None => self.close_if_unknown(key),
            },
            SessionEvent::RecordingFailed { key } => match self.anchored.endpoints.call_of_session(key) {
                Some(call) => self.end_endpoint(now, call, &UNRECORDED, out),
                None => self.close_if_unknown(key),
            },
            SessionEvent::Reported { key, streams } => {
                self.log_unheard(now, key, &streams);
                self.anchored.media.report(now, key, SessionReport::new(now, &streams));
            }
            SessionEvent::Closed { key, streams } => {
                if let Some(ClosingSession { ports, call, is_turned, call_id, is_logged, .. }) =
                    self.anchored.media.closing.remove(&key.0)
                {
                    self.anchored.media.put_back(ports);
                    self.balance_ports();
                    let [of_near, of_far] = side_names(is_turned);
                    for (near, far) in &streams {
                        log_stream(&call_id, of_near, near);
                        far.iter().for_each(|far| log_stream(&call_id, of_far, far));
                    }
                    if !is_logged {
                        self.log_never_heard(now, &call_id, is_turned, &streams);
                    }
                    count_streams(self.counters(), &self.shared.durations[self.shard.number], &streams);
                    if let Some(call) = call {
                        let mut media = party_media(&streams);
                        if is_turned {
                            media.reverse();
                        }
                        self.calls.media_ended(call, media);
                        self.carry_out(now, out);
                    }
                }
            }
            SessionEvent::Claimed { key, ports, is_bound } => {
                if !is_bound {
                    self.anchored.media.ports.forget(&ports);
                }
                self.ports_claimed(now, key, is_bound, out);
            }
            SessionEvent::Lent { ports, .. } => {
                let is_any = !ports.is_empty();
                self.anchored.media.ports.lent(ports);
                if is_any {
                    self.balance_ports();
                }
                self.place_portless(now, out);
            }
        }
    }

    /// Closes a session without a call. If its call has moved, the orders of two shards may come to the media thread in
    /// another order, so that a session opens after its end.
    fn close_if_unknown(&mut self, key: SessionKey) {
        let is_of_call = self.anchored.endpoints.call_of_session(key).is_some()
            || self.anchored.bridges.pair_of_session(key).is_some();
        if is_of_call || self.anchored.media.closing.contains_key(&key.0) {
            return;
        }
        let close = |thread| Effect::Media { thread: Some(thread), order: SessionOrder::Close { key } };
        self.effects.extend((0..self.shard.media_threads.running).map(close));
    }
}

/// Logs the figures of the packets of one side, whose stream has ended.
fn log_stream(call_id: &[u8], side: &str, report: &StreamReport) {
    let StreamReport { figures, dropped, sent, expected, .. } = report;
    // A refused stream, or one that was on hold to its end, has no address.
    if expected.is_none() {
        return;
    }
    tracing::debug!(
        call_id = %shown(call_id),
        side,
        packets = figures.packets,
        lost = figures.lost,
        jitter = figures.largest_jitter,
        gap = figures.largest_gap,
        dropped,
        sent,
        "stream ended"
    );
}
