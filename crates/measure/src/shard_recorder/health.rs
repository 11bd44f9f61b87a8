//! Health of the generator, and timers of its scenario, in the figures of a shard.

use super::{SendFailure, ShardRecorder};
use crate::{Counter, Delay, Page};

impl ShardRecorder {
    /// Records the time `us` of a named timer of the scenario (SIPp's response time durations). `timer`: its index in
    /// the names given to the collector; another index is ignored.
    #[inline]
    pub fn timer(&mut self, timer: usize, us: u64) {
        let timer = match &self.timer_places {
            Some(places) => places.get(timer).map_or(usize::MAX, |place| usize::from(*place)),
            None => timer,
        };
        if let Some(timer) = self.page.timers.get_mut(timer) {
            timer.record(us);
        }
    }

    /// Adds to any other counter: automatic answers, warnings, watchdog.
    #[inline]
    pub fn count(&mut self, counter: Counter, by: u64) {
        self.page.count(counter, by);
    }

    /// Records a message that could not be sent.
    #[inline]
    pub fn send_failed(&mut self, failure: SendFailure) {
        self.page.count(
            match failure {
                SendFailure::Local => Counter::SendFailuresLocal,
                SendFailure::Remote => Counter::SendFailuresRemote,
            },
            1,
        );
    }

    /// Records `datagrams` that the kernel dropped for lack of room in a receive buffer (growth of SO_RXQ_OVFL).
    #[inline]
    pub fn socket_drops(&mut self, datagrams: u64) {
        self.page.count(Counter::SocketDrops, datagrams);
    }

    /// Records the time `us` that a message waited in the socket before it was read.
    #[inline]
    pub fn receive_lag(&mut self, us: u64) {
        self.delay(Delay::ReceiveLag, us);
    }

    /// Records the time `us` from the recorded sending of a message to its system call.
    #[inline]
    pub fn send_lag(&mut self, us: u64) {
        self.delay(Delay::SendLag, us);
    }

    /// Records that a timer of a call (end of a pause, retransmission) went off `us` late.
    #[inline]
    pub fn timer_lag(&mut self, us: u64) {
        self.delay(Delay::TimerLag, us);
    }

    /// Records that the peer accepted a connection of a call or user `us` after the request.
    #[inline]
    pub fn connected(&mut self, us: u64) {
        self.delay(Delay::Connect, us);
    }

    /// Records the duration `us` of its handshake.
    #[inline]
    pub fn shook_hands(&mut self, us: u64) {
        self.delay(Delay::Handshake, us);
    }

    /// Records that the shard had work but not the processor for `us`.
    pub fn stalled(&mut self, us: u64) {
        self.page.count(Counter::Stalls, 1);
        self.delay(Delay::Stall, us);
    }

    /// Adds the health figures of a second of the answering side in the same process. If that side was stopped, did not read or did not send
    /// all of its media, the generator itself was the reason why callers got no answers or heard gaps.
    ///
    /// Lost messages (`socket_drops`, `send_failures`) are not among them: the campaign counts those of the sockets of both sides.
    pub fn beside(&mut self, page: &Page) {
        for counter in [Counter::Stalls, Counter::MediaFailures, Counter::MediaMissed, Counter::MediaRefused] {
            self.page.count(counter, page.counter(counter));
        }
        for delay in [Delay::Stall, Delay::ReceiveLag, Delay::SendLag] {
            self.page.delays[delay as usize].add(page.delays(delay));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::Case;
    use crate::{Clock, Collector, Thresholds};
    use std::time::SystemTime;

    #[test]
    fn faults_of_the_answering_side_are_those_of_the_generator() {
        let reasons = |fault: fn(&mut ShardRecorder)| {
            let clock = Clock::new(0, SystemTime::now());
            let (mut answering, mut calling) = (Collector::new(clock, vec![], 1), Collector::new(clock, vec![], 1));
            let (mut there, mut own) = (answering.recorder(0), calling.recorder(0));
            there.count(Counter::MediaSent, 500);
            there.socket_drops(9);
            fault(&mut there);
            there.close(1_000_000);
            let _ = answering.finish(|page| own.beside(page));
            own.close(1_000_000);
            let page = calling.finish(|_second| {});
            assert_eq!((page.counter(Counter::MediaSent), page.counter(Counter::SocketDrops)), (0, 0));
            let case = Case { page: &page, behind: 0, samples: &[], receive_buffers: &[] };
            let reasons = case.reasons(&Thresholds::default(), "");
            reasons.into_iter().map(|reason| reason.threshold).collect::<Vec<_>>()
        };
        assert!(reasons(|_| ()).is_empty());
        assert_eq!(reasons(|there| there.stalled(900_000)), ["stall"]);
        assert_eq!(reasons(|there| there.count(Counter::MediaFailures, 1)), ["media_losses"]);
        assert_eq!(reasons(|there| there.count(Counter::MediaMissed, 1)), ["media_losses"]);
        assert_eq!(reasons(|there| there.count(Counter::MediaRefused, 1)), ["media_losses"]);
        assert_eq!(reasons(|there| there.receive_lag(900_000)), ["receive_lag"]);
    }
}
