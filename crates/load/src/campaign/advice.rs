//! Troubles of a run, as sentences with a cure.

use super::plan::{Plan, Work};
use super::silence::Change;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use strowger_core::Transport;
use strowger_measure::{Counter, Failure, Run, Unit, grouped, several};
use strowger_message::Method;
use strowger_net::Snapshot;

/// Facts about a run beyond its figures.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub plan: &'a Plan,
    pub destination: Option<SocketAddr>,
    /// Socket counters of the calling sides.
    pub network: Snapshot,
    /// Calls that reached the answering side, if both ends are here.
    pub answered: Option<u64>,
    /// True if answers came and stopped, which was reported already.
    pub stopped: bool,
    /// Reason of the last failed handshake of TLS or WebSocket.
    pub handshake: Option<&'a str>,
}

impl Facts<'_> {
    /// Returns the troubles, the gravest first, or none for a run without failures.
    pub fn sentences(&self, run: &Run) -> Vec<String> {
        let totals = &run.totals;
        let failed = totals.counter(Counter::CallsFailed);
        let mut out = Vec::new();
        if self.plan.target.is_none() {
            return out;
        }
        let calls = totals.counter(Counter::CallsOutgoing);
        let cut = run.generators.iter().filter_map(|g| g.ending.as_ref()).any(|ending| ending.reason == super::CUT);
        if cut {
            out.push(format!(
                "{} still open at the end of the time: which message was missing? --timeout TIME ends a call \
                 whose answer does not come.",
                several(totals.counter(Counter::CallsStopped), "call")
            ));
        }
        if failed == 0 {
            if calls == 0 {
                out.push("No call was begun: the rate, the number of calls or the time leaves room for none.".into());
            }
            return out;
        }
        let place = self.destination.map_or_else(|| "the target".into(), |address| address.to_string());
        let transport = self.plan.transport.text();
        let refused = totals.failures(Failure::Refused);
        if refused > 0 {
            out.push(format!(
                "{}: nothing listens on {place} by {transport}, or there is no way to it: is the server running, and are address and port right?",
                several(refused, "call")
            ));
            if refused == failed {
                return out;
            }
        }
        if totals.counter(Counter::MessagesReceived) == 0 {
            out.push(self.silence(&place, transport));
            return out;
        }
        let mut codes: BTreeMap<u16, u64> = BTreeMap::new();
        for (_, code, count) in totals.responses_received().iter().filter(|(_, code, _)| *code >= 300) {
            *codes.entry(code).or_default() += count;
        }
        let count = |code: u16| codes.get(&code).copied().unwrap_or(0);
        let credentials = self.plan.users.iter().any(|user| !user.password.is_empty());
        let challenged = count(401) + count(407);
        let unauthenticated = totals.failures(Failure::Authentication);
        if challenged > 0 && !credentials && matches!(self.plan.work, Work::Ready(_)) {
            out.push(format!(
                "{place} asks for a password ({}): give --auth USER:PASSWORD, or --users FILE with a line user;password for each user.",
                several(challenged, "challenge")
            ));
        } else if credentials && unauthenticated > 0 {
            out.push(format!(
                "{place} challenged again after an answer to its challenge ({}): is the password right, and does the user belong to the \
                 domain? --domain NAME says which domain the users are of.",
                several(unauthenticated, "call")
            ));
        }
        let mut unknown = totals.responses_received().iter().filter(|(_, code, _)| *code == 404);
        let of_register = count(404) > 0 && unknown.all(|(method, ..)| method == Method::Register);
        for (code, sentence) in [
            (
                403,
                "The target does not allow the request: the source address or the user may be refused or banned, or the server relays for \
                 its own users alone.",
            ),
            (
                404,
                match of_register {
                    true => {
                        "The target does not know the domain or the user that registers: --domain NAME says which domain the users are of."
                    }
                    false => {
                        "The target does not know the called user: name a user as sip:USER@HOST, or let both ends run here with --pair."
                    }
                },
            ),
            (
                480,
                "The called user is not registered: register a phone, or let --callee USER:PASSWORD with --pair register and answer here.",
            ),
            (405, "The target does not take the method in question: choose another --workload."),
            (408, "The target did not reach the called user in time."),
            (
                486,
                "The called user was busy: a phone takes one call at a time, an answering generator many (`strowger load uas`).",
            ),
            (
                488,
                "The session that was offered is not one that the target takes: a document with another SDP (--scenario) may help.",
            ),
            (500, "The request met an error inside the server: its log knows more."),
            (501, "The target does not know the method in question: choose another --workload."),
            (
                503,
                "The request was refused for overload, or by a rate limiter: lower the rate, or lift the limit for the generator's addresses.",
            ),
        ] {
            if count(code) > 0 {
                out.push(format!("{sentence} ({} × {code})", grouped(count(code) as f64)));
            }
        }
        let redirected: u64 = codes.range(300..400).map(|(_, count)| count).sum();
        if redirected > 0 {
            out.push(format!(
                "The target redirected {}; ready workloads do not follow (RFC 3261 section 8.1.3.4).",
                several(redirected, "request")
            ));
        }
        if let Some(sentence) = turned(run) {
            out.push(sentence);
        }
        let silent = totals.failures(Failure::MaxUdpRetransmissions) + totals.failures(Failure::TimeoutOnReceive);
        if silent > 0 && !self.stopped {
            let reached = self.answered.filter(|reached| *reached < calls && self.plan.pair).map_or_else(
                String::new,
                |reached| {
                    format!(" Of {} {} reached the answering side.", several(calls, "call"), grouped(reached as f64))
                },
            );
            out.push(format!(
                "{} got no answer: the target was overloaded or stood still, or messages were lost.{reached}",
                several(silent, "call")
            ));
        }
        if self.network.connects_failed + self.network.handshakes_failed > 0 {
            out.push(self.silence(&place, transport));
        }
        out
    }

    /// Describes a run without any answer.
    fn silence(&self, place: &str, transport: &str) -> String {
        let network = &self.network;
        // No connection was complete.
        let unmade = network.handshakes_failed > 0 || (network.connected == 0 && network.connects_failed == 0);
        if unmade && self.plan.transport.is_secure() {
            let trust = match &self.plan.trust.authorities {
                Some(path) => format!(
                    " Its certificate must be of an authority in {}, and for the name that the target was given by.",
                    path.display()
                ),
                None => String::new(),
            };
            return match self.handshake {
                Some(why) if why.contains("certificate") => {
                    format!("The TLS handshake with {place} failed: {why}.{trust}")
                }
                Some(why) => {
                    format!("The TLS handshake with {place} failed ({why}): does it speak TLS on this port?{trust}")
                }
                None => format!("The TLS handshake with {place} failed: does it speak TLS on this port?{trust}"),
            };
        }
        if network.handshakes_failed > 0 {
            let why = self.handshake.map_or_else(String::new, |why| format!(" ({why})"));
            return format!(
                "The WebSocket handshake with {place} failed{why}: does it speak {transport} on this port?"
            );
        }
        if network.connects_failed > 0 {
            return format!(
                "No connection to {place} could be made: is the server running, and does it listen by {transport} on this port?"
            );
        }
        match self.plan.transport {
            Transport::Udp => format!(
                "Nothing came back from {place} at all: is the server running, does it listen there by UDP, does a firewall drop the datagrams, or is this address banned there?"
            ),
            _ => format!("Nothing came back from {place} over {transport} at all: does it speak SIP on this port?"),
        }
    }
}

/// Detects seconds of success followed by seconds with nothing but refusals, which shows that the calls met a limiter
/// or a ban.
fn turned(run: &Run) -> Option<String> {
    let names = strowger_measure::columns(&run.timers);
    let place = |name: &str| names.iter().position(|n| n == name);
    let (successful, sent, received) = (place("responses.2xx")?, place("messages.sent")?, place("messages.received")?);
    let value = |row: usize, column: usize| {
        run.rows.get(row).and_then(|r| r.values.get(column)).copied().filter(|v| v.is_finite()).unwrap_or(0.0)
    };
    let last = (0..run.rows.len()).rev().find(|row| value(*row, successful) > 0.0)?;
    let rest = last + 1..run.rows.len();
    let answered = rest.filter(|row| value(*row, sent) > 0.0 && value(*row, received) > 0.0).count();
    let after = run.rows[last].second - run.rows[0].second + run.step();
    (answered >= 3).then(|| {
        format!("After {after} s with answers every request was refused: a rate limiter or a ban between here and the server?")
    })
}

/// Describes a change of a target's state during the run.
pub(super) fn news(change: Change, place: &str, transport: Transport) -> String {
    let seconds = |time: Duration| Unit::Microseconds.show(time.as_micros() as f64);
    let number = |count: u64| grouped(count as f64);
    match change {
        Change::Silent { sent } => format!(
            "Nothing has come back from {place} yet ({} sent): is the server running, does it listen there by {}, does a \
             firewall drop what it sends, or is this address banned there?",
            several(sent, "message"),
            transport.via()
        ),
        Change::Stopped { after, at } => format!(
            "Answers from {place} stopped after {} messages, {} into the run: a rate limit or ban of this address (pike, fail2ban, \
             Strowger's [ban]), or the server stands still. Lift the limit for the generator's addresses, or spread the load over several \
             with --source.",
            number(after),
            seconds(at)
        ),
        Change::Again { silent } => format!("Answers from {place} come again after {}.", seconds(silent)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::User;
    use std::time::UNIX_EPOCH;
    use strowger_measure::{CallBook, CallOutcome, Clock, Collector, Ending, Heading, ShardRecorder};
    use strowger_message::Method;

    /// Creates a run of ten calls that fail with `failure`, each after `call` has recorded its events.
    fn run_of(failure: Failure, call: impl Fn(&mut ShardRecorder, &mut CallBook, u64)) -> Run {
        let clock = Clock::new(0, UNIX_EPOCH + Duration::from_secs(1_000));
        let mut collector = Collector::new(clock, vec![], 1);
        let mut recorder = collector.recorder(0);
        for number in 0..10 {
            let now = number * 1_000;
            recorder.calls_intended(1);
            let mut book = recorder.call_started(now, now, 0);
            call(&mut recorder, &mut book, now);
            recorder.call_ended(&mut book, now + 600, CallOutcome::Failed(failure));
        }
        recorder.close(20_000);
        let mut run = Run::new(Heading::default());
        collector.finish(|page| run.second(page));
        run
    }

    /// Creates a run of calls that are answered with this code, or with no response if the code is 0.
    fn run(code: u16) -> Run {
        let failure = if code == 0 { Failure::TimeoutOnReceive } else { Failure::UnexpectedMessage };
        run_of(failure, |recorder, book, now| {
            recorder.request_sent(book, now, Method::Invite, 100);
            if code > 0 {
                recorder.response_received(book, now + 500, Method::Invite, code, false, 100);
            }
        })
    }

    /// Creates a run of calls that register first, are challenged this often in both requests, and fail with `failure`.
    fn challenged(times: u64, failure: Failure) -> Run {
        run_of(failure, |recorder, book, now| {
            for (method, code) in [(Method::Register, 200), (Method::Invite, 404)] {
                for _ in 0..times {
                    recorder.request_sent(book, now, method, 100);
                    recorder.response_received(book, now, method, 401, false, 100);
                }
                recorder.request_sent(book, now, method, 100);
                recorder.response_received(book, now, method, code, false, 100);
            }
        })
    }

    fn advice(code: u16, change: impl FnOnce(&mut Plan, &mut Snapshot)) -> String {
        let mut plan = Plan::to("192.0.2.1".parse().unwrap());
        let mut network = Snapshot::default();
        change(&mut plan, &mut network);
        let destination = Some("192.0.2.1:5060".parse().unwrap());
        Facts { plan: &plan, destination, network, answered: None, stopped: false, handshake: None }
            .sentences(&run(code))
            .join("\n")
    }

    fn sentences(run: &Run) -> String {
        let mut plan = Plan::to("192.0.2.1".parse().unwrap());
        plan.users = vec![User { name: "alice".into(), password: "secret".into() }];
        let network = Snapshot::default();
        Facts { plan: &plan, destination: None, network, answered: None, stopped: false, handshake: None }
            .sentences(run)
            .join("\n")
    }

    #[test]
    fn a_challenge_of_each_request_says_nothing_of_the_password() {
        let once = sentences(&challenged(1, Failure::UnexpectedMessage));
        assert!(once.contains("does not know the called user") && !once.contains("password"), "{once}");
        assert!(sentences(&challenged(2, Failure::Authentication)).contains("is the password right"));
    }

    #[test]
    fn unfinished_calls_are_reported() {
        let mut open = run(200);
        assert!(!sentences(&open).contains("still open"));
        open.generators[0].ending = Some(Ending { at: 0, reason: super::super::CUT.into() });
        assert!(sentences(&open).contains("still open at the end of the time"), "{}", sentences(&open));
    }

    #[test]
    fn each_failure_has_a_sentence_that_helps() {
        for (code, part) in [
            (401, "--auth USER:PASSWORD"),
            (407, "--users FILE"),
            (403, "banned"),
            (404, "sip:USER@HOST"),
            (480, "--callee"),
            (503, "overload"),
            (302, "redirected 10"),
            (0, "Nothing came back from 192.0.2.1:5060"),
            (0, "or is this address banned there?"),
        ] {
            let text = advice(code, |_, _| ());
            assert!(text.contains(part), "{code}: {text}");
        }
        assert!(advice(0, |_, n| n.connects_failed = 1).contains("No connection"));
        let tls = advice(0, |plan, n| {
            plan.transport = Transport::Tls;
            n.handshakes_failed = 1;
        });
        let silent = advice(0, |plan, _| plan.transport = Transport::Tls);
        assert!(silent.contains("does it speak TLS"), "{silent}");
        assert!(tls.contains("TLS handshake with 192.0.2.1:5060 failed"), "{tls}");
        assert_eq!(advice(200, |_, _| ()), "");
    }
}
