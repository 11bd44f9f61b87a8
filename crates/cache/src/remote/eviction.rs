//! Check whether a Redis server may evict entries that this server relies upon.

use crate::servers::{Endpoint, Service};

use super::dial::{DialError, Stream, command, within};
use super::resp::Reply;
use super::settings::RemoteSettings;

/// Logs a warning about a server that may evict entries. There is no warning if the server does not answer the
/// question, or refuses the command to this user.
///
/// # Errors
/// The connection is unusable.
pub(super) async fn warn(
    settings: &RemoteSettings,
    server: &Endpoint,
    stream: &mut Box<dyn Stream>,
) -> Result<(), DialError> {
    if settings.service == Service::Memcached {
        return Ok(());
    }
    let said = match within(settings.timeout, command(stream, &[b"INFO", b"memory"])).await {
        Err(DialError::Said(reason)) => {
            tracing::debug!(cache = settings.name, %server, reason, "cache server does not say whether it evicts");
            return Ok(());
        }
        said => said?,
    };
    let Reply::Bulk(text) = &said.reply else { return Ok(()) };
    if let Some((maxmemory, policy)) = evicts(&said.bytes[text.clone()]) {
        tracing::warn!(
            cache = settings.name,
            %server,
            maxmemory,
            policy,
            cure = "CONFIG SET maxmemory-policy noeviction, and enough maxmemory",
            "cache server may evict credentials of registered users"
        );
    }
    Ok(())
}

/// Returns the memory bound of a server and its policy, if it may evict entries with a lifetime: every policy except
/// `noeviction` does.
fn evicts(info: &[u8]) -> Option<(u64, String)> {
    let info = String::from_utf8_lossy(info);
    let value = |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let maxmemory: u64 = value("maxmemory")?.trim().parse().ok()?;
    let policy = value("maxmemory_policy")?.trim();
    // The text comes from an arbitrary server.
    let is_word = policy.bytes().all(|octet| octet.is_ascii_lowercase() || octet == b'-') && policy.len() < 40;
    (maxmemory > 0 && policy != "noeviction" && is_word).then(|| (maxmemory, policy.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_with_any_policy_but_noeviction_evicts() {
        let info = |bound: &str, policy: &str| {
            let text = format!("# Memory\r\nmaxmemory:{bound}\r\nmaxmemory_human:1M\r\nmaxmemory_policy:{policy}\r\n");
            evicts(text.as_bytes())
        };
        for policy in ["allkeys-lru", "allkeys-lfu", "volatile-lru", "volatile-lfu", "volatile-ttl", "volatile-random"]
        {
            assert_eq!(info("3145728", policy), Some((3_145_728, policy.to_owned())));
            assert_eq!(info("0", policy), None);
        }
        assert_eq!(info("3145728", "noeviction"), None);
        assert_eq!(info("-1", "allkeys-lru"), None);
        assert_eq!(info("3145728", "\u{1b}]0;x"), None);
        assert_eq!(evicts(b"# Memory\r\n"), None);
    }
}
