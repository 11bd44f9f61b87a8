//! Checks of limits of calls.

use super::Config;
use super::cache::CacheEngine;
use super::reader::Reader;
use super::report::Fault;

/// Notes limits whose keys do not allow several servers to count calls together.
pub(super) fn check(config: &Config, reader: &mut Reader) {
    let own = config.server.node;
    for (index, limit) in config.call_limits.iter().enumerate() {
        let mut wrong = |key: &str, message: String, cure: String| {
            let path = format!("call_limit[{index}]");
            let span = reader.value_of(&format!("{path}.{key}")).or_else(|| reader.key_of(&path));
            reader.push(Fault::error(span, format!("call_limit '{}' {message}", limit.name), cure));
        };
        let Some(cache) = &limit.cache else {
            if !limit.servers.is_empty() {
                let cure = "name a [[cache]] that they share: cache = \"shared\"";
                wrong("servers", "has servers and no cache by which they count together".into(), cure.into());
            }
            continue;
        };
        let table = config.caches.iter().find(|table| table.name == *cache.name());
        if table.is_some_and(|table| table.engine == CacheEngine::Local) {
            let message = format!("counts by cache '{}', which is in this process alone", cache.name());
            wrong("cache", message, "name a [[cache]] of Redis or Memcached servers".into());
        }
        if !limit.servers.contains(&own) {
            let message = format!("is counted by servers among which this one, server.node {own}, is not");
            wrong("servers", message, format!("name all that count together, such as servers = [{own}, {}]", own + 1));
        } else if limit.servers.iter().all(|node| *node == own) {
            let cure = format!("name the others too, such as servers = [{own}, {}], or leave `cache` out", own + 1);
            wrong("servers", "is counted by this server alone".into(), cure);
        }
    }
}
