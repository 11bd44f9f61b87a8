//! Policy under which an engine decides. New requests use the policy of the process, earlier requests the policy with
//! which they arrived.

use super::Engine;
use crate::call_settings::call_times;
use crate::local_address::LocalAddresses;
use crate::policy::{ActivePolicy, Policy};
use std::sync::Arc;
use strowger_core::Now;
use strowger_core::stack::Reading;

impl Engine {
    /// Sets the policy of new requests.
    pub(super) fn set_policy(&mut self, now: Now, policy: Arc<Policy>) {
        self.policy = ActivePolicy::new(policy);
        self.go_by_policy(now);
    }

    /// Applies the policy to the parts of this engine.
    pub(super) fn go_by_policy(&mut self, now: Now) {
        let config = &self.policy.config;
        self.stack.proxy.set_policy(self.policy.forwarding.clone());
        self.calls.set_times(call_times(config, &self.shared.bounds));
        self.stack.set_bounds(&self.policy, self.shard.process_status.shards);
        if self.pings.set_interval(config.nat.ping_interval) && self.shard.number == 0 {
            self.pings.begin_again(now);
        }
        self.local_addresses = LocalAddresses::default();
        self.balance_ports();
    }

    /// Returns the settings with which a kept request is parsed again, from the policy of the request.
    pub(crate) fn reading(&self) -> Reading {
        Reading { limits: self.policy.limits, ..self.stack.core.reading }
    }

    /// Runs `work` under the policy of an earlier request, or, if `None`, under the policy of new requests.
    pub(crate) fn by_policy<T>(&mut self, its: Option<Arc<ActivePolicy>>, work: impl FnOnce(&mut Self) -> T) -> T {
        match its.filter(|its| !Arc::ptr_eq(its, &self.policy)) {
            None => work(self),
            Some(its) => {
                let forwarding = self.stack.proxy.set_policy(its.forwarding.clone());
                let newer = std::mem::replace(&mut self.policy, its);
                let result = work(self);
                self.policy = newer;
                self.stack.proxy.set_policy(forwarding);
                result
            }
        }
    }
}
