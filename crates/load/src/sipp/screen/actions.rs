//! Screen 4: actions of each step.

use super::{View, head};
use std::fmt::Write;
use strowger_scenario::action::{Check, Match, Media, Number, Operator, RtpStream, Source, Stop, Text};
use strowger_scenario::step::StepKind;
use strowger_scenario::{Action, Distribution, Piece, Slot, Template, Variables};

impl View<'_> {
    pub(super) fn actions(&self) -> String {
        let mut text = head("Variables Screen") + "Action defined Per Message :\n";
        let mut any = false;
        for (index, step) in self.scenario.steps.iter().enumerate().filter(|(_, step)| !step.actions.is_empty()) {
            any = true;
            let what = if matches!(step.kind, StepKind::Receive(_)) { " (Receive Message)" } else { "" };
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

/// Escapes line ends as a document does.
fn one_line(text: &str) -> String {
    text.replace('\r', "\\r").replace('\n', "\\n")
}

/// Descriptions of actions. They are those of SIPp 3.6.1, with its numbers of the kinds, if these identify the action.
/// Where SIPp prints `unknown action type`, `divide` for a comparison, or 0 for a variable, the description differs
/// from SIPp's.
struct Words<'a>(&'a Variables);

impl Words<'_> {
    fn action(&self, action: &Action) -> String {
        let n = |slot: &Slot| self.0.name(*slot);
        let t = |template: &Template| self.template(template);
        let (kind, words) = match action {
            Action::Expression(found) => (1, self.expression(found)),
            Action::Assign { to, value } => (3, format!("assign varId[{}] {}", n(to), self.number(value))),
            Action::Sample { to, distribution } => (4, format!("sample varId[{}] {}", n(to), drawn(distribution))),
            Action::AssignString { to, value } => (5, format!("string assign varId[{}] [{:<32}]", n(to), t(value))),
            Action::Index { to } => (6, format!("assign index[{}]", n(to))),
            Action::Time { seconds, microseconds } => {
                (7, format!("assign gettimeofday[{}, {}]", n(seconds), n(microseconds)))
            }
            Action::Jump(to) => (8, format!("jump {}", self.number(to))),
            Action::Lookup { to, file, key } => {
                (9, format!("lookup varId[{}] file[{}] key[{}]", n(to), t(file), t(key)))
            }
            Action::Insert { file, value } => (10, format!("insert file[{}] value[{}]", t(file), t(value))),
            Action::Replace { file, line, value } => {
                (11, format!("replace file[{}] line[{}] value[{}]", t(file), t(line), t(value)))
            }
            Action::PauseRestore(until) => (12, format!("restore pause {}", self.number(until))),
            Action::Log(text) => (13, format!("message[{:<32}]", t(text))),
            Action::Warning(text) => (14, format!("warning[{:<32}]", t(text))),
            Action::Error(text) => (15, format!("error[{:<32}]", t(text))),
            Action::Command(command) => (16, format!("command[{:<32}]", t(command))),
            Action::Stop(stop) => {
                let name = match stop {
                    Stop::Call => "stop_call",
                    Stop::Gracefully => "stop_gracefully",
                    Stop::Now => "stop_now",
                };
                (17, format!("intcmd[{name:<32}]"))
            }
            Action::Arithmetic { to, operator, value } => {
                let (kind, name) = match operator {
                    Operator::Add => (18, "add"),
                    Operator::Subtract => (19, "subtract"),
                    Operator::Multiply => (20, "multiply"),
                    Operator::Divide => (21, "divide"),
                };
                (kind, format!("{name} varId[{}] {}", n(to), self.number(value)))
            }
            Action::Test { to, left, comparison, right, check } => {
                let (to, sign) = (self.target(to.as_ref()), comparison.sign());
                (22, format!("test {to}varInId[{}] {sign} {} - {}", n(left), self.number(right), checks(*check)))
            }
            Action::ToDouble { to, from } => (23, format!("toDouble varId[{}] varInId[{}]", n(to), n(from))),
            Action::CompareStrings { to, left, right, check } => {
                let right = match right {
                    Text::Value(bytes) => format!("[{}]", String::from_utf8_lossy(bytes)),
                    Text::Variable(slot) => format!("varInId[{}]", n(slot)),
                };
                let to = self.target(to.as_ref());
                (24, format!("strcmp {to}varInId[{}] {right} - {}", n(left), checks(*check)))
            }
            Action::Trim(slot) => (25, format!("trim varId[{}]", n(slot))),
            Action::VerifyAuthentication { to, username, .. } => {
                (26, format!("verifyauth varId[{}] username[{}]", n(to), t(username)))
            }
            Action::SetDestination { host, port, protocol } => {
                (27, format!("setdest host[{}] port[{}] protocol[{}]", t(host), t(port), t(protocol)))
            }
            Action::CloseConnection => (28, "closecon".into()),
            Action::PlayPcap { media, file } => {
                let kind = match media {
                    Media::Audio => 29,
                    Media::Image => 30,
                    Media::Video => 31,
                };
                (kind, format!("file[{}]", file.display()))
            }
            Action::PlayDtmf(digits) => (32, format!("play DTMF digits [{}]", t(digits))),
            Action::RtpStream(RtpStream::Pause) => (33, "rtp_stream pause".into()),
            Action::RtpStream(RtpStream::Resume) => (34, "rtp_stream resume".into()),
            Action::RtpStream(RtpStream::Play { file, loops, format, .. }) => {
                let (file, payload, bytes) = (file.display(), format.payload_type, format.bytes_per_packet);
                (35, format!("rtp_stream playfile file {file} loop={loops} payload {payload} bytes_per_packet={bytes}"))
            }
            Action::EchoSwitch(on) => (36, format!("rtp_echo {}", self.number(on))),
            // Actions of SIPp 3.7, which numbers them differently.
            Action::UrlEncode(slot) => return format!("urlencode varId[{}]", n(slot)),
            Action::UrlDecode(slot) => return format!("urldecode varId[{}]", n(slot)),
            Action::RtpStream(other) => return format!("rtp_stream {other:?}"),
            Action::RtpEcho(echo) => return format!("rtp_echo {:?}", echo.command),
        };
        format!("Type[{kind}] - {words}")
    }

    fn target(&self, to: Option<&Slot>) -> String {
        to.map_or_else(String::new, |to| format!("varId[{}] ", self.0.name(*to)))
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
            Number::Variable(slot) => format!("varInId[{}]", self.0.name(*slot)),
        }
    }

    /// Returns a template as in the document, as far as a line needs it.
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

/// Describes a distribution.
fn drawn(distribution: &Distribution) -> String {
    match *distribution {
        Distribution::Fixed(value) => format!("{value:.6}"),
        Distribution::Uniform { min, max } => format!("{min:.6}/{max:.6}"),
        Distribution::Normal { mean, deviation } => format!("N({mean:.3},{deviation:.3})"),
        Distribution::LogNormal { mean, deviation } => format!("LN({mean:.3},{deviation:.3})"),
        Distribution::Exponential { mean } => format!("Exp({mean:.6})"),
        Distribution::Weibull { lambda, k } => format!("Wb({lambda:.3},{k:.3})"),
        Distribution::Pareto { k, x_m } => format!("P({k:.3},{x_m:.3})"),
        Distribution::GeneralizedPareto { shape, scale, location } => {
            format!("P({shape:.3},{scale:.3},{location:.3})")
        }
        Distribution::Gamma { k, theta } => format!("G({k:.3},{theta:.3})"),
        Distribution::NegativeBinomial { p, n } => format!("NB({n:.3},{p:.3})"),
    }
}

fn checks(check: Check) -> String {
    let (must, not) = (check == Check::Must, check == Check::MustNot);
    format!("checkIt[{}] - checkItInverse[{}]", u8::from(must), u8::from(not))
}

/// Turns `RemotePort(0)` into `remote_port`.
fn keyword(name: &str) -> String {
    let name = name.split(['(', ' ', '{']).next().unwrap_or_default();
    let mut text = String::new();
    let mut small = false;
    for c in name.chars() {
        // Not within CSeq.
        if c.is_ascii_uppercase() && small {
            text.push('_');
        }
        small = c.is_ascii_lowercase();
        text.push(c.to_ascii_lowercase());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;
    use strowger_scenario::{Environment, Scenario};

    #[test]
    fn keywords() {
        let names = ["RemotePort(3)", "Date", "LastCSeqNumber(1)"].map(keyword);
        assert_eq!(names, ["remote_port", "date", "last_cseq_number"]);
    }

    /// Compares with lines that SIPp 3.6.1 showed on a terminal, where it cuts them at 80 columns. Descriptions that
    /// SIPp lacks are those of this program.
    #[test]
    fn actions_read_as_in_sipp() {
        let long = |name: &str, text: &str| format!("{name}[{text:<32}]");
        let cases: [(&str, String); 26] = [
            (
                r#"<ereg regexp="x(.)" search_in="hdr" header="To:" check_it="true" assign_to="1,2"/>"#,
                "Type[1] - regexp[x(.)] where[Header-To:] - checkIt[1] - checkItInverse[0] - $1,$2".into(),
            ),
            (
                r#"<ereg regexp="x" search_in="msg" assign_to="1"/>"#,
                "Type[1] - regexp[x] where[Full Msg] - checkIt[0] - checkItInverse[0] - $1".into(),
            ),
            (r#"<assign assign_to="1" value="1"/>"#, "Type[3] - assign varId[1] 1.000000".into()),
            (r#"<assign assign_to="1" variable="2"/>"#, "Type[3] - assign varId[1] varInId[2]".into()),
            (
                r#"<sample assign_to="1" distribution="uniform" min="1" max="10"/>"#,
                "Type[4] - sample varId[1] 1.000000/10.000000".into(),
            ),
            (
                r#"<sample assign_to="1" distribution="normal" mean="10" stdev="2"/>"#,
                "Type[4] - sample varId[1] N(10.000,2.000)".into(),
            ),
            (r#"<assignstr assign_to="1" value="x [$2]"/>"#, long("Type[5] - string assign varId[1] ", "x [$2]")),
            (r#"<index assign_to="1"/>"#, "Type[6] - assign index[1]".into()),
            (r#"<gettimeofday assign_to="1,2"/>"#, "Type[7] - assign gettimeofday[1, 2]".into()),
            (r#"<jump variable="1"/>"#, "Type[8] - jump varInId[1]".into()),
            (r#"<pauserestore value="1"/>"#, "Type[12] - restore pause 1.000000".into()),
            (r#"<log message="abc"/>"#, long("Type[13] - message", "abc")),
            (r#"<warning message="w [cseq]"/>"#, long("Type[14] - warning", "w [cseq]")),
            (r#"<error message="e [branch]"/>"#, long("Type[15] - error", "e [branch]")),
            (r#"<exec command="echo hi [$1]"/>"#, long("Type[16] - command", "echo hi [$1]")),
            (r#"<exec int_cmd="stop_gracefully"/>"#, long("Type[17] - intcmd", "stop_gracefully")),
            (r#"<add assign_to="1" value="2"/>"#, "Type[18] - add varId[1] 2.000000".into()),
            (r#"<subtract assign_to="1" value="2"/>"#, "Type[19] - subtract varId[1] 2.000000".into()),
            (r#"<divide assign_to="1" variable="2"/>"#, "Type[21] - divide varId[1] varInId[2]".into()),
            (
                r#"<test assign_to="1" variable="2" compare="equal" value="2"/>"#,
                "Type[22] - test varId[1] varInId[2] == 2.000000 - checkIt[0] - checkItInverse[0]".into(),
            ),
            (r#"<todouble assign_to="1" variable="2"/>"#, "Type[23] - toDouble varId[1] varInId[2]".into()),
            (
                r#"<strcmp assign_to="1" variable="2" value="abc"/>"#,
                "Type[24] - strcmp varId[1] varInId[2] [abc] - checkIt[0] - checkItInverse[0]".into(),
            ),
            (r#"<trim assign_to="1"/>"#, "Type[25] - trim varId[1]".into()),
            (r#"<closecon/>"#, "Type[28] - closecon".into()),
            (r#"<exec play_dtmf="123"/>"#, "Type[32] - play DTMF digits [123]".into()),
            (r#"<exec rtp_stream="pause"/>"#, "Type[33] - rtp_stream pause".into()),
        ];
        for (text, words) in cases {
            let is_used = |name: &&str| {
                let forms = [
                    format!("to=\"{name}"),
                    format!(",{name}\""),
                    format!("variable=\"{name}\""),
                    format!("[${name}]"),
                ];
                forms.iter().any(|form| text.contains(form.as_str()))
            };
            let used: Vec<&str> = ["1", "2"].into_iter().filter(is_used).collect();
            let used = match &used[..] {
                [] => String::new(),
                names => format!("<Reference variables=\"{}\"/>", names.join(",")),
            };
            let document = format!(
                "<?xml version=\"1.0\"?><scenario name=\"x\"><recv request=\"OPTIONS\"><action>{text}</action></recv>{used}</scenario>"
            );
            let scenario = Scenario::parse(document.as_bytes(), Path::new("x.xml"), &Environment::default())
                .unwrap_or_else(|refusal| panic!("{text}: {refusal}"));
            assert_eq!(Words(&scenario.variables).action(&scenario.steps[0].actions[0]), words, "{text}");
        }
    }
}
