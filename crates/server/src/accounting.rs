//! Accounting: the records of calls, from their INVITE to their end.
//!
//! An accounted call has an [`Account`] in the table of calls, which hears the outcome of its requests. When the call
//! leaves the table its account is closed, so each call has one record, however it ended. Rows are masked before they
//! leave the shard.

use crate::account_text::{cause_of, codecs, cut, kept, party, values};
use crate::calls::dialog::{Bye, Party};
use crate::calls::texts::Texts;
use crate::calls::{CallNames, moment, parties};
use crate::decider::Decider;
use crate::engine::{Effect, Engine};
use crate::handling::{Handling, User};
use crate::reply::Why;
use crate::stage::Stage;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use strowger_config::AccountedField;
use strowger_core::Now;
use strowger_core::entropy::hex;
use strowger_core::log_limiter::Kind;
use strowger_message::Message;
use strowger_store::accounting::mask::Masks;
use strowger_store::accounting::{Cdr, Event, Row};

/// Facts about an accounted call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    identity: [u64; 2],
    writes_cdr: bool,
    writes_events: bool,
    mask_addresses: bool,
    /// Moment of its INVITE, UTC in milliseconds. Later moments are counted from there by a clock without steps: a
    /// record never ends before it begins.
    setup: u64,
    /// Same moment, on the clock of [`crate::calls::Call::began`].
    pub(crate) began: i64,
    ring: Option<After>,
    answer: Option<After>,
    /// Last end: of one of several dialogs, or of its INVITE.
    end: Option<End>,
    attempts: u16,
    /// Number of events that were written.
    events: u16,
    /// Set if the last target that failed has sent a response.
    is_refused: bool,
    cancelled: bool,
    /// Reason for which the server ends it.
    ends: Option<Ender>,
    status: u16,
    cause: u16,
    /// Texts that equal those of the call, and are stored there alone: a bit for each of [`CallNames`]. The texts of a
    /// tracked call never change.
    of_call: u8,
    /// Texts in one piece of memory, since there is one account for each call. Behind the named ones follow name and
    /// value of each field.
    texts: Texts,
}

/// Size of an account in bytes: a size class of the allocator.
const _: () = assert!(size_of::<Account>() == 80);

// Order of [`CallNames`].
const CALL_ID: usize = 0;
const CALLER: usize = 1;
const CALLEE: usize = 2;
const CODECS: usize = 3;
const USER: usize = 4;
const SOURCE: usize = 5;
const TRANSPORT: usize = 6;
const GATEWAY: usize = 7;
const ACCOUNT: usize = 8;
const FIELDS: usize = 9;

/// Milliseconds after the INVITE, in four bytes even if optional. `dialogs.lifetime` has 30 days at most, and here is
/// room for 49.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct After(NonZeroU32);

impl After {
    /// Makes a moment. Negative `milliseconds` count as the moment of the INVITE.
    fn new(milliseconds: i64) -> Self {
        Self(NonZeroU32::MIN.saturating_add(u32::try_from(milliseconds.max(0)).unwrap_or(u32::MAX)))
    }

    const fn milliseconds(self) -> u32 {
        self.0.get() - 1
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct End {
    by: Ender,
    after: After,
}

/// Cause of the end of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Ender {
    Caller,
    Callee,
    /// End of the lifetime of the call.
    Lifetime,
    SessionTimer,
    /// A party no longer knew the call when the server asked, or no party confirmed it.
    Lost,
    Operator,
    /// No target answered, or the request could not be forwarded.
    Server,
}

impl Ender {
    /// Returns the name in the log and the records.
    pub(crate) const fn text(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Callee => "callee",
            Self::Lifetime => "lifetime",
            Self::SessionTimer => "session timer",
            Self::Lost => "lost",
            Self::Operator => "operator",
            Self::Server => "server",
        }
    }
}

impl Ender {
    /// Returns the party that has ended the call.
    pub(crate) const fn party(self) -> Option<Party> {
        match self {
            Self::Caller => Some(Party::Caller),
            Self::Callee => Some(Party::Callee),
            _ => None,
        }
    }
}

impl From<Party> for Ender {
    fn from(party: Party) -> Self {
        match party {
            Party::Caller => Self::Caller,
            Party::Callee => Self::Callee,
        }
    }
}

/// Q.850 causes: of a normal end, of an end by an operator, of an end by a timer.
pub(crate) const NORMAL: u16 = 16;
const UNSPECIFIED: u16 = 31;
const TIMER: u16 = 102;

/// Number of events of a call after which refused BYEs add none.
const MOST_REFUSALS: u16 = 64;

impl Account {
    /// Notes a ring.
    pub(crate) fn rang(&mut self, now: Now) {
        let after = self.after(now);
        self.ring.get_or_insert(after);
    }

    /// Notes the failure of a next hop.
    pub(crate) fn failed_at(&mut self, target: Option<SocketAddr>, is_refused: bool) {
        if self.answer.is_none() {
            self.attempts = self.attempts.saturating_add(1);
            self.is_refused = is_refused;
            self.note(target, None);
        }
    }

    pub(crate) fn cancelled(&mut self) {
        self.cancelled = true;
    }

    /// Notes the reason for which the server ends the call; the first counts.
    pub(crate) fn is_ended_by(&mut self, by: Ender) {
        self.ends.get_or_insert(by);
    }

    /// Notes a 2xx of this next hop; the first counts. Returns the row of that event.
    pub(crate) fn answered(
        &mut self,
        now: Now,
        status: u16,
        by: Option<SocketAddr>,
        response: &Message<'_>,
        names: CallNames<'_>,
    ) -> Option<Box<Row>> {
        if self.answer.is_some() {
            return None;
        }
        let after = self.after(now);
        self.attempts = self.attempts.saturating_add(1);
        (self.answer, self.status, self.cause) = (Some(after), status, 0);
        // Another INVITE of this call may have failed here before, on its way to this one.
        self.end = None;
        self.note(by, Some(&codecs(response)));
        self.event("invite", after, Party::Callee.text(), (status, 0), names)
    }

    /// Stores the last next hop of its INVITE, if known, and the encodings of its answer.
    fn note(&mut self, gateway: Option<SocketAddr>, codecs: Option<&str>) {
        let gateway = gateway.map(|gateway| self.masks().socket(gateway));
        let texts = [(GATEWAY, gateway.as_deref()), (CODECS, codecs)];
        let others: SmallVec<[(usize, &[u8]); 2]> =
            texts.into_iter().filter_map(|(number, text)| Some((number, text?.as_bytes()))).collect();
        self.texts = self.texts.with(&others);
    }

    /// Notes the final response to an INVITE that failed. A response that asks for a password ends no call.
    pub(crate) fn refused(&mut self, now: Now, status: u16, cause: u16) {
        if self.answer.is_some() {
            return;
        }
        let by = match (self.ends, self.cancelled) {
            (Some(by), _) => by,
            (None, true) => Ender::Caller,
            (None, false) if self.is_refused => Ender::Callee,
            (None, false) => Ender::Server,
        };
        (self.status, self.cause) = (status, cause);
        let is_challenge = matches!(status, 401 | 407);
        self.end = (!is_challenge).then(|| End { by, after: self.after(now) });
    }

    /// Notes that a BYE of this party has ended a dialog; 408: it has no response. Returns the row of that event.
    pub(crate) fn bye_ended(&mut self, by: Party, bye: Bye, status: u16, names: CallNames<'_>) -> Option<Box<Row>> {
        let after = self.ended(by.into(), bye.at, bye.cause);
        self.event("bye", after, by.text(), (status, bye.cause), names)
    }

    /// Notes the refusal of a BYE of this party, which ends nothing. Returns the row of that event. There is none if
    /// the response asks for a password, and no more after very many refusals.
    pub(crate) fn bye_refused(&mut self, by: Party, bye: Bye, status: u16, names: CallNames<'_>) -> Option<Box<Row>> {
        if matches!(status, 401 | 407) || self.events >= MOST_REFUSALS {
            return None;
        }
        let after = self.after_moment(bye.at);
        self.event("bye", after, by.text(), (status, bye.cause), names)
    }

    /// Returns the event of a BYE of the server that a party has refused.
    pub(crate) fn own_bye_refused(&mut self, now: Now, status: u16, names: CallNames<'_>) -> Option<Box<Row>> {
        if self.events >= MOST_REFUSALS {
            return None;
        }
        let after = self.after(now);
        self.event("bye", after, Ender::Server.text(), (status, UNSPECIFIED), names)
    }

    /// Notes the end of a dialog at this moment, by neither party. Returns the row of that event.
    pub(crate) fn dialog_ended(&mut self, at: i64, by: Ender, names: CallNames<'_>) -> Option<Box<Row>> {
        let cause = if by == Ender::Operator { UNSPECIFIED } else { TIMER };
        let after = self.ended(by, at, cause);
        self.event("bye", after, by.text(), (0, cause), names)
    }

    /// Notes the end of a dialog at this moment. The last end counts.
    fn ended(&mut self, by: Ender, at: i64, cause: u16) -> After {
        let after = self.after_moment(at);
        if self.end.is_none_or(|end| end.after <= after) {
            (self.end, self.cause) = (Some(End { by, after }), cause);
        }
        after
    }

    /// Takes the beginning of the call from the account before, since its caller was asked for a password and has come
    /// again.
    pub(crate) fn began_as(&mut self, before: &Self) {
        (self.setup, self.began, self.attempts) = (before.setup, before.began, before.attempts);
    }

    /// Tells whether the end of the call is unknown, since no dialog of it passes here.
    fn is_lost_sight_of(&self) -> bool {
        self.answer.is_some() && self.end.is_none()
    }

    /// Returns the rows of a call that has left the table.
    pub(crate) fn close(mut self, names: CallNames<'_>) -> impl Iterator<Item = Box<Row>> {
        // None if the caller was asked for a password, and has not come back.
        let end = self.end;
        let event = match end {
            Some(End { by, after }) if self.answer.is_none() => {
                let event = if self.is_missed() { "missed" } else { "failed" };
                let party = match by {
                    Ender::Caller | Ender::Callee => by.text(),
                    _ => "",
                };
                self.event(event, after, party, (self.status, self.cause), names)
            }
            _ => None,
        };
        let outcome = match (self.answer, self.cancelled) {
            (Some(_), _) => "answered",
            (None, true) => "cancelled",
            (None, false) if self.is_missed() => "missed",
            (None, false) => "failed",
        };
        let is_whole = end.is_some() || self.is_lost_sight_of();
        let by = end.map_or("", |end| end.by.text());
        let cdr = (self.writes_cdr && is_whole).then(|| self.cdr(outcome, by, end.map(|end| end.after), names));
        event.into_iter().chain(cdr)
    }

    /// Returns the row of a call that continues when the process ends: its outcome is not known.
    fn cut_off(self, names: CallNames<'_>) -> Option<Box<Row>> {
        let outcome = if self.answer.is_some() { "answered" } else { "unfinished" };
        self.writes_cdr.then(|| self.cdr(outcome, "shutdown", None, names))
    }

    /// Tells whether it rang and was not answered, or the callee could not or would not answer.
    fn is_missed(&self) -> bool {
        self.ring.is_some() || matches!(self.status, 408 | 480 | 486 | 600 | 603)
    }

    fn after(&self, now: Now) -> After {
        self.after_moment(moment(now))
    }

    fn after_moment(&self, at: i64) -> After {
        After::new(at.saturating_sub(self.began))
    }

    fn at(&self, after: After) -> u64 {
        self.setup + u64::from(after.milliseconds())
    }

    fn name(&self, number: usize, names: CallNames<'_>) -> String {
        let is_of_call = self.of_call & 1 << number != 0;
        if is_of_call { String::from_utf8_lossy(names[number]).into_owned() } else { self.text(number) }
    }

    fn text(&self, number: usize) -> String {
        String::from_utf8_lossy(self.texts.get(number)).into_owned()
    }

    const fn masks(&self) -> Masks {
        Masks { digits: 0, addresses: self.mask_addresses }
    }

    fn identity(&self) -> String {
        self.identity.iter().flat_map(|half| hex(*half)).map(char::from).collect()
    }

    fn fields(&self) -> Vec<(String, String)> {
        (FIELDS..self.texts.count()).step_by(2).map(|name| (self.text(name), self.text(name + 1))).collect()
    }

    fn cdr(&self, outcome: &str, ended_by: &str, end: Option<After>, names: CallNames<'_>) -> Box<Row> {
        let at = |after| self.at(after);
        Box::new(Row::Cdr(Cdr {
            identity: self.identity(),
            call_id: self.name(CALL_ID, names),
            setup: self.setup,
            ring: self.ring.map(at),
            answer: self.answer.map(at),
            end: end.map(at),
            caller: self.name(CALLER, names),
            callee: self.name(CALLEE, names),
            user: self.text(USER),
            account: self.text(ACCOUNT),
            source: self.text(SOURCE),
            transport: self.text(TRANSPORT),
            gateway: self.text(GATEWAY),
            attempts: self.attempts.into(),
            outcome: outcome.into(),
            status: self.status,
            cause: self.cause,
            ended_by: ended_by.into(),
            codecs: self.text(CODECS),
            fields: self.fields(),
        }))
    }

    fn event(
        &mut self,
        event: &str,
        after: After,
        by: &str,
        (status, cause): (u16, u16),
        names: CallNames<'_>,
    ) -> Option<Box<Row>> {
        if !self.writes_events {
            return None;
        }
        let call_identity = self.identity();
        let identity = format!("{call_identity}-{}", self.events);
        self.events = self.events.saturating_add(1);
        Some(Box::new(Row::Event(Event {
            identity,
            call_identity,
            event: event.into(),
            at: self.at(after),
            setup: self.setup,
            call_id: self.name(CALL_ID, names),
            caller: self.name(CALLER, names),
            callee: self.name(CALLEE, names),
            user: self.text(USER),
            account: self.text(ACCOUNT),
            source: self.text(SOURCE),
            gateway: self.text(GATEWAY),
            by: by.into(),
            status,
            cause,
            fields: self.fields(),
        })))
    }
}

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
}

impl Engine {
    /// Opens the account of a call that begins with this request. `names`: texts of the call, if it is tracked.
    pub(crate) fn open_account(&mut self, handling: &Handling<'_, '_>, names: Option<CallNames<'_>>) -> Box<Account> {
        self.account_with(handling, names.unwrap_or_default(), "")
    }

    /// Opens an account. `refusal`: reason for the refusal of the call; empty: it is not refused.
    fn account_with(&mut self, handling: &Handling<'_, '_>, names: CallNames<'_>, refusal: &str) -> Box<Account> {
        let (request, config) = (handling.request, &self.policy.config);
        let masks = config.accounting_masks();
        // Not To: any caller writes it as it likes.
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
        let fields: Vec<[String; 2]> = fields.collect();
        let shown = |user: &User| masks.user(&kept(&user.name)).into_bytes();
        let user = handling.progress.proof.user.as_ref();
        let user = user.map(|user| self.policy.realms.with_domain(user, shown(user)));
        let account = self.decider().account_of(handling).map(ToString::to_string);
        let mut of_call = 0;
        let mut own = |number: usize, text: String| {
            let is_of_call = !text.is_empty() && text.as_bytes() == names[number];
            of_call |= u8::from(is_of_call) << number;
            if is_of_call { String::new() } else { text }
        };
        let named = [
            own(CALL_ID, masks.addresses(&kept(request.call_id))),
            own(CALLER, party(caller, masks)),
            own(CALLEE, party(callee, masks)),
            // The encodings come with the answer, and the next hop is known later.
            String::new(),
            kept(&user.unwrap_or_default()),
            masks.socket(request.arrival.remote),
            request.arrival.transport.text().to_owned(),
            String::new(),
            account.unwrap_or_default(),
        ];
        let texts: SmallVec<[&[u8]; 16]> = named.iter().chain(fields.as_flattened()).map(String::as_bytes).collect();
        Box::new(Account {
            writes_cdr: config.accounting.cdr,
            writes_events: config.accounting.events,
            mask_addresses: masks.addresses,
            setup: handling.now.wall,
            began: moment(handling.now),
            ring: None,
            answer: None,
            end: None,
            events: 0,
            attempts: 0,
            is_refused: false,
            cancelled: false,
            ends: None,
            status: 0,
            cause: 0,
            of_call,
            texts: Texts::new(&texts),
            identity: [self.stack.entropy.u64(), self.stack.entropy.u64()],
        })
    }

    /// Accounts the call of an admitted INVITE that this server answers itself. An INVITE that proved nothing, and
    /// whose source may be forged, gets no row: each copy of it would make one.
    pub(crate) fn account_refusal(&mut self, handling: &Handling<'_, '_>, status: u16, why: Why) {
        let request = handling.request;
        let is_admitted = matches!(handling.progress.stage, Stage::Decide | Stage::Route);
        let is_failure = status >= 300 && !matches!(status, 401 | 407);
        if !(handling.begins_call() && is_admitted && is_failure) {
            return;
        }
        self.messages().calls.one(status);
        if !(handling.is_proven() && self.decider().accounts(handling)) {
            return;
        }
        // The INVITE is here a second time on its way. A caller that was asked for a password comes with a call of its
        // own.
        let call = self.calls.get(self.decider().key_of_call(request.call_id, request.from_tag));
        if call.is_some_and(|call| !call.is_left()) {
            return;
        }
        // The rows of refused calls without a password are bounded.
        let (source, now) = (request.arrival.remote.ip(), handling.now.mono);
        let is_unproven = !handling.progress.proof.is_any() && !self.decider().is_trusted(source);
        if is_unproven && !self.shared.refusal_rows.allow(Kind::Request, source, now) {
            self.counters().refusals_unaccounted.one();
            return;
        }
        let reason = self.decider().refusal_text(status, why).into_owned();
        let names = CallNames::default();
        let mut account = self.account_with(handling, names, &reason);
        account.refused(handling.now, status, cause_of(status));
        self.effects.extend(account.close(names).map(Effect::Account));
    }

    /// Writes rows without an end for the calls that continue when the process ends. Kept calls continue in the next
    /// process.
    pub fn cut_off_accounts(&mut self, now: Now) {
        self.keep_changed(now);
        let cut_off = self.calls.take_accounts(|account, names| account.cut_off(names));
        self.effects.extend(cut_off.into_iter().map(Effect::Account));
    }
}
