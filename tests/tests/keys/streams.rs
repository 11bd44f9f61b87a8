//! Bounds of connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use strowger_tests::text::Request;
use strowger_tests::wire::Transport::{Tcp, Udp};
use strowger_tests::wire::Wire;

use super::{SOON, ask, code, open, request, send};

#[test]
fn so_many_connections_are_taken() {
    let server = open("limits.connections = 2");
    let mut wires: Vec<Wire> = (0..3).map(|_| server.connect(Tcp)).collect();
    assert!(wires.pop().expect("the third").closes(SOON));
    assert!(wires.iter_mut().all(|wire| !wire.is_closed()));

    let server = open("limits.connections_per_source = 2");
    let mut wires: Vec<Wire> = (0..3).map(|_| server.connect(Tcp)).collect();
    let elsewhere = SocketAddr::from((Ipv4Addr::new(127, 0, 0, 2), 0));
    let other = Wire::connect_from(Tcp, elsewhere, server.address(Tcp), None);
    assert!(wires.pop().expect("the third").closes(SOON));
    assert!(!other.expect("loopback takes it").closes(Duration::from_millis(100)));
}

#[test]
fn idle_connections_end() {
    let server = open("limits.idle_connection_timeout = \"2s\"");
    let begun = Instant::now();
    let mut idle = server.connect(Tcp);
    assert!(idle.closes(SOON));
    assert!(begun.elapsed() >= Duration::from_millis(1_900), "{:?}", begun.elapsed());
}

/// A stranger has its answer first; a phone stays until its registration ends.
#[test]
fn connections_of_strangers_end_and_those_of_phones_stay() {
    let server = open("limits.unregistered_connection_timeout = \"1s\"");
    let mut phone = server.connect(Tcp);
    let contact = format!("sip:bob@{};transport=tcp", phone.local());
    let register = Request::register("bob", "example.org", &contact, "tcp", phone.local());
    assert_eq!(code(&ask(&mut phone, &register)), 200);
    let mut stranger = server.connect(Tcp);
    let options = request(&stranger, "OPTIONS", &format!("sip:{}", server.address(Udp)));
    assert_eq!(code(&ask(&mut stranger, &options)), 200);
    assert!(stranger.closes(SOON));
    assert!(!phone.closes(Duration::from_secs(2)));
    let options = request(&phone, "OPTIONS", &format!("sip:{}", server.address(Udp)));
    assert_eq!(code(&ask(&mut phone, &options)), 200);
}

/// A phone that does not read: bytes that the kernel does not accept wait in the server, up to the bound.
#[test]
fn so_many_bytes_wait_for_a_slow_peer() {
    // Neither the missing answers nor the single source may trigger another limit before.
    let more = "limits.connection_memory_per_source = \"256MiB\"\nlimits.request_memory_per_source = \"256MiB\"";
    let server = open(&format!("proxy.udp_to_tcp_above = \"never\"\n{more}"));
    // The kernel's buffer should be small.
    let phone = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    phone.set_recv_buffer_size(4_096).expect("a socket can be set");
    phone.connect(&server.address(Tcp).into()).expect("the server takes it");
    let mut phone = TcpStream::from(phone);
    let here = phone.local_addr().expect("it is connected");
    let contact = format!("sip:bob@{here};transport=tcp");
    let register = Request::register("bob", "example.org", &contact, "tcp", here);
    phone.write_all(&register.bytes()).expect("the server takes it");
    let mut answer = [0; 4_096];
    let length = phone.read(&mut answer).expect("an answer");
    assert_eq!(code(&answer[..length]), 200);

    let mut caller = server.connect(Tcp);
    for _ in 0..140 {
        let mut message = request(&caller, "MESSAGE", "sip:bob@example.org");
        message.body = vec![b'x'; 60_000];
        send(&mut caller, &message);
    }
    // The server has read all earlier messages.
    let options = request(&caller, "OPTIONS", &format!("sip:{}", server.address(Udp)));
    assert_eq!(code(&ask(&mut caller, &options)), 200);
    // All bytes, or those before the end.
    phone.set_read_timeout(Some(Duration::from_millis(200))).expect("a socket can be set");
    let mut read = 0;
    let mut piece = vec![0; 1 << 20];
    while let Ok(length @ 1..) = phone.read(&mut piece) {
        read += length;
    }
    assert!(read < 140 * 60_000, "{read} bytes\n{}", server.log());
}
