//! Peers of the server: connections and sockets for datagrams.

use super::*;

pub(super) const V4: &str = "127.0.0.1:0";

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    stream
}

pub(crate) fn expect(stream: &mut impl Read, bytes: &[u8]) {
    let mut buffer = vec![0; bytes.len()];
    stream.read_exact(&mut buffer).expect("an answer within five seconds");
    assert!(buffer == bytes, "{:?} is not {:?}", String::from_utf8_lossy(&buffer), String::from_utf8_lossy(bytes));
}

/// Checks that the peer ends the connection.
pub(crate) fn ends(stream: &mut TcpStream) {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => (),
        Err(e) => assert_eq!(e.kind(), ErrorKind::ConnectionReset, "{e}"),
    }
}

pub(crate) fn counted(node: &Node<Relay>, value: impl Fn(strowger_net::Snapshot) -> u64, expected: u64) {
    let patience = Instant::now() + Duration::from_secs(5);
    while value(node.handle().total()) != expected {
        assert!(
            Instant::now() < patience,
            "{} is not {expected}: {:?}",
            value(node.handle().total()),
            node.handle().total()
        );
        // Interval between two checks.
        std::thread::sleep(Duration::from_millis(1));
    }
}

pub(crate) fn udp(server: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(V4).unwrap();
    socket.connect(server).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    socket
}

/// Returns a port that refuses connections, and the socket that keeps other programs from it.
pub(crate) fn refusing() -> (socket2::Socket, SocketAddr) {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&V4.parse::<SocketAddr>().unwrap().into()).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    (socket, address)
}

pub(crate) fn ask(socket: &UdpSocket, text: &str) -> String {
    socket.send(text.as_bytes()).unwrap();
    let mut buffer = vec![0; 65_536];
    let n = socket.recv(&mut buffer).expect("an answer within five seconds");
    String::from_utf8_lossy(&buffer[..n]).into_owned()
}
