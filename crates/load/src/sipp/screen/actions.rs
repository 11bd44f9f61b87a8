//! Screen 4: what each step does beside its message.

use super::{View, head};
use crate::scenario::action::{Check, Match, Number, Operator, RtpStream, Source, Stop, Text};
use crate::scenario::step::Kind;
use crate::scenario::{Action, Piece, Slot, Template, Variables};
use std::fmt::Write;

impl View<'_> {
    pub(super) fn actions(&self) -> String {
        let mut text = head("Variables Screen") + "Action defined Per Message :\n";
        let mut any = false;
        for (index, step) in self.scenario.steps.iter().enumerate().filter(|(_, step)| !step.actions.is_empty()) {
            any = true;
            let what = if matches!(step.kind, Kind::Receive(_)) { " (Receive Message)" } else { "" };
            let _ = writeln!(text, "=> Message[{index}]{what} - [{}] action(s) defined :", step.actions.len());
            for (at, action) in step.actions.iter().enumerate() {
                let words = Words(&self.scenario.variables).action(action);
                let _ = writeln!(text, "   --> action[{at}] = {}", one_line(&words));
            }
        }
        if !any {
            text.push_str("=> No action found on any messages\n");
        }
        text
    }
}

/// Line ends as they are written in a document.
fn one_line(text: &str) -> String {
    text.replace('\r', "\\r").replace('\n', "\\n")
}

/// What is there, in words.
struct Words<'a>(&'a Variables);

impl Words<'_> {
    fn action(&self, action: &Action) -> String {
        let n = |slot: &Slot| format!("${}", self.0.name(*slot));
        let t = |template: &Template| self.template(template);
        match action {
            Action::Expression(found) => self.expression(found),
            Action::Log(text) => format!("message[{}]", t(text)),
            Action::Warning(text) => format!("warning[{}]", t(text)),
            Action::Error(text) => format!("error[{}]", t(text)),
            Action::Assign { to, value } => format!("assign {} = {}", n(to), self.number(value)),
            Action::AssignString { to, value } => format!("string assign {} [{}]", n(to), t(value)),
            Action::ToDouble { to, from } => format!("toDouble {} = {}", n(to), n(from)),
            Action::Sample { to, distribution } => format!("sample {} = {distribution:?}", n(to)),
            Action::Arithmetic { to, operator, value } => {
                let name = match operator {
                    Operator::Add => "add",
                    Operator::Subtract => "subtract",
                    Operator::Multiply => "multiply",
                    Operator::Divide => "divide",
                };
                format!("{name} {} by {}", n(to), self.number(value))
            }
            Action::Test { to, left, comparison, right, check } => {
                let sign = comparison.sign();
                let to = to.as_ref().map_or_else(String::new, |to| format!("{} = ", n(to)));
                format!("test {to}{} {sign} {} - {}", n(left), self.number(right), checks(*check))
            }
            Action::CompareStrings { to, left, right, check } => {
                let right = match right {
                    Text::Value(bytes) => format!("[{}]", String::from_utf8_lossy(bytes)),
                    Text::Variable(slot) => n(slot),
                };
                let to = to.as_ref().map_or_else(String::new, |to| format!("{} = ", n(to)));
                format!("strcmp {to}{} {right} - {}", n(left), checks(*check))
            }
            Action::Time { seconds, microseconds } => format!("gettimeofday {}, {}", n(seconds), n(microseconds)),
            Action::Index { to } => format!("index {}", n(to)),
            Action::Jump(to) => format!("jump {}", self.number(to)),
            Action::PauseRestore(until) => format!("pauserestore {}", self.number(until)),
            Action::Lookup { to, file, key } => format!("lookup {} = file[{}] key[{}]", n(to), t(file), t(key)),
            Action::Insert { file, value } => format!("insert file[{}] value[{}]", t(file), t(value)),
            Action::Replace { file, line, value } => {
                format!("replace file[{}] line[{}] value[{}]", t(file), t(line), t(value))
            }
            Action::VerifyAuthentication { to, username, .. } => format!("verifyauth {} = [{}]", n(to), t(username)),
            Action::SetDestination { host, port, protocol } => {
                format!("setdest host[{}] port[{}] protocol[{}]", t(host), t(port), t(protocol))
            }
            Action::CloseConnection => "closecon".into(),
            Action::Trim(slot) => format!("trim {}", n(slot)),
            Action::UrlEncode(slot) => format!("urlencode {}", n(slot)),
            Action::UrlDecode(slot) => format!("urldecode {}", n(slot)),
            Action::Command(command) => format!("command[{}]", t(command)),
            Action::Stop(Stop::Call) => "intcmd[stop_call]".into(),
            Action::Stop(Stop::Gracefully) => "intcmd[stop_gracefully]".into(),
            Action::Stop(Stop::Now) => "intcmd[stop_now]".into(),
            Action::PlayPcap { media, file } => {
                format!("play_pcap_{} [{}]", format!("{media:?}").to_lowercase(), file.display())
            }
            Action::PlayDtmf(digits) => format!("play_dtmf [{}]", t(digits)),
            Action::RtpStream(RtpStream::Play { file, loops, .. }) => {
                format!("rtp_stream [{}] loops[{loops}]", file.display())
            }
            Action::RtpStream(other) => format!("rtp_stream {other:?}"),
            Action::RtpEcho(echo) => format!("rtp_echo {:?}", echo.command),
            Action::EchoSwitch(on) => format!("rtp_echo {}", self.number(on)),
        }
    }

    fn expression(&self, found: &Match) -> String {
        let place = match &found.source {
            Source::Message => "Full Msg".into(),
            Source::Header(header) => format!("Header-{}", String::from_utf8_lossy(&header.text)),
            Source::Body => "Body".into(),
            Source::Variable(slot) => format!("Variable-{}", self.0.name(*slot)),
        };
        let to: Vec<String> = found.assign_to.iter().map(|slot| format!("${}", self.0.name(*slot))).collect();
        let expression = String::from_utf8_lossy(&found.expression.text);
        format!("regexp[{expression}] where[{place}] - {} - {}", checks(found.check), to.join(","))
    }

    fn number(&self, number: &Number) -> String {
        match number {
            Number::Value(value) => format!("{value:.6}"),
            Number::Variable(slot) => format!("${}", self.0.name(*slot)),
        }
    }

    /// A template as it stands in the document, as far as a line needs it.
    fn template(&self, template: &Template) -> String {
        let mut text = String::new();
        for piece in &template.pieces {
            let _ = match piece {
                Piece::Text(part) => write!(text, "{}", String::from_utf8_lossy(&part.bytes)),
                Piece::Variable(slot) => write!(text, "[${}]", self.0.name(*slot)),
                Piece::LastHeader(header) => write!(text, "[last_{}]", String::from_utf8_lossy(&header.name)),
                Piece::Field(field) => write!(text, "[field{}]", field.column),
                other => write!(text, "[{}]", keyword(&format!("{other:?}"))),
            };
        }
        text
    }
}

fn checks(check: Check) -> String {
    let (must, not) = (check == Check::Must, check == Check::MustNot);
    format!("checkIt[{}] checkItInverse[{}]", u8::from(must), u8::from(not))
}

/// `RemotePort(0)` is `remote_port`.
fn keyword(name: &str) -> String {
    let name = name.split(['(', ' ', '{']).next().unwrap_or_default();
    let mut text = String::new();
    for (i, c) in name.char_indices() {
        if c.is_ascii_uppercase() && i > 0 {
            text.push('_');
        }
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn keywords() {
        assert_eq!((super::keyword("RemotePort(3)"), super::keyword("Date")), ("remote_port".into(), "date".into()));
    }
}
