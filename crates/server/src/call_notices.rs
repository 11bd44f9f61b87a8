//! Reports of the proxy about the requests of calls: notices are given to the table of calls, and the limits decide
//! questions.

use crate::decider::Decider;
use crate::decision::Question;
use crate::engine::Engine;
use strowger_calls::begins_call;
use strowger_calls::limits::Claim;
use strowger_core::notice::{Notice, NoticeEvent};
use strowger_core::proxy::{Choice, Question as ProxyQuestion, Report};
use strowger_core::transaction::ServerId;
use strowger_core::{Now, Outbox, Round};

impl Engine {
    /// Handles the notices since the last call. The responses that the notices name are in the outbox.
    pub(crate) fn process_notices(&mut self, now: Now, out: &mut Outbox) {
        self.set_targets_aside(now);
        loop {
            self.take_all_notices(now, out);
            self.calls.set_responded(None);
            self.calls.close_accounts(now);
            self.carry_out(now, out);
            // The end of a call may cancel its far INVITE.
            if !out.has_looped() {
                break;
            }
        }
        self.anchored.far_legs.forget_source();
    }

    fn take_all_notices(&mut self, now: Now, out: &mut Outbox) {
        loop {
            // A decision about one notice may cause further notices.
            while !self.stack.proxy.reports().is_empty() || self.take_agent_events(now, out) {
                self.take_reports(now, out);
            }
            if self.take_looped(now, out) {
                continue;
            }
            let (refusals, answers) = (self.anchored.far_legs.take_refusals(), self.anchored.far_legs.take_answers());
            if refusals.is_empty() && answers.is_empty() {
                return;
            }
            refusals.iter().for_each(|notice| self.take_notice(now, notice, out));
            for answer in answers {
                let outcome = self.outcome_of_answer(answer);
                self.take_notice(now, &outcome, out);
            }
        }
    }

    fn take_reports(&mut self, now: Now, out: &mut Outbox) {
        let mut reports = std::mem::take(self.stack.proxy.reports());
        if let Some(heard) = &mut self.heard {
            heard.extend_from_slice(&reports);
        }
        for report in reports.drain(..) {
            match report {
                Report::Notice(notice) if self.anchored.far_legs.holds_back(&notice) => (),
                Report::Notice(notice) => self.take_notice(now, &notice, out),
                Report::Question(question) => self.decide_for_proxy(now, &question, out),
            }
        }
        reports.append(self.stack.proxy.reports());
        *self.stack.proxy.reports() = reports;
    }

    /// Handles a notice of a role about a call.
    pub(crate) fn take_notice(&mut self, now: Now, notice: &Notice, out: &mut Outbox) {
        if begins_call(notice.context) {
            count_outcome(self.decider(), &notice.event);
            if let NoticeEvent::Rang { after, .. } | NoticeEvent::Answered { after, .. } = &notice.event
                && let Some(milliseconds) = after
            {
                self.shared.durations[self.shard.number].call_setup.observe(u64::from(*milliseconds) * 1_000);
            }
        }
        let (calls, mut env) = self.calls_at(now);
        calls.on_notice(&mut env, notice, &out.bytes);
        self.carry_out(now, out);
    }

    /// Answers a question of the proxy about the next target of an INVITE.
    fn decide_for_proxy(&mut self, now: Now, question: &ProxyQuestion, out: &mut Outbox) {
        let (key, server) = (self.calls.key_of(question.context), question.server);
        match &question.choice {
            Choice::Failing { plan: Some(claims), .. } => self.consider(now, key, server, claims, out),
            // No plan of this server has a question for the plan as a whole.
            Choice::Failing { plan: None, .. } => (),
            Choice::Choosing { before, next } => self.choose(now, key, server, [before, next], out),
        }
    }

    /// Decides whether a failure rule, which the proxy found for the outcome of an INVITE, is applied: it is unless one
    /// of its limits is full. `key`: call of the INVITE, if the call is in the table.
    #[inline(never)]
    pub(crate) fn consider(&mut self, now: Now, key: Option<u64>, server: ServerId, claims: &[u8], out: &mut Outbox) {
        let is_counted = key.zip(Question::read(claims)).is_some_and(|(key, Question { claims, places })| {
            let call = self.calls.get(key);
            let counts = |claim: &Claim| {
                let is_own = claims.iter().any(|other| other.counted == claim.counted);
                is_own || call.is_some_and(|call| call.counts_under(claim))
            };
            self.decider().has_room_at_any(&places, &[], counts) && self.calls.count(key, &claims)
        });
        self.answer_proxy(now, server, is_counted, out);
    }

    /// Moves an INVITE to its next target of rules, if the limits of the target have room. The call counts under limits
    /// at this target, or did at the target before.
    fn choose(&mut self, now: Now, key: Option<u64>, server: ServerId, places: [&[u8]; 2], out: &mut Outbox) {
        let [before, next] = places.map(Claim::read_all);
        let is_chosen = next.is_some_and(|next| self.calls.change_target(key, &before.unwrap_or_default(), &next));
        self.answer_proxy(now, server, is_chosen, out);
    }

    /// Answers a question of the proxy: the proxy then carries its plan out, or skips it.
    fn answer_proxy(&mut self, now: Now, server: ServerId, is_so: bool, out: &mut Outbox) {
        let round = &mut Round { now, tx: &mut self.stack.core.transactions, out };
        if is_so {
            self.stack.proxy.carry_out(round, server);
        } else {
            self.stack.proxy.pass(round, server);
        }
    }
}

/// Counts the outcome of an INVITE that begins a call: for its caller, and for a gateway.
fn count_outcome(decider: Decider<'_>, event: &NoticeEvent) {
    let (calls, gateways) = (&decider.messages().calls, &decider.shared.gateways);
    match event {
        NoticeEvent::Answered { status, first: true, .. } => {
            calls.one(*status);
            if let Some(by) = decider.calls.responded() {
                gateways.count(by, Some(*status));
            }
        }
        NoticeEvent::Exhausted { status, .. } if !matches!(status, 401 | 407) => calls.one(*status),
        NoticeEvent::Abandoned => calls.one(408),
        NoticeEvent::Refused { status, by: Some(by) } => gateways.count(by.address, Some(*status)),
        NoticeEvent::TimedOut { target: Some(target) } => gateways.count(target.address, None),
        _ => (),
    }
}
