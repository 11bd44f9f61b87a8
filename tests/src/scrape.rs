//! What the server under test shows by HTTP.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

const SOON: Duration = Duration::from_secs(10);

/// The whole answer to a request; empty if the connection was closed unanswered.
///
/// # Panics
/// No server listens.
pub fn get(address: SocketAddr, path: &str) -> String {
    get_over(TcpStream::connect(address).expect("the server listens"), path)
}

fn get_over(mut stream: TcpStream, path: &str) -> String {
    stream.set_read_timeout(Some(SOON)).expect("a socket takes a time-out");
    let _ = write!(stream, "GET {path} HTTP/1.1\r\nHost: strowger\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("it is text")
}

/// The values of all samples, by name and labels.
///
/// # Panics
/// No server answers.
pub fn scrape(address: SocketAddr) -> BTreeMap<String, f64> {
    over(TcpStream::connect(address).expect("the server listens"))
}

/// The same over this connection.
///
/// # Panics
/// As [`scrape`].
pub fn over(stream: TcpStream) -> BTreeMap<String, f64> {
    let answer = get_over(stream, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    let body = answer.split_once("\r\n\r\n").expect("a head and a body").1;
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    samples.map(sample).collect()
}
