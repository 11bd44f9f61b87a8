//! Bounds of connections.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use socket2::{Domain, Socket, Type};
use strowger_tests::server::Setup;
use strowger_tests::text::Request;
use strowger_tests::wire::Transport::{Tcp, Tls, Udp};
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
fn connections_end_that_keep_the_server_waiting() {
    let lines = "limits.partial_message_timeout = \"200ms\"\nlimits.handshake_timeout = \"300ms\"\n\
                 limits.idle_connection_timeout = \"2s\"";
    let server = Setup::on(&[Udp, Tcp, Tls]).open_registrar().in_memory().with(lines).start();
    let begun = Instant::now();
    let mut idle = server.connect(Tcp);
    let mut half = server.connect(Tcp);
    half.send(b"OPTIONS sip:example.org SIP/2.0\r\n").expect("the server takes it");
    let mut silent = TcpStream::connect(server.address(Tls)).expect("the server takes it");
    silent.set_read_timeout(Some(SOON)).expect("a socket can be set");
    assert!(half.closes(SOON));
    // The TLS alert at the end comes before that.
    assert!(silent.read_to_end(&mut Vec::new()).is_ok());
    assert!(begun.elapsed() < Duration::from_millis(1_900), "{:?}", begun.elapsed());
    assert!(idle.closes(SOON));
    assert!(begun.elapsed() >= Duration::from_millis(1_900), "{:?}", begun.elapsed());
}

/// The kernel drops connection requests of a listener with a full queue.
#[test]
fn a_connection_must_be_made_in_time() {
    let server = open("limits.connect_timeout = \"200ms\"");
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    listener.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).expect("loopback has ports");
    listener.listen(0).expect("it can listen");
    let there = listener.local_addr().expect("it is bound").as_socket().expect("an address");
    let _waiting = TcpStream::connect(there).expect("one finds room");
    let mut caller = server.connect(Tcp);
    let message = request(&caller, "MESSAGE", &format!("sip:x@{there};transport=tcp"));
    let begun = Instant::now();
    send(&mut caller, &message);
    assert!(code(&caller.final_response(SOON).expect("an answer")) >= 500);
    assert!(begun.elapsed() < Duration::from_secs(3), "by default it takes five seconds: {:?}", begun.elapsed());
}

/// A phone that does not read: bytes that the kernel does not accept wait in the server, up to the bound.
#[test]
fn so_many_bytes_wait_for_a_slow_peer() {
    for (queue, closed) in [("4KiB", true), ("64MiB", false)] {
        // Neither the missing answers nor the single source may trigger another limit before.
        let more = "limits.connection_memory_per_source = \"256MiB\"\nlimits.request_memory_per_source = \"256MiB\"";
        let lines = format!("limits.connection_queue = \"{queue}\"\nproxy.udp_to_tcp_above = \"never\"\n{more}");
        let server = open(&lines);
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
        assert_eq!(read < 140 * 60_000, closed, "{queue}: {read} bytes\n{}", server.log());
    }
}
