//! A few OPTIONS before the calls: is anybody there, and does something between us and the server limit the rate?

use super::target::Target;
use crate::measure::{Answer, Obstacle, Preflight, Probe};
use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, UdpSocket};
use std::time::{Duration, Instant};
use strowger_core::Transport;

/// What the pre-flight found.
#[derive(Clone, Debug, PartialEq)]
pub enum Finding {
    /// Nothing listens there: the whole sentence.
    Closed(String),
    Obstacle(Obstacle),
    /// Our own side cannot send: the whole sentence.
    Local(String),
}

/// The requests of one pre-flight.
#[derive(Clone, Debug)]
pub struct Probing<'a> {
    pub target: &'a Target,
    pub address: SocketAddr,
    pub transport: Transport,
    /// Ours; none: any.
    pub sources: &'a [IpAddr],
    /// Requests for each source.
    pub probes: usize,
    /// Requests a second.
    pub rate: f64,
    pub patience: Duration,
}

impl Probing<'_> {
    /// Sends the requests and waits for their answers; silence is no finding, for not everybody answers OPTIONS.
    pub fn run(&self) -> Vec<Finding> {
        if self.transport != Transport::Udp {
            return self.connect();
        }
        let start = Instant::now();
        let mut probes = Vec::new();
        let any = [if self.address.is_ipv6() { IpAddr::from([0u16; 8]) } else { IpAddr::from([0u8; 4]) }];
        let sources = if self.sources.is_empty() { &any[..] } else { self.sources };
        // A source after the other: several at once would be one source's rate to a limiter that counts all.
        for source in sources.iter().take(8) {
            match self.source(*source, start, &mut probes) {
                Ok(()) => (),
                Err(finding) => return vec![finding],
            }
        }
        let now = start.elapsed().as_micros() as u64;
        let settings = Preflight { patience: self.patience.as_millis() as u64, ..Preflight::default() };
        let obstacles = settings.classify(&probes, now).into_iter();
        obstacles.filter(|o| !matches!(o, Obstacle::Silent { .. })).map(Finding::Obstacle).collect()
    }

    fn source(&self, source: IpAddr, start: Instant, probes: &mut Vec<Probe>) -> Result<(), Finding> {
        let local = |error: std::io::Error| {
            Finding::Local(format!("nothing can be sent from {source} to {}: {error}", self.address))
        };
        let socket = UdpSocket::bind((source, 0)).map_err(local)?;
        // A connected socket hears of a closed port.
        socket.connect(self.address).map_err(local)?;
        let own = socket.local_addr().map_err(local)?;
        let from = probes.len();
        let gap = Duration::from_secs_f64((1.0 / self.rate.max(1.0)).clamp(0.002, 0.05));
        for number in 0..self.probes.max(1) {
            let request = self.request(own, number);
            match socket.send(request.as_bytes()) {
                Ok(_) => (),
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Err(self.closed()),
                Err(error) => return Err(local(error)),
            }
            probes.push(Probe { source: own.ip().to_string(), sent: start.elapsed().as_micros() as u64, answer: None });
            // The first answer tells whether OPTIONS is answered at all; if not, there is no use in more.
            let patience = if number == 0 { self.patience } else { gap };
            self.listen(&socket, start, &mut probes[from..], patience, number == 0)?;
            if number == 0 && probes[from].answer.is_none() {
                return Ok(());
            }
        }
        self.listen(&socket, start, &mut probes[from..], self.patience, true)
    }

    /// Takes answers for so long, or (`early`) until none is missing.
    fn listen(
        &self,
        socket: &UdpSocket,
        start: Instant,
        probes: &mut [Probe],
        patience: Duration,
        early: bool,
    ) -> Result<(), Finding> {
        let end = Instant::now() + patience;
        let mut buffer = [0; 65_536];
        loop {
            if early && probes.iter().all(|probe| probe.answer.is_some()) {
                return Ok(());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            let _ = socket.set_read_timeout(Some(left.max(Duration::from_micros(100))));
            match socket.recv(&mut buffer) {
                Ok(length) => {
                    let text = String::from_utf8_lossy(&buffer[..length]);
                    if let Some((number, answer)) = answer(&text, start.elapsed().as_micros() as u64)
                        && let Some(probe) = probes.get_mut(number)
                    {
                        probe.answer.get_or_insert(answer);
                    }
                }
                Err(error) if error.kind() == ErrorKind::ConnectionRefused => return Err(self.closed()),
                Err(_) => return Ok(()),
            }
        }
    }

    fn connect(&self) -> Vec<Finding> {
        match TcpStream::connect_timeout(&self.address, Duration::from_secs(5)) {
            Ok(stream) => {
                if self.transport == Transport::Tcp {
                    self.stream(stream);
                }
                Vec::new()
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => vec![self.closed()],
            Err(error) => {
                vec![Finding::Closed(format!(
                    "{} cannot be reached by {}: {error}",
                    self.address,
                    self.transport.text()
                ))]
            }
        }
    }

    /// One OPTIONS, so that the connection is not one that never spoke.
    fn stream(&self, mut stream: TcpStream) {
        let Ok(own) = stream.local_addr() else { return };
        let _ = stream.set_read_timeout(Some(self.patience));
        if stream.write_all(self.request(own, 0).as_bytes()).is_ok() {
            let _ = stream.read(&mut [0; 4_096]);
        }
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

/// The number of the probe that a final response answers, and the answer.
fn answer(text: &str, at: u64) -> Option<(usize, Answer)> {
    let code: u16 = text.strip_prefix("SIP/2.0 ")?.get(..3)?.parse().ok()?;
    let value = |name: &str| {
        text.lines().find_map(|line| {
            let (found, value) = line.split_once(':')?;
            found.trim().eq_ignore_ascii_case(name).then(|| value.trim())
        })
    };
    let number = value("Call-ID").or_else(|| value("i"))?.rsplit('-').next()?.parse().ok()?;
    let retry_after = value("Retry-After").and_then(|v| v.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok());
    (code >= 200).then_some((number, Answer { code, retry_after, at }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probing(target: &Target, address: SocketAddr) -> Probing<'_> {
        let patience = Duration::from_millis(200);
        Probing { target, address, transport: Transport::Udp, sources: &[], probes: 10, rate: 500.0, patience }
    }

    /// A server that answers the first `good` requests with 200 and the others with this.
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
        // Nobody has to answer OPTIONS.
        assert_eq!(probing(&target, server(0, None)).run(), []);
    }

    #[test]
    fn a_closed_port_is_named() {
        let target: Target = "127.0.0.1".parse().unwrap();
        let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let found = probing(&target, address).run();
        assert!(matches!(&found[..], [Finding::Closed(text)] if text.contains("nothing listens")), "{found:?}");
        let found = Probing { transport: Transport::Tcp, ..probing(&target, address) }.run();
        assert!(matches!(&found[..], [Finding::Closed(text)] if text.contains("by tcp")), "{found:?}");
    }
}
