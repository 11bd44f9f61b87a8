//! One generator, or the answering side: a shard with sockets of its own.

use super::plan::{Connections, Plan, User};
use super::profile;
use crate::engine::helper::Helper;
use crate::engine::pace::Part as Pace;
use crate::engine::run::{Behaviour, Load, Retransmission, Run};
use crate::engine::script::Script;
use crate::engine::sipp_stats::SippStats;
use crate::engine::socket_plan::{Each, Sockets};
use crate::engine::traffic::{Event, ShardCommand, Traffic};
use crate::engine::watch::Watch;
use crate::media::Plane;
use crate::workload::{Words, Workload, literal};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use strowger_core::Transport;
use strowger_measure::{ReceiveBuffer, ShardRecorder};
use strowger_net::tls::OnFailure;
use strowger_net::tls::{Certificate, Client, Server};
use strowger_net::{
    Bounds, DedicatedSockets, Listener, Net, NetSettings, Node, Scheduling, Shards, Snapshot, UdpSettings, descriptors,
};
use strowger_scenario::injection::{Injection, InjectionOptions};
use strowger_scenario::{Command, Environment, Scenario};

/// Values that move to the thread of a shard when it starts.
type Parts = (ShardRecorder, Sender<Event>, Option<Box<dyn Watch>>);

/// A running side.
pub(super) struct Side {
    node: Node<Traffic>,
    pub(super) events: Receiver<Event>,
    /// Final counts, once the side has ended.
    pub(super) stats: Option<SippStats>,
    pub(super) address: SocketAddr,
    steps: SippStats,
    pub(super) handshakes: Handshakes,
    /// Media, which stop when they are dropped.
    plane: Option<Plane>,
}

/// A side that is bound, not yet running.
pub(super) struct Bound {
    net: Net,
    /// Listening address, as messages name it.
    pub(super) address: SocketAddr,
    handshakes: Handshakes,
}

/// Last failed handshake: its peer and its reason.
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

/// Role of a side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// Makes calls. The side is number `index` of the `count` callers of its document, and number `place` of `all` callers.
    Caller {
        index: usize,
        count: usize,
        place: usize,
        all: usize,
    },
    Answerer,
    /// Registers, and answers calls on the same socket: a registrar may send calls to the source address of a REGISTER.
    Receiver,
}

impl Part {
    /// Creates the caller of a run with one document.
    pub(super) const fn caller(index: usize, count: usize) -> Self {
        Self::Caller { index, count, place: index, all: count }
    }
}

/// Opens the sockets of a side. `answers`: peers begin calls or connections to this side.
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
            // An ICMP error of a closed port ends the wait for an answer.
            icmp_errors: true,
            ..UdpSettings::default()
        },
        scheduling: Scheduling { exact_timers: true, timestamps: true, ..Scheduling::default() },
        // The generator that calls an answering side may have a connection for each call.
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
    // A side that only connects needs no listener's certificate: its connections take their local address from a TCP
    // listener.
    let transport = match plan.transport {
        Transport::Udp => Transport::Udp,
        other if answers => other,
        _ => Transport::Tcp,
    };
    // A side that is called from other machines listens on every address, and names the one by which they reach this machine.
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

/// Returns the address by which other machines reach this one: the source address of packets to a remote network, or the
/// loopback address if there is no route. The remote network is an address from RFC 5737 or RFC 3849, to which nothing is
/// sent.
fn outward(v6: bool) -> IpAddr {
    let (away, itself): (IpAddr, IpAddr) = if v6 {
        (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1).into(), Ipv6Addr::LOCALHOST.into())
    } else {
        (Ipv4Addr::new(203, 0, 113, 1).into(), Ipv4Addr::LOCALHOST.into())
    };
    towards(SocketAddr::new(away, 9)).unwrap_or(itself)
}

/// Returns the address from which this machine reaches `remote`.
fn towards(remote: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if remote.is_ipv6() { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Connecting a UDP socket sends nothing: it only looks up the route.
    socket.connect(remote).ok()?;
    socket.local_addr().ok().map(|address| address.ip())
}

/// Returns the address that [`towards`] returns, or the loopback address if there is no route.
pub(super) fn local(remote: Option<SocketAddr>) -> IpAddr {
    remote.and_then(towards).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// Facts that the documents of one campaign share.
#[derive(Clone)]
pub(super) struct Facts {
    /// Destination of messages.
    pub(super) destination: Option<SocketAddr>,
    /// Address of the target. If both ends belong to this process, it is the address of the answering side, unless that
    /// side registers.
    pub(super) target: Option<SocketAddr>,
    /// True if the target is our answering side itself.
    pub(super) direct: bool,
    pub(super) callee: Option<User>,
    /// Injection data: the list of users first, then the files of the document.
    pub(super) injections: Arc<[Injection]>,
    /// Maximum number of sockets and connections of calls for each generator.
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
        // An OPTIONS without a user addresses the server itself (RFC 3261 section 11.1).
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
                // Calls to an answering side arrive at its socket.
                _ => "[local_ip]:[local_port]".into(),
            },
            transport: plan.transport.text(),
            expires: plan.expires,
            credentials,
            tag: format!("[pid]{}", suffix.replace('-', "g")),
            agent: format!("Strowger/{}", env!("CARGO_PKG_VERSION")),
            ring: plan.ring,
            // Timer J (RFC 3261 section 17.2.2) is 32 s over UDP, but within 4 s the peer has retransmitted an unanswered
            // BYE three times. At high rates, ended calls that stay longer than this would cost too much memory.
            linger: if plan.transport.is_reliable() {
                1
            } else {
                (100_000_000.0 / calls).clamp(1_000.0, 4_000.0) as u32
            },
            mix: plan.mix,
        }
    }

    /// Reads the document of a side.
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

    /// Returns the parameters of the engine.
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
            // The caller decides how long a call is held.
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
            // The process id is part of branches, which must differ between generators.
            pid: if all > 1 { pid.wrapping_mul(256).wrapping_add(place as u32) } else { pid },
            load,
            behaviour: Behaviour {
                pause: plan.hold,
                // A request outside of a call leaves nothing to cancel or end.
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

    /// Returns how many users of the answering side may have registered, by the number of its outgoing calls.
    pub(super) fn registered(&self, plan: &Plan, stats: &SippStats) -> u64 {
        match plan.users.len() as u64 {
            _ if self.callee.is_some() => stats.outgoing,
            0 => stats.outgoing,
            users => stats.outgoing.min(users),
        }
    }

    /// Returns the run that removes the first `calls` registrations of the answering side: the same requests with a lifetime of 0 (RFC 3261
    /// section 10.2.2), over the same sockets.
    ///
    /// # Errors
    /// The document of the registrations cannot be read.
    pub(super) fn removal(&self, plan: &Plan, own: SocketAddr, calls: u64) -> Result<(Arc<Run>, Arc<Script>), String> {
        let plan = Plan { expires: 0, calls: Some(calls), ..plan.clone() };
        let scenario = Arc::new(self.scenario(&plan, Part::Receiver)?);
        let mut run = self.run(&plan, Part::Receiver, scenario.clone(), own)?;
        if has_list(&plan) && self.callee.is_none() {
            // A new list begins at the first user again.
            run.injections = [users_list(plan.users.iter())?].into();
        }
        // The process id is part of branches and Call-IDs. It is changed so that these requests do not look like
        // retransmissions of the registrations.
        run.pid = run.pid.wrapping_mul(256).wrapping_add(255);
        let rate = profile::peak(&plan.profile).max(100.0).max(2.0 * calls as f64 / plan.grace.as_secs_f64().max(0.1));
        run.load = Load { profile: vec![Pace::Hold { rate }], calls: Some(calls), limit: 256, ..Load::default() };
        let script = Arc::new(Script::new(scenario, &run));
        Ok((Arc::new(run), script))
    }
}

/// Returns the names that documents may use.
fn environment(plan: &Plan) -> Environment {
    Environment {
        keys: plan.keys.iter().map(|(k, v)| (k.clone(), v.clone().into_bytes())).collect(),
        injections: injections(plan),
        no_exec: plan.no_exec,
        command: Command::Load,
        ..Environment::default()
    }
}

/// Returns the names of the timers of a plan before anything is sent. A ready workload has no timers.
///
/// # Errors
/// The document cannot be read; the error is a sentence.
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

/// Reads a document of the user.
pub(super) fn document(plan: &Plan, path: &Path) -> Result<Scenario, String> {
    Scenario::load(path, &environment(plan)).map_err(|refusal| refusal.to_string())
}

/// Returns the parts of a plan's documents that the reader ignores or interprets differently, each with file, line and column.
///
/// # Errors
/// The document cannot be read; the error is a sentence.
pub fn warnings(plan: &Plan) -> Result<Vec<String>, String> {
    let mut said = Vec::new();
    for plan in plan.parted() {
        let super::Work::Document(path) = &plan.work else { continue };
        let (scenario, file) = (document(&plan, path)?, path.display());
        said.extend(scenario.remarks().iter().map(|w| format!("{file}:{}:{}: {}", w.line, w.column, w.text)));
    }
    Ok(said)
}

/// Returns whether calls take their users from a list made of the plan's users.
fn has_list(plan: &Plan) -> bool {
    plan.users.len() > 1 && plan.workload().is_some()
}

/// Returns the base names of injection files, of which the list of users is the first.
fn injections(plan: &Plan) -> Vec<String> {
    let base =
        |path: &std::path::PathBuf| path.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
    has_list(plan).then(|| "users".into()).into_iter().chain(plan.injections.iter().map(base)).collect()
}

/// Reads the data that the generators of a campaign share. The lines are used in turn: after the last line the first one
/// is used again.
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

/// Makes an injection file of users, which calls take in turn.
fn users_list<'a>(users: impl Iterator<Item = &'a User>) -> Result<Injection, String> {
    let mut text = String::from("SEQUENTIAL\n");
    for user in users {
        text.push_str(&format!("{};{}\n", user.name, user.password));
    }
    Injection::new("users".into(), text.into_bytes(), InjectionOptions::default()).map_err(|e| e.to_string())
}

/// Descriptors reserved for everything except sockets of open calls. Sockets of ended calls that are still closing need
/// some of them.
const SPARE: usize = 128;

/// Returns how many sockets and connections of calls each of `generators` may have, by the plan and by the system's limit.
pub(super) fn most_sockets(plan: &Plan, generators: usize) -> usize {
    let allowed = descriptors::raise().unwrap_or(1_024).saturating_sub(SPARE + 16 * generators);
    // If both ends run here, each connection has two descriptors.
    let allowed = if plan.pair && plan.transport.is_reliable() { allowed / 2 } else { allowed };
    (plan.max_sockets.unwrap_or(usize::MAX).min(allowed) / generators.max(1)).max(1)
}

impl Side {
    /// Starts a side that begins as soon as its thread runs, or with [`ShardCommand::Begin`] if it `waits`.
    pub(super) fn start(
        bound: Bound,
        run: Run,
        recorder: ShardRecorder,
        watch: Option<Box<dyn Watch>>,
        waits: bool,
    ) -> Result<Self, String> {
        Self::spawn(bound, run, recorder, watch, waits)
    }

    /// Starts a side that begins with [`ShardCommand::Begin`] and reports to `watch`.
    pub(super) fn prepare(
        bound: Bound,
        mut run: Run,
        recorder: ShardRecorder,
        watch: Box<dyn Watch>,
    ) -> Result<Self, String> {
        // The certificate of the target must prove this name.
        run.peer = Some(&*run.target_host).filter(|host| !host.is_empty()).map(|host| bound.net.name(host));
        Self::spawn(bound, run, recorder, Some(watch), true)
    }

    fn spawn(
        bound: Bound,
        mut run: Run,
        recorder: ShardRecorder,
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
        let parts: Mutex<Option<Parts>> = Mutex::new(Some((recorder, events_out, watch)));
        let node = bound
            .net
            .spawn_with_sockets(move |shard, handle| {
                let parts = parts.lock().unwrap_or_else(|e| e.into_inner()).take();
                let (recorder, events, watch) = parts.expect("one shard is started, once");
                let legs = legs.lock().unwrap_or_else(|e| e.into_inner()).take();
                let mailbox = handle.mailbox(shard);
                let helper = Helper::new(move |answer| mailbox.send(ShardCommand::Helped(answer)));
                let traffic = Traffic::new(run.clone(), script.clone(), answers.clone(), recorder, events, helper);
                let sockets = DedicatedSockets::new(&handle, shard, run.sockets.most);
                let traffic = traffic.watched(watch).with_media(legs).with_sockets(sockets);
                if waits { traffic.waiting() } else { traffic }
            })
            .map_err(|error| format!("a thread cannot be started: {error}"))?;
        let steps = SippStats::new(&scenario);
        let Bound { address, handshakes, .. } = bound;
        Ok(Self { node, events, stats: None, address, steps, handshakes, plane })
    }

    pub(super) fn send_command(&self, command: ShardCommand) {
        self.node.handle().mailbox(0).send(command);
    }

    /// Waits until all earlier commands are done, for half a second at most: the shard handles commands in sequence.
    pub(super) fn settle(&self) {
        self.report();
    }

    /// Returns the present counts. If the shard does not answer in time, returns the counts of the start.
    pub(super) fn report(&self) -> SippStats {
        if let Some(stats) = &self.stats {
            return stats.clone();
        }
        let (to, from) = sync_channel(1);
        self.send_command(ShardCommand::Report(to));
        from.recv_timeout(Duration::from_millis(500)).unwrap_or_else(|_| self.steps.clone())
    }

    pub(super) fn counters(&self) -> Snapshot {
        self.node.handle().total()
    }

    /// Returns the time limit for connecting.
    pub(super) fn connect_timeout(&self) -> Duration {
        self.node.handle().bounds().connect_timeout
    }

    /// Returns the number of datagrams, media included, that the kernel dropped before they were read. The drops of a dedicated socket of a
    /// call or user are included after the socket is closed.
    pub(super) fn drops(&self) -> u64 {
        self.drops_of_shared_sockets() + self.counters().dedicated_drops
    }

    fn drops_of_shared_sockets(&self) -> u64 {
        let of_listener: u64 = self.node.handle().backlogs().iter().map(|backlog| u64::from(backlog.dropped)).sum();
        of_listener + self.plane.as_ref().map_or(0, Plane::drops)
    }

    /// Ends the thread and closes its sockets. Returns the final counters, and the datagrams dropped at all sockets.
    pub(super) fn end(self) -> (Snapshot, u64) {
        let (handle, dropped) = (self.node.handle().clone(), self.drops_of_shared_sockets());
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
