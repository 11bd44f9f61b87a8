//! Large numbers of connections.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::time::Duration;

use strowger_tests::binary::strowger;
use strowger_tests::server::Setup;
use strowger_tests::text::{self, Request};
use strowger_tests::wait;
use strowger_tests::wire::Transport::{Tcp, Udp};

/// Shell script that starts its arguments with this soft limit of descriptors, although the hard limit is higher.
const FEW: &str = "ulimit -S -n 64 && exec \"$0\" \"$@\"";

/// Shell script with the same hard limit.
const NONE: &str = "ulimit -n 64 && exec \"$0\" \"$@\"";

#[test]
fn the_server_takes_more_connections_than_a_shell_grants_descriptors() {
    let server = Setup::on(&[Tcp]).open_registrar().in_memory().under(&["sh", "-c", FEW]).start();
    let mut phones: Vec<_> = (0..100).map(|_| server.connect(Tcp)).collect();
    let uri = format!("sip:{}", server.address(Tcp));
    for (n, phone) in phones.iter_mut().enumerate() {
        let request = Request::new("OPTIONS", &uri, "tcp", phone.local());
        phone.send(&request.bytes()).expect("the kernel takes what it can hold");
        let answer = phone.final_response(Duration::from_secs(10));
        assert_eq!(answer.as_deref().and_then(text::status), Some(200), "connection {n}\n{}", server.log());
    }
}

/// The server tries again ten times a second.
#[test]
fn that_there_is_no_descriptor_left_is_said_now_and_then() {
    let server = Setup::on(&[Tcp]).open_registrar().in_memory().under(&["sh", "-c", NONE]).start();
    let _phones: Vec<_> = (0..100).map(|_| server.connect(Tcp)).collect();
    let said = || server.log().matches("connections cannot be accepted").count();
    assert!(wait::until(Duration::from_secs(10), || said() > 0), "the log does not say it: {}", server.log());
    // A second line would have been written by then.
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(said(), 1, "{}", server.log());
}

/// `strowger check` says the same as the start.
#[test]
fn limits_of_the_kernel_that_are_too_small_are_named_at_the_start_with_their_cure() {
    let few = "ulimit -n 1000 && exec \"$0\" \"$@\"";
    let setup = Setup::on(&[Tcp]).open_registrar().in_memory().with("limits.connections = 5000");
    let mut server = setup.under(&["sh", "-c", few]).prepare();
    server.try_start();
    server.await_start();
    let check = Command::new("sh").args(["-c", few]).arg(strowger()).arg("check").arg(server.config()).output();
    let check = check.expect("the program runs");
    let shown = String::from_utf8_lossy(&check.stderr).into_owned();
    for text in [server.log(), shown] {
        let lines = text.matches("RLIMIT_NOFILE is 1000: limits.connections = 5000 needs 5256").count();
        assert_eq!(lines, 1, "{text}");
        assert!(text.contains("LimitNOFILE=5256"), "{text}");
    }
    // The other limits of the machine carry so few connections, or are named as well.
    assert!(check.status.success() && String::from_utf8_lossy(&check.stdout).contains("can be used, "), "{check:?}");
}

/// Time limit for an error to reach a caller; the timers of a transaction would need 32 s.
const SOON: Duration = Duration::from_secs(8);

/// Ends a connection by FIN or by RST.
fn end(stream: TcpStream, reset: bool) {
    if reset {
        socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).expect("a socket can be set");
    }
    drop(stream);
}

/// Accepts a connection and reads its request.
fn accept(listener: &TcpListener) -> (TcpStream, Vec<u8>) {
    listener.set_nonblocking(true).expect("a socket can be set");
    let (mut stream, _) = wait::look(SOON, || listener.accept().ok()).expect("a connection");
    stream.set_nonblocking(false).expect("a socket can be set");
    stream.set_read_timeout(Some(SOON)).expect("a socket can be set");
    let (mut request, mut buffer) = (Vec::new(), [0; 8_192]);
    while !request.windows(4).any(|w| w == b"\r\n\r\n") {
        let n = stream.read(&mut buffer).expect("a request");
        assert!(n > 0, "the server ended the connection");
        request.extend_from_slice(&buffer[..n]);
    }
    (stream, request)
}

#[test]
fn a_request_whose_connection_ends_before_an_answer_goes_once_more_and_then_fails_at_once() {
    let server = Setup::on(&[Udp, Tcp]).relay().start();
    for method in ["INVITE", "MESSAGE"] {
        for (reset, answers) in [(false, true), (true, true), (false, false), (true, false)] {
            let peer = TcpListener::bind("127.0.0.1:0").expect("a port");
            let uri = format!("sip:x@{};transport=tcp", peer.local_addr().expect("it is bound"));
            let mut caller = server.connect(Udp);
            let request = Request::new(method, &uri, "udp", caller.local());
            caller.send(&request.bytes()).expect("loopback takes it");
            let (first, _) = accept(&peer);
            end(first, reset);
            let (mut second, came) = accept(&peer);
            if answers {
                second.write_all(&text::respond(&came, 200, "t", &[])).expect("the server reads");
            } else {
                end(second, reset);
            }
            let status = caller.final_response(SOON).as_deref().and_then(text::status);
            let expected = if answers { status == Some(200) } else { status.is_some_and(|code| code >= 400) };
            assert!(expected, "{method}, reset {reset}, answers {answers}: {status:?}");
        }
    }
}

#[test]
fn a_call_to_a_phone_whose_connection_ends_fails_at_once() {
    let server = Setup::on(&[Udp, Tcp]).open_registrar().in_memory().start();
    let mut phone = server.connect(Tcp);
    let contact = format!("sip:bob@{};transport=tcp", phone.local());
    phone.send(&Request::register("bob", "example.org", &contact, "tcp", phone.local()).bytes()).expect("loopback");
    assert_eq!(phone.final_response(SOON).as_deref().and_then(text::status), Some(200));
    let mut caller = server.connect(Udp);
    caller.send(&Request::new("INVITE", "sip:bob@example.org", "udp", caller.local()).bytes()).expect("loopback");
    assert!(phone.request("INVITE", SOON).is_some());
    drop(phone);
    assert!(caller.final_response(SOON).as_deref().and_then(text::status).is_some_and(|code| code >= 400));
}

/// The FIN follows at once: a peer that stops sending may still receive.
#[test]
fn a_request_with_the_end_of_the_connection_behind_it_is_answered() {
    let server = Setup::on(&[Udp, Tcp]).relay().start();
    let peer = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let there = peer.local_addr().expect("it is bound");
    for uri in [format!("sip:{}", server.address(Tcp)), format!("sip:x@{there}")] {
        let mut stream = TcpStream::connect(server.address(Tcp)).expect("the server listens");
        stream.set_read_timeout(Some(SOON)).expect("a socket can be set");
        let local = stream.local_addr().expect("it is bound");
        stream.write_all(&Request::new("OPTIONS", &uri, "tcp", local).bytes()).expect("loopback");
        stream.shutdown(Shutdown::Write).expect("it is open");
        if uri.contains("x@") {
            answer_slowly(&peer);
        }
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer, and the end");
        assert_eq!(text::status(&answer), Some(200), "{uri}: {}", String::from_utf8_lossy(&answer));
    }
}

/// The FIN of a closed socket looks the same: only the reset after an answer shows the difference (RFC 3261 section
/// 18.2.2).
#[test]
fn a_response_to_a_peer_that_has_closed_its_connection_goes_where_it_listens() {
    let server = Setup::on(&[Udp, Tcp]).relay().start();
    for (method, statuses) in [("INVITE", &[486][..]), ("INVITE", &[180, 486]), ("MESSAGE", &[200])] {
        let phone = UdpSocket::bind("127.0.0.1:0").expect("a port");
        phone.set_read_timeout(Some(SOON)).expect("a socket can be set");
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let via = listener.local_addr().expect("it is bound");
        let mut stream = TcpStream::connect(server.address(Tcp)).expect("the server listens");
        let uri = format!("sip:x@{}", phone.local_addr().expect("it is bound"));
        stream.write_all(&Request::new(method, &uri, "tcp", via).bytes()).expect("loopback");
        let mut buffer = [0; 8_192];
        let (n, from) = phone.recv_from(&mut buffer).expect("the request");
        if method == "INVITE" {
            // Reads the 100: with unread bytes the close would be an immediate reset.
            assert!(stream.read(&mut [0; 8_192]).expect("an answer") > 0);
        }
        drop(stream);
        for status in statuses {
            // Long enough for the server to see the end of the connection before.
            std::thread::sleep(Duration::from_millis(200));
            phone.send_to(&text::respond(&buffer[..n], *status, "t", &[]), from).expect("loopback");
        }
        let (mut came, mut bytes) = accept(&listener);
        while statuses.iter().any(|status| !has_status(&bytes, *status)) {
            let mut more = [0; 8_192];
            let n = came.read(&mut more).expect("what lacks comes");
            assert!(n > 0, "{method} {statuses:?}: {}", String::from_utf8_lossy(&bytes));
            bytes.extend_from_slice(&more[..n]);
        }
    }
}

fn has_status(bytes: &[u8], status: u16) -> bool {
    String::from_utf8_lossy(bytes).contains(&format!("SIP/2.0 {status} "))
}

/// Answers late enough for the server to see the end of the connection before.
fn answer_slowly(peer: &UdpSocket) {
    let mut buffer = [0; 8_192];
    let (n, from) = peer.recv_from(&mut buffer).expect("a request");
    // The delay of the answer.
    std::thread::sleep(Duration::from_millis(200));
    peer.send_to(&text::respond(&buffer[..n], 200, "t", &[]), from).expect("loopback");
}
