//! INVITE that begins a call, or arrives again within a call: its place in the table, its limits, its account.

use crate::call::Call;
use crate::cdr::{Account, AccountFacts, CallNames};
use crate::cdr_fields::cause_of;
use crate::context::{NO_CALL, Purpose};
use crate::effect::CallEffect;
use crate::environment::Environment;
use crate::legs::Legs;
use crate::limits::Claim;
use crate::origin::Source;
use crate::remote_target::way;
use crate::session_offer::SessionOffer;
use crate::shares::Parties;
use crate::table::CallTable;
use crate::times::moment;
use crate::unendable::{Unendable, unendable};
use std::net::SocketAddr;
use strowger_core::Now;
use strowger_core::routing::{Request, Router};
use strowger_message::{Limits, Message};

/// Facts about an INVITE that is about to be carried, by the policy of the server.
pub struct Beginning<'a, 'm> {
    /// The INVITE.
    pub request: &'a Request<'m>,
    /// Set if a route token proves that the INVITE belongs to a call of an earlier process.
    pub in_dialog: bool,
    /// Set if its sender has shown a password.
    pub is_user: bool,
    /// Part of this server in the dialogs of the call.
    pub legs: Legs,
    /// Call-ID of the far leg of a tracked call, if each party has a dialog of its own with this server; else empty.
    pub far_call_id: &'a [u8],
    /// Set if the call is tracked: its dialogs are known, and this server can end them.
    pub tracks: bool,
    /// Set if calls are logged.
    pub logs: bool,
    /// Set if the call is accounted.
    pub accounts: bool,
    /// Set if the server is about to stop, and takes over no call of an earlier process.
    pub draining: bool,
    /// Limits under which the call counts to its end, each once.
    pub claims: &'a [Claim],
    /// Set if the call counts under limits, or may do so later.
    pub may_count: bool,
    /// Number of calls that the shard may track.
    pub places: usize,
}

/// Answers of the policy about an INVITE. The table asks for an answer only if it needs that answer.
pub trait Admission {
    /// Tells whether the INVITE is an emergency call, which has bounds of its own.
    fn is_emergency(&self, _calls: &CallTable) -> bool {
        false
    }

    /// Logs the beginning of the INVITE's call, unless the log is full. Returns whether the call is logged from now on.
    fn log_begun(&self, _calls: &CallTable) -> bool {
        false
    }

    /// Returns the parties whose shares of the table the call uses.
    fn parties(&self, _calls: &CallTable) -> Parties {
        [0; 2]
    }

    /// Returns a place reserved for emergency calls, for a call that finds all other places taken; `None` if no such
    /// place is free.
    fn emergency_place(&self, _calls: &CallTable) -> Option<Parties> {
        None
    }

    /// Returns the facts for the account of the call.
    fn account(&self, calls: &CallTable) -> AccountFacts;

    /// Tells whether the limit belongs to a failure rule that is skipped while the limit is full.
    fn passes_over(&self, _claim: &Claim) -> bool {
        false
    }
}

/// Context of the notices about a request, or the reason to refuse it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Context {
    /// Context; 0: no notices are needed.
    Notices(u64),
    /// Bound on tracked calls that is reached.
    Full,
    /// Caller or callee that has as many tracked calls as places are free.
    OverShare,
    /// Call that this server could not end.
    Unendable(Unendable),
    /// Limit of calls that is full.
    Limited(Claim),
    /// Full limit of the failure rule that leads the request on.
    PassedOver,
    /// Another call has the same Call-ID and tag: both calls would share one end, one record and one place under limits.
    Merged,
}

/// Targets to which a request may go, with the limits under which its call then counts.
#[derive(Debug, Default)]
pub struct LimitedTargets<'a> {
    /// Index of each target among the candidates, with its limits.
    pub claims: Vec<(usize, &'a [Claim])>,
    /// Candidate to try first.
    pub first: usize,
}

/// Room taken under limits for a request that is forwarded.
struct Room<'a> {
    /// Limits taken for its call, to the end of the call.
    of_call: Vec<Claim>,
    /// Limits under which its call counts while it is sent to its target.
    held: &'a [Claim],
    /// Limits of `held` that this request has taken.
    taken: Vec<Claim>,
}

/// Kind of repetition of an INVITE of a known call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// A server on its way sent it back here.
    SentBack,
    /// A server before this one sent it to several targets at once.
    Forked,
}

impl CallTable {
    /// Enters an INVITE that begins a call or arrives again within one. The INVITE is on its way to its target, or to
    /// the first of `targets` that has room under its limits.
    pub fn begin(
        &mut self,
        env: &mut Environment<'_>,
        facts: &Beginning<'_, '_>,
        targets: &mut LimitedTargets<'_>,
        policy: &impl Admission,
    ) -> Context {
        let &Beginning { request, in_dialog, tracks, logs, accounts, claims: all, .. } = facts;
        if !tracks && !logs && !accounts {
            return Context::Notices(NO_CALL);
        }
        // An INVITE without a To tag has been refused before this point.
        if facts.draining && !request.to_tag.is_empty() && !in_dialog {
            return Context::Full;
        }
        if tracks
            && facts.legs.are_here()
            && let Some(why) = unendable(request)
            && !policy.is_emergency(self)
        {
            return Context::Unendable(why);
        }
        let key = self.key_of_call(request.call_id, request.from_tag);
        let mut retried = None;
        if let Some(call) = self.get(key) {
            let is_counted = accounts || facts.may_count || call.account.is_some() || call.taken().next().is_some();
            if let Some(again) = passes_again(env.router, request, facts.is_user && !in_dialog, call) {
                // Two targets would both use the record of the first target.
                if again == Again::Forked && (accounts || call.account.is_some()) {
                    return Context::Merged;
                }
                if tracks && !call.tracked && self.free_places(facts.places) == 0 {
                    return Context::Full;
                }
                // A further target takes a place of its own under each limit, until the call ends.
                let is_forked = again == Again::Forked;
                let is_more = |claim: &&Claim| is_forked || !call.counts_to_its_end(claim);
                let more: Vec<Claim> = all.iter().filter(is_more).cloned().collect();
                let counts = |claim: &Claim| !is_forked && call.counts_under(claim);
                return match self.take_room(all, &more, targets, counts) {
                    Ok(room) => Context::Notices(self.pass_again(env, facts, policy, (key, &more, &room))),
                    Err(claim) => limited(policy, claim),
                };
            }
            // An INVITE that is repeated with credentials for a server behind this one begins a call of its own,
            // because it may now be sent elsewhere.
            if call.is_left() {
                retried = self.take(key);
            } else if is_counted {
                return Context::Merged;
            } else {
                let (context, is_other) = (call.context(), call.open > 0);
                let is_logged = logs && policy.log_begun(self);
                if is_other {
                    // This server would not see the end of this call.
                    return Context::Notices(NO_CALL);
                }
                let began = moment(env.now);
                self.change(key, |call| {
                    (call.open, call.cseq) = (call.open + 1, request.cseq);
                    (call.logged, call.began) = (call.logged || is_logged, began);
                });
                return Context::Notices(context);
            }
        }
        let mut parties = if tracks { policy.parties(self) } else { [0; 2] };
        let free = self.free_places(facts.places);
        let refusal = if tracks && free == 0 {
            Some(Context::Full)
        } else {
            self.shares.are_used_up(parties, free).then_some(Context::OverShare)
        };
        if let Some(refusal) = refusal {
            match policy.emergency_place(self) {
                Some(place) => parties = place,
                None => return refusal,
            }
        }
        let room = match self.take_room(all, all, targets, |_| false) {
            Ok(room) => room,
            Err(claim) => {
                let context = limited(policy, claim);
                // The INVITE arrives here again, for another target.
                if let Some(before) = retried.filter(|_| context == Context::PassedOver) {
                    self.put_back(before);
                }
                return context;
            }
        };
        let is_logged = match &retried {
            Some(before) => before.logged,
            None => logs && policy.log_begun(self),
        };
        if !is_logged && !tracks && !accounts {
            return Context::Notices(NO_CALL);
        }
        let mut call = self.new_call(env, facts, tracks, policy);
        (call.open, call.logged, call.legs, call.parties) = (1, is_logged, facts.legs, parties);
        call.count(all, all);
        call.hold(room.held, &room.taken);
        call.account = accounts.then(|| self.open_account(env, policy, tracks.then(|| call.names())));
        if let Some(before) = retried {
            call.began = before.began;
            if let (Some(account), Some(before)) = (&mut call.account, &before.account) {
                account.began_as(before);
            }
        }
        call.key = key;
        let context = call.context();
        self.put(key, call);
        if in_dialog && tracks {
            self.resume_dialog(env, request, key);
        }
        Context::Notices(context)
    }

    fn new_call(
        &self,
        env: &mut Environment<'_>,
        facts: &Beginning<'_, '_>,
        tracks: bool,
        policy: &impl Admission,
    ) -> Call {
        let (salt, request) = (env.entropy.u64(), facts.request);
        let mut call = Call::begun(request, env.now, tracks, &self.kept_tag(request.from_tag), salt);
        if tracks && !facts.far_call_id.is_empty() {
            call.set_far_call_id(facts.far_call_id);
        }
        call.urgent = tracks && policy.is_emergency(self);
        call
    }

    fn open_account(
        &self,
        env: &mut Environment<'_>,
        policy: &impl Admission,
        names: Option<CallNames<'_>>,
    ) -> Box<Account> {
        let identity = [env.entropy.u64(), env.entropy.u64()];
        Account::open(env.now, policy.account(self), names.unwrap_or_default(), identity)
    }

    /// Accounts the call of an INVITE that this server refuses with this status.
    pub fn account_refusal(&mut self, env: &mut Environment<'_>, facts: AccountFacts, status: u16) {
        let (identity, names) = ([env.entropy.u64(), env.entropy.u64()], CallNames::default());
        let mut account = Account::open(env.now, facts, names, identity);
        account.refused(env.now, status, cause_of(status));
        self.effects.extend(account.close(names).map(CallEffect::Account));
    }

    /// Adds one more INVITE to this call, which then counts under these limits as well. The call is tracked if one of
    /// its INVITEs is, and accounted from the first such INVITE on. Returns its context.
    fn pass_again(
        &mut self,
        env: &mut Environment<'_>,
        facts: &Beginning<'_, '_>,
        policy: &impl Admission,
        (key, more, room): (u64, &[Claim], &Room<'_>),
    ) -> u64 {
        let is_tracked = self.get(key).is_some_and(|call| call.tracked);
        let tracked = (facts.tracks && !is_tracked).then(|| self.new_call(env, facts, true, policy));
        let is_accounted = self.account(key).is_some();
        let account = (facts.accounts && !is_accounted).then(|| self.open_account(env, policy, None));
        let (legs, cseq) = (facts.legs, facts.request.cseq);
        let context = self.change(key, |call| {
            if let Some(tracked) = tracked {
                call.track(tracked);
            }
            (call.open, call.cseq, call.challenged) = (call.open + 1, cseq, false);
            if !call.legs.are_here() {
                call.legs = legs;
            }
            call.account = call.account.take().or(account);
            call.count(more, &room.of_call);
            call.hold(room.held, &room.taken);
            call.context()
        });
        self.has_changed(key);
        context.unwrap_or_default()
    }

    /// Reads the Contact and routes of a party from its request with this context. `sent`: the request as sent to the
    /// next hop, with the seal and route token of this server; empty if the request has not been sent yet.
    pub fn forwarded(&mut self, router: &Router, context: u64, sent: &[u8], source: SocketAddr) {
        let purpose = Purpose::of(context).filter(|purpose| matches!(purpose, Purpose::Invite | Purpose::Renewal));
        let Some((purpose, key)) = purpose.zip(self.key_of(context)) else { return };
        if self.get(key).is_none_or(|call| !call.tracked) {
            return;
        }
        let mut index = std::mem::take(&mut self.index);
        if index.parse(sent, &Limits::UNLIMITED).is_ok() {
            let message = Message::new(sent, &index);
            match purpose {
                Purpose::Invite => self.note_caller(router, key, &message, source),
                _ => self.note_renewal(key, context, &message, source),
            }
        }
        self.index = index;
    }

    /// Handles the failure to forward a request with this context. Returns true if the request is a question of this
    /// server; the caller then reports the failure as a response to it.
    pub fn not_forwarded(&mut self, now: Now, context: u64) -> bool {
        match (Purpose::of(context), self.key_of(context)) {
            (Some(Purpose::Invite), Some(key)) => drop(self.change(key, Call::fail)),
            (Some(Purpose::Bye), Some(key)) => self.bye_refused(now, (key, context), 500),
            (Some(Purpose::Question), _) => return true,
            _ => (),
        }
        false
    }

    fn note_caller(&mut self, router: &Router, key: u64, message: &Message<'_>, source: SocketAddr) {
        let (way, offer) = (way(router, message), SessionOffer::of(message));
        self.change(key, |call| {
            call.offer = offer;
            if let Some((contact, routes)) = way {
                call.set_caller_way(contact, &routes, Source::of(source));
            }
        });
    }

    /// Returns whether the request with this context begins a tracked call.
    pub fn begins_tracked_call(&self, context: u64) -> bool {
        if self.counts().tracked == 0 || Purpose::of(context) != Some(Purpose::Invite) {
            return false;
        }
        self.key_of(context).and_then(|key| self.get(key)).is_some_and(|call| call.tracked)
    }

    /// Takes room under all limits of `more`, and under the limits of the first target that has room. `all`: limits
    /// under which the call then counts. `counts`: function that tells whether the call counts under a limit already.
    /// Returns as error a limit without room.
    fn take_room<'a>(
        &self,
        all: &[Claim],
        more: &[Claim],
        targets: &mut LimitedTargets<'a>,
        counts: impl Fn(&Claim) -> bool,
    ) -> Result<Room<'a>, Claim> {
        let limits = &self.settings.limits;
        let of_call: Vec<Claim> = more.iter().filter(|claim| !counts(claim)).cloned().collect();
        limits.take(&of_call).map_err(Claim::clone)?;
        let mut full = None;
        for &(candidate, held) in &targets.claims {
            let is_new = |claim: &&Claim| !all.iter().any(|other| other.counted == claim.counted) && !counts(claim);
            let taken: Vec<Claim> = held.iter().filter(is_new).cloned().collect();
            match limits.take(&taken) {
                Ok(()) => {
                    targets.first = candidate;
                    return Ok(Room { of_call, held, taken });
                }
                Err(claim) => full = full.or_else(|| Some(claim.clone())),
            }
        }
        let Some(full) = full else { return Ok(Room { of_call, held: &[], taken: Vec::new() }) };
        of_call.iter().for_each(|claim| limits.give_back(&claim.counted));
        Err(full)
    }

    /// Returns the number of further calls that this shard may track.
    fn free_places(&self, places: usize) -> usize {
        let ordinary = self.counts().tracked.saturating_sub(self.shares.emergencies());
        places.saturating_sub(ordinary)
    }
}

/// Returns the kind of repetition if an INVITE repeats a known call. An INVITE begins a call of its own if its sender
/// has proved by a password to be a user (`is_user`).
pub fn passes_again(router: &Router, request: &Request<'_>, is_user: bool, call: &Call) -> Option<Again> {
    // No server changes the CSeq while the INVITE is open.
    if is_user || call.open == 0 || call.cseq != request.cseq {
        return None;
    }
    let is_sent_back = router.has_been_here(request);
    Some(if is_sent_back { Again::SentBack } else { Again::Forked })
}

/// Returns the refusal for a full limit, either of the rules or of a failure rule that sends the request to another
/// target.
fn limited(policy: &impl Admission, claim: Claim) -> Context {
    if policy.passes_over(&claim) { Context::PassedOver } else { Context::Limited(claim) }
}
