//! Accounting: the records of calls, from their INVITE to their end.
//!
//! An accounted call has an [`Account`] in the table of calls, which gets the outcome of each request of the call. When
//! the call leaves the table its account is closed, so that each call has one record, however the call ended. Rows are
//! masked before they leave the shard.

use crate::bye::Bye;
use crate::cdr_fields::{codecs, kept};
use crate::texts::Texts;
use crate::times::moment;
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use strowger_core::Now;
use strowger_core::entropy::hex;
use strowger_core::notice::Party;
use strowger_message::Message;
use strowger_store::accounting::mask::Masks;
use strowger_store::accounting::{Cdr, Event, Row};

/// Texts of a call as its INVITE has them: Call-ID, caller, callee; then the Call-ID of its far leg. Empty where the table does not store them.
pub(crate) type CallNames<'a> = [&'a [u8]; 4];

/// Facts about the INVITE of a call for its account. The texts are masked and cut to the length that rows may have.
#[derive(Clone, Debug, Default)]
pub struct AccountFacts {
    /// Set if the call gets a call detail record.
    pub writes_cdr: bool,
    /// Set if the events of the call get rows.
    pub writes_events: bool,
    /// Set if addresses that come later are masked too.
    pub mask_addresses: bool,
    /// Call-ID.
    pub call_id: String,
    /// URI of the caller.
    pub caller: String,
    /// URI of the callee.
    pub callee: String,
    /// User who has proved a password; empty if no user has.
    pub user: String,
    /// Source address.
    pub source: String,
    /// Transport of the source.
    pub transport: String,
    /// Account that rules name; empty: they name none.
    pub account: String,
    /// Name and value of each configured field.
    pub fields: Vec<[String; 2]>,
}

/// Facts about an accounted call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Account {
    identity: [u64; 2],
    writes_cdr: bool,
    writes_events: bool,
    mask_addresses: bool,
    /// Moment of the call's INVITE, UTC in milliseconds. Later moments are counted from there by a clock that is not
    /// stepped, so that a record never ends before it begins.
    setup: u64,
    /// Same moment, on the clock of [`crate::call::Call::began`].
    pub(crate) began: i64,
    ring: Option<After>,
    answer: Option<After>,
    /// Last end of one of its dialogs or of its INVITE.
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
    /// Bit set of the [`CallNames`] that the account does not store because its call stores them. The texts of a
    /// tracked call never change.
    of_call: u8,
    /// Texts in one piece of memory, since there is one account for each call. Name and value of each field follow the
    /// named texts.
    pub(crate) texts: Texts,
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
/// Report about the media in bytes, see `media.rs`; empty: none.
pub(crate) const MEDIA: usize = 9;
const FIELDS: usize = 10;

/// Position of the Call-ID of the far leg in [`CallNames`].
const FAR_CALL_ID: usize = 3;

/// Milliseconds after the INVITE, in four bytes even if optional. The type has room for 49 days; the maximum of
/// `dialogs.lifetime` is 30.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct After(NonZeroU32);

impl After {
    /// Creates a moment. Negative `milliseconds` give the moment of the INVITE.
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

/// Q.850 causes of a normal end, of an end by an operator and of an end by a timer.
pub(crate) const NORMAL: u16 = 16;
const UNSPECIFIED: u16 = 31;
const TIMER: u16 = 102;

/// Number of events of a call after which refused BYEs add none.
const MOST_REFUSALS: u16 = 64;

impl Account {
    /// Opens the account of a call. `names`: texts of the call, which the account does not store a second time.
    /// `identity`: random.
    pub(crate) fn open(now: Now, facts: AccountFacts, names: CallNames<'_>, identity: [u64; 2]) -> Box<Self> {
        let mut of_call = 0;
        let mut own = |number: usize, text: String| {
            let is_of_call = !text.is_empty() && text.as_bytes() == names[number];
            of_call |= u8::from(is_of_call) << number;
            if is_of_call { String::new() } else { text }
        };
        let named = [
            own(CALL_ID, facts.call_id),
            own(CALLER, facts.caller),
            own(CALLEE, facts.callee),
            // The encodings are known with the answer, and the next hop is known later.
            String::new(),
            facts.user,
            facts.source,
            facts.transport,
            String::new(),
            facts.account,
            String::new(),
        ];
        let fields = facts.fields.as_flattened();
        let texts: SmallVec<[&[u8]; 16]> = named.iter().chain(fields).map(String::as_bytes).collect();
        Box::new(Self {
            writes_cdr: facts.writes_cdr,
            writes_events: facts.writes_events,
            mask_addresses: facts.mask_addresses,
            setup: now.wall,
            began: moment(now),
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
            identity,
        })
    }

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

    /// Notes the reason for which the server ends the call. Only the first reason counts.
    pub(crate) fn is_ended_by(&mut self, by: Ender) {
        self.ends.get_or_insert(by);
    }

    /// Notes a 2xx of this next hop. Only the first 2xx counts. Returns the row of that event.
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
        // An earlier INVITE of this call may have failed.
        self.end = None;
        self.note(by, Some(&codecs(response)));
        self.event("invite", after, Party::Callee.text(), (status, 0), names)
    }

    /// Stores the last next hop of the call's INVITE, if known, and the encodings of the answer.
    fn note(&mut self, gateway: Option<SocketAddr>, codecs: Option<&str>) {
        let gateway = gateway.map(|gateway| self.masks().socket(gateway));
        let texts = [(GATEWAY, gateway.as_deref()), (CODECS, codecs)];
        let others: SmallVec<[(usize, &[u8]); 2]> =
            texts.into_iter().filter_map(|(number, text)| Some((number, text?.as_bytes()))).collect();
        self.texts = self.texts.with(&others);
    }

    /// Notes the final response to an INVITE that failed. A response that asks for a password does not end a call.
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

    /// Notes that a BYE of this party has ended a dialog. The status 408 means that the BYE had no response. Returns
    /// the row of that event.
    pub(crate) fn bye_ended(&mut self, by: Party, bye: Bye, status: u16, names: CallNames<'_>) -> Option<Box<Row>> {
        let after = self.ended(by.into(), bye.at, bye.cause);
        self.event("bye", after, by.text(), (status, bye.cause), names)
    }

    /// Notes the refusal of a BYE of this party, after which the dialog continues. Returns the row of that event. There
    /// is no row if the response asks for a password, or after very many refusals.
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

    /// Notes the end of a dialog at this moment, which neither party has caused. Returns the row of that event.
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

    /// Takes over the beginning of the call from its earlier account: the caller was asked for a password and has sent
    /// the INVITE again.
    pub(crate) fn began_as(&mut self, before: &Self) {
        (self.setup, self.began, self.attempts) = (before.setup, before.began, before.attempts);
    }

    /// Tells whether the end of the call is unknown because no dialog of the call passes this server.
    fn is_lost_sight_of(&self) -> bool {
        self.answer.is_some() && self.end.is_none()
    }

    /// Returns the rows of a call that has left the table.
    pub(crate) fn close(mut self, names: CallNames<'_>) -> impl Iterator<Item = Box<Row>> {
        // There is no row if the caller was asked for a password, and has not sent the INVITE again.
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
    pub(crate) fn cut_off(self, names: CallNames<'_>) -> Option<Box<Row>> {
        let outcome = if self.answer.is_some() { "answered" } else { "unfinished" };
        self.writes_cdr.then(|| self.cdr(outcome, "shutdown", None, names))
    }

    /// Tells whether the call rang and was not answered, or the callee could not or would not answer.
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
            far_call_id: self.masks().addresses(&kept(names[FAR_CALL_ID])),
            fields: self.fields(),
            media: self.media(),
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
