//! HTTP pages of the server under test.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::program::{PROMTOOL, have};

const SOON: Duration = Duration::from_secs(10);

/// Returns the whole answer to a request; empty if the connection was closed without an answer.
///
/// # Panics
/// No server listens.
pub fn get(address: SocketAddr, path: &str) -> String {
    get_over(TcpStream::connect(address).expect("the server listens"), path)
}

fn get_over(mut stream: TcpStream, path: &str) -> String {
    stream.set_read_timeout(Some(SOON)).expect("a socket takes a time-out");
    let _ = write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).expect("it is text")
}

/// Asserts that promtool accepts these metrics, if it is installed.
///
/// # Panics
/// promtool reports a problem, or is missing although it is required.
pub fn assert_clean(metrics: &str) {
    if !have(&[PROMTOOL]) {
        return;
    }
    let mut promtool = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it is there");
    promtool.stdin.take().expect("it is piped").write_all(metrics.as_bytes()).expect("it reads");
    let said = promtool.wait_with_output().expect("it ends");
    let words = format!("{}{}", String::from_utf8_lossy(&said.stdout), String::from_utf8_lossy(&said.stderr));
    assert!(said.status.success() && words.is_empty(), "{words}");
}

/// Reads the values of all samples, by name and labels.
///
/// # Panics
/// No server answers.
pub fn scrape(address: SocketAddr) -> BTreeMap<String, f64> {
    over(TcpStream::connect(address).expect("the server listens"))
}

/// Reads the values of all samples over this connection.
///
/// # Panics
/// See [`scrape`].
pub fn over(stream: TcpStream) -> BTreeMap<String, f64> {
    let body = text_over(stream);
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a name and a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    samples.map(sample).collect()
}

/// Returns the page of the metrics, without its head, over this connection.
///
/// # Panics
/// No server answers.
pub fn text_over(stream: TcpStream) -> String {
    let answer = get_over(stream, "/metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\ncontent-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{answer}");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
    let mut lengths = head.lines().filter_map(|line| line.strip_prefix("content-length: "));
    let length: usize = lengths.next().expect("the answer has a length").parse().expect("it is a number");
    assert_eq!(body.len(), length, "the connection ended within the answer: {answer}");
    body.to_owned()
}
