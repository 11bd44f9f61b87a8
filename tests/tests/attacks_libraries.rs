//! Input that network libraries would log: TLS, WebSocket, HTTP and the resolver. The server's log has a bound for each
//! source and kind of line, which libraries do not observe.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

use strowger_tests::port::free_address;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::Request;
use strowger_tests::wire::Transport::{Tls, Udp, Ws, Wss};
use strowger_tests::wire::Wire;

/// Attempts of each kind.
const ATTEMPTS: usize = 400;
/// Most lines of the whole test. `log.refusals_per_minute` bounds the server's own lines.
const MOST_LINES: usize = 150;

/// Returns a ClientHello of TLS 1.2 with this server name (RFC 6066 section 3).
fn client_hello(name: &[u8]) -> Vec<u8> {
    let length = |bytes: &[u8]| u16::try_from(bytes.len()).expect("a short part").to_be_bytes();
    let vector = |bytes: &[u8]| [&length(bytes), bytes].concat();
    let name = [&[0], &*vector(name)].concat();
    let names = vector(&vector(&name));
    let extensions = [
        [&[0, 0], &*names].concat(),
        // Extensions supported_groups, signature_algorithms.
        [&[0, 10], &*vector(&vector(&[0, 29, 0, 23]))].concat(),
        [&[0, 13], &*vector(&vector(&[4, 3, 8, 4, 4, 1]))].concat(),
    ]
    .concat();
    let hello =
        [&[3, 3][..], &[7; 32], &[0], &vector(&[0xc0, 0x2b, 0xc0, 0x2f]), &[1, 0], &vector(&extensions)].concat();
    let handshake = [&[1, 0], &*vector(&hello)].concat();
    [&[22, 3, 1], &*vector(&handshake)].concat()
}

fn throw(address: SocketAddr, bytes: &[u8]) {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(Duration::from_secs(2))).expect("a time");
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    // Waits until the server has read it, and has closed.
    let _ = stream.read_to_end(&mut Vec::new());
}

/// Starts a name server with invalid answers; `None` if port 53 cannot be bound.
fn wrong_names() -> Option<IpAddr> {
    let address = Ipv4Addr::new(127, 54, std::process::id() as u8, (std::process::id() >> 8) as u8);
    let socket = UdpSocket::bind((address, 53)).ok()?;
    std::thread::spawn(move || {
        let mut question = [0; 2_000];
        while let Ok((length, from)) = socket.recv_from(&mut question) {
            let id = &question[..2];
            let wrong: [&[u8]; 5] = [
                b"",
                b"no answer",
                // The answer to another question; a truncated answer; an answer whose name is a loop.
                &[id, b"\x81\x80\0\x01\0\0\0\0\0\0\x05other\x04test\0\0\x01\0\x01"].concat(),
                &[id, b"\x81\x80\0\x01\0\x09\0\0\0\0"].concat(),
                &[id, b"\x81\x80\0\x01\0\x01\0\0\0\0\xc0\x0c\0\x01\0\x01\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04abcd"]
                    .concat(),
            ];
            for _ in 0..10 {
                for bytes in wrong {
                    let _ = socket.send_to(bytes, from);
                }
            }
            let _ = socket.send_to(&[id, &[0x81, 0x82], &question[4..length]].concat(), from);
        }
    });
    Some(address.into())
}

#[test]
fn no_library_logs_what_peers_send() {
    let (pages, orders) = (free_address(), free_address());
    let names =
        wrong_names().map_or_else(String::new, |names| format!("dns.servers = [\"{names}\"]\ndns.timeout = \"100ms\""));
    let lines = format!("metrics.listen = \"{pages}\"\ncontrol.listen = \"{orders}\"\n{names}\nban.enabled = false");
    let mut server = Setup::on(&[Udp, Tls, Ws, Wss]).relay().with(&lines).start();
    let before = server.log().lines().count();
    let upgrade = |key: &str| {
        format!(
            "GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Key: {key}\r\n\r\n"
        )
        .into_bytes()
    };
    let long = vec![b'!'; 14_000];
    for n in 0..ATTEMPTS {
        for secure in [server.address(Tls), server.address(Wss)] {
            throw(secure, &client_hello(b"10.99.0.1"));
            throw(secure, &client_hello(b"::1"));
            match n % 4 {
                0 => throw(secure, &client_hello(&long)),
                1 => throw(secure, &client_hello(b"")),
                2 => throw(secure, b"OPTIONS sip:x SIP/2.0\r\n\r\n"),
                // An early alert, and a record of unknown type.
                _ => throw(secure, b"\x15\x03\x03\0\x02\x02\x28\x63\x03\x03\0\x01\0"),
            }
        }
        match n % 4 {
            0 => throw(server.address(Ws), &upgrade("no key")),
            1 => throw(server.address(Ws), &[upgrade("dGhlIHNhbXBsZSBub25jZQ=="), vec![0xff; 200]].concat()),
            2 => throw(server.address(Ws), b"\0\x01\x02 HTTP/9\r\n\r\n"),
            _ => throw(server.address(Ws), &[b"GET / HTTP/1.1\r\n".as_slice(), &b"A: b\r\n".repeat(500)].concat()),
        }
        for http in [pages, orders] {
            match n % 3 {
                0 => throw(http, b"\x16\x03\x01\0\xff"),
                1 => throw(http, b"GET /\0 HTTP/1.1\r\nHost: \xff\r\n\r\n"),
                _ => throw(http, b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nzz\r\n"),
            }
        }
        if n % 10 == 0 {
            let wire = &mut server.connect(Udp);
            let request = Request::new("MESSAGE", &format!("sip:x@name{n}.test"), "udp", wire.local());
            wire.send(&request.bytes()).expect("loopback takes it");
        }
    }
    server.assert_answers(Udp);
    let log = server.log();
    let lines: Vec<&str> = log.lines().skip(before).collect();
    assert!(lines.len() < MOST_LINES, "{} lines:\n{}", lines.len(), lines[..MOST_LINES].join("\n"));
}

/// Returns the server's processor time for one message, sent `times` times by UDP. Discards answers.
fn cost(server: &mut Server, wire: &mut Wire, times: u32, message: impl Fn() -> Vec<u8>) -> Duration {
    let before = server.process().cpu();
    for _ in 0..times {
        wire.send(&message()).expect("loopback takes it");
        // The datagrams are sent one at a time: datagrams that the socket cannot hold would cost nothing.
        let _ = wire.receive(Duration::from_millis(20));
    }
    (server.process().cpu() - before) / times
}

#[test]
fn a_long_user_agent_costs_no_more_than_another_long_line() {
    let mut server = Setup::on(&[Udp]).with("domains = [\"example.org\"]\nban.exempt = []").start();
    let mut wire = server.connect(Udp);
    let here = wire.local();
    let with = |name: &str| {
        let name = name.to_owned();
        move || {
            Request::new("OPTIONS", "sip:example.org", "udp", here)
                .with(format!("{name}: {}", "s".repeat(60_000)))
                .bytes()
        }
    };
    let other = cost(&mut server, &mut wire, 200, with("X-Other"));
    let agent = cost(&mut server, &mut wire, 200, with("User-Agent"));
    // Processor time is measured in steps of 10 ms, which are 50 us for each of 200.
    assert!(agent < other * 3 / 2 + Duration::from_micros(200), "{agent:?} against {other:?}");
}
