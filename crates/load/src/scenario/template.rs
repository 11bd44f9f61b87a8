//! The text of a message, cut once into pieces that are written one behind the other.

use super::variable::Slot;
use strowger_message::Name;

/// A text with keywords. Rendering walks over the pieces and appends to the output.
///
/// Rules that the pieces do not say themselves:
///
/// - A keyword marked "may vanish" that has nothing to write at the start of a line (the byte before it is LF) takes
///   the white space that follows with it: the next [`Piece::Text`], were it behind other keywords, is written from
///   [`Text::solid`] on. So the line disappears if nothing but its end stood there, and an empty line that follows too.
/// - Line ends are CRLF, indentation and blank edges are gone, and the empty line behind the headers is there: all
///   that is done when the document is read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template {
    pub pieces: Vec<Piece>,
    /// Bytes of the text pieces, to reserve beforehand.
    pub literal_length: usize,
    /// Whether [`Piece::Length`] is among them: the length of the body has to be patched in afterwards.
    pub has_length: bool,
    /// Whether [`Piece::Authentication`] is among them: it is computed over the finished message.
    pub has_authentication: bool,
    /// Whether [`Piece::CSeq`] is among them: the counter of the call goes up when this is sent as a request other
    /// than ACK and CANCEL.
    pub uses_cseq: bool,
}

impl Template {
    /// The whole text, if no keyword is in it.
    pub fn constant(&self) -> Option<&[u8]> {
        match self.pieces.as_slice() {
            [] => Some(b""),
            [Piece::Text(text)] => Some(&text.bytes),
            _ => None,
        }
    }
}

/// Bytes written as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub bytes: Box<[u8]>,
    /// How many bytes of white space it starts with; written from here on after a keyword that vanished.
    pub solid: u32,
}

/// A part of a template. `i32` is the `+n` or `-n` behind the keyword, 0 if there is none.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(Text),
    /// `[remote_ip]`: address of the target, brackets around IPv6.
    RemoteIp,
    /// `[remote_host]`: the target as the command line writes it.
    RemoteHost,
    RemotePort(i32),
    /// `[transport]`: UDP, TCP, TLS, SCTP.
    Transport,
    LocalIp,
    /// `[local_ip_type]`: 4 or 6.
    LocalIpType,
    LocalPort(i32),
    /// `[server_ip]`: the local address on which the call's last message came.
    ServerIp,
    MediaIp,
    MediaIpType,
    MediaPort(i32),
    /// `[auto_media_port]`: media port + 4 × (call number - 1) modulo 10,000 (RFC 3550: even ports).
    AutoMediaPort(i32),
    RtpStreamAudioPort(i32),
    RtpStreamVideoPort(i32),
    /// `[call_number]`: 1 for the first call.
    CallNumber(i32),
    /// `[dynamic_id]`: counts from -dynamicStart to -dynamicMax by -dynamicStep, each time it is written.
    DynamicId(i32),
    CallId,
    CSeq(i32),
    Pid(i32),
    /// `[service]` (`-s`).
    Service,
    /// `[branch]`: `z9hG4bK-pid-call-step`; `n` is added to the step's index.
    Branch(i32),
    /// `[msg_index]`: the step's index.
    MessageIndex(i32),
    /// `[clock_tick]`: milliseconds since the start.
    ClockTick(i32),
    /// `[users]`: how many there are, -1 without `-users`.
    Users(i32),
    /// `[userid]`: from 1, 0 without `-users`.
    UserId(i32),
    /// `[timestamp]`: local date, TAB, time with six decimals, TAB, seconds since 1970 with six decimals.
    Timestamp,
    /// `[date]`: RFC 1123.
    Date,
    /// `[sipp_version]`: `3.6.1`.
    SippVersion,
    /// `[tdmmap]`: the call's TDM circuit (`-tdmmap`).
    TdmMap,
    /// `[next_url]`: the Contact kept by `rrs`.
    NextUrl,
    /// `[len]`: the length of the body plus `n`, right in five places. Of several the last one counts, the others stay
    /// five spaces. Without a body SIPp writes `    0`, CRLF, CRLF and a NUL over what stands there, whatever that is:
    /// nothing changes only if `[len]` ends the last header line.
    Length(i32),
    /// `[peer_tag_param]`: `;tag=…` of the peer once known.
    PeerTagParameter,
    /// `[routes]`: `Route: …` of the set kept by `rrs`. May vanish.
    Routes,
    /// `[last_Name]`, `[last_Name:]`: a header of the last message received. May vanish.
    LastHeader(Box<LastHeader>),
    LastRequestUri,
    /// `[last_cseq_number]`.
    LastCSeqNumber(i32),
    LastMessage,
    /// `[authentication …]`: the whole Authorization or Proxy-Authorization line.
    Authentication(Box<Authentication>),
    /// `[fieldN]`. May vanish.
    Field(Box<Field>),
    /// `[$name]`. May vanish.
    Variable(Slot),
    /// `[fill variable=… text=…]`: the text repeated up to as many bytes as the variable's number says.
    Fill(Box<Fill>),
    /// `[file name=…]`: the content of a file, read when written.
    File(Box<Template>),
    /// A value of `-key`, known when the document is read: where it stands in [`super::Environment::keys`].
    Generic(u16),
}

/// `[last_X]` and `[last_X:]`, which write the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastHeader {
    /// Without colon.
    pub name: Box<[u8]>,
    pub known: Name,
    /// Always true: with or without a colon in the keyword, SIPp writes the line with its name as it stands in the
    /// message (a compact form too), then `, ` and the values of further lines of that name.
    pub whole_line: bool,
}

/// `[fieldN file="…" line="…"]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Column, from 0.
    pub column: u32,
    /// Which file, a place in [`super::Environment::injections`]. The first is the default.
    pub file: FileIndex,
    /// `line`: renders to the number of the line, from 0. `None`: the line of the call.
    pub line: Option<Template>,
}

/// An injection file, a place in [`super::Environment::injections`].
pub type FileIndex = u16;

/// `[fill …]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Fill {
    pub length: Slot,
    /// `X` unless written.
    pub text: Box<[u8]>,
}

/// `[authentication …]`. What is `None` comes from the command line (`-au`, `-ap`).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Authentication {
    pub username: Option<Template>,
    pub password: Option<Template>,
    pub aka_op: Option<Template>,
    pub aka_amf: Option<Template>,
    pub aka_k: Option<Template>,
}
