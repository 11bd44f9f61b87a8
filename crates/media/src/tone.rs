//! Tones: samples of a sine.

use std::f64::consts::TAU;

/// Sine of one frequency, as samples of 16 bits without end.
///
/// ```
/// use strowger_media::g711::Law;
/// use strowger_media::tone::Tone;
///
/// // 20 ms of 440 Hz with -10 dBm0 as PCMA.
/// let payload: Vec<u8> = Tone::new(440.0, -10.0, 8_000).take(160).map(|sample| Law::A.encode(sample)).collect();
/// assert_eq!(payload.len(), 160);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Tone {
    /// Phase of the next sample and its step, in turns.
    phase: f64,
    step: f64,
    amplitude: f64,
}

/// Level of the largest sine of mu-law in dBm0. For A-law this level is lower by 0.03.
const FULL: f64 = 3.17;

impl Tone {
    /// Begins a tone at phase 0. `frequency`: hertz, below half of `sample_rate`; `level`: dBm0, up to 3.17; `sample_rate`: samples in a
    /// second.
    pub fn new(frequency: f64, level: f64, sample_rate: u32) -> Self {
        let amplitude = f64::from(i16::MAX) * 10_f64.powf((level.min(FULL) - FULL) / 20.0);
        Self { phase: 0.0, step: frequency / f64::from(sample_rate.max(1)), amplitude }
    }
}

impl Iterator for Tone {
    type Item = i16;

    fn next(&mut self) -> Option<i16> {
        let sample = (self.phase * TAU).sin() * self.amplitude;
        self.phase = (self.phase + self.step).fract();
        Some(sample.round() as i16)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the share of the power at this frequency (Goertzel's filter).
    fn share(samples: &[i16], frequency: f64) -> f64 {
        let factor = 2.0 * (TAU * frequency / 8_000.0).cos();
        let (mut one, mut two) = (0.0, 0.0);
        for sample in samples {
            (one, two) = (f64::from(*sample) + factor * one - two, one);
        }
        let power = one * one + two * two - factor * one * two;
        let all: f64 = samples.iter().map(|sample| f64::from(*sample).powi(2)).sum();
        2.0 * power / (all * samples.len() as f64)
    }

    #[test]
    fn a_tone_has_its_frequency_and_level() {
        let samples: Vec<i16> = Tone::new(440.0, -10.0, 8_000).take(8_000).collect();
        assert!(share(&samples, 440.0) > 0.999 && share(&samples, 450.0) < 0.001);
        // 13.17 dB below the largest sine.
        assert_eq!(samples.iter().max(), Some(&7_193));
        let loudest = Tone::new(1_000.0, 99.0, 8_000).take(8).max();
        assert_eq!(loudest, Some(i16::MAX));
        assert!(Tone::new(f64::NAN, f64::NAN, 0).take(3).all(|sample| sample == 0));
    }
}
