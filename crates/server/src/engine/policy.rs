//! By which policy an engine decides: new requests by that of the process, those that came before by their own.

use super::Engine;
use crate::calls::CallTimes;
use crate::local_address::LocalAddresses;
use crate::policy::{InForce, Policy};
use std::sync::Arc;
use strowger_core::Now;

impl Engine {
    /// New requests go by this from now on.
    pub(super) fn set_policy(&mut self, now: Now, policy: Arc<Policy>) {
        self.policy = InForce::new(policy);
        self.go_by_policy(now);
    }

    /// What the parts of this engine have of the policy.
    pub(super) fn go_by_policy(&mut self, now: Now) {
        let config = &self.policy.config;
        self.proxy.set_policy(self.policy.forwarding.clone());
        self.calls.set_times(CallTimes::of(config));
        self.transactions.set_limit(config.limits.transactions);
        self.transactions.set_most_kept(config.kept_memory());
        if self.pings.set_interval(config.nat.ping_interval) && self.number == 0 {
            self.pings.begin_again(now);
        }
        self.local_addresses = LocalAddresses::new(config.dns.cache_entries);
        self.divided_among = 0;
        self.divide_bounds();
    }

    /// Does this by the policy of a request that came before; without one, by that of new requests.
    pub(crate) fn by_policy<T>(&mut self, its: Option<Arc<InForce>>, work: impl FnOnce(&mut Self) -> T) -> T {
        match its.filter(|its| !Arc::ptr_eq(its, &self.policy)) {
            None => work(self),
            Some(its) => {
                let forwarding = self.proxy.set_policy(its.forwarding.clone());
                let newer = std::mem::replace(&mut self.policy, its);
                let result = work(self);
                self.policy = newer;
                self.proxy.set_policy(forwarding);
                result
            }
        }
    }
}
