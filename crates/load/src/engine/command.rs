//! Commands between the controllers of third party call control: `sendCmd` and `recvCmd`.

use super::call_runner::{CallRunner, Progress, StepResult};
use super::watch::Passage;
use crate::command;
use strowger_measure::{CallOutcome, Failure};
use strowger_scenario::step::{Optional, PeerIndex, Step, StepKind};

impl CallRunner<'_> {
    pub(super) fn send_command(&mut self, step: &Step, to: Option<PeerIndex>) -> StepResult {
        let script = self.script;
        let index = self.call.step;
        let mut word = std::mem::take(&mut self.shard.scratch);
        word.clear();
        self.render(&script.texts[index as usize], index as i32, &mut word);
        let to = to.and_then(|to| script.scenario.peers.get(usize::from(to))).map(String::as_str);
        let sent = self.say_word(to, &word);
        self.shard.scratch = word;
        if !sent {
            self.warn_call(format_args!("the command of step {index} cannot be sent: no other controller is there"));
            return self.give_up(Failure::CommandNotSent);
        }
        self.keep_books(step);
        self.shard.stats.steps[index as usize].sent += 1;
        self.act(step, None)
    }

    fn say_word(&mut self, to: Option<&str>, word: &[u8]) -> bool {
        let sent = self.shard.link.as_ref().is_some_and(|link| link.send(to, word));
        if let Some(watch) = self.shard.watch.as_mut().filter(|_| sent) {
            watch.message(Passage::CommandSent, self.call.target.transport, self.call.id(), word);
        }
        sent
    }

    /// Tells the other controller of the classic form that this call is given up.
    pub(super) fn abort_command(&mut self) {
        if self.call.step == 0 || !self.shard.link.as_ref().is_some_and(command::Link::is_classic) {
            return;
        }
        let script = self.script;
        let mut word = Vec::new();
        self.render(&script.three_party_abort, -1, &mut word);
        self.say_word(None, &word);
    }

    /// Handles a command for this call.
    pub(super) fn receive_command(&mut self, word: &[u8]) -> Progress {
        if let Some(watch) = &mut self.shard.watch {
            watch.message(Passage::CommandReceived, self.call.target.transport, self.call.id(), word);
        }
        if command::is_abort(word) {
            self.warn_call(format_args!("the other controller has given the call up"));
            return match self.give_up(Failure::CallRejected) {
                StepResult::Over => Progress::Over,
                _ => Progress::Waits,
            };
        }
        let script = self.script;
        let from = self.call.step as usize;
        // Optional steps are skipped.
        let found = script.scenario.steps.iter().enumerate().skip(from).find(|(_, step)| match &step.kind {
            StepKind::Nop => false,
            StepKind::Receive(receive) => receive.optional == Optional::No,
            _ => true,
        });
        let Some((index, step)) = found else { return self.reject("no step waits for a command any more") };
        let StepKind::ReceiveCommand { from } = &step.kind else {
            return self.reject("a command came while another message is expected");
        };
        let name = from.and_then(|from| script.scenario.peers.get(usize::from(from)));
        if let Some(name) = name
            && command::sender(word) != Some(name.as_bytes())
        {
            return self.reject("a command came from another controller than the expected one");
        }
        self.call.step = index as u32;
        self.keep_books(step);
        self.shard.stats.steps[index].received += 1;
        match self.act(step, Some(command::trimmed(word))) {
            StepResult::Over => Progress::Over,
            StepResult::Waits => Progress::Waits,
            StepResult::On => {
                self.next(step);
                self.drive()
            }
        }
    }

    fn reject(&mut self, why: &str) -> Progress {
        self.warn_call(format_args!("{why}"));
        self.finish(CallOutcome::Failed(Failure::CallRejected));
        Progress::Over
    }

    /// Handles the departure of another controller: fails a call that waits for a command of that controller.
    pub(super) fn lose_controller(&mut self, gone: &str) -> Progress {
        let script = self.script;
        let Some(StepKind::ReceiveCommand { from }) = self.step().map(|step| &step.kind) else {
            return Progress::Waits;
        };
        let name = from.and_then(|from| script.scenario.peers.get(usize::from(from)));
        if name.is_some_and(|name| !gone.is_empty() && name != gone) {
            return Progress::Waits;
        }
        match self.give_up(Failure::CommandNotSent) {
            StepResult::Over => Progress::Over,
            _ => Progress::Waits,
        }
    }
}
