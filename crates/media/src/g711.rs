//! G.711: mu-law and A-law (ITU-T G.711), samples of 16 bits to bytes and back.

/// Law of G.711.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Law {
    /// PCMU, payload type 0.
    Mu,
    /// PCMA, payload type 8.
    A,
}

/// Value that mu-law adds to a magnitude, so that each segment begins at a power of two.
const BIAS: u16 = 132;

impl Law {
    /// Encodes a sample.
    pub const fn encode(self, sample: i16) -> u8 {
        match self {
            Self::Mu => {
                let magnitude = sample.unsigned_abs();
                let magnitude = if magnitude > 32_635 { 32_635 } else { magnitude } + BIAS;
                let segment = magnitude.ilog2() - 7;
                let step = (magnitude >> (segment + 3)) & 0x0f;
                !(sign(sample < 0) | (segment as u8) << 4 | step as u8)
            }
            Self::A => {
                let magnitude = (if sample < 0 { !sample } else { sample }).cast_unsigned() >> 4;
                // Segments 0 and 1 have the same step.
                let segment = if magnitude < 32 { magnitude as u32 >> 4 } else { magnitude.ilog2() - 3 };
                let step = if segment < 2 { magnitude } else { magnitude >> (segment - 1) } & 0x0f;
                // Every second bit is inverted.
                (sign(sample >= 0) | (segment as u8) << 4 | step as u8) ^ 0x55
            }
        }
    }

    /// Decodes a byte.
    pub const fn decode(self, byte: u8) -> i16 {
        let (byte, is_negative) = match self {
            Self::Mu => (!byte, byte & 0x80 == 0),
            Self::A => (byte ^ 0x55, byte & 0x80 == 0),
        };
        let (segment, step) = ((byte >> 4) & 7, (byte & 0x0f) as i16);
        let magnitude = match (self, segment) {
            (Self::Mu, _) => (((step << 3) + BIAS as i16) << segment) - BIAS as i16,
            (Self::A, 0) => (step << 4) + 8,
            (Self::A, _) => ((step << 4) + 264) << (segment - 1),
        };
        if is_negative { -magnitude } else { magnitude }
    }
}

const fn sign(is_set: bool) -> u8 {
    (is_set as u8) << 7
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_those_of_the_standard() {
        for (sample, mu, a) in [
            (0, 0xff, 0xd5),
            (-1, 0x7f, 0x55),
            (8, 0xfe, 0xd5),
            (1_000, 0xce, 0xfa),
            (-1_000, 0x4e, 0x7a),
            (i16::MAX, 0x80, 0xaa),
            (i16::MIN, 0x00, 0x2a),
        ] {
            assert_eq!((Law::Mu.encode(sample), Law::A.encode(sample)), (mu, a), "{sample}");
        }
        for (law, byte, sample) in [
            (Law::Mu, 0xff, 0),
            (Law::Mu, 0x80, 32_124),
            (Law::Mu, 0x00, -32_124),
            (Law::A, 0xd5, 8),
            (Law::A, 0x55, -8),
            (Law::A, 0xaa, 32_256),
            (Law::A, 0x2a, -32_256),
        ] {
            assert_eq!(law.decode(byte), sample, "{law:?} {byte:#x}");
        }
    }

    #[test]
    fn decoded_bytes_are_encoded_as_before() {
        for byte in 0..=u8::MAX {
            assert_eq!(Law::A.encode(Law::A.decode(byte)), byte);
            // Mu-law has a negative zero.
            assert_eq!(Law::Mu.encode(Law::Mu.decode(byte)), if byte == 0x7f { 0xff } else { byte });
        }
    }

    #[test]
    fn every_sample_comes_back_within_half_a_step() {
        for sample in i16::MIN..=i16::MAX {
            for (law, clipped) in [(Law::Mu, 32_635), (Law::A, 32_767)] {
                let decoded = i32::from(law.decode(law.encode(sample)));
                let wanted = i32::from(sample).clamp(-clipped, clipped);
                // A sixteenth of the segment is a step; both laws are exact to a thirty-second, and to 8 near zero.
                let bound = (wanted.abs() + 132) / 32 + 8;
                assert!((decoded - wanted).abs() <= bound, "{law:?} {sample} {decoded}");
            }
        }
    }
}
