//! One generator, or the side that answers: a shard with sockets of its own.

use super::plan::{Connections, Plan, User};
use super::profile;
use crate::engine::helper::Helper;
use crate::engine::ledger::Ledger;
use crate::engine::pace::Part as Pace;
use crate::engine::run::{Behaviour, Load, Retransmission, Run};
use crate::engine::script::Script;
use crate::engine::socket_plan::{Each, Sockets};
use crate::engine::traffic::{Event, Order, Traffic};
use crate::engine::watch::Watch;
use crate::media::Plane;
use crate::workload::{Words, Workload, literal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strowger_core::Transport;
use strowger_measure::{Books, ReceiveBuffer};
use strowger_net::tls::OnFailure;
use strowger_net::tls::{Certificate, Client, Server};
use strowger_net::{
    Bounds, DedicatedSockets, Listener, Net, NetSettings, Node, Scheduling, Shards, Snapshot, UdpSettings, descriptors,
};
use strowger_scenario::injection::{Injection, InjectionOptions};
use strowger_scenario::{Command, Environment, Scenario};

/// What is given to the thread of a shard, once.
type Parts = (Books, Sender<Event>, Option<Box<dyn Watch>>);

/// A running side.
pub(super) struct Side {
    node: Node<Traffic>,
    pub(super) events: Receiver<Event>,
    /// Counts as of its end, once it has ended.
    pub(super) ledger: Option<Ledger>,
    pub(super) address: SocketAddr,
    steps: Ledger,
    pub(super) handshakes: Handshakes,
    /// Media are sent as long as it is there.
    _plane: Option<Plane>,
}

/// A side that is bound, not yet running.
pub(super) struct Bound {
    net: Net,
    /// Where it listens; the address as it stands in messages.
    pub(super) address: SocketAddr,
    handshakes: Handshakes,
}

/// The handshake that failed last: with whom, and why.
#[derive(Clone, Debug, Default)]
pub(super) struct Handshakes(Arc<Mutex<Option<(SocketAddr, String)>>>);

impl Handshakes {
    pub(super) fn last(&self) -> Option<(SocketAddr, String)> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn on_failure(&self) -> OnFailure {
        let last = self.0.clone();
        OnFailure::new(move |peer, why| {
            *last.lock().unwrap_or_else(|e| e.into_inner()) = Some((peer, why.to_owned()));
        })
    }
}

/// What a side is to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Makes calls: `index` of the `count` callers of its document, `place` among `all` callers.
    Caller {
        index: usize,
        count: usize,
        place: usize,
        all: usize,
    },
    Answerer,
    /// Registers, and answers calls on the same socket: a registrar may lead calls back to where a REGISTER came from.
    Receiver,
}

impl Part {
    /// Caller of a run with one document.
    pub(super) const fn caller(index: usize, count: usize) -> Self {
        Self::Caller { index, count, place: index, all: count }
    }
}

/// Opens the sockets of a side. `answers`: others begin calls or connections to it.
pub(super) fn bind(plan: &Plan, ip: IpAddr, port: u16, answers: bool) -> Result<Bound, String> {
    let handshakes = Handshakes::default();
    let own = plan.trust.identity.clone().map(|(chain, key)| Certificate { chain, key });
    let settings = NetSettings {
        shards: Shards::Fixed(1),
        udp: UdpSettings {
            kernel_steering: false,
            force_buffers: true,
            gso: true,
            gro: true,
            batch: 256,
            // A closed port is not waited for.
            icmp_errors: true,
            ..UdpSettings::default()
        },
        scheduling: Scheduling { exact_timers: true, timestamps: true, ..Scheduling::default() },
        // Who answers may be called by a generator with a connection for each call.
        bounds: Bounds { connections_per_source: usize::MAX, ..Bounds::default() },
        on_failure: Some(handshakes.on_failure()),
        tls: Client {
            authorities: plan.trust.authorities.clone(),
            unverified: plan.trust.authorities.is_none(),
            certificate: own.clone(),
            ..Client::default()
        },
        ..NetSettings::default()
    };
    // Who only connects needs no certificate to listen with: a plain door gives its connections their address.
    let transport = match plan.transport {
        Transport::Udp => Transport::Udp,
        other if answers => other,
        _ => Transport::Tcp,
    };
    // Who is called from elsewhere listens on every address, and names the one by which others reach this machine.
    let shown = if ip.is_unspecified() { outward(ip.is_ipv6()) } else { ip };
    let mut listener = Listener::new(transport, SocketAddr::new(ip, port));
    if transport.is_secure() {
        let own = own.ok_or_else(|| {
            format!(
                "the answering side needs a certificate for {}: give --tls-cert FILE and --tls-key FILE",
                transport.text()
            )
        })?;
        listener.tls = Some(Server::new(own));
    }
    let net = Net::bind(settings, vec![listener]).map_err(|error| refused(&error, ip, port))?;
    let port = net.addresses().first().map_or(port, SocketAddr::port);
    Ok(Bound { net, address: SocketAddr::new(shown, port), handshakes })
}

fn refused(error: &std::io::Error, ip: IpAddr, port: u16) -> String {
    let cure = match error.kind() {
        std::io::ErrorKind::AddrNotAvailable => format!("; {ip} is no address of this machine"),
        std::io::ErrorKind::AddrInUse if port != 0 => {
            "; another program has this port: choose another with --port".into()
        }
        _ => String::new(),
    };
    format!("the socket cannot be opened: {error}{cure}")
}

/// The address of this machine by which others reach it: that from which it would call a host far away (RFC 5737 and
/// RFC 3849 have addresses for this, nothing is sent to them). A machine without a way out has only itself.
fn outward(v6: bool) -> IpAddr {
    let (away, itself): (IpAddr, IpAddr) = if v6 {
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(), Ipv6Addr::LOCALHOST.into())
    } else {
        (Ipv4Addr::new(203, 0, 113, 1).into(), Ipv4Addr::LOCALHOST.into())
    };
    towards(SocketAddr::new(away, 9)).unwrap_or(itself)
}

/// The address from which this machine reaches `remote`.
fn towards(remote: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if remote.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Connecting sends nothing: it only looks the way up.
    socket.connect(remote).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// As [`towards`]; where there is no way, this machine itself.
pub(super) fn local(remote: Option<SocketAddr>) -> IpAddr {
    remote.and_then(towards).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The facts that the documents of one campaign share.
#[derive(Clone)]
pub(super) struct Facts {
    /// Where messages go.
    pub(super) destination: Option<SocketAddr>,
    /// The target, resolved; with both ends ours the answering side, unless that registers.
    pub(super) target: Option<SocketAddr>,
    /// The target is the answering side itself.
    pub(super) direct: bool,
    pub(super) callee: Option<User>,
    /// The users' list first, then the files of the document.
    pub(super) injections: Arc<[Injection]>,
    /// Sockets and connections of calls, of each generator.
    pub(super) most_sockets: usize,
}

impl Facts {
    pub(super) fn words(&self, plan: &Plan, part: Part) -> Words {
        let transport = match plan.transport {
            Transport::Udp => String::new(),
            other => format!(";transport={}", other.text()),
        };
        let host = plan.target.as_ref().map_or_else(|| "[local_ip]".into(), |t| literal(&t.uri_host()));
        let place = plan.target.as_ref().map_or_else(|| "[local_ip]:[local_port]".into(), |t| literal(&t.place()));
        let domain = plan.domain.as_deref().map_or_else(|| host.clone(), literal);
        let named =
            plan.target.as_ref().and_then(|t| t.user.clone()).or_else(|| self.callee.as_ref().map(|u| u.name.clone()));
        // OPTIONS without a user asks the server itself (RFC 3261 section 11.1).
        let asked =
            (named.is_none() && !self.direct).then(|| (format!("sip:{place}{transport}"), format!("sip:{place}")));
        let name = literal(named.as_deref().unwrap_or("service"));
        let aimed = plan.domain.as_deref().filter(|_| self.callee.is_some());
        let (uri, to) = match (self.direct, self.target) {
            (true, Some(address)) => {
                let place = literal(&address.to_string());
                (format!("sip:{name}@{place}{transport}"), format!("sip:{name}@{place}"))
            }
            _ => match aimed {
                Some(_) => (format!("sip:{name}@{domain}"), format!("sip:{name}@{domain}")),
                None => (format!("sip:{name}@{place}{transport}"), format!("sip:{name}@{place}")),
            },
        };
        let suffix = match part {
            Part::Caller { place, all, .. } if all > 1 => format!("-{place}"),
            _ => String::new(),
        };
        let (user, password) = match (part, &self.callee, &plan.users[..]) {
            (Part::Receiver, Some(callee), _) => (literal(&callee.name), literal(&callee.password)),
            (_, _, []) => (format!("user[call_number]{suffix}"), String::new()),
            (_, _, [one]) => (literal(&one.name), literal(&one.password)),
            _ => ("[field0]".into(), "[field1]".into()),
        };
        let credentials = match (part, &self.callee) {
            (Part::Receiver, Some(callee)) => !callee.password.is_empty(),
            _ => plan.users.iter().any(|user| !user.password.is_empty()),
        };
        let calls = profile::peak(&plan.profile).max(1.0);
        let (options_uri, options_to) = asked.unwrap_or_else(|| (uri.clone(), to.clone()));
        Words {
            uri,
            to,
            options_uri,
            options_to,
            domain,
            user,
            password,
            contact: match (part, &plan.contact) {
                (Part::Caller { .. }, Some(contact)) => literal(&contact.place()),
                // Calls to those who answer here come to their sockets.
                _ => "[local_ip]:[local_port]".into(),
            },
            transport: plan.transport.text(),
            expires: plan.expires,
            credentials,
            tag: format!("[pid]{}", suffix.replace('-', "g")),
            agent: format!("Strowger/{}", env!("CARGO_PKG_VERSION")),
            ring: plan.ring,
            // Timer J (RFC 3261 section 17.2.2) is 32 s over UDP; by 4 s an end that was lost has been asked for three
            // times. At high rates so many ended calls would hold more memory than that is worth.
            linger: if plan.transport.is_reliable() {
                1
            } else {
                (100_000_000.0 / calls).clamp(1_000.0, 4_000.0) as u32
            },
            mix: plan.mix,
        }
    }

    /// The document of a side, read.
    pub(super) fn scenario(&self, plan: &Plan, part: Part) -> Result<Scenario, String> {
        let words = self.words(plan, part);
        let text = match (&plan.work, part) {
            (super::Work::Document(path), Part::Caller { .. }) => return document(plan, path),
            (super::Work::Document(path), Part::Answerer) if plan.target.is_none() => return document(plan, path),
            (_, Part::Receiver) => words.document(Workload::Register),
            (_, Part::Answerer) => words.answering(),
            (super::Work::Ready(workload), Part::Caller { .. }) => words.document(*workload),
            (super::Work::Documents(_), Part::Caller { .. }) => unreachable!("each caller has a plan of one document"),
        };
        Scenario::parse(text.as_bytes(), Path::new("workload"), &Environment { ready: true, ..environment(plan) })
            .map_err(|refusal| format!("{refusal}\n{text}"))
    }

    /// What the engine has to know.
    pub(super) fn run(&self, plan: &Plan, part: Part, scenario: Arc<Scenario>, own: SocketAddr) -> Result<Run, String> {
        let answers = match part {
            Part::Receiver => Some(Arc::new(self.scenario(plan, Part::Answerer)?)),
            _ => None,
        };
        let (index, count, place, all) = match part {
            Part::Caller { index, count, place, all } => (index, count, place, all),
            _ => (0, 1, 0, 1),
        };
        let document = plan.work.is_document() && part != Part::Receiver;
        let mut load = Load {
            profile: profile::share(&plan.profile, index, count),
            warm_up: plan.warm_up.as_micros() as u64,
            arrivals: plan.arrivals,
            calls: plan.calls.map(|calls| profile::portion(calls, index, count)),
            limit: profile::portion(plan.limit, index, count).max(1),
            ..Load::default()
        };
        match part {
            Part::Receiver if self.callee.is_some() => load = Load { calls: Some(1), ..Load::default() },
            // Each user once.
            Part::Receiver if plan.calls.is_none() && !plan.users.is_empty() => {
                load.calls = Some(plan.users.len() as u64)
            }
            Part::Answerer => load = Load::default(),
            Part::Receiver | Part::Caller { .. } => (),
        }
        let retransmission = Retransmission { enabled: plan.transport == Transport::Udp, ..Retransmission::default() };
        let receive_timeout = match part {
            // How long a call is held is the caller's affair.
            Part::Answerer => None,
            _ => plan.receive_timeout(),
        };
        let each = match (plan.connections, part) {
            // The callee is one user.
            (Connections::One, _) | (_, Part::Answerer) => Each::Run,
            (_, Part::Receiver) if self.callee.is_some() => Each::Run,
            (Connections::PerCall, _) => Each::Call,
            (Connections::PerUser, _) => Each::User,
        };
        let injections = match part {
            // Each user belongs to one generator, or it would have several connections.
            Part::Caller { .. } if each == Each::User && count > 1 && has_list(plan) => {
                let users = plan.users.iter().skip(index).step_by(count);
                [users_list(users)?].into()
            }
            _ => self.injections.clone(),
        };
        let ip = own.ip().to_string();
        let pid = std::process::id();
        let seed = plan.seed.wrapping_add(place as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Ok(Run {
            target: self.target,
            target_host: plan.target.as_ref().map_or_else(String::new, |t| t.host.clone()),
            sending_address: self.destination.filter(|_| part != Part::Answerer),
            out_of_call: answers,
            transport: plan.transport,
            sockets: Sockets { each, from: own.ip(), most: self.most_sockets, ..Sockets::default() },
            local_ip: ip.clone(),
            local_port: own.port(),
            media_ip: ip,
            service: plan
                .target
                .as_ref()
                .and_then(|t| t.user.clone())
                .or_else(|| self.callee.as_ref().map(|u| u.name.clone()))
                .unwrap_or_else(|| "service".into()),
            auth_request_uri: !document,
            username: plan.users.first().map(|user| user.name.clone()),
            password: plan.users.first().map_or_else(|| "password".into(), |user| user.password.clone()),
            keys: plan.keys.iter().map(|(k, v)| (k.clone(), v.clone().into_bytes())).collect(),
            injections,
            call_id: if all > 1 { format!("%u-%p-{place}@%s") } else { "%u-%p@%s".into() },
            // Branches bear it, and generators must not have the same.
            pid: if all > 1 { pid.wrapping_mul(256).wrapping_add(place as u32) } else { pid },
            load,
            behaviour: Behaviour {
                pause: plan.hold,
                // There is nothing to take back of a request that makes no call.
                goodbye: document || plan.workload().is_none_or(Workload::calls),
                receive_timeout,
                auto_answer: true,
                // A later request with the Call-ID of an ended one (a registration made again) is a call of its own.
                dead_call_wait: if matches!(part, Part::Answerer | Part::Receiver) && !document {
                    0
                } else {
                    Behaviour::default().dead_call_wait
                },
                ..Behaviour::default()
            },
            retransmission: if document {
                retransmission
            } else {
                // Timers A, B, E and F (RFC 3261 section 17.1): after 500 ms, doubled, to 32 s.
                Retransmission { most_invite: 6, most_non_invite: 10, rfc3261: true, ..retransmission }
            },
            seed,
            rand: (seed >> 32) as u32,
            ..Run::new(scenario)
        })
    }

    /// How many of the side that is called may have registered, by what its calls have come to.
    pub(super) fn registered(&self, plan: &Plan, ledger: &Ledger) -> u64 {
        match plan.users.len() as u64 {
            _ if self.callee.is_some() => ledger.outgoing,
            0 => ledger.outgoing,
            users => ledger.outgoing.min(users),
        }
    }

    /// What removes the first `calls` registrations of the side that is called: the same requests, which ask for no time (RFC 3261
    /// section 10.2.2), over the same sockets.
    ///
    /// # Errors
    /// There are no texts for it.
    pub(super) fn removal(&self, plan: &Plan, own: SocketAddr, calls: u64) -> Result<(Arc<Run>, Arc<Script>), String> {
        let plan = Plan { expires: 0, calls: Some(calls), ..plan.clone() };
        let scenario = Arc::new(self.scenario(&plan, Part::Receiver)?);
        let mut run = self.run(&plan, Part::Receiver, scenario.clone(), own)?;
        if has_list(&plan) && self.callee.is_none() {
            // From the first on again.
            run.injections = [users_list(plan.users.iter())?].into();
        }
        // Branches and Call-IDs bear it: these are no repetitions of the requests that registered.
        run.pid = run.pid.wrapping_mul(256).wrapping_add(255);
        let rate = profile::peak(&plan.profile).max(100.0).max(2.0 * calls as f64 / plan.grace.as_secs_f64().max(0.1));
        run.load = Load { profile: vec![Pace::Hold { rate }], calls: Some(calls), limit: 256, ..Load::default() };
        let script = Arc::new(Script::new(scenario, &run));
        Ok((Arc::new(run), script))
    }
}

/// What documents may name.
fn environment(plan: &Plan) -> Environment {
    Environment {
        keys: plan.keys.iter().map(|(k, v)| (k.clone(), v.clone().into_bytes())).collect(),
        injections: injections(plan),
        no_exec: plan.no_exec,
        command: Command::Load,
        ..Environment::default()
    }
}

/// The names of the timers of a plan, known before anything is sent: those of its document, none of a ready workload.
///
/// # Errors
/// Why the document cannot be read.
pub fn timers(plan: &Plan) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for plan in plan.parted() {
        if let super::Work::Document(path) = &plan.work {
            add_names(&mut names, document(&plan, path)?.timed());
        }
    }
    Ok(names)
}

/// Adds names of timers that are not yet among them.
pub(super) fn add_names(names: &mut Vec<String>, more: Vec<String>) {
    for name in more {
        if !names.contains(&name) {
            names.push(name);
        }
    }
}

/// The document of the user's.
pub(super) fn document(plan: &Plan, path: &Path) -> Result<Scenario, String> {
    Scenario::load(path, &environment(plan)).map_err(|refusal| refusal.to_string())
}

/// What the reader of a plan's document passed over or took otherwise than it stands there, each with file, line and column.
///
/// # Errors
/// Why the document cannot be read.
pub fn warnings(plan: &Plan) -> Result<Vec<String>, String> {
    let mut said = Vec::new();
    for plan in plan.parted() {
        let super::Work::Document(path) = &plan.work else { continue };
        let (scenario, file) = (document(&plan, path)?, path.display());
        said.extend(scenario.remarks().iter().map(|w| format!("{file}:{}:{}: {}", w.line, w.column, w.text)));
    }
    Ok(said)
}

/// Calls take users by a list of their own.
fn has_list(plan: &Plan) -> bool {
    plan.users.len() > 1 && plan.workload().is_some()
}

/// Base names of injection files; the users' list comes first.
fn injections(plan: &Plan) -> Vec<String> {
    let base =
        |path: &std::path::PathBuf| path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    has_list(plan).then(|| "users".into()).into_iter().chain(plan.injections.iter().map(base)).collect()
}

/// The data of a campaign, shared by its generators: each line is taken once, then again from the first.
pub(super) fn data(plan: &Plan) -> Result<Arc<[Injection]>, String> {
    let mut all = Vec::new();
    if has_list(plan) {
        all.push(users_list(plan.users.iter())?);
    }
    for path in &plan.injections {
        let options = InjectionOptions { strip_carriage_return: true, ..InjectionOptions::default() };
        all.push(Injection::load(path, options).map_err(|error| error.to_string())?);
    }
    Ok(all.into())
}

/// Users as calls take them, in turn.
fn users_list<'a>(users: impl Iterator<Item = &'a User>) -> Result<Injection, String> {
    let mut text = String::from("SEQUENTIAL\n");
    for user in users {
        text.push_str(&format!("{};{}\n", user.name, user.password));
    }
    Injection::new("users".into(), text.into_bytes(), InjectionOptions::default()).map_err(|e| e.to_string())
}

/// Descriptors left for everything that is no socket of a call, and for what only waits to be ended.
const SPARE: usize = 128;

/// How many sockets and connections of calls each of `generators` may have, by the plan and by what the system allows.
pub(super) fn most_sockets(plan: &Plan, generators: usize) -> usize {
    let allowed = descriptors::raise().unwrap_or(1_024).saturating_sub(SPARE + 16 * generators);
    // With both ends here each connection has two descriptors.
    let allowed = if plan.pair && plan.transport.is_reliable() { allowed / 2 } else { allowed };
    (plan.max_sockets.unwrap_or(usize::MAX).min(allowed) / generators.max(1)).max(1)
}

impl Side {
    /// Begins as soon as its thread runs, or with [`Order::Begin`] if it `waits`.
    pub(super) fn start(
        bound: Bound,
        run: Run,
        books: Books,
        watch: Option<Box<dyn Watch>>,
        waits: bool,
    ) -> Result<Self, String> {
        Self::spawn(bound, run, books, watch, waits)
    }

    /// Begins with [`Order::Begin`]; a person looks on.
    pub(super) fn prepare(bound: Bound, mut run: Run, books: Books, watch: Box<dyn Watch>) -> Result<Self, String> {
        // The target must prove to be who it is said to be.
        run.peer = Some(&*run.target_host).filter(|host| !host.is_empty()).map(|host| bound.net.name(host));
        Self::spawn(bound, run, books, Some(watch), true)
    }

    fn spawn(
        bound: Bound,
        mut run: Run,
        books: Books,
        watch: Option<Box<dyn Watch>>,
        waits: bool,
    ) -> Result<Self, String> {
        let plane = run.start_media().map_err(|error| error.to_string())?;
        let legs = Mutex::new(plane.as_ref().map(Plane::legs));
        let run = Arc::new(run);
        let scenario = run.scenario.clone();
        let script = Arc::new(Script::new(scenario.clone(), &run));
        let answers = run.out_of_call.as_ref().map(|scenario| Arc::new(Script::new(scenario.clone(), &run)));
        let (events_out, events) = channel();
        let parts: Mutex<Option<Parts>> = Mutex::new(Some((books, events_out, watch)));
        let node = bound
            .net
            .spawn_with_sockets(move |shard, handle| {
                let parts = parts.lock().unwrap_or_else(|e| e.into_inner()).take();
                let (books, events, watch) = parts.expect("one shard is started, once");
                let legs = legs.lock().unwrap_or_else(|e| e.into_inner()).take();
                let mailbox = handle.mailbox(shard);
                let helper = Helper::new(move |answer| mailbox.send(Order::Helped(answer)));
                let traffic = Traffic::new(run.clone(), script.clone(), answers.clone(), books, events, helper);
                let sockets = DedicatedSockets::new(&handle, shard, run.sockets.most);
                let traffic = traffic.watched(watch).with_media(legs).with_sockets(sockets);
                if waits { traffic.waiting() } else { traffic }
            })
            .map_err(|error| format!("a thread cannot be started: {error}"))?;
        let steps = Ledger::new(&scenario);
        let Bound { address, handshakes, .. } = bound;
        Ok(Self { node, events, ledger: None, address, steps, handshakes, _plane: plane })
    }

    pub(super) fn order(&self, order: Order) {
        self.node.handle().mailbox(0).send(order);
    }

    /// Waits until what was ordered is done, for half a second at most: orders are taken one after the other.
    pub(super) fn settle(&self) {
        self.report();
    }

    /// The counts as they are now; those of the start if the shard does not answer in time.
    pub(super) fn report(&self) -> Ledger {
        if let Some(ledger) = &self.ledger {
            return ledger.clone();
        }
        let (to, from) = sync_channel(1);
        self.order(Order::Report(to));
        from.recv_timeout(Duration::from_millis(500)).unwrap_or_else(|_| self.steps.clone())
    }

    pub(super) fn counters(&self) -> Snapshot {
        self.node.handle().total()
    }

    /// How long a connection is tried.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.node.handle().bounds().connect_timeout
    }

    /// Datagrams that the kernel dropped before they were read. Those of a socket that a call or user has of its own are known
    /// once it is closed.
    pub(super) fn drops(&self) -> u64 {
        self.drops_of_listener() + self.counters().dedicated_drops
    }

    fn drops_of_listener(&self) -> u64 {
        self.node.handle().backlogs().iter().map(|backlog| u64::from(backlog.dropped)).sum()
    }

    /// Ends the thread, and closes its sockets: the counters as of then, and the drops of all of them.
    pub(super) fn end(self) -> (Snapshot, u64) {
        let (handle, dropped) = (self.node.handle().clone(), self.drops_of_listener());
        drop(self);
        let counters = handle.total();
        (counters, dropped + counters.dedicated_drops)
    }

    pub(super) fn receive_buffer(&self) -> Option<ReceiveBuffer> {
        let asked = self.node.handle().settings().udp.receive_buffer as u64;
        let backlog = self.node.handle().backlogs().into_iter().next()?;
        Some(ReceiveBuffer { socket: self.address.to_string(), asked, got: u64::from(backlog.buffer) / 2 })
    }
}
