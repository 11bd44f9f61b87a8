//! Text of a message, split once into pieces that are written in sequence.

use super::variable::Slot;
use strowger_message::Name;

/// Text with keywords. Rendering writes the pieces in sequence.
///
/// Rules beyond the pieces:
///
/// - A keyword marked "may vanish" that writes nothing at the start of a line (after LF) removes the following white
///   space too: the next [`Piece::Text`], even after other keywords, is written from [`Text::solid`] on. So a line with
///   nothing else disappears, with an empty line that follows.
/// - Line ends are CRLF, indentation and blank edges are gone, and the empty line after the headers is present: reading
///   the document does all that.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Template {
    pub pieces: Vec<Piece>,
    /// Bytes of the text pieces, to reserve.
    pub literal_length: usize,
    /// True if there is a [`Piece::Length`], which is filled in after the length of the body is known.
    pub has_length: bool,
    /// True if there is a [`Piece::Authentication`], which is computed over the finished message.
    pub has_authentication: bool,
    /// True if there is a [`Piece::CSeq`]: the call's counter is incremented when the text is sent as a request other
    /// than ACK and CANCEL.
    pub uses_cseq: bool,
}

impl Template {
    /// Returns the whole text if it has no keyword.
    pub fn constant(&self) -> Option<&[u8]> {
        match self.pieces.as_slice() {
            [] => Some(b""),
            [Piece::Text(text)] => Some(&text.bytes),
            _ => None,
        }
    }
}

/// Literal bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Text {
    pub bytes: Box<[u8]>,
    /// Length of the leading white space. If the keyword before the text vanished, the text is written from this offset
    /// on.
    pub solid: u32,
}

/// Piece of a template. `i32` is the keyword's `+n` or `-n`, or 0 if it has none.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    Text(Text),
    /// `[remote_ip]`: address of the target, brackets around IPv6.
    RemoteIp,
    /// `[remote_host]`: the target as on the command line.
    RemoteHost,
    RemotePort(i32),
    /// `[transport]`: UDP, TCP, TLS, SCTP.
    Transport,
    LocalIp,
    /// `[local_ip_type]`: 4 or 6.
    LocalIpType,
    LocalPort(i32),
    /// `[server_ip]`: the local address at which the call's last message arrived.
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
    /// `[dynamic_id]`: counts from -dynamicStart to -dynamicMax in steps of -dynamicStep, one step each time it is
    /// written.
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
    /// `[users]`: number of users, or -1 without `-users`.
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
    /// `[len]`: the length of the body plus `n`, right-aligned to five characters. If there are several, only the last
    /// one is filled in; the earlier ones remain five spaces. Without a body SIPp overwrites the bytes after `[len]`
    /// with ` 0`, CRLF, CRLF and a NUL: nothing changes only if `[len]` ends the last header line.
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
    /// `[fill variable=… text=…]`: the text repeated to the number of bytes in the variable.
    Fill(Box<Fill>),
    /// `[file name=…]`: the content of a file, read when written.
    File(Box<Template>),
    /// Value of `-key`, known when the document is read: index in [`super::Environment::keys`].
    Generic(u16),
}

/// `[last_X]` and `[last_X:]`, which write the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LastHeader {
    /// Name without colon.
    pub name: Box<[u8]>,
    pub known: Name,
    /// Always true: with or without a colon in the keyword, SIPp writes the line with its name as in the message
    /// (including a compact form), then `, ` and the values of further lines of that name.
    pub whole_line: bool,
}

/// `[fieldN file="…" line="…"]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// Column, from 0.
    pub column: u32,
    /// File, an index in [`super::Environment::injections`]. The first is the default.
    pub file: FileIndex,
    /// `line`: renders to the line number, from 0. `None`: the line of the call.
    pub line: Option<Template>,
}

/// Injection file, an index in [`super::Environment::injections`].
pub type FileIndex = u16;

/// `[fill …]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Fill {
    pub length: Slot,
    /// `X` by default.
    pub text: Box<[u8]>,
}

/// `[authentication …]`. The command line (`-au`, `-ap`) supplies missing parts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Authentication {
    pub username: Option<Template>,
    pub password: Option<Template>,
    pub aka_op: Option<Template>,
    pub aka_amf: Option<Template>,
    pub aka_k: Option<Template>,
}
