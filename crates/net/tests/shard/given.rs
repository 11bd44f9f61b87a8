//! Sockets that were open before the shards, as another program passes them, including those of another user.

use crate::echo::settings;
use crate::moves::{Ledger, client, message, settled, spawn};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;
use strowger_core::Transport;
use strowger_net::{ListenSocket, Listener, Net, NetSettings, Node};

fn sockets() -> (SocketAddr, Vec<ListenSocket>) {
    loop {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = tcp.local_addr().unwrap();
        if let Ok(udp) = UdpSocket::bind(address) {
            return (address, vec![ListenSocket::Tcp(tcp), ListenSocket::Udp(udp)]);
        }
    }
}

fn listeners(address: SocketAddr) -> Vec<Listener> {
    vec![Listener::new(Transport::Udp, address), Listener::new(Transport::Tcp, address)]
}

/// Checks that datagrams of `calls` calls are answered in order, that one shard handles each call, and that connections
/// work. Returns the shards that own a call.
fn used(node: &Node<Ledger>, address: SocketAddr, calls: usize) -> Vec<usize> {
    assert_eq!(node.handle().addresses(), [address, address]);
    settled(node.handle());
    let socket = client(address);
    let mut shards = Vec::new();
    for call in 0..calls {
        for number in 1..=4 {
            socket.send(message(&format!("call-{call}@host"), number).as_bytes()).unwrap();
        }
        let mut owner = None;
        for number in 1..=4 {
            let mut buffer = [0; 500];
            let n = socket.recv(&mut buffer).expect("an answer within five seconds");
            let answer = String::from_utf8_lossy(&buffer[..n]).into_owned();
            let (rest, shard) = answer.rsplit_once(' ').unwrap();
            assert_eq!(rest, format!("call-{call}@host {number} next"));
            assert_eq!(*owner.get_or_insert_with(|| shard.to_owned()), shard);
            shards.push(shard.parse().unwrap());
        }
    }
    shards.sort_unstable();
    shards.dedup();
    shards
}

/// Checks that a connection is accepted: its keep-alive is answered.
fn accepts(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream.write_all(b"\r\n\r\n").unwrap();
    let mut answer = [0; 2];
    stream.read_exact(&mut answer).expect("an answer within five seconds");
    assert_eq!(&answer, b"\r\n");
}

#[test]
fn one_shard_works_with_given_sockets() {
    let (address, sockets) = sockets();
    let node = spawn(Net::with_sockets(settings(1), listeners(address), sockets).unwrap());
    assert_eq!(used(&node, address, 3), [0]);
    accepts(address);
}

#[test]
fn further_shards_join_a_given_socket() {
    let (address, sockets) = sockets();
    let node = spawn(Net::with_sockets(settings(4), listeners(address), sockets).unwrap());
    assert_eq!(used(&node, address, 60), [0, 1, 2, 3]);
    (0..40).for_each(|_| accepts(address));
    // A socket for each shard, with steering by the kernel.
    assert_eq!(node.handle().backlogs().len(), 4);
    assert_eq!(node.handle().total().crossed_out, 0);
}

#[test]
fn shards_share_a_given_socket_that_they_cannot_join() {
    // SAFETY: no memory is passed; the call changes the user of sockets opened in this thread, and is undone below.
    let before = unsafe { libc::setfsuid(65_534) };
    let (address, sockets) = sockets();
    // SAFETY: as above.
    let changed = unsafe { libc::setfsuid(before as libc::uid_t) } == 65_534;
    if !changed {
        return eprintln!("skipped: only root opens a socket in another user's name");
    }
    let node = spawn(Net::with_sockets(settings(4), listeners(address), sockets).unwrap());
    assert_eq!(used(&node, address, 60), [0, 1, 2, 3]);
    (0..40).for_each(|_| accepts(address));
    assert_eq!(node.handle().backlogs().len(), 1);
    assert_eq!((1..4).map(|shard| node.handle().counters(shard).datagrams_in).sum::<u64>(), 0);
    assert!(node.handle().counters(0).crossed_out > 0);
}

#[test]
fn a_socket_without_a_listener_is_an_error_and_a_listener_without_a_socket_is_bound() {
    let (address, sockets) = sockets();
    let only_udp = vec![Listener::new(Transport::Udp, address)];
    let error =
        Net::with_sockets(NetSettings::default(), only_udp, sockets).err().expect("no listener takes the other");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains(&format!("tcp:{address}")), "{error}");
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let mut both = listeners(address);
    both[1].bind.set_port(0);
    let net = Net::with_sockets(NetSettings::default(), both, vec![ListenSocket::Udp(socket)]).unwrap();
    assert_eq!(net.addresses()[0], address);
    assert_ne!(net.addresses()[1].port(), 0);
}
