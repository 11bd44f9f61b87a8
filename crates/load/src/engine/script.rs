//! Templates made ready for one run: what the run makes constant becomes text, so that a message is a few copies.

use super::run::Run;
use crate::scenario::Action;
use crate::scenario::step::{Kind, Start};
use crate::scenario::template::Text;
use crate::scenario::{Piece, Scenario, Step, Template};
use std::sync::Arc;
use strowger_core::Transport;

/// A scenario with its texts for this run.
#[derive(Debug)]
pub struct Script {
    pub scenario: Arc<Scenario>,
    /// By step; empty where a step has none.
    pub texts: Box<[Line]>,
    /// Timers that some step starts anew: the others run since the start of the call.
    pub starts_timers: bool,
    /// Some step plays or echoes media.
    pub plays: bool,
    pub ack: Line,
    pub ack2: Line,
    pub bye: Line,
    pub routed_bye: Line,
    pub cancel: Line,
    pub ok: Line,
    pub three_party_abort: Line,
    /// Every expression of the scenario.
    pub(super) expressions: super::action::Expressions,
}

/// A template for this run.
#[derive(Clone, Debug, Default)]
pub struct Line {
    pub parts: Box<[Part]>,
    pub has_length: bool,
    pub has_authentication: bool,
    /// How the message starts.
    pub start: Option<Start>,
}

/// A part of it.
#[derive(Clone, Debug)]
pub enum Part {
    /// Bytes; from `solid` on after a keyword that vanished.
    Bytes(Box<[u8]>, u32),
    /// The call's number plus this.
    Number(i32),
    CallId,
    /// Anything else.
    Piece(Piece),
}

impl Script {
    /// # Errors
    /// An expression of the scenario that cannot be compiled.
    pub fn new(scenario: Arc<Scenario>, run: &Run) -> Result<Self, String> {
        let expressions = super::action::expressions(&scenario)?;
        let texts: Box<[Line]> = scenario
            .steps
            .iter()
            .enumerate()
            .map(|(index, step)| match &step.kind {
                Kind::Send(send) => {
                    let mut line = line(&send.template, run, index as i32);
                    line.start = Some(send.start.clone());
                    line
                }
                Kind::SendCommand { template, .. } => line(template, run, index as i32),
                _ => Line::default(),
            })
            .collect();
        let defaults = &scenario.default_messages;
        let default = |template: &Template| line(template, run, -1);
        let plays = scenario.steps.iter().chain(&scenario.init).any(|step| {
            step.actions.iter().any(|action| {
                matches!(
                    action,
                    Action::PlayPcap { .. }
                        | Action::PlayDtmf(_)
                        | Action::RtpStream(_)
                        | Action::RtpEcho(_)
                        | Action::EchoSwitch(_)
                )
            })
        });
        let starts_timers = scenario.steps.iter().any(|step: &Step| step.start_timer.is_some());
        Ok(Self {
            expressions,
            starts_timers,
            plays,
            // The place of the step is known only when it is sent.
            ack: Line { parts: parts(&defaults.ack, run, None), ..default(&defaults.ack) },
            ack2: default(&defaults.ack2),
            bye: default(&defaults.bye),
            routed_bye: default(&defaults.routed_bye),
            cancel: default(&defaults.cancel),
            ok: default(&defaults.ok),
            three_party_abort: default(&defaults.three_party_abort),
            texts,
            scenario,
        })
    }
}

/// `index`: of the step whose text it is.
pub fn line(template: &Template, run: &Run, index: i32) -> Line {
    let parts = parts(template, run, Some(index));
    Line {
        has_length: parts.iter().any(|p| matches!(p, Part::Piece(Piece::Length(_)))),
        has_authentication: parts.iter().any(|p| matches!(p, Part::Piece(Piece::Authentication(_)))),
        parts,
        start: None,
    }
}

/// Collects parts, texts that follow each other as one.
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
        if let Some(value) = constant(piece, run, index) {
            // A value is never shortened: what vanishes takes white space of the document along, not of a value.
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

/// What the run alone says about a keyword.
fn constant(piece: &Piece, run: &Run, index: Option<i32>) -> Option<Vec<u8>> {
    let number = |base: i64, n: i32| Some((base + i64::from(n)).to_string().into_bytes());
    let family = |ip: &str| Some(if ip.contains(':') { b"6".to_vec() } else { b"4".to_vec() });
    match piece {
        Piece::RemoteIp => Some(run.target.map_or(Vec::new(), |t| bracketed(&t.ip().to_string()))),
        Piece::RemoteHost => Some(run.target_host.clone().into_bytes()),
        Piece::RemotePort(n) => number(run.target.map_or(5060, |t| i64::from(t.port())), *n),
        Piece::Transport => Some(
            match run.transport {
                Transport::Udp => "UDP",
                Transport::Tcp => "TCP",
                Transport::Tls => "TLS",
                Transport::Ws => "WS",
                Transport::Wss => "WSS",
            }
            .into(),
        ),
        Piece::LocalIp | Piece::ServerIp => Some(bracketed(&run.local_ip)),
        Piece::LocalIpType => family(&run.local_ip),
        Piece::LocalPort(n) => number(i64::from(run.local_port), *n),
        Piece::MediaIp => Some(run.media_ip.clone().into_bytes()),
        Piece::MediaIpType => family(&run.media_ip),
        Piece::MediaPort(n) => number(i64::from(run.media_port), *n),
        Piece::Pid(n) => number(i64::from(run.pid), *n),
        Piece::Service => Some(run.service.clone().into_bytes()),
        Piece::MessageIndex(n) => index.and_then(|i| number(i64::from(i), *n)),
        Piece::SippVersion => Some(b"3.6.1".to_vec()),
        Piece::Generic(i) => Some(run.keys.get(usize::from(*i)).map_or(Vec::new(), |k| k.1.clone())),
        _ => None,
    }
}

/// As it stands in a message: IPv6 addresses in brackets.
pub fn bracketed(ip: &str) -> Vec<u8> {
    if ip.contains(':') && !ip.starts_with('[') { format!("[{ip}]").into_bytes() } else { ip.as_bytes().to_vec() }
}

/// A length whose body is constant is constant.
fn fold_length(parts: &mut Vec<Part>) {
    let Some(at) = parts.iter().position(|p| matches!(p, Part::Piece(Piece::Length(_)))) else { return };
    let [Part::Piece(Piece::Length(n)), Part::Bytes(rest, _)] = &parts[at..] else { return };
    // The end of the headers must stand in what is constant, and no other before it.
    let before = parts[..at].iter().any(|p| match p {
        Part::Bytes(bytes, _) => memchr::memmem::find(bytes, b"\r\n\r\n").is_some(),
        _ => false,
    });
    let Some(end) = memchr::memmem::find(rest, b"\r\n\r\n").filter(|_| !before) else { return };
    let mut text = length((rest.len() - end - 4) as i64 + i64::from(*n)).to_vec();
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

/// A length as SIPp writes it: at least five places.
pub fn length(bytes: i64) -> Vec<u8> {
    format!("{bytes:5}").into_bytes()
}
