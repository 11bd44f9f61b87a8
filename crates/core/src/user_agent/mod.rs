//! User agent without I/O (RFC 3261 sections 8, 10.2, 13 to 15): it makes and accepts calls, registers, sends other
//! requests. One [`UserAgent`] has thousands of calls: telephones of a demo or a load generator, or the two sides of a
//! back-to-back user agent.
//!
//! A [`UserAgent`] is a role of a shard: it has no transactions of its own and borrows those of the shard for each call
//! ([`Round`]). The rule of use is that of all machines here: the shard gives it its messages
//! ([`UserAgent::take_request`], [`UserAgent::take_ack`], [`UserAgent::take_cancel`], [`UserAgent::take_response`]),
//! events of its transactions ([`UserAgent::transaction_event`]) and the time ([`UserAgent::poll`] at
//! [`UserAgent::deadline`]), and sends the outbox. Then it takes events by [`UserAgent::event`] until there is none,
//! and acts on them. [`stack`](crate::stack) shows which messages belong to which role. On a shard without other roles,
//! an [`Endpoint`] has both stack and agent.
//!
//! The user agent does the duties of every user agent by itself: ACK, also for copies of a 2xx; BYE for forks that
//! lost; CANCEL once it may be sent; credentials for a challenge; PRACK; retransmission of a 2xx until its ACK; refusal
//! of requests that need more than the owner's [`Capabilities`]; refresh of registrations and sessions. The owner
//! handles every other request, and answers it by [`UserAgent::respond`]; a telephone leaves this to [`auto_answer()`].

mod account;
mod auto_answer;
mod branch;
mod call;
mod capabilities;
mod client_request;
mod content;
mod dialog_name;
mod endpoint;
mod event;
mod hang_up;
mod moves;
mod next_hop;
mod registration;
mod server_request;
mod session;
mod session_timer;
mod settings;
mod uac;
mod uas;

pub use account::AccountKey;
pub use auto_answer::auto_answer;
pub use call::LegKey;
pub use capabilities::Capabilities;
pub use client_request::OutOfDialog;
pub use content::Content;
pub use dialog_name::DialogName;
pub use endpoint::{Endpoint, EndpointRecord};
pub use event::{CallKey, Ending, Event, IncomingKey, RegistrationKey, RequestKey, Span};
pub use moves::{AgentRecord, MovedCalls};
pub use registration::Register;
pub use session::NotNow;
pub use session_timer::SessionTimerSettings;
pub use settings::{Reliability, UserAgentSettings};
pub use uac::Invite;

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use strowger_message::{Edit, Error, Index, Message};

use crate::call::{BucketSet, hash};
use crate::entropy::{Entropy, hex};
use crate::routing::{Identity, ListenerAddress};
use crate::slots::{Id, Slots};
use crate::timer::{Length, Stamp, Timers, sooner};
use crate::transaction::{ClientId, Event as TransactionEvent, Role, ServerId, TransactionUser};
use crate::{Arrival, Round, Target, Transport};
use account::Accounts;
use branch::Branch;
use call::{Call, OpenRequest, Stage};
use client_request::Request;
use event::Events;
use registration::Registration;

/// Host in the Via of a message to [`Target::LOOPBACK`], which keeps this Via on its way to the next hop. The next hop may not be allowed to see the
/// address of a listener. The response is matched by its transaction, so no host resolves the name. Browsers use such names too (RFC 7118 section
/// 5.2). A request with this Via from the network is of a peer that has read it.
pub const LOOPED_HOST: &[u8] = b"b2bua.invalid";

/// User agent of many telephones.
#[derive(Debug)]
pub struct UserAgent {
    identity: Arc<Identity>,
    settings: UserAgentSettings,
    /// Secret of the Call-ID hash that selects the shard of a call.
    call_secret: u32,
    /// Buckets of this shard. Its Call-IDs are chosen such that they are in these buckets, so that responses arrive at
    /// this shard.
    owned: BucketSet,
    calls: Slots<Call>,
    /// Calls by Call-ID: hash and id. Two calls may have the same Call-ID, because the user agent may be both ends of a
    /// call.
    places: HashTable<(u64, Id)>,
    hasher: FixedState,
    requests: Slots<Request>,
    /// Requests of peers that the owner answers.
    open: Slots<OpenRequest>,
    /// End of the wait for each of them, in order.
    open_until: VecDeque<(u64, Id)>,
    accounts: Accounts,
    registrations: Slots<Registration>,
    timers: Timers,
    lengths: Lengths,
    refreshes: Timers,
    events: Events,
    entropy: Entropy,
    /// Indexes that are not in use.
    indexes: Vec<Index>,
    edit: Edit,
}

/// Queues of the timers of calls.
#[derive(Clone, Copy, Debug)]
struct Lengths {
    /// T1 times 1, 2, 4, ... 64.
    doubled: [Length; 7],
    t2: Length,
    t1_64: Length,
}

/// Malformed address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadAddress(pub Error);

impl std::fmt::Display for BadAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "an address cannot be read: {}", self.0)
    }
}

impl std::error::Error for BadAddress {}

impl From<Error> for BadAddress {
    fn from(error: Error) -> Self {
        Self(error)
    }
}

impl UserAgent {
    /// Creates a user agent. `identity`: its listeners. `entropy`: source of tags, branches and Call-IDs. `call_secret`: that of
    /// [`crate::call::hash`], the same in every shard. `owned`: current buckets of this shard.
    pub fn new(
        identity: Arc<Identity>,
        settings: UserAgentSettings,
        entropy: Entropy,
        call_secret: u32,
        owned: BucketSet,
    ) -> Self {
        let mut timers = Timers::new();
        let lengths = Lengths {
            doubled: std::array::from_fn(|n| timers.length(settings.timers.t1.saturating_mul(1 << n), 1)),
            t2: timers.length(settings.timers.t2, 1),
            t1_64: timers.length(settings.timers.t1_64(), settings.timers.step),
        };
        Self {
            identity,
            settings,
            call_secret,
            owned,
            calls: Slots::new(),
            places: HashTable::new(),
            // The value is the same in every shard, so that calls move unchanged.
            hasher: FixedState::with_seed(u64::from(call_secret).wrapping_mul(0x9e37_79b9_7f4a_7c15)),
            requests: Slots::new(),
            open: Slots::new(),
            open_until: VecDeque::new(),
            accounts: Accounts::default(),
            registrations: Slots::new(),
            timers,
            lengths,
            refreshes: Timers::new(),
            events: Events::default(),
            entropy,
            indexes: Vec::new(),
            edit: Edit::new(),
        }
    }

    /// Returns the settings, which never change.
    pub fn settings(&self) -> &UserAgentSettings {
        &self.settings
    }

    /// Returns the number of calls: being set up, ringing, up or ending.
    pub fn calls(&self) -> usize {
        self.calls.len()
    }

    /// Returns the number of own requests with live transactions.
    pub fn requests(&self) -> usize {
        self.requests.len()
    }

    /// Returns the number of requests of peers that wait for their owner's answer.
    pub fn open_requests(&self) -> usize {
        self.open.len()
    }

    /// Adds a user whose credentials calls and registrations may use.
    pub fn add_account(&mut self, user: &[u8], password: &[u8]) -> AccountKey {
        self.accounts.add(user, password)
    }

    /// Sets the accounts with names, in place of those before: key ([`AccountKey::named`]), user and password of each.
    pub fn set_named_accounts<'a>(&mut self, accounts: impl Iterator<Item = (AccountKey, &'a [u8], &'a [u8])>) {
        self.accounts.set_named(accounts);
    }

    /// Takes the next event. After `None` there are no more events for now, and the texts of earlier events are no
    /// longer available.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop()
    }

    /// Returns the whole message of the last event; empty if the event has none, because a timer ended or a request
    /// could not be sent.
    pub fn message(&self) -> &[u8] {
        self.events.message()
    }

    /// Returns the origin of that message.
    pub fn arrival(&self) -> Option<&Arrival> {
        self.events.arrival()
    }

    /// Returns the number of the dialog of the last event within its call, in the order of creation. There may be
    /// several dialogs, because an INVITE of ours may ring at several places. A [`LegKey`] with the number names the
    /// dialog.
    pub fn leg(&self) -> u16 {
        self.events.leg()
    }

    /// Returns the text of an event.
    pub fn text(&self, span: Span) -> &[u8] {
        self.events.text(span)
    }

    /// Tells whether a call has this dialog. The tags are named from our side: in a request of the peer, our tag is in
    /// To.
    pub fn owns(&self, call_id: &[u8], local_tag: &[u8], remote_tag: &[u8]) -> bool {
        self.find(call_id, local_tag, remote_tag).is_some()
    }

    /// Runs `work` for a received message. Its events refer to the message.
    fn about(&mut self, arrival: &Arrival, message: &Message<'_>, work: impl FnOnce(&mut Self)) {
        self.events.begin(message.bytes(), arrival);
        work(self);
        self.events.end();
    }

    /// Returns the own request of this client transaction.
    fn request_of(&self, tu: TransactionUser, client: ClientId) -> Option<Id> {
        let Role::UserAgent(id) = tu.role() else { return None };
        self.requests.get(id).is_some_and(|request| request.client == Some(client)).then_some(id)
    }

    /// Returns the request of a peer with this server transaction, if the owner has not answered it yet.
    fn open_request(&self, tu: TransactionUser, server: ServerId) -> Option<Id> {
        let Role::UserAgent(id) = tu.role() else { return None };
        self.open.get(id).is_some_and(|open| open.server == server).then_some(id)
    }

    /// Returns the latest moment for the next [`UserAgent::poll`] ([`Now::mono`](crate::Now::mono) milliseconds).
    pub fn deadline(&mut self) -> Option<u64> {
        let calls = self.timers.deadline(runs(&self.calls));
        let registrations = &self.registrations;
        let refreshes =
            self.refreshes.deadline(|slot, stamp| registrations.at(slot).is_some_and(|(_, r)| r.refresh == stamp));
        sooner(self.open_until.front().map(|(until, _)| *until), sooner(calls, refreshes))
    }

    /// Runs the due timers, without those of the transactions.
    pub fn poll(&mut self, round: &mut Round<'_>) {
        while let Some((slot, stamp)) = self.timers.due(round.now.mono, runs(&self.calls)) {
            if let Some(id) = self.calls.at(slot).map(|(id, _)| id) {
                self.call_timer(round, id, stamp);
            }
        }
        loop {
            let registrations = &self.registrations;
            let due = self
                .refreshes
                .due(round.now.mono, |slot, stamp| registrations.at(slot).is_some_and(|(_, r)| r.refresh == stamp));
            let Some((slot, _)) = due else { break };
            if let Some(id) = self.registrations.at(slot).map(|(id, _)| id) {
                self.refresh(round, id);
            }
        }
        while let Some((_, id)) = self.open_until.pop_front_if(|(until, _)| *until <= round.now.mono) {
            // The peer has stopped retransmitting too (timer F).
            if let Some(open) = self.open.remove(id) {
                round.tx.abandon(round.now, open.server);
            }
        }
        self.calls.tidy();
        self.requests.tidy();
        self.open.tidy();
        self.timers.tidy(runs(&self.calls));
    }

    /// Handles an event of a transaction of this user agent.
    pub fn transaction_event(&mut self, round: &mut Round<'_>, event: &TransactionEvent) {
        match *event {
            TransactionEvent::Timeout { id, tu } | TransactionEvent::ClientTransportError { id, tu } => {
                if let Some(request) = self.request_of(tu, id) {
                    // RFC 3261 section 8.1.3.1.
                    let status = if matches!(event, TransactionEvent::Timeout { .. }) { 408 } else { 503 };
                    self.replied(round, request, status, None, false);
                    // Later events without a message are of the first dialog.
                    self.events.is_of_leg(0);
                }
            }
            TransactionEvent::ClientEnded { id, tu } => {
                if let Some(request) = self.request_of(tu, id) {
                    self.requests.remove(request);
                }
            }
            TransactionEvent::ServerEnded { id, tu } => {
                if let Some(open) = self.open_request(tu, id) {
                    self.open.remove(open);
                }
            }
            // The request had waited before the agent took it (RFC 4320 section 4.1).
            TransactionEvent::TryingDue { id, tu } => {
                if let Some(open) = self.open_request(tu, id) {
                    self.respond(round, IncomingKey(open), 100, b"", b"");
                }
            }
            TransactionEvent::NoAck { .. }
            // This event is for a proxy only.
            | TransactionEvent::TimerC { .. }
            | TransactionEvent::ServerTransportError { .. } => (),
        }
    }

    /// Returns the listener from which a message to `target` is sent.
    fn listener(&self, target: &Target) -> &ListenerAddress {
        self.identity.listener(target.listener)
    }

    /// Returns the capabilities of a call, or those of new ones.
    fn capabilities(&self, call: Option<Id>) -> &Capabilities {
        let own = call.and_then(|id| self.calls.get(id)?.capabilities.as_deref());
        own.unwrap_or(&self.settings.capabilities)
    }

    /// Sets the capabilities in a call, for its next messages: those of the other side of a back-to-back user agent.
    pub fn set_capabilities(&mut self, call: CallKey, capabilities: Capabilities) {
        if let Some(call) = self.calls.get_mut(call.0) {
            call.capabilities = Some(Box::new(capabilities));
        }
    }

    fn set_stage(&mut self, id: Id, stage: Stage) {
        if let Some(call) = self.calls.get_mut(id) {
            call.stage = stage;
        }
    }

    /// Returns the transport that our Via and Contact name in a message to `target`. For a looped message it is that of its listener.
    fn transport(&self, target: &Target) -> Transport {
        if target.is_loopback() { self.listener(target).transport } else { target.transport }
    }

    /// Writes an own Via value.
    fn write_via(&self, target: &Target, branch: &Branch, out: &mut Vec<u8>) {
        out.extend_from_slice(b"SIP/2.0/");
        out.extend_from_slice(self.transport(target).via().as_bytes());
        out.push(b' ');
        out.extend_from_slice(if target.is_loopback() { LOOPED_HOST } else { &self.listener(target).sent_by });
        out.extend_from_slice(b";rport;branch=");
        out.extend_from_slice(branch.text());
    }

    /// Writes an own Contact line for the user of `own`, a name-addr or URI.
    fn write_contact(&self, own: &[u8], target: &Target, secure: bool, out: &mut Vec<u8>) {
        out.extend_from_slice(b"Contact: <");
        self.write_contact_uri(own, target, secure, out);
        out.extend_from_slice(b">\r\n");
    }

    fn write_contact_uri(&self, own: &[u8], target: &Target, secure: bool, out: &mut Vec<u8>) {
        self.listener(target).write_contact_uri(user_of(own), self.transport(target), secure, out);
    }

    /// Writes User-Agent or Server.
    fn write_name(&self, name: &[u8], out: &mut Vec<u8>) {
        if !self.settings.name.is_empty() {
            out.extend_from_slice(name);
            out.extend_from_slice(b": ");
            out.extend_from_slice(&self.settings.name);
            out.extend_from_slice(b"\r\n");
        }
    }

    fn place(&self, call_id: &[u8]) -> u64 {
        let mut hasher = self.hasher.build_hasher();
        hasher.write(call_id);
        hasher.finish()
    }

    fn insert_call(&mut self, call: Call) -> Id {
        let place = call.place;
        let id = self.calls.insert(call);
        self.places.insert_unique(place, (place, id), |&(hash, _)| hash);
        id
    }

    fn remove_call(&mut self, round: &mut Round<'_>, id: Id) -> Option<Call> {
        // The owner will not answer the UPDATEs that wait for its answer.
        self.reject_updates(round, id);
        let mut call = self.calls.remove(id)?;
        if let Ok(entry) = self.places.find_entry(call.place, |&(_, other)| other == id) {
            entry.remove();
        }
        self.timers.stop(&mut call.again);
        self.timers.stop(&mut call.end);
        call.session.stop(&mut self.timers);
        if let Some(client) = call.inviting.and_then(|request| self.requests.get(request)?.client) {
            round.tx.limit_wait(round.now, client, round.out);
        }
        Some(call)
    }

    /// Refuses all open UPDATEs of a call that ends.
    fn reject_updates(&mut self, round: &mut Round<'_>, id: Id) {
        while self.calls.get(id).is_some_and(|call| call.legs.iter().any(|leg| leg.updated.is_some())) {
            self.reject_update(round, CallKey(id), 487);
        }
    }

    /// Returns the call with this dialog, and the position of the dialog. The tags are named from our side.
    fn find(&self, call_id: &[u8], local_tag: &[u8], remote_tag: &[u8]) -> Option<(Id, usize)> {
        let place = self.place(call_id);
        self.places.iter_hash(place).filter(|(hash, _)| *hash == place).find_map(|&(_, id)| {
            let call = self.calls.get(id)?;
            let leg = call.legs.iter().position(|l| l.dialog.is(call_id, local_tag, remote_tag))?;
            Some((id, leg))
        })
    }

    fn stop_timers(&mut self, id: Id) {
        if let Some(call) = self.calls.get_mut(id) {
            self.timers.stop(&mut call.again);
            self.timers.stop(&mut call.end);
        }
    }

    fn branch(&mut self) -> Branch {
        Branch::new(self.entropy.u64())
    }

    /// Returns sixteen hexadecimal digits.
    fn word(&mut self) -> [u8; 16] {
        hex(self.entropy.u64())
    }

    /// Returns a tag for a new dialog: four random bytes, and a keyed hash of them, by which [`UserAgent::has_written`] knows it.
    fn tag(&mut self) -> [u8; 16] {
        let random = self.entropy.u64() as u32;
        self.marked(random)
    }

    fn marked(&self, random: u32) -> [u8; 16] {
        let mark = hash(self.settings.tag_secret, &random.to_le_bytes());
        hex(u64::from(random) << 32 | u64::from(mark))
    }

    /// Tells whether this is the tag of a dialog of a user agent with the same [`UserAgentSettings::tag_secret`], also of one that is over.
    pub fn has_written(&self, tag: &[u8]) -> bool {
        let random = tag.first_chunk::<8>().and_then(|digits| std::str::from_utf8(digits).ok());
        let random = random.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        random.is_some_and(|random| self.marked(random) == *tag)
    }
}

/// Returns a function that tells the timers whether the call in a slot still waits for them.
fn runs(calls: &Slots<Call>) -> impl Fn(u32, Stamp) -> bool {
    |slot, stamp| calls.at(slot).is_some_and(|(_, c)| c.runs(stamp))
}

/// Returns the user part of a name-addr or URI.
fn user_of(address: &[u8]) -> Option<&[u8]> {
    let address = strowger_message::NameAddr::parse(address).ok()?;
    address.uri.sip().and_then(|u| u.user)
}
