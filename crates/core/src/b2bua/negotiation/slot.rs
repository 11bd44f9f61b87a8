//! Place of a stream in the descriptions of a leg, with the payload types of its whole session.

use serde::{Deserialize, Serialize};
use strowger_message::sdp::Codec;

use super::format::{DescribedFormat, FormatKey, fixed, has_same_name};

/// Place of one stream in all descriptions of a leg. It stays when the stream ends, and another stream may take it (RFC
/// 3264 sections 8.1 to 8.3).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Slot {
    /// Media type, protocol and a format of the stream, for a line with port 0.
    pub(super) media: Box<[u8]>,
    pub(super) protocol: Box<[u8]>,
    pub(super) format: Box<[u8]>,
    /// Place of the paired stream of the other leg.
    pub(super) other: Option<u8>,
    /// Dynamic payload types of all descriptions of the call, with their formats. They keep their meaning while the
    /// session lasts (RFC 3264 section 8.3.2).
    bound: Vec<(u8, FormatKey)>,
}

impl Slot {
    pub(super) fn new(media: &[u8], protocol: &[u8], format: &[u8]) -> Self {
        Self { media: media.into(), protocol: protocol.into(), format: format.into(), other: None, bound: Vec::new() }
    }

    /// Replaces the media type and protocol, and the format if there is one.
    pub(super) fn describe(&mut self, media: &[u8], protocol: &[u8], format: Option<&[u8]>) {
        for (field, value) in [(&mut self.media, media), (&mut self.protocol, protocol)] {
            if **field != *value {
                *field = value.into();
            }
        }
        if let Some(format) = format
            && *self.format != *format
        {
            self.format = format.into();
        }
    }

    /// Binds the payload type of a format to it. A peer that gives an old payload type to a new format is followed.
    pub(super) fn bind(&mut self, format: &DescribedFormat<'_>) {
        let number = format.codec.payload;
        if let Some((_, key)) = self.bound.iter_mut().find(|(bound, _)| *bound == number) {
            if *key != format.key {
                *key = format.key.clone();
            }
        } else if fixed(number).is_none_or(|codec| !has_same_name(&codec, &format.codec)) {
            self.bound.push((number, format.key.clone()));
        }
    }

    /// Binds the payload type of a format to it, unless it has a meaning.
    pub(super) fn bind_if_free(&mut self, format: &DescribedFormat<'_>) {
        if self.may_mean(format.codec.payload, format) {
            self.bind(format);
        }
    }

    /// Returns the formats with the payload types that they get in an offer of this stream. A format for which no payload
    /// type is left is left out.
    pub(super) fn numbered<'a>(&self, formats: &[DescribedFormat<'a>]) -> Vec<DescribedFormat<'a>> {
        let mut is_used = [false; 128];
        let mut numbered = Vec::with_capacity(formats.len());
        for format in formats {
            let Some(payload) = self.number(format, &is_used) else { continue };
            is_used[usize::from(payload)] = true;
            numbered.push(DescribedFormat { codec: Codec { payload, ..format.codec }, key: format.key.clone() });
        }
        numbered
    }

    /// Returns a payload type for a format in our offer: the one that it had, else the one of RFC 3551, else that of the
    /// format on the other leg, else the first free one of the dynamic range. `None` if all are taken. The unassigned
    /// numbers below 64 follow the range; from 64 on a number looks like RTCP (RFC 5761 section 4).
    fn number(&self, format: &DescribedFormat<'_>, is_used: &[bool; 128]) -> Option<u8> {
        let earlier = self.bound.iter().filter(|(_, key)| *key == format.key).map(|(number, _)| *number);
        let is_assigned = |&number: &u8| fixed(number).is_some_and(|codec| has_same_name(&codec, &format.codec));
        let assigned = (0..35).filter(is_assigned);
        let same = (format.codec.payload >= 96).then_some(format.codec.payload);
        let mut numbers = earlier.chain(assigned).chain(same).chain(96..=127).chain(35..=63);
        numbers.find(|&number| !is_used[usize::from(number)] && self.may_mean(number, format))
    }

    fn may_mean(&self, number: u8, format: &DescribedFormat<'_>) -> bool {
        match self.bound.iter().find(|(bound, _)| *bound == number) {
            Some((_, key)) => *key == format.key,
            None => fixed(number).is_none_or(|codec| has_same_name(&codec, &format.codec)),
        }
    }
}
