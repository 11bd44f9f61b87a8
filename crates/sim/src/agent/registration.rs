//! Registration of an agent: renewed when its connection is lost, or a server could not store it.

use super::Agent;
use super::caller::{Sent, SentKind, SentOutcome};
use super::task::Task;
use strowger_core::{Now, Outbox};
use strowger_message::Method;

/// Registration state of an agent.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) cseq: u32,
    /// From tag of all REGISTER requests; if empty, each has its own.
    pub(super) tag: String,
    /// Seconds of the last registration; 0 if it does not want to be reached.
    seconds: u32,
    /// True if a further REGISTER is planned.
    is_planned: bool,
    /// Failures in a row.
    failures: u32,
    /// True if the agent retries after a failure.
    pub(super) tries_again: bool,
    /// Interval of refreshes in ms; 0 for none.
    refresh: u64,
    /// Time after which no refresh is sent.
    until: u64,
}

impl Default for Registration {
    fn default() -> Self {
        Self {
            cseq: 0,
            tag: String::new(),
            seconds: 0,
            is_planned: false,
            failures: 0,
            tries_again: true,
            refresh: 0,
            until: 0,
        }
    }
}

/// Failures in a row after which a phone gives up.
const MOST_FAILURES: u32 = 40;

impl Agent {
    /// Registers at this moment, or unregisters with 0 seconds.
    pub fn plan_register(&mut self, at: u64, seconds: u32) {
        self.plan(at, Task::Register { seconds });
    }

    /// Refreshes the registration at half of its requested time, until this moment.
    pub fn refresh_until(&mut self, until: u64) {
        self.registration.refresh = 1;
        self.registration.until = until;
    }

    pub(super) fn register(&mut self, now: Now, seconds: u32, out: &mut Outbox) {
        let Registration { tag, .. } = &self.registration;
        let mut sent = Sent::new(SentKind::Register, format!("sip:{}@{}", self.name, self.domain), None);
        sent.call_id = format!("register-{}@{}", self.name, self.line.address.ip());
        sent.tag.clone_from(tag);
        self.registration.cseq += 1;
        sent.cseq = self.registration.cseq;
        sent.lines = format!("Expires: {seconds}\r\n");
        (self.registration.seconds, self.registration.is_planned) = (seconds, false);
        if seconds == 0 {
            self.presence.ends(now.mono);
        }
        self.sent.push(sent);
        self.start(now, self.sent.len() - 1, Method::Register, out);
    }

    /// Handles the final response to a REGISTER, unless one with credentials follows.
    pub(super) fn registered(&mut self, now: Now, at: usize) {
        let is_last = self.sent[at].cseq == self.registration.cseq;
        let Registration { seconds, tries_again, .. } = self.registration;
        match self.sent[at].outcome {
            Some(SentOutcome::Success) => {
                self.registration.failures = 0;
                if is_last && seconds > 0 {
                    self.presence.begins(now.mono);
                    let next = now.mono + u64::from(seconds) * 500;
                    if self.registration.refresh > 0 && next < self.registration.until {
                        self.plan_registration(next);
                    }
                }
            }
            Some(_) if tries_again && is_last && self.registration.failures < MOST_FAILURES => {
                self.registration.failures += 1;
                let next = now.mono + self.random.between(1_000, 8_000);
                self.plan_registration(next);
            }
            _ => (),
        }
    }

    /// Plans a registration after its connection was lost or its process restarted.
    pub(super) fn register_again(&mut self, now: Now) {
        if self.registration.seconds > 0 && self.registration.tries_again {
            let next = now.mono + self.random.between(50, 5_000);
            self.plan_registration(next);
        }
    }

    fn plan_registration(&mut self, at: u64) {
        let (is_planned, seconds) = (self.registration.is_planned, self.registration.seconds);
        // A refresh that is planned for later is replaced.
        if is_planned {
            let is_refresh = |task: &Task| matches!(task, Task::Refresh { .. });
            self.tasks.retain(|(due, _), task| !is_refresh(task) || *due <= at);
            if self.tasks.values().any(is_refresh) {
                return;
            }
        }
        self.registration.is_planned = true;
        self.plan(at, Task::Refresh { seconds });
    }

    /// Records that the server of the phone knows of the lost connection. A phone that only its own connection reaches is
    /// lost with the connection, unless `alias` in its Via lets the server use the next connection before a registration.
    pub(crate) fn server_knows(&mut self, now: u64) {
        if self.line.is_one_way() && !self.line.alias {
            self.presence.server_knows(now);
        }
    }
}
