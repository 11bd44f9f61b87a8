//! Tables of the SQLite file, and the migrations of older files.
//!
//! `PRAGMA user_version` is the number of migrations of a file, `PRAGMA application_id` identifies this program. A
//! migration is never edited once released; a change is a new one at the end of [`MIGRATIONS`].

use rusqlite::{Connection, TransactionBehavior};

/// "STRW": this program never changes a file with another number, which belongs to another program.
pub(crate) const APPLICATION_ID: i32 = 0x5354_5257;

/// All migrations, in order.
pub(crate) const MIGRATIONS: &[&str] = &[FIRST, SECOND, THIRD, FOURTH];

/// First schema. `binding` has no index but its key: shards read the table in memory, and a restart reads all rows.
/// Each further index would double the pages that a registration writes. Texts of peers are TEXT if they are UTF-8,
/// BLOB otherwise, hence ANY.
///
/// `subscriber_version` told caches that a subscriber had changed; [`THIRD`] replaced it.
const FIRST: &str = "
CREATE TABLE subscriber (
    id         INTEGER PRIMARY KEY,
    username   TEXT NOT NULL,
    domain     TEXT NOT NULL,           -- lower case
    created_at INTEGER NOT NULL,        -- milliseconds since 1970 UTC
    updated_at INTEGER NOT NULL,
    UNIQUE (domain, username)
) STRICT;

CREATE TABLE credential (
    username   TEXT NOT NULL,
    realm      TEXT NOT NULL,
    algorithm  TEXT NOT NULL,           -- 'MD5', 'SHA-256', 'SHA-512-256' (RFC 8760)
    ha1        BLOB NOT NULL,           -- H(username:realm:password), never the password
    subscriber INTEGER NOT NULL REFERENCES subscriber (id) ON DELETE CASCADE,
    PRIMARY KEY (username, realm, algorithm)
) STRICT, WITHOUT ROWID;
CREATE INDEX credential_of_subscriber ON credential (subscriber);

CREATE TABLE subscriber_version (
    one     INTEGER PRIMARY KEY CHECK (one = 1),
    version INTEGER NOT NULL
) STRICT;
INSERT INTO subscriber_version VALUES (1, 0);
CREATE TRIGGER subscriber_added   AFTER INSERT ON subscriber BEGIN UPDATE subscriber_version SET version = version + 1; END;
CREATE TRIGGER subscriber_changed AFTER UPDATE ON subscriber BEGIN UPDATE subscriber_version SET version = version + 1; END;
CREATE TRIGGER subscriber_removed AFTER DELETE ON subscriber BEGIN UPDATE subscriber_version SET version = version + 1; END;
CREATE TRIGGER credential_added   AFTER INSERT ON credential BEGIN UPDATE subscriber_version SET version = version + 1; END;
CREATE TRIGGER credential_changed AFTER UPDATE ON credential BEGIN UPDATE subscriber_version SET version = version + 1; END;
CREATE TRIGGER credential_removed AFTER DELETE ON credential BEGIN UPDATE subscriber_version SET version = version + 1; END;

CREATE TABLE binding (
    id                 INTEGER PRIMARY KEY,
    aor                ANY NOT NULL,
    uri                ANY NOT NULL,
    call_id            ANY NOT NULL,
    cseq               INTEGER NOT NULL,
    q                  INTEGER,          -- thousandths; NULL: the contact had no q
    expires_at         INTEGER NOT NULL, -- milliseconds since 1970 UTC
    updated_at         INTEGER NOT NULL,
    received_transport INTEGER,          -- numbers of the server; NULL: not known
    received_address   TEXT,             -- address and port
    path               ANY,              -- comma-joined, in order (RFC 3327)
    instance           ANY,              -- +sip.instance (RFC 5626)
    reg_id             INTEGER,
    user_agent         ANY,
    flow               BLOB,             -- node, process, shard, slot, generation: 2, 2, 1, 4, 4 bytes, big-endian
    listener           INTEGER NOT NULL,
    node               INTEGER NOT NULL,
    flags              INTEGER NOT NULL
) STRICT;
";

/// Removed users whose bindings a server has yet to end, whichever program removed them. A renamed user counts as
/// removed.
const SECOND: &str = "
CREATE TABLE removed_subscriber (
    id       INTEGER PRIMARY KEY AUTOINCREMENT, -- never given twice
    username TEXT NOT NULL,
    domain   TEXT NOT NULL
) STRICT;
CREATE TRIGGER subscriber_gone AFTER DELETE ON subscriber
BEGIN
    INSERT INTO removed_subscriber (username, domain) VALUES (OLD.username, OLD.domain);
END;
CREATE TRIGGER subscriber_renamed AFTER UPDATE OF username, domain ON subscriber
WHEN OLD.username <> NEW.username OR OLD.domain <> NEW.domain
BEGIN
    INSERT INTO removed_subscriber (username, domain) VALUES (OLD.username, OLD.domain);
END;
";

/// Notices for caches: the questions whose answers have changed, whichever program changed them. A row with a domain
/// concerns the existence of the user, a row with a realm the credential. The earlier version number voided all answers
/// on each change.
///
/// Credentials are linked by the user's id: those of a removed or renamed user are noted under the user's name before
/// they go, even if the program leaves foreign keys off.
const THIRD: &str = "
DROP TRIGGER subscriber_added;
DROP TRIGGER subscriber_changed;
DROP TRIGGER subscriber_removed;
DROP TRIGGER credential_added;
DROP TRIGGER credential_changed;
DROP TRIGGER credential_removed;
DROP TABLE subscriber_version;

CREATE TABLE subscriber_change (
    id       INTEGER PRIMARY KEY AUTOINCREMENT, -- never given twice
    username TEXT NOT NULL,
    domain   TEXT,
    realm    TEXT
) STRICT;
CREATE TRIGGER subscriber_change_bound AFTER INSERT ON subscriber_change
BEGIN
    DELETE FROM subscriber_change WHERE id <= NEW.id - 10000;
END;
CREATE TRIGGER subscriber_added AFTER INSERT ON subscriber
BEGIN
    INSERT INTO subscriber_change (username, domain) VALUES (NEW.username, NEW.domain);
END;
CREATE TRIGGER subscriber_changed AFTER UPDATE OF id, username, domain ON subscriber
BEGIN
    INSERT INTO subscriber_change (username, domain) VALUES (OLD.username, OLD.domain), (NEW.username, NEW.domain);
    INSERT INTO subscriber_change (username, realm)
        SELECT DISTINCT username, realm FROM credential WHERE subscriber IN (OLD.id, NEW.id);
END;
CREATE TRIGGER subscriber_removed BEFORE DELETE ON subscriber
BEGIN
    INSERT INTO subscriber_change (username, domain) VALUES (OLD.username, OLD.domain);
    INSERT INTO subscriber_change (username, realm)
        SELECT DISTINCT username, realm FROM credential WHERE subscriber = OLD.id;
END;
CREATE TRIGGER credential_added AFTER INSERT ON credential
BEGIN
    INSERT INTO subscriber_change (username, realm) VALUES (NEW.username, NEW.realm);
END;
CREATE TRIGGER credential_changed AFTER UPDATE ON credential
BEGIN
    INSERT INTO subscriber_change (username, realm) VALUES (OLD.username, OLD.realm), (NEW.username, NEW.realm);
END;
CREATE TRIGGER credential_removed AFTER DELETE ON credential
BEGIN
    INSERT INTO subscriber_change (username, realm) VALUES (OLD.username, OLD.realm);
END;
";

/// A binding names its listener. The earlier number was the position in the configuration of that time, which may have
/// another order now. The listener of older rows is unknown: such a phone is reached from the first suitable listener
/// until it registers again.
const FOURTH: &str = "
ALTER TABLE binding DROP COLUMN listener;
ALTER TABLE binding ADD COLUMN listener TEXT NOT NULL DEFAULT '';
";

/// Maximum number of notices in a file.
pub(crate) const NOTICES: i64 = 10_000;

/// Result of a migration.
#[derive(Debug)]
pub(crate) enum Migrated {
    /// The file has all tables.
    Ready,
    /// The file belongs to another program.
    Foreign,
    /// A newer program wrote it, with this many migrations.
    Newer(usize),
}

/// Migrates a file to the newest schema. If two processes call this at the same time, one of them migrates the file.
pub(crate) fn migrate(connection: &mut Connection) -> rusqlite::Result<Migrated> {
    migrate_with(connection, MIGRATIONS)
}

fn migrate_with(connection: &mut Connection, migrations: &[&str]) -> rusqlite::Result<Migrated> {
    if matches!(look(connection)?, Found::Ours(seen) if seen == migrations.len()) {
        return Ok(Migrated::Ready);
    }
    let tx = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let seen = match look(&tx)? {
        Found::Foreign => return Ok(Migrated::Foreign),
        Found::Empty => 0,
        Found::Ours(seen) => seen,
    };
    let Some(missing) = migrations.get(seen..) else { return Ok(Migrated::Newer(seen)) };
    for step in missing {
        tx.execute_batch(step)?;
    }
    tx.pragma_update(None, "application_id", APPLICATION_ID)?;
    tx.pragma_update(None, "user_version", i64::try_from(migrations.len()).expect("a handful of migrations"))?;
    tx.commit()?;
    Ok(Migrated::Ready)
}

/// Predicts the result of [`migrate`] without changes: [`Migrated::Ready`] if it would succeed.
pub(crate) fn judge(connection: &Connection) -> rusqlite::Result<Migrated> {
    Ok(match look(connection)? {
        Found::Foreign => Migrated::Foreign,
        Found::Ours(seen) if seen > MIGRATIONS.len() => Migrated::Newer(seen),
        Found::Ours(_) | Found::Empty => Migrated::Ready,
    })
}

enum Found {
    Empty,
    Ours(usize),
    Foreign,
}

fn look(connection: &Connection) -> rusqlite::Result<Found> {
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, i32>(0));
    let version = number("user_version")?;
    let application = number("application_id")?;
    if application == APPLICATION_ID {
        return Ok(usize::try_from(version).map_or(Found::Foreign, Found::Ours));
    }
    let tables: i64 = connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
    Ok(if application == 0 && version == 0 && tables == 0 { Found::Empty } else { Found::Foreign })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(c: &Connection) -> i64 {
        c.pragma_query_value(None, "user_version", |r| r.get(0)).unwrap()
    }

    #[test]
    fn an_empty_file_gets_every_table() {
        let mut c = Connection::open_in_memory().unwrap();
        assert!(matches!(migrate(&mut c).unwrap(), Migrated::Ready));
        assert_eq!(version(&c), MIGRATIONS.len() as i64);
        for column in ["flow", "node", "received_address", "path", "instance", "reg_id", "call_id", "cseq", "q"] {
            c.prepare(&format!("SELECT {column} FROM binding")).unwrap();
        }
        for column in ["expires_at", "user_agent", "updated_at", "listener", "flags", "received_transport"] {
            c.prepare(&format!("SELECT {column} FROM binding")).unwrap();
        }
        assert!(matches!(migrate(&mut c).unwrap(), Migrated::Ready), "a second time changes nothing");
    }

    #[test]
    fn an_older_file_keeps_its_rows() {
        let mut c = Connection::open_in_memory().unwrap();
        migrate_with(&mut c, &[FIRST]).unwrap();
        c.execute("INSERT INTO subscriber VALUES (1, 'alice', 'example.com', 0, 0)", []).unwrap();
        let two = [FIRST, "ALTER TABLE subscriber ADD COLUMN note TEXT NOT NULL DEFAULT 'none';"];
        assert!(matches!(migrate_with(&mut c, &two).unwrap(), Migrated::Ready));
        assert_eq!(version(&c), 2);
        let note: String = c.query_row("SELECT note FROM subscriber WHERE id = 1", [], |r| r.get(0)).unwrap();
        assert_eq!(note, "none");
    }

    #[test]
    fn a_removed_user_is_noted() {
        let mut c = Connection::open_in_memory().unwrap();
        migrate_with(&mut c, &[FIRST]).unwrap();
        c.execute("INSERT INTO subscriber VALUES (1, 'alice', 'a', 0, 0), (2, 'bob', 'b', 0, 0)", []).unwrap();
        assert!(matches!(migrate(&mut c).unwrap(), Migrated::Ready));
        c.execute_batch(
            "UPDATE subscriber SET updated_at = 1; UPDATE subscriber SET domain = 'c' WHERE id = 1; DELETE FROM subscriber;",
        )
        .unwrap();
        let mut select = c.prepare("SELECT username || '@' || domain FROM removed_subscriber ORDER BY id").unwrap();
        let noted: Vec<String> = select.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert_eq!(noted, ["alice@a", "alice@c", "bob@b"]);
    }

    #[test]
    fn a_failed_migration_leaves_the_file_as_it_was() {
        let mut c = Connection::open_in_memory().unwrap();
        migrate_with(&mut c, &[FIRST]).unwrap();
        let bad = [FIRST, "CREATE TABLE extra (a); CREATE TABLE extra (a);"];
        migrate_with(&mut c, &bad).unwrap_err();
        assert_eq!(version(&c), 1);
        assert!(c.prepare("SELECT * FROM extra").is_err());
    }

    #[test]
    fn files_of_others_and_of_the_future_are_not_touched() {
        let mut c = Connection::open_in_memory().unwrap();
        c.execute_batch("CREATE TABLE theirs (a)").unwrap();
        assert!(matches!(migrate(&mut c).unwrap(), Migrated::Foreign));

        let mut c = Connection::open_in_memory().unwrap();
        migrate(&mut c).unwrap();
        c.pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(migrate(&mut c).unwrap(), Migrated::Newer(99)));
        assert_eq!(version(&c), 99);
    }

    #[test]
    fn each_change_is_noted_with_the_questions_that_it_changes() {
        let mut c = Connection::open_in_memory().unwrap();
        migrate(&mut c).unwrap();
        c.pragma_update(None, "foreign_keys", true).unwrap();
        let noted = |c: &Connection| -> Vec<String> {
            let sql =
                "SELECT DISTINCT username || ifnull('@' || domain, ' in ' || realm) FROM subscriber_change ORDER BY 1";
            let noted = c.prepare(sql).unwrap().query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
            c.execute("DELETE FROM subscriber_change", []).unwrap();
            noted
        };
        let changes: [(&str, &[&str]); 8] = [
            ("INSERT INTO subscriber VALUES (1, 'alice', 'a', 0, 0), (2, 'bob', 'a', 0, 0)", &["alice@a", "bob@a"]),
            (
                "INSERT INTO credential VALUES ('alice', 'r', 'MD5', x'00', 1), ('bob', 'r', 'MD5', x'00', 2)",
                &["alice in r", "bob in r"],
            ),
            ("UPDATE credential SET ha1 = x'01' WHERE username = 'alice'", &["alice in r"]),
            ("UPDATE credential SET realm = 's' WHERE username = 'alice'", &["alice in r", "alice in s"]),
            ("UPDATE subscriber SET updated_at = 1", &[]),
            ("UPDATE subscriber SET domain = 'b' WHERE id = 1", &["alice in s", "alice@a", "alice@b"]),
            ("DELETE FROM credential WHERE username = 'bob'", &["bob in r"]),
            ("DELETE FROM subscriber WHERE id = 1", &["alice in s", "alice@b"]),
        ];
        for (sql, notices) in changes {
            c.execute(sql, []).unwrap();
            assert_eq!(noted(&c), notices, "{sql}");
        }
        // A program that disables foreign keys leaves the credentials of a deleted user, which then belong to no user.
        c.execute("INSERT INTO credential VALUES ('bob', 'r', 'MD5', x'00', 2)", []).unwrap();
        noted(&c);
        c.pragma_update(None, "foreign_keys", false).unwrap();
        c.execute("DELETE FROM subscriber", []).unwrap();
        assert_eq!(noted(&c), ["bob in r", "bob@a"]);
    }

    #[test]
    fn no_more_notices_are_kept_than_are_read() {
        let mut c = Connection::open_in_memory().unwrap();
        migrate(&mut c).unwrap();
        let many = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12000) \
            INSERT INTO subscriber SELECT i, 'user' || i, 'a', 0, 0 FROM n";
        c.execute(many, []).unwrap();
        let kept: i64 = c.query_row("SELECT count(*) FROM subscriber_change", [], |row| row.get(0)).unwrap();
        assert_eq!(kept, NOTICES);
    }
}
