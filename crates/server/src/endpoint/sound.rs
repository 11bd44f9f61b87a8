//! Sound that an endpoint sends to its caller.

use serde::{Deserialize, Serialize};
use std::sync::{Arc, LazyLock};
use strowger_config::{Action, CallEndpoint, Decisions};
use strowger_core::b2bua::negotiation::{AgreedFormat, AgreedStream};
use strowger_media::g711::Law;
use strowger_media::session::{PlayedSound, StreamKind};
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

/// Formats of a caller who hears a sound of this server.
const PLAYED: [Codec<'static>; 3] = [Codec::PCMA, Codec::PCMU, Codec::TELEPHONE_EVENT];

/// Frequency of the test tone in hertz, and its level in dBm0: 1,004 is no divisor of the sampling rate, so the samples take all values.
const TEST_TONE: (f64, f64) = (1_004.0, -10.0);

/// Test tone of a second, which has whole periods.
static TONE: LazyLock<Arc<Sound>> = LazyLock::new(|| {
    let (frequency, level) = TEST_TONE;
    Arc::new(Sound::new(Tone::new(frequency, level, RATE).take(RATE as usize)))
});

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
}

impl EndpointSound {
    /// Returns the sound of the endpoint of a rule; `None` if the rule has none.
    pub(crate) fn of(action: &Action) -> Option<Self> {
        Some(match action.endpoint? {
            CallEndpoint::Echo => Self::Echo,
            CallEndpoint::Tone => Self::Tone,
            CallEndpoint::Announcement => {
                let announcement = action.announcement.as_ref()?;
                Self::Announcement { file: announcement.file.clone(), repeats: announcement.repeats }
            }
        })
    }

    /// Returns the name of the endpoint, as in the rule.
    pub(crate) const fn word(&self) -> &'static str {
        match self {
            Self::Echo => CallEndpoint::Echo.word(),
            Self::Tone => CallEndpoint::Tone.word(),
            Self::Announcement { .. } => CallEndpoint::Announcement.word(),
        }
    }

    /// Returns the formats that the endpoint takes, the preferred one first.
    pub(super) const fn codecs(&self) -> &'static [Codec<'static>] {
        match self {
            Self::Echo => &ECHOED,
            Self::Tone | Self::Announcement { .. } => &PLAYED,
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
        };
        let (law, format) = stream.formats.iter().find_map(|format| Some((law_of(format)?, format)))?;
        let packet_time = stream.ptime.filter(|time| PACKET_TIMES.contains(time)).unwrap_or(PACKET_TIME);
        let payload_type = format.other.unwrap_or(format.payload_type);
        Some(StreamKind::Playback(PlayedSound { sound, payload_type, law, packet_time, repeats }))
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
