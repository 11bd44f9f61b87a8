//! WAV files (RIFF) of telephone sound: samples for RTP streams.

use std::ops::Range;

/// Payload types of G.711 (RFC 3551 section 6).
const MU_LAW: u8 = 0;
const A_LAW: u8 = 8;

/// Returns the samples of a file for this payload type: the whole file, unless it is a WAV file.
///
/// # Errors
/// A WAV file whose sound has another coding than the payload type.
pub fn samples(file: &[u8], payload_type: u8) -> Result<Range<usize>, String> {
    if !file.starts_with(b"RIFF") || file.get(8..12) != Some(b"WAVE") {
        return Ok(0..file.len());
    }
    let mut format = None;
    let mut at = 12;
    while let Some(head) = file.get(at..at + 8) {
        let length = u32::from_le_bytes([head[4], head[5], head[6], head[7]]) as usize;
        let start = at + 8;
        // A file still being recorded has no length there, or a wrong one.
        let end = start.saturating_add(length).min(file.len());
        match &head[..4] {
            b"fmt " => format = Some(Format::read(&file[start..end])?),
            b"data" => {
                format.ok_or("it is a WAV file whose format does not stand before its sound")?.check(payload_type)?;
                return if end > start { Ok(start..end) } else { Err("it is a WAV file without sound".into()) };
            }
            _ => (),
        }
        // Chunks begin at even offsets.
        at = end.saturating_add(length % 2);
    }
    Err("it is a WAV file without sound".into())
}

/// `fmt ` chunk.
struct Format {
    coding: u16,
    channels: u16,
    rate: u32,
}

impl Format {
    fn read(chunk: &[u8]) -> Result<Self, String> {
        let two = |at: usize| chunk.get(at..at + 2).map(|b| u16::from_le_bytes([b[0], b[1]]));
        let all = (two(0), two(2), two(4), two(6));
        let (Some(mut coding), Some(channels), Some(low), Some(high)) = all else {
            return Err("it is a WAV file without a format".into());
        };
        // WAVE_FORMAT_EXTENSIBLE: the sub-format begins with the coding.
        if let (0xfffe, Some(sub)) = (coding, two(24)) {
            coding = sub;
        }
        Ok(Self { coding, channels, rate: u32::from(high) << 16 | u32::from(low) })
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
        let name = |coding: u16| match coding {
            1 => "PCM".to_owned(),
            6 => "A-law".into(),
            7 => "mu-law".into(),
            other => format!("coding {other}"),
        };
        let (has, rate, channels, wants) = (name(self.coding), self.rate, self.channels, name(wanted));
        Err(format!(
            "it is a WAV file of {has}, {rate} Hz, {channels} channels, and payload type {payload_type} is {wants}, 8000 Hz, one channel \
             (sox IN.wav -r 8000 -c 1 -e {wants} OUT.wav)"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::samples;

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
}
