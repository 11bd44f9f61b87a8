//! Compiles elements that are steps.

use super::{Counting, Program, Reader, Timer, Transaction, literal_start};
use crate::ThirdParty;
use crate::action::Pattern;
use crate::refusal::{Cause, Fault};
use crate::step::{
    Condition, CounterIndex, Expected, Jump, Method, Optional, Pause, PeerIndex, Receive, Send, Start, Step, StepIndex,
    StepKind, TimerIndex, TransactionIndex,
};
use crate::template::Template;
use crate::xml::{Attribute, Element};

impl Reader<'_> {
    pub(super) fn step(&mut self, element: &Element, init: bool) -> Result<(), Fault> {
        if self.closed && !init {
            return Err(Fault::new(element.start, format!("`<{}>` follows `<timewait>`", element.name))
                .hint("`timewait` is the last step"));
        }
        if !init && !matches!(element.name.as_str(), "recv" | "recvCmd") && self.optional_before.is_some() {
            return Err(Fault::new(element.start, format!("`<{}>` follows an optional receive", element.name))
                .hint("behind optional receives one must be mandatory"));
        }
        let kind = match element.name.as_str() {
            "send" => self.send(element)?,
            "recv" => self.receive(element)?,
            "pause" => StepKind::Pause(self.pause(element)?),
            "timewait" => {
                for name in ["next", "ontimeout"] {
                    if let Some(value) = self.attribute(element, name) {
                        return Err(Fault::new(value.at, format!("`timewait` has no `{name}`"))
                            .hint("it is the end of the call"));
                    }
                }
                self.closed = true;
                StepKind::TimeWait(self.pause(element)?)
            }
            "sendCmd" => self.send_command(element)?,
            "recvCmd" => {
                self.optional_before =
                    (self.optional(element)? != Optional::No).then_some(element.start).filter(|_| !init);
                let from = self.peer(element, "src")?;
                StepKind::ReceiveCommand { from }
            }
            _ => StepKind::Nop,
        };
        let mut step = self.common(element, kind, init)?;
        step.actions = self.actions(element)?.into_boxed_slice();
        self.program(init).steps.push(step);
        Ok(())
    }

    fn program(&mut self, init: bool) -> &mut Program {
        if init { &mut self.init } else { &mut self.main }
    }

    /// Compiles the attributes of every step.
    fn common(&mut self, element: &Element, kind: StepKind, init: bool) -> Result<Step, Fault> {
        let index = self.program(init).steps.len();
        // This order gives them SIPp's numbers.
        let stop_timer = self.timer(element, "rtd")?;
        let start_timer = self.timer(element, "start_rtd")?;
        let repeat_timer = self.boolean(element, "repeat_rtd")?;
        if let (Some(_), None, Some(value)) = (repeat_timer, stop_timer, self.attribute(element, "repeat_rtd")) {
            return Err(Fault::new(value.at, "`repeat_rtd` without `rtd`"));
        }
        let counter = self.counter(element)?;
        let lost = self.number(element, "lost")?;
        let ignore_sdp = self.boolean(element, "ignoresdp")?.unwrap_or(false);
        if let Some(hide) = self.boolean(element, "hiderest")? {
            self.hide = hide;
        }
        let hidden = self.boolean(element, "hide")?.unwrap_or(self.hide);
        let variable = self.optional_variable(element, "condexec")?;
        let inverse = self.boolean(element, "condexec_inverse")?.unwrap_or(false);
        let next = match self.attribute(element, "next") {
            None => {
                if let Some(test) = self.attribute(element, "test") {
                    self.warn(test.at, "`test` without `next` is ignored");
                }
                None
            }
            Some(label) => {
                let test = self.optional_variable(element, "test")?;
                let chance = self.number(element, "chance")?;
                if let Some(chance) = chance
                    && !(0.0..=1.0).contains(&chance)
                {
                    let at = self.attribute(element, "chance").map_or(element.start, |value| value.at);
                    return Err(Fault::new(at, format!("`chance` is {chance}")).hint("0 to 1 is wanted"));
                }
                self.program(init).next.push((index, label.at, label.text()));
                Some(Jump { to: StepIndex::MAX, test, chance })
            }
        };
        let on_timeout = self.attribute(element, "ontimeout").map(|label| {
            self.program(init).on_timeout.push((index, label.at, label.text()));
            StepIndex::MAX
        });
        Ok(Step {
            kind,
            actions: Box::default(),
            next,
            condition: variable.map(|variable| Condition { variable, inverse }),
            start_timer,
            stop_timer,
            repeat_timer: repeat_timer.unwrap_or(false),
            counter,
            on_timeout,
            lost,
            ignore_sdp,
            // SIPp checks only for its presence, whatever the value.
            blank_line: self.attribute(element, "crlf").is_some(),
            hidden,
            display: self.attribute(element, "display").map(|text| text.text().into_boxed_str()),
            line: self.document.place(element.start).0,
        })
    }

    /// Returns a timer: `true` is the timer `1`, `false` none, any other value a name.
    fn timer(&mut self, element: &Element, attribute: &str) -> Result<Option<TimerIndex>, Fault> {
        let Some(value) = self.attribute(element, attribute) else { return Ok(None) };
        let name = match value.text().as_str() {
            "false" => return Ok(None),
            "true" => "1".to_owned(),
            other => other.to_owned(),
        };
        let index = self.timers.iter().position(|timer| timer.name == name).unwrap_or_else(|| {
            self.timers.push(Timer { name, started: None, stopped: false });
            self.timers.len() - 1
        });
        let timer = &mut self.timers[index];
        if attribute == "rtd" {
            timer.stopped = true;
        } else {
            timer.started = Some(value.at);
        }
        TimerIndex::try_from(index).map(Some).map_err(|_| Fault::new(value.at, "too many timers"))
    }

    fn counter(&mut self, element: &Element) -> Result<Option<CounterIndex>, Fault> {
        let Some(value) = self.attribute(element, "counter") else { return Ok(None) };
        let name = plain_name(&value)?;
        let index = self.counters.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.counters.push(name);
            self.counters.len() - 1
        });
        CounterIndex::try_from(index).map(Some).map_err(|_| Fault::new(value.at, "too many counters"))
    }

    fn transaction(&mut self, value: &Attribute) -> Result<(TransactionIndex, &mut Transaction), Fault> {
        let name = plain_name(value)?;
        let index = self.transactions.iter().position(|known| known.name == name).unwrap_or_else(|| {
            self.transactions.push(Transaction { name, at: value.at, ..Transaction::default() });
            self.transactions.len() - 1
        });
        let number = TransactionIndex::try_from(index).map_err(|_| Fault::new(value.at, "too many transactions"))?;
        Ok((number, &mut self.transactions[index]))
    }

    /// Compiles a message to send: its text and its start line.
    pub(super) fn message(&mut self, text: &[u8], at: usize, counting: Counting) -> Result<(Template, Start), Fault> {
        let template = self.template(text, at, counting)?;
        let start = start(&template).map_err(|fault| Fault { offset: at, ..fault })?;
        Ok((template, start))
    }

    fn send(&mut self, element: &Element) -> Result<StepKind, Fault> {
        let (at, text) = self.cdata(element)?;
        let (template, start) = self.message(&text, at, Counting::Counted)?;
        if let Some(value) = self.attribute(element, "response_txn") {
            return Err(Fault::new(value.at, "`response_txn` on a message that is sent").hint("it belongs to `recv`"));
        }
        let mut start_transaction = None;
        if let Some(value) = self.attribute(element, "start_txn") {
            let Start::Request(method) = &start else {
                return Err(Fault::new(value.at, "an answer cannot start a transaction"));
            };
            if *method.text == *b"ACK" {
                return Err(Fault::new(value.at, "an ACK cannot start a transaction").hint("use `ack_txn`"));
            }
            let invite = *method.text == *b"INVITE";
            let (index, transaction) = self.transaction(&value)?;
            transaction.started = true;
            transaction.invite = invite;
            start_transaction = Some(index);
        }
        let mut ack_transaction = None;
        if let Some(value) = self.attribute(element, "ack_txn") {
            match &start {
                Start::Request(method) if *method.text == *b"ACK" => {
                    let (index, transaction) = self.transaction(&value)?;
                    transaction.acknowledged = true;
                    ack_transaction = Some(index);
                }
                _ => return Err(Fault::new(value.at, "`ack_txn` is for ACK only")),
            }
        }
        if let Start::Request(method) = &start
            && memchr::memmem::find(&self.methods, &method.text).is_none()
        {
            self.methods.extend_from_slice(&method.text);
        }
        Ok(StepKind::Send(Box::new(Send {
            template,
            start,
            retransmit: self.milliseconds(element, "retrans")?,
            start_transaction,
            ack_transaction,
            timeout: self.milliseconds(element, "timeout")?,
        })))
    }

    fn optional(&self, element: &Element) -> Result<Optional, Fault> {
        let Some(value) = self.attribute(element, "optional") else { return Ok(Optional::No) };
        match value.text().as_str() {
            "true" => Ok(Optional::Yes),
            "false" => Ok(Optional::No),
            "global" => Ok(Optional::Global),
            other => Err(Fault::new(value.at, format!("`optional` is `{other}`"))
                .hint("`true`, `false` or `global` is wanted, in small letters")),
        }
    }

    fn receive(&mut self, element: &Element) -> Result<StepKind, Fault> {
        let optional = self.optional(element)?;
        self.optional_before = (optional != Optional::No).then_some(element.start);
        let matching = self.attribute(element, "regexp_match").is_some_and(|value| value.value == b"true");
        let request = self.attribute(element, "request");
        let response = self.attribute(element, "response");
        let expected = match (request, response) {
            (None, None) => {
                self.warn(element.start, "`recv` without `request` or `response` matches nothing");
                Expected::Response(0)
            }
            (Some(value), response) => {
                if let Some(response) = response {
                    self.integer(element, "response")?;
                    self.warn(response.at, "`response` beside `request` is ignored");
                }
                if matching {
                    Expected::RequestMatching(Box::new(self.pattern(&value.value, value.at)?))
                } else {
                    Expected::Request(method(&value.value))
                }
            }
            (None, Some(value)) => {
                if matching && super::attribute::integer(&value.text()).is_none() {
                    self.newer(value.at, "an expression as `response` is of SIPp 3.7");
                    Expected::ResponseMatching(Box::new(self.pattern(&value.value, value.at)?))
                } else {
                    let code = self.integer(element, "response")?.unwrap_or(0);
                    Expected::Response(u16::try_from(code).unwrap_or(0))
                }
            }
        };
        let mut transaction = None;
        if let Some(value) = self.attribute(element, "response_txn") {
            if !matches!(expected, Expected::Response(_) | Expected::ResponseMatching(_)) {
                return Err(Fault::new(value.at, "`response_txn` is for answers only"));
            }
            let (index, state) = self.transaction(&value)?;
            // A `recv` that waits for nothing answers nothing.
            state.answered |= !matches!(expected, Expected::Response(0));
            transaction = Some(index);
        }
        let advance = self.boolean(element, "advance_state")?.unwrap_or(true);
        if !advance && optional == Optional::No {
            return Err(Fault::new(element.start, "`advance_state` is for optional receives only"));
        }
        Ok(StepKind::Receive(Box::new(Receive {
            expected,
            optional,
            record_routes: self.boolean(element, "rrs")?.unwrap_or(false),
            authenticate: self.boolean(element, "auth")?.unwrap_or(false),
            transaction,
            methods: self.methods.clone().into_boxed_slice(),
            timeout: self.milliseconds(element, "timeout")?,
            advance,
        })))
    }

    /// Compiles an expression.
    pub(super) fn pattern(&self, text: &[u8], at: usize) -> Result<Pattern, Fault> {
        Pattern::new(text).map_err(|error| {
            Fault::new(at, format!("the expression `{}`: {error}", String::from_utf8_lossy(text)))
                .hint("a POSIX extended regular expression is wanted")
        })
    }

    fn pause(&mut self, element: &Element) -> Result<Pause, Fault> {
        if let Some(variable) = self.optional_variable(element, "variable")? {
            return Ok(Pause::Variable(variable));
        }
        let check = self.boolean(element, "sanity_check")?.unwrap_or(true);
        Ok(match self.pause_distribution(element, check)? {
            Some(distribution) => Pause::Drawn(distribution),
            None => Pause::Default,
        })
    }

    fn send_command(&mut self, element: &Element) -> Result<StepKind, Fault> {
        let (at, text) = self.cdata(element)?;
        let template = self.template(&text, at, Counting::Counted)?;
        let to = self.peer(element, "dest")?;
        Ok(StepKind::SendCommand { template, to })
    }

    /// Returns the other controller of extended 3PCC.
    fn peer(&mut self, element: &Element, attribute: &str) -> Result<Option<PeerIndex>, Fault> {
        let Some(value) = self.attribute(element, attribute) else {
            if self.environment.third_party == ThirdParty::Extended {
                return Err(super::attribute::missing(element, attribute));
            }
            return Ok(None);
        };
        let name = value.text();
        if attribute == "dest" && !self.environment.peers.contains(&name) {
            return Err(Fault::new(value.at, format!("the peer `{name}` is not known"))
                .hint("name it in the file of -slave_cfg"));
        }
        let index = self.peers.iter().position(|known| *known == name).unwrap_or_else(|| {
            self.peers.push(name);
            self.peers.len() - 1
        });
        PeerIndex::try_from(index).map(Some).map_err(|_| Fault::new(value.at, "too many peers"))
    }
}

/// Returns a non-empty name without `$` and `,`.
fn plain_name(value: &Attribute) -> Result<String, Fault> {
    let name = value.text();
    if name.is_empty() || name.contains(['$', ',']) {
        return Err(Fault::new(value.at, format!("`{name}` cannot be a name")).hint("one name, without `$` and `,`"));
    }
    Ok(name)
}

fn method(text: &[u8]) -> Method {
    Method { text: text.into(), known: strowger_message::Method::of(text) }
}

/// Returns the start line of a message to send. Its first word must be literal, and a space must follow.
fn start(template: &Template) -> Result<Start, Fault> {
    let literal = literal_start(template);
    let Some(space) = memchr::memchr(b' ', literal) else {
        return Err(Fault::new(0, "the first word of the message is a keyword, or the only word")
            .hint("write the method, or SIP/2.0, as plain text, then a space")
            .cause(Cause::Keyword));
    };
    let (word, rest) = (&literal[..space], &literal[space + 1..]);
    if word != b"SIP/2.0" {
        return Ok(Start::Request(method(word)));
    }
    let rest = rest.trim_ascii_start();
    let digits = rest.iter().position(|b| !b.is_ascii_digit() && *b != b'-').unwrap_or(rest.len());
    if rest.get(digits).is_some_and(|b| !b.is_ascii_whitespace()) {
        return Err(Fault::new(0, "the status code of the message is no number"));
    }
    let code = std::str::from_utf8(&rest[..digits]).ok().and_then(|text| text.parse::<u16>().ok());
    match code {
        Some(code @ 100..=699) => Ok(Start::Response(code)),
        _ => {
            Err(Fault::new(0, "the status code of the message is not 100 to 699")
                .hint("it is plain text, never a keyword"))
        }
    }
}
