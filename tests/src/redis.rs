//! What a test says to a Redis by hand.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Says lines, one after the other, and returns what it says to each.
///
/// # Panics
/// It does not listen, or says nothing for ten seconds.
pub fn say(address: SocketAddr, lines: &[&str]) -> Vec<String> {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time");
    let mut say = |line: &&str| {
        stream.write_all(format!("{line}\r\n").as_bytes()).expect("it listens");
        let mut heard = [0; 65_536];
        // What is said in these tests comes in one piece.
        let length = stream.read(&mut heard).expect("it answers");
        String::from_utf8_lossy(&heard[..length]).into_owned()
    };
    lines.iter().map(&mut say).collect()
}
