//! Orders of an engine to media threads: ends of sessions, and ports.

use super::ports::Block;
use super::{SessionClose, is_of_family, offer_of};
use crate::effect::Effect;
use crate::engine::Engine;
use crate::reply::Reply;
use strowger_core::routing::Request;
use strowger_media::session::{SessionKey, SessionOrder};
use strowger_message::sdp::Sdp;

impl Engine {
    /// Tells whether a caller has its media by IPv4: by its offer, else by its source.
    ///
    /// # Errors
    /// No media address is of this family.
    pub(crate) fn media_family(&self, request: &Request<'_>) -> Result<bool, Reply> {
        let source = request.arrival.remote.ip().to_canonical();
        let is_ipv4 = offer_of(&request.message).and_then(offers_ipv4).unwrap_or_else(|| source.is_ipv4());
        if self.policy.config.media.addresses.iter().any(|own| own.public.is_ipv4() == is_ipv4) {
            return Ok(is_ipv4);
        }
        Err(Reply::refused(488).because("no address of [media] has the IP version of the caller"))
    }

    /// Ends the session of a call at its media thread; [`SessionEvent::Closed`](strowger_media::session::SessionEvent) answers the order. The
    /// rows of the call wait for its reports.
    pub(crate) fn close_session(&mut self, close: SessionClose) {
        match close {
            SessionClose::Open(closing) => {
                let order = SessionOrder::Close { key: SessionKey(closing.key) };
                self.effects.push(Effect::Media { thread: closing.ports.thread(), order });
                if let Some(call) = closing.call {
                    self.calls.await_media(call);
                }
                self.anchored.media.closing.insert(closing.key, closing);
            }
            SessionClose::Unopened(ports) => self.anchored.media.put_back(ports),
            SessionClose::Before => (),
        }
    }

    /// Asks for more media ports if few are free, or gives some of many back.
    pub(crate) fn balance_ports(&mut self) {
        let media = &self.policy.config.media;
        if !media.is_on() {
            return;
        }
        let has_family = |wanted: bool| media.addresses.iter().any(|own| own.public.is_ipv4() == wanted);
        let is_ipv4 = |place: u16| is_of_family(media, place, true);
        let is_ipv6 = |place: u16| !is_ipv4(place);
        let families: [&dyn Fn(u16) -> bool; 2] = [&is_ipv4, &is_ipv6];
        let families = match (has_family(true), has_family(false)) {
            (true, true) => &families[..],
            (true, false) => &families[..1],
            (false, _) => &families[1..],
        };
        let block = Block::of(media.calls(), self.shard.process_status.shards);
        self.anchored.media.ports.prefer(self.shard.media_threads.preferred);
        if let Some(order) = self.anchored.media.ports.balance(self.shard.number, block, families) {
            self.effects.push(Effect::Media { thread: None, order });
        }
    }
}

/// Tells whether the first stream of an offer is by IPv4; `None` if it has no readable stream.
fn offers_ipv4(offer: &[u8]) -> Option<bool> {
    let connection = Sdp::parse(offer).ok()?.connection_of(0)?;
    Some(connection.address_type == b"IP4")
}
