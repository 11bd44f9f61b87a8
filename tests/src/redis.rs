//! Commands to a Redis by hand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Sends lines one by one, and returns the reply to each.
///
/// # Panics
/// The server does not listen, or does not reply for ten seconds.
pub fn say(address: SocketAddr, lines: &[&str]) -> Vec<String> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
    let mut say = |line: &&str| {
        stream.write_all(format!("{line}\r\n").as_bytes()).expect("it listens");
        let mut heard = [0; 65_536];
        // In these tests each reply arrives in one piece.
        let length = stream.read(&mut heard).expect("it answers");
        String::from_utf8_lossy(&heard[..length]).into_owned()
    };
    lines.iter().map(&mut say).collect()
}
