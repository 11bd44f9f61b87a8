//! Templates prepared for one run: keywords that the run makes constant become text, so that a message is a few copies.

use super::run::Run;
use super::socket_plan::Each;
use std::io::Write;
use std::sync::Arc;
use strowger_core::Transport;
use strowger_scenario::step::{Start, StepKind};
use strowger_scenario::template::Text;
use strowger_scenario::{Piece, Scenario, Step, Template};

/// Scenario with its texts for this run.
#[derive(Debug)]
pub struct Script {
    pub scenario: Arc<Scenario>,
    /// Texts by step; empty where a step has none.
    pub texts: Box<[Line]>,
    /// True if a step starts timers; otherwise they run from the start of the call.
    pub starts_timers: bool,
    /// True if received streams are judged, see [`crate::media::hears`].
    pub hears: bool,
    pub ack: Line,
    pub ack2: Line,
    pub bye: Line,
    pub routed_ack: Line,
    pub routed_bye: Line,
    pub cancel: Line,
    pub ok: Line,
    pub three_party_abort: Line,
}

/// Step index of the ACK to an unexpected refusal: in no step, but of the transaction before.
pub(super) const OF_REFUSAL: i32 = -3;

/// Template prepared for this run.
#[derive(Clone, Debug, Default)]
pub struct Line {
    pub parts: Box<[Part]>,
    pub has_length: bool,
    pub has_authentication: bool,
    /// Names of the files whose content it has.
    pub files: Box<[Template]>,
    /// Start line of the message.
    pub start: Option<Start>,
}

/// Part of a template.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes; those from this offset on follow a keyword that vanished.
    Bytes(Box<[u8]>, u32),
    /// Number of the call plus this offset.
    Number(i32),
    CallId,
    /// Other keyword.
    Piece(Piece),
}

impl Script {
    /// Prepares a scenario.
    pub fn new(scenario: Arc<Scenario>, run: &Run) -> Self {
        let texts: Box<[Line]> = scenario
            .steps
            .iter()
            .enumerate()
            .map(|(index, step)| match &step.kind {
                StepKind::Send(send) => {
                    let mut line = line(&send.template, run, index as i32);
                    line.start = Some(send.start.clone());
                    line
                }
                StepKind::SendCommand { template, .. } => line(template, run, index as i32),
                _ => Line::default(),
            })
            .collect();
        let defaults = &scenario.default_messages;
        let default = |template: &Template| line(template, run, -1);
        let hears = crate::media::hears(&scenario);
        let starts_timers = scenario.steps.iter().any(|step: &Step| step.start_timer.is_some());
        Self {
            starts_timers,
            hears,
            // The step's index is known only when the message is sent.
            ack: Line { parts: parts(&defaults.ack, run, None), ..default(&defaults.ack) },
            ack2: default(&defaults.ack2),
            bye: default(&defaults.bye),
            routed_ack: Line { parts: parts(&defaults.routed_ack, run, None), ..default(&defaults.routed_ack) },
            routed_bye: Line { parts: parts(&defaults.routed_bye, run, None), ..default(&defaults.routed_bye) },
            cancel: default(&defaults.cancel),
            ok: default(&defaults.ok),
            three_party_abort: default(&defaults.three_party_abort),
            texts,
            scenario,
        }
    }
}

/// Prepares a template; `index` is that of its step.
pub fn line(template: &Template, run: &Run, index: i32) -> Line {
    let parts = parts(template, run, Some(index));
    Line {
        has_length: parts.iter().any(|p| matches!(p, Part::Piece(Piece::Length(_)))),
        has_authentication: parts.iter().any(|p| matches!(p, Part::Piece(Piece::Authentication(_)))),
        files: parts.iter().filter_map(file_name).cloned().collect(),
        parts,
        start: None,
    }
}

const fn file_name(part: &Part) -> Option<&Template> {
    match part {
        Part::Piece(Piece::File(name)) => Some(name),
        _ => None,
    }
}

/// Collector of parts; joins adjacent texts.
#[derive(Default)]
struct Parts {
    parts: Vec<Part>,
    text: Vec<u8>,
    solid: u32,
}

impl Parts {
    fn text(&mut self, bytes: &[u8], solid: u32) {
        if self.text.is_empty() {
            self.solid = solid;
        }
        self.text.extend_from_slice(bytes);
    }

    fn part(&mut self, part: Part) {
        self.close();
        self.parts.push(part);
    }

    fn close(&mut self) {
        if !self.text.is_empty() {
            self.parts.push(Part::Bytes(std::mem::take(&mut self.text).into(), self.solid));
        }
    }
}

fn parts(template: &Template, run: &Run, index: Option<i32>) -> Box<[Part]> {
    let mut to = Parts::default();
    for piece in &template.pieces {
        if let Piece::MediaPort(n) = piece
            && names_media(line_of(&to.text))
        {
            // A port outside of a media line is checked when it is written.
            to.text((i64::from(run.media_port) + i64::from(*n)).to_string().as_bytes(), 0);
            continue;
        }
        if let Some(value) = constant(piece, run, index) {
            // Values are never shortened: a keyword that vanishes removes white space of the document, and none of a
            // value.
            if to.text.is_empty() && matches!(to.parts.last(), Some(Part::Piece(_))) {
                if value.is_empty() {
                    continue;
                }
                to.part(Part::Bytes(value.into(), 0));
                continue;
            }
            to.text(&value, 0);
            continue;
        }
        match piece {
            Piece::Text(Text { bytes, solid }) => to.text(bytes, *solid),
            Piece::CallNumber(n) => to.part(Part::Number(*n)),
            Piece::CallId => to.part(Part::CallId),
            // Magic cookie, process, call, step.
            Piece::Branch(n) if index.is_some() => {
                to.text(format!("z9hG4bK-{}-", run.pid).as_bytes(), 0);
                to.part(Part::Number(0));
                to.text(format!("-{}", index.unwrap_or(0).wrapping_add(*n)).as_bytes(), 0);
            }
            other => to.part(Part::Piece(other.clone())),
        }
    }
    to.close();
    fold_length(&mut to.parts);
    to.parts.into()
}

/// Returns the value of a keyword that the run makes constant.
fn constant(piece: &Piece, run: &Run, index: Option<i32>) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    write_constant(piece, run, index, &mut value).then_some(value)
}

/// Appends the value of a keyword that the run makes constant. Returns false for other keywords.
pub(super) fn write_constant(piece: &Piece, run: &Run, index: Option<i32>, out: &mut Vec<u8>) -> bool {
    let family = |ip: &str| if ip.contains(':') { b'6' } else { b'4' };
    let mut number = |base: i64, n: i32| super::text::number(out, base + i64::from(n));
    match piece {
        Piece::RemotePort(n) => number(run.target.map_or(5060, |t| i64::from(t.port())), *n),
        // Otherwise each call has its own.
        Piece::LocalPort(n) if run.sockets.each == Each::Run => number(i64::from(run.local_port), *n),
        Piece::Pid(n) => number(i64::from(run.pid), *n),
        Piece::MessageIndex(n) => match index {
            Some(index) => number(i64::from(index), *n),
            None => return false,
        },
        Piece::RemoteIp => match run.target.map(|target| target.ip()) {
            Some(std::net::IpAddr::V6(ip)) => drop(write!(out, "[{ip}]")),
            Some(ip) => drop(write!(out, "{ip}")),
            None => (),
        },
        Piece::RemoteHost => out.extend_from_slice(run.target_host.as_bytes()),
        Piece::Transport => out.extend_from_slice(match run.transport {
            Transport::Udp => b"UDP",
            Transport::Tcp => b"TCP",
            Transport::Tls => b"TLS",
            Transport::Ws => b"WS",
            Transport::Wss => b"WSS",
        }),
        Piece::LocalIp | Piece::ServerIp => write_bracketed(&run.local_ip, out),
        Piece::LocalIpType => out.push(family(&run.local_ip)),
        Piece::MediaIp => out.extend_from_slice(run.media_ip.as_bytes()),
        Piece::MediaIpType => out.push(family(&run.media_ip)),
        Piece::Service => out.extend_from_slice(run.service.as_bytes()),
        Piece::SippVersion => out.extend_from_slice(b"3.6.1"),
        Piece::Generic(i) => {
            if let Some((_, value)) = run.keys.get(usize::from(*i)) {
                out.extend_from_slice(value);
            }
        }
        _ => return false,
    }
    true
}

/// Writes an address as in a message: IPv6 in brackets.
fn write_bracketed(ip: &str, out: &mut Vec<u8>) {
    if ip.contains(':') && !ip.starts_with('[') {
        drop(write!(out, "[{ip}]"));
    } else {
        out.extend_from_slice(ip.as_bytes());
    }
}

/// Returns the last line of a text, or an empty line if the text is on its first line.
pub(super) fn line_of(text: &[u8]) -> &[u8] {
    memchr::memrchr(b'\n', text).map_or(b"", |at| &text[at..])
}

/// Returns whether a line names the media of its port.
pub(super) fn names_media(line: &[u8]) -> bool {
    [&b"audio"[..], b"image", b"video"].iter().any(|word| memchr::memmem::find(line, word).is_some())
}

/// Replaces a length by text if the body is constant.
fn fold_length(parts: &mut Vec<Part>) {
    let Some(at) = parts.iter().position(|p| matches!(p, Part::Piece(Piece::Length(_)))) else { return };
    let [Part::Piece(Piece::Length(n)), Part::Bytes(rest, _)] = &parts[at..] else { return };
    // The end of the headers must be in the constant part, and must not occur before it.
    let before = parts[..at].iter().any(|p| match p {
        Part::Bytes(bytes, _) => memchr::memmem::find(bytes, b"\r\n\r\n").is_some(),
        _ => false,
    });
    let Some(end) = memchr::memmem::find(rest, b"\r\n\r\n").filter(|_| !before) else { return };
    let mut text = length((rest.len() - end - 4) as i64 + i64::from(*n), &mut [0; 20]).to_vec();
    text.extend_from_slice(rest);
    parts.truncate(at);
    match parts.pop() {
        Some(Part::Bytes(bytes, solid)) => {
            let mut bytes = Vec::from(bytes);
            bytes.extend_from_slice(&text);
            parts.push(Part::Bytes(bytes.into(), solid));
        }
        other => {
            parts.extend(other);
            parts.push(Part::Bytes(text.into(), 0));
        }
    }
}

/// Writes a length as SIPp does, at least five characters, into a buffer. Returns the used part.
pub(super) fn length(bytes: i64, room: &mut [u8; 20]) -> &[u8] {
    let mut left = &mut room[..];
    let _ = write!(left, "{bytes:5}");
    let used = 20 - left.len();
    &room[..used]
}
