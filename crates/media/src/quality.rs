//! Speech quality of a stream by the E-model (ITU-T G.107), from its loss and delay.
//!
//! All other parameters have their defaults, so the transmission rating without loss and delay is 93.2.

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

/// Returns the mean opinion score of a rating, 1 to 4.5 (G.107 annex B).
pub fn mean_opinion_score(rating: f64) -> f64 {
    let rating = rating.clamp(0.0, 100.0);
    // The polynomial falls below 1 for ratings below 6.5.
    (1.0 + 0.035 * rating + rating * (rating - 60.0) * (100.0 - rating) * 7e-6).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

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
