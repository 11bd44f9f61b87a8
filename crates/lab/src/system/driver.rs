//! `driver.toml`: how a system is started.

use super::marks;
use crate::experiment::fields::{Faults, Fields, Value, text};
use crate::experiment::reading::tables;
use strowger_config::{Report, syntax_faults};
use toml::de::{DeTable, DeValue};

/// Contents of a `driver.toml`.
#[derive(Clone, Debug, PartialEq)]
pub struct DriverFile {
    /// Name for people.
    pub title: String,
    /// Program that is looked for in `PATH`.
    pub program: String,
    /// Debian package of the program; empty if there is none.
    pub package: String,
    /// Words of the command that starts the system; empty if `measure` does everything.
    pub start: Vec<String>,
    /// Words of a command that makes the load of a trial itself, and prints the figures; empty if the laboratory makes calls.
    pub measure: Vec<String>,
    /// Words of the command that prints the version.
    pub version: Vec<String>,
    /// Words of the command that checks a configuration; empty if there is none.
    pub check: Vec<String>,
    /// Sign that the system is ready.
    pub ready: Ready,
    /// Servers that make up the system.
    pub instances: u32,
    /// True if the system runs already, at an address.
    pub external: bool,
    /// Scenarios, in the order of the file.
    pub scenarios: Vec<Scenario>,
}

/// Sign that a system is ready.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ready {
    /// The server has bound its UDP port.
    Udp,
    /// The server accepts TCP connections on its port.
    Tcp,
    /// The server answers OPTIONS by UDP with any response.
    Options,
    /// The server has printed this text.
    Prints(String),
}

/// Configuration that a system has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scenario {
    /// Name, as experiments use it.
    pub name: String,
    /// File of the configuration in the folder; `None` if the arguments in `start` are the whole configuration.
    pub configuration: Option<String>,
    /// Further files with marks, in the same folder.
    pub files: Vec<String>,
    /// Words in place of `@WORDS@`.
    pub words: Vec<String>,
    /// Commands that run to their end before the start, such as one that creates tables.
    pub first: Vec<Vec<String>>,
    /// Backends that it needs, such as `mariadb`.
    pub needs: Vec<String>,
    /// Rows of accounting that it writes.
    pub rows: Option<Rows>,
    /// Command that counts the entries of its own cache.
    pub entries: Option<Entries>,
}

/// Command that counts the entries of a cache within a system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entries {
    /// Words of the command.
    pub command: Vec<String>,
    /// Text of the output before the number.
    pub behind: String,
}

/// Name of the file.
pub(super) const FILE: &str = "driver.toml";

/// Rows of accounting that a system writes for each call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rows {
    /// Table of the database.
    pub table: String,
    /// Rows of each call.
    pub per_call: u32,
}

/// Keys of the file.
const KEYS: [&str; 10] =
    ["title", "program", "package", "start", "measure", "version", "check", "ready", "instances", "external"];

/// Keys of a scenario.
const SCENARIO_KEYS: [&str; 8] = ["name", "configuration", "files", "words", "first", "needs", "rows", "entries"];

impl DriverFile {
    /// Reads a `driver.toml`. `files`: name and text of each other file in its folder.
    ///
    /// # Errors
    /// The report of everything that is wrong.
    pub fn read(file: &str, written: &str, files: &[(String, String)]) -> Result<Self, Report> {
        let (document, errors) = DeTable::parse_recoverable(written);
        if !errors.is_empty() {
            return Err(Report::new(file, written, syntax_faults(&errors, written)));
        }
        let mut faults = Faults::default();
        let driver = driver(document.get_ref(), files, &mut faults);
        if faults.found.is_empty() { Ok(driver) } else { Err(Report::new(file, written, faults.found)) }
    }
}

fn driver(table: &DeTable<'_>, files: &[(String, String)], faults: &mut Faults) -> DriverFile {
    let top = Fields { name: "the file", table, start: 0 };
    top.know(&[&KEYS[..], &["scenario"]].concat(), faults);
    let external = top.flag("external", faults).unwrap_or(false);
    let start = words(&top, "start", faults);
    let measure = words(&top, "measure", faults);
    if !external && start.is_empty() && measure.is_empty() {
        top.missing("start", "write start = [\"@PROGRAM@\", \"-f\", \"@CONFIG@\"]", faults);
    }
    let mut driver = DriverFile {
        title: top.required_text("title", "\"My server\"", faults),
        program: match external {
            true => String::new(),
            false => top.required_text("program", "\"my-server\"", faults),
        },
        package: top.text("package", faults).unwrap_or_default(),
        start,
        measure,
        version: words(&top, "version", faults),
        check: words(&top, "check", faults),
        ready: ready(&top, faults),
        instances: top.count("instances", 1, faults).unwrap_or(1),
        external,
        scenarios: Vec::new(),
    };
    for (fields, _) in tables(&top, "scenario", "[[scenario]]", faults) {
        let scenario = scenario(&fields, &driver, files, faults);
        driver.scenarios.push(scenario);
    }
    if external {
        for key in ["start", "measure", "program", "package", "version", "check", "ready", "instances", "scenario"] {
            if let Some(value) = top.value(key) {
                faults.push(value.span(), format!("a server that runs already has no {key}"), "remove it");
            }
        }
    } else if driver.scenarios.is_empty() && top.value("scenario").is_none() {
        let cure = "write [[scenario]] with name = \"relay\" and configuration = \"relay.cfg\"";
        top.missing("[[scenario]]", cure, faults);
    }
    driver
}

/// Reads the words of a command.
fn words(fields: &Fields<'_>, key: &str, faults: &mut Faults) -> Vec<String> {
    fields.items(key).into_iter().filter_map(|item| word(fields, key, item, faults)).collect()
}

fn word(fields: &Fields<'_>, key: &str, item: Value<'_>, faults: &mut Faults) -> Option<String> {
    let Some(word) = text(item) else {
        let message = format!("{key} of {} is a list of words", fields.name);
        faults.push(item.span(), message, format!("write {key} = [\"word\", \"word\"]"));
        return None;
    };
    if let Some(mark) = marks::unknown(&word) {
        faults.push(item.span(), format!("nothing fills in the mark @{mark}@"), marks::cure(&mark));
    }
    Some(word)
}

fn ready(top: &Fields<'_>, faults: &mut Faults) -> Ready {
    let Some(value) = top.value("ready") else { return Ready::Udp };
    let signs = ["udp", "tcp", "options"];
    match value.get_ref() {
        DeValue::Table(table) => {
            let fields = Fields { name: "ready", table, start: value.span().start };
            fields.know(&["prints"], faults);
            Ready::Prints(fields.required_text("prints", "\"ready\"", faults))
        }
        _ => match text(value).as_deref() {
            Some("udp") => Ready::Udp,
            Some("tcp") => Ready::Tcp,
            Some("options") => Ready::Options,
            other => {
                faults.wrong_word(value, other.unwrap_or_default(), "sign", &signs);
                Ready::Udp
            }
        },
    }
}

fn scenario(fields: &Fields<'_>, driver: &DriverFile, files: &[(String, String)], faults: &mut Faults) -> Scenario {
    fields.know(&SCENARIO_KEYS, faults);
    let name = fields.required_text("name", "\"relay\"", faults);
    if let Some(value) = fields.value("name").filter(|_| driver.scenarios.iter().any(|other| other.name == name)) {
        faults.push(value.span(), format!("there are two scenarios {name}"), "give each a name of its own");
    }
    let configuration = fields.text("configuration", faults);
    let commands_of_driver = || driver.start.iter().chain(&driver.measure);
    let has_mark = |mark: &str| commands_of_driver().any(|word| word.contains(mark));
    if configuration.is_none() && fields.value("configuration").is_none() && has_mark("@CONFIG@") {
        let cure = "write configuration = \"relay.cfg\", or start without @CONFIG@";
        fields.missing("configuration", cure, faults);
    }
    let others = words(fields, "files", faults);
    for key in ["configuration", "files"] {
        for item in fields.items(key) {
            let Some(file) = text(item) else { continue };
            check_file(item, &file, files, faults);
        }
    }
    if let Some(value) = fields.value("words").filter(|_| !commands_of_driver().any(|word| word == "@WORDS@")) {
        let cure = "put \"@WORDS@\" into start, as a word of its own";
        faults.push(value.span(), "start has no place for words", cure);
    }
    let needs = words(fields, "needs", faults);
    for item in fields.items("needs") {
        let name = text(item).unwrap_or_default();
        if !crate::backend::Beside::NAMES.contains(&name.as_str()) {
            faults.wrong_word(item, &name, "backend", crate::backend::Beside::NAMES);
        }
    }
    Scenario {
        name,
        configuration,
        files: others,
        words: words(fields, "words", faults),
        first: commands(fields, faults),
        needs,
        rows: rows(fields, faults),
        entries: entries(fields, faults),
    }
}

/// Checks that the file is in the folder, and that each of its marks has a value.
fn check_file(item: Value<'_>, file: &str, files: &[(String, String)], faults: &mut Faults) {
    let Some((_, content)) = files.iter().find(|(name, _)| name == file) else {
        let message = format!("the folder has no file {file}");
        faults.push(item.span(), message, format!("write {file} beside {FILE}, or name one that is there"));
        return;
    };
    for (at, line) in content.lines().enumerate() {
        if let Some(mark) = marks::unknown(line) {
            let message = format!("nothing fills in the mark @{mark}@ of {file}:{}", at + 1);
            faults.push(item.span(), message, marks::cure(&mark));
        }
    }
}

/// Reads the commands before the start: a list of words, or a list of such lists.
fn commands(fields: &Fields<'_>, faults: &mut Faults) -> Vec<Vec<String>> {
    let items = fields.items("first");
    if items.is_empty() || items.iter().any(|item| text(item).is_some()) {
        let one = words(fields, "first", faults);
        return if one.is_empty() { Vec::new() } else { vec![one] };
    }
    let mut commands = Vec::new();
    for item in items {
        match item.get_ref() {
            DeValue::Array(list) => {
                commands.push(list.iter().filter_map(|item| word(fields, "first", item, faults)).collect());
            }
            _ => faults.push(item.span(), "first is a list of words", "write first = [\"@PROGRAM@\", \"word\"]"),
        }
    }
    commands
}

/// Reads `entries = { command = ["kamcmd", "htable.stats"], behind = "all: " }`.
fn entries(fields: &Fields<'_>, faults: &mut Faults) -> Option<Entries> {
    let table = fields.table("entries", faults)?;
    let start = fields.value("entries").map_or(fields.start, |value| value.span().start);
    let fields = Fields { name: "entries", table, start };
    fields.know(&["command", "behind"], faults);
    let command = words(&fields, "command", faults);
    if command.is_empty() {
        fields.missing("command", "write command = [\"@PROGRAM@\", \"caches\", \"list\", \"--json\"]", faults);
    }
    Some(Entries { command, behind: fields.required_text("behind", "\"all: \"", faults) })
}

/// Reads `rows = { table = "acc", per_call = 2 }`.
fn rows(fields: &Fields<'_>, faults: &mut Faults) -> Option<Rows> {
    let table = fields.table("rows", faults)?;
    let start = fields.value("rows").map_or(fields.start, |value| value.span().start);
    let fields = Fields { name: "rows", table, start };
    fields.know(&["table", "per_call"], faults);
    Some(Rows {
        table: fields.required_text("table", "\"acc\"", faults),
        per_call: fields.count("per_call", 1, faults).unwrap_or(1),
    })
}
