//! Addresses of this machine, of its advertised names and of the services that the server uses. All these addresses may
//! change, so they are read periodically.

use crate::identity::identity_again;
use crate::running::Running;
use std::time::Duration;
use strowger_net::clock;

/// Interval of reading interfaces, and of retries for names that could not be resolved.
const INTERVAL: Duration = Duration::from_secs(1);

/// Applies changes of addresses to new requests.
pub(crate) async fn keep_up(running: Running) {
    loop {
        clock::beat(INTERVAL).await;
        let policy = running.shared.policy();
        running.services.addresses.resolve(&policy.config).await;
        let addresses = running.services.addresses.of(&policy.config);
        if identity_again(&policy, &addresses).machine() == policy.identity().machine() {
            continue;
        }
        let job = running.clone();
        running.services.policies.submit(move || {
            let policy = job.shared.policy();
            let addresses = job.services.addresses.of(&policy.config);
            job.shared.set_identity(identity_again(&policy, &addresses));
            job.wait_for_shards();
        });
    }
}
