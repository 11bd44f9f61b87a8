//! Orders about the limits of calls: the calls counted under each.

use super::limit_list::{Limit, LimitKey, LimitList};
use super::{Controlled, Reply};
use crate::identity::canonical_aor;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use strowger_calls::limits::LimitScope;
use strowger_config::CallLimitTable;
use strowger_core::routing::Identity;
use strowger_message::Uri;

impl Controlled {
    /// Returns all limits, or the named limit. Reads the counts in parts, so that a call that begins meanwhile waits
    /// for one part at most.
    pub(super) async fn limits(&self, name: Option<String>, key: Option<String>, most: usize) -> Reply {
        let policy = self.shared.policy();
        let tables = &policy.config.call_limits;
        let counted = &self.shared.call_limits;
        if let Some(name) = name.as_deref().filter(|name| !tables.iter().any(|table| *table.name.as_str() == **name)) {
            return Reply::Refused(format!("no [[call_limit]] of the configuration has the name {name}"));
        }
        let mut tallies: BTreeMap<Box<str>, Tally> = BTreeMap::new();
        for part in 0..counted.parts() {
            counted.each(part, &mut |scope, calls| {
                if name.as_deref().is_some_and(|name| name != &*scope.name) {
                    return;
                }
                // Each name is copied only once.
                if !tallies.contains_key(&scope.name) {
                    let table = tables.iter().find(|table| *table.name.as_str() == *scope.name);
                    tallies.insert(scope.name.clone(), Tally::new(table));
                }
                if let Some(tally) = tallies.get_mut(&scope.name) {
                    tally.add(scope, calls, if key.is_some() { 0 } else { most });
                }
            });
            tokio::task::yield_now().await;
        }
        let key = key.as_deref().map(|key| counted_key(key, policy.identity()));
        let of_key = |name: &str| {
            let key = key.as_ref()?;
            let scope = LimitScope { name: name.into(), value: key.as_bytes().into() };
            Some(vec![LimitKey { calls: counted.calls(&scope), key: key.clone() }])
        };
        let mut limits = Vec::new();
        for table in tables.iter().filter(|table| name.as_deref().is_none_or(|name| name == table.name.as_str())) {
            let tally = tallies.remove(table.name.as_str()).unwrap_or_else(|| Tally::new(Some(table)));
            limits.push(tally.limit(table.name.as_str(), of_key(table.name.as_str())));
        }
        limits.extend(tallies.into_iter().map(|(name, tally)| tally.limit(&name, of_key(&name))));
        Reply::Limits(LimitList { limits })
    }
}

/// Returns the key under which the calls of this user, group, address or URI count: a user of a domain has no scheme.
fn counted_key(key: &str, identity: &Identity) -> String {
    match Uri::parse(key.as_bytes()) {
        Ok(uri @ (Uri::Sip(_) | Uri::Tel(_))) => {
            let mut aor = Vec::new();
            identity.write_aor(&uri, &mut aor);
            String::from_utf8_lossy(&aor).into_owned()
        }
        _ if key.contains('@') => String::from_utf8_lossy(&canonical_aor(identity, key.as_bytes())).into_owned(),
        _ => key.to_owned(),
    }
}

/// Sum of the calls counted under one limit.
struct Tally {
    per: &'static str,
    most: Option<u32>,
    calls: u64,
    keys: u64,
    full: u64,
    /// Min-heap of the highest: the lowest of them comes out first.
    highest: BinaryHeap<Reverse<(u32, Box<[u8]>)>>,
}

impl Tally {
    fn new(table: Option<&CallLimitTable>) -> Self {
        let (per, most) = (table.map_or("", |table| table.per.word()), table.map(|table| table.most));
        Self { per, most, calls: 0, keys: 0, full: 0, highest: BinaryHeap::new() }
    }

    /// Adds a key with its calls. `room`: maximum number of keys to show.
    fn add(&mut self, scope: &LimitScope, calls: u32, room: usize) {
        self.calls += u64::from(calls);
        self.keys += 1;
        self.full += u64::from(self.most.is_some_and(|most| calls >= most));
        let is_among = match self.highest.peek() {
            _ if room == 0 => false,
            Some(Reverse((lowest, _))) if self.highest.len() >= room => calls > *lowest,
            _ => true,
        };
        if is_among {
            if self.highest.len() >= room {
                self.highest.pop();
            }
            self.highest.push(Reverse((calls, scope.value.clone())));
        }
    }

    fn limit(self, name: &str, of_key: Option<Vec<LimitKey>>) -> Limit {
        let Self { per, most, calls, keys, full, highest } = self;
        let shown = |Reverse((calls, value)): Reverse<(u32, Box<[u8]>)>| {
            let key = String::from_utf8_lossy(&value).into_owned();
            LimitKey { calls, key }
        };
        let mut keyed: Vec<LimitKey> = highest.into_iter().map(shown).collect();
        keyed.sort_by(|a, b| (Reverse(a.calls), &a.key).cmp(&(Reverse(b.calls), &b.key)));
        Limit { name: name.into(), per: per.into(), most, calls, keys, full, highest: of_key.unwrap_or(keyed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(value: &str) -> LimitScope {
        LimitScope { name: "west".into(), value: value.as_bytes().into() }
    }

    #[test]
    fn the_highest_keys_come_first_and_all_are_counted() {
        let table = CallLimitTable { most: 4, ..CallLimitTable::default() };
        let mut tally = Tally::new(Some(&table));
        for (key, calls) in [("a", 1), ("b", 4), ("c", 2), ("d", 4), ("e", 3)] {
            tally.add(&scope(key), calls, 3);
        }
        let limit = tally.limit("west", None);
        assert_eq!((limit.calls, limit.keys, limit.full, limit.most), (14, 5, 2, Some(4)));
        let keys: Vec<(&str, u32)> = limit.highest.iter().map(|row| (&*row.key, row.calls)).collect();
        assert_eq!(keys, [("b", 4), ("d", 4), ("e", 3)]);
    }

    #[test]
    fn a_key_may_have_a_scheme() {
        let identity = Identity::new(Vec::new(), ["example.org"], &[]).with_aliases([("192.0.2.1", "example.org")]);
        for (asked, key) in [
            ("sip:a0@Example.org", "a0@example.org"),
            ("sips:a%30@example.org:5070;user=phone", "a0@example.org"),
            ("sip:a0@192.0.2.1", "a0@example.org"),
            ("a0@192.0.2.1", "a0@example.org"),
            ("tel:+49-30", "tel:+4930"),
            ("a0@example.org", "a0@example.org"),
            ("alice", "alice"),
            ("192.0.2.7", "192.0.2.7"),
            ("2001:db8::7", "2001:db8::7"),
        ] {
            assert_eq!(counted_key(asked, &identity), key);
        }
    }

    #[test]
    fn a_limit_that_the_configuration_has_no_more_has_no_bound() {
        let mut tally = Tally::new(None);
        tally.add(&scope("a"), 7, 0);
        let limit = tally.limit("west", None);
        assert_eq!((&*limit.per, limit.most, limit.calls, limit.full, limit.highest.len()), ("", None, 7, 0, 0));
    }
}
