//! Peer of a case: plays a script and records all messages.
//!
//! | word | action |
//! |---|---|
//! | `await [WORD]` | takes the next message, or the next with method or code `WORD`; skipped messages stay in the record |
//! | `reply CODE [to METHOD]` | answers the last request taken (the last of that method) |
//! | `request METHOD [CSEQ]` | sends a request of the same call |
//! | `send` | sends the text unchanged |
//! | `again` | sends the last message once more |
//! | `sleep MS` | listens for MS milliseconds |
//! | `pieces N` | later messages are sent in pieces of N bytes (streams) |
//! | `hold` / `flush` | messages between them leave in one write (streams) |
//! | `close` | closes the connection (streams) |
//! | `reset` | aborts it by TCP's RST (streams) |
//! | `call-id TEXT` | Call-ID of later calls of the peer |
//!
//! Text after `|` is header lines, and after an empty line the body. `-Name` removes a line. `{local}`, `{remote}` are
//! the addresses of peer and program, `{via}`, `{from}`, `{to}`, `{call-id}`, `{cseq}`, `{branch}` and `{Header}` come
//! from the last message taken; `\r`, `\n`, `\t` and `\\` have their meaning of C.

use std::collections::BTreeSet;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::case::Line;

/// Time limit of `await`.
const PATIENCE: Duration = Duration::from_secs(6);

enum Link {
    Datagrams(UdpSocket),
    Listener(TcpListener),
    Stream(TcpStream),
    Closed,
}

/// Peer in progress.
pub struct Peer {
    link: Link,
    local: SocketAddr,
    remote: SocketAddr,
    /// Bytes of a stream that are no complete message yet.
    rest: Vec<u8>,
    /// All received messages.
    record: Vec<(Duration, Vec<u8>)>,
    /// Ports of their senders.
    ports: BTreeSet<u16>,
    /// Number of messages that `await` has passed.
    taken: usize,
    requests: Vec<Vec<u8>>,
    last: Option<Vec<u8>>,
    sent: Vec<u8>,
    held: Option<Vec<u8>>,
    pieces: usize,
    call_id: String,
    sequence: u32,
    branches: u32,
    missed: Vec<String>,
    began: Instant,
}

impl Peer {
    /// Creates a peer that is called.
    ///
    /// # Panics
    /// The port is in use.
    pub fn called(local: SocketAddr, remote: SocketAddr, streams: bool) -> Self {
        let link = if streams {
            let listener = patiently(|| TcpListener::bind(local));
            listener.set_nonblocking(true).expect("a socket can be told");
            Link::Listener(listener)
        } else {
            datagrams(local)
        };
        Self::new(link, local, remote)
    }

    /// Creates a peer that calls; over a stream it connects at its first message.
    ///
    /// # Panics
    /// The port is in use, or no program listens there in time.
    pub fn calling(local: SocketAddr, remote: SocketAddr, streams: bool) -> Self {
        if !streams {
            return Self::new(datagrams(local), local, remote);
        }
        let end = Instant::now() + PATIENCE;
        loop {
            if let Ok(stream) = TcpStream::connect(remote) {
                // The real port of the connection differs; the address in messages must not change from run to run.
                return Self::new(Link::Stream(stream), local, remote);
            }
            assert!(Instant::now() < end, "nobody listens at {remote}");
            // Retry interval.
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn new(link: Link, local: SocketAddr, remote: SocketAddr) -> Self {
        Self {
            link,
            local,
            remote,
            rest: Vec::new(),
            record: Vec::new(),
            ports: BTreeSet::new(),
            taken: 0,
            requests: Vec::new(),
            last: None,
            sent: Vec::new(),
            held: None,
            pieces: usize::MAX,
            call_id: "peer-1@127.0.0.1".into(),
            sequence: 0,
            branches: 0,
            missed: Vec::new(),
            began: Instant::now(),
        }
    }

    /// Plays the script. `over` tells whether the program has ended; the end of the program ends every wait.
    ///
    /// # Panics
    /// The script has an unknown command.
    pub fn play(&mut self, script: &[Line], mut over: impl FnMut() -> bool) {
        for line in script {
            let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
            match words[..] {
                ["await"] => self.take("", &mut over),
                ["await", word] => self.take(word, &mut over),
                ["reply", code] => self.reply(code, None, &line.text),
                ["reply", code, "to", method] => self.reply(code, Some(method), &line.text),
                ["request", method] => self.request(method, None, &line.text),
                ["request", method, sequence] => self.request(method, Some(sequence), &line.text),
                ["send"] => {
                    let text: Vec<String> = line.text.iter().map(|l| self.expand(l)).collect();
                    self.say(text.join("\r\n").into_bytes());
                }
                ["again"] => self.say(self.sent.clone()),
                ["sleep", ms] => self.listen(Duration::from_millis(ms.parse().expect("milliseconds"))),
                ["pieces", n] => self.pieces = n.parse().expect("bytes"),
                ["hold"] => self.held = Some(Vec::new()),
                ["flush"] => {
                    let bytes = self.held.take().unwrap_or_default();
                    self.write(&bytes);
                }
                ["close"] => self.link = Link::Closed,
                ["reset"] => self.reset(),
                ["call-id", text] => {
                    self.call_id = text.into();
                    self.last = None;
                    self.requests.clear();
                    self.sequence = 0;
                }
                _ => panic!("the peer does not understand {:?}", line.words),
            }
        }
    }

    /// Aborts the connection (RST) by a linger time of zero.
    fn reset(&mut self) {
        if let Link::Stream(stream) = &self.link {
            let socket = socket2::SockRef::from(stream);
            socket.set_linger(Some(Duration::ZERO)).expect("a socket can be told");
        }
        self.link = Link::Closed;
    }

    /// Listens for this time.
    pub fn listen(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            self.hear();
        }
    }

    /// Returns the ports of all senders.
    pub fn ports(&self) -> &BTreeSet<u16> {
        &self.ports
    }

    /// Returns all messages with the time since the start, and the words that `await` expected in vain.
    pub fn record(self) -> (Vec<(Duration, Vec<u8>)>, Vec<String>) {
        (self.record, self.missed)
    }

    /// Reads the available input, for some milliseconds at most.
    fn hear(&mut self) {
        let mut buffer = [0; 65_536];
        match &mut self.link {
            Link::Datagrams(socket) => {
                if let Ok((n, from)) = socket.recv_from(&mut buffer) {
                    // Each call may have a socket of its own.
                    self.remote = from;
                    self.ports.insert(from.port());
                    self.record.push((self.began.elapsed(), buffer[..n].to_vec()));
                }
                return;
            }
            Link::Listener(listener) => match listener.accept() {
                Ok((stream, from)) => {
                    stream.set_nonblocking(false).expect("a socket can be told");
                    self.remote = from;
                    self.ports.insert(from.port());
                    self.link = Link::Stream(stream);
                }
                // Poll interval.
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            },
            Link::Stream(stream) => {
                stream.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket can be told");
                match stream.read(&mut buffer) {
                    Ok(0) => self.link = Link::Closed,
                    Ok(n) => self.rest.extend_from_slice(&buffer[..n]),
                    Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => (),
                    Err(_) => self.link = Link::Closed,
                }
            }
            // Poll interval.
            Link::Closed => std::thread::sleep(Duration::from_millis(5)),
        }
        // The answer to a keep-alive (RFC 5626 section 4.4.1) counts as a message.
        while self.rest.starts_with(b"\r\n") {
            self.record.push((self.began.elapsed(), self.rest.drain(..2).collect()));
        }
        while let Some(n) = whole(&self.rest) {
            let message = self.rest.drain(..n).collect();
            self.record.push((self.began.elapsed(), message));
        }
    }

    fn take(&mut self, word: &str, over: &mut impl FnMut() -> bool) {
        let end = Instant::now() + PATIENCE;
        let mut ended = false;
        loop {
            while let Some((_, message)) = self.record.get(self.taken) {
                self.taken += 1;
                let (message, first) = (message.clone(), first_words(message));
                if word.is_empty() || first.0 == word || first.1 == word {
                    if first.0 != "SIP/2.0" {
                        self.requests.push(message.clone());
                    }
                    self.last = Some(message);
                    return;
                }
            }
            if Instant::now() >= end || ended {
                self.missed.push(word.into());
                return;
            }
            // The last output before the end is still read.
            ended = over();
            self.hear();
        }
    }

    fn header(&self, name: &str) -> String {
        self.last.as_deref().and_then(|m| header(m, name)).unwrap_or_default()
    }

    fn expand(&self, line: &str) -> String {
        let mut text = String::new();
        let mut rest = line;
        while let Some(at) = rest.find(['{', '\\']) {
            text += &rest[..at];
            rest = &rest[at..];
            if let Some(after) = rest.strip_prefix('\\') {
                let c = after.chars().next().unwrap_or('\\');
                text.push(match c {
                    'r' => '\r',
                    'n' => '\n',
                    't' => '\t',
                    c => c,
                });
                rest = after.get(c.len_utf8()..).unwrap_or_default();
                continue;
            }
            let end = rest.find('}').unwrap_or(rest.len() - 1);
            let name = &rest[1..end];
            text += &match name {
                "local" => self.local.to_string(),
                "remote" => self.remote.to_string(),
                "via" => self.header("Via"),
                "branch" => {
                    let via = self.header("Via");
                    let branch = via.split(";branch=").nth(1).unwrap_or_default();
                    branch.split(';').next().unwrap_or_default().to_owned()
                }
                name => self.header(name),
            };
            rest = &rest[end + 1..];
        }
        text + rest
    }

    fn reply(&mut self, code: &str, method: Option<&str>, extra: &[String]) {
        let request = match method {
            Some(method) => self.requests.iter().rev().find(|m| first_words(m).0 == method),
            None => self.requests.last(),
        };
        let Some(request) = request.cloned() else {
            self.missed.push(format!("nothing to answer with {code}"));
            return;
        };
        let mut lines = vec![format!("SIP/2.0 {code} {}", reason(code))];
        let text = String::from_utf8_lossy(&request).into_owned();
        for line in text.split("\r\n").take_while(|l| !l.is_empty()) {
            let name = line.split(':').next().unwrap_or_default().trim().to_ascii_lowercase();
            match &*name {
                "via" | "v" | "record-route" | "from" | "f" | "call-id" | "i" | "cseq" => lines.push(line.into()),
                "to" | "t" if code == "100" || line.contains("tag=") => lines.push(line.into()),
                "to" | "t" => lines.push(format!("{line};tag=peer")),
                _ => (),
            }
        }
        lines.push(format!("Contact: <sip:peer@{}>", self.local));
        let extra: Vec<String> = extra.iter().map(|l| self.expand(l)).collect();
        self.say(compose(lines, &extra));
    }

    fn request(&mut self, method: &str, sequence: Option<&str>, extra: &[String]) {
        let back = self.requests.last();
        let dialog = |name: &str| self.last.as_deref().and_then(|m| header(m, name));
        let (from, to, call_id) = match back {
            // Within the peer's own call, From of the peer is To of the program.
            Some(theirs) => {
                let own = header(theirs, "To").unwrap_or_default();
                let own = if own.contains("tag=") { own } else { format!("{own};tag=peer") };
                (own, header(theirs, "From").unwrap_or_default(), header(theirs, "Call-ID").unwrap_or_default())
            }
            None => {
                let to = dialog("To").unwrap_or_else(|| format!("<sip:service@{}>", self.remote));
                (format!("peer <sip:peer@{}>;tag=peer", self.local), to, self.call_id.clone())
            }
        };
        if !matches!(method, "ACK" | "CANCEL") {
            self.sequence += 1;
            self.branches += 1;
        }
        let sequence = sequence.map_or_else(|| self.sequence.to_string(), String::from);
        let transport = if matches!(self.link, Link::Datagrams(_)) { "UDP" } else { "TCP" };
        let lines = vec![
            format!("{method} sip:service@{} SIP/2.0", self.remote),
            format!("Via: SIP/2.0/{transport} {};branch=z9hG4bK-peer-{}", self.local, self.branches),
            format!("From: {from}"),
            format!("To: {to}"),
            format!("Call-ID: {call_id}"),
            format!("CSeq: {sequence} {method}"),
            format!("Contact: <sip:peer@{}>", self.local),
            "Max-Forwards: 70".into(),
        ];
        let extra: Vec<String> = extra.iter().map(|l| self.expand(l)).collect();
        self.say(compose(lines, &extra));
    }

    fn say(&mut self, bytes: Vec<u8>) {
        self.sent.clone_from(&bytes);
        if let Some(held) = &mut self.held {
            held.extend_from_slice(&bytes);
        } else {
            self.write(&bytes);
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        match &mut self.link {
            // The program may have ended already; then the record shows this.
            Link::Datagrams(socket) => drop(socket.send_to(bytes, self.remote)),
            Link::Stream(stream) => {
                for piece in bytes.chunks(self.pieces) {
                    let _ = stream.write_all(piece);
                    if self.pieces < bytes.len() {
                        // The pause makes each piece arrive separately.
                        std::thread::sleep(Duration::from_millis(10));
                    }
                }
            }
            Link::Listener(_) | Link::Closed => self.missed.push("no connection to speak on".into()),
        }
    }
}

/// Repeats `bind` for some seconds until it succeeds, because a program that has just ended may hold the port for a
/// moment.
fn patiently<T>(bind: impl Fn() -> std::io::Result<T>) -> T {
    let end = Instant::now() + PATIENCE;
    loop {
        match bind() {
            Ok(socket) => return socket,
            Err(error) => assert!(Instant::now() < end, "the port of the peer is taken: {error}"),
        }
        // Retry interval.
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn datagrams(local: SocketAddr) -> Link {
    let socket = patiently(|| UdpSocket::bind(local));
    socket.set_read_timeout(Some(Duration::from_millis(5))).expect("a socket can be told");
    Link::Datagrams(socket)
}

/// Returns method and Request-URI, or version and code.
pub fn first_words(message: &[u8]) -> (String, String) {
    let line = message.split(|&b| b == b'\r' || b == b'\n').next().unwrap_or_default();
    let text = String::from_utf8_lossy(line).into_owned();
    let mut words = text.split(' ');
    (words.next().unwrap_or_default().into(), words.next().unwrap_or_default().into())
}

/// Returns the value of the first line of this name.
fn header(message: &[u8], name: &str) -> Option<String> {
    let text = String::from_utf8_lossy(message).into_owned();
    let compact = match &*name.to_ascii_lowercase() {
        "via" => "v",
        "from" => "f",
        "to" => "t",
        "call-id" => "i",
        "contact" => "m",
        _ => "",
    };
    let lines = text.split("\r\n").skip(1).take_while(|l| !l.is_empty());
    let mut fields = lines.filter_map(|line| line.split_once(':'));
    let field = fields.find(|(n, _)| {
        let n = n.trim();
        n.eq_ignore_ascii_case(name) || !compact.is_empty() && n.eq_ignore_ascii_case(compact)
    });
    field.map(|(_, value)| value.trim().to_owned())
}

/// Returns the length of the first message of a stream, if it is complete.
fn whole(bytes: &[u8]) -> Option<usize> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")? + 4;
    let length = header(&bytes[..end], "Content-Length").or_else(|| header(&bytes[..end], "l"));
    let n = end + length.and_then(|l| l.parse::<usize>().ok()).unwrap_or(0);
    (bytes.len() >= n).then_some(n)
}

/// Returns header lines, changed by the extra ones, and the body after their empty line.
fn compose(mut lines: Vec<String>, extra: &[String]) -> Vec<u8> {
    let split = extra.iter().position(String::is_empty).unwrap_or(extra.len());
    for line in &extra[..split] {
        match line.strip_prefix('-') {
            Some(name) => lines.retain(|l| !l.starts_with(&format!("{name}:"))),
            None => lines.push(line.clone()),
        }
    }
    let body: String = extra.iter().skip(split + 1).map(|l| format!("{l}\r\n")).collect();
    if !lines.iter().any(|l| l.starts_with("Content-Length:")) {
        lines.push(format!("Content-Length: {}", body.len()));
    }
    (lines.join("\r\n") + "\r\n\r\n" + &body).into_bytes()
}

fn reason(code: &str) -> &'static str {
    match code {
        "100" => "Trying",
        "180" => "Ringing",
        "183" => "Session Progress",
        "200" => "OK",
        "202" => "Accepted",
        "302" => "Moved Temporarily",
        "401" => "Unauthorized",
        "404" => "Not Found",
        "407" => "Proxy Authentication Required",
        "486" => "Busy Here",
        "487" => "Request Terminated",
        "500" => "Server Internal Error",
        "503" => "Service Unavailable",
        _ => "Some Reason",
    }
}
