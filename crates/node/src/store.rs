//! Database of the server, and the file of its secret next to it.

use crate::backends;
use crate::caches::Caches;
use crate::directory::Directory;
use crate::lease::Leases;
use crate::random;
use anyhow::{Context, anyhow};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use strowger_backend::accounting::Accounting;
use strowger_backend::sqlite;
use strowger_backend::technology::{self, DataPlace};
use strowger_config::Config;
use strowger_files::{access, private};
use strowger_store::clock::{Clock, Moment};
use strowger_store::journal::Journal;
use strowger_store::location::LocationTable;
use strowger_store::second_level::SecondLevel;
use strowger_store::subscriber::Subscribers;

/// Storage of bindings and subscribers.
#[derive(Default)]
pub(crate) struct Store {
    /// Writer of bindings; `None`: they are kept in memory.
    pub(crate) journal: Option<Journal>,
    pub(crate) subscribers: Option<Arc<dyn Subscribers>>,
    /// Subscribers in a table of a database server, if they are there.
    pub(crate) directory: Option<Directory>,
    /// Cache between memory and the database of subscribers.
    pub(crate) second: Option<SecondLevel>,
}

/// Opens the database file and the database servers that the configuration names, if any.
pub(crate) fn open(
    config: &Config,
    location: &Arc<LocationTable>,
    caches: &Caches,
    leases: &Leases,
) -> anyhow::Result<Store> {
    let clock: Clock = Arc::new(|| {
        let now = strowger_net::clock::now();
        Moment { mono: now.mono, wall: now.wall }
    });
    let second = caches.second_level(config, &clock);
    let mut store = Store { second: second.clone(), ..Store::default() };
    // The database server is opened first, because it may not answer.
    if let Some(server) = &config.store.subscribers {
        let directory =
            Directory::open(config, server, second.as_ref(), clock.clone()).context("`store.subscribers`")?;
        store.subscribers = Some(directory.subscribers());
        store.directory = Some(directory);
    }
    if let Some((technology, place)) = backends::bindings(config, leases) {
        let keep = technology::find(technology, |technology| technology.bindings);
        let kept = keep.and_then(|keep| keep(&place, location, config.journal_settings(), clock.clone()));
        let (journal, loaded) = kept.map_err(|error| bindings_unusable(anyhow!(error), &place))?;
        tracing::info!(database = %place, bindings = loaded, "bindings loaded");
        store.journal = journal;
    }
    if store.subscribers.is_none()
        && let Some(settings) = backends::sqlite(config)
    {
        let cache = config.read_through_settings();
        let subscribers = match &second {
            Some(second) => sqlite::subscribers::start_behind(&settings, second, cache, clock),
            None => sqlite::subscribers::start(&settings, cache, clock),
        }?;
        store.subscribers = Some(Arc::new(subscribers));
    }
    Ok(store)
}

/// Adds to the error the key that names the server, or the rights that the file lacks.
fn bindings_unusable(error: anyhow::Error, place: &DataPlace) -> anyhow::Error {
    match access::denial(&place.path, true) {
        _ if place.server.is_some() => error.context("`store.bindings`"),
        Some(reason) => anyhow!("{error}; {reason}"),
        None => error,
    }
}

/// Opens the writer of accounting; `None` if accounting is off.
pub(crate) fn accounting(config: &Config) -> anyhow::Result<Option<Arc<Accounting>>> {
    let Some(settings) = backends::accounting(config) else { return Ok(None) };
    let (technology, place) = backends::rows(config);
    let open = technology::find(technology, |technology| technology.accounting);
    let sink = open.and_then(|open| open(&place)).map_err(|error| anyhow!(error));
    let key = if place.server.is_some() { "`accounting.database`" } else { "`accounting.to`" };
    let accounting = Accounting::start(sink.context(key)?, settings, Arc::new(|| strowger_net::clock::now().wall))?;
    let left = accounting.figures().spool_rows;
    if left > 0 {
        tracing::info!(rows = left, "rows of accounting in the spool");
    }
    Ok(Some(Arc::new(accounting)))
}

/// Secret of the server. It comes from the configuration; otherwise the server draws it and keeps it in a file next to
/// its database, so that route tokens of present calls and nonces stay valid over a restart. Without a database the
/// server draws another secret at each start.
pub(crate) struct Secret {
    pub(crate) bytes: Vec<u8>,
    /// Database next to which a newly drawn secret must be stored.
    unkept: Option<PathBuf>,
}

impl Secret {
    /// Reads or draws the secret, without writing a file.
    pub(crate) fn of(config: &Config) -> anyhow::Result<Self> {
        let known = match &config.auth.secret {
            Some(secret) => Some(secret.reveal().to_vec()),
            None => config.store.database.as_deref().map(read_secret).transpose()?.flatten(),
        };
        Ok(match known {
            Some(bytes) => Self { bytes, unkept: None },
            None => Self { bytes: random::<32>()?.to_vec(), unkept: config.store.database.clone() },
        })
    }

    /// Writes the file of a newly drawn secret.
    pub(crate) fn keep(self) -> anyhow::Result<Vec<u8>> {
        if let Some(database) = &self.unkept {
            write_secret(database, &self.bytes)?;
        }
        Ok(self.bytes)
    }
}

fn secret_path(database: &Path) -> (PathBuf, String) {
    let path = database.with_extension("secret");
    let what = format!("{}: the secret of this server", path.display());
    (path, what)
}

fn read_secret(database: &Path) -> anyhow::Result<Option<Vec<u8>>> {
    let (path, what) = secret_path(database);
    match std::fs::read(&path) {
        Ok(secret) if secret.len() >= 16 => Ok(Some(secret)),
        Ok(_) => anyhow::bail!("{what} is shorter than 16 bytes: remove the file, the server draws another"),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let reason = access::denial(&path, false).map(|reason| format!(": {reason}")).unwrap_or_default();
            Err(error).with_context(|| format!("{what} cannot be read{reason}"))
        }
    }
}

fn write_secret(database: &Path, secret: &[u8]) -> anyhow::Result<()> {
    use std::io::Write;
    let (path, what) = secret_path(database);
    let fails = || format!("{what} cannot be written");
    // The file is written atomically, so that no other start finds half of the file.
    let draft = database.with_extension("secret.new");
    let mut file = private::file().truncate(true).open(&draft).with_context(fails)?;
    file.write_all(secret).and_then(|()| file.sync_all()).with_context(fails)?;
    std::fs::rename(&draft, &path).with_context(fails)
}
