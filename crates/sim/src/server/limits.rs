//! A limit of calls that a failure has, or a group which that leads to: as many calls count under it as were led on by that failure and go
//! on, and no more than it lets.

use super::ServerHost;
use std::collections::HashSet;
use std::net::SocketAddr;
use strowger_core::{Now, Outbox};
use strowger_message::{Limits, Message};

/// Where calls go that fail, and how many at a time.
#[derive(Clone, Copy, Debug)]
pub struct Mailbox {
    pub address: SocketAddr,
    pub most: u32,
}

/// What files call its limit.
const BOXES: &str = "boxes";

impl Mailbox {
    /// What the file of a server says of it: the limit is that of the failure, or of a group that the failure leads to.
    pub fn rules(self) -> String {
        if self.most.is_multiple_of(2) {
            return format!(
                "[[call_limit]]\nname = \"{BOXES}\"\nmost = {}\n[[gateway_group]]\nname = \"mailboxes\"\nto = [\"sip:mailbox@{}\"]\n\
                 pick = \"in_turn\"\ncall_limits = [\"{BOXES}\"]\n[[failure]]\nname = \"mailbox\"\n\
                 statuses = [\"408\", \"480\", \"486\", \"500\"]\nto = [\"mailboxes\"]\n\
                 [[rule]]\nname = \"mailbox\"\nwhen = \"method == 'INVITE' and request.user == 'bob'\"\non_failure = [\"mailbox\"]\n",
                self.most, self.address
            );
        }
        format!(
            "[[call_limit]]\nname = \"{BOXES}\"\nmost = {}\n[[failure]]\nname = \"mailbox\"\n\
             statuses = [\"408\", \"480\", \"486\", \"500\"]\nto = [\"sip:mailbox@{}\"]\ncall_limits = [\"{BOXES}\"]\n\
             [[rule]]\nname = \"mailbox\"\nwhen = \"method == 'INVITE' and request.user == 'bob'\"\non_failure = [\"mailbox\"]\n",
            self.most, self.address
        )
    }
}

impl ServerHost {
    /// A shard has worked, and sends this. `has_told`: something became of requests that it had forwarded.
    pub(super) fn check_limits(&mut self, now: Now, out: &Outbox, has_told: bool) {
        let Some(mailbox) = self.settings.mailbox else { return };
        let mut leads = false;
        for send in out.sends().iter().filter(|send| send.target.address == mailbox.address) {
            let bytes = &out.bytes[send.range()];
            if bytes.starts_with(b"INVITE ") && self.index.parse(bytes, &Limits::default()).is_ok() {
                leads = true;
                let call_id = Message::new(bytes, &self.index).call_id().map(|call_id| call_id.text.to_vec());
                self.led.extend(call_id);
            }
        }
        if self.is_moving || !(leads || has_told) {
            return;
        }
        let engines = self.process.engines.iter();
        let calls = engines.flat_map(|engine| engine.list_calls(now, 0, usize::MAX, None).calls);
        let listed: HashSet<Vec<u8>> = calls.map(|call| call.call_id).collect();
        self.led.retain(|call_id| listed.contains(call_id));
        let counted = self.process.shared.call_limits.list();
        let counted: u32 = counted.iter().filter(|(of, _)| *of.name == *BOXES).map(|(_, calls)| calls).sum();
        let led = self.led.len();
        if counted as usize != led || counted > mailbox.most {
            self.wrong(format!("{led} calls were led to the mailbox and go on, {counted} of {} count", mailbox.most));
        }
    }
}
