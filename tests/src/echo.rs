//! Echo of a server under test: its configuration, a document of the generator that calls it, and a caller by hand.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use strowger_media::rtp::Packet;

use crate::call::exchange;
use crate::dialog::{End, contact, invite};
use crate::port;
use crate::rtp::{self, PACKET_TIME, TICKS};
use crate::server::{Server, Setup, loopback};
use crate::text::{Request, audio_port, respond, status};
use crate::wire::{Transport, Wire};

/// Rule of the echo.
const RULE: &str = "[[rule]]\nname = \"echo\"\nwhen = \"request.user == 'echo'\"\nanswer = \"echo\"";

/// Returns the settings of a server of one shard with an echo, whose media are at these ports of an address. It ends a call after five
/// seconds without media.
pub fn setup(ip: &str, ports: &str) -> Setup {
    with_echo(Setup::on(&[Transport::Udp]).open_registrar().with("server.shards = 1"), ip, ports)
}

/// Adds an echo as in [`setup`] to the settings of a server.
pub fn with_echo(setup: Setup, ip: &str, ports: &str) -> Setup {
    let media = format!("media.addresses = [\"{ip}\"]\nmedia.ports = \"{ports}\"\nmedia.timeout = \"5s\"");
    setup.with(&media).with(RULE)
}

/// Returns a document of the generator that calls the echo, plays `sound.raw` for this time, and hangs up.
pub fn document(talk: Duration) -> String {
    let request = |method: &str, cseq: u32, body: &str| {
        let tag = if method == "INVITE" { "" } else { "[peer_tag_param]" };
        let kind = if body.is_empty() { "" } else { "Content-Type: application/sdp\n" };
        format!(
            "<send><![CDATA[\n{method} sip:echo@[remote_ip]:[remote_port] SIP/2.0\n\
             Via: SIP/2.0/[transport] [local_ip]:[local_port];branch=[branch]\nFrom: <sip:me@[local_ip]>;tag=[call_number]\n\
             To: <sip:echo@[remote_ip]>{tag}\nCall-ID: [call_id]\nCSeq: {cseq} {method}\n\
             Contact: <sip:me@[local_ip]:[local_port]>\nMax-Forwards: 70\n{kind}Content-Length: [len]\n\n{body}\n]]></send>"
        )
    };
    let offer = "v=0\no=- 1 1 IN IP4 [local_ip]\ns=-\nc=IN IP4 [media_ip]\nt=0 0\nm=audio [auto_media_port] RTP/AVP 0";
    let (invite, ack, bye) = (request("INVITE", 1, offer), request("ACK", 1, ""), request("BYE", 2, ""));
    format!(
        "<?xml version=\"1.0\"?><scenario name=\"echo\">{invite}<recv response=\"100\" optional=\"true\"/>\
         <recv response=\"200\"/>{ack}<nop><action><exec rtp_stream=\"sound.raw,-1,0\"/></action></nop>\
         <pause milliseconds=\"{}\"/>{bye}<recv response=\"200\"/></scenario>",
        talk.as_millis()
    )
}

/// Caller by hand at 127.0.0.1, with ports for media.
pub struct Caller {
    wire: Wire,
    media: UdpSocket,
    /// Reserves the port of RTCP.
    _control: UdpSocket,
    dialog: End,
    /// Address of the server for its media.
    pub server_media: SocketAddr,
    /// Sequence number of the next packet.
    sequence: u16,
}

impl Caller {
    /// Calls the echo.
    ///
    /// # Errors
    /// The response with which the server refuses the call.
    ///
    /// # Panics
    /// The server does not answer.
    pub fn call(server: &Server) -> Result<Self, Vec<u8>> {
        let mut wire = server.connect(Transport::Udp);
        let port = port::pair();
        let [media, control] = [port, port + 1].map(|port| UdpSocket::bind(loopback(port)).expect("the port is free"));
        let mut invite = invite("sip:echo@example.org", &wire).with("Content-Type: application/sdp");
        invite.body = description(port, 1, "sendrecv");
        let answer = exchange(&mut wire, &invite);
        acknowledge(&mut wire, &invite, &answer);
        if status(&answer) != Some(200) {
            return Err(answer);
        }
        let dialog = End::caller(&invite, &answer);
        let server_media = described(&answer);
        Ok(Self { wire, media, _control: control, dialog, server_media, sequence: 1_000 })
    }

    /// Returns the address of its media.
    ///
    /// # Panics
    /// The socket has no address.
    pub fn media(&self) -> SocketAddr {
        self.media.local_addr().expect("it is bound")
    }

    /// Returns the call's Call-ID.
    pub fn call_id(&self) -> &str {
        &self.dialog.call_id
    }

    /// Sends a packet of G.711 whose octets are this one.
    ///
    /// # Panics
    /// The system does not send it.
    pub fn play(&mut self, octet: u8) {
        let bytes = rtp::packet(0, 0xfeed, self.sequence, &[octet; TICKS as usize]);
        self.sequence = self.sequence.wrapping_add(1);
        self.media.send_to(&bytes, self.server_media).expect("it is sent");
    }

    /// Moves the sequence number of the next packet by `packets`; a negative number moves it back.
    pub const fn skip(&mut self, packets: i16) {
        self.sequence = self.sequence.wrapping_add_signed(packets);
    }

    /// Returns the first octet of the next packet, or `None` if none comes within this time.
    ///
    /// # Panics
    /// The datagram is no RTP packet of the server.
    pub fn hears(&self, limit: Duration) -> Option<u8> {
        self.payload(limit)?.first().copied()
    }

    /// Returns the payload of the next packet, or `None` if none comes within this time.
    ///
    /// # Panics
    /// See [`Caller::hears`].
    pub fn payload(&self, limit: Duration) -> Option<Vec<u8>> {
        self.media.set_read_timeout(Some(limit)).expect("it can be set");
        let mut buffer = [0; 2_048];
        let (length, from) = self.media.recv_from(&mut buffer).ok()?;
        assert_eq!(from, self.server_media, "a packet of a stranger");
        let packet = Packet::read(&buffer[..length]).expect("it is an RTP packet");
        Some(packet.payload.to_vec())
    }

    /// Plays this octet until it comes back. Returns false if it does not within a second.
    ///
    /// # Panics
    /// See [`Caller::hears`].
    pub fn hears_itself(&mut self, octet: u8) -> bool {
        let packets = Duration::from_secs(1).as_millis() / PACKET_TIME.as_millis();
        (0..packets).any(|_| {
            self.play(octet);
            self.hears(PACKET_TIME) == Some(octet)
        })
    }

    /// Changes the session by a re-INVITE with this direction (RFC 3264 section 8). Returns the answer.
    ///
    /// # Panics
    /// The server does not answer.
    pub fn change(&mut self, direction: &str) -> String {
        self.wire.drain();
        let mut request = self.dialog.request("INVITE").with(contact("caller", &self.wire));
        request = request.with("Content-Type: application/sdp");
        request.body = description(self.media().port(), self.dialog.cseq, direction);
        let answer = exchange(&mut self.wire, &request);
        acknowledge(&mut self.wire, &request, &answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Ends the call.
    ///
    /// # Panics
    /// The server does not answer with 200.
    pub fn hang_up(mut self) {
        let answer = exchange(&mut self.wire, &self.dialog.request("BYE"));
        assert_eq!(status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
    }

    /// Returns the BYE of the server, which is answered, or `None` if none comes within this time.
    ///
    /// # Panics
    /// The connection is gone.
    pub fn hung_up(&mut self, limit: Duration) -> Option<String> {
        let bye = self.wire.request("BYE", limit)?;
        self.wire.send(&respond(&bye, 200, "", &[])).expect("the server takes messages");
        Some(String::from_utf8_lossy(&bye).into_owned())
    }
}

fn acknowledge(wire: &mut Wire, invite: &Request, answer: &[u8]) {
    wire.send(&invite.ack(answer).bytes()).expect("the server takes messages");
}

/// Returns a description of G.711 at this port.
fn description(port: u16, version: u32, direction: &str) -> Vec<u8> {
    format!(
        "v=0\r\no=- 1 {version} IN IP4 127.0.0.1\r\ns=-\r\nc=IN IP4 127.0.0.1\r\nt=0 0\r\nm=audio {port} RTP/AVP 0\r\na={direction}\r\n"
    )
    .into_bytes()
}

/// Returns the address of the first stream in the description of a message.
///
/// # Panics
/// There is none.
pub fn described(answer: &[u8]) -> SocketAddr {
    let text = String::from_utf8_lossy(answer);
    let ip = text.lines().find_map(|line| line.strip_prefix("c=IN IP4 "));
    let ip = ip.and_then(|ip| ip.parse::<IpAddr>().ok());
    match (ip, audio_port(answer)) {
        (Some(ip), Some(port)) => SocketAddr::new(ip, port),
        _ => panic!("no media address in {text}"),
    }
}
