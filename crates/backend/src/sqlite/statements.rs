//! Tables and statements. A [`Dialect`] has the differences between databases.

use strowger_store::accounting::cdr::{Table, ValueKind};

/// SQL words of a database.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// Type of an integer of 64 bits.
    pub number: &'static str,
    /// Type of a text of any length.
    pub text: &'static str,
    /// Type of a text that can be a key.
    pub key: &'static str,
    /// Beginning of an INSERT that skips a row whose key exists.
    pub insert: &'static str,
    /// End of such an INSERT.
    pub otherwise: &'static str,
    /// Returns the placeholder of the value with this number, counted from 1.
    pub place: fn(usize) -> String,
}

/// Dialect of SQLite.
pub const SQLITE: Dialect = Dialect {
    number: "INTEGER",
    text: "TEXT",
    key: "TEXT",
    // INSERT OR IGNORE would also skip rows that violate a constraint.
    insert: "INSERT INTO",
    otherwise: " ON CONFLICT (identity) DO NOTHING",
    place: |number| format!("?{number}"),
};

impl Dialect {
    /// Returns the statement that creates a table if missing.
    pub fn create(&self, table: Table) -> String {
        let column = |(n, (name, kind)): (usize, (&str, ValueKind))| {
            let (word, rest) = match kind {
                _ if n == 0 => (self.key, " NOT NULL PRIMARY KEY"),
                ValueKind::Number => (self.number, " NOT NULL"),
                ValueKind::MaybeNumber => (self.number, ""),
                ValueKind::Text => (self.text, " NOT NULL"),
                ValueKind::Fields => (self.text, ""),
            };
            format!("{name} {word}{rest}")
        };
        let columns: Vec<String> = table.columns().into_iter().enumerate().map(column).collect();
        format!("CREATE TABLE IF NOT EXISTS {} ({})", table.name(), columns.join(", "))
    }

    /// Returns the statement that creates the index for old rows if missing.
    pub fn index(&self, table: Table) -> String {
        let (name, moment) = (table.name(), table.moment());
        format!("CREATE INDEX IF NOT EXISTS {name}_{moment} ON {name} ({moment})")
    }

    /// Returns the statement that inserts a row: its values in the order of the columns.
    pub fn insert(&self, table: Table) -> String {
        let columns = table.columns();
        let names: Vec<&str> = columns.iter().map(|(name, _)| *name).collect();
        let places: Vec<String> = (1..=columns.len()).map(self.place).collect();
        let Self { insert, otherwise, .. } = self;
        format!("{insert} {} ({}) VALUES ({}){otherwise}", table.name(), names.join(", "), places.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statements_name_every_column() {
        for table in Table::ALL {
            let (create, insert) = (SQLITE.create(table), SQLITE.insert(table));
            for (name, _) in table.columns() {
                assert!(create.contains(&format!("{name} ")) && insert.contains(name), "{name}");
            }
            let last = format!("?{})", table.columns().len());
            assert!(insert.contains(&last), "{insert}");
            assert_eq!(create.matches("PRIMARY KEY").count(), 1);
        }
    }
}
