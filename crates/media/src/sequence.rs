//! Sequence numbers of a received stream (RFC 3550 appendix A.1).

/// Gap in sequence numbers from which on a packet is a jump.
const MAX_DROPOUT: u16 = 3_000;

/// Distance behind the highest sequence number up to which a packet is late.
pub(crate) const MAX_MISORDER: u16 = 100;

/// Position of a packet in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOrder {
    /// Packet with a new highest sequence number.
    Next {
        /// Sequence numbers that were left out before it, 0 to 2,998.
        missing: u16,
    },
    /// Packet that arrives after one with a higher sequence number, for the first time.
    Late,
    /// Packet that came before.
    Duplicate,
    /// Packet with a distant sequence number. If the next packet has the following number, the stream continues from there; otherwise the
    /// packet is not part of the stream.
    Jump,
    /// Second consecutive packet after a jump: the numbers begin again with the packet of the jump.
    Restart,
}

/// Extended sequence numbers. There is no probation: the first packet begins the stream.
#[derive(Clone, Copy, Debug)]
pub struct Sequence {
    /// Extended number of the first packet.
    base: u32,
    /// Highest extended number.
    highest: u32,
    /// Received packets of the highest 128 numbers, the highest in bit 0.
    seen: u128,
    /// Sequence number after that of a jump.
    after_jump: Option<u16>,
}

impl Sequence {
    /// Begins with this packet.
    pub const fn new(sequence: u16) -> Self {
        Self { base: sequence as u32, highest: sequence as u32, seen: 1, after_jump: None }
    }

    /// Returns the highest extended sequence number: cycles in the upper 16 bits.
    pub const fn highest(&self) -> u32 {
        self.highest
    }

    /// Returns the number of packets that the peer sent, from the first to the highest number.
    pub const fn expected(&self) -> u32 {
        self.highest.wrapping_sub(self.base).wrapping_add(1)
    }

    /// Enters the next packet.
    pub fn packet(&mut self, sequence: u16) -> PacketOrder {
        let ahead = sequence.wrapping_sub(self.highest as u16);
        let behind = ahead.wrapping_neg();
        if (1..MAX_DROPOUT).contains(&ahead) {
            self.highest = self.highest.wrapping_add(u32::from(ahead));
            self.seen = self.seen.checked_shl(u32::from(ahead)).unwrap_or(0) | 1;
            self.after_jump = None;
            return PacketOrder::Next { missing: ahead - 1 };
        }
        if behind >= MAX_MISORDER {
            let next = self.after_jump == Some(sequence);
            self.after_jump = Some(sequence.wrapping_add(1));
            if next {
                *self = Self::new(sequence.wrapping_sub(1));
                self.packet(sequence);
                return PacketOrder::Restart;
            }
            return PacketOrder::Jump;
        }
        let bit = 1 << behind;
        if self.seen & bit != 0 {
            return PacketOrder::Duplicate;
        }
        self.seen |= bit;
        // The first packet to come was not the first to be sent.
        let early = u32::from(behind).saturating_sub(self.highest.wrapping_sub(self.base));
        self.base = self.base.wrapping_sub(early);
        PacketOrder::Late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(first: u16, rest: &[u16]) -> (Vec<PacketOrder>, Sequence) {
        let mut sequence = Sequence::new(first);
        (rest.iter().map(|next| sequence.packet(*next)).collect(), sequence)
    }

    #[test]
    fn numbers_cross_the_end() {
        let (found, sequence) = orders(65_534, &[65_535, 1, 0, 1, 65_535]);
        use PacketOrder::{Duplicate, Late, Next};
        assert_eq!(found, [Next { missing: 0 }, Next { missing: 1 }, Late, Duplicate, Duplicate]);
        assert_eq!((sequence.highest(), sequence.expected()), (0x1_0001, 4));
    }

    #[test]
    fn packets_before_the_first_are_expected_too() {
        let (found, sequence) = orders(10, &[8, 9, 11, 8]);
        assert_eq!(
            found,
            [PacketOrder::Late, PacketOrder::Late, PacketOrder::Next { missing: 0 }, PacketOrder::Duplicate]
        );
        assert_eq!((sequence.highest(), sequence.expected()), (11, 4));
        // Before number 0 of the first cycle.
        let (_, sequence) = orders(0, &[65_535]);
        assert_eq!((sequence.highest(), sequence.expected()), (0, 2));
    }

    #[test]
    fn a_jump_counts_once_it_goes_on() {
        let (found, sequence) = orders(10, &[3_009, 6_009, 40_000, 3_010]);
        use PacketOrder::{Jump, Next, Restart};
        assert_eq!(found, [Next { missing: 2_998 }, Jump, Jump, Next { missing: 0 }]);
        assert_eq!(sequence.expected(), 3_001);
        let (found, sequence) = orders(10, &[40_000, 11, 40_001, 40_002, 40_003]);
        assert_eq!(found, [Jump, Next { missing: 0 }, Jump, Restart, Next { missing: 0 }]);
        assert_eq!((sequence.highest(), sequence.expected()), (40_003, 3));
        // Back by the distance of a jump, and by less.
        assert_eq!(orders(1_000, &[899, 900]).0, [Jump, Restart]);
        assert_eq!(orders(1_000, &[901]).0, [PacketOrder::Late]);
    }

    #[test]
    fn duplicates_far_behind_are_known() {
        let mut sequence = Sequence::new(0);
        for next in 1..=99 {
            assert_eq!(sequence.packet(next), PacketOrder::Next { missing: 0 });
        }
        assert!((0..=99).all(|again| sequence.packet(again) == PacketOrder::Duplicate));
        assert_eq!(sequence.packet(399), PacketOrder::Next { missing: 299 });
        assert_eq!((sequence.packet(300), sequence.packet(300)), (PacketOrder::Late, PacketOrder::Duplicate));
    }
}
