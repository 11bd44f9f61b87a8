//! Contacts of a user: the bindings of the user. A binding to an address of this server (by which a user forwards
//! calls) is replaced by the contacts of the user at that address.

use crate::decider::Decider;
use crate::methods::takes;
use crate::reach::sender_of;
use crate::reachability::{is_web, target_of};
use smallvec::SmallVec;
use std::ops::Range;
use strowger_core::routing::{Identity, Scope};
use strowger_core::{ListenerId, Now, Target};
use strowger_message::{Method, SipUri, Uri};

/// Bit of [`Binding::flags`](strowger_store::binding::Binding::flags): the contact names a local user, and is replaced
/// by the contacts of that user.
pub(crate) const LEADS_ON: u32 = 2;

/// Contacts collected for one request. The memory is kept between requests.
#[derive(Debug, Default)]
pub(crate) struct Contacts {
    pub(crate) text: Vec<u8>,
    /// Contacts in the order of trying.
    pub(crate) entries: Vec<Contact>,
    /// AORs of the users whose contacts were added.
    users: Vec<Range<usize>>,
    /// Set if a contact names a user whose contacts were already added.
    pub(crate) looped: bool,
    /// Set if a contact was skipped because its device does not accept the method.
    pub(crate) unfit: bool,
}

/// Rank of a contact: contacts of equal rank are tried together, lower ranks first. Each element is the difference between
/// a q and the best q of its user: first for each contact on the chain of users, then for the contact itself. Zeros at
/// the end are left out.
type ContactRank = SmallVec<[u16; 4]>;

#[derive(Debug)]
pub(crate) struct Contact {
    pub(crate) uri: Range<usize>,
    pub(crate) path: Range<usize>,
    /// Source of its REGISTER, if requests to the contact go there.
    pub(crate) target: Option<Target>,
    /// Older flows of the same device (RFC 5626 section 7).
    pub(crate) older: SmallVec<[OlderFlow; 1]>,
    /// `+sip.instance` of a flow; empty for anything else.
    instance: Range<usize>,
    /// Moment of the REGISTER, in milliseconds since 1970 UTC.
    updated_at: u64,
    pub(crate) listener: ListenerId,
    /// Scope of the source address of its REGISTER.
    pub(crate) sender: Scope,
    order: ContactRank,
    /// True if the contact names another local user.
    leads_on: bool,
    /// True if a sips URI is on the chain to this contact.
    secure: bool,
}

/// Older flow of a device.
#[derive(Debug)]
pub(crate) struct OlderFlow {
    /// Source of its REGISTER; `None` for a flow through an edge proxy.
    pub(crate) target: Option<Target>,
    pub(crate) uri: Range<usize>,
    pub(crate) path: Range<usize>,
    pub(crate) listener: ListenerId,
    /// Scope of the source address of its REGISTER.
    pub(crate) sender: Scope,
}

impl Contacts {
    /// Returns the group of each contact, in the order of trying. Contacts of equal rank share a group and are tried
    /// together.
    pub(crate) fn groups(&self) -> impl Iterator<Item = u16> {
        let mut group = 0;
        self.entries.iter().enumerate().map(move |(n, contact)| {
            if n > 0 && contact.order != self.entries[n - 1].order {
                group += 1;
            }
            group
        })
    }

    /// Returns the first URI of the contact's Path, or the URI of the contact if it has no Path.
    pub(crate) fn uri(&self, contact: &Contact) -> Option<Uri<'_>> {
        self.first_uri(contact.uri.clone(), contact.path.clone())
    }

    /// Returns the first URI of a Path, or this URI of a contact if it has no Path.
    pub(crate) fn first_uri(&self, uri: Range<usize>, path: Range<usize>) -> Option<Uri<'_>> {
        let path = &self.text[path];
        let own = Uri::parse(&self.text[uri]).ok();
        if path.is_empty() {
            return own;
        }
        match first_hop(path)? {
            // Every hop to a sips URI is secure (section 16.6 step 7).
            Uri::Sip(first) if own.is_some_and(|own| own.is_sips()) => Some(Uri::Sip(SipUri { secure: true, ..first })),
            first => Some(first),
        }
    }

    /// Removes the next contact that names a local user. Returns its rank, whether a sips URI is on its chain, and the user
    /// unless an earlier contact named the same user.
    fn take_leading(&mut self, identity: &Identity) -> Option<(ContactRank, bool, Option<Range<usize>>)> {
        let at = self.entries.iter().position(|contact| contact.leads_on)?;
        let contact = self.entries.remove(at);
        let from = self.text.len();
        let uri: SmallVec<[u8; 128]> = SmallVec::from_slice(&self.text[contact.uri]);
        let secure = contact.secure || is_sips(&uri);
        if let Ok(uri) = Uri::parse(&uri) {
            identity.write_aor(&uri, &mut self.text);
        }
        let user = from..self.text.len();
        let is_new = !self.users.iter().any(|known| self.text[known.clone()] == self.text[user.clone()]);
        self.looped |= !is_new;
        Some((contact.order, secure, is_new.then_some(user)))
    }
}

impl Decider<'_> {
    /// Looks up the user's contacts, best first. For a sips URI only contacts that are reached by TLS count.
    pub(crate) fn lookup_contacts(&self, now: Now, method: Method, uri: &Uri<'_>, contacts: &mut Contacts) {
        contacts.text.clear();
        contacts.entries.clear();
        contacts.users.clear();
        (contacts.looped, contacts.unfit) = (false, false);
        self.write_aor(uri, &mut contacts.text);
        let user = 0..contacts.text.len();
        self.add_contacts(now, method, user, &[], uri.is_sips(), contacts);
        while let Some((order, secure, user)) = contacts.take_leading(self.policy.identity()) {
            // Each user costs a look-up, as each branch does.
            if let Some(user) =
                user.filter(|_| contacts.users.len() < self.policy.forwarding.settings.max_branches.into())
            {
                self.add_contacts(now, method, user, &order, secure, contacts);
            }
        }
        contacts.entries.sort_by(|a, b| a.order.cmp(&b.order));
        // Contacts beyond the limit are never tried, so their names need no look-up.
        contacts.entries.truncate(self.policy.forwarding.settings.max_branches.into());
    }

    fn add_contacts(
        &self,
        now: Now,
        method: Method,
        user: Range<usize>,
        order: &[u16],
        secure: bool,
        contacts: &mut Contacts,
    ) {
        let filters = self.policy.config.proxy.method_filter;
        let key: SmallVec<[u8; 128]> = SmallVec::from_slice(&contacts.text[user.clone()]);
        contacts.users.push(user);
        let Contacts { text, entries, unfit, .. } = contacts;
        let (first, mut best) = (entries.len(), 0);
        self.shared.location.lookup(&key, now.mono, &mut |binding| {
            let leads_on =
                binding.flags() & LEADS_ON != 0 && Uri::parse(binding.uri()).is_ok_and(|uri| self.names_user(&uri));
            let target =
                if binding.path().is_empty() { target_of(&binding, self.policy.router.identity()) } else { None };
            if !leads_on && !is_kept(binding.uri(), target, secure) {
                return;
            }
            if filters && !leads_on && !takes(binding.flags(), method) {
                *unfit = true;
                return;
            }
            let mut put = |part: &[u8]| {
                let from = text.len();
                text.extend_from_slice(part);
                from..text.len()
            };
            let (uri, path) = (put(binding.uri()), put(binding.path()));
            let instance = put(if binding.reg_id() == 0 { b"" } else { binding.instance() });
            let q = binding.q().unwrap_or(1000);
            best = best.max(q);
            let listener = ListenerId(binding.listener());
            let (older, updated_at, sender) = (SmallVec::new(), binding.updated_at(), sender_of(&binding));
            let order = SmallVec::from_slice(&[q]);
            entries.push(Contact {
                uri,
                path,
                target,
                older,
                instance,
                updated_at,
                listener,
                sender,
                order,
                leads_on,
                secure,
            });
        });
        ring_once(text, first, entries);
        for contact in &mut entries[first..] {
            contact.order[0] = best - contact.order[0];
            contact.order.insert_from_slice(0, order);
            while contact.order.last() == Some(&0) {
                contact.order.pop();
            }
        }
    }
}

/// Merges the contacts of a device with several flows. The device gets a request by the newest flow, or by another flow
/// if the newest fails (RFC 5626 section 7).
fn ring_once(text: &[u8], first: usize, entries: &mut Vec<Contact>) {
    let mut n = first + 1;
    while n < entries.len() {
        let instance = &text[entries[n].instance.clone()];
        let same = (first..n).find(|&m| !instance.is_empty() && text[entries[m].instance.clone()] == *instance);
        let Some(same) = same else {
            n += 1;
            continue;
        };
        let mut older = entries.remove(n);
        if older.updated_at >= entries[same].updated_at {
            std::mem::swap(&mut older, &mut entries[same]);
        }
        let newest = &mut entries[same];
        let Contact { target, uri, path, listener, sender, older: others, .. } = older;
        if target.is_some() || !path.is_empty() {
            newest.older.push(OlderFlow { target, uri, path, listener, sender });
        }
        newest.older.extend(others);
    }
}

/// Returns the first URI of a Path in the form in which the registrar stores it: each URI is in angle brackets.
pub(crate) fn first_hop(path: &[u8]) -> Option<Uri<'_>> {
    let open = path.iter().position(|&b| b == b'<')? + 1;
    let close = path[open..].iter().position(|&b| b == b'>')? + open;
    Uri::parse(&path[open..close]).ok()
}

/// Tells whether this contact, reached at `target`, keeps the promise of a sips URI (RFC 3261 sections 16.6 step 7 and
/// 26.2.2, RFC 5630 section 5.3). `secure`: a sips Request-URI led to it, which demands another sips URI or a
/// connection by TLS. A sips Contact is reached by TLS too. A WebSocket may be secure up to a server in front of this
/// one.
fn is_kept(contact: &[u8], target: Option<Target>, secure: bool) -> bool {
    match target {
        None => !secure || is_sips(contact),
        Some(Target { transport, .. }) => {
            transport.is_secure() || (!secure && (is_web(transport) || !is_sips(contact)))
        }
    }
}

fn is_sips(uri: &[u8]) -> bool {
    uri.len() > 4 && uri[..5].eq_ignore_ascii_case(b"sips:")
}
