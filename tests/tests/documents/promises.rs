//! Promises of SECURITY.md, and their tests.

use std::collections::BTreeSet;
use std::fs;

use super::{root, tests};

/// `tests/promises.toml` has the promises of SECURITY.md sentence by sentence. Each sentence names tests that exist; each group of the file
/// is a promise of SECURITY.md, and each promise there a group of the file.
#[test]
fn each_sentence_of_the_security_policy_has_its_test() {
    let tests = tests();
    let text = fs::read_to_string(root().join("tests/promises.toml")).expect("it is there");
    let promises: toml::Table = text.parse().expect("it is TOML");
    let mut groups = BTreeSet::new();
    let mut sentences = BTreeSet::new();
    for group in promises["group"].as_array().expect("groups") {
        let name = group["name"].as_str().expect("a name");
        assert!(groups.insert(name.to_owned()), "{name} is there twice");
        for promise in group["promise"].as_array().expect("promises") {
            let sentence = promise["text"].as_str().expect("a text");
            assert!(sentence.ends_with('.'), "no sentence: {sentence}");
            assert!(sentences.insert(sentence), "it is there twice: {sentence}");
            let named = promise["tests"].as_array().expect("tests");
            assert!(!named.is_empty(), "no test: {sentence}");
            for name in named {
                let name = name.as_str().expect("a name");
                assert!(tests.contains(name), "there is no test {name}, named for: {sentence}");
            }
        }
    }
    assert!(sentences.len() >= 115, "{}", sentences.len());

    let policy = fs::read_to_string(root().join("SECURITY.md")).expect("it is there");
    let section = policy.split("\n## Promises\n").nth(1).and_then(|rest| rest.split("\n## ").next()).expect("promises");
    let mut promised = BTreeSet::new();
    for line in section.lines().filter(|line| line.starts_with("* ")) {
        let name = line.strip_prefix("* **").and_then(|rest| rest.split_once("**: ")).map(|(name, _)| name);
        promised.insert(name.unwrap_or_else(|| panic!("no promise with a name: {line}")).to_owned());
    }
    assert_eq!(promised, groups);
}
