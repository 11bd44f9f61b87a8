//! Decision about a REGISTER: changes of bindings, or a refusal.

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use strowger_message::header::Contact;
use strowger_message::{Message, Name, Uri};

use super::{PathRule, RegistrarSettings};
use crate::Now;

/// Current binding of the address-of-record.
#[derive(Clone, Copy, Debug)]
pub struct ExistingBinding<'a> {
    /// URI of the contact, without angle brackets.
    pub uri: &'a [u8],
    /// Call-ID of the REGISTER that made or last refreshed it.
    pub call_id: &'a [u8],
    /// CSeq number of that REGISTER.
    pub cseq: u32,
    /// End in milliseconds of [`Now::mono`], which steps of the system's clock do not affect. After this moment the
    /// binding counts as absent.
    pub expires_at: u64,
    /// Preference in thousandths.
    pub q: Option<u16>,
    /// `+sip.instance` without its quotes. Empty: none.
    pub instance: &'a [u8],
    /// Flow number. 0: none.
    pub reg_id: u32,
    /// Set if the binding's connection is closed, and it has no other address: the binding may be removed to make room
    /// for a reachable contact.
    pub unreachable: bool,
    /// Set if the binding's REGISTER came from another host than the current one.
    pub elsewhere: bool,
}

/// New binding, or replacement of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upsert {
    /// Index of the replaced binding.
    pub replaces: Option<usize>,
    /// Range of the contact's URI in the message.
    pub uri: Range<usize>,
    /// Range of `+sip.instance` in the message, without its quotes; empty if there is none.
    pub instance: Range<usize>,
    /// Flow number. 0: none.
    pub reg_id: u32,
    /// Preference in thousandths.
    pub q: Option<u16>,
    /// End in milliseconds of [`Now::mono`].
    pub expires_at: u64,
}

/// Result of a granted REGISTER.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegisterOutcome {
    /// No Contact: a query for the bindings (RFC 3261 section 10.2.3).
    Fetch,
    /// Nothing to do: a retransmission, or the removal of an absent contact.
    Unchanged,
    /// Removals or upserts.
    Changed,
}

/// Reason to refuse a REGISTER; [`Registrar::write_refusal`] writes its header lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// 400, with the reason for the log.
    BadRequest(&'static str),
    /// 403: more contacts than [`RegistrarSettings::max_contacts`].
    TooManyContacts,
    /// 420: the REGISTER requires an extension that the registrar does not support (section 8.2.2.3).
    BadExtension,
    /// 421: the REGISTER has a Path, but its phone does not declare support for Path.
    PathNotSupported,
    /// 423: the interval is shorter than this many seconds.
    IntervalTooBrief(u32),
    /// 500: a later request of the same Call-ID was already served (section 10.3 step 7).
    OutOfOrder,
}

impl Refusal {
    /// Returns the status code of the response: 4xx, or 500.
    pub const fn status(self) -> u16 {
        match self {
            Self::BadRequest(_) => 400,
            Self::TooManyContacts => 403,
            Self::BadExtension => 420,
            Self::PathNotSupported => 421,
            Self::IntervalTooBrief(_) => 423,
            Self::OutOfOrder => 500,
        }
    }

    /// Returns the reason in lower case, for a log or a reason phrase.
    pub const fn text(self) -> &'static str {
        match self {
            Self::BadRequest(why) => why,
            Self::TooManyContacts => "too many contacts",
            Self::BadExtension => "bad extension",
            Self::PathNotSupported => "path must be supported",
            Self::IntervalTooBrief(_) => "interval too brief",
            Self::OutOfOrder => "request out of order",
        }
    }
}

/// Change of a current binding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Keep,
    Remove,
    Replace,
    /// Expired before the request.
    Gone,
}

/// Registrar: decides about REGISTER requests. It keeps its lists between requests, so that it allocates nothing once warm.
#[derive(Debug, Default)]
pub struct Registrar {
    pub(super) settings: Arc<RegistrarSettings>,
    pub(super) changes: Vec<Change>,
    pub(super) upserts: Vec<Upsert>,
    pub(super) path: Vec<u8>,
    pub(super) unsupported: Vec<u8>,
}

impl Registrar {
    /// Creates a registrar with these settings. It stores no bindings: the caller gives it the bindings with each
    /// request.
    pub fn new(settings: RegistrarSettings) -> Self {
        Self { settings: Arc::new(settings), ..Self::default() }
    }

    /// Sets the settings of later decisions.
    pub fn set_settings(&mut self, settings: &Arc<RegistrarSettings>) {
        if !Arc::ptr_eq(&self.settings, settings) {
            self.settings = settings.clone();
        }
    }

    /// Returns the settings of the next decision.
    pub fn settings(&self) -> &RegistrarSettings {
        &self.settings
    }

    /// Decides about a REGISTER for the address-of-record with the bindings `current`. The caller has verified that the request is for this
    /// registrar, and that its sender may change these bindings (steps 1 and 3 to 5).
    ///
    /// # Errors
    /// The reason to refuse; then there are neither removals nor upserts.
    pub fn decide(
        &mut self,
        now: Now,
        message: &Message<'_>,
        current: &[ExistingBinding<'_>],
    ) -> Result<RegisterOutcome, Refusal> {
        let decided = self.plan(now, message, current);
        if decided.is_err() {
            self.upserts.clear();
            self.changes.clear();
        }
        decided
    }

    /// Returns the indices of bindings to remove.
    pub fn removals(&self) -> impl Iterator<Item = usize> + '_ {
        self.changes.iter().enumerate().filter(|(_, f)| **f == Change::Remove).map(|(i, _)| i)
    }

    /// Returns the bindings to make or replace.
    pub fn upserts(&self) -> &[Upsert] {
        &self.upserts
    }

    /// Returns the Path of every upsert, values joined with commas (RFC 3327 section 5.3); empty if there is none.
    pub fn path(&self) -> &[u8] {
        &self.path
    }

    fn plan(
        &mut self,
        now: Now,
        message: &Message<'_>,
        current: &[ExistingBinding<'_>],
    ) -> Result<RegisterOutcome, Refusal> {
        self.upserts.clear();
        self.changes.clear();
        self.changes.extend(current.iter().map(|c| if c.expires_at > now.mono { Change::Keep } else { Change::Gone }));
        self.extensions(message)?;
        if !message.has(Name::Contact) {
            return Ok(RegisterOutcome::Fetch);
        }
        let order = RegisterSequence::of(message)?;
        // A number of more than 32 bits is malformed (RFC 4475 section 3.1.2.4).
        let expires = message.expires().map_err(|_| Refusal::BadRequest("malformed Expires"))?;
        if message.contact_star() {
            self.remove_all(expires, &order, current)?;
        } else {
            self.contacts(now, expires, &order, message, current)?;
            let live = self.changes.iter().filter(|f| matches!(f, Change::Keep | Change::Replace)).count();
            let fresh =
                self.upserts.iter().filter(|u| u.replaces.is_none_or(|i| current[i].expires_at <= now.mono)).count();
            if fresh > 0 {
                let more = (live + fresh).saturating_sub(self.settings.max_contacts);
                self.make_room(more, message.bytes(), current)?;
            }
        }
        let changed = !self.upserts.is_empty() || self.changes.contains(&Change::Remove);
        Ok(if changed { RegisterOutcome::Changed } else { RegisterOutcome::Unchanged })
    }
}

/// Maximum contacts of one request, as a multiple of the contacts of an address-of-record. A phone that replaces all its contacts needs
/// twice as many.
const ASKED_PER_KEPT: usize = 4;

/// Position of a request among those of its Call-ID.
struct RegisterSequence<'a> {
    call_id: &'a [u8],
    cseq: u32,
}

impl<'a> RegisterSequence<'a> {
    fn of(message: &Message<'a>) -> Result<Self, Refusal> {
        let call_id = message.call_id().map_err(|_| Refusal::BadRequest("malformed Call-ID"))?.text;
        let cseq = message.cseq().map_err(|_| Refusal::BadRequest("malformed CSeq"))?.number;
        Ok(Self { call_id, cseq })
    }

    /// Compares the REGISTER with the request that made or refreshed `binding`; with another Call-ID, every request is
    /// newer (section 10.3).
    fn against(&self, binding: &ExistingBinding<'_>) -> Ordering {
        if self.call_id == binding.call_id { self.cseq.cmp(&binding.cseq) } else { Ordering::Greater }
    }
}

/// Tells whether a first hop can keep a flow of the device alive (RFC 5626 section 6). The first hop is another proxy
/// or, for streams, this server, which does not implement STUN.
fn may_keep_flows(message: &Message<'_>) -> bool {
    let by_stream = || message.via().is_ok_and(|via| !via.is_transport(b"UDP"));
    message.has_several(Name::Via) || by_stream()
}

impl Registrar {
    /// Reads Require and Path: section 8.2.2.3, RFC 3327 section 5.3.
    fn extensions(&mut self, message: &Message<'_>) -> Result<(), Refusal> {
        self.unsupported.clear();
        self.path.clear();
        for tag in message.require() {
            let tag = tag.map_err(|_| Refusal::BadRequest("malformed Require"))?.text;
            let known = tag.eq_ignore_ascii_case(b"path") && self.settings.path != PathRule::Ignore
                || tag.eq_ignore_ascii_case(b"outbound") && may_keep_flows(message)
                || self.settings.supported.iter().any(|s| s.as_bytes().eq_ignore_ascii_case(tag));
            if !known {
                if !self.unsupported.is_empty() {
                    self.unsupported.extend_from_slice(b", ");
                }
                self.unsupported.extend_from_slice(tag);
            }
        }
        if !self.unsupported.is_empty() {
            return Err(Refusal::BadExtension);
        }
        if self.settings.path == PathRule::Ignore || !message.has(Name::Path) {
            return Ok(());
        }
        let is_declared = || message.supports(b"path") || message.require().flatten().any(|t| t.is(b"path"));
        if self.settings.path == PathRule::Demand && !is_declared() {
            return Err(Refusal::PathNotSupported);
        }
        for hop in message.paths() {
            let hop = hop.map_err(|_| Refusal::BadRequest("malformed Path"))?;
            if !self.path.is_empty() {
                self.path.extend_from_slice(b", ");
            }
            hop.write(&mut self.path);
        }
        Ok(())
    }

    /// Handles `Contact: *` (section 10.2.2, step 6 of section 10.3).
    fn remove_all(
        &mut self,
        expires: Option<u32>,
        order: &RegisterSequence<'_>,
        current: &[ExistingBinding<'_>],
    ) -> Result<(), Refusal> {
        if expires != Some(0) {
            return Err(Refusal::BadRequest("* without Expires: 0"));
        }
        for (binding, change) in current.iter().zip(&mut self.changes) {
            if *change == Change::Keep {
                if order.against(binding) != Ordering::Greater {
                    return Err(Refusal::OutOfOrder);
                }
                *change = Change::Remove;
            }
        }
        Ok(())
    }

    /// Removes bindings until `more` contacts have room: first unreachable ones, then those of a device that registers
    /// another contact now, in the order of `current`. A browser or a phone has a new contact after each restart, and
    /// never removes the old one.
    fn make_room(&mut self, mut more: usize, bytes: &[u8], current: &[ExistingBinding<'_>]) -> Result<(), Refusal> {
        let upserts = &self.upserts;
        let is_renewed = |binding: &ExistingBinding<'_>| {
            let same =
                |u: &Upsert| u.replaces.is_none() && u.reg_id == 0 && bytes[u.instance.clone()] == *binding.instance;
            !binding.instance.is_empty() && binding.reg_id == 0 && upserts.iter().any(same)
        };
        let gives_way: [&dyn Fn(&ExistingBinding<'_>) -> bool; 2] = [&|binding| binding.unreachable, &is_renewed];
        for gives_way in gives_way {
            for (binding, change) in current.iter().zip(&mut self.changes) {
                if more > 0 && *change == Change::Keep && gives_way(binding) {
                    *change = Change::Remove;
                    more -= 1;
                }
            }
        }
        if more > 0 { Err(Refusal::TooManyContacts) } else { Ok(()) }
    }

    /// Handles each contact in turn (step 7 of section 10.3).
    fn contacts(
        &mut self,
        now: Now,
        expires: Option<u32>,
        order: &RegisterSequence<'_>,
        message: &Message<'_>,
        current: &[ExistingBinding<'_>],
    ) -> Result<(), Refusal> {
        let mut flows = 0;
        // The URIs of `current`, parsed only when a contact has the exact text of none of them.
        let mut known = Vec::new();
        let outbound = message.supports(b"outbound") || message.require().flatten().any(|tag| tag.is(b"outbound"));
        let most = self.settings.max_contacts.saturating_mul(ASKED_PER_KEPT);
        for (n, contact) in message.contacts().enumerate() {
            // Each contact is compared with all bindings, so their number is bounded.
            if n >= most {
                return Err(Refusal::TooManyContacts);
            }
            // A * beside other contacts ends here too, because it is no contact.
            let contact =
                RequestedContact::of(&contact.map_err(|_| Refusal::BadRequest("malformed Contact"))?.value, outbound);
            flows += usize::from(contact.reg_id != 0);
            if flows > 1 {
                // One flow can carry only one registration (RFC 5626 section 6).
                return Err(Refusal::BadRequest("reg-id in more than one contact"));
            }
            let wanted = contact.expires.or(expires).unwrap_or(self.settings.default_expires);
            if wanted > 0 && wanted < 3600 && wanted < self.settings.min_expires {
                return Err(Refusal::IntervalTooBrief(self.settings.min_expires));
            }
            let granted = wanted.min(self.settings.max_expires);
            let found = contact.find(current, &mut known);
            if let Some(i) = found
                && self.changes[i] != Change::Gone
            {
                match order.against(&current[i]) {
                    Ordering::Less => return Err(Refusal::OutOfOrder),
                    // This is a retransmission of the same request, unless it asks for something else.
                    Ordering::Equal if granted > 0 && contact.q == current[i].q => continue,
                    Ordering::Equal => return Err(Refusal::OutOfOrder),
                    Ordering::Greater => (),
                }
                self.changes[i] = if granted == 0 { Change::Remove } else { Change::Replace };
            }
            // If the same contact is twice in a request, the later one counts.
            let bytes = message.bytes();
            self.upserts.retain(|u| match found {
                Some(_) => u.replaces != found,
                None => {
                    u.replaces.is_some() || !contact.is(&bytes[u.uri.clone()], &bytes[u.instance.clone()], u.reg_id)
                }
            });
            if granted > 0 {
                self.upserts.push(Upsert {
                    replaces: found,
                    uri: message.range_of(contact.text),
                    instance: if contact.instance.is_empty() { 0..0 } else { message.range_of(contact.instance) },
                    reg_id: contact.reg_id,
                    q: contact.q,
                    expires_at: now.mono + u64::from(granted) * 1000,
                });
                // Each further contact would be compared with all of them.
                if self.upserts.iter().filter(|u| u.replaces.is_none()).count() > self.settings.max_contacts {
                    return Err(Refusal::TooManyContacts);
                }
            }
        }
        Ok(())
    }
}

/// Contact of the request.
#[derive(Clone, Copy)]
struct RequestedContact<'a> {
    text: &'a [u8],
    uri: Uri<'a>,
    instance: &'a [u8],
    reg_id: u32,
    q: Option<u16>,
    expires: Option<u32>,
}

impl<'a> RequestedContact<'a> {
    /// Parses a contact. `outbound`: whether the phone supports RFC 5626; without this support, reg-id has no meaning
    /// (RFC 5626 section 6).
    fn of(contact: &Contact<'a>, outbound: bool) -> Self {
        Self {
            text: contact.uri_text,
            uri: contact.uri,
            instance: contact.instance_id().unwrap_or_default(),
            reg_id: contact.reg_id.filter(|_| outbound).unwrap_or(0),
            q: contact.q,
            expires: contact.expires,
        }
    }

    /// Finds the binding of this contact. A flow is identified by instance and number (RFC 5626 section 6). Any other
    /// contact is identified by URI, and so is a flow that was first bound without instance and number. Two devices
    /// with the same private address in two networks have separate bindings.
    fn find<'c>(&self, current: &[ExistingBinding<'c>], known: &mut Vec<Option<Uri<'c>>>) -> Option<usize> {
        let flow = |c: &ExistingBinding<'_>| self.is_flow(c.instance, c.reg_id);
        let by_uri = |c: &ExistingBinding<'_>| !self.both_flows(c.instance, c.reg_id) && !self.is_of_another_device(c);
        let same_text = |c: &ExistingBinding<'_>| by_uri(c) && self.text == c.uri;
        // Most refreshes have the exact same text.
        let found = current.iter().position(flow).or_else(|| current.iter().position(same_text));
        found.or_else(|| {
            if known.is_empty() {
                known.extend(current.iter().map(|c| Uri::parse(c.uri).ok()));
            }
            let same = |uri: &Option<Uri<'_>>| uri.as_ref().is_some_and(|uri| self.uri == *uri);
            current.iter().zip(known.iter()).position(|(c, uri)| by_uri(c) && same(uri))
        })
    }

    fn is_of_another_device(&self, binding: &ExistingBinding<'_>) -> bool {
        let both = !self.instance.is_empty() && !binding.instance.is_empty();
        binding.elsewhere && both && self.instance != binding.instance
    }

    fn both_flows(&self, instance: &[u8], reg_id: u32) -> bool {
        self.reg_id != 0 && reg_id != 0 && !self.instance.is_empty() && !instance.is_empty()
    }

    fn is_flow(&self, instance: &[u8], reg_id: u32) -> bool {
        self.reg_id != 0 && !self.instance.is_empty() && self.reg_id == reg_id && self.instance == instance
    }

    fn is(&self, uri: &[u8], instance: &[u8], reg_id: u32) -> bool {
        if self.both_flows(instance, reg_id) {
            return self.is_flow(instance, reg_id);
        }
        self.text == uri || Uri::parse(uri).is_ok_and(|other| self.uri == other)
    }
}
