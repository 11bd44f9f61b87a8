//! Events of media sessions.

use super::Endpoints;
use super::agent_events::SILENT;
use super::session::ClosingSession;
use crate::engine::{Effect, Engine};
use strowger_core::log_limiter::LogSubject;
use strowger_core::shown::shown;
use strowger_core::{Now, Outbox};
use strowger_media::session::{SessionEvent, SessionKey, SessionOrder, StreamReport};

impl Engine {
    /// Handles an event of a media session, or lent ports.
    pub(crate) fn on_session_event(&mut self, now: Now, event: SessionEvent, out: &mut Outbox) {
        match event {
            SessionEvent::Heard { key, .. } => self.close_if_unknown(key),
            SessionEvent::Silent { key, .. } => match self.endpoints.sessions.get(&key.0).copied() {
                Some(call) => self.end_endpoint(now, call, &SILENT, out),
                None => self.close_if_unknown(key),
            },
            SessionEvent::Closed { key, streams } => {
                if let Some(ClosingSession { ports, call_id, .. }) = self.endpoints.closing.remove(&key.0) {
                    self.endpoints.ports.put_back(ports);
                    self.balance_ports();
                    streams.iter().for_each(|(report, _)| self.log_stream(now, &call_id, report));
                }
            }
            SessionEvent::Lent { ports, .. } => self.endpoints.ports.lent(ports),
        }
    }

    /// Closes a session without a call. If its call has moved, the orders of two shards may come to the media thread in
    /// another order, so that a session opens after its end.
    fn close_if_unknown(&mut self, key: SessionKey) {
        let Endpoints { sessions, closing, .. } = &self.endpoints;
        if sessions.contains_key(&key.0) || closing.contains_key(&key.0) {
            return;
        }
        let threads = self.shard.media_threads.running;
        let close = |thread| Effect::Media { thread: Some(thread), order: SessionOrder::Close { key } };
        self.effects.extend((0..threads).map(close));
    }

    /// Logs the figures of a stream that has ended; one without any packet is reported.
    fn log_stream(&self, now: Now, call_id: &[u8], report: &StreamReport) {
        let StreamReport { figures, dropped, sent, expected, seen, .. } = report;
        // A refused stream, or one that was on hold to its end, has no address.
        let Some(expected) = expected else { return };
        let (call_id, seen) = (shown(call_id), seen.map(tracing::field::display));
        tracing::debug!(
            %call_id,
            packets = figures.packets,
            lost = figures.lost,
            jitter = figures.largest_jitter,
            gap = figures.largest_gap,
            dropped,
            sent,
            "stream ended"
        );
        if figures.packets == 0 && self.shared.log_limiter.allow(LogSubject::Request, expected.ip(), now.mono) {
            tracing::info!(%call_id, side = "caller", %expected, seen, dropped, "one-way audio");
        }
    }
}
