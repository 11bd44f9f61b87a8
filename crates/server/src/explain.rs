//! What an engine would do with a request, and why: it passes the same stages, and nothing is done.

use crate::contacts::Contacts;
use crate::decision::Decision;
use crate::engine::Engine;
use crate::forwarding::{Destination, Targets};
use crate::handling::{Handling, Progress, Proof};
use crate::question::{Question, Resolved};
use crate::reply::{Counted, Reply, Why};
use crate::request_facts::RequestFacts;
use crate::stage::{Stage, Verdict};
use serde::Serialize;
use std::fmt;
use strowger_core::routing::{Request, Routing};
use strowger_core::{Arrival, Now, Outbox};
use strowger_message::{Index, Message, Method, status};
use strowger_rules::Rules;
use strowger_store::subscriber;

/// What becomes of a request, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explained {
    /// The filters that were asked, in their order, up to the one that ends it.
    pub filters: Vec<Judgement>,
    /// The rules that were asked, up to the last that counts.
    pub rules: Vec<Judgement>,
    /// Names that were not looked up.
    pub names: Vec<String>,
    /// What becomes of it.
    pub outcome: Outcome,
}

/// What a rule or filter says of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Judgement {
    /// Its name.
    pub name: String,
    /// Whether it holds.
    pub holds: bool,
    /// The part of its condition that decided.
    pub part: String,
    /// Whether that part holds.
    pub part_holds: bool,
    /// What that part asked for, with the value, quoted, or `absent`.
    pub values: Vec<(String, String)>,
}

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "does", rename_all = "snake_case")]
pub enum Outcome {
    /// It is answered.
    Answer {
        /// Status code.
        status: u16,
        /// The rule or filter that says so, or another reason.
        because: String,
    },
    /// It ends without an answer.
    Drop,
    /// The registrar takes it.
    Register,
    /// It is answered with where it would go.
    Redirect {
        /// In order of trying.
        contacts: Vec<String>,
    },
    /// It goes on.
    Forward(PlanView),
}

/// How a request goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlanView {
    /// In order of trying.
    pub to: Vec<PlaceView>,
    /// Status codes after which the next is tried; none: any but 6xx.
    pub try_next: Option<Vec<u16>>,
    /// The server stays in the path of later requests.
    pub record_route: bool,
    /// The call is tracked.
    pub track: bool,
    /// Milliseconds that a place may ring, where a rule says it.
    pub ring_timeout: Option<u64>,
    /// Milliseconds that a place may say nothing, where a rule says it.
    pub answer_timeout: Option<u64>,
    /// Header lines that it gets.
    pub add: Vec<String>,
    /// Header fields that it loses.
    pub remove: Vec<String>,
    /// What is done where it fails.
    pub on_failure: Vec<FailureView>,
}

/// A place where a request goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PlaceView {
    /// Its URI.
    pub uri: String,
    /// Its addresses, with the transport, in order of trying; none where a name was not looked up.
    pub at: Vec<String>,
}

/// What is done about some failures.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FailureView {
    /// The first and the last status code of each range.
    pub statuses: Vec<(u16, u16)>,
    /// Where it goes then.
    pub to: Vec<String>,
    /// The answer in its place.
    pub answer: Option<u16>,
}

impl Engine {
    /// What this engine would do with a request that comes in here. `proven`: its sender has shown the password of the user whom its
    /// credentials name.
    ///
    /// # Errors
    /// What is no request that begins something: the text says why.
    pub fn explain(&self, now: Now, arrival: &Arrival, bytes: &[u8], proven: bool) -> Result<Explained, String> {
        let mut explained =
            Explained { filters: Vec::new(), rules: Vec::new(), names: Vec::new(), outcome: Outcome::Drop };
        let mut progress = Progress::new(now);
        self.follow(&mut explained, now, arrival, bytes, proven, &mut progress)?;
        Ok(explained)
    }

    fn follow(
        &self,
        explained: &mut Explained,
        now: Now,
        arrival: &Arrival,
        bytes: &[u8],
        proven: bool,
        progress: &mut Progress,
    ) -> Result<(), String> {
        let mut index = Index::new();
        index.parse(bytes, &self.policy.limits).map_err(|error| error.to_string())?;
        let message = Message::new(bytes, &index);
        let request = Request::of(message, arrival, 0).map_err(|error| format!("{error:?}"))?;
        if matches!(request.method, Method::Ack | Method::Cancel) {
            return Err("an ACK or a CANCEL goes where its INVITE went".to_owned());
        }
        let mut out = Outbox::new();
        let (mut contacts, routing) = (Contacts::default(), self.policy.router.route(now, &request));
        let handling = Handling { now, request: &request, server: None, progress, out: &mut out };
        if handling.progress.stage == Stage::Address {
            if self.explain_filters(explained, &handling, &routing) {
                return Ok(());
            }
            if request.method == Method::Register && self.is_for_registrar(now, &request) {
                explained.outcome = Outcome::Register;
                return Ok(());
            }
        }
        loop {
            let verdict = match handling.progress.stage {
                Stage::Address => self.address(&handling, &routing),
                Stage::Authorize => match self.authorize(&handling, &routing) {
                    Verdict::Reply(Reply { counted: Counted::Challenge, .. }) | Verdict::Ask(_) if proven => {
                        Verdict::Admit(Proof { authenticated: true, ..Proof::default() })
                    }
                    verdict => verdict,
                },
                Stage::Decide => {
                    self.explain_rules(explained, &handling, &routing);
                    self.decide(&handling, &routing)
                }
                Stage::Route => self.route(&handling, &routing, &mut contacts),
                Stage::Register => {
                    explained.outcome = Outcome::Register;
                    return Ok(());
                }
                Stage::Acknowledge => return Err("an ACK goes where its INVITE went".to_owned()),
            };
            match verdict {
                Verdict::Next(stage) => handling.progress.stage = stage,
                Verdict::Admit(proof) => {
                    handling.progress.proof = proof;
                    let is_asked = !proof.in_dialog && self.has_rules();
                    handling.progress.stage = if is_asked { Stage::Decide } else { Stage::Route };
                }
                Verdict::Decide(mut decision) => {
                    handling.progress.stage = Stage::Route;
                    if decision.edits_uri() {
                        let bytes = decision.change_user(&request, &routing);
                        handling.progress.decision = Some(decision);
                        return self.follow(explained, now, arrival, &bytes, proven, handling.progress);
                    }
                    handling.progress.decision = Some(decision);
                }
                Verdict::Ask(Question::Name(key)) => {
                    explained.names.push(String::from_utf8_lossy(&key.0).into_owned());
                    handling.progress.answers.names.push((key, Resolved::default()));
                }
                Verdict::Ask(Question::User { .. }) => {
                    handling.progress.answers.user = Some(Ok(subscriber::Answer::Exists));
                }
                Verdict::Ask(Question::Credential { .. }) => {
                    handling.progress.answers.credential = Some(Ok(subscriber::Answer::Absent));
                }
                Verdict::Ask(Question::Registered { .. }) => handling.progress.answers.registered = Some(Ok(None)),
                Verdict::Register(..) => {
                    explained.outcome = Outcome::Register;
                    return Ok(());
                }
                Verdict::Reply(reply) => {
                    if handling.progress.stage == Stage::Address && self.has_rules() {
                        self.explain_rules(explained, &handling, &routing);
                    }
                    explained.outcome = self.outcome_of(&reply);
                    return Ok(());
                }
                Verdict::Forward(destination) => {
                    explained.outcome = self.forwarded_to(explained, &handling, &routing, &contacts, &destination);
                    return Ok(());
                }
                // No name was looked up, so none of its Routes leads here by one.
                Verdict::TakeOffRoutes | Verdict::Drop => return Ok(()),
            }
        }
    }

    fn explain_filters(&self, explained: &mut Explained, handling: &Handling<'_, '_>, routing: &Routing<'_>) -> bool {
        let decisions = &self.policy.config.decisions;
        if decisions.filters.is_empty() {
            return false;
        }
        let facts = RequestFacts::of(self, handling, routing);
        let found = self.filter(handling);
        let last = found.map_or(decisions.filters.len(), |(place, _)| place + 1);
        explained.filters = judgements(&decisions.filters, &facts, &decisions.sets, last);
        if let Some((place, status)) = found {
            let reply = |status| self.outcome_of(&Reply { why: Why::Filter(place), ..Reply::refused(status) });
            explained.outcome = status.map_or(Outcome::Drop, reply);
        }
        found.is_some()
    }

    fn explain_rules(&self, explained: &mut Explained, handling: &Handling<'_, '_>, routing: &Routing<'_>) {
        let decisions = &self.policy.config.decisions;
        let facts = RequestFacts::of(self, handling, routing);
        let mut judged = judgements(&decisions.rules, &facts, &decisions.sets, decisions.rules.len());
        let ends = decisions.rules.iter().zip(&judged).position(|(rule, judged)| judged.holds && rule.action.ends);
        judged.truncate(ends.map_or(judged.len(), |place| place + 1));
        explained.rules = judged;
    }

    fn outcome_of(&self, reply: &Reply) -> Outcome {
        let because = match reply.why {
            Why::Rule(place) => self.policy.rule(place).map_or("a rule", |rule| &rule.name),
            Why::Filter(place) => self.policy.filter(place).map_or("a filter", |filter| &filter.name),
            Why::Text(text) => text,
            Why::Domain(_) => "a domain that is not ours",
            Why::Status | Why::Logged => status::reason(reply.status),
        };
        Outcome::Answer { status: reply.status, because: because.to_owned() }
    }

    fn forwarded_to(
        &self,
        explained: &Explained,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
        contacts: &Contacts,
        destination: &Destination,
    ) -> Outcome {
        let none = Decision::default();
        let decision = handling.progress.decision.as_deref().unwrap_or(&none);
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let place = |uri: String, targets: &Targets| {
            let at = |target: &strowger_core::Target| format!("{}:{}", target.transport.text(), target.address);
            PlaceView { uri, at: targets.iter().map(at).collect() }
        };
        let (to, otherwise): (Vec<PlaceView>, u16) = match destination {
            Destination::Contacts(targets) => {
                let entries = contacts.entries.iter().zip(targets);
                (entries.map(|(contact, at)| place(text(&contacts.text[contact.uri.clone()]), at)).collect(), 480)
            }
            Destination::Places(targets) => {
                (decision.to.iter().zip(targets).map(|(uri, at)| place(uri.clone(), at)).collect(), 500)
            }
            Destination::NextHop { targets, otherwise, .. } => {
                (vec![place(text(routing.uri_text), targets)], *otherwise)
            }
            Destination::FirstContact(_) => (Vec::new(), 404),
        };
        if explained.names.is_empty() && to.iter().all(|place| place.at.is_empty()) {
            return self.outcome_of(&Reply::not_found(otherwise));
        }
        let is_hop = matches!(destination, Destination::NextHop { .. });
        if decision.redirect && (!is_hop || decision.has_other_uri) {
            return Outcome::Redirect { contacts: to.into_iter().map(|place| place.uri).collect() };
        }
        let failures = decision.on_failure.iter().map(|failure| FailureView {
            statuses: failure.statuses.clone(),
            to: failure.to.clone(),
            answer: failure.answer,
        });
        Outcome::Forward(PlanView {
            to,
            try_next: decision.statuses().map(<[u16]>::to_vec),
            record_route: decision.record_route.unwrap_or(self.policy.config.proxy.record_route),
            track: request_begins_call(handling.request) && self.tracks(handling),
            ring_timeout: decision.ring_timeout,
            answer_timeout: decision.answer_timeout,
            add: text(&decision.add).lines().map(str::to_owned).collect(),
            remove: decision.remove.iter().map(|name| name.text().to_owned()).collect(),
            on_failure: failures.collect(),
        })
    }
}

fn request_begins_call(request: &Request<'_>) -> bool {
    request.method == Method::Invite && request.to_tag.is_empty()
}

fn judgements<A>(
    rules: &Rules<A>,
    facts: &RequestFacts<'_, '_>,
    sets: &strowger_rules::Sets,
    most: usize,
) -> Vec<Judgement> {
    let verdicts = rules.explain(facts, sets).verdicts.into_iter().take(most);
    let judgement = |verdict: strowger_rules::Verdict<'_>| Judgement {
        name: verdict.name.to_owned(),
        holds: verdict.matches,
        part: verdict.decider.split_whitespace().collect::<Vec<_>>().join(" "),
        part_holds: verdict.holds,
        values: verdict.values,
    };
    verdicts.map(judgement).collect()
}

impl fmt::Display for Judgement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sign = if self.holds { "yes" } else { "no" };
        write!(f, "{sign:<4}{}: {} is {}", self.name, self.part, self.part_holds)?;
        self.values.iter().try_for_each(|(name, value)| write!(f, ", {name} is {value}"))
    }
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, judged) in [("filter", &self.filters), ("rule", &self.rules)] {
            judged.iter().try_for_each(|judgement| writeln!(f, "{what:<8}{judgement}"))?;
        }
        self.names.iter().try_for_each(|name| writeln!(f, "name    {name} is looked up when a request goes there"))?;
        match &self.outcome {
            Outcome::Answer { status, because } => writeln!(f, "answer  {status}: {because}"),
            Outcome::Drop => writeln!(f, "drop    no answer"),
            Outcome::Register => writeln!(f, "answer  by the registrar"),
            Outcome::Redirect { contacts } => contacts.iter().try_for_each(|to| writeln!(f, "redirect to {to}")),
            Outcome::Forward(plan) => plan.fmt(f),
        }
    }
}

impl fmt::Display for PlanView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, place) in self.to.iter().enumerate() {
            let word = if n == 0 { "to" } else { "then" };
            let at = if place.at.is_empty() { String::new() } else { format!(" at {}", place.at.join(", ")) };
            writeln!(f, "{word:<8}{}{at}", place.uri)?;
        }
        if let Some(statuses) = &self.try_next {
            writeln!(f, "next    after {}", list(statuses))?;
        }
        for (word, time) in [("ring", self.ring_timeout), ("silence", self.answer_timeout)] {
            if let Some(time) = time {
                writeln!(f, "{word:<8}at most {time} ms")?;
            }
        }
        self.add.iter().try_for_each(|line| writeln!(f, "add     {line}"))?;
        self.remove.iter().try_for_each(|name| writeln!(f, "remove  {name}"))?;
        writeln!(f, "path    {}", if self.record_route { "record-route" } else { "not in the path" })?;
        if self.track {
            writeln!(f, "track   the call is tracked")?;
        }
        self.on_failure.iter().try_for_each(|failure| {
            let range = |(first, last): &(u16, u16)| match first == last {
                true => first.to_string(),
                false => format!("{first}-{last}"),
            };
            let statuses: Vec<String> = failure.statuses.iter().map(range).collect();
            let then = failure.answer.map_or_else(|| failure.to.join(", then "), |status| format!("answer {status}"));
            writeln!(f, "failure {}: {then}", statuses.join(", "))
        })
    }
}

fn list(statuses: &[u16]) -> String {
    statuses.iter().map(u16::to_string).collect::<Vec<_>>().join(", ")
}
