//! Another configuration for a running server.

use crate::identity::identity;
use crate::server::{Server, resolver};
use strowger_config::{Change, Config};

impl Server {
    /// Goes by this configuration from now on; what came before goes on by the one that it came with. Everything that may fail is done
    /// before anything changes. Keys that need a restart keep their values; they are among the changes that are returned.
    ///
    /// # Errors
    /// What cannot be used, in words; the server goes on by the configuration that it has.
    pub fn reload(&self, config: Config) -> anyhow::Result<Vec<Change>> {
        let running = self.policy();
        let (config, changes) = config.for_running(&running.config);
        let resolver = match config.dns == running.config.dns {
            true => None,
            false => Some(resolver(&config)?),
        };
        let identity = identity(&config, self.addresses());
        if let Some(resolver) = resolver {
            self.outside.set_resolver(resolver);
        }
        self.shared.set_config(config, identity);
        // Each shard takes it at the end of a round, also one that has nothing to do.
        self.handle().wake_all();
        Ok(changes)
    }
}
