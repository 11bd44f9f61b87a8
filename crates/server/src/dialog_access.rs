//! Access by dialog: which requests pass without a password because they belong to a dialog that this server let through.
//!
//! The proof is a route token or a seal, whose usage must fit the method. An INVITE needs more. If its call is tracked, the table of calls
//! must have an answered dialog with its tags. If not, the token must state an answered INVITE. Any other INVITE begins a call, with
//! any To tag: the server authenticates, limits and records it.

use crate::engine::Engine;
use crate::handling::Handling;
use crate::question::Question;
use crate::registration::write_aor;
use strowger_core::routing::{Request, Routing, Usage, seconds};
use strowger_message::{Method, Uri};
use strowger_store::subscriber;

/// Decision about a request that claims to be within a dialog.
pub(crate) enum DialogAccess {
    /// It passes.
    Granted,
    /// It is treated as a request outside of any dialog.
    Refused,
    /// The database of subscribers must answer first.
    Ask(Question),
}

impl Handling<'_, '_> {
    /// Returns whether the request begins a call: an INVITE that did not pass as one within a dialog.
    pub(crate) fn begins_call(&self) -> bool {
        self.request.method == Method::Invite && !self.progress.proof.in_dialog
    }
}

impl Engine {
    /// Returns whether the dialog of a request is proved, and by a usage that fits its method (RFC 5057).
    pub(crate) fn is_within_dialog(&self, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        routing.in_dialog
            && match request.method {
                Method::Invite => self.opens_invite(request, routing),
                method => routing.usage.opens(method),
            }
    }

    /// Returns whether an INVITE passes as one within its proved dialog.
    fn opens_invite(&self, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        match routing.usage {
            Usage::Call => true,
            Usage::TrackedCall => self.is_of_answered_dialog(request) || self.is_of_earlier_process(routing),
            Usage::Early | Usage::Subscription => self.is_of_answered_dialog(request),
        }
    }

    /// Returns whether an earlier process tracked the call of a request. Without `dialogs.folder` or `dialogs.database` the table has no calls
    /// from before the start. Their INVITEs refresh sessions (RFC 4028), so they pass.
    fn is_of_earlier_process(&self, routing: &Routing<'_>) -> bool {
        let is_so = self.is_made_before_start(routing);
        if is_so {
            self.counters().earlier_calls.one();
        }
        is_so
    }

    fn is_made_before_start(&self, routing: &Routing<'_>) -> bool {
        let before = seconds(self.shared.began).wrapping_sub(routing.made).cast_signed();
        before > 0 && !self.calls.are_kept()
    }

    /// Returns whether a request belongs to a tracked call that has ended: its route token says that the call is tracked, and the table does not
    /// know it. Nothing but the BYE of the other party passes then. SUBSCRIBE and NOTIFY are another usage of the dialog, which may last longer
    /// (RFC 5057); an INVITE begins a call.
    pub(crate) fn is_of_ended_call(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> bool {
        let request = handling.request;
        let is_exempt =
            matches!(request.method, Method::Invite | Method::Ack | Method::Bye | Method::Subscribe | Method::Notify);
        handling.progress.proof.in_dialog
            && routing.usage == Usage::TrackedCall
            && !is_exempt
            && !self.is_of_open_or_tracked_dialog(request)
            && !self.is_made_before_start(routing)
    }

    /// Decides whether a request passes as one within its dialog. After the removal of an account its route tokens are no proof, except for
    /// BYE and ACK: the other party must learn that the call ended.
    pub(crate) fn dialog_access(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> DialogAccess {
        let request = handling.request;
        if !self.is_within_dialog(request, routing) {
            return DialogAccess::Refused;
        }
        let is_end = matches!(request.method, Method::Bye | Method::Ack);
        if is_end || (self.shared.removed_users.is_empty() && request.method != Method::Subscribe) {
            return DialogAccess::Granted;
        }
        self.access_of_user(handling, routing)
    }

    /// Kept out of line: few requests get here.
    #[inline(never)]
    fn access_of_user(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> DialogAccess {
        let request = handling.request;
        let from = &request.mandatory.from.uri;
        let Uri::Sip(uri) = from else { return DialogAccess::Granted };
        let config = &self.policy.config;
        if uri.user.is_none() || !config.auth.calls || !self.is_from_local(request) {
            return DialogAccess::Granted;
        }
        let mut aor = Vec::new();
        write_aor(from, &mut aor);
        if self.shared.removed_users.is_removed(&aor, routing.made) {
            return DialogAccess::Refused;
        }
        // A subscriber can renew a subscription for ever, so each renewal asks for its user.
        let is_asked = request.method == Method::Subscribe && config.registrar.authenticate;
        if !is_asked || self.shared.subscribers.is_none() {
            return DialogAccess::Granted;
        }
        let (mut username, mut domain) = (Vec::new(), Vec::new());
        strowger_message::uri::sip::unescape(uri.user.unwrap_or_default(), &mut username);
        uri.host.write_lower(&mut domain);
        let question = subscriber::Question::User { username: &username, domain: &domain };
        let known = match &handling.progress.answers.user {
            Some(answer) => Some(answer.clone()),
            None => self.known(question, handling.now.mono),
        };
        match known {
            Some(Ok(subscriber::Answer::Absent)) => DialogAccess::Refused,
            // A failed look-up ends no subscription.
            Some(_) => DialogAccess::Granted,
            None => {
                let (username, domain) = (username[..].into(), domain[..].into());
                DialogAccess::Ask(Question::User { username, domain })
            }
        }
    }
}
