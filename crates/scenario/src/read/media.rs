//! Media files that a document names: they must exist before the first call.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;

use super::Reader;
use crate::action::RtpStream;
use crate::refusal::{Cause, Fault};
use crate::xml::Attribute;
use strowger_media::payload_type::StreamFormat;
use strowger_media::wave;

impl Reader<'_> {
    /// Returns the path of a file: in the folder of the document if the file exists there, otherwise relative to the
    /// working folder.
    fn find(&self, name: &str) -> PathBuf {
        let plain = PathBuf::from(name);
        let folder = self.environment.folder.as_deref().or_else(|| self.file.parent());
        match folder {
            Some(folder) if plain.is_relative() && folder.join(&plain).is_file() => folder.join(plain),
            _ => plain,
        }
    }

    pub(super) fn pcap(&self, value: &Attribute) -> Result<PathBuf, Fault> {
        let name = value.text();
        let path = self.find(&name);
        let refused = |why: String| {
            Fault::new(value.at, format!("`{name}` cannot be played: {why}"))
                .hint("a capture of libpcap, named from the document's folder or the working folder")
                .cause(Cause::MediaFile)
        };
        let mut magic = [0; 4];
        File::open(&path)
            .and_then(|mut file| file.read_exact(&mut magic))
            .map_err(|error| refused(error.to_string()))?;
        if CAPTURE.contains(&u32::from_ne_bytes(magic)) || CAPTURE.contains(&u32::from_ne_bytes(magic).swap_bytes()) {
            Ok(path)
        } else {
            Err(refused("it is no capture".into()))
        }
    }

    /// Returns the payload type of a stream that gives none.
    fn payload_type(&self) -> i32 {
        self.environment.payload_type.map_or(DEFAULT_PAYLOAD_TYPE, i32::from)
    }

    /// Parses `file[,loops[,payload type[,codec/clock]]]`, `pause`, `resume`, and the patterns of SIPp 3.7.
    pub(super) fn stream(&mut self, value: &Attribute) -> Result<RtpStream, Fault> {
        let text = value.text();
        match text.as_str() {
            "pause" => return Ok(RtpStream::Pause),
            "resume" => return Ok(RtpStream::Resume),
            _ => {}
        }
        let mut parts = text.split(',');
        let name = parts.next().unwrap_or_default();
        if let Some((video, word)) = pattern(name) {
            self.newer(value.at, format!("`rtp_stream={name}` is of SIPp 3.7"));
            return self.pattern_stream(value, word, video, parts);
        }
        let loops = parts.next().map_or(1, leading);
        let payload_type = parts.next().map_or_else(|| self.payload_type(), leading);
        let codec = parts.next().unwrap_or_default();
        let format = self.stream_format(value, payload_type, codec)?;
        let path = self.find(name);
        let why = match std::fs::read(&path) {
            Ok(file) if file.is_empty() => "it is empty".to_owned(),
            Ok(file) => match wave::samples(&file, format.payload_type) {
                Ok(_) => return Ok(RtpStream::Play { file: path, video: codec.starts_with("H26"), loops, format }),
                Err(why) => why,
            },
            Err(error) => error.to_string(),
        };
        Err(Fault::new(value.at, format!("`{name}` cannot be streamed: {why}"))
            .hint(
                "a file of raw samples or a WAV file of G.711, named from the document's folder or the working folder",
            )
            .cause(Cause::MediaFile))
    }

    fn pattern_stream<'t>(
        &mut self,
        value: &Attribute,
        word: &str,
        video: bool,
        mut parts: impl Iterator<Item = &'t str>,
    ) -> Result<RtpStream, Fault> {
        match word {
            "pause" => return Ok(RtpStream::PausePattern { video }),
            "resume" => return Ok(RtpStream::ResumePattern { video }),
            _ => {}
        }
        let id = parts.next().map_or(1, leading);
        let Some(id) = u8::try_from(id).ok().filter(|id| (1..=6).contains(id)) else {
            return Err(Fault::new(value.at, format!("there is no pattern {id}")).hint("1 to 6"));
        };
        let loops = parts.next().map_or(1, leading);
        let usual = if video { 99 } else { self.payload_type() };
        let payload_type = parts.next().map_or(usual, leading);
        let format = self.stream_format(value, payload_type, parts.next().unwrap_or_default())?;
        Ok(RtpStream::Pattern { video, id, loops, format })
    }

    fn stream_format(&mut self, value: &Attribute, payload_type: i32, codec: &str) -> Result<StreamFormat, Fault> {
        let number = u8::try_from(payload_type).ok().filter(|number| *number < 128);
        let Some(format) = number.and_then(|number| format(number, codec)) else {
            return Err(Fault::new(value.at, format!("the payload type {payload_type} cannot be streamed"))
                .hint("0 (PCMU), 8 (PCMA), 9 (G722), 18 (G729), 98 (iLBC)"));
        };
        if number.is_some_and(|number| by_number(number).is_none()) {
            self.newer(value.at, format!("the payload type {payload_type} with a codec's name is of SIPp 3.7"));
        }
        Ok(format)
    }
}

/// Payload type of PCMA (RFC 3551 section 6).
const DEFAULT_PAYLOAD_TYPE: i32 = 8;

/// First words of capture files: microseconds, nanoseconds, Kuznetzov's, pcapng.
const CAPTURE: [u32; 4] = [0xa1b2_c3d4, 0xa1b2_3c4d, 0xa1b2_cd34, 0x0a0d_0d0a];

/// Parses `apattern`, `pauseapattern`, `resumevpattern` …, and returns whether the stream is video, and the command.
fn pattern(name: &str) -> Option<(bool, &str)> {
    let (word, video) = match name.strip_suffix("apattern") {
        Some(word) => (word, false),
        None => (name.strip_suffix("vpattern")?, true),
    };
    matches!(word, "" | "pause" | "resume").then_some((video, word))
}

/// Parses as C's `atoi`.
fn leading(text: &str) -> i32 {
    let text = text.trim_start();
    let digits = text.trim_start_matches(['-', '+']);
    let length = digits.bytes().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len());
    let n: i32 = digits[..length].parse().unwrap_or(0);
    if text.starts_with('-') { -n } else { n }
}

fn by_number(payload_type: u8) -> Option<StreamFormat> {
    if payload_type != 98 {
        return StreamFormat::of(payload_type);
    }
    // iLBC (RFC 3952).
    Some(StreamFormat { payload_type, bytes_per_packet: 50, milliseconds_per_packet: 30, ticks_per_packet: 240 })
}

/// Returns the packet format of a payload type. The format of a dynamic type is known by the name of the codec
/// (`PCMU/8000`).
pub(super) fn format(payload_type: u8, codec: &str) -> Option<StreamFormat> {
    by_number(payload_type).or_else(|| {
        let known = match codec.split('/').next().unwrap_or_default().to_ascii_uppercase().as_str() {
            "PCMU" => by_number(0),
            "PCMA" => by_number(8),
            "G722" => by_number(9),
            "G729" => by_number(18),
            "ILBC" => by_number(98),
            // RFC 6184: 90 kHz; SIPp sends a packet each 160 ms.
            "H264" => Some(StreamFormat {
                payload_type,
                bytes_per_packet: 1280,
                milliseconds_per_packet: 160,
                ticks_per_packet: 14_400,
            }),
            _ => None,
        };
        known.map(|format| StreamFormat { payload_type, ..format })
    })
}
