//! Places to which rules and failures send a request: gateways, alone or in groups, and the limits under which a call
//! counts at each place.

use crate::policy::{Policy, Turn};
use serde::{Deserialize, Serialize};
use smallvec::SmallVec;
use std::ops::Range;
use std::sync::atomic::Ordering::Relaxed;
use strowger_cache::spread::{fnv, mix};
use strowger_calls::limits::Claim;
use strowger_config::{Pick, Targets};
use strowger_core::routing::Request;
use strowger_message::uri::sip::unescaped;
use strowger_message::{SipUri, Uri};

/// Indexes of places in the order of trial.
pub(crate) type TrialOrder = SmallVec<[usize; 4]>;

/// Places of a rule or a failure: targets that it names, tried in order or at once.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RuleTargets {
    /// URIs of the places. The URIs of a group are adjacent and in the order of the group.
    pub(crate) uris: Vec<String>,
    groups: SmallVec<[GroupPart; 1]>,
    /// Limits under which a call counts while it is sent to a place, by index of the place. Empty: no place has limits.
    claims: Vec<Vec<Claim>>,
    /// True if the places are tried at once, not in order.
    pub(crate) at_once: bool,
}

/// Range of places that belong to one gateway group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct GroupPart {
    /// Index of the group in the configuration by which the request is routed.
    number: u16,
    first: u16,
    behind: u16,
}

impl GroupPart {
    fn places(&self) -> Range<usize> {
        usize::from(self.first)..usize::from(self.behind)
    }
}

impl RuleTargets {
    pub(crate) fn of(targets: &Targets, claims: Vec<Vec<Claim>>) -> Self {
        let number = |number: usize| u16::try_from(number).unwrap_or(u16::MAX);
        let groups = targets.groups.iter().map(|part| GroupPart {
            number: number(part.group.number),
            first: number(part.places.start),
            behind: number(part.places.end),
        });
        Self {
            uris: targets.uris.iter().map(|uri| uri.as_str().to_owned()).collect(),
            groups: groups.collect(),
            claims,
            at_once: targets.at_once,
        }
    }

    /// Tells whether the rules name no place.
    pub(crate) fn is_empty(&self) -> bool {
        self.uris.is_empty()
    }

    /// Returns the limits under which a call counts while it is sent to this place.
    pub(crate) fn claims(&self, place: usize) -> &[Claim] {
        self.claims.get(place).map_or(&[], |claims| claims)
    }

    /// Returns the limits of each place. Empty: no place has limits.
    pub(crate) fn all_claims(&self) -> &[Vec<Claim>] {
        &self.claims
    }

    /// Tells whether a call may count under limits at a place.
    pub(crate) fn may_count(&self) -> bool {
        !self.claims.is_empty()
    }

    /// Returns the number of the group of this place.
    pub(crate) fn group_of(&self, place: usize) -> Option<usize> {
        let part = self.groups.iter().find(|part| part.places().contains(&place))?;
        Some(usize::from(part.number))
    }

    /// Returns the numbers of the groups, in order.
    pub(crate) fn groups(&self) -> impl Iterator<Item = usize> {
        self.groups.iter().map(|part| usize::from(part.number))
    }

    /// Returns the order in which places are tried. `first` returns the index of the first place of a group, from the
    /// number of the group and its count of places. For a group that occurs twice, `first` is called once.
    pub(crate) fn order(&self, first: impl Fn(usize, usize) -> usize) -> TrialOrder {
        let mut order: TrialOrder = (0..self.uris.len()).collect();
        for (n, part) in self.groups.iter().enumerate() {
            let is_same = |other: &&GroupPart| other.number == part.number;
            if self.groups[..n].iter().any(|other| is_same(&other)) {
                continue;
            }
            let count = order.get(part.places()).map_or(0, <[usize]>::len);
            if count == 0 {
                continue;
            }
            let first = first(usize::from(part.number), count) % count;
            for part in self.groups[n..].iter().filter(is_same) {
                if let Some(places) = order.get_mut(part.places()).filter(|places| places.len() == count) {
                    places.rotate_left(first);
                }
            }
        }
        order
    }
}

impl Policy {
    /// Returns the index of the first target for a request that goes to this group.
    pub(crate) fn first_of_group(&self, number: usize, count: usize, request: &Request<'_>) -> usize {
        self.picks(number, count, request, |turn| turn.of_rules.fetch_add(1, Relaxed))
    }

    /// Returns the index of the first target for a request that goes to the group after a failure. Such requests are
    /// few, and a fixed rotation could coincide with a pattern in them, so the number of the turn is mixed into a
    /// pseudo-random index.
    pub(crate) fn first_after_failure(&self, number: usize, count: usize, request: &Request<'_>) -> usize {
        self.picks(number, count, request, |turn| mixed(turn.of_failures.fetch_add(1, Relaxed) as u64) as usize)
    }

    /// Returns the order in which the places of a request are tried, by their groups.
    pub(crate) fn order_of_groups(&self, request: &Request<'_>, places: &RuleTargets) -> TrialOrder {
        places.order(|number, count| self.first_of_group(number, count, request))
    }

    fn picks(&self, number: usize, count: usize, request: &Request<'_>, turn: impl Fn(&Turn) -> usize) -> usize {
        match self.config.gateway_groups.get(number).map(|group| group.pick) {
            Some(Pick::InTurn) => self.turns.get(number).map_or(0, turn) % count.max(1),
            Some(Pick::ByCall) => of_call(request.call_id, count),
            Some(Pick::InOrder) | None => 0,
        }
    }
}

/// User whom a rule or failure names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedUser {
    /// Rule or failure that names it, as the log shows it.
    pub place: String,
    /// User part of the URI, escapes decoded.
    pub username: Vec<u8>,
    /// Names of the user's domain, the canonical one first: the database has the user under any of them.
    pub domains: Vec<Vec<u8>>,
}

impl Policy {
    /// Returns the users whom rules and failures name, each once.
    pub fn named_users(&self) -> Vec<NamedUser> {
        let mut users: Vec<NamedUser> = Vec::new();
        let mut add = |place: String, targets: &Targets| {
            for uri in &targets.uris {
                let Ok(Uri::Sip(uri)) = Uri::parse(uri.as_str().as_bytes()) else { continue };
                let identity = self.router.identity();
                // An address without a domain may be another program at the default port: the rule that holds for
                // requests is used here too.
                let Some(domain) = identity.domain_of(uri.host).filter(|_| self.is_local(&uri)) else { continue };
                let Some(user) = uri.user.filter(|_| uri.params.maddr().is_none()) else { continue };
                let username = unescaped(user).collect();
                let domains = identity.names_of(domain).map(<[u8]>::to_vec).collect();
                if !users.iter().any(|other| other.username == username && other.domains == domains) {
                    users.push(NamedUser { place: place.clone(), username, domains });
                }
            }
        };
        add("[emergency]".to_owned(), &self.config.decisions.emergency);
        for rule in self.config.decisions.rules.iter() {
            add(format!("rule {}", rule.name), &rule.action.to);
            rule.action.on_failure.iter().for_each(|failure| add(format!("failure {}", failure.name), &failure.to));
        }
        users
    }

    /// Tells whether a URI is at a name or alias of a local domain, or at an address of a listener.
    pub(crate) fn is_local(&self, uri: &SipUri<'_>) -> bool {
        let identity = self.router.identity();
        identity.is_at_local_domain(uri.host, uri.port)
            || (identity.domain_of(uri.host).is_some() && self.router.is_own(uri))
    }
}

/// Returns an index below `count` from a Call-ID: the same index in each process and server, also after a restart.
fn of_call(call_id: &[u8], count: usize) -> usize {
    let hash = mixed(fnv(call_id));
    ((u128::from(hash) * count as u128) >> 64) as usize
}

/// Mixes each bit of a number into all bits of the result (SplitMix64).
const fn mixed(number: u64) -> u64 {
    mix(number.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(count: usize, groups: &[(u16, u16, u16)]) -> RuleTargets {
        let part = |&(number, first, behind): &(u16, u16, u16)| GroupPart { number, first, behind };
        RuleTargets {
            uris: vec!["sip:a".into(); count],
            groups: groups.iter().map(part).collect(),
            claims: Vec::new(),
            at_once: false,
        }
    }

    #[test]
    fn a_group_begins_with_the_one_that_it_picks() {
        let order = |places: &RuleTargets, first| places.order(|_, _| first).into_vec();
        let one = places(5, &[(0, 1, 4)]);
        assert_eq!(order(&one, 0), [0, 1, 2, 3, 4]);
        assert_eq!(order(&one, 2), [0, 3, 1, 2, 4]);
        assert_eq!(order(&places(4, &[(0, 0, 2), (1, 2, 4)]), 1), [1, 0, 3, 2]);
        assert_eq!(order(&places(0, &[(0, 0, 0)]), 1), [0; 0]);
        let (twice, turns) = (places(5, &[(0, 0, 2), (0, 3, 5)]), std::cell::Cell::new(0));
        let in_turn = |_, count| turns.replace(turns.get() + 1) % count;
        let order = |places: &RuleTargets| places.order(in_turn).into_vec();
        assert_eq!([order(&twice), order(&twice)], [[0, 1, 2, 3, 4], [1, 0, 2, 4, 3]], "a request takes one turn");
        assert_eq!(one.groups().chain((0..5).filter_map(|place| one.group_of(place))).collect::<Vec<_>>(), [0; 4]);
    }

    /// Checks the indexes of some Call-IDs, because servers that share calls must agree on them, and so must different
    /// processes.
    #[test]
    fn calls_are_spread_by_their_ids() {
        let mut counts = [0; 3];
        for n in 0..3_000 {
            counts[of_call(format!("{n}@192.0.2.1").as_bytes(), 3)] += 1;
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
        assert_eq!([&b""[..], b"a", b"b", b"c", b"d"].map(|id| of_call(id, 4)), [3, 1, 1, 1, 3]);
        assert_eq!(of_call(b"a", 0), 0);
    }
}
