//! What rules may ask of a request.

use crate::engine::Engine;
use crate::handling::Handling;
use std::net::IpAddr;
use strowger_config::CountedPer;
use strowger_core::digest::Credentials;
use strowger_core::routing::{Request, Routing};
use strowger_message::{Host, Name, SipUri, Uri};
use strowger_rules::{AddressField, Facts, FlagField, NumberField, TextField};

/// What rules may ask of a request.
pub(crate) struct RequestFacts<'a, 'm> {
    engine: &'a Engine,
    pub(crate) request: &'a Request<'m>,
    routing: &'a Routing<'a>,
    /// The user that has shown a password.
    user: Option<Vec<u8>>,
    from_host: HostText,
    to_host: HostText,
    request_host: HostText,
}

/// A host as it is written.
#[derive(Default)]
struct HostText(smallvec::SmallVec<[u8; 64]>);

impl HostText {
    fn of(uri: &Uri<'_>) -> Self {
        match uri {
            Uri::Sip(SipUri { host, .. }) => Self::of_host(*host),
            _ => Self::default(),
        }
    }

    fn of_host(host: Host<'_>) -> Self {
        match host {
            Host::Name(name) => Self(smallvec::SmallVec::from_slice(name)),
            host => {
                let mut text = Vec::new();
                host.write(&mut text);
                Self(smallvec::SmallVec::from_vec(text))
            }
        }
    }

    fn text(&self) -> Option<&[u8]> {
        (!self.0.is_empty()).then_some(&self.0[..])
    }
}

impl<'a, 'm> RequestFacts<'a, 'm> {
    pub(crate) fn of(engine: &'a Engine, handling: &'a Handling<'_, 'm>, routing: &'a Routing<'a>) -> Self {
        let request = handling.request;
        let (from, to) = (&request.mandatory.from.uri, &request.mandatory.to.uri);
        Self {
            engine,
            request,
            routing,
            user: handling.progress.proof.authenticated.then(|| username(engine, request)).flatten(),
            from_host: HostText::of(from),
            to_host: HostText::of(to),
            request_host: HostText::of(&routing.uri),
        }
    }
}

impl RequestFacts<'_, '_> {
    /// What calls are counted by, of this one; none: it has no such thing.
    pub(crate) fn counted_value(&self, per: CountedPer) -> Option<Vec<u8>> {
        let aor = |uri: &Uri<'_>| {
            let mut text = Vec::new();
            uri.write_aor(&mut text);
            Some(text)
        };
        match per {
            CountedPer::All => Some(Vec::new()),
            CountedPer::User => self.user.clone(),
            CountedPer::SourceGroup => self.text(TextField::SourceGroup).map(<[u8]>::to_vec),
            CountedPer::SourceAddress => Some(self.request.arrival.remote.ip().to_canonical().to_string().into_bytes()),
            CountedPer::Caller => aor(&self.request.mandatory.from.uri),
            CountedPer::Callee => aor(&self.routing.uri),
        }
    }
}

/// Whose credentials a request has shown.
pub(crate) fn username(engine: &Engine, request: &Request<'_>) -> Option<Vec<u8>> {
    let message = &request.message;
    let shown = message.headers(Name::ProxyAuthorization).chain(message.headers(Name::Authorization));
    let realms = engine.proxy.settings();
    let ours = |credentials: &Credentials<'_>| realms.realms.iter().any(|own| **own == *credentials.realm.value());
    let mut credentials = shown.filter_map(|value| Credentials::parse(value).ok());
    credentials.find(ours)?.username.map(|username| username.value().into_owned())
}

fn user_of<'a>(uri: &Uri<'a>) -> Option<&'a [u8]> {
    uri.sip().and_then(|uri| uri.user)
}

/// The number that a URI is for: that of a tel URI, or a user that is one.
fn number_of<'a>(uri: &Uri<'a>) -> Option<&'a [u8]> {
    let is_number = |text: &&[u8]| {
        let digits = text.strip_prefix(b"+").unwrap_or(text);
        !digits.is_empty() && digits.iter().all(|byte| byte.is_ascii_digit() || matches!(byte, b'*' | b'#'))
    };
    let text = match uri {
        Uri::Tel(tel) => Some(tel.number),
        uri => user_of(uri),
    };
    text.filter(is_number)
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
                self.engine.policy.config.decisions.group_of(source).map(str::as_bytes)
            }
            TextField::FromUser => user_of(&mandatory.from.uri),
            TextField::FromDomain => self.from_host.text(),
            TextField::FromUri => Some(mandatory.from.addr.uri_text),
            TextField::ToUser => user_of(&mandatory.to.uri),
            TextField::ToDomain => self.to_host.text(),
            TextField::ToUri => Some(mandatory.to.addr.uri_text),
            TextField::RequestUser => user_of(&routing.uri),
            TextField::RequestDomain => self.request_host.text(),
            TextField::RequestUri => Some(routing.uri_text),
            TextField::RequestScheme => routing.uri_text.split(|byte| *byte == b':').next(),
            TextField::User => self.user.as_deref(),
            TextField::Number => number_of(&routing.uri),
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
            NumberField::RequestPort => self.routing.uri.sip().and_then(|uri| uri.port).map(u64::from),
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
        let engine = self.engine;
        match field {
            FlagField::FromLocal => engine.is_from_local(self.request),
            FlagField::ToLocal => engine.is_local(&self.request.mandatory.to.uri),
            FlagField::RequestLocal => {
                let uri = &self.routing.uri;
                self.routing.route.is_none() && (engine.is_local(uri) || engine.names_server(uri))
            }
            FlagField::Authenticated => self.user.is_some(),
            FlagField::InDialog => !self.request.to_tag.is_empty(),
        }
    }
}
