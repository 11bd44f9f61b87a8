//! Reload: another configuration for a running server.

use crate::data_sets::{self, OldData};
use crate::directory::Directory;
use crate::server::{Server, resolver};
use crate::settings;
use crate::shard::{Services, Shard};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};
use strowger_config::{Change, Config, Report};
use strowger_net::Handle;
use strowger_net::tls::Identities;
use strowger_server::process_state::ProcessState;
use strowger_store::location::Renamed;
use tokio::sync::oneshot;

/// Reason for which a server refuses a configuration.
#[derive(Debug)]
pub enum Refusal {
    /// The configuration is wrong, or contradicts keys that need a restart.
    Wrong(Report),
    /// A certificate, name server or database that it names cannot be used.
    Unusable(anyhow::Error),
}

/// Longest wait for the shards to adopt another policy; the reload does not wait longer for a stuck shard.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// Parts of a running server that depend on the policy.
#[derive(Clone)]
pub(crate) struct Running {
    pub(crate) shared: Arc<ProcessState>,
    pub(crate) services: Arc<Services>,
    pub(crate) handle: Handle<Shard>,
}

impl Server {
    /// Adopts the configuration that `read` returns, as [`Config::load`] does. Requests that arrived before keep their configuration. Everything that
    /// may fail precedes any change. Keys that need a restart keep their values; they are among the returned changes, next to the report of warnings.
    ///
    /// The policy thread calls `read` after earlier reloads. The reload continues if this future is dropped.
    ///
    /// # Errors
    /// The reason for the refusal; the server keeps its configuration.
    pub async fn reload(
        &self,
        read: impl FnOnce() -> Result<(Config, Report), Report> + Send + 'static,
    ) -> Result<(Vec<Change>, Report), Refusal> {
        let (running, directory) = (self.running(), self.directory.clone());
        let (reply, took) = oneshot::channel();
        self.services.policies.submit(move || {
            let took = running.reload(read, directory.as_deref());
            if took.is_err() {
                running.services.reloads_refused.fetch_add(1, Relaxed);
            }
            let _ = reply.send(took);
        });
        took.await
            .unwrap_or_else(|_| Err(Refusal::Unusable(anyhow::anyhow!("a panic ended it: the log has its words"))))
    }

    fn running(&self) -> Running {
        Running { shared: self.shared.clone(), services: self.services.clone(), handle: self.handle().clone() }
    }
}

/// Longest time for the database to store the bindings under other names.
const LONGEST_RENAMING: Duration = Duration::from_secs(10);

/// Moves the bindings of each user to the canonical name of the domain, in memory and on disk: a domain may have become an alias of another. Blocks;
/// a shard waits no longer than one user takes.
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

impl Running {
    fn reload(
        &self,
        read: impl FnOnce() -> Result<(Config, Report), Report>,
        directory: Option<&Directory>,
    ) -> Result<(Vec<Change>, Report), Refusal> {
        let began = Instant::now();
        let (mut config, report) = read().map_err(Refusal::Wrong)?;
        let old_data = data_sets::read(&mut config, Some(&self.shared.policy().config))
            .map_err(|fault| Refusal::Wrong(Report::new(report.file(), "", vec![data_sets::error(&fault)])))?;
        let warnings = old_data.iter().map(|old| data_sets::warning(&old.fault)).collect();
        self.take(config, report.with(warnings), &old_data, began, directory)
    }

    fn take(
        &self,
        mut config: Config,
        report: Report,
        old_data: &[OldData],
        began: Instant,
        directory: Option<&Directory>,
    ) -> Result<(Vec<Change>, Report), Refusal> {
        let before = self.shared.policy();
        data_sets::share(&mut config, &before.config);
        if let Some(directory) = directory {
            directory.fit(&mut config).map_err(Refusal::Unusable)?;
        }
        let (config, changes) = config.for_running(&before.config);
        let mixed = config.mixed_faults(&report);
        let report = report.with(mixed);
        if report.errors() > 0 {
            return Err(Refusal::Wrong(report));
        }
        let resolver = match config.dns == before.config.dns {
            true => None,
            false => Some(resolver(&config).map_err(Refusal::Unusable)?),
        };
        // The files may have changed, even if their names have not.
        let identities = Identities::load(&settings::listeners(&config), &settings::tls_client(&config))
            .map_err(|error| Refusal::Unusable(error.into()))?;
        let identity = self.services.addresses.identity(&config, self.handle.addresses());
        let bounds = settings::bounds(&config);
        if let Some(directory) = directory {
            directory.take(&config).map_err(Refusal::Unusable)?;
        }
        if let Some(resolver) = resolver {
            self.services.set_resolver(resolver);
        }
        self.handle.set_identities(identities);
        self.handle.set_bounds(bounds);
        self.services.sets.are_those_of(&config, old_data, began);
        self.shared.set_config(config, identity);
        self.wait_for_shards();
        rename_bindings(&self.shared);
        Ok((changes, report))
    }

    /// Waits until each shard has adopted the policy at the end of a round, idle ones included: later messages use it. Blocks.
    pub(crate) fn wait_for_shards(&self) {
        let (reloads, end) = (self.shared.reloads(), Instant::now() + LONGEST_WAIT);
        self.handle.wake_all();
        let has_it = |shard| self.handle.busy(shard).is_none() || self.services.reloads(shard) >= reloads;
        while !(0..self.handle.most()).all(has_it) && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
