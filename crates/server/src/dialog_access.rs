//! Access by dialog: requests pass without a password if they belong to a dialog that this server admitted.
//!
//! The proof is a route token or a seal, whose usage must fit the method. For an INVITE this proof is not enough. If
//! the call is tracked, the table of calls must also have an answered dialog with the tags of the INVITE. If the call
//! is not tracked, the token must state an answered INVITE. Any other INVITE begins a call, with any To tag: the server
//! authenticates, limits and records it.
//!
//! An INVITE of a call that an earlier process tracked needs no password, since its token proves its party. The INVITE
//! nevertheless begins a call in the table: the server limits and records the call.

use crate::decider::Decider;
use crate::decision::Decision;
use crate::handling::Handling;
use crate::proof::User;
use crate::question::Question;
use crate::reply::{Reply, Why};
use crate::role::ServerRole;
use crate::stage::Verdict;
use strowger_calls::ended_calls::Memory;
use strowger_core::Now;
use strowger_core::routing::{AccountHash, Request, Routing, Usage, seconds};
use strowger_message::uri::sip::unescape;
use strowger_message::{Method, Uri};
use strowger_store::subscriber;

/// Decision about a request that claims to be within a dialog.
pub(crate) enum DialogAccess {
    /// Access.
    Granted,
    /// No access: the request is treated as one outside any dialog.
    Refused,
    /// Question that the database of subscribers must answer first.
    Ask(Question),
}

/// Returns the age of a token in seconds; negative if a clock was set back.
const fn age(now: Now, made: u32) -> i32 {
    seconds(now).wrapping_sub(made).cast_signed()
}

impl Handling<'_, '_> {
    /// Returns whether the request begins a call: an INVITE that did not pass as a request within a dialog, or that
    /// resumes a call. Within a dialog only an INVITE that resumes a call has a decision.
    pub(crate) fn begins_call(&self) -> bool {
        let is_within = self.progress.proof.in_dialog && self.progress.decision.is_none();
        self.request.method == Method::Invite && !is_within
    }

    /// Tells whether the request begins a call that the rules bridge. An INVITE with a To tag belongs to a dialog that this server does not know.
    pub(crate) fn begins_bridge(&self) -> bool {
        let is_bridged = self.progress.decision.as_deref().is_some_and(|decision| decision.role == ServerRole::Bridge);
        is_bridged && self.begins_call() && self.request.to_tag.is_empty()
    }
}

impl Decider<'_> {
    /// Returns whether the dialog of a request is proved by a usage that fits the method of the request (RFC 5057).
    pub(crate) fn is_within_dialog(&self, now: Now, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        routing.in_dialog
            && match request.method {
                Method::Invite => self.opens_invite(now, request, routing),
                method => routing.usage.opens(method),
            }
    }

    /// Returns whether an INVITE passes as a request within its proved dialog.
    fn opens_invite(&self, now: Now, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        match routing.usage {
            Usage::Call => true,
            Usage::TrackedCall => {
                self.calls.is_of_answered_dialog(&self.policy.router, request)
                    || self.is_of_earlier_process(now, request, routing)
            }
            Usage::Early | Usage::Subscription => self.calls.is_of_answered_dialog(&self.policy.router, request),
        }
    }

    /// Returns whether an earlier process tracked the call of a request, and this process does not know the call.
    /// Without `dialogs.folder` or `dialogs.database` the table has no calls from before the start. INVITEs within such
    /// calls refresh sessions (RFC 4028), so they pass.
    fn is_of_earlier_process(&self, now: Now, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        self.is_made_before_start(now, routing) && !self.is_known_here(request)
    }

    /// Returns whether this process has an answered call with this dialog, or saw the end of the call, or has an early
    /// call whose callee sent the request.
    fn is_known_here(&self, request: &Request<'_>) -> bool {
        let has_ended = |tag| self.shared.ended_calls.is_there(self.calls.key_of_call(request.call_id, tag));
        self.calls.is_of_begun_dialog(request) || has_ended(request.from_tag) || has_ended(request.to_tag)
    }

    /// Returns whether a request that passes within its dialog is the first INVITE here of a call that an earlier process tracked.
    pub(crate) fn resumes_call(&self, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        request.method == Method::Invite
            && routing.usage == Usage::TrackedCall
            && !self.calls.is_of_answered_dialog(&self.policy.router, request)
    }

    /// Resumes a call that an earlier process tracked. Rules count and record it. No rule answers the request or
    /// changes its target, which the dialog determines.
    ///
    /// # Errors
    /// A limit is full.
    #[inline(never)]
    pub(crate) fn resume_call(&self, handling: &mut Handling<'_, '_>, routing: &Routing<'_>) -> Result<(), Reply> {
        self.counters().earlier_calls.one();
        handling.progress.proof.user = self.user_of_token(handling.request, routing);
        handling.progress.decision = Some(Box::default());
        let decision = match self.consult_rules(handling, routing) {
            Verdict::Decide(decision) => *decision,
            Verdict::Reply(reply) if matches!(reply.why, Why::Limit(_)) => return Err(reply),
            _ => Decision::default(),
        };
        handling.progress.decision = Some(Box::new(decision.resumed()));
        Ok(())
    }

    /// Returns the user that From names, if the route token states the account of that user; `None` if calls need no
    /// password.
    fn user_of_token(&self, request: &Request<'_>, routing: &Routing<'_>) -> Option<User> {
        let (from, router) = (&request.mandatory.from.uri, &self.policy.router);
        let is_stated = routing.account.is_some_and(|account| account != AccountHash::NONE)
            && routing.account == Some(router.account_of(from));
        if !is_stated || self.believes(request.arrival.remote.ip()) {
            return None;
        }
        let uri = from.address()?;
        let domain = router.identity().domain_of(uri.host)?;
        let mut name = Vec::new();
        unescape(uri.user?, &mut name);
        Some(User { name: name[..].into(), domain: domain.into() })
    }

    fn is_made_before_start(&self, now: Now, routing: &Routing<'_>) -> bool {
        // Start of the process by the current wall clock, which may have been stepped since the start.
        let began = Now { wall: now.wall.wrapping_sub(now.mono.saturating_sub(self.shared.began.mono)), ..now };
        let before = seconds(began).wrapping_sub(routing.renewed).cast_signed();
        before > 0 && !self.calls.are_kept()
    }

    /// Returns the refusal of a request in a tracked dialog that has ended or is about to end. An INVITE or UPDATE is
    /// also refused while a BYE is under way: a peer that has received the BYE could take an INVITE after it for a new
    /// call (RFC 3261 section 12.2.2).
    pub(crate) fn refusal_at_end(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Option<Reply> {
        if self.is_of_ended_call(handling, routing) {
            return Some(Reply::refused(481).because("the call has ended"));
        }
        let request = handling.request;
        let is_renewal = matches!(request.method, Method::Invite | Method::Update) && !request.to_tag.is_empty();
        let is_late = is_renewal && self.calls.counts().ending > 0 && self.calls.has_bye_under_way(request);
        is_late.then(|| Reply::refused(491).because("a BYE of its dialog is under way"))
    }

    /// Returns whether a request belongs to a tracked dialog that has ended, or that this server ends. Only the BYE of
    /// the other party passes then. SUBSCRIBE and NOTIFY are another usage of the dialog, which may last longer (RFC
    /// 5057). An INVITE after the end begins a call.
    fn is_of_ended_call(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> bool {
        let request = handling.request;
        let is_exempt = matches!(request.method, Method::Ack | Method::Bye | Method::Subscribe | Method::Notify);
        if !handling.progress.proof.in_dialog || is_exempt || handling.progress.context != 0 {
            return false;
        }
        if self.calls.counts().ending > 0 && self.calls.is_of_ending_dialog(request) {
            return true;
        }
        match (request.method, routing.usage) {
            (Method::Invite, _) | (_, Usage::Subscription | Usage::Call) => false,
            (_, Usage::Early | Usage::TrackedCall) => {
                !self.calls.is_of_open_or_tracked_dialog(request) && self.has_ended_here(handling.now, request, routing)
            }
        }
    }

    /// Returns whether the dialog of a request has ended in this process. If not, the dialog is tracked by another
    /// server with the same secret, or was tracked by a process that ended before it could keep the call.
    fn has_ended_here(&self, now: Now, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        let is_tracked = routing.usage == Usage::TrackedCall;
        let age = seconds(now).wrapping_sub(routing.made).cast_signed().max(0).cast_unsigned();
        [request.from_tag, request.to_tag].into_iter().any(|tag| {
            let key = self.calls.key_of_call(request.call_id, tag);
            if self.calls.is_tracked(key) {
                // The call has other dialogs.
                return true;
            }
            match self.shared.ended_calls.recall(now, key, age) {
                Memory::Ended => true,
                Memory::Unknown => false,
                Memory::Forgotten => is_tracked && !self.is_made_before_start(now, routing),
            }
        })
    }

    /// Returns the account of the sender of a request, for the route token of the dialog that the request makes: the
    /// account whose password the sender has proved, or that the sender's route token states, else the user in From.
    pub(crate) fn account_of_sender(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> AccountHash {
        let (proof, router) = (&handling.progress.proof, &self.policy.router);
        match &proof.user {
            Some(user) => router.account(&user.name, &user.domain),
            None => routing
                .account
                .filter(|_| proof.in_dialog)
                .unwrap_or_else(|| router.account_of(&handling.request.mandatory.from.uri)),
        }
    }

    /// Decides whether a request passes as one within its dialog. After the removal of an account its route tokens are no proof, except for
    /// BYE and ACK: the other party must learn that the call ended.
    pub(crate) fn dialog_access(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> DialogAccess {
        let request = handling.request;
        if !self.is_within_dialog(handling.now, request, routing) {
            return DialogAccess::Refused;
        }
        let is_end = matches!(request.method, Method::Bye | Method::Ack);
        if is_end || (self.shared.removed_users.is_empty() && request.method != Method::Subscribe) {
            return DialogAccess::Granted;
        }
        self.access_of_user(handling, routing)
    }

    /// Tells whether a request may use the reserve because it ends, renews or serves a dialog that this server
    /// admitted. The route token, the seal or the table of calls proves the dialog.
    pub(crate) fn proves_dialog(&self, now: Now, request: &Request<'_>) -> bool {
        let is_reserved =
            matches!(request.method, Method::Bye | Method::Prack | Method::Update | Method::Notify | Method::Invite);
        is_reserved
            && !request.to_tag.is_empty()
            && (self.is_within_dialog(now, request, &self.policy.router.route(now, request))
                || self.calls.is_of_tracked_dialog(request))
    }

    /// Tells whether a request belongs to a dialog, as its route token, its seal or the table of calls proves.
    pub(crate) fn is_of_call(&self, now: Now, request: &Request<'_>) -> bool {
        self.is_within_dialog(now, request, &self.policy.router.route(now, request))
            || self.calls.is_of_tracked_dialog(request)
    }

    /// Decides by the account that the route token states. From is used only if it names that account, because a sender
    /// may change From within a dialog. Not inlined: few requests reach this function.
    #[inline(never)]
    fn access_of_user(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> DialogAccess {
        let (request, config) = (handling.request, &self.policy.config);
        if !config.auth.calls {
            return DialogAccess::Granted;
        }
        if self.shared.removed_users.is_removed(routing.account, handling.now, age(handling.now, routing.made)) {
            return DialogAccess::Refused;
        }
        // A subscriber can renew a subscription for ever, so each renewal asks whether the user still exists.
        let is_asked = request.method == Method::Subscribe && config.registrar.authenticate;
        if !is_asked || self.shared.subscribers.is_none() {
            return DialogAccess::Granted;
        }
        let from = &request.mandatory.from.uri;
        if routing.account != Some(self.policy.router.account_of(from)) {
            return DialogAccess::Refused;
        }
        let Uri::Sip(uri) = from else { return DialogAccess::Granted };
        if routing.account == Some(AccountHash::NONE) {
            return DialogAccess::Granted;
        }
        match self.exists(handling, uri, Ok(subscriber::SubscriberAnswer::Exists)) {
            Ok(Ok(subscriber::SubscriberAnswer::Absent)) => DialogAccess::Refused,
            // A failed look-up ends no subscription.
            Ok(_) => DialogAccess::Granted,
            Err(question) => DialogAccess::Ask(question),
        }
    }
}
