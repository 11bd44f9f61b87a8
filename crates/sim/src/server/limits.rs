//! Limits of calls where a rule or a failure leads: of that failure, of a group of gateways, or of each gateway. As many calls count under one
//! as were led there last and go on, and no more than it lets.

use super::{LIMITED, ServerHost};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use strowger_core::{Now, Outbox};
use strowger_message::{Limits, Message};
use strowger_server::call_limits::LimitScope;

/// Where calls go that fail, or all, and how many at a time.
#[derive(Clone, Copy, Debug)]
pub struct Mailbox {
    /// Of a group both, else the first.
    pub addresses: [SocketAddr; 2],
    pub most: u32,
    pub limit: BoxLimit,
}

/// What has the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxLimit {
    Failure,
    /// The group that the failure leads to, for both together.
    Group,
    /// The same, for each by itself.
    Gateway,
    /// That again, of the group that a rule leads to.
    Rule,
}

/// What files call its limit.
const BOXES: &str = "boxes";

/// INVITEs that were led to a mailbox.
#[derive(Debug, Default)]
pub(super) struct Leads {
    /// Where the last one of each call went, by Call-ID.
    last: HashMap<Vec<u8>, SocketAddr>,
    /// Branches of all that this process has sent: a copy may leave when its call is over, and another has its Call-ID.
    branches: HashSet<Vec<u8>>,
}

impl Mailbox {
    /// What the file of a server says of it.
    pub fn rules(self) -> String {
        let [first, second] = self.addresses;
        let limits = format!("call_limits = [\"{BOXES}\"]\n");
        let (per, pick) = match self.limit {
            BoxLimit::Failure | BoxLimit::Group => ("all", "in_turn"),
            BoxLimit::Gateway => ("gateway", "by_call"),
            BoxLimit::Rule => ("gateway", "in_order"),
        };
        let group = format!(
            "[[gateway_group]]\nname = \"mailboxes\"\nto = [\"sip:mailbox@{first}\", \"sip:mailbox@{second}\"]\n\
             pick = \"{pick}\"\n{limits}"
        );
        let failure = |to: &str| {
            format!(
                "[[failure]]\nname = \"mailbox\"\nstatuses = [\"408\", \"480\", \"486\", \"500\"]\nto = [\"{to}\"]\n"
            )
        };
        let (places, way) = match self.limit {
            BoxLimit::Failure => (failure(&format!("sip:mailbox@{first}")) + &limits, "on_failure = [\"mailbox\"]"),
            BoxLimit::Group | BoxLimit::Gateway => (group + &failure("mailboxes"), "on_failure = [\"mailbox\"]"),
            BoxLimit::Rule => (group, "to = [\"mailboxes\"]"),
        };
        format!(
            "[[call_limit]]\nname = \"{BOXES}\"\nper = \"{per}\"\nmost = {}\nstatus = {LIMITED}\n{places}\
             [[rule]]\nname = \"mailbox\"\nwhen = \"method == 'INVITE' and request.user == 'bob'\"\n{way}\n",
            self.most
        )
    }

    /// What a call counts under that is led there.
    fn scope(self, address: SocketAddr) -> LimitScope {
        let value = match self.limit {
            BoxLimit::Failure | BoxLimit::Group => String::new(),
            BoxLimit::Gateway | BoxLimit::Rule => address.to_string(),
        };
        LimitScope { name: BOXES.into(), value: value.into_bytes().into() }
    }
}

impl ServerHost {
    /// A shard has worked, and sends this. `has_told`: something became of requests that it had forwarded.
    pub(super) fn check_limits(&mut self, now: Now, out: &Outbox, has_told: bool) {
        let Some(mailbox) = self.settings.mailbox else { return };
        let mut leads = false;
        for send in out.sends().iter().filter(|send| mailbox.addresses.contains(&send.target.address)) {
            let bytes = &out.bytes[send.range()];
            if bytes.starts_with(b"INVITE ") && self.index.parse(bytes, &Limits::default()).is_ok() {
                leads |= self.led.lead(send.target.address, &Message::new(bytes, &self.index)).is_some();
            }
        }
        if self.is_moving || !(leads || has_told) {
            return;
        }
        let engines = self.process.engines.iter();
        let calls = engines.flat_map(|engine| engine.list_calls(now, 0, usize::MAX, None).calls);
        let listed: HashSet<Vec<u8>> = calls.map(|call| call.call_id).collect();
        self.led.last.retain(|call_id, _| listed.contains(call_id));
        let mut led: HashMap<LimitScope, u32> = HashMap::new();
        for address in self.led.last.values() {
            *led.entry(mailbox.scope(*address)).or_default() += 1;
        }
        let counted = self.process.shared.call_limits.list();
        let counted: HashMap<LimitScope, u32> = counted.into_iter().filter(|(of, _)| *of.name == *BOXES).collect();
        if counted != led || counted.values().any(|calls| *calls > mailbox.most) {
            self.wrong(format!("{led:?} were led to mailboxes and go on, {counted:?} of {} count", mailbox.most));
        }
    }
}

impl Leads {
    /// Of calls that another process had led.
    pub(super) fn of(last: HashMap<Vec<u8>, SocketAddr>) -> Self {
        Self { last, ..Self::default() }
    }

    pub(super) fn last(&self, call_id: &[u8]) -> Option<SocketAddr> {
        self.last.get(call_id).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Notes where an INVITE leads its call; none for a copy of one, and within a dialog.
    fn lead(&mut self, address: SocketAddr, invite: &Message<'_>) -> Option<()> {
        let branch = invite.via().ok()?.branch?.to_vec();
        if invite.to().ok()?.tag.is_some() || !self.branches.insert(branch) {
            return None;
        }
        self.last.insert(invite.call_id().ok()?.text.to_vec(), address);
        Some(())
    }
}
