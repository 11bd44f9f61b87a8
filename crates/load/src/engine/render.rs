//! A template becomes the bytes of a message, straight in the outbox.

use super::script::{Line as Text, Part};
use super::stage::Stage;
use crate::scenario::Piece;
use crate::scenario::template::{Authentication, LastHeader};
use std::io::Write;
use strowger_message::{Line, Name};

/// What is written later, when the rest is known.
#[derive(Default)]
struct Marks {
    length: Option<(usize, i32)>,
    /// Where it goes, and what an injection file asks for.
    authentication: Option<(usize, Option<Box<Authentication>>)>,
}

impl Stage<'_> {
    /// Appends the text to `out`. `step`: the place in the scenario, -1 for messages that stand in none.
    pub(super) fn render(&mut self, line: &Text, step: i32, out: &mut Vec<u8>) {
        let start = out.len();
        let mut marks = Marks::default();
        // A keyword that may vanish wrote nothing at the start of a line.
        let mut vanished = false;
        for part in &line.parts {
            match part {
                Part::Bytes(bytes, solid) => {
                    let from = if vanished { *solid as usize } else { 0 };
                    vanished = false;
                    out.extend_from_slice(&bytes[from..]);
                }
                Part::Number(n) => number(out, self.call.number as i64 + i64::from(*n)),
                Part::CallId => out.extend_from_slice(self.call.id()),
                Part::Piece(piece) => {
                    self.piece(piece, step, out, &mut marks);
                    let comes = marks.authentication.as_ref().is_some_and(|(at, _)| *at == out.len());
                    if vanishes(piece) && !comes && (out.len() == start || out.last() == Some(&b'\n')) {
                        vanished = true;
                    }
                }
            }
        }
        if let Some((at, n)) = marks.length {
            // The line of credentials is still empty, which is no end of the header.
            let from = marks.authentication.as_ref().map_or(start, |(at, _)| *at);
            let body = memchr::memmem::find(&out[from..], b"\r\n\r\n").map_or(out.len(), |i| from + i + 4);
            let text = super::script::length((out.len() - body.min(out.len())) as i64 + i64::from(n));
            let room = LENGTH.min(text.len());
            out.splice(at..at + room, text);
        }
        if let Some((at, injected)) = marks.authentication {
            self.authenticate(line, injected.as_deref(), start, at, out);
        }
    }

    /// Any text, as bytes of its own.
    pub(super) fn text(&mut self, template: &crate::scenario::Template) -> Vec<u8> {
        if let Some(constant) = template.constant() {
            return constant.to_vec();
        }
        let line = super::script::line(template, &self.world.run, self.call.step as i32);
        let mut text = Vec::new();
        self.render(&line, self.call.step as i32, &mut text);
        text
    }

    fn piece(&mut self, piece: &Piece, step: i32, out: &mut Vec<u8>, marks: &mut Marks) {
        match piece {
            Piece::LastHeader(header) => self.last_header(header, out),
            Piece::PeerTagParameter => {
                if let Some(tag) = self.call.tag() {
                    out.extend_from_slice(b";tag=");
                    out.extend_from_slice(tag);
                }
            }
            Piece::CSeq(n) => number(out, i64::from(self.call.cseq) + i64::from(*n)),
            Piece::Length(n) => {
                marks.length = Some((out.len(), *n));
                out.extend_from_slice(&[b' '; LENGTH]);
            }
            Piece::Variable(slot) => self.call.value(*slot, &self.world.shared).write(out),
            Piece::NextUrl => {
                if let Some(extra) = &self.call.extra {
                    out.extend_from_slice(&extra.next_url);
                }
            }
            Piece::Routes => {
                if let Some(extra) = self.call.extra.as_ref().filter(|e| !e.routes.is_empty()) {
                    out.extend_from_slice(b"Route: ");
                    out.extend_from_slice(&extra.routes);
                }
            }
            Piece::Branch(n) => {
                let number = self.call.number;
                let _ = write!(out, "z9hG4bK-{}-{}-{}", self.world.run.pid, number, i64::from(step) + i64::from(*n));
            }
            Piece::MessageIndex(n) => number(out, i64::from(step) + i64::from(*n)),
            Piece::LastRequestUri => self.last_request_uri(step < 0, out),
            Piece::LastCSeqNumber(n) => {
                let last = self.last_cseq();
                number(out, i64::from(last) + i64::from(*n));
            }
            Piece::LastMessage => {
                if self.call.has_last {
                    out.extend_from_slice(&self.call.last);
                }
            }
            Piece::Authentication(_) => marks.authentication = Some((out.len(), None)),
            Piece::Field(field) => {
                let start = out.len();
                self.field(field, out);
                if let Some((range, wanted)) = super::credentials::injected(&out[start..]) {
                    marks.authentication = Some((start + range.start, Some(Box::new(wanted))));
                    out.drain(start + range.start..start + range.end);
                }
            }
            Piece::Fill(fill) => {
                let length = self.call.value(fill.length, &self.world.shared).number().clamp(0.0, 65_535.0) as usize;
                out.extend(fill.text.iter().cycle().take(if fill.text.is_empty() { 0 } else { length }));
            }
            Piece::File(name) => {
                let name = self.text(name);
                match std::fs::read(String::from_utf8_lossy(&name).as_ref()) {
                    Ok(text) => out.extend_from_slice(&text),
                    Err(error) => {
                        self.world.warn(format_args!("{}: {error}", String::from_utf8_lossy(&name)));
                    }
                }
            }
            Piece::ClockTick(n) => number(out, self.world.ms as i64 + i64::from(*n)),
            Piece::DynamicId(_) => {
                // SIPp takes no offset here.
                let (id, range) = (self.world.dynamic_id, self.world.run.dynamic_id);
                self.world.dynamic_id = id.saturating_add(range.step);
                if self.world.dynamic_id > range.last {
                    self.world.dynamic_id = range.first;
                }
                number(out, id as i64);
            }
            Piece::Users(n) => number(out, self.world.run.load.users.map_or(-1, i64::from) + i64::from(*n)),
            Piece::UserId(n) => number(out, i64::from(self.call.user) + i64::from(*n)),
            Piece::AutoMediaPort(n) => {
                let (base, call) = (self.world.run.media_port, self.call.number);
                let port = match &mut self.world.media {
                    Some(media) => media.own_port(self.slot, call),
                    None => crate::media::automatic(base, call),
                };
                number(out, i64::from(port) + i64::from(*n));
            }
            Piece::RtpStreamAudioPort(n) => number(out, i64::from(self.world.run.media_port) + i64::from(*n)),
            Piece::RtpStreamVideoPort(n) => number(out, i64::from(self.world.run.media_port) + i64::from(*n)),
            Piece::Date => {
                let date = super::moment::rfc1123(self.world.wall / 1_000);
                out.extend_from_slice(date.as_bytes());
            }
            Piece::Timestamp => {
                let time = super::moment::local(self.world.wall * 1_000);
                let (seconds, ms) = (self.world.wall / 1_000, self.world.wall % 1_000);
                let _ = write!(out, "{time}\t{seconds}.{ms:03}000");
            }
            Piece::TdmMap => out.extend_from_slice(b"0.0.0/0"),
            Piece::CallId => out.extend_from_slice(self.call.id()),
            Piece::CallNumber(n) => number(out, self.call.number as i64 + i64::from(*n)),
            // Made constant when the run began.
            Piece::Text(text) => out.extend_from_slice(&text.bytes),
            Piece::RemoteIp
            | Piece::RemoteHost
            | Piece::RemotePort(_)
            | Piece::Transport
            | Piece::LocalIp
            | Piece::LocalIpType
            | Piece::LocalPort(_)
            | Piece::ServerIp
            | Piece::MediaIp
            | Piece::MediaIpType
            | Piece::MediaPort(_)
            | Piece::Pid(_)
            | Piece::Service
            | Piece::SippVersion
            | Piece::Generic(_)
            // Of SIPp 3.7's SRTP: nothing is encrypted here.
            | Piece::Crypto(_) => (),
        }
    }

    /// `[last_Name]`, with a colon or without: all lines of that name as one, joined by commas, with the name before
    /// the first; the short form only if there is no long one.
    fn last_header(&mut self, header: &LastHeader, out: &mut Vec<u8>) {
        if !self.parse_last() {
            return;
        }
        let bytes = &self.call.last[..];
        let index = &self.world.index;
        let part = |from: usize, line: &Line, out: &mut Vec<u8>| {
            unfolded(&bytes[from..(line.value_end as usize).max(from)], line.folded, out);
        };
        // Nothing may stand between name and colon.
        let colon = |line: &Line| bytes.get(line.start as usize + usize::from(line.name_len)) == Some(&b':');
        if header.known != Name::Other && !index.repeated(header.known) {
            if let Some(line) = index.first(header.known).filter(|line| colon(line)) {
                part(line.start as usize, line, out);
            }
            return;
        }
        let of = |line: &&Line| {
            let name = &bytes[line.start as usize..line.start as usize + usize::from(line.name_len)];
            line.name == header.known
                && colon(line)
                && (header.known != Name::Other || name.eq_ignore_ascii_case(&header.name))
        };
        let is_long = index.lines().iter().filter(of).any(|l| l.name_len > 1);
        let mut first = true;
        for line in index.lines().iter().filter(of).filter(|l| !is_long || l.name_len > 1) {
            if first {
                part(line.start as usize, line, out);
            } else {
                out.push(b',');
                part(line.start as usize + usize::from(line.name_len) + 1, line, out);
            }
            first = false;
        }
    }

    /// The URI of the To header: what stands between its angle brackets. `bare`: or up to the parameters, where there are
    /// none, so that a message beside the scenario has a target in any case.
    fn last_request_uri(&mut self, bare: bool, out: &mut Vec<u8>) {
        if !self.parse_last() {
            return;
        }
        let bytes = &self.call.last[..];
        if let Some(to) = self.world.index.first(Name::To) {
            let value = &bytes[to.value as usize..to.value_end as usize];
            let inner = memchr::memchr(b'<', value)
                .and_then(|a| memchr::memchr(b'>', &value[a..]).map(|b| &value[a + 1..a + b]));
            let value = value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
            out.extend_from_slice(inner.unwrap_or(if bare { value } else { b"" }));
        }
    }

    /// The number in the CSeq of the last message; 0 without.
    pub(super) fn last_cseq(&mut self) -> u32 {
        if !self.parse_last() {
            return 0;
        }
        super::incoming::cseq(&self.call.last, &self.world.index).0
    }

    /// Sees to it that the index describes the last message of this call; whether there is one.
    pub(super) fn parse_last(&mut self) -> bool {
        if !self.call.has_last {
            return false;
        }
        let me = (self.slot, self.call.generation);
        if self.world.parsed != Some(me) {
            let _ = self.world.index.parse(&self.call.last, &self.world.limits);
            self.world.parsed = Some(me);
        }
        true
    }
}

/// Places kept for a length.
const LENGTH: usize = 5;

/// Whether a line goes when this keyword, at its start, has nothing to say.
const fn vanishes(piece: &Piece) -> bool {
    matches!(
        piece,
        Piece::Routes | Piece::LastHeader(_) | Piece::Field(_) | Piece::Variable(_) | Piece::Fill(_) | Piece::File(_)
    )
}

/// Line ends inside a folded value become spaces.
fn unfolded(value: &[u8], folded: bool, out: &mut Vec<u8>) {
    if !folded {
        return out.extend_from_slice(value);
    }
    let mut rest = value;
    while let Some(end) = memchr::memmem::find(rest, b"\r\n") {
        out.extend_from_slice(&rest[..end]);
        out.push(b'\n');
        rest = &rest[end + 2..];
    }
    out.extend_from_slice(rest);
}

/// A number in decimal.
#[inline]
pub(super) fn number(out: &mut Vec<u8>, value: i64) {
    let mut buffer = [0u8; 20];
    let mut at = buffer.len();
    let mut rest = value.unsigned_abs();
    loop {
        at -= 1;
        buffer[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&buffer[at..]);
}
