//! Messages of a call, from the documents of both ends.
//!
//! The documents say what each end sends and expects. The server between them forwards a request to the answering side if that side expects it and
//! the caller does not expect a challenge, and forwards each response back.

use crate::document;
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;
use strowger_report::drawing::{Ladder, Step};
use strowger_scenario::step::{Expected, Optional, Pause, Start, StepKind};
use strowger_scenario::{Environment, Scenario};

const CALLER: &str = "caller";
const SERVER: &str = "server";
const ANSWERER: &str = "answering side";

/// Step of one end.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Action {
    Send(String),
    Receive { text: String, is_optional: bool },
    Wait(Duration),
}

/// Answering side.
pub(super) enum Answerer<'a> {
    /// Side with a document.
    Document(&'a str),
    /// Side that rings and answers.
    Plain,
    /// None: the server itself answers.
    None,
}

/// Steps of both ends.
pub(super) struct Ends {
    caller: Vec<Action>,
    answerer: Vec<Action>,
}

impl Ends {
    /// Reads the documents of both ends.
    ///
    /// # Errors
    /// A document cannot be read.
    pub(super) fn read(caller: &str, answerer: Answerer<'_>, hold: Duration) -> Result<Self, String> {
        let answerer = match answerer {
            Answerer::Document(text) => actions(text, hold)?,
            Answerer::Plain => plain_answer(),
            Answerer::None => Vec::new(),
        };
        Ok(Self { caller: actions(caller, hold)?, answerer })
    }

    /// Makes the call flow, with notes where the delays of these figures begin and end.
    pub(super) fn ladder(self, title: &str, figures: &[String]) -> Ladder {
        let mut parties = vec![CALLER.to_owned(), SERVER.to_owned()];
        if !self.answerer.is_empty() {
            parties.push(ANSWERER.into());
        }
        let mut flow = Flow { answerer: self.answerer.into(), arrived: VecDeque::new(), steps: Vec::new() };
        for (at, action) in self.caller.iter().enumerate() {
            flow.act(action, &self.caller[at + 1..]);
        }
        Ladder { title: title.into(), parties, steps: marked(flow.steps, figures) }
    }
}

/// Returns the steps of `strowger load uas`, which rings, answers, and waits for the end.
fn plain_answer() -> Vec<Action> {
    let receive = |text: &str| Action::Receive { text: text.into(), is_optional: false };
    let send = |text: &str| Action::Send(text.into());
    vec![receive("INVITE"), send("180"), send("200"), receive("ACK"), receive("BYE"), send("200")]
}

fn actions(text: &str, hold: Duration) -> Result<Vec<Action>, String> {
    let environment = Environment { injections: vec!["users.csv".into()], ..Environment::default() };
    let text = document::without_sound(text);
    let scenario = Scenario::parse(text.as_bytes(), Path::new("document.xml"), &environment)
        .map_err(|refusal| refusal.to_string())?;
    let action = |kind: &StepKind| match kind {
        StepKind::Send(send) => Some(Action::Send(match &send.start {
            Start::Request(method) => String::from_utf8_lossy(&method.text).into_owned(),
            Start::Response(code) => code.to_string(),
        })),
        StepKind::Receive(receive) => {
            let is_optional = receive.optional != Optional::No;
            let text = match &receive.expected {
                Expected::Request(method) => String::from_utf8_lossy(&method.text).into_owned(),
                Expected::Response(code) => code.to_string(),
                Expected::RequestMatching(_) | Expected::ResponseMatching(_) => return None,
            };
            Some(Action::Receive { text, is_optional })
        }
        StepKind::Pause(Pause::Drawn(drawn)) => {
            Some(Action::Wait(Duration::from_secs_f64((drawn.quantile(0.5) / 1_000.0).max(0.0))))
        }
        StepKind::Pause(_) => Some(Action::Wait(hold)),
        StepKind::TimeWait(_) | StepKind::Nop | StepKind::SendCommand { .. } | StepKind::ReceiveCommand { .. } => None,
    };
    let (mut actions, mut at) = (Vec::new(), 0);
    while let Some(step) = scenario.steps.get(at) {
        let action = action(&step.kind);
        // An optional message is assumed not to arrive. A jump back is a loop, of which only the first round is shown.
        let is_taken = !matches!(action, Some(Action::Receive { is_optional: true, .. }));
        let jump = step.next.filter(|jump| is_taken && jump.test.is_none() && jump.chance.is_none());
        at = jump.map(|jump| jump.to as usize).filter(|to| *to > at).unwrap_or(at + 1);
        actions.extend(action);
    }
    Ok(actions)
}

/// Flow under construction.
struct Flow {
    answerer: VecDeque<Action>,
    /// Messages that came to the caller and that it has not read.
    arrived: VecDeque<String>,
    steps: Vec<Step>,
}

impl Flow {
    fn message(&mut self, from: &str, to: &str, text: &str) {
        self.steps.push(Step::Message { from: from.into(), to: to.into(), text: text.into() });
    }

    fn act(&mut self, action: &Action, rest: &[Action]) {
        match action {
            Action::Send(text) => {
                self.message(CALLER, SERVER, text);
                if self.is_expected(text) && !is_challenged(rest) {
                    self.message(SERVER, ANSWERER, text);
                    self.answerer.pop_front();
                    self.answer();
                }
            }
            Action::Receive { text, is_optional } => {
                if self.arrived.front() == Some(text) {
                    self.arrived.pop_front();
                } else if !is_optional {
                    self.message(SERVER, CALLER, text);
                }
            }
            Action::Wait(time) => {
                self.steps.push(Step::Pause(show(*time)));
                self.answer();
            }
        }
    }

    /// Returns whether the answering side waits for this message, at once or after optional messages.
    fn is_expected(&mut self, wanted: &str) -> bool {
        while let Some(Action::Receive { text, is_optional: true }) = self.answerer.front() {
            if text == wanted {
                return true;
            }
            self.answerer.pop_front();
        }
        matches!(self.answerer.front(), Some(Action::Receive { text, .. }) if text == wanted)
    }

    /// Sends the messages of the answering side, up to its next receive.
    fn answer(&mut self) {
        while let Some(action) = self.answerer.front().cloned() {
            match action {
                Action::Send(text) => {
                    self.message(ANSWERER, SERVER, &text);
                    self.message(SERVER, CALLER, &text);
                    self.arrived.push_back(text);
                }
                Action::Wait(_) => {}
                Action::Receive { .. } => break,
            }
            self.answerer.pop_front();
        }
    }
}

/// Tells whether the next answer that must come is a challenge.
fn is_challenged(rest: &[Action]) -> bool {
    let next = rest.iter().find(|action| !matches!(action, Action::Receive { is_optional: true, .. }));
    matches!(next, Some(Action::Receive { text, .. }) if text == "401" || text == "407")
}

/// Delays at the caller: name, request at the begin, codes of the response at the end.
const DELAYS: [(&str, &str, std::ops::RangeInclusive<u16>); 3] =
    [("rrd", "REGISTER", 200..=299), ("srd", "INVITE", 101..=299), ("response", "INVITE", 200..=299)];

/// Adds notes at the begin and end of the delays of these figures.
fn marked(mut steps: Vec<Step>, figures: &[String]) -> Vec<Step> {
    for figure in figures {
        let name = figure.split('.').next().unwrap_or(figure);
        let Some((_, request, codes)) = DELAYS.iter().find(|(known, ..)| *known == name) else { continue };
        let is = |step: &Step, sender: &str, receiver: &str, fits: &dyn Fn(&str) -> bool| matches!(step, Step::Message { from, to, text } if from == sender && to == receiver && fits(text));
        let begin = steps.iter().position(|step| is(step, CALLER, SERVER, &|text| text == *request));
        let Some(begin) = begin else { continue };
        let ends = |text: &str| text.parse().is_ok_and(|code| codes.contains(&code));
        let end = steps[begin..].iter().position(|step| is(step, SERVER, CALLER, &ends));
        let Some(end) = end.map(|end| begin + end) else { continue };
        let title = name.to_uppercase();
        let note = |text: String| Step::Message { from: CALLER.into(), to: CALLER.into(), text };
        steps.insert(end + 1, note(format!("end of {title}")));
        steps.insert(begin, note(format!("begin of {title}")));
    }
    steps
}

fn show(time: Duration) -> String {
    strowger_measure::Unit::Microseconds.show(time.as_micros() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALL: &str = r#"<?xml version="1.0"?><scenario name="call">
      <send><![CDATA[REGISTER sip:a SIP/2.0

]]></send>
      <recv response="200"/>
      <send><![CDATA[INVITE sip:a SIP/2.0

]]></send>
      <recv response="407" auth="true"/>
      <send><![CDATA[ACK sip:a SIP/2.0

]]></send>
      <send><![CDATA[INVITE sip:a SIP/2.0

]]></send>
      <recv response="100" optional="true"/>
      <recv response="180" optional="true"/>
      <recv response="200"/>
      <send><![CDATA[ACK sip:a SIP/2.0

]]></send>
      <pause milliseconds="10000"/>
      <send><![CDATA[BYE sip:a SIP/2.0

]]></send>
      <recv response="200"/>
    </scenario>"#;

    fn ladder(document: &str, has_answerer: bool, figures: &[&str]) -> Result<Ladder, String> {
        let answerer = if has_answerer { Answerer::Plain } else { Answerer::None };
        let figures: Vec<String> = figures.iter().map(ToString::to_string).collect();
        Ends::read(document, answerer, Duration::ZERO).map(|ends| ends.ladder("flow", &figures))
    }

    /// Writes `C>S INVITE` for each message.
    fn lines(ladder: &Ladder) -> Vec<String> {
        let letter = |name: &str| name[..1].to_uppercase();
        ladder
            .steps
            .iter()
            .map(|step| match step {
                Step::Message { from, to, text } if from == to => format!("({text})"),
                Step::Message { from, to, text } => format!("{}>{} {text}", letter(from), letter(to)),
                Step::Pause(text) => format!("... {text}"),
            })
            .collect()
    }

    #[test]
    fn a_challenged_call_goes_through_the_server() {
        let found = ladder(CALL, true, &["rrd.mean", "srd.mean"]).expect("it is read");
        let wanted = [
            "(begin of RRD)",
            "C>S REGISTER",
            "S>C 200",
            "(end of RRD)",
            "(begin of SRD)",
            "C>S INVITE",
            "S>C 407",
            "C>S ACK",
            "C>S INVITE",
            "S>A INVITE",
            "A>S 180",
            "S>C 180",
            "(end of SRD)",
            "A>S 200",
            "S>C 200",
            "C>S ACK",
            "S>A ACK",
            "... 10.00 s",
            "C>S BYE",
            "S>A BYE",
            "A>S 200",
            "S>C 200",
        ];
        assert_eq!(lines(&found), wanted);
        assert!(found.draw().is_ok());
    }

    #[test]
    fn a_call_with_media_is_read_without_its_file() {
        let play = "<nop><action><exec rtp_stream=\"sound.raw,-1,0\"/></action></nop>\n";
        let playing = CALL.replacen("      <pause", &format!("{play}      <pause"), 1);
        assert_ne!(playing, CALL);
        let [plain, playing] = [CALL, &playing].map(|text| lines(&ladder(text, true, &[]).expect("it is read")));
        assert_eq!(playing, plain);
    }

    #[test]
    fn a_jump_leads_over_what_does_not_come() {
        let jumps = CALL
            .replacen("<recv response=\"200\"/>", "<recv response=\"401\" auth=\"true\" optional=\"true\" next=\"again\"/>\
                <recv response=\"200\" next=\"call\"/><label id=\"again\"/><send><![CDATA[REGISTER sip:a SIP/2.0\n\n]]></send>\
                <recv response=\"200\"/><label id=\"call\"/>", 1);
        let [plain, jumping] = [CALL, &jumps].map(|text| lines(&ladder(text, true, &[]).expect("it is read")));
        assert_eq!(jumping, plain);
    }

    #[test]
    fn a_server_that_answers_itself_has_two_parties() {
        let register = &CALL[..CALL.find("<send><![CDATA[INVITE").expect("it is there")];
        let found = ladder(&format!("{register}</scenario>"), false, &[]).expect("it is read");
        assert_eq!((lines(&found), found.parties.len()), (vec!["C>S REGISTER".into(), "S>C 200".into()], 2));
        assert!(ladder("<scenario>", false, &[]).is_err());
    }
}
