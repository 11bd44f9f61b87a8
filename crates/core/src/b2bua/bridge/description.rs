//! Descriptions of a pair: offers and answers of one leg, made from those of the other.

use strowger_message::sdp::Sdp;

use super::pair::{Leg, LegMedia, Pair, Side};
use crate::b2bua::negotiation::{self, LocalStream, stream_addresses};

/// Status for a description that cannot be read.
const UNREADABLE: u16 = 488;

impl Leg {
    /// Returns the parts of the leg for an exchange, and its places.
    fn lend(&mut self) -> (negotiation::Leg<'_>, impl FnMut(usize) -> Option<LocalStream> + use<>) {
        lend(&mut self.media)
    }
}

fn lend(media: &mut LegMedia) -> (negotiation::Leg<'_>, impl FnMut(usize) -> Option<LocalStream> + use<>) {
    let places = media.places.clone();
    let leg = negotiation::Leg { state: &mut media.state, policy: &media.policy };
    (leg, move |index| places.get(index).copied())
}

impl Pair {
    /// Makes the offer to the other side from the offer of the side `from`.
    ///
    /// # Errors
    /// Status that refuses the offer.
    pub(super) fn offer(&mut self, from: Side, text: &[u8]) -> Result<Vec<u8>, u16> {
        let sdp = Sdp::parse(text).map_err(|_| UNREADABLE)?;
        let (from, to) = self.legs(from);
        let ((from, _), (to, mut places)) = (from.lend(), to.lend());
        negotiation::offer(from, to, &sdp, &mut places).map_err(|refusal| refusal.status())
    }

    /// Makes the answer to the side `offerer` from the answer of the other side.
    ///
    /// # Errors
    /// Status that refuses the offer of `offerer`.
    pub(super) fn answer(&mut self, offerer: Side, text: &[u8]) -> Result<Vec<u8>, u16> {
        let sdp = Sdp::parse(text).map_err(|_| UNREADABLE)?;
        let (offerer, answerer) = self.legs(offerer);
        let (offerer, mut places) = offerer.lend();
        negotiation::answer(offerer, &mut answerer.media.state, &sdp, &mut places).map_err(|refusal| refusal.status())
    }

    /// Makes the answer to an offer that changes nothing for the other side, from the agreed description of that side; `None` if it changes
    /// something, and then no state has changed. So a session refresh (RFC 4028 section 7.4) stays on its leg.
    pub(super) fn unchanged_answer(&mut self, from: Side, text: &[u8]) -> Option<Vec<u8>> {
        let sdp = Sdp::parse(text).ok()?;
        let (from, to) = self.legs(from);
        if to.media.state.local().is_empty() || to.media.state.remote().is_empty() {
            return None;
        }
        let (mut offerer, mut answerer) = (from.media.clone(), to.media.clone());
        let ((offering, _), (answering, mut places)) = (lend(&mut offerer), lend(&mut answerer));
        let offer = negotiation::offer(offering, answering, &sdp, &mut places).ok()?;
        if offer != to.media.state.local() {
            return None;
        }
        let agreed = to.media.state.remote().to_vec();
        let (offering, mut places) = lend(&mut offerer);
        let answer = Sdp::parse(&agreed).ok()?;
        let answer = negotiation::answer(offering, &mut answerer.state, &answer, &mut places).ok()?;
        from.media.state = offerer.state;
        to.media.state = answerer.state;
        Some(answer)
    }

    /// Makes an offer to a side from the agreed description of the other side; `None` if the side has this description already,
    /// or the two descriptions do not fit.
    pub(super) fn renewed_offer(&mut self, to: Side) -> Option<Vec<u8>> {
        let (to, from) = self.legs(to);
        let mut media = to.media.clone();
        let ((from, _), (own, mut places)) = (from.lend(), lend(&mut media));
        let offer = negotiation::offer_agreed(from, own, &mut places).ok()?;
        if offer == to.media.state.local() {
            return None;
        }
        to.media.state = media.state;
        Some(offer)
    }

    /// Tells whether an offer moves a stream to another address family (IPv4, IPv6), and that is not the family of the stream's
    /// address on this server.
    pub(super) fn has_other_family(&self, side: Side, text: &[u8]) -> bool {
        let media = &self.leg(side).media;
        let (Ok(offer), Ok(agreed)) = (Sdp::parse(text), Sdp::parse(media.state.remote())) else { return false };
        let moves = stream_addresses(&offer).into_iter().zip(stream_addresses(&agreed));
        moves.zip(media.places.iter()).any(|((new, old), place)| {
            let (Some(new), Some(old)) = (new, old) else { return false };
            new.is_ipv4() != old.is_ipv4() && new.is_ipv4() != place.address.is_ipv4()
        })
    }

    /// Tells whether a side has agreed a description of its own.
    pub(super) fn has_agreed(&self, side: Side) -> bool {
        !self.leg(side).media.state.remote().is_empty()
    }

    /// Notes an answer of a side that is not passed on.
    pub(super) fn note_answer(&mut self, side: Side, text: &[u8]) -> bool {
        let Ok(sdp) = Sdp::parse(text) else { return false };
        self.leg_mut(side).media.state.receive_answer(&sdp).is_ok()
    }
}
