//! A stateful proxy with Record-Route: `proxy [ADDR:PORT]`, by default on 127.0.0.1:5060.
//!
//! It forwards each request to the address that its Route or Request-URI names. A real proxy would query a location
//! table or DNS for this address, and decide who may use the proxy. This example is an open relay, for the loopback
//! interface only.

use std::net::SocketAddr;
use std::sync::Arc;

use strowger_core::entropy::Entropy;
use strowger_core::proxy::{Candidate, Plan, Proxy, ProxySettings};
use strowger_core::routing::{Identity, ListenerAddress, NextHop, Request, Router};
use strowger_core::stack::{Incoming, Reading, Received, Role, Stack};
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::ServerId;
use strowger_core::{Arrival, Flow, Now, Outbox, Round, Transport};
use strowger_message::{Method, respond};
use strowger_net::{Listener, Net, NetSettings, Service, Shards};

struct Relay {
    stack: Stack,
    proxy: Proxy,
}

/// Routes a new request.
fn route(proxy: &mut Proxy, round: &mut Round<'_>, request: &Request<'_>, server: ServerId) {
    if request.max_forwards == Some(0) {
        return answer(round, request, server, 483);
    }
    if proxy.router().is_loop(request) {
        return answer(round, request, server, 482);
    }
    if request.method == Method::Invite {
        answer(round, request, server, 100);
    }
    let routing = proxy.router().route(round.now, request);
    let NextHop::Known(target) = proxy.router().next_hop(&routing.next(), request.arrival.listener) else {
        return answer(round, request, server, 404);
    };
    let candidate = Candidate { targets: &[target], ..Candidate::default() };
    proxy.forward(round, request, &routing, server, &[candidate], &Plan::default());
}

/// Routes the ACK of a 2xx, which has no transaction.
fn route_ack(proxy: &mut Proxy, round: &mut Round<'_>, ack: &Request<'_>) {
    let routing = proxy.router().route(round.now, ack);
    if let NextHop::Known(target) = proxy.router().next_hop(&routing.next(), ack.arrival.listener) {
        let candidate = Candidate { targets: &[target], ..Candidate::default() };
        proxy.forward_ack(round, ack, &routing, &candidate);
    }
}

fn answer(round: &mut Round<'_>, request: &Request<'_>, server: ServerId, status: u16) {
    let start = round.out.start();
    let tag = (status > 100).then_some(&b"proxy"[..]);
    respond(&request.message, status, None, tag, &mut round.out.bytes).finish(b"");
    round.tx.respond(round.now, server, status, start..round.out.bytes.len(), round.out);
}

impl Relay {
    /// Gives the events of transactions to the proxy.
    fn tell(&mut self, now: Now, out: &mut Outbox) {
        while let Some(event) = self.stack.event() {
            if let Role::Proxy(context) = event.user().role() {
                self.proxy.event(&mut self.stack.round(now, out), context, &event);
            }
        }
    }
}

impl Service for Relay {
    type ShardMessage = ();
    type Record = ();

    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let Self { stack, proxy } = self;
        let (received, incoming, mut round) = stack.receive(now, arrival, bytes, out);
        let round = &mut round;
        match (&received, incoming) {
            (Received::Request(request), Incoming::Request(server)) => route(proxy, round, request, server),
            (Received::Request(request), Incoming::Ack) => route_ack(proxy, round, request),
            (Received::Request(request), Incoming::Cancel { cancel, invite }) => {
                let found = invite.is_some_and(|invite| proxy.cancel(round, invite, &request.message));
                answer(round, request, cancel, if found { 200 } else { 481 });
            }
            (Received::Response(response), Incoming::Response { id, tu, .. }) => {
                if let Role::Proxy(context) = tu.role() {
                    proxy.response(round, context, response, arrival, id);
                }
            }
            // A real proxy answers 503 to a request for which it has no room, and 400 to a request that it cannot read.
            _ => (),
        }
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.stack.poll(now, out);
        self.tell(now, out);
        self.proxy.poll(&mut self.stack.round(now, out));
    }

    fn deadline(&mut self) -> Option<u64> {
        self.stack.transactions.deadline().into_iter().chain(self.proxy.deadline()).min()
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.stack.failed(now, token, out);
        self.tell(now, out);
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
        // Route tokens that this proxy writes into a dialog are valid for a day.
        let router = Router::new(identity, &seed, 86_400);
        let key = [1, 2].map(|n| u64::from_le_bytes(seed[8 * n..8 * n + 8].try_into().expect("eight bytes")));
        let mut stack = Stack::new(TimerSettings::default(), key, Reading::new(secret));
        stack.transactions.set_limit(100_000);
        Relay { stack, proxy: Proxy::new(Arc::new(router), ProxySettings::default(), Entropy::new(seed)) }
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
