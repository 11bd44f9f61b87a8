//! Settings of the storage engines from the configuration.

use strowger_backend::accounting::Settings as AccountingSettings;
use strowger_backend::files::accounting::Files;
use strowger_backend::files::calls::FolderSettings;
use strowger_backend::files::form::Form;
use strowger_backend::sqlite::SqliteSettings;
use strowger_backend::sqlite::accounting::Sqlite;
use strowger_backend::sqlite::calls::FileSettings;
use strowger_config::{AccountingTarget, Config};
use strowger_store::accounting::sink::Sink;

/// Returns the settings of the database file; `None`: everything is in memory.
pub fn sqlite(config: &Config) -> Option<SqliteSettings> {
    let store = &config.store;
    store.database.as_ref().map(|path| SqliteSettings {
        durability: config.store_durability(),
        busy_timeout: store.busy_timeout,
        ..SqliteSettings::new(path)
    })
}

/// Returns the settings of the accounting writer; `None`: accounting is off.
pub fn accounting(config: &Config) -> Option<AccountingSettings> {
    let accounting = &config.accounting;
    let mut settings = AccountingSettings::new(accounting.spool.clone());
    (settings.spool_bytes, settings.patience) = (accounting.spool_size, config.store.busy_timeout);
    (settings.group.linger, settings.retention) = (accounting.group_interval, accounting.retention);
    accounting.is_on().then_some(settings)
}

/// Returns the sink of accounting rows, which has opened nothing yet; `None`: a database server, which
/// [`Accounting::server`](strowger_config::Accounting::server) names.
pub fn accounting_sink(config: &Config) -> Option<Box<dyn Sink>> {
    let path = &config.accounting.path;
    Some(match config.accounting.to {
        AccountingTarget::Sqlite => Box::new(Sqlite::new(path, config.store.busy_timeout)),
        AccountingTarget::Json => Box::new(Files::new(path, Form::Json)),
        AccountingTarget::Csv => Box::new(Files::new(path, Form::Csv)),
        AccountingTarget::Sql => return None,
    })
}

/// Returns the settings of the folder of kept calls; `None`: no folder is configured.
pub(crate) fn call_folder(config: &Config) -> Option<FolderSettings> {
    let settings = FolderSettings::new(config.dialogs.folder.clone()?);
    Some(FolderSettings { wait: config.store.busy_timeout, ..settings })
}

/// Returns the settings of the SQLite file of kept calls, for states in this format version; `None`: no such file is
/// configured.
pub fn call_file(config: &Config, form: u8) -> Option<FileSettings> {
    Some(FileSettings { path: config.dialogs.file()?.to_owned(), form, wait: config.store.busy_timeout })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use strowger_config::Source;

    use super::*;

    /// A default belongs to the engine; the configuration must not state another one.
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
