//! The stage of rules: what the rules of the configuration say of a request that does not belong to a call that was let through.

use crate::engine::Engine;
use crate::handling::Handling;
use crate::policy::InForce;
use crate::reply::{Reply, Why};
use crate::stage::{Stage, Verdict};
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::time::Duration;
use strowger_config::Action;
use strowger_core::digest::Credentials;
use strowger_core::proxy::TryNext;
use strowger_core::record::header_names;
use strowger_core::routing::{Request, Routing};
use strowger_core::shown::shown;
use strowger_message::{Host, Name, SipUri, Uri};
use strowger_rules::{AddressField, Facts, FlagField, NumberField, Rule, TextField};

/// What the rules that hold say together. It goes with its request, also where the rules have changed since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Decision {
    /// Where it goes, in order of trying; empty: the rules do not say.
    pub(crate) to: Vec<String>,
    try_next: Option<Vec<u16>>,
    /// Header lines that it gets.
    pub(crate) add: Vec<u8>,
    /// Header fields that it loses.
    #[serde(with = "header_names")]
    pub(crate) remove: Vec<Name>,
    pub(crate) record_route: Option<bool>,
    pub(crate) track: Option<bool>,
    pub(crate) account: Option<bool>,
    /// Milliseconds.
    pub(crate) ring_timeout: Option<u64>,
    /// Milliseconds.
    pub(crate) answer_timeout: Option<u64>,
}

impl Decision {
    /// What one more rule says counts where none before it has said so.
    fn hear(&mut self, action: &Action) {
        let milliseconds = |time: Option<Duration>| time.map(|time| time.as_millis() as u64);
        if self.to.is_empty() {
            self.to = action.to.iter().map(|uri| uri.as_str().to_owned()).collect();
            self.try_next = action.try_next.as_ref().map(|statuses| statuses.to_vec());
        }
        self.add.extend_from_slice(&action.add);
        self.remove.extend_from_slice(&action.remove);
        self.record_route = self.record_route.or(action.record_route);
        self.track = self.track.or(action.track);
        self.account = self.account.or(action.account);
        self.ring_timeout = self.ring_timeout.or_else(|| milliseconds(action.ring_timeout));
        self.answer_timeout = self.answer_timeout.or_else(|| milliseconds(action.answer_timeout));
    }

    pub(crate) fn try_next(&self) -> TryNext<'_> {
        self.try_next.as_deref().map_or(TryNext::Any, TryNext::On)
    }
}

impl Engine {
    /// What becomes of a request by the rules; the next stage if none answers it.
    pub(crate) fn decide(&self, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> Verdict {
        let decisions = &self.policy.config.decisions;
        let facts = RequestFacts::of(self, handling, routing);
        if tracing::enabled!(tracing::Level::DEBUG) {
            self.log_judgements(&facts);
        }
        let mut decision = Decision::default();
        let mut is_any = false;
        let answer = decisions.rules.walk(&facts, &decisions.sets, |place, rule: &Rule<Action>| {
            if let Some((status, _)) = rule.action.answer {
                return ControlFlow::Break(Some((status, place)));
            }
            is_any = true;
            decision.hear(&rule.action);
            if rule.action.ends { ControlFlow::Break(None) } else { ControlFlow::Continue(()) }
        });
        if let ControlFlow::Break(Some((status, place))) = answer {
            return Reply { why: Why::Rule(place), ..Reply::refused(status) }.into();
        }
        if is_any { Verdict::Decide(Box::new(decision)) } else { Verdict::Next(Stage::Route) }
    }

    /// Why each rule holds for this request, or does not: a line a rule.
    fn log_judgements(&self, facts: &RequestFacts<'_, '_>) {
        let decisions = &self.policy.config.decisions;
        for verdict in decisions.rules.explain(facts, &decisions.sets).verdicts {
            tracing::debug!(
                rule = %verdict.name,
                holds = verdict.matches,
                part = %verdict.decider,
                part_holds = verdict.holds,
                call_id = %shown(facts.request.call_id),
                "rule judged"
            );
        }
    }

    /// Whether rules are asked at all.
    pub(crate) fn has_rules(&self) -> bool {
        !self.policy.config.decisions.rules.is_empty()
    }

    /// Whether the source of a request needs no password.
    pub(crate) fn is_trusted(&self, source: IpAddr) -> bool {
        let decisions = &self.policy.config.decisions;
        decisions.group_of(source.to_canonical()).is_some_and(|group| decisions.trusts(group))
    }
}

impl InForce {
    /// The rule at this place.
    pub(crate) fn rule(&self, place: usize) -> Option<&Rule<Action>> {
        self.config.decisions.rules.iter().nth(place)
    }
}

/// What rules may ask of a request.
struct RequestFacts<'a, 'm> {
    engine: &'a Engine,
    request: &'a Request<'m>,
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
    fn of(engine: &'a Engine, handling: &'a Handling<'_, 'm>, routing: &'a Routing<'a>) -> Self {
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
            FlagField::RequestLocal => self.routing.route.is_none() && engine.is_local(&self.routing.uri),
            FlagField::Authenticated => self.user.is_some(),
            FlagField::InDialog => !self.request.to_tag.is_empty(),
        }
    }
}
