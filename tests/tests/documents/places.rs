//! Places of behaviours: the table "Where is ...?" of ARCHITECTURE.md.

use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// The files of "Where is ...?" are there, and hold what is named behind them.
#[test]
fn each_behaviour_is_where_the_architecture_says() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let table =
        text.split("\n## Where is ...?\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("the table");
    let mut rows = 0;
    for row in table.lines().filter(|line| line.starts_with("| ")).skip(1) {
        let places = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        rows += 1;
        let mut file: Option<PathBuf> = None;
        for word in places.split('`').skip(1).step_by(2) {
            if !word.contains(['/', '.']) {
                let file = file.as_ref().unwrap_or_else(|| panic!("no file before {word}: {row}"));
                let text = fs::read_to_string(file).expect("it is text");
                let is_there = text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word);
                assert!(is_there, "{} has no {word}", file.display());
                continue;
            }
            // One of many.
            let path = word.split(['*', '<']).next().unwrap_or_default();
            let beside = file.as_ref().and_then(|file| file.parent()).map(Path::to_owned);
            let found = [Some(root()), Some(root().join("crates")), beside].into_iter().flatten();
            let found = found.map(|folder| folder.join(path)).find(|path| path.exists());
            file = Some(found.unwrap_or_else(|| panic!("there is no {word}: {row}")));
        }
        assert!(file.is_some(), "no file: {row}");
    }
    assert!(rows > 40, "{rows}");
}
