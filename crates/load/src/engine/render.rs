//! Renders a template directly into the outbox.

use super::call_runner::CallRunner;
use super::credentials::Wanted;
use super::moment::Local;
use super::script::{Line as Text, OF_REFUSAL, Part, write_constant};
use super::text::{insert, number};
use std::io::{Read, Write};
use strowger_message::header::Date;
use strowger_message::{Line, Name};
use strowger_scenario::template::LastHeader;
use strowger_scenario::{Piece, Template};

/// Parts that are written after all other parts are known.
#[derive(Default)]
struct Marks<'a> {
    length: Option<(usize, i32)>,
    /// Position and source of the credentials.
    authentication: Option<(usize, Wanted<'a>)>,
}

impl CallRunner<'_> {
    /// Appends the text to `out`. `step`: its index in the scenario, negative for messages outside of it.
    pub(super) fn render(&mut self, line: &Text, step: i32, out: &mut Vec<u8>) {
        let start = out.len();
        let mut marks = Marks::default();
        // True while a vanishing keyword has written nothing at the start of a line.
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
                Part::Piece(piece) => vanished |= self.piece_vanishes(piece, step, start, out, &mut marks),
            }
        }
        self.finish_text(marks, step, start, out);
    }

    /// Appends a text that was not prepared for the run.
    pub(super) fn render_template(&mut self, template: &Template, out: &mut Vec<u8>) {
        if let Some(constant) = template.constant() {
            return out.extend_from_slice(constant);
        }
        let step = IN_ACTION;
        let start = out.len();
        let mut marks = Marks::default();
        let mut vanished = false;
        for piece in &template.pieces {
            let before = out.len();
            if let Piece::Text(text) = piece {
                let from = if vanished { text.solid as usize } else { 0 };
                vanished = false;
                out.extend_from_slice(&text.bytes[from..]);
            } else if write_constant(piece, &self.shard.run, Some(step), out) {
                vanished &= out.len() == before;
            } else {
                vanished |= self.piece_vanishes(piece, step, start, out, &mut marks);
            }
        }
        self.finish_text(marks, step, start, out);
    }

    /// Renders a text into a buffer that SHOULD be given back.
    pub(super) fn text(&mut self, template: &Template) -> Vec<u8> {
        let mut text = self.shard.pool.buffer();
        self.render_template(template, &mut text);
        text
    }

    /// Writes a piece. Returns whether the white space after it vanishes too.
    fn piece_vanishes<'a>(
        &mut self,
        piece: &'a Piece,
        step: i32,
        start: usize,
        out: &mut Vec<u8>,
        marks: &mut Marks<'a>,
    ) -> bool {
        self.piece(piece, step, start, out, marks);
        let comes = marks.authentication.as_ref().is_some_and(|(at, _)| *at == out.len());
        vanishes(piece) && !comes && (out.len() == start || out.last() == Some(&b'\n'))
    }

    /// Inserts the length and the credentials.
    fn finish_text(&mut self, marks: Marks<'_>, step: i32, start: usize, out: &mut Vec<u8>) {
        if let Some((at, n)) = marks.length {
            // The credentials header is still empty, which does not end the headers.
            let from = marks.authentication.as_ref().map_or(start, |(at, _)| *at);
            let body = memchr::memmem::find(&out[from..], b"\r\n\r\n").map_or(out.len(), |i| from + i + 4);
            let mut room = [0; 20];
            let text = super::script::length((out.len() - body.min(out.len())) as i64 + i64::from(n), &mut room);
            let (here, more) = text.split_at(LENGTH);
            out[at..at + LENGTH].copy_from_slice(here);
            insert(out, at + LENGTH, more);
        }
        if let Some((at, wanted)) = marks.authentication {
            if step == BESIDE && self.call.extra.as_ref().is_none_or(|extra| extra.challenge_code == 0) {
                // No server has sent a challenge, so the line is removed.
                out.drain(at..(at + 2).min(out.len()));
                return;
            }
            self.authenticate(wanted, start, at, out);
        }
    }

    /// Ends the run: see [`ShardContext::fatal`](super::shard_context::ShardContext::fatal).
    pub(super) fn halt(&mut self, why: std::fmt::Arguments<'_>) {
        self.shard.fatal(why);
    }

    fn piece<'a>(&mut self, piece: &'a Piece, step: i32, start: usize, out: &mut Vec<u8>, marks: &mut Marks<'a>) {
        match piece {
            Piece::LastHeader(header) => self.last_header(header, out),
            Piece::PeerTagParameter => {
                if let Some(tag) = self.call.tag() {
                    out.extend_from_slice(b";tag=");
                    out.extend_from_slice(tag);
                }
            }
            Piece::LocalPort(n) => number(out, i64::from(self.call.local_port) + i64::from(*n)),
            Piece::CSeq(n) => number(out, i64::from(self.call.cseq) + i64::from(*n)),
            Piece::Length(n) => {
                marks.length = Some((out.len(), *n));
                out.extend_from_slice(&[b' '; LENGTH]);
            }
            Piece::Variable(slot) => self.call.value(*slot, &self.shard.shared).write(out),
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
                // The ACK to a refusal belongs to the refused transaction (RFC 3261 section 17.1.1.3).
                let before = matches!(step, IN_ACTION | OF_REFUSAL);
                let step = if before { i64::from(self.call.step) - 1 } else { i64::from(step) };
                let _ = write!(out, "z9hG4bK-{}-{}-{}", self.shard.run.pid, number, step + i64::from(*n));
            }
            Piece::MessageIndex(n) => {
                let step = if step == OF_REFUSAL { IN_ACTION } else { step };
                number(out, i64::from(step) + i64::from(*n));
            }
            Piece::LastRequestUri => self.last_request_uri(step < 0 && step != IN_ACTION, out),
            Piece::LastCSeqNumber(n) => {
                let last = self.last_cseq();
                number(out, i64::from(last) + i64::from(*n));
            }
            Piece::LastMessage => {
                if self.call.has_last {
                    out.extend_from_slice(&self.call.last);
                }
            }
            Piece::Authentication(wanted) => self.mark_authentication(out.len(), Wanted::Own(wanted), marks),
            Piece::Field(field) => {
                let from = out.len();
                self.field(field, out);
                if let Some(range) = super::credentials::injected(&out[from..]) {
                    let (at, end) = (from + range.start, from + range.end);
                    let mut words = self.shard.pool.buffer();
                    words.extend_from_slice(&out[at..end]);
                    out.drain(at..end);
                    self.mark_authentication(at, Wanted::Injected(words), marks);
                }
            }
            Piece::Fill(fill) => {
                let length = self.call.value(fill.length, &self.shard.shared).number().clamp(0.0, 65_535.0) as usize;
                out.extend(fill.text.iter().cycle().take(if fill.text.is_empty() { 0 } else { length }));
            }
            Piece::File(name) => {
                let name = self.text(name);
                let path = String::from_utf8_lossy(&name);
                let read =
                    self.call.extra.as_ref().and_then(|extra| extra.files.iter().find(|file| file.path == *path));
                // Texts of actions, and messages that are made again, have no files read before.
                let error = match read.map(|file| &file.content) {
                    Some(Ok(content)) => {
                        out.extend_from_slice(content);
                        None
                    }
                    Some(Err(error)) => Some(error.clone()),
                    None => read_to(&path, out).err().map(|error| error.to_string()),
                };
                if let Some(error) = error {
                    self.halt(format_args!("Could not open '{path}': {error}"));
                }
                drop(path);
                self.shard.pool.give(name);
            }
            Piece::ClockTick(n) => number(out, self.shard.ms as i64 + i64::from(*n)),
            Piece::DynamicId(_) => {
                // SIPp takes no offset here.
                let (id, range) = (self.shard.dynamic_id, self.shard.run.dynamic_id);
                self.shard.dynamic_id = id.saturating_add(range.step);
                if self.shard.dynamic_id > range.last {
                    self.shard.dynamic_id = range.first;
                }
                number(out, id as i64);
            }
            Piece::Users(n) => number(out, self.shard.run.load.users.map_or(-1, i64::from) + i64::from(*n)),
            Piece::UserId(n) => number(out, i64::from(self.call.user) + i64::from(*n)),
            Piece::AutoMediaPort(n) => {
                let (base, call) = (self.shard.run.media_port, self.call.number);
                let port = match self.shard.media.as_mut().map(|media| media.own_port(self.slot, call)) {
                    Some(Ok(port)) => port,
                    Some(Err(refusal)) => {
                        self.shard.warn(format_args!("{refusal}"));
                        base
                    }
                    None => crate::media::automatic(base, call),
                };
                self.check_media_line(start, out);
                number(out, i64::from(port) + i64::from(*n));
            }
            Piece::MediaPort(n) => {
                self.check_media_line(start, out);
                number(out, i64::from(self.shard.run.media_port) + i64::from(*n));
            }
            Piece::RtpStreamAudioPort(n) => number(out, i64::from(self.shard.run.media_port) + i64::from(*n)),
            Piece::RtpStreamVideoPort(n) => number(out, i64::from(self.shard.run.media_port) + i64::from(*n)),
            Piece::Date => Date::new((self.shard.wall / 1_000).cast_signed()).write(out),
            Piece::Timestamp => {
                let time = Local(self.shard.wall * 1_000);
                let (seconds, ms) = (self.shard.wall / 1_000, self.shard.wall % 1_000);
                let _ = write!(out, "{time}\t{seconds}.{ms:03}000");
            }
            Piece::TdmMap => match (&self.shard.run.circuits, self.call.circuit) {
                (Some(circuits), Some(circuit)) => circuits.name(circuit, out),
                _ => self.halt(format_args!("[tdmmap] keyword without -tdmmap parameter on command line")),
            },
            Piece::CallId => out.extend_from_slice(self.call.id()),
            Piece::CallNumber(n) => number(out, self.call.number as i64 + i64::from(*n)),
            // Constant since the start of the run.
            Piece::Text(text) => out.extend_from_slice(&text.bytes),
            Piece::RemoteIp
            | Piece::RemoteHost
            | Piece::RemotePort(_)
            | Piece::Transport
            | Piece::LocalIp
            | Piece::LocalIpType
            | Piece::ServerIp
            | Piece::MediaIp
            | Piece::MediaIpType
            | Piece::Pid(_)
            | Piece::Service
            | Piece::SippVersion
            | Piece::Generic(_) => (),
        }
    }

    /// Marks the position of the credentials; a message may have only one.
    fn mark_authentication<'a>(&mut self, at: usize, wanted: Wanted<'a>, marks: &mut Marks<'a>) {
        if marks.authentication.is_some() {
            return self.halt(format_args!("Only one [authentication] keyword is currently supported!"));
        }
        marks.authentication = Some((at, wanted));
    }

    /// Checks that a media port is on a line that names its media, and not on the first line. SIPp allows no other
    /// place.
    fn check_media_line(&mut self, start: usize, out: &[u8]) {
        let line = super::script::line_of(&out[start..]);
        if !super::script::names_media(line) {
            let line = String::from_utf8_lossy(line).trim_start().to_owned();
            self.halt(format_args!("media_port keyword with no audio or video on the current line ({line})"));
        }
    }

    /// Writes `[last_Name]`, with or without a colon: joins all lines of that name by commas into one, preceded by the
    /// name unless only the value is wanted. The short form of the name is used only if no line has the long form.
    fn last_header(&mut self, header: &LastHeader, out: &mut Vec<u8>) {
        if !self.parse_last() {
            return;
        }
        let bytes = &self.call.last[..];
        let index = &self.shard.index;
        let part = |from: usize, line: &Line, out: &mut Vec<u8>| {
            unfolded(&bytes[from..(line.value_end as usize).max(from)], line.folded, out);
        };
        // Nothing may come between name and colon.
        let colon = |line: &Line| bytes.get(line.start as usize + usize::from(line.name_len)) == Some(&b':');
        if header.known != Name::Other && !index.repeated(header.known) {
            if let Some(line) = index.first(header.known).filter(|line| colon(line)) {
                part(if header.whole_line { line.start } else { line.value } as usize, line, out);
            }
            return;
        }
        let of = |line: &&Line| {
            let name = &bytes[line.start as usize..line.start as usize + usize::from(line.name_len)];
            // A single letter is searched for literally, and may be the short form of a known name.
            let same = match header.known {
                Name::Other => name.eq_ignore_ascii_case(&header.name),
                known => line.name == known,
            };
            same && colon(line)
        };
        let is_long = index.lines().iter().filter(of).any(|l| l.name_len > 1);
        let mut first = true;
        for line in index.lines().iter().filter(of).filter(|l| !is_long || l.name_len > 1) {
            if first && header.whole_line {
                part(line.start as usize, line, out);
            } else if first {
                part(line.value as usize, line, out);
            } else {
                out.push(b',');
                part(line.start as usize + usize::from(line.name_len) + 1, line, out);
            }
            first = false;
        }
    }

    /// Writes the URI of the To header, which is the text between its angle brackets. If `bare` is set and there are no
    /// brackets, writes the text up to the parameters instead, so that a message outside the scenario always has a
    /// target.
    fn last_request_uri(&mut self, bare: bool, out: &mut Vec<u8>) {
        if !self.parse_last() {
            return;
        }
        let bytes = &self.call.last[..];
        if let Some(to) = self.shard.index.first(Name::To) {
            let value = &bytes[to.value as usize..to.value_end as usize];
            let inner = memchr::memchr(b'<', value)
                .and_then(|a| memchr::memchr(b'>', &value[a..]).map(|b| &value[a + 1..a + b]));
            let value = value.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
            out.extend_from_slice(inner.unwrap_or(if bare { value } else { b"" }));
        }
    }

    /// Returns the CSeq number of the last message, or 0 if there is none.
    pub(super) fn last_cseq(&mut self) -> u32 {
        if !self.parse_last() {
            return 0;
        }
        super::received_message::cseq(&self.call.last, &self.shard.index).0
    }

    /// Parses the last message of this call into the index, unless the index already has it. Returns false if there is
    /// no such message.
    pub(super) fn parse_last(&mut self) -> bool {
        if !self.call.has_last {
            return false;
        }
        let me = (self.slot, self.call.generation);
        if self.shard.parsed != Some(me) {
            let _ = self.shard.index.parse(&self.call.last, &self.shard.limits);
            self.shard.parsed = Some(me);
        }
        true
    }
}

/// Step index of messages that are not of the scenario.
const BESIDE: i32 = -1;

/// Step index of texts of actions, as SIPp writes it; their branch is the branch of the previous step.
const IN_ACTION: i32 = -2;

/// Characters reserved for a length.
const LENGTH: usize = 5;

/// Returns whether a line vanishes when this keyword at its start is empty.
const fn vanishes(piece: &Piece) -> bool {
    matches!(piece, Piece::Routes | Piece::LastHeader(_) | Piece::Field(_) | Piece::Variable(_))
}

fn read_to(path: &str, out: &mut Vec<u8>) -> std::io::Result<usize> {
    std::fs::File::open(path)?.read_to_end(out)
}

/// Appends a header value, in which the line ends of a folded value become spaces.
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
