//! Sockets bound to all addresses of the machine: answers leave from the address that the request came to (RFC 3581
//! section 4), since a phone behind NAT accepts them from no other.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use strowger_tests::namespace::{self, Namespace};
use strowger_tests::port;
use strowger_tests::server::{Server, Setup};
use strowger_tests::text::{Request, method, respond, status};
use strowger_tests::wire::Transport::Udp;

const LIMIT: Duration = Duration::from_secs(5);

fn start(lines: &str) -> (Server, u16) {
    let port = port::free();
    let all = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
    (setup(all, "127.0.0.1", lines).start(), port)
}

fn setup(all: SocketAddr, advertise: &str, lines: &str) -> Setup {
    let (ip, port) = (all.ip(), all.port());
    let table =
        format!("[[listener]]\ntransport = \"udp\"\naddress = \"{ip}\"\nport = {port}\nadvertise = \"{advertise}\"");
    Setup::tables(&[(Udp, all)]).open_registrar().in_memory().with(lines).with(&table)
}

/// Opens a socket that receives only from this address.
fn at(server: SocketAddr, from: Ipv4Addr) -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((from, 0)).expect("loopback has a port");
    socket.connect(server).expect("loopback leads there");
    socket.set_read_timeout(Some(LIMIT)).expect("a socket can be set");
    let local = socket.local_addr().expect("it is bound");
    (socket, local)
}

fn receive(socket: &UdpSocket) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 65_536];
    let n = socket.recv(&mut buffer).ok()?;
    buffer.truncate(n);
    Some(buffer)
}

fn answer(socket: &UdpSocket) -> Option<u16> {
    loop {
        let code = status(&receive(socket)?)?;
        if code >= 200 {
            return Some(code);
        }
    }
}

#[test]
fn answers_leave_from_the_address_that_the_request_came_to() {
    for lines in ["", "server.shards = 3"] {
        let (server, port) = start(lines);
        for last in [1, 2, 3, 2] {
            let there = SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), port);
            for _ in 0..4 {
                let (socket, local) = at(there, Ipv4Addr::LOCALHOST);
                // The answer is checked without a transaction, and with a transaction.
                for uri in [format!("sip:127.0.0.1:{port}"), "sip:nobody@example.org".into()] {
                    socket.send(&Request::new("OPTIONS", &uri, "udp", local).bytes()).expect("loopback takes it");
                    assert!(answer(&socket).is_some(), "nothing from 127.0.0.{last}: {}", server.log());
                }
            }
        }
    }
}

/// Requests to a phone do so, too: its NAT accepts packets from the address it sent to.
#[test]
fn a_phone_is_called_from_the_address_at_which_it_registered() {
    let (_server, port) = start("");
    let [here, there] = [1, 2].map(|last| SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), port));
    let (phone, local) = at(there, Ipv4Addr::new(127, 0, 0, 7));
    let contact = format!("sip:bob@{local}");
    phone.send(&Request::register("bob", "example.org", &contact, "udp", local).bytes()).expect("loopback takes it");
    assert_eq!(answer(&phone), Some(200));
    let (caller, local) = at(here, Ipv4Addr::LOCALHOST);
    caller.send(&Request::new("MESSAGE", "sip:bob@example.org", "udp", local).bytes()).expect("loopback takes it");
    let request = receive(&phone).expect("it comes from where the phone is known");
    assert_eq!(method(&request).as_deref(), Some("MESSAGE"));
    phone.send(&respond(&request, 200, "t", &[])).expect("loopback takes it");
    assert_eq!(answer(&caller), Some(200));
}

/// A peer may forge the source of a datagram.
#[test]
fn a_datagram_that_proves_nothing_does_not_change_from_where_a_phone_is_called() {
    let (_server, port) = start("");
    let [here, there] = [1, 2].map(|last| SocketAddr::new(Ipv4Addr::new(127, 0, 0, last).into(), port));
    let phone = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 7), 0)).expect("loopback has a port");
    phone.set_read_timeout(Some(LIMIT)).expect("a socket can be set");
    let local = phone.local_addr().expect("it is bound");
    let register = Request::register("bob", "example.org", &format!("sip:bob@{local}"), "udp", local);
    phone.send_to(&register.bytes(), there).expect("loopback takes it");
    assert_eq!(answer(&phone), Some(200));
    // The phone's own socket plays the forger.
    phone.send_to(b"\r\n\r\n", here).expect("loopback takes it");
    let options = Request::new("OPTIONS", "sip:example.org", "udp", local);
    phone.send_to(&options.bytes(), here).expect("loopback takes it");
    let mut buffer = [0; 4_096];
    let (_, from) = phone.recv_from(&mut buffer).expect("an answer");
    assert_eq!(from, here, "answers leave from where the request came to");
    let (caller, local) = at(here, Ipv4Addr::LOCALHOST);
    caller.send(&Request::new("MESSAGE", "sip:bob@example.org", "udp", local).bytes()).expect("loopback takes it");
    let (_, from) = phone.recv_from(&mut buffer).expect("the request");
    assert_eq!(from, there);
}

#[test]
fn by_ipv6_too() {
    if !namespace::possible() {
        return;
    }
    let net = Namespace::new("all");
    for address in ["2001:db8::1/64", "2001:db8::2/64", "2001:db8::7/64"] {
        net.ip(&["-6", "address", "add", address, "dev", "lo", "nodad"]);
    }
    let all: SocketAddr = "[::]:5060".parse().expect("an address");
    let server = setup(all, "[2001:db8::1]", "").inside(&net).start();
    for last in [1, 2] {
        let there: SocketAddr = format!("[2001:db8::{last}]:5060").parse().expect("an address");
        let made = net.inside(|| {
            let socket = UdpSocket::bind("[2001:db8::7]:0")?;
            socket.connect(there)?;
            Ok(socket)
        });
        let socket = made.expect("the address is there");
        socket.set_read_timeout(Some(LIMIT)).expect("a socket can be set");
        let local = socket.local_addr().expect("it is bound");
        socket.send(&Request::new("OPTIONS", "sip:nobody@example.org", "udp", local).bytes()).expect("it leads there");
        assert!(answer(&socket).is_some(), "nothing from {there}: {}", server.log());
    }
}
