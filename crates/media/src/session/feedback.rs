//! Feedback that a relay carries over: requests of a peer to the sender of its stream (RFC 4585, RFC 5104), with the SSRCs and sequence numbers of
//! the other leg. Without feedback video freezes: a decoder that has lost a packet waits for a whole picture.

use super::SessionOutput;
use super::leg::Leg;
use super::packet_rate::PacketRate;
use crate::rtcp::{self, CompoundWriter, PAYLOAD_FEEDBACK, RtcpPacket, TRANSPORT_FEEDBACK};

/// Format of transport feedback: generic NACK (RFC 4585 section 6.2.1).
const NACK: u8 = 1;

/// Format of payload-specific feedback: picture loss indication (RFC 4585 section 6.3.1).
const PICTURE_LOSS: u8 = 1;

/// Format of payload-specific feedback: full intra request (RFC 5104 section 4.3.1).
const FULL_INTRA: u8 = 4;

/// Request about packets that this server has sent to the peer.
#[derive(Clone, Copy, Debug)]
enum Request<'a> {
    /// Entries of lost packets: a sequence number, and a bit for each of the next 16.
    Lost(&'a [[u8; 4]]),
    PictureLoss,
    /// Sequence number of the request.
    FullIntra(u8),
}

/// Sends the requests of a compound packet, which was accepted from a peer at `now`, in microseconds, to the other peer.
pub(super) fn carry_over(
    now: u64,
    datagram: &[u8],
    from: &Leg,
    (to, name): (&mut Leg, &[u8]),
    rate: &mut PacketRate,
    out: &mut SessionOutput,
) {
    if requests(datagram, from).next().is_none() || !rate.admits(now) {
        return;
    }
    to.send_feedback(now, name, out, |writer, own| {
        requests(datagram, from).for_each(|request| write(writer, own, request, from));
    });
}

/// Returns the requests in a datagram that are about the packets to this peer.
fn requests<'a>(datagram: &'a [u8], leg: &'a Leg) -> impl Iterator<Item = Request<'a>> {
    rtcp::read(datagram).flatten().filter_map(move |packet| match packet {
        RtcpPacket::Other { packet_type, count, body } => request(packet_type, count, body, leg),
        _ => None,
    })
}

fn request<'a>(packet_type: u8, format: u8, body: &'a [u8], leg: &Leg) -> Option<Request<'a>> {
    // SSRC of the packet sender, then SSRC of the media source (RFC 4585 section 6.1).
    let (_, rest) = body.split_first_chunk::<4>()?;
    let (source, control) = rest.split_first_chunk::<4>()?;
    let is_ours = |source: [u8; 4]| leg.original(u32::from_be_bytes(source), 0).is_some();
    match (packet_type, format) {
        (TRANSPORT_FEEDBACK, NACK) => Some(Request::Lost(control.as_chunks().0)).filter(|_| is_ours(*source)),
        (PAYLOAD_FEEDBACK, PICTURE_LOSS) => Some(Request::PictureLoss).filter(|_| is_ours(*source)),
        (PAYLOAD_FEEDBACK, FULL_INTRA) => {
            let mut entries = control.as_chunks::<8>().0.iter();
            let entry = entries.find(|[a, b, c, d, ..]| is_ours([*a, *b, *c, *d]))?;
            Some(Request::FullIntra(entry[4]))
        }
        _ => None,
    }
}

/// Writes a request about the packets that this server has sent with the headers of `leg`. `own`: SSRC of the writer.
fn write(writer: &mut CompoundWriter<'_>, own: u32, request: Request<'_>, leg: &Leg) {
    let Some((source, _)) = leg.original(leg.source(), 0) else { return };
    match request {
        Request::Lost(entries) => writer.feedback(TRANSPORT_FEEDBACK, NACK, (own, source), |out| {
            for [high, low, next @ ..] in entries {
                let lost = u16::from_be_bytes([*high, *low]);
                let (_, lost) = leg.original(leg.source(), lost).unwrap_or_default();
                out.extend(lost.to_be_bytes());
                out.extend(next);
            }
        }),
        Request::PictureLoss => writer.feedback(PAYLOAD_FEEDBACK, PICTURE_LOSS, (own, source), |_| ()),
        Request::FullIntra(number) => writer.feedback(PAYLOAD_FEEDBACK, FULL_INTRA, (own, 0), |out| {
            out.extend(source.to_be_bytes());
            out.extend([number, 0, 0, 0]);
        }),
    };
}
