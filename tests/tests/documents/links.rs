//! Links between documents.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::root;

/// Returns all documents: those of the root, of `docs` and of its folders.
pub(super) fn documents() -> Vec<PathBuf> {
    let mut folders = vec![root(), root().join("docs")];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the project can be read") {
            let path = entry.expect("and its entries").path();
            if path.is_dir() && folder.ends_with("docs") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// Returns lines of a document without its code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// Returns anchors of the headings of a document, as GitHub writes them.
fn anchors(text: &str) -> BTreeSet<String> {
    let headings = prose(text).filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#').trim());
    headings
        .map(|heading| {
            let kept = heading.to_lowercase().replace(' ', "-");
            kept.chars().filter(|c| c.is_alphanumeric() || *c == '-' || *c == '_').collect()
        })
        .collect()
}

/// Returns the targets of the links in a line: `[text](target)`.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.split("](").skip(1).filter_map(|rest| rest.split(')').next())
}

#[test]
fn each_link_of_a_document_leads_to_a_file_and_a_heading() {
    let mut seen = 0;
    for document in documents() {
        let text = fs::read_to_string(&document).expect("it is text");
        for target in prose(&text).flat_map(targets).filter(|target| !target.contains("://")) {
            seen += 1;
            let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
            let beside = document.parent().map_or_else(PathBuf::new, Path::to_owned);
            let file = if file.is_empty() { document.clone() } else { beside.join(file) };
            let from = document.display();
            assert!(file.exists(), "{from}: {target} leads to no file");
            if let Some(anchor) = anchor {
                let text = fs::read_to_string(&file).expect("it is text");
                assert!(anchors(&text).contains(anchor), "{from}: {target} leads to no heading");
            }
        }
    }
    assert!(seen > 80, "{seen}");
}

/// Each document of `docs` is in the list by task, and each decision in the list of decisions.
#[test]
fn each_document_is_in_a_list() {
    let lists = [root().join("docs"), root().join("docs/decisions")];
    for folder in lists {
        let list = fs::read_to_string(folder.join("README.md")).expect("a list");
        let linked: BTreeSet<&str> =
            list.lines().flat_map(targets).filter_map(|target| target.split('#').next()).collect();
        for document in documents().iter().filter(|document| document.parent() == Some(&folder)) {
            let name = document.file_name().and_then(|name| name.to_str()).expect("a name");
            assert!(name == "README.md" || linked.contains(name), "{} does not name {name}", folder.display());
        }
    }
}
