//! Policy of a leg: the formats and streams that pass.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::format::DescribedFormat;
use super::stream::{DescribedStream, Protocol};

/// Policy of one leg. A stream or format passes if the policies of both legs admit it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LegPolicy {
    /// Formats of audio that pass, in the order in which descriptions to this leg list them. Empty: all formats, in the
    /// order of the offerer.
    pub codecs: Vec<CodecName>,
    /// Media types that pass beside audio, such as `video` or `image` (T.38). Their formats pass unread.
    pub media_types: Vec<Box<str>>,
    /// Set if encrypted RTP (RTP/SAVP, RTP/SAVPF) passes unread, with its keys (RFC 4568).
    pub has_secure_rtp: bool,
    /// Set if our offers to this leg propose one port for RTP and RTCP (RFC 5761). Our answers accept it always.
    pub has_rtcp_mux: bool,
}

/// Name of a format in a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CodecName {
    /// Encoding name; compares in any case.
    pub encoding: Box<str>,
    /// Ticks per second; `None` for each clock rate of the name.
    pub clock_rate: Option<u32>,
    /// Channels; `None` for each number.
    pub channels: Option<u32>,
}

impl CodecName {
    /// Reads `NAME`, `NAME/CLOCK-RATE` or `NAME/CLOCK-RATE/CHANNELS`. `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('/');
        let is_of_name = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_' | b'+');
        let encoding = parts.next().filter(|name| !name.is_empty() && name.bytes().all(is_of_name))?;
        let mut number = || match parts.next() {
            Some(text) => text.parse::<u32>().ok().filter(|&number| number > 0).map(Some),
            None => Some(None),
        };
        let (clock_rate, channels) = (number()?, number()?);
        parts.next().is_none().then(|| Self { encoding: encoding.into(), clock_rate, channels })
    }

    fn names(&self, format: &DescribedFormat<'_>) -> bool {
        let codec = &format.codec;
        self.encoding.eq_ignore_ascii_case(codec.encoding)
            && self.clock_rate.is_none_or(|clock_rate| clock_rate == codec.clock_rate)
            && self.channels.is_none_or(|channels| channels == codec.channels)
    }
}

impl fmt::Display for CodecName {
    /// Writes the name as [`CodecName::parse`] reads it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.encoding)?;
        let numbers = [self.clock_rate, self.channels];
        numbers.iter().flatten().try_for_each(|number| write!(f, "/{number}"))
    }
}

impl LegPolicy {
    /// Tells whether streams of this media type and protocol pass.
    pub(super) fn admits(&self, stream: &DescribedStream<'_, '_>) -> bool {
        let kind = stream.media.kind;
        let is_listed = self.media_types.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(kind));
        match stream.protocol {
            Protocol::Rtp => stream.is_audio() || is_listed,
            Protocol::SecureRtp => self.has_secure_rtp && (stream.is_audio() || is_listed),
            Protocol::Datagram => is_listed,
            Protocol::Other => false,
        }
    }

    /// Returns the formats of a stream that pass, in the order of this policy if it has one.
    pub(super) fn ordered<'a>(
        &self,
        stream: &DescribedStream<'_, '_>,
        formats: Vec<DescribedFormat<'a>>,
    ) -> Vec<DescribedFormat<'a>> {
        if self.codecs.is_empty() || !stream.is_audio() {
            return formats;
        }
        let rank = |format: &DescribedFormat<'_>| self.codecs.iter().position(|name| name.names(format));
        let mut ranked: Vec<_> = formats.into_iter().filter_map(|format| Some((rank(&format)?, format))).collect();
        // The sort is stable: formats of one name keep the order of the offerer.
        ranked.sort_by_key(|(rank, _)| *rank);
        ranked.into_iter().map(|(_, format)| format).collect()
    }

    /// Returns the formats of a stream that pass, in their order.
    pub(super) fn admitted<'a>(
        &self,
        stream: &DescribedStream<'_, '_>,
        mut formats: Vec<DescribedFormat<'a>>,
    ) -> Vec<DescribedFormat<'a>> {
        if !self.codecs.is_empty() && stream.is_audio() {
            formats.retain(|format| self.codecs.iter().any(|name| name.names(format)));
        }
        formats
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_codecs() {
        let name = |text: &str| {
            let name = CodecName::parse(text)?;
            Some((name.encoding.into_string(), name.clock_rate, name.channels))
        };
        for text in ["PCMA", "telephone-event/48000", "opus/48000/2"] {
            assert_eq!(CodecName::parse(text).map(|name| name.to_string()), Some(text.to_owned()));
        }
        assert_eq!(name("PCMA"), Some(("PCMA".to_owned(), None, None)));
        assert_eq!(name("telephone-event/48000"), Some(("telephone-event".to_owned(), Some(48_000), None)));
        assert_eq!(name("opus/48000/2"), Some(("opus".to_owned(), Some(48_000), Some(2))));
        for bad in ["", "/8000", "PCMA/", "PCMA/x", "PCMA/0", "PCMA/8000/0", "PCMA/8000/1/1", "a b", "PCMA,PCMU"] {
            assert_eq!(name(bad), None, "{bad}");
        }
    }
}
