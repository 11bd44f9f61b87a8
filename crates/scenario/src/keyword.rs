//! Splits a text into literals and `[keywords]`.
//!
//! The text between brackets is first split at a `+` or, without one, at a `-` that a digit follows (`[branch-2]`). The
//! word is then a plain keyword, or starts with `$`, `field`, `file`, `fill`, `last_` or `authentication`, or is a name
//! of `-key`. Brackets and quotes inside quotes belong to a parameter's own text.

use strowger_message::Name;

use super::Environment;
use super::names::Names;
use super::refusal::{Cause, Fault};
use super::template::{Authentication, Field, Fill, LastHeader, Piece, Template, Text};
use super::variable::Slot;

/// Limit of the text between brackets, in bytes, as in SIPp.
const LONGEST: usize = 256;

/// Names that a text may use, and warnings about it.
pub(super) struct Keywords<'a> {
    pub names: &'a mut Names,
    pub environment: &'a Environment,
    /// Texts of warnings.
    pub notes: Vec<String>,
}

/// Reason why a text cannot be split, and the part at fault.
pub(super) struct Wrong {
    pub fault: Fault,
    pub part: Vec<u8>,
}

impl Keywords<'_> {
    /// Splits a text. Line ends become CRLF, `\xHH` a byte.
    pub(super) fn template(&mut self, text: &[u8]) -> Result<Template, Wrong> {
        let mut cut = Cut::default();
        let mut at = 0;
        while let Some(&byte) = text.get(at) {
            match byte {
                b'\n' => {
                    cut.literal.extend_from_slice(b"\r\n");
                    at += 1;
                }
                b'\\' if text.get(at + 1) == Some(&b'x') => at = hexadecimal(text, at + 2, &mut cut.literal),
                b'[' => at = self.bracket(text, at, &mut cut, false)?,
                _ => {
                    cut.literal.push(byte);
                    at += 1;
                }
            }
        }
        Ok(cut.finish())
    }

    /// Parses a keyword whose `[` is at `at`. Returns the offset after the keyword. `nested`: whether another `[` is
    /// open before it.
    fn bracket(&mut self, text: &[u8], at: usize, cut: &mut Cut, nested: bool) -> Result<usize, Wrong> {
        let wrong = |what: &str, end: usize| Wrong {
            fault: Fault::new(0, what).hint("a literal bracket is written \\x5b").cause(Cause::Keyword),
            part: text[at..end.min(text.len())].to_vec(),
        };
        let mut quoted = false;
        let mut end = at + 1;
        loop {
            match text.get(end) {
                None => return Err(wrong("`[` without `]`", at + 40)),
                Some(b'"') => quoted = !quoted,
                Some(b']') if !quoted => break,
                Some(b'[') if !quoted && !nested => {
                    // For a bracket in a bracket SIPp writes the inner value, then the text between the two.
                    self.notes.push(format!(
                        "`{}` is followed by another `[`: it is taken as text",
                        String::from_utf8_lossy(&text[at..end])
                    ));
                    let next = self.bracket(text, end, cut, true)?;
                    cut.literal.extend_from_slice(&text[at..end]);
                    return Ok(next);
                }
                Some(_) => {}
            }
            end += 1;
        }
        let inside = &text[at + 1..end];
        if inside.is_empty() || inside.len() > LONGEST {
            return Err(wrong("these brackets contain no keyword", end + 1));
        }
        let piece = self.piece(inside).map_err(|fault| Wrong { fault, part: text[at..end].to_vec() })?;
        cut.piece(piece);
        Ok(end + 1)
    }

    fn piece(&mut self, inside: &[u8]) -> Result<Piece, Fault> {
        let (word, n) = offset(inside);
        if let Some(piece) = plain(word, n) {
            return Ok(piece);
        }
        if let Some(name) = word.strip_prefix(b"$") {
            return Ok(Piece::Variable(self.variable(name)?));
        }
        if let Some(rest) = word.strip_prefix(b"field") {
            return self.field(rest);
        }
        if word.starts_with(b"file") {
            let name = parameter(word, b"name=")
                .filter(|name| !name.is_empty())
                .ok_or_else(|| keyword("`[file]` without `name=`").hint("[file name=\"path\"]"))?;
            return Ok(Piece::File(Box::new(self.inner(name)?)));
        }
        if word.starts_with(b"fill") {
            let length = self.variable(parameter(word, b"variable=").unwrap_or_default())?;
            let text = parameter(word, b"text=").filter(|text| !text.is_empty()).unwrap_or(b"X");
            return Ok(Piece::Fill(Box::new(Fill { length, text: text.into() })));
        }
        let value = word.strip_prefix(b"value_").filter(|_| self.environment.ready);
        if let Some(name) = value.or_else(|| word.strip_prefix(b"last_")) {
            let name = name.strip_suffix(b":").unwrap_or(name);
            return Ok(Piece::LastHeader(Box::new(LastHeader {
                name: name.into(),
                // A single letter is searched for literally, not as the compact form of a longer name.
                known: if name.len() == 1 { Name::Other } else { Name::of(name) },
                whole_line: value.is_none(),
            })));
        }
        if word.starts_with(b"authentication") {
            let mut part = |name| parameter(word, name).map(|text| self.inner(text)).transpose();
            return Ok(Piece::Authentication(Box::new(Authentication {
                username: part(b"username=")?,
                password: part(b"password=")?,
                aka_op: part(b"aka_OP=")?,
                aka_amf: part(b"aka_AMF=")?,
                aka_k: part(b"aka_K=")?,
            })));
        }
        if let Some(index) = self.environment.keys.iter().position(|(key, _)| key.as_bytes() == word) {
            return Ok(Piece::Generic(u16::try_from(index).map_err(|_| keyword("too many keys"))?));
        }
        let shown = String::from_utf8_lossy(word).into_owned();
        if is_crypto(word) {
            return Err(keyword(format!("`[{shown}]`: SRTP is not spoken here"))
                .hint("offer RTP/AVP without `a=crypto` lines; SIPp 3.6 does not know the keyword either"));
        }
        let key = self.environment.command.key(&shown);
        Err(keyword(format!("`[{shown}]` is no keyword")).hint(match nearest(word) {
            Some(near) => format!("is `[{near}]` meant? A value of one's own needs {key}"),
            None => format!("a value of one's own needs {key}; a literal bracket is written \\x5b"),
        }))
    }

    /// Parses a field; `rest` follows the word `field`.
    fn field(&mut self, rest: &[u8]) -> Result<Piece, Fault> {
        let command = self.environment.command;
        let file = match parameter(rest, b"file=") {
            None if self.environment.injections.is_empty() => {
                return Err(Fault::new(0, "`[field…]` without injection file")
                    .hint(format!("name one with {}", command.injection("FILE")))
                    .cause(Cause::InjectionFile));
            }
            None => 0,
            Some(name) => {
                let name = String::from_utf8_lossy(name).into_owned();
                let known = self.environment.injections.iter().position(|file| *file == name);
                known.and_then(|index| u16::try_from(index).ok()).ok_or_else(|| {
                    Fault::new(0, format!("the injection file `{name}` is not loaded"))
                        .hint(format!(
                            "name it with {}; the keyword has its name without folders",
                            command.injection(&name)
                        ))
                        .cause(Cause::InjectionFile)
                })?
            }
        };
        let line =
            parameter(rest, b"line=").filter(|line| !line.is_empty()).map(|line| self.inner(line)).transpose()?;
        let column = u32::try_from(number(rest)).unwrap_or(0);
        Ok(Piece::Field(Box::new(Field { column, file, line })))
    }

    fn variable(&mut self, name: &[u8]) -> Result<Slot, Fault> {
        let name = variable_name(name)?;
        self.names.slot(&name).ok_or_else(|| keyword("too many variables"))
    }

    fn inner(&mut self, text: &[u8]) -> Result<Template, Fault> {
        self.template(text).map_err(|wrong| wrong.fault)
    }
}

/// Returns a variable's name, if it is valid.
pub(super) fn variable_name(name: &[u8]) -> Result<String, Fault> {
    let shown = String::from_utf8_lossy(name).into_owned();
    if shown.is_empty() {
        return Err(Fault::new(0, "the name of a variable is missing"));
    }
    if shown.contains(['$', ',']) {
        return Err(Fault::new(0, format!("`{shown}` cannot be a variable's name"))
            .hint("one name, without `$` and `,`; texts use it as [$name]"));
    }
    Ok(shown)
}

fn keyword(what: impl Into<String>) -> Fault {
    Fault::new(0, what).cause(Cause::Keyword)
}

/// Template under construction.
#[derive(Default)]
struct Cut {
    literal: Vec<u8>,
    template: Template,
}

impl Cut {
    fn flush(&mut self) {
        if self.literal.is_empty() {
            return;
        }
        let bytes = std::mem::take(&mut self.literal).into_boxed_slice();
        let solid = bytes.iter().position(|b| !b.is_ascii_whitespace() && *b != 0x0b).unwrap_or(bytes.len());
        self.template.literal_length += bytes.len();
        self.template.pieces.push(Piece::Text(Text { bytes, solid: u32::try_from(solid).unwrap_or(u32::MAX) }));
    }

    fn piece(&mut self, piece: Piece) {
        self.flush();
        match piece {
            Piece::Length(_) => self.template.has_length = true,
            Piece::Authentication(_) => self.template.has_authentication = true,
            Piece::CSeq(_) => self.template.uses_cseq = true,
            _ => {}
        }
        self.template.pieces.push(piece);
    }

    fn finish(mut self) -> Template {
        self.flush();
        self.template
    }
}

/// Appends the byte of `\x` and two digits. As in SIPp, a first character that is no digit is dropped and ends the
/// escape; a second character that is no digit is dropped too.
fn hexadecimal(text: &[u8], at: usize, out: &mut Vec<u8>) -> usize {
    let digit = |at: usize| text.get(at).and_then(|b| char::from(*b).to_digit(16)).and_then(|d| u8::try_from(d).ok());
    match (digit(at), digit(at + 1)) {
        (None, _) => return (at + 1).min(text.len()),
        (Some(high), Some(low)) => out.push(high << 4 | low),
        (Some(alone), None) => out.push(alone),
    }
    (at + 2).min(text.len())
}

/// Splits a word from its `+n` or `-n`, and returns n.
fn offset(inside: &[u8]) -> (&[u8], i32) {
    let sign = memchr::memchr(b'+', inside).or_else(|| memchr::memchr(b'-', inside));
    match sign {
        Some(at) if inside.get(at + 1).is_some_and(u8::is_ascii_digit) => {
            let n = number(&inside[at + 1..]);
            let n = if inside[at] == b'-' { -n } else { n };
            (&inside[..at], i32::try_from(n).unwrap_or(0))
        }
        _ => (inside, 0),
    }
}

/// Returns the number at the start of a text, after white space; 0 without digits.
fn number(text: &[u8]) -> i64 {
    let digits = text.trim_ascii_start();
    let length = digits.iter().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len()).min(18);
    std::str::from_utf8(&digits[..length]).ok().and_then(|d| d.parse().ok()).unwrap_or(0)
}

/// Returns the value of `name=`, in quotes or up to white space.
fn parameter<'a>(word: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let value = &word[memchr::memmem::find(word, name)? + name.len()..];
    Some(match value.strip_prefix(b"\"") {
        Some(quoted) => &quoted[..memchr::memchr(b'"', quoted).unwrap_or(quoted.len())],
        None => &value[..value.iter().position(u8::is_ascii_whitespace).unwrap_or(value.len())],
    })
}

/// Parses a plain keyword. Only ports, `[cseq]`, `[branch]`, `[len]` and `[last_cseq_number]` use `n`; other keywords
/// ignore it.
fn plain(word: &[u8], n: i32) -> Option<Piece> {
    Some(match word {
        b"remote_ip" => Piece::RemoteIp,
        b"remote_host" => Piece::RemoteHost,
        b"remote_port" => Piece::RemotePort(n),
        b"transport" => Piece::Transport,
        b"local_ip" => Piece::LocalIp,
        b"local_ip_type" => Piece::LocalIpType,
        b"local_port" => Piece::LocalPort(n),
        b"server_ip" => Piece::ServerIp,
        b"media_ip" => Piece::MediaIp,
        b"media_ip_type" => Piece::MediaIpType,
        b"media_port" => Piece::MediaPort(n),
        b"auto_media_port" => Piece::AutoMediaPort(n),
        b"rtpstream_audio_port" => Piece::RtpStreamAudioPort(0),
        b"rtpstream_video_port" => Piece::RtpStreamVideoPort(0),
        b"call_number" => Piece::CallNumber(0),
        b"dynamic_id" => Piece::DynamicId(0),
        b"call_id" => Piece::CallId,
        b"cseq" => Piece::CSeq(n),
        b"pid" => Piece::Pid(0),
        b"service" => Piece::Service,
        b"branch" => Piece::Branch(n),
        b"msg_index" => Piece::MessageIndex(0),
        b"clock_tick" => Piece::ClockTick(0),
        b"users" => Piece::Users(0),
        b"userid" => Piece::UserId(0),
        b"timestamp" => Piece::Timestamp,
        b"date" => Piece::Date,
        b"sipp_version" => Piece::SippVersion,
        b"tdmmap" => Piece::TdmMap,
        b"next_url" => Piece::NextUrl,
        b"len" => Piece::Length(n),
        b"peer_tag_param" => Piece::PeerTagParameter,
        b"routes" => Piece::Routes,
        b"last_Request_URI" => Piece::LastRequestUri,
        b"last_cseq_number" => Piece::LastCSeqNumber(n),
        b"last_message" => Piece::LastMessage,
        _ => return None,
    })
}

/// Plain keywords, for hints.
const PLAIN: &[&str] = &[
    "remote_ip",
    "remote_host",
    "remote_port",
    "transport",
    "local_ip",
    "local_ip_type",
    "local_port",
    "server_ip",
    "media_ip",
    "media_ip_type",
    "media_port",
    "auto_media_port",
    "rtpstream_audio_port",
    "rtpstream_video_port",
    "call_number",
    "dynamic_id",
    "call_id",
    "cseq",
    "pid",
    "service",
    "branch",
    "msg_index",
    "clock_tick",
    "users",
    "userid",
    "timestamp",
    "date",
    "sipp_version",
    "next_url",
    "len",
    "peer_tag_param",
    "routes",
    "last_Request_URI",
    "last_cseq_number",
    "last_message",
    "authentication",
];

/// Returns the keyword that differs from `word` only in case, edges, or `-` for `_`.
fn nearest(word: &[u8]) -> Option<&'static str> {
    let plain = |text: &[u8]| -> Vec<u8> {
        text.iter().filter(|b| b.is_ascii_alphanumeric()).map(u8::to_ascii_lowercase).collect()
    };
    let wanted = plain(word);
    PLAIN.iter().copied().find(|name| plain(name.as_bytes()) == wanted)
}

/// Returns true for the keywords of SIPp 3.7 that begin with `crypto` or `ueaescm` and end with `audio` or `video`.
fn is_crypto(word: &[u8]) -> bool {
    const ITEMS: [&[u8]; 4] = [b"cryptotag", b"cryptokeyparams", b"cryptosuite", b"ueaescm"];
    (word.ends_with(b"audio") || word.ends_with(b"video")) && ITEMS.iter().any(|item| word.starts_with(item))
}

#[cfg(test)]
mod tests;
