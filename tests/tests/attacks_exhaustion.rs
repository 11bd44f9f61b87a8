//! Attacks on the resources of the server: its memory, its connections, its processor.
//!
//! With the default limits, unless a case sets others.

mod crowd;
mod websocket;

use self::crowd::{closed, crowd, half_message, is_closed};
use self::websocket::{CONTINUATION, TEXT, frame, upgrade, websocket};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use strowger_tests::stopwatch::Stopwatch;
use strowger_tests::wait;

use strowger_tests::account;
use strowger_tests::call::exchange;
use strowger_tests::name_server::{NameServer, Record};
use strowger_tests::namespace::{self, Namespace};
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, respond, status};
use strowger_tests::wire::Transport::{self, Tcp, Tls, Udp, Ws};
use strowger_tests::wire::Wire;

const LIMIT: Duration = Duration::from_secs(10);
const PASSWORD: &str = "a password";
const LARGE: usize = 60_000;
/// Memory bound of one source.
const SHARE: u64 = 64 << 20;

fn start(transports: &[Transport], lines: &str) -> Server {
    let server = Setup::on(transports).with("domains = [\"example.org\"]").with(lines).start();
    server.add_user("bob@example.org", PASSWORD);
    server
}

fn from(server: &Server, transport: Transport, last: u8) -> Wire {
    let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)), 0);
    Wire::connect_from(transport, address, server.address(transport), None).expect("loopback takes it")
}

/// Returns the growth of the server's memory during the work.
fn grew(server: &mut Server, work: impl FnOnce(&mut Server)) -> u64 {
    let before = server.process().pss();
    work(server);
    server.process().pss().saturating_sub(before)
}

// Memory held by the connections of one source.

#[test]
fn half_messages_of_one_source_take_no_more_than_its_share() {
    let mut server = start(&[Udp, Tcp], "");
    let address = server.address(Tcp);
    let grew = grew(&mut server, |_| {
        let mut all = crowd(address, 1_500, &half_message(LARGE));
        assert!(closed(&mut all, 500) >= 500, "a thousand of them fit into no share");
    });
    assert!(grew < SHARE, "{grew} bytes");
    // Other sources are served meanwhile, and this source too after it has closed its connections.
    server.assert_answers(Tcp);
    let mut other = from(&server, Tcp, 2);
    other.send(&Request::new("OPTIONS", "sip:example.org", "tcp", other.local()).bytes()).expect("loopback");
    assert!(other.final_response(LIMIT).is_some());
}

#[test]
fn websocket_fragments_of_one_source_take_no_more_than_its_share() {
    let mut server = start(&[Udp, Ws], "");
    let address = server.address(Ws);
    let bytes = [upgrade(address), frame(TEXT, &vec![b'x'; LARGE])].concat();
    let grew = grew(&mut server, |_| {
        let mut all = crowd(address, 1_500, &bytes);
        assert!(closed(&mut all, 500) >= 500);
    });
    assert!(grew < SHARE, "{grew} bytes");
}

#[test]
fn half_tls_handshakes_of_one_source_take_no_more_than_its_share() {
    let mut server = start(&[Udp, Tls], "");
    let address = server.address(Tls);
    // The beginning of a record of 16 KB, with a handshake message of the same length.
    let mut record = vec![22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xfc, 3, 3];
    record.resize(16_000, 0);
    let grew = grew(&mut server, |_| {
        let mut all = crowd(address, 1_500, &record);
        assert!(closed(&mut all, 500) >= 500);
    });
    assert!(grew < SHARE, "{grew} bytes");
}

#[test]
fn answers_that_one_source_does_not_read_take_no_more_than_its_share() {
    // A second thread, started by so many requests, would need memory of its own.
    let mut server = start(&[Udp, Tcp], "server.shards = 1");
    let address = server.address(Tcp);
    let local = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 5_060);
    let mut bytes = Vec::new();
    while bytes.len() < 4 << 20 {
        let request = Request::new("OPTIONS", "sip:example.org", "tcp", local);
        bytes.extend_from_slice(&request.with(format!("Subject: {}", "s".repeat(200))).bytes());
    }
    let mut held = Vec::new();
    let grew = grew(&mut server, |_| held = crowd(address, 100, &bytes));
    assert!(grew < SHARE, "{grew} bytes");
    drop(held);
    server.assert_answers(Tcp);
}

#[test]
fn connections_from_one_ipv6_network_are_those_of_one_source() {
    if !namespace::possible() {
        return;
    }
    let net = Namespace::new("crowd");
    let sysctl = net.command().args(["sysctl", "-q", "-w", "net.ipv6.ip_nonlocal_bind=1"]).status();
    assert!(sysctl.is_ok_and(|status| status.success()));
    net.ip(&["-6", "route", "add", "local", "2001:db8::/32", "dev", "lo"]);
    let address: SocketAddr = "[2001:db8:ffff::1]:5060".parse().expect("an address");
    let lines = "domains = [\"example.org\"]\nlimits.connections_per_source = 5";
    let server = Setup::default().listen(Tcp, address).with(lines).in_memory().inside(&net).start();
    let open = |text: String| {
        let from: SocketAddr = text.parse().expect("an address");
        net.inside(|| Wire::connect_from(Tcp, from, address, None)).expect("the route is there")
    };
    let served = |wire: &mut Wire| {
        let sent = wire.send(&Request::new("OPTIONS", "sip:example.org", "tcp", wire.local()).bytes());
        sent.is_ok() && wire.final_response(Duration::from_secs(2)).is_some()
    };
    let mut one: Vec<Wire> = (1..=12).map(|n| open(format!("[2001:db8:1:2::{n:x}]:0"))).collect();
    assert_eq!(one.iter_mut().filter_map(|wire| served(wire).then_some(())).count(), 5, "{}", server.log());
    assert!(served(&mut open("[2001:db8:1:3::1]:0".into())), "the network beside it");
}

/// Bound of bytes for all sources together.
#[test]
fn half_messages_of_many_sources_take_no_more_than_all_may() {
    let server = start(&[Udp, Tcp], "limits.connection_memory = \"1 MiB\"");
    let mut all: Vec<Wire> = (0..40).map(|n| from(&server, Tcp, 2 + n)).collect();
    for wire in &mut all {
        let _ = wire.send(&half_message(LARGE));
    }
    let mut open = || all.iter_mut().filter_map(|wire| (!wire.is_closed()).then_some(())).count();
    wait::until(LIMIT, || open() <= 17);
    let left = open();
    assert!((10..=17).contains(&left), "{left} of 60 kB each in 1 MiB");
}

#[test]
fn the_share_of_a_source_is_a_setting() {
    let server = start(&[Udp, Tcp], "limits.connection_memory_per_source = \"1 MiB\"");
    let mut all = crowd(server.address(Tcp), 40, &half_message(LARGE));
    let closed = closed(&mut all, 23);
    assert!((23..=30).contains(&closed), "{closed} of 40 were closed");
    // Another source has a share of its own.
    let mut other = from(&server, Tcp, 2);
    other.send(&half_message(LARGE)).expect("the server reads");
    assert!(!other.is_closed());
}

// Messages without an end.

/// Longest time of the server from the first byte of a message until it is complete.
const PARTIAL: Duration = Duration::from_secs(30);

#[test]
fn fragments_of_websocket_do_not_put_off_the_end_of_a_message() {
    let server = start(&[Udp, Ws], "");
    let address = server.address(Ws);
    let ends = |first: &[u8], further: &[u8]| {
        let mut stream = websocket(address);
        let since = Stopwatch::start();
        stream.write_all(&frame(TEXT, first)).expect("the server reads");
        while is_closed(&mut stream).is_none() {
            assert!(since.took().is_below(PARTIAL + Duration::from_secs(5)), "{first:?} {further:?}: it is still open");
            // Fragments at intervals.
            std::thread::sleep(Duration::from_millis(200));
            let _ = stream.write_all(&frame(CONTINUATION, further));
        }
        assert!(since.elapsed() + Duration::from_secs(1) >= PARTIAL, "{:?}", since.elapsed());
    };
    // The first fragment full or empty, then further ones, each with a byte or empty.
    std::thread::scope(|scope| {
        for (first, further) in [(&b"x"[..], &b"x"[..]), (b"x", b""), (b"", b""), (b"", b"x")] {
            scope.spawn(move || ends(first, further));
        }
    });
}

#[test]
fn a_header_that_comes_byte_by_byte_ends_in_time() {
    let server = start(&[Udp, Tcp], "");
    let mut stream = TcpStream::connect(server.address(Tcp)).expect("the server listens");
    let since = Stopwatch::start();
    let mut text = half_message(1_000).into_iter();
    while is_closed(&mut stream).is_none() {
        assert!(since.took().is_below(PARTIAL + Duration::from_secs(5)), "it is still open");
        let _ = stream.write_all(&[text.next().expect("a thousand bytes take longer")]);
        // Bytes at intervals.
        std::thread::sleep(Duration::from_millis(100));
    }
}

// Requests in memory.

/// Registers a phone that rings for ever.
fn ringing(server: &Server) -> Wire {
    let mut phone = server.connect(Tcp);
    account::register(&mut phone, "bob", PASSWORD);
    phone
}

fn large(method: &str, uri: &str, wire: &Wire) -> Request {
    let request = Request::new(method, uri, wire.transport().name(), wire.local());
    request.with(format!("X: {}", "x".repeat(LARGE)))
}

#[test]
fn large_requests_of_one_source_to_a_phone_that_rings_take_no_more_than_its_share() {
    let mut server = start(&[Udp, Tcp], "");
    let mut phone = ringing(&server);
    let mut caller = server.connect(Tcp);
    let (mut refused, mut rang) = (0, 0);
    let grew = grew(&mut server, |_| {
        for _ in 0..700 {
            caller.send(&large("INVITE", "sip:bob@example.org", &caller).bytes()).expect("the server reads");
            match caller.receive(LIMIT).as_deref().and_then(status) {
                Some(503) => refused += 1,
                code => {
                    assert_eq!(code, Some(100));
                    rang += 1;
                    assert!(phone.request("INVITE", LIMIT).is_some());
                }
            }
        }
    });
    assert!(refused > 200 && rang > 50, "{rang} rang, {refused} were refused");
    assert!(grew < SHARE, "{grew} bytes");
    // Another source can still call.
    let mut other = from(&server, Tcp, 2);
    other.send(&Request::new("INVITE", "sip:bob@example.org", "tcp", other.local()).bytes()).expect("loopback");
    let request = phone.request("INVITE", LIMIT).expect("it rings");
    phone.send(&respond(&request, 486, "t", &[])).expect("loopback");
    assert_eq!(other.final_response(LIMIT).as_deref().and_then(status), Some(486));
}

#[test]
fn requests_of_many_sources_take_no_more_than_all_may() {
    let server = start(&[Udp, Tcp], "limits.request_memory_of_all = \"1 MiB\"");
    let mut phone = ringing(&server);
    let mut rang = 0;
    // Sources of UDP may be forged, so together they may use only half; other sources keep the other half.
    for (transport, all) in [(Udp, 6..=8), (Tcp, 14..=17)] {
        let mut callers: Vec<Wire> = (0..8).map(|n| from(&server, transport, 2 + n)).collect();
        for n in 0..40 {
            let caller = &mut callers[n % 8];
            caller.send(&large("INVITE", "sip:bob@example.org", caller).bytes()).expect("the server reads");
            let code = caller.receive(LIMIT).as_deref().and_then(status);
            if code == Some(100) {
                rang += 1;
                assert!(phone.request("INVITE", LIMIT).is_some());
            } else {
                assert_eq!(code, Some(503));
            }
        }
        assert!(all.contains(&rang), "{rang} of 60 kB each in 1 MiB, the last by {transport:?}");
    }
}

/// Each answer returns memory to the share of the source.
#[test]
fn requests_that_are_answered_do_not_count_against_a_source() {
    let server = start(&[Udp, Tcp], "limits.request_memory_per_source = \"256 KiB\"");
    let mut phone = ringing(&server);
    let mut caller = server.connect(Tcp);
    for n in 0..40 {
        caller.send(&large("MESSAGE", "sip:bob@example.org", &caller).bytes()).expect("the server reads");
        let request = phone.request("MESSAGE", LIMIT).unwrap_or_else(|| panic!("request {n} is refused"));
        phone.send(&respond(&request, 200, "t", &[])).expect("loopback");
        assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(200));
    }
}

/// The largest requests are not stored whole. Yet each of them can be cancelled, and its final response can be
/// acknowledged.
#[test]
fn one_large_request_that_rings_takes_no_more_than_64_kb() {
    let mut server = start(&[Udp, Tcp], "");
    let mut phone = ringing(&server);
    let mut callers = [2, 3, 4].map(|last| from(&server, Udp, last));
    let mut call = |caller: &mut Wire| {
        let invite = large("INVITE", "sip:bob@example.org", caller);
        caller.send(&invite.bytes()).expect("loopback takes it");
        let request = phone.request("INVITE", LIMIT).expect("it rings");
        phone.send(&respond(&request, 180, "t", &[])).expect("loopback");
        assert_eq!(caller.answer(LIMIT).as_deref().and_then(status), Some(180));
        (invite, request)
    };
    // Memory that is allocated once.
    (0..5).for_each(|_| drop(call(&mut callers[0])));
    let grew = grew(&mut server, |_| (0..300).for_each(|n| drop(call(&mut callers[n % 3]))));
    assert!(grew <= 300 * (64 << 10), "{grew} bytes of 300 requests");
    let (invite, request) = call(&mut callers[0]);
    callers[0].send(&invite.cancel().bytes()).expect("loopback takes it");
    assert!(phone.request("CANCEL", LIMIT).is_some());
    phone.send(&respond(&request, 487, "t", &[])).expect("loopback");
    assert!(phone.request("ACK", LIMIT).is_some());
    // The first final response answers the CANCEL.
    let codes = [(); 2].map(|()| callers[0].final_response(LIMIT).as_deref().and_then(status));
    assert_eq!(codes, [Some(200), Some(487)]);
}

/// Answers of the server itself copy From, To and Call-ID: the sender chooses their length.
#[test]
fn long_answers_to_one_source_take_no_more_than_its_share() {
    let mut server = start(&[Udp], "");
    let mut caller = server.connect(Udp);
    let long = format!("<sip:x@example.net;p={}>;tag=1", "x".repeat(55_000));
    let cases = [
        ("OPTIONS", "sip:example.org", "", 200),
        ("INVITE", "sip:x@far.example", ";tag=2", 407),
        ("MESSAGE", "sip:x@far.example", ";tag=2", 407),
        ("BYE", "sip:nobody@example.org", ";tag=2", 404),
    ];
    let grew = grew(&mut server, |_| {
        for (method, uri, tag, code) in cases.iter().cycle().take(2_000) {
            let mut request = Request::new(method, uri, "udp", caller.local());
            request.from.clone_from(&long);
            request.to.push_str(tag);
            caller.send(&request.bytes()).expect("loopback");
            assert_eq!(caller.final_response(LIMIT).as_deref().and_then(status), Some(*code), "{method}");
        }
    });
    assert!(grew < SHARE, "{grew} bytes");
}

/// A phone in league with the attacker sends long answers to small requests.
#[test]
fn long_responses_of_a_phone_take_no_more_than_the_share_of_the_caller() {
    for (method, code) in [("INVITE", 183), ("INVITE", 486), ("MESSAGE", 200)] {
        let mut server = start(&[Udp, Tcp], "");
        let mut phone = ringing(&server);
        let mut caller = server.connect(Udp);
        let grew = grew(&mut server, |_| {
            let open: Vec<Vec<u8>> = (0..1_400)
                .map(|_| {
                    let request = Request::new(method, "sip:bob@example.org", "udp", caller.local());
                    caller.send(&request.bytes()).expect("loopback");
                    phone.request(method, LIMIT).expect("it rings")
                })
                .collect();
            caller.drain();
            for request in &open {
                let long = format!("X: {}", "x".repeat(58_000));
                phone.send(&respond(request, code, "t", &[long])).expect("the server reads");
                // The response arrives at the caller, whether the server stores it or not.
                assert_eq!(caller.answer(LIMIT).as_deref().and_then(status), Some(code));
            }
        });
        assert!(grew < SHARE, "{grew} bytes with {code} to {method}");
    }
}

/// A large request rings fewer phones at once; the largest request rings one phone at a time.
#[test]
fn a_large_request_to_many_phones_is_kept_as_often_as_may_be() {
    for (bytes, rings) in [(1_000, 5), (40_000, 1)] {
        let server = Setup::on(&[Udp, Tcp]).open_registrar().in_memory().start();
        let mut phones: Vec<Wire> = (0..5).map(|_| server.connect(Tcp)).collect();
        for phone in &mut phones {
            let contact = format!("sip:bob@{};transport=tcp", phone.local());
            let request = Request::register("bob", "example.org", &contact, "tcp", phone.local());
            assert_eq!(status(&exchange(phone, &request)), Some(200));
        }
        let mut caller = server.connect(Tcp);
        let request = Request::new("INVITE", "sip:bob@example.org", "tcp", caller.local());
        caller.send(&request.with(format!("X: {}", "x".repeat(bytes))).bytes()).expect("the server reads");
        let end = Instant::now() + Duration::from_millis(800);
        let rang = phones
            .iter_mut()
            .filter_map(|phone| {
                phone.request("INVITE", end.saturating_duration_since(Instant::now()).max(Duration::from_millis(50)))
            })
            .count();
        assert_eq!(rang, rings, "{bytes} bytes");
    }
}

/// Names without an answer of a name server: their requests wait for the longest time of a look-up.
#[test]
fn requests_that_wait_for_names_take_no_more_than_their_bound() {
    let Some(names) = NameServer::start(&[("silent.test", Record::Silent(1)), ("silent.test", Record::Silent(28))])
    else {
        return;
    };
    let lines = format!("domains = []\nproxy.relay_for = \"everyone\"\n{}\n", names.line());
    let bound = "limits.request_memory_per_source = \"1 MiB\"";
    let server = Setup::on(&[Udp, Tcp]).with(&lines).with(bound).in_memory().start();
    let mut caller = server.connect(Tcp);
    // Only one shard runs until it is overloaded, so this shard has the whole bound.
    for _ in 0..40 {
        caller.send(&large("MESSAGE", "sip:x@silent.test:5060", &caller).bytes()).expect("the server reads");
    }
    let early = std::iter::from_fn(|| caller.final_response(Duration::from_secs(1)));
    let refused = early.filter(|answer| status(answer) == Some(503)).count();
    assert!((22..=24).contains(&refused), "{refused} of 40 were refused");
}

/// All messages belong to one call, and wait for the first message of this call.
#[test]
fn messages_that_wait_behind_another_of_their_call_take_no_more_than_their_bound() {
    let Some(names) = NameServer::start(&[("silent.test", Record::Silent(1)), ("silent.test", Record::Silent(28))])
    else {
        return;
    };
    let lines = format!("domains = []\nproxy.relay_for = \"everyone\"\n{}", names.line());
    let mut server = Setup::on(&[Udp, Tcp]).with(&lines).in_memory().start();
    let mut caller = server.connect(Tcp);
    let first = large("MESSAGE", "sip:x@silent.test:5060", &caller);
    let grew = grew(&mut server, |_| {
        for n in 0..1_500 {
            let mut request = first.clone();
            (request.cseq, request.branch) = (n + 1, format!("z9hG4bK{n}"));
            caller.send(&request.bytes()).expect("the server reads");
        }
        caller.send(b"\r\n\r\n").expect("the server reads");
        caller.drain();
    });
    assert!(grew < SHARE, "{grew} bytes");
}

// Processor time.

#[test]
fn a_registration_of_thousands_of_contacts_is_refused() {
    let server = start(&[Udp, Tcp], "");
    let mut wire = server.connect(Tcp);
    account::register(&mut wire, "bob", PASSWORD);
    let contacts: Vec<String> = (0..1_500).map(|n| format!("<sip:a@192.0.2.1;n={n}>;expires=0")).collect();
    let asks = |wire: &Wire, n: usize| {
        let mut request = Request::register("bob", "example.org", "sip:x", "tcp", wire.local());
        request.headers = vec![format!("Contact: {}", contacts[..n].join(", "))];
        request
    };
    for (n, code) in [(41, 403), (40, 200)] {
        let request = {
            let asked = asks(&wire, n);
            account::challenged(&mut wire, &asked, "bob", PASSWORD)
        };
        assert_eq!(status(&exchange(&mut wire, &request)), Some(code), "{n} contacts");
    }
    // The server does not even read such a request to its end.
    let request = asks(&wire, contacts.len());
    assert_eq!(status(&exchange(&mut wire, &request)), Some(400));
}

#[test]
fn ten_thousand_requests_in_one_breath_are_answered_and_leave_nothing() {
    let mut server = start(&[Udp, Tcp], "");
    let mut wire = server.connect(Tcp);
    let grew = grew(&mut server, |_| {
        let all: Vec<u8> =
            (0..200).flat_map(|_| Request::new("OPTIONS", "sip:example.org", "tcp", wire.local()).bytes()).collect();
        for _ in 0..50 {
            wire.send(&all).expect("the server reads");
            for n in 0..200 {
                assert!(wire.final_response(LIMIT).is_some(), "answer {n}");
            }
        }
    });
    assert!(grew < 32 << 20, "{grew} bytes");
}

#[test]
fn keep_alives_without_end_are_answered_and_kept_nowhere() {
    let mut server = start(&[Udp, Tcp], "");
    let mut stream = TcpStream::connect(server.address(Tcp)).expect("the server listens");
    let grew = grew(&mut server, |_| {
        let pings = b"\r\n\r\n".repeat(1_000);
        let mut pongs = vec![0; 2_000];
        for _ in 0..100 {
            stream.write_all(&pings).expect("the server reads");
            stream.read_exact(&mut pongs).expect("a pong for each");
        }
    });
    assert!(grew < 8 << 20, "{grew} bytes");
}
