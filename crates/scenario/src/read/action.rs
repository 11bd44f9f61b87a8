//! Parses the elements in `<action>`. Only the first child of a step can be `<action>`; SIPp ignores further ones.

use super::{Counting, Reader};
use crate::action::{
    Action, Check, Comparison, EchoCommand, HeaderSearch, Match, Media, Number, Operator, RtpEcho, Source, Stop, Text,
};
use crate::refusal::Fault;
use crate::template::Template;
use crate::xml::{Attribute, Element};
use strowger_message::Name;

impl Reader<'_> {
    pub(super) fn actions(&mut self, step: &Element) -> Result<Vec<Action>, Fault> {
        let mut actions = Vec::new();
        for (i, child) in step.children.iter().enumerate() {
            if i == 0 && child.name == "action" {
                for element in &child.children {
                    self.lint(element);
                    actions.extend(self.action(element)?);
                }
            } else {
                self.warn(
                    child.start,
                    format!("`<{}>` is ignored: only `<action>` as first element of a step counts", child.name),
                );
            }
        }
        Ok(actions)
    }

    /// Parses an action. Returns `None` for an action that SIPp accepts and ignores.
    fn action(&mut self, element: &Element) -> Result<Option<Action>, Fault> {
        Ok(Some(match element.name.as_str() {
            "ereg" => Action::Expression(Box::new(self.ereg(element)?)),
            "log" => Action::Log(self.text(element, "message")?),
            "warning" => Action::Warning(self.text(element, "message")?),
            "error" => Action::Error(self.text(element, "message")?),
            "assign" => Action::Assign { to: self.to(element)?, value: self.value(element)? },
            "assignstr" => Action::AssignString { to: self.to(element)?, value: self.text(element, "value")? },
            "todouble" => {
                Action::ToDouble { to: self.to(element)?, from: self.required_variable(element, "variable")? }
            }
            "sample" => {
                let to = self.to(element)?;
                Action::Sample { to, distribution: self.sample_distribution(element)? }
            }
            "add" => self.arithmetic(element, Operator::Add)?,
            "subtract" => self.arithmetic(element, Operator::Subtract)?,
            "multiply" => self.arithmetic(element, Operator::Multiply)?,
            "divide" => self.arithmetic(element, Operator::Divide)?,
            "test" => self.test(element)?,
            "strcmp" => self.strcmp(element)?,
            "gettimeofday" => {
                let list = self.variable_list(element, "assign_to")?;
                let [seconds, microseconds] = list[..] else {
                    return Err(Fault::new(element.start, "`gettimeofday` needs two variables in `assign_to`")
                        .hint("assign_to=\"seconds,microseconds\""));
                };
                Action::Time { seconds, microseconds }
            }
            "index" => Action::Index { to: self.to(element)? },
            "jump" => Action::Jump(self.value(element)?),
            "pauserestore" => Action::PauseRestore(self.value(element)?),
            "lookup" => Action::Lookup {
                to: self.to(element)?,
                file: self.text(element, "file")?,
                key: self.text(element, "key")?,
            },
            "insert" => Action::Insert { file: self.text(element, "file")?, value: self.text(element, "value")? },
            "replace" => Action::Replace {
                file: self.text(element, "file")?,
                line: self.text(element, "line")?,
                value: self.text(element, "value")?,
            },
            "verifyauth" => Action::VerifyAuthentication {
                to: self.to(element)?,
                username: self.text(element, "username")?,
                password: self.text(element, "password")?,
            },
            "setdest" => Action::SetDestination {
                host: self.text(element, "host")?,
                port: self.text(element, "port")?,
                protocol: self.text(element, "protocol")?,
            },
            "closecon" => Action::CloseConnection,
            "trim" => Action::Trim(self.to(element)?),
            "urlencode" => {
                self.newer(element.start, "`urlencode` is of SIPp 3.7");
                Action::UrlEncode(self.required_variable(element, "variable")?)
            }
            "urldecode" => {
                self.newer(element.start, "`urldecode` is of SIPp 3.7");
                Action::UrlDecode(self.required_variable(element, "variable")?)
            }
            "rtp_echo" => Action::EchoSwitch(self.value(element)?),
            "exec" => return self.exec(element),
            other => {
                return Err(Fault::new(element.start, format!("`<{other}>` is no action"))
                    .hint(format!("one of {}", ACTIONS.join(", "))));
            }
        }))
    }

    fn to(&mut self, element: &Element) -> Result<crate::Slot, Fault> {
        self.required_variable(element, "assign_to")
    }

    /// Parses a text with keywords.
    fn text(&mut self, element: &Element, name: &str) -> Result<Template, Fault> {
        let value = self.required(element, name)?;
        self.template(&value.value, value.at, Counting::Counted)
    }

    fn keywords(&mut self, value: &Attribute) -> Result<Template, Fault> {
        self.template(&value.value, value.at, Counting::Counted)
    }

    /// Parses `value` or `variable`.
    fn value(&mut self, element: &Element) -> Result<Number, Fault> {
        let value = self.number(element, "value")?;
        let variable = self.optional_variable(element, "variable")?;
        match (value, variable) {
            (Some(value), None) => Ok(Number::Value(value)),
            (None, Some(variable)) => Ok(Number::Variable(variable)),
            (Some(_), Some(_)) => {
                Err(Fault::new(element.start, format!("`<{}>` has both `value` and `variable`", element.name)))
            }
            (None, None) => Err(Fault::new(element.start, format!("`<{}>` needs `value` or `variable`", element.name))),
        }
    }

    fn arithmetic(&mut self, element: &Element, operator: Operator) -> Result<Action, Fault> {
        let to = self.to(element)?;
        let value = self.value(element)?;
        if operator == Operator::Divide && value == Number::Value(0.0) {
            return Err(Fault::new(element.start, "a division by zero"));
        }
        Ok(Action::Arithmetic { to, operator, value })
    }

    fn check_of(&self, element: &Element) -> Result<Check, Fault> {
        let must = self.boolean(element, "check_it")?;
        let must_not = self.boolean(element, "check_it_inverse")?;
        match (must, must_not) {
            (Some(_), Some(_)) => Err(Fault::new(element.start, "both `check_it` and `check_it_inverse`")
                .hint("one of them, even if the other is `false`")),
            (Some(true), None) => Ok(Check::Must),
            (None, Some(true)) => Ok(Check::MustNot),
            _ => Ok(Check::No),
        }
    }

    /// Parses `assign_to`, which is optional in a step that checks.
    fn assigned_unless_checked(&mut self, element: &Element) -> Result<Option<crate::Slot>, Fault> {
        let checked = self.attribute(element, "check_it").or_else(|| self.attribute(element, "check_it_inverse"));
        if checked.is_some() { self.optional_variable(element, "assign_to") } else { self.to(element).map(Some) }
    }

    fn test(&mut self, element: &Element) -> Result<Action, Fault> {
        let check = self.check_of(element)?;
        let to = self.assigned_unless_checked(element)?;
        let left = self.required_variable(element, "variable")?;
        let right = match self.number(element, "value")? {
            Some(_) if self.attribute(element, "variable2").is_some() => {
                return Err(Fault::new(element.start, "both `value` and `variable2`"));
            }
            Some(value) => Number::Value(value),
            None => Number::Variable(self.required_variable(element, "variable2")?),
        };
        let compare = self.required(element, "compare")?;
        let comparison = match compare.text().as_str() {
            "equal" => Comparison::Equal,
            "not_equal" => Comparison::NotEqual,
            "greater_than" => Comparison::GreaterThan,
            "less_than" => Comparison::LessThan,
            "greater_than_equal" => Comparison::GreaterThanOrEqual,
            "less_than_equal" => Comparison::LessThanOrEqual,
            other => {
                return Err(Fault::new(compare.at, format!("`compare` is `{other}`"))
                    .hint("equal, not_equal, greater_than, less_than, greater_than_equal or less_than_equal"));
            }
        };
        Ok(Action::Test { to, left, comparison, right, check })
    }

    fn strcmp(&mut self, element: &Element) -> Result<Action, Fault> {
        let check = self.check_of(element)?;
        let to = self.assigned_unless_checked(element)?;
        let left = self.required_variable(element, "variable")?;
        let right = if self.attribute(element, "value").is_some() {
            if self.attribute(element, "variable2").is_some() {
                return Err(Fault::new(element.start, "both `value` and `variable2`"));
            }
            Text::Value(self.required(element, "value")?.value.into_boxed_slice())
        } else {
            Text::Variable(self.required_variable(element, "variable2")?)
        };
        Ok(Action::CompareStrings { to, left, right, check })
    }

    fn ereg(&mut self, element: &Element) -> Result<Match, Fault> {
        let regexp = self.required(element, "regexp")?;
        let expression = self.pattern(&regexp.value, regexp.at)?;
        let ignore_case = self.boolean(element, "case_indep")?.unwrap_or(false);
        let start_line = self.boolean(element, "start_line")?.unwrap_or(false);
        let source = match self.attribute(element, "search_in") {
            None => Source::Message,
            Some(place) => match place.text().as_str() {
                "msg" => Source::Message,
                "body" => Source::Body,
                "var" => Source::Variable(self.required_variable(element, "variable")?),
                "hdr" => {
                    let Some(header) = self.attribute(element, "header").filter(|header| !header.value.is_empty())
                    else {
                        return Err(
                            Fault::new(element.start, "`search_in=\"hdr\"` needs `header`").hint("header=\"Name:\"")
                        );
                    };
                    let occurrence =
                        self.attribute(element, "occurrence").or_else(|| self.attribute(element, "occurence"));
                    let occurrence = match occurrence {
                        None => 1,
                        Some(value) => match super::attribute::integer(&value.text()) {
                            Some(n) => u32::try_from(n.max(0)).unwrap_or(u32::MAX),
                            None => {
                                self.warn(value.at, "this is no number: taken as the first");
                                1
                            }
                        },
                    };
                    if !header.value.contains(&b':') {
                        self.warn(header.at, "without `:` this text is also found inside other headers");
                    }
                    let name = header.value.split(|b| *b == b':').next().unwrap_or_default();
                    Source::Header(Box::new(HeaderSearch {
                        known: Name::of(name.trim_ascii()),
                        text: header.value.into_boxed_slice(),
                        ignore_case,
                        start_line,
                        occurrence,
                    }))
                }
                other => {
                    return Err(Fault::new(place.at, format!("`search_in` is `{other}`")).hint("msg, hdr, body or var"));
                }
            },
        };
        let check = self.check_of(element)?;
        let assign_to = self.variable_list(element, "assign_to")?;
        let groups = expression.groups();
        if assign_to.len() > groups + 1 {
            self.warn(
                regexp.at,
                format!("{} variables for an expression with {groups} groups: the last stay unset", assign_to.len()),
            );
        }
        Ok(Match { expression, source, check, assign_to: assign_to.into_boxed_slice() })
    }

    /// Parses `exec`. As in SIPp, only the first attribute that is present is used, in the order of the code below.
    fn exec(&mut self, element: &Element) -> Result<Option<Action>, Fault> {
        if let Some(command) = self.attribute(element, "command") {
            if self.environment.no_exec {
                return Err(Fault::new(command.at, "`exec command` runs a program, and none may be run here")
                    .hint("it needs a run without -no_exec (--no-exec of `load`)"));
            }
            return self.keywords(&command).map(Action::Command).map(Some);
        }
        if let Some(command) = self.attribute(element, "int_cmd") {
            return Ok(match command.text().as_str() {
                "stop_call" => Some(Action::Stop(Stop::Call)),
                "stop_gracefully" => Some(Action::Stop(Stop::Gracefully)),
                "stop_now" => Some(Action::Stop(Stop::Now)),
                other => {
                    let text =
                        format!("`int_cmd` is `{other}` and does nothing: stop_call, stop_gracefully or stop_now");
                    self.warn(command.at, text);
                    None
                }
            });
        }
        for (name, media) in
            [("play_pcap_audio", Media::Audio), ("play_pcap_image", Media::Image), ("play_pcap_video", Media::Video)]
        {
            if let Some(file) = self.attribute(element, name) {
                return Ok(Some(Action::PlayPcap { media, file: self.pcap(&file)? }));
            }
        }
        if let Some(digits) = self.attribute(element, "play_dtmf") {
            return self.keywords(&digits).map(Action::PlayDtmf).map(Some);
        }
        if let Some(stream) = self.attribute(element, "rtp_stream") {
            return self.stream(&stream).map(Action::RtpStream).map(Some);
        }
        if let Some(echo) = self.attribute(element, "rtp_echo") {
            self.newer(echo.at, "`exec rtp_echo` is of SIPp 3.7");
            return echo_command(&echo).map(Action::RtpEcho).map(Some);
        }
        Err(Fault::new(element.start, "`<exec>` without anything to do").hint(
            "command, int_cmd, play_pcap_audio, play_pcap_image, play_pcap_video, play_dtmf, rtp_stream or rtp_echo",
        ))
    }
}

/// Parses `startaudio,payload type,codec/clock` …
fn echo_command(value: &Attribute) -> Result<RtpEcho, Fault> {
    let text = value.text();
    let mut parts = text.split(',');
    let (command, video) = match parts.next().unwrap_or_default() {
        "startaudio" => (EchoCommand::Start, false),
        "updateaudio" => (EchoCommand::Update, false),
        "stopaudio" => (EchoCommand::Stop, false),
        "startvideo" => (EchoCommand::Start, true),
        "updatevideo" => (EchoCommand::Update, true),
        "stopvideo" => (EchoCommand::Stop, true),
        other => {
            return Err(Fault::new(value.at, format!("`rtp_echo` is `{other}`"))
                .hint("startaudio, updateaudio, stopaudio, startvideo, updatevideo or stopvideo"));
        }
    };
    let payload_type = parts.next().and_then(|text| text.trim().parse().ok());
    let codec = parts.next().unwrap_or_default();
    let format = payload_type.and_then(|payload_type| super::media::format(payload_type, codec));
    Ok(RtpEcho { command, video, format })
}

const ACTIONS: &[&str] = &[
    "ereg",
    "log",
    "warning",
    "error",
    "assign",
    "assignstr",
    "todouble",
    "sample",
    "add",
    "subtract",
    "multiply",
    "divide",
    "test",
    "strcmp",
    "gettimeofday",
    "index",
    "jump",
    "pauserestore",
    "lookup",
    "insert",
    "replace",
    "verifyauth",
    "setdest",
    "closecon",
    "trim",
    "urlencode",
    "urldecode",
    "rtp_echo",
    "exec",
];
