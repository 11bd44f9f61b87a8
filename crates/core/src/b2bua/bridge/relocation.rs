//! Other places of the streams of a pair that is up: the bridge offers them to both sides, one after the other.

use std::sync::Arc;

use super::{Bridge, PairKey};
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
    /// before. If a side refuses them, [`super::BridgeEvent::Stranded`] follows; without an answer in time the pair ends.
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
