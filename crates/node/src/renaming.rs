//! Bindings of a domain that has become an alias of another.

use std::time::{Duration, Instant};
use strowger_server::process_state::ProcessState;
use strowger_store::location::Renamed;

/// Longest time for the database to store the bindings under other names.
const LONGEST_RENAMING: Duration = Duration::from_secs(10);

/// Moves the bindings of each user to the canonical name of the domain, in memory and on disk: a domain may have become
/// an alias of another domain. Blocks; a shard waits at most for the move of one user.
pub(crate) fn rename_bindings(shared: &ProcessState) {
    let policy = shared.policy();
    let canonical = |aor: &[u8]| {
        let at = aor.iter().rposition(|byte| *byte == b'@')? + 1;
        let (user, domain) = aor.split_at(at);
        let name = policy.identity().canonical_domain(domain);
        (name != domain).then(|| [user, name].concat())
    };
    let Renamed { bindings, left } = shared.location.rename_all(&canonical, Instant::now() + LONGEST_RENAMING);
    if bindings > 0 {
        tracing::info!(bindings, "bindings stand under the new name of their domain");
    }
    if left > 0 {
        tracing::warn!(
            users = left,
            "bindings keep the former name of their domain: the database is behind; reload again"
        );
    }
}
