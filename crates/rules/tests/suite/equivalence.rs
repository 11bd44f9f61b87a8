//! Tests that the index changes no result: for any rules and facts, a walk visits the same rules as a walk without the
//! index.

use crate::request::{Request, sets};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};
use std::net::IpAddr;
use std::ops::ControlFlow;
use strowger_rules::{Condition, FlagField, NumberField, Rule, Rules, TextField};

/// Texts of values and of constants, shared so that they are often equal.
const TEXTS: [&str; 12] =
    ["", "a", "A", "alice", "Alice", "+49", "+4930", "+493012", "00", "example.com", "EXAMPLE.com", "gold"];
const ADDRESSES: [&str; 6] = ["192.0.2.7", "192.0.2.8", "10.1.2.3", "2001:db8::1", "::1", "::ffff:10.1.2.3"];
const NETWORKS: [&str; 6] = ["192.0.2.0/24", "192.0.2.7", "10.0.0.0/8", "::/0", "2001:db8::/32", "0.0.0.0/0"];
const PATTERNS: [&str; 11] =
    ["^a", "^(\\+|00)49", "30", "^$", "^[a-c]", "^(gold|alice)$", "(?i)^alice", "l", "e$", "[0-9]{4}", ".*"];
const FIELDS: [TextField; 6] = [
    TextField::Method,
    TextField::FromUser,
    TextField::RequestDomain,
    TextField::Number,
    TextField::User,
    TextField::Transport,
];
const NUMBERS: [NumberField; 2] = [NumberField::Size, NumberField::SourcePort];
const FLAGS: [FlagField; 3] = [FlagField::InDialog, FlagField::Authenticated, FlagField::FromLocal];

fn test() -> impl Strategy<Value = String> {
    let value = prop_oneof![
        6 => select(FIELDS.map(|field| field.name().to_owned()).to_vec()),
        1 => select(vec!["carriers[number]".to_owned(), "plans[user]".into(), "networks[source.address]".into(), "header.x".into()]),
    ];
    let text = select(TEXTS.to_vec());
    let texts = subsequence(TEXTS.to_vec(), 1..4);
    prop_oneof![
        6 => (value.clone(), select(vec!["==", "!=", "starts_with", "ends_with"]), text)
            .prop_map(|(value, sign, text)| format!("{value} {sign} '{text}'")),
        3 => (value.clone(), select(vec!["in", "not in"]), texts)
            .prop_map(|(value, sign, texts)| format!("{value} {sign} ['{}']", texts.join("', '"))),
        2 => (value.clone(), select(vec!["in", "not in"]), select(vec!["vips", "plans", "domains", "carriers", "nothing"]))
            .prop_map(|(value, sign, set)| format!("{value} {sign} {set}")),
        2 => (value.clone(), select(PATTERNS.to_vec())).prop_map(|(value, pattern)| format!("{value} matches '{pattern}'")),
        1 => (value.clone(), value.clone()).prop_map(|(one, other)| format!("{one} == {other}")),
        1 => value.prop_map(|value| format!("exists {value}")),
        2 => (select(NUMBERS.to_vec()), select(vec!["==", "!=", "<", ">="]), 0..4u64)
            .prop_map(|(field, sign, number)| format!("{} {sign} {number}", field.name())),
        1 => (select(NUMBERS.to_vec()), 0..4u64).prop_map(|(field, number)| format!("{} in [1, {number}]", field.name())),
        2 => subsequence(NETWORKS.to_vec(), 1..3).prop_map(|networks| format!("source.address in [{}]", networks.join(", "))),
        1 => select(vec!["source.address in networks".to_owned(), "source.address != 192.0.2.7".into(), "true".into(), "false".into()]),
        3 => select(FLAGS.map(|flag| flag.name().to_owned()).to_vec()),
    ]
}

fn condition() -> impl Strategy<Value = String> {
    test().prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            4 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join(" and "))),
            2 => prop::collection::vec(inner.clone(), 2..4).prop_map(|parts| format!("({})", parts.join(" or "))),
            1 => inner.prop_map(|part| format!("not {part}")),
        ]
    })
}

fn request() -> impl Strategy<Value = Request> {
    let text = prop_oneof![4 => select(TEXTS.to_vec()), 1 => Just("other")];
    let texts =
        prop::collection::btree_map(select(FIELDS.to_vec()), text.prop_map(|text| text.as_bytes().to_vec()), 0..8);
    let numbers = prop::collection::btree_map(select(NUMBERS.to_vec()), 0..4u64, 0..3);
    let address = prop::option::of(select(ADDRESSES.to_vec()));
    let header = prop::option::of(select(TEXTS.to_vec()));
    (texts, numbers, address, header, subsequence(FLAGS.to_vec(), 0..=3)).prop_map(
        |(texts, numbers, address, header, flags)| Request {
            texts,
            headers: header.iter().map(|text| ("x".to_owned(), text.as_bytes().to_vec())).collect(),
            numbers,
            address: address.map(|text| text.parse::<IpAddr>().expect("an address")),
            flags,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_index_changes_nothing(
        conditions in prop::collection::vec(condition(), 0..200),
        requests in prop::collection::vec(request(), 1..12),
        stop in select(vec![1, 2, 7, 40, usize::MAX, usize::MAX]),
        // A view of the index has 1,024 rules.
        times in select(vec![1, 1, 1, 1, 1, 1, 1, 15]),
    ) {
        let conditions: Vec<&String> = std::iter::repeat_n(&conditions, times).flatten().collect();
        let (names, sets) = sets();
        let rules = Rules::new(conditions.iter().map(|text| Rule {
            name: text.as_str().into(),
            condition: Condition::compile(text, &names).unwrap_or_else(|fault| panic!("{}", fault.shown(text))),
            action: (),
        }));
        for request in &requests {
            let (mut indexed, mut plain) = (Vec::new(), Vec::new());
            let visited = |places: &mut Vec<usize>, place| {
                places.push(place);
                if places.len() == stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let one = rules.walk(request, &sets, |place, _| visited(&mut indexed, place));
            let other = rules.walk_each(request, &sets, |place, _| visited(&mut plain, place));
            prop_assert_eq!(one, other);
            prop_assert_eq!(&indexed, &plain, "{:?}", request);
            if times == 1 {
                for verdict in rules.explain(request, &sets).verdicts {
                    let decider = Condition::compile(verdict.decider, &names).expect("a part is a condition by itself");
                    prop_assert_eq!(decider.holds(request, &sets), verdict.holds, "{}", verdict);
                }
                let matching = rules.explain(request, &sets).verdicts.into_iter().map(|verdict| verdict.matches);
                let matching: Vec<usize> = matching.enumerate().filter(|(_, matches)| *matches).map(|(n, _)| n).collect();
                prop_assert!(matching.starts_with(&plain));
            }
        }
    }
}

#[test]
fn a_list_without_an_index_is_walked_too() {
    let (names, sets) = sets();
    let rule =
        |text: &str| Rule { name: text.into(), condition: Condition::compile(text, &names).expect(text), action: () };
    let rules = Rules::new(["true", "in_dialog", "not in_dialog"].map(rule));
    let mut places = Vec::new();
    let _ = rules.walk(&Request::default(), &sets, |place, _| {
        places.push(place);
        ControlFlow::<()>::Continue(())
    });
    assert_eq!((places, rules.questions()), (vec![0, 2], 0));
    assert!(Rules::<()>::new([]).first(&Request::default(), &sets).is_none());
}
