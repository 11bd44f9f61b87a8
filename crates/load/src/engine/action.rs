//! Actions of a step.

mod texts;

use self::texts::{difference, url_decode, url_encode, whole_number};
use super::call::{CallKind, Value};
use super::call_runner::{CallRunner, StepResult};
use super::shard_context::Halt;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use strowger_measure::{CallOutcome, Failure};
use strowger_scenario::action::{Action, Check, Comparison, HeaderSearch, Match, Number, Operator, Source, Stop, Text};
use strowger_scenario::expression::Span;
use strowger_scenario::step::Step;
use strowger_scenario::{Scope, Slot, Template};

/// Result of an action.
enum Done {
    Well,
    /// The other actions of the step are skipped, and the call counts as failed at its end.
    Failed(Failure),
    /// The call ends here.
    Over,
}

impl CallRunner<'_> {
    /// Runs all actions of a step, on a message if it has one.
    pub(super) fn act(&mut self, step: &Step, message: Option<&[u8]>) -> StepResult {
        for action in &step.actions {
            match self.action(action, message) {
                Done::Well => (),
                // On a step without a message SIPp ignores results.
                Done::Failed(_) if message.is_none() => break,
                Done::Failed(failure) => {
                    self.call.failed = Some(failure);
                    break;
                }
                Done::Over => return StepResult::Over,
            }
            // The call stays open: it has neither succeeded nor failed.
            if matches!(self.shard.halt, Some(Halt::Error | Halt::Now)) {
                return StepResult::Waits;
            }
        }
        StepResult::On
    }

    fn number(&self, number: Number) -> f64 {
        match number {
            Number::Value(value) => value,
            Number::Variable(slot) => self.call.value(slot, &self.shard.shared).number(),
        }
    }

    fn set(&mut self, slot: Slot, value: Value) {
        *self.call.value_mut(slot, &mut self.shard.shared) = value;
    }

    /// Returns the text of a variable, in a buffer that SHOULD be given back.
    fn value_text(&mut self, slot: Slot) -> Vec<u8> {
        let mut text = self.shard.pool.buffer();
        text.extend_from_slice(self.call.value(slot, &self.shard.shared).text());
        text
    }

    /// Replaces the text of a variable.
    fn change_text(&mut self, slot: Slot, change: impl FnOnce(&[u8], &mut Vec<u8>)) {
        let mut changed = self.shard.pool.buffer();
        change(self.call.value(slot, &self.shard.shared).text(), &mut changed);
        self.call.value_mut(slot, &mut self.shard.shared).set_text(&changed);
        self.shard.pool.give(changed);
    }

    /// Renders the texts of an action for the time of `work`.
    fn with_texts<const N: usize>(&mut self, templates: [&Template; N], work: impl FnOnce(&mut Self, [&[u8]; N])) {
        let texts = templates.map(|template| self.text(template));
        work(self, std::array::from_fn(|i| &texts[i][..]));
        for text in texts {
            self.shard.pool.give(text);
        }
    }

    fn action(&mut self, action: &Action, message: Option<&[u8]>) -> Done {
        match action {
            Action::Expression(wanted) => return self.expression(wanted, message.unwrap_or(b"")),
            Action::Log(template) => {
                self.with_texts([template], |runner, [text]| {
                    if let Some(watch) = &mut runner.shard.watch {
                        watch.log(text);
                    }
                });
            }
            Action::Warning(template) => {
                self.with_texts([template], |runner, [text]| {
                    runner.shard.warn(format_args!("{}", String::from_utf8_lossy(text)));
                });
            }
            // The caller sees that the run ends.
            Action::Error(template) => {
                self.with_texts([template], |runner, [text]| {
                    runner.halt(format_args!("{}", String::from_utf8_lossy(text)));
                });
            }
            Action::Assign { to, value } => {
                let value = self.number(*value);
                self.set(*to, Value::Number(value));
            }
            Action::AssignString { to, value } => {
                self.with_texts([value], |runner, [text]| {
                    runner.call.value_mut(*to, &mut runner.shard.shared).set_text(text);
                });
            }
            Action::ToDouble { to, from } => {
                let number = match self.call.value(*from, &self.shard.shared) {
                    Value::Number(number) => Some(*number),
                    Value::Bool(value) => Some(f64::from(u8::from(*value))),
                    Value::Text(text) => whole_number(text),
                    Value::Unset | Value::Spare(_) => None,
                };
                match number {
                    Some(number) => self.set(*to, Value::Number(number)),
                    None => {
                        let text = self.value_text(*from);
                        let shown = String::from_utf8_lossy(&text);
                        self.shard.warn(format_args!("Invalid double conversion from '{shown}'"));
                        drop(shown);
                        self.shard.pool.give(text);
                    }
                }
            }
            Action::Sample { to, distribution } => {
                let value = distribution.draw(&mut || self.shard.random.unit());
                self.set(*to, Value::Number(value));
            }
            Action::Arithmetic { to, operator, value } => {
                let right = self.number(*value);
                let left = self.call.value(*to, &self.shard.shared).number();
                let result = match operator {
                    Operator::Add => left + right,
                    Operator::Subtract => left - right,
                    Operator::Multiply => left * right,
                    Operator::Divide if right == 0.0 => {
                        self.shard.warn(format_args!("Action failure: Can not divide by zero!"));
                        return Done::Well;
                    }
                    Operator::Divide => left / right,
                };
                self.set(*to, Value::Number(result));
            }
            Action::Test { to, left: of, comparison, right: with, check } => {
                let left = self.call.value(*of, &self.shard.shared).number();
                let right = self.number(*with);
                let holds = match comparison {
                    Comparison::Equal => left == right,
                    Comparison::NotEqual => left != right,
                    Comparison::GreaterThan => left > right,
                    Comparison::LessThan => left < right,
                    Comparison::GreaterThanOrEqual => left >= right,
                    Comparison::LessThanOrEqual => left <= right,
                };
                let failure = match check {
                    Check::Must if !holds => Failure::TestDoesntMatch,
                    Check::MustNot if holds => Failure::TestShouldntMatch,
                    _ => {
                        if let Some(to) = to {
                            self.set(*to, Value::Bool(holds));
                        }
                        return Done::Well;
                    }
                };
                let with = match with {
                    Number::Variable(slot) => self.name(*slot),
                    Number::Value(_) => String::new(),
                };
                let (of, sign, check) = (self.name(*of), comparison.sign(), attribute(*check));
                self.shard.warn(format_args!("test \"{of}:{left:.6} {sign} {with}:{right:.6}\" with {check} failed"));
                return Done::Failed(failure);
            }
            Action::CompareStrings { to, left: of, right: with, check } => {
                let difference = difference(self.operand(*of), self.right(with));
                let failure = match check {
                    Check::Must if difference != 0 => Failure::CompareDoesntMatch,
                    Check::MustNot if difference == 0 => Failure::CompareShouldntMatch,
                    _ => {
                        if let Some(to) = to {
                            self.set(*to, Value::Number(f64::from(difference)));
                        }
                        return Done::Well;
                    }
                };
                let name = match with {
                    Text::Variable(slot) => self.name(*slot),
                    Text::Value(_) => String::new(),
                };
                let lossy = |text: &[u8]| String::from_utf8_lossy(text).into_owned();
                let (left, right) = (lossy(self.operand(*of)), lossy(self.right(with)));
                let (of, with, check) = (self.name(*of), name, attribute(*check));
                self.shard.warn(format_args!(
                    "strcmp {of}:\"{left}\" and {with}:\"{right}\" with {check} returned {difference}"
                ));
                return Done::Failed(failure);
            }
            Action::Time { seconds, microseconds } => {
                let (wall, micros) = (self.shard.wall, self.shard.now % 1_000);
                self.set(*seconds, Value::Number((wall / 1_000) as f64));
                self.set(*microseconds, Value::Number((wall % 1_000 * 1_000 + micros) as f64));
            }
            Action::Index { to } => {
                let step = f64::from(self.call.step);
                self.set(*to, Value::Number(step));
            }
            Action::Jump(number) => {
                let to = self.number(*number);
                if !(0.0..=self.script.scenario.steps.len() as f64).contains(&to) {
                    let most = self.script.scenario.steps.len();
                    self.halt(format_args!("Jump statement out of range (not 0 <= {to:.0} <= {most})"));
                    return Done::Well;
                }
                self.call.step = (to as u32).wrapping_sub(1);
            }
            Action::PauseRestore(number) => self.call.paused_until = self.number(*number).max(0.0) as u64,
            Action::VerifyAuthentication { to, username, password } => {
                self.with_texts([username, password], |runner, [username, password]| {
                    let right = runner.verify_authentication(message.unwrap_or(b""), username, password);
                    runner.set(*to, Value::Bool(right));
                });
            }
            Action::Lookup { to, file, key } => {
                self.with_texts([file, key], |runner, [file, key]| {
                    let line = runner.look_up(file, key);
                    runner.set(*to, Value::Number(line));
                });
            }
            Action::Insert { file, value } => {
                self.with_texts([file, value], |runner, [file, value]| runner.insert(file, value));
            }
            Action::Replace { file, line, value } => {
                self.with_texts([file, line, value], |runner, [file, line, value]| runner.replace(file, line, value));
            }
            Action::SetDestination { host, port, protocol } => {
                let mut done = Done::Well;
                self.with_texts([host, port, protocol], |runner, [host, port, protocol]| {
                    done = runner.set_destination(host, port, protocol);
                });
                return done;
            }
            Action::CloseConnection => self.close_connection(),
            Action::Trim(slot) => {
                self.change_text(*slot, |text, changed| changed.extend_from_slice(text.trim_ascii()));
            }
            Action::UrlEncode(slot) => self.change_text(*slot, url_encode),
            Action::UrlDecode(slot) => self.change_text(*slot, url_decode),
            Action::Command(template) => self.with_texts([template], |runner, [text]| runner.command(text)),
            // Only a message can reject a call. On a step without a message the call continues, as with SIPp.
            Action::Stop(Stop::Call) if message.is_none() => (),
            Action::Stop(Stop::Call) => {
                self.finish(CallOutcome::Failed(Failure::CallRejected));
                return Done::Over;
            }
            Action::Stop(Stop::Gracefully) => self.shard.halt = Some(Halt::Gracefully),
            Action::Stop(Stop::Now) => {
                self.shard.halt = Some(Halt::Now);
            }
            Action::PlayPcap { .. }
            | Action::PlayDtmf(_)
            | Action::RtpStream(_)
            | Action::RtpEcho(_)
            | Action::EchoSwitch(_) => {
                if self.shard.media.is_some() {
                    self.media(action);
                } else if !std::mem::replace(&mut self.shard.warned_of_media, true) {
                    self.shard.warn(format_args!("media actions are not run: no RTP is sent"));
                }
            }
        }
        Done::Well
    }

    /// Runs a media action. The call continues if the media cannot be played.
    fn media(&mut self, action: &Action) {
        let switch = match action {
            Action::EchoSwitch(number) => Some(self.number(*number) != 0.0),
            Action::PlayDtmf(digits) => return self.with_texts([digits], |runner, [digits]| runner.digits(digits)),
            _ => None,
        };
        let Some(media) = &mut self.shard.media else { return };
        let played = match switch {
            Some(on) => {
                media.echo(on);
                Ok(())
            }
            None => media.act(self.slot, action),
        };
        if let Err(refusal) = played {
            self.warn_call(format_args!("{refusal}"));
        }
    }

    /// Runs `play_dtmf`.
    fn digits(&mut self, digits: &[u8]) {
        if let Some(Err(refusal)) = self.shard.media.as_mut().map(|media| media.digits(self.slot, digits)) {
            self.warn_call(format_args!("{refusal}"));
        }
    }

    /// Runs `ereg`.
    fn expression(&mut self, wanted: &Match, message: &[u8]) -> Done {
        let Source::Variable(slot) = &wanted.source else { return self.match_in(wanted, message, b"") };
        let value = self.value_text(*slot);
        let done = self.match_in(wanted, message, &value);
        self.shard.pool.give(value);
        done
    }

    /// Runs `ereg` on `message`, or on `value`, the text of a variable.
    fn match_in(&mut self, wanted: &Match, message: &[u8], value: &[u8]) -> Done {
        let text = match &wanted.source {
            Source::Message => message,
            Source::Header(search) => {
                let found = header(message, search);
                if found.is_empty() && wanted.check == Check::Must {
                    let name = String::from_utf8_lossy(&search.text).into_owned();
                    let id = String::from_utf8_lossy(self.call.id()).into_owned();
                    self.shard
                        .warn(format_args!("Call-Id: {id}, Failed regexp match: header {name} not found in message"));
                    return Done::Failed(Failure::RegexpHeaderNotFound);
                }
                found
            }
            Source::Body => match memchr::memmem::find(message, b"\r\n\r\n") {
                Some(at) => &message[at + 4..],
                None if wanted.check == Check::Must => return Done::Failed(Failure::RegexpDoesntMatch),
                None => return Done::Well,
            },
            Source::Variable(_) => value,
        };
        let mut spans: [Option<Span>; 16] = [None; 16];
        let matched = wanted.expression.expression.captures(text, &mut self.shard.matcher, &mut spans);
        if matched {
            for (slot, span) in wanted.assign_to.iter().zip(spans) {
                // A variable whose group did not match keeps its value.
                let Some(span) = span else { continue };
                self.call.value_mut(*slot, &mut self.shard.shared).set_text(span.of(text));
            }
        }
        let (failure, what) = match wanted.check {
            Check::Must if !matched => (Failure::RegexpDoesntMatch, "Failed regexp match"),
            Check::MustNot if matched => (Failure::RegexpShouldntMatch, "Regexp matched but should not"),
            _ => return Done::Well,
        };
        let (text, pattern) = (String::from_utf8_lossy(text), String::from_utf8_lossy(&wanted.expression.text));
        self.shard.warn(format_args!("{what}: looking in '{text}', with regexp '{pattern}'"));
        Done::Failed(failure)
    }

    fn operand(&self, slot: Slot) -> &[u8] {
        self.call.value(slot, &self.shard.shared).text()
    }

    fn right<'a>(&'a self, with: &'a Text) -> &'a [u8] {
        match with {
            Text::Value(text) => text,
            Text::Variable(slot) => self.operand(*slot),
        }
    }

    fn name(&self, slot: Slot) -> String {
        self.script.scenario.variables.name(slot).to_owned()
    }

    /// Returns the variables as a command's environment: `$SIPP_name`. Bytes from a peer are only values of the
    /// environment, and never part of the command.
    fn exported(&mut self) -> Vec<(String, OsString)> {
        let script = self.script;
        let variables = &script.scenario.variables;
        let mut all = Vec::new();
        // The innermost scope is the last, and overrides the others.
        for scope in [Scope::Global, Scope::User, Scope::Call] {
            for (index, name) in variables.names(scope).iter().enumerate() {
                let slot = Slot { scope, index: index as u16 };
                let plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                if !plain || matches!(self.call.value(slot, &self.shard.shared), Value::Unset | Value::Spare(_)) {
                    continue;
                }
                let value = self.value_text(slot);
                // An environment variable cannot hold a NUL.
                let end = memchr::memchr(0, &value).unwrap_or(value.len());
                all.push((format!("SIPP_{name}"), OsString::from_vec(value[..end].to_vec())));
                self.shard.pool.give(value);
            }
        }
        all
    }

    /// Runs `exec command` in a shell of its own and does not wait for it.
    fn command(&mut self, text: &[u8]) {
        let text = String::from_utf8_lossy(text).into_owned();
        if !self.shard.run.behaviour.commands {
            return self.shard.warn(format_args!("a dry run runs no command: {text}"));
        }
        let environment = self.exported();
        if let Err(error) = self.shard.helper.shell(text.clone(), environment) {
            self.shard.warn(format_args!("system call error for {text}: {error}"));
        }
    }

    fn set_destination(&mut self, host: &[u8], port: &[u8], protocol: &[u8]) -> Done {
        let host = String::from_utf8_lossy(host);
        let host = host.trim_matches(['[', ']']);
        let Ok(port) = String::from_utf8_lossy(port).trim().parse::<u16>() else {
            self.halt(format_args!("Invalid port for setdest: {}", String::from_utf8_lossy(port)));
            return Done::Well;
        };
        if !protocol.eq_ignore_ascii_case(self.call.target.transport.text().as_bytes()) {
            self.halt(format_args!("Can not switch protocols during setdest: {}", String::from_utf8_lossy(protocol)));
            return Done::Well;
        }
        let literal = host.parse().ok().map(|ip: std::net::IpAddr| std::net::SocketAddr::new(ip, port));
        // `<init>` runs before the calls.
        if literal.is_none() && self.call.kind != CallKind::Passing {
            return if self.look_up_host(host, port) { Done::Well } else { Done::Over };
        }
        self.resume();
        match literal.or_else(|| self.shard.helper.look_up_now(host, port)) {
            // A failed reconnection was reported.
            Some(address) if !self.redirect(address) => Done::Over,
            Some(_) => Done::Well,
            None => {
                self.halt(format_args!("Unknown host '{host}' for setdest"));
                Done::Well
            }
        }
    }
}

/// Returns the text after the searched position, up to the end of its line, or an empty text if there is none.
fn header<'a>(message: &'a [u8], search: &HeaderSearch) -> &'a [u8] {
    let wanted = &search.text[..];
    let mut left = search.occurrence.max(1);
    let found = |at: usize| {
        let rest = &message[at + wanted.len()..];
        let end = rest.iter().position(|b| matches!(b, b'\r' | b'\n')).unwrap_or(rest.len());
        &rest[..end]
    };
    if wanted.is_empty() || message.len() < wanted.len() {
        return b"";
    }
    let mut from = 0;
    while from + wanted.len() <= message.len() {
        let at = if search.ignore_case {
            message[from..].windows(wanted.len()).position(|w| w.eq_ignore_ascii_case(wanted))
        } else {
            memchr::memmem::find(&message[from..], wanted)
        };
        let Some(at) = at.map(|at| from + at) else { return b"" };
        from = at + 1;
        if search.start_line && at != 0 && message[at - 1] != b'\n' {
            continue;
        }
        left -= 1;
        if left == 0 {
            return found(at);
        }
    }
    b""
}

const fn attribute(check: Check) -> &'static str {
    match check {
        Check::MustNot => "check_it_inverse",
        _ => "check_it",
    }
}

#[cfg(test)]
mod tests;
