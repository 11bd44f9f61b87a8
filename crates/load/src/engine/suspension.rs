//! Calls that wait for the helper: for the address of `setdest`, or for the files of a message. Such a call sends
//! nothing new, and takes no message at a step that sends one.

use super::call::Leaving;
use super::call_runner::{CallRunner, Progress};
use super::helper::{HelperResult, WaitingCall};
use super::script::Line;
use strowger_measure::{CallOutcome, Failure};
use strowger_scenario::Template;
use strowger_scenario::step::StepKind;

/// Maximum number of messages kept for a suspended call. Further messages are dropped, as by a full socket.
const HELD: usize = 64;

impl CallRunner<'_> {
    fn place(&self) -> WaitingCall {
        WaitingCall { slot: self.slot, generation: self.call.generation, number: 0 }
    }

    /// Suspends the call until the helper has done work `number`. `None`: the helper has too much work, and the call
    /// has failed. Returns false then.
    fn suspend(&mut self, number: Option<u64>, what: std::fmt::Arguments<'_>) -> bool {
        let Some(number) = number else {
            self.warn_call(format_args!("{what}: too much such work waits"));
            self.finish(CallOutcome::Failed(Failure::CannotSendMessage));
            return false;
        };
        self.call.extra().awaited = number;
        true
    }

    /// Begins to look up the name of `setdest`; the answer redirects the call. Returns false if the call has failed.
    pub(super) fn look_up_host(&mut self, host: &str, port: u16) -> bool {
        let number = self.shard.helper.look_up(self.place(), host, port);
        self.suspend(number, format_args!("'{host}' is not looked up for setdest"))
    }

    /// Ignores the pending answer of the helper, because another target was set.
    pub(super) fn resume(&mut self) {
        if let Some(extra) = &mut self.call.extra {
            extra.awaited = 0;
        }
    }

    /// Returns whether the call waits for the helper.
    pub(super) fn is_suspended(&self) -> bool {
        self.call.extra.as_ref().is_some_and(|extra| extra.awaited != 0)
    }

    /// Returns whether the next work of a suspended call has to wait. This work is a message to send, or the end of the
    /// call.
    pub(super) fn is_held_up(&self) -> bool {
        self.is_suspended()
            && self.call.paused_until == 0
            && !self.call.counted
            && self.call.leaving == Leaving::No
            && matches!(self.step().map(|step| &step.kind), Some(StepKind::Send(_)) | None)
    }

    /// Returns whether the files of a message are read. Otherwise the helper reads them, or the call has failed.
    #[cold]
    pub(super) fn has_files(&mut self, line: &Line) -> bool {
        if self.call.extra.as_ref().is_some_and(|extra| !extra.files.is_empty()) {
            return true;
        }
        let name = |template: &Template| {
            let name = self.text(template);
            let path = String::from_utf8_lossy(&name).into_owned();
            self.shard.pool.give(name);
            path
        };
        let paths = line.files.iter().map(name).collect();
        let number = self.shard.helper.read(self.place(), paths);
        self.suspend(number, format_args!("the files of a message are not read"));
        false
    }

    /// Keeps a message of a suspended call, as the socket would.
    #[cold]
    pub(super) fn hold(&mut self, bytes: &[u8]) {
        let held = &mut self.call.extra().held;
        if held.len() < HELD {
            return held.push(bytes.to_vec());
        }
        self.warn_call(format_args!("a message is dropped: {HELD} others wait for the helper"));
    }

    /// Takes the answer of the helper, and proceeds with the work that waited for it.
    pub(super) fn helped(&mut self, number: u64, answer: HelperResult) -> Progress {
        if self.call.extra.as_ref().is_none_or(|extra| extra.awaited != number) {
            return Progress::Waits;
        }
        let is_held_up = self.is_held_up();
        self.resume();
        match answer {
            // The failed reconnection was reported.
            HelperResult::Address { address: Some(address), .. } if !self.redirect(address) => return Progress::Over,
            HelperResult::Files { files, .. } => self.call.extra().files = files,
            _ => (),
        }
        let mut progress = if is_held_up { self.drive() } else { Progress::Waits };
        let mut held = std::mem::take(&mut self.call.extra().held).into_iter();
        while progress == Progress::Waits
            && let Some(message) = held.next()
        {
            // A call that is suspended again keeps its messages.
            let _ = self.shard.index.parse(&message, &self.shard.limits);
            self.shard.parsed = None;
            progress = self.receive(&message);
        }
        progress
    }
}
