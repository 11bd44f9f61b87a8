//! Reload: another configuration for a running server.

use crate::data_sets::{self, state::OldData};
use crate::directory::Directory;
use crate::renaming::rename_bindings;
use crate::running::Running;
use crate::server::{Server, resolver};
use crate::settings;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use strowger_config::{Change, Config, Report};
use strowger_net::tls::Identities;
use tokio::sync::oneshot;

/// Reason for which a server refuses a configuration.
#[derive(Debug)]
pub enum Refusal {
    /// The configuration is wrong, or contradicts keys that need a restart.
    Wrong(Report),
    /// A certificate, name server or database that it names cannot be used.
    Unusable(anyhow::Error),
}

impl Server {
    /// Adopts the configuration that `read` returns; `read` works like [`preflight::load`](crate::preflight::load).
    /// Requests that arrived before keep their configuration. Everything that may fail precedes any change. Keys that
    /// need a restart keep their values; they are among the returned changes, next to the report of warnings.
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
        let listeners = settings::listeners(&config);
        let identities = Identities::load(&listeners, &settings::tls_client(&config))
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
        self.handle.set_balancers(&listeners);
        self.handle.set_bounds(bounds);
        self.services.sets.are_those_of(&config, old_data, began);
        self.shared.set_config(config, identity);
        self.wait_for_shards();
        rename_bindings(&self.shared);
        Ok((changes, report))
    }
}
