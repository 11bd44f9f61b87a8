//! Decision about the contacts of one address-of-record: its input, its steps, and reasons for refusal.

use crate::binding::{Binding, BindingId, BindingView, InvalidBinding, PackedBinding};
use crate::partition::Partition;
use crate::ticket::Refused;
use crate::user_agent_texts::UserAgentTexts;

/// Bindings of an address-of-record at the time of a decision.
pub struct ExistingBindings<'a> {
    pub(super) partition: &'a Partition,
    pub(super) live: &'a [u32],
    pub(super) agents: &'a UserAgentTexts,
}

impl<'a> ExistingBindings<'a> {
    /// Returns the bindings that have not expired, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = BindingView<'a>> + use<'a> {
        let (partition, agents) = (self.partition, self.agents);
        self.live.iter().map(move |slot| BindingView::new(partition.at(*slot), agents))
    }

    /// Returns their number.
    pub fn len(&self) -> usize {
        self.live.len()
    }

    /// Tells whether there are no unexpired bindings.
    pub fn is_empty(&self) -> bool {
        self.live.is_empty()
    }
}

/// Step of a decision about an address-of-record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// Adds a contact. The table sets its `aor`.
    Add(Binding<'a>),
    /// Replaces all fields of an existing contact.
    Replace(BindingId, Binding<'a>),
    /// Removes a contact.
    Remove(BindingId),
    /// Removes all contacts (RFC 3261 section 10.2.2, `Contact: *`), including those of earlier steps; later steps
    /// apply.
    RemoveAll,
}

/// Progress of a change when [`LocationTable::update`](super::LocationTable::update) returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpdateStatus {
    /// Final: this durability writes nothing to disk. The ticket does not come back.
    Done,
    /// In progress: the ticket comes back when the change is stored or has failed; the 200 waits for it.
    Pending,
}

/// Reason why nothing was changed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum UpdateError<E> {
    /// Error of the decision itself.
    #[error("refused by the registrar")]
    Decision(E),
    /// The address-of-record would have too many contacts.
    #[error("the address-of-record would have {contacts} contacts; {limit} are allowed")]
    TooManyContacts {
        /// Number of contacts after the change.
        contacts: usize,
        /// Largest number allowed.
        limit: usize,
    },
    /// The whole table is at its limit.
    #[error("the location table is full")]
    TableFull,
    /// A contact cannot be stored.
    #[error(transparent)]
    Invalid(#[from] InvalidBinding),
    /// A step names a contact that this address-of-record does not have.
    #[error("no such binding")]
    NoSuchBinding(BindingId),
    /// The writer refused the change.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// Result of the steps of a decision.
pub(super) struct Plan {
    /// Packed bindings to insert.
    pub(super) puts: Vec<PackedBinding>,
    /// Slots to empty.
    pub(super) gone: Vec<u32>,
    /// Live bindings that stay unchanged.
    pub(super) untouched: usize,
}

impl Plan {
    /// Packs the bindings that the steps add and marks the bindings that they remove, without changing the table.
    /// `pack` assigns a new id to a binding without one.
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
