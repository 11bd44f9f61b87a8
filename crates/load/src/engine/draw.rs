//! Numbers drawn from distributions.

use super::world::Random;
use crate::scenario::Distribution;

/// One number.
pub(super) fn draw(distribution: &Distribution, random: &mut Random) -> f64 {
    match *distribution {
        Distribution::Fixed(value) => value,
        Distribution::Uniform { min, max } => min + (max - min) * random.unit(),
        Distribution::Exponential { mean } => -mean * (1.0 - random.unit()).ln(),
        _ => 0.0,
    }
}
