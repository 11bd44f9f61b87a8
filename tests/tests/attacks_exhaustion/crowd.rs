//! Many connections, and those that the server has closed.

use super::*;

/// Opens this many connections and writes these bytes to each.
pub(super) fn crowd(address: SocketAddr, most: usize, bytes: &[u8]) -> Vec<TcpStream> {
    let open = |_| {
        let mut stream = TcpStream::connect(address).ok()?;
        stream.set_write_timeout(Some(Duration::from_millis(200))).ok()?;
        let _ = stream.write_all(bytes);
        Some(stream)
    };
    (0..most).filter_map(open).collect()
}

/// Returns the number of connections closed by the server, as soon as it reaches `at_least`; discards input.
pub(super) fn closed(streams: &mut [TcpStream], at_least: usize) -> usize {
    let mut count = 0;
    wait::until(LIMIT, || {
        count = streams.iter_mut().filter_map(is_closed).count();
        count >= at_least
    });
    count
}

pub(super) fn is_closed(stream: &mut TcpStream) -> Option<()> {
    stream.set_nonblocking(true).ok()?;
    let mut buffer = [0; 65_536];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => return Some(()),
            Ok(_) => (),
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => return None,
            Err(_) => return Some(()),
        }
    }
}

pub(super) fn half_message(bytes: usize) -> Vec<u8> {
    format!("OPTIONS sip:example.org SIP/2.0\r\nX: {}", "x".repeat(bytes)).into_bytes()
}
