//! Walks the tables of a file, hands each value to its key and notes everything that is wrong on the way.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use strowger_rules::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::key::{Role, Rule};
use super::name::Names;
use super::reload::Change;
use super::report::Fault;

/// One key of a section: everything the documentation says of it.
#[derive(Debug, Clone)]
pub(crate) struct KeyDoc {
    /// Name in the file.
    pub name: &'static str,
    /// What it does, with the RFC section where there is one; a line an item.
    pub doc: &'static [&'static str],
    /// What is admitted, in words.
    pub allowed: String,
    /// The default as TOML.
    pub default: String,
    /// A running process keeps its value.
    pub fixed: bool,
    /// A table without it is wrong.
    pub required: bool,
}

/// A table of the file, as the `section!` macro makes it from its only description.
pub(super) trait Section: Default {
    /// Name of the table; empty for the keys above the first table.
    const NAME: &'static str;
    /// What the table is for, a line an item.
    const DOC: &'static [&'static str];
    /// Names of the keys.
    const KEYS: &'static [&'static str];
    /// What each of them is to other tables, in the order of `KEYS`.
    const ROLES: &'static [Role];

    /// Reads one key into this section.
    fn read_key(&mut self, name: &str, path: &str, value: &Spanned<DeValue<'_>>, reader: &mut Reader);
    /// The values as TOML, in the order of `KEYS`.
    fn values(&self) -> Vec<String>;
    /// Makes each relative path of the section start at this folder.
    fn resolve(&mut self, folder: &Path);
    /// The keys that have other values than in `running`; `path` is the name of the table.
    fn changes(&self, running: &Self, path: &str) -> Vec<Change>;
    /// Takes over the fixed keys of the section that a process runs with.
    fn keep_fixed(&mut self, running: &Self);
    /// The documentation of each key, in the order of `KEYS`.
    fn docs() -> Vec<KeyDoc>;
}

/// Describes a section once: from this come the struct, its defaults, its reader, `--effective` and the table of keys.
macro_rules! section {
    (
        $(#[doc = $doc:literal])+
        $vis:vis struct $name:ident = $title:literal {
            $( $(#[doc = $key_doc:literal])+ pub $key:ident: $type:ty = $default:expr, $rule:expr; )+
        }
    ) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, PartialEq)]
        $vis struct $name {
            $( $(#[doc = $key_doc])+ pub $key: $type, )+
        }

        impl Default for $name {
            fn default() -> Self {
                Self { $( $key: $default, )+ }
            }
        }

        impl $crate::reader::Section for $name {
            const NAME: &'static str = $title;
            const DOC: &'static [&'static str] = &[$($doc),+];
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),+];
            const ROLES: &'static [$crate::key::Role] = &[$(<$type as $crate::key::Key>::ROLE),+];

            fn read_key(
                &mut self,
                name: &str,
                path: &str,
                value: &toml::Spanned<toml::de::DeValue<'_>>,
                reader: &mut $crate::reader::Reader,
            ) {
                match name {
                    $( stringify!($key) => {
                        if let Some(found) = <$type as $crate::key::Key>::read(path, value, &$rule, reader) {
                            self.$key = found;
                        }
                    } )+
                    _ => {}
                }
            }

            fn values(&self) -> Vec<String> {
                vec![$( $crate::key::Key::write(&self.$key, &$rule) ),+]
            }

            fn resolve(&mut self, folder: &std::path::Path) {
                $( $crate::key::Key::resolve(&mut self.$key, folder); )+
            }

            fn changes(&self, running: &Self, path: &str) -> Vec<$crate::reload::Change> {
                let mut changes = Vec::new();
                $( if self.$key != running.$key {
                    changes.push($crate::reload::Change {
                        key: $crate::reader::join(path, stringify!($key)),
                        running: $crate::key::Key::write(&running.$key, &$rule),
                        wanted: $crate::key::Key::write(&self.$key, &$rule),
                        needs_restart: ($rule).is_fixed(),
                    });
                } )+
                changes
            }

            fn keep_fixed(&mut self, running: &Self) {
                $( if ($rule).is_fixed() {
                    self.$key.clone_from(&running.$key);
                } )+
            }

            fn docs() -> Vec<$crate::reader::KeyDoc> {
                let flags = [$( (($rule).is_fixed(), ($rule).is_required()) ),+];
                let defaults = Self::default().values();
                let allowed = [$( <$type as $crate::key::Key>::allowed(&$rule) ),+];
                let docs: [&'static [&'static str]; Self::KEYS.len()] = [$( &[$($key_doc),+] ),+];
                defaults
                    .into_iter()
                    .zip(allowed)
                    .zip(docs)
                    .zip(flags)
                    .zip(Self::KEYS)
                    .map(|((((default, allowed), doc), (fixed, required)), name)| $crate::reader::KeyDoc {
                        name,
                        doc,
                        allowed,
                        default,
                        fixed,
                        required,
                    })
                    .collect()
            }
        }
    };
}
pub(super) use section;

/// A table of the file as the others see it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableName {
    /// Empty for the keys above the first table.
    pub name: &'static str,
    /// Names of its keys.
    pub keys: &'static [&'static str],
    /// What each of them is to other tables.
    pub roles: &'static [Role],
    /// Each item of the list is a table, `[[name]]`.
    pub is_list: bool,
}

impl TableName {
    pub(super) const fn of<S: Section>(is_list: bool) -> Self {
        Self { name: S::NAME, keys: S::KEYS, roles: S::ROLES, is_list }
    }

    /// As it stands in the file.
    pub(super) fn heading(&self) -> String {
        if self.is_list { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }
}

/// Where a key stands in the file.
#[derive(Debug, Clone)]
pub(super) struct Place {
    pub key: Range<usize>,
    pub value: Range<usize>,
}

/// Keys that stand elsewhere now: table and name before, name and heading now.
const MOVED: &[(&str, &str, &str, &str)] = &[("proxy", "emergency_target", "target", "[emergency]")];

/// Collects faults, the places of the keys that were found, and the names of tables.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    faults: Vec<Fault>,
    places: BTreeMap<String, Place>,
    /// All tables with their keys, to say where a misplaced key belongs.
    tables: Vec<TableName>,
    /// The table that is being read.
    pub(super) table: &'static str,
    /// Of tables in lists, and the keys that refer to them.
    pub(super) names: Names,
    /// Where each line of the file ends.
    line_ends: Vec<usize>,
}

impl Reader {
    pub(super) fn new(tables: Vec<TableName>, text: &str) -> Self {
        let line_ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at).collect();
        Self { tables, line_ends, ..Self::default() }
    }

    pub(super) fn error(&mut self, span: Range<usize>, message: impl Into<String>, cure: impl Into<String>) {
        self.faults.push(Fault::error(Some(span), message, cure));
    }

    pub(super) fn fault_count(&self) -> usize {
        self.faults.len()
    }

    pub(super) fn push(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub(super) fn into_faults(self) -> Vec<Fault> {
        self.faults
    }

    /// Adds words to the cure of the faults noted since there were `from` of them.
    pub(super) fn amend(&mut self, from: usize, words: &str) {
        for fault in &mut self.faults[from..] {
            fault.cure.push_str(words);
        }
    }

    /// Where the value of a key such as `timers.t1` stands, if the file has it.
    pub(super) fn value_of(&self, path: &str) -> Option<Range<usize>> {
        self.places.get(path).map(|place| place.value.clone())
    }

    /// The place of the first of these keys that the file has.
    pub(super) fn first_of(&self, paths: &[&str]) -> Option<Range<usize>> {
        paths.iter().find_map(|path| self.value_of(path))
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.places.contains_key(path)
    }

    pub(super) fn note_place(&mut self, path: &str, key: Range<usize>, value: Range<usize>) {
        self.places.insert(path.to_owned(), Place { key, value });
    }

    /// Where a key itself stands, if the file has it.
    pub(super) fn key_of(&self, path: &str) -> Option<Range<usize>> {
        self.places.get(path).map(|place| place.key.clone())
    }

    /// The lines of two places, for a sentence: `line 1`, or `lines 1 and 7`.
    pub(super) fn lines(&self, a: &Range<usize>, b: &Range<usize>) -> String {
        let line = |span: &Range<usize>| self.line_ends.partition_point(|end| *end < span.start) + 1;
        match (line(a), line(b)) {
            (a, b) if a == b => format!("line {a}"),
            (a, b) => format!("lines {} and {}", a.min(b), a.max(b)),
        }
    }

    /// The table of this name, if there is one.
    pub(super) fn table_name(&self, name: &str) -> Option<&TableName> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// All tables.
    pub(super) fn table_names(&self) -> &[TableName] {
        &self.tables
    }

    /// Reads the table of a section; `path` is its name in sentences (`listener[0]`).
    pub(super) fn section<S: Section>(&mut self, path: &str, table: &DeTable<'_>) -> S {
        self.table = S::NAME;
        let mut section = S::default();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            if S::KEYS.contains(&name) {
                let full = join(path, name);
                self.note_place(&full, key.span(), value.span());
                section.read_key(name, &full, value, self);
            } else {
                self.unknown_key(S::NAME, name, key.span());
            }
        }
        for missing in S::docs().iter().filter(|key| key.required && !table.contains_key(key.name)) {
            let heading = self.heading(S::NAME);
            let cure = format!("write {} = and {}", missing.name, missing.allowed);
            self.names.doubt(S::NAME);
            self.push(Fault::error(self.value_of(path), format!("{heading} has no {}", missing.name), cure));
        }
        section
    }

    fn heading(&self, table: &str) -> String {
        self.table_name(table).map_or_else(|| format!("[{table}]"), TableName::heading)
    }

    fn unknown_key(&mut self, table: &str, name: &str, span: Range<usize>) {
        let keys = self.table_name(table).map_or(&[][..], |table| table.keys);
        let here =
            if table.is_empty() { "at the top of the file".into() } else { format!("in {}", self.heading(table)) };
        // What is set for all is meant sooner than what a table of a list sets.
        let homes = self.tables.iter().filter(|table| table.keys.contains(&name));
        let home = homes.min_by_key(|table| table.is_list);
        // A line such as `dialogs.folder = "calls"` behind a heading: TOML reads it as a table within that one.
        let dotted = self.table_name(name).filter(|table| !table.name.is_empty()).map(TableName::heading);
        let moved = MOVED.iter().find(|(old, key, ..)| (*old, *key) == (table, name));
        if let Some((_, _, now, heading)) = moved {
            return self.error(
                span,
                format!("there is no key {name} {here} any more"),
                format!("write {now} in {heading}"),
            );
        }
        let cure = match (dotted, nearest(name, keys.iter().copied()), home) {
            (Some(heading), ..) => {
                format!(
                    "put it above the first [table], where a key may have its table before a dot, or into {heading}"
                )
            }
            (None, Some(near), _) => format!("write {near}"),
            (None, None, Some(home)) if home.name.is_empty() => {
                format!("{name} stands at the top of the file, above the first [table]")
            }
            (None, None, Some(home)) => format!("{name} belongs in {}", home.heading()),
            (None, None, None) => format!("{here} stand {}", keys.join(", ")),
        };
        self.error(span, format!("there is no key {name} {here}"), cure);
    }

    /// Notes a table that does not exist.
    pub(super) fn unknown_table(&mut self, name: &str, span: Range<usize>, value: &DeValue<'_>) {
        let heading = match value {
            DeValue::Table(_) => format!("[{name}]"),
            DeValue::Array(items) if items.iter().any(|item| item.get_ref().is_table()) => format!("[[{name}]]"),
            _ => return self.unknown_key("", name, span),
        };
        let tables: Vec<&TableName> = self.tables.iter().filter(|table| !table.name.is_empty()).collect();
        let near = nearest(name, tables.iter().map(|table| table.name));
        let cure = match near.and_then(|near| self.table_name(near)) {
            Some(near) => format!("write {}", near.heading()),
            None => {
                let headings: Vec<String> = tables.iter().map(|table| table.heading()).collect();
                format!("the tables are {}", headings.join(", "))
            }
        };
        self.error(span, format!("there is no table {heading}"), cure);
    }

    /// Notes a value that is none of the words that the key knows.
    pub(super) fn wrong_word(&mut self, path: &str, value: &Spanned<DeValue<'_>>, words: &[&str], allowed: &str) {
        match value.get_ref() {
            DeValue::String(text) => {
                let cure = match nearest(text, words.iter().copied()) {
                    Some(near) => format!("did you mean \"{near}\"? Write {allowed}"),
                    None => format!("write {allowed}"),
                };
                self.error(value.span(), format!("unknown value {text:?} for {path}"), cure);
            }
            _ => self.wrong_type(path, value, "text", format!("write {allowed}")),
        }
    }
}

/// The name of a key with that of its table.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// The rule of keys that need none; a name for the sections.
pub(super) const ANY: Rule = Rule::any();
