//! Speech quality of a stream by the E-model (ITU-T G.107), from its loss and delay.
//!
//! All other parameters have their defaults, so the transmission rating without loss and delay is 93.2. The impairment is that of the
//! stream's codec: the encoding of most of its packets. A stream of an encoding without known impairment has no rating.

/// Rating with the defaults of G.107.
const BEST: f64 = 93.2;

/// Loss of rating by a codec (ITU-T G.113 appendix I).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Impairment {
    /// Equipment impairment factor (Ie), in points of the rating.
    pub equipment: f64,
    /// Packet-loss robustness factor (Bpl), in percent of loss.
    pub robustness: f64,
}

impl Impairment {
    /// G.711 whose receiver conceals losses (G.711 appendix I).
    pub const G711: Self = Self { equipment: 0.0, robustness: 25.1 };
    /// G.729 A with its voice activity detection.
    pub const G729: Self = Self { equipment: 11.0, robustness: 19.0 };
    /// G.711 whose receiver plays silence for a lost packet.
    pub const G711_WITHOUT_CONCEALMENT: Self = Self { equipment: 0.0, robustness: 4.3 };

    /// Returns the transmission rating R, 0 to 100. `loss`: share of lost packets, 0 to 1, taken as independent of each other; `delay`: from
    /// mouth to ear, milliseconds.
    pub fn rating(self, loss: f64, delay: f64) -> f64 {
        let percent = (loss * 100.0).clamp(0.0, 100.0);
        let by_loss = self.equipment + (95.0 - self.equipment) * percent / (percent + self.robustness);
        // Fit of Cole and Rosenbluth (2001) to the delay impairment of G.107.
        let by_delay = 0.024 * delay.max(0.0) + 0.11 * (delay - 177.3).max(0.0);
        (BEST - by_delay - by_loss).clamp(0.0, 100.0)
    }
}

/// Encoding of packets, as far as the quality of speech depends on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SpeechEncoding {
    /// PCMU or PCMA.
    G711,
    /// G729, also with its annexes A and B.
    G729,
    /// Comfort noise (RFC 3389), which is no speech.
    ComfortNoise,
    /// Encoding whose impairment is not known.
    #[default]
    Other,
}

impl SpeechEncoding {
    /// Returns the encoding of this name, as in `a=rtpmap` (RFC 3551 section 6), in any case.
    pub const fn named(name: &str) -> Self {
        let name = name.as_bytes();
        if name.eq_ignore_ascii_case(b"PCMU") || name.eq_ignore_ascii_case(b"PCMA") {
            Self::G711
        } else if name.eq_ignore_ascii_case(b"G729") {
            Self::G729
        } else if name.eq_ignore_ascii_case(b"CN") {
            Self::ComfortNoise
        } else {
            Self::Other
        }
    }

    /// Returns the encoding of a static payload type (RFC 3551 section 6); [`Self::Other`] for a dynamic one. 19 is the number of comfort
    /// noise in drafts of RFC 3551.
    pub const fn of_payload_type(payload_type: u8) -> Self {
        match payload_type {
            0 | 8 => Self::G711,
            18 => Self::G729,
            13 | 19 => Self::ComfortNoise,
            _ => Self::Other,
        }
    }

    /// Returns the impairment; `None`: it is not known, or the encoding is no speech.
    pub const fn impairment(self) -> Option<Impairment> {
        match self {
            Self::G711 => Some(Impairment::G711),
            Self::G729 => Some(Impairment::G729),
            Self::ComfortNoise | Self::Other => None,
        }
    }
}

/// Packets of a stream by their encoding.
#[derive(Clone, Copy, Debug, Default)]
pub struct EncodingCounts {
    g711: u64,
    g729: u64,
    others: u64,
}

impl EncodingCounts {
    /// Counts a packet. Comfort noise counts for no encoding.
    pub const fn packet(&mut self, encoding: SpeechEncoding) {
        match encoding {
            SpeechEncoding::G711 => self.g711 += 1,
            SpeechEncoding::G729 => self.g729 += 1,
            SpeechEncoding::Other => self.others += 1,
            SpeechEncoding::ComfortNoise => (),
        }
    }

    /// Returns the encoding of most packets; [`SpeechEncoding::Other`] for a stream without speech, and if several have as many.
    pub const fn most(&self) -> SpeechEncoding {
        let Self { g711, g729, others } = *self;
        if g711 > g729 && g711 > others {
            SpeechEncoding::G711
        } else if g729 > g711 && g729 > others {
            SpeechEncoding::G729
        } else {
            SpeechEncoding::Other
        }
    }
}

/// Quality of a stream of speech.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpeechQuality {
    /// Transmission rating R, 0 to 100.
    pub rating: f64,
    /// Mean opinion score, 1 to 4.5.
    pub score: f64,
}

impl SpeechQuality {
    /// Returns the quality of a stream of which `lost` of `expected` packets never came, without any delay; `None` if no packet came, or the
    /// impairment of the encoding is not known.
    pub fn of(encoding: SpeechEncoding, lost: u64, expected: u64) -> Option<Self> {
        let impairment = encoding.impairment().filter(|_| expected > 0)?;
        let rating = impairment.rating(lost as f64 / expected as f64, 0.0);
        Some(Self { rating, score: mean_opinion_score(rating) })
    }
}

/// Returns the mean opinion score of a rating, 1 to 4.5 (G.107 annex B).
pub fn mean_opinion_score(rating: f64) -> f64 {
    let rating = rating.clamp(0.0, 100.0);
    // The polynomial falls below 1 for ratings below 6.5.
    (1.0 + 0.035 * rating + rating * (rating - 60.0) * (100.0 - rating) * 7e-6).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload_type::STATIC;

    #[test]
    fn static_payload_types_are_those_of_their_names() {
        for payload in &STATIC {
            let found = SpeechEncoding::of_payload_type(payload.number);
            assert_eq!(found, SpeechEncoding::named(payload.name), "{}", payload.name);
        }
        assert_eq!([96, 127, 255].map(SpeechEncoding::of_payload_type), [Other; 3]);
        assert_eq!(SpeechEncoding::of_payload_type(19), ComfortNoise);
        use SpeechEncoding::{ComfortNoise, G711, G729, Other};
        assert_eq!(
            ["pcma", "g729", "cn", "G722", "PCM", ""].map(SpeechEncoding::named),
            [G711, G729, ComfortNoise, Other, Other, Other]
        );
    }

    #[test]
    fn the_codec_is_that_of_most_packets() {
        use SpeechEncoding::{ComfortNoise, G711, G729, Other};
        let most = |packets: &[(SpeechEncoding, u32)]| {
            let mut counts = EncodingCounts::default();
            for (encoding, count) in packets {
                (0..*count).for_each(|_| counts.packet(*encoding));
            }
            counts.most()
        };
        assert_eq!(most(&[(G711, 10), (ComfortNoise, 90)]), G711);
        assert_eq!(most(&[(G729, 60), (G711, 40)]), G729);
        assert_eq!(most(&[(G711, 40), (Other, 60)]), Other);
        assert_eq!(most(&[(G711, 50), (G729, 50)]), Other);
        assert_eq!((most(&[]), most(&[(ComfortNoise, 9)])), (Other, Other));
    }

    #[test]
    fn only_known_encodings_have_a_quality() {
        let score = |encoding, lost, expected| {
            SpeechQuality::of(encoding, lost, expected).map(|quality| (quality.score * 100.0).round())
        };
        assert_eq!(score(SpeechEncoding::G711, 0, 100), Some(441.0));
        assert_eq!(score(SpeechEncoding::G711, 1, 100), Some(433.0));
        assert_eq!(score(SpeechEncoding::G729, 0, 100), Some(410.0));
        assert_eq!(score(SpeechEncoding::G711, 0, 0), None);
        assert_eq!([SpeechEncoding::ComfortNoise, SpeechEncoding::Other].map(|other| score(other, 0, 9)), [None; 2]);
    }

    #[test]
    fn ratings_and_scores() {
        let rounded = |value: f64| (value * 100.0).round() / 100.0;
        for (impairment, loss, delay, rating, score) in [
            (Impairment::G711, 0.0, 0.0, 93.2, 4.41),
            (Impairment::G711, 0.0, 150.0, 89.6, 4.33),
            (Impairment::G711, 0.01, 0.0, 89.56, 4.33),
            (Impairment::G711, 0.05, 250.0, 63.42, 3.28),
            (Impairment::G729, 0.0, 0.0, 82.2, 4.1),
            (Impairment::G711_WITHOUT_CONCEALMENT, 0.02, 0.0, 63.04, 3.26),
            (Impairment::G711, 1.0, 0.0, 17.26, 1.18),
            (Impairment::G711, 1.0, 900.0, 0.0, 1.0),
            (Impairment::G711, 7.0, -5.0, 17.26, 1.18),
        ] {
            let found = impairment.rating(loss, delay);
            assert_eq!((rounded(found), rounded(mean_opinion_score(found))), (rating, score), "{impairment:?} {loss}");
        }
        assert_eq!((mean_opinion_score(100.0), mean_opinion_score(-1.0), mean_opinion_score(3.0)), (4.5, 1.0, 1.0));
    }
}
