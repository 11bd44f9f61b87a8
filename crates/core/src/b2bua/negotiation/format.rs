//! Formats of RTP streams, and their identity (RFC 3551 section 6, RFC 8866 sections 6.6 and 6.15).

use serde::{Deserialize, Serialize};
use strowger_message::sdp::{Codec, Media, RtpMap, Section};

/// Longest encoding name in bytes. A format with a longer one is left out: the state of a leg has the names.
const LONGEST_ENCODING: usize = 64;

/// Formats whose packets or parameters name payload types of other formats (RFC 2198, RFC 4588). Those numbers are the
/// numbers of one leg, so the formats do not pass to the other.
const REFERRING: [&str; 2] = ["red", "rtx"];

/// Parameter in which two formats of one name are incompatible.
struct Distinction {
    encoding: &'static str,
    name: &'static str,
    /// Value of a format without the parameter.
    default: &'static str,
    /// Characters that count.
    length: usize,
}

const fn distinction(encoding: &'static str, name: &'static str, default: &'static str, length: usize) -> Distinction {
    Distinction { encoding, name, default, length }
}

/// Encodings in lower case. Of the profile of H.264 the first four digits count; the last two are the level, which may
/// differ (RFC 6184 section 8.2.2).
const DISTINCTIONS: [Distinction; 13] = [
    distinction("amr", "octet-align", "0", 1),
    distinction("amr", "crc", "0", 1),
    distinction("amr", "robust-sorting", "0", 1),
    distinction("amr", "interleaving", "", 4),
    distinction("amr-wb", "octet-align", "0", 1),
    distinction("amr-wb", "crc", "0", 1),
    distinction("amr-wb", "robust-sorting", "0", 1),
    distinction("amr-wb", "interleaving", "", 4),
    distinction("g7221", "bitrate", "", 8),
    distinction("h264", "packetization-mode", "0", 1),
    distinction("h264", "profile-level-id", "42000a", 4),
    distinction("h265", "profile-id", "1", 2),
    distinction("vp9", "profile-id", "0", 2),
];

/// Identity of a format: encoding name, clock rate, channels, and the values of its distinctions. Text in lower case.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FormatKey(Box<str>);

impl FormatKey {
    /// Returns the identity of a format.
    pub(super) fn of(codec: &Codec<'_>) -> Self {
        let mut text = format!("{}/{}/{}", codec.encoding, codec.clock_rate, codec.channels);
        for distinction in DISTINCTIONS.iter().filter(|row| codec.encoding.eq_ignore_ascii_case(row.encoding)) {
            let value = codec.parameters.and_then(|text| parameter(text, distinction.name));
            let value = value.unwrap_or(distinction.default);
            text.push(';');
            text.push_str(value.get(..distinction.length.min(value.len())).unwrap_or_default());
        }
        text.make_ascii_lowercase();
        Self(text.into())
    }

    /// Tells whether both have the same name, clock rate and channels.
    pub(super) fn has_name_of(&self, other: &Self) -> bool {
        self.name() == other.name()
    }

    fn name(&self) -> Option<&str> {
        self.0.split(';').next()
    }
}

/// Returns the value of a parameter of `a=fmtp`, whose usual form is `name=value;name=value`.
fn parameter<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split(';').find_map(|parameter| {
        let (found, value) = parameter.split_once('=')?;
        found.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

/// Format of a description. The payload type is that of the description.
#[derive(Clone, Debug)]
pub(super) struct DescribedFormat<'a> {
    pub(super) codec: Codec<'a>,
    pub(super) key: FormatKey,
}

impl<'a> DescribedFormat<'a> {
    pub(super) fn new(codec: Codec<'a>) -> Self {
        Self { key: FormatKey::of(&codec), codec }
    }

    /// Tells whether the format is telephone events (RFC 4733).
    pub(super) fn is_event(&self) -> bool {
        self.codec.encoding.eq_ignore_ascii_case(Codec::TELEPHONE_EVENT.encoding)
    }
}

/// Returns the offered format that a format of the answer means: the same one, else the one with its payload type if the
/// names are equal. Answers often leave out parameters, or change them.
pub(super) fn offered_format<'f, 'a>(
    offered: &'f [DescribedFormat<'a>],
    answered: &DescribedFormat<'_>,
) -> Option<&'f DescribedFormat<'a>> {
    let is_named = |format: &&DescribedFormat<'_>| {
        format.codec.payload == answered.codec.payload && format.key.has_name_of(&answered.key)
    };
    let same = offered.iter().find(|format| format.key == answered.key);
    same.or_else(|| offered.iter().find(is_named))
}

/// Tells whether a format carries media: not only events or comfort noise.
pub(super) fn has_sound(formats: &[DescribedFormat<'_>]) -> bool {
    formats.iter().any(|format| format.codec.is_sound())
}

/// Reads the formats of an RTP stream in the order of the `m=` line. Left out are: payload types without a readable name,
/// the second and later occurrences of a payload type or of a format, and formats that refer to payload types.
pub(super) fn described_formats<'a>(section: Section<'_, 'a>, media: &Media<'a>) -> Vec<DescribedFormat<'a>> {
    // One pass over the attributes: a long description has thousands of them, and thousands of formats.
    let mut maps: [Option<RtpMap<'a>>; 128] = [None; 128];
    let mut parameters: [Option<&'a str>; 128] = [None; 128];
    section.rtpmaps().for_each(|map| {
        maps[usize::from(map.payload)].get_or_insert(map);
    });
    for fmtp in section.fmtps() {
        let format = std::str::from_utf8(fmtp.format).ok().and_then(|format| format.parse::<usize>().ok());
        let entry = format.and_then(|format| parameters.get_mut(format));
        if let (Some(entry), Ok(text)) = (entry, std::str::from_utf8(fmtp.parameters)) {
            entry.get_or_insert(text);
        }
    }
    let mut is_seen = [false; 128];
    let mut formats: Vec<DescribedFormat<'a>> = Vec::new();
    for payload in media.payloads() {
        let place = usize::from(payload);
        if std::mem::replace(&mut is_seen[place], true) {
            continue;
        }
        let named = match &maps[place] {
            Some(map) => named(map),
            None => fixed(payload),
        };
        let Some(codec) = named else { continue };
        let format = DescribedFormat::new(Codec { parameters: parameters[place], ..codec });
        if formats.iter().all(|other| other.key != format.key) {
            formats.push(format);
        }
    }
    formats
}

/// Returns the format of a mapping; `None` if it does not pass.
fn named<'a>(map: &RtpMap<'a>) -> Option<Codec<'a>> {
    let encoding = std::str::from_utf8(map.encoding).ok()?;
    let passes = encoding.len() <= LONGEST_ENCODING
        && map.clock_rate > 0
        && !REFERRING.iter().any(|name| encoding.eq_ignore_ascii_case(name));
    passes.then_some(Codec {
        payload: map.payload,
        encoding,
        clock_rate: map.clock_rate,
        channels: map.channels(),
        parameters: None,
    })
}

/// Returns the format of a payload type without `a=rtpmap` (RFC 3551 tables 4 and 5).
pub(super) fn fixed(payload: u8) -> Option<Codec<'static>> {
    let video = match payload {
        25 => "CelB",
        26 => "JPEG",
        28 => "nv",
        31 => "H261",
        32 => "MPV",
        33 => "MP2T",
        34 => "H263",
        _ => return Codec::of_payload(payload),
    };
    Some(Codec::new(payload, video, 90_000))
}

/// Tells whether both are the same format; for formats without distinctions.
pub(super) fn has_same_name(one: &Codec<'_>, other: &Codec<'_>) -> bool {
    one.encoding.eq_ignore_ascii_case(other.encoding)
        && one.clock_rate == other.clock_rate
        && one.channels == other.channels
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(encoding: &'static str, parameters: Option<&'static str>) -> FormatKey {
        FormatKey::of(&Codec { parameters, ..Codec::new(96, encoding, 90_000) })
    }

    #[test]
    fn parameters_that_tell_formats_apart() {
        for (encoding, one, other, is_same) in [
            (
                "H264",
                "profile-level-id=42e01f; packetization-mode=1",
                "packetization-mode=1;profile-level-id=42E0",
                true,
            ),
            ("H264", "profile-level-id=42e01f", "profile-level-id=64001f", false),
            ("H264", "profile-level-id=42e01f;packetization-mode=0", "profile-level-id=42e01f", true),
            ("H264", "profile-level-id=42e01f;packetization-mode=1", "profile-level-id=42e01f", false),
            ("AMR", "octet-align=1", "mode-set=0,2", false),
            ("AMR", "octet-align=0; mode-set=7", "mode-set=0,2", true),
            ("G7221", "bitrate=24000", "bitrate=32000", false),
            ("G7221", "bitrate=24000", "bitrate=24000", true),
            ("VP9", "profile-id=2", "x=y", false),
            ("telephone-event", "0-15", "0-16", true),
        ] {
            let (one_key, other_key) = (key(encoding, Some(one)), key(encoding, Some(other)));
            assert_eq!(one_key == other_key, is_same, "{encoding} {one} {other}");
            assert!(one_key.has_name_of(&other_key));
        }
        assert_eq!(key("PCMU", None), key("pcmu", None));
        assert_ne!(FormatKey::of(&Codec::new(8, "PCMA", 8_000)), FormatKey::of(&Codec::new(8, "PCMA", 16_000)));
    }

    #[test]
    fn fixed_numbers_are_their_own() {
        for number in 0..=255 {
            assert!(fixed(number).is_none_or(|codec| codec.payload == number));
        }
        assert!(fixed(96).is_none() && fixed(31).is_some_and(|codec| codec.clock_rate == 90_000));
    }
}
