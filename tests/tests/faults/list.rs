//! The list of faults, `tests/faults.toml`.

use crate::build::Target;
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

pub(crate) struct Fault {
    /// Number for `crate::planted::fault()`, from 1.
    pub(crate) number: u32,
    pub(crate) law: String,
    pub(crate) file: PathBuf,
    from: String,
    to: String,
    pub(crate) search: Search,
}

/// Search that finds a fault: the simulation, or the tests of a program with this part in their names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Search {
    pub(crate) target: Target,
    pub(crate) tests: Option<String>,
}

impl Search {
    pub(crate) fn simulation() -> Self {
        Self { target: Target { package: "sim".to_owned(), name: "worlds".to_owned() }, tests: None }
    }

    /// Reads `test` of the list: a crate, perhaps with a program of its tests, and a part of the names of tests. If
    /// this part has `::tests::`, it means unit tests of the crate, otherwise tests of its suite.
    fn tests(test: &str) -> Self {
        let (package, tests) = test.split_once(' ').expect("a crate and a part of names of tests");
        let is_unit = format!("::{tests}").contains("::tests::");
        let (package, suite) = package.split_once('/').unwrap_or((package, "suite"));
        let name = if is_unit { "lib" } else { suite }.to_owned();
        Self { target: Target { package: package.to_owned(), name }, tests: Some(tests.to_owned()) }
    }
}

impl Fault {
    /// Returns the text of the file with the fault in it.
    pub(crate) fn planted(&self, text: &str) -> String {
        let Self { file, from, to, law, .. } = self;
        let file = file.display();
        assert_eq!(text.matches(from).count(), 1, "the fault of \"{law}\" has one place in {file}:\n{from}");
        text.replace(from, to)
    }
}

pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

pub(crate) fn faults() -> Vec<Fault> {
    let text = fs::read_to_string(root().join("tests/faults.toml")).expect("the list of faults is there");
    let table: Table = text.parse().unwrap_or_else(|error| panic!("tests/faults.toml: {error}"));
    let word = |fault: &Value, key: &str| fault[key].as_str().expect("a text").to_owned();
    let fault = |(f, number)| Fault {
        number,
        law: word(f, "law"),
        file: word(f, "file").into(),
        from: word(f, "from"),
        to: word(f, "to"),
        search: f.get("test").map_or_else(Search::simulation, |test| Search::tests(test.as_str().expect("a text"))),
    };
    table["fault"].as_array().expect("a list of faults").iter().zip(1..).map(fault).collect()
}
