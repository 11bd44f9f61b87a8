//! Targets of the places that rules and failures name: addresses of a next hop, or contacts of a user of this server.
//!
//! A place that names a user is replaced by all contacts that the user has when the request arrives, which are tried as
//! `proxy.fork` says. No rule is evaluated for that user, so rules cannot form a loop. A user without a contact is
//! skipped.

use crate::contacts::{Contact, Contacts};
use crate::decider::Decider;
use crate::destination::{DeviceFlows, RuleTargetAddresses, Targets, UserContact};
use crate::edits::Edits;
use crate::handling::Handling;
use crate::question::Question;
use crate::rule_targets::RuleTargets;
use smallvec::SmallVec;
use strowger_config::Fork;
use strowger_core::proxy::{Candidate, Rerouting};
use strowger_core::routing::AccountHash;
use strowger_message::{SipUri, Uri};

/// Returns the position of a contact in the order of trying. `n`: its number among the contacts of the user. `group`:
/// its group by q.
pub(crate) fn rank(fork: Fork, n: usize, group: u16) -> u16 {
    match fork {
        Fork::Parallel => 0,
        Fork::Sequence => u16::try_from(n).unwrap_or(u16::MAX),
        Fork::ByQ => group,
    }
}

/// Flows of each contact of each place.
type Flows<'a> = Vec<Vec<DeviceFlows<'a>>>;

pub(crate) fn flows(targets: &[RuleTargetAddresses]) -> Flows<'_> {
    fn of_contact(contact: &UserContact) -> DeviceFlows<'_> {
        contact.flows.iter().map(|(target, uri, path)| (*target, &uri[..], &path[..])).collect()
    }
    targets.iter().map(|place| place.contacts().iter().map(of_contact).collect()).collect()
}

/// Copies of a request for places, each with the number of its place.
#[derive(Default)]
pub(crate) struct PlaceCandidates<'a> {
    pub(crate) candidates: SmallVec<[Candidate<'a>; 2]>,
    pub(crate) places: SmallVec<[usize; 4]>,
}

/// Changes of a request on its way to places.
#[derive(Clone, Copy)]
pub(crate) struct PlaceEdits<'a> {
    /// Request-URI for a next hop without a user; `None` if it is unchanged.
    pub(crate) uri: Option<&'a [u8]>,
    pub(crate) edits: &'a Edits,
    /// [`Candidate::asks`] of each place, by its number; empty if no place has one.
    pub(crate) asks: &'a [Vec<u8>],
}

impl<'a> PlaceCandidates<'a> {
    /// Creates the candidates of the places with these numbers, to be tried in this order or all at once. The URI of a
    /// place with a user replaces the Request-URI; the request to a place without a user keeps its Request-URI.
    pub(crate) fn new(
        places: &'a RuleTargets,
        (targets, flows): (&'a [RuleTargetAddresses], &'a Flows<'a>),
        order: impl Iterator<Item = usize>,
        changes: PlaceEdits<'a>,
    ) -> Self {
        let (mut all, mut next, mut is_asked) = (Self::default(), 0_u16, false);
        for place in order {
            let Some(to) = targets.get(place).filter(|targets| !targets.is_empty()) else { continue };
            let first = if places.at_once { 0 } else { next };
            let common = Candidate {
                add: &changes.edits.add,
                remove: &changes.edits.remove,
                rerouting: Rerouting::NextHop,
                // Of places that are tried at once, only the first asks for a decision before its trial.
                asks: changes.asks.get(place).filter(|_| !(places.at_once && is_asked)).map_or(&[], |asks| asks),
                ..Candidate::default()
            };
            is_asked = true;
            match to {
                RuleTargetAddresses::NextHop(targets) => {
                    let own = places.uris.get(place).filter(|uri| has_user(uri)).map(|uri| uri.as_bytes());
                    let q = q_of(first);
                    next = next.max(first.saturating_add(1));
                    all.push(place, Candidate { uri: own.or(changes.uri), targets, q, watched: true, ..common });
                }
                RuleTargetAddresses::User(contacts) => {
                    let flows = flows.get(place).map_or(&[][..], |flows| flows);
                    for (n, (contact, flows)) in contacts.iter().zip(flows).enumerate() {
                        let rank = first.saturating_add(contact.rank);
                        next = next.max(rank.saturating_add(1));
                        let candidate = Candidate {
                            uri: Some(&contact.uri),
                            flows,
                            path: &contact.path,
                            targets: &contact.targets,
                            q: q_of(rank),
                            fixed: contact.path.is_empty(),
                            translated: contact.translated,
                            asks: if n == 0 { common.asks } else { b"" },
                            rerouting: Rerouting::User(contact.account),
                            ..common
                        };
                        // A phone that several users have registered rings once.
                        let is_same = |other: &Candidate<'_>| {
                            (other.uri, other.path, other.targets) == (candidate.uri, candidate.path, candidate.targets)
                        };
                        if !(places.at_once && all.candidates.iter().any(is_same)) {
                            all.push(place, candidate);
                        }
                    }
                }
            }
        }
        all
    }

    fn push(&mut self, place: usize, candidate: Candidate<'a>) {
        self.candidates.push(candidate);
        self.places.push(place);
    }
}

/// Returns the q of a candidate at this position in the order of trying.
fn q_of(rank: u16) -> u16 {
    1_000_u16.saturating_sub(rank)
}

fn has_user(uri: &str) -> bool {
    Uri::parse(uri.as_bytes()).is_ok_and(|uri| uri.sip().is_some_and(|uri| uri.user.is_some()))
}

impl Decider<'_> {
    /// Returns the targets of each of these places. A request for a sips URI is sent by TLS, or not at all (RFC 3261
    /// section 26.2.2). So a sip URI of another server with a user, which would replace the sips URI, has no targets.
    pub(crate) fn targets_of_places(
        &self,
        handling: &Handling<'_, '_>,
        places: &RuleTargets,
    ) -> Result<Vec<RuleTargetAddresses>, Question> {
        let is_sips = handling.request.uri.is_sips();
        let (mut contacts, mut room) = (Contacts::default(), usize::from(self.policy.forwarding.settings.max_branches));
        let mut targets = |uri: Uri<'_>| {
            let is_user = self.names_user(&uri);
            let uri = match uri {
                Uri::Sip(uri) if is_sips && uri.user.is_some() && !uri.secure && !is_user => {
                    return Ok(RuleTargetAddresses::NextHop(Targets::new()));
                }
                Uri::Sip(uri) => Uri::Sip(SipUri { secure: uri.secure || is_sips, ..uri }),
                other => other,
            };
            if !is_user {
                let targets = self.targets_of_uri(handling, &uri, handling.request.arrival.listener);
                return targets.map(RuleTargetAddresses::NextHop);
            }
            self.lookup_contacts(handling.now, handling.request.method, &uri, &mut contacts);
            // Contacts beyond the limit are never tried.
            contacts.entries.truncate(room);
            let found = self.user_contacts(handling, &contacts, self.policy.router.account_of(&uri))?;
            room -= found.len();
            Ok(RuleTargetAddresses::User(found))
        };
        places.uris.iter().filter_map(|uri| Uri::parse(uri.as_bytes()).ok()).map(&mut targets).collect()
    }

    /// Returns the contacts that were looked up and have a target.
    fn user_contacts(
        &self,
        handling: &Handling<'_, '_>,
        contacts: &Contacts,
        account: AccountHash,
    ) -> Result<Vec<UserContact>, Question> {
        let (fork, text) = (self.policy.config.proxy.fork, &contacts.text);
        let targets = self.targets_of_contacts(handling, contacts)?;
        let all = contacts.entries.iter().zip(contacts.groups()).zip(targets).enumerate();
        let reached = all.filter(|(_, (_, targets))| !targets.is_empty());
        let found = reached.map(|(n, ((contact, group), targets)): (_, ((&Contact, _), _))| {
            self.flows_of(handling, contacts, contact).map(|flows| UserContact {
                uri: text[contact.uri.clone()].to_vec(),
                flows: flows.iter().map(|(flow, uri, path)| (*flow, uri.to_vec(), path.to_vec())).collect(),
                path: text[contact.path.clone()].to_vec(),
                targets,
                rank: rank(fork, n, group),
                account,
                translated: contact.target.is_some(),
            })
        });
        found.collect()
    }
}
