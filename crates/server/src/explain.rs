//! Explanation of a request: it passes the same stages as any other request, but has no effect.
//!
//! The load of limits is not known in advance. So a request that counts under limits is evaluated again for each of
//! these limits, as if that limit were full.

use crate::contacts::Contacts;
use crate::decider::Decider;
use crate::destination::{Destination, RuleTargetAddresses};
use crate::edits::Edits;
use crate::engine::Engine;
use crate::forwarding::Onward;
use crate::handling::{Handling, Progress};
use crate::proof::{Proof, User};
use crate::question::{Question, Resolved};
use crate::reply::{Counted, Reply, Why};
use crate::request_facts::RequestFacts;
use crate::rule_trace::{TraceRequest, rule_results};
use crate::stage::{Stage, Verdict};
use strowger_core::digest::{ChallengeHeader, Credentials};
use strowger_core::routing::{Request, Routing};
use strowger_core::shown::shown;
use strowger_core::{Arrival, Now, Outbox};
use strowger_message::{Index, Message, Method, Name, status};
use strowger_store::subscriber;

pub use crate::explained::{Course, Explained, ExplainedOutcome, FailedView, IfFull};
pub use crate::plan_view::{BridgeView, FailureView, GroupView, LimitView, PlaceView, PlanView};
pub use crate::rule_trace::RuleResult;

/// Maximum number of cases of full limits that are followed.
const CASES: usize = 32;

/// Request to explain.
#[derive(Clone, Copy)]
struct Asked<'a> {
    now: Now,
    arrival: &'a Arrival,
    bytes: &'a [u8],
    proven: bool,
    users: Users<'a>,
}

/// Function that tells whether a domain has a user, by the names of user and domain; `None` if this is not known.
pub type Users<'a> = &'a dyn Fn(&[u8], &[u8]) -> Option<bool>;

impl Engine {
    /// Explains the treatment of a request that arrives here. `proven`: its sender has proved the password of the user
    /// named by its credentials. `users`: used in place of the database of subscribers.
    ///
    /// # Errors
    /// The request cannot be read, or begins nothing. The text has the reason.
    pub fn explain(
        &self,
        now: Now,
        arrival: &Arrival,
        bytes: &[u8],
        proven: bool,
        users: Users<'_>,
    ) -> Result<Explained, String> {
        self.decider().explain(Asked { now, arrival, bytes, proven, users })
    }
}

impl Decider<'_> {
    fn explain(&self, asked: Asked<'_>) -> Result<Explained, String> {
        let mut filters = Vec::new();
        let course = self.course(asked, &[], &mut filters)?;
        let mut explained = Explained { filters, course, if_full: Vec::new(), more: false };
        let open = limits_of(&explained.course, &[]);
        self.explain_full(asked, &[], open, &mut Vec::new(), &mut explained)?;
        Ok(explained)
    }

    /// Evaluates a request again with each of these limits full in turn. `full`: limits that are full in any case.
    /// `free`: limits that have room.
    fn explain_full(
        &self,
        asked: Asked<'_>,
        full: &[String],
        limits: Vec<String>,
        free: &mut Vec<String>,
        explained: &mut Explained,
    ) -> Result<(), String> {
        let before = free.len();
        for limit in limits {
            if explained.if_full.len() == CASES {
                explained.more = true;
                break;
            }
            let full = [full, std::slice::from_ref(&limit)].concat();
            let course = self.course(asked, &full, &mut Vec::new())?;
            let open = limits_of(&course, free);
            explained.if_full.push(IfFull { limits: full.clone(), course });
            self.explain_full(asked, &full, open, free, explained)?;
            free.push(limit);
        }
        free.truncate(before);
        Ok(())
    }

    /// Returns the course of a request while limits with these names are full.
    fn course(&self, asked: Asked<'_>, full: &[String], filters: &mut Vec<RuleResult>) -> Result<Course, String> {
        let trace_request = TraceRequest { full: full.to_vec(), ..TraceRequest::default() };
        let mut progress = Progress { trace_request: Some(Box::new(trace_request)), ..Progress::new(asked.now) };
        let (names, users, failed) = (Vec::new(), Vec::new(), Vec::new());
        let mut course = Course { rules: Vec::new(), uri: None, failed, names, users, outcome: ExplainedOutcome::Drop };
        self.follow(&mut course, filters, asked, &mut progress)?;
        course.rules = progress.trace_request.map_or(Vec::new(), |trace_request| trace_request.path.into_inner());
        Ok(course)
    }

    fn follow(
        &self,
        course: &mut Course,
        filters: &mut Vec<RuleResult>,
        asked: Asked<'_>,
        progress: &mut Progress,
    ) -> Result<(), String> {
        let Asked { now, arrival, bytes, proven, users } = asked;
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
        if handling.progress.decision.as_ref().is_some_and(|decision| decision.has_other_uri) {
            course.uri = Some(String::from_utf8_lossy(routing.uri_text).into_owned());
        }
        if handling.progress.stage == Stage::Address {
            // A scanner is dropped before any filter.
            let agent = request.message.header(Name::UserAgent);
            if agent.is_some_and(|agent| self.policy.bans.is_scanner(agent)) {
                return Ok(());
            }
            if let Some(outcome) = self.explain_filters(filters, &handling, &routing) {
                course.outcome = outcome;
                return Ok(());
            }
            if request.method == Method::Register && self.is_for_registrar(now, &request) {
                course.outcome = ExplainedOutcome::Register;
                return Ok(());
            }
        }
        let judged = |verdict| match verdict {
            Verdict::Reply(Reply { counted: Counted::Challenge, .. }) | Verdict::Ask(_) if proven => {
                Verdict::Admit(Proof { user: Some(self.named_user(&request)), ..Proof::default() })
            }
            verdict => verdict,
        };
        // The action after a failure is applied before its stage runs again.
        let mut decided = None;
        loop {
            let verdict = if let Some(verdict) = decided.take() {
                verdict
            } else {
                match handling.progress.stage {
                    Stage::Address => self.address(&handling, &routing),
                    Stage::Authorize => judged(self.authorize(&handling, &routing)),
                    Stage::Decide => judged(self.decide(&handling, &routing)),
                    Stage::Route => {
                        let by_role = self.role_verdict(&handling).filter(|verdict| *verdict != Verdict::Bridge);
                        by_role.unwrap_or_else(|| {
                            let first = self.first_destination(&handling, &routing, &mut contacts);
                            let refusal = if let Verdict::Reply(reply) = &first { Some(*reply) } else { None };
                            let verdict = self.with_failures(&handling, first);
                            let refusal = refusal.filter(|_| matches!(verdict, Verdict::Decide(_)));
                            course.failed.extend(refusal.map(|reply| self.failed(&request, &reply)));
                            verdict
                        })
                    }
                    Stage::Register => {
                        course.outcome = ExplainedOutcome::Register;
                        return Ok(());
                    }
                    Stage::Acknowledge => return Err("an ACK goes where its INVITE went".to_owned()),
                }
            };
            match verdict {
                Verdict::Next(stage) => handling.progress.stage = stage,
                Verdict::Admit(proof) => {
                    if let Some(refused) = proof.user.as_ref().and_then(|user| self.claims_another(&request, user)) {
                        course.outcome = refused;
                        return Ok(());
                    }
                    let is_asked = !proof.in_dialog && self.has_rules();
                    handling.progress.proof = proof;
                    handling.progress.stage = if is_asked { Stage::Decide } else { Stage::Route };
                }
                Verdict::Decide(mut decision) => {
                    handling.progress.stage = Stage::Route;
                    if decision.edits_uri() {
                        let bytes = decision.change_user(&request, &routing);
                        handling.progress.decision = Some(decision);
                        return self.follow(course, filters, Asked { bytes: &bytes, ..asked }, handling.progress);
                    }
                    handling.progress.decision = Some(decision);
                }
                Verdict::Ask(Question::Name(key)) => {
                    course.names.push(String::from_utf8_lossy(&key.0).into_owned());
                    handling.progress.answers.names.push((key, Resolved::default()));
                }
                Verdict::Ask(Question::User { username, domain, place }) => {
                    let exists = users(&username, &domain);
                    if exists.is_none() {
                        course.users.push(format!("{}@{}", shown(&username), shown(&domain)));
                    }
                    let (there, absent) = (subscriber::SubscriberAnswer::Exists, subscriber::SubscriberAnswer::Absent);
                    let answer = if exists == Some(false) { absent } else { there };
                    handling.progress.answers.user = Some((place, Ok(answer)));
                }
                Verdict::Ask(Question::Credential { .. }) => {
                    handling.progress.answers.credential = Some(Ok(subscriber::SubscriberAnswer::Absent));
                }
                Verdict::Ask(Question::Registered { .. }) => handling.progress.answers.registered = Some(Ok(None)),
                Verdict::Register(..) => {
                    course.outcome = ExplainedOutcome::Register;
                    return Ok(());
                }
                Verdict::Reply(reply) => {
                    course.outcome = self.outcome_of(&request, &reply);
                    if let (ExplainedOutcome::Answer { because, .. }, false) =
                        (&mut course.outcome, course.users.is_empty())
                    {
                        because.push_str("; 404 if there is no such user");
                    }
                    return Ok(());
                }
                Verdict::Answer => {
                    let decision = handling.progress.decision.as_deref();
                    let name = decision.map_or("", |decision| decision.sound.word());
                    course.outcome = ExplainedOutcome::Endpoint { name };
                    return Ok(());
                }
                Verdict::Forward(destination) => {
                    let onward = match self.onward(&handling, &routing, &destination) {
                        // A name that was not looked up may have an address, and a user may have a phone.
                        Onward::Reply(_) | Onward::Decide(..)
                            if lacks_names(course, &destination) || leads_to_user(&destination) =>
                        {
                            self.session_timer(&handling).map_or_else(Onward::Reply, Onward::Forward)
                        }
                        onward => onward,
                    };
                    course.outcome = match onward {
                        Onward::Reply(reply) => self.outcome_of(&request, &reply),
                        Onward::Decide(next, reply) => {
                            course.failed.push(self.failed(&request, &reply));
                            decided = Some(Verdict::Decide(next));
                            continue;
                        }
                        Onward::Redirect => {
                            let places = places(*self, &handling, &routing, &contacts, &destination);
                            let is_place = matches!(destination, Destination::Places(_));
                            let contact = |to: PlaceView| {
                                let with_user = routing.at_place(to.uri.as_bytes()).filter(|_| is_place);
                                with_user.map_or(to.uri, |uri| String::from_utf8_lossy(&uri).into_owned())
                            };
                            ExplainedOutcome::Redirect { contacts: places.into_iter().map(contact).collect() }
                        }
                        Onward::Forward(timer) => {
                            let places = places(*self, &handling, &routing, &contacts, &destination);
                            ExplainedOutcome::Forward(Box::new(self.plan_view(
                                &handling,
                                &Edits::of(&handling, &timer),
                                places,
                            )))
                        }
                    };
                    return Ok(());
                }
                // No name was looked up, so no Route names this server by a looked-up name. The stage of routing gives the destination of
                // a bridged call, not the bridge.
                Verdict::TakeOffRoutes | Verdict::Bridge | Verdict::Drop => return Ok(()),
            }
        }
    }

    /// Returns the user that the credentials of a request name, whether or not it exists. A name without a domain
    /// belongs to the domain of From.
    fn named_user(&self, request: &Request<'_>) -> User {
        let realm = self.policy.realms.judging(self.policy.identity(), request, ChallengeHeader::ProxyAuthenticate);
        let shown = request.message.headers(Name::ProxyAuthorization);
        let mut credentials = shown.filter_map(|value| Credentials::parse(value).ok());
        let judged = credentials.find(|credentials| credentials.realm.value()[..] == *realm.as_bytes());
        let username = judged.as_ref().and_then(Credentials::user).unwrap_or_default();
        let name = self.account(&username, realm).name;
        let mut domain = username[name.len()..].to_ascii_lowercase();
        if domain.is_empty() {
            domain.push(b'@');
            request.mandatory.from.uri.sip().into_iter().for_each(|uri| uri.host.write_lower(&mut domain));
        }
        User { name: name.into(), domain: self.policy.identity().canonical_domain(&domain[1..]).into() }
    }

    /// Returns the outcome for a request whose sender has proved the password of this user, but names another user.
    fn claims_another(&self, request: &Request<'_>, user: &User) -> Option<ExplainedOutcome> {
        if !self.policy.config.auth.user_must_match {
            return None;
        }
        let party = &request.mandatory.from.uri;
        let username = String::from_utf8_lossy(&user.name);
        self.claims_only(ChallengeHeader::ProxyAuthenticate, party, user).err()?;
        let because = format!("authenticated as {username}, but From names another user or number (auth.identities)");
        Some(ExplainedOutcome::Answer { status: 403, because })
    }

    /// Evaluates the filters. Returns the outcome if a filter ends the request.
    fn explain_filters(
        &self,
        filters: &mut Vec<RuleResult>,
        handling: &Handling<'_, '_>,
        routing: &Routing<'_>,
    ) -> Option<ExplainedOutcome> {
        let decisions = &self.policy.config.decisions;
        if decisions.filters.is_empty() || self.is_emergency(handling.now, handling.request, routing) {
            return None;
        }
        let facts = RequestFacts::of(*self, handling, routing);
        let found = self.filter(handling);
        let last = found.map_or(decisions.filters.len(), |(place, _)| place + 1);
        *filters = rule_results(&decisions.filters, &facts, &decisions.sets, last);
        let (place, status) = found?;
        let reply =
            |status| self.outcome_of(handling.request, &Reply { why: Why::Filter(place), ..Reply::refused(status) });
        Some(status.map_or(ExplainedOutcome::Drop, reply))
    }

    fn outcome_of(&self, request: &Request<'_>, reply: &Reply) -> ExplainedOutcome {
        ExplainedOutcome::Answer { status: reply.status, because: self.reason_of(request, reply).to_owned() }
    }

    fn failed(&self, request: &Request<'_>, reply: &Reply) -> FailedView {
        FailedView { status: reply.status, because: self.reason_of(request, reply).to_owned() }
    }

    fn reason_of(&self, request: &Request<'_>, reply: &Reply) -> &str {
        match reply.why {
            Why::Rule(place) => self.policy.rule(place).map_or("a rule", |rule| &rule.name),
            Why::Filter(place) => self.policy.filter(place).map_or("a filter", |filter| &filter.name),
            Why::Limit(place) => {
                self.policy.config.call_limits.get(place).map_or("a call limit", |limit| limit.name.as_str())
            }
            Why::Text(text) => text,
            Why::Domain(party) => {
                let host = party.uri(request).sip().map(|uri| uri.host);
                host.and_then(|host| self.foreign_domain(host)).unwrap_or("a domain that is not ours")
            }
            Why::Status | Why::Logged => status::reason(reply.status),
        }
    }
}

/// Returns the limits under which a call counts on this course, except those that are `free`.
fn limits_of(course: &Course, free: &[String]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let of_rules = course.rules.iter().flat_map(|rule| &rule.limits);
    // The limits of the failure in use count too.
    let plan = if let ExplainedOutcome::Forward(plan) = &course.outcome { &plan.limits[..] } else { &[] };
    for name in of_rules.chain(plan.iter().map(|limit| &limit.name)) {
        if !names.contains(name) && !free.contains(name) {
            names.push(name.clone());
        }
    }
    names
}

/// Tells whether a request has nowhere to go because names were not looked up.
fn lacks_names(course: &Course, destination: &Destination) -> bool {
    !course.names.is_empty() && destination.unreachable().is_some()
}

/// Tells whether a request goes to a user whom a rule names.
fn leads_to_user(destination: &Destination) -> bool {
    let is_user = |targets: &RuleTargetAddresses| matches!(targets, RuleTargetAddresses::User(_));
    matches!(destination, Destination::Places(places) if places.iter().any(is_user))
}

/// Returns the places of a destination.
fn places(
    decider: Decider<'_>,
    handling: &Handling<'_, '_>,
    routing: &Routing<'_>,
    contacts: &Contacts,
    destination: &Destination,
) -> Vec<PlaceView> {
    match destination {
        Destination::Contacts(targets) => {
            PlaceView::several(contacts.entries.iter().map(|contact| &contacts.text[contact.uri.clone()]), targets)
        }
        Destination::Places(targets) => decider.open_places(handling, targets),
        Destination::NextHop { targets, .. } => vec![PlaceView::new(routing.uri_text, targets)],
        Destination::FirstContact(_) => Vec::new(),
    }
}
