//! A peer on the Internet names ports of the server's machine, hosts of its private network, and its databases and
//! caches. Traps listen there; no byte may arrive.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::Duration;

use strowger_lab::backend::{self, Backend};
use strowger_tests::account::challenged;
use strowger_tests::call::exchange;
use strowger_tests::dialog::{contact, invite, set_up, set_up_with};
use strowger_tests::name_server::{NameServer, Record};
use strowger_tests::namespace::{self, Namespace};
use strowger_tests::program::{MEMCACHED, REDIS, have};
use strowger_tests::redis::say;
use strowger_tests::server::{Server, Setup};
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::text::{Request, field, status};
use strowger_tests::wait;
use strowger_tests::wire::{Transport, Wire};

/// Deadline of each answer.
const SOON: Duration = Duration::from_secs(20);
/// The port of the traps, and one without a listener.
const TRAP: u16 = 6380;
const CLOSED: u16 = 6381;

const SERVER: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
const WORLD: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 2);

/// Hosts that an Internet peer may not name.
const HOSTS: [&str; 60] = [
    "127.0.0.1",
    "127.0.0.2",
    "127.255.255.254",
    "127.1",
    "127.0.1",
    "2130706433",
    "0x7f.0.0.1",
    "0x7f000001",
    "0177.0.0.1",
    "127.000.000.001",
    "0.0.0.0",
    "0",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "203.0.113.1",
    "10.9.9.1",
    "169.254.7.7",
    "10.9.8.1",
    "10.9.8.2",
    "10.9.8.255",
    "255.255.255.255",
    "224.0.0.1",
    "[::1]",
    "[::]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:127.0.0.1]",
    "[::ffff:203.0.113.1]",
    "[::ffff:10.9.8.2]",
    "[::127.0.0.1]",
    "[64:ff9b::7f00:1]",
    "[2002:7f00:1::1]",
    "[fe80::1]",
    "[fd00:9::1]",
    "[ff02::1]",
    "[2001:db8:9::1]",
    "lo.example.net",
    "own.example.net",
    "lan.example.net",
    "link.example.net",
    "any.example.net",
    "mixed.example.net",
    "turns.example.net",
    "127.0.0.1.",
    "127.65535",
    "017700000001",
    "0x7f.1",
    "00.0.0.0",
    "LocalHost.",
    "203.0.113.255",
    "169.254.169.254",
    "239.255.255.250",
    "[0:0:0:0:0:0:0:1]",
    "[::ffff:0.0.0.0]",
    "[::ffff:10.9.9.1]",
    "[64:ff9b::10.9.8.2]",
    "[2002:a09:802::1]",
    "[ff05::1]",
    "OWN.example.net.",
];

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// A service that must receive nothing.
struct Trap {
    tcp: TcpListener,
    udp: UdpSocket,
}

impl Trap {
    /// Opens a trap on all addresses of this network.
    fn inside(namespace: &Namespace) -> Self {
        let open = || {
            let (tcp, udp) = (TcpListener::bind(("::", TRAP))?, UdpSocket::bind(("::", TRAP))?);
            tcp.set_nonblocking(true)?;
            udp.set_nonblocking(true)?;
            Ok(Self { tcp, udp })
        };
        namespace.inside(open).expect("the port is free")
    }

    /// Returns the first connection or datagram, if any came.
    fn heard(&self) -> Option<String> {
        if let Ok((_, from)) = self.tcp.accept() {
            return Some(format!("a connection from {from}"));
        }
        let mut bytes = [0; 2_048];
        let length = self.udp.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }
}

/// A server with a public and a private address, a host in its private network, and a host on the Internet.
struct NatNetwork {
    server: Server,
    middle: Namespace,
    world: Namespace,
    lan: Namespace,
}

impl NatNetwork {
    fn new(lines: &str, inside: impl FnOnce(&Namespace) -> String) -> Self {
        let [middle, world, lan] = ["middle", "world", "lan"].map(Namespace::new);
        middle.join(("w0", "203.0.113.1/24"), &world, ("w1", "203.0.113.2/24"));
        middle.join(("l0", "10.9.8.1/24"), &lan, ("l1", "10.9.8.2/24"));
        middle.ip(&["address", "add", "10.9.9.1/32", "dev", "lo"]);
        middle.ip(&["address", "add", "169.254.7.7/16", "dev", "l0"]);
        middle.ip(&["-6", "address", "add", "2001:db8:9::1/64", "dev", "w0", "nodad"]);
        middle.ip(&["-6", "address", "add", "fd00:9::1/64", "dev", "l0", "nodad"]);
        let more = inside(&middle);
        let server = Setup::default()
            .listen(Transport::Udp, at("0.0.0.0:5060"))
            .listen(Transport::Tcp, at("0.0.0.0:5060"))
            .listen(Transport::Tls, at("0.0.0.0:5061"))
            .listen(Transport::Udp, at("[::]:5070"))
            .listen(Transport::Tcp, at("[::]:5070"))
            .listen(Transport::Tls, at("203.0.113.1:5062"))
            .with(&format!("domains = [\"example.org\"]\nserver.shards = 1\nban.enabled = false\n{lines}\n{more}"))
            .inside(&middle)
            .start();
        Self { server, middle, world, lan }
    }

    /// Connects a peer from the Internet.
    fn peer(&self, transport: Transport) -> Wire {
        let port = if transport == Transport::Tls { 5062 } else { 5060 };
        self.wire(&self.world, transport, (WORLD, SERVER), port)
    }

    fn wire(&self, of: &Namespace, transport: Transport, (from, to): (Ipv4Addr, Ipv4Addr), port: u16) -> Wire {
        let authority = self.server.authority();
        let authority = (transport == Transport::Tls).then_some(authority.as_path());
        let connect = || Wire::connect_from(transport, (from, 0).into(), (to, port).into(), authority);
        of.inside(connect).expect("the server takes connections")
    }
}

/// Returns the ways in which a MESSAGE can name a host and a port: its Request-URI, and a header line.
fn ways(host: &str, port: u16, transport: &str) -> Vec<(String, Option<String>)> {
    let there = format!("{host}:{port};transport={transport}");
    let uri = || "sip:x@far.example.com".to_owned();
    vec![
        (format!("sip:x@{there}"), None),
        (uri(), Some(format!("Route: <sip:{there};lr>"))),
        (uri(), Some(format!("Route: <sip:{there}>"))),
        (uri(), Some(format!("Route: <sip:203.0.113.1;lr>, <sip:{there};lr>"))),
        (format!("sip:x@far.example.com:{port};maddr={host};transport={transport}"), None),
    ]
}

fn message((uri, line): &(String, Option<String>), wire: &Wire) -> Request {
    let mut request = Request::new("MESSAGE", uri, wire.transport().name(), wire.local());
    request.headers.extend(line.clone());
    request.body = b"SET taken 1\r\nset taken 0 0 1\r\n1\r\n".to_vec();
    request
}

/// Sends many requests at once. Returns their statuses in the order of the requests.
fn statuses(wire: &mut Wire, requests: &[Request]) -> Vec<u16> {
    let mut said: BTreeMap<String, u16> = BTreeMap::new();
    for some in requests.chunks(40) {
        for request in some {
            wire.send(&request.bytes()).expect("the server takes messages");
        }
        while some.iter().any(|request| !said.contains_key(&request.call_id)) {
            let missing = || some.iter().find(|request| !said.contains_key(&request.call_id));
            let answer = wire.final_response(SOON).unwrap_or_else(|| panic!("no answer to {:#?}", missing()));
            let call_id = field(&answer, "Call-ID").expect("each response has one");
            said.insert(call_id, status(&answer).expect("a response"));
        }
    }
    requests.iter().map(|request| said[&request.call_id]).collect()
}

/// Waits until the server has handled every message sent before over this wire.
fn settle(wire: &mut Wire) {
    let options = Request::new("OPTIONS", "sip:203.0.113.1", wire.transport().name(), wire.local());
    wire.send(&options.bytes()).expect("the server takes messages");
    loop {
        let answer = wire.final_response(SOON).expect("the server answers");
        if field(&answer, "Call-ID").as_deref() == Some(&options.call_id) {
            return;
        }
    }
}

/// Settings that refuse nothing else: every refusal in a test is one of reach.
const OPEN: &str = "registrar.authenticate = false\nauth.calls = false\nproxy.relay_for = \"everyone\"";

fn names(namespace: &Namespace) -> Option<NameServer> {
    let ip = |text: &str| text.parse::<Ipv4Addr>().expect("an address");
    let a = |text: &str| Record::A(ip(text));
    let records = [
        ("lo.example.net", a("127.0.0.1")),
        ("own.example.net", a("203.0.113.1")),
        ("lan.example.net", a("10.9.8.2")),
        ("link.example.net", a("169.254.7.7")),
        ("any.example.net", a("0.0.0.0")),
        ("mixed.example.net", a("127.0.0.1")),
        ("mixed.example.net", a("203.0.113.2")),
        ("mixed.example.net", a("10.9.8.2")),
        ("turns.example.net", Record::Turns(vec![ip("203.0.113.2"), ip("127.0.0.1"), ip("10.9.8.2")])),
        ("_sip._udp.srv.example.net", Record::Srv(0, 0, TRAP, "lo.example.net".into())),
        ("_sip._tcp.srv.example.net", Record::Srv(0, 0, TRAP, "lo.example.net".into())),
        ("_sips._tcp.srv.example.net", Record::Srv(0, 0, TRAP, "lo.example.net".into())),
    ];
    let names = namespace.inside(|| Ok(NameServer::start(&records))).expect("a thread")?;
    // Each request causes a new query.
    names.set_lifetime(0);
    Some(names)
}

#[test]
fn no_target_of_a_peer_leads_to_what_is_no_sip_peer() {
    if !namespace::possible() {
        return;
    }
    let mut name_server = None;
    let place = NatNetwork::new(OPEN, |middle| {
        name_server = names(middle);
        name_server.as_ref().map(NameServer::line).unwrap_or_default()
    });
    if name_server.is_none() {
        return;
    }
    let traps = [&place.middle, &place.lan].map(Trap::inside);
    let heard = |what: &str| {
        let heard: Vec<String> = traps.iter().filter_map(Trap::heard).collect();
        assert!(heard.is_empty(), "{what}: {heard:?}");
    };
    for transport in [Transport::Udp, Transport::Tcp, Transport::Tls] {
        let mut peer = place.peer(transport);
        let ways = HOSTS.iter().flat_map(|host| ["udp", "tcp", "tls"].into_iter().flat_map(|by| ways(host, TRAP, by)));
        let services = ["udp", "tcp", "tls"].map(|by| (format!("sip:x@srv.example.net;transport={by}"), None));
        let ways: Vec<_> = ways.chain(services).collect();
        let requests: Vec<Request> = ways.iter().map(|way| message(way, &peer)).collect();
        let said = statuses(&mut peer, &requests);
        for (way, status) in ways.iter().zip(said) {
            assert!((400..600).contains(&status), "{way:?} {status}");
        }
        heard(transport.name());
    }
    let mut peer = place.peer(Transport::Udp);
    open_and_closed_ports_look_alike(&mut peer);
    for transport in [Transport::Udp, Transport::Tcp, Transport::Tls] {
        let [mut one, mut other] = [place.peer(transport), place.peer(transport)];
        registrations_lead_nowhere(&mut one, &mut other);
        heard(&format!("registrations by {}", transport.name()));
        calls_lead_nowhere(&mut one, &mut other);
        heard(&format!("calls by {}", transport.name()));
    }
    telephones_inside_are_reached(&place);
    heard("telephones");
    // An interface gains an address while the server runs.
    place.middle.ip(&["address", "add", "203.0.113.77/32", "dev", "w0"]);
    let is_refused = wait::until(SOON, || {
        let way = (format!("sip:x@203.0.113.77:{TRAP};transport=tcp"), None);
        peer.send(&message(&way, &peer).bytes()).expect("the server takes messages");
        settle(&mut peer);
        traps[0].heard().is_none()
    });
    assert!(is_refused, "the server does not see its new address");
}

fn open_and_closed_ports_look_alike(peer: &mut Wire) {
    for host in ["127.0.0.1", "203.0.113.1", "10.9.8.2", "localhost", "own.example.net"] {
        for by in ["udp", "tcp", "tls"] {
            for (open, closed) in ways(host, TRAP, by).iter().zip(ways(host, CLOSED, by)) {
                let start = Stopwatch::start();
                let said = statuses(peer, &[message(open, peer), message(&closed, peer)]);
                assert_eq!(said[0], said[1], "{open:?}");
                assert!(start.took().is_below(Duration::from_secs(2)), "{open:?}");
            }
        }
    }
}

/// The server follows a Contact and a Path when it gets a request for their user.
fn registrations_lead_nowhere(phone: &mut Wire, stranger: &mut Wire) {
    let mut users = 0;
    let own = phone.transport().name();
    for host in HOSTS {
        for by in ["udp", "tcp", "tls"] {
            let there = format!("{host}:{TRAP};transport={by}");
            for (contact, path) in [
                (format!("sip:m@{there}"), None),
                (format!("sip:m@far.example.com:{TRAP};maddr={host};transport={by}"), None),
                ("sip:m@203.0.113.77:9999".to_owned(), Some(format!("Path: <sip:{there};lr>"))),
                ("sip:m@203.0.113.77:9999".to_owned(), Some(format!("Path: <sip:{there}>"))),
            ] {
                users += 1;
                let user = format!("{own}{users}");
                let mut register = Request::register(&user, "example.org", &contact, own, phone.local());
                register.headers.push("Supported: path".into());
                register.headers.extend(path);
                // A registration that names the server itself is refused at once.
                phone.send(&register.bytes()).expect("the server takes messages");
                let said = phone.final_response(SOON).expect("the server answers");
                assert!([200, 400, 403].contains(&status(&said).expect("a response")), "{register:#?}");
                let way = (format!("sip:{user}@example.org"), None);
                stranger.send(&message(&way, stranger).bytes()).expect("the server takes messages");
            }
        }
        settle(stranger);
        phone.drain();
    }
}

/// Contact and Record-Route of either party, Refer-To.
fn calls_lead_nowhere(stranger: &mut Wire, bob: &mut Wire) {
    let by = stranger.transport().name();
    let own_contact = format!("sip:callee@{};transport={by}", bob.local());
    let register = Request::register("callee", "example.org", &own_contact, by, bob.local());
    assert_eq!(status(&exchange(bob, &register)), Some(200));
    let uri = "sip:callee@example.org";
    for host in HOSTS {
        let there = format!("{host}:{TRAP};transport=tcp");
        let (own, well) = (contact("caller", stranger), contact("callee", bob));
        for lines in [
            vec![format!("Contact: <sip:x@{there}>")],
            vec![format!("Contact: <sip:x@203.0.113.2:{TRAP};maddr={host}>")],
            vec![own.clone(), format!("Record-Route: <sip:{there};lr>")],
        ] {
            let mut call = Request::new("INVITE", uri, by, stranger.local());
            call.headers.extend(lines.clone());
            let (_, mut end) = set_up(stranger, bob, &call, false);
            bob.send(&end.request("INFO").bytes()).expect("the server takes messages");
            let said = [well.clone()];
            let said = if lines.len() == 1 { &lines[..] } else { &said[..] };
            let (mut end, _) = set_up_with(stranger, bob, &invite(uri, stranger), false, said);
            stranger.send(&end.request("ACK").bytes()).expect("the server takes messages");
            stranger.send(&end.request("INFO").bytes()).expect("the server takes messages");
            let refer = end.request("REFER").with(format!("Refer-To: <sip:x@{there}>"));
            stranger.send(&refer.bytes()).expect("the server takes messages");
            settle(bob);
            settle(stranger);
            bob.drain();
            stranger.drain();
        }
    }
}

/// Phones of the private network and of the machine itself are reached.
fn telephones_inside_are_reached(place: &NatNetwork) {
    let inside = Ipv4Addr::new(10, 9, 8, 2);
    for (of, from, to) in [
        (&place.lan, inside, Ipv4Addr::new(10, 9, 8, 1)),
        (&place.middle, Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST),
        (&place.middle, SERVER, SERVER),
    ] {
        let mut phone = place.wire(of, Transport::Udp, (from, to), 5060);
        let contact = format!("sip:in@{}", phone.local());
        let register = Request::register("in", "example.org", &contact, "udp", phone.local());
        assert_eq!(status(&exchange(&mut phone, &register)), Some(200));
        let mut stranger = place.peer(Transport::Udp);
        let request = message(&("sip:in@example.org".into(), None), &stranger);
        stranger.send(&request.bytes()).expect("the server takes messages");
        assert!(phone.request("MESSAGE", SOON).is_some(), "{from}");
        // Also by a neighbour whose request names the phone's address.
        let mut neighbour = place.wire(of, Transport::Udp, (from, to), 5060);
        let request = message(&(format!("sip:x@{}", phone.local()), None), &neighbour);
        neighbour.send(&request.bytes()).expect("the server takes messages");
        assert!(phone.request("MESSAGE", SOON).is_some(), "{from}");
        let mut end = Request { cseq: 2, ..register };
        end.headers = vec!["Contact: *".into(), "Expires: 0".into()];
        assert_eq!(status(&exchange(&mut phone, &end)), Some(200));
    }
}

/// Returns configuration lines of a cache at this server, whose host is a name.
fn cache(engine: &str, server: &Backend) -> String {
    let port = server.address().port();
    format!("[[cache]]\nname = \"shared\"\nengine = \"{engine}\"\nservers = [\"localhost:{port}\"]")
}

#[test]
fn caches_hear_of_no_peer_and_nobody_becomes_another_user() {
    if !namespace::possible() || !have(&[REDIS, MEMCACHED]) {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    for engine in ["redis", "memcached"] {
        let mut started = None;
        let lines = "store.cache = \"shared\"\nmetrics.listen = \"127.0.0.1:9060\"\nproxy.reachable = [\"0.0.0.0/0\"]";
        let place = NatNetwork::new(lines, |middle| {
            let start = || match engine {
                "redis" => backend::redis(folder.path()),
                _ => backend::memcached(folder.path()),
            };
            let backend = middle.inside(|| Ok(start().expect("it starts"))).expect("a thread");
            let lines = cache(engine, &backend);
            started = Some(backend);
            lines
        });
        let address = started.as_ref().expect("it was started").address();
        for user in ["ceo", "mallory"] {
            place.server.add_user(&format!("{user}@example.org"), user);
        }
        let ask = |line: &str| {
            let lines = [line];
            place.middle.inside(|| Ok(say(address, &lines).remove(0))).expect("a thread")
        };
        let loopback = (Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST);
        for mut wire in [
            place.peer(Transport::Udp),
            place.peer(Transport::Tcp),
            place.peer(Transport::Tls),
            place.wire(&place.middle, Transport::Tcp, loopback, 5060),
        ] {
            for port in [address.port(), 9060] {
                for host in ["127.0.0.1", "127.0.0.9", "203.0.113.1", "10.9.9.1", "[::ffff:127.0.0.1]", "localhost"] {
                    for way in ways(host, port, "tcp") {
                        let mut request = message(&way, &wire);
                        request.from = "<sip:mallory@example.org>;tag=m".into();
                        let request = challenged(&mut wire, &request, "mallory", "mallory");
                        let said = status(&exchange(&mut wire, &request)).expect("a response");
                        assert!((400..600).contains(&said) && said != 407, "{way:?} {said}");
                    }
                }
            }
        }
        match engine {
            "redis" => {
                assert_eq!(ask("GET taken"), "$-1\r\n");
                assert!(ask("INFO stats").contains("total_error_replies:0\r\n"));
            }
            _ => assert_eq!(ask("get taken"), "END\r\n"),
        }
        // No password of another user works; the user's own does.
        let mut wire = place.peer(Transport::Tcp);
        for (password, answer) in [("mallory", 401), ("ceo", 200)] {
            let register = Request::register("ceo", "example.org", "sip:ceo@203.0.113.2", "tcp", wire.local());
            let register = challenged(&mut wire, &register, "ceo", password);
            assert_eq!(status(&exchange(&mut wire, &register)), Some(answer), "{password}");
        }
    }
}
