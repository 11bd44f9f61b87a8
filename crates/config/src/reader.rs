//! Reader of a file: walks the tables, hands each value to its key, and notes all faults.

use std::ops::Range;
use std::path::Path;

use strowger_rules::nearest;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::change::Change;
use super::key::{Role, Rule};
use super::key_positions::KeyPositions;
use super::name::Names;
use super::removed;
use super::report::{Fault, Severity};

/// Documentation of one key of a section.
#[derive(Debug, Clone)]
pub(crate) struct KeyDoc {
    /// Name in the file.
    pub name: &'static str,
    /// Effect of the key, with the RFC section if there is one; one item for each line.
    pub doc: &'static [&'static str],
    /// Admitted values, in words.
    pub allowed: String,
    /// Default as TOML.
    pub default: String,
    /// True: a running process keeps its value.
    pub fixed: bool,
    /// True: a table without it is wrong.
    pub required: bool,
}

/// A table of the file. The `section!` macro generates the implementation from the description of the table.
pub(super) trait Section: Default {
    /// Name of the table; empty for the keys above the first table.
    const NAME: &'static str;
    /// Purpose of the table, one item for each line.
    const DOC: &'static [&'static str];
    /// Names of the keys.
    const KEYS: &'static [&'static str];
    /// Role of each key for other tables, in the order of `KEYS`.
    const ROLES: &'static [Role];

    /// Reads one key into this section.
    fn read_key(&mut self, name: &str, path: &str, value: &Spanned<DeValue<'_>>, reader: &mut Reader);
    /// Returns the values as TOML, in the order of `KEYS`.
    fn values(&self) -> Vec<String>;
    /// Makes each relative path of the section start at this folder.
    fn resolve(&mut self, folder: &Path);
    /// Returns the keys whose values differ from those in `running`; `path` is the name of the table.
    fn changes(&self, running: &Self, path: &str) -> Vec<Change>;
    /// Copies the fixed keys from the section of a running process.
    fn keep_fixed(&mut self, running: &Self);
    /// Returns the documentation of each key, in the order of `KEYS`.
    fn docs() -> Vec<KeyDoc>;
}

/// Describes a section. The macro generates the struct, its defaults, its reader, the output of `--effective` and the table of keys from this
/// description.
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

            fn changes(&self, running: &Self, path: &str) -> Vec<$crate::change::Change> {
                let mut changes = Vec::new();
                $( if self.$key != running.$key {
                    changes.push($crate::change::Change {
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

/// Name and keys of a table of the file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TableName {
    /// Name; empty for the keys above the first table.
    pub name: &'static str,
    /// Names of its keys.
    pub keys: &'static [&'static str],
    /// Role of each key for other tables.
    pub roles: &'static [Role],
    /// True: the table is an item of a list, `[[name]]`.
    pub is_list: bool,
}

impl TableName {
    pub(super) const fn of<S: Section>(is_list: bool) -> Self {
        Self { name: S::NAME, keys: S::KEYS, roles: S::ROLES, is_list }
    }

    /// Heading in the file.
    pub(super) fn heading(&self) -> String {
        if self.is_list { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }
}

/// Moved keys, each with its former table and name, and its present name and heading.
const MOVED: &[(&str, &str, &str, &str)] = &[("proxy", "emergency_target", "target", "[emergency]")];

/// Collects faults, positions of keys, and names of tables.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    faults: Vec<Fault>,
    places: KeyPositions,
    /// All tables with their keys, from which the cure for a misplaced key is made.
    tables: Vec<TableName>,
    /// Table that is being read.
    pub(super) table: &'static str,
    /// Names of tables in lists, and references to them.
    pub(super) names: Names,
    /// Offset of the end of each line of the file.
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

    pub(super) fn error_count(&self) -> usize {
        self.faults.iter().filter(|fault| fault.severity == Severity::Error).count()
    }

    pub(super) fn push(&mut self, fault: Fault) {
        self.faults.push(fault);
    }

    pub(super) fn into_faults(self) -> Vec<Fault> {
        self.faults
    }

    pub(super) fn into_parts(self) -> (Vec<Fault>, KeyPositions) {
        (self.faults, self.places)
    }

    /// Returns the positions of the keys read so far.
    pub(super) const fn places(&self) -> &KeyPositions {
        &self.places
    }

    /// Appends words to the cure of each fault except the first `from` ones.
    pub(super) fn amend(&mut self, from: usize, words: &str) {
        for fault in &mut self.faults[from..] {
            fault.cure.push_str(words);
        }
    }

    /// Returns the position of the value of a key such as `timers.t1`, if the file has the key.
    pub(super) fn value_of(&self, path: &str) -> Option<Range<usize>> {
        self.places.value_of(path)
    }

    /// Returns the position of the value of the first of these keys that the file has.
    pub(super) fn first_of(&self, paths: &[&str]) -> Option<Range<usize>> {
        self.places.first_of(paths)
    }

    pub(super) fn has(&self, path: &str) -> bool {
        self.places.has(path)
    }

    pub(super) fn note_place(&mut self, path: &str, key: Range<usize>, value: Range<usize>) {
        self.places.note(path, key, value);
    }

    /// Returns the position of a key itself, if the file has the key.
    pub(super) fn key_of(&self, path: &str) -> Option<Range<usize>> {
        self.places.key_of(path)
    }

    /// Returns the lines of two positions as words for a message: `line 1`, or `lines 1 and 7`.
    pub(super) fn lines(&self, a: &Range<usize>, b: &Range<usize>) -> String {
        let line = |span: &Range<usize>| self.line_ends.partition_point(|end| *end < span.start) + 1;
        match (line(a), line(b)) {
            (a, b) if a == b => format!("line {a}"),
            (a, b) => format!("lines {} and {}", a.min(b), a.max(b)),
        }
    }

    /// Returns the table of this name, if there is one.
    pub(super) fn table_name(&self, name: &str) -> Option<&TableName> {
        self.tables.iter().find(|table| table.name == name)
    }

    /// Returns all tables.
    pub(super) fn table_names(&self) -> &[TableName] {
        &self.tables
    }

    /// Reads the table of a section; `path` is its name in messages (`listener[0]`).
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
        if let Some(reason) = removed::reason(table, name) {
            let message = format!("{table}.{name} is no key any more: {reason}");
            return self.push(Fault::warning(Some(span), message, "remove the line"));
        }
        if let Some(url) = removed::url_of(table, name) {
            let message = format!("{table}.{name} is no key any more: the URL of {url} has it");
            let cure = "write ?tls=required at the end of that URL, with &ca=FILE for an authority of your own, and remove this line";
            return self.error(span, message, cure);
        }
        let keys = self.table_name(table).map_or(&[][..], |table| table.keys);
        let here =
            if table.is_empty() { "at the top of the file".into() } else { format!("in {}", self.heading(table)) };
        // If several tables have a key of this name, a single table is more probable than a table of a list.
        let homes = self.tables.iter().filter(|table| table.keys.contains(&name));
        let home = homes.min_by_key(|table| table.is_list);
        // After a heading, TOML reads a line such as `dialogs.folder = "calls"` as a table within the table of the heading.
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

    /// Notes that the file has a table of an unknown name.
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

    /// Notes that a value is none of the words that the key admits.
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

/// Joins the names of a table and a key.
pub(super) fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

/// Rule of keys without restrictions, under a short name for the sections.
pub(super) const ANY: Rule = Rule::any();
