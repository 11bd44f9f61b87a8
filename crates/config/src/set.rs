//! `[[set]]`: data sets that conditions of rules query, from the configuration itself, a file or a database.
//!
//! A set from a file or a database is empty until the process has read its entries and called [`Decisions::with_set`](super::Decisions::with_set).

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use strowger_rules::{Columns, LookupKind, Set, SetId, SetNames};
use toml::Spanned;
use toml::de::DeValue;

use super::database::Database;
use super::key::{Key, Rule, words};
use super::name::Name;
use super::reader::{ANY, Reader, section};
use super::report::Fault;

words! {
    /// Look-up of the keys of a set.
    pub enum SetKind {
        /// Whole texts: numbers, users, domains.
        Texts = "texts",
        /// The longest prefix of a number or another text.
        Prefixes = "prefixes",
        /// The smallest network that an address is in.
        Networks = "networks",
    }
}

impl SetKind {
    /// Returns the kind of the compiled set.
    pub const fn kind(self) -> LookupKind {
        match self {
            Self::Texts => LookupKind::Texts,
            Self::Prefixes => LookupKind::Prefixes,
            Self::Networks => LookupKind::Networks,
        }
    }
}

section! {
    /// A data set that conditions of rules query: `number in NAME`, or with values `NAME[number] == 'west'`. The entries are in this table, in a file
    /// or in a database. Repeat the table for each set.
    pub struct SetTable = "set" {
        /// Name in conditions.
        pub name: Name = Name::UNSET, ANY.required();
        /// Kind of look-up of the keys of the set.
        pub kind: SetKind = SetKind::Texts, ANY;
        /// Keys of the set, with or without values.
        pub entries: Entries = Entries::default(), ANY;
        /// A CSV file (RFC 4180) with the entries; the first line of the file names the columns. `strowger reload` and `strowger sets reload` read it
        /// again.
        pub file: Option<PathBuf> = None, ANY.or("");
        /// A database with the entries: "sqlite:FILE", or the URL of a MariaDB, MySQL or PostgreSQL server as in `store.subscribers`. It is queried
        /// at the start, which fails without an answer, and at each occasion at which a file would be read again; if there is no answer then, the set
        /// keeps its entries.
        pub database: Option<Database> = None, ANY.or("");
        /// Query for `database`, such as "SELECT prefix, carrier FROM carriers". The server writes nothing to the database.
        pub query: String = String::new(), ANY;
        /// Name of the column of keys in the file or the query.
        pub key: String = "key".into(), ANY;
        /// Name of the column of values in the file or the query; "": the entries have no values.
        pub value: Option<String> = None, ANY.or("");
        /// Longest time for the complete answer of the database.
        pub timeout: Duration = Duration::from_secs(5), Rule::time(Duration::from_millis(100), Duration::from_secs(60));
        /// Interval at which the server checks the file or queries the database. A changed file is read at the first check at which it has not
        /// changed further. "off": the server reads the set again only when ordered.
        pub refresh: Option<Duration> = None, Rule::time(Duration::from_secs(1), Duration::from_secs(86_400)).or("off");
    }
}

/// Entries of a set in the configuration itself: only keys, or each with a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries(Vec<(String, Option<String>)>);

impl Entries {
    /// Tells whether the configuration itself has no entries for the set.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the keys and values, in the order of the list, or sorted by key for a table.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Option<&str>)> {
        self.0.iter().map(|(key, value)| (key.as_str(), value.as_deref()))
    }
}

impl Key for Entries {
    fn read(path: &str, value: &Spanned<DeValue<'_>>, rule: &Rule, reader: &mut Reader) -> Option<Self> {
        match value.get_ref() {
            DeValue::Array(_) => {
                let keys = Vec::<String>::read(path, value, rule, reader)?;
                Some(Self(keys.into_iter().map(|key| (key, None)).collect()))
            }
            // Reports each wrong value, not only the first.
            DeValue::Table(table) => {
                let mut read = Vec::with_capacity(table.len());
                for (index, (key, value)) in table.iter().enumerate() {
                    let path = format!("{path}[{index}]");
                    reader.note_place(&path, key.span(), key.span());
                    let value = String::read(&path, value, rule, reader);
                    read.push(value.map(|value| (key.get_ref().to_string(), Some(value))));
                }
                read.into_iter().collect::<Option<_>>().map(Self)
            }
            _ => {
                let cure = format!("write {}", Self::allowed(rule));
                reader.wrong_type(path, value, "a list or a table", cure);
                None
            }
        }
    }

    fn write(&self, rule: &Rule) -> String {
        let has_values = self.0.iter().any(|(_, value)| value.is_some());
        let of = |(key, value): &(String, Option<String>)| match value {
            Some(value) => format!("{} = {}", key.write(rule), value.write(rule)),
            None => key.write(rule),
        };
        let entries: Vec<String> = self.0.iter().map(of).collect();
        let entries = entries.join(", ");
        if has_values { format!("{{ {entries} }}") } else { format!("[{entries}]") }
    }

    fn allowed(_: &Rule) -> String {
        "a list of texts such as [\"+4930\", \"+4940\"], or a table with a value for each such as { \"+4930\" = \"west\" }".into()
    }
}

/// Reason for which a set cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetFault {
    /// File, or database without its password.
    pub place: String,
    /// Line of the file, from 1.
    pub line: Option<usize>,
    /// Description of the fault, in one sentence without a full stop.
    pub message: String,
    /// Instruction that removes the fault.
    pub cure: String,
}

impl fmt::Display for SetFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let line = self.line.map_or_else(String::new, |line| format!(":{line}"));
        write!(f, "{}{line}: {}: {}", self.place, self.message, self.cure)
    }
}

impl SetTable {
    /// Returns the columns of keys and values.
    pub fn columns(&self) -> Columns<'_> {
        Columns { key: &self.key, value: self.value.as_deref() }
    }

    /// Tells whether its entries have values.
    pub(super) fn has_values(&self) -> bool {
        match self.is_elsewhere() {
            true => self.value.is_some(),
            false => self.entries.iter().any(|(_, value)| value.is_some()),
        }
    }

    /// Tells whether the entries are in a file or a database.
    pub const fn is_elsewhere(&self) -> bool {
        self.file.is_some() || self.database.is_some()
    }

    /// Returns the place of the entries for a message, without a password.
    pub fn origin(&self) -> String {
        match (&self.file, &self.database) {
            (Some(file), _) => file.display().to_string(),
            (None, Some(database)) => database.to_string(),
            (None, None) => "configuration".into(),
        }
    }

    /// Tells whether `other` has the same entries from the same place, so that data read for one of the two sets is valid for the other.
    pub fn has_the_entries_of(&self, other: &Self) -> bool {
        (&self.name, self.kind, &self.entries, &self.file) == (&other.name, other.kind, &other.entries, &other.file)
            && (&self.database, &self.query, &self.key, &self.value)
                == (&other.database, &other.query, &other.key, &other.value)
    }
}

/// Returns the names of all sets, and the compiled sets whose entries are in the configuration.
pub(super) fn load(tables: &[SetTable], reader: &mut Reader) -> (SetNames, Vec<(SetId, Arc<Set>)>) {
    let (mut names, mut loaded) = (SetNames::default(), Vec::new());
    for (index, table) in tables.iter().enumerate() {
        let path = format!("set[{index}]");
        let id = match names.add(table.name.as_str(), table.kind.kind()) {
            Ok(id) => id,
            // A duplicate name was noted when it was read.
            Err(_) if names.id(table.name.as_str()).is_some() => continue,
            Err(refusal) => {
                let span = reader.value_of(&format!("{path}.name"));
                reader.push(Fault::error(span, refusal.message, refusal.cure));
                continue;
            }
        };
        if check(table, &path, reader)
            && let Some(set) = read(table, &path, reader)
        {
            loaded.push((id, Arc::new(set)));
        }
    }
    (names, loaded)
}

fn read(table: &SetTable, path: &str, reader: &mut Reader) -> Option<Set> {
    if table.is_elsewhere() {
        return None;
    }
    of_entries(table.kind.kind(), table.entries.iter(), path, "entries", reader)
}

/// Compiles entries of the table at this path. Notes a fault and returns `None` if one is invalid.
pub(super) fn of_entries<'a>(
    kind: LookupKind,
    entries: impl Iterator<Item = (&'a str, Option<&'a str>)>,
    path: &str,
    key: &str,
    reader: &mut Reader,
) -> Option<Set> {
    match Set::new(kind, entries) {
        Ok(set) => Some(set),
        Err(fault) => {
            let span = reader.value_of(&format!("{path}.{key}[{}]", fault.place));
            reader.push(Fault::error(span, fault.message, fault.cure));
            None
        }
    }
}

/// Notes contradictory keys of a table. Returns whether the set can be read.
fn check(table: &SetTable, path: &str, reader: &mut Reader) -> bool {
    let before = reader.fault_count();
    let mut note = |key: &str, what: &str, cure: &str| {
        let span = reader.value_of(&format!("{path}.{key}")).or_else(|| reader.key_of(path));
        reader.push(Fault::error(span, format!("set '{}' {what}", table.name), cure));
    };
    let (has_file, has_database) = (table.file.is_some(), table.database.is_some());
    if has_file && has_database {
        note("database", "has a file and a database", "keep one of the two, or make two sets");
    }
    if !table.entries.is_empty() && has_file {
        note("file", "has entries and a file", "put the entries into the file, or make two sets");
    }
    if !table.entries.is_empty() && has_database {
        note("database", "has entries and a database", "put the entries into the database, or make two sets");
    }
    if has_database && table.query.trim().is_empty() {
        note(
            "database",
            "has a database and no query",
            "add one such as query = \"SELECT prefix AS key FROM prefixes\"",
        );
    }
    if !has_database && !table.query.is_empty() {
        note("query", "has a query and no database", "add `database`, or remove `query`");
    }
    if table.refresh.is_some() && !has_file && !has_database {
        note("refresh", "has its entries here, which only a reload reads again", "remove `refresh`, or name a file");
    }
    reader.fault_count() == before
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Report, Source};
    use super::*;
    use std::path::Path;
    use strowger_rules::Case;

    const TABLE: &str = "[[set]]\nname = \"a\"\n";

    fn read(lines: &str) -> Result<Config, Report> {
        let text = format!("{TABLE}{lines}");
        Config::read(Source { text: &text, folder: Path::new("/tmp"), ..Source::default() }).map(|(config, _)| config)
    }

    #[test]
    fn entries_may_have_values() {
        let config = read("entries = { \"+4930\" = \"west\", 4940 = \"north\" }\nkind = \"prefixes\"")
            .unwrap_or_else(|report| panic!("{report}"));
        let set = config.decisions.set("a").expect("it is there");
        let values = ["+49301", "49401", "1"].map(|number| {
            let value = set.text_value(number.as_bytes(), Case::Exact);
            value.map(|value| String::from_utf8_lossy(value).into_owned())
        });
        assert_eq!(values, [Some("west".to_owned()), Some("north".to_owned()), None]);
        // The output of `effective` is read as the same entries.
        let effective = config.effective();
        let again = Config::read(Source { text: &effective, ..Source::default() }).map(|(config, _)| config);
        assert_eq!(again.unwrap_or_else(|report| panic!("{report}")).sets[0].entries, config.sets[0].entries);
        for (lines, faults) in [("entries = { a = 1, b = \"x\", c = true }", 2), ("entries = 1", 1)] {
            let report = read(lines).expect_err("it is refused").to_string();
            assert_eq!(report.matches("set[0].entries").count(), faults, "{report}");
        }
    }

    #[test]
    fn a_set_may_be_in_a_database() {
        for (database, shown) in [
            ("sqlite:a.sqlite", "sqlite:/tmp/a.sqlite"),
            ("sqlite:/var/a.sqlite", "sqlite:/var/a.sqlite"),
            ("mysql://u:open%20sesame@h/d", "mysql://u:********@h:3306/d"),
            ("postgres://u@[::1]/d", "postgresql://u@[::1]:5432/d"),
        ] {
            let lines = format!("database = \"{database}\"\nquery = \"SELECT 1 AS key\"\nrefresh = \"1m\"");
            let config = read(&lines).unwrap_or_else(|report| panic!("{report}"));
            assert_eq!(config.sets[0].origin(), shown);
            assert!(config.sets[0].is_elsewhere() && config.decisions.set("a").is_some_and(|set| set.is_empty()));
            let effective = config.effective();
            assert!(effective.contains(shown) && !effective.contains("sesame"), "{effective}");
        }
    }

    #[test]
    fn contradictions_have_their_place_and_their_cure() {
        let (database, query) = ("database = \"mysql://u:hunter2@h/d\"\n", "query = \"SELECT 1 AS key\"\n");
        for (lines, line, cure) in [
            (database.to_owned(), 3, "add one such as query"),
            (query.to_owned(), 3, "add `database`"),
            (format!("{database}{query}entries = [\"x\"]"), 3, "make two sets"),
            (format!("{database}{query}file = \"x.csv\""), 3, "keep one of the two"),
            ("entries = [\"x\"]\nrefresh = \"1m\"".into(), 4, "remove `refresh`"),
            ("database = \"sqlite:\"".into(), 3, "a database such as"),
            ("database = \"oracle://u@h/d\"".into(), 3, "a database such as"),
            (format!("{database}{query}refresh = \"10ms\""), 5, "from \"1s\""),
        ] {
            let report = read(&lines).expect_err(&lines);
            let fault = report.faults().iter().find(|fault| fault.cure.contains(cure));
            let fault = fault.unwrap_or_else(|| panic!("{lines}\n{report}"));
            assert_eq!(report.position(fault).map(|(line, _)| line), Some(line), "{lines}\n{report}");
            assert!(!report.to_string().contains("hunter2"), "{report}");
        }
    }

    #[test]
    fn a_set_that_a_condition_asks_is_used() {
        let warnings = |lines: &str| {
            let text = format!("{TABLE}entries = [\"x\"]\n{lines}");
            let (_, report) = Config::read(Source { text: &text, ..Source::default() }).expect("right");
            report.to_string()
        };
        assert!(warnings("").contains("set 'a' is used nowhere"));
        for table in ["rule", "filter"] {
            let said = warnings(&format!("[[{table}]]\nname = \"r\"\nwhen = \"from.user in a\"\nanswer = 403\n"));
            assert_eq!(said, "", "{table}");
        }
    }

    #[test]
    fn other_data_take_the_place_of_those_of_one_set() {
        let config = read("entries = [\"x\"]\n[[set]]\nname = \"b\"\n").unwrap_or_else(|report| panic!("{report}"));
        let other = Arc::new(Set::new(LookupKind::Texts, [("y", None::<&str>), ("z", None)]).expect("a set"));
        let changed = config.decisions.with_set("b", other.clone());
        let lengths = |name: &str| [&*config.decisions, &changed].map(|it| it.set(name).map(|set| set.len()));
        assert_eq!((lengths("a"), lengths("b")), ([Some(1); 2], [Some(0), Some(2)]));
        assert!(changed.with_set("c", other).set("c").is_none());
    }
}
