//! Call limits of a routing rule or a failure rule. A limit has one of three scopes: the failure, a group of gateways,
//! or each gateway. The count under a limit is the number of open calls whose last routing has that limit. The count
//! never exceeds the limit.

use super::{LIMITED, ServerHost};
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use strowger_calls::limits::LimitScope;
use strowger_core::{Now, Outbox};
use strowger_message::{Limits, Message};

/// Destination of failed calls, or of all calls, and its limit.
#[derive(Clone, Copy, Debug)]
pub struct Mailbox {
    /// Both addresses of a group, else only the first.
    pub addresses: [SocketAddr; 2],
    pub most: u32,
    pub limit: BoxLimit,
}

/// Scope of the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BoxLimit {
    Failure,
    /// The group to which the failure leads, both gateways together.
    Group,
    /// The group to which the failure leads, each gateway separately.
    Gateway,
    /// The group to which a rule leads, each gateway separately.
    Rule,
}

/// Name of the mailbox's limit in configurations.
const BOXES: &str = "boxes";

/// INVITEs that were routed to a mailbox.
#[derive(Debug, Default)]
pub(super) struct RoutedCalls {
    /// Last target of each call, by Call-ID.
    last: HashMap<Vec<u8>, SocketAddr>,
    /// Branches of all INVITEs that this process has sent: a copy may leave when its call is over and another call has
    /// its Call-ID.
    branches: HashSet<Vec<u8>>,
}

impl Mailbox {
    /// Returns the lines of a server's configuration for this mailbox.
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

    /// Returns the limit scope of a call that is routed there.
    fn scope(self, address: SocketAddr) -> LimitScope {
        let value = match self.limit {
            BoxLimit::Failure | BoxLimit::Group => String::new(),
            BoxLimit::Gateway | BoxLimit::Rule => address.to_string(),
        };
        LimitScope { name: BOXES.into(), value: value.into_bytes().into() }
    }
}

impl ServerHost {
    /// Checks the limits after a step of a shard. `has_told`: whether the step had notices of forwarded requests.
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

impl RoutedCalls {
    /// Returns the state of calls that another process had routed.
    pub(super) fn of(last: HashMap<Vec<u8>, SocketAddr>) -> Self {
        Self { last, ..Self::default() }
    }

    pub(super) fn last(&self, call_id: &[u8]) -> Option<SocketAddr> {
        self.last.get(call_id).copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.last.is_empty()
    }

    /// Records the target of an INVITE. Returns `None` for a copy, and for an INVITE within a dialog.
    fn lead(&mut self, address: SocketAddr, invite: &Message<'_>) -> Option<()> {
        let branch = invite.via().ok()?.branch?.to_vec();
        if invite.to().ok()?.tag.is_some() || !self.branches.insert(branch) {
            return None;
        }
        self.last.insert(invite.call_id().ok()?.text.to_vec(), address);
        Some(())
    }
}
