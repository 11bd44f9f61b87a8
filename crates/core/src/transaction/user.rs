//! Transaction user (TU) of a transaction (RFC 3261 section 5).

use crate::slots::{GENERATION_BITS, Id};
use serde::{Deserialize, Serialize};

/// Part of the shard that uses a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Role {
    /// None: the request was answered at once.
    None = 0,
    /// Proxy: the id is that of a response context.
    Proxy = 1,
    /// User agent: the id is that of a call, or of a sent request.
    UserAgent = 2,
    /// Suspended request, which waits for an answer of another component.
    Suspended = 3,
}

/// Role and id of a transaction user in eight bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TransactionUser(u64);

const ROLE: u32 = 32 + GENERATION_BITS;

impl TransactionUser {
    /// No user: [`Role::None`].
    pub const NONE: Self = Self(0);

    /// Creates a user. `id`: from the table of that role.
    pub const fn new(role: Role, id: Id) -> Self {
        Self((role as u64) << ROLE | id.to_u64())
    }

    /// Returns the role, which gets the responses and events of the transaction.
    pub const fn role(self) -> Role {
        match self.0 >> ROLE {
            1 => Role::Proxy,
            2 => Role::UserAgent,
            3 => Role::Suspended,
            _ => Role::None,
        }
    }

    /// Returns the id, if the user has this role.
    pub fn id(self, role: Role) -> Option<Id> {
        (self.role() == role).then(|| Id::from_u64(self.0 & ((1 << ROLE) - 1)))
    }
}

impl std::fmt::Debug for TransactionUser {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}:{:x}", self.role(), self.0 & ((1 << ROLE) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_of_one_role() {
        let largest = Id { slot: u32::MAX, generation: (1 << GENERATION_BITS) - 1 };
        for id in [Id { slot: 0, generation: 1 }, largest] {
            for role in [Role::Proxy, Role::UserAgent, Role::Suspended] {
                let user = TransactionUser::new(role, id);
                assert_eq!((user.role(), user.id(role)), (role, Some(id)));
                let others = [Role::None, Role::Proxy, Role::UserAgent, Role::Suspended];
                assert!(others.iter().all(|other| *other == role || user.id(*other).is_none()));
            }
        }
        assert_eq!(TransactionUser::NONE.role(), Role::None);
        assert_eq!(size_of::<TransactionUser>(), 8);
    }
}
