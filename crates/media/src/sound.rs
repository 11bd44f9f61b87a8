//! Sounds that a session plays: G.711 in both laws, encoded once for all calls.

use crate::g711::Law;
use crate::wave::Wave;
use std::fmt;

/// Samples of a sound in a second.
pub const RATE: u32 = 8_000;

/// Sound at 8,000 Hz in one channel, encoded in both laws of G.711. A session copies its packets out of it.
///
/// ```
/// use strowger_media::g711::Law;
/// use strowger_media::sound::Sound;
///
/// let sound = Sound::new([0, 8_000, -8_000]);
/// let mut payload = Vec::new();
/// // The sound begins again at its end.
/// assert_eq!(sound.write(Law::A, 0, 160, true, &mut payload), 1);
/// assert_eq!((payload.len(), payload[159]), (160, payload[0]));
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Sound {
    a_law: Box<[u8]>,
    mu_law: Box<[u8]>,
}

impl Sound {
    /// Encodes samples of 16 bits at 8,000 Hz.
    pub fn new(samples: impl IntoIterator<Item = i16>) -> Self {
        let both = samples.into_iter().map(|sample| (Law::A.encode(sample), Law::Mu.encode(sample)));
        let (a_law, mu_law): (Vec<u8>, Vec<u8>) = both.unzip();
        Self { a_law: a_law.into(), mu_law: mu_law.into() }
    }

    /// Returns the sound of a WAV file.
    ///
    /// # Errors
    /// The file has another rate than 8,000 Hz or several channels. The text continues a sentence about the file.
    pub fn of_wave(wave: Wave<'_>) -> Result<Self, String> {
        let (rate, channels) = (wave.format.rate, wave.format.channels);
        match (rate, channels) {
            (RATE, 1) => Ok(Self::new(wave.samples())),
            _ => Err(format!("has {rate} Hz and {channels} channels; a sound has {RATE} Hz and one channel")),
        }
    }

    /// Returns the number of samples.
    pub fn len(&self) -> usize {
        self.a_law.len()
    }

    /// Tells whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.a_law.is_empty()
    }

    /// Appends `count` samples from the place `at` on. Behind the end follow the first samples if the sound repeats, else silence. Returns the
    /// place of the next sample; without repetition, the length or a later place means that the sound is over.
    pub fn write(&self, law: Law, at: usize, count: usize, repeats: bool, out: &mut Vec<u8>) -> usize {
        let samples = match law {
            Law::A => &self.a_law,
            Law::Mu => &self.mu_law,
        };
        let (mut at, end) = (at, out.len() + count);
        while out.len() < end {
            let rest = samples.get(at..).unwrap_or_default();
            if rest.is_empty() && (!repeats || samples.is_empty()) {
                out.resize(end, law.encode(0));
                break;
            }
            let part = &rest[..rest.len().min(end - out.len())];
            out.extend_from_slice(part);
            at += part.len();
            if repeats && at >= samples.len() {
                at = 0;
            }
        }
        at
    }
}

impl fmt::Debug for Sound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sound({} samples)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wave::{Coding, WaveFormat};

    #[test]
    fn a_sound_ends_with_silence_or_begins_again() {
        let sound = Sound::new([100, 200, 300]);
        for law in [Law::A, Law::Mu] {
            let [one, two, three, silence] = [100, 200, 300, 0].map(|sample| law.encode(sample));
            let mut out = vec![7];
            assert_eq!(sound.write(law, 1, 4, false, &mut out), 3);
            assert_eq!(out, [7, two, three, silence, silence]);
            out.clear();
            assert_eq!(sound.write(law, 2, 5, true, &mut out), 1);
            assert_eq!(out, [three, one, two, three, one]);
        }
        let mut out = Vec::new();
        assert_eq!(Sound::new([]).write(Law::Mu, 0, 2, true, &mut out), 0);
        assert_eq!(out, [0xff; 2]);
    }

    #[test]
    fn only_telephone_sound_is_taken() {
        let read = |rate: u32, channels: u16| {
            let (mut file, format) = (Vec::new(), WaveFormat { coding: Coding::Pcm16, channels, rate });
            format.write_header(4, &mut file);
            file.extend([1, 0, 2, 0]);
            Sound::of_wave(Wave::read(&file).expect("it is a WAV file"))
        };
        assert_eq!(read(8_000, 1), Ok(Sound::new([1, 2])));
        assert!(read(8_000, 2).is_err_and(|why| why.contains("2 channels")));
        assert!(read(44_100, 1).is_err_and(|why| why.contains("44100 Hz")));
    }
}
