//! Marks of files and words: `@NAME@`.

use crate::Error;
use strowger_config::nearest;

/// Marks that a start fills in.
pub(super) const OWN: [&str; 12] = [
    "PROGRAM",
    "CONFIG",
    "FOLDER",
    "ADDRESS",
    "PORT",
    "WORKERS",
    "CAPACITY",
    "WORDS",
    "DOMAIN",
    "NODE",
    "CERTIFICATE",
    "KEY",
];

/// Marks of a measuring command, by trial: load, and warm-up and window in seconds.
pub(crate) const OF_TRIAL: [&str; 3] = ["LOAD", "WARM_UP", "WINDOW"];

/// Marks of answering sides and backends.
const OTHERS: [&str; 7] = ["ANSWER_1", "ANSWER_2", "DATABASE", "CACHE", "CACHE_HOST", "CACHE_PORT", "CACHE_SERVERS"];

fn all() -> impl Iterator<Item = &'static str> {
    OWN.into_iter().chain(OF_TRIAL).chain(OTHERS)
}

/// Returns the names of the marks in a text, in their order.
pub(super) fn names(text: &str) -> Vec<&str> {
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
fn is_name(name: &str) -> bool {
    let first = name.bytes().next();
    first.is_some_and(|b| b.is_ascii_uppercase())
        && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_')
}

/// Returns the first mark of a text for which no value exists.
pub(super) fn unknown(text: &str) -> Option<String> {
    names(text).into_iter().find(|name| !all().any(|known| known == *name)).map(str::to_owned)
}

/// Returns the cure for an unknown mark.
pub(super) fn cure(name: &str) -> String {
    match nearest(name, all()) {
        Some(near) => format!("write @{near}@"),
        None => format!("the marks are @{}@", all().collect::<Vec<_>>().join("@, @")),
    }
}

/// Replaces marks by their values. A mark within a value is not replaced.
///
/// # Errors
/// The text has a mark without a value.
pub fn fill(text: &str, values: &[(&str, String)]) -> Result<String, Error> {
    let mut filled = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('@') {
        filled.push_str(before);
        match behind.split_once('@').filter(|(name, _)| is_name(name)) {
            Some((name, behind)) => {
                let value = values.iter().find(|(known, _)| *known == name).ok_or_else(|| Error::Unexpected {
                    what: "a configuration".into(),
                    reason: format!("@{name}@ has no value"),
                })?;
                filled.push_str(&value.1);
                rest = behind;
            }
            None => {
                filled.push('@');
                rest = behind;
            }
        }
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_filled_and_other_signs_left() {
        let values = [("USER", "alice".to_owned()), ("DOMAIN", "@USER@".to_owned())];
        assert_eq!(
            fill("sip:@USER@@@DOMAIN@ a@b @no@", &values).expect("all have values"),
            "sip:alice@@USER@ a@b @no@"
        );
        let error = fill("x @PORT@", &values).expect_err("it has none").to_string();
        assert!(error.contains("@PORT@"), "{error}");
    }
}
