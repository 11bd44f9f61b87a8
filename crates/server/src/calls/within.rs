//! Requests of calls on their way downstream: the INVITE that begins a call, and requests within its dialogs.

use super::dialog::{Dialog, Party};
use super::endable::Unendable;
use super::origin::Source;
use super::{Call, LONGEST_WAY, NO_CALL, Purpose};
use crate::call_limits::Claim;
use crate::decider::Decider;
use crate::decision::Decision;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::session_timer::SessionOffer;
use smallvec::SmallVec;
use std::net::SocketAddr;
use strowger_core::notice::{Notice, NoticeEvent};
use strowger_core::proxy::Report;
use strowger_core::routing::{Request, Router};
use strowger_core::{Now, Outbox};
use strowger_message::header::Hop;
use strowger_message::{Limits, Message};

/// Context of the proxy's notices about a request, or the reason to refuse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Context {
    /// Context; 0: no notices are needed.
    Notices(u64),
    /// Bound on tracked calls that is reached.
    Full,
    /// Caller or callee that has as many tracked calls as places are free.
    OverShare,
    /// Call that this server could not end.
    Unendable(Unendable),
    /// Limit of calls that is full: status of the response, and place of the limit in the configuration.
    Limited(u16, Option<usize>),
    /// Full limit of the failure rule that leads the request on.
    PassedOver,
    /// Call of the same Call-ID and tag, whose end would be taken for that of this one. This call would count under no
    /// limit, and have no record.
    Merged,
}

/// Places to which a request may go, if the call counts under limits at each of them.
#[derive(Debug, Default)]
pub(crate) struct Ways<'a> {
    /// Index of each place among the candidates, with these limits.
    pub(crate) claims: Vec<(usize, &'a [Claim])>,
    /// Candidate that is to be tried first.
    pub(crate) first: usize,
}

/// Room taken under limits for a request that is forwarded.
struct Room<'a> {
    /// Limits taken for its call, to the end of the call.
    of_call: Vec<Claim>,
    /// Limits under which its call counts while it is led to its place.
    led: &'a [Claim],
    /// Those of them that were taken now.
    taken: Vec<Claim>,
}

/// Kind of repetition of an INVITE of a known call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// A server on its way sent it back here.
    SentBack,
    /// A server before this one sent it to several targets at once.
    Forked,
}

impl Engine {
    /// Returns the context of a request that is about to be forwarded, to its target or to the first of these ways that
    /// has room.
    pub(crate) fn context_of(&mut self, handling: &Handling<'_, '_>, ways: &mut Ways<'_>) -> Context {
        match handling.progress.proof.in_dialog {
            _ if handling.begins_call() => self.begin_call(handling, ways),
            // Outside its dialog a request changes nothing of a call.
            false => Context::Notices(self.pass_outside(handling)),
            true if self.calls.is_empty() => Context::Notices(0),
            true => Context::Notices(self.pass_within(handling)),
        }
    }

    fn begin_call(&mut self, handling: &Handling<'_, '_>, ways: &mut Ways<'_>) -> Context {
        let (tracks, stays) = (self.decider().tracks(handling), self.decider().stays(handling));
        let (logs, accounts) = (self.decider().may_log_calls(), self.decider().accounts(handling));
        if !tracks && !logs && !accounts {
            return Context::Notices(NO_CALL);
        }
        let (request, in_dialog) = (handling.request, handling.progress.proof.in_dialog);
        // An INVITE without a To tag was refused before.
        if self.shard.circumstances.draining && !request.to_tag.is_empty() && !in_dialog {
            return Context::Full;
        }
        if tracks
            && stays
            && let Some(why) = self.decider().unendable(request)
            && !self.decider().is_emergency_of(handling)
        {
            return Context::Unendable(why);
        }
        let decision = handling.progress.decision.as_deref();
        let all = decision.map(Decision::all_claims).unwrap_or_default();
        let may_count = decision.is_some_and(Decision::may_count);
        let key = self.decider().key_of_call(request.call_id, request.from_tag);
        let mut retried = None;
        if let Some(call) = self.calls.get(key) {
            let is_counted = accounts || may_count || call.account.is_some() || call.taken().next().is_some();
            if let Some(again) =
                self.decider().passes_again(request, handling.progress.proof.user.is_some() && !in_dialog, call)
            {
                // Two targets would share one record, that of the first.
                if again == Again::Forked && (accounts || call.account.is_some()) {
                    return Context::Merged;
                }
                if tracks && !call.tracked && self.decider().has_no_room() {
                    return Context::Full;
                }
                // A further target takes a place of its own under each limit, until the call ends.
                let is_forked = again == Again::Forked;
                let is_more = |claim: &&Claim| is_forked || !call.counts_to_its_end(claim);
                let more: Vec<Claim> = all.iter().filter(is_more).cloned().collect();
                let counts = |claim: &Claim| !is_forked && call.counts_under(claim);
                return match self.decider().take_room(&all, &more, ways, counts) {
                    Ok(room) => Context::Notices(self.pass_again(handling, key, &more, &room)),
                    Err(claim) => self.decider().limited(&claim, decision),
                };
            }
            // With credentials for a server behind this one the INVITE comes as a call of its own: it may go elsewhere
            // now.
            if call.is_left() {
                retried = self.calls.take(key);
            } else if is_counted {
                return Context::Merged;
            } else {
                let (context, is_other) = (call.context(), call.open > 0);
                let is_logged = logs && self.decider().log_call_begun(handling);
                if is_other {
                    // The end of this call would not be seen.
                    return Context::Notices(NO_CALL);
                }
                let began = super::moment(handling.now);
                self.calls.change(key, |call| {
                    (call.open, call.cseq) = (call.open + 1, request.cseq);
                    (call.logged, call.began) = (call.logged || is_logged, began);
                });
                return Context::Notices(context);
            }
        }
        let mut parties = if tracks { self.decider().parties_of_call(handling) } else { [0; 2] };
        let refusal = if tracks && self.decider().has_no_room() {
            Some(Context::Full)
        } else {
            self.calls.shares.are_used_up(parties, self.decider().free_places()).then_some(Context::OverShare)
        };
        if let Some(refusal) = refusal {
            match self.decider().emergency_place(handling) {
                Some(place) => parties = place,
                None => return refusal,
            }
        }
        let room = match self.decider().take_room(&all, &all, ways, |_| false) {
            Ok(room) => room,
            Err(claim) => {
                let context = self.decider().limited(&claim, decision);
                // The INVITE comes here again, led elsewhere.
                if let Some(before) = retried.filter(|_| context == Context::PassedOver) {
                    self.calls.put_back(before);
                }
                return context;
            }
        };
        let is_logged = match &retried {
            Some(before) => before.logged,
            None => logs && self.decider().log_call_begun(handling),
        };
        if !is_logged && !tracks && !accounts {
            return Context::Notices(NO_CALL);
        }
        let mut call = self.new_call(handling, tracks);
        (call.open, call.logged, call.stays, call.parties) = (1, is_logged, stays, parties);
        call.count(&all, &all);
        call.lead(room.led, &room.taken);
        call.account = accounts.then(|| self.open_account(handling, tracks.then(|| call.names())));
        if let Some(before) = retried {
            call.began = before.began;
            if let (Some(account), Some(before)) = (&mut call.account, &before.account) {
                account.began_as(before);
            }
        }
        call.key = key;
        let context = call.context();
        self.calls.put(key, call);
        if in_dialog && tracks {
            self.resume_dialog(request, key);
        }
        Context::Notices(context)
    }

    fn new_call(&mut self, handling: &Handling<'_, '_>, tracks: bool) -> Call {
        let (request, salt) = (handling.request, self.stack.entropy.u64());
        let mut call = Call::begun(request, handling.now, tracks, &self.decider().kept_tag(request.from_tag), salt);
        let may_be_urgent = tracks && !self.policy.config.decisions.emergency.uris.is_empty();
        call.urgent = may_be_urgent && self.decider().is_emergency_of(handling);
        call
    }

    /// Adds one more INVITE to this call, which then counts under these limits as well. The call is tracked if one of
    /// its INVITEs is, and accounted from the first such INVITE on. Returns its context.
    fn pass_again(&mut self, handling: &Handling<'_, '_>, key: u64, more: &[Claim], room: &Room<'_>) -> u64 {
        let is_tracked = self.calls.get(key).is_some_and(|call| call.tracked);
        let tracked = (self.decider().tracks(handling) && !is_tracked).then(|| self.new_call(handling, true));
        let is_accounted = self.calls.account(key).is_some();
        let account = (self.decider().accounts(handling) && !is_accounted).then(|| self.open_account(handling, None));
        let (stays, cseq) = (self.decider().stays(handling), handling.request.cseq);
        let context = self.calls.change(key, |call| {
            if let Some(tracked) = tracked {
                call.track(tracked);
            }
            (call.open, call.cseq, call.challenged) = (call.open + 1, cseq, false);
            call.stays |= stays;
            call.account = call.account.take().or(account);
            call.count(more, &room.of_call);
            call.lead(room.led, &room.taken);
            call.context()
        });
        self.calls.has_changed(key);
        context.unwrap_or_default()
    }

    /// Reads the Contact and routes of a party from a request that was forwarded. `sent`: index of the first message in
    /// the outbox that left for it. That message has the seal and route token of this server, as the peer gets them.
    pub(crate) fn forwarded(&mut self, handling: &Handling<'_, '_>, context: u64, sent: usize) {
        let purpose = Purpose::of(context).filter(|purpose| matches!(purpose, Purpose::Invite | Purpose::Renewal));
        let Some((purpose, key)) = purpose.zip(self.calls.key_of(context)) else { return };
        if self.calls.get(key).is_none_or(|call| !call.tracked) {
            return;
        }
        let source = handling.request.arrival.remote;
        let mut index = std::mem::take(&mut self.calls.index);
        if let Some(bytes) = first_sent(handling.out, sent)
            && index.parse(bytes, &Limits::UNLIMITED).is_ok()
        {
            let message = Message::new(bytes, &index);
            match purpose {
                Purpose::Invite => self.hear_caller(key, &message, source),
                _ => self.hear_renewal(key, context, &message, source),
            }
        }
        self.calls.index = index;
    }

    /// Handles the failure to forward a request with this context.
    pub(crate) fn not_forwarded(&mut self, now: Now, context: u64) {
        match (Purpose::of(context), self.calls.key_of(context)) {
            (Some(Purpose::Invite), Some(key)) => drop(self.calls.change(key, Call::fail)),
            (Some(Purpose::Bye), Some(key)) => self.bye_refused(now, (key, context), 500),
            (Some(Purpose::Question), _) => self.refuse_own(context, 500),
            _ => (),
        }
    }

    /// Reports a final response of this server to its own request, as the proxy reports one of a peer.
    pub(crate) fn refuse_own(&mut self, context: u64, status: u16) {
        let event = NoticeEvent::Exhausted { status, bytes: 0..0 };
        self.stack.proxy.reports().push(Report::Notice(Notice { context, event }));
    }

    fn hear_caller(&mut self, key: u64, message: &Message<'_>, source: SocketAddr) {
        let (way, offer) = (way(&self.policy.router, message), SessionOffer::of(message));
        self.calls.change(key, |call| {
            call.offer = offer;
            if let Some((contact, routes)) = way {
                call.set_caller_way(contact, &routes, Source::of(source));
            }
        });
    }
}

impl Decider<'_> {
    /// Returns whether the request with this context begins a tracked call.
    pub(crate) fn begins_tracked_call(&self, context: u64) -> bool {
        if self.calls.counts().tracked == 0 || Purpose::of(context) != Some(Purpose::Invite) {
            return false;
        }
        self.calls.key_of(context).and_then(|key| self.calls.get(key)).is_some_and(|call| call.tracked)
    }

    /// Takes room under all limits of `more`, and under those of the first way that has room. `all`: limits under which
    /// the call then counts. `counts`: tells whether it counts under a limit already. The error is a limit without
    /// room.
    fn take_room<'a>(
        &self,
        all: &[Claim],
        more: &[Claim],
        ways: &mut Ways<'a>,
        counts: impl Fn(&Claim) -> bool,
    ) -> Result<Room<'a>, Claim> {
        let limits = &self.shared.call_limits;
        let of_call: Vec<Claim> = more.iter().filter(|claim| !counts(claim)).cloned().collect();
        limits.take(&of_call).map_err(Claim::clone)?;
        let mut full = None;
        for &(candidate, led) in &ways.claims {
            let is_new = |claim: &&Claim| !all.iter().any(|other| other.counted == claim.counted) && !counts(claim);
            let taken: Vec<Claim> = led.iter().filter(is_new).cloned().collect();
            match limits.take(&taken) {
                Ok(()) => {
                    ways.first = candidate;
                    return Ok(Room { of_call, led, taken });
                }
                Err(claim) => full = full.or_else(|| Some(claim.clone())),
            }
        }
        let Some(full) = full else { return Ok(Room { of_call, led: &[], taken: Vec::new() }) };
        of_call.iter().for_each(|claim| limits.give_back(&claim.counted));
        Err(full)
    }

    /// Tells whether the bound on tracked calls is reached.
    fn has_no_room(&self) -> bool {
        self.free_places() == 0
    }

    /// Returns the number of further calls that this shard may track.
    fn free_places(&self) -> usize {
        let ordinary = self.calls.counts().tracked.saturating_sub(self.calls.shares.emergencies());
        self.places().saturating_sub(ordinary)
    }

    /// Returns the number of calls that this shard may track.
    pub(super) fn places(&self) -> usize {
        self.policy.config.dialogs.calls.div_ceil(self.shared.counters.len())
    }

    /// Tells whether a request is an emergency call, which has bounds of its own.
    pub(crate) fn is_emergency_of(&self, handling: &Handling<'_, '_>) -> bool {
        let routing = self.policy.router.route(handling.progress.began, handling.request);
        self.is_emergency(handling.now, handling.request, &routing)
    }

    /// Returns the kind of repetition if an INVITE repeats a known call. An INVITE whose sender has proved by a
    /// password to be a user (`is_user`) makes a call of its own.
    pub(crate) fn passes_again(&self, request: &Request<'_>, is_user: bool, call: &Call) -> Option<Again> {
        // While the INVITE is open no server changes its CSeq.
        if is_user || call.open == 0 || call.cseq != request.cseq {
            return None;
        }
        let is_sent_back = self.policy.router.has_been_here(request);
        Some(if is_sent_back { Again::SentBack } else { Again::Forked })
    }

    /// Returns the refusal for a full limit, either of the rules or of a failure rule that leads the request on.
    fn limited(&self, claim: &Claim, decision: Option<&Decision>) -> Context {
        if decision.is_some_and(|decision| decision.led.is_some() && !decision.claims.contains(claim)) {
            return Context::PassedOver;
        }
        let mut limits = self.policy.config.call_limits.iter();
        Context::Limited(claim.status, limits.position(|limit| *limit.name.as_str() == *claim.counted.name))
    }

    /// Returns whether a request belongs to a tracked dialog.
    pub(crate) fn is_of_tracked_dialog(&self, request: &Request<'_>) -> bool {
        self.is_of_dialog(request, |_, _, _| true)
    }

    /// Returns whether a request belongs to an answered dialog of a tracked call.
    pub(crate) fn is_of_answered_dialog(&self, request: &Request<'_>) -> bool {
        self.is_of_dialog(request, |call, dialog, party| {
            dialog.answer.is_some() && self.leads_along(request, call, dialog, party)
        })
    }

    /// Returns whether a request belongs to a dialog that this server ends.
    pub(crate) fn is_of_ending_dialog(&self, request: &Request<'_>) -> bool {
        self.is_of_dialog(request, |_, dialog, _| dialog.ending().is_some())
    }

    /// Returns whether a request belongs to a dialog with a BYE in progress.
    pub(crate) fn has_bye_under_way(&self, request: &Request<'_>) -> bool {
        self.is_of_dialog(request, |_, dialog, _| dialog.is_ending())
    }

    /// Returns whether a request belongs to a dialog of a tracked call, or to a tracked call whose INVITE has no final
    /// response. The table has only a bounded number of its early dialogs.
    pub(crate) fn is_of_open_or_tracked_dialog(&self, request: &Request<'_>) -> bool {
        let is_open = |tag| {
            let call = self.calls.get(self.key_of_call(request.call_id, tag));
            call.is_some_and(|call| call.tracked && call.open > 0)
        };
        self.is_of_tracked_dialog(request) || is_open(request.from_tag) || is_open(request.to_tag)
    }

    pub(crate) fn is_of_dialog(&self, request: &Request<'_>, is_meant: impl Fn(&Call, &Dialog, Party) -> bool) -> bool {
        let (from, to) = (request.from_tag, request.to_tag);
        [(Party::Caller, from, to), (Party::Callee, to, from)].into_iter().any(|(party, tag, other)| {
            let call = self.calls.get(self.key_of_call(request.call_id, tag)).filter(|call| call.tracked);
            let other = self.kept_tag(other);
            call.is_some_and(|call| {
                call.dialogs.iter().any(|dialog| dialog.tag() == &*other && is_meant(call, dialog, party))
            })
        })
    }
}

fn first_sent(out: &Outbox, sent: usize) -> Option<&[u8]> {
    out.sends().get(sent).and_then(|send| out.bytes.get(send.range()))
}

/// Returns the URI of the Contact, as it is written.
pub(super) fn contact_of<'a>(message: &Message<'a>) -> Option<&'a [u8]> {
    let text = message.contacts().next()?.ok()?.addr.uri_text;
    (text.len() <= LONGEST_WAY).then_some(text)
}

/// Returns the path of a request from the peer to this party: its Contact, and the Routes from this server on, that of
/// this server first (RFC 3261 sections 12.1.1 and 12.1.2). The Record-Routes of a request lead to the caller, those of
/// a response, in reverse order, to the callee.
pub(super) fn way<'a>(router: &Router, message: &Message<'a>) -> Option<(&'a [u8], Vec<u8>)> {
    let contact = contact_of(message)?;
    let mut routes: SmallVec<[Hop<'a>; 4]> = SmallVec::new();
    for route in message.record_routes() {
        routes.push(route.ok()?.value);
    }
    if !message.is_request() {
        routes.reverse();
    }
    // A peer can write a Route with an address of this server, but no route token.
    let is_own = |route: &Hop<'_>| route.uri.sip().is_some_and(|uri| router.is_own_record_route(uri));
    let first = routes.iter().position(is_own)?;
    let mut text = Vec::new();
    for route in &routes[first..] {
        text.extend_from_slice(if text.is_empty() { b"<" } else { b", <" });
        text.extend_from_slice(route.uri_text);
        text.push(b'>');
    }
    (text.len() <= LONGEST_WAY).then_some((contact, text))
}
