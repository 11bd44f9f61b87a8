//! Tables of this program in database servers: their creation, versions and migrations.
//!
//! The table `strowger_schema` has a row for each [`Part`] with its version: the number of its migrations applied. A
//! migration is never edited once released; a change is a new one at the end. Tables without such a row belong to
//! another program, and are not changed.

use strowger_store::database_url::DatabaseKind;

use crate::sql::accounting;
use crate::sql::bindings;
use crate::sql::calls;
use crate::sql::cell::Cell;
use crate::sql::connection::{Connection, Parameter};
use crate::sql::dialect::Dialect;
use crate::sql::error::{Failure, OpenError};
use crate::sql::lease;
use crate::sql::own_table::{OwnTable, Right};
use crate::sql::runtime::{CONNECT, apart, runtime, within};
use crate::sql::server::{Server, ServerSettings};
use crate::sql::table::SubscriberTable;

/// Purpose of some tables.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Part {
    /// Rows of calls and of their events.
    Accounting,
    /// Registrations.
    Bindings,
    /// Kept calls.
    Calls,
    /// Leases on bindings and calls.
    Leases,
    /// Subscribers in the schema of OpenSIPS 3, in this table: `TABLE` or `SCHEMA.TABLE`.
    Subscribers(String),
}

impl Part {
    /// Returns the name, for display and in `strowger_schema`.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Accounting => "accounting",
            Self::Bindings => "bindings",
            Self::Calls => "calls",
            Self::Leases => "leases",
            Self::Subscribers(_) => "subscribers",
        }
    }

    /// Returns the part's tables.
    pub fn tables(&self) -> Vec<String> {
        match self {
            Self::Accounting => accounting::tables().iter().map(|table| table.name.to_owned()).collect(),
            Self::Bindings => vec![bindings::table().name.to_owned()],
            Self::Calls => vec![calls::table().name.to_owned()],
            Self::Leases => vec![lease::table().name.to_owned()],
            Self::Subscribers(table) => vec![table.clone()],
        }
    }

    /// Returns the newest version.
    pub fn version(&self) -> u32 {
        // There are few migrations.
        self.migrations(Dialect(DatabaseKind::MariaDb)).len() as u32
    }

    /// Returns the statements that migrate each version to the next version. Each statement can be run twice, because
    /// MariaDB has no transaction around them.
    fn migrations(&self, dialect: Dialect) -> Vec<Vec<String>> {
        match self {
            Self::Accounting => vec![accounting::tables().iter().flat_map(|table| table.create(dialect)).collect()],
            Self::Bindings => vec![bindings::table().create(dialect)],
            Self::Calls => vec![calls::table().create(dialect)],
            Self::Leases => vec![lease::table().create(dialect)],
            Self::Subscribers(table) => vec![opensips(dialect, table)],
        }
    }
}

/// Returns the statements for the table `subscriber` of OpenSIPS 3, under this name.
fn opensips(dialect: Dialect, table: &str) -> Vec<String> {
    let columns = "username CHAR(64) DEFAULT '' NOT NULL, domain CHAR(64) DEFAULT '' NOT NULL, password CHAR(25) DEFAULT '' NOT NULL, \
                   ha1 CHAR(64) DEFAULT '' NOT NULL, ha1_sha256 CHAR(64) DEFAULT '' NOT NULL, ha1_sha512t256 CHAR(64) DEFAULT '' NOT NULL";
    let name = table.splitn(2, '.').map(|part| dialect.quoted(part)).collect::<Vec<_>>().join(".");
    match dialect.0 {
        DatabaseKind::MariaDb => vec![format!(
            "CREATE TABLE IF NOT EXISTS {name} (id INT(10) UNSIGNED AUTO_INCREMENT PRIMARY KEY NOT NULL, {columns}, \
             CONSTRAINT account_idx UNIQUE (username, domain), KEY username_idx (username)) ENGINE=InnoDB"
        )],
        DatabaseKind::PostgreSql => {
            // The index is in the schema of its table.
            let index = dialect.quoted(&format!("{}_username_idx", table.rsplit('.').next().unwrap_or(table)));
            vec![
                format!(
                    "CREATE TABLE IF NOT EXISTS {name} (id SERIAL PRIMARY KEY NOT NULL, {columns}, UNIQUE (username, domain))"
                ),
                format!("CREATE INDEX IF NOT EXISTS {index} ON {name} (username)"),
            ]
        }
    }
}

/// State of a part in a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// None of its tables exist.
    Nothing,
    /// Tables of this version; 0: some of them are missing.
    Version(u32),
    /// Tables created by another program.
    Others,
}

/// Command about tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchemaCommand {
    /// Create missing parts.
    Init,
    /// Migrate older parts to the version of this program.
    Migrate,
}

/// State of a part, and the steps for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Part.
    pub part: Part,
    /// State before.
    pub found: Found,
    /// Statements to run, in order; empty if nothing is necessary, or another command is.
    pub statements: Vec<String>,
}

impl Step {
    /// Tells whether the server can use this part after the statements.
    pub fn is_usable(&self) -> bool {
        match self.found {
            _ if !self.statements.is_empty() => true,
            Found::Version(version) => version == self.part.version(),
            // Tables of other programs are read as they are.
            Found::Others => matches!(self.part, Part::Subscribers(_)),
            Found::Nothing => false,
        }
    }
}

/// Determines the steps of a command for these parts in a database and, unless `is_dry`, carries them out. `now`:
/// milliseconds since 1970, UTC.
///
/// # Errors
/// [`OpenError`], for display as it is.
pub fn carry_out(
    settings: &ServerSettings,
    parts: &[Part],
    command: SchemaCommand,
    is_dry: bool,
    now: u64,
) -> Result<Vec<Step>, OpenError> {
    let server = Server::new(settings)?;
    apart(|| {
        let runtime = runtime()?;
        let done = runtime.block_on(async {
            let mut connection = within(CONNECT, Connection::open(&server)).await?;
            let steps = within(CONNECT, plan(&mut connection, &server, parts, command, now)).await?;
            if !is_dry {
                for statement in steps.iter().flat_map(|step| &step.statements) {
                    // This connection has no time limit, because an index of a large table takes minutes.
                    connection.run(statement).await?;
                }
            }
            connection.close().await;
            Ok(steps)
        });
        runtime.shutdown_background();
        done.map_err(|failure: Failure| failure.at_start(server.url.to_string(), CONNECT))
    })
}

const SCHEMA: &str = "strowger_schema";

async fn plan(
    connection: &mut Connection,
    server: &Server,
    parts: &[Part],
    command: SchemaCommand,
    now: u64,
) -> Result<Vec<Step>, Failure> {
    let dialect = Dialect(server.url.kind);
    let mut steps = Vec::new();
    for part in parts {
        let (mut some, mut all) = (false, true);
        for table in part.tables() {
            let is_there = !SubscriberTable::describe(connection, dialect, &table).await?.is_empty();
            (some, all) = (some || is_there, all && is_there);
        }
        let found = match version(connection, dialect, part).await? {
            Some(version) if all => Found::Version(version),
            // The tables were created earlier, and some of them are missing now.
            Some(_) => Found::Version(0),
            None if some => Found::Others,
            None => Found::Nothing,
        };
        let statements = statements(part.name(), part.migrations(dialect), dialect, found, command, now);
        steps.push(Step { part: part.clone(), found, statements });
    }
    Ok(steps)
}

fn statements(
    name: &str,
    migrations: Vec<Vec<String>>,
    dialect: Dialect,
    found: Found,
    command: SchemaCommand,
    now: u64,
) -> Vec<String> {
    let newest = migrations.len() as u32;
    let seen = match (found, command) {
        (Found::Nothing | Found::Version(0), SchemaCommand::Init) => 0,
        (Found::Version(seen @ 1..), SchemaCommand::Migrate) if seen < newest => seen,
        _ => return Vec::new(),
    };
    let mut statements = Vec::new();
    let is_postgresql = dialect.0 == DatabaseKind::PostgreSql;
    statements.extend(is_postgresql.then(|| "BEGIN".to_owned()));
    let schema = dialect.quoted(SCHEMA);
    if seen == 0 {
        let word = if is_postgresql { "TEXT" } else { "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin" };
        statements.push(format!(
            "CREATE TABLE IF NOT EXISTS {schema} (part {word} NOT NULL PRIMARY KEY, version BIGINT NOT NULL, changed_at BIGINT NOT NULL)"
        ));
        // The row of the version is inserted first, so that an incomplete set of tables is recognized as ours.
        statements.push(format!("DELETE FROM {schema} WHERE part = '{name}'"));
        statements.push(format!("INSERT INTO {schema} (part, version, changed_at) VALUES ('{name}', 0, {now})"));
        // Tests the right for the last step early, so that a user without it has created no table yet.
        statements.push(format!("UPDATE {schema} SET version = 0, changed_at = {now} WHERE part = '{name}'"));
    }
    for (n, migration) in migrations.into_iter().enumerate().skip(seen as usize) {
        statements.extend(migration);
        let version = n + 1;
        statements.push(format!("UPDATE {schema} SET version = {version}, changed_at = {now} WHERE part = '{name}'"));
    }
    statements.extend(is_postgresql.then(|| "COMMIT".to_owned()));
    statements
}

/// Returns the version of a part, if the database has one.
async fn version(connection: &mut Connection, dialect: Dialect, part: &Part) -> Result<Option<u32>, Failure> {
    if SubscriberTable::describe(connection, dialect, SCHEMA).await?.is_empty() {
        return Ok(None);
    }
    let place = if dialect.0 == DatabaseKind::PostgreSql { "CAST($1 AS text)" } else { "?" };
    let select = format!("SELECT version FROM {} WHERE part = {place}", dialect.quoted(SCHEMA));
    let rows = connection.cells(&select, &[Parameter::Text(part.name())]).await?;
    let number = |cell: &Cell<'_>| if let Cell::Number(number) = cell { u32::try_from(*number).ok() } else { None };
    Ok(rows.first().and_then(|row| row.first()).and_then(number))
}

/// Checks whether the tables of a part exist with their columns and this version, and whether the database user has the
/// rights that a server needs. `removes`: whether the server also removes rows.
pub(crate) async fn expect(
    connection: &mut Connection,
    server: &Server,
    part: Part,
    tables: &[&OwnTable],
    removes: bool,
) -> Result<Result<(), OpenError>, Failure> {
    let (dialect, shown) = (Dialect(server.url.kind), server.url.to_string());
    let known = part.version();
    match version(connection, dialect, &part).await? {
        Some(found) if found > known => {
            return Ok(Err(OpenError::Newer { server: shown, part: part.name(), found, known }));
        }
        Some(found @ 1..) if found < known => {
            return Ok(Err(OpenError::Older { server: shown, part: part.name(), found, known }));
        }
        _ => {}
    }
    for table in tables {
        let there = SubscriberTable::describe(connection, dialect, table.name).await?;
        if there.is_empty() {
            let (table, user) = (table.name.to_owned(), server.url.user.clone());
            return Ok(Err(OpenError::NotMade { server: shown, table, user }));
        }
        let has = |name: &str| there.iter().any(|column| column.name.eq_ignore_ascii_case(name));
        let missing = table.columns.iter().map(|column| column.name).filter(|name| !has(name));
        let missing: Vec<String> = missing.map(|name| format!("{name:?}")).collect();
        if !missing.is_empty() {
            let (table, missing) = (table.name.to_owned(), format!("the column {}", missing.join(" and ")));
            return Ok(Err(OpenError::Lacks { server: shown, table, missing }));
        }
    }
    let rights = missing_rights(connection, dialect, tables, removes).await?;
    if !rights.is_empty() {
        return Ok(Err(OpenError::Rights { server: shown, user: server.url.user.clone(), rights }));
    }
    Ok(Ok(()))
}

/// Returns the missing rights on these tables, as a part of a sentence. Tries each right, because rights come from
/// tables, databases and roles.
async fn missing_rights(
    connection: &mut Connection,
    dialect: Dialect,
    tables: &[&OwnTable],
    removes: bool,
) -> Result<String, Failure> {
    let mut lacking = Vec::new();
    for table in tables {
        let mut names = Vec::new();
        for right in table.rights(dialect, removes) {
            match connection.cells(&table.probe(dialect, right), &[]).await {
                Err(Failure::Denied(_)) => {
                    names.push(right.name());
                    // The other probes read, too.
                    if right == Right::Select {
                        break;
                    }
                }
                // Other refusals, such as a temporary read-only mode, show up at the first write.
                Ok(_) | Err(Failure::Refused(_) | Failure::Row(_) | Failure::Full(_)) => {}
                Err(failure) => return Err(failure),
            }
        }
        if !names.is_empty() {
            lacking.push(format!("{} on {:?}", names.join(", "), table.name));
        }
    }
    Ok(lacking.join(" and "))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARIADB: Dialect = Dialect(DatabaseKind::MariaDb);
    const POSTGRESQL: Dialect = Dialect(DatabaseKind::PostgreSql);

    #[test]
    fn what_is_not_there_is_made_and_what_is_of_others_is_not_touched() {
        let of = |dialect, found, command| {
            statements("accounting", Part::Accounting.migrations(dialect), dialect, found, command, 7)
        };
        let made = of(MARIADB, Found::Nothing, SchemaCommand::Init);
        assert!(made[0].contains("`strowger_schema`") && made.iter().any(|made| made.contains("`strowger_cdr`")));
        assert_eq!(
            made.last().map(String::as_str),
            Some("UPDATE `strowger_schema` SET version = 1, changed_at = 7 WHERE part = 'accounting'")
        );
        assert_eq!(of(MARIADB, Found::Version(0), SchemaCommand::Init), made, "where some of them are missing");
        let made = of(POSTGRESQL, Found::Nothing, SchemaCommand::Init);
        assert_eq!((made[0].as_str(), made.last().map(String::as_str)), ("BEGIN", Some("COMMIT")));
        for (found, command) in [
            (Found::Others, SchemaCommand::Init),
            (Found::Others, SchemaCommand::Migrate),
            (Found::Nothing, SchemaCommand::Migrate),
            (Found::Version(0), SchemaCommand::Migrate),
            (Found::Version(1), SchemaCommand::Init),
            (Found::Version(1), SchemaCommand::Migrate),
            (Found::Version(2), SchemaCommand::Migrate),
        ] {
            assert!(of(MARIADB, found, command).is_empty(), "{found:?} {command:?}");
        }
    }

    /// There is only one version so far, so the migrations of this test are made up.
    #[test]
    fn what_is_older_gets_the_migrations_that_it_lacks() {
        let of = |found, command| {
            let migrations = ["first", "second", "third"].map(|statement| vec![statement.to_owned()]).into();
            statements("accounting", migrations, MARIADB, found, command, 7)
        };
        let version =
            |n: u32| format!("UPDATE `strowger_schema` SET version = {n}, changed_at = 7 WHERE part = 'accounting'");
        let all = ["second".to_owned(), version(2), "third".into(), version(3)];
        assert_eq!(of(Found::Version(1), SchemaCommand::Migrate), all);
        assert_eq!(of(Found::Version(2), SchemaCommand::Migrate), all[2..]);
        assert!(
            of(Found::Version(2), SchemaCommand::Init).is_empty()
                && of(Found::Version(3), SchemaCommand::Migrate).is_empty()
        );
        let made = of(Found::Nothing, SchemaCommand::Init);
        assert_eq!(made[made.len() - 6..], [vec!["first".into(), version(1)], all.to_vec()].concat());
    }

    #[test]
    fn a_server_can_use_what_is_of_its_version() {
        let step = |part: Part, found, made: &[&str]| Step {
            part,
            found,
            statements: made.iter().map(|&made| made.to_owned()).collect(),
        };
        let subscribers = || Part::Subscribers("subscriber".into());
        assert!(step(Part::Accounting, Found::Version(1), &[]).is_usable());
        assert!(step(Part::Accounting, Found::Nothing, &["CREATE"]).is_usable());
        assert!(step(subscribers(), Found::Others, &[]).is_usable());
        for found in [Found::Nothing, Found::Others, Found::Version(0), Found::Version(2)] {
            assert!(!step(Part::Accounting, found, &[]).is_usable(), "{found:?}");
        }
    }

    #[test]
    fn subscribers_are_as_opensips_has_them() {
        let [made] = &opensips(MARIADB, "voip.users")[..] else { panic!("one statement") };
        assert!(made.starts_with("CREATE TABLE IF NOT EXISTS `voip`.`users` (id INT(10) UNSIGNED"), "{made}");
        let made = opensips(POSTGRESQL, "subscriber");
        assert!(
            made[0].contains("ha1_sha512t256 CHAR(64)") && made[1].contains("\"subscriber_username_idx\""),
            "{made:?}"
        );
    }
}
