//! Next hops that fail, and the order of targets that puts them last ([`crate::target_quarantine`]).

use super::Engine;
use crate::decider::Decider;
use crate::destination::{RuleTargetAddresses, Targets};
use crate::handling::Handling;
use crate::rule_targets::TrialOrder;
use crate::target_quarantine::Times;
use smallvec::SmallVec;
use std::time::Duration;
use strowger_core::log_limiter::LogSubject;
use strowger_core::proxy::{TargetFailure, UdpOnly};
use strowger_core::shown::shown;
use strowger_core::transaction::ClientId;
use strowger_core::{Now, Target};
use strowger_message::{Message, Name};

impl Engine {
    /// Takes the failed targets from the proxy.
    #[inline]
    pub(crate) fn set_targets_aside(&mut self, now: Now) {
        if !self.stack.proxy.failed_targets().is_empty() {
            self.set_them_aside(now);
        }
    }

    #[cold]
    fn set_them_aside(&mut self, now: Now) {
        let bounds = &self.shared.bounds;
        let milliseconds = |duration: Duration| duration.as_millis() as u64;
        let times = Times {
            failed: milliseconds(self.policy.config.dns.set_aside),
            said: milliseconds(bounds.retry_after),
            most: bounds.set_aside_targets,
        };
        let mut failed = std::mem::take(self.stack.proxy.failed_targets());
        for failed in failed.drain(..) {
            let target = failed.target;
            if failed.failure == TargetFailure::NoTcp {
                self.decider().goes_by_udp(target, now);
                continue;
            }
            let Some(time) = self.shared.set_aside.fails(&target, failed.failure, now.mono, times) else { continue };
            self.counters().set_aside.one();
            if self.shared.log_limiter.allow(LogSubject::Forwarding, target.address.ip(), now.mono) {
                let (address, transport, reason) = (target.address, target.transport.text(), reason(failed.failure));
                tracing::warn!(to = %address, %transport, reason, seconds = time as f64 / 1e3, "next hop set aside");
            }
        }
        *self.stack.proxy.failed_targets() = failed;
    }

    /// Forgets failures to send that were not the fault of the target.
    pub(super) fn excuse_targets(&mut self) {
        let is_excused = |failure| matches!(failure, TargetFailure::Unsent | TargetFailure::NoTcp);
        self.stack.proxy.failed_targets().retain(|failed| !is_excused(failed.failure));
    }

    /// Notes that the target of this transaction has answered.
    #[inline]
    pub(super) fn note_response(&self, now: Now, id: ClientId, response: &Message<'_>) {
        if self.shared.set_aside.holds_any() {
            self.take_back(now, id, response);
        }
    }

    #[cold]
    fn take_back(&self, now: Now, id: ClientId, response: &Message<'_>) {
        if response.status() == Some(503) && response.has(Name::RetryAfter) {
            return;
        }
        let Some(target) = self.stack.core.transactions.client_target(id) else { return };
        if self.shared.set_aside.answers(&target, now.mono)
            && self.shared.log_limiter.allow(LogSubject::Forwarding, target.address.ip(), now.mono)
        {
            tracing::info!(to = %target.address, transport = %target.transport.text(), "next hop answers again");
        }
    }
}

impl Decider<'_> {
    /// Marks this target to get large requests by UDP for a while, because the target, like nearly every telephone,
    /// accepts no TCP connection.
    fn goes_by_udp(&self, target: Target, now: Now) {
        let (address, seconds) = (target.address, UdpOnly::TIME / 1_000);
        if self.shared.udp_only.insert(address, now.mono)
            && self.shared.log_limiter.allow(LogSubject::Forwarding, address.ip(), now.mono)
        {
            tracing::info!(to = %address, seconds, "no TCP: large requests go by UDP");
        }
    }

    /// Moves targets that are set aside after the other targets of one candidate. `may_try`: whether the first target
    /// is tried now, so that its response shows whether it is reachable. Returns whether the first target is then not
    /// set aside.
    pub(crate) fn order_targets(&self, handling: &Handling<'_, '_>, targets: &mut Targets, may_try: bool) -> bool {
        let table = &self.shared.set_aside;
        if !table.holds_any() {
            return true;
        }
        let before = targets.first().copied();
        let is_free = table.order(targets, handling.now.mono, may_try);
        if let (Some(before), Some(first)) = (before, targets.first())
            && before != *first
        {
            let (aside, to, call_id) = (before.address, first.address, shown(handling.request.call_id));
            tracing::debug!(%aside, %to, %call_id, "next hop passed over");
        }
        is_free
    }

    /// Orders places in the same way: places whose targets are all set aside come last. A place that is a user is never
    /// set aside.
    pub(crate) fn order_places(
        &self,
        handling: &Handling<'_, '_>,
        places: &mut [RuleTargetAddresses],
        order: &mut TrialOrder,
    ) {
        if !self.shared.set_aside.holds_any() {
            return;
        }
        // The first place that is not set aside is tried first.
        let mut is_found = false;
        let mut is_aside: SmallVec<[bool; 4]> = SmallVec::from_elem(false, places.len());
        for place in order.iter() {
            let Some(to) = places.get_mut(*place) else { continue };
            let is_free = match to {
                RuleTargetAddresses::NextHop(targets) => self.order_targets(handling, targets, !is_found),
                RuleTargetAddresses::User(_) => true,
            };
            is_found |= is_free && !to.is_empty();
            is_aside[*place] = !is_free;
        }
        order.sort_by_key(|place| is_aside.get(*place).copied());
    }
}

/// Returns the reason for setting a target aside, in words.
const fn reason(failure: TargetFailure) -> &'static str {
    match failure {
        TargetFailure::Silent => "no response",
        TargetFailure::Unsent | TargetFailure::NoTcp => "not reached",
        TargetFailure::Unavailable { .. } => "503 with Retry-After",
    }
}
