//! Places of behaviours: the tables "Where is ...?" of ARCHITECTURE.md and of the pages of crates and modules.

use std::fs;
use std::path::{Path, PathBuf};

use super::{links, root, sources};

/// Looks up the places in a cell: files, and words that must occur in the last file before them. A path begins at the
/// root, at `crates`, beside the last file, or at `beside`. Returns whether the cell names a file.
fn look_up(places: &str, beside: &Path) -> bool {
    let mut file: Option<PathBuf> = None;
    for word in places.split('`').skip(1).step_by(2) {
        if !word.contains(['/', '.']) {
            let file = file.as_ref().unwrap_or_else(|| panic!("no file before {word}: {places}"));
            let text = fs::read_to_string(file).expect("it is text");
            let is_there = text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|found| found == word);
            assert!(is_there, "{} has no {word}", file.display());
            continue;
        }
        // One of many.
        let path = word.split(['*', '<']).next().unwrap_or_default();
        let folder = file.as_ref().and_then(|file| file.parent()).unwrap_or(beside).to_owned();
        let found = [root(), root().join("crates"), folder, beside.to_owned()].map(|folder| folder.join(path));
        let found = found.into_iter().find(|path| path.exists());
        file = Some(found.unwrap_or_else(|| panic!("there is no {word}: {places}")));
    }
    file.is_some()
}

/// Returns the rows of the first table of a section, without its head.
fn rows(section: &str) -> impl Iterator<Item = &str> {
    section.lines().filter(|line| line.starts_with("| ")).skip(1)
}

/// Looks up the last cell of each row. Returns the number of rows.
fn look_up_rows(section: &str, beside: &Path) -> usize {
    let mut count = 0;
    for row in rows(section) {
        let places = row.trim_end_matches(" |").rsplit(" | ").next().unwrap_or_default();
        assert!(look_up(places, beside), "no file: {row}");
        count += 1;
    }
    count
}

fn section<'a>(text: &'a str, heading: &str) -> Option<&'a str> {
    let level = heading.split(' ').next().unwrap_or_default();
    let rest = text.split_once(&format!("\n{heading}\n"))?.1;
    Some(rest.split(&format!("\n{level} ")).next().unwrap_or_default())
}

/// The files of "Where is ...?" exist, and contain the words after them; so do those of the pages of crates and
/// modules.
#[test]
fn each_behaviour_is_where_the_architecture_says() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let nouns = look_up_rows(section(&text, "## Where is ...?").expect("the table"), &root());
    assert!(
        (36..=48).contains(&nouns),
        "about 40 nouns of the RFCs, not {nouns}: further ones are on the page of their crate"
    );
    let mut behaviours = nouns;
    for (path, text) in sources(&["crates"]) {
        let page: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("//!")).collect();
        let page: Vec<&str> = page.into_iter().map(|line| line.strip_prefix(' ').unwrap_or(line)).collect();
        let page = page.join("\n");
        if let Some(table) = section(&page, "# Where is ...?") {
            let count = look_up_rows(table, path.parent().expect("a folder"));
            assert!(count > 2, "{}: {count}", path.display());
            behaviours += count;
        }
    }
    assert!(behaviours >= 200, "{behaviours}");
}

/// Each of the twelve steps of an INVITE names its file.
#[test]
fn each_step_of_an_invite_names_its_file() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let steps = section(&text, "## The life of an INVITE").expect("the section");
    let mut count = 0;
    for step in steps.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit())) {
        count += 1;
        assert!(step.starts_with(&format!("{count}. ")), "{step}");
        assert!(look_up(step, &root()), "no file: {step}");
    }
    assert_eq!(count, 12);
}

/// Each crate has its row among the layers, and depends only on crates of the rows below.
#[test]
fn each_crate_has_its_layer() {
    let text = fs::read_to_string(root().join("ARCHITECTURE.md")).expect("it is there");
    let layers = section(&text, "## Layers").expect("the section");
    let layers: Vec<&str> = rows(layers).filter_map(|row| row.split('`').nth(1)).collect();
    let crates = fs::read_dir(root().join("crates")).expect("the crates").map(|entry| entry.expect("and its entries"));
    let mut count = 0;
    for folder in crates.filter(|entry| entry.path().join("Cargo.toml").exists()) {
        count += 1;
        let name = folder.file_name().to_string_lossy().into_owned();
        let layer = layers.iter().position(|layer| *layer == name).unwrap_or_else(|| panic!("{name} has no row"));
        let manifest = fs::read_to_string(folder.path().join("Cargo.toml")).expect("a manifest");
        let manifest: toml::Table = manifest.parse().expect("it is TOML");
        for used in manifest.get("dependencies").and_then(|all| all.as_table()).into_iter().flat_map(toml::Table::keys)
        {
            let Some(used) = used.strip_prefix("strowger-") else { continue };
            assert!(layers[layer + 1..].contains(&used), "{name} uses {used}, which is not below it");
        }
    }
    assert_eq!(count, layers.len());
}

/// Files of the project that a document names by their path exist.
#[test]
fn each_file_that_a_document_names_exists() {
    let mut seen = 0;
    // Paths in ARCHITECTURE.md may be relative to the previous file.
    for document in links::documents().iter().filter(|document| !document.ends_with("ARCHITECTURE.md")) {
        let text = fs::read_to_string(document).expect("it is text");
        for word in
            text.split('`').skip(1).step_by(2).filter(|word| word.contains('/') && !word.contains([' ', '<', '*']))
        {
            if ![".rs", ".toml", ".md"].iter().any(|end| word.ends_with(end)) || word.starts_with('/') {
                continue;
            }
            seen += 1;
            let is_there = [root(), root().join("crates")].iter().any(|folder| folder.join(word).exists());
            assert!(is_there, "{} names {word}, which does not exist", document.display());
        }
    }
    assert!(seen > 30, "{seen}");
}
