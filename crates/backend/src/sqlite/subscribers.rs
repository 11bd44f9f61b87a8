//! Subscribers in the SQLite file: the engine that answers shards, and the commands of an administrator.

mod unusable_passwords;

pub use self::unusable_passwords::UnusablePasswords;

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use strowger_files::FileNumber;

use crate::sqlite::database_header;
use crate::sqlite::schema;
use crate::sqlite::{self, OpenError, SqliteSettings};
use strowger_store::cached_subscribers::CachedSubscribers;
use strowger_store::clock::Clock;
use strowger_store::error::StoreError;
use strowger_store::read_through::{Changes, LookupEngine, ReadThroughSettings};
use strowger_store::second_level::SecondLevel;
use strowger_store::subscriber::{
    AdminError, Asked, Credential, Ha1s, Listed, Question, Removed, SubscriberAdmin, SubscriberAnswer, SubscriberWatch,
};

const CREDENTIAL: &str = "SELECT s.domain, c.algorithm, c.ha1 FROM credential c JOIN subscriber s ON s.id = c.subscriber \
    WHERE c.username = ?1 AND c.realm = ?2";
const EXISTS: &str = "SELECT 1 FROM subscriber WHERE domain = ?1 AND username = ?2";
/// At most 1,000 at once; the others when those are settled.
const REMOVED: &str = "SELECT id, username, domain FROM removed_subscriber ORDER BY id LIMIT 1000";
const LAST_NOTICE: &str = "SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'subscriber_change'";
const CHANGES: &str = "SELECT username, domain, realm FROM subscriber_change WHERE id > ?1 AND id <= ?2";
/// Log text of a failed read.
const READ: &str = "subscribers cannot be read";

/// Opens the file for the server, with the cache in memory before the file.
///
/// # Errors
/// [`OpenError`], for display as it is; or a thread could not be started.
pub fn start(
    settings: &SqliteSettings,
    cache: ReadThroughSettings,
    clock: Clock,
) -> Result<CachedSubscribers, OpenError> {
    let first = SqliteSubscribers::open(settings)?;
    let watch = SqliteNotices::open(settings)?;
    let more = settings.clone();
    let number = FileNumber::named(&settings.path);
    let connect = move || Opened::again(&more, number).map(SqliteSubscribers);
    CachedSubscribers::start(first, connect, watch, cache, clock)
        .map_err(|error| OpenError::Io { path: settings.path.clone(), detail: error.to_string() })
}

/// Opens the file with another cache between the cache in memory and the file.
///
/// # Errors
/// See [`start`].
pub fn start_behind(
    settings: &SqliteSettings,
    second: &SecondLevel,
    cache: ReadThroughSettings,
    clock: Clock,
) -> Result<CachedSubscribers, OpenError> {
    let first = second.before(SqliteSubscribers::open(settings)?);
    let watch = second.watched_by(SqliteNotices::open(settings)?);
    let (more, second) = (settings.clone(), second.clone());
    let number = FileNumber::named(&settings.path);
    let connect = move || Opened::again(&more, number).map(|opened| second.before(SqliteSubscribers(opened)));
    CachedSubscribers::start(first, connect, watch, cache, clock)
        .map_err(|error| OpenError::Io { path: settings.path.clone(), detail: error.to_string() })
}

/// Answers questions from the file on a connection of its own.
pub struct SqliteSubscribers(Opened);

impl SqliteSubscribers {
    /// Opens the file.
    ///
    /// # Errors
    /// [`OpenError`], for display as it is.
    pub fn open(settings: &SqliteSettings) -> Result<Self, OpenError> {
        Opened::new(settings).map(Self)
    }

    fn find(&self, question: Question<'_>) -> rusqlite::Result<SubscriberAnswer> {
        // Names in the file are text, so a name that is not UTF-8 cannot be in the file.
        let text = |a, b| std::str::from_utf8(a).ok().zip(std::str::from_utf8(b).ok());
        Ok(match question {
            Question::Credential { username, realm } => match text(username, realm) {
                Some((username, realm)) => self.credential(username, realm)?,
                None => SubscriberAnswer::Absent,
            },
            Question::User { username, domain } => match text(username, domain) {
                Some((username, domain)) => {
                    let mut select = self.0.connection.prepare_cached(EXISTS)?;
                    if select.exists([domain, username])? { SubscriberAnswer::Exists } else { SubscriberAnswer::Absent }
                }
                None => SubscriberAnswer::Absent,
            },
        })
    }

    fn credential(&self, username: &str, realm: &str) -> rusqlite::Result<SubscriberAnswer> {
        let mut select = self.0.connection.prepare_cached(CREDENTIAL)?;
        let mut rows = select.query([username, realm])?;
        let mut found: Option<Credential> = None;
        while let Some(row) = rows.next()? {
            let credential = match &mut found {
                Some(credential) => credential,
                none => none.insert(Credential {
                    username: username.into(),
                    realm: realm.into(),
                    domain: row.get::<_, String>(0)?.into(),
                    ha1: Ha1s::default(),
                }),
            };
            let algorithm: String = row.get(1)?;
            if credential.ha1.set(&algorithm, row.get_ref(2)?.as_blob()?).is_none() {
                let path = self.0.settings.path.display();
                tracing::warn!(%path, username, realm, "an HA1 for {algorithm:?} is left out");
            }
        }
        Ok(found.map_or(SubscriberAnswer::Absent, |credential| SubscriberAnswer::Credential(Arc::new(credential))))
    }
}

impl LookupEngine for SqliteSubscribers {
    type Key = Asked;

    fn answer(&mut self, questions: &[Asked], answers: &mut Vec<SubscriberAnswer>) -> Result<(), StoreError> {
        for asked in questions {
            answers.push(self.find(asked.question()).map_err(|error| self.0.failed(READ, &error))?);
        }
        Ok(())
    }
}

/// Reads the notices of the file on a connection of its own.
pub struct SqliteNotices {
    file: Opened,
    /// Number of the last notice read.
    seen: i64,
}

impl SqliteNotices {
    /// Opens the file. From then on changes are reported.
    ///
    /// # Errors
    /// [`OpenError`], for display as it is.
    pub fn open(settings: &SqliteSettings) -> Result<Self, OpenError> {
        let file = Opened::new(settings)?;
        let seen = file.connection.query_row(LAST_NOTICE, [], |row| row.get(0));
        let seen = seen.map_err(|error| sqlite::explain(&settings.path, settings.busy_timeout, &error))?;
        Ok(Self { file, seen })
    }

    /// Reads the notices after the last notice that was read. Returns the changes and the number of the last notice.
    fn read(&self) -> rusqlite::Result<(Changes<Asked>, i64)> {
        let connection = &self.file.connection;
        let last = connection.prepare_cached(LAST_NOTICE)?.query_row([], |row| row.get(0))?;
        let seen = self.seen;
        if last == seen {
            return Ok((Changes::None, last));
        }
        // The table was emptied, or it has had more notices than it stores.
        if last < seen || last - seen > schema::NOTICES {
            return Ok((Changes::All, last));
        }
        let mut select = connection.prepare_cached(CHANGES)?;
        let mut rows = select.query([seen, last])?;
        let mut changed = Vec::new();
        while let Some(row) = rows.next()? {
            let text = |column| row.get_ref(column).map(|value| value.as_bytes_or_null().unwrap_or_default());
            let username = text(0)?.unwrap_or_default();
            if let Some(domain) = text(1)? {
                changed.push(Asked::from(Question::User { username, domain }));
            }
            if let Some(realm) = text(2)? {
                changed.push(Asked::from(Question::Credential { username, realm }));
            }
        }
        // Some were deleted during the read.
        let first: Option<i64> = connection.query_row("SELECT min(id) FROM subscriber_change", [], |row| row.get(0))?;
        Ok((if first.is_some_and(|first| first > seen + 1) { Changes::All } else { Changes::Of(changed) }, last))
    }
}

impl SubscriberWatch for SqliteNotices {
    fn changes(&mut self) -> Result<Changes<Asked>, StoreError> {
        let (changes, last) = self.read().map_err(|error| self.file.failed(READ, &error))?;
        self.seen = last;
        Ok(changes)
    }

    fn removed(&mut self) -> Result<Vec<Removed>, StoreError> {
        let look = || -> rusqlite::Result<Vec<Removed>> {
            let mut select = self.file.connection.prepare_cached(REMOVED)?;
            let rows = select.query_map([], |row| {
                let (username, domain) = (row.get::<_, String>(1)?.into(), row.get::<_, String>(2)?.into());
                Ok(Removed { id: row.get::<_, i64>(0)?.cast_unsigned(), username, domain })
            })?;
            rows.collect()
        };
        look().map_err(|error| self.file.failed(READ, &error))
    }

    fn settle(&mut self, ids: &[u64]) -> Result<(), StoreError> {
        let mut forget = || -> rusqlite::Result<()> {
            let tx = self.file.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for id in ids {
                tx.prepare_cached("DELETE FROM removed_subscriber WHERE id = ?1")?.execute([id.cast_signed()])?;
            }
            tx.commit()
        };
        forget().map_err(|error| self.file.failed("removals of subscribers cannot be noted as done", &error))
    }
}

/// Connection to the file, which logs its failures.
struct Opened {
    connection: Connection,
    settings: SqliteSettings,
    /// Time of the last log line about a failure.
    logged_at: Cell<Option<Instant>>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        database_header::before_close(&self.connection, &self.settings.path);
    }
}

impl Opened {
    /// Interval of log lines about a lasting failure: questions arrive as fast as requests do.
    const AGAIN: Duration = Duration::from_secs(10);

    fn new(settings: &SqliteSettings) -> Result<Self, OpenError> {
        Ok(Self { connection: sqlite::open(settings)?, settings: settings.clone(), logged_at: Cell::default() })
    }

    /// Opens another connection to the open file with this number. Refuses another file of the same name, which would
    /// be read with the log of the first file.
    fn again(settings: &SqliteSettings, number: Option<FileNumber>) -> Result<Self, StoreError> {
        if number.is_none() || FileNumber::named(&settings.path) != number {
            tracing::error!(path = %settings.path.display(), "the database file was removed or replaced: put it back, or restart the server");
            return Err(StoreError::Unavailable);
        }
        Self::new(settings).map_err(|error| {
            tracing::error!("a further connection for look-ups: {error}");
            error.kind()
        })
    }

    fn failed(&self, what: &str, error: &rusqlite::Error) -> StoreError {
        let now = Instant::now();
        if self.logged_at.get().is_none_or(|last| now - last >= Self::AGAIN) {
            self.logged_at.set(Some(now));
            tracing::error!(path = %self.settings.path.display(), "{what}: {error}");
        }
        sqlite::classify(error)
    }
}

/// Returns whether a file has a user with this name in this domain; `None` if there is no file, or no table of
/// subscribers. Changes nothing.
///
/// # Errors
/// Error of the database.
pub fn has_user(settings: &SqliteSettings, username: &str, domain: &str) -> Result<Option<bool>, OpenError> {
    if !settings.path.exists() {
        return Ok(None);
    }
    let look = || -> rusqlite::Result<Option<bool>> {
        let connection = sqlite::open_to_look(&settings.path, settings.busy_timeout)?;
        if !connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'subscriber'")?.exists([])? {
            return Ok(None);
        }
        connection.prepare(EXISTS)?.exists([domain, username]).map(Some)
    };
    look().map_err(|error| sqlite::explain(&settings.path, settings.busy_timeout, &error))
}

/// Commands about subscribers. Any process may use them while a server runs on the same file.
pub struct SqliteAdmin {
    connection: Connection,
}

impl SqliteAdmin {
    /// Opens the file, creates it if missing.
    ///
    /// # Errors
    /// [`OpenError`], for display as it is.
    pub fn open(settings: &SqliteSettings) -> Result<Self, OpenError> {
        Ok(Self { connection: sqlite::open(settings)? })
    }

    fn transaction(&mut self) -> Result<Transaction<'_>, AdminError> {
        self.connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(admin_error)
    }
}

/// Converts the error of a command.
fn admin_error(error: rusqlite::Error) -> AdminError {
    match sqlite::classify(&error) {
        StoreError::TimedOut => AdminError::Locked,
        StoreError::Full => AdminError::NoRoom,
        _ => AdminError::Database(error.to_string()),
    }
}

fn id_of(tx: &Transaction<'_>, username: &str, domain: &str) -> rusqlite::Result<Option<i64>> {
    let mut select = tx.prepare_cached("SELECT id FROM subscriber WHERE domain = ?1 AND username = ?2")?;
    select.query_row([domain, username], |row| row.get(0)).optional()
}

fn write_ha1(tx: &Transaction<'_>, id: i64, username: &str, realm: &str, ha1: &Ha1s) -> Result<(), AdminError> {
    if let Some(domain) = domain_of_other(tx, id, username, realm).map_err(admin_error)? {
        return Err(AdminError::RealmTaken { username: username.into(), realm: realm.into(), domain });
    }
    let write = || -> rusqlite::Result<()> {
        tx.execute("DELETE FROM credential WHERE username = ?1 AND realm = ?2", [username, realm])?;
        let mut insert = tx.prepare_cached("INSERT INTO credential VALUES (?1, ?2, ?3, ?4, ?5)")?;
        for (algorithm, digest) in ha1.iter() {
            insert.execute(params![username, realm, algorithm, digest, id])?;
        }
        Ok(())
    };
    write().map_err(admin_error)
}

/// Returns the domain of another user that has a password for this name in the realm, if there is one.
fn domain_of_other(tx: &Transaction<'_>, id: i64, username: &str, realm: &str) -> rusqlite::Result<Option<String>> {
    let mut other = tx.prepare_cached(
        "SELECT s.domain FROM credential c JOIN subscriber s ON s.id = c.subscriber \
         WHERE c.username = ?1 AND c.realm = ?2 AND c.subscriber <> ?3",
    )?;
    other.query_row(params![username, realm, id], |row| row.get(0)).optional()
}

/// Checks that the names are not empty, so that later look-ups find them. Returns the domain in lower case.
fn checked(username: &str, domain: &str, realm: &str, ha1: &Ha1s) -> Result<String, AdminError> {
    if username.is_empty() || domain.is_empty() || realm.is_empty() {
        return Err(AdminError::NoName);
    }
    if ha1.iter().next().is_none() {
        return Err(AdminError::NoSecret);
    }
    Ok(domain.to_ascii_lowercase())
}

fn time(ms: u64) -> i64 {
    i64::try_from(ms).unwrap_or(i64::MAX)
}

impl SubscriberAdmin for SqliteAdmin {
    fn add(&mut self, username: &str, domain: &str, realm: &str, ha1: &Ha1s, now_ms: u64) -> Result<(), AdminError> {
        let domain = checked(username, domain, realm, ha1)?;
        let tx = self.transaction()?;
        if id_of(&tx, username, &domain).map_err(admin_error)?.is_some() {
            return Err(AdminError::Exists { username: username.into(), domain });
        }
        tx.execute(
            "INSERT INTO subscriber (username, domain, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)",
            params![username, domain, time(now_ms)],
        )
        .map_err(admin_error)?;
        write_ha1(&tx, tx.last_insert_rowid(), username, realm, ha1)?;
        tx.commit().map_err(admin_error)
    }

    fn set_password(
        &mut self,
        username: &str,
        domain: &str,
        realm: &str,
        ha1: &Ha1s,
        now_ms: u64,
    ) -> Result<(), AdminError> {
        let domain = checked(username, domain, realm, ha1)?;
        let tx = self.transaction()?;
        let Some(id) = id_of(&tx, username, &domain).map_err(admin_error)? else {
            return Err(AdminError::Missing { username: username.into(), domain });
        };
        write_ha1(&tx, id, username, realm, ha1)?;
        tx.execute("UPDATE subscriber SET updated_at = ?2 WHERE id = ?1", params![id, time(now_ms)])
            .map_err(admin_error)?;
        tx.commit().map_err(admin_error)
    }

    fn remove_password(&mut self, username: &str, domain: &str, realm: &str) -> Result<(), AdminError> {
        let domain = domain.to_ascii_lowercase();
        let tx = self.transaction()?;
        let Some(id) = id_of(&tx, username, &domain).map_err(admin_error)? else {
            return Err(AdminError::Missing { username: username.into(), domain });
        };
        tx.execute("DELETE FROM credential WHERE subscriber = ?1 AND realm = ?2", params![id, realm])
            .map_err(admin_error)?;
        tx.commit().map_err(admin_error)
    }

    fn remove(&mut self, username: &str, domain: &str) -> Result<(), AdminError> {
        let domain = domain.to_ascii_lowercase();
        let removed = self
            .connection
            .execute("DELETE FROM subscriber WHERE domain = ?1 AND username = ?2", [domain.as_str(), username])
            .map_err(admin_error)?;
        if removed == 0 {
            return Err(AdminError::Missing { username: username.into(), domain });
        }
        Ok(())
    }

    fn list(&mut self, domain: Option<&str>) -> Result<Vec<Listed>, AdminError> {
        let domain = domain.map(str::to_ascii_lowercase);
        let read = || -> rusqlite::Result<Vec<Listed>> {
            let mut select = self.connection.prepare_cached(
                "SELECT s.id, s.username, s.domain, s.created_at, s.updated_at, c.realm, c.algorithm \
                 FROM subscriber s LEFT JOIN credential c ON c.subscriber = s.id \
                 WHERE ?1 IS NULL OR s.domain = ?1 ORDER BY s.domain, s.username, c.realm, c.algorithm",
            )?;
            let mut rows = select.query([domain])?;
            let mut listed: Vec<Listed> = Vec::new();
            let mut last = None;
            while let Some(row) = rows.next()? {
                let id: i64 = row.get(0)?;
                if last.replace(id) != Some(id) {
                    listed.push(Listed {
                        username: row.get(1)?,
                        domain: row.get(2)?,
                        realms: Vec::new(),
                        created_at: row.get::<_, i64>(3)?.cast_unsigned(),
                        updated_at: row.get::<_, i64>(4)?.cast_unsigned(),
                    });
                }
                let realm: Option<String> = row.get(5)?;
                if let (Some(realm), Some(user)) = (realm, listed.last_mut()) {
                    let algorithm: String = row.get(6)?;
                    match user.realms.last_mut() {
                        Some((same, algorithms)) if *same == realm => algorithms.push(algorithm),
                        _ => user.realms.push((realm, vec![algorithm])),
                    }
                }
            }
            Ok(listed)
        };
        read().map_err(admin_error)
    }
}

#[cfg(test)]
mod tests;
