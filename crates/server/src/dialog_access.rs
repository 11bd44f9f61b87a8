//! Whether a request is let through as one within a dialog: by its route token or seal, by the table of tracked calls, and as long as its
//! sender is a user.
//!
//! An INVITE that would set up a session belongs to a call that this server has in its table, or its route token says that its dialog is
//! that of an answered INVITE. Any other INVITE begins a call, whatever stands in its To tag: it is authenticated, limited and recorded.

use crate::engine::Engine;
use crate::handling::Handling;
use crate::question::Question;
use crate::registration::write_aor;
use strowger_core::routing::{Request, Routing, Usage, seconds};
use strowger_message::{Method, Uri};
use strowger_store::subscriber;

/// What is to be done with a request that its route token or seal lets through.
pub(crate) enum DialogAccess {
    Granted,
    /// It is treated as one outside of any dialog.
    Refused,
    Ask(Question),
}

impl Handling<'_, '_> {
    /// Whether the request begins a call: an INVITE that is not let through as one within a dialog.
    pub(crate) fn begins_call(&self) -> bool {
        self.request.method == Method::Invite && !self.progress.proof.in_dialog
    }
}

impl Engine {
    /// Whether the route token or the seal of a request lets it through, for its method (RFC 5057).
    pub(crate) fn is_within_dialog(&self, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        routing.in_dialog
            && match request.method {
                Method::Invite => self.opens_invite(request, routing),
                method => routing.usage.opens(method),
            }
    }

    /// An INVITE in a tracked call is one of its dialog only if the table knows that. Where calls are not kept over a restart, the table has none
    /// of an earlier process: a call whose route token is older than this process goes on, in no table.
    fn opens_invite(&self, request: &Request<'_>, routing: &Routing<'_>) -> bool {
        match routing.usage {
            Usage::Call => true,
            Usage::TrackedCall => self.is_of_answered_dialog(request) || self.is_of_earlier_process(routing),
            Usage::Early | Usage::Subscription => self.is_of_answered_dialog(request),
        }
    }

    fn is_of_earlier_process(&self, routing: &Routing<'_>) -> bool {
        let before = seconds(self.shared.began).wrapping_sub(routing.made).cast_signed();
        let is_so = before > 0 && !self.calls.are_kept();
        if is_so {
            self.counters().earlier_calls.one();
        }
        is_so
    }

    /// Whether a request is let through as one within a dialog. The removal of an account ends what its route tokens open, but for what ends a
    /// call: a user who is none any more shows a password that is no longer good.
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

    /// Apart: few requests come so far.
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
        // A subscription is renewed without end: each time its user must be there.
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
            // A database that fails ends no subscription.
            Some(_) => DialogAccess::Granted,
            None => {
                let (username, domain) = (username[..].into(), domain[..].into());
                DialogAccess::Ask(Question::User { username, domain })
            }
        }
    }
}
