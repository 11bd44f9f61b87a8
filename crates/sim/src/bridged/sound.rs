//! Sound of a call at a phone: its session descriptions, and the RTP that it sends and hears.

use crate::random::Random;
use std::fmt::Write;
use std::net::{IpAddr, SocketAddr};
use strowger_media::rtp::{Numbering, Packet};

/// First bytes of the payload of each RTP packet of these worlds; the number of the sender follows.
const MARK: &[u8] = b"SIM";

/// Sender number of the outsider.
pub(super) const STRANGER: u8 = u8::MAX;

/// Formats of the phones: PCMA, PCMU, telephone-event.
const FORMATS: [&str; 3] = ["8", "0", "101"];

/// Direction in which a phone wants sound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wish {
    Both,
    /// Hold: the phone sends music.
    SendOnly,
    /// Hold without music.
    Inactive,
    /// Hold by the address 0.0.0.0 (RFC 2543).
    NoAddress,
}

impl Wish {
    const fn sends(self) -> bool {
        matches!(self, Self::Both | Self::SendOnly)
    }

    const fn receives(self) -> bool {
        matches!(self, Self::Both)
    }
}

/// Description of the peer.
#[derive(Clone, Debug)]
struct Described {
    address: SocketAddr,
    formats: Vec<String>,
    sends: bool,
    receives: bool,
    /// Lines of all streams.
    streams: Vec<String>,
    /// Place of the stream of sound among them.
    place: usize,
}

/// Sound of one call.
#[derive(Clone, Debug)]
pub(super) struct Sound {
    /// Name in the descriptions, which no other party may see.
    label: &'static str,
    ip: IpAddr,
    /// Ports that the phone has described, the last one in force.
    ports: Vec<u16>,
    wish: Wish,
    version: u32,
    /// Lines of the last description after its origin.
    last: String,
    /// Port and wish before an open offer of this phone.
    before: Option<(u16, Wish)>,
    /// Address to which the phone sends.
    remote: Option<SocketAddr>,
    /// True if the peer receives.
    is_wanted: bool,
    numbering: Numbering,
}

impl Sound {
    pub(super) fn new(label: &'static str, ip: IpAddr, port: u16, random: &mut Random) -> Self {
        Self {
            label,
            ip,
            ports: vec![port],
            wish: Wish::Both,
            version: 0,
            last: String::new(),
            before: None,
            remote: None,
            is_wanted: false,
            numbering: Numbering::new(random.u64() as u32, random.u64() as u16, random.u64() as u32),
        }
    }

    /// Returns the port in force.
    pub(super) fn port(&self) -> u16 {
        self.ports.last().copied().unwrap_or_default()
    }

    /// Returns whether the phone has ever described this port of RTP.
    pub(super) fn has_port(&self, port: u16) -> bool {
        self.ports.contains(&port)
    }

    /// Returns whether the phone holds the call.
    pub(super) fn holds(&self) -> bool {
        self.wish != Wish::Both
    }

    /// Offers the session as it is.
    pub(super) fn offer(&mut self) -> Vec<u8> {
        let direction = direction(self.wish.sends(), self.wish.receives());
        let stream = format!("m=audio {} RTP/AVP {}\r\n", self.port(), FORMATS.join(" "));
        self.describe(&(stream + &self.attributes(&FORMATS, direction)))
    }

    /// Offers the session with another wish, and perhaps another port.
    pub(super) fn change(&mut self, wish: Wish, port: Option<u16>) -> Vec<u8> {
        self.before = Some((self.port(), self.wish));
        self.wish = wish;
        self.ports.extend(port);
        self.offer()
    }

    /// Takes the outcome of an own offer.
    pub(super) fn conclude(&mut self, is_granted: bool) {
        if let Some((port, wish)) = self.before.take().filter(|_| !is_granted) {
            self.wish = wish;
            self.ports.retain(|other| *other != port);
            self.ports.push(port);
        }
    }

    /// Answers an offer. An offer without sound gets a refusal of all its streams.
    pub(super) fn answer(&mut self, offer: &[u8]) -> Vec<u8> {
        self.learn(offer);
        let Some(offer) = read(offer) else { return self.describe("") };
        let formats: Vec<&str> = FORMATS.into_iter().filter(|own| offer.formats.iter().any(|one| one == own)).collect();
        let (sends, receives) = (self.wish.sends() && offer.receives, self.wish.receives() && offer.sends);
        let mut lines = String::new();
        for (place, stream) in offer.streams.iter().enumerate() {
            if place == offer.place {
                let _ = write!(lines, "m=audio {} RTP/AVP {}\r\n", self.port(), formats.join(" "));
                lines += &self.attributes(&formats, direction(sends, receives));
            } else {
                let mut words = stream.splitn(3, ' ');
                let (kind, _, rest) = (words.next(), words.next(), words.next());
                let _ = write!(lines, "{} 0 {}\r\n", kind.unwrap_or("m=audio"), rest.unwrap_or("RTP/AVP 0"));
            }
        }
        self.describe(&lines)
    }

    fn attributes(&self, formats: &[&str], direction: &str) -> String {
        let events = if formats.contains(&"101") { "a=rtpmap:101 telephone-event/8000\r\n" } else { "" };
        match self.wish {
            Wish::NoAddress => events.to_owned(),
            _ => format!("{events}a={direction}\r\n"),
        }
    }

    /// Writes a description; its version rises if it differs from the last one.
    fn describe(&mut self, streams: &str) -> Vec<u8> {
        let label = self.label;
        let address = if self.wish == Wish::NoAddress { "0.0.0.0".to_owned() } else { self.ip.to_string() };
        let lines = format!("s={label}-session\r\nc=IN IP4 {address}\r\nt=0 0\r\n{streams}");
        self.version += u32::from(lines != self.last);
        let text = format!("v=0\r\no={label}-origin 1 {} IN IP4 {}\r\n{lines}", self.version, self.ip);
        self.last = lines;
        text.into_bytes()
    }

    /// Takes the description of the peer.
    pub(super) fn learn(&mut self, description: &[u8]) {
        if let Some(peer) = read(description) {
            let is_there = peer.address.port() != 0 && !peer.address.ip().is_unspecified();
            self.remote = is_there.then_some(peer.address);
            self.is_wanted = peer.receives;
        }
    }

    /// Returns the next packet and its target, if the phone may send now. `sender`: its number.
    pub(super) fn packet(&mut self, sender: u8) -> Option<(SocketAddr, Vec<u8>)> {
        let remote = self.remote.filter(|_| self.is_wanted && self.wish.sends())?;
        Some((remote, packet(&mut self.numbering, sender)))
    }
}

/// Milliseconds between two packets.
pub(super) const PACE: u64 = 200;

/// Writes a packet of PCMA with the number of its sender.
pub(super) fn packet(numbering: &mut Numbering, sender: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    numbering.next(8, 8 * PACE as u32).write(&mut bytes);
    bytes.extend_from_slice(MARK);
    bytes.extend([sender; 17]);
    bytes
}

/// Returns the number of the sender of a packet; `None` if it is no RTP of these worlds, or was damaged on its way.
pub(super) fn sender_of(datagram: &[u8]) -> Option<u8> {
    let (sender, copies) = Packet::read(datagram)?.payload.strip_prefix(MARK)?.split_first()?;
    copies.iter().all(|copy| copy == sender).then_some(*sender)
}

const fn direction(sends: bool, receives: bool) -> &'static str {
    match (sends, receives) {
        (true, true) => "sendrecv",
        (true, false) => "sendonly",
        (false, true) => "recvonly",
        (false, false) => "inactive",
    }
}

/// Reads the first stream of sound that is not refused.
fn read(description: &[u8]) -> Option<Described> {
    let text = std::str::from_utf8(description).ok()?;
    let streams: Vec<String> = text.lines().filter(|line| line.starts_with("m=")).map(str::to_owned).collect();
    let ports = |line: &String| line.split(' ').nth(1).and_then(|port| port.parse::<u16>().ok()).unwrap_or_default();
    let place = streams.iter().position(|line| line.starts_with("m=audio ") && ports(line) != 0)?;
    // Lines of the session, and those of the stream.
    let mut section = None;
    let mut own = Vec::new();
    for line in text.lines() {
        if line.starts_with("m=") {
            section = Some(section.map_or(0, |at: usize| at + 1));
        }
        if section.is_none_or(|at| at == place) {
            own.push(line);
        }
    }
    let ip = own.iter().rev().find_map(|line| line.strip_prefix("c=IN IP4 ")).and_then(|ip| ip.trim().parse().ok())?;
    let directions = ["sendrecv", "sendonly", "recvonly", "inactive"];
    let said = own
        .iter()
        .rev()
        .filter_map(|line| line.strip_prefix("a="))
        .find(|said| directions.contains(said))
        .unwrap_or("sendrecv");
    Some(Described {
        address: SocketAddr::new(ip, ports(&streams[place])),
        formats: streams[place].split(' ').skip(3).map(str::to_owned).collect(),
        sends: matches!(said, "sendrecv" | "sendonly"),
        receives: matches!(said, "sendrecv" | "recvonly"),
        streams,
        place,
    })
}

/// Returns the addresses that a description names for media: of RTP and of RTCP.
pub(super) fn named(description: &[u8]) -> Vec<SocketAddr> {
    let address = read(description).map(|described| described.address);
    let address = address.filter(|address| !address.ip().is_unspecified());
    address.into_iter().flat_map(|rtp| [rtp, SocketAddr::new(rtp.ip(), rtp.port() + 1)]).collect()
}
