//! Other places of the streams of a pair that is up: the bridge offers them to both sides, one after the other.

use std::sync::Arc;

use super::pair::{Pair, Side, Stage};
use super::{Bridge, BridgeEvent, Context, PairKey};
use crate::Round;
use crate::b2bua::negotiation::LocalStream;
use crate::user_agent::UserAgent;

impl Bridge {
    /// Returns the places of the streams of the near and of the far leg.
    pub fn places(&self, pair: PairKey) -> Option<[&[LocalStream]; 2]> {
        self.pairs.get(pair.0).map(|pair| [&*pair.near.media.places, &*pair.far.media.places])
    }

    /// Gives the streams of the near and of the far leg other places, and offers these to both sides by re-INVITEs, that of the far side after
    /// the answer of the near one. The pair must be up, as after [`Bridge::keep`], and the places of the same families of addresses as those
    /// before. If a side refuses them, [`BridgeEvent::Stranded`] follows; without an answer in time the pair ends.
    pub fn relocate(
        &mut self,
        agent: &mut UserAgent,
        round: &mut Round<'_>,
        pair: PairKey,
        places: [Arc<[LocalStream]>; 2],
    ) {
        self.with(agent, round, pair.0, |pair, cx| {
            for (leg, places) in [&mut pair.near, &mut pair.far].into_iter().zip(places) {
                if let Some(place) = places.first() {
                    leg.media.state.move_to(place.address);
                }
                leg.media.places = places;
                leg.is_displaced = true;
            }
            pair.renew_displaced(cx);
        });
    }
}

impl Pair {
    /// Offers a side the present places of its streams if it has not agreed to them, and no exchange is open.
    pub(super) fn renew_displaced(&mut self, cx: &mut Context<'_, '_>) {
        for side in [Side::Near, Side::Far] {
            let is_free = self.exchange.is_none() && self.waiting.is_empty() && self.renewal.is_none();
            if !is_free || self.stage != Stage::Up || !self.leg(side).is_displaced {
                continue;
            }
            self.renew(cx, side);
            // Without an offer that is open or due, the side has got the places in an exchange of its own.
            self.leg_mut(side).is_displaced = self.exchange.is_some() || self.renewal.is_some();
        }
    }

    /// Notes that no side is to be offered the present places any more.
    pub(super) fn note_placed(&mut self) {
        (self.near.is_displaced, self.far.is_displaced) = (false, false);
    }

    /// Notes the result of an offer of the bridge's own to a side. Tells the owner if a side refuses other places.
    pub(super) fn renewed(&mut self, cx: &mut Context<'_, '_>, side: Side, is_agreed: bool) {
        if std::mem::take(&mut self.leg_mut(side).is_displaced) && !is_agreed {
            // The owner ends the pair: the other side gets no offer.
            self.note_placed();
            cx.events.push_back(BridgeEvent::Stranded { pair: PairKey(cx.id) });
        }
    }
}
