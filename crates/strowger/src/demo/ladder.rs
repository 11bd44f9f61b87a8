//! Draws the messages of a call between their senders and receivers.

use std::fmt::Write;

use console::style;
use serde::Serialize;
use strowger_message::{Index, Limits, Message, Name, status};

use super::phones::{Party, Step};

/// Columns between two lines of the ladder, without the lines themselves.
const GAP: usize = 20;

/// Length of a pause that gets a row of its own, in milliseconds.
const PAUSE: f64 = 1_000.0;

/// A message in the drawing.
#[derive(Debug, Serialize)]
pub(super) struct Rung {
    /// Milliseconds since the first message.
    #[serde(rename = "at_ms")]
    pub at: f64,
    pub from: &'static str,
    pub to: &'static str,
    /// Method of a request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Status of a response.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    pub cseq: String,
    /// Number of values of each header field.
    pub via: usize,
    pub record_route: usize,
    pub route: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_forwards: Option<u8>,
    /// True if the message contains digest credentials.
    pub credentials: bool,
    /// Bytes of the body.
    pub body: usize,
    /// Bytes of the whole message.
    pub bytes: usize,
    #[serde(skip)]
    lanes: (Party, Party),
}

/// Returns the rungs of the SIP messages among these steps, in order. A phone of the demo sends nothing else.
pub(super) fn rungs(steps: &[Step]) -> Vec<Rung> {
    let first = steps.first().map(|step| step.at);
    let mut index = Index::new();
    let mut rungs = Vec::with_capacity(steps.len());
    for step in steps {
        if index.parse(&step.bytes, &Limits::default()).is_err() {
            continue;
        }
        let message = Message::new(&step.bytes, &index);
        let Ok(cseq) = message.cseq() else { continue };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        rungs.push(Rung {
            at: first.map_or(0.0, |first| (step.at - first).as_secs_f64() * 1_000.0),
            from: step.from.name(),
            to: step.to.name(),
            method: message.is_request().then(|| text(message.method_text())),
            status: message.status(),
            cseq: format!("{} {}", cseq.number, text(cseq.method_text)),
            via: message.vias().flatten().count(),
            record_route: message.record_routes().flatten().count(),
            route: message.routes().flatten().count(),
            max_forwards: message.max_forwards().ok().flatten().map(|m| m.0),
            credentials: message.has(Name::Authorization) || message.has(Name::ProxyAuthorization),
            body: message.body().len(),
            bytes: step.bytes.len(),
            lanes: (step.from, step.to),
        });
    }
    rungs
}

/// Draws the ladder, in colour if standard output is a terminal.
pub(super) fn draw(rungs: &[Rung]) -> String {
    let mut out = String::new();
    let names = [Party::Caller, Party::Server, Party::Callee].map(|party| style(format!("{:^9}", party.name())).bold());
    let space = " ".repeat(GAP + 1 - 9);
    let _ = writeln!(out, "     ms{}{space}{}{space}{}", names[0], names[1], names[2]);
    let mut last = 0.0;
    for rung in rungs {
        if rung.at - last > PAUSE {
            let pause = format!("{:.1} s of talk", (rung.at - last) / 1_000.0);
            let _ = writeln!(out, "{:>9}  ┆{}┆{}┆  {}", "", " ".repeat(GAP), " ".repeat(GAP), style(pause).dim());
        }
        last = rung.at;
        let (left, right) = match rung.lanes {
            (Party::Caller, _) => (arrow(rung, true), " ".repeat(GAP)),
            (_, Party::Caller) => (arrow(rung, false), " ".repeat(GAP)),
            (_, Party::Callee) => (" ".repeat(GAP), arrow(rung, true)),
            (_, Party::Server) => (" ".repeat(GAP), arrow(rung, false)),
        };
        let _ = writeln!(out, "{:>9.2}  │{left}│{right}│  {}", rung.at, style(notes(rung)).dim());
    }
    out
}

/// Draws `── INVITE 1 ──────▶` or `◀─ 407 INVITE 1 ────`, as long as the gap.
fn arrow(rung: &Rung, rightward: bool) -> String {
    let (number, method) = rung.cseq.split_once(' ').unwrap_or((&rung.cseq, ""));
    let label = match rung.status {
        Some(status) => format!("{status} {method} {number}"),
        None => format!("{} {number}", rung.method.as_deref().unwrap_or_default()),
    };
    // A method that no RFC names may be longer than the arrow.
    let label: String = label.chars().take(GAP - 6).collect();
    let line = "─".repeat(GAP - 5 - label.chars().count());
    let coloured = match rung.status {
        None => style(label).cyan(),
        Some(..200) => style(label).yellow(),
        Some(..300) => style(label).green(),
        Some(_) => style(label).red(),
    };
    if rightward { format!("── {coloured} {line}▶") } else { format!("◀─ {coloured} {line}─") }
}

/// Remarks on a message: its meaning, and the changes that the server made.
fn notes(rung: &Rung) -> String {
    let mut notes: Vec<String> = Vec::new();
    if let Some(code) = rung.status {
        notes.push(status::reason(code).to_owned());
    }
    notes.push(format!("Via {}", rung.via));
    for (name, count) in [("Record-Route", rung.record_route), ("Route", rung.route)] {
        if count > 0 {
            notes.push(format!("{name} {count}"));
        }
    }
    if let Some(hops) = rung.max_forwards {
        notes.push(format!("Max-Forwards {hops}"));
    }
    if rung.credentials {
        notes.push("credentials".into());
    }
    if rung.body > 0 {
        notes.push("SDP".into());
    }
    notes.join(", ")
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn arrows_are_as_long_as_the_gap_and_point_the_right_way() {
        let at = Instant::now();
        let message = |first: &str| {
            format!(
                "{first}\r\nVia: SIP/2.0/UDP 127.0.0.1:1;branch=z9hG4bKa, SIP/2.0/UDP 127.0.0.1:2;branch=z9hG4bKb\r\n\
                 From: <sip:a@example.org>;tag=1\r\nTo: <sip:b@example.org>\r\nCall-ID: x\r\nCSeq: 7 INVITE\r\n\
                 Max-Forwards: 69\r\nContent-Length: 0\r\n\r\n"
            )
            .into_bytes()
        };
        let step = |from, to, first: &str, wait| Step {
            at: at + Duration::from_millis(wait),
            from,
            to,
            bytes: message(first),
        };
        let steps = [
            step(Party::Caller, Party::Server, "INVITE sip:b@example.org SIP/2.0", 0),
            step(Party::Server, Party::Callee, "INVITE sip:b@example.org SIP/2.0", 1),
            step(Party::Callee, Party::Server, "SIP/2.0 180 Ringing", 2),
            step(Party::Server, Party::Caller, "SIP/2.0 486 Busy Here", 2_500),
        ];
        let rungs = rungs(&steps);
        let text = console::strip_ansi_codes(&draw(&rungs)).into_owned();
        let rows: Vec<&str> = text.lines().collect();
        assert_eq!(rows.len(), 6, "{text}");
        assert!(rows[1].contains("0.00  │── INVITE 7 ─") && rows[1].contains("▶│  "), "{text}");
        assert!(rows[2].contains("│── INVITE 7 ") && rows[2].ends_with("▶│  Via 2, Max-Forwards 69"), "{text}");
        assert!(rows[3].contains("│◀─ 180 INVITE 7 ─") && rows[3].contains("│  Ringing, Via 2"), "{text}");
        assert!(rows[4].contains("2.5 s of talk"), "{text}");
        assert!(rows[5].contains("2500.00  │◀─ 486 INVITE 7 ─"), "{text}");
        // Each line of the ladder is straight.
        let lines = |row: &&str| {
            row.chars().enumerate().filter(|(_, c)| "│┆".contains(*c)).map(|(at, _)| at).collect::<Vec<_>>()
        };
        assert!(rows[1..].iter().all(|row| lines(row) == lines(&rows[1])), "{text}");
    }
}
