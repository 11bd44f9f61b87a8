//! The facts of a made-up request, and the sets for its conditions.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use strowger_rules::{AddressField, Facts, FlagField, LookupKind, NumberField, Set, SetNames, Sets, TextField};

/// A request with these values alone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Request {
    pub(crate) texts: BTreeMap<TextField, Vec<u8>>,
    pub(crate) headers: BTreeMap<String, Vec<u8>>,
    pub(crate) numbers: BTreeMap<NumberField, u64>,
    pub(crate) address: Option<IpAddr>,
    pub(crate) flags: Vec<FlagField>,
}

impl Facts for Request {
    fn text(&self, field: TextField) -> Option<&[u8]> {
        self.texts.get(&field).map(Vec::as_slice)
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name).map(Vec::as_slice)
    }

    fn number(&self, field: NumberField) -> Option<u64> {
        self.numbers.get(&field).copied()
    }

    fn address(&self, field: AddressField) -> Option<IpAddr> {
        match field {
            AddressField::SourceAddress => self.address,
        }
    }

    fn flag(&self, field: FlagField) -> bool {
        self.flags.contains(&field)
    }
}

/// Returns an INVITE from Alice to a number in Berlin.
pub(crate) fn invite() -> Request {
    let texts: [(TextField, &[u8]); 9] = [
        (TextField::Method, b"INVITE"),
        (TextField::Transport, b"udp"),
        (TextField::SourceGroup, b"phones"),
        (TextField::FromUser, b"alice"),
        (TextField::FromDomain, b"example.com"),
        (TextField::ToUser, b"alice"),
        (TextField::RequestDomain, b"Example.COM"),
        (TextField::User, b"Alice"),
        (TextField::Number, b"+4930123456"),
    ];
    Request {
        texts: texts.into_iter().map(|(field, text)| (field, text.to_vec())).collect(),
        headers: [("user-agent".to_owned(), b"friendly-scanner 1.0".to_vec())].into(),
        numbers: [(NumberField::SourcePort, 5060), (NumberField::Size, 4096), (NumberField::MaxForwards, 70)].into(),
        address: Some(IpAddr::from([192, 0, 2, 7])),
        flags: vec![FlagField::FromLocal, FlagField::Authenticated],
    }
}

/// Returns the sets of the tests with their names.
pub(crate) fn sets() -> (SetNames, Sets) {
    type Entries<'a> = &'a [(&'a str, Option<&'a str>)];
    let made: [(&str, LookupKind, Entries<'_>); 6] = [
        ("vips", LookupKind::Texts, &[("alice", None), ("bob", None)]),
        ("plans", LookupKind::Texts, &[("Alice", Some("gold")), ("bob", Some("silver")), ("carol", None)]),
        ("domains", LookupKind::Texts, &[("EXAMPLE.com", Some("ours"))]),
        ("carriers", LookupKind::Prefixes, &[("+49", Some("west")), ("+4930", Some("East")), ("00", None)]),
        ("networks", LookupKind::Networks, &[("192.0.2.0/24", Some("office")), ("2001:db8::/32", None)]),
        ("nothing", LookupKind::Texts, &[]),
    ];
    let mut names = SetNames::default();
    let ids = made.map(|(name, kind, _)| names.add(name, kind).expect("a name"));
    let mut sets = Sets::empty(&names);
    for (id, (_, kind, entries)) in ids.into_iter().zip(made) {
        let set = Set::new(kind, entries.iter().copied()).expect("a set");
        sets = sets.with(id, Arc::new(set)).expect("a set of its kind");
    }
    (names, sets)
}
