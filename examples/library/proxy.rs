//! A stateful proxy with Record-Route: `proxy [ADDR:PORT]`, by default on 127.0.0.1:5060.
//!
//! It forwards each request to the address that its Route or Request-URI names. A real one would ask a location table or
//! DNS there, and decide who may use it; this one is an open relay, for the loopback only.

use std::net::SocketAddr;
use std::sync::Arc;

use strowger_core::entropy::Entropy;
use strowger_core::proxy::{Candidate, Plan, Proxy, ProxySettings};
use strowger_core::routing::{Identity, ListenerAddress, NextHop, Request, Router};
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{Incoming, Outgoing, Role, ServerId, Transactions};
use strowger_core::{Arrival, Flow, Now, Outbox, Round, Transport, call, via};
use strowger_message::{Edit, Form, Index, Limits, Message, Method, respond};
use strowger_net::{Listener, Net, NetSettings, Service, Shards};

struct Relay {
    proxy: Proxy,
    transactions: Transactions,
    secret: u32,
}

impl Relay {
    /// Handles a request whose Via has its source.
    fn request(&mut self, now: Now, arrival: &Arrival, message: Message<'_>, out: &mut Outbox) {
        let call_hash = message.call_id().map_or(0, |id| call::hash(self.secret, id.text));
        // Checks the mandatory header fields; a real proxy answers 400 here.
        let Ok(request) = Request::of(message, arrival, call_hash) else { return };
        match self.transactions.request(now, &message, arrival, call_hash, out) {
            Incoming::New(server) => {
                self.transactions.set_reply(server, via::reply_target(&request.mandatory.via, arrival));
                self.route(now, &request, server, out);
            }
            Incoming::Ack => {
                // The ACK of a 2xx has no transaction: it is only routed.
                let routing = self.proxy.router().route(now, &request);
                let uri = routing.next();
                if let NextHop::Known(target) = self.proxy.router().next_hop(&uri, arrival.listener) {
                    let candidate = Candidate { targets: &[target], ..Candidate::default() };
                    self.proxy.forward_ack(
                        &mut Round { now, tx: &mut self.transactions, out },
                        &request,
                        &routing,
                        &candidate,
                    );
                }
            }
            Incoming::Cancel { cancel, invite } => {
                self.transactions.set_reply(cancel, via::reply_target(&request.mandatory.via, arrival));
                let found = invite.is_some_and(|invite| {
                    self.proxy.cancel(&mut Round { now, tx: &mut self.transactions, out }, invite, &message)
                });
                self.answer(now, cancel, &request, if found { 200 } else { 481 }, out);
            }
            Incoming::Absorbed | Incoming::Full => (),
        }
    }

    fn route(&mut self, now: Now, request: &Request<'_>, server: ServerId, out: &mut Outbox) {
        if request.max_forwards == Some(0) {
            return self.answer(now, server, request, 483, out);
        }
        if self.proxy.router().is_loop(request) {
            return self.answer(now, server, request, 482, out);
        }
        if request.method == Method::Invite {
            self.answer(now, server, request, 100, out);
        }
        let routing = self.proxy.router().route(now, request);
        let uri = routing.next();
        let NextHop::Known(target) = self.proxy.router().next_hop(&uri, request.arrival.listener) else {
            return self.answer(now, server, request, 404, out);
        };
        let candidate = Candidate { targets: &[target], ..Candidate::default() };
        self.proxy.forward(
            &mut Round { now, tx: &mut self.transactions, out },
            request,
            &routing,
            server,
            &[candidate],
            &Plan::default(),
        );
    }

    fn answer(&mut self, now: Now, server: ServerId, request: &Request<'_>, status: u16, out: &mut Outbox) {
        let start = out.start();
        let tag = (status > 100).then_some(&b"proxy"[..]);
        respond(&request.message, status, None, tag, &mut out.bytes).finish(b"");
        self.transactions.respond(now, server, status, start..out.bytes.len(), out);
    }

    fn tell(&mut self, now: Now, events: &[strowger_core::transaction::Event], out: &mut Outbox) {
        for event in events {
            if let Some(context) = event.user().id(Role::Proxy) {
                self.proxy.event(&mut Round { now, tx: &mut self.transactions, out }, context, event);
            }
        }
    }
}

impl Service for Relay {
    type Answer = ();
    type Record = ();

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let (mut index, limits) = (Index::new(), Limits::default());
        if index.parse(bytes, &limits).is_err() || index.form() == Form::Ambiguous {
            return;
        }
        // The next element could read a loosely formatted message differently.
        let mut canonical = Vec::new();
        strowger_message::canonical::write(&Message::new(bytes, &index), &mut canonical);
        if index.parse(&canonical, &limits).is_err() {
            return;
        }
        let message = Message::new(&canonical, &index);
        if !message.is_request() {
            if let Outgoing::Deliver { id, tu, .. } = self.transactions.response(now, &message, out)
                && let Some(context) = tu.id(Role::Proxy)
            {
                self.proxy.response(
                    &mut Round { now, tx: &mut self.transactions, out },
                    context,
                    &message,
                    arrival,
                    id,
                );
            }
            return;
        }
        // The Via must contain the observed source, so that each hop can route the response (RFC 3261 section 18.2.1).
        let Ok(top) = message.via() else { return };
        let mut completed = Vec::new();
        if !via::complete(&message, &top, &arrival.remote, false, &mut Edit::new(), &mut completed) {
            return self.request(now, arrival, message, out);
        }
        if index.parse(&completed, &limits).is_ok() {
            self.request(now, arrival, Message::new(&completed, &index), out);
        }
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        let mut events = Vec::new();
        self.transactions.poll(now, out, &mut events);
        self.tell(now, &events, out);
        self.proxy.poll(&mut Round { now, tx: &mut self.transactions, out });
    }

    fn deadline(&mut self) -> Option<u64> {
        self.transactions.deadline().into_iter().chain(self.proxy.deadline()).min()
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        let mut events = Vec::new();
        self.transactions.failed(now, token, out, &mut events);
        self.tell(now, &events, out);
    }

    fn answered(&mut self, _: Now, (): (), _: &mut Outbox) {}

    fn closed(&mut self, _: Now, _: Flow, _: &mut Outbox) {}

    fn export(&mut self, _: Now, _: u8) -> Vec<()> {
        Vec::new()
    }

    fn import(&mut self, _: Now, (): (), _: &mut Outbox) {}
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listen: SocketAddr = std::env::args().nth(1).as_deref().unwrap_or("127.0.0.1:5060").parse()?;
    let settings = NetSettings { shards: Shards::Fixed(1), ..NetSettings::default() };
    let secret = settings.secret;
    let net = Net::bind(settings, vec![Listener::new(Transport::Udp, listen)])?;
    let bound = net.addresses()[0];
    let node = net.spawn(move |_, _| {
        let listener = ListenerAddress {
            transport: Transport::Udp,
            bound,
            sent_by: bound.to_string().into_bytes().into(),
            network: 0,
        };
        let identity = Arc::new(Identity::new(vec![listener], [""; 0], &[]));
        let seed = seed();
        // Route tokens that it writes into a dialog are valid for a day.
        let router = Router::new(identity, &seed, 86_400);
        let key = [1, 2].map(|n| u64::from_le_bytes(seed[8 * n..8 * n + 8].try_into().expect("eight bytes")));
        let mut timers = Transactions::new(TimerSettings::default(), key);
        timers.set_limit(100_000);
        Relay {
            proxy: Proxy::new(Arc::new(router), ProxySettings::default(), Entropy::new(seed)),
            transactions: timers,
            secret,
        }
    })?;
    println!("listening on {bound}");
    node.join()?;
    Ok(())
}

fn seed() -> [u8; 32] {
    use std::hash::BuildHasher;
    let mut seed = [0; 32];
    for (n, part) in seed.chunks_exact_mut(8).enumerate() {
        part.copy_from_slice(&std::hash::RandomState::new().hash_one(n).to_le_bytes());
    }
    seed
}
