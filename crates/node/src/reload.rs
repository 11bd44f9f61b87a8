//! Another configuration for a running server.

use crate::data_sets::{self, OldData};
use crate::identity::identity;
use crate::server::{Server, resolver};
use crate::settings;
use crate::shard::{Services, Shard};
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use strowger_config::{Change, Config, Report};
use strowger_net::Handle;
use strowger_net::tls::Identities;
use strowger_server::process_state::ProcessState;

/// Why a server does not take a configuration.
#[derive(Debug)]
pub enum Refusal {
    /// It is wrong in itself.
    Wrong(Report),
    /// What it names cannot be used: a certificate, a name server.
    Unusable(anyhow::Error),
}

/// For the shards to take another policy; one that stands still is not waited for.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

impl Server {
    /// Goes by this configuration from now on, as [`Config::load`] returns it; what came before goes on by the one that it came with.
    /// Everything that may fail is done before anything changes. Keys that need a restart keep their values; they are among the changes
    /// that are returned, beside the report of warnings.
    ///
    /// # Errors
    /// Why not; the server goes on by the configuration that it has.
    pub fn reload(&self, read: Result<(Config, Report), Report>) -> Result<(Vec<Change>, Report), Refusal> {
        let began = Instant::now();
        let took = read.map_err(Refusal::Wrong).and_then(|(mut config, report)| {
            let old_data = data_sets::read(&mut config, Some(&self.policy().config))
                .map_err(|fault| Refusal::Wrong(Report::new(report.file(), "", vec![data_sets::error(&fault)])))?;
            let warnings = old_data.iter().map(|old| data_sets::warning(&old.fault)).collect();
            let changes = self.take(config, &old_data, began)?;
            Ok((changes, report.with(warnings)))
        });
        // What it took to read the files, above all the one with a hundred authorities.
        (self.services.program.give_back)();
        if took.is_err() {
            self.services.reloads_refused.fetch_add(1, Relaxed);
        }
        took
    }

    fn take(&self, mut config: Config, old_data: &[OldData], began: Instant) -> Result<Vec<Change>, Refusal> {
        let _changing = self.services.sets.change();
        let running = self.policy();
        data_sets::share(&mut config, &running.config);
        if let Some(directory) = &self.directory {
            directory.fit(&mut config).map_err(Refusal::Unusable)?;
        }
        let (config, changes) = config.for_running(&running.config);
        let resolver = match config.dns == running.config.dns {
            true => None,
            false => Some(resolver(&config).map_err(Refusal::Unusable)?),
        };
        // Their files may be others than before, though the configuration names the same.
        let identities = Identities::load(&settings::listeners(&config), &settings::tls_client(&config))
            .map_err(|error| Refusal::Unusable(error.into()))?;
        let (identity, bounds) = (identity(&config, self.addresses()), settings::bounds(&config));
        if let Some(directory) = &self.directory {
            directory.take(&config).map_err(Refusal::Unusable)?;
        }
        if let Some(resolver) = resolver {
            self.services.set_resolver(resolver);
        }
        self.handle().set_identities(identities);
        self.handle().set_bounds(bounds);
        self.services.sets.are_those_of(&config, old_data, began);
        self.shared.set_config(config, identity);
        wait_for_shards(self.handle(), &self.shared, &self.services);
        Ok(changes)
    }
}

/// Each shard takes the policy at the end of a round, also one that has nothing to do: what comes after this goes by it. Blocks.
pub(crate) fn wait_for_shards(handle: &Handle<Shard>, shared: &ProcessState, services: &Services) {
    let (reloads, end) = (shared.reloads(), Instant::now() + LONGEST_WAIT);
    handle.wake_all();
    let has_it = |shard| handle.busy(shard).is_none() || services.reloads(shard) >= reloads;
    while !(0..handle.most()).all(has_it) && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
    }
}
