//! What the Route headers and the Request-URI of a request say (RFC 3261 sections 16.4, 16.6 steps 6 and 12).

use super::{Began, Proxy, Request, alias};
use crate::{ListenerId, Target, Transport};
use smallvec::SmallVec;
use std::net::SocketAddr;
use std::ops::Range;
use strowger_message::uri::SipUri;
use strowger_message::values::Placed;
use strowger_message::{Index, Name, NameAddr, Uri};

type Value<'a> = Placed<NameAddr<'a>>;

/// The parameter of our Record-Route that carries the mark (see [`super::RouteMac`]).
pub(super) const MARK: &[u8] = b"d";

/// The routing information of one request.
#[derive(Debug)]
pub struct Routing<'a> {
    /// The Request-URI to route by: a strict router's work is undone.
    pub uri: Uri<'a>,
    pub uri_text: &'a [u8],
    /// There was a Route of ours; it is taken off.
    pub own_route: bool,
    /// It carried the mark of this dialog: we let this dialog through before.
    pub in_dialog: bool,
    /// Who began the dialog, or begins it now: says the mark, or decides the user before it forwards the request.
    pub began: Began,
    /// The first Route that is left.
    pub route: Option<Uri<'a>>,
    /// The listener that our second Route names: the dialog goes out there.
    pub listener: Option<ListenerId>,
    /// A mark was looked at.
    pub(super) judged: bool,
    /// The address that we put into the device's Contact.
    pub alias: Option<Target>,
    /// A Route value could not be read: answer 400.
    pub malformed: bool,
    pub(super) uri_changed: bool,
    /// The `maddr` of the Request-URI names us: it has done its work (section 16.4).
    pub(super) own_maddr: bool,
    pub(super) remove: SmallVec<[Range<usize>; 2]>,
    /// The first Route left is a strict router's: it becomes the Request-URI.
    pub(super) strict: Option<&'a [u8]>,
}

/// Where a URI sends a request, as far as it says so itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextHop<'a> {
    /// An address.
    Known(Target),
    /// A name: to be resolved (RFC 3263).
    Name { host: &'a [u8], port: Option<u16>, transport: Option<Transport>, secure: bool },
    /// No listener of ours reaches it, or the URI names no host.
    Unreachable,
}

impl Proxy {
    /// Reads the routing information of a request.
    pub fn route<'a>(&self, request: &Request<'a>) -> Routing<'a> {
        let message = request.message;
        let mut routing = Routing {
            uri: request.uri,
            uri_text: message.request_uri(),
            own_route: false,
            in_dialog: false,
            began: Began::Trusted,
            route: None,
            listener: None,
            judged: false,
            alias: None,
            malformed: false,
            uri_changed: false,
            own_maddr: false,
            remove: SmallVec::new(),
            strict: None,
        };
        if message.has(Name::Route) || self.is_record_route(&request.uri) {
            self.read_routes(request, &mut routing);
        }
        routing.own_maddr = routing.uri.sip().is_some_and(|uri| self.own_maddr(uri));
        // Whoever put the alias there is the last proxy on the way: if another Route is left, that is not us.
        if routing.in_dialog
            && routing.route.is_none()
            && let Uri::Sip(uri) = &routing.uri
            && let Some(value) = uri.params.find(alias::NAME).flatten()
        {
            let prefer = routing.listener.unwrap_or(request.arrival.listener);
            routing.alias = alias::parse(value, prefer).and_then(|target| {
                let listener = self.identity.listener_for(target.transport, &target.address, prefer)?;
                Some(Target { listener, ..target })
            });
        }
        routing
    }

    fn read_routes<'a>(&self, request: &Request<'a>, routing: &mut Routing<'a>) {
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
            self.take_own(&request.uri, request, routing);
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
            self.take_own(&Uri::Sip(*uri), request, routing);
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
        routing.remove = removal(message.index(), &values, own, rest.len() < values.len());
    }

    fn take_own(&self, uri: &Uri<'_>, request: &Request<'_>, routing: &mut Routing<'_>) {
        // The first decides: all that we put into a dialog are the same. To compute them takes time, and anybody may send
        // thousands.
        if routing.judged {
            return;
        }
        // A mark is for requests within the dialog: alone it starts nothing new.
        if request.to_tag.is_empty() {
            return;
        }
        let Some(mark) = uri.sip().and_then(|uri| uri.params.find(MARK)).flatten() else { return };
        routing.judged = true;
        if let Some(began) = self.mac.holds(mark, request.call_id, request.from_tag, request.to_tag) {
            (routing.in_dialog, routing.began) = (true, began);
        }
    }

    /// A Request-URI that we wrote as Record-Route: it is ours and carries a mark.
    fn is_record_route(&self, uri: &Uri<'_>) -> bool {
        uri.sip().is_some_and(|uri| uri.params.find(MARK).is_some() && self.is_own(uri))
    }

    /// A URI that names this server itself: an address of ours, or a local domain without a user.
    pub fn is_own(&self, uri: &SipUri<'_>) -> bool {
        let transport = transport_of(uri).unwrap_or(if uri.secure { Transport::Tls } else { Transport::Udp });
        self.identity.is_own_address(uri.host, uri.port, transport)
            || (uri.user.is_none() && uri.port.is_none() && self.identity.is_local_domain(uri.host))
    }

    /// The `maddr` of this URI is an address of ours.
    fn own_maddr(&self, uri: &SipUri<'_>) -> bool {
        let Some(maddr) = uri.params.maddr() else { return false };
        let transport = transport_of(uri).unwrap_or(if uri.secure { Transport::Tls } else { Transport::Udp });
        strowger_message::Host::parse(maddr).is_ok_and(|host| {
            self.identity.is_own_address(host, uri.port, transport) || self.identity.is_local_domain(host)
        })
    }

    fn listener_named(&self, uri: &SipUri<'_>) -> Option<ListenerId> {
        let transport = transport_of(uri).unwrap_or(if uri.secure { Transport::Tls } else { Transport::Udp });
        let named = |face: &super::Face| {
            let (host, port) = super::identity::split_port(&face.sent_by);
            port == uri.port && strowger_message::Host::parse(host).is_ok_and(|host| host == uri.host)
        };
        let at = self.identity.faces().iter().position(|f| f.transport == transport && named(f))?;
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
        Some(Target { transport, listener, address, flow: None })
    }
}

/// The transport that a URI names, if we know it.
pub(super) fn transport_of(uri: &SipUri<'_>) -> Option<Transport> {
    let text = uri.params.transport()?;
    match Transport::of(text)? {
        Transport::Tcp if uri.secure => Some(Transport::Tls),
        Transport::Ws if uri.secure => Some(Transport::Wss),
        transport => Some(transport),
    }
}

/// The bytes that go when the first `first` values and, if `last`, the last one are taken off: whole lines
/// where no value stays.
fn removal(index: &Index, values: &[Value<'_>], first: usize, last: bool) -> SmallVec<[Range<usize>; 2]> {
    let mut ranges = SmallVec::new();
    let goes = |i: usize| i < first || (last && i + 1 == values.len());
    let mut at = 0;
    while at < values.len() {
        let line = values[at].line();
        let count = values[at..].iter().take_while(|v| v.line() == line).count();
        let stay = |i: &usize| !goes(*i);
        match ((at..at + count).find(stay), (at..at + count).rfind(stay)) {
            (Some(from), Some(to)) => {
                if from > at {
                    ranges.push(values[at].range().start..values[from].range().start);
                }
                if to + 1 < at + count {
                    ranges.push(values[to].range().end..values[at + count - 1].range().end);
                }
            }
            _ => ranges.push(index.lines()[line].start as usize..index.lines()[line].end as usize),
        }
        at += count;
    }
    ranges
}
