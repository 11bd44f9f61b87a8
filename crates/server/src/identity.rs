//! Identities in From and in the header fields of RFC 3325 (RFC 3261 section 22.1, RFC 3323).
//!
//! An untrusted sender may show only its account, or a number that the account may show (`auth.identities`). A request
//! with another From is refused. Other identities in the header fields of [`NAMING`] are removed or replaced, unless
//! the rule of the call lets them pass (`rule.identity`).

use crate::decider::Decider;
use crate::handling::Handling;
use crate::proof::User;
use crate::request_facts::number_of;
use smallvec::SmallVec;
use strowger_config::{IdentityEntry, IdentityList, IdentitySource};
use strowger_core::digest::ChallengeHeader;
use strowger_core::routing::{Request, Routing};
use strowger_message::header::Privacy;
use strowger_message::uri::sip::escape_user;
use strowger_message::{Edit, Message, Name, NameAddr, Uri};
use strowger_rules::Case;

/// Identity in a header field that is not the user's own.
pub(crate) struct Claim {
    pub(crate) header: Name,
    /// Address of record that the claim names, or the value itself if it cannot be parsed.
    pub(crate) names: Vec<u8>,
}

/// Header fields with identities of the caller, and of users who diverted the call.
const NAMING: [Name; 5] =
    [Name::PPreferredIdentity, Name::PAssertedIdentity, Name::RemotePartyId, Name::Diversion, Name::HistoryInfo];

/// Header fields with identities of the callee.
const NAMING_CALLEE: [Name; 3] = [Name::PAssertedIdentity, Name::RemotePartyId, Name::PPreferredIdentity];

/// Tells whether a request has identities in header fields other than From.
pub(crate) fn names_caller(message: &Message<'_>) -> bool {
    NAMING.iter().any(|name| message.has(*name))
}

/// Tells whether a response has identities of the callee.
pub(crate) fn names_callee(message: &Message<'_>) -> bool {
    NAMING_CALLEE.iter().any(|name| message.has(*name))
}

/// Writes a response without identities of the callee.
pub(crate) fn conceal_callee(message: &Message<'_>, edit: &mut Edit, out: &mut Vec<u8>) {
    edit.clear();
    NAMING_CALLEE.iter().for_each(|name| edit.remove_all(message.index(), *name));
    edit.write(message, out);
}

impl Claim {
    fn of(header: Name, uri: &Uri<'_>) -> Self {
        let mut names = Vec::new();
        uri.write_aor(&mut names);
        Self { header, names }
    }
}

/// Account and its list of identities.
#[derive(Clone, Copy)]
struct Account<'a> {
    name: &'a [u8],
    domain: &'a [u8],
    list: IdentityList<'a>,
}

impl Account<'_> {
    /// Returns its address of record as a URI.
    fn own(&self) -> Vec<u8> {
        let mut uri = b"sip:".to_vec();
        escape_user(self.name, &mut uri);
        uri.push(b'@');
        uri.extend_from_slice(self.domain);
        uri
    }
}

/// Sender of a request, by the identities that it may show.
enum Sender<'a> {
    /// Any identity may be shown: by a trusted source, or by any sender if the configuration asks for no password.
    Trusted,
    /// Identities of this account, whose password it has shown.
    Account(Account<'a>),
    /// No identity.
    Unknown,
}

impl Decider<'_> {
    /// Verifies that the request names no other user than this subscriber.
    ///
    /// To of a REGISTER must name the user. From of any other request must name the user too, unless From says that the
    /// caller withholds its identity (RFC 3323 section 4.1.1.3), or names a number that the account may show.
    pub(crate) fn claims_only(&self, header: ChallengeHeader, party: &Uri<'_>, user: &User) -> Result<(), Claim> {
        let (name, domain, own) = (&user.name[..], &user.domain[..], self.policy.identity());
        if header == ChallengeHeader::WwwAuthenticate {
            return if own.is_user(name, domain, party) { Ok(()) } else { Err(Claim::of(Name::To, party)) };
        }
        let may_show = is_anonymous(party)
            || own.is_user(name, domain, party)
            || self.identity_of(self.list_of(name, domain), None, domain, party).is_some();
        if may_show { Ok(()) } else { Err(Claim::of(Name::From, party)) }
    }

    /// Writes the request without identities that its sender may not show. Returns false, and writes nothing, if there
    /// is no such identity.
    ///
    /// P-Preferred-Identity is for the first proxy (RFC 3325 section 5). With `Privacy: id` (section 7) identities are
    /// sent with an emergency call only, because no other next hop is known to be trusted here.
    pub(crate) fn conceal(
        &self,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        edit: &mut Edit,
        out: &mut Vec<u8>,
    ) -> bool {
        let (request, message) = (handling.request, &handling.request.message);
        let is_emergency = self.is_emergency(handling.now, request, routing);
        let is_withheld = !is_emergency && withholds_identity(message);
        edit.clear();
        edit.remove_all(message.index(), Name::PPreferredIdentity);
        match if is_emergency { Sender::Trusted } else { self.sender(handling) } {
            Sender::Trusted if is_withheld => {
                edit.remove_all(message.index(), Name::PAssertedIdentity);
                edit.remove_all(message.index(), Name::RemotePartyId);
            }
            Sender::Trusted => (),
            Sender::Account(account) => {
                let is_withheld = is_withheld || is_anonymous(&request.mandatory.from.uri);
                let by_rule = handling.progress.rule_identity.as_ref();
                let by_rule = by_rule.and_then(|source| self.list_by(source, Some(account)));
                self.conceal_others(message, (account, by_rule), is_withheld, edit);
            }
            Sender::Unknown => NAMING[1..].iter().for_each(|name| edit.remove_all(message.index(), *name)),
        }
        let conceals = !edit.is_empty();
        if conceals {
            edit.write(message, out);
        }
        conceals
    }

    /// Removes identities that neither this account nor the list of the rule may show. P-Asserted-Identity gets an
    /// identity that may be shown.
    fn conceal_others(
        &self,
        message: &Message<'_>,
        (account, by_rule): (Account<'_>, Option<IdentityList<'_>>),
        is_withheld: bool,
        edit: &mut Edit,
    ) {
        let index = message.index();
        let values = |name| message.values::<NameAddr<'_>>(name);
        let identity = |uri: &Uri<'_>| {
            let of_rule = || self.identity_of(by_rule?, None, account.domain, uri);
            self.identity_of(account.list, Some(account), account.domain, uri).or_else(of_rule)
        };
        let may_show = |name| values(name).all(|value| value.is_ok_and(|value| identity(&value.uri).is_some()));
        let [has_preferred, has_asserted] =
            [Name::PPreferredIdentity, Name::PAssertedIdentity].map(|name| message.has(name));
        if is_withheld {
            edit.remove_all(index, Name::PAssertedIdentity);
        } else if (has_preferred || has_asserted) && !(has_asserted && may_show(Name::PAssertedIdentity)) {
            let mut named = values(Name::PPreferredIdentity).chain(values(Name::PAssertedIdentity)).flatten();
            let asserted = named.find_map(|value| identity(&value.uri)).unwrap_or_else(|| default_identity(account));
            edit.remove_all(index, Name::PAssertedIdentity);
            edit.append(index, Name::PAssertedIdentity, |out| write_bracketed(&asserted, out));
        }
        if is_withheld || !may_show(Name::RemotePartyId) {
            edit.remove_all(index, Name::RemotePartyId);
        }
        for name in [Name::Diversion, Name::HistoryInfo] {
            if may_show(name) {
                continue;
            }
            edit.remove_all(index, name);
            let left: SmallVec<[NameAddr<'_>; 4]> = values(name)
                .flatten()
                .map(|value| value.value)
                .filter(|value| identity(&value.uri).is_some())
                .collect();
            if !left.is_empty() {
                edit.append(index, name, |out| {
                    for (n, value) in left.iter().enumerate() {
                        out.extend_from_slice(if n > 0 { b", " } else { b"" });
                        strowger_message::Write::write(value, out);
                    }
                });
            }
        }
    }

    fn sender<'a>(&'a self, handling: &'a Handling<'_, '_>) -> Sender<'a> {
        let auth = &self.policy.config.auth;
        let user = handling.progress.proof.user.as_ref();
        if self.believes(handling.request.arrival.remote.ip()) || (user.is_some() && !auth.user_must_match) {
            return Sender::Trusted;
        }
        let Some(User { name, domain }) = user else { return Sender::Unknown };
        Sender::Account(Account { name, domain, list: self.list_of(name, domain) })
    }

    /// Tells whether identities in messages from this source are trusted (RFC 3325 section 5). They are if the source
    /// is a trusted `[[source]]`, or if calls need no password.
    pub(crate) fn believes(&self, source: std::net::IpAddr) -> bool {
        !self.policy.config.auth.calls || self.is_trusted(source)
    }

    /// Returns the list of `auth.identities` for an account.
    fn list_of(&self, name: &[u8], domain: &[u8]) -> IdentityList<'_> {
        let config = &self.policy.config;
        let set = config.auth.identities.as_ref().and_then(|set| config.decisions.names.id(set.name()));
        set.and_then(|set| self.list_in(set, name, domain)).unwrap_or_default()
    }

    fn list_in(&self, set: strowger_rules::SetId, name: &[u8], domain: &[u8]) -> Option<IdentityList<'_>> {
        let set = self.policy.config.decisions.sets.set(set)?;
        let mut names = self.policy.identity().names_of(domain);
        let by_address = names.find_map(|domain| set.text_value(&[name, b"@", domain].concat(), Case::Exact));
        let text = by_address.or_else(|| set.text_value(name, Case::Exact))?;
        std::str::from_utf8(text).ok().map(IdentityList::of)
    }

    /// Returns the URI to assert for an identity: the address of record of this account, or a number from the list of
    /// the account with this domain. Returns `None` if the identity is neither.
    fn identity_of(
        &self,
        list: IdentityList<'_>,
        account: Option<Account<'_>>,
        domain: &[u8],
        uri: &Uri<'_>,
    ) -> Option<Vec<u8>> {
        let own = self.policy.identity();
        if let Some(account) = account.filter(|account| own.is_user(account.name, account.domain, uri)) {
            return Some(account.own());
        }
        let number: Option<SmallVec<[u8; 32]>> = number_of(uri).map(Iterator::collect);
        if let Some(number) = number.filter(|number| self.is_host_of_numbers(uri) && list.admits_number(number)) {
            return Some(of_number(&number, domain));
        }
        list.uri(uri, |uri| self.aor_of(uri)).map(|text| text.as_bytes().to_vec())
    }

    /// Tells whether the user part of a URI at this host may be a number of an account: the host is a local domain,
    /// this server, or an IP address (a PBX).
    fn is_host_of_numbers(&self, uri: &Uri<'_>) -> bool {
        let identity = self.policy.identity();
        uri.sip().is_none_or(|uri| {
            uri.host.ip().is_some() || identity.domain_of(uri.host).is_some() || identity.is_own_host(uri.host)
        })
    }

    /// Returns the list of a rule for an account; `None` if the data set of the rule has no list for that account.
    fn list_by<'a>(&'a self, source: &'a IdentitySource, account: Option<Account<'_>>) -> Option<IdentityList<'a>> {
        match source {
            IdentitySource::List(text) => Some(IdentityList::of(text)),
            IdentitySource::Set(set) => account.and_then(|account| self.list_in(*set, account.name, account.domain)),
        }
    }

    /// Returns the URI to assert by a rule; `None` if the list of the rule has no identity for this sender.
    /// `may_choose`: whether P-Preferred-Identity, P-Asserted-Identity or From of the request chooses from the list.
    pub(crate) fn identity_by(
        &self,
        request: &Request<'_>,
        user: Option<&User>,
        may_choose: bool,
        source: &IdentitySource,
    ) -> Option<Vec<u8>> {
        let account = user.map(|User { name, domain }| Account { name, domain, list: self.list_of(name, domain) });
        let list = self.list_by(source, account);
        let mut host = Vec::new();
        let local = request.mandatory.from.uri.sip().and_then(|uri| self.policy.identity().domain_of(uri.host));
        match local {
            Some(domain) => host.extend_from_slice(domain),
            None => host
                .extend_from_slice(self.policy.config.domain_names().next().unwrap_or("anonymous.invalid").as_bytes()),
        }
        let domain = account.map_or(&host[..], |account| account.domain);
        let (names, from) = ([Name::PPreferredIdentity, Name::PAssertedIdentity], request.mandatory.from.uri);
        let named = names.into_iter().flat_map(|name| request.message.values::<NameAddr<'_>>(name)).flatten();
        let mut named = named.map(|value| value.uri).chain([from]).filter(|_| may_choose);
        // The account's own list includes its address of record, the list of a rule does not.
        let (list, own) = match (list, account) {
            (Some(list), _) => (list, None),
            (None, account) => (account?.list, account),
        };
        named
            .find_map(|uri| self.identity_of(list, own, domain, &uri))
            .or_else(|| list.first().map(|entry| of_entry(entry, domain)))
            .or_else(|| account.map(default_identity))
    }
}

/// Returns the default identity of an account.
fn default_identity(account: Account<'_>) -> Vec<u8> {
    account.list.first().map_or_else(|| account.own(), |entry| of_entry(entry, account.domain))
}

fn of_entry(entry: IdentityEntry<'_>, domain: &[u8]) -> Vec<u8> {
    match entry {
        IdentityEntry::Number(text) => of_number(text.as_bytes(), domain),
        IdentityEntry::Prefix(text) | IdentityEntry::Range(text, _) | IdentityEntry::Uri(text) => {
            text.as_bytes().to_vec()
        }
    }
}

fn of_number(number: &[u8], domain: &[u8]) -> Vec<u8> {
    [b"sip:", number, b"@", domain].concat()
}

fn write_bracketed(uri: &[u8], out: &mut Vec<u8>) {
    out.push(b'<');
    out.extend_from_slice(uri);
    out.push(b'>');
}

/// Tells whether the request has `Privacy: id` (RFC 3325 section 9.3), or a Privacy that cannot be read.
pub(crate) fn withholds_identity(message: &Message<'_>) -> bool {
    message.values::<Privacy<'_>>(Name::Privacy).any(|privacy| privacy.map_or(true, |privacy| privacy.has(b"id")))
}

/// Tells whether From is anonymous (RFC 3323 section 4.1.1.3).
pub(crate) fn is_anonymous(from: &Uri<'_>) -> bool {
    from.sip().is_some_and(|uri| uri.host.is_lower(b"anonymous.invalid"))
}
