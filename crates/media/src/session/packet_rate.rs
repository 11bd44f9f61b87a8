//! Rate limit of packets to a host that has sent none.

/// Time in which one packet is earned, in microseconds: 250 packets in a second, those of a stream with 5 ms in a packet.
const INTERVAL: u64 = 4_000;

/// Packets that may come at once, after a delay in the network.
const BURST: u64 = 100;

/// Rate of the packets that an echo sends back, or that go to a host from which none has come.
///
/// Two echoes that have each other as peer would send each packet to and fro for ever: the limit drops packets that come back too soon. A
/// description may name a host that has not asked for media: with the limit no call floods it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PacketRate {
    /// Time until which the earlier packets use up the rate, in microseconds.
    used_until: u64,
}

impl PacketRate {
    /// Tells whether a packet may leave at `now`, in microseconds, and counts it.
    pub(super) fn admits(&mut self, now: u64) -> bool {
        let from = self.used_until.max(now);
        let is_admitted = from - now < BURST * INTERVAL;
        if is_admitted {
            self.used_until = from + INTERVAL;
        }
        is_admitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_below_the_rate_and_floods_above() {
        let mut rate = PacketRate::default();
        // Packets of 5 ms, then a pause of 200 ms whose packets come at once.
        assert!((0..1_000).all(|place| rate.admits(place * 5_000)));
        assert!((0..40).all(|_| rate.admits(5_200_000)));
        let flood = (0..50_000).filter(|place| rate.admits(20_000_000 + place * 20)).count();
        assert_eq!(flood, 350, "a burst, and the packets of one second");
    }
}
