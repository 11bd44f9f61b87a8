//! Media sessions of the calls of a shard: keys, ports, orders to their media threads, end. Calls of endpoints and bridged calls have one each.
//!
//! No media port is asked for while a caller waits: media threads lend ports to a shard in advance (`ports.rs`). A session has one pair of ports
//! towards each peer, all of one thread. Its ports are free again once the thread has confirmed its end (`events.rs`), with the reports about its
//! streams (`quality.rs`).

mod events;
mod orders;
mod ports;
mod quality;
mod unheard;

use self::ports::MediaPorts;
pub(crate) use self::quality::SessionReport;
use crate::effect::Effect;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use strowger_config::Media;
use strowger_core::Now;
use strowger_core::b2bua::negotiation::{AgreedFormat, AgreedStream, LocalStream};
use strowger_core::routing::contact_repair::is_private;
use strowger_media::quality::SpeechEncoding;
use strowger_media::session::{PayloadFormat, PortPair, SessionKey, SessionOrder, StreamOrder, StreamPeer};
use strowger_message::{Message, Name};

/// Returns the bucket of the call of a session, 0 to 255: the event of a session is for the shard that owns the bucket.
pub const fn bucket_of(session: SessionKey) -> u8 {
    session.0 as u8
}

/// Cause of the end of a call by a role of this server that anchors it.
#[derive(Debug)]
pub(crate) struct Hangup {
    /// Reason of the BYE (RFC 3326), with its line end.
    pub(crate) reason: &'static [u8],
    /// Q.850 cause of the reason.
    pub(crate) cause: u16,
}

/// End after a silence of a party: temporary failure.
pub(crate) const SILENT: Hangup = Hangup { reason: b"Reason: Q.850;cause=41;text=\"no media\"\r\n", cause: 41 };

/// Reason of the BYEs of an end that the table of calls has ordered: normal, unspecified.
pub(crate) const ORDERED: &[u8] = b"Reason: Q.850;cause=31\r\n";

/// Ports of a session, all of one media thread: a pair for each stream of a leg.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "PortNumbers", into = "PortNumbers")]
pub(crate) struct SessionPorts {
    /// Ports towards the near peer, at least one pair.
    pub(crate) near: Vec<PortPair>,
    /// Ports towards the far peer; none for an endpoint.
    pub(crate) far: Vec<PortPair>,
}

/// Form of the ports of both legs in a record: thread, place of the address, port of RTP.
type PortNumbers = [Vec<(u16, u16, u16)>; 2];

impl From<SessionPorts> for PortNumbers {
    fn from(ports: SessionPorts) -> Self {
        let numbers = |pairs: Vec<PortPair>| pairs.iter().map(|pair| (pair.thread, pair.address, pair.rtp)).collect();
        [numbers(ports.near), numbers(ports.far)]
    }
}

impl From<PortNumbers> for SessionPorts {
    fn from([near, far]: PortNumbers) -> Self {
        let pair = |(thread, address, rtp)| PortPair { thread, address, rtp };
        Self { near: near.into_iter().map(pair).collect(), far: far.into_iter().map(pair).collect() }
    }
}

impl SessionPorts {
    /// Returns the ports of both legs.
    pub(crate) fn all(&self) -> Vec<PortPair> {
        self.near.iter().chain(&self.far).copied().collect()
    }

    /// Returns the media thread that owns the ports.
    fn thread(&self) -> Option<u16> {
        self.near.first().map(|pair| pair.thread)
    }
}

/// Returns the place of these ports in the descriptions of a leg; `None` if the media address is no longer configured.
pub(crate) fn local_stream(media: &Media, ports: PortPair) -> Option<LocalStream> {
    let own = media.addresses.get(usize::from(ports.address))?;
    Some(LocalStream { address: own.public, port: ports.rtp })
}

/// Session of a call.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct MediaSession {
    /// Number of its [`SessionKey`].
    pub(crate) key: u64,
    pub(crate) ports: SessionPorts,
    /// Number of orders about the streams so far: version of the last one; 0: no media thread knows the session.
    orders: u32,
    /// Set once the session is closed; the dialogs may go on until the responses to their BYEs.
    is_closed: bool,
    /// Key of the call in the table of calls, whose record has the quality of the media; `None`: it is not there.
    pub(crate) call: Option<u64>,
    /// Set if the far peer is the caller of the call in the table of calls: it has replaced the callee of an earlier one.
    pub(crate) is_turned: bool,
    /// Call-ID, for the log.
    call_id: Vec<u8>,
    /// Check for a party that is not heard. A call that moves or continues in another process is not checked again.
    #[serde(skip)]
    check: MediaCheck,
}

/// Progress of the check of a call for a party from which no media come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum MediaCheck {
    /// The time has not come.
    #[default]
    Ahead,
    /// The media thread was asked.
    Asked,
    /// All parties that should send were heard.
    Done,
    /// A party was not heard, and the log says so.
    Logged,
}

/// Returns the names of near and far peer. `is_turned`: [`MediaSession::is_turned`].
const fn side_names(is_turned: bool) -> [&'static str; 2] {
    if is_turned { ["callee", "caller"] } else { ["caller", "callee"] }
}

/// Session that is being closed.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ClosingSession {
    key: u64,
    ports: SessionPorts,
    /// Key of the call in the table of calls.
    call: Option<u64>,
    /// [`MediaSession::is_turned`].
    is_turned: bool,
    call_id: Vec<u8>,
    /// Set if the log has named a party that was not heard.
    #[serde(skip)]
    is_logged: bool,
}

/// Result of closing a session.
#[derive(Debug)]
pub(crate) enum SessionClose {
    /// The media thread has to close the session.
    Open(ClosingSession),
    /// No media thread knows the session. Its ports are free.
    Unopened(SessionPorts),
    /// It was closed before.
    Before,
}

impl MediaSession {
    /// Creates a session that no media thread knows.
    pub(crate) const fn new(key: u64, ports: SessionPorts, call_id: Vec<u8>) -> Self {
        let check = MediaCheck::Ahead;
        Self { key, ports, orders: 0, is_closed: false, call: None, is_turned: false, call_id, check }
    }

    /// Returns the order that opens or changes the session; `None` after its end, or while it has no ports.
    pub(crate) fn set(&mut self, streams: Vec<Option<StreamOrder>>) -> Option<Effect> {
        if self.is_closed || self.ports.near.is_empty() {
            return None;
        }
        self.orders = self.orders.saturating_add(1);
        let order = SessionOrder::Set { key: SessionKey(self.key), version: self.orders, streams };
        Some(Effect::Media { thread: self.ports.thread(), order })
    }

    /// Returns the Call-ID, also after the end.
    pub(crate) fn call_id(&self) -> &[u8] {
        &self.call_id
    }

    /// Returns the key and the media thread of an open session.
    pub(crate) fn open(&self) -> Option<(SessionKey, u16)> {
        let thread = self.ports.thread().filter(|_| self.orders > 0 && !self.is_closed)?;
        Some((SessionKey(self.key), thread))
    }

    /// Makes this the session of another call of the table of calls: a new party has taken the place of the far peer if `is_turned`, of the near one
    /// if not.
    pub(crate) fn continue_for(&mut self, call: Option<u64>, is_turned: bool, call_id: &[u8]) {
        (self.call, self.is_turned, self.call_id) = (call, is_turned, call_id.to_vec());
    }

    /// Returns values of near and far peer as those of caller and callee.
    pub(crate) const fn of_parties<T: Copy>(&self, [near, far]: [T; 2]) -> [T; 2] {
        if self.is_turned { [far, near] } else { [near, far] }
    }

    /// Makes this the session of a call that an earlier process has left: a media thread of this one is asked for its ports.
    pub(crate) fn succeed(&mut self, key: u64, ports: SessionPorts) {
        (self.key, self.ports, self.orders, self.is_closed) = (key, ports, 0, false);
    }

    /// Forgets the ports, which no media thread could bind.
    pub(crate) fn lose_ports(&mut self) {
        self.ports = SessionPorts::default();
    }

    /// Tells whether the session waits for ports: it has lost its own ones, and has not ended.
    pub(crate) const fn lacks_ports(&self) -> bool {
        !self.is_closed && self.ports.near.is_empty()
    }

    /// Gives a session without ports these ones.
    pub(crate) fn move_to(&mut self, ports: SessionPorts) {
        self.ports = ports;
    }

    /// Closes the session. No description may follow.
    pub(crate) fn close(&mut self) -> SessionClose {
        if std::mem::replace(&mut self.is_closed, true) {
            return SessionClose::Before;
        }
        let ports = std::mem::take(&mut self.ports);
        if self.orders == 0 {
            return SessionClose::Unopened(ports);
        }
        let (key, call, is_turned, call_id) = (self.key, self.call, self.is_turned, self.call_id.clone());
        let is_logged = self.check == MediaCheck::Logged;
        SessionClose::Open(ClosingSession { key, ports, call, is_turned, call_id, is_logged })
    }
}

/// Returns the peer of a stream as agreed with it, to whose address nothing goes before a packet has come from there. `nat`: source of the
/// signalling of a peer behind NAT.
pub(crate) fn stream_peer(ports: PortPair, stream: AgreedStream, nat: Option<IpAddr>) -> StreamPeer {
    let AgreedStream { rtp, rtcp, formats, sends, receives, .. } = stream;
    let is_hidden = |source: &IpAddr| rtp.is_some_and(|rtp| rtp.ip() != *source && is_private(rtp.ip(), *source));
    let behind_nat = nat.filter(is_hidden);
    let format = |AgreedFormat { payload_type, other, clock_rate, is_event, encoding }| PayloadFormat {
        payload_type,
        other,
        clock_rate,
        is_event,
        encoding: speech_encoding(&encoding, clock_rate),
    };
    let formats = formats.into_iter().map(format).collect();
    StreamPeer { ports, rtp, rtcp, behind_nat, formats, sends, receives, may_send_first: false, heard: None }
}

/// Returns the encoding of a format, for the quality of speech. The constants of the E-model are those of telephony at 8 kHz.
fn speech_encoding(name: &str, clock_rate: u32) -> SpeechEncoding {
    match SpeechEncoding::named(name) {
        SpeechEncoding::G711 | SpeechEncoding::G729 if clock_rate != 8_000 => SpeechEncoding::Other,
        encoding => encoding,
    }
}

/// Returns the offer of an INVITE. The user agent refuses bodies of other types.
pub(crate) fn offer_of<'m>(message: &Message<'m>) -> Option<&'m [u8]> {
    let kind = message.header(Name::ContentType).unwrap_or(b"application/sdp");
    let kind = kind.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let body = message.body();
    (!body.is_empty() && kind.eq_ignore_ascii_case(b"application/sdp")).then_some(body)
}

/// Tells whether the media address at this place of the configuration is of this family.
pub(crate) fn is_of_family(media: &Media, place: u16, is_ipv4: bool) -> bool {
    media.addresses.get(usize::from(place)).is_some_and(|own| own.public.is_ipv4() == is_ipv4)
}

/// Time for which the report about a session is shown, in milliseconds.
const FRESH: u64 = 1_000;

/// Sessions of one shard, and its free media ports.
#[derive(Debug, Default)]
pub(crate) struct MediaSessions {
    pub(crate) ports: MediaPorts,
    /// Sessions whose end the media thread has not confirmed.
    closing: BTreeMap<u64, ClosingSession>,
    /// Reports about sessions that an operator looks at, with the time of the report in milliseconds.
    reported: BTreeMap<u64, (u64, SessionReport)>,
    /// Sessions of answered calls whose media were not checked yet, with the time of the check in milliseconds, earliest first.
    checks: VecDeque<(u64, u64)>,
    /// Number of sessions that this shard has opened.
    opened: u64,
}

/// Sessions that are being closed, which move with their bucket.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct ClosingRecord(Vec<ClosingSession>);

impl ClosingRecord {
    pub(crate) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl MediaSessions {
    /// Returns the key of a new session of a call in this bucket. The key is unique in the process, also after the call has
    /// moved to another shard.
    pub(crate) fn next_key(&mut self, shard: usize, bucket: u8) -> u64 {
        self.opened += 1;
        self.opened << 24 | (shard as u64 & 0xffff) << 8 | u64::from(bucket)
    }

    /// Returns the report about a session of the last second.
    pub(crate) fn reported(&self, now: Now, key: SessionKey) -> Option<SessionReport> {
        self.reported.get(&key.0).filter(|(at, _)| now.mono < at + FRESH).map(|(_, report)| *report)
    }

    /// Takes a report about a session, and forgets old ones.
    fn report(&mut self, now: Now, key: SessionKey, report: SessionReport) {
        self.reported.retain(|_, (at, _)| now.mono < *at + FRESH);
        self.reported.insert(key.0, (now.mono, report));
    }

    /// Returns the number of sessions whose end the media thread has not confirmed.
    pub(crate) fn closing(&self) -> usize {
        self.closing.len()
    }

    /// Adds ports that no session uses.
    pub(crate) fn put_back(&mut self, ports: SessionPorts) {
        ports.near.into_iter().chain(ports.far).for_each(|pair| self.ports.put_back(pair));
    }

    /// Takes out the sessions of this bucket that are being closed.
    pub(crate) fn export(&mut self, bucket: u8) -> ClosingRecord {
        let is_of = |session: &u64| bucket_of(SessionKey(*session)) == bucket;
        let keys: Vec<u64> = self.closing.keys().copied().filter(is_of).collect();
        ClosingRecord(keys.into_iter().filter_map(|key| self.closing.remove(&key)).collect())
    }

    /// Takes over the sessions that another shard exported.
    pub(crate) fn import(&mut self, ClosingRecord(record): ClosingRecord) {
        self.closing.extend(record.into_iter().map(|session| (session.key, session)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strowger_core::b2bua::negotiation::StreamTransport;

    #[test]
    fn an_encoding_is_known_by_its_name_not_by_its_number() {
        let format = |payload_type, encoding: &str, clock_rate| AgreedFormat {
            payload_type,
            other: None,
            clock_rate,
            is_event: false,
            encoding: encoding.into(),
        };
        let formats = vec![
            format(112, "pcma", 8_000),
            format(113, "CN", 16_000),
            format(114, "PCMU", 16_000),
            format(0, "x", 8_000),
        ];
        let (transport, sends, receives) = (StreamTransport::Rtp, true, true);
        let stream = AgreedStream { transport, rtp: None, rtcp: None, formats, sends, receives, ptime: None };
        let peer = stream_peer(PortPair { thread: 0, address: 0, rtp: 20_000 }, stream, None);
        let encodings: Vec<SpeechEncoding> = peer.formats.iter().map(|format| format.encoding).collect();
        let other = SpeechEncoding::Other;
        assert_eq!(encodings, [SpeechEncoding::G711, SpeechEncoding::ComfortNoise, other, other]);
    }
}
