//! A host with the real proxy and the real registrar inside, and the little around them that a server adds.

use crate::world::{Host, listener};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use strowger_core::entropy::Entropy;
use strowger_core::proxy::{Candidate, Plan, Proxy, Settings};
use strowger_core::registrar::{Current, Registrar, Settings as RegistrarSettings};
use strowger_core::routing::{Identity, ListenerAddress, NextHop, Request, Router};
use strowger_core::timer::TimerSettings;
use strowger_core::transaction::{Event, Incoming, Outgoing, Role, ServerId, Transactions};
use strowger_core::{Arrival, Now, Outbox, Round, Target, Transport, call};
use strowger_message::{Index, Limits, Message, Method, build};

/// What the proxy is told about its surroundings.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    pub address: SocketAddr,
    /// The domain whose registrar this is.
    pub domain: String,
    pub record_route: bool,
    /// Names and the addresses that they stand for.
    pub names: Vec<(String, SocketAddr)>,
}

/// A binding: what a registrar's store keeps of it.
#[derive(Clone, Debug)]
struct Binding {
    uri: Vec<u8>,
    call_id: Vec<u8>,
    cseq: u32,
    expires_at: u64,
    q: Option<u16>,
}

pub struct ProxyHost {
    settings: ProxySettings,
    proxy: Proxy,
    registrar: Registrar,
    tx: Transactions,
    bindings: BTreeMap<Vec<u8>, Vec<Binding>>,
    index: Index,
    events: Vec<Event>,
}

impl ProxyHost {
    pub fn new(settings: ProxySettings, seed: u64) -> Self {
        let listener = |transport| ListenerAddress {
            transport,
            bound: settings.address,
            sent_by: settings.address.to_string().into_bytes().into(),
            network: 0,
        };
        let listeners = vec![listener(Transport::Udp), listener(Transport::Tcp)];
        let identity = Arc::new(Identity::new(listeners, [&settings.domain], &[]));
        let router = Arc::new(Router::new(identity, b"secret", 86_400));
        let mut entropy = [0; 32];
        entropy[..8].copy_from_slice(&seed.to_le_bytes());
        Self {
            proxy: Proxy::new(router, Settings::default(), Entropy::new(entropy)),
            registrar: Registrar::new(RegistrarSettings::default()),
            tx: Transactions::new(TimerSettings::default(), [seed, 1]),
            settings,
            bindings: BTreeMap::new(),
            index: Index::new(),
            events: Vec::new(),
        }
    }

    pub fn address(&self) -> SocketAddr {
        self.settings.address
    }

    /// Transactions and kept messages of now.
    pub fn transactions(&self) -> &Transactions {
        &self.tx
    }

    fn respond(&mut self, now: Now, message: &Message<'_>, id: ServerId, status: u16, lines: &[u8], out: &mut Outbox) {
        let start = out.start();
        let tag = (status > 100).then_some(&b"server"[..]);
        let mut builder = build::respond(message, status, None, tag, &mut out.bytes);
        builder.buffer().extend_from_slice(lines);
        builder.finish(b"");
        let range = start..out.bytes.len();
        self.tx.respond(now, id, status, range, out);
    }

    fn request(&mut self, now: Now, message: Message<'_>, arrival: &Arrival, out: &mut Outbox) {
        let hash = call::hash(1, message.call_id().map(|c| c.text).unwrap_or_default());
        let id = match self.tx.request(now, &message, arrival, hash, out) {
            Incoming::New(id) => id,
            Incoming::Absorbed | Incoming::Full => return,
            Incoming::Ack => {
                let Ok(request) = Request::of(message, arrival, hash) else { return };
                if request.max_forwards == Some(0) {
                    return;
                }
                let routing = self.proxy.router().route(now, &request);
                let listener = routing.listener.unwrap_or(arrival.listener);
                let uri = routing.uri.sip().filter(|uri| self.proxy.router().identity().is_local_domain(uri.host));
                let hop = match (routing.route, uri) {
                    // A late ACK of a failure whose transaction has ended: its INVITE went to a name, it goes nowhere.
                    (None, Some(_)) => return,
                    _ => self.proxy.router().next_hop(&routing.next(), listener),
                };
                if let Some(target) = self.resolve(hop) {
                    let candidate = Candidate { targets: &[target], ..Candidate::default() };
                    self.proxy.forward_ack(&mut Round { now, tx: &mut self.tx, out }, &request, &routing, &candidate);
                }
                return;
            }
            Incoming::Cancel { cancel, invite } => {
                self.respond(now, &message, cancel, if invite.is_some() { 200 } else { 481 }, b"", out);
                if let Some(invite) = invite {
                    self.proxy.cancel(&mut Round { now, tx: &mut self.tx, out }, invite, &message);
                }
                return;
            }
        };
        if let Err(status) = self.route(now, message, arrival, hash, id, out) {
            self.respond(now, &message, id, status, b"", out);
        }
    }

    /// Registers or forwards a new request, or says with what it is to be refused.
    fn route(
        &mut self,
        now: Now,
        message: Message<'_>,
        arrival: &Arrival,
        hash: u32,
        id: ServerId,
        out: &mut Outbox,
    ) -> Result<(), u16> {
        let request = Request::of(message, arrival, hash).map_err(|e| e.status())?;
        if request.method == Method::Invite {
            self.respond(now, &message, id, 100, b"", out);
        }
        if request.max_forwards == Some(0) {
            return Err(483);
        }
        if self.proxy.router().is_loop(&request) {
            return Err(482);
        }
        let routing = self.proxy.router().route(now, &request);
        if routing.malformed {
            return Err(400);
        }
        let prefer = routing.listener.unwrap_or(arrival.listener);
        let uri = routing.uri.sip().ok_or(416u16)?;
        let plan = Plan { record_route: self.settings.record_route, ..Plan::default() };
        let local = self.proxy.router().identity().is_local_domain(uri.host);
        if local && request.method == Method::Register && routing.route.is_none() {
            return self.register(now, &message, id, out);
        }
        if let (true, None, Some(user)) = (local, routing.route, uri.user) {
            let bindings = self.bindings.get(user).ok_or(404u16)?;
            let mut candidates = Vec::new();
            let live: Vec<&Binding> = bindings.iter().filter(|b| b.expires_at > now.mono).collect();
            for binding in live {
                let uri = strowger_message::Uri::parse(&binding.uri).map_err(|_| 500u16)?;
                candidates.push((
                    binding.uri.clone(),
                    binding.q,
                    self.resolve(self.proxy.router().next_hop(&uri, prefer)),
                ));
            }
            let targets: Vec<[Target; 1]> = candidates.iter().filter_map(|(_, _, t)| t.map(|t| [t])).collect();
            let candidates: Vec<Candidate<'_>> = candidates
                .iter()
                .filter(|(_, _, target)| target.is_some())
                .zip(&targets)
                .map(|((uri, q, _), targets)| Candidate {
                    uri: Some(uri),
                    targets,
                    q: q.unwrap_or(1000),
                    ..Candidate::default()
                })
                .collect();
            let sent = self.proxy.forward(
                &mut Round { now, tx: &mut self.tx, out },
                &request,
                &routing,
                id,
                &candidates,
                &plan,
            );
            return if sent { Ok(()) } else { Err(480) };
        }
        let hop = self.proxy.router().next_hop(&routing.next(), prefer);
        let target = self.resolve(hop).ok_or(404u16)?;
        let candidate = Candidate { targets: &[target], ..Candidate::default() };
        let sent =
            self.proxy.forward(&mut Round { now, tx: &mut self.tx, out }, &request, &routing, id, &[candidate], &plan);
        if sent { Ok(()) } else { Err(480) }
    }

    fn register(&mut self, now: Now, message: &Message<'_>, id: ServerId, out: &mut Outbox) -> Result<(), u16> {
        let to = message.to().map_err(|_| 400u16)?;
        let user = to.uri.sip().and_then(|uri| uri.user).ok_or(404u16)?.to_vec();
        let bindings = self.bindings.entry(user).or_default();
        let held = std::mem::take(bindings);
        let current: Vec<Current<'_>> = held
            .iter()
            .map(|b| Current {
                uri: &b.uri,
                call_id: &b.call_id,
                cseq: b.cseq,
                expires_at: b.expires_at,
                q: b.q,
                instance: b"",
                reg_id: 0,
                unreachable: false,
                elsewhere: false,
            })
            .collect();
        let decided = self.registrar.decide(now, message, &current);
        let mut lines = Vec::new();
        let (mut kept, status) = match decided {
            Ok(_) => {
                self.registrar.write_ok(now, message, &current, &mut lines);
                let gone: Vec<usize> = self.registrar.removals().collect();
                let replaced: Vec<usize> = self.registrar.upserts().iter().filter_map(|u| u.replaces).collect();
                let stays = |n: &usize| !gone.contains(n) && !replaced.contains(n);
                ((0..held.len()).filter(stays).map(|n| held[n].clone()).collect::<Vec<_>>(), 200)
            }
            Err(refusal) => {
                self.registrar.write_refusal(refusal, &mut lines);
                (held.clone(), refusal.status())
            }
        };
        let bytes = message.bytes();
        for upsert in self.registrar.upserts() {
            kept.push(Binding {
                uri: bytes[upsert.uri.clone()].to_vec(),
                call_id: message.call_id().map_err(|_| 400u16)?.text.to_vec(),
                cseq: message.cseq().map_err(|_| 400u16)?.number,
                expires_at: upsert.expires_at,
                q: upsert.q,
            });
        }
        *bindings = kept;
        self.respond(now, message, id, status, &lines, out);
        Ok(())
    }

    fn resolve(&self, hop: NextHop<'_>) -> Option<Target> {
        match hop {
            NextHop::Known(target) => Some(Target { listener: listener(target.transport), ..target }),
            NextHop::Name { host, transport, .. } => {
                let name = std::str::from_utf8(host).ok()?;
                let (_, address) = self.settings.names.iter().find(|(n, _)| n.eq_ignore_ascii_case(name))?;
                let transport = transport.unwrap_or(Transport::Udp);
                Some(Target::new(transport, listener(transport), *address))
            }
            NextHop::Unreachable => None,
        }
    }

    fn events(&mut self, now: Now, out: &mut Outbox) {
        let mut events = std::mem::take(&mut self.events);
        for event in events.drain(..) {
            if let Some(context) = event.user().id(Role::Proxy) {
                self.proxy.event(&mut Round { now, tx: &mut self.tx, out }, context, &event);
            }
        }
        self.events = events;
    }
}

impl Host for ProxyHost {
    fn receive(&mut self, now: Now, arrival: &Arrival, bytes: &[u8], out: &mut Outbox) {
        let mut index = std::mem::take(&mut self.index);
        if index.parse(bytes, &Limits::default()).is_ok() {
            let message = Message::new(bytes, &index);
            if message.is_request() {
                self.request(now, message, arrival, out);
            } else if let Outgoing::Deliver { id, tu, .. } = self.tx.response(now, &message, out)
                && let Some(context) = tu.id(Role::Proxy)
            {
                self.proxy.response(&mut Round { now, tx: &mut self.tx, out }, context, &message, arrival, id);
            }
        }
        self.index = index;
    }

    fn failed(&mut self, now: Now, token: u64, out: &mut Outbox) {
        self.tx.failed(now, token, out, &mut self.events);
        self.events(now, out);
    }

    fn poll(&mut self, now: Now, out: &mut Outbox) {
        self.tx.poll(now, out, &mut self.events);
        self.events(now, out);
        self.proxy.poll(&mut Round { now, tx: &mut self.tx, out });
    }

    fn deadline(&mut self) -> Option<u64> {
        self.tx.deadline().into_iter().chain(self.proxy.deadline()).min()
    }

    fn check(&self) -> Result<(), String> {
        let counts = self.tx.counts();
        let whole = counts.servers + counts.clients;
        let here = self.settings.address;
        if counts.keys + counts.forgotten != whole {
            return Err(format!("{here}: {} keys for {whole} transactions", counts.keys));
        }
        if counts.kept_messages > whole || counts.timers > 2 * whole || self.proxy.contexts() as u64 > whole {
            return Err(format!("{here}: more is held than transactions need: {counts:?}"));
        }
        Ok(())
    }

    fn leftovers(&self) -> Result<(), String> {
        let here = self.settings.address;
        nothing_left(&here, &self.tx)?;
        match self.proxy.contexts() {
            0 => Ok(()),
            n => Err(format!("{here}: {n} contexts")),
        }
    }
}

/// A table of transactions after its last timer.
pub(crate) fn nothing_left(host: &dyn std::fmt::Display, tx: &Transactions) -> Result<(), String> {
    let counts = tx.counts();
    let left =
        counts.servers + counts.clients + counts.kept_messages + counts.timers + counts.timers_waiting + counts.keys;
    if left > 0 || tx.memory() > 0 {
        return Err(format!("{host}: {} bytes for {counts:?}", tx.memory()));
    }
    Ok(())
}
