//! Pre-flight: a few OPTIONS before the calls check that a server answers and that nothing on the path limits the rate.

use super::obstacle::{Obstacle, Preflight, Probe, ProbeAnswer};
use super::target::Target;
use std::io::{ErrorKind, Read, Result as IoResult, Write};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use strowger_core::Transport;
use tokio::net::TcpSocket;

/// Time limit of connecting.
const CONNECTING: Duration = Duration::from_secs(5);

/// Finding of the pre-flight.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Nothing listens at the target. Carries the whole sentence.
    Closed(String),
    Obstacle(Obstacle),
    /// Our own side cannot send. Carries the whole sentence.
    Local(String),
}

/// Requests of one pre-flight.
#[derive(Clone, Debug)]
pub struct Probing<'a> {
    pub target: &'a Target,
    pub address: SocketAddr,
    pub transport: Transport,
    /// Our addresses; empty: any.
    pub sources: &'a [IpAddr],
    /// Requests for each source.
    pub probes: usize,
    /// Requests a second.
    pub rate: f64,
    pub patience: Duration,
}

impl Probing<'_> {
    /// Sends the requests and waits for their answers. Silence is no finding, because not every server answers OPTIONS.
    /// Over TLS and WebSocket it only checks that a server takes connections; [`probe`](super::probe) sends requests
    /// there.
    pub fn run(&self) -> Vec<Finding> {
        let start = Instant::now();
        let probes = match self.send(start) {
            Ok(probes) => probes,
            Err(finding) => return vec![finding],
        };
        let now = start.elapsed().as_micros() as u64;
        let settings = Preflight { patience: self.patience.as_millis() as u64, ..Preflight::default() };
        let obstacles = settings.classify(&probes, now).into_iter();
        obstacles.filter(|o| !matches!(o, Obstacle::Silent { .. })).map(Finding::Obstacle).collect()
    }

    /// Sends the requests, and returns whether each of them was answered in time. Over TLS and WebSocket it sends none
    /// and returns false.
    ///
    /// # Errors
    /// Nothing listens at the target, or this process cannot send.
    pub fn is_answered(&self) -> Result<bool, Finding> {
        let probes = self.send(Instant::now())?;
        Ok(!probes.is_empty() && probes.iter().all(|probe| probe.answer.is_some()))
    }

    fn send(&self, start: Instant) -> Result<Vec<Probe>, Finding> {
        let mut probes = Vec::new();
        let any = [if self.address.is_ipv6() { IpAddr::from([0u16; 8]) } else { IpAddr::from([0u8; 4]) }];
        let sources = if self.sources.is_empty() { &any[..] } else { self.sources };
        // One source after another: a limiter that counts all sources together would see several sources at once as one high
        // rate.
        for source in sources.iter().take(8) {
            self.source(*source, start, &mut probes)?;
        }
        Ok(probes)
    }

    fn source(&self, source: IpAddr, start: Instant, probes: &mut Vec<Probe>) -> Result<(), Finding> {
        match self.transport {
            Transport::Udp => {
                let opened = UdpSocket::bind((source, 0)).and_then(|socket| {
                    // A connected socket reports a closed port.
                    socket.connect(self.address).map(|()| socket)
                });
                let socket = opened.map_err(|error| self.local(source, &error))?;
                self.probe(source, &mut Datagrams(socket), start, probes)
            }
            Transport::Tcp => {
                let stream = self.connect(source)?;
                self.probe(source, &mut Stream { stream, bytes: Vec::new() }, start, probes)
            }
            _ => self.connect(source).map(drop),
        }
    }

    fn probe(
        &self,
        source: IpAddr,
        link: &mut impl ProbeTransport,
        start: Instant,
        probes: &mut Vec<Probe>,
    ) -> Result<(), Finding> {
        let own = link.own().map_err(|error| self.local(source, &error))?;
        let from = probes.len();
        let gap = Duration::from_secs_f64((1.0 / self.rate.max(1.0)).clamp(0.002, 0.05));
        for number in 0..self.probes.max(1) {
            match link.send(&self.request(own, number)) {
                Ok(()) => (),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Err(self.closed()),
                // A server that ends the connection answers no more.
                Err(_) if self.transport.is_reliable() => (),
                Err(error) => return Err(self.local(source, &error)),
            }
            probes.push(Probe { source: own.ip().to_string(), sent: start.elapsed().as_micros() as u64, answer: None });
            // The first answer shows whether the server answers OPTIONS at all; if not, more requests are useless.
            let patience = if number == 0 { self.patience } else { gap };
            self.listen(link, start, &mut probes[from..], patience, number == 0)?;
            if number == 0 && probes[from].answer.is_none() {
                return Ok(());
            }
        }
        self.listen(link, start, &mut probes[from..], self.patience, true)
    }

    /// Receives answers for this long, or (`early`) until all have come.
    fn listen(
        &self,
        link: &mut impl ProbeTransport,
        start: Instant,
        probes: &mut [Probe],
        patience: Duration,
        early: bool,
    ) -> Result<(), Finding> {
        let end = Instant::now() + patience;
        loop {
            if early && probes.iter().all(|probe| probe.answer.is_some()) {
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            match link.receive(left.max(Duration::from_micros(100))) {
                Ok(text) => {
                    if let Some((number, answer)) = answer(&text, start.elapsed().as_micros() as u64)
                        && let Some(probe) = probes.get_mut(number)
                    {
                        probe.answer.get_or_insert(answer);
                    }
                }
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Err(self.closed()),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => return Ok(()),
                // No more answers will arrive. The time is waited nevertheless, so that silence takes as long as in
                // other cases.
                Err(_) => {
                    std::thread::sleep(left);
                    return Ok(());
                }
            }
        }
    }

    /// Connects from this address.
    fn connect(&self, source: IpAddr) -> Result<TcpStream, Finding> {
        let connecting = async {
            let socket = if source.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
            socket.bind(SocketAddr::new(source, 0))?;
            let stream = tokio::time::timeout(CONNECTING, socket.connect(self.address)).await;
            stream.map_err(|_| ErrorKind::TimedOut)??.into_std()
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let stream = runtime.and_then(|runtime| runtime.block_on(connecting));
        match stream.and_then(|stream| stream.set_nonblocking(false).map(|()| stream)) {
            Ok(stream) => Ok(stream),
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => Err(self.closed()),
            Err(error) if error.kind() == ErrorKind::AddrNotAvailable => Err(self.local(source, &error)),
            Err(error) => Err(Finding::Closed(format!(
                "{} cannot be reached by {}: {error}",
                self.address,
                self.transport.text()
            ))),
        }
    }

    fn local(&self, source: IpAddr, error: &std::io::Error) -> Finding {
        let unscoped = |v6: &SocketAddrV6| v6.ip().is_unicast_link_local() && v6.scope_id() == 0;
        let why = match self.address {
            _ if source.is_ipv4() != self.address.is_ipv4() => "one is IPv4, the other IPv6".into(),
            SocketAddr::V6(v6) if unscoped(&v6) => {
                format!("an address of a link is written with its interface, such as {}%eth0", v6.ip())
            }
            _ => error.to_string(),
        };
        Finding::Local(format!("nothing can be sent from {source} to {}: {why}", self.address))
    }

    fn closed(&self) -> Finding {
        Finding::Closed(format!(
            "nothing listens on {} by {}: is the server running, and is port {} right?",
            self.address,
            self.transport.text(),
            self.address.port()
        ))
    }

    fn request(&self, own: SocketAddr, number: usize) -> String {
        let (pid, place, transport) = (std::process::id(), self.target.place(), self.transport.via());
        format!(
            "OPTIONS sip:{place} SIP/2.0\r\nVia: SIP/2.0/{transport} {own};branch=z9hG4bK-p{pid}-{number};rport\r\n\
             Max-Forwards: 70\r\nFrom: <sip:preflight@{own}>;tag={pid}p{number}\r\nTo: <sip:{place}>\r\n\
             Call-ID: preflight-{pid}-{}-{number}\r\nCSeq: 1 OPTIONS\r\nContact: <sip:preflight@{own}>\r\n\
             User-Agent: Strowger\r\nContent-Length: 0\r\n\r\n",
            own.port()
        )
    }
}

/// Transport of probes and answers.
trait ProbeTransport {
    fn own(&self) -> IoResult<SocketAddr>;
    fn send(&mut self, text: &str) -> IoResult<()>;
    /// Receives the next message.
    fn receive(&mut self, patience: Duration) -> IoResult<String>;
}

struct Datagrams(UdpSocket);

impl ProbeTransport for Datagrams {
    fn own(&self) -> IoResult<SocketAddr> {
        self.0.local_addr()
    }

    fn send(&mut self, text: &str) -> IoResult<()> {
        self.0.send(text.as_bytes()).map(drop)
    }

    fn receive(&mut self, patience: Duration) -> IoResult<String> {
        let mut buffer = [0; 65_536];
        self.0.set_read_timeout(Some(patience))?;
        let length = self.0.recv(&mut buffer)?;
        Ok(String::from_utf8_lossy(&buffer[..length]).into_owned())
    }
}

/// Stream of answers to OPTIONS. Bodies are skipped: the next answer begins with `SIP/2.0`.
struct Stream {
    stream: TcpStream,
    bytes: Vec<u8>,
}

impl ProbeTransport for Stream {
    fn own(&self) -> IoResult<SocketAddr> {
        self.stream.local_addr()
    }

    fn send(&mut self, text: &str) -> IoResult<()> {
        self.stream.write_all(text.as_bytes())
    }

    fn receive(&mut self, patience: Duration) -> IoResult<String> {
        let mut part = [0; 4_096];
        loop {
            if let Some(end) = memchr::memmem::find(&self.bytes, b"\r\n\r\n") {
                let head: Vec<u8> = self.bytes.drain(..end + 4).collect();
                let begin = memchr::memmem::find(&head, b"SIP/2.0 ").unwrap_or(0);
                return Ok(String::from_utf8_lossy(&head[begin..]).into_owned());
            }
            if self.bytes.len() > 65_536 {
                return Err(ErrorKind::InvalidData.into());
            }
            self.stream.set_read_timeout(Some(patience))?;
            match self.stream.read(&mut part)? {
                0 => return Err(ErrorKind::ConnectionAborted.into()),
                length => self.bytes.extend_from_slice(&part[..length]),
            }
        }
    }
}

/// Returns the number of the probe that a final response answers, and the answer.
fn answer(text: &str, at: u64) -> Option<(usize, ProbeAnswer)> {
    let number = value(text, "Call-ID").or_else(|| value(text, "i"))?.rsplit('-').next()?.parse().ok()?;
    Some((number, final_answer(text, at)?))
}

/// Parses a final response.
pub(super) fn final_answer(text: &str, at: u64) -> Option<ProbeAnswer> {
    let code: u16 = text.strip_prefix("SIP/2.0 ")?.get(..3)?.parse().ok()?;
    let retry_after = value(text, "Retry-After");
    let retry_after = retry_after.and_then(|v| v.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    (code >= 200).then_some(ProbeAnswer { code, retry_after, at })
}

/// Returns the value of a header field.
fn value<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (found, value) = line.split_once(':')?;
        found.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probing(target: &Target, address: SocketAddr) -> Probing<'_> {
        let patience = Duration::from_millis(200);
        Probing { target, address, transport: Transport::Udp, sources: &[], probes: 10, rate: 500.0, patience }
    }

    /// Starts a server that answers the first `good` requests with 200 and the others with `bad`.
    fn server(good: usize, bad: Option<&'static str>) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 4_096];
            socket.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            for number in 0.. {
                let Ok((length, from)) = socket.recv_from(&mut buffer) else { return };
                let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
                let kept: String = text
                    .lines()
                    .filter(|l| ["Via", "From", "To", "Call-ID", "CSeq"].iter().any(|n| l.starts_with(n)))
                    .map(|l| format!("{l}\r\n"))
                    .collect();
                let Some(line) = (if number < good { Some("200 OK\r\n") } else { bad }) else { continue };
                socket.send_to(format!("SIP/2.0 {line}{kept}Content-Length: 0\r\n\r\n").as_bytes(), from).unwrap();
            }
        });
        address
    }

    #[test]
    fn an_open_road_and_its_obstacles() {
        let target: Target = "127.0.0.1".parse().unwrap();
        assert_eq!(probing(&target, server(99, None)).run(), []);
        let found = probing(&target, server(4, Some("503 Slow down\r\nRetry-After: 7\r\n"))).run();
        assert!(
            matches!(
                &found[..],
                [Finding::Obstacle(Obstacle::RateLimit { code: 503, after: 4, retry_after: Some(7), .. })]
            ),
            "{found:?}"
        );
        let found = probing(&target, server(3, None)).run();
        assert!(matches!(&found[..], [Finding::Obstacle(Obstacle::Ban { after: 3, .. })]), "{found:?}");
        // A server need not answer OPTIONS.
        assert_eq!(probing(&target, server(0, None)).run(), []);
        let is_answered = |address| probing(&target, address).is_answered();
        assert_eq!(
            [server(99, None), server(3, None), server(0, None)].map(is_answered),
            [Ok(true), Ok(false), Ok(false)]
        );
    }

    /// Starts the same server over TCP; without `bad` the connection ends.
    fn tcp_server(good: usize, bad: Option<&'static str>) -> SocketAddr {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let stream = listener.accept().unwrap().0;
            let mut link = Stream { stream, bytes: Vec::new() };
            let mut number = 0;
            while let Ok(text) = link.receive(Duration::from_secs(5)) {
                let kept: Vec<&str> =
                    text.lines().filter(|l| l.contains(':') && !l.starts_with("Content-Length")).collect();
                let Some(line) = (if number < good { Some("200 OK\r\n") } else { bad }) else { return };
                let body = "v=0\r\n";
                let head =
                    format!("SIP/2.0 {line}{}\r\nContent-Length: {}\r\n\r\n{body}", kept.join("\r\n"), body.len());
                if link.send(&head).is_err() {
                    return;
                }
                number += 1;
            }
        });
        address
    }

    #[test]
    fn obstacles_are_met_by_tcp_too() {
        let target: Target = "127.0.0.1".parse().unwrap();
        let found = |address| Probing { transport: Transport::Tcp, ..probing(&target, address) }.run();
        assert_eq!(found(tcp_server(99, None)), []);
        let limited = found(tcp_server(4, Some("503 Slow down\r\nRetry-After: 7\r\n")));
        assert!(
            matches!(
                &limited[..],
                [Finding::Obstacle(Obstacle::RateLimit { code: 503, after: 4, retry_after: Some(7), .. })]
            ),
            "{limited:?}"
        );
        let banned = found(tcp_server(3, None));
        assert!(matches!(&banned[..], [Finding::Obstacle(Obstacle::Ban { after: 3, .. })]), "{banned:?}");
        assert_eq!(found(tcp_server(0, None)), [], "a server need not answer OPTIONS");
        let source = [IpAddr::from([192, 0, 2, 77])];
        let away =
            Probing { sources: &source, transport: Transport::Tls, ..probing(&target, tcp_server(0, None)) }.run();
        assert!(matches!(&away[..], [Finding::Local(text)] if text.contains("192.0.2.77")), "{away:?}");
    }

    #[test]
    fn a_closed_port_is_named() {
        let target: Target = "127.0.0.1".parse().unwrap();
        let address = UdpSocket::bind("127.0.0.234:0").unwrap().local_addr().unwrap();
        let found = probing(&target, address).run();
        assert!(matches!(&found[..], [Finding::Closed(text)] if text.contains("nothing listens")), "{found:?}");
        let found = Probing { transport: Transport::Tcp, ..probing(&target, address) }.run();
        assert!(matches!(&found[..], [Finding::Closed(text)] if text.contains("by tcp")), "{found:?}");
    }
}
