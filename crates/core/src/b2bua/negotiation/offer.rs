//! Offer to one leg from a description of the other (RFC 3264 sections 5 and 8).

use strowger_message::sdp::{Attribute, Bandwidth, Direction, Media, Sdp, Section};

use super::agreed::leg_streams;
use super::format::{DescribedFormat, has_sound};
use super::leg::LegState;
use super::policy::LegPolicy;
use super::slot::Slot;
use super::stream::{DescribedStream, Protocol, described_streams};
use super::written::{WrittenFormats, WrittenLine, WrittenStream};
use super::{LocalStream, MAX_STREAMS, Refusal};

/// Leg in an exchange.
#[derive(Debug)]
pub struct Leg<'a> {
    /// Its state, which the exchange changes.
    pub state: &'a mut LegState,
    /// Its policy.
    pub policy: &'a LegPolicy,
}

/// Makes the offer to the leg `to` from an offer of the peer of `from`: in an INVITE, a re-INVITE, an UPDATE or a PRACK, or
/// in a response to a request without offer. `place` gives the place of a stream of `to`, by the index of its `m=` line: the
/// one that it had, or a free one; `None` if no port is left.
///
/// Streams keep their pairs; a new stream takes an unpaired one of its media type, else a new `m=` line. A stream that does
/// not pass is left out, or has port 0 if the leg has a line for it. Directions are those of the offer; a hold by `0.0.0.0`
/// becomes `sendonly`. Formats are those that both policies admit, with payload types of the leg `to`.
///
/// Give the answer of the leg `to` to [`answer`], or refuse the offer and call [`LegState::refuse_offer`].
///
/// # Errors
/// The offer has active streams and none can pass, or it is larger than the limits. No exchange begins then.
///
/// [`answer`]: super::answer()
pub fn offer(
    from: Leg<'_>,
    to: Leg<'_>,
    offer: &Sdp<'_>,
    place: &mut dyn FnMut(usize) -> Option<LocalStream>,
) -> Result<Vec<u8>, Refusal> {
    let streams = described_streams(offer);
    let passing = passing(&streams, from.policy, to.policy)?;
    from.state.receive(offer)?;
    let written = write_offer(from.state, to, offer, &streams, &passing, place);
    if written.is_err() {
        from.state.refuse_offer();
    }
    written
}

/// Makes the offer to a leg from the agreed description of the peer of `from`, for a party that replaces another (RFC 3891),
/// after [`LegState::unpair`]. A direction that the other side's hold narrowed is wide again. The answer goes to
/// [`LegState::receive_answer`].
///
/// # Errors
/// No stream can pass, or nothing was agreed.
pub fn offer_agreed(
    from: Leg<'_>,
    to: Leg<'_>,
    place: &mut dyn FnMut(usize) -> Option<LocalStream>,
) -> Result<Vec<u8>, Refusal> {
    let (local, remote) = (from.state.local().to_vec(), from.state.remote().to_vec());
    let (Ok(local), Ok(remote)) = (Sdp::parse(&local), Sdp::parse(&remote)) else { return Err(Refusal::NoOffer) };
    let mut streams = described_streams(&remote);
    if from.state.has_offered() {
        for (stream, ours) in streams.iter_mut().zip(described_streams(&local)) {
            if let (Some(stream), Some(ours)) = (stream, ours) {
                let (theirs, offered) = (stream.direction, ours.direction);
                let sends = theirs.sends() || !offered.receives();
                stream.direction = Direction::from_parts(sends, theirs.receives() || !offered.sends());
            }
        }
    }
    let passing = passing(&streams, from.policy, to.policy)?;
    write_offer(from.state, to, &remote, &streams, &passing, place)
}

/// Returns for each stream the formats that pass, none for a stream without RTP; `None` for a stream that does not pass.
///
/// # Errors
/// Streams are active, and none passes.
fn passing<'a>(
    streams: &[Option<DescribedStream<'_, 'a>>],
    from: &LegPolicy,
    to: &LegPolicy,
) -> Result<Vec<Option<Vec<DescribedFormat<'a>>>>, Refusal> {
    let passing = streams.iter().map(|stream| passing_formats(stream.as_ref()?, from, to));
    let passing: Vec<_> = passing.collect();
    let is_any_active = streams.iter().flatten().any(|stream| stream.is_active());
    if is_any_active && passing.iter().all(|formats| formats.is_none()) {
        return Err(Refusal::NothingInCommon);
    }
    Ok(passing)
}

fn passing_formats<'a>(
    stream: &DescribedStream<'_, 'a>,
    from: &LegPolicy,
    to: &LegPolicy,
) -> Option<Vec<DescribedFormat<'a>>> {
    if !stream.is_active() || !from.admits(stream) || !to.admits(stream) {
        return None;
    }
    let formats = to.ordered(stream, from.admitted(stream, stream.formats.clone()));
    let has_media = match stream.protocol {
        Protocol::Rtp if stream.is_audio() => has_sound(&formats),
        Protocol::Rtp => !formats.is_empty(),
        _ => true,
    };
    has_media.then_some(formats)
}

fn write_offer<'a>(
    from: &mut LegState,
    to: Leg<'_>,
    offer: &Sdp<'a>,
    streams: &[Option<DescribedStream<'_, 'a>>],
    passing: &[Option<Vec<DescribedFormat<'a>>>],
    place: &mut dyn FnMut(usize) -> Option<LocalStream>,
) -> Result<Vec<u8>, Refusal> {
    let agreed = leg_streams(to.state);
    let pairs = paired(from, to.state, streams, passing);
    let mut slots = std::mem::take(&mut to.state.slots);
    let mut written: Vec<Option<WrittenStream<'a>>> = slots.iter().map(|_| None).collect();
    let mut lacks_ports = false;
    for ((stream, formats), index) in streams.iter().zip(passing).zip(pairs) {
        let (Some(stream), Some(formats), Some(index)) = (stream, formats, index) else { continue };
        let Some(local) = place(index) else {
            lacks_ports = true;
            continue;
        };
        let was_muxed = agreed.get(index).and_then(Option::as_ref).is_some_and(|agreed| agreed.has_rtcp_mux);
        written[index] = offered_stream(stream, formats, &mut slots[index], local).map(|written| WrittenStream {
            has_rtcp_mux: stream.protocol == Protocol::Rtp && (was_muxed || to.policy.has_rtcp_mux),
            ..written
        });
    }
    let text = if lacks_ports && written.iter().all(|stream| stream.is_none()) {
        Err(Refusal::NoPorts)
    } else {
        let lines = slots.iter().zip(written).map(|(slot, stream)| match stream {
            Some(stream) => WrittenLine::Stream(stream),
            None => WrittenLine::Refused(Media::new(&slot.media, 0, &slot.protocol, &slot.format)),
        });
        let lines: Vec<_> = lines.collect();
        Ok(to.state.write(&[], &passing_bandwidths(offer.session()), &lines))
    };
    to.state.slots = slots;
    text
}

/// Pairs the streams of `from` that pass with streams of `to`. Returns their places in `to`; `None` for a stream that never
/// passed, or if the leg has no room.
fn paired(
    from: &mut LegState,
    to: &mut LegState,
    streams: &[Option<DescribedStream<'_, '_>>],
    passing: &[Option<Vec<DescribedFormat<'_>>>],
) -> Vec<Option<usize>> {
    let mut places = Vec::with_capacity(streams.len());
    for ((own, slot), (stream, formats)) in (0u8..).zip(&mut from.slots).zip(streams.iter().zip(passing)) {
        // The other leg may be new: the call goes to another target after a failed one.
        let is_pair = |place: &u8| to.slots.get(usize::from(*place)).is_some_and(|pair| pair.other == Some(own));
        slot.other = slot.other.filter(is_pair);
        if slot.other.is_none()
            && formats.is_some()
            && let Some(stream) = stream
        {
            slot.other = free_slot(to, stream.media.kind);
        }
        let place = slot.other.map(usize::from);
        if let Some(place) = place {
            to.slots[place].other = Some(own);
        }
        places.push(place);
    }
    places
}

/// Returns the place of an unpaired stream of this media type, else of a new one; `None` if the leg has no room.
fn free_slot(to: &mut LegState, media: &[u8]) -> Option<u8> {
    let is_free = |slot: &Slot| slot.other.is_none() && slot.media.eq_ignore_ascii_case(media);
    let place = to.slots.iter().position(is_free).unwrap_or(to.slots.len());
    if place == MAX_STREAMS {
        return None;
    }
    if place == to.slots.len() {
        to.slots.push(Slot::new(media, b"RTP/AVP", b"0"));
    }
    u8::try_from(place).ok()
}

/// Creates a stream of our offer; `None` if no payload type is left for its formats.
fn offered_stream<'a>(
    stream: &DescribedStream<'_, 'a>,
    formats: &[DescribedFormat<'a>],
    slot: &mut Slot,
    local: LocalStream,
) -> Option<WrittenStream<'a>> {
    let (protocol, first, formats): (&'a [u8], Vec<u8>, WrittenFormats<'a>) = if stream.protocol == Protocol::Rtp {
        let numbered = slot.numbered(formats);
        numbered.iter().for_each(|format| slot.bind(format));
        let first = numbered.first()?.codec.payload.to_string().into_bytes();
        // Each leg has a profile of its own: that of its first offer.
        let is_avpf = slot.protocol.eq_ignore_ascii_case(b"RTP/AVPF");
        let protocol: &'static [u8] = if is_avpf { b"RTP/AVPF" } else { b"RTP/AVP" };
        (protocol, first, WrittenFormats::Rtp(numbered.iter().map(|format| format.codec).collect()))
    } else {
        let formats: Vec<&'a [u8]> = stream.media.formats().collect();
        let first = formats.first()?.to_vec();
        (stream.media.protocol, first, WrittenFormats::Unread(formats, unread_attributes(stream)))
    };
    slot.describe(stream.media.kind, protocol, Some(&first));
    Some(WrittenStream {
        media: stream.media.kind,
        protocol,
        address: local.address,
        port: local.port,
        formats,
        direction: stream.direction,
        has_rtcp_mux: false,
        ptime: stream.section.ptime(),
        maxptime: stream.section.maxptime(),
        bandwidths: passing_bandwidths(stream.section),
    })
}

/// Returns the bandwidths that pass: those of media. Those of RTCP (RFC 3556) belong to a leg.
pub(super) fn passing_bandwidths<'a>(section: Section<'_, 'a>) -> Vec<Bandwidth<'a>> {
    section.bandwidths().filter(|bandwidth| matches!(bandwidth.kind, b"AS" | b"CT" | b"TIAS")).collect()
}

/// Returns the attributes of a stream whose packets pass unread. They name no address and no port.
pub(super) fn unread_attributes<'a>(stream: &DescribedStream<'_, 'a>) -> Vec<Attribute<'a>> {
    let passes = |name: &[u8]| match stream.protocol {
        Protocol::SecureRtp => matches!(name, b"rtpmap" | b"fmtp" | b"crypto"),
        // T.38 annex D, RFC 8856.
        Protocol::Datagram => {
            name.starts_with(b"T38") || matches!(name, b"floorctrl" | b"confid" | b"userid" | b"floorid")
        }
        Protocol::Rtp | Protocol::Other => false,
    };
    stream.section.attributes().filter(|attribute| passes(attribute.name)).collect()
}
