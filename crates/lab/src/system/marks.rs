//! Marks of files and words: `@NAME@`.

use strowger_config::nearest;

/// Marks that a start fills in.
pub(super) const OWN: [&str; 8] = ["PROGRAM", "CONFIG", "FOLDER", "PORT", "WORKERS", "WORDS", "DOMAIN", "NODE"];

/// Marks of answering sides, and those of backends.
const OTHERS: [&str; 7] = ["ANSWER_1", "ANSWER_2", "DATABASE", "CACHE", "CACHE_HOST", "CACHE_PORT", "CACHE_SERVERS"];

fn all() -> impl Iterator<Item = &'static str> {
    OWN.into_iter().chain(OTHERS)
}

/// Names of the marks of a text, in their order.
pub(crate) fn names(text: &str) -> Vec<&str> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some((_, behind)) = rest.split_once('@') {
        rest = match behind.split_once('@').filter(|(name, _)| is_name(name)) {
            Some((name, behind)) => {
                found.push(name);
                behind
            }
            None => behind,
        };
    }
    found
}

/// Tells whether the word between two `@` is the name of a mark.
pub(crate) fn is_name(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|b| b.is_ascii_uppercase())
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// First mark of a text that nothing fills in.
pub(super) fn unknown(text: &str) -> Option<String> {
    names(text).into_iter().find(|name| !all().any(|known| known == *name)).map(str::to_owned)
}

/// Cure for an unknown mark.
pub(super) fn cure(name: &str) -> String {
    match nearest(name, all()) {
        Some(near) => format!("write @{near}@"),
        None => format!("the marks are @{}@", all().collect::<Vec<_>>().join("@, @")),
    }
}
