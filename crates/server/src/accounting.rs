//! Accounting: decides which calls have an account, and collects the facts that the policy adds to their rows. The
//! table of calls keeps the accounts.

use crate::decider::Decider;
use crate::engine::Engine;
use crate::handling::Handling;
use crate::proof::User;
use crate::reply::Why;
use crate::stage::Stage;
use strowger_calls::cdr_fields::{cut, kept, party, values};
use strowger_calls::{AccountFacts, parties};
use strowger_config::AccountedField;
use strowger_core::b2bua::bridge::near_status;
use strowger_core::log_limiter::LogSubject;

impl Decider<'_> {
    /// Tells whether the call that begins with a request is accounted.
    pub(crate) fn accounts(&self, handling: &Handling<'_, '_>) -> bool {
        let accounting = &self.policy.config.accounting;
        let by_rules = || handling.progress.decision.as_ref().and_then(|decision| decision.account);
        accounting.is_on() && by_rules().unwrap_or(accounting.all)
    }

    /// Returns the account that rules name for the call of a request.
    pub(crate) fn account_of<'h>(&self, handling: &'h Handling<'_, '_>) -> Option<&'h str> {
        handling.progress.decision.as_ref()?.account_as.as_deref()
    }

    /// Returns the facts for the account of a call that begins with this request. `refusal`: reason for the refusal of
    /// the call; empty if the call is not refused.
    pub(crate) fn account_facts(&self, handling: &Handling<'_, '_>, refusal: &str) -> AccountFacts {
        let (request, config) = (handling.request, &self.policy.config);
        let masks = config.accounting_masks();
        // Not from To, because a caller can write any text into it.
        let ((caller, _), callee) = (parties(request), request.message.request_uri());
        let dialled = handling.progress.decision.as_ref().and_then(|decision| decision.dialled.as_deref());
        let fields = config.accounting.fields.iter().filter_map(|field| {
            let value = match field {
                AccountedField::RequestUri => party(dialled.unwrap_or(callee), masks),
                AccountedField::Refusal => refusal.to_owned(),
                AccountedField::Header(name) => {
                    let values: Vec<_> = values(&request.message, name).map(kept).collect();
                    masks.all(&cut(values.join(", ")))
                }
            };
            (!value.is_empty()).then(|| [field.name().to_owned(), value])
        });
        let shown = |user: &User| masks.user(&kept(&user.name)).into_bytes();
        let user = handling.progress.proof.user.as_ref();
        let user = user.map(|user| self.policy.realms.with_domain(user, shown(user)));
        AccountFacts {
            writes_cdr: config.accounting.cdr,
            writes_events: config.accounting.events,
            mask_addresses: masks.addresses,
            call_id: masks.addresses(&kept(request.call_id)),
            caller: party(caller, masks),
            callee: party(callee, masks),
            user: kept(&user.unwrap_or_default()),
            source: masks.socket(request.arrival.remote),
            transport: request.arrival.transport.text().to_owned(),
            account: self.account_of(handling).map(ToString::to_string).unwrap_or_default(),
            fields: fields.collect(),
        }
    }
}

impl Engine {
    /// Accounts the call of an admitted INVITE that this server answers itself. An INVITE without proof whose source
    /// may be forged gets no row, because each copy of the INVITE would add a row.
    pub(crate) fn account_refusal(&mut self, handling: &mut Handling<'_, '_>, status: u16, why: Why) {
        if handling.is_far_leg() {
            // Once the call is in the table, it has its own account. The caller gets the status from the bridge.
            let status = near_status(status);
            self.with_near_invite(handling, |engine, near| engine.account_refused_call(near, status, why));
        } else {
            self.account_refused_call(handling, status, why);
        }
    }

    fn account_refused_call(&mut self, handling: &Handling<'_, '_>, status: u16, why: Why) {
        let request = handling.request;
        let is_admitted = matches!(handling.progress.stage, Stage::Decide | Stage::Route);
        let is_failure = status >= 300 && !matches!(status, 401 | 407);
        if !(handling.begins_call() && is_admitted && is_failure) {
            return;
        }
        self.messages().calls.one(status);
        if !(handling.is_source_proven() && self.decider().accounts(handling)) {
            return;
        }
        // The INVITE passes this server a second time. If the caller was asked for a password instead, the INVITE
        // begins a call of its own.
        let call = self.calls.get(self.calls.key_of_call(request.call_id, request.from_tag));
        if call.is_some_and(|call| !call.is_left()) {
            return;
        }
        // The rows of refused calls without a password are bounded.
        let (source, now) = (request.arrival.remote.ip(), handling.now.mono);
        let is_unproven = !handling.progress.proof.is_any() && !self.decider().is_trusted(source);
        if is_unproven && !self.shared.refusal_rows.allow(LogSubject::Request, source, now) {
            self.counters().refusals_unaccounted.one();
            return;
        }
        let reason = self.decider().refusal_text(status, why).into_owned();
        let facts = self.decider().account_facts(handling, &reason);
        let (calls, mut env) = self.calls_at(handling.now);
        calls.account_refusal(&mut env, facts, status);
    }
}
