//! Questions to the parties of doubted dialogs, and the requests and responses that raise or settle a doubt ([`Doubt`]).

use crate::bye::Bye;
use crate::call::Call;
use crate::cdr::{Ender, NORMAL};
use crate::cdr_fields::reason;
use crate::context::Purpose;
use crate::dialog::Dialog;
use crate::dialog_end::Ending;
use crate::doubted_dialog::{Doubt, HangUp, Standing};
use crate::dropped_answers::MOST_DIALOGS;
use crate::environment::Environment;
use crate::keys::CallSeed;
use crate::legs::Legs;
use crate::own_request::{moment_of_question, own_question};
use crate::remote_target::leads_along;
use crate::table::CallTable;
use crate::times::moment;
use std::ops::Range;
use strowger_core::Now;
use strowger_core::notice::{NoticeEvent, Party};
use strowger_core::routing::{Request, Router};
use strowger_message::Method;

/// Time from the start of a process to its first question, in milliseconds, in which telephones can reconnect.
const AFTER_START: u64 = 1_000;

/// Time over which the questions of the calls of another process are spread, such that the last transaction times out
/// (64*T1) within a minute.
const LONGEST_SPREAD: u64 = 25_000;

/// Time between the questions of two calls, in milliseconds. For all calls together it is at most [`LONGEST_SPREAD`].
const SPREAD: u64 = 2;

impl Call {
    /// Notes a BYE that names this dialog before its 2xx passes. When the 2xx passes, the server asks both parties.
    fn doubt_before_answer(&mut self, tag: &[u8], salt: u16) {
        if self.open > 0 && self.dialog(tag).is_none() && self.dialogs.len() < MOST_DIALOGS {
            self.dialogs.push(Dialog::new(tag, self.cseq, salt));
        }
        let early = self.dialog(tag).filter(|dialog| dialog.answer.is_none());
        early.into_iter().for_each(|dialog| dialog.doubt = Some(Doubt::at(i64::MAX, Standing::Suspected)));
    }

    /// Doubts all dialogs of a call of an earlier process. `place`: index of the call among `count` calls.
    pub(crate) fn doubt_all(&mut self, now: Now, place: usize, count: usize) {
        let spread = (count as u64 * SPREAD).min(LONGEST_SPREAD);
        let delay = AFTER_START + spread * place as u64 / (count as u64).max(1);
        let at = moment(now).saturating_add_unsigned(delay);
        for dialog in &mut self.dialogs {
            match dialog.ending_mut() {
                Some(ending) => ending.resume(at),
                None => dialog.doubt = Some(Doubt::at(at, Standing::Unheard)),
            }
        }
    }
}

impl CallTable {
    /// Notes a BYE that may overtake the 2xx of its dialog, and end the dialog at the other party.
    pub(crate) fn doubt_before_answer(&mut self, env: &mut Environment<'_>, key: u64, tag: &[u8]) {
        let Some(salt) = self.free_salt(env, key).filter(|_| self.get(key).is_some_and(|call| call.tracked)) else {
            return;
        };
        self.change(key, |call| call.doubt_before_answer(tag, salt));
    }

    /// Notes the ACK for a 2xx on its way to the callee.
    #[inline]
    pub fn on_ack(&mut self, router: &Router, request: &Request<'_>) {
        if self.counts().tracked > 0 {
            self.acknowledge_dialog(router, request);
        }
    }

    fn acknowledge_dialog(&mut self, router: &Router, request: &Request<'_>) {
        let key = self.key_of_call(request.call_id, request.from_tag);
        let Some(call) = self.get(key).filter(|call| call.tracked) else { return };
        let tag = &*self.kept_tag(request.to_tag);
        let is_meant = |dialog: &&Dialog| dialog.tag() == tag && dialog.answer.is_some() && !dialog.acknowledged;
        let dialog = call.dialogs.iter().find(is_meant);
        if dialog.is_some_and(|dialog| leads_along(router, request, call, dialog, Party::Caller)) {
            self.change(key, |call| call.dialog(tag).into_iter().for_each(|dialog| dialog.acknowledged = true));
        }
    }

    /// Doubts the dialog that a BYE names, if the BYE does not pass within that dialog: because it is sent elsewhere
    /// (`passes`), or because the server has refused it. The sender of the BYE may have hung up.
    #[inline]
    pub fn doubt_named(&mut self, now: Now, request: &Request<'_>, passes: bool) {
        let is_meant = request.method == Method::Bye && !request.to_tag.is_empty();
        if is_meant && self.counts().tracked > 0 {
            self.doubt_tags(now, request, passes);
        }
    }

    /// Handles a request that proves no dialog and is about to be forwarded. Returns the context of a [`HangUp`], or 0
    /// if there is none.
    #[inline]
    pub fn pass_outside(&mut self, env: &mut Environment<'_>, request: &Request<'_>) -> u64 {
        self.doubt_named(env.now, request, true);
        let is_meant = request.method == Method::Bye && self.counts().tracked > 0;
        if is_meant { self.hang_up(env, request) } else { 0 }
    }

    /// Notes a BYE without a Route that comes from the address of a party and whose CSeq is higher than those of all
    /// requests of the party.
    fn hang_up(&mut self, env: &mut Environment<'_>, request: &Request<'_>) -> u64 {
        let now = env.now;
        if request.message.routes().next().is_some() {
            return 0;
        }
        let bye = Bye { at: moment(now), cause: reason(&request.message).unwrap_or(NORMAL), from_elsewhere: false };
        let (from, to) = (request.from_tag, request.to_tag);
        for (party, tag, other) in [(Party::Caller, from, to), (Party::Callee, to, from)] {
            let key = self.key_of_call(request.call_id, tag);
            let other = &*self.kept_tag(other);
            let Some(salt) = self.free_salt(env, key) else { continue };
            let context = self.change(key, |call| {
                if call.chose_tag {
                    // The BYE may be of another dialog with the same tags.
                    return None;
                }
                let at = call.dialogs.iter().position(|dialog| dialog.tag() == other)?;
                let (dialog, source) = (&call.dialogs[at], request.arrival.remote);
                let is_own = request.cseq > dialog.last_cseq(party) && call.is_from(dialog, party, source);
                let doubt = call.dialogs[at].doubt.as_mut().filter(|_| is_own)?;
                doubt.hang_up = Some(HangUp { party, bye, salt });
                Some(call.context_with(salt, Purpose::Bye))
            });
            if let Some(context) = context.flatten() {
                return context;
            }
        }
        0
    }

    fn doubt_tags(&mut self, now: Now, request: &Request<'_>, passes: bool) {
        let transaction = self.times.transaction;
        let doubt = |dialog: &mut Dialog| match passes {
            true => dialog.doubt_beside(now, transaction),
            false => dialog.doubt_refusal(now),
        };
        let (from, to) = (request.from_tag, request.to_tag);
        for (tag, other) in [(from, to), (to, from)] {
            let key = self.key_of_call(request.call_id, tag);
            let other = &*self.kept_tag(other);
            let doubt = |call: &mut Call| call.dialog(other).map(doubt).is_some();
            if self.get(key).is_some_and(|call| call.tracked) && self.change(key, doubt) == Some(true) {
                self.has_changed(key);
            }
        }
    }

    /// Doubts the dialogs whose 2xx has had no ACK for the time in which the sender of the 2xx retransmits it (64*T1,
    /// RFC 3261 section 13.3.1.4).
    pub(crate) fn doubt_unacknowledged(&mut self, now: Now, key: u64) {
        let patience = self.times.transaction;
        let is_due = |dialog: &Dialog| dialog.unacknowledged_until(patience).is_some_and(|at| at <= moment(now));
        if self.get(key).is_none_or(|call| !call.tracked || !call.dialogs.iter().any(is_due)) {
            return;
        }
        self.change(key, |call| {
            for dialog in call.dialogs.iter_mut().filter(|dialog| is_due(dialog)) {
                dialog.acknowledged = true;
                dialog.doubt.get_or_insert_with(|| Doubt::at(moment(now), Standing::Suspected));
            }
        });
        self.has_changed(key);
    }

    /// Asks the parties of the due dialogs of a call, and ends the dialogs that no party has confirmed in time.
    pub(crate) fn ask_parties(&mut self, env: &mut Environment<'_>, key: u64) {
        let now = env.now;
        let is_due = |dialog: &Dialog| dialog.doubt.as_ref().is_some_and(|doubt| doubt.next <= moment(now));
        if self.get(key).is_none_or(|call| !call.dialogs.iter().any(is_due)) {
            return;
        }
        self.change(key, |call| {
            call.dialogs
                .iter_mut()
                .filter_map(|dialog| dialog.doubt.as_mut())
                .for_each(|doubt| doubt.begin_second_round(now));
        });
        let seed = CallSeed(self.settings.seed);
        let Some(call) = self.get(key) else { return };
        let (mut questions, mut unasked) = (Vec::new(), Vec::new());
        let due = call.dialogs.iter().filter(|dialog| is_due(dialog));
        for (dialog, doubt) in due.filter_map(|dialog| Some((dialog, dialog.doubt.as_ref()?))) {
            let is_open = |party: &Party| {
                let standing = doubt.parties[*party as usize];
                doubt.until > moment(now) && matches!(standing, Standing::Suspected | Standing::Unheard)
            };
            for asked in Party::BOTH.into_iter().filter(is_open) {
                let context = call.dialog_context(dialog, Purpose::Question, asked);
                match own_question(seed, call, dialog, (asked, context), now.mono) {
                    Some(question) => questions.push(question),
                    None => unasked.push(context),
                }
            }
        }
        // A party of an emergency call may be unknown; such a party counts as one that has confirmed the dialog.
        self.change(key, |call| {
            for context in &unasked {
                let Some((at, party)) = call.dialog_at(*context) else { continue };
                call.dialogs[at].doubt.iter_mut().for_each(|doubt| doubt.confirm(party));
            }
        });
        let is_over = |doubt: &Doubt| doubt.until <= moment(now);
        let is_lost = |dialog: &Dialog| {
            let doubt = dialog.doubt.as_ref().filter(|doubt| is_over(doubt));
            doubt.is_some_and(|doubt| doubt.is_unconfirmed())
        };
        self.end_dialogs(env, key, (Ender::Lost, moment(now), [true; 2]), is_lost);
        self.change(key, |call| {
            for dialog in &mut call.dialogs {
                dialog.doubt.take_if(|doubt| is_over(doubt));
                for doubt in dialog.doubt.iter_mut().filter(|doubt| doubt.next <= moment(now)) {
                    doubt.next = doubt.after(moment(now));
                }
            }
        });
        self.effects.extend(questions);
    }

    /// Handles the result of a question.
    pub(crate) fn on_question_notice(
        &mut self,
        env: &mut Environment<'_>,
        (key, context): (u64, u64),
        event: &NoticeEvent,
        sent: &[u8],
    ) {
        let now = env.now;
        let is_ending =
            |call: &Call| call.dialog_at(context).is_some_and(|(at, _)| call.dialogs[at].ending().is_some());
        if self.get(key).is_some_and(is_ending) {
            return self.on_own_bye(env, (key, context), event);
        }
        let is_anchored = self.get(key).is_some_and(|call| call.legs == Legs::Anchored);
        let (is_gone, is_silent, asked_at) = match event {
            NoticeEvent::Answered { bytes, .. } => (false, false, self.moment_of_question(bytes, sent)),
            NoticeEvent::Exhausted { status, bytes } => match self.responded {
                Some(_) => (matches!(status, 408 | 481), false, self.moment_of_question(bytes, sent)),
                // The role that anchors the call has no dialog with the party, such as after a restart.
                None if is_anchored && *status == 481 => (true, false, None),
                // The question was not sent.
                None => return,
            },
            // A 408 is not forwarded (RFC 4320 section 4.2).
            NoticeEvent::Abandoned => (self.responded.is_some(), self.responded.is_none(), None),
            _ => return,
        };
        let Some((at, party)) = self.get(key).and_then(|call| call.dialog_at(context)) else { return };
        let mut salt = 0;
        let is_lost = self.change(key, |call| {
            let dialog = &mut call.dialogs[at];
            salt = dialog.salt;
            let Some(doubt) = &mut dialog.doubt else { return is_gone };
            if is_gone {
                return true;
            }
            let is_lost = is_silent && doubt.fall_silent(party);
            if !is_silent && asked_at.is_none_or(|at| at >= doubt.since) {
                doubt.confirm(party);
            }
            if let Some(again) = doubt.again.filter(|_| doubt.is_settled()) {
                doubt.next = again;
            }
            dialog.doubt.take_if(|doubt| doubt.is_settled() && doubt.again.is_none());
            is_lost
        });
        if is_lost == Some(true) {
            let lost = Party::BOTH.map(|other| other == party);
            let by = (Ender::Lost, moment(now), lost);
            self.end_dialogs(env, key, by, |dialog| dialog.salt == salt);
        }
    }

    /// Returns the moment when the question was sent that this response in the outbox answers. The moment is in the
    /// branch.
    fn moment_of_question(&mut self, range: &Range<usize>, sent: &[u8]) -> Option<u64> {
        let mut asked_at = None;
        self.read_response(range, sent, |_, response| asked_at = moment_of_question(response));
        asked_at
    }

    /// Handles the final response to a [`HangUp`]. Returns false if the context belongs to another BYE.
    pub(crate) fn on_hang_up(
        &mut self,
        env: &mut Environment<'_>,
        (key, context): (u64, u64),
        event: &NoticeEvent,
    ) -> bool {
        let Some(call) = self.get(key) else { return false };
        let Some(dialog) = call.hang_up_at(context) else { return false };
        let Some(HangUp { party, bye, .. }) = dialog.doubt.as_ref().and_then(|doubt| doubt.hang_up) else {
            return false;
        };
        let is_of_peer = self.responded.is_some_and(|source| call.is_from(dialog, party.other(), source));
        if matches!(event, NoticeEvent::Answered { .. }) && is_of_peer {
            let salt = dialog.salt;
            self.end_dialog(env, (key, salt), Ending::by_party(env.now, party, bye));
        }
        true
    }
}
