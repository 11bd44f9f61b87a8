//! Beginning of a bridged call: refusals, ports, near call, far call.

use super::{Beginning, BridgedCall, BridgedLeg, LegsMedia};
use crate::decision::Decision;
use crate::engine::{Anchored, Engine, status_code};
use crate::far_leg::FarLeg;
use crate::handling::Handling;
use crate::media_sessions::{MediaSession, is_of_family, local_stream, offer_of};
use crate::refused_offer::Offered;
use crate::reply::{Reply, Why};
use std::sync::Arc;
use strowger_core::b2bua::bridge::{self, LegMedia};
use strowger_core::b2bua::negotiation::{LegPolicy, LegState, LocalStream, MAX_STREAMS};
use strowger_core::routing::{Request, Routing};
use strowger_core::user_agent::{CallKey, Capabilities, Invite, UserAgentSettings};
use strowger_core::{Now, Outbox, Target, call};
use strowger_media::session::PortPair;
use strowger_message::Name;
use strowger_message::sdp::Sdp;

/// Maximum number of bridged calls in a chain: each far INVITE but the last comes back to this server. One that comes back more often is in a loop,
/// in which each pass takes ports (RFC 3261 section 16.3 item 4).
const MOST_PASSES: u8 = 4;

impl Engine {
    /// Joins an INVITE with a far call to its destination. `far_family`: whether the far side is reached by IPv4, if it is known (`far_request.rs`).
    pub(crate) fn bridge_here(
        &mut self,
        handling: &mut Handling<'_, '_>,
        routing: &Routing<'_>,
        far_family: Option<bool>,
    ) {
        let (now, request) = (handling.now, handling.request);
        if let Some(reply) = self.refusal_of_party(handling) {
            return self.reply(handling, reply);
        }
        if request.message.has(Name::Replaces) {
            return self.replace_here(handling, routing);
        }
        let passes = self.anchored.far_legs.passes(request.call_id) + 1;
        if passes > MOST_PASSES {
            return self
                .reply(handling, Reply::refused(482).because("a far INVITE of this server comes back too often"));
        }
        let Some(policies) = handling.progress.decision.as_deref().map(Decision::bridge_policies) else {
            return self.reply(handling, Reply::refused(500).because("no rule bridges the call"));
        };
        let media = match self.open_legs(request, policies, far_family) {
            Ok(media) => media,
            Err(reply) => return self.reply(handling, reply),
        };
        let far_request = self.decider().far_request(handling, routing);
        // The far side may answer late, and the user agent sends no 100 of its own.
        self.trying(handling);
        self.doubt_unproven(handling, 0);
        let (far_leg, bucket) = (FarLeg::of(handling, passes), call::bucket(request.call_hash));
        // Events of earlier messages are not about this INVITE.
        self.take_agent_events(now, handling.out);
        let may_refer = self.may_refer(handling);
        self.anchored.bridges.beginning = Some(Box::new(Beginning { far_leg, far_request, bucket, media, may_refer }));
        let from = handling.out.start();
        self.give_to_agent(handling);
        self.take_agent_events(now, handling.out);
        // The first message is a refusal, or the far INVITE.
        let status = handling.out.bytes.get(from..).and_then(status_code).filter(|status| *status >= 300);
        let refusal = match self.anchored.bridges.beginning.take() {
            // By the user agent.
            Some(mut beginning) => {
                self.close_session(beginning.media.session.close());
                Some(status.unwrap_or(500))
            }
            // By the bridge.
            None => status,
        };
        if let Some(status) = refusal {
            let why = why_refused(status, offer_of(&request.message));
            self.decider().log_refusal(handling, status, why);
            self.account_refusal(handling, status, why);
        }
    }

    /// Makes the far call of a call that the user agent has taken. Returns false if no INVITE is to be bridged.
    pub(crate) fn bridge_invited(&mut self, now: Now, near: CallKey, out: &mut Outbox) -> bool {
        if self.newcomer_invited(now, near, out) {
            return true;
        }
        let Some(beginning) = self.anchored.bridges.beginning.take() else { return false };
        let Beginning { far_leg, far_request, bucket, media, may_refer: [near_refers, far_refers] } = *beginning;
        let LegsMedia { near: near_media, far: far_media, session, near_places } = media;
        let agent = &mut self.stack.agent;
        let (invite, far_call_id) = (agent.message().to_vec(), agent.call_id_in(bucket));
        let capabilities = capabilities(agent.settings());
        let account = far_leg.account(&self.policy.config.gateway_groups);
        self.anchored.far_legs.insert(&far_call_id, far_leg);
        let far = Invite {
            uri: Some(&far_request.uri),
            account,
            headers: &far_request.identities,
            capabilities: Some(&capabilities),
            call_id: &far_call_id,
            ..Invite::new(&far_request.from, &far_request.to, Target::LOOPBACK, b"")
        };
        let call = bridge::BridgedCall { near, invite: &invite, far, near_media, far_media };
        let source = self.source_of_description();
        let Self { stack, anchored: Anchored { bridges, .. }, .. } = self;
        let pair = stack.with_agent(now, out, |agent, round| {
            agent.set_capabilities(near, capabilities.clone());
            bridges.bridge.start(agent, round, call)
        });
        self.anchored.bridges.insert(
            pair,
            BridgedCall {
                far_call_id,
                key: None,
                near: BridgedLeg { source, may_refer: near_refers, ..BridgedLeg::default() },
                far: BridgedLeg { may_refer: far_refers, ..BridgedLeg::default() },
                is_answered: false,
                is_kept: false,
                ended: None,
                session,
                near_places,
                streams: Vec::new(),
                entered: Default::default(),
            },
        );
        self.take_bridge_events(now, out);
        true
    }

    /// Takes ports for both legs. Those of the far leg are of the IP version of the far side; if that is not known, they are of the same version as
    /// those of the near leg, if some are free.
    ///
    /// # Errors
    /// No port is free, or no media address is of the family of the caller.
    fn open_legs(
        &mut self,
        request: &Request<'_>,
        policies: [Arc<LegPolicy>; 2],
        far_family: Option<bool>,
    ) -> Result<LegsMedia, Reply> {
        let is_ipv4 = self.media_family(request)?;
        self.balance_ports();
        let media = &self.policy.config.media;
        let [near_policy, far_policy] = policies;
        // One of audio, and one of each further media type.
        let streams = (1 + near_policy.media_types.len()).min(MAX_STREAMS);
        let of_near = |place| is_of_family(media, place, is_ipv4);
        let of_far = |place| is_of_family(media, place, far_family.unwrap_or(is_ipv4));
        let free = &mut self.anchored.media.ports;
        let mut ports = free.take_legs(streams, of_near, of_far);
        if ports.is_none() && far_family.is_none() {
            ports = free.take_legs(streams, of_near, |_| true);
        }
        let Some(ports) = ports else {
            return Err(Reply::overloaded().because("no port for media is free"));
        };
        let places = |pairs: &[PortPair]| pairs.iter().filter_map(|pair| local_stream(media, *pair)).collect();
        let (near, far): (Vec<LocalStream>, Vec<LocalStream>) = (places(&ports.near), places(&ports.far));
        let near_places = near_places(offer_of(&request.message), &near_policy, near.len());
        let of_streams = near_places.iter().filter_map(|position| near.get(usize::from(*position)).copied());
        let near_media = leg_media(self.stack.entropy.u64(), near_policy, of_streams.collect());
        let far_media = leg_media(self.stack.entropy.u64(), far_policy, far);
        let key = self.anchored.media.next_key(self.shard.number, call::bucket(request.call_hash));
        let mut session = MediaSession::new(key, ports, request.call_id.to_vec());
        self.balance_ports();
        match (near_media, far_media) {
            (Some(near), Some(far)) => Ok(LegsMedia { near, far, session, near_places }),
            // Ports of an address that is not configured.
            _ => {
                self.close_session(session.close());
                Err(Reply::overloaded().because("no port for media is free"))
            }
        }
    }
}

/// Returns the reason for a refusal by the user agent or the bridge.
fn why_refused(status: u16, offer: Option<&[u8]>) -> Why {
    if status == 488 { Why::Text(Offered::Bridge.reason(offer)) } else { Why::Status }
}

/// Returns the media of a leg; `None` without a place.
fn leg_media(random: u64, policy: Arc<LegPolicy>, places: Vec<LocalStream>) -> Option<LegMedia> {
    let address = places.first()?.address;
    Some(LegMedia { state: LegState::new(random >> 1, address), policy, places: places.into() })
}

/// Returns for each stream of an offer the position of its ports among `ports` pairs: the streams that the policy may admit get them in order. Others
/// are refused, and have any. Positions of later streams follow.
fn near_places(offer: Option<&[u8]>, policy: &LegPolicy, ports: usize) -> Vec<u8> {
    let is_listed = |kind: &[u8]| policy.media_types.iter().any(|name| name.as_bytes().eq_ignore_ascii_case(kind));
    let mut free = 0..ports as u8;
    let mut places = Vec::new();
    if let Some(offer) = offer.and_then(|offer| Sdp::parse(offer).ok()) {
        for section in offer.all_media().take(MAX_STREAMS) {
            let is_plain =
                |protocol: &[u8]| [&b"RTP/AVP"[..], b"RTP/AVPF"].iter().any(|name| protocol.eq_ignore_ascii_case(name));
            let has_ports = section.media().is_some_and(|media| {
                let is_audio = media.kind.eq_ignore_ascii_case(b"audio");
                media.port != 0 && if is_audio { is_plain(media.protocol) } else { is_listed(media.kind) }
            });
            places.push(has_ports.then(|| free.next()).flatten().unwrap_or(0));
        }
    }
    places.extend(free);
    places
}

/// Returns the capabilities in the calls of a pair: the requests of one party go to the other one.
pub(super) fn capabilities(settings: &UserAgentSettings) -> Capabilities {
    Capabilities { allow: bridge::capabilities().allow, ..settings.capabilities.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_that_may_pass_get_ports() {
        let [video, fax] =
            ["video", "image"].map(|kind| LegPolicy { media_types: vec![kind.into()], ..LegPolicy::default() });
        let line = |kind, port, protocol| format!("m={kind} {port} {protocol} 0\r\n");
        let audio = line("audio", 4_000, "RTP/AVP");
        for (lines, policy, ports, expected) in [
            (audio.clone(), &LegPolicy::default(), 1, &[0_u8][..]),
            (line("video", 4_002, "RTP/AVP") + &audio, &LegPolicy::default(), 1, &[0, 0]),
            (line("audio", 0, "RTP/AVP") + &line("audio", 4_002, "RTP/SAVP") + &audio, &video, 2, &[0, 0, 0, 1]),
            (line("video", 4_002, "RTP/AVPF") + &audio, &video, 2, &[0, 1]),
            (audio.clone() + &line("image", 4_004, "udptl"), &fax, 2, &[0, 1]),
            (audio.clone() + &line("image", 4_004, "udptl"), &video, 2, &[0, 0, 1]),
            (audio, &video, 2, &[0, 1]),
        ] {
            let offer = format!("v=0\r\no=- 1 1 IN IP4 192.0.2.1\r\ns=-\r\nc=IN IP4 192.0.2.1\r\nt=0 0\r\n{lines}");
            assert_eq!(near_places(Some(offer.as_bytes()), policy, ports), expected, "{lines}");
        }
        assert_eq!(near_places(None, &video, 2), [0, 1]);
    }
}
