//! WAV files (RIFF) of telephone sound: G.711 and samples of 16 bits, read and written.

use crate::g711::Law;
use std::ops::Range;

/// Payload types of G.711 (RFC 3551 section 6).
const MU_LAW: u8 = 0;
const A_LAW: u8 = 8;

/// Coding of the sound of a WAV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// Samples of 16 bits, the lower byte first.
    Pcm16,
    G711(Law),
}

impl Coding {
    /// Returns the number of the coding in a file.
    const fn number(self) -> u16 {
        match self {
            Self::Pcm16 => PCM,
            Self::G711(Law::A) => 6,
            Self::G711(Law::Mu) => 7,
        }
    }

    /// Returns the bytes of a sample.
    const fn width(self) -> u16 {
        if matches!(self, Self::Pcm16) { 2 } else { 1 }
    }
}

const PCM: u16 = 1;

/// Format of the sound of a WAV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaveFormat {
    pub coding: Coding,
    pub channels: u16,
    /// Samples in a second, of each channel.
    pub rate: u32,
}

/// WAV file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wave<'a> {
    pub format: WaveFormat,
    /// Not empty.
    pub sound: &'a [u8],
}

/// Reason why a file is not read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WaveError {
    #[error("it is no WAV file")]
    NoWave,
    #[error("it is a WAV file without a format")]
    NoFormat,
    #[error("it is a WAV file whose format does not stand before its sound")]
    FormatBehind,
    #[error("it is a WAV file without sound")]
    NoSound,
    #[error("it is a WAV file of {0}; mu-law, A-law and PCM of 16 bits are read (sox IN.wav -b 16 -e signed OUT.wav)")]
    Coding(String),
}

impl<'a> Wave<'a> {
    /// Reads a file.
    ///
    /// # Errors
    /// The file is no WAV file, or its coding is not one of [`Coding`].
    pub fn read(file: &'a [u8]) -> Result<Self, WaveError> {
        if !is_wave(file) {
            return Err(WaveError::NoWave);
        }
        let (Format { coding, channels, rate, bits }, sound) = find(file)?;
        let coding = match (coding, bits) {
            (PCM, 16) => Coding::Pcm16,
            (6, _) => Coding::G711(Law::A),
            (7, _) => Coding::G711(Law::Mu),
            _ => return Err(WaveError::Coding(format!("{}, {bits} bits", name(coding)))),
        };
        let sound = &file[sound];
        if sound.is_empty() {
            return Err(WaveError::NoSound);
        }
        Ok(Self { format: WaveFormat { coding, channels, rate }, sound })
    }

    /// Returns the samples. Samples of several channels are interleaved.
    pub fn samples(self) -> impl Iterator<Item = i16> + use<'a> {
        let coding = self.format.coding;
        self.sound.chunks_exact(usize::from(coding.width())).map(move |sample| match (coding, sample) {
            (Coding::G711(law), [byte, ..]) => law.decode(*byte),
            (Coding::Pcm16, [low, high, ..]) => i16::from_le_bytes([*low, *high]),
            _ => 0,
        })
    }
}

impl WaveFormat {
    /// Appends the header of a file whose sound follows and has this many bytes. The header has the same length for any number, so that a
    /// recorder can write it again at the end. After an odd number of bytes of sound, one padding byte must follow.
    pub fn write_header(&self, bytes: u32, out: &mut Vec<u8>) {
        let Self { coding, channels, rate } = *self;
        let frame = channels.saturating_mul(coding.width());
        let is_pcm = coding == Coding::Pcm16;
        // Other codings than PCM have a longer format, and a chunk with the number of samples.
        let chunks: u32 = if is_pcm { 4 + 24 + 8 } else { 4 + 26 + 12 + 8 };
        out.extend(b"RIFF");
        out.extend(chunks.saturating_add(bytes).saturating_add(bytes % 2).to_le_bytes());
        out.extend(b"WAVEfmt ");
        out.extend((if is_pcm { 16_u32 } else { 18 }).to_le_bytes());
        out.extend(coding.number().to_le_bytes());
        out.extend(channels.to_le_bytes());
        out.extend(rate.to_le_bytes());
        out.extend(rate.saturating_mul(u32::from(frame)).to_le_bytes());
        out.extend(frame.to_le_bytes());
        out.extend((8 * coding.width()).to_le_bytes());
        if !is_pcm {
            out.extend(b"\0\0fact\x04\0\0\0");
            out.extend((bytes / u32::from(frame.max(1))).to_le_bytes());
        }
        out.extend(b"data");
        out.extend(bytes.to_le_bytes());
    }
}

/// Returns the range of the samples in a file for this payload type: the whole file, unless it is a WAV file.
///
/// # Errors
/// A WAV file whose sound has another coding than the payload type.
pub fn samples(file: &[u8], payload_type: u8) -> Result<Range<usize>, String> {
    if !is_wave(file) {
        return Ok(0..file.len());
    }
    let (format, sound) = find(file).map_err(|error| error.to_string())?;
    format.check(payload_type)?;
    if sound.is_empty() { Err(WaveError::NoSound.to_string()) } else { Ok(sound) }
}

fn is_wave(file: &[u8]) -> bool {
    file.starts_with(b"RIFF") && file.get(8..12) == Some(b"WAVE")
}

/// Finds format and sound.
fn find(file: &[u8]) -> Result<(Format, Range<usize>), WaveError> {
    let mut format = None;
    let mut at = 12;
    while let Some(head) = file.get(at..at + 8) {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let start = at + 8;
        // A file still being recorded has no length there, or a wrong one.
        let end = start.saturating_add(length).min(file.len());
        match &head[..4] {
            b"fmt " => format = Some(Format::read(&file[start..end])?),
            b"data" => return Ok((format.ok_or(WaveError::FormatBehind)?, start..end)),
            _ => (),
        }
        // Chunks begin at even offsets.
        at = end.saturating_add(length % 2);
    }
    Err(WaveError::NoSound)
}

/// `fmt ` chunk.
struct Format {
    coding: u16,
    channels: u16,
    rate: u32,
    /// Bits of a sample; 0: not given.
    bits: u16,
}

impl Format {
    fn read(chunk: &[u8]) -> Result<Self, WaveError> {
        let two = |at: usize| chunk.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        let all = (two(0), two(2), two(4), two(6));
        let (Some(mut coding), Some(channels), Some(low), Some(high)) = all else { return Err(WaveError::NoFormat) };
        // WAVE_FORMAT_EXTENSIBLE: the sub-format begins with the coding.
        if let (0xfffe, Some(sub)) = (coding, two(24)) {
            coding = sub;
        }
        Ok(Self { coding, channels, rate: u32::from(high) << 16 | u32::from(low), bits: two(14).unwrap_or(0) })
    }

    fn check(&self, payload_type: u8) -> Result<(), String> {
        let wanted = match payload_type {
            A_LAW => 6,
            MU_LAW => 7,
            other => return Err(format!("it is a WAV file, and payload type {other} is streamed from raw files only")),
        };
        if (self.coding, self.channels, self.rate) == (wanted, 1, 8_000) {
            return Ok(());
        }
        let (has, rate, channels, wants) = (name(self.coding), self.rate, self.channels, name(wanted));
        Err(format!(
            "it is a WAV file of {has}, {rate} Hz, {channels} channels, and payload type {payload_type} is {wants}, 8000 Hz, one channel \
             (sox IN.wav -r 8000 -c 1 -e {wants} OUT.wav)"
        ))
    }
}

fn name(coding: u16) -> String {
    match coding {
        PCM => "PCM".to_owned(),
        6 => "A-law".into(),
        7 => "mu-law".into(),
        other => format!("coding {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn wave(coding: u16, channels: u16, rate: u32, sound: &[u8]) -> Vec<u8> {
        let mut file = b"RIFF\0\0\0\0WAVEfmt ".to_vec();
        file.extend(16_u32.to_le_bytes());
        file.extend(coding.to_le_bytes());
        file.extend(channels.to_le_bytes());
        file.extend(rate.to_le_bytes());
        file.extend([0; 8]);
        // A byte that the length does not include follows an odd chunk.
        file.extend(b"LIST\x03\0\0\0abc\0data");
        file.extend((sound.len() as u32).to_le_bytes());
        file.extend(sound);
        file
    }

    #[test]
    fn the_header_is_no_sound() {
        for (payload_type, coding) in [(8, 6), (0, 7)] {
            let mut file = wave(coding, 1, 8_000, b"sound");
            let end = file.len();
            file.extend(b"LIST\x02\0\0\0xy");
            assert_eq!(samples(&file, payload_type), Ok(end - 5..end));
        }
        assert_eq!(samples(b"RIFFRAFF is raw", 8), Ok(0..15));
        // Length of a file that was never closed.
        let mut open = wave(6, 1, 8_000, b"");
        let end = open.len();
        open[end - 4..].fill(0xff);
        open.extend(b"sound");
        assert_eq!(samples(&open, 8), Ok(end..end + 5));
    }

    #[test]
    fn other_sound_is_refused() {
        for (file, payload_type, word) in [
            (wave(1, 1, 8_000, b"sound"), 8, "PCM"),
            (wave(7, 1, 8_000, b"sound"), 8, "mu-law"),
            (wave(6, 2, 8_000, b"sound"), 8, "2 channels"),
            (wave(6, 1, 16_000, b"sound"), 8, "16000 Hz"),
            (wave(6, 1, 8_000, b"sound"), 18, "raw files"),
            (wave(6, 1, 8_000, b""), 8, "without sound"),
            (b"RIFF\0\0\0\0WAVEdata\x04\0\0\0abcd".to_vec(), 8, "format"),
        ] {
            let why = samples(&file, payload_type).expect_err("it is refused");
            assert!(why.contains(word), "{why}");
        }
        let whole = wave(6, 1, 8_000, b"sound");
        (0..whole.len()).for_each(|length| drop(samples(&whole[..length], 8)));
    }

    #[test]
    fn headers_are_those_of_other_programs() {
        let mut file = Vec::new();
        WaveFormat { coding: Coding::Pcm16, channels: 2, rate: 16_000 }.write_header(8, &mut file);
        let pcm = b"RIFF\x2c\0\0\0WAVEfmt \x10\0\0\0\x01\0\x02\0\x80\x3e\0\0\0\xfa\0\0\x04\0\x10\0data\x08\0\0\0";
        assert_eq!(file, pcm);
        file.clear();
        WaveFormat { coding: Coding::G711(Law::A), channels: 1, rate: 8_000 }.write_header(5, &mut file);
        let law = b"RIFF\x38\0\0\0WAVEfmt \x12\0\0\0\x06\0\x01\0\x40\x1f\0\0\x40\x1f\0\0\x01\0\x08\0\0\0fact\x04\0\0\0\x05\0\0\0data\x05\0\0\0";
        assert_eq!(file, law);
        file.extend(b"sound\0");
        assert_eq!(file.len(), 8 + 0x38);
        assert_eq!(Wave::read(&file).map(|wave| wave.sound), Ok(&b"sound"[..]));
    }

    #[test]
    fn other_files_are_not_read() {
        assert_eq!(Wave::read(b"RIFFRAFF"), Err(WaveError::NoWave));
        let mut floats = wave(3, 1, 8_000, b"sound");
        assert!(Wave::read(&floats).is_err_and(|error| error.to_string().contains("coding 3")));
        // PCM of 24 bits.
        (floats[20], floats[34]) = (1, 24);
        assert!(Wave::read(&floats).is_err_and(|error| error.to_string().contains("PCM, 24 bits")));
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

        /// Checks that a written file is read as the same, and that its sound gives the samples.
        #[test]
        fn written_files_are_read(
            samples in prop::collection::vec(any::<i16>(), 1..100),
            (channels, rate) in (1_u16..3, any::<u32>()),
            coding in prop::sample::select(vec![Coding::Pcm16, Coding::G711(Law::A), Coding::G711(Law::Mu)]),
        ) {
            let sound: Vec<u8> = match coding {
                Coding::Pcm16 => samples.iter().flat_map(|sample| sample.to_le_bytes()).collect(),
                Coding::G711(law) => samples.iter().map(|sample| law.encode(*sample)).collect(),
            };
            let format = WaveFormat { coding, channels, rate };
            let mut file = Vec::new();
            format.write_header(sound.len() as u32, &mut file);
            file.extend(&sound);
            let wave = Wave::read(&file).expect("it was written");
            prop_assert_eq!(wave, Wave { format, sound: &sound });
            let read: Vec<i16> = wave.samples().collect();
            match coding {
                Coding::Pcm16 => prop_assert_eq!(read, samples),
                Coding::G711(law) => {
                    let bytes: Vec<u8> = read.iter().map(|sample| law.encode(*sample)).collect();
                    // Mu-law has a negative zero.
                    let same = bytes.iter().zip(&sound).all(|(a, b)| a == b || (*a, *b) == (0xff, 0x7f));
                    prop_assert!(same && bytes.len() == sound.len());
                }
            }
        }
    }
}
