//! Commands of other controllers (third party call control).

use super::{Traffic, known};
use crate::command::{self, LinkEvent};
use crate::engine::call::CallKind;
use crate::engine::call_runner::Progress;
use crate::engine::received_message;
use strowger_core::Outbox;
use strowger_scenario::ThirdPartyRole;

impl Traffic {
    /// Returns whether the commands of another controller begin calls.
    pub(super) fn begins_by_word(&self) -> bool {
        self.main.scenario.third_party == Some(ThirdPartyRole::B)
    }

    /// Handles the departure of another controller.
    #[cold]
    fn lose(&mut self, name: &str, out: &mut Outbox) {
        self.quitting = true;
        let classic = self.shard.link.as_ref().is_some_and(command::Link::is_classic);
        let who = match (classic, self.begins_by_word()) {
            (false, _) => "One of the twin instances",
            (true, true) => "3PCC controller A",
            (true, false) => "3PCC controller B",
        };
        self.shard.warn(format_args!("{who} has ended -> exiting"));
        for slot in 0..self.calls.len() as u32 {
            if self.calls[slot as usize].live && !self.calls[slot as usize].counted {
                self.drive(slot, out, |runner| runner.lose_controller(name));
            }
        }
    }

    /// Delivers a command of another controller to its call, or begins a call with it.
    #[cold]
    pub(super) fn on_link_event(&mut self, heard: LinkEvent, out: &mut Outbox) {
        let word = match heard {
            LinkEvent::Command(word) => word,
            LinkEvent::Ended(name) => return self.lose(&name, out),
        };
        let Some(whole) = command::call_id(&word) else {
            return self.shard.warn(format_args!("a command without Call-ID is discarded"));
        };
        let keep_slashes = self.shard.run.behaviour.keep_slashes;
        let name = known(whole, keep_slashes);
        let hash = received_message::hash(name);
        let calls = &self.calls;
        let found = self.table.find(hash, |&s| known(calls[s as usize].id(), keep_slashes) == name).copied();
        if let Some(slot) = found {
            return self.drive(slot, out, |runner| runner.receive_command(&word));
        }
        let address = self.shard.run.sending_address.or(self.shard.run.target);
        let begins = self.begins_by_word() && self.may_begin() && !command::is_abort(&word);
        let Some(address) = address.filter(|_| begins) else {
            let text = String::from_utf8_lossy(&word).into_owned();
            return self.shard.warn(format_args!("a command for no known call is discarded:\n{text}"));
        };
        let run = &*self.shard.run;
        let target = run.to(address);
        self.number += 1;
        self.begun += 1;
        self.shard.recorder.calls_intended(1);
        let book = self.shard.recorder.call_started(self.shard.now, self.shard.came, 0);
        let slot = self.place(hash, CallKind::Main, target, book);
        let number = self.number;
        let call = &mut self.calls[slot as usize];
        call.name(whole, number, 0);
        call.prepare(&self.main);
        self.shard.stats.outgoing += 1;
        self.drive(
            slot,
            out,
            |runner| if runner.take_socket() { runner.receive_command(&word) } else { Progress::Over },
        );
    }
}
