//! A decision about the contacts of one address-of-record: what it sees, its steps, and why it may not count.

use crate::binding::{Binding, BindingId, BindingView, InvalidBinding, PackedBinding};
use crate::partition::Partition;
use crate::ticket::Refused;
use crate::user_agent_texts::UserAgentTexts;

/// What an address-of-record has at the time of a decision.
pub struct ExistingBindings<'a> {
    pub(super) partition: &'a Partition,
    pub(super) live: &'a [u32],
    pub(super) agents: &'a UserAgentTexts,
}

impl<'a> ExistingBindings<'a> {
    /// The bindings that have not expired, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = BindingView<'a>> + use<'a> {
        let (partition, agents) = (self.partition, self.agents);
        self.live.iter().map(move |slot| BindingView::new(partition.at(*slot), agents))
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

/// One step of a decision about an address-of-record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// A contact that was not there. Its `aor` is set by the table.
    Add(Binding<'a>),
    /// New values for a contact that is there; every field is replaced.
    Replace(BindingId, Binding<'a>),
    /// A contact that goes.
    Remove(BindingId),
    /// All contacts go (RFC 3261 section 10.2.2, `Contact: *`). Steps before it are undone by it, steps after it count.
    RemoveAll,
}

/// How far a change is when [`LocationTable::update`](super::LocationTable::update) returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateStatus {
    /// Final: nothing is written to disk in this durability. No ticket will come.
    Done,
    /// The ticket comes when the change is kept or has failed; the 200 waits for it.
    Pending,
}

/// Why nothing was changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError<E> {
    /// What the decision itself said.
    #[error("refused by the registrar")]
    Decision(E),
    /// More contacts than the address-of-record may have.
    #[error("the address-of-record would have {contacts} contacts; {limit} are allowed")]
    TooManyContacts {
        /// Contacts that it would have.
        contacts: usize,
        /// Most that it may have.
        limit: usize,
    },
    /// The whole table is at its limit.
    #[error("the location table is full")]
    TableFull,
    /// A contact that cannot be kept.
    #[error(transparent)]
    Invalid(#[from] InvalidBinding),
    /// A step names a contact that this address-of-record does not have.
    #[error("no such binding")]
    NoSuchBinding(BindingId),
    /// The writer did not take it.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// What the steps of a decision come to.
pub(super) struct Plan {
    /// Packed bindings to put in.
    pub(super) puts: Vec<PackedBinding>,
    /// Slots to empty.
    pub(super) gone: Vec<u32>,
    /// Live bindings that stay as they are.
    pub(super) untouched: usize,
}

impl Plan {
    /// Packs what the steps add and marks what they take away, without changing anything. `pack` gives a new id where
    /// there is none.
    pub(super) fn of<E>(
        steps: &[Step<'_>],
        partition: &Partition,
        live: &[u32],
        pack: impl Fn(Option<BindingId>, &Binding<'_>) -> Result<PackedBinding, InvalidBinding>,
    ) -> Result<Self, UpdateError<E>> {
        let mut plan = Self { puts: Vec::with_capacity(steps.len()), gone: Vec::new(), untouched: live.len() };
        for step in steps {
            match step {
                Step::Add(binding) => plan.puts.push(pack(None, binding)?),
                Step::Replace(id, binding) => {
                    plan.take(partition, live, *id)?;
                    plan.puts.push(pack(Some(*id), binding)?);
                }
                Step::Remove(id) => plan.take(partition, live, *id)?,
                Step::RemoveAll => {
                    plan.puts.clear();
                    plan.gone = live.to_vec();
                    plan.untouched = 0;
                }
            }
        }
        Ok(plan)
    }

    fn take<E>(&mut self, partition: &Partition, live: &[u32], id: BindingId) -> Result<(), UpdateError<E>> {
        let slot = live.iter().copied().find(|slot| partition.at(*slot).id() == id);
        match slot {
            Some(slot) if !self.gone.contains(&slot) => {
                self.gone.push(slot);
                self.untouched -= 1;
                Ok(())
            }
            _ => Err(UpdateError::NoSuchBinding(id)),
        }
    }
}
