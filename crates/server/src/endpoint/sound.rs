//! Sound that an endpoint sends to its caller, and the file in which it records the caller.

use jiff::SignedDuration;
use jiff::civil::{DateTime, datetime};
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use strowger_config::{Action, CallEndpoint, Decisions, EndpointFiles};
use strowger_core::Now;
use strowger_core::b2bua::negotiation::{AgreedFormat, AgreedStream};
use strowger_media::g711::Law;
use strowger_media::session::{PlayedSound, RecordedSound, StreamKind};
use strowger_media::sound::{RATE, Sound};
use strowger_media::tone::Tone;
use strowger_message::sdp::Codec;

/// Formats that an echo takes, the preferred one first. Packets that go back are not decoded.
const ECHOED: [Codec<'static>; 5] = [
    Codec::PCMA,
    Codec::PCMU,
    Codec::G722,
    Codec { channels: 2, ..Codec::new(111, "opus", 48_000) },
    Codec::TELEPHONE_EVENT,
];

/// Formats of a caller who hears a sound of this server, or is recorded.
const PLAYED: [Codec<'static>; 3] = [Codec::PCMA, Codec::PCMU, Codec::TELEPHONE_EVENT];

/// Frequency of the test tone in hertz, and its level in dBm0: 1,004 is no divisor of the sampling rate, so the samples take all values.
const TEST_TONE: (f64, f64) = (1_004.0, -10.0);

/// Test tone of a second, which has whole periods.
static TONE: LazyLock<Arc<Sound>> = LazyLock::new(|| {
    let (frequency, level) = TEST_TONE;
    Arc::new(Sound::new(Tone::new(frequency, level, RATE).take(RATE as usize)))
});

/// Tone before a recording: 0.4 s of 1,000 Hz, whole periods, at the level of the test tone.
static BEEP: LazyLock<Arc<Sound>> =
    LazyLock::new(|| Arc::new(Sound::new(Tone::new(1_000.0, TEST_TONE.1, RATE).take(RATE as usize * 2 / 5))));

/// Beginning of the wall clock.
const EPOCH: DateTime = datetime(1970, 1, 1, 0, 0, 0, 0);

/// Packet time in milliseconds if the caller asks for none.
const PACKET_TIME: u32 = 20;

/// Packet times that a caller may ask for, in milliseconds.
const PACKET_TIMES: std::ops::RangeInclusive<u32> = 10..=60;

/// Sound that an endpoint sends to its caller.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum EndpointSound {
    /// Sound of the caller.
    #[default]
    Echo,
    /// Test tone without end.
    Tone,
    /// WAV file of a rule.
    Announcement {
        /// Name of the sound in [`Decisions::sound`].
        file: Box<str>,
        /// Set if the file is played without end.
        repeats: bool,
    },
    /// Short tone, after which the caller is recorded.
    Recording {
        /// Folder of the files of the rule.
        folder: Box<str>,
        /// Name of the file of the call; empty before [`EndpointSound::begin`].
        name: Box<str>,
        /// Longest recording in milliseconds.
        limit: u64,
    },
}

impl EndpointSound {
    /// Returns the sound of the endpoint of a rule; `None` if the rule has none.
    pub(crate) fn of(action: &Action) -> Option<Self> {
        Some(match (action.endpoint?, &action.files) {
            (CallEndpoint::Echo, _) => Self::Echo,
            (CallEndpoint::Tone, _) => Self::Tone,
            (_, Some(EndpointFiles::Announcement(announcement))) => {
                Self::Announcement { file: announcement.file.clone(), repeats: announcement.repeats }
            }
            (_, Some(EndpointFiles::Recording(recording))) => Self::Recording {
                folder: recording.folder.clone(),
                name: Box::default(),
                limit: recording.limit.as_millis() as u64,
            },
            (_, None) => return None,
        })
    }

    /// Names the file of a call that is recorded, by the time (UTC) and a random number: nothing in the name is of the caller.
    pub(super) fn begin(&mut self, now: Now, number: impl FnOnce() -> u64) {
        let Self::Recording { name, .. } = self else { return };
        let seconds = i64::try_from(now.wall / 1_000).unwrap_or(i64::MAX);
        let date = EPOCH.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(DateTime::MAX);
        let (year, month, day) = (date.year(), date.month(), date.day());
        let (hour, minute, second, number) = (date.hour(), date.minute(), date.second(), number());
        *name = format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z-{number:016x}.wav").into();
    }

    /// Returns the path of the file in which a call is recorded.
    pub(super) fn recording(&self) -> Option<PathBuf> {
        match self {
            Self::Recording { folder, name, .. } if !name.is_empty() => Some(Path::new(&**folder).join(&**name)),
            _ => None,
        }
    }

    /// Returns the name of the endpoint, as in the rule.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Echo => CallEndpoint::Echo.word(),
            Self::Tone => CallEndpoint::Tone.word(),
            Self::Announcement { .. } => CallEndpoint::Announcement.word(),
            Self::Recording { .. } => CallEndpoint::Recording.word(),
        }
    }

    /// Returns the formats that the endpoint takes, the preferred one first.
    pub(crate) const fn codecs(&self) -> &'static [Codec<'static>] {
        match self {
            Self::Echo => &ECHOED,
            Self::Tone | Self::Announcement { .. } | Self::Recording { .. } => &PLAYED,
        }
    }

    /// Returns the use of a stream; `None` if the caller has agreed on no format of the sound.
    pub(super) fn stream_kind(&self, decisions: &Decisions, stream: &AgreedStream) -> Option<StreamKind> {
        let (sound, repeats) = match self {
            Self::Echo => return Some(StreamKind::Echo),
            Self::Tone => (TONE.clone(), true),
            // A sound that is no longer in the configuration ends at once, and with it the call.
            Self::Announcement { file, repeats } => {
                (decisions.sound(file).cloned().unwrap_or_else(|| Arc::new(Sound::new([]))), *repeats)
            }
            Self::Recording { .. } => (BEEP.clone(), false),
        };
        let (law, format) = stream.formats.iter().find_map(|format| Some((law_of(format)?, format)))?;
        let packet_time = stream.ptime.filter(|time| PACKET_TIMES.contains(time)).unwrap_or(PACKET_TIME);
        let payload_type = format.other.unwrap_or(format.payload_type);
        let tone = PlayedSound { sound, payload_type, law, packet_time, repeats };
        let Self::Recording { limit, .. } = self else { return Some(StreamKind::Playback(tone)) };
        let laws = stream.formats.iter().filter_map(|format| Some((format.payload_type, law_of(format)?))).collect();
        let file = self.recording()?.into();
        Some(StreamKind::Recording(RecordedSound { tone, laws, file, limit: limit.saturating_mul(1_000) }))
    }
}

fn law_of(format: &AgreedFormat) -> Option<Law> {
    let is = |name: &str| format.encoding.eq_ignore_ascii_case(name);
    if is("PCMA") { Some(Law::A) } else { is("PCMU").then_some(Law::Mu) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tone_repeats_without_a_click() {
        let samples: Vec<i16> = Tone::new(TEST_TONE.0, TEST_TONE.1, RATE).take(RATE as usize + 160).collect();
        let (first, again) = (&samples[..160], &samples[RATE as usize..]);
        assert!(first.iter().zip(again).all(|(one, other)| one.abs_diff(*other) <= 1));
        assert_eq!(TONE.len(), 8_000);
        // 13.17 dB below the largest sine.
        assert!(samples.iter().max().is_some_and(|loudest| (7_150..=7_193).contains(loudest)));
    }

    #[test]
    fn a_recording_is_named_by_its_time_and_a_number() {
        let mut sound = EndpointSound::Recording { folder: "/notes".into(), name: Box::default(), limit: 1_000 };
        assert_eq!(sound.recording(), None);
        for (wall, number, path) in [
            (1_700_000_000_999, 0xfeed, "/notes/20231114T221320Z-000000000000feed.wav"),
            (0, u64::MAX, "/notes/19700101T000000Z-ffffffffffffffff.wav"),
            (u64::MAX, 0, "/notes/99991231T235959Z-0000000000000000.wav"),
        ] {
            sound.begin(Now { mono: 1, wall }, || number);
            assert_eq!(sound.recording(), Some(PathBuf::from(path)));
        }
        // 0.4 s of whole periods.
        assert_eq!(BEEP.len(), 3_200);
    }

    #[test]
    fn a_packet_has_the_format_and_the_time_of_the_caller() {
        let format = |payload_type, other, encoding: &str| AgreedFormat {
            payload_type,
            other,
            clock_rate: 8_000,
            is_event: encoding == "telephone-event",
            encoding: encoding.into(),
        };
        let mut stream = AgreedStream {
            transport: strowger_core::b2bua::negotiation::StreamTransport::Rtp,
            rtp: None,
            rtcp: None,
            formats: vec![format(101, None, "telephone-event"), format(97, Some(98), "pcma"), format(0, None, "PCMU")],
            sends: true,
            receives: true,
            ptime: Some(30),
        };
        let played = |stream: &AgreedStream| match EndpointSound::Tone.stream_kind(&Decisions::default(), stream) {
            Some(StreamKind::Playback(played)) => Some((played.payload_type, played.law, played.packet_time)),
            _ => None,
        };
        assert_eq!(played(&stream), Some((98, Law::A, 30)));
        stream.formats.remove(1);
        stream.ptime = Some(500);
        assert_eq!(played(&stream), Some((0, Law::Mu, 20)));
        stream.formats.truncate(1);
        assert_eq!(played(&stream), None);
        assert_eq!(EndpointSound::Echo.stream_kind(&Decisions::default(), &stream), Some(StreamKind::Echo));
    }
}
