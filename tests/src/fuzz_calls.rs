//! The whole service in this process, with its shards, sockets and connections, and mutated requests within calls with
//! valid route tokens and seals. The service must not panic, and must forward each request only to a party of its call.
//! The entry function panics on a violation; mutators and cargo-fuzz call it.

use std::cell::RefCell;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use strowger_backend::sqlite::subscribers::SqliteAdmin;
use strowger_config::{Config, Source};
use strowger_core::Outbox;
use strowger_core::fuzz_dialog::{change, pieces};
use strowger_node::{Program, Server};
use tempfile::TempDir;

use crate::account::{self, challenged, register_at};
use crate::dialog::{End, arrives, contact, set_up_with};
use crate::port;
use crate::text::{Request, address, field, method, respond, unique};
use crate::wire::{Transport, Wire};

/// More than one, so that messages and connections cross shards.
const SHARDS: usize = 3;
/// Maximum number of requests of one input: the sockets hold this many.
const AT_ONCE: usize = 100;
/// Branch of the stored requests; each sent request gets its own.
const BRANCH: &[u8] = b"z9hG4bK000000000000";
const SOON: Duration = Duration::from_secs(5);

/// Parties of the calls, the only allowed targets; set once the calls exist.
static PARTIES: Mutex<Vec<SocketAddr>> = Mutex::new(Vec::new());
static JUDGING: AtomicBool = AtomicBool::new(false);
/// Number of requests that left.
static LEFT: AtomicU64 = AtomicU64::new(0);
/// First request that left for another peer.
static ASTRAY: Mutex<Option<String>> = Mutex::new(None);

thread_local! {
    static WORLD: RefCell<World> = RefCell::new(World::new());
}

/// Runs one input. Each request takes one byte that selects the request, one byte for the number of changes, and four
/// bytes for each change: its kind, its position (two bytes), and its value.
///
/// # Panics
/// The service failed, or a request left for a peer that is no party of a call.
pub fn calls(data: &[u8]) {
    WORLD.with_borrow_mut(|world| {
        let requests = world.changed(data);
        world.judge(&requests);
    });
}

/// Returns the number of requests that can be changed.
pub fn requests() -> usize {
    WORLD.with_borrow(|world| world.requests.len())
}

/// Returns the number of requests that have left for a party so far.
pub fn left() -> u64 {
    LEFT.load(Relaxed)
}

/// Checks the output of a shard before it is sent.
fn sends(out: &Outbox) {
    if !JUDGING.load(Relaxed) {
        return;
    }
    for send in out.sends() {
        let bytes = &out.bytes[send.range()];
        if bytes.starts_with(b"SIP/2.0 ") {
            continue;
        }
        LEFT.fetch_add(1, Relaxed);
        let parties = PARTIES.lock().expect("it is only read");
        if !parties.contains(&send.target.address) {
            let text = format!("a request left for {}: {}", send.target.address, String::from_utf8_lossy(bytes));
            ASTRAY.lock().expect("it is only written").get_or_insert(text);
        }
    }
}

struct World {
    _server: Server,
    at: SocketAddr,
    requests: Vec<Vec<u8>>,
    pieces: Vec<Vec<u8>>,
    /// Number of sent requests.
    sent: u64,
    sender: UdpSocket,
    stream: Wire,
    /// A Call-ID of each shard.
    fences: Vec<String>,
    /// Connections of clients in no call.
    bystanders: Vec<Wire>,
    _folder: TempDir,
}

impl World {
    fn new() -> Self {
        let folder = TempDir::with_prefix("strowger-calls-").expect("a folder");
        let at = port::free_address();
        let ws = port::free_address();
        // Unanswered transactions end soon, and names cannot be resolved.
        let text = format!(
            "listen = [\"udp:{at}\", \"tcp:{at}\", \"ws:{ws}\"]\ndomains = [\"example.org\"]\nserver.shards = {SHARDS}\n\
             store.database = \"test.sqlite\"\ntimers.t1 = \"100ms\"\ndns.servers = [\"127.0.0.1\"]\n"
        );
        let source = Source { file: "test", text: &text, folder: folder.path(), ..Source::default() };
        let config = Config::read(source).unwrap_or_else(|report| panic!("{report}")).0;
        let mut admin =
            SqliteAdmin::open(&strowger_node::backends::sqlite(&config).expect("a database")).expect("it opens");
        account::add(&mut admin, ["alice", "bob", "bert", "carol", "dave", "dora"]);
        let server = Server::start_in(Program { sends, ..Program::default() }, config).expect("it starts");
        let handle = server.handle();
        let fence = |shard: usize| loop {
            let id = unique("fence");
            if handle.owner(handle.bucket(id.as_bytes())) == shard {
                break id;
            }
        };
        let fences = (0..SHARDS).map(fence).collect();
        let sender = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None).expect("a socket");
        sender.set_recv_buffer_size(4 << 20).expect("a socket can be set");
        let own: SocketAddr = "127.0.0.66:0".parse().expect("an address");
        sender.bind(&own.into()).expect("loopback has a port");
        let sender = UdpSocket::from(sender);
        sender.connect(at).expect("loopback leads there");
        sender.set_read_timeout(Some(SOON)).expect("a socket can be set");
        let connect = |transport| {
            let to = if transport == Transport::Ws { ws } else { at };
            Wire::connect(transport, to, None).expect("the server takes connections")
        };
        let mut bystanders = vec![connect(Transport::Tcp), connect(Transport::Ws)];
        for wire in &mut bystanders {
            // An OPTIONS puts the connection of the bystander into the server's tables.
            let options = Request::new("OPTIONS", &format!("sip:{at}"), wire.transport().name(), wire.local());
            wire.send(&options.bytes()).expect("the server takes messages");
            wire.final_response(SOON).expect("an answer");
        }
        let mut world = Self {
            _server: server,
            at,
            requests: Vec::new(),
            pieces: Vec::new(),
            sent: 0,
            sender,
            stream: connect(Transport::Tcp),
            fences,
            bystanders,
            _folder: folder,
        };
        world.calls(&connect);
        world.pieces = pieces(&world.requests);
        world
            .pieces
            .extend(["sip:bob@example.org", "<sip:alice@example.org>", "127.0.0.1", "127.0.0.66"].map(Vec::from));
        JUDGING.store(true, Relaxed);
        world
    }

    /// Sets up calls of each kind: the party is at the address of its Contact, behind NAT, or on a connection, and is a
    /// user of the server or not.
    fn calls(&mut self, connect: &dyn Fn(Transport) -> Wire) {
        use Transport::{Tcp, Udp, Ws};
        for (user, caller, called, hidden) in [
            ("bob", Udp, Udp, false),
            ("bert", Udp, Udp, true),
            ("carol", Tcp, Tcp, true),
            ("dave", Ws, Udp, false),
            ("dora", Udp, Ws, true),
            ("alice", Udp, Udp, false),
        ] {
            let (mut one, mut other) = (connect(caller), connect(called));
            let at = |user: &str, wire: &Wire| {
                let place = if hidden { "10.99.99.99".to_owned() } else { wire.local().to_string() };
                format!("sip:{user}@{place};transport={}", wire.transport().name())
            };
            let (near, far) = (at("caller", &one), at(user, &other));
            let lines = [format!("Contact: <{far}>")];
            let call = if user == "alice" {
                // Alice calls an external address.
                register_at(&mut one, user, user, &near);
                let mut call = Request::new("INVITE", &format!("sip:x@{}", other.local()), "udp", one.local());
                call.from = "<sip:alice@example.org>;tag=alice".into();
                challenged(&mut one, &call.with(format!("Contact: <{near}>")), user, user)
            } else {
                register_at(&mut other, user, user, &far);
                let call = Request::new("INVITE", &format!("sip:{user}@example.org"), caller.name(), one.local());
                call.with(format!("Contact: <{near}>"))
            };
            let (mut there, mut back) = set_up_with(&mut one, &mut other, &call, true, &lines);
            self.keep(&mut there, &mut back);
            // Both parties move: the caller to another socket, and the callee to another socket with its answer.
            let (mut moved, moved_too) = (connect(Udp), connect(Udp));
            there.via = ("UDP".into(), moved.local());
            let update = there.request("UPDATE").with(contact("moved", &moved));
            let (got, answer) = arrives(&mut moved, &mut other, &update, &[contact("moved2", &moved_too)]);
            back.uri = address(&field(&got, "Contact").expect("a Contact"));
            there.uri = address(&field(&answer, "Contact").expect("a Contact"));
            self.keep(&mut there, &mut back);
            let parties = [one, other, moved, moved_too];
            PARTIES.lock().expect("it is only read").extend(parties.iter().map(Wire::local));
            for wire in parties {
                std::thread::spawn(move || party(wire));
            }
        }
    }

    fn keep(&mut self, there: &mut End, back: &mut End) {
        for end in [there, back] {
            for method in ["INVITE", "BYE", "INFO", "ACK", "MESSAGE"] {
                // No two sent requests share a transaction.
                let mut request = end.request(method).with("Contact: <sip:other@127.0.0.67>");
                request.via = ("UDP".into(), self.sender.local_addr().expect("it is bound"));
                request.branch = String::from_utf8_lossy(BRANCH).into_owned();
                self.requests.push(request.bytes());
            }
        }
    }

    /// Returns the requests of an input, each with a flag that tells whether it is sent over a stream.
    fn changed(&mut self, mut data: &[u8]) -> Vec<(bool, Vec<u8>)> {
        let mut requests = Vec::new();
        while let ([which, often, rest @ ..], true) = (data, requests.len() < AT_ONCE) {
            let mut bytes = self.requests[usize::from(*which) % self.requests.len()].clone();
            self.sent += 1;
            let at = bytes.windows(BRANCH.len()).position(|part| part == BRANCH).expect("a branch");
            bytes[at..at + BRANCH.len()].copy_from_slice(format!("z9hG4bK{:012}", self.sent).as_bytes());
            let length = rest.len().min(4 * usize::from(often % 8));
            for [how, high, low, with] in rest[..length].as_chunks::<4>().0 {
                change(&mut bytes, *how, usize::from(u16::from_be_bytes([*high, *low])), *with, &self.pieces);
            }
            requests.push((*often >= 250, bytes));
            data = &rest[length..];
        }
        requests
    }

    fn judge(&mut self, requests: &[(bool, Vec<u8>)]) {
        for (by_stream, bytes) in requests {
            if *by_stream {
                if self.stream.is_closed() || self.stream.send(bytes).is_err() {
                    self.stream = Wire::connect(Transport::Tcp, self.at, None).expect("the server takes connections");
                }
            } else {
                // A request too long for a datagram is not sent.
                let _ = self.sender.send(bytes);
            }
        }
        self.settle();
        if let Some(text) = ASTRAY.lock().expect("it is only written").take() {
            panic!("{text}\none of:\n{}", shown(requests));
        }
        for wire in &mut self.bystanders {
            if wire.has_come() {
                let heard = wire.receive(SOON).unwrap_or_else(|| b"the end".into());
                let heard = String::from_utf8_lossy(&heard);
                panic!("the connection of one who is in no call brought {heard}\none of:\n{}", shown(requests));
            }
        }
    }

    /// Waits until every shard has processed all earlier messages.
    fn settle(&self) {
        let here = self.sender.local_addr().expect("it is bound");
        let mut buffer = vec![0; 65_536];
        for _ in 0..10 {
            let mut missing: Vec<String> = Vec::new();
            for id in &self.fences {
                let mut options = Request::new("OPTIONS", &format!("sip:{}", self.at), "udp", here);
                options.call_id.clone_from(id);
                let _ = self.sender.send(&options.bytes());
                missing.push(options.branch);
            }
            while let Ok(length) = self.sender.recv(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..length]);
                missing.retain(|branch| !text.contains(branch.as_str()));
                if missing.is_empty() {
                    return;
                }
            }
        }
        panic!("the service does not answer any more");
    }
}

fn shown(requests: &[(bool, Vec<u8>)]) -> String {
    requests.iter().map(|(_, bytes)| format!("{}\n", bytes.escape_ascii())).collect()
}

/// Answers all requests, for ever.
fn party(mut wire: Wire) {
    loop {
        let Some(message) = wire.receive(Duration::from_secs(3_600)) else {
            // An ended stream yields nothing more.
            if wire.is_closed() {
                return;
            }
            continue;
        };
        if method(&message).is_some_and(|method| method != "ACK") {
            let _ = wire.send(&respond(&message, 200, "party", &[]));
        }
    }
}
