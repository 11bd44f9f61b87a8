//! Events of the user agent about the calls of pairs, and events of the bridge.

use crate::endpoint::cause_of_bye;
use crate::engine::{Anchored, Engine, status_code};
use std::net::{IpAddr, Ipv4Addr};
use strowger_core::b2bua::bridge::{BridgeEnd, BridgeEvent, PairKey, Side};
use strowger_core::log_limiter::LogSubject;
use strowger_core::notice::{Notice, NoticeEvent, Party};
use strowger_core::shown::shown;
use strowger_core::user_agent::{DialogName, Ending, Event};
use strowger_core::{Now, Outbox};

impl Engine {
    /// Gives an event of the user agent to the bridge. Returns false if the event is of no pair, or left to the owner.
    pub(crate) fn take_bridged_event(&mut self, now: Now, event: &Event, out: &mut Outbox) -> bool {
        if self.anchored.bridges.calls.is_empty() {
            return false;
        }
        let leg = event.call().and_then(|call| self.bridged_leg(call));
        if let Some((pair, side)) = leg {
            self.learn_key(pair);
            self.note_source(event, (pair, side));
            self.note_callee(event, (pair, side));
            if self.refuses_refer(now, event, (pair, side), out) {
                return true;
            }
            if matches!(event, Event::Ended { .. }) {
                self.expect_newcomer(now, (pair, side));
            }
        }
        let Self { stack, anchored: Anchored { bridges, .. }, shared, .. } = self;
        let elsewhere = |dialog: &DialogName| shared.bridged_dialogs.beyond(dialog).map(Some);
        let is_handled =
            stack.with_agent(now, out, |agent, round| bridges.bridge.handle_among(agent, round, event, &elsewhere));
        if let (Some(leg), Some(call)) = (leg, event.call())
            && matches!(event, Event::Ended { .. } | Event::Failed { .. } | Event::Redirected { .. })
        {
            self.anchored.bridges.legs.remove(&call);
            if let Event::Ended { by, .. } = *event {
                self.leg_ended(now, leg, by, out);
            }
        }
        if let (Some(leg), Event::Ending { by, .. }) = (leg, *event) {
            self.leg_ended(now, leg, by, out);
        }
        self.take_bridge_events(now, out);
        if let Some((pair, _)) = leg {
            self.enter_dialogs(pair, false);
        }
        if let Some(key) = leg.and_then(|(pair, _)| self.anchored.bridges.calls.get(&pair)?.key) {
            self.calls.has_changed(key);
        }
        is_handled
    }

    /// Runs the timers of the bridge.
    pub(crate) fn poll_bridges(&mut self, now: Now, out: &mut Outbox) {
        let Self { stack, anchored: Anchored { bridges, .. }, .. } = self;
        stack.with_agent(now, out, |agent, round| bridges.bridge.poll(agent, round));
        self.take_bridge_events(now, out);
    }

    /// Handles the events of the bridge since the last call.
    pub(super) fn take_bridge_events(&mut self, now: Now, out: &mut Outbox) {
        while let Some(event) = self.anchored.bridges.bridge.event() {
            match event {
                BridgeEvent::SessionChanged { pair, streams } => self.session_changed(pair, streams),
                BridgeEvent::Answered { pair } => {
                    if let Some(call) = self.anchored.bridges.calls.get_mut(&pair) {
                        call.is_answered = true;
                        let session = call.session.key;
                        self.anchored.check_media_soon(now, session);
                    }
                }
                // The proxy follows redirections by the rules of the call: this one has no rule.
                BridgeEvent::Redirected { pair, .. } => self.end_pair(now, pair, (480, b""), out),
                BridgeEvent::Stranded { pair } => {
                    let key = self.anchored.bridges.calls.get(&pair).and_then(|call| call.key);
                    self.end_unplaced(now, (pair, key), out);
                }
                BridgeEvent::Replaced { pair, side } => self.party_replaced(now, (pair, side), out),
                BridgeEvent::Awaited { dialog, until, .. } => self.shared.bridged_dialogs.set_awaited(&dialog, until),
                BridgeEvent::Ended { pair, by } => {
                    self.log_end(now, pair, by);
                    self.pair_ended(now, pair);
                }
            }
        }
        self.settle_newcomers(now, out);
    }

    /// Notes the key of a call once its far INVITE has entered the table of calls.
    fn learn_key(&mut self, pair: PairKey) {
        let Some(call) = self.anchored.bridges.calls.get_mut(&pair).filter(|call| call.key.is_none()) else { return };
        let context = self.anchored.far_legs.context(&call.far_call_id);
        call.key = context.and_then(|context| self.calls.key_of(context));
        call.session.call = call.key;
        if let Some(key) = call.key {
            self.anchored.bridges.keys.insert(key, pair);
        }
    }

    /// Reports the end of a leg to the table of calls: as the result of its order, or as the end of the call by a party.
    fn leg_ended(&mut self, now: Now, (pair, side): (PairKey, Side), by: Ending, out: &mut Outbox) {
        let message = self.stack.agent.message();
        let (status, cause) = (status_code(message), cause_of_bye(message));
        let Some(call) = self.anchored.bridges.calls.get_mut(&pair) else { return };
        let bye = call.leg_mut(side).bye.take();
        let (party, cause) = (call.party_of(side), if by == Ending::Remote { cause } else { None });
        let (first, of_first, at) = *call.ended.get_or_insert((party, cause, now.mono));
        if self.anchored.bridges.bridge.awaits_party(now, pair) {
            // The media go on with a new party.
            return;
        }
        self.close_bridged_media(pair);
        if self.anchored.bridges.bridge.is_alone(pair) {
            // The other party is in a transfer. The call ends with its leg.
            return;
        }
        match bye {
            // Without a response the BYE has timed out.
            Some(bye) if by == Ending::Local => self.report_own(bye, status.unwrap_or(408)),
            // The party has ended the dialog as well.
            Some(bye) => self.report_own(bye, 200),
            None => {
                // The time of a party that was left alone in a transfer is no time of the call.
                let then = Now { mono: at.min(now.mono), ..now };
                self.report_hang_up(then, pair, (first, of_first), out);
            }
        }
    }

    /// Reports that a party has ended a call. It has no effect on a call that was not answered.
    pub(super) fn report_hang_up(
        &mut self,
        now: Now,
        pair: PairKey,
        (by, cause): (Party, Option<u16>),
        out: &mut Outbox,
    ) {
        let Some(call) = self.anchored.bridges.calls.get(&pair) else { return };
        if let Some(context) = self.anchored.far_legs.context(&call.far_call_id) {
            self.take_notice(now, &Notice { context, event: NoticeEvent::HungUp { by, cause } }, out);
        }
    }

    /// Returns the outcome of a call whose far INVITE was answered, after the user agent has handled the 2xx: the answer, or the refusal that the
    /// caller has got. The 2xx may not fit the offer, or may have crossed a CANCEL.
    pub(crate) fn outcome_of_answer(&self, answer: Notice) -> Notice {
        let Some(pair) = self.pair_of_context(answer.context) else { return answer };
        let is_answered = self.anchored.bridges.calls.get(&pair).is_none_or(|call| call.is_answered);
        match &answer.event {
            NoticeEvent::Answered { bytes, .. } if !is_answered => {
                let status = match self.anchored.bridges.bridge.ending(pair) {
                    Some(BridgeEnd::Refused(status, _)) => status,
                    Some(BridgeEnd::TimedOut(_)) => 408,
                    Some(BridgeEnd::Owner | BridgeEnd::Side(_)) => 487,
                    Some(BridgeEnd::Torn) | None => 500,
                };
                let event = NoticeEvent::Exhausted { status, bytes: bytes.clone() };
                Notice { context: answer.context, event }
            }
            _ => answer,
        }
    }

    /// Logs the end of a call that no party and no order has ended. A call that was refused before its far INVITE is logged as every refused one.
    fn log_end(&self, now: Now, pair: PairKey, by: BridgeEnd) {
        let (reason, side) = match by {
            BridgeEnd::TimedOut(side) => ("no answer in time to an INVITE, a re-INVITE or an UPDATE", Some(side)),
            BridgeEnd::Refused(_, side) => ("a description of one party does not suit the other one", Some(side)),
            BridgeEnd::Torn => ("the dialog of one party was lost", None),
            BridgeEnd::Owner | BridgeEnd::Side(_) => return,
        };
        let Some(call) = self.anchored.bridges.calls.get(&pair).filter(|call| call.key.is_some()) else { return };
        let source = call.near.source.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |source| source.address);
        if self.shared.log_limiter.allow(LogSubject::Forwarding, source, now.mono) {
            let side = side.map(|side| call.party_of(side).text());
            let (call_id, far_call_id) = (shown(call.session.call_id()), shown(&call.far_call_id));
            tracing::info!(%call_id, %far_call_id, side, reason, "bridged call ended");
        }
    }

    /// Forgets a pair whose calls are both over.
    fn pair_ended(&mut self, now: Now, pair: PairKey) {
        let Some(mut call) = self.anchored.bridges.remove(pair) else { return };
        for call_id in call.entered.iter().filter(|call_id| !call_id.is_empty()) {
            self.shared.bridged_dialogs.remove(now.mono, call_id);
        }
        let close = call.session.close();
        self.close_session(close);
        self.anchored.far_legs.remove(&call.far_call_id);
        for bye in [call.near.bye, call.far.bye].into_iter().flatten() {
            self.report_own(bye, 481);
        }
        // No answer of the party is awaited any more.
        for (_, context) in [call.near.question, call.far.question].into_iter().flatten() {
            self.report_own(context, 481);
        }
    }
}
