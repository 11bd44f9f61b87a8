//! Bare echo: a server that answers each request with 200 and stores nothing. Its cost is the cost of the transport.
//!
//! The response copies Via, From, To, Call-ID and CSeq. Over TCP the echo also reads the length of the body. An idle connection has no
//! buffer. All connections share one thread.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::HashMap;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};

/// Maximum number of events of one poll.
const EVENTS: usize = 256;

/// Size of the buffer of all reads.
const READ: usize = 65_536;

/// Longest request.
const LONGEST: usize = 65_536;

/// Marks of the two sockets that exist from the start. Connections are counted from [`FIRST`] on.
const DATAGRAMS: u64 = 0;
const LISTENER: u64 = 1;
const FIRST: u64 = 2;

/// Sockets of the echo.
#[derive(Debug)]
pub struct Echo {
    datagrams: UdpSocket,
    listener: TcpListener,
}

impl Echo {
    /// Binds an address for UDP and TCP.
    ///
    /// # Errors
    /// The address is not of this machine, or taken.
    pub fn bind(address: SocketAddr) -> io::Result<Self> {
        let datagrams = UdpSocket::bind(address)?;
        let listener = TcpListener::bind(datagrams.local_addr()?)?;
        datagrams.set_nonblocking(true)?;
        listener.set_nonblocking(true)?;
        Ok(Self { datagrams, listener })
    }

    /// Answers until the process is ended.
    ///
    /// # Errors
    /// A socket fails, or no more descriptors are left for connections.
    pub fn run(self) -> io::Result<()> {
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &self.datagrams, EventData::new_u64(DATAGRAMS), EventFlags::IN)?;
        epoll::add(&epoll, &self.listener, EventData::new_u64(LISTENER), EventFlags::IN)?;
        let mut connections: HashMap<u64, Connection> = HashMap::new();
        let (mut next, mut events) = (FIRST, Vec::with_capacity(EVENTS));
        let (mut heard, mut said) = (vec![0; READ], Vec::new());
        loop {
            match epoll::wait(&epoll, spare_capacity(&mut events), None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            for event in events.drain(..) {
                match event.data.u64() {
                    DATAGRAMS => self.datagrams(&mut heard, &mut said)?,
                    LISTENER => {
                        while let Some(stream) = accepted(&self.listener)? {
                            epoll::add(&epoll, &stream, EventData::new_u64(next), EventFlags::IN)?;
                            connections.insert(next, Connection { stream, rest: Vec::new() });
                            next += 1;
                        }
                    }
                    number => {
                        let Some(connection) = connections.get_mut(&number) else { continue };
                        if !connection.answer(&mut heard, &mut said) {
                            // The kernel forgets a descriptor that is closed.
                            connections.remove(&number);
                        }
                    }
                }
            }
        }
    }

    fn datagrams(&self, heard: &mut [u8], said: &mut Vec<u8>) -> io::Result<()> {
        loop {
            let (length, from) = match self.datagrams.recv_from(heard) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                // The previous answer was unreachable, and its error is returned by this call.
                Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionRefused) => continue,
                other => other?,
            };
            said.clear();
            if let Some(head) = head(&heard[..length]) {
                answer(&heard[..head], said);
                // A full buffer loses an answer, as the network may.
                let _ = self.datagrams.send_to(said, from);
            }
        }
    }
}

/// Accepts the next waiting connection, and skips connections that their peer has given up.
fn accepted(listener: &TcpListener) -> io::Result<Option<TcpStream>> {
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(true)?;
                stream.set_nodelay(true)?;
                return Ok(Some(stream));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) if matches!(error.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {}
            Err(error) => return Err(error),
        }
    }
}

struct Connection {
    stream: TcpStream,
    /// Incomplete request at the end of the input. While there is none, it has no memory.
    rest: Vec<u8>,
}

impl Connection {
    /// Reads once and answers all whole requests. Returns false if the connection has ended, or if its peer sends no SIP or
    /// reads no answers.
    fn answer(&mut self, heard: &mut [u8], said: &mut Vec<u8>) -> bool {
        let length = match self.stream.read(heard) {
            Ok(0) => return false,
            Ok(length) => length,
            Err(error) => return matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        };
        said.clear();
        let rest = std::mem::take(&mut self.rest);
        let joined;
        let all = if rest.is_empty() {
            &heard[..length]
        } else {
            joined = [&rest[..], &heard[..length]].concat();
            &joined[..]
        };
        let done = answer_whole(all, said);
        if all.len() - done > LONGEST {
            return false;
        }
        self.rest = all[done..].to_vec();
        said.is_empty() || self.stream.write_all(said).is_ok()
    }
}

/// Answers each whole request of a stream, and gives the length of these requests.
fn answer_whole(all: &[u8], said: &mut Vec<u8>) -> usize {
    let mut done = 0;
    loop {
        // Empty lines before a request keep the connection open.
        done += all[done..].iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
        let Some(head) = head(&all[done..]) else { return done };
        let end = done + head + body(&all[done..done + head]);
        if end > all.len() {
            return done;
        }
        answer(&all[done..done + head], said);
        done = end;
    }
}

/// Returns the length of the first line and the header fields, including the empty line after them.
fn head(text: &[u8]) -> Option<usize> {
    text.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4)
}

/// Returns the lines of the header fields, each with its line end.
fn lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    head.split_inclusive(|byte| *byte == b'\n').skip(1)
}

/// Returns the name of the header field in this line.
fn name(line: &[u8]) -> &[u8] {
    line.iter().position(|byte| *byte == b':').map_or(&[], |colon| line[..colon].trim_ascii())
}

/// Returns the length of the body from Content-Length, or 0 if that header field is missing.
fn body(head: &[u8]) -> usize {
    let is_length = |line: &&[u8]| [&b"content-length"[..], b"l"].iter().any(|it| name(line).eq_ignore_ascii_case(it));
    let value = lines(head).find(is_length).and_then(|line| line.splitn(2, |byte| *byte == b':').nth(1));
    value.and_then(|value| std::str::from_utf8(value.trim_ascii()).ok()?.parse().ok()).unwrap_or(0)
}

/// Header fields that an answer has of its request.
const COPIED: [&[u8]; 9] = [b"via", b"v", b"from", b"f", b"to", b"t", b"call-id", b"i", b"cseq"];

/// Appends the answer to a request. An ACK and a response have none.
fn answer(head: &[u8], said: &mut Vec<u8>) {
    if head.starts_with(b"ACK ") || head.starts_with(b"SIP/2.0 ") {
        return;
    }
    said.extend(b"SIP/2.0 200 OK\r\n");
    for line in lines(head) {
        let name = name(line);
        if !COPIED.iter().any(|copied| name.eq_ignore_ascii_case(copied)) {
            continue;
        }
        let has_tag = || line.windows(5).any(|part| part.eq_ignore_ascii_case(b";tag="));
        if (name.eq_ignore_ascii_case(b"to") || name.eq_ignore_ascii_case(b"t")) && !has_tag() {
            said.extend(line.trim_ascii_end());
            said.extend(b";tag=echo\r\n");
        } else {
            said.extend(line);
        }
    }
    said.extend(b"Content-Length: 0\r\n\r\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const REQUEST: &str = "REGISTER sip:a.test SIP/2.0\r\nVIA: SIP/2.0/TCP 127.0.0.1:9;branch=z9hG4bK1\r\nv: SIP/2.0/TCP b\r\n\
        Max-Forwards: 70\r\nFrom: <sip:a@a.test>;tag=1\r\nt: <sip:a@a.test>\r\ni: 7@a\r\nCSeq: 1 REGISTER\r\nl: 3\r\n\r\nabc";
    const ANSWER: &str = "SIP/2.0 200 OK\r\nVIA: SIP/2.0/TCP 127.0.0.1:9;branch=z9hG4bK1\r\nv: SIP/2.0/TCP b\r\n\
        From: <sip:a@a.test>;tag=1\r\nt: <sip:a@a.test>;tag=echo\r\ni: 7@a\r\nCSeq: 1 REGISTER\r\nContent-Length: 0\r\n\r\n";

    fn of(text: &str) -> (String, usize) {
        let mut said = Vec::new();
        let done = answer_whole(text.as_bytes(), &mut said);
        (String::from_utf8(said).expect("it is text"), done)
    }

    #[test]
    fn whole_requests_are_answered_and_parts_wait() {
        let two = format!("\r\n\r\n{REQUEST}{REQUEST}");
        assert_eq!(of(&two), (ANSWER.repeat(2), two.len()));
        for end in 0..REQUEST.len() {
            assert_eq!(of(&REQUEST[..end]), (String::new(), 0), "{end}");
        }
        let ack = REQUEST.replacen("REGISTER", "ACK", 1);
        assert_eq!(of(&ack), (String::new(), ack.len()));
        let tagged = REQUEST.replacen("\r\ni:", ";TAG=2\r\ni:", 1);
        assert!(of(&tagged).0.contains("t: <sip:a@a.test>;TAG=2\r\n"));
    }

    #[test]
    fn both_transports_of_a_port_are_answered() {
        let echo = Echo::bind(SocketAddr::from(([127, 0, 0, 1], crate::port::free()))).expect("a port is free");
        let at = echo.datagrams.local_addr().expect("it is bound");
        // The thread ends with the process of the tests.
        std::thread::spawn(move || echo.run().expect("its sockets are good"));
        let limit = Some(Duration::from_secs(20));
        let own = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        own.set_read_timeout(limit).expect("a time");
        own.send_to(REQUEST.as_bytes(), at).expect("it is sent");
        let mut heard = [0; 1_000];
        let length = own.recv(&mut heard).expect("an answer");
        assert_eq!(std::str::from_utf8(&heard[..length]), Ok(ANSWER));
        let mut stream = TcpStream::connect(at).expect("it listens");
        stream.set_read_timeout(limit).expect("a time");
        // The end of the second request comes later.
        let (first, second) = REQUEST.split_at(100);
        for part in [REQUEST, first, second] {
            stream.write_all(part.as_bytes()).expect("it is sent");
            std::thread::sleep(Duration::from_millis(20));
        }
        let mut answers = vec![0; 2 * ANSWER.len()];
        stream.read_exact(&mut answers).expect("two answers");
        assert_eq!(String::from_utf8(answers).expect("it is text"), ANSWER.repeat(2));
        // A peer that sends something else without end is cut off.
        let mut other = TcpStream::connect(at).expect("it listens");
        other.set_read_timeout(limit).expect("a time");
        let _ = other.write_all(&vec![b'x'; 3 * LONGEST]);
        assert!(other.read(&mut heard).map_or(true, |length| length == 0), "it is closed");
    }
}
