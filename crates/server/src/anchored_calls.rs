//! Calls with media over a restart: endpoints and bridged calls, whose dialogs this server has itself.
//!
//! The kept state of such a call has the state of its role beside that of the table ([`with_anchor`]): calls of the user agent, pair, far leg, media
//! session with its ports. It is written when the call is *at rest*: the dialogs are up, and no description is on its way. While one is, the state
//! before it stays, as if the change had not come yet: its transactions end with the process, and the party repeats its request. The next process
//! leaves out a range of CSeqs and a version of each description, because this one may use some of them after it wrote the state.
//!
//! The next process takes the calls over ([`Engine::take_over_media`]) and asks a media thread to bind the same ports. The session opens with the
//! answer, and its peers are where the process before has heard them. If the ports are gone, a bridged call gets others, which its parties learn by
//! re-INVITEs; a call of an endpoint ends. A process that keeps nothing ends its calls ([`Engine::end_unkept`]): this server is the other party.

use crate::bridge::BridgedRecord;
use crate::endpoint::EndpointRecord;
use crate::engine::{Effect, Engine};
use crate::far_leg::FarLegRecord;
use crate::media_sessions::{ORDERED, SessionPorts};
use crate::peer_names::{NoNames, PeerNames};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use strowger_calls::with_anchor;
use strowger_config::Media;
use strowger_core::record::{self, Names, Number, Recorded, Unreadable};
use strowger_core::routing::Identity;
use strowger_core::user_agent::{AgentRecord, UserAgent};
use strowger_core::{ListenerId, Now, Outbox, PeerName};
use strowger_media::session::{PortPair, SessionKey, SessionOrder};

/// State of the role of a call, for the next process.
#[derive(Debug, Serialize, Deserialize)]
struct AnchoredState {
    /// Milliseconds since 1970 at which it was written.
    written: u64,
    /// Ports of the near and of the far leg: public address, port of RTP.
    ports: [Vec<(IpAddr, u16)>; 2],
    agent: AgentRecord,
    endpoint: EndpointRecord,
    bridge: BridgedRecord,
    far_leg: FarLegRecord,
}

impl Recorded for AnchoredState {
    fn numbers(&mut self, show: &mut dyn FnMut(Number<'_>)) {
        self.agent.numbers(show);
        self.bridge.numbers(show);
        self.far_leg.numbers(show);
    }
}

impl AnchoredState {
    /// Tells whether all names that parties must prove are known: one that was forgotten has no meaning in another process.
    fn has_known_names(&mut self, names: &dyn PeerNames) -> bool {
        let mut are_known = true;
        self.numbers(&mut |number| {
            if let Number::Peer(name) = number {
                are_known &= names.text(*name).is_some();
            }
        });
        are_known
    }

    /// Returns the ports as ports of this media thread. An address that is not configured any more becomes one that no thread can bind.
    fn session_ports(&self, media: &Media, thread: u16) -> SessionPorts {
        let pair = |(address, rtp): &(IpAddr, u16)| {
            let place = media.addresses.iter().position(|own| own.public == *address);
            PortPair { thread, address: place.map_or(u16::MAX, |place| place as u16), rtp: *rtp }
        };
        let [near, far] = &self.ports;
        SessionPorts { near: near.iter().map(pair).collect(), far: far.iter().map(pair).collect() }
    }
}

/// Names of listeners by transport and bound address, and names of peers: each process has its own numbers for them.
struct ProcessNames<'a>(&'a Identity, &'a dyn PeerNames);

impl Names for ProcessNames<'_> {
    fn listener(&self, number: ListenerId) -> String {
        let listener = self.0.listener(number);
        format!("{}:{}", listener.transport.text(), listener.bound)
    }

    fn peer(&self, number: PeerName) -> String {
        self.1.text(number).map_or_else(String::new, |text| text.to_string())
    }

    fn listener_called(&self, name: &str) -> Option<ListenerId> {
        let mut numbers = (0..self.0.listeners().len()).map(|number| ListenerId(number as u16));
        numbers.find(|number| self.listener(*number) == name)
    }

    fn peer_called(&self, name: &str) -> PeerName {
        self.1.number(name)
    }
}

/// Returns the ports of a call, from the state of its role that an earlier process has left; none if the state is not readable.
pub fn kept_ports(identity: &Identity, media: &Media, state: &[u8]) -> Vec<PortPair> {
    let state = record::read::<AnchoredState>(state, &ProcessNames(identity, &NoNames));
    state.map(|state| state.session_ports(media, 0).all()).unwrap_or_default()
}

impl Engine {
    /// Returns kept state of the table with the state of the role of the call; `None` if the state before stays, because the call is not at rest.
    pub(crate) fn kept_state(&mut self, now: Now, key: u64, state: Box<[u8]>) -> Option<Box<[u8]>> {
        let (agent, endpoint, bridge, far_leg) =
            match (self.anchored.endpoints.call_of_key(key), self.anchored.bridges.pair_of_key(key)) {
                (Some(call), _) => {
                    let agent = self.stack.agent.keep(now, &[call])?;
                    (agent, self.anchored.endpoints.keep(call)?, BridgedRecord::default(), FarLegRecord::default())
                }
                (None, Some(pair)) => {
                    let kept = self.anchored.bridges.keep(pair)?;
                    let agent = self.stack.agent.keep(now, &kept.legs)?;
                    (agent, EndpointRecord::default(), kept.record, self.anchored.far_legs.keep(&kept.far_call_id)?)
                }
                // The server only forwards the requests of the call, or the role has ended it.
                (None, None) => return Some(state),
            };
        let session =
            self.anchored.endpoints.session_of_call(key).or_else(|| self.anchored.bridges.session_of_call(key))?;
        let media = &self.policy.config.media;
        let places = |pairs: &[PortPair]| {
            let place = |pair: &PortPair| Some((media.addresses.get(usize::from(pair.address))?.public, pair.rtp));
            pairs.iter().map(place).collect::<Option<Vec<_>>>()
        };
        let ports = [places(&session.ports.near)?, places(&session.ports.far)?];
        let mut anchored = AnchoredState { written: now.wall, ports, agent, endpoint, bridge, far_leg };
        let names = &*self.shared.peer_names;
        if !anchored.has_known_names(names) {
            return None;
        }
        let anchor = record::write(anchored, &ProcessNames(self.policy.router.identity(), names));
        self.note_kept(key);
        Some(with_anchor(&state, &anchor))
    }

    fn note_kept(&mut self, key: u64) {
        if let Some(call) = self.anchored.endpoints.call_of_key(key) {
            self.anchored.endpoints.note_kept(call);
        }
        if let Some(pair) = self.anchored.bridges.pair_of_key(key) {
            self.anchored.bridges.note_kept(pair);
        }
    }

    /// Takes over the roles of calls that [`Engine::take_over`] has put into the table: their keys, and the states that an earlier process has left
    /// ([`anchor_of`](strowger_calls::anchor_of)). A call without a readable state ends when its parties are asked. Returns the first reason for
    /// which one is not readable, and their number.
    pub fn take_over_media(&mut self, now: Now, states: Vec<(u64, Box<[u8]>)>) -> Option<(Unreadable, usize)> {
        let mut unreadable: Option<(Unreadable, usize)> = None;
        for (key, state) in states.into_iter().filter(|(_, state)| !state.is_empty()) {
            let names = ProcessNames(self.policy.router.identity(), &*self.shared.peer_names);
            let read = record::read(&state, &names);
            match read {
                Ok(anchored) => self.succeed(now, key, anchored),
                Err(error) => unreadable.get_or_insert((error, 0)).1 += 1,
            }
        }
        unreadable
    }

    /// Takes over the role of a call.
    fn succeed(&mut self, now: Now, key: u64, anchored: AnchoredState) {
        // No thread is busy yet: the calls are divided among them. The lowest bits of a key are equal.
        let thread = ((key >> 8) % u64::from(self.shard.media_threads.running.max(1))) as u16;
        let ports = anchored.session_ports(&self.policy.config.media, thread);
        let claimed = ports.all();
        let Some(bucket) = self.calls.get(key).map(|call| call.bucket()) else {
            // Nothing is left to continue.
            return self.effects.push(Effect::Media { thread: None, order: SessionOrder::Return(claimed) });
        };
        let AnchoredState { written, mut agent, mut endpoint, mut bridge, far_leg, .. } = anchored;
        agent.pass(now.wall.saturating_sub(written));
        let session = self.anchored.media.next_key(self.shard.number, bucket);
        endpoint.succeed(session, &ports);
        bridge.succeed(session, &ports);
        self.anchored.far_legs.import(far_leg);
        let moved = self.stack.import_agent(now, agent, Vec::new());
        self.anchored.endpoints.import(endpoint, &moved);
        self.import_bridges(now, bridge, &moved);
        let order = SessionOrder::Claim { key: SessionKey(session), ports: claimed };
        self.effects.push(Effect::Media { thread: Some(thread), order });
    }

    /// Opens the session of a call of an earlier process. If its ports could not be bound, a bridged call gets others, and any other call ends.
    pub(crate) fn ports_claimed(&mut self, now: Now, session: SessionKey, is_bound: bool, out: &mut Outbox) {
        if !is_bound {
            if let Some(key) = self.anchored.endpoints.lose_ports(session) {
                return self.end_carried(now, key, out);
            }
            self.anchored.bridges.lose_ports(session);
            self.balance_ports();
            return self.place_portless(now, out);
        }
        let key = match self.anchored.endpoints.reopen(&self.policy, session) {
            Some((order, key)) => {
                self.effects.extend(order);
                key
            }
            None => self.anchored.bridges.pair_of_session(session).and_then(|pair| self.reopen_bridged(pair)),
        };
        // The next state leaves out further CSeqs.
        key.into_iter().for_each(|key| self.calls.has_changed(key));
    }

    /// Ends a call of the table that this server cannot carry any further: BYE with a Reason to its parties.
    pub(crate) fn end_carried(&mut self, now: Now, key: u64, out: &mut Outbox) {
        let (calls, mut env) = self.calls_at(now);
        calls.end_carried(&mut env, key);
        self.carry_out(now, out);
    }

    /// Ends the calls with media that no next process continues, before the process ends: their parties get BYE with a Reason, a caller that waits
    /// for an answer 480. Calls that are being ended are left alone, but no BYE waits for the end of a re-INVITE any more. Returns the number of
    /// calls that are left.
    pub fn end_unkept(&mut self, now: Now, out: &mut Outbox) -> usize {
        let endpoints = self.anchored.endpoints.unkept().map(|(key, is_ending)| (None, key, is_ending));
        let bridged = self.anchored.bridges.unkept().map(|(pair, key, is_ending)| (Some(pair), key, is_ending));
        let unkept: Vec<_> = endpoints.chain(bridged).filter(|(.., is_ending)| !is_ending).collect();
        for (pair, key, _) in unkept {
            match (pair, key) {
                (_, Some(key)) => self.end_carried(now, key, out),
                (Some(pair), None) => self.end_pair(now, pair, (480, ORDERED), out),
                // The table has each call of an endpoint.
                (None, None) => (),
            }
        }
        self.process_notices(now, out);
        self.stack.with_agent(now, out, UserAgent::hang_up_at_once);
        self.process_notices(now, out);
        self.anchored.endpoints.unkept().count() + self.anchored.bridges.unkept().count()
    }

    /// Notes the calls of the table whose roles no next process continues.
    pub(crate) fn disown_unkept(&mut self) {
        let endpoints = self.anchored.endpoints.unkept().filter_map(|(key, _)| key);
        let unkept: Vec<u64> = endpoints.chain(self.anchored.bridges.unkept().filter_map(|(_, key, _)| key)).collect();
        unkept.into_iter().for_each(|key| self.calls.has_no_successor(key));
    }
}
