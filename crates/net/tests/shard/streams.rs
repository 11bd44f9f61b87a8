//! Messages over connections.

mod peers;

pub(crate) use self::peers::{ask, connect, counted, ends, expect, refusing, udp};

use self::peers::V4;
use crate::echo::{bounds, settings};
use crate::relay::{Relay, listener, message, start};
use socket2::SockRef;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};
use strowger_core::Transport::{Tcp, Tls, Udp, Ws, Wss};
use strowger_net::{Bounds, Listener, NetSettings, Node, tls};

#[test]
fn messages_come_in_any_pieces() {
    let node = start(settings(1), vec![listener(Tcp, V4), listener(Tcp, "[::1]:0")]);
    for &address in node.handle().addresses() {
        let mut stream = connect(address);
        let one = message("A", "1", 10);
        for byte in one.as_bytes() {
            stream.write_all(&[*byte]).unwrap();
            // The pause makes each byte arrive alone.
            std::thread::sleep(Duration::from_micros(200));
        }
        expect(&mut stream, one.as_bytes());
        let many: String = (0..500).map(|i| message("B", &i.to_string(), i % 70)).collect();
        stream.write_all(many.as_bytes()).unwrap();
        expect(&mut stream, many.as_bytes());
        let large = message("C", "3", 60_000);
        stream.write_all(large.as_bytes()).unwrap();
        expect(&mut stream, large.as_bytes());
        // Keep-alives (RFC 5626 section 4.4.1): a ping in two halves, a stray line end, then a message.
        stream.write_all(b"\r\n\r").unwrap();
        std::thread::sleep(Duration::from_millis(5));
        stream.write_all(b"\n").unwrap();
        expect(&mut stream, b"\r\n");
        stream.write_all(format!("\r\n{one}").as_bytes()).unwrap();
        expect(&mut stream, one.as_bytes());
    }
    counted(&node, |t| t.tcp_connections, 0);
    let total = node.handle().total();
    assert_eq!((total.accepted, total.pings, total.stream_messages_in), (2, 2, 1_006));
    assert_eq!(total.stream_bytes_waiting, 0);
}

#[test]
fn what_cannot_be_cut_ends_the_connection() {
    let node = start(settings(1), vec![listener(Tcp, V4)]);
    let mut stream = connect(node.handle().addresses()[0]);
    stream.write_all(b"A SIP/2.0\r\nContent-Length: many\r\n\r\n").unwrap();
    ends(&mut stream);
    let mut stream = connect(node.handle().addresses()[0]);
    stream.write_all(b"A SIP/2.0\r\nContent-Length: 70000\r\n\r\n").unwrap();
    ends(&mut stream);
    counted(&node, |t| t.frames_broken, 2);
}

#[test]
fn limits_and_timeouts_end_connections() {
    let node = start(
        NetSettings {
            bounds: Bounds {
                connections_per_source: 2,
                partial_timeout: Duration::from_millis(300),
                idle_timeout: Duration::from_millis(700),
                ..bounds()
            },
            ..settings(1)
        },
        vec![listener(Tcp, V4)],
    );
    let address = node.handle().addresses()[0];
    let since = Instant::now();
    let mut half = connect(address);
    half.write_all(b"A SIP/2.0\r\nContent-Length: 4\r\n\r\nab").unwrap();
    let mut idle = connect(address);
    idle.write_all(message("A", "1", 0).as_bytes()).unwrap();
    expect(&mut idle, message("A", "1", 0).as_bytes());
    ends(&mut connect(address));
    counted(&node, |t| t.connections_refused, 1);
    ends(&mut half);
    assert!((250..5_000).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
    ends(&mut idle);
    assert!((600..5_000).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
    let total = node.handle().total();
    assert_eq!((total.partial_closed, total.idle_closed, total.tcp_connections), (1, 1, 0));
    // There is room again.
    let mut stream = connect(address);
    stream.write_all(message("A", "1", 0).as_bytes()).unwrap();
    expect(&mut stream, message("A", "1", 0).as_bytes());
}

#[test]
fn a_peer_that_does_not_read_is_cut_off_and_a_slow_one_is_not() {
    let node = start(
        NetSettings { bounds: Bounds { write_queue: 300_000, ..bounds() }, ..settings(1) },
        vec![listener(Tcp, V4)],
    );
    let address = node.handle().addresses()[0];
    let large = message("A", "1", 50_000);
    let mut slow = connect(address);
    SockRef::from(&slow).set_recv_buffer_size(65_536).unwrap();
    // No more are in progress than the queue holds.
    for _ in 0..5 {
        (0..5).for_each(|_| slow.write_all(large.as_bytes()).unwrap());
        // A peer that reads late.
        std::thread::sleep(Duration::from_millis(50));
        (0..5).for_each(|_| expect(&mut slow, large.as_bytes()));
    }
    let mut deaf = connect(address);
    // Until the buffers of the kernel and of the shard are full.
    while deaf.write_all(large.as_bytes()).is_ok() {}
    counted(&node, |t| t.slow_closed, 1);
    counted(&node, |t| t.stream_bytes_waiting, 0);
}

#[test]
fn answers_cross_to_the_connection_of_their_request() {
    let node = start(settings(4), vec![listener(Tcp, V4), listener(Udp, V4)]);
    let addresses = node.handle().addresses();
    for i in 0..12 {
        let mut stream = connect(addresses[0]);
        for call in 0..10 {
            let text = message("A", &format!("{i}-{call}"), 5);
            stream.write_all(text.as_bytes()).unwrap();
            expect(&mut stream, text.as_bytes());
        }
    }
    let total = node.handle().total();
    assert!(total.crossed_in > 100, "{total:?}");
}

#[test]
fn one_connection_serves_all_shards() {
    let peer = TcpListener::bind(V4).unwrap();
    let target = peer.local_addr().unwrap();
    let accepted = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = accepted.clone();
    std::thread::spawn(move || {
        for stream in peer.incoming() {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            let mut stream = stream.unwrap();
            let mut back = stream.try_clone().unwrap();
            std::thread::spawn(move || std::io::copy(&mut stream, &mut back));
        }
    });
    let node = start(settings(4), vec![listener(Udp, V4)]);
    let socket = udp(node.handle().addresses()[0]);
    for i in 0..100 {
        socket.send(message(&format!("TO tcp {target}"), &format!("call {i}"), 3).as_bytes()).unwrap();
    }
    let mut buffer = [0; 2_000];
    for _ in 0..100 {
        let n = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{e}: {:#?}", node.handle().total()));
        assert!(buffer[..n].starts_with(format!("AT tcp {target}").as_bytes()));
    }
    assert_eq!(accepted.load(std::sync::atomic::Ordering::SeqCst), 1);
    let total = node.handle().total();
    assert_eq!((total.connected, total.tcp_connections), (1, 1));
}

#[test]
fn a_connection_that_cannot_be_made_is_reported_for_every_message() {
    let (_held, closed) = refusing();
    let node = start(settings(4), vec![listener(Udp, V4)]);
    let socket = udp(node.handle().addresses()[0]);
    for i in 0..20 {
        let answer = ask(&socket, &message(&format!("TO tcp {closed}"), &format!("call {i}"), 0));
        assert!(answer.starts_with("FAILED"), "{answer}");
    }
    counted(&node, |t| t.tcp_connections, 0);
}

#[test]
fn an_alias_leads_over_the_connection_of_the_peer_until_it_ends() {
    let node = start(settings(2), vec![listener(Udp, V4), listener(Tcp, V4)]);
    let mut peer = connect(node.handle().addresses()[1]);
    let (_held, closed) = refusing();
    let alias = message(&format!("ALIAS {closed}"), "1", 0);
    peer.write_all(alias.as_bytes()).unwrap();
    expect(&mut peer, alias.as_bytes());
    let socket = udp(node.handle().addresses()[0]);
    socket.send(message(&format!("TO tcp {closed}"), "2", 0).as_bytes()).unwrap();
    expect(&mut peer, message(&format!("AT tcp {closed}"), "2", 0).as_bytes());
    peer.write_all(message("CLOSE", "3", 0).as_bytes()).unwrap();
    ends(&mut peer);
    let mut buffer = [0; 100];
    let n = socket.recv(&mut buffer).expect("a report of what had no answer");
    assert!(buffer[..n].starts_with(b"CUT OFF"));
    let answer = ask(&socket, &message(&format!("TO tcp {closed}"), "4", 0));
    assert!(answer.starts_with("FAILED"), "{answer}");
}

/// Any peer may request many aliases, one after another: nothing may grow.
#[test]
fn of_several_aliases_of_a_connection_the_last_one_leads_to_it() {
    let node = start(settings(3), vec![listener(Udp, V4), listener(Tcp, V4)]);
    let (_held, closed): (Vec<_>, Vec<_>) = (0..3).map(|_| refusing()).unzip();
    let mut peer = connect(node.handle().addresses()[1]);
    for (call, address) in closed.iter().enumerate() {
        let alias = message(&format!("ALIAS {address}"), &call.to_string(), 0);
        peer.write_all(alias.as_bytes()).unwrap();
        expect(&mut peer, alias.as_bytes());
    }
    let socket = udp(node.handle().addresses()[0]);
    socket.send(message(&format!("TO tcp {}", closed[2]), "a", 0).as_bytes()).unwrap();
    expect(&mut peer, message(&format!("AT tcp {}", closed[2]), "a", 0).as_bytes());
    for before in &closed[..2] {
        let answer = ask(&socket, &message(&format!("TO tcp {before}"), "b", 0));
        assert!(answer.starts_with("FAILED"), "{answer}");
    }
}

/// The flow may come from a message, so no number is used as an index before it is checked.
#[test]
fn a_flow_that_never_was_leads_to_the_address() {
    for shards in [1, 3] {
        let node = start(settings(shards), vec![listener(Udp, V4)]);
        let peer = TcpListener::bind(V4).unwrap();
        let target = peer.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut stream, _) = peer.accept().unwrap();
            let mut back = stream.try_clone().unwrap();
            std::io::copy(&mut stream, &mut back)
        });
        let socket = udp(node.handle().addresses()[0]);
        for (shard, slot, generation) in
            [(200, 0, 2), (255, u32::MAX, u32::MAX - 1), (63, 1, 2), (1, 7, 2), (0, u32::MAX / 2, 0), (2, 1 << 31, 2)]
        {
            let text = message(&format!("FLOW {shard} {slot} {generation} tcp {target}"), &format!("{shard}"), 0);
            let answer = ask(&socket, &text);
            assert!(answer.starts_with("AT"), "{shard} {slot} {generation}: {answer}");
        }
    }
}

/// A peer may write any flow; no message uses it for another address or transport than the target's.
#[test]
fn a_flow_is_used_for_its_own_address_and_transport_alone() {
    for shards in [1, 3] {
        let node = start(settings(shards), vec![listener(Udp, V4), listener(Tcp, V4)]);
        let mut bystander = connect(node.handle().addresses()[1]);
        let hello = message("HELLO", "1", 0);
        bystander.write_all(hello.as_bytes()).unwrap();
        expect(&mut bystander, hello.as_bytes());
        let (_held, closed) = refusing();
        let socket = udp(node.handle().addresses()[0]);
        let own = bystander.local_addr().unwrap();
        // All possible connections.
        for shard in 0..shards {
            for (transport, to) in [("tcp", closed), ("tls", own), ("ws", own)] {
                let text = message(&format!("FLOW {shard} 0 2 {transport} {to}"), &format!("{shard} {to}"), 0);
                let answer = ask(&socket, &text);
                assert!(answer.starts_with("FAILED"), "{transport} {to}: {answer}");
            }
        }
        for shard in 0..shards {
            socket
                .send(message(&format!("FLOW {shard} 0 2 tcp {own}"), &format!("own {shard}"), 0).as_bytes())
                .unwrap();
        }
        // The first message that arrives is the one with its own flow.
        let mut came = [0; 300];
        let n = bystander.read(&mut came).unwrap();
        let text = String::from_utf8_lossy(&came[..n]);
        assert!(text.starts_with(&format!("AT 0 2 tcp {own}")) || text.contains(&format!("0 2 tcp {own}")), "{text}");
    }
}

const PATIENCE: Duration = Duration::from_secs(5);

/// The FIN is already in the socket behind them.
#[test]
fn what_a_peer_asked_before_it_ended_its_side_is_answered_before_the_other_ends() {
    for shards in [1, 3] {
        let node = start(
            NetSettings { bounds: Bounds { answer_timeout: PATIENCE, ..bounds() }, ..settings(shards) },
            vec![listener(Tcp, V4)],
        );
        for call in 0..8 {
            let mut peer = connect(node.handle().addresses()[0]);
            let asked = [100, 200].map(|after| message(&format!("LATER {after}"), &format!("{call} {after}"), 0));
            peer.write_all(asked.concat().as_bytes()).unwrap();
            peer.shutdown(std::net::Shutdown::Write).unwrap();
            for asked in asked {
                expect(&mut peer, format!("SIP/2.0 200 OK\r\n{asked}").as_bytes());
            }
            assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0, "it ends with the last answer");
        }
        counted(&node, |t| t.tcp_connections, 0);
    }
}

#[test]
fn a_peer_that_has_ended_its_side_waits_for_an_answer_so_long_and_no_longer() {
    let node = start(
        NetSettings { bounds: Bounds { answer_timeout: Duration::from_millis(300), ..bounds() }, ..settings(1) },
        vec![listener(Tcp, V4)],
    );
    let since = Instant::now();
    let mut peer = connect(node.handle().addresses()[0]);
    peer.write_all(message("LATER 5000", "1", 0).as_bytes()).unwrap();
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(peer.read(&mut [0; 8]).unwrap(), 0);
    assert!((250..4_000).contains(&since.elapsed().as_millis()), "{:?}", since.elapsed());
}

/// The peer takes a message and ends the connection, by FIN or RST, or has ended it before.
#[test]
fn the_end_of_a_connection_is_reported_to_the_senders() {
    for (shards, reset) in [(1, false), (1, true), (3, false), (3, true)] {
        let node = start(settings(shards), vec![listener(Udp, V4)]);
        let peer = TcpListener::bind(V4).unwrap();
        let target = peer.local_addr().unwrap();
        let socket = udp(node.handle().addresses()[0]);
        // From several shards.
        for call in 0..5 {
            socket.send(message(&format!("TO tcp {target}"), &format!("call {call}"), 0).as_bytes()).unwrap();
        }
        let (mut stream, _) = peer.accept().unwrap();
        let mut came = Vec::new();
        while came.windows(5).filter(|w| w == b"AT tc").count() < 5 {
            let mut buffer = [0; 1_000];
            let n = stream.read(&mut buffer).unwrap();
            came.extend_from_slice(&buffer[..n]);
        }
        if reset {
            SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
        }
        drop(stream);
        let mut buffer = [0; 100];
        for _ in 0..5 {
            let n = socket.recv(&mut buffer).expect("a report at once");
            assert!(buffer[..n].starts_with(b"CUT OFF"), "{}", String::from_utf8_lossy(&buffer[..n]));
        }
        // The next message has its own connection.
        socket.send(message(&format!("TO tcp {target}"), "another", 0).as_bytes()).unwrap();
        assert!(peer.accept().is_ok());
    }
}

/// Returns the certificate and key of "localhost" and 127.0.0.1, and the folder that holds them.
pub(crate) fn identity() -> (tempfile::TempDir, tls::Server) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("certificate.pem"), folder.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    (folder, tls::Server::new(tls::Certificate::new(certificate, key)))
}

pub(crate) fn secure(transport: strowger_core::Transport, identity: &tls::Server) -> Listener {
    Listener { tls: Some(identity.clone()), ..listener(transport, V4) }
}

#[test]
fn every_transport_accepts_and_connects() {
    let (_folder, identity) = identity();
    let trusting = tls::Client { authorities: Some(identity.certificates[0].chain.clone()), ..tls::Client::default() };
    for shards in [1, 3] {
        let listeners = vec![listener(Tcp, V4), secure(Tls, &identity), listener(Ws, V4), secure(Wss, &identity)];
        let far = start(settings(shards), listeners);
        let near = start(NetSettings { tls: trusting.clone(), ..settings(shards) }, vec![listener(Udp, V4)]);
        let socket = udp(near.handle().addresses()[0]);
        for (i, transport) in [Tcp, Tls, Ws, Wss].into_iter().enumerate() {
            let target = far.handle().addresses()[i];
            for round in 0..20 {
                let body = if round % 5 == 4 { 60_000 } else { round * 50 };
                let text =
                    message(&format!("TO {}@localhost {target}", transport.text()), &format!("{i} {round}"), body);
                assert!(ask(&socket, &text) == text.replacen("TO", "AT", 1), "{transport:?} {round}");
            }
        }
        let (far, near) = (far.handle().total(), near.handle().total());
        assert_eq!((near.connected, near.handshakes_failed, far.accepted), (4, 0, 4));
        assert_eq!((far.stream_messages_in, far.stream_messages_out, near.stream_messages_in), (80, 80, 80));
        let of =
            |t: strowger_net::Snapshot| [t.tcp_connections, t.tls_connections, t.ws_connections, t.wss_connections];
        assert_eq!((of(near), of(far)), ([1; 4], [1; 4]));
    }
}

#[test]
fn a_server_that_proves_nothing_is_not_trusted() {
    let (_folder, identity) = identity();
    let far = start(settings(1), vec![secure(Tls, &identity)]);
    let target = far.handle().addresses()[0];
    let text = message(&format!("TO tls {target}"), "1", 0);
    // No trusted authority; a trusted one, but another server; any certificate.
    let trusting = tls::Client { authorities: Some(identity.certificates[0].chain.clone()), ..tls::Client::default() };
    for (tls, name, answer) in [
        (tls::Client::default(), None, "FAILED"),
        (trusting.clone(), Some("example.com"), "FAILED"),
        (trusting, None, "AT"),
        (tls::Client { unverified: true, ..tls::Client::default() }, Some("example.com"), "AT"),
    ] {
        let near = start(NetSettings { tls, ..settings(1) }, vec![listener(Udp, V4)]);
        let text = name.map_or_else(|| text.clone(), |name| text.replacen("tls", &format!("tls@{name}"), 1));
        assert!(ask(&udp(near.handle().addresses()[0]), &text).starts_with(answer), "{name:?}");
        counted(&near, |t| t.handshakes_failed, u64::from(answer == "FAILED"));
    }
}

#[test]
fn a_client_without_certificate_is_refused_where_one_is_demanded() {
    let (_folder, identity) = identity();
    let demanding =
        tls::Server { client_authorities: Some(identity.certificates[0].chain.clone()), ..identity.clone() };
    let far = start(settings(1), vec![secure(Tls, &demanding)]);
    let target = far.handle().addresses()[0];
    for (own, answer) in [(None, "FAILED"), (Some(identity.certificates[0].clone()), "AT")] {
        let authorities = Some(identity.certificates[0].chain.clone());
        let client = tls::Client { authorities, certificate: own, ..tls::Client::default() };
        let near = start(NetSettings { tls: client, ..settings(1) }, vec![listener(Udp, V4)]);
        let text = message(&format!("TO tls@localhost {target}"), "1", 0);
        // In TLS 1.3 the client learns of the refusal only after its handshake: the message may have been sent.
        let socket = udp(near.handle().addresses()[0]);
        socket.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        socket.send(text.as_bytes()).unwrap();
        let mut buffer = [0; 500];
        let n = socket.recv(&mut buffer).expect("a report");
        let said = String::from_utf8_lossy(&buffer[..n]);
        assert!(said.starts_with(answer) || (answer == "FAILED" && said.starts_with("CUT OFF")), "{said}");
    }
    counted(&far, |t| t.handshakes_failed, 1);
}

#[test]
fn a_silent_or_wrong_handshake_ends() {
    let (_folder, identity) = identity();
    let settings =
        NetSettings { bounds: Bounds { handshake_timeout: Duration::from_millis(300), ..bounds() }, ..settings(1) };
    let node = start(settings, vec![secure(Tls, &identity), listener(Ws, V4)]);
    let addresses = node.handle().addresses();
    let [mut silent, mut wrong] = [connect(addresses[0]), connect(addresses[0])];
    wrong.write_all(message("OPTIONS", "1", 0).as_bytes()).unwrap();
    ends(&mut wrong);
    ends(&mut silent);
    let mut browser = connect(addresses[1]);
    browser.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut answer = String::new();
    browser.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let mut endless = connect(addresses[1]);
    let _ = endless.write_all(&[b'G'; 20_000]);
    ends(&mut endless);
    counted(&node, |t| t.handshakes_failed, 4);
}

#[test]
fn another_implementation_of_websocket_understands_us() {
    use tokio_tungstenite::tungstenite::client::IntoClientRequest;
    use tokio_tungstenite::tungstenite::{self, Bytes, Message};
    let node = start(settings(1), vec![listener(Ws, V4)]);
    let address = node.handle().addresses()[0];
    let open = |protocol: &'static str| {
        let mut request = format!("ws://{address}/").into_client_request().unwrap();
        request.headers_mut().insert("sec-websocket-protocol", protocol.parse().unwrap());
        tungstenite::client(request, connect(address)).ok()
    };
    assert!(open("chat").is_none());
    let (mut socket, answer) = open("sip").unwrap();
    assert_eq!(answer.headers()["sec-websocket-protocol"], "sip");
    let mut echo = |sent: Message, expected: Message| {
        socket.send(sent).unwrap();
        assert!(socket.read().unwrap() == expected, "{expected:?}");
    };
    for body in [0, 100, 200, 60_000] {
        // The length of the frame counts, not that of the header field.
        let text = Message::text(message("A", "1", body).replace("Content-Length", "X"));
        echo(text.clone(), text);
    }
    echo(Message::text("\r\n\r\n"), Message::text("\r\n"));
    let [ping, pong] = [Message::Ping, Message::Pong].map(|kind| kind(Bytes::from_static(b"there?")));
    echo(ping, pong);
    let binary = Message::binary(b"B \xff".to_vec());
    echo(binary.clone(), binary);
    socket.send(Message::Close(None)).unwrap();
    assert!(matches!(socket.read().unwrap(), Message::Close(_)));
    counted(&node, |t| t.ws_connections, 0);
}
