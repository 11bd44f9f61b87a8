//! Random durations and numbers: pauses and `sample`.
//!
//! The caller supplies numbers in [0, 1), so that a run can be replayed. Parameters are SIPp's, from the GNU Scientific
//! Library (its reference manual, chapter "Random Number Distributions").

use std::f64::consts::TAU;

/// Distribution with its parameters. Parameters without meaning (a negative mean) are accepted, and draw the result of
/// the formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Distribution {
    Fixed(f64),
    Uniform {
        min: f64,
        max: f64,
    },
    Normal {
        mean: f64,
        deviation: f64,
    },
    /// Distribution whose logarithm has `mean` and `deviation`.
    LogNormal {
        mean: f64,
        deviation: f64,
    },
    Exponential {
        mean: f64,
    },
    /// Scale `lambda`, shape `k`.
    Weibull {
        lambda: f64,
        k: f64,
    },
    /// Exponent `k`, smallest value `x_m`.
    Pareto {
        k: f64,
        x_m: f64,
    },
    GeneralizedPareto {
        shape: f64,
        scale: f64,
        location: f64,
    },
    /// Shape `k`, scale `theta`.
    Gamma {
        k: f64,
        theta: f64,
    },
    /// Number of failures before the `n`-th success, each of probability `p`.
    NegativeBinomial {
        p: f64,
        n: f64,
    },
}

impl Distribution {
    /// Draws a number. `unit` gives numbers in [0, 1).
    pub fn draw(&self, unit: &mut impl FnMut() -> f64) -> f64 {
        match *self {
            Self::Fixed(value) => value,
            Self::Uniform { min, max } => min + (max - min) * unit(),
            Self::Normal { mean, deviation } => mean + deviation * normal(unit),
            Self::LogNormal { mean, deviation } => (mean + deviation * normal(unit)).exp(),
            Self::Gamma { k, theta } => theta * gamma(k, unit),
            // A Poisson number with a gamma-distributed mean.
            Self::NegativeBinomial { p, n } => poisson(gamma(n, unit) * (1.0 - p) / p, unit),
            Self::Exponential { .. } | Self::Weibull { .. } | Self::Pareto { .. } | Self::GeneralizedPareto { .. } => {
                self.quantile(unit())
            }
        }
    }

    /// Draws a pause in microseconds, which is a number of whole milliseconds, and 0 for less than one millisecond.
    pub fn draw_pause(&self, unit: &mut impl FnMut() -> f64) -> u64 {
        let milliseconds = self.draw(unit);
        if milliseconds >= 1.0 { (milliseconds.trunc() * 1000.0) as u64 } else { 0 }
    }

    /// Returns the `p`-quantile; approximate for the two distributions without closed form.
    pub fn quantile(&self, p: f64) -> f64 {
        let left = 1.0 - p;
        match *self {
            Self::Fixed(value) => value,
            Self::Uniform { min, max } => min + (max - min) * p,
            Self::Normal { mean, deviation } => mean + deviation * normal_quantile(p),
            Self::LogNormal { mean, deviation } => (mean + deviation * normal_quantile(p)).exp(),
            Self::Exponential { mean } => -mean * left.ln(),
            Self::Weibull { lambda, k } => lambda * (-left.ln()).powf(1.0 / k),
            Self::Pareto { k, x_m } => x_m * left.powf(-1.0 / k),
            Self::GeneralizedPareto { shape: 0.0, scale, location } => location - scale * left.ln(),
            Self::GeneralizedPareto { shape, scale, location } => location + scale / shape * (left.powf(-shape) - 1.0),
            Self::Gamma { k, theta } => theta * gamma_quantile(k, p),
            Self::NegativeBinomial { p: chance, n } => gamma_quantile(n, p) * (1.0 - chance) / chance,
        }
    }
}

/// Draws a normal variate of mean 0, deviation 1 (Box and Muller, 1958).
fn normal(unit: &mut impl FnMut() -> f64) -> f64 {
    let radius = (-2.0 * (1.0 - unit()).ln()).sqrt();
    radius * (TAU * unit()).cos()
}

/// Draws a gamma variate of scale 1 (Marsaglia and Tsang, "A simple method for generating gamma variables", 2000).
fn gamma(k: f64, unit: &mut impl FnMut() -> f64) -> f64 {
    if k.is_nan() || k <= 0.0 {
        return 0.0;
    }
    if k < 1.0 {
        let larger = gamma(k + 1.0, unit);
        return larger * (1.0 - unit()).powf(1.0 / k);
    }
    let d = k - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(unit);
        let v = (1.0 + c * x).powi(3);
        if v > 0.0 && (1.0 - unit()).ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v;
        }
    }
}

/// Draws a Poisson variate by exponential gaps (Knuth, The Art of Computer Programming, volume 2, 3.4.1), or, for a
/// large mean, by its normal limit.
fn poisson(mean: f64, unit: &mut impl FnMut() -> f64) -> f64 {
    if !mean.is_finite() || mean <= 0.0 {
        return 0.0;
    }
    if mean > 500.0 {
        return (mean + mean.sqrt() * normal(unit)).round().max(0.0);
    }
    let mut left = mean;
    let mut count = 0.0;
    loop {
        left += (1.0 - unit()).ln();
        if left < 0.0 {
            return count;
        }
        count += 1.0;
    }
}

/// Returns a normal quantile (Abramowitz and Stegun, 26.2.23); the error is below 0.00045.
fn normal_quantile(p: f64) -> f64 {
    let tail = p.min(1.0 - p).max(f64::MIN_POSITIVE);
    let t = (-2.0 * tail.ln()).sqrt();
    let above = (0.010_328 * t + 0.802_853) * t + 2.515_517;
    let below = ((0.001_308 * t + 0.189_269) * t + 1.432_788) * t + 1.0;
    let x = t - above / below;
    if p < 0.5 { -x } else { x }
}

/// Returns a gamma quantile (Wilson and Hilferty, 1931).
fn gamma_quantile(k: f64, p: f64) -> f64 {
    let ninth = 1.0 / (9.0 * k);
    k * (1.0 - ninth + normal_quantile(p) * ninth.sqrt()).max(0.0).powi(3)
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_core::entropy::Entropy;

    /// Compares means and 99th percentiles of 40,000 numbers with the formulas.
    #[test]
    fn draws_have_the_right_mean_and_tail() {
        let mut entropy = Entropy::new([7; 32]);
        let mut unit = || (entropy.u64() >> 11) as f64 / (1u64 << 53) as f64;
        let cases = [
            (Distribution::Fixed(5.0), 5.0),
            (Distribution::Uniform { min: 10.0, max: 30.0 }, 20.0),
            (Distribution::Normal { mean: 100.0, deviation: 10.0 }, 100.0),
            (Distribution::LogNormal { mean: 3.0, deviation: 0.5 }, (3.0f64 + 0.125).exp()),
            (Distribution::Exponential { mean: 50.0 }, 50.0),
            // Γ(1 + 1/2) = √π / 2
            (Distribution::Weibull { lambda: 10.0, k: 2.0 }, 8.862),
            (Distribution::Pareto { k: 5.0, x_m: 8.0 }, 10.0),
            (Distribution::GeneralizedPareto { shape: 0.1, scale: 9.0, location: 5.0 }, 15.0),
            (Distribution::Gamma { k: 4.0, theta: 5.0 }, 20.0),
            (Distribution::Gamma { k: 0.5, theta: 8.0 }, 4.0),
            (Distribution::NegativeBinomial { p: 0.2, n: 5.0 }, 20.0),
        ];
        for (distribution, mean) in cases {
            let mut drawn: Vec<f64> = (0..40_000).map(|_| distribution.draw(&mut unit)).collect();
            drawn.sort_by(f64::total_cmp);
            let measured = drawn.iter().sum::<f64>() / drawn.len() as f64;
            assert!((measured - mean).abs() < mean * 0.03, "{distribution:?}: mean {measured}, wanted {mean}");
            let tail = drawn[drawn.len() * 99 / 100];
            let wanted = distribution.quantile(0.99);
            assert!((tail - wanted).abs() < wanted * 0.08, "{distribution:?}: p99 {tail}, wanted {wanted}");
        }
    }

    #[test]
    fn pauses_below_a_millisecond_are_none() {
        let mut none = || 0.0;
        assert_eq!(Distribution::Fixed(0.9).draw_pause(&mut none), 0);
        assert_eq!(Distribution::Fixed(-5.0).draw_pause(&mut none), 0);
        assert_eq!(Distribution::Fixed(1.9).draw_pause(&mut none), 1000);
    }
}
