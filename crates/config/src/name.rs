//! Names of the tables of a list, such as `[[certificate]]`, and keys of other tables that refer to them.

use std::collections::BTreeSet;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, Range};

use strowger_rules::nearest;
use toml::Spanned;
use toml::de::DeValue;

use super::key::{Key, Role, Rule, quoted};
use super::reader::{Reader, Section};
use super::report::Fault;

/// Name of a table in a list: letters, digits, `-`, `_` and `.`. Names that differ in case are different.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Name(String);

impl Name {
    const EXPECTED: &str = "a name of letters, digits, -, _ and . such as \"west\"";

    /// Name of a table that has not been read; no read table has it.
    pub(super) const UNSET: Self = Self(String::new());

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Tells whether a text may be a name.
    pub(super) fn is_one(text: &str) -> bool {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !text.is_empty() && text.chars().all(is_part)
    }

    fn read(path: &str, value: &Spanned<DeValue<'_>>, reader: &mut Reader) -> Option<Self> {
        let cure = format!("write {}", Self::EXPECTED);
        let DeValue::String(text) = value.get_ref() else {
            reader.wrong_type(path, value, "text", cure);
            return None;
        };
        if !Self::is_one(text) {
            reader.error(value.span(), format!("{path} is {text:?}, which is not a name"), cure);
            return None;
        }
        Some(Self(text.as_ref().to_owned()))
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Key for Name {
    const ROLE: Role = Role::Name;

    fn read(path: &str, value: &Spanned<DeValue<'_>>, _: &Rule, reader: &mut Reader) -> Option<Self> {
        let table = reader.table;
        let Some(name) = Self::read(path, value, reader) else {
            reader.names.doubt(table);
            return None;
        };
        reader.name_table(&name, value.span());
        Some(name)
    }

    fn write(&self, _: &Rule) -> String {
        quoted(self)
    }

    fn allowed(_: &Rule) -> String {
        Self::EXPECTED.into()
    }
}

/// Name of a table of the list `L`. In a configuration read without an error that table exists.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference<L> {
    name: Name,
    list: PhantomData<fn() -> L>,
}

impl<L> Reference<L> {
    /// Returns the name of the table.
    pub const fn name(&self) -> &Name {
        &self.name
    }
}

/// Reads a reference to a table of the list `L`. `otherwise` is another possible meaning of the text; the cure names it if no table has a similar
/// name.
pub(super) fn read_reference<L: Section>(
    path: &str,
    value: &Spanned<DeValue<'_>>,
    otherwise: &'static str,
    reader: &mut Reader,
) -> Option<Reference<L>> {
    let name = Name::read(path, value, reader)?;
    reader.names.refer(L::NAME, &name, value.span(), otherwise);
    Some(Reference { name, list: PhantomData })
}

impl<L: Section> Key for Reference<L> {
    const ROLE: Role = Role::Reference(L::NAME);

    fn read(path: &str, value: &Spanned<DeValue<'_>>, _: &Rule, reader: &mut Reader) -> Option<Self> {
        read_reference(path, value, "", reader)
    }

    fn write(&self, _: &Rule) -> String {
        quoted(&self.name)
    }

    fn allowed(_: &Rule) -> String {
        format!("the name of a `[[{}]]` in quotes", L::NAME)
    }
}

/// A name in the file, with its list and its position.
#[derive(Debug)]
struct Named {
    list: &'static str,
    name: Name,
    span: Range<usize>,
    /// For a reference, another possible meaning of the text; empty if there is none.
    otherwise: &'static str,
}

impl Named {
    fn is(&self, list: &str, name: &str) -> bool {
        self.list == list && *self.name == *name
    }

    /// Returns the name as a message shows it: `gateway group 'west'`.
    fn shown(&self) -> String {
        format!("{} '{}'", words(self.list), self.name)
    }
}

/// Returns the name of a list as words for a message: `gateway group` for `gateway_group`.
fn words(list: &str) -> String {
    list.replace('_', " ")
}

/// Names of all lists, and the references to them.
#[derive(Debug, Default)]
pub(super) struct Names {
    tables: Vec<Named>,
    references: Vec<Named>,
    /// Lists with unreadable names: references to them are not checked.
    doubtful: BTreeSet<&'static str>,
}

impl Names {
    /// Marks a list in which a table has an unreadable name, so that references to this list are not checked.
    pub(super) fn doubt(&mut self, list: &'static str) {
        self.doubtful.insert(list);
    }

    fn refer(&mut self, list: &'static str, name: &Name, span: Range<usize>, otherwise: &'static str) {
        self.references.push(Named { list, name: name.clone(), span, otherwise });
    }

    /// Returns the names in a list as a message shows them: `'a', 'b' and 'c'`.
    fn of(&self, list: &str) -> String {
        let mut names: Vec<String> =
            self.tables.iter().filter(|table| table.list == list).map(|table| format!("'{}'", table.name)).collect();
        match names.pop() {
            Some(last) if names.is_empty() => last,
            Some(last) => format!("{} and {last}", names.join(", ")),
            None => String::new(),
        }
    }

    /// Returns the cure for a reference to a table that does not exist.
    fn cure(&self, reference: &Named) -> String {
        let list = reference.list;
        let otherwise = match reference.otherwise {
            "" => String::new(),
            otherwise => format!("; {otherwise}"),
        };
        let mut names =
            self.tables.iter().filter(|table| table.list == list).map(|table| table.name.as_str()).peekable();
        if names.peek().is_none() {
            return format!("there is no [[{list}]] table: add one with name = \"{}\"{otherwise}", reference.name);
        }
        match nearest(&reference.name, names) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("the names in [[{list}]] are {}{otherwise}", self.of(list)),
        }
    }
}

impl Reader {
    /// Notes the name of the current table.
    fn name_table(&mut self, name: &Name, span: Range<usize>) {
        let list = self.table;
        if let Some(other) = self.names.tables.iter().find(|table| table.is(list, name)) {
            let lines = self.lines(&other.span, &span);
            let message = format!("there are two tables [[{list}]] with the name '{name}': {lines}");
            return self.error(span, message, "give one of them another name, or remove it");
        }
        self.names.tables.push(Named { list, name: name.clone(), span, otherwise: "" });
    }

    /// Notes each reference to a table that does not exist. The whole file must have been read.
    pub(super) fn check_references(&mut self) {
        let names = &self.names;
        let leads_nowhere = |reference: &&Named| {
            !names.doubtful.contains(reference.list)
                && !names.tables.iter().any(|table| table.is(reference.list, &reference.name))
        };
        let faults = names.references.iter().filter(leads_nowhere).map(|reference| {
            Fault::error(
                Some(reference.span.clone()),
                format!("{} does not exist", reference.shown()),
                names.cure(reference),
            )
        });
        for fault in faults.collect::<Vec<_>>() {
            self.push(fault);
        }
    }

    /// Records a reference that a text in another language than TOML contains, such as a condition.
    pub(super) fn note_reference(&mut self, list: &'static str, name: &str, span: Range<usize>) {
        self.names.refer(list, &Name(name.to_owned()), span, "");
    }

    /// Warns of each named table without references, if keys of other tables can refer to it.
    pub(super) fn check_unused(&mut self) {
        let names = &self.names;
        let is_unused = |table: &&Named| {
            !self.referring(table.list).is_empty()
                && !names.references.iter().any(|reference| reference.is(table.list, &table.name))
        };
        let faults = names.tables.iter().filter(is_unused).map(|table| {
            let places = self.referring(table.list).join(" or ");
            let cure = format!("name it in {places}, or remove its table");
            Fault::warning(Some(table.span.clone()), format!("{} is used nowhere", table.shown()), cure)
        });
        for fault in faults.collect::<Vec<_>>() {
            self.push(fault);
        }
    }

    /// Returns the keys that can refer to a list, such as `certificates of [[listener]]`.
    fn referring(&self, list: &str) -> Vec<String> {
        let tables = self.table_names().iter();
        let keys =
            tables.flat_map(|table| table.keys.iter().zip(table.roles).map(move |(key, role)| (table, key, role)));
        keys.filter(|(_, _, role)| matches!(role, Role::Reference(to) if *to == list))
            .map(|(table, key, _)| format!("{key} of {}", table.heading()))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::super::reader::{ANY, section};
    use super::super::report::{Report, Severity};
    use super::super::tables::{self, Document, document};
    use super::*;

    section! {
        /// The keys above the first table.
        pub(super) struct Nothing = "" {
            /// No key.
            pub colour: String = String::new(), ANY;
        }
    }

    section! {
        /// A gateway.
        pub(super) struct Gateway = "gateway" {
            /// Its name.
            pub name: Name = Name::UNSET, ANY.required();
            /// Its address.
            pub address: String = String::new(), ANY;
        }
    }

    section! {
        /// Gateways that replace one another.
        pub(super) struct GatewayGroup = "gateway_group" {
            /// Its name.
            pub name: Name = Name::UNSET, ANY.required();
            /// Its gateways.
            pub gateways: Vec<Reference<Gateway>> = Vec::new(), ANY;
            /// Group that is tried after it.
            pub after: Option<Reference<GatewayGroup>> = None, ANY.or("");
        }
    }

    section! {
        /// Calls out.
        pub(super) struct Trunk = "trunk" {
            /// Group for its calls.
            pub group: Option<Reference<GatewayGroup>> = None, ANY.or("");
        }
    }

    document! {
        top: Nothing,
        lists { gateway: Gateway => gateways: Gateway, gateway_group: GatewayGroup => gateway_groups: GatewayGroup }
        tables { trunk: Trunk }
    }

    fn read(text: &str) -> (Tables, Report) {
        let document = DeTable::parse(text).expect("it is TOML");
        let mut reader = Reader::new(Tables::names(), text);
        let tables = tables::read(document.get_ref(), &mut reader);
        reader.check_references();
        if reader.fault_count() == 0 {
            reader.check_unused();
        }
        (tables, Report::new("test.toml", text, reader.into_faults()))
    }

    const RIGHT: &str = "[[gateway]]\nname = \"a.1\"\naddress = \"192.0.2.1\"\n[[gateway]]\nname = \"a-2_b\"\n\
        [[gateway_group]]\nname = \"West\"\ngateways = [\"a.1\", \"a-2_b\"]\nafter = \"East\"\n\
        [[gateway_group]]\nname = \"East\"\ngateways = []\n[trunk]\ngroup = \"West\"\n";

    #[test]
    fn lists_refer_to_one_another() {
        let (tables, report) = read(RIGHT);
        assert_eq!(report.faults(), []);
        assert_eq!(&*tables.gateway[0].address, "192.0.2.1");
        let groups = &tables.gateway_group;
        let names: Vec<&str> = groups[0].gateways.iter().map(|gateway| gateway.name().as_str()).collect();
        assert_eq!(names, ["a.1", "a-2_b"]);
        assert_eq!(groups[0].after.as_ref().map(Reference::name), Some(&groups[1].name));
        assert_eq!((&groups[1].gateways, &groups[1].after), (&Vec::new(), &None));
        assert_eq!(tables.trunk.group.as_ref().map(Reference::name), Some(&groups[0].name));
        // An empty list is a list.
        assert_eq!(read("gateway = []\n").1.faults(), []);
        assert_eq!(read("gateway = [{ name = \"a\" }]\ngateway_group = [{ name = \"b\", gateways = [\"a\"] }]\ntrunk.group = \"b\"").1.faults(), []);
    }

    #[test]
    fn what_is_wrong_with_names_has_its_place_and_its_cure() {
        let group = "[[gateway_group]]\nname = \"West\"\n";
        for (text, place, message, cure) in [
            (
                format!("{group}[trunk]\ngroup = \"west\"\n"),
                (4, 9),
                "gateway group 'west' does not exist",
                "did you mean 'West'?",
            ),
            (
                format!("[trunk]\ngroup = \"overseas\"\n{group}[[gateway_group]]\nname = \"East\"\nafter = \"West\"\n"),
                (2, 9),
                "gateway group 'overseas' does not exist",
                "the names in [[gateway_group]] are 'West' and 'East'",
            ),
            (
                format!("[trunk]\ngroup = \"West\"\n{group}gateways = [\n  \"a\"]\n"),
                (6, 3),
                "gateway 'a' does not exist",
                "there is no [[gateway]] table: add one with name = \"a\"",
            ),
            (
                format!("{group}\n{group}[trunk]\ngroup = \"West\"\n"),
                (5, 8),
                "there are two tables [[gateway_group]] with the name 'West': lines 2 and 5",
                "give one of them another name, or remove it",
            ),
            (
                format!("{group}[[gateway_group]]\ngateways = []\n"),
                (3, 1),
                "[[gateway_group]] has no name",
                "write name = and a name of letters, digits",
            ),
            (
                "[[gateway]]\nname = \"two words\"\n".into(),
                (2, 8),
                "gateway[0].name is \"two words\", which is not a name",
                "letters, digits, -, _ and .",
            ),
            ("[[gateway]]\nname = 7\n".into(), (2, 8), "gateway[0].name must be text, not a whole number", "letters"),
            ("[trunk]\ngroup = [\"West\"]\n".into(), (2, 9), "trunk.group must be text, not a list", "write a name"),
            (
                format!("[trunk]\ngroup = \"West\"\n{group}after = \"\"\ngateways = \"a\"\n"),
                (6, 12),
                "gateway_group[0].gateways must be a list, not text",
                "each item is the name of a `[[gateway]]`",
            ),
            ("[gateway_group]\n".into(), (1, 2), "gateway_group is not a list of tables", "write [[gateway_group]]"),
            ("gateway = 1\n".into(), (1, 1), "gateway is not a list of tables", "write [[gateway]]"),
            (
                "gateway = [1]\n".into(),
                (1, 12),
                "gateway[0] must be a table, not a whole number",
                "write each gateway as a [[gateway]] table",
            ),
            ("[[gatewy]]\n".into(), (1, 3), "there is no table [[gatewy]]", "write [[gateway]]"),
            ("[[trunk]]\n".into(), (1, 3), "trunk is not a table here", "write [trunk]"),
            (
                "[[gateway]]\nname = \"a\"\nafter = \"b\"\n".into(),
                (3, 1),
                "there is no key after in [[gateway]]",
                "after belongs in [[gateway_group]]",
            ),
            ("[trunk]\ncolour = 1\naddress = \"b\"\n".into(), (3, 1), "no key address", "belongs in [[gateway]]"),
        ] {
            let (_, report) = read(&text);
            let fault = report.faults().iter().find(|fault| fault.message.contains(message));
            let fault = fault.unwrap_or_else(|| panic!("{text}\n{report}"));
            assert_eq!((fault.severity, report.position(fault)), (Severity::Error, Some(place)), "{text}\n{report}");
            assert!(fault.cure.contains(cure), "{text}\n{report}");
            let more = usize::from(text.contains("colour"));
            assert_eq!(report.faults().len(), 1 + more, "one mistake is reported once: {text}\n{report}");
        }
    }

    /// References to a list with unreadable names may be right, so they are not checked.
    #[test]
    fn a_fault_of_a_list_is_none_of_what_refers_to_it() {
        for list in [
            "[gateway_group]\nname = \"West\"",
            "[[gateway_group]]\nnam = \"West\"",
            "[[gateway_group]]\nname = \"We st\"",
            "[[gateway_group]]\nname = 1",
            "[[gateway_group]]",
        ] {
            let (_, report) = read(&format!("{list}\n[trunk]\ngroup = \"West\""));
            assert!(report.errors() > 0 && !report.to_string().contains("does not exist"), "{list}\n{report}");
        }
        let (_, report) = read("gateway_group = [1]\ntrunk.group = \"West\"");
        assert!(!report.to_string().contains("does not exist"), "{report}");
    }

    #[test]
    fn a_name_that_nothing_refers_to_is_doubtful() {
        let (_, report) = read(&RIGHT.replace("\"a.1\", \"a-2_b\"", "\"a.1\"").replace("group = \"West\"", ""));
        let said: Vec<_> =
            report.faults().iter().map(|f| (f.severity, report.position(f), &*f.message, &*f.cure)).collect();
        let cure = "name it in after of [[gateway_group]] or group of [trunk], or remove its table";
        assert_eq!(
            said,
            [
                (
                    Severity::Warning,
                    Some((5, 8)),
                    "gateway 'a-2_b' is used nowhere",
                    "name it in gateways of [[gateway_group]], or remove its table"
                ),
                (Severity::Warning, Some((7, 8)), "gateway group 'West' is used nowhere", cure),
            ]
        );
    }
}
