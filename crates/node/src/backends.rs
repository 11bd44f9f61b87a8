//! Technologies and places of the data, from the configuration.
//! [`technology::find`](strowger_backend::technology::find) finds the function that opens the engine of a technology.

use crate::directory::server_settings;
use crate::lease::Leases;
use strowger_backend::accounting::Settings as AccountingSettings;
use strowger_backend::sqlite::SqliteSettings;
use strowger_backend::technology::DataPlace;
use strowger_calls::KEPT_VERSION;
use strowger_config::{Config, DatabaseUrl};

/// Name of a technology, and a place of it.
pub(crate) type Placed = (&'static str, DataPlace);

/// Returns the place of a file or folder. The other fields of the place have the settings of this configuration for any
/// engine.
fn path(config: &Config, path: &std::path::Path) -> DataPlace {
    let store = &config.store;
    DataPlace {
        durability: config.store_durability(),
        patience: store.busy_timeout,
        node: config.server.node,
        form: KEPT_VERSION,
        removes: config.accounting.retention.is_some(),
        ..DataPlace::new(path)
    }
}

fn server(config: &Config, server: &DatabaseUrl) -> DataPlace {
    DataPlace { server: Some(server_settings(server)), ..path(config, "".as_ref()) }
}

/// Returns the settings of the database file; `None` if everything is in memory.
pub fn sqlite(config: &Config) -> Option<SqliteSettings> {
    config.store.database.as_ref().map(|file| SqliteSettings::from(&path(config, file)))
}

/// Returns the place of the bindings; `None` if they are in memory. A database server is a place only if this process
/// has its lease.
pub(crate) fn bindings(config: &Config, leases: &Leases) -> Option<Placed> {
    if let (Some(at), Some(lease)) = (&config.store.bindings, &leases.bindings) {
        return Some(("sql", DataPlace { lease: Some(lease.clone()), ..server(config, at) }));
    }
    Some(("sqlite", path(config, config.store.database.as_ref()?)))
}

/// Returns the place of kept calls; `None` if calls are not kept. A database server is a place only if this process has
/// its lease.
pub(crate) fn calls(config: &Config, leases: &Leases) -> Option<Placed> {
    call_files(config).or_else(|| {
        let (at, lease) = config.dialogs.server().zip(leases.calls.clone())?;
        Some(("sql", DataPlace { lease: Some(lease), ..server(config, at) }))
    })
}

/// Returns the folder or file of kept calls; `None` if they are on a database server, or calls are not kept.
pub(crate) fn call_files(config: &Config) -> Option<Placed> {
    let folder = config.dialogs.folder.as_ref().map(|folder| ("segments", path(config, folder)));
    folder.or_else(|| Some(("sqlite", path(config, config.dialogs.file()?))))
}

/// Returns the settings of the accounting writer; `None` if accounting is off.
pub fn accounting(config: &Config) -> Option<AccountingSettings> {
    let accounting = &config.accounting;
    let mut settings = AccountingSettings::new(accounting.spool.clone());
    (settings.spool_bytes, settings.patience) = (accounting.spool_size, config.store.busy_timeout);
    (settings.group.linger, settings.retention) = (accounting.group_interval, accounting.retention);
    accounting.is_on().then_some(settings)
}

/// Returns the place of the rows of accounting.
pub(crate) fn rows(config: &Config) -> Placed {
    let place = config.accounting.server().map(|at| server(config, at));
    (config.accounting.to.word(), place.unwrap_or_else(|| path(config, &config.accounting.path)))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use strowger_backend::technology::TECHNOLOGIES;
    use strowger_config::{AccountingTarget, Source};

    use super::*;

    /// Each row of the table of technologies has its word in the configuration, and each word has its row.
    #[test]
    fn each_technology_of_accounting_can_be_named() {
        let technologies = TECHNOLOGIES.iter().filter(|technology| technology.accounting.is_some());
        let mut names: Vec<&str> = technologies.map(|technology| technology.name).collect();
        let mut words: Vec<&str> = AccountingTarget::ALL.iter().map(|target| target.word()).collect();
        names.sort_unstable();
        words.sort_unstable();
        assert_eq!(names, words);
    }

    /// A default belongs to the engine; the configuration must not define another default.
    #[test]
    fn the_defaults_are_those_of_the_engines() {
        assert!(accounting(&Config::default()).is_none());
        let source = Source { text: "accounting.events = true", ..Source::default() };
        let ours = accounting(&Config::read(source).expect("right").0).expect("it is on");
        let theirs = AccountingSettings::new(ours.spool.clone());
        assert_eq!(
            (ours.spool_bytes, ours.patience, ours.retention),
            (theirs.spool_bytes, theirs.patience, theirs.retention)
        );
        assert_eq!(ours.group.linger, theirs.group.linger);
    }

    /// Process tests cannot observe these settings without a faulty machine.
    #[test]
    fn what_no_peer_can_see_arrives_at_the_engines() {
        let text = "accounting.cdr = true\naccounting.spool_size = \"7MiB\"\naccounting.group_interval = \"77ms\"";
        let (config, _) = Config::read(Source { text, ..Source::default() }).expect("right");
        let accounting = accounting(&config).expect("it is on");
        assert_eq!((accounting.spool_bytes, accounting.group.linger), (7 << 20, Duration::from_millis(77)));
    }
}
