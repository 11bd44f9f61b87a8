//! The registration of an agent: kept up when its connection is lost, or a server could not keep it.

use super::Agent;
use super::caller::{Kind, Outcome, Sent};
use super::task::Task;
use strowger_core::{Now, Outbox};
use strowger_message::Method;

/// What an agent wants of its registrar.
#[derive(Debug)]
pub(super) struct Registration {
    pub(super) cseq: u32,
    /// Tag of From of each REGISTER; empty: each has its own.
    pub(super) tag: String,
    /// For how long it registered last, s; 0: it does not want to be reached.
    seconds: u32,
    /// A further REGISTER is planned.
    is_planned: bool,
    /// Failures in a row.
    failures: u32,
    /// After a failure.
    pub(super) tries_again: bool,
    /// Refreshes are sent after so many ms; 0: none.
    refresh: u64,
    /// No refresh is sent from then on.
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
    /// Registers this name at this moment, or takes the registration back with 0 seconds.
    pub fn plan_register(&mut self, at: u64, seconds: u32) {
        self.plan(at, Task::Register { seconds });
    }

    /// Once registered, it registers again and again, at half of the time that it asked for, until then.
    pub fn refresh_until(&mut self, until: u64) {
        self.registration.refresh = 1;
        self.registration.until = until;
    }

    pub(super) fn register(&mut self, now: Now, seconds: u32, out: &mut Outbox) {
        let Registration { tag, .. } = &self.registration;
        let mut sent = Sent::new(Kind::Register, format!("sip:{}@{}", self.name, self.domain), None);
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

    /// A REGISTER came to its end: not one that is followed by one with credentials.
    pub(super) fn registered(&mut self, now: Now, at: usize) {
        let is_last = self.sent[at].cseq == self.registration.cseq;
        let Registration { seconds, tries_again, .. } = self.registration;
        match self.sent[at].outcome {
            Some(Outcome::Success) => {
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

    /// Its connection was lost, or its process started again.
    pub(super) fn register_again(&mut self, now: Now) {
        if self.registration.seconds > 0 && self.registration.tries_again {
            let next = now.mono + self.random.between(50, 5_000);
            self.plan_registration(next);
        }
    }

    fn plan_registration(&mut self, at: u64) {
        let (is_planned, seconds) = (self.registration.is_planned, self.registration.seconds);
        // A refresh that is planned for later waits for nothing.
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

    /// A phone on a connection that it alone can make is lost with it, unless it lends the next one before it has registered.
    pub(crate) fn server_knows(&mut self, now: u64) {
        if self.line.is_one_way() && !self.line.alias {
            self.presence.server_knows(now);
        }
    }
}
