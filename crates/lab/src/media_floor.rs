//! Floor of relayed media: a relay that does not read packets. Its cost is that of the system calls.
//!
//! The relay forwards SIP by UDP between callers at one address and one called end, and replaces the address and the port of audio in session
//! descriptions by its own. Each stream has a socket. One thread takes a packet by `recvfrom`, and passes it on by `sendto`.

use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, CreateFlags, EventData, EventFlags};
use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;

/// Maximum number of events of one poll.
const EVENTS: usize = 256;

/// Size of the buffer of all reads: the longest datagram.
const LONGEST: usize = 65_536;

/// Mark of the socket of SIP. Sockets of media have twice the number of their call, and 1 more on the called side.
const SIGNALLING: u64 = u64::MAX;

/// Sides of a call.
const CALLER: usize = 0;
const CALLED: usize = 1;

/// Relay of calls with media.
#[derive(Debug)]
pub struct MediaFloor {
    signalling: UdpSocket,
    called: SocketAddr,
    /// Sender of the last datagram of a caller.
    caller: Option<SocketAddr>,
    epoll: OwnedFd,
    /// Numbers of calls by Call-ID.
    numbers: HashMap<String, usize>,
    /// Calls by number; `None`: the number is free.
    calls: Vec<Option<Call>>,
}

/// Streams of a call, by the side that they face.
#[derive(Debug)]
struct Call {
    sockets: [UdpSocket; 2],
    peers: [Option<SocketAddr>; 2],
}

impl MediaFloor {
    /// Binds the address for callers. Calls go to `called`.
    ///
    /// # Errors
    /// The address is not of this machine, or taken.
    pub fn bind(address: SocketAddr, called: SocketAddr) -> io::Result<Self> {
        let signalling = UdpSocket::bind(address)?;
        signalling.set_nonblocking(true)?;
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &signalling, EventData::new_u64(SIGNALLING), EventFlags::IN)?;
        Ok(Self { signalling, called, caller: None, epoll, numbers: HashMap::new(), calls: Vec::new() })
    }

    /// Relays until the process is ended.
    ///
    /// # Errors
    /// A socket fails, or no more descriptors are left for calls.
    pub fn run(mut self) -> io::Result<()> {
        let (mut events, mut bytes) = (Vec::with_capacity(EVENTS), vec![0; LONGEST]);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            for event in events.drain(..) {
                match event.data.u64() {
                    SIGNALLING => self.message(&mut bytes)?,
                    stream => self.packet(stream, &mut bytes)?,
                }
            }
        }
    }

    /// Passes a packet on.
    fn packet(&self, stream: u64, bytes: &mut [u8]) -> io::Result<()> {
        let (number, side) = ((stream / 2) as usize, (stream % 2) as usize);
        // The call may have ended by the event before.
        let Some(Some(Call { sockets, peers })) = self.calls.get(number) else { return Ok(()) };
        if let Some((length, _)) = received(&sockets[side], bytes)?
            && let Some(peer) = peers[1 - side]
        {
            // A full buffer loses a packet, as the network may.
            let _ = sockets[1 - side].send_to(&bytes[..length], peer);
        }
        Ok(())
    }

    /// Passes a message on.
    fn message(&mut self, bytes: &mut [u8]) -> io::Result<()> {
        let Some((length, from)) = received(&self.signalling, bytes)? else { return Ok(()) };
        let side = if from == self.called { CALLED } else { CALLER };
        if side == CALLER {
            self.caller = Some(from);
        }
        let to = if side == CALLER { Some(self.called) } else { self.caller };
        let (Ok(text), Some(to)) = (std::str::from_utf8(&bytes[..length]), to) else { return Ok(()) };
        let Some((head, body)) = text.split_once("\r\n\r\n") else { return Ok(()) };
        let Some(call_id) = field(head, ["Call-ID", "i"]) else { return Ok(()) };
        let shown = match audio(body) {
            Some(peer) => self.own_audio(call_id, side, peer)?.map(|own| described(head, body, own)),
            None => None,
        };
        // A datagram that cannot be sent is lost; its sender repeats it.
        let _ = self.signalling.send_to(shown.as_deref().unwrap_or(text).as_bytes(), to);
        if is_end(head)
            && let Some(number) = self.numbers.remove(call_id)
        {
            // The kernel forgets descriptors that are closed.
            self.calls[number] = None;
        }
        Ok(())
    }

    /// Stores where one side of a call receives audio. Returns where the other side sends its audio.
    fn own_audio(&mut self, call_id: &str, side: usize, peer: SocketAddr) -> io::Result<Option<SocketAddr>> {
        let number = match self.numbers.get(call_id) {
            Some(number) => *number,
            None => self.open(call_id)?,
        };
        let Some(call) = &mut self.calls[number] else { return Ok(None) };
        call.peers[side] = Some(peer);
        call.sockets[1 - side].local_addr().map(Some)
    }

    /// Opens the sockets of a call, and returns its number.
    fn open(&mut self, call_id: &str) -> io::Result<usize> {
        let number = self.calls.iter().position(Option::is_none).unwrap_or(self.calls.len());
        let ip = self.signalling.local_addr()?.ip();
        let socket = |side: usize| {
            let socket = UdpSocket::bind((ip, 0))?;
            socket.set_nonblocking(true)?;
            epoll::add(&self.epoll, &socket, EventData::new_u64((2 * number + side) as u64), EventFlags::IN)?;
            Ok::<_, io::Error>(socket)
        };
        let call = Some(Call { sockets: [socket(CALLER)?, socket(CALLED)?], peers: [None; 2] });
        match self.calls.get_mut(number) {
            Some(free) => *free = call,
            None => self.calls.push(call),
        }
        self.numbers.insert(call_id.to_owned(), number);
        Ok(number)
    }
}

/// Receives a datagram. Returns `None` if there is none, or if an earlier one was not delivered.
fn received(socket: &UdpSocket, bytes: &mut [u8]) -> io::Result<Option<(usize, SocketAddr)>> {
    let none = [ErrorKind::WouldBlock, ErrorKind::Interrupted, ErrorKind::ConnectionRefused];
    match socket.recv_from(bytes) {
        Err(error) if none.contains(&error.kind()) => Ok(None),
        other => other.map(Some),
    }
}

/// Returns the value of the first header field of these names.
fn field<'a>(head: &'a str, names: [&str; 2]) -> Option<&'a str> {
    head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        names.iter().any(|known| name.trim().eq_ignore_ascii_case(known)).then(|| value.trim())
    })
}

/// Tells whether a call ends with this message: the answer to its BYE, or a failure of its INVITE.
fn is_end(head: &str) -> bool {
    let Some(code) = head.strip_prefix("SIP/2.0 ").and_then(|rest| rest.split(' ').next()) else { return false };
    let method = field(head, ["CSeq", "CSeq"]).and_then(|value| value.rsplit(' ').next());
    match method {
        Some("BYE") => !code.starts_with('1'),
        Some("INVITE") => !code.starts_with(['1', '2']),
        _ => false,
    }
}

/// Returns where the sender of a description receives audio.
fn audio(body: &str) -> Option<SocketAddr> {
    let value = |start: &str| body.lines().find_map(|line| line.strip_prefix(start));
    let port = value("m=audio ")?.split(' ').next()?.parse().ok()?;
    let address = value("c=IN ")?.split(' ').nth(1)?.trim().parse().ok()?;
    Some(SocketAddr::new(address, port))
}

/// Returns a message whose description has audio at `own`.
fn described(head: &str, body: &str, own: SocketAddr) -> String {
    let version = if own.is_ipv4() { 4 } else { 6 };
    let line = |line: &str| match line.strip_prefix("m=audio ").and_then(|rest| rest.split_once(' ')) {
        Some((_, rest)) => format!("m=audio {} {rest}\r\n", own.port()),
        None if line.starts_with("c=IN ") => format!("c=IN IP{version} {}\r\n", own.ip()),
        None => format!("{line}\r\n"),
    };
    let body: String = body.lines().map(line).collect();
    let header = |line: &str| match field(line, ["Content-Length", "l"]) {
        Some(_) => format!("Content-Length: {}\r\n", body.len()),
        None => format!("{line}\r\n"),
    };
    let head: String = head.lines().map(header).collect();
    format!("{head}\r\n{body}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn bound() -> UdpSocket {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("a time");
        socket
    }

    fn heard(socket: &UdpSocket) -> String {
        let mut bytes = [0; 2_000];
        let length = socket.recv(&mut bytes).expect("a datagram comes");
        String::from_utf8(bytes[..length].to_vec()).expect("it is text")
    }

    /// Returns a message with a description of audio at the port of this socket.
    fn message(first: &str, media: &UdpSocket) -> String {
        let port = media.local_addr().expect("it is bound").port();
        let body = format!("v=0\r\nc=IN IP4 127.0.0.1\r\nm=audio {port} RTP/AVP 0\r\na=x\r\n");
        format!("{first}\r\nCall-ID: 7\r\nCSeq: 1 INVITE\r\nl: {}\r\n\r\n{body}", body.len())
    }

    #[test]
    fn packets_go_through_a_socket_for_each_stream() {
        let [caller, called, sound, other] = [(); 4].map(|()| bound());
        let at = |socket: &UdpSocket| socket.local_addr().expect("it is bound");
        let floor = MediaFloor::bind("127.0.0.1:0".parse().expect("an address"), at(&called)).expect("a port is free");
        let to = at(&floor.signalling);
        // The thread ends with the process of the tests.
        std::thread::spawn(move || floor.run().expect("its sockets are good"));
        let shown = |from: &UdpSocket, media: &UdpSocket, to_side: &UdpSocket, first: &str| {
            from.send_to(message(first, media).as_bytes(), to).expect("it is sent");
            let got = heard(to_side);
            let (head, body) = got.split_once("\r\n\r\n").expect("it has a body");
            assert_eq!(field(head, ["Content-Length", "l"]), Some(body.len().to_string().as_str()), "{got}");
            assert!(got.starts_with(first) && body.ends_with("a=x\r\n"), "{got}");
            audio(body).expect("it has audio")
        };
        let for_called = shown(&caller, &sound, &called, "INVITE sip:x SIP/2.0");
        let for_caller = shown(&called, &other, &caller, "SIP/2.0 200 OK");
        let own = [at(&sound), at(&other), for_called, for_caller];
        assert!((0..4).all(|place| !own[..place].contains(&own[place])), "{own:?}");
        sound.send_to(b"from the caller", for_caller).expect("it is sent");
        other.send_to(b"from the called end", for_called).expect("it is sent");
        assert_eq!([heard(&other), heard(&sound)], ["from the caller", "from the called end"]);
        // The answer to a BYE passes, and the sockets are closed.
        let bye = "SIP/2.0 200 OK\r\nCall-ID: 7\r\nCSeq: 2 BYE\r\n\r\n";
        called.send_to(bye.as_bytes(), to).expect("it is sent");
        assert_eq!(heard(&caller), bye);
        let is_free = || UdpSocket::bind(for_caller).is_ok() && UdpSocket::bind(for_called).is_ok();
        assert!(crate::wait::until(Duration::from_secs(20), is_free));
    }

    #[test]
    fn a_call_ends_with_its_bye_or_its_refusal() {
        let ends = |first: &str, method: &str| is_end(&format!("{first}\r\nCSeq: 1 {method}"));
        assert!(ends("SIP/2.0 481 No", "BYE") && ends("SIP/2.0 486 Busy", "INVITE"));
        for (first, method) in
            [("BYE sip:x SIP/2.0", "BYE"), ("SIP/2.0 200 OK", "INVITE"), ("SIP/2.0 100 Trying", "BYE")]
        {
            assert!(!ends(first, method), "{first} {method}");
        }
    }
}
