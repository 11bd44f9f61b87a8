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
mod tests {
    use super::*;

    fn cut(text: &str, environment: &Environment) -> Result<(Template, Names), Fault> {
        let mut names = Names::default();
        let mut keywords = Keywords { names: &mut names, environment, notes: Vec::new() };
        let template = keywords.template(text.as_bytes()).map_err(|wrong| wrong.fault)?;
        Ok((template, names))
    }

    fn pieces(text: &str) -> Vec<Piece> {
        cut(text, &Environment::default()).map(|(template, _)| template.pieces).expect(text)
    }

    fn refused(text: &str) -> Fault {
        match cut(text, &Environment::default()) {
            Ok((template, _)) => panic!("{text}: {template:?}"),
            Err(fault) => fault,
        }
    }

    fn text(bytes: &str, solid: u32) -> Piece {
        Piece::Text(Text { bytes: bytes.as_bytes().into(), solid })
    }

    #[test]
    fn numbers_behind_keywords() {
        assert_eq!(pieces("[local_port+5][local_port-5]"), [Piece::LocalPort(5), Piece::LocalPort(-5)]);
        assert_eq!(pieces("[local_port+1+1]"), [Piece::LocalPort(1)]);
        assert_eq!(pieces("[local_port+0x10]"), [Piece::LocalPort(0)]);
        assert_eq!(pieces("[local_ip+5]"), [Piece::LocalIp]);
        assert_eq!(pieces("[call_number+5]"), [Piece::CallNumber(0)]);
        for wrong in
            ["[local_port +5]", "[local_port+a]", "[local_port+]", "[local_port-1+5]", "[ local_ip]", "[Local_ip]"]
        {
            assert_eq!(refused(wrong).cause, Cause::Keyword, "{wrong}");
        }
    }

    #[test]
    fn text_between_keywords() {
        assert_eq!(pieces("a\n[service]\nb"), [text("a\r\n", 0), Piece::Service, text("\r\nb", 2)]);
        assert_eq!(pieces("a]b"), [text("a]b", 0)]);
        assert_eq!(pieces("\\x5bdate]"), [text("[date]", 0)]);
        assert_eq!(pieces("<\\xzz \\x4z \\x41>"), [text("<z \u{4} A>", 0)]);
        for wrong in ["a [", "[]", "[local_ip", "[service\"]", &format!("[last_{}]", "x".repeat(300))] {
            refused(wrong);
        }
    }

    #[test]
    fn a_bracket_in_a_bracket_writes_the_inner_first() {
        assert_eq!(pieces("[local_ip [service]]x"), [Piece::Service, text("[local_ip ]x", 0)]);
    }

    #[test]
    fn fields_name_their_file_and_line() {
        let environment = Environment { injections: vec!["x.csv".into(), "y.csv".into()], ..Environment::default() };
        let field = |text: &str| match &cut(text, &environment).expect(text).0.pieces[..] {
            [Piece::Field(field)] => (**field).clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!((field("[field3]").column, field("[field3]").file), (3, 0));
        assert_eq!((field("[field]").column, field("[field 1]").column, field("[field1x]").column), (0, 1, 1));
        assert_eq!(field("[field0 file=\"y.csv\"]").file, 1);
        assert_eq!(
            field("[field0 file=y.csv line=\"2\"]").line.and_then(|l| l.constant().map(<[u8]>::to_vec)),
            Some(b"2".to_vec())
        );
        assert!(
            matches!(field("[field0 line=\"[$v]\"]").line, Some(line) if matches!(line.pieces[..], [Piece::Variable(_)]))
        );
        // SIPp splits at `-1` first, so that such a name cannot be used.
        for wrong in ["[field0 file=\"z.csv\"]", "[field0 file=\"./x.csv\"]", "[field0 file=\"x-1.csv\"]"] {
            assert_eq!(cut(wrong, &environment).err().map(|f| f.cause), Some(Cause::InjectionFile), "{wrong}");
        }
        assert_eq!(refused("[field0]").cause, Cause::InjectionFile);
    }

    #[test]
    fn headers_of_the_last_message() {
        let header = |text: &str| match &pieces(text)[..] {
            [Piece::LastHeader(header)] => (**header).clone(),
            other => panic!("{other:?}"),
        };
        assert_eq!(
            header("[last_Call-ID:]"),
            LastHeader { name: b"Call-ID"[..].into(), known: Name::CallId, whole_line: true }
        );
        assert_eq!(header("[last_f]"), LastHeader { name: b"f"[..].into(), known: Name::Other, whole_line: true });
        assert_eq!(pieces("[last_cseq_number+1]"), [Piece::LastCSeqNumber(1)]);
    }

    #[test]
    fn keys_come_last() {
        let environment = Environment {
            keys: vec![("local_ip".into(), b"x".to_vec()), ("foo-x".into(), b"y".to_vec())],
            ..Environment::default()
        };
        let one = |text: &str| cut(text, &environment).map(|(template, _)| template.pieces);
        assert_eq!(one("[local_ip]"), Ok(vec![Piece::LocalIp]));
        assert_eq!(one("[foo-x]"), Ok(vec![Piece::Generic(1)]));
        assert_eq!(one("[foo-x+1]"), Ok(vec![Piece::Generic(1)]));
    }

    #[test]
    fn parameters() {
        let (template, names) =
            cut("[fill variable=v text=\"a]b\"][authentication username=joe]", &Environment::default())
                .unwrap_or_else(|fault| panic!("{fault:?}"));
        assert!(matches!(&template.pieces[0], Piece::Fill(fill) if *fill.text == *b"a]b"));
        assert!(
            matches!(&template.pieces[1], Piece::Authentication(a) if a.username.is_some() && a.password.is_none())
        );
        assert_eq!(names.lonely(), Some("v"));
        refused("[fill text=x]");
        refused("[file]");
        refused("[$]");
    }

    #[test]
    fn encrypted_media_are_refused() {
        for word in
            ["cryptotag1audio", "cryptosuiteaescm128sha1802video", "cryptokeyparams1audio", "ueaescm128sha1801audio"]
        {
            let fault = cut(&format!("a=crypto:[{word}]"), &Environment::default()).err().expect("it is refused");
            assert!(fault.what.contains("SRTP"), "{fault:?}");
        }
    }
}
