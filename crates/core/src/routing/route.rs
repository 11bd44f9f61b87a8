//! What the Route headers and the Request-URI of a request say (RFC 3261 sections 16.4, 16.6 steps 6 and 12).

use super::account_hash::AccountHash;
use super::place::Place;
use super::route_token::{self, Beyond, Grant, Judgement};
use super::scope::Scope;
use super::seal::Seal;
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

/// The parameter of our Record-Route that carries the route token (see [`super::route_token`]).
pub(crate) const ROUTE_TOKEN: &[u8] = b"d";

/// The routing information of one request.
#[derive(Debug)]
pub struct Routing<'a> {
    /// The Request-URI to route by: a strict router's work is undone.
    pub uri: Uri<'a>,
    /// Its text in the message.
    pub uri_text: &'a [u8],
    /// There was a Route of ours; it is taken off.
    pub own_route: bool,
    /// It goes to the other party of a call that we let through before: so says our route token in the Route, or our seal in the
    /// Request-URI.
    pub in_dialog: bool,
    /// Usage of the dialog. Meaningful if `in_dialog`.
    pub usage: Usage,
    /// Unix time at which the route token was written, in seconds of the wall clock of now. A seal does not change it. Without a route token:
    /// the time of the seal.
    pub made: u32,
    /// The same of the seal, if the route token is too old to count without.
    pub renewed: u32,
    /// Account of the sender, as the route token states it. None: it is of an earlier format, or a seal alone proves the dialog.
    pub account: Option<AccountHash>,
    /// It bears our route token of this call and party, but not the Contact that this was made with.
    pub other_contact: bool,
    /// Scope of the address from which the party sent that named the next hop, by a Contact or a Record-Route; none: the sender names it.
    pub scope: Option<Scope>,
    /// The first Route that is left.
    pub route: Option<Uri<'a>>,
    /// The listener that our second Route names: the dialog goes out there.
    pub listener: Option<ListenerId>,
    /// Whence the device sends that the Request-URI names, if it is not where that says: our seal says so. The listener is the one
    /// that reaches it; of a connection it says nothing of whether that is still open.
    pub device: Option<Target>,
    /// A Route value could not be read: answer 400.
    pub malformed: bool,
    pub(crate) uri_changed: bool,
    /// The `maddr` of the Request-URI names us: it has done its work (section 16.4).
    pub(crate) own_maddr: bool,
    /// Our seal, which has done its work and is taken off.
    pub(crate) spent: Option<&'a [u8]>,
    pub(crate) remove: SmallVec<[Range<usize>; 2]>,
    /// The first Route left is a strict router's: it becomes the Request-URI.
    pub(crate) strict: Option<&'a [u8]>,
}

/// Where a URI sends a request, as far as it says so itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop<'a> {
    /// An address.
    Known(Target),
    /// A name: to be resolved (RFC 3263).
    Name {
        /// As it stands in the URI.
        host: &'a [u8],
        /// None: SRV records say it, or the default of the transport holds (RFC 3263 section 4.2).
        port: Option<u16>,
        /// None: NAPTR and SRV records say it (RFC 3263 section 4.1).
        transport: Option<Transport>,
        /// It is a sips URI: only TLS will do.
        secure: bool,
    },
    /// No listener of ours reaches it, or the URI names no host.
    Unreachable,
}

impl<'a> Routing<'a> {
    /// Where the request goes next: its first Route or its Request-URI; as if that were a sips URI if the Request-URI is one
    /// (section 16.6 step 7).
    pub fn next(&self) -> Uri<'a> {
        match (self.route, self.uri.is_sips()) {
            (Some(Uri::Sip(route)), true) => Uri::Sip(SipUri { secure: true, ..route }),
            (Some(route), _) => route,
            (None, _) => self.uri,
        }
    }

    /// The `maddr` of the Request-URI names another host than that, and not this server: the request goes there (RFC 3261 section 19.1.1).
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
            Some(Uri::Sip(route)) => Beyond::Proxy(Place::of(&route)),
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
            // The route token covers the Route. A stale one still proves it, and the seal proves a refresh within the lifetime.
            Judgement::OtherContact(grant) | Judgement::Stale(grant) if routing.route.is_some() => {
                of_seal.map(|_| grant)
            }
            // The seal is the party's own, and no other element is on the way.
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
        // Outside of a dialog a valid seal still says who named this URI, and from where.
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

    /// Outside of a dialog a seal is what a peer learnt of a party in another call. Within one it must be of its party.
    fn use_seal<'a>(&self, request: &Request<'a>, seal: &Seal<'a>, routing: &mut Routing<'a>) {
        if !seal.of_party && !request.to_tag.is_empty() {
            return;
        }
        if routing.route.is_some() {
            // The last proxy before the device needs what it wrote there itself.
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

    /// Takes the Routes apart. Returns the route token of the first of ours that bears one: of those that we put into a dialog all are the
    /// same, and to judge one takes time.
    /// Returns whether a URI is a Record-Route that this server wrote, as far as its form tells: it names this server and has a whole route token.
    pub fn is_own_record_route(&self, uri: &SipUri<'_>) -> bool {
        self.is_own(uri) && uri.params.find(ROUTE_TOKEN).flatten().is_some_and(|token| token.len() == route_token::LEN)
    }

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
        // A strict router put our Record-Route into the Request-URI and the real one last (16.4).
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

    /// Writes the request without those Route values that name us by names that `names_us` alone knows, as far as nothing but Routes
    /// of ours stands before them: they have done their work (section 16.4). Those that we wrote stay.
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

    /// A Request-URI that we wrote as Record-Route: it is ours, without a user, and carries a route token.
    fn is_record_route(&self, uri: &Uri<'_>) -> bool {
        uri.sip().is_some_and(|uri| uri.params.find(ROUTE_TOKEN).is_some() && uri.user.is_none() && self.is_own(uri))
    }

    /// A URI whose host is this server: an address of ours, or a local domain with no port or a port of ours. A Route with it is
    /// ours, with any user (section 16.4); a Request-URI with a user of a local domain is that user's.
    pub fn is_own(&self, uri: &SipUri<'_>) -> bool {
        self.identity.is_own_address(uri.host, uri.port, || transport_or_default(uri))
            || self.identity.is_at_local_domain(uri.host, uri.port)
    }

    /// What is sent to this URI comes to this server.
    pub fn leads_here(&self, uri: &SipUri<'_>) -> bool {
        if uri.params.maddr().is_some() { self.own_maddr(uri) } else { self.is_own(uri) }
    }

    /// The `maddr` of this URI is an address of ours.
    fn own_maddr(&self, uri: &SipUri<'_>) -> bool {
        let Some(maddr) = uri.params.maddr() else { return false };
        strowger_message::Host::parse(maddr).is_ok_and(|host| {
            self.identity.is_own_address(host, uri.port, || transport_or_default(uri))
                || self.identity.is_local_domain(host)
        })
    }

    /// The listener that this URI names as its messages do, if one does.
    pub fn listener_named(&self, uri: &SipUri<'_>) -> Option<ListenerId> {
        let transport = transport_or_default(uri);
        // `transport=ws` says nothing of TLS (RFC 7118 section 5.2).
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

    /// Where this URI sends a request that came by `arrival` (or goes out by the listener that a second
    /// Route of ours named).
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

    /// `address` as a target, from the listener that fits best.
    pub fn target(&self, transport: Transport, address: SocketAddr, prefer: ListenerId) -> Option<Target> {
        if address.port() == 0 {
            return None;
        }
        let listener = self.identity.listener_for(transport, &address, prefer)?;
        Some(Target::new(transport, listener, address))
    }
}

/// The transport that a URI names, if we know it.
pub(crate) fn transport_of(uri: &SipUri<'_>) -> Option<Transport> {
    known_transport(uri.params.transport()?, uri.secure)
}

/// The transport that a URI parameter names, if we know it; `secure`: in a sips URI.
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

/// The bytes that go when these values are taken off: whole lines where no value stays.
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
        // Each goes with the comma behind it, the last ones of a line with that before them.
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
