//! Tables and statements. What databases write differently stands in a [`Dialect`].

use strowger_store::accounting::record::{Kind, Table};

/// The words of a database.
#[derive(Clone, Copy, Debug)]
pub struct Dialect {
    /// A whole number of 64 bits.
    pub number: &'static str,
    /// Text of any length.
    pub text: &'static str,
    /// Text that can be a key.
    pub key: &'static str,
    /// What an INSERT begins with that passes over a row whose key is there.
    pub insert: &'static str,
    /// And ends with.
    pub otherwise: &'static str,
    /// The place of the value with this number, counted from 1.
    pub place: fn(usize) -> String,
}

/// Of SQLite.
pub const SQLITE: Dialect = Dialect {
    number: "INTEGER",
    text: "TEXT",
    key: "TEXT",
    // INSERT OR IGNORE would pass over rows that violate a constraint too.
    insert: "INSERT INTO",
    otherwise: " ON CONFLICT (identity) DO NOTHING",
    place: |number| format!("?{number}"),
};

impl Dialect {
    /// Makes a table, where it is not there.
    pub fn create(&self, table: Table) -> String {
        let column = |(n, (name, kind)): (usize, (&str, Kind))| {
            let (word, rest) = match kind {
                _ if n == 0 => (self.key, " NOT NULL PRIMARY KEY"),
                Kind::Number => (self.number, " NOT NULL"),
                Kind::MaybeNumber => (self.number, ""),
                Kind::Text => (self.text, " NOT NULL"),
                Kind::Fields => (self.text, ""),
            };
            format!("{name} {word}{rest}")
        };
        let columns: Vec<String> = table.columns().into_iter().enumerate().map(column).collect();
        format!("CREATE TABLE IF NOT EXISTS {} ({})", table.name(), columns.join(", "))
    }

    /// Makes the index by which old rows are found, where it is not there.
    pub fn index(&self, table: Table) -> String {
        let (name, moment) = (table.name(), table.moment());
        format!("CREATE INDEX IF NOT EXISTS {name}_{moment} ON {name} ({moment})")
    }

    /// Writes a row: its values in the order of the columns.
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
