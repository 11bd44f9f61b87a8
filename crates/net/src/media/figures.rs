//! Figures of media threads.

use strowger_media::session::DropReason;

strowger_metrics::metrics! {
    of = "media";
    /// Counters and gauges of one media thread, as it writes them.
    pub(super) struct Counters;
    /// Figures of one media thread, or sums of all, at one moment.
    pub struct MediaFigures;

    /// Media threads.
    threads: Gauge as "media_threads";
    /// Processor time that media threads have used.
    busy: Counter in Seconds as "media_busy_seconds";
    /// The longest time in the last 30 to 60 seconds in which a media thread that had work did not look at its sockets.
    longest_turn: Highest in Seconds as "media_longest_turn_seconds";
    /// Looks of media threads at their sockets.
    looks: Counter as "media_looks";
    /// Open sessions of media: one for each call whose media pass this server.
    sessions: Gauge as "media_sessions";
    /// Pairs of media ports: used by a session, lent in advance to a thread that carries messages, or free. A stream takes a pair for each peer.
    used: Gauge as "media_port_pairs" {state = "used"};
    /// Pairs of media ports: used by a session, lent in advance to a thread that carries messages, or free. A stream takes a pair for each peer.
    lent: Gauge as "media_port_pairs" {state = "lent"};
    /// Pairs of media ports: used by a session, lent in advance to a thread that carries messages, or free. A stream takes a pair for each peer.
    free: Gauge as "media_port_pairs" {state = "free"};
    /// Packets received at ports of media, also from sources that may not send.
    received: Counter as "media_packets_received";
    /// Bytes of packets received at ports of media, without IP and UDP headers.
    received_bytes: Counter in Bytes as "media_received_bytes";
    /// Packets sent from ports of media, reports included.
    sent: Counter as "media_packets_sent";
    /// Bytes of packets sent from ports of media, without IP and UDP headers.
    sent_bytes: Counter in Bytes as "media_sent_bytes";
    /// Packets of media that the kernel did not take: no route, or no room.
    unsent: Counter as "media_packets_unsent";
    /// Received packets of media that went no further, by the reason.
    dropped_source: Counter as "media_packets_dropped" {reason = "source"};
    /// Received packets of media that went no further, by the reason.
    dropped_unreadable: Counter as "media_packets_dropped" {reason = "unreadable"};
    /// Received packets of media that went no further, by the reason.
    dropped_format: Counter as "media_packets_dropped" {reason = "format"};
    /// Received packets of media that went no further, by the reason.
    dropped_hold: Counter as "media_packets_dropped" {reason = "hold"};
    /// Received packets of media that went no further, by the reason.
    dropped_unproven: Counter as "media_packets_dropped" {reason = "unproven"};
    /// Received packets of media that went no further, by the reason.
    dropped_rate: Counter as "media_packets_dropped" {reason = "rate"};
    /// Received packets of media that went no further, by the reason.
    dropped_jump: Counter as "media_packets_dropped" {reason = "jump"};
    /// Events of media that wait because a ring to a thread that carries messages is full.
    events_waiting: Gauge as "media_events_waiting";
    /// Peers of ended streams from which no packet ever came: one-way audio, unless they had nothing to send.
    unheard: Counter as "media_streams_unheard";
    /// Packets that are missing in recordings, because the disk was too slow.
    recording_lost: Counter as "media_recording_packets_lost";
    /// Recordings that ended because their files could not be written.
    recordings_failed: Counter as "media_recordings_failed";
}

impl Counters {
    /// Adds packets that went no further, by [`DropReason`].
    #[inline]
    pub(super) fn add_dropped(&self, dropped: &[u64; DropReason::COUNT]) {
        if *dropped == [0; DropReason::COUNT] {
            return;
        }
        let counts = [
            (DropReason::Source, &self.dropped_source),
            (DropReason::Unreadable, &self.dropped_unreadable),
            (DropReason::Format, &self.dropped_format),
            (DropReason::Hold, &self.dropped_hold),
            (DropReason::Unproven, &self.dropped_unproven),
            (DropReason::Rate, &self.dropped_rate),
            (DropReason::Jump, &self.dropped_jump),
        ];
        for (reason, count) in counts {
            count.add(dropped[reason as usize]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_counter() {
        let counters = Counters::default();
        counters.add_dropped(&[1, 2, 3, 4, 5, 6, 7]);
        counters.add_dropped(&[0; DropReason::COUNT]);
        let figures = counters.snapshot();
        let of_reason = |(metric, value): (&strowger_metrics::Metric, u64)| {
            (metric.family == "media_packets_dropped").then(|| (metric.labels[0].1, value))
        };
        let dropped: Vec<_> = figures.each().filter_map(of_reason).collect();
        let reasons = ["source", "unreadable", "format", "hold", "unproven", "rate", "jump"];
        assert_eq!(dropped, reasons.into_iter().zip(1..=7).collect::<Vec<_>>());
    }
}
