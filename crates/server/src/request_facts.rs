//! Facts of a request that conditions of rules may use.

use crate::decider::Decider;
use crate::handling::Handling;
use crate::proof::User;
use smallvec::SmallVec;
use std::cell::OnceCell;
use std::fmt::{self, Write as _};
use std::net::IpAddr;
use std::ops::Deref;
use strowger_config::CountedPer;
use strowger_core::Now;
use strowger_core::routing::{Identity, Request, Routing};
use strowger_message::uri::sip::unescaped;
use strowger_message::uri::tel::dialled;
use strowger_message::{Host, Method, Name, SipUri, Uri};
use strowger_rules::{AddressField, Facts, FlagField, NumberField, TextField};

/// Facts of a request that conditions of rules may use. Neither their creation nor their use allocates memory.
pub(crate) struct RequestFacts<'a, 'm> {
    decider: Decider<'a>,
    now: Now,
    pub(crate) request: &'a Request<'m>,
    routing: &'a Routing<'a>,
    /// User that has shown a password.
    pub(crate) user: Option<&'a User>,
    /// True if the request begins a call, which may count under limits.
    pub(crate) begins_call: bool,
    from_host: Option<FactText<'a>>,
    to_host: Option<FactText<'a>>,
    request_host: Option<FactText<'a>>,
    undone: Undone,
}

/// Text with room for most user parts and numbers.
type ShortText = SmallVec<[u8; 64]>;

/// Texts that rules see in another form than that of the request; each is computed when a rule needs it.
#[derive(Default)]
struct Undone {
    from: OnceCell<ShortText>,
    to: OnceCell<ShortText>,
    request: OnceCell<ShortText>,
    number: OnceCell<Option<ShortText>>,
}

/// Text of a request: a part of the request, or a text written into this value.
enum FactText<'a> {
    There(&'a [u8]),
    /// Address, which always has room.
    Here(SmallVec<[u8; 64]>),
}

impl<'a> FactText<'a> {
    /// Returns a host as it is written, without a dot at the end of a name, because the name with the dot is the same
    /// name (RFC 1034 section 3.1). The canonical name of a domain replaces its aliases.
    fn of_host(identity: &'a Identity, uri: &Uri<'a>) -> Option<Self> {
        let Uri::Sip(SipUri { host, .. }) = uri else { return None };
        if let Some(domain) = identity.shown_domain(*host) {
            return Some(Self::There(domain));
        }
        let mut text = Address::default();
        // There is always room.
        let _ = match host {
            Host::Name(_) => return host.name().filter(|name| !name.is_empty()).map(Self::There),
            Host::V4(ip) => write!(text, "{ip}"),
            Host::V6(ip) => write!(text, "[{ip}]"),
        };
        Some(Self::Here(text.0))
    }
}

impl Deref for FactText<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::There(text) => text,
            Self::Here(text) => text,
        }
    }
}

/// Writer into a buffer.
#[derive(Default)]
struct Address(SmallVec<[u8; 64]>);

impl fmt::Write for Address {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.extend_from_slice(text.as_bytes());
        Ok(())
    }
}

impl<'a, 'm> RequestFacts<'a, 'm> {
    /// Tells whether a URI of the configuration names a user of this server.
    pub(crate) fn names_user(&self, uri: &str) -> bool {
        Uri::parse(uri.as_bytes()).is_ok_and(|uri| self.decider.names_user(&uri))
    }

    pub(crate) fn of(decider: Decider<'a>, handling: &'a Handling<'_, 'm>, routing: &'a Routing<'a>) -> Self {
        let request = handling.request;
        let (from, to, identity) = (&request.mandatory.from.uri, &request.mandatory.to.uri, decider.policy.identity());
        Self {
            decider,
            now: handling.now,
            request,
            routing,
            user: handling.progress.proof.user.as_ref(),
            begins_call: handling.begins_call(),
            from_host: FactText::of_host(identity, from),
            to_host: FactText::of_host(identity, to),
            request_host: FactText::of_host(identity, &routing.uri),
            undone: Undone::default(),
        }
    }
}

impl RequestFacts<'_, '_> {
    /// Returns the value of this call for a limit: the user, gateway or other value per which the limit counts; `None`
    /// if the call has none.
    pub(crate) fn counted_value(&self, per: CountedPer) -> Option<Vec<u8>> {
        let aor = |uri: &Uri<'_>| Some(self.decider.aor_of(uri));
        match per {
            CountedPer::All => Some(Vec::new()),
            CountedPer::User => self.user.map(|user| self.decider.policy.realms.with_domain(user, user.name.to_vec())),
            CountedPer::SourceGroup => self.text(TextField::SourceGroup).map(<[u8]>::to_vec),
            CountedPer::SourceAddress => {
                Some(self.decider.policy.source_of(self.request.arrival).to_string().into_bytes())
            }
            CountedPer::Caller => aor(&self.request.mandatory.from.uri),
            CountedPer::Callee => aor(&self.routing.uri),
            // The places of the call determine the gateway.
            CountedPer::Gateway => None,
        }
    }
}

fn user_of<'a>(uri: &Uri<'a>) -> Option<&'a [u8]> {
    uri.sip().and_then(|uri| uri.user)
}

/// Returns the text before the first colon.
fn scheme_of(uri: &[u8]) -> &[u8] {
    uri.split(|byte| *byte == b':').next().unwrap_or_default()
}

fn port_of(uri: &Uri<'_>) -> Option<u64> {
    uri.sip()?.port.map(u64::from)
}

/// Returns the number in a URI: the number of a tel URI, or a user part that is a number.
pub(crate) fn number_of<'a>(uri: &Uri<'a>) -> Option<impl Iterator<Item = u8> + Clone + use<'a>> {
    dialled(match uri {
        Uri::Tel(tel) => tel.number,
        uri => user_of(uri)?,
    })
}

impl RequestFacts<'_, '_> {
    /// Returns a user part with its escapes decoded: `%62ob` is `bob` (RFC 3261 section 19.1.4).
    fn user_text<'s>(&'s self, uri: &Uri<'s>, undone: &'s OnceCell<ShortText>) -> Option<&'s [u8]> {
        let user = user_of(uri)?;
        let is_escaped = user.contains(&b'%');
        Some(if is_escaped { undone.get_or_init(|| unescaped(user).collect()) } else { user })
    }
}

impl Facts for RequestFacts<'_, '_> {
    fn text(&self, field: TextField) -> Option<&[u8]> {
        let (request, routing) = (self.request, self.routing);
        let mandatory = &request.mandatory;
        match field {
            TextField::Method => Some(request.message.method_text()),
            TextField::Transport => Some(request.arrival.transport.text().as_bytes()),
            TextField::SourceGroup => {
                let source = request.arrival.remote.ip().to_canonical();
                self.decider.policy.config.decisions.group_of(source).map(str::as_bytes)
            }
            TextField::FromUser => self.user_text(&mandatory.from.uri, &self.undone.from),
            TextField::FromDomain => self.from_host.as_deref(),
            TextField::FromUri => Some(mandatory.from.addr.uri_text),
            TextField::FromScheme => Some(scheme_of(mandatory.from.addr.uri_text)),
            TextField::ToUser => self.user_text(&mandatory.to.uri, &self.undone.to),
            TextField::ToDomain => self.to_host.as_deref(),
            TextField::ToUri => Some(mandatory.to.addr.uri_text),
            TextField::ToScheme => Some(scheme_of(mandatory.to.addr.uri_text)),
            TextField::RequestUser => self.user_text(&routing.uri, &self.undone.request),
            TextField::RequestDomain => self.request_host.as_deref(),
            TextField::RequestUri => Some(routing.uri_text),
            TextField::RequestScheme => Some(scheme_of(routing.uri_text)),
            TextField::User => self.user.map(|user| &*user.name),
            TextField::Number => {
                let number = || number_of(&routing.uri).map(Iterator::collect);
                self.undone.number.get_or_init(number).as_deref()
            }
        }
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        match Name::of(name.as_bytes()) {
            Name::Other => self.request.message.header_named(name.as_bytes()),
            name => self.request.message.header(name),
        }
    }

    fn number(&self, field: NumberField) -> Option<u64> {
        match field {
            NumberField::SourcePort => Some(self.request.arrival.remote.port().into()),
            NumberField::FromPort => port_of(&self.request.mandatory.from.uri),
            NumberField::ToPort => port_of(&self.request.mandatory.to.uri),
            NumberField::RequestPort => port_of(&self.routing.uri),
            NumberField::Size => Some(self.request.message.bytes().len() as u64),
            NumberField::RequestLength => Some(self.routing.uri_text.len() as u64),
            NumberField::MaxForwards => self.request.max_forwards.map(u64::from),
        }
    }

    fn address(&self, field: AddressField) -> Option<IpAddr> {
        match field {
            AddressField::SourceAddress => Some(self.request.arrival.remote.ip().to_canonical()),
        }
    }

    fn flag(&self, field: FlagField) -> bool {
        let decider = self.decider;
        match field {
            FlagField::FromLocal => decider.is_from_local(self.request),
            FlagField::ToLocal => decider.is_party_local(&self.request.mandatory.to.uri),
            FlagField::RequestLocal => {
                let uri = &self.routing.uri;
                decider.is_for_local(self.request, uri) || decider.names_server(uri)
            }
            FlagField::RequestRouted => self.routing.route.is_some() || self.routing.leads_elsewhere(),
            FlagField::Authenticated => self.user.is_some(),
            // A To tag alone is no proof for an INVITE, which may begin a call.
            FlagField::InDialog if self.request.method == Method::Invite => {
                decider.is_within_dialog(self.now, self.request, self.routing)
            }
            FlagField::InDialog => !self.request.to_tag.is_empty(),
        }
    }
}
