//! Frames of WebSocket, and those that the server refuses.

use super::*;

/// Returns the opening handshake of WebSocket.
pub(super) fn upgrade(address: SocketAddr) -> Vec<u8> {
    let lines = [
        "GET / HTTP/1.1",
        &format!("Host: {address}"),
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Protocol: sip",
    ];
    (lines.join("\r\n") + "\r\n\r\n").into_bytes()
}

/// Returns a frame, masked with zeros.
pub(super) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..126 => bytes.push(0x80 | length as u8),
        length => {
            bytes.push(0x80 | 126);
            bytes.extend_from_slice(&(length as u16).to_be_bytes());
        }
    }
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(payload);
    bytes
}

pub(super) const TEXT: u8 = 1;
pub(super) const CONTINUATION: u8 = 0;

/// Opens a WebSocket connection by hand.
pub(super) fn websocket(address: SocketAddr) -> TcpStream {
    let mut stream = TcpStream::connect(address).expect("the server listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a socket can be set");
    stream.write_all(&upgrade(address)).expect("the server reads");
    let mut buffer = [0; 1_000];
    let n = stream.read(&mut buffer).expect("an answer");
    assert!(buffer[..n].starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&buffer[..n]));
    stream
}

#[test]
fn websocket_frames_out_of_order_end_the_connection() {
    let server = start(&[Udp, Ws], "");
    let address = server.address(Ws);
    for frames in [
        frame(CONTINUATION, b"x"),
        frame(0x80 | CONTINUATION, b"x"),
        [frame(TEXT, b"x"), frame(TEXT, b"y")].concat(),
        [frame(TEXT, b""), frame(0x80 | TEXT, b"y")].concat(),
    ] {
        let mut streams = [websocket(address)];
        streams[0].write_all(&frames).expect("the server reads");
        assert_eq!(closed(&mut streams, 1), 1, "{frames:?}");
    }
}

#[test]
fn lengths_that_no_message_can_have_end_the_connection_at_once() {
    let server = start(&[Udp, Tcp, Ws], "");
    for length in ["4294967295", "18446744073709551616", "99999999999999999999999", "-1"] {
        let text =
            format!("OPTIONS sip:x SIP/2.0\r\nVia: SIP/2.0/TCP x;branch=z9hG4bK1\r\nContent-Length: {length}\r\n\r\n");
        let mut streams = crowd(server.address(Tcp), 1, text.as_bytes());
        assert_eq!(closed(&mut streams, 1), 1, "{length}");
    }
    let mut streams = [websocket(server.address(Ws))];
    // A frame that claims to have 2^63 - 1 bytes.
    let mut bytes = vec![0x80 | TEXT, 0x80 | 127];
    bytes.extend_from_slice(&(u64::MAX >> 1).to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    streams[0].write_all(&bytes).expect("the server reads");
    assert_eq!(closed(&mut streams, 1), 1);
}

#[test]
fn a_handshake_of_websocket_without_end_is_refused() {
    let server = start(&[Udp, Ws], "");
    let address = server.address(Ws);
    let mut bytes = b"GET / HTTP/1.1\r\n".to_vec();
    bytes.extend_from_slice(format!("X: {}", "x".repeat(100_000)).as_bytes());
    let mut streams = crowd(address, 20, &bytes);
    assert_eq!(closed(&mut streams, 20), 20);
}
