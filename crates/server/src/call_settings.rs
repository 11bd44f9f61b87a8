//! Settings of the table of calls and of the counts that servers share, from the configuration.

use crate::bounds::EngineBounds;
use std::time::Duration;
use strowger_calls::CallTimes;
use strowger_calls::limits::{Claim, LimitScope};
use strowger_calls::shared_counts::{SharedCountSettings, SharedLimit};
use strowger_config::{CallLimitTable, Config, Name, WithoutCache};

/// Returns the maximum durations of calls.
pub(crate) fn call_times(config: &Config, bounds: &EngineBounds) -> CallTimes {
    let milliseconds = |time: Duration| time.as_millis() as u64;
    CallTimes {
        logged: milliseconds(bounds.logged_time),
        lifetime: milliseconds(config.dialogs.lifetime),
        transaction: config.timer_settings().t1_64(),
    }
}

/// Returns the request of a call to count under a limit with this value.
pub(crate) fn claim(limit: &CallLimitTable, value: &[u8]) -> Claim {
    let counted = LimitScope { name: limit.name.as_str().into(), value: value.into() };
    Claim { counted, most: limit.most, status: limit.status }
}

/// Returns the cache through which servers share the counts of this limit.
fn cache_of(limit: &CallLimitTable) -> Option<&Name> {
    limit.cache.as_ref().map(|cache| cache.name())
}

/// Returns the caches through which servers share counts, each once.
pub fn caches(config: &Config) -> Vec<&Name> {
    let mut names: Vec<&Name> = Vec::new();
    for name in config.call_limits.iter().filter_map(cache_of) {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// Returns the settings of the counts that servers share.
pub fn shared_counts(config: &Config, bounds: &EngineBounds) -> SharedCountSettings {
    let limits = config.call_limits.iter().filter_map(|limit| {
        Some(SharedLimit {
            name: limit.name.as_str().into(),
            cache: cache_of(limit)?.as_str().into(),
            servers: limit.servers.clone(),
            refuses: limit.without_cache == WithoutCache::Refuse,
        })
    });
    SharedCountSettings { limits: limits.collect(), lifetime: bounds.count_lifetime }
}
