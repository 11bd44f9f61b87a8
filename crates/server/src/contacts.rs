//! The contacts of a user: what has registered, and in place of an address of this server (a user who forwards calls by
//! registering another one) the contacts of the user there.

use crate::engine::Engine;
use crate::methods::takes;
use crate::reach::sender_of;
use crate::reachability::{is_web, target_of};
use crate::registration::LEADS_ON;
use smallvec::SmallVec;
use std::ops::Range;
use strowger_core::routing::{Identity, Scope};
use strowger_core::{ListenerId, Now, Target};
use strowger_message::{Method, SipUri, Uri};

/// The contacts collected for one request; kept between requests.
#[derive(Debug, Default)]
pub(crate) struct Contacts {
    pub(crate) text: Vec<u8>,
    /// Those to be tried first stand first.
    pub(crate) entries: Vec<Contact>,
    /// The users whose contacts they are.
    users: Vec<Range<usize>>,
    /// A user was met again that calls were forwarded from.
    pub(crate) looped: bool,
    /// A contact was passed over whose device does not take the method.
    pub(crate) unfit: bool,
}

/// When a contact is tried: equal ones together, lower ones first. By how much the q of the contact, and before it that of each
/// one that led to it, is below the best of its user; zeros at the end are left out.
type Order = SmallVec<[u16; 4]>;

#[derive(Debug)]
pub(crate) struct Contact {
    pub(crate) uri: Range<usize>,
    pub(crate) path: Range<usize>,
    /// Where its REGISTER came from, if that is the way to it.
    pub(crate) target: Option<Target>,
    /// Where older flows of the same device come from, and the Contact of each (RFC 5626 section 7).
    pub(crate) older: SmallVec<[(Target, Range<usize>); 1]>,
    /// `+sip.instance` of a flow; empty for anything else.
    instance: Range<usize>,
    /// When the REGISTER came, in milliseconds since 1970 UTC.
    updated_at: u64,
    pub(crate) listener: ListenerId,
    /// Scope of the address that its REGISTER came from.
    pub(crate) sender: Scope,
    order: Order,
    /// It names another user of ours.
    leads_on: bool,
    /// A sips URI led to it.
    secure: bool,
}

impl Contacts {
    /// Contacts of this order are tried together with those before them or after all of them.
    pub(crate) fn groups(&self) -> impl Iterator<Item = u16> {
        let mut group = 0;
        self.entries.iter().enumerate().map(move |(n, contact)| {
            if n > 0 && contact.order != self.entries[n - 1].order {
                group += 1;
            }
            group
        })
    }

    /// The first URI of the contact's Path, or its own.
    pub(crate) fn uri(&self, contact: &Contact) -> Option<Uri<'_>> {
        let path = &self.text[contact.path.clone()];
        let own = Uri::parse(&self.text[contact.uri.clone()]).ok();
        if path.is_empty() {
            return own;
        }
        match first_hop(path)? {
            // Every hop to a sips URI is secure (section 16.6 step 7).
            Uri::Sip(first) if own.is_some_and(|own| own.is_sips()) => Some(Uri::Sip(SipUri { secure: true, ..first })),
            first => Some(first),
        }
    }

    /// The next contact that leads to a user of ours, taken out: its order, whether by a sips URI, and the user if no other user led
    /// there.
    fn take_leading(&mut self, identity: &Identity) -> Option<(Order, bool, Option<Range<usize>>)> {
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

impl Engine {
    /// The user's contacts, best first. Of a sips URI, those alone that are reached by TLS.
    pub(crate) fn lookup_contacts(&self, now: Now, method: Method, uri: &Uri<'_>, contacts: &mut Contacts) {
        contacts.text.clear();
        contacts.entries.clear();
        contacts.users.clear();
        (contacts.looped, contacts.unfit) = (false, false);
        self.write_aor(uri, &mut contacts.text);
        let user = 0..contacts.text.len();
        self.add_contacts(now, method, user, &[], uri.is_sips(), contacts);
        while let Some((order, secure, user)) = contacts.take_leading(self.policy.identity()) {
            // Each user costs a look-up as each branch does.
            if let Some(user) = user.filter(|_| contacts.users.len() < self.proxy.settings().max_branches.into()) {
                self.add_contacts(now, method, user, &order, secure, contacts);
            }
        }
        contacts.entries.sort_by(|a, b| a.order.cmp(&b.order));
        // No more can be tried: their names need not be resolved.
        contacts.entries.truncate(self.proxy.settings().max_branches.into());
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

/// A device with several flows gets a request by one of them: the newest, or another if that fails (RFC 5626 section 7).
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
        let flow = older.target.map(|target| (target, older.uri));
        newest.older.extend(flow.into_iter().chain(older.older));
    }
}

/// The first URI of a Path as the registrar keeps it: each in angle brackets.
pub(crate) fn first_hop(path: &[u8]) -> Option<Uri<'_>> {
    let open = path.iter().position(|&b| b == b'<')? + 1;
    let close = path[open..].iter().position(|&b| b == b'>')? + open;
    Uri::parse(&path[open..close]).ok()
}

/// Whether the promise of a sips URI is kept by this contact, reached there (RFC 3261 sections 16.6 step 7 and 26.2.2, RFC 5630 section
/// 5.3). `secure`: a sips Request-URI led to it, which may become another one or a connection by TLS. What is registered by a sips
/// Contact is reached by TLS too; by WebSocket it may be as far as a server in front of this one.
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
