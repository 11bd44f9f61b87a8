//! Differences between the SQL dialects of MariaDB and PostgreSQL. All other code is common to both kinds of server.

use std::fmt::Write as _;

use strowger_store::database_url::DatabaseKind;

/// Maximum number of names in one statement.
pub(crate) const LONGEST_LIST: usize = 256;

/// Lengths of lists in which each item has its own placeholder. There are few lengths, so that few statements are
/// prepared.
const LENGTHS: [usize; 5] = [1, 4, 16, 64, LONGEST_LIST];

/// SQL dialect of one kind of server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Dialect(pub(crate) DatabaseKind);

impl Dialect {
    /// Quotes a name of a table or column, which may have any character.
    pub(crate) fn quoted(self, name: &str) -> String {
        match self.0 {
            DatabaseKind::MariaDb => format!("`{}`", name.replace('`', "``")),
            DatabaseKind::PostgreSql => format!("\"{}\"", name.replace('"', "\"\"")),
        }
    }

    /// Returns a column as text. Padding blanks are removed.
    pub(crate) fn as_text(self, column: &str) -> String {
        match self.0 {
            DatabaseKind::MariaDb => column.into(),
            DatabaseKind::PostgreSql => format!("CAST({column} AS text)"),
        }
    }

    /// Returns a column of any type as text.
    pub(crate) fn cast_to_text(self, column: &str) -> String {
        match self.0 {
            DatabaseKind::MariaDb => format!("CAST({column} AS CHAR)"),
            DatabaseKind::PostgreSql => format!("CAST({column} AS text)"),
        }
    }

    /// Returns the length of the list that is used for this number of items; a shorter list is padded with its last
    /// item. Returns `None` if lists need no padding.
    pub(crate) fn length(self, items: usize) -> Option<usize> {
        match self.0 {
            DatabaseKind::MariaDb => Some(LENGTHS.into_iter().find(|length| *length >= items).unwrap_or(LONGEST_LIST)),
            DatabaseKind::PostgreSql => None,
        }
    }

    /// Returns the condition that the value of a column of this type is in a list of this [length](Self::length).
    /// `number`: number of the first parameter, from 1. The condition does not convert the column, so that the index of
    /// the column can be used.
    pub(crate) fn is_one_of(self, column: &str, type_name: &str, number: usize, length: Option<usize>) -> String {
        match self.0 {
            DatabaseKind::MariaDb => {
                let mut condition = format!("{column} IN (?");
                condition.extend((1..length.unwrap_or(1)).map(|_| ",?"));
                condition.push(')');
                condition
            }
            DatabaseKind::PostgreSql => {
                let mut condition = format!("{column} = ANY(CAST(${number} AS text[])");
                if type_name != "text" && type_name != "varchar" {
                    // Writing to a String cannot fail.
                    let _ = write!(condition, "::{}[]", self.quoted(type_name));
                }
                condition.push(')');
                condition
            }
        }
    }

    /// Tells whether a column of this type holds text.
    pub(crate) fn is_text(self, type_name: &str) -> bool {
        match self.0 {
            DatabaseKind::MariaDb => type_name.ends_with("char") || type_name.ends_with("text"),
            DatabaseKind::PostgreSql => matches!(type_name, "text" | "varchar" | "bpchar" | "citext"),
        }
    }

    /// Returns the statement that lists the columns of a table: name, type, most characters, character set. Its
    /// parameters are the table and, twice, its schema, or "" for the schema of the connection.
    pub(crate) const fn columns_of_table(self) -> &'static str {
        match self.0 {
            DatabaseKind::MariaDb => {
                "SELECT column_name, data_type, CAST(character_maximum_length AS CHAR), character_set_name \
                 FROM information_schema.columns \
                 WHERE table_name = ? AND table_schema = IF(? = '', DATABASE(), ?) ORDER BY ordinal_position"
            }
            DatabaseKind::PostgreSql => {
                "SELECT CAST(column_name AS text), CAST(udt_name AS text), CAST(character_maximum_length AS text), \
                 (SELECT CAST(pg_encoding_to_char(encoding) AS text) FROM pg_database WHERE datname = current_database()) \
                 FROM information_schema.columns WHERE table_name = CAST($1 AS text) AND \
                 CASE WHEN CAST($2 AS text) = '' THEN table_schema = ANY(CAST(current_schemas(false) AS text[])) \
                 ELSE table_schema = CAST($3 AS text) END ORDER BY ordinal_position"
            }
        }
    }

    /// Returns the characters that a column with this character set can hold. Queries for other texts must be avoided:
    /// the server would scan every row, or refuse the whole statement.
    pub(crate) fn repertoire(self, character_set: &str) -> Repertoire {
        match character_set.to_ascii_lowercase().as_str() {
            "utf8mb4" => Repertoire::All,
            "utf8" if self.0 == DatabaseKind::PostgreSql => Repertoire::All,
            "utf8" | "utf8mb3" => Repertoire::FirstPlane,
            _ => Repertoire::Ascii,
        }
    }
}

/// Characters that are certainly in a character set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Repertoire {
    All,
    /// Characters up to U+FFFF.
    FirstPlane,
    Ascii,
}

impl Repertoire {
    /// Tells whether this repertoire has all characters of a text. No server stores U+0000.
    pub(crate) fn has(self, text: &str) -> bool {
        let last = match self {
            Self::All => char::MAX,
            Self::FirstPlane => '\u{ffff}',
            Self::Ascii => '\x7f',
        };
        text.chars().all(|c| c != '\0' && c <= last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARIADB: Dialect = Dialect(DatabaseKind::MariaDb);
    const POSTGRESQL: Dialect = Dialect(DatabaseKind::PostgreSql);

    #[test]
    fn names_are_quoted() {
        assert_eq!(MARIADB.quoted("a`b\"c"), "`a``b\"c`");
        assert_eq!(POSTGRESQL.quoted("a`b\"c"), "\"a`b\"\"c\"");
    }

    #[test]
    fn lists_have_a_few_lengths() {
        for (items, length) in [(1, 1), (2, 4), (4, 4), (5, 16), (64, 64), (65, 256), (256, 256)] {
            assert_eq!((MARIADB.length(items), POSTGRESQL.length(items)), (Some(length), None));
        }
        assert_eq!(MARIADB.is_one_of("`a`", "varchar", 1, Some(4)), "`a` IN (?,?,?,?)");
        assert_eq!(POSTGRESQL.is_one_of("\"a\"", "varchar", 2, None), "\"a\" = ANY(CAST($2 AS text[]))");
        assert_eq!(POSTGRESQL.is_one_of("\"a\"", "bpchar", 1, None), "\"a\" = ANY(CAST($1 AS text[])::\"bpchar\"[])");
    }

    #[test]
    fn a_column_holds_what_its_character_set_has() {
        for (dialect, set, ascii, latin, beyond) in [
            (MARIADB, "utf8mb4", true, true, true),
            (MARIADB, "utf8mb3", true, true, false),
            (MARIADB, "latin1", true, false, false),
            (POSTGRESQL, "UTF8", true, true, true),
            (POSTGRESQL, "LATIN1", true, false, false),
            (POSTGRESQL, "", true, false, false),
        ] {
            let repertoire = dialect.repertoire(set);
            let has = ["alice", "ålice", "\u{1f600}"].map(|text| repertoire.has(text));
            assert_eq!(has, [ascii, latin, beyond], "{set}");
            assert!(!repertoire.has("a\0b"));
        }
    }
}
