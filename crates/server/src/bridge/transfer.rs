//! Transfers of bridged calls: REFER (RFC 3515), and INVITE with Replaces (RFC 3891), by which a new party takes the place of one.
//!
//! `rule.refer_from` tells who may refer the other party. Many phones follow a REFER without asking, and the new call is their own: an outsider could
//! have them call expensive numbers. By default the REFER of users of this server and of trusted sources alone goes to the other party.
//!
//! An INVITE with Replaces passes authentication and rules as every INVITE does. Its caller is a **newcomer** until the other party has answered the
//! re-INVITE: it may take the place of a party if a REFER that this server has carried announces it, or if the caller could refer the other party by
//! the rule of its own INVITE (RFC 3891 section 6). The newcomer has a call of its own in the table of calls, with its names, limits and record. Once
//! it has its 200, the call of the old party ends there, and the bridge, its ports and the far leg go on for the new one.

use super::beginning::capabilities;
use super::{BridgedCall, BridgedLeg, BridgedRecord, Bridges, DescriptionSource};
use crate::decision::Decision;
use crate::engine::{Anchored, Engine, status_code};
use crate::handling::Handling;
use crate::media_sessions::bucket_of;
use crate::reply::{Lines, Reply};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};
use std::ops::Range;
use strowger_calls::{Context, Legs, LimitedTargets};
use strowger_config::ReferFrom;
use strowger_core::b2bua::bridge::{PairKey, ReplacedLeg, Side};
use strowger_core::log_limiter::LogSubject;
use strowger_core::notice::{Notice, NoticeEvent};
use strowger_core::routing::{Request, Routing};
use strowger_core::shown::shown;
use strowger_core::user_agent::{CallKey, Event, MovedCalls};
use strowger_core::{Now, Outbox};
use strowger_media::session::SessionKey;
use strowger_message::header::Replaces;
use strowger_message::{Index, Limits, Message, Method, Name};

/// INVITE with Replaces that the user agent is about to take.
#[derive(Debug)]
pub(super) struct Replacing {
    leg: ReplacedLeg,
    /// Context of the notices about its call.
    context: u64,
    call_id: Vec<u8>,
    /// [`BridgedLeg::may_refer`] of its caller.
    may_refer: Option<bool>,
}

/// Caller of an INVITE with Replaces that has no final response yet.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Newcomer {
    /// Call of the user agent.
    pub(super) call: CallKey,
    /// Context of the notices about its call.
    context: u64,
    call_id: Vec<u8>,
    /// Source of its description.
    source: Option<DescriptionSource>,
    /// [`BridgedLeg::may_refer`].
    may_refer: Option<bool>,
}

impl Newcomer {
    /// Returns the newcomer with another key of its call.
    pub(super) fn moved(self, call: CallKey) -> Self {
        Self { call, ..self }
    }
}

impl Bridges {
    /// Returns the call of the newcomer whose INVITE has this context.
    pub(super) fn newcomer(&self, context: u64) -> Option<CallKey> {
        self.newcomers.values().find(|newcomer| newcomer.context == context).map(|newcomer| newcomer.call)
    }

    /// Replaces the calls of the legs of a pair by its present ones.
    fn set_legs(&mut self, pair: PairKey) {
        self.legs.retain(|_, (of, _)| *of != pair);
        let (near, far) = self.bridge.calls(pair).unwrap_or_default();
        for (leg, side) in [(near, Side::Near), (far, Side::Far)] {
            self.legs.extend(leg.map(|leg| (leg, (pair, side))));
        }
    }
}

impl BridgedCall {
    /// Returns the Call-ID of the dialog of a leg in the table of all shards; empty if it is not there.
    fn entered_mut(&mut self, side: Side) -> &mut Vec<u8> {
        let [near, far] = &mut self.entered;
        match side {
            Side::Near => near,
            Side::Far => far,
        }
    }
}

impl Engine {
    /// Tells for caller and callee of a new call whether they may refer the other one; `None` if that depends on who answers.
    pub(super) fn may_refer(&self, handling: &Handling<'_, '_>) -> [Option<bool>; 2] {
        let of_callee = match handling.progress.decision.as_deref().map(Decision::refer_from).unwrap_or_default() {
            ReferFrom::Everyone => Some(true),
            ReferFrom::None => Some(false),
            ReferFrom::Users => None,
        };
        [Some(self.decider().may_refer_callee(handling)), of_callee]
    }

    /// Notes who has answered, before the bridge handles the event: a user at a registered contact, or a trusted source, may refer the caller.
    pub(super) fn note_callee(&mut self, event: &Event, (pair, side): (PairKey, Side)) {
        if side == Side::Near || !matches!(event, Event::Answered { .. }) {
            return;
        }
        let is_user =
            self.anchored.far_legs.is_user() || self.decider().believes(self.anchored.far_legs.source().remote.ip());
        if let Some(call) = self.anchored.bridges.calls.get_mut(&pair) {
            call.far.may_refer.get_or_insert(is_user);
        }
    }

    /// Answers the REFER of a party that may not refer the other one by 403. Returns false for all other events.
    pub(super) fn refuses_refer(
        &mut self,
        now: Now,
        event: &Event,
        (pair, side): (PairKey, Side),
        out: &mut Outbox,
    ) -> bool {
        let Event::Request { request, method: Method::Refer, .. } = *event else { return false };
        let Some(call) = self.anchored.bridges.calls.get_mut(&pair) else { return false };
        if call.leg_mut(side).may_refer == Some(true) {
            return false;
        }
        let unknown = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        let source = self.stack.agent.arrival().map_or(unknown, |arrival| arrival.remote.ip().to_canonical());
        if self.shared.log_limiter.allow(LogSubject::Request, source, now.mono) {
            let (far_call_id, party) = (shown(&call.far_call_id), call.party_of(side).text());
            tracing::info!(%far_call_id, party, %source, "REFER refused");
        }
        self.stack.with_agent(now, out, |agent, round| agent.respond(round, request, 403, b"", b""));
        true
    }
}

/// Dialogs of bridged calls in all shards.
impl Engine {
    /// Enters the dialogs of an answered call into the table of all shards, once both are up. `is_anew`: also if they are there.
    pub(super) fn enter_dialogs(&mut self, pair: PairKey, is_anew: bool) {
        let Self { stack, anchored: Anchored { bridges, .. }, shared, .. } = self;
        let lacks = |call: &BridgedCall| is_anew || call.entered.iter().any(Vec::is_empty);
        let Some(call) = bridges.calls.get_mut(&pair).filter(|call| call.is_answered && lacks(call)) else { return };
        let (near, far) = bridges.bridge.calls(pair).unwrap_or_default();
        let name = |leg: Option<CallKey>| stack.agent.dialog_name(leg?);
        if let (Some(near), Some(far)) = (name(near), name(far)) {
            shared.bridged_dialogs.enter(bucket_of(SessionKey(call.session.key)), [&near, &far]);
            call.entered = [near.call_id, far.call_id];
        }
    }

    /// Takes over the bridged calls that another shard or process has left, after the calls of its user agent.
    pub(crate) fn import_bridges(&mut self, now: Now, record: BridgedRecord, moved: &MovedCalls) {
        for pair in self.anchored.bridges.import(now, record, moved) {
            self.enter_dialogs(pair, true);
        }
    }

    /// Tells whether a REFER in another shard has announced a new party in place of that of a leg.
    fn awaited_until(&self, now: Now, (pair, side): (PairKey, Side)) -> Option<u64> {
        let [near, far] = &self.anchored.bridges.calls.get(&pair)?.entered;
        let call_id = if side == Side::Near { near } else { far };
        self.shared.bridged_dialogs.awaited_until(now.mono, call_id)
    }

    /// Tells the bridge about a REFER in another shard, before it handles the end of a leg: the other party stays up for the new one.
    pub(super) fn expect_newcomer(&mut self, now: Now, (pair, side): (PairKey, Side)) {
        if let Some(until) = self.awaited_until(now, (pair, side)) {
            self.anchored.bridges.bridge.expect_party(pair, side, until);
        }
    }
}

/// INVITE with Replaces.
impl Engine {
    /// Lets the caller of an INVITE take the place of a party of a bridged call.
    pub(super) fn replace_here(&mut self, handling: &mut Handling<'_, '_>, routing: &Routing<'_>) {
        let (now, request) = (handling.now, handling.request);
        // Events of earlier messages are not about this INVITE, and may end the call that it names.
        self.take_agent_events(now, handling.out);
        let (leg, remaining) = match self.replaced_leg(handling) {
            Ok(found) => found,
            Err(reply) => return self.reply(handling, reply),
        };
        let context =
            match self.begin_call_as(handling, (Legs::Anchored, &remaining[..]), &mut LimitedTargets::default()) {
                Context::Notices(context) => context,
                refused => return self.refuse_entry(handling, routing, refused),
            };
        // The other party may answer late, and the user agent sends no 100 of its own.
        self.trying(handling);
        self.doubt_unproven(handling, 0);
        let [may_refer, _] = self.may_refer(handling);
        let call_id = request.call_id.to_vec();
        self.anchored.bridges.replacing = Some(Box::new(Replacing { leg, context, call_id, may_refer }));
        let from = handling.out.start();
        self.give_to_agent(handling);
        self.take_agent_events(now, handling.out);
        // The user agent has refused the INVITE.
        if self.anchored.bridges.replacing.take().is_some() {
            let bytes = from..handling.out.bytes.len();
            let status = handling.out.bytes.get(from..).and_then(status_code).unwrap_or(500);
            let event = NoticeEvent::Exhausted { status, bytes };
            self.take_notice(now, &Notice { context, event }, handling.out);
        }
    }

    /// Returns the leg that an INVITE is to replace, and the Call-ID of the dialog that remains.
    ///
    /// # Errors
    /// The refusal of the INVITE: the leg cannot be replaced, or not by its caller.
    fn replaced_leg(&self, handling: &Handling<'_, '_>) -> Result<(ReplacedLeg, Vec<u8>), Reply> {
        let (now, request, agent) = (handling.now, handling.request, &self.stack.agent);
        let bridge = &self.anchored.bridges.bridge;
        let refused = |status: u16| match status {
            400 => Reply::refused(400).because("Replaces cannot be read"),
            481 if self.names_ended_dialog(request) => {
                Reply::refused(603).because("Replaces names a call that has ended")
            }
            481 => Reply::refused(481).because("Replaces names no call that could be replaced"),
            486 => Reply::refused(486).because("Replaces is for early dialogs alone"),
            500 => Reply::refused(500).with(Lines::RetryAfter).because("Replaces names a call that is changing"),
            status => Reply::refused(status).because("Replaces names a call that is ending"),
        };
        let leg = bridge.replaced(now, agent, request.message.bytes()).map_err(refused)?.ok_or_else(|| refused(400))?;
        let is_awaited = leg.is_expected || self.awaited_until(now, (leg.pair, leg.side)).is_some();
        if !is_awaited && self.may_refer(handling)[0] != Some(true) {
            return Err(Reply::refused(403).because("the caller may not take the place of a party (refer_from)"));
        }
        let (near, far) = bridge.calls(leg.pair).unwrap_or_default();
        let remaining = if leg.side == Side::Near { far } else { near };
        let dialog = remaining.and_then(|call| agent.dialog_name(call)).ok_or_else(|| refused(481))?;
        Ok((leg, dialog.call_id))
    }

    /// Tells whether Replaces names a dialog of this server that is over: its tag proves the dialog.
    fn names_ended_dialog(&self, request: &Request<'_>) -> bool {
        let replaces = request.message.header(Name::Replaces).and_then(|value| Replaces::parse(value).ok());
        let agent = &self.stack.agent;
        replaces.is_some_and(|Replaces { call_id, to_tag, from_tag, .. }| {
            let is_over = |own, other| agent.has_written(own) && !agent.owns(call_id.text, own, other);
            is_over(to_tag, from_tag) || is_over(from_tag, to_tag)
        })
    }

    /// Gives the call of an INVITE with Replaces to the bridge. Returns false if no such INVITE is to be taken.
    pub(super) fn newcomer_invited(&mut self, now: Now, call: CallKey, out: &mut Outbox) -> bool {
        let Some(replacing) = self.anchored.bridges.replacing.take() else { return false };
        let Replacing { leg, context, call_id, may_refer } = *replacing;
        let source = self.source_of_description();
        let Self { stack, anchored: Anchored { bridges, .. }, .. } = self;
        bridges.newcomers.insert(leg.pair, Newcomer { call, context, call_id, source, may_refer });
        stack.with_agent(now, out, |agent, round| {
            let (invite, capabilities) = (agent.message().to_vec(), capabilities(agent.settings()));
            agent.set_capabilities(call, capabilities);
            bridges.bridge.replace(agent, round, leg, call, &invite);
        });
        self.take_bridge_events(now, out);
        true
    }

    /// Ends the call of the old party in the table of calls, and begins that of the newcomer, which has got its 200.
    pub(super) fn party_replaced(&mut self, now: Now, (pair, side): (PairKey, Side), out: &mut Outbox) {
        let Some(newcomer) = self.anchored.bridges.newcomers.remove(&pair) else { return };
        let Newcomer { context, call_id, source, may_refer, .. } = newcomer;
        let Some(call) = self.anchored.bridges.calls.get_mut(&pair) else { return };
        // A party that has hung up before has ended its call then.
        let (by, cause, at) = call.ended.take().unwrap_or_else(|| (call.party_of(side), None, now.mono));
        let leg = BridgedLeg { source, may_refer, ..BridgedLeg::default() };
        let old = std::mem::replace(call.leg_mut(side), leg);
        let entered = std::mem::take(call.entered_mut(side));
        // The table orders a BYE to the other party, whose leg goes on.
        if let Some(key) = call.key.take() {
            self.anchored.bridges.keys.remove(&key);
        }
        self.report_hang_up(Now { mono: at.min(now.mono), ..now }, pair, (by, cause), out);
        if let Some(bye) = old.bye {
            self.report_own(bye, 200);
        }
        if let Some((request, question)) = old.question {
            self.anchored.bridges.questions.remove(&request);
            self.report_own(question, 481);
        }
        self.shared.bridged_dialogs.remove(now.mono, &entered);
        self.continue_for(pair, side, (context, &call_id));
        if let Some((status, bytes)) = final_response(out, &call_id) {
            let event = NoticeEvent::Answered { status, first: true, bytes, after: None };
            self.take_notice(now, &Notice { context, event }, out);
        }
        self.enter_dialogs(pair, false);
    }

    /// Makes a pair that of another call of the table of calls, whose INVITE has this context and this Call-ID. `side`: leg of its caller.
    fn continue_for(&mut self, pair: PairKey, side: Side, (context, call_id): (u64, &[u8])) {
        let key = self.calls.key_of(context);
        let Self { anchored: Anchored { bridges, far_legs, .. }, policy, effects, .. } = self;
        bridges.set_legs(pair);
        let Some(call) = bridges.calls.get_mut(&pair) else { return };
        far_legs.continue_for(&call.far_call_id, context);
        (call.key, call.is_kept) = (key, false);
        bridges.keys.extend(key.map(|key| (key, pair)));
        call.session.continue_for(key, side == Side::Far, call_id);
        effects.extend(call.order(policy));
        key.into_iter().for_each(|key| self.calls.has_changed(key));
    }

    /// Reports the newcomers that were refused, or have given up.
    pub(super) fn settle_newcomers(&mut self, now: Now, out: &mut Outbox) {
        let Bridges { bridge, newcomers, .. } = &mut self.anchored.bridges;
        let gone = newcomers.extract_if(.., |_, newcomer| !bridge.has_call(newcomer.call));
        let gone: Vec<(PairKey, Newcomer)> = gone.collect();
        for (pair, Newcomer { context, call_id, .. }) in gone {
            self.anchored.bridges.set_legs(pair);
            let (status, bytes) = final_response(out, &call_id).unwrap_or((487, 0..0));
            if status == 487 {
                self.take_notice(now, &Notice { context, event: NoticeEvent::Cancelled }, out);
            }
            let event = NoticeEvent::Exhausted { status, bytes };
            self.take_notice(now, &Notice { context, event }, out);
        }
    }
}

/// Returns status and place of the last final response to an INVITE with this Call-ID among the messages to send.
fn final_response(out: &Outbox, call_id: &[u8]) -> Option<(u16, Range<usize>)> {
    let mut index = Index::new();
    out.sends().iter().rev().find_map(|send| {
        let range = send.range();
        let bytes = out.bytes.get(range.clone())?;
        let status = status_code(bytes).filter(|status| *status >= 200)?;
        index.parse(bytes, &Limits::UNLIMITED).ok()?;
        let message = Message::new(bytes, &index);
        let is_of_invite = message.cseq().ok()?.method == Method::Invite && message.call_id().ok()?.text == call_id;
        is_of_invite.then_some((status, range))
    })
}
