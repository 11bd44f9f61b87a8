//! Binding: one contact of an address-of-record (RFC 3261 section 10), and its packed form.
//!
//! In the table a binding is one heap block: a fixed head of 52 bytes, then optional fields, then the texts. The
//! overhead is about 60 bytes; a struct of `String`s would have four times as much.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::RangeInclusive;

use crate::user_agent_texts::UserAgentTexts;

/// Permanent name of a binding, and the key of its row on disk. Never used twice in one database, whichever nodes write
/// there: it contains the node that assigned it, above a count of 47 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BindingId(pub u64);

impl BindingId {
    const COUNT: u32 = 47;

    /// Returns the ids of a node. The first one is never assigned.
    pub const fn of_node(node: u16) -> RangeInclusive<u64> {
        let first = (node as u64) << Self::COUNT;
        first..=first + ((1 << Self::COUNT) - 1)
    }

    /// Returns the node that assigned it.
    pub const fn node(self) -> u16 {
        (self.0 >> Self::COUNT) as u16
    }
}

/// Value of [`Binding::listener`] if no listener has the name in its row: the configuration has changed since the row
/// was written.
pub const NO_LISTENER: u16 = u16::MAX;

/// Name of a connection. The caller defines its contents, the store does not interpret it.
pub type FlowBytes = [u8; FLOW_BYTES];

const FLOW_BYTES: usize = 13;

/// Actual source of a REGISTER.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Received {
    /// Transport, as the caller numbers it; the store does not interpret it.
    pub transport: u8,
    /// Source address and port.
    pub address: SocketAddr,
}

/// Contact with all its stored fields. Texts are bytes as received; an empty text means "absent".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Binding<'a> {
    /// Address-of-record in the caller's canonical form (RFC 3261 section 10.3 step 5). At most 65,535 bytes, like
    /// every text.
    pub aor: &'a [u8],
    /// Contact URI.
    pub uri: &'a [u8],
    /// Call-ID of the REGISTER.
    pub call_id: &'a [u8],
    /// Path URIs, comma-joined in order (RFC 3327).
    pub path: &'a [u8],
    /// `+sip.instance` (RFC 5626 section 4.1).
    pub instance: &'a [u8],
    /// User-Agent of the REGISTER.
    pub user_agent: &'a [u8],
    /// CSeq number of the REGISTER.
    pub cseq: u32,
    /// Preference in thousandths, 0 to 1,000; `None` if the contact had no `q`.
    pub q: Option<u16>,
    /// End of the binding, milliseconds on the clock of the table, on disk since 1970 UTC (48 bits are stored); see
    /// [`clock`](crate::clock).
    pub expires_at: u64,
    /// Time of the last REGISTER, milliseconds since 1970 UTC by the clock at that time (48 bits are stored); for
    /// display.
    pub updated_at: u64,
    /// Source of the REGISTER.
    pub received: Option<Received>,
    /// Flow of the REGISTER.
    pub flow: Option<FlowBytes>,
    /// Listener that received the REGISTER, by its position in the configuration of this process; on disk by its name.
    pub listener: u16,
    /// Node that received the REGISTER.
    pub node: u16,
    /// `reg-id` (RFC 5626 section 4.2); 0 if there was none.
    pub reg_id: u32,
    /// Marks of the caller: methods, behind NAT, needs pings.
    pub flags: u32,
}

impl Binding<'_> {
    /// Empty binding, to start from.
    pub const EMPTY: Binding<'static> = Binding {
        aor: b"",
        uri: b"",
        call_id: b"",
        path: b"",
        instance: b"",
        user_agent: b"",
        cseq: 0,
        q: None,
        expires_at: 0,
        updated_at: 0,
        received: None,
        flow: None,
        listener: 0,
        node: 0,
        reg_id: 0,
        flags: 0,
    };
}

/// Reason why a binding cannot be stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidBinding {
    /// A text over 65,535 bytes, or the whole over the table's limit.
    #[error("the binding has {bytes} bytes; {limit} are allowed")]
    TooLong {
        /// Bytes of the text or of the whole binding.
        bytes: usize,
        /// Limit that was exceeded.
        limit: usize,
    },
    /// A `q` over 1,000.
    #[error("q is {0} thousandths; 1,000 is the most")]
    Preference(u16),
}

/// Packed binding.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PackedBinding(Box<[u8]>);

/// Bytes of the fixed head.
pub(crate) const HEAD: usize = 52;

mod at {
    pub(super) const ID: usize = 0;
    pub(super) const EXPIRES: usize = 8;
    pub(super) const UPDATED: usize = 14;
    pub(super) const CSEQ: usize = 20;
    pub(super) const REG_ID: usize = 24;
    pub(super) const FLAGS: usize = 28;
    pub(super) const Q: usize = 32;
    pub(super) const LISTENER: usize = 34;
    pub(super) const NODE: usize = 36;
    pub(super) const MARKS: usize = 38;
    pub(super) const TRANSPORT: usize = 39;
    /// Five lengths of two bytes: AOR, URI, Call-ID, Path, instance.
    pub(super) const LENGTHS: usize = 40;
    /// Length of the User-Agent, or its number if shared.
    pub(super) const AGENT: usize = 50;
}

const V4: u8 = 1;
const V6: u8 = 2;
const FLOW: u8 = 4;
const SHARED_AGENT: u8 = 8;
const NO_Q: u16 = u16::MAX;
const MAX_MS: u64 = (1 << 48) - 1;

impl PackedBinding {
    /// Packs a binding; `limit` is the maximum size of the result in bytes.
    pub(crate) fn pack(
        id: BindingId,
        b: &Binding<'_>,
        agents: &UserAgentTexts,
        limit: usize,
    ) -> Result<Self, InvalidBinding> {
        if let Some(q) = b.q.filter(|q| *q > 1000) {
            return Err(InvalidBinding::Preference(q));
        }
        let shared = agents.intern(b.user_agent);
        let texts = [b.aor, b.uri, b.call_id, b.path, b.instance];
        if let Some(long) = texts.iter().chain([&b.user_agent]).find(|t| t.len() > usize::from(u16::MAX)) {
            return Err(InvalidBinding::TooLong { bytes: long.len(), limit: usize::from(u16::MAX) });
        }
        let mut marks = 0;
        let received = match b.received.map(|r| r.address) {
            None => 0,
            Some(SocketAddr::V4(_)) => {
                marks |= V4;
                6
            }
            Some(SocketAddr::V6(_)) => {
                marks |= V6;
                22
            }
        };
        let flow = if b.flow.is_some() {
            marks |= FLOW;
            FLOW_BYTES
        } else {
            0
        };
        let agent: &[u8] = if shared.is_some() {
            marks |= SHARED_AGENT;
            b""
        } else {
            b.user_agent
        };
        let bytes = HEAD + received + flow + texts.iter().map(|t| t.len()).sum::<usize>() + agent.len();
        if bytes > limit {
            return Err(InvalidBinding::TooLong { bytes, limit });
        }

        let mut out = Vec::with_capacity(bytes);
        out.extend_from_slice(&id.0.to_le_bytes());
        out.extend_from_slice(&b.expires_at.min(MAX_MS).to_le_bytes()[..6]);
        out.extend_from_slice(&b.updated_at.min(MAX_MS).to_le_bytes()[..6]);
        out.extend_from_slice(&b.cseq.to_le_bytes());
        out.extend_from_slice(&b.reg_id.to_le_bytes());
        out.extend_from_slice(&b.flags.to_le_bytes());
        out.extend_from_slice(&b.q.unwrap_or(NO_Q).to_le_bytes());
        out.extend_from_slice(&b.listener.to_le_bytes());
        out.extend_from_slice(&b.node.to_le_bytes());
        out.push(marks);
        out.push(b.received.map_or(0, |r| r.transport));
        for text in texts {
            out.extend_from_slice(&length(text).to_le_bytes());
        }
        out.extend_from_slice(&shared.unwrap_or_else(|| length(agent)).to_le_bytes());
        match b.received.map(|r| r.address) {
            None => {}
            Some(SocketAddr::V4(a)) => {
                out.extend_from_slice(&a.port().to_le_bytes());
                out.extend_from_slice(&a.ip().octets());
            }
            Some(SocketAddr::V6(a)) => {
                out.extend_from_slice(&a.port().to_le_bytes());
                out.extend_from_slice(&a.ip().octets());
                // A link-local peer can be reached only if its zone is stored.
                out.extend_from_slice(&a.scope_id().to_le_bytes());
            }
        }
        if let Some(flow) = b.flow {
            out.extend_from_slice(&flow);
        }
        for text in texts {
            out.extend_from_slice(text);
        }
        out.extend_from_slice(agent);
        debug_assert_eq!(out.len(), bytes);
        Ok(Self(out.into_boxed_slice()))
    }

    pub(crate) fn id(&self) -> BindingId {
        BindingId(u64::from_le_bytes(self.array(at::ID)))
    }

    pub(crate) fn expires_at(&self) -> u64 {
        self.u48(at::EXPIRES)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn aor(&self) -> &[u8] {
        self.text(0)
    }

    fn array<const N: usize>(&self, at: usize) -> [u8; N] {
        self.0[at..at + N].try_into().expect("a slice of N bytes is an array of N")
    }

    fn u16(&self, at: usize) -> u16 {
        u16::from_le_bytes(self.array(at))
    }

    fn u32(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.array(at))
    }

    fn u48(&self, at: usize) -> u64 {
        let [a, b, c, d, e, f] = self.array(at);
        u64::from_le_bytes([a, b, c, d, e, f, 0, 0])
    }

    fn marks(&self) -> u8 {
        self.0[at::MARKS]
    }

    fn received_bytes(&self) -> usize {
        match self.marks() & (V4 | V6) {
            V4 => 6,
            V6 => 22,
            _ => 0,
        }
    }

    fn length(&self, nth: usize) -> usize {
        usize::from(self.u16(at::LENGTHS + 2 * nth))
    }

    /// Returns text number `nth` in the order of the lengths; 5 is the User-Agent if it is not shared.
    fn text(&self, nth: usize) -> &[u8] {
        let flow = if self.marks() & FLOW != 0 { FLOW_BYTES } else { 0 };
        let from = HEAD + self.received_bytes() + flow + (0..nth).map(|n| self.length(n)).sum::<usize>();
        &self.0[from..from + self.length(nth)]
    }
}

/// Returns the length of a text, which was already checked against 65,535.
fn length(text: &[u8]) -> u16 {
    u16::try_from(text.len()).expect("texts over 65,535 bytes were refused above")
}

/// View of a packed binding: reads a field when asked, copies nothing.
#[derive(Clone, Copy)]
pub struct BindingView<'a> {
    record: &'a PackedBinding,
    agents: &'a UserAgentTexts,
}

impl<'a> BindingView<'a> {
    pub(crate) fn new(record: &'a PackedBinding, agents: &'a UserAgentTexts) -> Self {
        Self { record, agents }
    }

    /// Returns the binding's id.
    pub fn id(&self) -> BindingId {
        self.record.id()
    }

    /// Returns the address-of-record.
    pub fn aor(&self) -> &'a [u8] {
        self.record.text(0)
    }

    /// Returns the contact URI.
    pub fn uri(&self) -> &'a [u8] {
        self.record.text(1)
    }

    /// Returns the Call-ID of the REGISTER.
    pub fn call_id(&self) -> &'a [u8] {
        self.record.text(2)
    }

    /// Returns the Path URIs, comma-joined.
    pub fn path(&self) -> &'a [u8] {
        self.record.text(3)
    }

    /// Returns `+sip.instance`.
    pub fn instance(&self) -> &'a [u8] {
        self.record.text(4)
    }

    /// Returns the User-Agent.
    pub fn user_agent(&self) -> &'a [u8] {
        if self.record.marks() & SHARED_AGENT != 0 {
            self.agents.text(self.record.u16(at::AGENT))
        } else {
            self.record.text(5)
        }
    }

    /// Returns the CSeq number.
    pub fn cseq(&self) -> u32 {
        self.record.u32(at::CSEQ)
    }

    /// Returns the preference in thousandths.
    pub fn q(&self) -> Option<u16> {
        Some(self.record.u16(at::Q)).filter(|q| *q != NO_Q)
    }

    /// Returns the binding's end, milliseconds on the clock of the table.
    pub fn expires_at(&self) -> u64 {
        self.record.expires_at()
    }

    /// Returns the time of the last REGISTER, milliseconds since 1970 UTC by the clock at that time.
    pub fn updated_at(&self) -> u64 {
        self.record.u48(at::UPDATED)
    }

    /// Returns the source of the REGISTER.
    pub fn received(&self) -> Option<Received> {
        let ip: IpAddr = match self.record.marks() & (V4 | V6) {
            V4 => Ipv4Addr::from(self.record.array::<4>(HEAD + 2)).into(),
            V6 => Ipv6Addr::from(self.record.array::<16>(HEAD + 2)).into(),
            _ => return None,
        };
        let port = self.record.u16(HEAD);
        let address = match ip {
            IpAddr::V4(ip) => SocketAddr::new(ip.into(), port),
            IpAddr::V6(ip) => SocketAddrV6::new(ip, port, 0, self.record.u32(HEAD + 18)).into(),
        };
        Some(Received { transport: self.record.0[at::TRANSPORT], address })
    }

    /// Returns the flow of the REGISTER.
    pub fn flow(&self) -> Option<FlowBytes> {
        (self.record.marks() & FLOW != 0).then(|| self.record.array(HEAD + self.record.received_bytes()))
    }

    /// Returns the listener that received the REGISTER.
    pub fn listener(&self) -> u16 {
        self.record.u16(at::LISTENER)
    }

    /// Returns the node that received the REGISTER.
    pub fn node(&self) -> u16 {
        self.record.u16(at::NODE)
    }

    /// Returns `reg-id`, 0 if there was none.
    pub fn reg_id(&self) -> u32 {
        self.record.u32(at::REG_ID)
    }

    /// Returns the marks of the caller.
    pub fn flags(&self) -> u32 {
        self.record.u32(at::FLAGS)
    }

    /// Returns all fields.
    pub fn binding(&self) -> Binding<'a> {
        Binding {
            aor: self.aor(),
            uri: self.uri(),
            call_id: self.call_id(),
            path: self.path(),
            instance: self.instance(),
            user_agent: self.user_agent(),
            cseq: self.cseq(),
            q: self.q(),
            expires_at: self.expires_at(),
            updated_at: self.updated_at(),
            received: self.received(),
            flow: self.flow(),
            listener: self.listener(),
            node: self.node(),
            reg_id: self.reg_id(),
            flags: self.flags(),
        }
    }
}

impl fmt::Debug for BindingView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BindingView")
            .field("id", &self.id())
            .field("aor", &self.aor().escape_ascii().to_string())
            .field("uri", &self.uri().escape_ascii().to_string())
            .field("expires_at", &self.expires_at())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
