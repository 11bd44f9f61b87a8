//! Negotiation of the media of two legs, and of endpoints (RFC 3264).

mod addresses;
mod directions;
mod endpoints;
mod legs;
mod payload_types;
mod properties;
mod streams;
mod versions;

use strowger_core::b2bua::negotiation::{
    BridgedStream, Leg, LegPolicy, LegState, LocalStream, Refusal, answer, bridged_streams, offer,
};
use strowger_message::sdp::{Direction, Sdp};

/// Lines of the near peer's descriptions before the streams.
const NEAR: &str = "v=0\r\no=alice 1 1 IN IP4 192.0.2.77\r\ns=inside\r\nc=IN IP4 192.0.2.77\r\nt=0 0\r\n";
/// Lines of the far peer's descriptions before the streams.
const FAR: &str = "v=0\r\no=bob 2 2 IN IP6 2001:db8:f::1\r\ns=-\r\nc=IN IP6 2001:db8:f::1\r\nt=0 0\r\n";
/// Lines of our descriptions to the far peer before the streams, version 1.
const TO_FAR: &str = "v=0\r\no=- 8 1 IN IP6 2001:db8::9\r\ns=-\r\nc=IN IP6 2001:db8::9\r\nt=0 0\r\n";
/// Lines of our descriptions to the near peer before the streams, version 1.
const TO_NEAR: &str = "v=0\r\no=- 7 1 IN IP4 198.51.100.9\r\ns=-\r\nc=IN IP4 198.51.100.9\r\nt=0 0\r\n";

/// Both legs of a call, with ports for each stream.
#[derive(Clone)]
struct Bridge {
    near: LegState,
    far: LegState,
    near_policy: LegPolicy,
    far_policy: LegPolicy,
    /// Streams for which a leg has ports.
    ports: usize,
}

impl Bridge {
    fn new() -> Self {
        Self {
            near: LegState::new(7, "198.51.100.9".parse().expect("an address")),
            far: LegState::new(8, "2001:db8::9".parse().expect("an address")),
            near_policy: LegPolicy::default(),
            far_policy: LegPolicy::default(),
            ports: 16,
        }
    }

    /// Allows media types beside audio on both legs.
    fn with_media_types(mut self, names: &[&str]) -> Self {
        let names: Vec<Box<str>> = names.iter().map(|name| (*name).into()).collect();
        self.near_policy.media_types.clone_from(&names);
        self.far_policy.media_types = names;
        self
    }

    /// Returns our offer to the far peer for an offer of the near peer, or the other way round.
    fn offer(&mut self, is_from_near: bool, text: &str) -> Result<String, Refusal> {
        let offered = Sdp::parse(text.as_bytes()).expect("a description");
        let near = Leg { state: &mut self.near, policy: &self.near_policy };
        let far = Leg { state: &mut self.far, policy: &self.far_policy };
        let (from, to) = if is_from_near { (near, far) } else { (far, near) };
        let ports = self.ports;
        read(offer(from, to, &offered, &mut |index| place(!is_from_near, index).filter(|_| index < ports))?)
    }

    /// Returns our answer to the near peer for an answer of the far peer, or the other way round.
    fn answer(&mut self, is_to_near: bool, text: &str) -> Result<String, Refusal> {
        let answered = Sdp::parse(text.as_bytes()).expect("a description");
        let (offerer, answerer) = if is_to_near {
            (Leg { state: &mut self.near, policy: &self.near_policy }, &mut self.far)
        } else {
            (Leg { state: &mut self.far, policy: &self.far_policy }, &mut self.near)
        };
        read(answer(offerer, answerer, &answered, &mut |index| place(is_to_near, index))?)
    }

    /// The near peer offers and the far peer answers. Returns our offer and our answer.
    fn exchange(&mut self, offered: &str, answered: &str) -> (String, String) {
        let offer = self.offer(true, offered).expect("something in common");
        (offer, self.answer(true, answered).expect("an offer is open"))
    }

    fn streams(&self) -> Vec<Option<BridgedStream>> {
        bridged_streams(&self.near, &self.far)
    }
}

/// Returns the place of a stream of our near or far leg.
fn place(is_near: bool, index: usize) -> Option<LocalStream> {
    let (address, first) = if is_near { ("198.51.100.9", 20_000) } else { ("2001:db8::9", 30_000) };
    let port = first + 2 * u16::try_from(index).expect("a few streams");
    Some(LocalStream { address: address.parse().expect("an address"), port })
}

/// Returns the text of a description of ours, which a strict reader must accept.
fn read(text: Vec<u8>) -> Result<String, Refusal> {
    assert_eq!(Sdp::parse(&text).expect("own writing").check(), Ok(()));
    Ok(String::from_utf8(text).expect("ASCII"))
}

fn direction(text: &str) -> Direction {
    Sdp::parse(text.as_bytes()).expect("a description").direction_of(0)
}

/// Returns the payload types of the first stream.
fn payload_types(text: &str) -> Vec<u8> {
    let sdp = Sdp::parse(text.as_bytes()).expect("a description");
    sdp.media(0).and_then(|section| section.media()).expect("a stream").payloads().collect()
}
