//! Routing information of a request: its Route headers and its Request-URI (RFC 3261 sections 16.4, 16.6 steps 6 and 12).

use super::account_hash::AccountHash;
use super::route_token::{self, Beyond, Grant, Judgement};
use super::scope::Scope;
use super::seal::Seal;
use super::uri_target::UriTarget;
use super::usage::Usage;
use super::{ListenerAddress, Request, Router};
use crate::{ListenerId, Now, Target, Transport};
use smallvec::SmallVec;
use std::net::SocketAddr;
use std::ops::Range;
use strowger_message::header::Hop;
use strowger_message::uri::SipUri;
use strowger_message::values::Placed;
use strowger_message::{Edit, Index, Message, Name, Uri};

type Value<'a> = Placed<Hop<'a>>;

/// Parameter of our Record-Route with the route token (see [`super::route_token`]).
pub(crate) const ROUTE_TOKEN: &[u8] = b"d";

/// Routing information of one request.
#[derive(Debug)]
pub struct Routing<'a> {
    /// Request-URI for routing, with the change of a strict router undone.
    pub uri: Uri<'a>,
    /// Text of the Request-URI in the message.
    pub uri_text: &'a [u8],
    /// Set if a Route of ours was present; it is removed.
    pub own_route: bool,
    /// Set if the request is for the other party of an admitted call, as proved by our route token in the Route, or by
    /// our seal in the Request-URI.
    pub in_dialog: bool,
    /// Usage of the dialog. Meaningful if `in_dialog`.
    pub usage: Usage,
    /// Unix time of the route token, in seconds of the current wall clock; a seal does not change it. Without a route
    /// token, the time of the seal.
    pub made: u32,
    /// Unix time of the seal, if the route token alone is too old; else equal to `made`.
    pub renewed: u32,
    /// Account of the sender in the route token; `None` if the token has an earlier format, or a seal alone proves the
    /// dialog.
    pub account: Option<AccountHash>,
    /// Set if the request has our route token for this call and party, but not the Contact of the token.
    pub other_contact: bool,
    /// Scope of the party that named the next hop, by a Contact or a Record-Route; `None` if the sender of the request
    /// names it.
    pub scope: Option<Scope>,
    /// First remaining Route.
    pub route: Option<Uri<'a>>,
    /// Listener that our second Route names, from which requests of the dialog are sent.
    pub listener: Option<ListenerId>,
    /// Real address of the device, from our seal, if it differs from the Request-URI. The listener is one from which
    /// the device is reached. A named connection may be closed by now.
    pub device: Option<Target>,
    /// Set if a Route value is malformed: the answer is 400.
    pub malformed: bool,
    pub(crate) uri_changed: bool,
    /// Set if the `maddr` of the Request-URI names this server: it is consumed (section 16.4).
    pub(crate) own_maddr: bool,
    /// Consumed seal, to be removed.
    pub(crate) spent: Option<&'a [u8]>,
    pub(crate) remove: SmallVec<[Range<usize>; 2]>,
    /// Set if the first remaining Route is a strict router: it becomes the Request-URI.
    pub(crate) strict: Option<&'a [u8]>,
}

/// Next hop of a request by its URI alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop<'a> {
    /// Address.
    Known(Target),
    /// Host name, to be resolved (RFC 3263).
    Name {
        /// Text in the URI.
        host: &'a [u8],
        /// None: from SRV records, or the default of the transport (RFC 3263 section 4.2).
        port: Option<u16>,
        /// None: from NAPTR and SRV records (RFC 3263 section 4.1).
        transport: Option<Transport>,
        /// Set for a sips URI: TLS is required.
        secure: bool,
    },
    /// Unreachable, because no listener of ours fits, or the URI names no host.
    Unreachable,
}

impl<'a> Routing<'a> {
    /// Returns the next hop: the first Route or the Request-URI. The next hop is treated as a sips URI if the
    /// Request-URI is one (section 16.6 step 7).
    pub fn next(&self) -> Uri<'a> {
        match (self.route, self.uri.is_sips()) {
            (Some(Uri::Sip(route)), true) => Uri::Sip(SipUri { secure: true, ..route }),
            (Some(route), _) => route,
            (None, _) => self.uri,
        }
    }

    /// Tells whether the `maddr` of the Request-URI names another host than the URI, and not this server, so that the
    /// request is sent to that host (RFC 3261 section 19.1.1).
    pub fn leads_elsewhere(&self) -> bool {
        let maddr = self.uri.sip().filter(|_| !self.own_maddr).and_then(|uri| Some((uri.host, uri.params.maddr()?)));
        maddr.is_some_and(|(host, maddr)| strowger_message::Host::parse(maddr).is_ok_and(|maddr| maddr != host))
    }
}

impl Router {
    /// Reads the routing information of a request.
    pub fn route<'a>(&self, now: Now, request: &Request<'a>) -> Routing<'a> {
        let message = request.message;
        let mut routing = Routing {
            uri: request.uri,
            uri_text: message.request_uri(),
            own_route: false,
            in_dialog: false,
            usage: Usage::Early,
            made: 0,
            renewed: 0,
            account: None,
            other_contact: false,
            scope: None,
            route: None,
            listener: None,
            device: None,
            malformed: false,
            uri_changed: false,
            own_maddr: false,
            spent: None,
            remove: SmallVec::new(),
            strict: None,
        };
        let mut token = None;
        if message.has(Name::Route) || self.is_record_route(&request.uri) {
            token = self.read_routes(request, &mut routing);
        }
        let uri = routing.uri.sip().copied();
        routing.own_maddr = uri.as_ref().is_some_and(|uri| self.own_maddr(uri));
        let beyond = match routing.route {
            None => Beyond::Party,
            Some(Uri::Sip(route)) => Beyond::Proxy(UriTarget::of(&route)),
            Some(_) => Beyond::Unknown,
        };
        let judged = match token {
            None => Judgement::Refused,
            Some(token) => self.route_tokens.judge(now, token, request.call_id, request.to_tag, beyond, uri.as_ref()),
        };
        let seal = uri.and_then(|uri| self.seals.find(now, request.call_id, request.to_tag, &uri));
        let of_party = seal.is_some_and(|seal| seal.of_party);
        let of_seal = seal.filter(|_| of_party);
        let grant = match judged {
            Judgement::Granted(grant) => Some(grant),
            // The route token covers the Route. A token that is too old still proves the Route, and the seal proves a
            // refresh within the lifetime.
            Judgement::OtherContact(grant) | Judgement::Stale(grant) if routing.route.is_some() => {
                of_seal.map(|_| grant)
            }
            // The seal belongs to the party, and no other element is on the route.
            Judgement::OtherContact(grant) | Judgement::Stale(grant) => {
                of_seal.map(|seal| Grant { scope: seal.scope, ..grant })
            }
            Judgement::Refused => {
                let of_seal = of_seal.filter(|_| routing.route.is_none());
                of_seal.map(|Seal { scope, usage, made, .. }| Grant { scope, usage, made, account: None })
            }
        };
        routing.in_dialog = grant.is_some();
        routing.other_contact = grant.is_none() && matches!(judged, Judgement::OtherContact(_));
        // Outside of a dialog, a valid seal still proves who named this URI, and from which scope.
        let of_other = || seal.filter(|_| request.to_tag.is_empty() && routing.route.is_none()).map(|seal| seal.scope);
        routing.scope = grant.map(|grant| grant.scope).or_else(of_other);
        if let Some(Grant { usage, made, account, .. }) = grant {
            (routing.usage, routing.made, routing.account) = (usage, made, account);
            routing.renewed = match (judged, of_seal) {
                (Judgement::Stale(_), Some(seal)) => seal.made,
                _ => made,
            };
        }
        if let Some(seal) = seal {
            self.use_seal(request, &seal, &mut routing);
        }
        routing
    }

    /// Applies a seal. Outside of a dialog any valid seal is applied, since a peer may have learnt the seal of a party
    /// in another call. Within a dialog, the seal must belong to the party of the dialog.
    fn use_seal<'a>(&self, request: &Request<'a>, seal: &Seal<'a>, routing: &mut Routing<'a>) {
        if !seal.of_party && !request.to_tag.is_empty() {
            return;
        }
        if routing.route.is_some() {
            // The last proxy before the device needs a seal of its own there.
            routing.spent = seal.own.then_some(seal.text);
            return;
        }
        routing.spent = Some(seal.text);
        let prefer = routing.listener.unwrap_or(request.arrival.listener);
        routing.device = seal.device.and_then(|device| {
            let listener = self.identity.listener_for(device.transport, &device.address, prefer)?;
            Some(Target { flow: device.flow, ..Target::new(device.transport, listener, device.address) })
        });
    }

    /// Tells whether a URI has the form of a Record-Route by this server: it names this server and has a whole route token.
    pub fn is_own_record_route(&self, uri: &SipUri<'_>) -> bool {
        self.is_own(uri) && uri.params.find(ROUTE_TOKEN).flatten().is_some_and(|token| token.len() == route_token::LEN)
    }

    /// Parses the Routes. Returns the route token of the first own Route that has one. Only one token is returned,
    /// because all own Routes of a dialog have the same token, and its verification takes time.
    fn read_routes<'a>(&self, request: &Request<'a>, routing: &mut Routing<'a>) -> Option<&'a [u8]> {
        let token_of = |uri: &SipUri<'a>| uri.params.find(ROUTE_TOKEN).flatten();
        let mut token = None;
        let message = request.message;
        let mut values: SmallVec<[Value<'a>; 4]> = SmallVec::new();
        for value in message.routes() {
            match value {
                Ok(value) => values.push(value),
                Err(_) => routing.malformed = true,
            }
        }
        let mut rest = &values[..];
        // A strict router has put our Record-Route into the Request-URI and the real Request-URI into the last Route
        // (16.4).
        let last = if self.is_record_route(&request.uri) { rest.split_last() } else { None };
        if let Some((last, before)) = last {
            token = request.uri.sip().and_then(token_of);
            routing.own_route = true;
            routing.uri = last.uri;
            routing.uri_text = last.uri_text;
            routing.uri_changed = true;
            rest = before;
        }
        let mut own = 0;
        for value in rest {
            let Uri::Sip(uri) = &value.uri else { break };
            if !self.is_own(uri) {
                break;
            }
            if own > 0 {
                routing.listener = self.listener_named(uri).or(routing.listener);
            }
            token = token.or_else(|| token_of(uri));
            routing.own_route = true;
            own += 1;
        }
        if let Some(first) = rest.get(own) {
            routing.route = Some(first.uri);
            if first.uri.sip().is_some_and(|uri| !uri.params.lr()) {
                routing.strict = Some(first.uri_text);
                own += 1;
            }
        }
        let last = rest.len() < values.len();
        routing.remove = removal(message.index(), &values, |i| i < own || (last && i + 1 == values.len()));
        token
    }

    /// Writes the request without the leading Route values that name this server by names that only `names_us` knows,
    /// because this server consumes them (section 16.4). Own Route values among them are kept.
    pub fn take_off_routes(&self, message: &Message<'_>, names_us: impl Fn(&SipUri<'_>) -> bool, out: &mut Vec<u8>) {
        let values: SmallVec<[Value<'_>; 4]> = message.routes().filter_map(Result::ok).collect();
        let is_sip = |value: &Value<'_>, is: &dyn Fn(&SipUri<'_>) -> bool| value.uri.sip().is_some_and(is);
        let by_name: SmallVec<[bool; 4]> = values
            .iter()
            .map_while(|value| match is_sip(value, &|uri| self.is_own(uri)) {
                true => Some(false),
                false => is_sip(value, &names_us).then_some(true),
            })
            .collect();
        let mut edit = Edit::new();
        for range in removal(message.index(), &values, |i| by_name.get(i) == Some(&true)) {
            edit.remove(range);
        }
        edit.write(message, out);
    }

    /// Tells whether a Request-URI is a Record-Route of ours: it names this server, has no user, and has a route token.
    fn is_record_route(&self, uri: &Uri<'_>) -> bool {
        uri.sip().is_some_and(|uri| uri.params.find(ROUTE_TOKEN).is_some() && uri.user.is_none() && self.is_own(uri))
    }

    /// Tells whether the host of a URI is this server: an own address, or a local domain with no port or an own port. A
    /// Route with such a host is an own Route, with any user (section 16.4); a Request-URI with a user of a local
    /// domain is for that user.
    pub fn is_own(&self, uri: &SipUri<'_>) -> bool {
        self.identity.is_own_address(uri.host, uri.port, || transport_or_default(uri))
            || self.identity.is_at_local_domain(uri.host, uri.port)
    }

    /// Tells whether a request to this URI would be sent to this server.
    pub fn leads_here(&self, uri: &SipUri<'_>) -> bool {
        if uri.params.maddr().is_some() { self.own_maddr(uri) } else { self.is_own(uri) }
    }

    /// Tells whether the `maddr` of this URI is an own address.
    fn own_maddr(&self, uri: &SipUri<'_>) -> bool {
        let Some(maddr) = uri.params.maddr() else { return false };
        strowger_message::Host::parse(maddr).is_ok_and(|host| {
            self.identity.is_own_address(host, uri.port, || transport_or_default(uri))
                || self.identity.is_local_domain(host)
        })
    }

    /// Returns the listener whose `sent_by` this URI names.
    pub fn listener_named(&self, uri: &SipUri<'_>) -> Option<ListenerId> {
        let transport = transport_or_default(uri);
        // `transport=ws` does not say whether TLS is used (RFC 7118 section 5.2).
        let speaks = |listener: &ListenerAddress| {
            listener.transport == transport || (listener.transport == Transport::Wss && transport == Transport::Ws)
        };
        let named = |listener: &ListenerAddress| {
            let (host, port) = super::identity::split_port(&listener.sent_by);
            port == uri.port && strowger_message::Host::parse(host).is_ok_and(|host| host == uri.host)
        };
        let at = self.identity.listeners().iter().position(|f| speaks(f) && named(f))?;
        Some(ListenerId(at as u16))
    }

    /// Returns the next hop of a request to this URI. `prefer`: listener at which the request arrived, or which a
    /// second own Route named.
    pub fn next_hop<'a>(&self, uri: &Uri<'a>, prefer: ListenerId) -> NextHop<'a> {
        let Uri::Sip(uri) = uri else { return NextHop::Unreachable };
        let named = transport_of(uri);
        if uri.params.transport().is_some() && named.is_none() {
            return NextHop::Unreachable;
        }
        let own_maddr = self.own_maddr(uri);
        let (named, port) = if own_maddr { (None, None) } else { (named, uri.port) };
        let transport = match (named, uri.secure) {
            (Some(Transport::Tcp | Transport::Udp) | None, true) => Some(Transport::Tls),
            (Some(Transport::Ws), true) => Some(Transport::Wss),
            (named, _) => named,
        };
        let host = match uri.params.maddr().filter(|_| !own_maddr) {
            Some(maddr) => match strowger_message::Host::parse(maddr) {
                Ok(host) => host,
                Err(_) => return NextHop::Unreachable,
            },
            None => uri.host,
        };
        match host {
            strowger_message::Host::Name(name) => NextHop::Name { host: name, port, transport, secure: uri.secure },
            host => {
                let transport = transport.unwrap_or(Transport::Udp);
                let ip = host.ip().expect("not a name");
                let address = SocketAddr::new(ip, port.unwrap_or_else(|| transport.default_port()));
                self.target(transport, address, prefer).map_or(NextHop::Unreachable, NextHop::Known)
            }
        }
    }

    /// Returns `address` as a target, with the listener that fits best.
    pub fn target(&self, transport: Transport, address: SocketAddr, prefer: ListenerId) -> Option<Target> {
        if address.port() == 0 {
            return None;
        }
        let listener = self.identity.listener_for(transport, &address, prefer)?;
        Some(Target::new(transport, listener, address))
    }
}

/// Returns the transport that a URI names, if it is known.
pub(crate) fn transport_of(uri: &SipUri<'_>) -> Option<Transport> {
    known_transport(uri.params.transport()?, uri.secure)
}

/// Returns the transport that a URI parameter names, if it is known. `secure`: whether the parameter is in a sips URI.
pub(crate) fn known_transport(text: &[u8], secure: bool) -> Option<Transport> {
    match Transport::of(text)? {
        Transport::Tcp if secure => Some(Transport::Tls),
        Transport::Ws if secure => Some(Transport::Wss),
        transport => Some(transport),
    }
}

fn transport_or_default(uri: &SipUri<'_>) -> Transport {
    transport_of(uri).unwrap_or(if uri.secure { Transport::Tls } else { Transport::Udp })
}

/// Returns the ranges to remove for these values: whole lines if no value of a line remains.
fn removal(index: &Index, values: &[Value<'_>], goes: impl Fn(usize) -> bool) -> SmallVec<[Range<usize>; 2]> {
    let mut ranges = SmallVec::new();
    let stay = |i: &usize| !goes(*i);
    let mut at = 0;
    while at < values.len() {
        let line = values[at].line();
        let end = at + values[at..].iter().take_while(|v| v.line() == line).count();
        if !(at..end).any(|i| stay(&i)) {
            ranges.push(index.lines()[line].start as usize..index.lines()[line].end as usize);
            at = end;
        }
        // Each value is removed with the comma after it; the last values of a line are removed with the comma before
        // them.
        while let Some(first) = (at..end).find(|i| goes(*i)) {
            match (first..end).find(stay) {
                Some(next) => {
                    ranges.push(values[first].range().start..values[next].range().start);
                    at = next;
                }
                None => {
                    ranges.push(values[first - 1].range().end..values[end - 1].range().end);
                    break;
                }
            }
        }
        at = end;
    }
    ranges
}
