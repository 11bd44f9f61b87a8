//! Negotiation of media between the legs of a call, or between one leg and an endpoint of this server (RFC 3264).
//!
//! Each leg has a [`LegState`], and each function is pure: states and the received description in, states and the
//! description to send out. Nothing waits, and there is no clock or random number; ports come from the caller.
//!
//! No description is an edited copy: each is written with the origin, version, addresses and payload types of its own leg. From the other
//! leg it takes values alone: media types, names of formats and their parameters, directions, packet times, bandwidths.
//!
//! | file | subject |
//! |---|---|
//! | `offer.rs`, [`offer()`], [`offer_agreed`]; `answer.rs`, [`answer()`] | one leg from the other |
//! | `policy.rs`, [`LegPolicy`] | formats and streams that pass |
//! | `leg.rs`, [`LegState`]; `slot.rs` | state of a leg: origin and version, agreed descriptions; payload types of its streams |
//! | `endpoint.rs`, [`endpoint_answer`], [`endpoint_offer`] | echo, tone, announcement, recording |
//! | `agreed.rs`, [`AgreedStream`] | streams for the media session |
//! | `stream.rs`, `format.rs` | streams and formats of a received description |
//! | `written.rs` | text of our descriptions |

mod agreed;
mod answer;
mod endpoint;
mod format;
mod leg;
mod offer;
mod policy;
mod slot;
mod stream;
mod written;

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

pub use agreed::{AgreedFormat, AgreedStream, BridgedStream, StreamTransport, bridged_streams};
pub use answer::answer;
pub use endpoint::{EndpointAnswer, endpoint_answer, endpoint_answered, endpoint_offer, endpoint_streams};
pub use leg::LegState;
pub use offer::{Leg, offer, offer_agreed};
pub use policy::{CodecName, LegPolicy};
pub use stream::stream_addresses;

/// Most streams of a description. A call with more of them is refused.
pub const MAX_STREAMS: usize = 16;

/// Longest description in bytes, since a leg keeps its descriptions.
pub const MAX_DESCRIPTION: usize = 16 * 1024;

/// Place at which this server receives a stream, as peers reach it: its public address and port. RTCP has the next port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalStream {
    /// Address for `c=`.
    pub address: IpAddr,
    /// Port for `m=`, 1 to 65,534.
    pub port: u16,
}

/// Reason to refuse a description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// No stream of the offer has a protocol and a format that both sides and the policy allow.
    NothingInCommon,
    /// No port is free for any stream.
    NoPorts,
    /// More than [`MAX_STREAMS`] streams, or longer than [`MAX_DESCRIPTION`].
    TooLarge,
    /// An answer is wanted where no offer is open.
    NoOffer,
}

impl Refusal {
    /// Returns the status code that refuses a request with such an offer: 488, 503, 413 or 500.
    pub const fn status(self) -> u16 {
        match self {
            Self::NothingInCommon => 488,
            Self::NoPorts => 503,
            Self::TooLarge => 413,
            Self::NoOffer => 500,
        }
    }
}
