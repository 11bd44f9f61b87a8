//! Registrations of the called side. They are made before the first call and removed after the last (RFC 3261 section
//! 10.2.2), so that no run leaves contacts at which nothing listens.

use super::facts::Facts;
use super::plan::Plan;
use super::remarks::Remarks;
use super::side::Side;
use crate::engine::traffic::{Event, Following, ShardCommand};
use crate::engine::watch::{Passage, Watch};
use std::fmt::Arguments;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};
use strowger_core::Transport;
use strowger_measure::{Clock, Collector, grouped};
use strowger_net::clock;

/// Time limit of the callee's registration.
const LONGEST: Duration = Duration::from_secs(40);

/// Last answer of the registrar: the code, and the text after it.
type RegistrarAnswer = Arc<Mutex<Option<(u16, String)>>>;

/// Registrations of a campaign.
pub(super) struct Registration {
    facts: Facts,
    answer: RegistrarAnswer,
    removal: Option<Removal>,
}

/// Removal in progress.
struct Removal {
    since: Instant,
    wanted: u64,
    removed: u64,
    over: bool,
    collector: Collector,
    events: Receiver<Event>,
}

struct AnswerWatch {
    answer: RegistrarAnswer,
    remarks: Option<Remarks>,
}

impl Watch for AnswerWatch {
    fn message(&mut self, passage: Passage, _: Transport, _: &[u8], bytes: &[u8]) {
        if passage == Passage::Received
            && let Some(answer) = final_answer(bytes)
        {
            *self.answer.lock().unwrap_or_else(|e| e.into_inner()) = Some(answer);
        }
    }

    fn warning(&mut self, text: Arguments<'_>) {
        if let Some(remarks) = &mut self.remarks {
            remarks.warning(text);
        }
    }
}

/// Returns code and reason of a final response to a REGISTER, followed by the text of its Warning, if present.
fn final_answer(bytes: &[u8]) -> Option<(u16, String)> {
    let text = bytes.strip_prefix(b"SIP/2.0 ")?;
    let text = String::from_utf8_lossy(text);
    let mut lines = text.lines();
    let status = lines.next()?.trim_end();
    let code = status.split(' ').next()?.parse().ok().filter(|code| *code >= 200)?;
    let header = |name: &str| {
        let value = |line: &str| line.get(..name.len()).filter(|start| start.eq_ignore_ascii_case(name)).map(str::len);
        text.lines().take_while(|line| !line.is_empty()).find_map(|line| line.get(value(line)?..))
    };
    header("CSeq:")?.trim_end().ends_with("REGISTER").then(|| {
        let warning = header("Warning:").and_then(|value| Some(value.split_once('"')?.1.rsplit_once('"')?.0));
        (code, warning.map_or_else(|| status.to_owned(), |warning| format!("{status} ({warning})")))
    })
}

impl Registration {
    pub(super) fn new(facts: Facts) -> Self {
        Self { facts, answer: RegistrarAnswer::default(), removal: None }
    }

    /// Creates the watch that receives the answers of the registrar.
    pub(super) fn watch(&self, remarks: Option<Remarks>) -> Box<dyn Watch> {
        Box::new(AnswerWatch { answer: self.answer.clone(), remarks })
    }

    fn answered(&self) -> Option<(u16, String)> {
        self.answer.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    /// Waits until the callee is registered.
    ///
    /// # Errors
    /// The reason why the callee is not registered, with a cure. Its registration is then removed, as far as that is
    /// possible without waiting.
    pub(super) fn wait(
        &mut self,
        side: &mut Side,
        collector: &mut Collector,
        plan: &Plan,
        stopped: &dyn Fn() -> bool,
    ) -> Result<(), String> {
        let until = Instant::now() + LONGEST;
        while side.stats.is_none() && Instant::now() < until && !stopped() {
            std::thread::sleep(Duration::from_millis(2));
            collector.poll(clock::micros(), |_| {});
            while let Ok(event) = side.events.try_recv() {
                if let Event::Finished(stats) = event {
                    side.stats = Some(*stats);
                }
            }
        }
        if side.stats.take().is_some_and(|stats| stats.successful > 0) {
            return Ok(());
        }
        let connections = side.counters().connects_failed + side.counters().handshakes_failed;
        let answer = self.answered();
        if stopped() || (connections == 0 && answer.is_none()) {
            // The users may be registered, although no answer came.
            self.remove_within(side, plan, HASTE);
        }
        Err(refused(plan, connections > 0, answer))
    }

    /// Begins to remove the registrations.
    pub(super) fn remove(&mut self, side: &mut Side, plan: &Plan) {
        if self.removal.is_some() {
            return;
        }
        // Counters at the end of the run, which later events must not change.
        let stats = side.report();
        let wanted = self.facts.registered(plan, &stats);
        side.stats = Some(stats);
        let now = clock::micros();
        let collector = Collector::new(Clock::new(now, SystemTime::now()), Vec::new(), 1);
        let (told, events) = channel();
        let mut removal = Removal { since: Instant::now(), wanted, removed: 0, over: wanted == 0, collector, events };
        if !removal.over {
            *self.answer.lock().unwrap_or_else(|e| e.into_inner()) = None;
            match self.facts.removal(plan, side.address, wanted) {
                Ok((run, script)) => {
                    let recorder = removal.collector.recorder(now);
                    side.send_command(ShardCommand::Follow(Box::new(Following {
                        run,
                        script,
                        recorder,
                        events: told,
                    })));
                }
                Err(_) => removal.over = true,
            }
        }
        self.removal = Some(removal);
    }

    pub(super) const fn has_begun_to_remove(&self) -> bool {
        self.removal.is_some()
    }

    /// Returns whether all registrations are removed, or the time limit is over.
    pub(super) fn is_over(&mut self, patience: Duration) -> bool {
        let Some(removal) = &mut self.removal else { return false };
        removal.collector.poll(clock::micros(), |_| {});
        while let Ok(event) = removal.events.try_recv() {
            if let Event::Finished(stats) = event {
                (removal.removed, removal.over) = (stats.successful, true);
            }
        }
        removal.over || removal.since.elapsed() >= patience
    }

    /// Removes the registrations and waits for that no longer than `patience`.
    pub(super) fn remove_within(&mut self, side: &mut Side, plan: &Plan, patience: Duration) {
        self.remove(side, plan);
        while !self.is_over(patience) {
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns a sentence about registrations that remain at the registrar.
    pub(super) fn remains(&self, plan: &Plan) -> Option<String> {
        let removal = self.removal.as_ref()?;
        let left = removal.wanted.saturating_sub(removal.removed);
        if left == 0 {
            return None;
        }
        let (whose, end) = match &self.facts.callee {
            Some(callee) => (format!("The registration of {} was", callee.name), "it ends"),
            None if removal.over => (format!("{} registrations were", grouped(left as f64)), "each ends"),
            // The number of removals is known only at the end.
            None => ("Registrations were".into(), "each ends"),
        };
        let why = match self.answered() {
            Some((300.., answer)) => format!("the registrar answered {answer}"),
            _ => "the registrar did not answer in time (--grace)".into(),
        };
        Some(format!("{whose} not removed: {why}; {end} {} s after it was made (--expires)", plan.expires))
    }
}

/// Time limit of the removal for a run that cannot begin, or that must end immediately.
pub(super) const HASTE: Duration = Duration::from_millis(300);

/// Returns the reason why the callee is not registered, with a cure.
fn refused(plan: &Plan, unconnected: bool, answer: Option<(u16, String)>) -> String {
    let (name, secret) = plan.callee.as_ref().map_or(("the callee", false), |u| (&*u.name, !u.password.is_empty()));
    let domain = plan.domain.as_deref().or_else(|| plan.target.as_ref().map(|t| t.host.as_str())).unwrap_or_default();
    let why = match &answer {
        _ if unconnected => "no connection to the target can be made".to_owned(),
        None => "the target did not answer its REGISTER".into(),
        Some((code, answer)) => {
            let cure = match code {
                401 | 407 if !secret => format!(": it asks for a password, give --callee {name}:PASSWORD"),
                401 | 407 => format!(
                    ": is the password right (--callee {name}:PASSWORD), and is {domain} the domain of {name} (--domain NAME)?"
                ),
                404 => format!(": is there a user {name}, and is {domain} a domain of the target (--domain NAME)?"),
                403 => format!(
                    ": it has too many contacts of {name} perhaps, or takes no registrations for {domain} (--domain NAME) or from here; its log \
                     may say why"
                ),
                _ => "; its log may say why".into(),
            };
            format!("the target answered {answer}{cure}")
        }
    };
    format!("{name} could not be registered: {why}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::User;

    #[test]
    fn the_answer_of_a_registrar_is_named_and_a_password_only_where_it_was_asked_for() {
        let heard = |status: &str, rest: &str| {
            final_answer(format!("SIP/2.0 {status}\r\nVia: x\r\ncseq: 2 REGISTER\r\n{rest}\r\n").as_bytes())
        };
        assert_eq!(heard("100 Trying", ""), None);
        assert_eq!(final_answer(b"SIP/2.0 200 OK\r\nCSeq: 1 INVITE\r\n\r\n"), None);
        assert_eq!(final_answer(b"REGISTER sip:a SIP/2.0\r\nCSeq: 1 REGISTER\r\n\r\n"), None);
        let mut plan = Plan::to("192.0.2.1".parse().expect("a target"));
        for (password, status, header, parts, password_named) in [
            (
                "x",
                "403 Forbidden",
                "Warning: 399 a \"too many contacts\"\r\n",
                "403 Forbidden (too many contacts): it has",
                false,
            ),
            ("x", "401 Unauthorized", "", "is the password right", true),
            ("", "407 Proxy Authentication Required", "", "it asks for a password", true),
            ("x", "404 Not Found", "", "is there a user bob", false),
        ] {
            plan.callee = Some(User { name: "bob".into(), password: password.into() });
            let text = refused(&plan, false, heard(status, header));
            assert!(text.contains(parts) && text.contains(status), "{text}");
            assert_eq!(text.contains("password"), password_named, "{text}");
        }
        assert!(refused(&plan, false, None).contains("did not answer"));
        assert!(refused(&plan, true, None).contains("no connection"));
    }
}
