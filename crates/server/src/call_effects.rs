//! Effects of the table of calls, and orders of operators about calls.

use crate::effect::Effect;
use crate::engine::Engine;
use crate::handling::{Handling, Progress};
use crate::media_sessions::SessionReport;
use strowger_calls::{AT_ONCE, Call, CallEffect, CallPage, CallTable, CallView, Environment, Legs, OwnRequest};
use strowger_core::notice::{Notice, NoticeEvent, Party};
use strowger_core::proxy::Report;
use strowger_core::routing::Request;
use strowger_core::{Arrival, ListenerId, Now, Outbox, Round, Target};
use strowger_media::session::SessionOrder;
use strowger_message::{Index, Message, Uri};

impl Engine {
    /// Returns the table of calls, with its environment under the policy of the current request.
    pub(crate) fn calls_at(&mut self, now: Now) -> (&mut CallTable, Environment<'_>) {
        let Self { calls, policy, stack, .. } = self;
        (calls, Environment { now, router: &policy.router, entropy: &mut stack.entropy })
    }

    /// Carries out the effects of the table of calls, in order.
    pub(crate) fn carry_out(&mut self, now: Now, out: &mut Outbox) {
        while !self.calls.effects().is_empty() {
            // A request that is sent may have further effects: they wait in another list.
            let mut effects = std::mem::take(self.calls.effects());
            for effect in effects.drain(..) {
                self.carry_out_effect(now, effect, out);
            }
            if self.calls.effects().is_empty() {
                *self.calls.effects() = effects;
            }
        }
    }

    fn carry_out_effect(&mut self, now: Now, effect: CallEffect, out: &mut Outbox) {
        match effect {
            CallEffect::Account(row) => self.effects.push(Effect::Account(row)),
            CallEffect::PersistCall { call, state } => {
                let state = self.kept_state(now, call, state);
                self.effects.extend(state.map(|state| Effect::PersistCall { call, state }));
            }
            CallEffect::FinishCall { call, rows } => self.effects.push(Effect::FinishCall { call, rows }),
            CallEffect::DeleteCall { call } => self.effects.push(Effect::DeleteCall { call }),
            CallEffect::Send { context, kind, bytes } => {
                if kind == OwnRequest::Bye {
                    self.counters().byes.one();
                }
                self.send_own(now, &bytes, context, out);
            }
            CallEffect::HasSent(dialog) => self.calls.has_sent(now, dialog),
            CallEffect::Cancel { context, legs: Legs::Passing | Legs::Proxied } => {
                self.stack.proxy.cancel_all(&mut Round { now, tx: &mut self.stack.core.transactions, out }, context);
            }
            CallEffect::DialogEnded { lasted } => {
                self.counters().calls_ended.one();
                self.counters().call_time.add(lasted.saturating_mul(1_000));
            }
            CallEffect::LogForgotten => self.counters().calls_forgotten.one(),
            CallEffect::Cancel { legs: Legs::Anchored, context } => self.bridge_cancel(now, context, out),
            CallEffect::SendOnLeg { call, context, party, kind } => {
                if kind == OwnRequest::Bye && party == Party::Caller {
                    self.counters().byes.one();
                }
                self.order_leg(now, (call, context), (party, kind), out);
            }
        }
    }

    /// Handles the calls whose deadline has passed.
    pub(crate) fn end_calls(&mut self, now: Now, out: &mut Outbox) {
        for _ in 0..AT_ONCE {
            let (calls, mut env) = self.calls_at(now);
            if !calls.end_due(&mut env) {
                return;
            }
            self.carry_out(now, out);
        }
    }

    /// Processes a request of the server as if a peer had sent it: the stages determine the next hop. The response is
    /// not forwarded. `context`: context of the proxy's notices about the request.
    pub(crate) fn send_own(&mut self, now: Now, bytes: &[u8], context: u64, out: &mut Outbox) {
        let mut index = Index::new();
        if index.parse(bytes, &self.policy.limits).is_err() {
            return;
        }
        let message = Message::new(bytes, &index);
        let listener = message.routes().next().and_then(|route| match route.ok()?.uri {
            Uri::Sip(uri) => self.policy.router.listener_named(&uri),
            _ => None,
        });
        let listener = listener.unwrap_or(ListenerId(0));
        let transport = self.policy.router.identity().listener(listener).transport;
        let arrival = Arrival { transport, listener, remote: Target::NOWHERE.address, flow: None };
        let call_hash = self.shared.call_hash(message.call_id().map_or(&b""[..], |id| id.text));
        let Ok(request) = Request::of(message, &arrival, call_hash) else { return };
        let Some(server) = self.stack.core.transactions.begin_own(now, &message, call_hash) else { return };
        let mut progress = Progress { context, ..Progress::new(now) };
        self.advance(&mut Handling { now, request: &request, server: Some(server), progress: &mut progress, out });
    }

    /// Reports the final response to a request of this server in the way in which the proxy reports the response of a
    /// peer.
    pub(crate) fn report_own(&mut self, context: u64, status: u16) {
        let event = match status {
            200..300 => NoticeEvent::Answered { status, first: true, bytes: 0..0, after: None },
            _ => NoticeEvent::Exhausted { status, bytes: 0..0 },
        };
        self.stack.proxy.reports().push(Report::Notice(Notice { context, event }));
    }

    /// Emits an effect with the state of each kept call that has changed. The owner of the engine calls this at the end
    /// of a round.
    #[inline]
    pub fn keep_changed(&mut self, now: Now) {
        self.calls.keep_changed(now);
        // Nothing is sent.
        self.carry_out(now, &mut Outbox::new());
    }

    /// Continues the calls of an earlier process, and asks their parties soon whether the calls still exist. Returns
    /// the number of calls that were written under another secret: no request of their parties is admitted as a request
    /// within a dialog, so this server does not see their end.
    pub fn take_over(&mut self, now: Now, calls: Vec<Call>) -> usize {
        let strange = self.calls.take_over(now, calls, self.shared.call_secret());
        self.carry_out(now, &mut Outbox::new());
        strange
    }

    /// Writes rows without an end for the calls that continue when the process ends. Kept calls continue in the next
    /// process.
    pub fn cut_off_accounts(&mut self, now: Now) {
        // What has changed in this round is kept first.
        self.keep_changed(now);
        self.disown_unkept();
        self.calls.cut_off_accounts(now);
        self.carry_out(now, &mut Outbox::new());
    }

    /// Returns a page of at most `most` tracked calls, beginning with this slot. A page may be short although more
    /// calls follow. `party`: text that the URI of the caller or callee must contain.
    pub fn list_calls(&self, now: Now, from: u32, most: usize, party: Option<&[u8]>) -> CallPage {
        self.calls.list_calls(now, from, most, party)
    }

    /// Returns the tracked call with this id. If its media session is open, the view has the report of the last second. Without one the
    /// media thread is asked, and the owner may call again.
    pub fn show_call(&mut self, now: Now, id: u64) -> Option<CallView> {
        let mut view = self.calls.show_call(now, id)?;
        view.recording = self.anchored.endpoints.recording_of_call(id);
        let session = self.anchored.endpoints.session_of_call(id).or_else(|| self.anchored.bridges.session_of_call(id));
        if let Some(session) = session
            && let Some((key, thread)) = session.open()
        {
            match self.anchored.media.reported(now, key) {
                Some(SessionReport { media, paths }) => {
                    (view.media, view.paths) = (session.of_parties(media), session.of_parties(paths));
                }
                None => {
                    self.effects.push(Effect::Media { thread: Some(thread), order: SessionOrder::Report { key } });
                    view.awaits_media = true;
                }
            }
        }
        Some(view)
    }

    /// Ends a tracked call: both parties of each answered dialog get a BYE, ringing callees a CANCEL. Returns whether a
    /// call has this id.
    pub fn end_call(&mut self, now: Now, id: u64, out: &mut Outbox) -> bool {
        let (calls, mut env) = self.calls_at(now);
        let is_there = calls.end_call(&mut env, id);
        self.carry_out(now, out);
        self.process_notices(now, out);
        is_there
    }
}
