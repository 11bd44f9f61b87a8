//! Subscribers in the SQLite file: the engine that answers shards, and the orders of the command line.

use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior, params};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cached_subscribers::CachedSubscribers;
use crate::clock::Clock;
use crate::error::StoreError;
use crate::read_through::{Changes, Engine, ReadThroughSettings};
use crate::schema;
use crate::second_level::SecondLevel;
use crate::sqlite::{self, FileNumber, OpenError, SqliteSettings};
use crate::subscriber::{
    AdminError, Answer, Asked, Credential, Ha1s, Listed, Question, Removed, SubscriberAdmin, SubscriberWatch,
};

const CREDENTIAL: &str = "SELECT s.domain, c.algorithm, c.ha1 FROM credential c JOIN subscriber s ON s.id = c.subscriber \
    WHERE c.username = ?1 AND c.realm = ?2";
const EXISTS: &str = "SELECT 1 FROM subscriber WHERE domain = ?1 AND username = ?2";
/// The domain of users that comes behind this one, if there is one.
const NEXT_DOMAIN: &str = "SELECT min(domain) FROM subscriber WHERE domain > ?1";
const WITHOUT_REALM: &str = "SELECT count(*) FROM subscriber s WHERE s.domain = ?1 \
    AND NOT EXISTS (SELECT 1 FROM credential c WHERE c.subscriber = s.id AND c.realm = ?2)";
const THEIR_REALM: &str = "SELECT o.realm FROM subscriber s JOIN credential o ON o.subscriber = s.id WHERE s.domain = ?1 \
    AND NOT EXISTS (SELECT 1 FROM credential c WHERE c.subscriber = s.id AND c.realm = ?2) \
    GROUP BY o.realm ORDER BY count(DISTINCT s.id) DESC, o.realm LIMIT 1";
const WITHOUT_ALGORITHM: &str = "SELECT count(*) FROM subscriber s WHERE s.domain = ?1 \
    AND EXISTS (SELECT 1 FROM credential c WHERE c.subscriber = s.id AND c.realm = ?2) \
    AND NOT EXISTS (SELECT 1 FROM credential c WHERE c.subscriber = s.id AND c.realm = ?2 AND c.algorithm = ?3)";
/// So many at once; the others when those are settled.
const REMOVED: &str = "SELECT id, username, domain FROM removed_subscriber ORDER BY id LIMIT 1000";
const LAST_NOTICE: &str = "SELECT ifnull(max(seq), 0) FROM sqlite_sequence WHERE name = 'subscriber_change'";
const CHANGES: &str = "SELECT username, domain, realm FROM subscriber_change WHERE id > ?1 AND id <= ?2";
/// What is said of a failure.
const READ: &str = "subscribers cannot be read";

/// Opens the file for the server: users that are known at once or soon.
///
/// # Errors
/// [`OpenError`], to be shown as it is; or a thread could not be started.
pub fn start(
    settings: &SqliteSettings,
    cache: ReadThroughSettings,
    clock: Clock,
) -> Result<CachedSubscribers, OpenError> {
    let first = SqliteSubscribers::open(settings)?;
    let watch = SqliteNotices::open(settings)?;
    let more = settings.clone();
    let number = sqlite::number_of(&settings.path);
    let connect = move || Opened::again(&more, number).map(SqliteSubscribers);
    CachedSubscribers::start(first, connect, watch, cache, clock)
        .map_err(|error| OpenError::Io { path: settings.path.clone(), detail: error.to_string() })
}

/// The same with a cache between memory and the file.
///
/// # Errors
/// As those of [`start`].
pub fn start_behind(
    settings: &SqliteSettings,
    second: &SecondLevel,
    cache: ReadThroughSettings,
    clock: Clock,
) -> Result<CachedSubscribers, OpenError> {
    let first = second.before(SqliteSubscribers::open(settings)?);
    let watch = second.watched_by(SqliteNotices::open(settings)?);
    let (more, second) = (settings.clone(), second.clone());
    let number = sqlite::number_of(&settings.path);
    let connect = move || Opened::again(&more, number).map(|opened| second.before(SqliteSubscribers(opened)));
    CachedSubscribers::start(first, connect, watch, cache, clock)
        .map_err(|error| OpenError::Io { path: settings.path.clone(), detail: error.to_string() })
}

/// Answers questions from the file by a connection of its own.
pub struct SqliteSubscribers(Opened);

impl SqliteSubscribers {
    /// Opens the file.
    ///
    /// # Errors
    /// [`OpenError`], to be shown as it is.
    pub fn open(settings: &SqliteSettings) -> Result<Self, OpenError> {
        Opened::new(settings).map(Self)
    }

    fn find(&self, question: Question<'_>) -> rusqlite::Result<Answer> {
        // Names in the file are text; one that is not UTF-8 cannot be there.
        let text = |a, b| std::str::from_utf8(a).ok().zip(std::str::from_utf8(b).ok());
        Ok(match question {
            Question::Credential { username, realm } => match text(username, realm) {
                Some((username, realm)) => self.credential(username, realm)?,
                None => Answer::Absent,
            },
            Question::User { username, domain } => match text(username, domain) {
                Some((username, domain)) => {
                    let mut select = self.0.connection.prepare_cached(EXISTS)?;
                    if select.exists([domain, username])? { Answer::Exists } else { Answer::Absent }
                }
                None => Answer::Absent,
            },
        })
    }

    fn credential(&self, username: &str, realm: &str) -> rusqlite::Result<Answer> {
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
        Ok(found.map_or(Answer::Absent, |credential| Answer::Credential(Arc::new(credential))))
    }
}

impl Engine for SqliteSubscribers {
    type Key = Asked;

    fn answer(&mut self, questions: &[Asked], answers: &mut Vec<Answer>) -> Result<(), StoreError> {
        for asked in questions {
            answers.push(self.find(asked.question()).map_err(|error| self.0.failed(READ, &error))?);
        }
        Ok(())
    }
}

/// Reads the notices of the file by a connection of its own.
pub struct SqliteNotices {
    file: Opened,
    /// The last notice that was read.
    seen: i64,
}

impl SqliteNotices {
    /// Opens the file; it tells what changes from now on.
    ///
    /// # Errors
    /// [`OpenError`], to be shown as it is.
    pub fn open(settings: &SqliteSettings) -> Result<Self, OpenError> {
        let file = Opened::new(settings)?;
        let seen = file.connection.query_row(LAST_NOTICE, [], |row| row.get(0));
        let seen = seen.map_err(|error| sqlite::explain(&settings.path, settings.busy_timeout, &error))?;
        Ok(Self { file, seen })
    }

    /// What stands behind the last notice seen, and the number of the last one now.
    fn read(&self) -> rusqlite::Result<(Changes<Asked>, i64)> {
        let connection = &self.file.connection;
        let last = connection.prepare_cached(LAST_NOTICE)?.query_row([], |row| row.get(0))?;
        let seen = self.seen;
        if last == seen {
            return Ok((Changes::None, last));
        }
        // A table that was emptied, or more than are kept.
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
        // Some went while these were read.
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

/// A connection to the file, which says its failures.
struct Opened {
    connection: Connection,
    settings: SqliteSettings,
    /// When a failure was last said.
    said: Cell<Option<Instant>>,
}

impl Opened {
    /// Questions come as fast as requests do: a failure that lasts is said so often.
    const AGAIN: Duration = Duration::from_secs(10);

    fn new(settings: &SqliteSettings) -> Result<Self, OpenError> {
        Ok(Self { connection: sqlite::open(settings)?, settings: settings.clone(), said: Cell::default() })
    }

    /// A further connection to the file that is open and has this number. Another one of its name is not read: it would be with the log of
    /// the first.
    fn again(settings: &SqliteSettings, number: Option<FileNumber>) -> Result<Self, StoreError> {
        if number.is_none() || sqlite::number_of(&settings.path) != number {
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
        if self.said.get().is_none_or(|said| now - said >= Self::AGAIN) {
            self.said.set(Some(now));
            tracing::error!(path = %self.settings.path.display(), "{what}: {error}");
        }
        sqlite::classify(error)
    }
}

/// Users of one domain whose stored HA1s do not fit what phones are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnusablePasswords {
    /// Their domain, in lower case.
    pub domain: String,
    /// How many have no HA1 for its realm: they cannot answer a challenge.
    pub users: u64,
    /// The realm that most of those have an HA1 for; `None`: none of them has any.
    pub realm: Option<String>,
    /// Algorithms for which users of the realm have no HA1, and how many those are, never 0: they cannot answer with it.
    pub lacking: Vec<(String, u64)>,
}

impl UnusablePasswords {
    /// Looks for them, domain by domain, each with its realm; a domain where there are none is left out. Changes nothing: a file that is not
    /// there, or has no users' tables yet, has none.
    ///
    /// # Errors
    /// [`OpenError`], to be shown as it is.
    pub fn of<'r>(
        settings: &SqliteSettings,
        realm_of: impl Fn(&str) -> &'r str,
        algorithms: &[&str],
    ) -> Result<Vec<Self>, OpenError> {
        if !settings.path.exists() {
            return Ok(Vec::new());
        }
        let look = || -> rusqlite::Result<Vec<Self>> {
            let connection = sqlite::open_to_look(&settings.path, settings.busy_timeout)?;
            if !connection.prepare("SELECT 1 FROM sqlite_schema WHERE name = 'credential'")?.exists([])? {
                return Ok(Vec::new());
            }
            let mut found = Vec::new();
            let mut domain = String::new();
            let next = |domain: &str| -> rusqlite::Result<Option<String>> {
                connection.prepare_cached(NEXT_DOMAIN)?.query_row([domain], |row| row.get(0))
            };
            while let Some(next) = next(&domain)? {
                domain = next;
                let unusable = Self::of_domain(&connection, &domain, realm_of(&domain), algorithms)?;
                found.extend(Some(unusable).filter(|unusable| unusable.users > 0 || !unusable.lacking.is_empty()));
            }
            Ok(found)
        };
        look().map_err(|error| sqlite::explain(&settings.path, settings.busy_timeout, &error))
    }

    fn of_domain(connection: &Connection, domain: &str, realm: &str, algorithms: &[&str]) -> rusqlite::Result<Self> {
        let count = |row: &rusqlite::Row<'_>| row.get::<_, i64>(0).map(i64::cast_unsigned);
        let users = connection.prepare_cached(WITHOUT_REALM)?.query_row([domain, realm], count)?;
        let mut theirs = connection.prepare_cached(THEIR_REALM)?;
        let realm_of_most = match users {
            0 => None,
            _ => theirs.query_row([domain, realm], |row| row.get(0)).optional()?,
        };
        let mut lacking = Vec::new();
        for algorithm in algorithms {
            let mut select = connection.prepare_cached(WITHOUT_ALGORITHM)?;
            let users = select.query_row([domain, realm, algorithm], count)?;
            if users > 0 {
                lacking.push(((*algorithm).to_owned(), users));
            }
        }
        Ok(Self { domain: domain.into(), users, realm: realm_of_most, lacking })
    }
}

/// Orders about subscribers. Any process may give them while a server runs on the same file.
pub struct SqliteAdmin {
    connection: Connection,
}

impl SqliteAdmin {
    /// Opens the file, makes it when needed.
    ///
    /// # Errors
    /// [`OpenError`], to be shown as it is.
    pub fn open(settings: &SqliteSettings) -> Result<Self, OpenError> {
        Ok(Self { connection: sqlite::open(settings)? })
    }

    fn transaction(&mut self) -> Result<Transaction<'_>, AdminError> {
        Ok(self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?)
    }
}

impl From<rusqlite::Error> for AdminError {
    fn from(error: rusqlite::Error) -> Self {
        match sqlite::classify(&error) {
            StoreError::TimedOut => Self::Locked,
            StoreError::Full => Self::NoRoom,
            _ => Self::Database(error.to_string()),
        }
    }
}

fn id_of(tx: &Transaction<'_>, username: &str, domain: &str) -> Result<Option<i64>, AdminError> {
    let mut select = tx.prepare_cached("SELECT id FROM subscriber WHERE domain = ?1 AND username = ?2")?;
    Ok(select.query_row([domain, username], |row| row.get(0)).optional()?)
}

fn write_ha1(tx: &Transaction<'_>, id: i64, username: &str, realm: &str, ha1: &Ha1s) -> Result<(), AdminError> {
    let mut other = tx.prepare_cached(
        "SELECT s.domain FROM credential c JOIN subscriber s ON s.id = c.subscriber \
         WHERE c.username = ?1 AND c.realm = ?2 AND c.subscriber <> ?3",
    )?;
    if let Some(domain) = other.query_row(params![username, realm, id], |row| row.get(0)).optional()? {
        return Err(AdminError::RealmTaken { username: username.into(), realm: realm.into(), domain });
    }
    tx.execute("DELETE FROM credential WHERE username = ?1 AND realm = ?2", [username, realm])?;
    let mut insert = tx.prepare_cached("INSERT INTO credential VALUES (?1, ?2, ?3, ?4, ?5)")?;
    for (algorithm, digest) in ha1.iter() {
        insert.execute(params![username, realm, algorithm, digest, id])?;
    }
    Ok(())
}

/// Names that can be looked up again: not empty, the domain in lower case.
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
        if id_of(&tx, username, &domain)?.is_some() {
            return Err(AdminError::Exists { username: username.into(), domain });
        }
        tx.execute(
            "INSERT INTO subscriber (username, domain, created_at, updated_at) VALUES (?1, ?2, ?3, ?3)",
            params![username, domain, time(now_ms)],
        )?;
        write_ha1(&tx, tx.last_insert_rowid(), username, realm, ha1)?;
        Ok(tx.commit()?)
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
        let Some(id) = id_of(&tx, username, &domain)? else {
            return Err(AdminError::Missing { username: username.into(), domain });
        };
        write_ha1(&tx, id, username, realm, ha1)?;
        tx.execute("UPDATE subscriber SET updated_at = ?2 WHERE id = ?1", params![id, time(now_ms)])?;
        Ok(tx.commit()?)
    }

    fn remove_password(&mut self, username: &str, domain: &str, realm: &str) -> Result<(), AdminError> {
        let domain = domain.to_ascii_lowercase();
        let tx = self.transaction()?;
        let Some(id) = id_of(&tx, username, &domain)? else {
            return Err(AdminError::Missing { username: username.into(), domain });
        };
        tx.execute("DELETE FROM credential WHERE subscriber = ?1 AND realm = ?2", params![id, realm])?;
        Ok(tx.commit()?)
    }

    fn remove(&mut self, username: &str, domain: &str) -> Result<(), AdminError> {
        let domain = domain.to_ascii_lowercase();
        let removed = self
            .connection
            .execute("DELETE FROM subscriber WHERE domain = ?1 AND username = ?2", [domain.as_str(), username])?;
        if removed == 0 {
            return Err(AdminError::Missing { username: username.into(), domain });
        }
        Ok(())
    }

    fn list(&mut self, domain: Option<&str>) -> Result<Vec<Listed>, AdminError> {
        let domain = domain.map(str::to_ascii_lowercase);
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(dir: &tempfile::TempDir) -> SqliteSettings {
        SqliteSettings::new(dir.path().join("s.db"))
    }

    fn secret(n: u8) -> Ha1s {
        Ha1s { md5: Some([n; 16]), sha256: Some([n; 32]), sha512_256: None }
    }

    fn ask(engine: &mut SqliteSubscribers, question: Question<'_>) -> Answer {
        let mut answers = Vec::new();
        engine.answer(&[question.into()], &mut answers).unwrap();
        answers.remove(0)
    }

    fn credential<'a>(username: &'a str, realm: &'a str) -> Question<'a> {
        Question::Credential { username: username.as_bytes(), realm: realm.as_bytes() }
    }

    fn user<'a>(username: &'a str, domain: &'a str) -> Question<'a> {
        Question::User { username: username.as_bytes(), domain: domain.as_bytes() }
    }

    #[test]
    fn a_file_without_room_and_one_that_is_held_are_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let mut admin = SqliteAdmin::open(&SqliteSettings { busy_timeout: Duration::ZERO, ..settings(&dir) }).unwrap();
        let other = Connection::open(settings(&dir).path).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        assert_eq!(admin.add("alice", "a", "a", &secret(1), 0), Err(AdminError::Locked));
        other.execute_batch("ROLLBACK").unwrap();
        // No page more than it has.
        admin.connection.pragma_update_and_check(None, "max_page_count", 1, |_| Ok(())).unwrap();
        let full = (0..1_000).find_map(|n| admin.add(&n.to_string(), "a", "a", &secret(1), 0).err());
        assert_eq!(full, Some(AdminError::NoRoom));
    }

    #[test]
    fn what_was_ordered_is_answered() {
        let dir = tempfile::tempdir().unwrap();
        let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
        let mut engine = SqliteSubscribers::open(&settings(&dir)).unwrap();
        assert_eq!(ask(&mut engine, credential("alice", "r")), Answer::Absent);

        admin.add("alice", "Example.COM", "r", &secret(1), 5).unwrap();
        let want = |ha1| {
            let (username, realm, domain) = ("alice".into(), "r".into(), "example.com".into());
            Answer::Credential(Arc::new(Credential { username, realm, domain, ha1 }))
        };
        assert_eq!(ask(&mut engine, credential("alice", "r")), want(secret(1)));
        assert_eq!(ask(&mut engine, credential("Alice", "r")), Answer::Absent, "names differ by case");
        assert_eq!(ask(&mut engine, user("alice", "example.com")), Answer::Exists);
        assert_eq!(ask(&mut engine, user("bob", "example.com")), Answer::Absent);
        let odd = Question::Credential { username: b"\xff' OR 1=1 --", realm: b"r" };
        assert_eq!(ask(&mut engine, odd), Answer::Absent);

        let mut notices = SqliteNotices::open(&settings(&dir)).unwrap();
        let new = Ha1s { sha512_256: Some([9; 32]), ..Ha1s::default() };
        admin.set_password("alice", "example.com", "r", &new, 6).unwrap();
        let Changes::Of(changed) = notices.changes().unwrap() else { panic!("it is not known what changed") };
        assert!(changed.contains(&credential("alice", "r").into()), "{changed:?}");
        assert_eq!(notices.changes(), Ok(Changes::None));
        assert_eq!(ask(&mut engine, credential("alice", "r")), want(new), "old algorithms are gone");

        admin.remove("alice", "example.com").unwrap();
        assert_eq!(ask(&mut engine, credential("alice", "r")), Answer::Absent);
        assert_eq!(ask(&mut engine, user("alice", "example.com")), Answer::Absent);
    }

    #[test]
    fn wrong_orders_change_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
        admin.add("alice", "a.example", "r", &secret(1), 0).unwrap();
        let (username, domain) = (|| "alice".to_owned(), || "a.example".to_owned());
        assert_eq!(
            admin.add("alice", "A.example", "r", &secret(2), 0),
            Err(AdminError::Exists { username: username(), domain: domain() })
        );
        assert_eq!(
            admin.add("alice", "b.example", "r", &secret(2), 0),
            Err(AdminError::RealmTaken { username: username(), realm: "r".into(), domain: domain() })
        );
        assert_eq!(admin.add("bob", "a.example", "r", &Ha1s::default(), 0), Err(AdminError::NoSecret));
        assert_eq!(admin.add("", "a.example", "r", &secret(2), 0), Err(AdminError::NoName));
        let missing = || Err(AdminError::Missing { username: "bob".into(), domain: domain() });
        assert_eq!(admin.set_password("bob", "a.example", "r", &secret(2), 0), missing());
        assert_eq!(admin.remove_password("bob", "a.example", "r"), missing());
        assert_eq!(admin.remove("bob", "a.example"), missing());
        let listed = admin.list(None).unwrap();
        assert_eq!(listed.len(), 1, "{listed:?}");
        let mut engine = SqliteSubscribers::open(&settings(&dir)).unwrap();
        let Answer::Credential(alice) = ask(&mut engine, credential("alice", "r")) else { panic!("alice is gone") };
        assert_eq!(alice.ha1, secret(1));
    }

    #[test]
    fn a_list_is_by_domain_and_shows_no_secret() {
        let dir = tempfile::tempdir().unwrap();
        let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
        admin.add("bob", "b.example", "b.example", &secret(1), 1).unwrap();
        admin.add("carol", "a.example", "a.example", &secret(1), 2).unwrap();
        admin.add("alice", "a.example", "a.example", &secret(1), 3).unwrap();
        admin.set_password("alice", "a.example", "second", &secret(2), 4).unwrap();
        let names = |listed: Vec<Listed>| listed.into_iter().map(|l| l.username).collect::<Vec<_>>();
        assert_eq!(names(admin.list(None).unwrap()), ["alice", "carol", "bob"]);
        assert_eq!(names(admin.list(Some("B.example")).unwrap()), ["bob"]);
        let alice = &admin.list(Some("a.example")).unwrap()[0];
        let algorithms = || vec!["MD5".to_owned(), "SHA-256".to_owned()];
        assert_eq!(alice.realms, [("a.example".to_owned(), algorithms()), ("second".to_owned(), algorithms())]);
        assert_eq!((alice.created_at, alice.updated_at), (3, 4));
    }

    #[test]
    fn a_removed_user_is_reported_until_it_is_settled() {
        use crate::clock::tests::clock;
        use crate::subscriber::Subscribers;
        let dir = tempfile::tempdir().unwrap();
        let start = || {
            let cache = ReadThroughSettings { poll: Duration::from_millis(10), ..ReadThroughSettings::default() };
            start(&settings(&dir), cache, clock()).unwrap()
        };
        let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
        for name in ["alice", "bob"] {
            admin.add(name, "a.example", "r", &secret(1), 0).unwrap();
        }
        admin.remove("alice", "A.example").unwrap();
        let until = |running: &CachedSubscribers, names: &[&str]| {
            let end = Instant::now() + Duration::from_secs(20);
            loop {
                let removed = running.removed();
                if removed.iter().map(|r| &*r.username).eq(names.iter().copied()) {
                    return removed;
                }
                assert!(Instant::now() < end, "{removed:?}");
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        let noted = || -> i64 {
            let count = "SELECT count(*) FROM removed_subscriber";
            Connection::open(&settings(&dir).path).unwrap().query_row(count, [], |row| row.get(0)).unwrap()
        };
        // Removed before the start; no caller asks for anything.
        let running = start();
        let alice = until(&running, &["alice"]).remove(0);
        assert_eq!(&*alice.domain, "a.example");
        drop(running);
        let running = start();
        until(&running, &["alice"]);
        admin.remove("bob", "a.example").unwrap();
        until(&running, &["alice", "bob"]);
        running.settled(alice.id);
        assert_eq!(until(&running, &["bob"]).len(), 1);
        let end = Instant::now() + Duration::from_secs(20);
        while noted() != 1 {
            assert!(Instant::now() < end, "it is never forgotten");
            std::thread::sleep(Duration::from_millis(2));
        }
        drop(running);
        until(&start(), &["bob"]);
    }

    /// Each domain has a realm of its own, and in it an `alice` of its own.
    #[test]
    fn one_name_in_two_realms_is_two_users() {
        let dir = tempfile::tempdir().unwrap();
        let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
        for (domain, n) in [("a.example", 1), ("b.example", 2)] {
            admin.add("alice", domain, domain, &secret(n), 0).unwrap();
        }
        let mut engine = SqliteSubscribers::open(&settings(&dir)).unwrap();
        let mut of = |realm: &str| match ask(&mut engine, credential("alice", realm)) {
            Answer::Credential(found) => Some((found.domain.to_string(), found.ha1)),
            _ => None,
        };
        assert_eq!(of("a.example"), Some(("a.example".into(), secret(1))));
        assert_eq!(of("b.example"), Some(("b.example".into(), secret(2))));
        // One that is left in another realm keeps the name there, until it is removed.
        admin.set_password("alice", "b.example", "shared", &secret(2), 0).unwrap();
        let taken =
            AdminError::RealmTaken { username: "alice".into(), realm: "shared".into(), domain: "b.example".into() };
        assert_eq!(admin.set_password("alice", "a.example", "shared", &secret(1), 0), Err(taken));
        admin.remove_password("alice", "B.example", "shared").unwrap();
        admin.set_password("alice", "a.example", "shared", &secret(1), 0).unwrap();
        assert_eq!(of("shared"), Some(("a.example".into(), secret(1))));
        assert_eq!(of("b.example"), Some(("b.example".into(), secret(2))));
        admin.remove("alice", "a.example").unwrap();
        assert_eq!((of("a.example"), of("shared")), (None, None));
        assert!(of("b.example").is_some());
    }

    #[test]
    fn passwords_that_fit_no_challenge_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let of = |realm: &'static str| UnusablePasswords::of(&settings(&dir), |_| realm, &[]).unwrap();
        assert_eq!(of("new"), []);
        assert!(!settings(&dir).path.exists(), "looking makes no file");
        let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
        assert_eq!(of("new"), []);
        for name in ["alice", "bob", "carol"] {
            admin.add(name, "a.example", "old", &secret(1), 0).unwrap();
        }
        admin.add("dave", "a.example", "older", &secret(1), 0).unwrap();
        let domain = || "a.example".to_owned();
        let unusable = |users, realm: &str| UnusablePasswords {
            domain: domain(),
            users,
            realm: Some(realm.into()),
            ..UnusablePasswords::default()
        };
        assert_eq!(of("old"), [unusable(1, "older")]);
        assert_eq!(of("new"), [unusable(4, "old")]);
        for name in ["alice", "bob", "carol"] {
            admin.set_password(name, "a.example", "new", &secret(2), 0).unwrap();
        }
        assert_eq!(of("new"), [unusable(1, "older")], "an HA1 for the old realm does no harm");
        admin.connection.execute("DELETE FROM credential WHERE username = 'dave'", []).unwrap();
        assert_eq!(of("new"), [UnusablePasswords { domain: domain(), users: 1, ..UnusablePasswords::default() }]);
        admin.remove("dave", "a.example").unwrap();
        assert_eq!(of("new"), []);
        let lacking = |algorithms: &[&str]| {
            let found = UnusablePasswords::of(&settings(&dir), |_| "new", algorithms).unwrap();
            found.into_iter().flat_map(|unusable| unusable.lacking).collect::<Vec<_>>()
        };
        assert_eq!(lacking(&["MD5", "SHA-256"]), []);
        assert_eq!(lacking(&["MD5", "SHA-512-256"]), [("SHA-512-256".to_owned(), 3)]);
        admin.set_password("bob", "a.example", "new", &Ha1s { md5: None, ..secret(3) }, 0).unwrap();
        assert_eq!(lacking(&["MD5", "SHA-256"]), [("MD5".to_owned(), 1)]);
        std::fs::write(&settings(&dir).path, "this is no database, but long enough to look at".repeat(100)).unwrap();
        assert!(UnusablePasswords::of(&settings(&dir), |_| "new", &[]).is_err());
    }

    /// What fits in one domain does not in another.
    #[test]
    fn each_domain_is_looked_at_with_its_own_realm() {
        let dir = tempfile::tempdir().unwrap();
        let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
        for (name, domain, realm) in [
            ("alice", "a.example", "a.example"),
            ("alice", "b.example", "b.example"),
            ("bob", "b.example", "a.example"),
            ("bob", "c.example", "c.example"),
            ("carol", "c.example", "c.example"),
        ] {
            admin.add(name, domain, realm, &Ha1s { sha256: None, ..secret(1) }, 0).unwrap();
        }
        let of = |realm_of: fn(&str) -> &'static str, algorithms: &[&str]| {
            let found = UnusablePasswords::of(&settings(&dir), realm_of, algorithms).unwrap();
            let shown = |u: UnusablePasswords| (u.domain, u.users, u.realm.unwrap_or_default(), u.lacking.len());
            found.into_iter().map(shown).collect::<Vec<_>>()
        };
        let row = |domain: &str, users, realm: &str, lacking| (domain.to_owned(), users, realm.to_owned(), lacking);
        let own = |domain: &str| match domain {
            "a.example" => "a.example",
            "b.example" => "b.example",
            _ => "c.example",
        };
        assert_eq!(of(own, &["MD5"]), [row("b.example", 1, "a.example", 0)]);
        assert_eq!(
            of(own, &["SHA-256"]),
            [row("a.example", 0, "", 1), row("b.example", 1, "a.example", 1), row("c.example", 0, "", 1)]
        );
        assert_eq!(
            of(|_| "a.example", &[]),
            [row("b.example", 1, "b.example", 0), row("c.example", 2, "c.example", 0)]
        );
    }

    #[test]
    fn an_order_counts_in_a_running_server_soon() {
        use crate::clock::tests::{clock, now};
        use crate::subscriber::Subscribers;
        use crate::ticket::Ticket;
        let dir = tempfile::tempdir().unwrap();
        let poll = Duration::from_millis(100);
        let cache = ReadThroughSettings { poll, ..ReadThroughSettings::default() };
        let running = start(&settings(&dir), cache, clock()).unwrap();
        let (tx, rx) = std::sync::mpsc::channel();
        let sink = running.receiver(Arc::new(move |results: &[(u64, Result<Answer, StoreError>)]| {
            for (_, result) in results {
                let _gone = tx.send(result.clone());
            }
        }));
        let question = credential("alice", "r");
        let ask = || {
            running.request(Ticket { sink, value: 0 }, question, now()).unwrap();
            running.flush();
            rx.recv_timeout(Duration::from_secs(20)).unwrap().unwrap()
        };
        assert_eq!(ask(), Answer::Absent);
        assert_eq!(running.cached(question, now()), Some(Ok(Answer::Absent)));

        let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
        admin.add("alice", "example.com", "r", &secret(1), 0).unwrap();
        let start = Instant::now();
        while running.cached(question, now()).is_some() {
            assert!(start.elapsed() < Duration::from_secs(20), "the cache never heard of it");
            std::thread::sleep(Duration::from_millis(5));
        }
        let Answer::Credential(alice) = ask() else { panic!("alice is not found") };
        assert_eq!(alice.ha1, secret(1));
    }

    #[test]
    fn one_changed_user_voids_one_answer() {
        use crate::clock::tests::{clock, now};
        use crate::subscriber::Subscribers;
        use crate::ticket::Ticket;
        let dir = tempfile::tempdir().unwrap();
        let mut admin = SqliteAdmin::open(&settings(&dir)).unwrap();
        for name in ["alice", "bob"] {
            admin.add(name, "a.example", "r", &secret(1), 0).unwrap();
        }
        let cache = ReadThroughSettings { poll: Duration::from_millis(10), ..ReadThroughSettings::default() };
        let running = start(&settings(&dir), cache, clock()).unwrap();
        let (tx, rx) = std::sync::mpsc::channel();
        let sink = running.receiver(Arc::new(move |results: &[(u64, Result<Answer, StoreError>)]| {
            let _gone = tx.send(results.len());
        }));
        let all =
            [credential("alice", "r"), credential("bob", "r"), user("alice", "a.example"), user("bob", "a.example")];
        for question in all {
            running.request(Ticket { sink, value: 0 }, question, now()).unwrap();
            running.flush();
            rx.recv_timeout(Duration::from_secs(20)).unwrap();
        }
        let until = |known: [bool; 4]| {
            let end = Instant::now() + Duration::from_secs(20);
            while all.map(|question| running.cached(question, now()).is_some()) != known {
                assert!(Instant::now() < end, "{:?}", all.map(|question| running.cached(question, now())));
                std::thread::sleep(Duration::from_millis(2));
            }
        };
        until([true; 4]);
        admin.set_password("alice", "a.example", "r", &secret(2), 0).unwrap();
        until([false, true, true, true]);
        admin.remove("bob", "a.example").unwrap();
        until([false, false, true, false]);
        assert_eq!(running.gauges().doubted, 0);
        // Another file of the same name has the log of the one that is open beside it: it is not read.
        let other = dir.path().join("other.db");
        drop(SqliteAdmin::open(&SqliteSettings::new(&other)).unwrap());
        let number = sqlite::number_of(&settings(&dir).path);
        std::fs::rename(&other, settings(&dir).path).unwrap();
        assert_eq!(Opened::again(&settings(&dir), number).err(), Some(StoreError::Unavailable));
    }

    #[test]
    fn more_notices_than_are_kept_void_all() {
        let dir = tempfile::tempdir().unwrap();
        let mut notices = SqliteNotices::open(&settings(&dir)).unwrap();
        assert_eq!(notices.changes(), Ok(Changes::None));
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10001) \
            INSERT INTO subscriber SELECT i, 'user' || i, 'a', 0, 0 FROM n";
        notices.file.connection.execute(many, []).unwrap();
        assert_eq!(notices.changes(), Ok(Changes::All));
        assert_eq!(notices.changes(), Ok(Changes::None));
        notices.file.connection.execute("DELETE FROM subscriber WHERE id = 7", []).unwrap();
        assert_eq!(notices.changes(), Ok(Changes::Of(vec![user("user7", "a").into()])));
    }
}
