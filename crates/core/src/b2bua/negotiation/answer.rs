//! Answer to one leg from the answer of the other (RFC 3264 section 6).

use std::collections::BTreeSet;

use strowger_message::sdp::{Codec, Direction, Sdp, Timing};

use super::agreed::{LegStream, StreamTransport, leg_streams};
use super::format::DescribedFormat;
use super::leg::LegState;
use super::offer::{Leg, passing_bandwidths, unread_attributes};
use super::policy::LegPolicy;
use super::stream::{DescribedStream, Protocol, described_streams};
use super::written::{WrittenFormats, WrittenLine, WrittenStream};
use super::{LocalStream, Refusal};

/// Makes the answer to the peer of `offerer` from the answer to the offer that [`offer`] made for the leg `answerer`. `place`
/// gives the place of a stream of `offerer`, by the index of its `m=` line, as in [`offer`].
///
/// The answer has one `m=` line for each line of the offer. Its formats are formats of that offer which the other peer
/// accepted, with the offer's payload types and in its order, or in that of the policy; with the other peer's parameters.
/// Directions are those of the other peer as far as the offer allows them. Lines that the other peer's answer lacks are refused.
///
/// A later answer to the same offer, such as one in a 200 after one in a 183, is made in the same way.
///
/// # Errors
/// No offer is open, or the answer is larger than the limits.
///
/// [`offer`]: super::offer()
pub fn answer(
    offerer: Leg<'_>,
    answerer: &mut LegState,
    answer: &Sdp<'_>,
    place: &mut dyn FnMut(usize) -> Option<LocalStream>,
) -> Result<Vec<u8>, Refusal> {
    let text = offerer.state.offer_to_answer().ok_or(Refusal::NoOffer)?;
    let offer = Sdp::parse(&text).map_err(|_| Refusal::NoOffer)?;
    answerer.receive_answer(answer)?;
    let accepted = leg_streams(answerer);
    let others = described_streams(answer);
    let mut lines = Vec::with_capacity(offer.media_count());
    for ((index, section), offered) in offer.all_media().enumerate().zip(described_streams(&offer)) {
        let other = offerer.state.slots.get(index).and_then(|slot| slot.other).map(usize::from);
        let line = offered.as_ref().and_then(|offered| {
            let other = other?;
            let accepted = accepted.get(other)?.as_ref()?;
            let answered = others.get(other)?.as_ref()?;
            answered_stream(offered, accepted, answered, offerer.policy, || place(index))
        });
        lines.push(line.map_or_else(|| WrittenLine::Refused(section.refused()), WrittenLine::Stream));
    }
    let timings: Vec<Timing> = offer.timings().collect();
    let description = offerer.state.write(&timings, &passing_bandwidths(answer.session()), &lines);
    offerer.state.agree_local(text.clone());
    Ok(description)
}

/// Creates a stream of our answer; `None` if it is refused.
fn answered_stream<'a>(
    offered: &DescribedStream<'_, 'a>,
    accepted: &'a LegStream,
    answered: &DescribedStream<'_, 'a>,
    policy: &LegPolicy,
    place: impl FnOnce() -> Option<LocalStream>,
) -> Option<WrittenStream<'a>> {
    let is_rtp = offered.protocol == Protocol::Rtp;
    let has_same_transport = is_rtp == (accepted.stream.transport == StreamTransport::Rtp);
    if !offered.is_active() || !has_same_transport {
        return None;
    }
    let formats = if is_rtp {
        let formats = policy.ordered(offered, accepted_formats(offered, accepted));
        WrittenFormats::Rtp(formats.iter().map(|format| format.codec).collect())
    } else {
        WrittenFormats::Unread(unread_formats(offered, answered), unread_attributes(answered))
    };
    if formats.is_empty() {
        return None;
    }
    let local = place()?;
    let wish = Direction::from_parts(accepted.stream.sends, accepted.stream.receives);
    Some(WrittenStream {
        media: offered.media.kind,
        protocol: offered.media.protocol,
        address: local.address,
        port: local.port,
        formats,
        direction: offered.direction.answered(wish),
        has_rtcp_mux: is_rtp && offered.has_rtcp_mux,
        ptime: answered.section.ptime(),
        maxptime: answered.section.maxptime(),
        bandwidths: passing_bandwidths(answered.section),
    })
}

/// Returns the formats of an answer that are in its offer. Names compare in any case: `t38`, `T38`.
fn unread_formats<'a>(offered: &DescribedStream<'_, '_>, answered: &DescribedStream<'_, 'a>) -> Vec<&'a [u8]> {
    let known: BTreeSet<_> = offered.media.formats().map(<[u8]>::to_ascii_lowercase).collect();
    answered.media.formats().filter(|format| known.contains(&format.to_ascii_lowercase())).collect()
}

/// Returns the formats of the offer that the other peer accepted, with the other peer's parameters.
fn accepted_formats<'a>(offered: &DescribedStream<'_, 'a>, accepted: &'a LegStream) -> Vec<DescribedFormat<'a>> {
    let format = |offered: &DescribedFormat<'a>| {
        let accepted = accepted.formats.iter().find(|format| format.key == offered.key)?;
        let codec = Codec { parameters: accepted.parameters.as_deref(), ..offered.codec };
        Some(DescribedFormat { codec, key: offered.key.clone() })
    };
    offered.formats.iter().filter_map(format).collect()
}
