//! Lifetimes of connections by their kind, and of connections with open requests.

use crate::echo::{bounds, settings};
use crate::relay::{Relay, listener, message, start};
use crate::streams::{connect, counted, ends, expect, udp};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use strowger_core::Transport::{Tcp, Udp};
use strowger_net::{Bounds, Lifetimes, NetSettings, Node};

const V4: &str = "127.0.0.1:0";

/// Longest silence of a stranger.
const SHORT: Duration = Duration::from_millis(300);

/// Longest silence of any other peer.
const LONG: Duration = Duration::from_millis(1_500);

/// Starts a node with a listener for datagrams and one for connections.
fn start_node(transaction: Duration) -> (Node<Relay>, SocketAddr, SocketAddr) {
    let lifetimes = Lifetimes { other: Some(SHORT), transaction };
    let bounds = Bounds { idle_timeout: LONG, lifetimes, ..bounds() };
    let node = start(NetSettings { bounds, ..settings(1) }, vec![listener(Udp, V4), listener(Tcp, V4)]);
    let addresses = node.handle().addresses();
    let (datagrams, streams) = (addresses[0], addresses[1]);
    (node, datagrams, streams)
}

/// Connects, and sends a message that comes back.
fn open(to: SocketAddr, order: &str) -> (TcpStream, Instant) {
    let (mut stream, text) = (connect(to), message(order, "1", 0));
    stream.write_all(text.as_bytes()).unwrap();
    expect(&mut stream, text.as_bytes());
    (stream, Instant::now())
}

/// Checks that the server ends a connection, no earlier than after this time and not much later.
fn ends_after((mut stream, since): (TcpStream, Instant), time: Duration) {
    ends(&mut stream);
    let took = since.elapsed();
    // The message came before its answer.
    assert!(took + Duration::from_millis(50) >= time && took < time + Duration::from_secs(4), "{took:?}, not {time:?}");
}

#[test]
fn a_silent_connection_ends_by_its_kind() {
    let (node, _, address) = start_node(Duration::from_millis(50));
    let (registered, trunk) = (open(address, "REGISTERED 2500"), open(address, "TRUNK"));
    let server = open(address, "ALIAS 127.0.0.1:9");
    ends_after(open(address, "A"), SHORT);
    ends_after(trunk, LONG);
    ends_after(server, LONG);
    ends_after(registered, Duration::from_millis(2_500));
    counted(&node, |t| t.idle_closed, 4);
}

#[test]
fn a_registered_phone_that_breaks_its_promise_is_gone() {
    let (_node, _, address) = start_node(Duration::from_millis(50));
    let (mut phone, _) = open(address, "REGISTERED 60000");
    let promise = message("SILENCE 400 60000", "2", 0);
    phone.write_all(promise.as_bytes()).unwrap();
    expect(&mut phone, promise.as_bytes());
    ends_after((phone, Instant::now()), Duration::from_millis(400));
}

/// The answer to a request takes longer than a stranger may be silent.
#[test]
fn a_connection_stays_until_its_requests_are_answered() {
    let (_node, _, streams) = start_node(Duration::from_secs(20));
    let (mut asks, asked) = (connect(streams), message("LATER 900", "1", 0));
    asks.write_all(asked.as_bytes()).unwrap();
    expect(&mut asks, format!("SIP/2.0 200 OK\r\n{asked}").as_bytes());
    // An ACK might follow.
    ends_after((asks, Instant::now()), SHORT);

    // A request of this side, over the flow of a peer that has sent nothing else.
    let (node, datagrams, streams) = start_node(Duration::from_secs(20));
    let mut answers = connect(streams);
    let own = answers.local_addr().unwrap();
    counted(&node, |t| t.tcp_connections, 1);
    let socket = udp(datagrams);
    socket.send(message(&format!("FLOW 0 0 2 tcp {own}"), "2", 0).as_bytes()).unwrap();
    let mut bytes = [0; 500];
    let length = answers.read(&mut bytes).unwrap();
    assert!(bytes[..length].starts_with(b"AT "), "{}", String::from_utf8_lossy(&bytes[..length]));
    // The peer thinks for longer than a stranger may be silent.
    std::thread::sleep(3 * SHORT);
    let answer = "SIP/2.0 200 OK\r\nCall-ID: 2\r\nContent-Length: 0\r\n\r\n";
    answers.write_all(answer.as_bytes()).unwrap();
    let since = Instant::now();
    let length = socket.recv(&mut bytes).expect("the answer arrives");
    assert_eq!(&bytes[..length], answer.as_bytes());
    ends_after((answers, since), SHORT);
}

#[test]
fn a_request_without_an_answer_keeps_its_connection_for_so_long_and_no_longer() {
    let (_node, _, address) = start_node(Duration::from_secs(1));
    // Its echo is a request as well.
    ends_after(open(address, "A"), Duration::from_secs(1));
}

/// The shard sleeps when the bounds change.
#[test]
fn a_shorter_lifetime_ends_strangers_alone() {
    let (node, _, address) = start_node(Duration::from_millis(50));
    let lasting = Bounds { lifetimes: Lifetimes { other: None, ..bounds().lifetimes }, ..bounds() };
    node.handle().set_bounds(lasting.clone());
    let (mut phone, _) = open(address, "REGISTERED 60000");
    let stranger = open(address, "A");
    node.handle().set_bounds(Bounds { lifetimes: Lifetimes { other: Some(SHORT), ..lasting.lifetimes }, ..lasting });
    ends_after(stranger, SHORT);
    let one = message("A", "3", 0);
    phone.write_all(one.as_bytes()).unwrap();
    expect(&mut phone, one.as_bytes());
}
