//! The database of the server, and the file of its secret beside it.

use crate::caches::Caches;
use crate::directory::Directory;
use crate::random;
use anyhow::Context;
use std::sync::Arc;
use strowger_accounting::Accounting;
use strowger_config::Config;
use strowger_store::access;
use strowger_store::clock::{Clock, Moment};
use strowger_store::journal::Journal;
use strowger_store::location::LocationTable;
use strowger_store::second_level::SecondLevel;
use strowger_store::subscriber::Subscribers;
use strowger_store::{sqlite_bindings, sqlite_subscribers};

/// What a server keeps, and whom it knows.
#[derive(Default)]
pub(crate) struct Store {
    /// Writes bindings; none where they are kept in memory.
    pub(crate) journal: Option<Journal>,
    pub(crate) subscribers: Option<Arc<dyn Subscribers>>,
    /// The same subscribers, where a database server has them.
    pub(crate) directory: Option<Directory>,
    /// The cache between memory and their database.
    pub(crate) second: Option<SecondLevel>,
}

/// Opens what the configuration names: a database file, a database server for the subscribers, both or none.
pub(crate) fn open(config: &Config, location: &Arc<LocationTable>, caches: &Caches) -> anyhow::Result<Store> {
    let clock: Clock = Arc::new(|| {
        let now = strowger_net::clock::now();
        Moment { mono: now.mono, wall: now.wall }
    });
    let second = caches.second_level(config, &clock);
    let mut store = Store { second: second.clone(), ..Store::default() };
    // First the one that may not answer.
    if let Some(url) = &config.store.subscribers {
        let directory = Directory::open(config, url, second.as_ref(), clock.clone()).context("`store.subscribers`")?;
        store.subscribers = Some(directory.subscribers());
        store.directory = Some(directory);
    }
    let Some(settings) = config.sqlite_settings() else { return Ok(store) };
    let (journal, loaded) = sqlite_bindings::keep(&settings, location, config.journal_settings(), clock.clone())
        .map_err(|error| match access::denial(&settings.path, true) {
            Some(reason) => anyhow::anyhow!("{error}; {reason}"),
            None => error.into(),
        })?;
    tracing::info!(database = %settings.path.display(), bindings = loaded, "bindings loaded");
    store.journal = journal;
    if store.subscribers.is_none() {
        let cache = config.read_through_settings();
        let subscribers = match &second {
            Some(second) => sqlite_subscribers::start_behind(&settings, second, cache, clock),
            None => sqlite_subscribers::start(&settings, cache, clock),
        }?;
        store.subscribers = Some(Arc::new(subscribers));
    }
    Ok(store)
}

/// The writer of accounting; nothing where nothing is accounted.
pub(crate) fn accounting(config: &Config) -> anyhow::Result<Option<Arc<Accounting>>> {
    let Some(settings) = config.accounting_settings() else { return Ok(None) };
    let accounting = Accounting::start(settings, Arc::new(|| strowger_net::clock::now().wall))?;
    let left = accounting.figures().spool_rows;
    if left > 0 {
        tracing::info!(rows = left, "rows of accounting in the spool");
    }
    Ok(Some(Arc::new(accounting)))
}

/// The secret that the server drew itself, kept in a file beside its database: routes of running calls and nonces stay good
/// over a restart. Without a database the server draws another at each start.
pub(crate) fn kept_secret(config: &Config) -> anyhow::Result<Vec<u8>> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let Some(database) = &config.store.database else { return Ok(random::<32>()?.to_vec()) };
    let path = database.with_extension("secret");
    let what = || format!("{}: the secret of this server", path.display());
    match std::fs::read(&path) {
        Ok(secret) if secret.len() >= 16 => return Ok(secret),
        Ok(_) => anyhow::bail!("{} is shorter than 16 bytes: remove the file, the server draws another", what()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (),
        Err(error) => {
            let reason = access::denial(&path, false).map(|reason| format!(": {reason}")).unwrap_or_default();
            return Err(error).with_context(|| format!("{} cannot be read{reason}", what()));
        }
    }
    let secret = random::<32>()?;
    // Whole or not at all: another start must not find half of it.
    let draft = database.with_extension("secret.new");
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&draft)
        .with_context(|| format!("{} cannot be written", what()))?;
    file.write_all(&secret).and_then(|()| file.sync_all()).with_context(|| format!("{} cannot be written", what()))?;
    std::fs::rename(&draft, &path).with_context(|| format!("{} cannot be written", what()))?;
    Ok(secret.to_vec())
}
