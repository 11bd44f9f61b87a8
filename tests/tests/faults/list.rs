//! The list of faults, `tests/faults.toml`.

use crate::build::{SIMULATION, Target};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Number of worlds of the simulation, one of which must find a fault.
pub(crate) const WORLDS: u64 = 3_000;

/// Number of first worlds, of which the list names none: they are tried within a second.
const FIRST_WORLDS: u64 = 20;

pub(crate) struct Fault {
    /// Number for `crate::planted::fault()`, from 1.
    pub(crate) number: u32,
    pub(crate) law: String,
    pub(crate) file: PathBuf,
    from: String,
    to: String,
    pub(crate) search: Search,
    /// World that finds it, unless one of the first does. It is tried before the others.
    pub(crate) seed: Option<u64>,
}

/// Search that finds a fault: the simulation, or the tests of a program with this part in their names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Search {
    pub(crate) target: Target,
    pub(crate) tests: Option<String>,
}

impl Search {
    pub(crate) fn simulation() -> Self {
        Self { target: Target { package: "sim".to_owned(), name: SIMULATION.to_owned() }, tests: None }
    }

    pub(crate) fn is_simulation(&self) -> bool {
        self.tests.is_none()
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
        seed: f.get("seed").map(|seed| seed.as_integer().and_then(|seed| seed.try_into().ok()).expect("a seed")),
    };
    let faults: Vec<Fault> = table["fault"].as_array().expect("a list of faults").iter().zip(1..).map(fault).collect();
    for Fault { law, search, seed, .. } in &faults {
        assert!(seed.is_none_or(|seed| search.is_simulation() && seed < WORLDS), "\"{law}\" has a seed of no world");
    }
    faults
}

/// Writes into the list which worlds have found these faults.
pub(crate) fn write_seeds(seeds: &BTreeMap<u32, u64>) {
    let path = root().join("tests/faults.toml");
    let text = fs::read_to_string(&path).expect("the list of faults is there");
    let (mut written, mut number) = (String::new(), 0);
    for line in text.split_inclusive('\n') {
        number += u32::from(line.starts_with("[[fault]]"));
        let seed = seeds.get(&number);
        if seed.is_none() || !line.starts_with("seed = ") {
            written.push_str(line);
        }
        if let Some(seed) = seed.filter(|seed| line.starts_with("to = ") && **seed >= FIRST_WORLDS) {
            written.push_str(&format!("seed = {seed}\n"));
        }
    }
    fs::write(&path, written).expect("the list of faults can be written");
}
