//! Invariants for arbitrary bytes, as a function that panics on a violation.

use crate::field::{AddressField, Facts, FlagField, NumberField, TextField};
use crate::{Columns, Condition, FileError, LookupKind, Rule, Rules, Set, SetNames, Sets};
use std::net::IpAddr;
use std::ops::ControlFlow;

/// Compiles each line as a condition and checks that a fault lies within the line. The compiled conditions form a list
/// of rules; walks and explanations must be equal with and without the index. The bytes are also read as the file of a
/// set.
///
/// # Panics
/// An invariant does not hold.
pub fn fuzz_compile(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (names, sets) = sets(&text);
    let mut rules = Vec::new();
    for line in text.lines() {
        match Condition::compile(line, &names) {
            Ok(condition) => rules.push(Rule { name: line.into(), condition, action: () }),
            Err(fault) => {
                assert!(line.get(fault.span.clone()).is_some(), "{fault} is not within {line:?}");
                assert!(!fault.message.is_empty() && !fault.cure.is_empty());
                assert_eq!(fault.shown(line).split('\n').count(), 3, "{line:?}");
            }
        }
    }
    // A short list has no index, so the rules are repeated.
    let again: Vec<&str> = rules.iter().map(|rule| &*rule.name).collect();
    let again = again.repeat(if rules.len() < 100 { 9 } else { 1 });
    let compiled = |line: &&str| Rule {
        name: (*line).into(),
        condition: Condition::compile(line, &names).expect("what compiled once compiles again"),
        action: (),
    };
    let rules = Rules::new(again.iter().map(compiled));
    for facts in [Request { text: data, has_all: true }, Request { text: data, has_all: false }] {
        let (mut indexed, mut plain) = (Vec::new(), Vec::new());
        let all: ControlFlow<()> = rules.walk(&facts, &sets, |place, _| {
            indexed.push(place);
            ControlFlow::Continue(())
        });
        let each: ControlFlow<()> = rules.walk_each(&facts, &sets, |place, _| {
            plain.push(place);
            ControlFlow::Continue(())
        });
        assert_eq!((all, &indexed), (each, &plain));
        let explanation = rules.explain(&facts, &sets);
        for verdict in &explanation.verdicts {
            let decider = Condition::compile(verdict.decider, &names).expect("a part is a condition by itself");
            assert_eq!(decider.holds(&facts, &sets), verdict.holds, "{verdict}");
        }
        let matching = explanation.verdicts.iter().enumerate().filter(|(_, verdict)| verdict.matches);
        assert_eq!(matching.map(|(place, _)| place).collect::<Vec<_>>(), plain);
        assert_eq!(explanation.to_string().lines().count(), rules.len());
    }
}

/// A request whose values are slices of the bytes.
struct Request<'a> {
    text: &'a [u8],
    has_all: bool,
}

impl Facts for Request<'_> {
    fn text(&self, field: TextField) -> Option<&[u8]> {
        match field {
            TextField::Method => Some(b"INVITE"),
            TextField::Number => Some(b"4930123456"),
            TextField::RequestDomain => Some(b"Example.com"),
            _ => self.has_all.then_some(&self.text[..self.text.len().min(field as usize)]),
        }
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.has_all.then(|| &self.text[self.text.len().saturating_sub(name.len())..])
    }

    fn number(&self, field: NumberField) -> Option<u64> {
        (self.has_all || field == NumberField::Size).then_some(self.text.len() as u64)
    }

    fn address(&self, _: AddressField) -> Option<IpAddr> {
        self.has_all.then(|| IpAddr::from([192, 0, 2, self.text.first().copied().unwrap_or(7)]))
    }

    fn flag(&self, field: FlagField) -> bool {
        self.has_all && field == FlagField::Authenticated
    }
}

/// Returns the sets of each kind from the text as a file; empty if it cannot be read.
fn sets(text: &str) -> (SetNames, Sets) {
    let kinds = [("users", LookupKind::Texts), ("prefixes", LookupKind::Prefixes), ("networks", LookupKind::Networks)];
    let mut names = SetNames::default();
    let ids = kinds.map(|(name, kind)| (names.add(name, kind).expect("a name"), kind));
    let mut sets = Sets::empty(&names);
    let first = text.lines().next().unwrap_or_default();
    let (key, value) = first.split_once(',').map_or((first, None), |(key, value)| (key, Some(value)));
    for (id, kind) in ids {
        match Set::read_csv(kind, "file", text.as_bytes(), Columns { key, value }) {
            Ok(set) => {
                assert_eq!(set.list("").count(), set.len());
                for entry in set.list("").take(20) {
                    let address = entry.key.split('/').next().unwrap_or_default();
                    let found = set.find(if kind == LookupKind::Networks { address } else { &entry.key });
                    assert!(found.contains(&entry), "{entry:?} is not among {found:?}");
                }
                sets = sets.with(id, set.into()).expect("a set of its kind");
            }
            Err(FileError::Unread { error, .. }) => panic!("a text can be read: {error}"),
            Err(FileError::Wrong(fault)) => {
                assert!(fault.line > 0 && fault.line <= text.matches('\n').count() + 1, "{fault}")
            }
        }
    }
    (names, sets)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Words of the language and of files, in any order.
    const WORDS: [&str; 44] = [
        "method",
        "number",
        "size",
        "source.address",
        "authenticated",
        "header.x",
        "users",
        "prefixes",
        "networks",
        "==",
        "!=",
        "<",
        ">=",
        "in",
        "not",
        "and",
        "or",
        "exists",
        "matches",
        "starts_with",
        "ends_with",
        "(",
        ")",
        "[",
        "]",
        ",",
        "'INVITE'",
        "'49'",
        "\"4\"",
        "'^4[39]'",
        "'^+'",
        "4KiB",
        "70",
        "10.0.0.0/8",
        "::1",
        "true",
        "false",
        "'",
        "\"",
        "\n",
        "é",
        "\r\n",
        "\t",
        "x",
    ];

    /// Returns a line that often compiles.
    fn line() -> impl Strategy<Value = String> {
        let test = prop::sample::select(vec![
            "method == 'INVITE'",
            "number in prefixes",
            "prefixes[number] != 'x'",
            "size in [3, 70]",
            "authenticated",
            "source.address in [192.0.2.0/24]",
            "number matches '^4[39]'",
            "from.user == to.user",
            "exists header.ab",
            "users[user] in users",
        ]);
        let word = prop::sample::select(vec![" and ", " or ", " and not ", " or not "]);
        prop::collection::vec((test, word), 1..5).prop_map(|parts| {
            let text: String = parts.iter().flat_map(|(test, word)| [*test, *word]).collect();
            text.trim_end_matches(" not ")
                .trim_end_matches(" and")
                .trim_end_matches(" or")
                .trim_end_matches(" and ")
                .trim_end_matches(" or ")
                .to_owned()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn any_words_keep_the_invariants(words in prop::collection::vec(prop::sample::select(WORDS.to_vec()), 0..40)) {
            fuzz_compile(words.join(" ").as_bytes());
            fuzz_compile(words.concat().as_bytes());
        }

        #[test]
        fn any_conditions_keep_the_invariants(lines in prop::collection::vec(line(), 0..12)) {
            fuzz_compile(lines.join("\n").as_bytes());
        }

        #[test]
        fn any_bytes_keep_the_invariants(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
            fuzz_compile(&bytes);
        }
    }
}
