//! Interarrival jitter (RFC 3550 section 6.4.1, appendix A.8).

/// Jitter of a received stream: the estimate of the RFC, its maximum and mean, and the mean of the deviations.
///
/// A deviation is the absolute difference, in microseconds, between the interval of two packets' arrivals and that of their timestamps.
/// The estimate moves by a sixteenth towards each deviation. It is computed in microseconds, because a tick may be as long as 125 µs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Jitter {
    /// Arrival and timestamp of the last packet.
    last: Option<(u64, u32)>,
    /// Estimate, its maximum, and the sum of all, in sixteenths of a microsecond.
    estimate: u64,
    largest: u64,
    estimates: u64,
    /// Sum of the deviations, and their number.
    deviations: u64,
    count: u64,
}

/// Largest deviation that counts: half an hour. No real stream has such a deviation, and the limit keeps the sums
/// small.
const MOST: u64 = 1_800_000_000;

impl Jitter {
    /// Enters a packet that arrived at `now`, in microseconds. `clock_rate`: ticks of its timestamp in a second.
    pub fn packet(&mut self, now: u64, timestamp: u32, clock_rate: u32) {
        let Some((arrival, before)) = self.last.replace((now, timestamp)) else { return };
        let ticks = i64::from(timestamp.wrapping_sub(before).cast_signed());
        let sent = ticks * 1_000_000 / i64::from(clock_rate.max(1));
        let arrived = now.wrapping_sub(arrival).cast_signed();
        let deviation = arrived.saturating_sub(sent).unsigned_abs().min(MOST);
        self.estimate = self.estimate + deviation - ((self.estimate + 8) >> 4);
        self.largest = self.largest.max(self.estimate);
        self.estimates = self.estimates.saturating_add(self.estimate);
        self.deviations = self.deviations.saturating_add(deviation);
        self.count += 1;
    }

    /// Leaves out the time until the next packet.
    pub const fn pause(&mut self) {
        self.last = None;
    }

    /// Begins a new estimate. The maximum and the mean continue over both estimates.
    pub const fn restart(&mut self) {
        self.last = None;
        self.estimate = 0;
    }

    /// Returns the estimate in microseconds.
    pub const fn estimate(&self) -> u64 {
        self.estimate >> 4
    }

    /// Returns the estimate in ticks of a clock in hertz, as a report block has it.
    pub const fn estimate_ticks(&self, clock_rate: u32) -> u32 {
        let ticks = self.estimate as u128 * clock_rate as u128 / 16_000_000;
        if ticks > u32::MAX as u128 { u32::MAX } else { ticks as u32 }
    }

    /// Returns the largest estimate in microseconds.
    pub const fn largest(&self) -> u64 {
        self.largest >> 4
    }

    /// Returns the mean estimate in microseconds.
    pub const fn mean(&self) -> u64 {
        mean(self.estimates, self.count) >> 4
    }

    /// Returns the mean deviation in microseconds.
    pub const fn mean_deviation(&self) -> u64 {
        mean(self.deviations, self.count)
    }
}

const fn mean(sum: u64, count: u64) -> u64 {
    match sum.checked_div(count) {
        Some(mean) => mean,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn regular_packets_have_none() {
        let mut jitter = Jitter::default();
        for place in 0..100_u32 {
            jitter.packet(u64::from(place) * 20_000, u32::MAX.wrapping_add(160 * place), 8_000);
        }
        assert_eq!((jitter.estimate(), jitter.largest(), jitter.mean(), jitter.mean_deviation()), (0, 0, 0, 0));
    }

    #[test]
    fn a_late_packet_and_the_next_deviate() {
        let mut jitter = Jitter::default();
        for (arrival, timestamp) in [(0, 0), (20_000, 160), (56_000, 320), (60_000, 480), (80_000, 640)] {
            jitter.packet(arrival, timestamp, 8_000);
        }
        // Deviations of 0, 16, 16 and 0 ms: 1, then 1.9375, then 1.816 ms.
        assert_eq!((jitter.estimate(), jitter.largest()), (1_816, 1_937));
        assert_eq!((jitter.mean(), jitter.mean_deviation()), (1_188, 8_000));
        assert_eq!(jitter.estimate_ticks(8_000), 14);
    }

    #[test]
    fn pauses_do_not_count() {
        let mut jitter = Jitter::default();
        jitter.packet(0, 0, 8_000);
        jitter.pause();
        jitter.packet(60_000_000, 160, 8_000);
        jitter.packet(60_020_000, 320, 8_000);
        assert_eq!(jitter.estimate(), 0);
        jitter.packet(60_056_000, 480, 8_000);
        jitter.restart();
        jitter.packet(0, 0, 8_000);
        assert_eq!((jitter.estimate(), jitter.largest()), (0, 1_000));
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that the estimate is that of the formula in RFC 3550 section 6.4.1.
        #[test]
        fn the_estimate_follows_the_formula(delays in prop::collection::vec(0_u64..80_000, 2..300)) {
            let mut jitter = Jitter::default();
            let (mut exact, mut before) = (0.0, None);
            for (place, delay) in delays.iter().enumerate() {
                jitter.packet(place as u64 * 20_000 + delay, place as u32 * 160, 8_000);
                if let Some(before) = before.replace(*delay) {
                    exact += ((*delay as f64 - before as f64).abs() - exact) / 16.0;
                }
            }
            prop_assert!((jitter.estimate() as f64 - exact).abs() < 10.0, "{} {exact}", jitter.estimate());
        }

        #[test]
        fn any_times_are_taken(packets in prop::collection::vec((any::<u64>(), any::<u32>(), any::<u32>()), 0..20)) {
            let mut jitter = Jitter::default();
            for (now, timestamp, rate) in packets {
                jitter.packet(now, timestamp, rate);
                prop_assert!(jitter.estimate() <= MOST && jitter.mean() <= MOST && jitter.mean_deviation() <= MOST);
                let _ = jitter.estimate_ticks(rate);
            }
        }
    }
}
