//! Negotiation of an endpoint of this server: echo, tone, announcement, recording.

use strowger_message::sdp::{Codec, Direction, Media, Sdp, Timing};

use super::agreed::{AgreedStream, LegStream, leg_streams};
use super::format::{DescribedFormat, has_sound};
use super::leg::LegState;
use super::slot::Slot;
use super::stream::{DescribedStream, Protocol, described_streams};
use super::written::{WrittenFormats, WrittenLine, WrittenStream};
use super::{LocalStream, MAX_STREAMS, Refusal};

/// Answer of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointAnswer {
    /// Text of the answer, `application/sdp`.
    pub description: Vec<u8>,
    /// Streams in the order of the `m=` lines; `None` for a refused or ended one. The accepted streams have the places
    /// that [`endpoint_answer`] got, in the same order.
    pub streams: Vec<Option<AgreedStream>>,
}

/// Answers an offer (RFC 3264 section 6). The endpoint accepts the first streams of audio over RTP/AVP or RTP/AVPF with a
/// sound format among its capabilities, one for each place in `streams`; it refuses all others with port 0. A later offer of
/// the call should get the same places.
///
/// The answer has the formats of this offer alone, with its payload types and in its order, and the parameters of the
/// capabilities. Telephone events stay if a sound format has their clock rate (RFC 4733 section 2.1). The direction is the
/// widest that the offer allows. A hold by `0.0.0.0` gets `recvonly`. RTCP shares the port of RTP if the offer wants it.
///
/// # Errors
/// The offer has active streams, but none can be accepted, or is larger than the limits. The state is then as before.
pub fn endpoint_answer(
    leg: &mut LegState,
    offer: &Sdp<'_>,
    capabilities: &[Codec<'_>],
    streams: &[LocalStream],
) -> Result<EndpointAnswer, Refusal> {
    let capabilities: Vec<_> = capabilities.iter().map(|codec| DescribedFormat::new(*codec)).collect();
    let described = described_streams(offer);
    let mut places = streams.iter();
    let mut is_any_active = false;
    let mut lines = Vec::with_capacity(described.len());
    let mut is_any_accepted = false;
    for (section, stream) in offer.all_media().zip(&described) {
        let accepted = stream.as_ref().filter(|stream| stream.is_active()).and_then(|stream| {
            is_any_active = true;
            let codecs = accepted_codecs(stream, &capabilities)?;
            Some(answered_stream(stream, codecs, places.next()?))
        });
        is_any_accepted |= accepted.is_some();
        lines.push(accepted.map_or_else(|| WrittenLine::Refused(section.refused()), WrittenLine::Stream));
    }
    if is_any_active && !is_any_accepted {
        return Err(if streams.is_empty() { Refusal::NoPorts } else { Refusal::NothingInCommon });
    }
    leg.receive(offer)?;
    let timings: Vec<Timing> = offer.timings().collect();
    let description = leg.write(&timings, &[], &lines);
    leg.agree_local(offer.bytes().into());
    Ok(EndpointAnswer { description, streams: endpoint_streams(leg) })
}

/// Returns the formats of an offered stream that the endpoint accepts; `None` if it refuses the stream.
fn accepted_codecs<'a>(
    stream: &DescribedStream<'_, '_>,
    capabilities: &[DescribedFormat<'a>],
) -> Option<Vec<Codec<'a>>> {
    if !stream.is_audio() || stream.protocol != Protocol::Rtp {
        return None;
    }
    let common: Vec<DescribedFormat<'a>> = stream
        .formats
        .iter()
        .filter_map(|offered| {
            let own = capabilities.iter().find(|capability| capability.key == offered.key)?;
            Some(DescribedFormat::new(Codec { payload: offered.codec.payload, ..own.codec }))
        })
        .collect();
    if !has_sound(&common) {
        return None;
    }
    let has_rate = |rate: u32| common.iter().any(|format| format.codec.is_sound() && format.codec.clock_rate == rate);
    let kept = common.iter().filter(|format| !format.is_event() || has_rate(format.codec.clock_rate));
    Some(kept.map(|format| format.codec).collect())
}

fn answered_stream<'a>(
    offered: &DescribedStream<'_, 'a>,
    codecs: Vec<Codec<'a>>,
    place: &LocalStream,
) -> WrittenStream<'a> {
    WrittenStream {
        direction: offered.direction.answered(Direction::SendRecv),
        has_rtcp_mux: offered.has_rtcp_mux,
        ..rtp_stream(offered.media.kind, offered.media.protocol, codecs, place)
    }
}

/// Creates a stream of RTP in both directions, with RTCP at a port of its own.
fn rtp_stream<'a>(
    media: &'a [u8],
    protocol: &'a [u8],
    codecs: Vec<Codec<'a>>,
    place: &LocalStream,
) -> WrittenStream<'a> {
    WrittenStream {
        media,
        protocol,
        address: place.address,
        port: place.port,
        formats: WrittenFormats::Rtp(codecs),
        direction: Direction::SendRecv,
        has_rtcp_mux: false,
        ptime: None,
        maxptime: None,
        bandwidths: Vec::new(),
    }
}

/// Offers audio with all capabilities, preferred ones first, at each place of `streams`: in a response to a request
/// without offer, or to change a session. Streams of the call that have no place are offered with port 0. Send the answer to
/// [`endpoint_answered`].
///
/// # Errors
/// No place, or the call has [`MAX_STREAMS`] streams already.
pub fn endpoint_offer(
    leg: &mut LegState,
    capabilities: &[Codec<'_>],
    streams: &[LocalStream],
) -> Result<Vec<u8>, Refusal> {
    if streams.is_empty() {
        return Err(Refusal::NoPorts);
    }
    let agreed = leg_streams(leg);
    let in_use = |place: usize| agreed.get(place).is_some_and(Option::is_some);
    // Streams in use keep their slots; further ones take new slots.
    let mut slots: Vec<usize> = (0..leg.slots.len()).filter(|&place| in_use(place)).take(streams.len()).collect();
    while slots.len() < streams.len() {
        if leg.slots.len() == MAX_STREAMS {
            return Err(Refusal::TooLarge);
        }
        slots.push(leg.slots.len());
        leg.slots.push(Slot::new(b"audio", b"RTP/AVP", b"0"));
    }
    let formats: Vec<_> = capabilities.iter().map(|codec| DescribedFormat::new(*codec)).collect();
    for &slot in &slots {
        let numbers = leg.slots[slot].numbered(&formats);
        for format in &numbers {
            leg.slots[slot].bind(format);
        }
    }
    let own = leg.slots.clone();
    let lines: Vec<_> = own
        .iter()
        .enumerate()
        .map(|(place, slot)| match slots.iter().position(|&used| used == place) {
            Some(index) => {
                let codecs = slot.numbered(&formats).iter().map(|format| format.codec).collect();
                let has_rtcp_mux = agreed.get(place).and_then(Option::as_ref).is_some_and(|stream| stream.has_rtcp_mux);
                let stream = rtp_stream(&slot.media, &slot.protocol, codecs, &streams[index]);
                WrittenLine::Stream(WrittenStream { has_rtcp_mux, ..stream })
            }
            None => WrittenLine::Refused(Media::new(&slot.media, 0, &slot.protocol, &slot.format)),
        })
        .collect();
    Ok(leg.write(&[], &[], &lines))
}

/// Notes the answer to [`endpoint_offer`] and returns the agreed streams, as in [`EndpointAnswer::streams`].
///
/// # Errors
/// The answer is larger than the limits.
pub fn endpoint_answered(leg: &mut LegState, answer: &Sdp<'_>) -> Result<Vec<Option<AgreedStream>>, Refusal> {
    leg.receive_answer(answer)?;
    Ok(endpoint_streams(leg))
}

/// Returns the agreed streams of an endpoint: after an exchange, or when a kept call goes on.
pub fn endpoint_streams(leg: &LegState) -> Vec<Option<AgreedStream>> {
    leg_streams(leg).into_iter().map(|stream| stream.map(LegStream::returned)).collect()
}
