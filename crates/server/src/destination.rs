//! Destination of a request: next hop, contacts or places of rules, each with the addresses that are tried.

use smallvec::SmallVec;
use strowger_core::Target;
use strowger_core::routing::AccountHash;

/// Addresses of one target, in the order of trying.
pub(crate) type Targets = SmallVec<[Target; 2]>;

/// Flows of a device, each with its Contact and Path; empty if the device has one flow.
pub(crate) type DeviceFlows<'a> = Vec<(Target, &'a [u8], &'a [u8])>;

/// Targets of one place of a rule or failure.
#[derive(Debug, PartialEq)]
pub(crate) enum RuleTargetAddresses {
    /// Addresses of a next hop.
    NextHop(Targets),
    /// Contacts of a user of this server, best first.
    User(Vec<UserContact>),
}

/// Contact of a user that a rule or failure names.
#[derive(Debug, PartialEq)]
pub(crate) struct UserContact {
    pub(crate) uri: Vec<u8>,
    /// Flows of the device, each with its Contact and Path, if it has several.
    pub(crate) flows: Vec<(Target, Vec<u8>, Vec<u8>)>,
    pub(crate) path: Vec<u8>,
    /// Targets, at least one.
    pub(crate) targets: Targets,
    /// Position in the order of trying; targets of equal position are tried together.
    pub(crate) rank: u16,
    pub(crate) account: AccountHash,
    /// True if the device sends from another address than that of its Contact.
    pub(crate) translated: bool,
}

impl RuleTargetAddresses {
    /// Tells whether there is no target.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::NextHop(targets) => targets.is_empty(),
            Self::User(contacts) => contacts.is_empty(),
        }
    }

    /// Returns all addresses, in the order of trying.
    pub(crate) fn addresses(&self) -> Vec<Target> {
        match self {
            Self::NextHop(targets) => targets.to_vec(),
            Self::User(contacts) => contacts.iter().flat_map(|contact| &contact.targets).copied().collect(),
        }
    }

    pub(crate) fn contacts(&self) -> &[UserContact] {
        match self {
            Self::NextHop(_) => &[],
            Self::User(contacts) => contacts,
        }
    }
}

/// Destination of a request.
#[derive(Debug, PartialEq)]
pub(crate) enum Destination {
    /// Contacts that were looked up, each with its targets.
    Contacts(SmallVec<[Targets; 2]>),
    /// First of the contacts, for an ACK, which is sent once.
    FirstContact(Target),
    /// Places of rules, each with its targets.
    Places(Vec<RuleTargetAddresses>),
    /// Next hop by Route or Request-URI; status of the response if it has no address.
    NextHop { targets: Targets, otherwise: u16 },
}

impl Destination {
    /// Returns the address that is tried first.
    pub(crate) fn first(&self) -> Option<Target> {
        match self {
            Self::Contacts(targets) => targets.iter().flatten().next().copied(),
            Self::FirstContact(target) => Some(*target),
            Self::Places(places) => places.iter().flat_map(RuleTargetAddresses::addresses).next(),
            Self::NextHop { targets, .. } => targets.first().copied(),
        }
    }

    /// Returns the status of the response if no target has an address; `None` if a target has one.
    pub(crate) fn unreachable(&self) -> Option<u16> {
        match self {
            Self::Contacts(targets) => targets.iter().all(|targets| targets.is_empty()).then_some(480),
            Self::Places(targets) => {
                let is_user = |targets: &RuleTargetAddresses| matches!(targets, RuleTargetAddresses::User(_));
                let status = if targets.iter().any(is_user) { 480 } else { 500 };
                targets.iter().all(RuleTargetAddresses::is_empty).then_some(status)
            }
            Self::NextHop { targets, otherwise, .. } => targets.is_empty().then_some(*otherwise),
            Self::FirstContact(_) => None,
        }
    }
}
