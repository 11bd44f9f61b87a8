//! Tables of this program in a database server: their columns, and the statements that create and change them.

use std::fmt::Write as _;

use strowger_store::database_url::DatabaseKind;

use crate::sql::cell::Cell;
use crate::sql::dialect::Dialect;

/// Type of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ColumnType {
    /// Integer of 64 bits.
    Number,
    /// At most 64 ASCII characters, so it can be a key.
    Word,
    /// Text of any length.
    Text,
    /// Bytes of any length.
    Bytes,
}

/// Column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: &'static str,
    pub(crate) kind: ColumnType,
    /// True if the column may be NULL.
    pub(crate) is_optional: bool,
}

/// Handling of a row whose key exists already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clash {
    /// The existing row stays unchanged.
    Keep,
    /// The existing row is replaced as a whole.
    Replace,
}

/// Right of a database user on a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Right {
    Select,
    Insert,
    Update,
    Delete,
}

impl Right {
    /// Returns the right's name in a GRANT.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Select => "SELECT",
            Self::Insert => "INSERT",
            Self::Update => "UPDATE",
            Self::Delete => "DELETE",
        }
    }
}

/// Table.
#[derive(Clone, Debug)]
pub(crate) struct OwnTable {
    pub(crate) name: &'static str,
    pub(crate) columns: Vec<Column>,
    /// Number of leading columns that are the key: one, or two numbers.
    pub(crate) key: usize,
    /// True if the server assigns each row a number, `id`, in order of arrival.
    pub(crate) is_numbered: bool,
    /// Column with an index.
    pub(crate) index: Option<&'static str>,
    pub(crate) clash: Clash,
}

impl OwnTable {
    /// Returns the statements that create the table if missing.
    pub(crate) fn create(&self, dialect: Dialect) -> Vec<String> {
        let name = dialect.quoted(self.name);
        let mut lines = Vec::new();
        if self.is_numbered {
            lines.push(match dialect.0 {
                DatabaseKind::MariaDb => "`id` BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY".to_owned(),
                DatabaseKind::PostgreSql => "\"id\" BIGINT GENERATED ALWAYS AS IDENTITY".to_owned(),
            });
        }
        for (n, column) in self.columns.iter().enumerate() {
            let key = match (n, dialect.0, self.is_numbered) {
                _ if self.key > 1 => "",
                // InnoDB stores rows in the order of the primary key, so a random key would scatter the rows.
                (0, DatabaseKind::MariaDb, true) => " UNIQUE",
                (0, ..) => " PRIMARY KEY",
                _ => "",
            };
            let null = if column.is_optional { "" } else { " NOT NULL" };
            lines.push(format!("{} {}{null}{key}", dialect.quoted(column.name), type_of(dialect, column.kind)));
        }
        if self.key > 1 {
            lines.push(format!("PRIMARY KEY ({})", self.key_names(dialect)));
        }
        let index =
            self.index.map(|column| (dialect.quoted(&format!("{}_{column}", self.name)), dialect.quoted(column)));
        match (dialect.0, index) {
            (DatabaseKind::MariaDb, index) => {
                lines.extend(index.map(|(index, column)| format!("KEY {index} ({column})")));
                let lines = lines.join(", ");
                vec![format!(
                    "CREATE TABLE IF NOT EXISTS {name} ({lines}) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"
                )]
            }
            (DatabaseKind::PostgreSql, index) => {
                let table = format!("CREATE TABLE IF NOT EXISTS {name} ({})", lines.join(", "));
                let index =
                    index.map(|(index, column)| format!("CREATE INDEX IF NOT EXISTS {index} ON {name} ({column})"));
                std::iter::once(table).chain(index).collect()
            }
        }
    }

    /// Returns the rights that the database user needs for inserts and, if `removes`, for removals.
    pub(crate) fn rights(&self, dialect: Dialect, removes: bool) -> Vec<Right> {
        // MariaDB requires this even if the row stays unchanged.
        let updates = self.clash == Clash::Replace || dialect.0 == DatabaseKind::MariaDb;
        let all = [(Right::Select, true), (Right::Insert, true), (Right::Update, updates), (Right::Delete, removes)];
        all.into_iter().filter_map(|(right, is_needed)| is_needed.then_some(right)).collect()
    }

    /// Returns a statement that needs this right, changes nothing and returns no row.
    pub(crate) fn probe(&self, dialect: Dialect, right: Right) -> String {
        let (table, names) = (dialect.quoted(self.name), self.names(dialect));
        let key = dialect.quoted(self.columns.first().map_or("", |column| column.name));
        let none = "WHERE 1 = 0";
        match right {
            Right::Select => format!("SELECT {key} FROM {table} {none}"),
            Right::Insert => format!("INSERT INTO {table} ({names}) SELECT {names} FROM {table} {none}"),
            Right::Update => format!("UPDATE {table} SET {key} = {key} {none}"),
            Right::Delete => format!("DELETE FROM {table} {none}"),
        }
    }

    fn names(&self, dialect: Dialect) -> String {
        let names: Vec<String> = self.columns.iter().map(|column| dialect.quoted(column.name)).collect();
        names.join(", ")
    }

    fn key_names(&self, dialect: Dialect) -> String {
        let names: Vec<String> = self.columns.iter().take(self.key).map(|column| dialect.quoted(column.name)).collect();
        names.join(", ")
    }

    /// Returns the parts of an INSERT before and after the values.
    fn insertion(&self, dialect: Dialect) -> (String, String) {
        let head = format!("INSERT INTO {} ({}) ", dialect.quoted(self.name), self.names(dialect));
        let rest = self.columns.get(self.key..).unwrap_or_default();
        let assignments = |value: fn(&str) -> String| -> String {
            let assignment = |column: &Column| {
                let name = dialect.quoted(column.name);
                format!("{name} = {}", value(&name))
            };
            rest.iter().map(assignment).collect::<Vec<_>>().join(", ")
        };
        let key = self.key_names(dialect);
        let tail = match (dialect.0, self.clash) {
            // INSERT IGNORE would ignore other errors too, such as truncated texts.
            (DatabaseKind::MariaDb, Clash::Keep) => format!(" ON DUPLICATE KEY UPDATE {key} = {key}"),
            (DatabaseKind::MariaDb, Clash::Replace) => {
                format!(" ON DUPLICATE KEY UPDATE {}", assignments(|name| format!("VALUES({name})")))
            }
            (DatabaseKind::PostgreSql, Clash::Keep) => format!(" ON CONFLICT ({key}) DO NOTHING"),
            (DatabaseKind::PostgreSql, Clash::Replace) => {
                format!(" ON CONFLICT ({key}) DO UPDATE SET {}", assignments(|name| format!("EXCLUDED.{name}")))
            }
        };
        (head, tail)
    }

    /// Returns the statements of MariaDB that insert these rows. Each statement has `most` bytes or a little more.
    pub(crate) fn literal_insertions(&self, rows: &[Vec<Cell<'_>>], most: usize) -> Vec<String> {
        let (head, tail) = self.insertion(Dialect(DatabaseKind::MariaDb));
        let mut statements = Vec::new();
        let mut statement = String::new();
        for row in rows {
            statement.push_str(if statement.is_empty() { "" } else { "," });
            if statement.is_empty() {
                let _ = write!(statement, "{head}VALUES ");
            }
            for (n, cell) in row.iter().enumerate() {
                statement.push(if n == 0 { '(' } else { ',' });
                push_literal(&mut statement, cell);
            }
            statement.push(')');
            if statement.len() >= most {
                statement.push_str(&tail);
                statements.push(std::mem::take(&mut statement));
            }
        }
        if !statement.is_empty() {
            statement.push_str(&tail);
            statements.push(statement);
        }
        statements
    }

    /// Returns the statement of PostgreSQL that inserts rows. It has a parameter for each column: an array with a value
    /// for each row.
    pub(crate) fn array_insertion(&self) -> String {
        let (head, tail) = self.insertion(Dialect(DatabaseKind::PostgreSql));
        let array = |(n, column): (usize, &Column)| {
            let kind = match column.kind {
                ColumnType::Number => "bigint",
                ColumnType::Word | ColumnType::Text => "text",
                ColumnType::Bytes => "bytea",
            };
            format!("CAST(${} AS {kind}[])", n + 1)
        };
        let arrays: Vec<String> = self.columns.iter().enumerate().map(array).collect();
        format!("{head}SELECT * FROM unnest({}){tail}", arrays.join(", "))
    }

    /// Returns the statement of PostgreSQL that deletes the rows of the keys in an array. If a key has two numbers,
    /// `first` is the first number of all keys.
    pub(crate) fn array_deletion(&self, first: Option<i64>) -> String {
        format!("{} = ANY(CAST($1 AS bigint[]))", self.deletion(Dialect(DatabaseKind::PostgreSql), first))
    }

    /// Returns the statements of MariaDB that delete the rows of these keys.
    pub(crate) fn literal_deletions(&self, first: Option<i64>, keys: &[i64]) -> Vec<String> {
        let head = self.deletion(Dialect(DatabaseKind::MariaDb), first);
        let statement = |keys: &[i64]| {
            let keys: Vec<String> = keys.iter().map(i64::to_string).collect();
            format!("{head} IN ({})", keys.join(","))
        };
        keys.chunks(10_000).map(statement).collect()
    }

    /// Returns the statement that removes at most `most` rows whose column is smaller than `before`.
    pub(crate) fn removal(&self, dialect: Dialect, column: &str, before: i64, most: usize) -> String {
        let (name, column) = (dialect.quoted(self.name), dialect.quoted(column));
        match dialect.0 {
            DatabaseKind::MariaDb => format!("DELETE FROM {name} WHERE {column} < {before} LIMIT {most}"),
            DatabaseKind::PostgreSql => format!(
                "DELETE FROM {name} WHERE ctid = ANY(ARRAY(SELECT ctid FROM {name} WHERE {column} < {before} LIMIT {most}))"
            ),
        }
    }

    /// Returns a DELETE up to the column whose values follow.
    fn deletion(&self, dialect: Dialect, first: Option<i64>) -> String {
        let name = dialect.quoted(self.name);
        let key = |n: usize| dialect.quoted(self.columns.get(n).map_or("", |column| column.name));
        match first {
            Some(first) => format!("DELETE FROM {name} WHERE {} = {first} AND {}", key(0), key(1)),
            None => format!("DELETE FROM {name} WHERE {}", key(0)),
        }
    }
}

const fn type_of(dialect: Dialect, kind: ColumnType) -> &'static str {
    match (dialect.0, kind) {
        (_, ColumnType::Number) => "BIGINT",
        (DatabaseKind::MariaDb, ColumnType::Word) => "VARCHAR(64) CHARACTER SET ascii COLLATE ascii_bin",
        (DatabaseKind::MariaDb, ColumnType::Text) => "MEDIUMTEXT",
        (DatabaseKind::MariaDb, ColumnType::Bytes) => "MEDIUMBLOB",
        (DatabaseKind::PostgreSql, ColumnType::Word | ColumnType::Text) => "TEXT",
        (DatabaseKind::PostgreSql, ColumnType::Bytes) => "BYTEA",
    }
}

/// Writes a value as a literal of MariaDB and MySQL, independent of their SQL modes.
fn push_literal(out: &mut String, cell: &Cell<'_>) {
    let (bytes, is_text) = match cell {
        Cell::Null => return out.push_str("NULL"),
        Cell::Number(number) => {
            // Writing to a String cannot fail.
            let _ = write!(out, "{number}");
            return;
        }
        Cell::Text(text) => (text.as_bytes(), true),
        Cell::Bytes(bytes) => (&**bytes, false),
    };
    let is_plain = |byte: &u8| matches!(byte, 0x20..0x7f) && !matches!(byte, b'\'' | b'\\');
    match std::str::from_utf8(bytes) {
        Ok(text) if bytes.iter().all(is_plain) => {
            out.push('\'');
            out.push_str(text);
            out.push('\'');
        }
        _ => {
            out.push_str(if is_text { "_utf8mb4 x'" } else { "x'" });
            for byte in bytes {
                for half in [byte >> 4, byte & 15] {
                    out.push(char::from(b"0123456789abcdef"[usize::from(half)]));
                }
            }
            out.push('\'');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(clash: Clash, is_numbered: bool) -> OwnTable {
        let column = |name, kind, is_optional| Column { name, kind, is_optional };
        let columns = vec![
            column("key", ColumnType::Number, false),
            column("said", ColumnType::Text, false),
            column("raw", ColumnType::Bytes, true),
        ];
        OwnTable { name: "t", columns, key: 1, is_numbered, index: Some("said"), clash }
    }

    #[test]
    fn a_key_may_be_two_numbers() {
        let column = |name, kind| Column { name, kind, is_optional: false };
        let columns = vec![
            column("node", ColumnType::Number),
            column("number", ColumnType::Number),
            column("raw", ColumnType::Bytes),
        ];
        let (index, clash) = (None, Clash::Replace);
        let pair = OwnTable { name: "t", columns, key: 2, is_numbered: false, index, clash };
        assert_eq!(
            pair.create(Dialect(DatabaseKind::PostgreSql)),
            [
                "CREATE TABLE IF NOT EXISTS \"t\" (\"node\" BIGINT NOT NULL, \"number\" BIGINT NOT NULL, \"raw\" BYTEA NOT NULL, \
              PRIMARY KEY (\"node\", \"number\"))"
            ]
        );
        let insertion = pair.array_insertion();
        assert!(
            insertion.ends_with(" ON CONFLICT (\"node\", \"number\") DO UPDATE SET \"raw\" = EXCLUDED.\"raw\""),
            "{insertion}"
        );
        assert_eq!(
            pair.literal_insertions(&[vec![Cell::Number(7), Cell::Number(-1), Cell::bytes(b"a")]], 1),
            [
                "INSERT INTO `t` (`node`, `number`, `raw`) VALUES (7,-1,'a') ON DUPLICATE KEY UPDATE `raw` = VALUES(`raw`)"
            ]
        );
        assert_eq!(
            pair.literal_deletions(Some(7), &[1, 2]),
            ["DELETE FROM `t` WHERE `node` = 7 AND `number` IN (1,2)"]
        );
        assert_eq!(
            pair.array_deletion(Some(7)),
            "DELETE FROM \"t\" WHERE \"node\" = 7 AND \"number\" = ANY(CAST($1 AS bigint[]))"
        );
    }

    #[test]
    fn rights_are_those_of_the_statements() {
        let [mariadb, postgresql] = [DatabaseKind::MariaDb, DatabaseKind::PostgreSql].map(Dialect);
        let names = |clash, dialect, removes| {
            table(clash, true).rights(dialect, removes).into_iter().map(Right::name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(names(Clash::Keep, mariadb, false), "SELECT INSERT UPDATE");
        assert_eq!(names(Clash::Keep, postgresql, true), "SELECT INSERT DELETE");
        assert_eq!(names(Clash::Replace, postgresql, true), "SELECT INSERT UPDATE DELETE");
        assert_eq!(
            table(Clash::Keep, true).probe(postgresql, Right::Insert),
            "INSERT INTO \"t\" (\"key\", \"said\", \"raw\") SELECT \"key\", \"said\", \"raw\" FROM \"t\" WHERE 1 = 0"
        );
        assert_eq!(table(Clash::Keep, true).probe(mariadb, Right::Update), "UPDATE `t` SET `key` = `key` WHERE 1 = 0");
    }

    #[test]
    fn a_table_is_made_in_the_words_of_its_server() {
        let [mariadb, postgresql] = [DatabaseKind::MariaDb, DatabaseKind::PostgreSql].map(Dialect);
        assert_eq!(
            table(Clash::Keep, true).create(mariadb),
            [
                "CREATE TABLE IF NOT EXISTS `t` (`id` BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, `key` BIGINT NOT NULL UNIQUE, \
              `said` MEDIUMTEXT NOT NULL, `raw` MEDIUMBLOB, KEY `t_said` (`said`)) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 \
              COLLATE utf8mb4_bin"
            ]
        );
        assert_eq!(
            table(Clash::Replace, false).create(postgresql),
            [
                "CREATE TABLE IF NOT EXISTS \"t\" (\"key\" BIGINT NOT NULL PRIMARY KEY, \"said\" TEXT NOT NULL, \"raw\" BYTEA)",
                "CREATE INDEX IF NOT EXISTS \"t_said\" ON \"t\" (\"said\")"
            ]
        );
    }

    #[test]
    fn rows_are_put_by_few_statements() {
        let row = |n: i64, text: &'static str| vec![Cell::Number(n), Cell::text(text), Cell::bytes(b"\xff\0")];
        let rows = [row(-1, "it's"), row(2, "plain"), vec![Cell::Number(3), Cell::text("å\0"), Cell::Null]];
        let keep = table(Clash::Keep, false);
        assert_eq!(
            keep.literal_insertions(&rows, 1 << 20),
            ["INSERT INTO `t` (`key`, `said`, `raw`) VALUES (-1,_utf8mb4 x'69742773',x'ff00'),(2,'plain',x'ff00'),\
              (3,_utf8mb4 x'c3a5efbfbd',NULL) ON DUPLICATE KEY UPDATE `key` = `key`"]
        );
        assert_eq!(keep.literal_insertions(&rows, 1).len(), 3);
        assert!(keep.literal_insertions(&[], 1).is_empty());
        assert_eq!(
            table(Clash::Replace, false).array_insertion(),
            "INSERT INTO \"t\" (\"key\", \"said\", \"raw\") SELECT * FROM unnest(CAST($1 AS bigint[]), CAST($2 AS text[]), \
             CAST($3 AS bytea[])) ON CONFLICT (\"key\") DO UPDATE SET \"said\" = EXCLUDED.\"said\", \"raw\" = EXCLUDED.\"raw\""
        );
        assert_eq!(keep.literal_deletions(None, &[1, 2]), ["DELETE FROM `t` WHERE `key` IN (1,2)"]);
    }

    #[test]
    fn no_text_ends_its_literal() {
        for text in ["'", "\\", "\\'", "'); DROP TABLE t; --", "\n", "\u{2019}", "a\x7f"] {
            let mut out = String::new();
            push_literal(&mut out, &Cell::text(text));
            let inner = out.strip_prefix("_utf8mb4 x'").and_then(|rest| rest.strip_suffix('\''));
            let inner = inner.unwrap_or_else(|| panic!("{out}"));
            assert!(inner.bytes().all(|byte| byte.is_ascii_hexdigit()), "{out}");
        }
    }
}
