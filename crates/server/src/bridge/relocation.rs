//! Bridged calls whose media ports another program has taken between two processes: other ports, and re-INVITEs about them.
//!
//! The new ports are of the same families of addresses as the old ones. Their session opens at once; the parties get the new description one after
//! the other ([`Bridge::relocate`]). If a party refuses it, or no port is free, the call ends with BYE on both sides.
//!
//! [`Bridge::relocate`]: strowger_core::b2bua::bridge::Bridge::relocate

use super::{BridgedCall, Bridges};
use crate::engine::{Anchored, Engine};
use crate::media_sessions::{ORDERED, SessionPorts, is_of_family, local_stream};
use std::sync::Arc;
use strowger_config::Media;
use strowger_core::b2bua::bridge::PairKey;
use strowger_core::b2bua::negotiation::LocalStream;
use strowger_core::shown::shown;
use strowger_core::{Now, Outbox};
use strowger_media::session::{PortPair, SessionKey};

impl Bridges {
    /// Notes that the ports of a session could not be bound: its call gets others.
    pub(crate) fn lose_ports(&mut self, session: SessionKey) {
        let Some(pair) = self.pair_of_session(session) else { return };
        let Some(call) = self.calls.get_mut(&pair) else { return };
        call.session.lose_ports();
        // The NAT of a party may have another port towards other ports of this server.
        call.near.heard.clear();
        call.far.heard.clear();
        self.portless.insert(pair);
    }
}

impl BridgedCall {
    /// Returns the places of these ports in the descriptions of both legs; `None` if an address is not configured.
    fn places_of(&self, media: &Media, ports: &SessionPorts) -> Option<[Arc<[LocalStream]>; 2]> {
        let place = |pair: &PortPair| local_stream(media, *pair);
        let near: Vec<LocalStream> = ports.near.iter().map(place).collect::<Option<_>>()?;
        let far: Vec<LocalStream> = ports.far.iter().map(place).collect::<Option<_>>()?;
        let of_streams = self.near_places.iter().filter_map(|position| near.get(usize::from(*position)).copied());
        Some([of_streams.collect(), far.into()])
    }
}

impl Engine {
    /// Gives ports to the calls that have lost theirs. If too few are free, a call waits for the next lent ones; if none are to come, it ends.
    pub(crate) fn place_portless(&mut self, now: Now, out: &mut Outbox) {
        for pair in std::mem::take(&mut self.anchored.bridges.portless) {
            let Some(call) = self.anchored.bridges.calls.get(&pair).filter(|call| call.session.lacks_ports()) else {
                continue;
            };
            let key = call.key;
            if self.relocate(now, pair, out) {
                continue;
            }
            if self.anchored.media.ports.awaits_more() {
                self.anchored.bridges.portless.insert(pair);
            } else {
                self.end_unplaced(now, (pair, key), out);
            }
        }
    }

    /// Ends a call whose parties cannot get or do not take other ports.
    pub(super) fn end_unplaced(&mut self, now: Now, (pair, key): (PairKey, Option<u64>), out: &mut Outbox) {
        match key {
            Some(key) => self.end_carried(now, key, out),
            None => self.end_pair(now, pair, (480, ORDERED), out),
        }
    }

    /// Takes ports for a call without ports, opens its session there, and tells both parties. Returns false if too few ports are free.
    fn relocate(&mut self, now: Now, pair: PairKey, out: &mut Outbox) -> bool {
        let Self { anchored: Anchored { bridges, media: sessions, .. }, policy, effects, stack, calls, .. } = self;
        let media = &policy.config.media;
        let (Some([near, far]), Some(call)) = (bridges.bridge.places(pair), bridges.calls.get_mut(&pair)) else {
            return false;
        };
        let is_ipv4 = |places: &[LocalStream]| places.first().is_none_or(|place| place.address.is_ipv4());
        let (streams, near, far) = (far.len(), is_ipv4(near), is_ipv4(far));
        let taken = sessions.ports.take_legs(
            streams,
            |place| is_of_family(media, place, near),
            |place| is_of_family(media, place, far),
        );
        let Some(ports) = taken else { return false };
        let Some(places) = call.places_of(media, &ports) else {
            sessions.put_back(ports);
            return false;
        };
        let (near, far) = (ports.near.first().map(|ports| ports.rtp), ports.far.first().map(|ports| ports.rtp));
        tracing::info!(far_call_id = %shown(&call.far_call_id), near, far, "ports of a kept call are taken: its parties get others");
        call.session.move_to(ports);
        effects.extend(call.order(policy));
        call.key.into_iter().for_each(|key| calls.has_changed(key));
        stack.with_agent(now, out, |agent, round| bridges.bridge.relocate(agent, round, pair, places));
        self.take_bridge_events(now, out);
        true
    }
}
